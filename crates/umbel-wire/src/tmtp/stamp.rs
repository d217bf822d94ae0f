//! Stamps: what stands behind a message in a feed whose tree is authentic.

use crate::control;

/// Length of a code in bytes: half of HMAC-SHA-256 [RFC 2104 §5].
pub const CODE_LEN: usize = 16;

/// Key of a stamp's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StampKey {
    /// The key of the feed's tree.
    Tree,
    /// The key of two nodes, one of which joined the other.
    Pair,
    /// The key of the source and of one receiver on its list.
    Personal,
}

/// Follows a message in its datagram.
///
/// ```text
/// message (its header tells where it ends) ‖ key (1 byte) ‖ number (8, big-endian) ‖ code (16)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Key of the code.
    pub key: StampKey,
    /// Number of the message under its key. A sender uses each once, ascending.
    pub number: u64,
    /// Authentication code of number, addresses and message.
    pub code: [u8; CODE_LEN],
}

impl Stamp {
    /// Length in bytes.
    pub const LEN: usize = 1 + 8 + CODE_LEN;

    /// Appends the stamp to its message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(match self.key {
            StampKey::Tree => 1,
            StampKey::Pair => 2,
            StampKey::Personal => 3,
        });
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.code);
    }

    /// Splits a datagram into a message, which is not parsed, and its stamp. Returns `None` unless
    /// there are both, and nothing else.
    pub fn split(datagram: &[u8]) -> Option<(&[u8], Stamp)> {
        let header = control::peek(datagram).ok()??;
        let (message, stamp) = datagram.split_at_checked(header.frame_len())?;
        let stamp: &[u8; Stamp::LEN] = stamp.try_into().ok()?;
        let (key, rest) = stamp.split_first()?;
        let key = match key {
            1 => StampKey::Tree,
            2 => StampKey::Pair,
            3 => StampKey::Personal,
            _ => return None,
        };
        let (number, code) = rest.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(*number);
        Some((message, Stamp { key, number, code: code.try_into().ok()? }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tsi;
    use crate::tmtp::{Body, Message, NodeId};

    proptest! {
        #[test]
        fn a_message_and_its_stamp_are_split_where_they_were_joined(
            number: u64,
            code: [u8; CODE_LEN],
            key in 0_usize..3,
            nonce: u64,
            cut in 0_usize..60,
        ) {
            let key = [StampKey::Tree, StampKey::Pair, StampKey::Personal][key];
            let stamp = Stamp { key, number, code };
            let body = Body::LeaveConfirm { nonce };
            let mut datagram = Vec::new();
            Message { feed: Tsi(7), sender: NodeId(9), body }.emit(&mut datagram);
            let message = datagram.clone();
            prop_assert_eq!(Stamp::split(&datagram), None);
            stamp.emit(&mut datagram);
            prop_assert_eq!(Stamp::split(&datagram), Some((&message[..], stamp)));
            let short = &datagram[..datagram.len().saturating_sub(1 + cut)];
            prop_assert_eq!(Stamp::split(short), None);
            datagram.push(0);
            prop_assert_eq!(Stamp::split(&datagram), None);
        }

        #[test]
        fn no_bytes_are_too_bad_to_be_split(bytes: Vec<u8>) {
            let _ = Stamp::split(&bytes);
        }
    }
}
