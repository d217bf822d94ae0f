//! Feeds that only admitted receivers can read.
//!
//! Everyone on the network may hear a sealed feed, join its tree, and even repair it for others; only
//! who holds the secret key to one of the public keys on the sender's list can read it.
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
//! The head is an object of the feed like a manifest: its blocks come first, by multicast, and are
//! repaired like all others, so that ten thousand receivers cost 560 kB once. After the keys it has
//! the manifest, sealed. From then on each *source symbol* is sealed by itself,
//!
//! ```text
//! nonce (12 bytes) ‖ AES-256-GCM(symbol; feed, block and symbol are authenticated with it) ‖ tag (16)
//! ```
//!
//! and blocks are cut so that this fills the packets. Repair symbols are made of sealed symbols, so that
//! nobody on the way needs the key: the engines, managers' buffers and repairs know nothing of all this.
//!
//! # What it is made of
//!
//! X25519 [RFC 7748], AES-256-GCM [SP 800-38D] and keyed BLAKE3. `ring`, which TLS uses here already,
//! has the cipher, but no X25519 with a key that is kept; that is `curve25519-dalek`'s.
//!
//! The nonce is no counter: it is a keyed hash of the symbol and its place. Symbols are sealed anew
//! each time they are sent, possibly from a file that changed in between; a counter would then seal
//! two contents with one nonce, which breaks GCM. So equal nonces mean equal contents, as in SIV
//! modes. Keys for wrapping and for the manifest seal one message each, with nonce 0.
//!
//! # What it does not do
//!
//! - A receiver that was admitted can hand the key or the content on, and can seal symbols of its own
//!   under the same key. Files are verified by the sealed manifest's digests, but whoever can seal
//!   could replace that, too: receivers trust each other as far as the feed goes.
//! - Nothing says who the sender is: as without seals, that is whoever announced the feed.
//! - A feed's name, its number of files and bytes, and when it is sent, are in the open.
//! - A tree is open to all who can join it; `--token` shuts it.

mod keys;
mod sealer;
mod symbols;
mod unsealer;

pub use keys::{KeyError, Opener, PublicKey, SealError, SecretKey, seal_head};
pub(super) use sealer::{FeedBlock, Sealer};
pub use symbols::{FeedKey, SEAL_LEN};
pub(super) use unsealer::Unsealer;

/// What a source seals a feed with.
#[derive(Debug)]
pub struct Seal {
    /// The feed's key.
    pub key: FeedKey,
    /// What the feed begins with; see [`seal_head`].
    pub head: Vec<u8>,
}

/// Why a sealed feed cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// None of the wrapped keys is for this receiver.
    #[error("the feed is for others: this receiver's key is not on the sender's list")]
    NotAdmitted,
    /// The head is not what the sender made.
    #[error("the head of the feed was damaged or forged")]
    Damaged,
}
