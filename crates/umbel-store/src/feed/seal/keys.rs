//! Receivers' keys, and the feed's key wrapped for them.

use std::fmt;
use std::str::FromStr;

use curve25519_dalek::MontgomeryPoint;
use umbel_engine::seal::Cipher;
use umbel_wire::Tsi;
use umbel_wire::feed::{HINT_LEN, SealedHead, WRAPPED_LEN, WrappedKey};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::OpenError;
use super::symbols::FeedKey;

/// Associated data of a wrapped key: none, since its wrapping key belongs to one feed and one
/// receiver.
const NO_PLACE: &[u8] = &[];
const NONCE: [u8; 12] = [0; 12];

/// A receiver's public key. In a sender's list it is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// Reason why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not 64 hexadecimal digits.
    #[error("a key has 64 hexadecimal digits, as `umbel key` prints it")]
    Form,
    /// The key is one of the few whose shared secret is known to everyone.
    #[error("it is no receiver's key: anyone could open what is sealed for it")]
    Weak,
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let key = PublicKey(bytes_of(text)?);
        // Multiplication by any secret key reveals a point of small order [RFC 7748 §6.1].
        SecretKey([1; 32]).shared(&key).map(|_| key).ok_or(KeyError::Weak)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

fn bytes_of(digits: &str) -> Result<[u8; 32], KeyError> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes());
    bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or(KeyError::Form)
}

/// A secret key: 32 random bytes, which are wiped when it is dropped. In files it is 64 hexadecimal
/// digits. `Debug` shows the public key only.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for SecretKey {}

impl SecretKey {
    /// Creates a key of these bytes, which must be random.
    pub fn new(bytes: [u8; 32]) -> SecretKey {
        SecretKey(bytes)
    }

    /// Returns the public key of this secret key.
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// Returns the secret key as hexadecimal digits, for its owner's file.
    pub fn digits(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// Returns a secret of a feed that only the owners of both keys can compute: its source and one
    /// receiver. Receipts, and the key of the tree, come under it. `None` if the other key is of
    /// small order.
    pub fn feed_secret(&self, feed: Tsi, other: &PublicKey) -> Option<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key("umbel 2026 sealed feed: receipts");
        hasher.update(&*self.shared(other)?).update(&feed.0.to_be_bytes());
        Some(*hasher.finalize().as_bytes())
    }

    /// Computes the secret that only the owners of both keys can compute. Returns `None` if the
    /// other key is of small order, because anyone could then compute the secret.
    fn shared(&self, other: &PublicKey) -> Option<Zeroizing<[u8; 32]>> {
        let shared = Zeroizing::new(MontgomeryPoint(other.0).mul_clamped(self.0).to_bytes());
        (*shared != [0; 32]).then_some(shared)
    }
}

impl FromStr for SecretKey {
    type Err = KeyError;

    fn from_str(digits: &str) -> Result<SecretKey, KeyError> {
        bytes_of(digits).map(SecretKey)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

/// Values that sender and receiver derive from their shared secret.
struct Pair {
    hint: [u8; HINT_LEN],
    wrapping: [u8; 32],
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.wrapping.zeroize();
    }
}

impl ZeroizeOnDrop for Pair {}

impl Pair {
    fn new(feed: Tsi, shared: &[u8; 32], ephemeral: &PublicKey, receiver: &PublicKey) -> Pair {
        let mut hasher = blake3::Hasher::new_derive_key("umbel 2026 sealed feed: a receiver");
        hasher.update(shared).update(&ephemeral.0).update(&receiver.0);
        hasher.update(&feed.0.to_be_bytes());
        let (mut hint, mut wrapping) = ([0; HINT_LEN], [0; 32]);
        let mut output = hasher.finalize_xof();
        output.fill(&mut hint);
        output.fill(&mut wrapping);
        Pair { hint, wrapping }
    }
}

/// Reason why a feed cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A public key is of small order.
    #[error("{0} is no receiver's key: anyone could open what is sealed for it")]
    Weak(PublicKey),
    /// There are too many receivers.
    #[error("{0} receivers are more than a sealed feed can have: 262,144")]
    TooMany(usize),
}

