//! Sealed blocks of files, in their source.

use std::collections::VecDeque;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};

use super::FeedKey;
use crate::feed::encoding_symbol;

/// Sealed blocks kept for the next repair symbol of them.
const KEPT: usize = 8;

/// A block of the feed: its number, its source symbols, and the item's block that it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::feed) struct FeedBlock {
    pub(in crate::feed) number: u32,
    pub(in crate::feed) symbols: u32,
    pub(in crate::feed) id: BlockId,
}

/// Seals the symbols that a reader gives.
#[derive(Debug)]
pub(in crate::feed) struct Sealer {
    key: FeedKey,
    symbol_len: usize,
    /// Whole blocks that repair symbols are made of.
    kept: VecDeque<(u32, Bytes)>,
}

impl Sealer {
    /// Sealed symbols have `symbol_len` bytes.
    pub(in crate::feed) fn new(key: FeedKey, symbol_len: u16) -> Sealer {
        Sealer { key, symbol_len: symbol_len.into(), kept: VecDeque::new() }
    }

    /// An encoding symbol of a sealed block.
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

    /// All source symbols of a block, filled up with zeros.
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

    /// No symbol of the block is asked for soon.
    pub(in crate::feed) fn release(&mut self, number: u32) {
        self.kept.retain(|(kept, _)| *kept != number);
    }
}
