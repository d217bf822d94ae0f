//! Digests of a block's encoding symbols, by which a receiver finds those to blame for a wrong
//! block.

use umbel_wire::repository::{SymbolDigest, SymbolKey};

use super::api::FEED;
use crate::recovery::reception::MAX_SYMBOLS;
use crate::repository::symbol_digest;
use crate::symbols::BlockId;

/// Returns the number of a block's symbols that have digests: the source symbols and the repair
/// symbols that are commonly sent.
pub(super) fn watched(symbols: u8, fec: bool) -> u32 {
    let k = u32::from(symbols);
    if fec { (k + k / 2 + 16).min(MAX_SYMBOLS) } else { k }
}

/// Returns the digest of a symbol of the feed. Zeros at its end do not count: a node that has
/// restored the last symbol of a file does not know its length, and repairs with a full one.
pub(super) fn digest_of(key: &SymbolKey, block: u32, esi: u32, symbol: &[u8]) -> SymbolDigest {
    let len = symbol.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    symbol_digest(key, BlockId { toi: FEED, sbn: block }, esi, &symbol[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count_and_place_and_content_do() {
        let key = SymbolKey([1; 32]);
        let digest = digest_of(&key, 3, 5, b"symbol");
        assert_eq!(digest_of(&key, 3, 5, b"symbol\0\0"), digest);
        assert_ne!(digest_of(&key, 3, 5, b"Symbol"), digest);
        assert_ne!(digest_of(&key, 3, 6, b"symbol"), digest);
        assert_ne!(digest_of(&key, 4, 5, b"symbol"), digest);
        assert_ne!(digest_of(&SymbolKey([2; 32]), 3, 5, b"symbol"), digest);
    }
}
