//! Receipts: proofs that a receiver itself says that it is done.
//!
//! Reports come up the tree through nodes that may be anybody. Only holders of a key can make a
//! receipt: the receiver and the source, or all who have the feed's token. So a source that demands
//! receipts never says that somebody has the feed who has not said so.
//!
//! A receipt is a keyed BLAKE3 of feed, node and name. Neither a receipt of another feed nor one of
//! another node or name fits. Nodes on the way can hide one, not make one.

use std::fmt;

use umbel_wire::tmtp::NodeId;
use umbel_wire::{Digest, Tsi};

/// A key for receipts, which the source has too.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiptKey(blake3::Hash);

impl ReceiptKey {
    /// Derives the key from a secret that the source and the receiver share.
    pub fn new(secret: &[u8; 32]) -> ReceiptKey {
        ReceiptKey(blake3::derive_key("umbel 2026 receipts of a feed", secret).into())
    }

    /// Returns whether this key made the receipt. Takes the same time for every wrong one.
    pub fn has_made(&self, given: Digest, feed: Tsi, node: NodeId, name: &str) -> bool {
        blake3::Hash::from(receipt(self, feed, node, name).0) == blake3::Hash::from(given.0)
    }
}

impl fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptKey")
    }
}

/// Returns the receipt of a node that reports by a name that it is done.
pub fn receipt(key: &ReceiptKey, feed: Tsi, node: NodeId, name: &str) -> Digest {
    let mut hasher = blake3::Hasher::new_keyed(key.0.as_bytes());
    hasher.update(&feed.0.to_be_bytes()).update(&node.0.to_be_bytes()).update(name.as_bytes());
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_good_for_its_key_feed_node_and_name_only() {
        let (feed, node, name) = (Tsi(1), NodeId(2), "alice");
        let keys = [3, 4].map(|n| ReceiptKey::new(&[n; 32]));
        let made = receipt(&keys[0], feed, node, name);
        assert!(keys[0].has_made(made, feed, node, name));
        assert!(!keys[1].has_made(made, feed, node, name));
        assert!(!keys[0].has_made(made, Tsi(9), node, name));
        assert!(!keys[0].has_made(made, feed, NodeId(9), name));
        assert!(!keys[0].has_made(made, feed, node, "bob"));
    }
}