/// Creates the head of a feed for these receivers. `secret` is the feed's, and `ephemeral` a secret
/// key made only for this feed. Takes about 50 µs for each receiver.
///
/// # Errors
///
/// Returns an error if a key is weak or there are too many receivers.
pub fn seal_head(
    feed: Tsi,
    secret: &[u8; 32],
    ephemeral: &SecretKey,
    receivers: &[PublicKey],
    manifest: &[u8],
) -> Result<Vec<u8>, SealError> {
    let public = ephemeral.public();
    let mut keys = Vec::with_capacity(receivers.len());
    for receiver in receivers {
        let shared = ephemeral.shared(receiver).ok_or(SealError::Weak(*receiver))?;
        let pair = Pair::new(feed, &shared, &public, receiver);
        let mut wrapped = Vec::with_capacity(WRAPPED_LEN);
        Cipher::aes_256(&pair.wrapping).append_sealed(NONCE, NO_PLACE, secret, &mut wrapped);
        let mut key = [0; WRAPPED_LEN];
        key.copy_from_slice(&wrapped);
        keys.push(WrappedKey { hint: pair.hint, key });
    }
    // The sorted order reveals nothing about the order of the list.
    keys.sort_unstable();
    let manifest = if manifest.is_empty() {
        Vec::new()
    } else {
        FeedKey::new(feed, secret).seal_manifest(manifest)
    };
    let mut out = Vec::new();
    SealedHead::emit(&keys, &manifest, &mut out).ok_or(SealError::TooMany(keys.len()))?;
    Ok(out)
}

/// Opens a feed's head for a receiver.
#[derive(Clone, Debug)]
pub struct Opener {
    feed: Tsi,
    secret: SecretKey,
    ephemeral: PublicKey,
}

impl Opener {
    /// Creates the opener for the holder of a secret key. `ephemeral` is the public key with which
    /// the feed is announced.
    pub fn new(feed: Tsi, secret: SecretKey, ephemeral: PublicKey) -> Opener {
        Opener { feed, secret, ephemeral }
    }

