//! Who may receive a feed.
//!
//! | the sender says | who can join the tree | who can read the feed | the report |
//! |---|---|---|---|
//! | nothing | everyone | everyone | whoever joined |
//! | `--admit` with names | everyone | everyone | names, too, that never came |
//! | `--admit` with names and keys | everyone | the holders of the keys | names on the list; others are `not admitted` |
//! | `--token` | who knows it | as above: a token keeps out of the tree, and hides nothing | |
//!
//! A receiver makes its key once ([`load_or_create`]) and shows the public half by `umbel key`. How
//! feeds are sealed stands in [`umbel_store::feed::seal`]. Who is not on the list hears so as soon as
//! the head of the feed is there, which is sent before anything else, and leaves.

mod identity;
mod list;

use umbel_store::feed::seal::{FeedKey, PublicKey, Seal, SecretKey, seal_head};
use umbel_wire::Tsi;
use umbel_wire::feed::MANIFEST_LEN;

pub use identity::load_or_create;
pub use list::AdmitList;

use crate::endpoint::random;

/// What a source seals its feed with; see [`umbel_store::feed::seal`].
pub(super) struct Sealing {
    feed: Tsi,
    secret: [u8; 32],
    ephemeral: SecretKey,
    receivers: Vec<PublicKey>,
}

impl Sealing {
    /// Fresh keys for a feed that these receivers can read.
    pub(super) fn new(feed: Tsi, receivers: Vec<PublicKey>) -> anyhow::Result<Sealing> {
        Ok(Sealing { feed, secret: random()?, ephemeral: SecretKey(random()?), receivers })
    }

    /// The public key that is announced.
    pub(super) fn public(&self) -> [u8; 32] {
        self.ephemeral.public().0
    }

    /// Seals the manifest, which a pipe has not: gives the head, and what seals the rest.
    pub(super) fn seal(&self, manifest: &[u8]) -> anyhow::Result<Seal> {
        let head = seal_head(self.feed, &self.secret, &self.ephemeral, &self.receivers, manifest)?;
        if head.len() as u64 > MANIFEST_LEN {
            anyhow::bail!(
                "too many items: their list and the keys have more than {MANIFEST_LEN} bytes"
            );
        }
        Ok(Seal { key: FeedKey::new(self.feed, &self.secret), head })
    }
}
