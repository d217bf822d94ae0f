//! Keys of a node in an open feed, and the number that is their digest.
//!
//! A node draws a seed for each feed. From it follow a key that signs (Ed25519, RFC 8032) and one
//! from which pairs make keys (X25519, RFC 7748). The node's number is a digest of both public keys
//! and of the feed, as in HIP [RFC 7401] and CGA [RFC 3972]. So nobody else signs for a number, and
//! no list of keys is needed: who knows a node's number can check what it says. That of the source
//! is in the signed announcement.
//!
//! A number has 64 bits. To find other keys for a given one takes some 2⁶⁴ digests, for each feed
//! anew. Who likes a low number has it for few: a number says nothing of its owner.

use std::net::SocketAddr;

use curve25519_dalek::MontgomeryPoint;
use ring::hkdf;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use umbel_wire::Tsi;
use umbel_wire::tmtp::{NodeId, NodeKeys, SIGNATURE_LEN, SignedStamp};
use zeroize::Zeroizing;

use super::keys::bytes_of;

/// Secret and public keys of this node.
#[derive(Debug)]
pub(super) struct Identity {
    feed: Tsi,
    signing: Ed25519KeyPair,
    agreement: Secret,
    keys: NodeKeys,
}

/// Secret key of agreements, which is wiped when it is dropped. `Debug` does not show it.
struct Secret(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Identity {
    /// Creates the keys that follow from a seed, which must be random.
    pub(super) fn new(feed: Tsi, seed: &[u8; 32]) -> Identity {
        let part = |of| Zeroizing::new(blake3::derive_key(of, seed));
        let signing =
            Ed25519KeyPair::from_seed_unchecked(&*part("umbel 2026 node of a feed: sign"));
        let signing = signing.expect("a seed has 32 bytes");
        let agreement = part("umbel 2026 node of a feed: agree");
        let mut keys = NodeKeys {
            signing: [0; 32],
            agreement: MontgomeryPoint::mul_base_clamped(*agreement).to_bytes(),
        };
        keys.signing.copy_from_slice(signing.public_key().as_ref());
        Identity { feed, signing, agreement: Secret(agreement), keys }
    }

    /// Returns the number of this node.
    pub(super) fn id(&self) -> NodeId {
        id_of(self.feed, &self.keys)
    }

    /// Signs a message on its way between two addresses.
    pub(super) fn sign(
        &self,
        number: u64,
        ends: (SocketAddr, SocketAddr),
        message: &[u8],
    ) -> SignedStamp {
        let signed = self.signing.sign(&signed_bytes(&self.keys, number, ends, message));
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(signed.as_ref());
        SignedStamp { keys: self.keys, number, signature }
    }

    /// Returns the root of the keys that this node has with another as its parent or child.
    /// `None` if the other's key is of small order, so that everybody could compute them.
    pub(super) fn root(&self, other: &NodeKeys, is_child: bool) -> Option<hkdf::Prk> {
        let point = MontgomeryPoint(other.agreement).mul_clamped(*self.agreement.0);
        let shared = Zeroizing::new(point.to_bytes());
        if *shared == [0; 32] {
            return None;
        }
        let (child, parent) = if is_child { (&self.keys, other) } else { (other, &self.keys) };
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"umbel 2026 two nodes of an open feed");
        let both = [child.signing, child.agreement, parent.signing, parent.agreement].concat();
        let all = [&self.feed.0.to_be_bytes()[..], &*shared, &both].concat();
        Some(salt.extract(&Zeroizing::new(all)))
    }
}

/// Returns the number of the node of a feed that has these keys.
pub(super) fn id_of(feed: Tsi, keys: &NodeKeys) -> NodeId {
    let mut hasher = blake3::Hasher::new_derive_key("umbel 2026 number of a node in an open feed");
    hasher.update(&feed.0.to_be_bytes()).update(&keys.signing).update(&keys.agreement);
    let digest = hasher.finalize();
    NodeId(u64::from_be_bytes(*digest.as_bytes().first_chunk().expect("32 bytes")))
}

