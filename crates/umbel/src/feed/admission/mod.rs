//! Decides which receivers may have a feed.
//!
//! | the sender says | who can join the tree | who can read the feed | the report |
//! |---|---|---|---|
//! | nothing | everyone | everyone | all that joined |
//! | `--admit` with names, `--token` | the holders of the token | everyone | also the names that never came |
//! | `--admit` with names and keys | the holders of the keys | the holders of the keys | names on the list, by their keys; other names are `not admitted` |
//! | `--token` | the holders of the token | as above: a token keeps receivers out of the tree, and hides nothing | |
//!
//! A receiver creates its key once ([`load_or_create`]), and `umbel key` shows the public half.
//! [`umbel_store::feed::seal`] describes how feeds are sealed. A receiver that is not on the list
//! leaves. It learns so from the head of the feed, or because the source withholds the key of the
//! tree ([`List`]).
//!
//! Where there are keys or a token, a report that somebody is done counts with a receipt only:
//! others cannot say it. Names without either would be anybody's, so they are refused.

mod identity;
mod list;
mod receipts;

use std::collections::BTreeMap;

use umbel_engine::tmtp::List;
use umbel_store::feed::seal::{FeedKey, PublicKey, Seal, SecretKey, seal_head};
use umbel_wire::Tsi;
use umbel_wire::feed::HEAD_LEN;
use zeroize::Zeroizing;

pub use identity::load_or_create;
pub use list::AdmitList;
pub(crate) use receipts::Receipts;

use crate::endpoint::random;

/// The secrets with which a source seals its feed; see [`umbel_store::feed::seal`].
pub(super) struct Sealing {
    feed: Tsi,
    secret: Zeroizing<[u8; 32]>,
    ephemeral: SecretKey,
    receivers: Vec<PublicKey>,
    /// Secrets that the source shares with each of them.
    shared: BTreeMap<PublicKey, Zeroizing<[u8; 32]>>,
}

impl Sealing {
    /// Creates fresh keys for a feed that these receivers can read.
    pub(super) fn new(feed: Tsi, receivers: Vec<PublicKey>) -> anyhow::Result<Sealing> {
        let ephemeral = SecretKey::new(random()?);
        let shared = receivers
            .iter()
            .filter_map(|key| Some((*key, Zeroizing::new(ephemeral.feed_secret(feed, key)?))));
        let shared = shared.collect();
        Ok(Sealing { feed, secret: Zeroizing::new(random()?), ephemeral, receivers, shared })
    }

    /// Returns what the source shares with a receiver on the list.
    fn shared(&self, receiver: &PublicKey) -> Option<&[u8; 32]> {
        self.shared.get(receiver).map(|secret| &**secret)
    }

    /// Returns the list as the source's engine needs it, with a fresh secret of the tree.
    pub(super) fn list(&self) -> anyhow::Result<List> {
        Ok(List::Has {
            tree: random()?,
            receivers: self.shared.values().map(|secret| **secret).collect(),
        })
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
