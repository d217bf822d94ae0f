//! The head of an object.

use crate::control::{self, Field, Frame, Parsed};
use crate::{Digest, ParseError};

const OBJECT: u8 = 0xC3;

const NAME: Field = Field { number: 1, name: "name" };
const LENGTH: Field = Field { number: 2, name: "length" };
const DIGEST: Field = Field { number: 3, name: "digest" };
const SYMBOL_LEN: Field = Field { number: 4, name: "symbol length" };
const BLOCK_SYMBOLS: Field = Field { number: 5, name: "symbols of a block" };

/// Maximum length of an object's name in bytes.
pub const MAX_NAME: usize = 512;

/// Description of an object for its receivers. It is block 0 of the object, as one control message.
/// The content is split into the blocks from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// Name, as the application means it; at most [`MAX_NAME`] bytes. Not a path to be trusted.
    pub name: String,
    /// Length of the content in bytes.
    pub len: u64,
    /// Digest of the content.
    pub digest: Digest,
    /// Bytes of a symbol of the content; at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a block of the content; at least 1.
    pub block_symbols: u8,
}

impl ObjectHead {
    /// Appends the head to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, OBJECT);
        frame.string(NAME, &self.name);
        frame.number(LENGTH, self.len);
        frame.field(DIGEST, |out| out.extend_from_slice(&self.digest.0));
        frame.number(SYMBOL_LEN, self.symbol_len);
        frame.number(BLOCK_SYMBOLS, self.block_symbols);
        frame.end();
    }

    /// Parses a head, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the head is malformed or exceeds a limit.
    pub fn parse(frame: &[u8]) -> Result<ObjectHead, ParseError> {
        let parsed = control::parse(frame, |fields| {
            if fields.message != OBJECT {
                return Ok(None);
            }
            let name = fields.string(NAME, MAX_NAME)?;
            let len = fields.number(LENGTH)?;
            let digest = fields.required(DIGEST)?;
            let bad = |what: Field, problem| ParseError::Value { what: what.name, problem };
            let digest = digest.try_into().map_err(|_| bad(DIGEST, "not 32 bytes"))?;
            let symbol_len = fields.number(SYMBOL_LEN)?;
            let block_symbols = fields.number(BLOCK_SYMBOLS)?;
            if symbol_len == 0 || block_symbols == 0 {
                return Err(bad(if symbol_len == 0 { SYMBOL_LEN } else { BLOCK_SYMBOLS }, "zero"));
            }
            Ok(Some(ObjectHead { name, len, digest: Digest(digest), symbol_len, block_symbols }))
        })?;
        match parsed {
            Parsed::Message { message, .. } => Ok(message),
            Parsed::UnknownType(_) => {
                Err(ParseError::Value { what: "head of an object", problem: "another message" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ObjectHead {
        ObjectHead {
            name: "v0/seg_00001.m4s".to_owned(),
            len: 405_000,
            digest: Digest([7; 32]),
            symbol_len: 1280,
            block_symbols: 200,
        }
    }

    fn bytes(head: &ObjectHead) -> Vec<u8> {
        let mut out = Vec::new();
        head.emit(&mut out);
        out
    }

    #[test]
    fn a_head_comes_back_and_a_cut_one_is_refused() {
        let bytes = bytes(&head());
        assert_eq!(ObjectHead::parse(&bytes), Ok(head()));
        for cut in 0..bytes.len() {
            assert!(ObjectHead::parse(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(ObjectHead::parse(b"Um\x01\xC1\0\0\0\0").is_err());
    }

    #[test]
    fn a_head_that_makes_no_sense_is_refused() {
        for absurd in [
            ObjectHead { symbol_len: 0, ..head() },
            ObjectHead { block_symbols: 0, ..head() },
            ObjectHead { name: "n".repeat(MAX_NAME + 1), ..head() },
        ] {
            let error = ObjectHead::parse(&bytes(&absurd)).unwrap_err();
            assert!(matches!(error, ParseError::Value { .. }), "{error}");
        }
    }
}
