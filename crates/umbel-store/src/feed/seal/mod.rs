//! Feeds that only admitted receivers can read.
//!
//! Everyone on the network may hear a sealed feed. Only a receiver that holds the secret key to one
//! of the public keys on the sender's list can read it. Only such a receiver can join its tree: the
//! source hands it the key of the tree's messages, under the secret that they share.
//!
//! ```text
//! source     a feed key K, fresh; a key pair (e, E), fresh; E is announced
//!            for each public key P on the list:  S = X25519(e, P)   ─▶ hint, wrapping key W
//!                                                 hint ‖ seal(W, K)  ─▶ head
//! receiver   its secret key p:                   S = X25519(p, E)   ─▶ the same hint and W
//!                                                 finds its hint in the head, opens K
//! both       symbol keys and the manifest's key from K
//! ```
//!
//! The head is an object of the feed like a manifest. Its blocks come first, by multicast, and are
//! repaired like all others, so ten thousand receivers cost 560 kB once. The sealed manifest
//! follows the keys. After the head, each *source symbol* is sealed by itself,
//!
//! ```text
//! nonce (12 bytes) ‖ AES-256-GCM(symbol; associated data: feed, block, symbol) ‖ tag (16)
//! ```
//!
//! and blocks are split so that sealed symbols fill the packets. Repair symbols are computed from
//! sealed symbols, so no node on the way needs the key. The engines, managers' buffers and repairs
//! are the same as without seals.
//!
//! # Cryptography
//!
//! X25519 [RFC 7748], AES-256-GCM [SP 800-38D] and keyed BLAKE3. `ring`, which TLS uses here
//! already, has the cipher, but no X25519 with a key that can be kept. X25519 therefore comes from
//! `curve25519-dalek`.
//!
//! The nonce is not a counter but a keyed hash of the symbol and its place. Symbols are sealed
//! again each time they are sent, possibly from a file that changed in between. A counter would
//! then seal two contents with one nonce, which breaks GCM. With the hash, equal nonces mean equal
//! contents, as in SIV modes. Keys for wrapping and for the manifest seal one message each, with
//! nonce 0.
//!
//! # Limitations
//!
//! - An admitted receiver can pass the key or the content on. It can seal its own symbols with the
//!   same key. However, the signed announcement and the digests and signatures below it show that
//!   the blocks are not the sender's.
//! - A feed's name, its number of files and bytes, and its time of sending are public.

mod keys;
mod sealer;
mod symbols;
mod unsealer;

pub use keys::{KeyError, Opener, PublicKey, SealError, SecretKey, seal_head};
pub(super) use sealer::{FeedBlock, Sealer};
pub use symbols::{FeedKey, SEAL_LEN};
pub(super) use unsealer::Unsealer;

/// Key and head with which a source seals a feed.
#[derive(Debug)]
pub struct Seal {
    /// Key of the feed.
    pub key: FeedKey,
    /// Beginning of the feed; see [`seal_head`].
    pub head: Vec<u8>,
}

/// Reason why a sealed feed cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// None of the wrapped keys is for this receiver.
    #[error("the feed is for others: this receiver's key is not on the sender's list")]
    NotAdmitted,
    /// The head is damaged or forged.
    #[error("the head of the feed was damaged or forged")]
    Damaged,
}
