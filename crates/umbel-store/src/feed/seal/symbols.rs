//! Sealing and opening symbols.

use umbel_engine::seal::{Cipher, NONCE_LEN, TAG_LEN};
use umbel_wire::Tsi;
use zeroize::Zeroizing;

/// Number of bytes by which sealing lengthens a symbol.
pub const SEAL_LEN: usize = NONCE_LEN + TAG_LEN;

/// The key of one feed.
pub struct FeedKey {
    feed: Tsi,
    symbols: Cipher,
    nonces: Zeroizing<[u8; 32]>,
    manifest: Cipher,
}

impl FeedKey {
    /// Derives the keys from the feed's secret, which must be random and used for this feed only.
    pub fn new(feed: Tsi, secret: &[u8; 32]) -> FeedKey {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, secret));
        FeedKey {
            feed,
            symbols: Cipher::aes_256(&derive("umbel 2026 sealed feed: symbols")),
            nonces: derive("umbel 2026 sealed feed: nonces"),
            manifest: Cipher::aes_256(&derive("umbel 2026 sealed feed: manifest")),
        }
    }

    /// Returns the place for which a seal is valid: feed, block and symbol.
    fn place(&self, block: u32, esi: u32) -> [u8; 12] {
        let mut place = [0; 12];
        for (bytes, number) in place.chunks_exact_mut(4).zip([self.feed.0, block, esi]) {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
        place
    }

    /// Appends the sealed symbol, which is [`SEAL_LEN`] bytes longer than `symbol`.
    pub fn seal(&self, block: u32, esi: u32, symbol: &[u8], out: &mut Vec<u8>) {
        let place = self.place(block, esi);
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        hasher.update(&place).update(symbol);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&hasher.finalize().as_bytes()[..NONCE_LEN]);
        out.reserve(symbol.len() + SEAL_LEN);
        out.extend_from_slice(&nonce);
        self.symbols.append_sealed(nonce, &place, symbol, out);
    }

    /// Opens a symbol in place. Returns `None` if it was not sealed for this place of this feed.
    pub fn open<'s>(&self, block: u32, esi: u32, sealed: &'s mut [u8]) -> Option<&'s [u8]> {
        let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        self.symbols.open_in_place(*nonce, &self.place(block, esi), sealed)
    }

    /// Seals the manifest. A feed has only one.
    pub(super) fn seal_manifest(&self, manifest: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(manifest.len() + TAG_LEN);
        let place = self.feed.0.to_be_bytes();
        self.manifest.append_sealed([0; NONCE_LEN], &place, manifest, &mut out);
        out
    }

    /// Opens the sealed manifest. Returns `None` if it was not sealed for this feed.
    pub(super) fn open_manifest(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = sealed.to_vec();
        let place = self.feed.0.to_be_bytes();
        let len = self.manifest.open_in_place([0; NONCE_LEN], &place, &mut bytes)?.len();
        bytes.truncate(len);
        Some(bytes)
    }
}

impl std::fmt::Debug for FeedKey {
    /// Shows only the feed, because the keys are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedKey").field("feed", &self.feed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(key: &FeedKey, symbol: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        key.seal(3, 5, symbol, &mut out);
        out
    }

    fn opened(key: &FeedKey, (block, esi): (u32, u32), sealed: &[u8]) -> Option<Vec<u8>> {
        key.open(block, esi, &mut sealed.to_vec()).map(<[u8]>::to_vec)
    }

    proptest! {
        #[test]
        fn a_symbol_comes_back_at_its_place_only(
            symbol in prop::collection::vec(any::<u8>(), 0..200),
            flip in any::<u32>(),
            cut in 1_usize..50,
        ) {
            let key = FeedKey::new(Tsi(7), &[1; 32]);
            let good = sealed(&key, &symbol);
            prop_assert_eq!(good.len(), symbol.len() + SEAL_LEN);
            prop_assert_eq!(opened(&key, (3, 5), &good), Some(symbol));
            for place in [(3, 6), (4, 5), (5, 3)] {
                prop_assert_eq!(opened(&key, place, &good), None);
            }
            for other in [FeedKey::new(Tsi(8), &[1; 32]), FeedKey::new(Tsi(7), &[2; 32])] {
                prop_assert_eq!(opened(&other, (3, 5), &good), None);
            }
            let mut damaged = good.clone();
            let at = flip as usize / 8 % good.len();
            damaged[at] ^= 1 << (flip % 8);
            prop_assert_eq!(opened(&key, (3, 5), &damaged), None);
            let short = &good[..good.len().saturating_sub(cut)];
            prop_assert_eq!(opened(&key, (3, 5), short), None);
        }
    }

    #[test]
    fn two_contents_of_one_place_have_two_nonces() {
        let key = FeedKey::new(Tsi(7), &[1; 32]);
        let [one, same, other] = [b"one", b"one", b"two"].map(|symbol| sealed(&key, symbol));
        assert_eq!(one, same, "what is sent again is the same packet");
        assert_ne!(one[..NONCE_LEN], other[..NONCE_LEN]);
    }
}
