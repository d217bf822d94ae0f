//! A block that is received into memory.

use umbel_fec::{Code, SymbolSet};
use umbel_wire::Scheme;

/// Symbols of one block, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct MemoryBlock {
    symbols: Vec<(u32, Box<[u8]>)>,
    bytes: usize,
}

impl MemoryBlock {
    /// Stores a symbol. Ignores a duplicate.
    pub(super) fn store(&mut self, esi: u32, symbol: &[u8]) {
        if self.symbols.iter().all(|(held, _)| *held != esi) {
            self.bytes += symbol.len();
            self.symbols.push((esi, symbol.into()));
        }
    }

    /// Returns the number of bytes of the symbols.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of different symbols held.
    pub(super) fn count(&self) -> u32 {
        self.symbols.len() as u32
    }

    /// Restores the block of `k` source symbols, padded with zeros. Returns `None` if the symbols
    /// do not suffice or do not fit.
    pub(super) fn restore(&self, k: u32, symbol_len: usize) -> Option<Vec<u8>> {
        let mut data = vec![0; k as usize * symbol_len];
        let mut present = SymbolSet::new(k);
        let mut repairs = Vec::new();
        for (esi, symbol) in &self.symbols {
            if *esi < k {
                let place = &mut data[*esi as usize * symbol_len..][..symbol_len];
                place.get_mut(..symbol.len())?.copy_from_slice(symbol);
                present.insert(*esi);
            } else {
                repairs.push((*esi, &symbol[..]));
            }
        }
        let code = Code::new(Scheme::ReedSolomon);
        code.restore(k, symbol_len, &mut data, &present, &repairs).ok()?;
        Some(data)
    }
}
