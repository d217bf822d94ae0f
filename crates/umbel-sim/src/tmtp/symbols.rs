//! Symbols of a feed. Their content follows from block and number, so that a receiver can check
//! them.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_fec::{Code, SymbolSet};
use umbel_wire::Scheme;

/// Returns the source symbols of a block, one after the other.
fn content(block: u32, symbols: u8, symbol_len: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(usize::from(symbols) * symbol_len);
    (0..symbols).for_each(|esi| all.extend(source_symbol(block, esi, symbol_len)));
    all
}

/// Returns the bytes of a source symbol.
fn source_symbol(block: u32, esi: u8, symbol_len: usize) -> impl Iterator<Item = u8> {
    let name = u64::from(block) << 8 | u64::from(esi);
    name.to_be_bytes().into_iter().cycle().take(symbol_len)
}

/// Computes the symbols of a feed on request.
#[derive(Debug)]
pub struct FeedSymbols {
    symbol_len: usize,
    /// Number of symbols of each block.
    blocks: Vec<u8>,
}

impl FeedSymbols {
    /// Creates the symbols of blocks with these numbers of source symbols.
    pub fn new(symbol_len: u16, blocks: Vec<u8>) -> FeedSymbols {
        FeedSymbols { symbol_len: usize::from(symbol_len), blocks }
    }
}

impl SymbolSource for FeedSymbols {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        let Some(&symbols) = self.blocks.get(block.sbn as usize) else {
            return Load::Gone("there is no such block".to_owned());
        };
        if esi < u32::from(symbols) {
            return Load::Ready(source_symbol(block.sbn, esi as u8, self.symbol_len).collect());
        }
        let source = content(block.sbn, symbols, self.symbol_len);
        let mut symbol = vec![0; self.symbol_len];
        let code = Code::new(Scheme::ReedSolomon);
        match code.encode(u32::from(symbols), self.symbol_len, &source, esi..esi + 1, &mut symbol) {
            Ok(()) => Load::Ready(symbol.into()),
            Err(error) => Load::Gone(error.to_string()),
        }
    }

    fn release(&mut self, _block: BlockId) {}
}

/// Restores blocks and checks them.
#[derive(Clone, Debug)]
pub struct FeedSink {
    symbol_len: usize,
    /// Symbols held of blocks that are not restored.
    held: BTreeMap<u32, Vec<(u32, Bytes)>>,
    /// Whether each block is restored.
    restored: Vec<bool>,
    blocks: u32,
    wrong: u32,
    /// Number of symbols that fit at a time.
    room: usize,
}

impl FeedSink {
    /// Creates an empty sink.
    pub fn new(symbol_len: u16) -> FeedSink {
        FeedSink {
            symbol_len: usize::from(symbol_len),
            held: BTreeMap::new(),
            restored: Vec::new(),
            blocks: 0,
            wrong: 0,
            room: usize::MAX,
        }
    }

    /// Returns the number of blocks that were restored as they were sent.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of blocks that were restored twice or with wrong content.
    pub fn wrong(&self) -> u32 {
        self.wrong
    }

    fn restore_from(&self, block: u32, symbols: &[(u32, Bytes)]) -> bool {
        let Ok(count) = u8::try_from(symbols.len()) else { return false };
        let k = u32::from(count);
        let expected = content(block, count, self.symbol_len);
        let mut data = vec![0; expected.len()];
        let mut present = SymbolSet::new(k);
        let mut repairs = Vec::new();
        for (esi, symbol) in symbols {
            if *esi < k {
                let start = *esi as usize * self.symbol_len;
                data[start..start + symbol.len()].copy_from_slice(symbol);
                present.insert(*esi);
            } else {
                repairs.push((*esi, &symbol[..]));
            }
        }
        let code = Code::new(Scheme::ReedSolomon);
        let restored = code.restore(k, self.symbol_len, &mut data, &present, &repairs);
        restored.is_ok() && data == expected
    }
}

impl SymbolSink for FeedSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        if self.held.len() >= self.room || symbol.len() != self.symbol_len {
            return false;
        }
        let held = self.held.entry(block.sbn).or_default();
        held.push((esi, Bytes::copy_from_slice(symbol)));
        true
    }

    fn restore(&mut self, block: BlockId) {
        let number = block.sbn as usize;
        if self.restored.len() <= number {
            self.restored.resize(number + 1, false);
        }
        let symbols = self.held.remove(&block.sbn).unwrap_or_default();
        let is_again = std::mem::replace(&mut self.restored[number], true);
        if is_again || !self.restore_from(block.sbn, &symbols) {
            self.wrong += 1;
        } else {
            self.blocks += 1;
        }
    }

    fn rest(&mut self, _block: BlockId) {}

    fn forget(&mut self, block: BlockId) {
        self.held.remove(&block.sbn);
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::tmtp::FEED;

    use super::*;

    fn get(source: &mut FeedSymbols, sbn: u32, esi: u32) -> Bytes {
        let Load::Ready(symbol) = source.symbol(BlockId { toi: FEED, sbn }, esi) else { panic!() };
        symbol
    }

    #[test]
    fn blocks_come_back_from_any_symbols_and_mistakes_are_found() {
        let mut source = FeedSymbols::new(20, vec![4, 4, 1]);
        let mut sink = FeedSink::new(20);
        for (sbn, esis, is_right) in [
            (0, &[0, 1, 2, 3][..], true),
            (1, &[7, 2, 250, 0], true),
            (2, &[0], true),
            (2, &[0], false),
            (3, &[1], false),
        ] {
            let right = sink.blocks();
            let block = BlockId { toi: FEED, sbn };
            for &esi in esis {
                assert!(sink.store(block, esi, &get(&mut source, sbn.min(2), esi)));
            }
            sink.restore(block);
            assert_eq!(sink.blocks() > right, is_right, "block {sbn}");
        }
        assert_eq!((sink.blocks(), sink.wrong()), (3, 2));
        let gone = source.symbol(BlockId { toi: FEED, sbn: 3 }, 0);
        assert!(matches!(gone, Load::Gone(_)));
    }
}
