//! An item's content as a stream, from its start to its end.

use std::io::{self, BufRead, Read, Take};
use std::sync::Arc;

use super::archive::{Archive, Tape};
use super::inflate::Member;
use super::record::Record;
use super::transfer::Decoder;
use crate::Fault;

/// Stored bytes of a record, from the archive itself or from a member of it.
enum Stored {
    Plain(Tape),
    Member(Member),
}

impl Read for Stored {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stored::Plain(tape) => tape.read(buf),
            Stored::Member(member) => member.read(buf),
        }
    }
}

impl BufRead for Stored {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Stored::Plain(tape) => tape.fill_buf(),
            Stored::Member(member) => member.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self {
            Stored::Plain(tape) => tape.consume(amount),
            Stored::Member(member) => member.consume(amount),
        }
    }
}

/// A stream of the content of a record.
pub(super) struct Content {
    stored: Take<Stored>,
    /// Undoes the codings of the body, until its end.
    decoder: Option<Decoder>,
}

impl Content {
    /// Opens the content of a record. Reads the record's header first, which must be the one that
    /// the scan found.
    pub(super) fn open(archive: &Arc<Archive>, record: &Record) -> Result<Content, Fault> {
        let mut stored = match record.member {
            None => Stored::Plain(archive.tape(record.start)),
            Some(member) => {
                let member = Member::open(archive, member).map_err(fault)?;
                let mut member = Stored::Member(member);
                pass(&mut member, record.start)?;
                member
            }
        };
        let mut header = Vec::new();
        let header_len = u64::from(record.header_len);
        (&mut stored).take(header_len).read_to_end(&mut header).map_err(fault)?;
        if crc32fast::hash(&header) != record.header_crc {
            return Err(Fault::Changed);
        }
        pass(&mut stored, u64::from(record.http_len))?;
        let decoder = (!record.codings.none()).then(|| Decoder::new(record.codings));
        Ok(Content { stored: stored.take(record.stored_len), decoder })
    }

    /// Returns the bytes that inflating it keeps in memory.
    pub(super) fn window(&self) -> u64 {
        match self.stored.get_ref() {
            Stored::Plain(_) => 0,
            Stored::Member(member) => member.window(),
        }
    }

    /// Appends more of the content. Returns the number of bytes, 0 only at the end.
    pub(super) fn read_more(&mut self, content: &mut Vec<u8>) -> Result<usize, Fault> {
        let before = content.len();
        while content.len() == before {
            let piece = self.stored.fill_buf().map_err(fault)?;
            let len = piece.len();
            if len == 0 {
                if let Some(mut decoder) = self.decoder.take() {
                    // What is incomplete here, the crawler had cut.
                    let _ = decoder.end(|data| content.extend_from_slice(data));
                }
                break;
            }
            match &mut self.decoder {
                None => content.extend_from_slice(piece),
                Some(decoder) => decoder
                    .feed(piece, |data| content.extend_from_slice(data))
                    .map_err(|_| Fault::Changed)?,
            }
            self.stored.consume(len);
        }
        Ok(content.len() - before)
    }
}

/// Skips `len` bytes.
fn pass(stored: &mut Stored, len: u64) -> Result<(), Fault> {
    let passed = io::copy(&mut stored.take(len), &mut io::sink()).map_err(fault)?;
    if passed == len { Ok(()) } else { Err(Fault::Changed) }
}

/// Converts an error. The scan has inflated the data before, so invalid data means that the file
/// changed.
fn fault(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Fault::Changed
        }
        _ => Fault::Io(error),
    }
}
