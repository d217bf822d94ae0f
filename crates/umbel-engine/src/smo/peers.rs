//! Which child has an address.

#[allow(clippy::disallowed_types, reason = "see `Peers`")]
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::net::SocketAddr;

/// Makes hashers with a key, so that nobody can choose addresses that collide.
#[derive(Clone, Copy, Debug)]
struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// The slot of each child, by its address. Looked up for each segment, never iterated.
#[derive(Clone, Debug)]
#[allow(clippy::disallowed_types, reason = "no order of it is ever seen, and its key is drawn")]
pub(super) struct Peers(HashMap<SocketAddr, u32, Keyed>);

impl Peers {
    /// Creates an empty table with a key that peers do not know.
    #[allow(clippy::disallowed_types, reason = "see `Peers`")]
    pub(super) fn new(key: u64) -> Peers {
        Peers(HashMap::with_hasher(Keyed(key)))
    }

    pub(super) fn get(&self, peer: &SocketAddr) -> Option<u32> {
        self.0.get(peer).copied()
    }

    pub(super) fn insert(&mut self, peer: SocketAddr, slot: u32) {
        self.0.insert(peer, slot);
    }

    pub(super) fn remove(&mut self, peer: &SocketAddr) {
        self.0.remove(peer);
    }
}