    /// Returns the feed's key and its manifest, which is empty for a pipe.
    ///
    /// # Errors
    ///
    /// Returns an error if the receiver is not admitted or the head is damaged.
    pub fn open(&self, head: &[u8]) -> Result<(FeedKey, Vec<u8>), OpenError> {
        let head = SealedHead::parse(head).map_err(|_| OpenError::Damaged)?;
        let shared = self.secret.shared(&self.ephemeral).ok_or(OpenError::Damaged)?;
        let own = self.secret.public();
        let pair = Pair::new(self.feed, &shared, &self.ephemeral, &own);
        let wrapped =
            head.keys().find(|key| key.hint == pair.hint).ok_or(OpenError::NotAdmitted)?;
        let mut bytes = wrapped.key;
        let secret = Cipher::aes_256(&pair.wrapping)
            .open_in_place(NONCE, NO_PLACE, &mut bytes)
            .and_then(|secret| secret.try_into().ok())
            .map(Zeroizing::<[u8; 32]>::new)
            .ok_or(OpenError::Damaged)?;
        bytes.zeroize();
        let key = FeedKey::new(self.feed, &secret);
        let manifest = match head.manifest {
            [] => Vec::new(),
            sealed => key.open_manifest(sealed).ok_or(OpenError::Damaged)?,
        };
        Ok((key, manifest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FEED: Tsi = Tsi(7);

    fn receiver(n: u8) -> SecretKey {
        SecretKey([n; 32])
    }

    fn head(manifest: &[u8]) -> (Vec<u8>, PublicKey) {
        let ephemeral = SecretKey([0xE0; 32]);
        let list: Vec<PublicKey> = (1..4).map(|n| receiver(n).public()).collect();
        let head = seal_head(FEED, &[9; 32], &ephemeral, &list, manifest).unwrap();
        (head, ephemeral.public())
    }

    #[test]
    fn keys_are_those_of_rfc_7748() {
        // [RFC 7748 §6.1]
        let hex = |text: &str| text.parse::<PublicKey>().unwrap();
        let secret = hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let public = hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        assert_eq!(SecretKey(secret.0).public(), public);
        let other = hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        let shared = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        assert_eq!(SecretKey(secret.0).shared(&other).map(|it| *it), Some(shared.0));
    }

    #[test]
    fn secret_keys_are_wiped_when_they_are_dropped_and_not_printed() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<SecretKey>();
        is_wiped::<Pair>();
        let secret = SecretKey([0xAB; 32]);
        let shown = format!("{secret:?} {:?}", Opener::new(FEED, secret.clone(), secret.public()));
        assert!(!shown.contains("abababab") && !shown.contains("171, 171"), "{shown}");
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        let key = receiver(1).public();
        assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
        for text in ["", "abcd", &"x".repeat(64), &"a".repeat(65)] {
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Form), "{text}");
        }
        for small in [0, 1] {
            let text = format!("{small:02}{}", "0".repeat(62));
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Weak), "{text}");
            let weak = PublicKey([small; 32]);
            assert!(small == 1 || seal_head(FEED, &[9; 32], &receiver(5), &[weak], b"").is_err());
        }
    }

    #[test]
    fn everyone_on_the_list_reads_the_feed_and_nobody_else() {
        for manifest in [&b"what is sent"[..], b""] {
            let (head, ephemeral) = head(manifest);
            let mut sealed = Vec::new();
            FeedKey::new(FEED, &[9; 32]).seal(0, 0, b"symbol", &mut sealed);
            for n in 1..4 {
                let (key, opened) = Opener::new(FEED, receiver(n), ephemeral).open(&head).unwrap();
                assert_eq!(opened, manifest);
                assert_eq!(key.open(0, 0, &mut sealed.clone()), Some(&b"symbol"[..]));
            }
            let stranger = Opener::new(FEED, receiver(4), ephemeral).open(&head);
            assert_eq!(stranger.unwrap_err(), OpenError::NotAdmitted);
        }
    }

    #[test]
    fn source_and_receiver_share_a_secret_for_one_feed() {
        let (source, alice, bob) = (receiver(9), receiver(1), receiver(2));
        let secret = alice.feed_secret(FEED, &source.public());
        assert_eq!(source.feed_secret(FEED, &alice.public()), secret);
        assert_ne!(source.feed_secret(FEED, &bob.public()), secret);
        assert_ne!(alice.feed_secret(Tsi(8), &source.public()), secret);
        assert_eq!(alice.feed_secret(FEED, &PublicKey([0; 32])), None);
    }

    #[test]
    fn a_head_is_good_for_its_feed_only() {
        let (head, ephemeral) = head(b"what is sent");
        for (feed, ephemeral) in [(Tsi(8), ephemeral), (FEED, receiver(5).public())] {
            let opened = Opener::new(feed, receiver(1), ephemeral).open(&head);
            assert_eq!(opened.unwrap_err(), OpenError::NotAdmitted);
        }
        let weak = Opener::new(FEED, receiver(1), PublicKey([0; 32])).open(&head);
        assert_eq!(weak.unwrap_err(), OpenError::Damaged);
    }

    proptest! {
        #[test]
        fn no_part_of_a_damaged_head_is_believed(flip in any::<u32>(), cut in 1_usize..300) {
            let (head, ephemeral) = head(b"what is sent");
            let opener = Opener::new(FEED, receiver(1), ephemeral);
            let whole = opener.open(&head).unwrap().1;
            let mut damaged = head.clone();
            let at = flip as usize / 8 % head.len();
            damaged[at] ^= 1 << (flip % 8);
            // Another receiver's key may be damaged without harm.
            if let Ok((_, manifest)) = opener.open(&damaged) {
                prop_assert_eq!(&manifest, &whole);
            }
            let short = &head[..head.len().saturating_sub(cut)];
            // The whole manifest may be cut off, since a pipe has none. The announced digest
            // reveals this.
            match opener.open(short) {
                Ok((_, manifest)) => prop_assert!(manifest.is_empty()),
                Err(error) => prop_assert!(matches!(
                    error, OpenError::Damaged | OpenError::NotAdmitted)),
            }
        }
    }
}
