//! The block of a record: what is served, and whether it is whole.

use std::io::{BufRead, Read};

use sha1::{Digest as _, Sha1};

use super::header::{Header, Kind};
use super::http::Head;
use super::record::{Counted, Problem, corrupt};
use super::transfer::{Broken, Codings, Decoder};

/// A block that was read to its end.
#[derive(Debug)]
pub(super) struct Block {
    /// Head of an HTTP response.
    pub(super) head: Head,
    /// How the body is stored.
    pub(super) codings: Codings,
    /// Bytes of the content.
    pub(super) size: u64,
    pub(super) damage: Option<&'static str>,
}

impl Block {
    /// Reads a block of `len` bytes completely.
    pub(super) fn read(
        input: &mut Counted<impl BufRead>,
        len: u64,
        header: &Header,
    ) -> Result<Block, Problem> {
        let mut input = input.part(len).ok_or(corrupt("its length is wrong"))?;
        let kind = header.kind;
        let mut head = if kind == Kind::Http { Head::read(&mut input)? } else { Head::default() };
        let named = head.field("Transfer-Encoding").unwrap_or_default();
        let (codings, unknown) = Codings::named(named);
        let served = matches!(kind, Kind::Http | Kind::Resource);
        let mut reading = Reading {
            digest: header.digest.filter(|_| served).map(|digest| (digest, Sha1::new())),
            decoder: Decoder::new(codings),
            broken: None,
            size: 0,
        };
        reading.hash(&head.bytes);
        reading.feed(&std::mem::take(&mut head.spill));
        while input.piece(u64::MAX, |piece| reading.feed(piece))? > 0 {}
        if input.offset() != len {
            return Err(corrupt("it ends too early"));
        }
        let (codings, decoded, damage) = reading.end(header.cut);
        // What merely began like a size of a chunk is content.
        let size = if codings.none() { len - head.bytes.len() as u64 } else { decoded };
        let damage = if kind == Kind::Http && head.fields().is_none() {
            Some("it has no complete HTTP header")
        } else if unknown {
            Some("it has a transfer coding other than chunked and gzip")
        } else {
            damage
        };
        Ok(Block { head, codings, size, damage })
    }
}

/// State of a block while it is read.
struct Reading {
    /// Expected digest of the block, and the hash of the bytes so far.
    digest: Option<([u8; 20], Sha1)>,
    decoder: Decoder,
    broken: Option<Broken>,
    /// Bytes of content so far.
    size: u64,
}

impl Reading {
    fn hash(&mut self, bytes: &[u8]) {
        if let Some((_, sha1)) = &mut self.digest {
            sha1.update(bytes);
        }
    }

    /// Processes more bytes of the body.
    fn feed(&mut self, piece: &[u8]) {
        self.hash(piece);
        if self.broken.is_none() {
            let size = &mut self.size;
            self.broken = self.decoder.feed(piece, |data| *size += data.len() as u64).err();
        }
    }

    /// Returns the codings of the body, the size of its content and its defect. A crawler may have
    /// `cut` the body, but what it compressed cannot be read without its end.
    fn end(mut self, cut: bool) -> (Codings, u64, Option<&'static str>) {
        let size = &mut self.size;
        let (codings, complete) = self.decoder.end(|data| *size += data.len() as u64);
        let incomplete = complete.err().filter(|_| !cut || codings.gzip);
        let wrong = self.digest.is_some_and(|(digest, sha1)| digest[..] != sha1.finalize()[..]);
        let damage = if wrong {
            Some("its digest does not match")
        } else {
            self.broken.or(incomplete).map(|Broken(what)| what)
        };
        (codings, self.size, damage)
    }
}

impl<R: BufRead> Counted<R> {
    /// Returns a reader of the next `len` bytes, which counts from 0, or `None` if no file could
    /// have them.
    fn part(&mut self, len: u64) -> Option<Counted<impl BufRead>> {
        self.pass(len)?;
        Some(Counted::new(self.reader.by_ref().take(len), 0))
    }
}
