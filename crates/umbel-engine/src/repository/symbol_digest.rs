//! Digests of encoding symbols, by which a client tells wrong ones from its server's.

use umbel_wire::repository::{SymbolDigest, SymbolKey};

use crate::symbols::BlockId;

/// Returns the digest of an encoding symbol in its place. The last source symbol of an object
/// counts as long as it is sent.
pub fn symbol_digest(key: &SymbolKey, block: BlockId, esi: u32, symbol: &[u8]) -> SymbolDigest {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    let mut place = [0; 12];
    place[..4].copy_from_slice(&block.toi.0.to_be_bytes());
    place[4..8].copy_from_slice(&block.sbn.to_be_bytes());
    place[8..].copy_from_slice(&esi.to_be_bytes());
    hasher.update(&place).update(symbol);
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    SymbolDigest(digest)
}
