//! Decides which receivers may have a feed.
//!
//! | the sender says | who can join the tree | who can read the feed | the report |
//! |---|---|---|---|
//! | nothing | everyone | everyone | all that joined |
//! | `--admit` with names, `--token` | the holders of the token | everyone | also the names that never came |
//! | `--admit` with names and keys | everyone | the holders of the keys | names on the list, by their keys; others are `not admitted` |
//! | `--token` | the holders of the token | as above: a token keeps receivers out of the tree, and hides nothing | |
//!
//! A receiver creates its key once ([`load_or_create`]), and `umbel key` shows the public half.
//! [`umbel_store::feed::seal`] describes how feeds are sealed. A receiver that is not on the list
//! learns so from the head of the feed, which is sent before anything else, and leaves.
//!
//! Where there are keys or a token, a report that somebody is done counts with a receipt only:
//! others cannot say it. Names without either would be anybody's, so they are refused.

mod identity;
mod list;
mod receipts;

use umbel_store::feed::seal::{FeedKey, PublicKey, Seal, SecretKey, seal_head};
use umbel_wire::Tsi;
use umbel_wire::feed::HEAD_LEN;

pub use identity::load_or_create;
pub use list::AdmitList;
pub(crate) use receipts::Receipts;

use crate::endpoint::random;

/// The secrets with which a source seals its feed; see [`umbel_store::feed::seal`].
pub(super) struct Sealing {
    feed: Tsi,
    secret: [u8; 32],
    ephemeral: SecretKey,
    receivers: Vec<PublicKey>,
}

impl Sealing {
    /// Creates fresh keys for a feed that these receivers can read.
    pub(super) fn new(feed: Tsi, receivers: Vec<PublicKey>) -> anyhow::Result<Sealing> {
        Ok(Sealing { feed, secret: random()?, ephemeral: SecretKey(random()?), receivers })
    }

    /// Returns the secret of the receipts of a receiver.
    fn receipt_secret(&self, receiver: &PublicKey) -> Option<[u8; 32]> {
        self.ephemeral.receipt_secret(self.feed, receiver)
    }

    /// Returns the public key that is announced.
    pub(super) fn public(&self) -> [u8; 32] {
        self.ephemeral.public().0
    }

    /// Seals the manifest, which is empty for a pipe. Returns the head, and the seal for the rest.
    pub(super) fn seal(&self, manifest: &[u8]) -> anyhow::Result<Seal> {
        let head = seal_head(self.feed, &self.secret, &self.ephemeral, &self.receivers, manifest)?;
        if head.len() as u64 > HEAD_LEN {
            anyhow::bail!(
                "too many items: their list and the keys have more than {HEAD_LEN} bytes"
            );
        }
        Ok(Seal { key: FeedKey::new(self.feed, &self.secret), head })
    }
}
