//! The transfer codings of an HTTP body [RFC 9112 §7]: chunks, and compression below them.
//!
//! Crawlers that decode a body may keep the header as it was. So a coding that the body does not
//! have is not applied: chunks whose first size cannot be read, and compression without its first
//! bytes.

use std::io::Write;

use flate2::write::MultiGzDecoder;

use super::chunked::{ChunkError, Dechunker};

/// Bytes that are inflated at a time, which bounds what they become.
const STEP: usize = 1024;

/// The codings that a stored body has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Codings {
    pub(super) chunked: bool,
    pub(super) gzip: bool,
}

/// Defect of a coded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

impl Codings {
    /// Returns the codings that a header names, and whether it names one that is not supported.
    pub(super) fn named(field: &[u8]) -> (Codings, bool) {
        let mut codings = Codings::default();
        let mut unknown = false;
        for name in field.split(|&byte| byte == b',') {
            match name.trim_ascii().to_ascii_lowercase().as_slice() {
                b"chunked" => codings.chunked = true,
                b"gzip" | b"x-gzip" => codings.gzip = true,
                b"" | b"identity" => {}
                _ => unknown = true,
            }
        }
        (codings, unknown)
    }

    /// Returns whether the content is the body as it is stored.
    pub(super) fn none(self) -> bool {
        self == Codings::default()
    }
}

/// Decodes a body piece by piece.
pub(super) struct Decoder {
    chunks: Option<Dechunker>,
    inflater: Option<Inflater>,
}

impl Decoder {
    pub(super) fn new(codings: Codings) -> Decoder {
        Decoder {
            chunks: codings.chunked.then(Dechunker::new),
            inflater: codings.gzip.then(Inflater::default),
        }
    }

    /// Decodes more bytes. Calls `content` with the content among them.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<(), Broken> {
        let Some(chunks) = &mut self.chunks else {
            return inflate(self.inflater.as_mut(), piece, &mut content);
        };
        let mut inflated = Ok(());
        let inflater = &mut self.inflater;
        let dechunked = chunks.feed(piece, |data| {
            if inflated.is_ok() {
                inflated = inflate(inflater.as_mut(), data, &mut content);
            }
        });
        match dechunked {
            Ok(()) => inflated,
            Err(ChunkError::Broken) => Err(Broken("its chunks are broken")),
            Err(ChunkError::NotChunked) => {
                self.chunks = None;
                inflate(self.inflater.as_mut(), piece, &mut content)
            }
        }
    }

    /// Ends the body. Calls `content` with the rest. Returns the codings that it really had, and
    /// whether it was complete. If it had none, the content is the body, whatever was passed on.
    pub(super) fn end(&mut self, mut content: impl FnMut(&[u8])) -> (Codings, Result<(), Broken>) {
        let chunks = self.chunks.filter(Dechunker::has_begun);
        let gzip = self.inflater.as_mut().is_some_and(|inflater| inflater.end(&mut content));
        let codings = Codings { chunked: chunks.is_some(), gzip };
        let complete = if chunks.is_some_and(|chunks| !chunks.is_complete()) {
            Err(Broken("its chunks are broken"))
        } else if gzip && self.inflater.as_mut().is_some_and(|inflater| !inflater.is_complete()) {
            Err(Broken("it cannot be inflated"))
        } else {
            Ok(())
        };
        (codings, complete)
    }
}

fn inflate(
    inflater: Option<&mut Inflater>,
    data: &[u8],
    content: &mut impl FnMut(&[u8]),
) -> Result<(), Broken> {
    match inflater {
        None => content(data),
        Some(inflater) => inflater.feed(data, content)?,
    }
    Ok(())
}

/// Inflates a body if it begins like `gzip`.
#[derive(Default)]
enum Inflater {
    /// Nothing is known yet, or only that the first byte would be right.
    #[default]
    Begin,
    First,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Plain,
}

/// The first bytes of a `gzip` member [RFC 1952 §2.3.1].
const MAGIC: [u8; 2] = [0x1f, 0x8b];

