//! Source blocks on a session, for a client that multicast does not reach.

use crate::{Toi, error::ParseError};

/// The head of a source block on a bulk stream; the bytes of the block follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnicastBlock {
    /// The item.
    pub toi: Toi,
    /// Source block number.
    pub block: u32,
    /// Length of the block in bytes.
    pub len: u32,
}

impl UnicastBlock {
    /// Length of the head in bytes.
    pub const LEN: usize = 12;

    /// Returns the head's bytes: three numbers in network byte order.
    pub fn emit(&self) -> [u8; UnicastBlock::LEN] {
        let mut bytes = [0; UnicastBlock::LEN];
        bytes[..4].copy_from_slice(&self.toi.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.block.to_be_bytes());
        bytes[8..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Parses a head. `max_len` is the length of the longest block that may follow.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too few bytes, or a longer block is announced.
    pub fn parse(bytes: &[u8], max_len: u32) -> Result<UnicastBlock, ParseError> {
        let number = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes)
        };
        let (Some(toi), Some(block), Some(len)) = (number(0), number(4), number(8)) else {
            return Err(ParseError::Truncated {
                what: "unicast block",
                need: UnicastBlock::LEN,
                have: bytes.len(),
            });
        };
        if len > max_len {
            return Err(ParseError::Value {
                what: "unicast block",
                problem: "longer than any block of the item",
            });
        }
        Ok(UnicastBlock { toi: Toi(toi), block, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = UnicastBlock { toi: Toi(7), block: 1 << 20, len: 176_128 };
        assert_eq!(UnicastBlock::parse(&head.emit(), 176_128), Ok(head));
        assert!(UnicastBlock::parse(&head.emit(), 176_127).is_err());
        assert!(UnicastBlock::parse(&head.emit()[..11], u32::MAX).is_err());
    }
}