/// Returns the number of the node whose keys follow from a seed.
pub fn node_id(feed: Tsi, seed: &[u8; 32]) -> NodeId {
    Identity::new(feed, seed).id()
}

/// Returns whether the stamp of a message on its way between two addresses is right. It takes some
/// 50 µs.
pub(super) fn is_right(
    stamp: &SignedStamp,
    ends: (SocketAddr, SocketAddr),
    message: &[u8],
) -> bool {
    let bytes = signed_bytes(&stamp.keys, stamp.number, ends, message);
    let key = UnparsedPublicKey::new(&ED25519, stamp.keys.signing);
    key.verify(&bytes, &stamp.signature).is_ok()
}

/// Returns what is signed. The message names the feed and its sender.
fn signed_bytes(
    keys: &NodeKeys,
    number: u64,
    (from, to): (SocketAddr, SocketAddr),
    message: &[u8],
) -> Vec<u8> {
    let context = b"umbel 2026 message of a node in an open feed\n";
    let (from, to) = (bytes_of(from), bytes_of(to));
    [context, &keys.agreement[..], &number.to_be_bytes(), &from, &to, message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEED: Tsi = Tsi(9);

    #[test]
    fn a_number_is_that_of_one_seed_in_one_feed() {
        assert_eq!(node_id(FEED, &[1; 32]), node_id(FEED, &[1; 32]));
        assert_ne!(node_id(FEED, &[1; 32]), node_id(FEED, &[2; 32]));
        assert_ne!(node_id(FEED, &[1; 32]), node_id(Tsi(8), &[1; 32]));
        let keys = Identity::new(FEED, &[1; 32]).keys;
        let other = Identity::new(FEED, &[2; 32]).keys;
        for mixed in [
            NodeKeys { signing: other.signing, ..keys },
            NodeKeys { agreement: other.agreement, ..keys },
        ] {
            assert_ne!(id_of(FEED, &mixed), id_of(FEED, &keys), "both keys count");
        }
    }

    #[test]
    fn two_nodes_make_one_root_and_the_roles_are_in_it() {
        let (a, b) = (Identity::new(FEED, &[1; 32]), Identity::new(FEED, &[2; 32]));
        let key = |root: Option<hkdf::Prk>| {
            let mut key = [0; 32];
            let root = root.unwrap();
            root.expand(&[b"x"], hkdf::HKDF_SHA256).unwrap().fill(&mut key).unwrap();
            key
        };
        assert_eq!(key(a.root(&b.keys, true)), key(b.root(&a.keys, false)));
        assert_ne!(key(a.root(&b.keys, true)), key(b.root(&a.keys, true)));
        let c = Identity::new(FEED, &[3; 32]);
        assert_ne!(key(a.root(&b.keys, true)), key(a.root(&c.keys, true)));
    }

    #[test]
    fn a_key_of_small_order_makes_no_root() {
        let node = Identity::new(FEED, &[1; 32]);
        let one = [1; 1].iter().chain(&[0; 31]).copied().collect::<Vec<u8>>();
        for agreement in [[0; 32], one.try_into().unwrap()] {
            let other = NodeKeys { agreement, ..node.keys };
            assert!(node.root(&other, true).is_none());
        }
    }

    #[test]
    fn a_signature_is_of_one_message_between_two_addresses() {
        let node = Identity::new(FEED, &[1; 32]);
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let stamp = node.sign(7, (at(1), at(2)), b"message");
        assert!(is_right(&stamp, (at(1), at(2)), b"message"));
        assert!(!is_right(&stamp, (at(1), at(2)), b"massage"));
        assert!(!is_right(&stamp, (at(3), at(2)), b"message"));
        assert!(!is_right(&stamp, (at(1), at(3)), b"message"));
        let other = Identity::new(FEED, &[2; 32]).keys;
        for wrong in [
            SignedStamp { number: 8, ..stamp },
            SignedStamp { keys: other, ..stamp },
            SignedStamp { keys: NodeKeys { agreement: other.agreement, ..stamp.keys }, ..stamp },
        ] {
            assert!(!is_right(&wrong, (at(1), at(2)), b"message"));
        }
    }
}
