//! Stamps: what stands behind a message in a feed whose tree is authentic.

use crate::control;

/// Length of a code in bytes: half of HMAC-SHA-256 [RFC 2104 §5].
pub const CODE_LEN: usize = 16;

/// Length of a signature in bytes [RFC 8032].
pub const SIGNATURE_LEN: usize = 64;

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
        let (message, stamp) = split::<{ Stamp::LEN }>(datagram)?;
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

/// Public keys of a node in an open feed. The node's number is a digest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKeys {
    /// Key of its signatures: Ed25519 [RFC 8032].
    pub signing: [u8; 32],
    /// Key from which two nodes make the key of their pair: X25519 [RFC 7748].
    pub agreement: [u8; 32],
}

/// Follows a message that its sender has signed, in an open feed.
///
/// ```text
/// message ‖ 4 (1 byte) ‖ signing key (32) ‖ agreement key (32) ‖ number (8, big-endian)
///         ‖ signature (64)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedStamp {
    /// Keys of the sender.
    pub keys: NodeKeys,
    /// Number of the message. A sender uses each once, ascending.
    pub number: u64,
    /// Signature of keys, number, addresses and message.
    pub signature: [u8; SIGNATURE_LEN],
}

/// First byte of a [`SignedStamp`]. The other numbers are those of a [`StampKey`].
const SIGNED: u8 = 4;

impl SignedStamp {
    /// Length in bytes.
    pub const LEN: usize = 1 + 2 * 32 + 8 + SIGNATURE_LEN;

    /// Appends the stamp to its message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(SIGNED);
        out.extend_from_slice(&self.keys.signing);
        out.extend_from_slice(&self.keys.agreement);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.signature);
    }

    /// Splits a datagram into a message, which is not parsed, and its stamp. Returns `None` unless
    /// there are both, and nothing else.
    pub fn split(datagram: &[u8]) -> Option<(&[u8], SignedStamp)> {
        let (message, stamp) = split::<{ SignedStamp::LEN }>(datagram)?;
        let rest = stamp.strip_prefix(&[SIGNED])?;
        let (&signing, rest) = rest.split_first_chunk()?;
        let (&agreement, rest) = rest.split_first_chunk()?;
        let (&number, signature) = rest.split_first_chunk()?;
        let (keys, number) = (NodeKeys { signing, agreement }, u64::from_be_bytes(number));
        Some((message, SignedStamp { keys, number, signature: signature.try_into().ok()? }))
    }
}

/// Splits a datagram into a message, which is not parsed, and the bytes behind it, if there are
/// exactly so many.
fn split<const LEN: usize>(datagram: &[u8]) -> Option<(&[u8], &[u8; LEN])> {
    let header = control::peek(datagram).ok()??;
    let (message, stamp) = datagram.split_at_checked(header.frame_len())?;
    Some((message, stamp.try_into().ok()?))
}

/// Returns the message of a datagram without the stamp of either kind, if it has one.
pub fn without_stamp(datagram: &[u8]) -> &[u8] {
    let stamped = Stamp::split(datagram).map(|(message, _)| message);
    let signed = || SignedStamp::split(datagram).map(|(message, _)| message);
    stamped.or_else(signed).unwrap_or(datagram)
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
        fn a_message_and_its_signature_are_split_where_they_were_joined(
            signing: [u8; 32],
            agreement: [u8; 32],
            number: u64,
            signature: [[u8; 32]; 2],
            cut in 0_usize..200,
        ) {
            let keys = NodeKeys { signing, agreement };
            let signature = signature.concat().try_into().unwrap();
            let stamp = SignedStamp { keys, number, signature };
            let mut datagram = Vec::new();
            let body = Body::LeaveConfirm { nonce: 3 };
            Message { feed: Tsi(7), sender: NodeId(9), body }.emit(&mut datagram);
            let message = datagram.clone();
            prop_assert_eq!(SignedStamp::split(&datagram), None);
            stamp.emit(&mut datagram);
            prop_assert_eq!(datagram.len(), message.len() + SignedStamp::LEN);
            prop_assert_eq!(SignedStamp::split(&datagram), Some((&message[..], stamp)));
            prop_assert_eq!(Stamp::split(&datagram), None);
            prop_assert_eq!(without_stamp(&datagram), &message[..]);
            let short = &datagram[..datagram.len().saturating_sub(1 + cut)];
            prop_assert_eq!(SignedStamp::split(short), None);
            datagram.push(0);
            prop_assert_eq!(SignedStamp::split(&datagram), None);
        }

        #[test]
        fn no_bytes_are_too_bad_to_be_split(bytes: Vec<u8>) {
            let _ = (Stamp::split(&bytes), SignedStamp::split(&bytes), without_stamp(&bytes));
        }
    }
}