impl Inflater {
    fn feed(&mut self, mut data: &[u8], content: &mut impl FnMut(&[u8])) -> Result<(), Broken> {
        while let (Inflater::Begin | Inflater::First, Some((&first, rest))) =
            (&self, data.split_first())
        {
            match self {
                Inflater::Begin if first == MAGIC[0] => {
                    *self = Inflater::First;
                    data = rest;
                }
                Inflater::First if first == MAGIC[1] => {
                    *self = Inflater::Gzip(Box::new(MultiGzDecoder::new(Vec::new())));
                    self.inflate(&MAGIC, content)?;
                    data = rest;
                }
                Inflater::First => {
                    *self = Inflater::Plain;
                    content(&MAGIC[..1]);
                }
                _ => *self = Inflater::Plain,
            }
        }
        match self {
            Inflater::Plain => content(data),
            Inflater::Begin | Inflater::First => {}
            Inflater::Gzip(_) => self.inflate(data, content)?,
        }
        Ok(())
    }

    fn inflate(&mut self, data: &[u8], content: &mut impl FnMut(&[u8])) -> Result<(), Broken> {
        let Inflater::Gzip(decoder) = self else { return Ok(()) };
        for step in data.chunks(STEP) {
            decoder.write_all(step).map_err(|_| Broken("it cannot be inflated"))?;
            content(decoder.get_ref());
            decoder.get_mut().clear();
        }
        Ok(())
    }

    /// Passes on what was kept back. Returns whether the body was compressed.
    fn end(&mut self, content: &mut impl FnMut(&[u8])) -> bool {
        match self {
            Inflater::First => {
                content(&MAGIC[..1]);
                *self = Inflater::Plain;
                false
            }
            Inflater::Gzip(decoder) => {
                // An error shows in `is_complete`, which asks again.
                let _ = decoder.try_finish();
                content(decoder.get_ref());
                decoder.get_mut().clear();
                true
            }
            Inflater::Begin | Inflater::Plain => false,
        }
    }

    fn is_complete(&mut self) -> bool {
        match self {
            Inflater::Gzip(decoder) => decoder.try_finish().is_ok(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn chunked(data: &[u8]) -> Vec<u8> {
        [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n0\r\n\r\n"].concat()
    }

    fn decode(named: &[u8], body: &[u8], step: usize) -> (Vec<u8>, Codings, Result<(), Broken>) {
        let mut decoder = Decoder::new(Codings::named(named).0);
        let mut content = Vec::new();
        for piece in body.chunks(step) {
            if let Err(broken) = decoder.feed(piece, |data| content.extend_from_slice(data)) {
                return (content, Codings::default(), Err(broken));
            }
        }
        let (codings, complete) = decoder.end(|data| content.extend_from_slice(data));
        (content, codings, complete)
    }

    #[test]
    fn codings_are_undone_in_turn_however_the_bytes_come() {
        let text = b"the same text again and again, the same text again and again".as_slice();
        for step in [1, 2, 7, 1_000] {
            for (named, body, gzipped, chunks) in [
                (&b"gzip, chunked"[..], chunked(&gzip(text)), true, true),
                (b"x-gzip", gzip(text), true, false),
                (b"Chunked", chunked(text), false, true),
                // Decoded by the crawler, which kept the header: all of it, or the chunks alone.
                (b"gzip, chunked", text.to_vec(), false, false),
                (b"gzip, chunked", gzip(text), true, false),
                (b"gzip,chunked", chunked(text), false, true),
                (b"identity", text.to_vec(), false, false),
            ] {
                let (content, codings, complete) = decode(named, &body, step);
                assert_eq!((&content[..], complete), (text, Ok(())), "{named:?} by {step}");
                assert_eq!(codings, Codings { chunked: chunks, gzip: gzipped });
            }
        }
        assert_eq!(decode(b"gzip", &MAGIC[..1], 1).0, MAGIC[..1]);
        assert_eq!(decode(b"gzip", b"\x1fx", 1).0, b"\x1fx");
    }

    #[test]
    fn a_body_that_breaks_off_is_told_from_a_whole_one() {
        let whole = gzip(b"some text");
        let (_, _, complete) = decode(b"gzip", &whole[..whole.len() - 3], 9);
        assert_eq!(complete, Err(Broken("it cannot be inflated")));
        let mut wrong = whole.clone();
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert!(decode(b"gzip", &wrong, 100).2.is_err());
        assert!(Codings::named(b"br, chunked").1);
    }
}
