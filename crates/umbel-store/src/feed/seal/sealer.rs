//! Sealed blocks of files in their source.

use std::collections::VecDeque;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};

use super::FeedKey;
use crate::feed::encoding_symbol;

/// Number of sealed blocks that are kept for further repair symbols.
const KEPT: usize = 8;

/// A block of the feed: its number, its source symbols, and the corresponding block of an item.
#[derive(Clone, Copy, Debug)]
pub(in crate::feed) struct FeedBlock {
    pub(in crate::feed) number: u32,
    pub(in crate::feed) symbols: u32,
    pub(in crate::feed) id: BlockId,
}

/// Seals the symbols that a reader returns.
#[derive(Debug)]
pub(in crate::feed) struct Sealer {
    key: FeedKey,
    symbol_len: usize,
    /// Whole sealed blocks, from which repair symbols are computed.
    kept: VecDeque<(u32, Bytes)>,
}

impl Sealer {
    /// Creates a sealer. Sealed symbols have `symbol_len` bytes.
    pub(in crate::feed) fn new(key: FeedKey, symbol_len: u16) -> Sealer {
        Sealer { key, symbol_len: symbol_len.into(), kept: VecDeque::new() }
    }

    /// Returns an encoding symbol of a sealed block.
    pub(in crate::feed) fn symbol(
        &mut self,
        reader: &mut impl SymbolSource,
        block: FeedBlock,
        esi: u32,
    ) -> Load {
        if esi < block.symbols {
            return self.source_symbol(reader, block, esi);
        }
        let kept = self.kept.iter().find(|(number, _)| *number == block.number);
        let sealed = match kept {
            Some((_, sealed)) => sealed.clone(),
            None => match self.seal(reader, block) {
                Ok(sealed) => sealed,
                Err(load) => return load,
            },
        };
        encoding_symbol(&sealed, sealed.len(), self.symbol_len, block.symbols, esi)
    }

    fn source_symbol(&self, reader: &mut impl SymbolSource, block: FeedBlock, esi: u32) -> Load {
        match reader.symbol(block.id, esi) {
            Load::Ready(symbol) => {
                let mut sealed = Vec::new();
                self.key.seal(block.number, esi, &symbol, &mut sealed);
                Load::Ready(sealed.into())
            }
            other => other,
        }
    }

    /// Seals all source symbols of a block, each padded with zeros.
    fn seal(&mut self, reader: &mut impl SymbolSource, block: FeedBlock) -> Result<Bytes, Load> {
        let mut sealed = Vec::with_capacity(block.symbols as usize * self.symbol_len);
        for esi in 0..block.symbols {
            match reader.symbol(block.id, esi) {
                Load::Ready(symbol) => {
                    self.key.seal(block.number, esi, &symbol, &mut sealed);
                    sealed.resize((esi as usize + 1) * self.symbol_len, 0);
                }
                other => return Err(other),
            }
        }
        let sealed = Bytes::from(sealed);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((block.number, sealed.clone()));
        Ok(sealed)
    }

    /// Drops a block of which no symbol is needed soon.
    pub(in crate::feed) fn release(&mut self, number: u32) {
        self.kept.retain(|(kept, _)| *kept != number);
    }
}
