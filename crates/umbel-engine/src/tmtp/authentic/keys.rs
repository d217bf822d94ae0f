//! Keys of the tree and of pairs, and the codes that are made with them.

use std::net::{IpAddr, SocketAddr};

use ring::{hkdf, hmac};
use umbel_wire::Tsi;
use umbel_wire::tmtp::{CODE_LEN, KEY_HINT_LEN, NodeId, Stamp, StampKey};

use super::numbers::Seen;
use crate::seal::Cipher;

/// A node and its address.
pub(super) type End = (NodeId, SocketAddr);

/// Root of all keys of a feed, and the tree key.
#[derive(Debug)]
pub(super) struct Keys {
    feed: Tsi,
    root: hkdf::Prk,
    pub(super) tree: hmac::Key,
}

impl Keys {
    /// Derives them from the admission key of a feed, if there is a token. If there is a list, also
    /// from the source's answer to those on it.
    pub(super) fn new(feed: Tsi, token: Option<&[u8; 32]>, given: Option<&[u8; 32]>) -> Keys {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"umbel 2026 control tree of a feed");
        let part = |key: Option<&[u8; 32]>| key.map_or(Vec::new(), |key| key.to_vec());
        let root = salt.extract(&[&feed.0.to_be_bytes()[..], &part(token), &part(given)].concat());
        Keys { feed, tree: expand(&root, &[b"tree"]), root }
    }

    /// Returns what a child and its parent share, as one of them has it: `other` is the other.
    pub(super) fn pair(
        &self,
        (child, parent): (End, End),
        other: NodeId,
        (nonce, challenge): (u64, u64),
    ) -> Pair {
        Pair::new((self.feed, &self.root), (child, parent), other, (nonce, challenge))
    }
}

/// Keys that the source and one receiver on its list share, for asking and answering.
#[derive(Debug)]
pub(super) struct Personal(hkdf::Prk);

impl Personal {
    /// Derives them from the secret of both.
    pub(super) fn new(feed: Tsi, secret: &[u8; 32]) -> Personal {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"umbel 2026 one receiver of a feed");
        Personal(salt.extract(&[&feed.0.to_be_bytes()[..], secret].concat()))
    }

    /// Returns the value by which the source finds the receiver.
    pub(super) fn hint(&self) -> [u8; KEY_HINT_LEN] {
        let mut hint = [0; KEY_HINT_LEN];
        hint.copy_from_slice(&expand_bytes(&self.0, &[b"hint"])[..KEY_HINT_LEN]);
        hint
    }

    /// Returns the key of requests.
    pub(super) fn requests(&self) -> hmac::Key {
        expand(&self.0, &[b"request"])
    }

    /// Returns what seals the answer to one request. Of each there is one message only.
    pub(super) fn answers(&self, (receiver, source): (End, End), nonce: u64) -> Cipher {
        let [receiver, source] = [receiver, source]
            .map(|(id, address)| [&id.0.to_be_bytes()[..], &bytes_of(address)].concat());
        let parts: &[&[u8]] = &[b"answer", &receiver, &source, &nonce.to_be_bytes()];
        Cipher::aes_256(&expand_bytes(&self.0, parts))
    }
}

/// Keys of two nodes of which one asked the other for a place.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The other node.
    pub(super) id: NodeId,
    /// The child's number and the parent's.
    pub(super) nonce: u64,
    pub(super) challenge: u64,
    pub(super) key: hmac::Key,
    /// Number of the next message to the other node.
    number: u64,
    pub(super) seen: Seen,
}

impl Pair {
    /// Derives what a child and its parent share from the root of their keys, as one of them has
    /// it: `other` is the other.
    pub(super) fn new(
        (feed, root): (Tsi, &hkdf::Prk),
        (child, parent): (End, End),
        other: NodeId,
        (nonce, challenge): (u64, u64),
    ) -> Pair {
        let ends = [child, parent].map(|(id, address)| (id.0.to_be_bytes(), bytes_of(address)));
        let [(child_id, child_at), (parent_id, parent_at)] = &ends;
        let nonces = [nonce.to_be_bytes(), challenge.to_be_bytes()];
        let key = expand(
            root,
            &[
                b"pair",
                &feed.0.to_be_bytes(),
                child_id,
                child_at,
                parent_id,
                parent_at,
                &nonces[0],
                &nonces[1],
            ],
        );
        Pair { id: other, nonce, challenge, key, number: 0, seen: Seen::default() }
    }

    /// Appends a stamp with the key of the pair.
    pub(super) fn stamp(&mut self, from: SocketAddr, to: SocketAddr, message: &mut Vec<u8>) {
        let (key, number) = (StampKey::Pair, self.number);
        self.number += 1;
        let code = code(&self.key, (key, number), (from, to), message);
        Stamp { key, number, code }.emit(message);
    }
}

/// Length of a key.
struct KeyLen;

impl hkdf::KeyType for KeyLen {
    fn len(&self) -> usize {
        32
    }
}

/// Returns an address as it is authenticated. The group does not show the port of a sender.
pub(super) fn bytes_of(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

pub(super) fn without_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(0);
    address
}

/// Returns the code of a message on its way between two addresses.
pub(super) fn code(
    key: &hmac::Key,
    (kind, number): (StampKey, u64),
    (from, to): (SocketAddr, SocketAddr),
    message: &[u8],
) -> [u8; CODE_LEN] {
    let mut context = hmac::Context::with_key(key);
    context.update(&[match kind {
        StampKey::Tree => 0,
        StampKey::Pair => 1,
        StampKey::Personal => 2,
    }]);
    context.update(&number.to_be_bytes());
    context.update(&bytes_of(from));
    context.update(&bytes_of(to));
    context.update(message);
    let tag = context.sign();
    let mut code = [0; CODE_LEN];
    code.copy_from_slice(&tag.as_ref()[..CODE_LEN]);
    code
}

/// Compares codes in the same time for every wrong one.
pub(super) fn same(a: &[u8; CODE_LEN], b: &[u8; CODE_LEN]) -> bool {
    u128::from_be_bytes(*a) ^ u128::from_be_bytes(*b) == 0
}

fn expand(root: &hkdf::Prk, parts: &[&[u8]]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &expand_bytes(root, parts))
}

fn expand_bytes(root: &hkdf::Prk, parts: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; 32];
    let filled = root.expand(parts, KeyLen).and_then(|okm| okm.fill(&mut key));
    filled.expect("HKDF gives up to 255 times 32 bytes");
    key
}
