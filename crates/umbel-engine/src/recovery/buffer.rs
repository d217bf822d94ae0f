//! The blocks that a domain manager keeps for its children.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use umbel_fec::{Code, SymbolSet};
use umbel_wire::Scheme;

use super::Stock;
use super::reception::MAX_SYMBOLS;
use crate::symbols::Load;

/// Most released blocks whose memory is kept for the next ones.
const SPARE: usize = 16;

/// One block, from its first symbol until every child has acknowledged it.
#[derive(Debug)]
struct Kept {
    k: u8,
    /// Source symbols, each filled up with zeros. Those of `held` are there.
    data: Vec<u8>,
    held: SymbolSet,
    /// Source symbol that is shorter than the others, and its length.
    short: Option<(u32, usize)>,
    /// Repair symbols: received ones until the block is complete, then generated ones.
    repairs: Vec<(u32, Bytes)>,
    complete: bool,
}

/// The blocks that a domain manager holds "until all of its children have acknowledged them"
/// [TMTP "Flow Control"]. Bytes are bounded: the buffer refuses a block that does not fit.
#[derive(Debug)]
pub(crate) struct Buffer {
    symbol_len: usize,
    max_bytes: usize,
    blocks: BTreeMap<u32, Kept>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// First block that a child is missing.
    first: u32,
}

impl Buffer {
    /// Creates an empty buffer for symbols of `symbol_len` bytes.
    pub(crate) fn new(symbol_len: usize, max_bytes: usize) -> Buffer {
        let (blocks, spare) = (BTreeMap::new(), Vec::new());
        Buffer { symbol_len, max_bytes, blocks, bytes: 0, spare, first: 0 }
    }

    /// Returns whether a symbol of this block can be kept. The first block that a child is
    /// missing always can: nothing is released before it, so later blocks must not keep it out.
    pub(crate) fn has_room(&self, block: u32, k: u8) -> bool {
        block <= self.first
            || self.blocks.contains_key(&block)
            || self.bytes + usize::from(k) * self.symbol_len <= self.max_bytes
            || self.blocks.is_empty()
    }

    /// Releases the oldest blocks until a symbol of this one can be kept, but no later ones.
    /// Returns whether it can.
    pub(crate) fn make_room(&mut self, block: u32, k: u8) -> bool {
        while !self.has_room(block, k) {
            match self.lowest().filter(|&lowest| lowest < block) {
                Some(lowest) => self.drop_block(lowest),
                None => return false,
            }
        }
        true
    }

    /// Keeps a copy of a symbol that was not kept before. Returns `false`, having changed
    /// nothing, if there is no room or the symbol is longer than this feed's.
    pub(crate) fn store(&mut self, block: u32, k: u8, esi: u32, symbol: &[u8]) -> bool {
        if symbol.len() > self.symbol_len || !self.has_room(block, k) {
            return false;
        }
        let len = usize::from(k) * self.symbol_len;
        let kept = self.blocks.entry(block).or_insert_with(|| {
            let mut data = self.spare.pop().unwrap_or_default();
            data.clear();
            data.resize(len, 0);
            self.bytes += len;
            let held = SymbolSet::new(u32::from(k));
            Kept { k, data, held, short: None, repairs: Vec::new(), complete: false }
        });
        if esi >= u32::from(kept.k) {
            kept.repairs.push((esi, Bytes::copy_from_slice(symbol)));
        } else if kept.held.insert(esi) {
            let start = esi as usize * self.symbol_len;
            kept.data[start..start + symbol.len()].copy_from_slice(symbol);
            if symbol.len() < self.symbol_len {
                kept.short = Some((esi, symbol.len()));
            }
        }
        true
    }

    /// Restores lost symbols of a block of which enough symbols were stored. Returns whether the
    /// block can be repaired from now on.
    pub(crate) fn complete(&mut self, block: u32) -> bool {
        let Some(kept) = self.blocks.get_mut(&block) else { return false };
        if !kept.held.is_full() {
            let full = |symbol: &&(u32, Bytes)| symbol.1.len() == self.symbol_len;
            let repairs: Vec<(u32, &[u8])> =
                kept.repairs.iter().filter(full).map(|(esi, symbol)| (*esi, &symbol[..])).collect();
            let code = Code::new(Scheme::ReedSolomon);
            let k = u32::from(kept.k);
            if code.restore(k, self.symbol_len, &mut kept.data, &kept.held, &repairs).is_err() {
                self.drop_block(block);
                return false;
            }
            kept.held = SymbolSet::full(k);
        }
        kept.complete = true;
        true
    }

    /// Returns the lowest block that is kept.
    pub(crate) fn lowest(&self) -> Option<u32> {
        self.blocks.keys().next().copied()
    }

    /// Releases all blocks before `end`, the first that a child is missing.
    pub(crate) fn release_before(&mut self, end: u32) {
        self.first = end;
        while let Some(block) = self.lowest().filter(|&block| block < end) {
            self.drop_block(block);
        }
    }

    /// Returns the bytes of the blocks that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Releases a block.
    pub(crate) fn drop_block(&mut self, block: u32) {
        if let Some(kept) = self.blocks.remove(&block) {
            self.bytes -= usize::from(kept.k) * self.symbol_len;
            if self.spare.len() < SPARE {
                self.spare.push(kept.data);
            }
        }
    }
}

impl Stock for Buffer {
    fn held(&self, block: u32) -> Option<u8> {
        self.blocks.get(&block).filter(|kept| kept.complete).map(|kept| kept.k)
    }

    fn has(&self, block: u32, esi: u32) -> Option<u8> {
        let held = |kept: &&Kept| kept.complete || kept.held.contains(esi);
        self.blocks.get(&block).filter(held).map(|kept| kept.k)
    }

    /// Generates the repair symbols among these.
    fn prefetch(&mut self, block: u32, esis: Range<u32>) {
        let Some(kept) = self.blocks.get_mut(&block).filter(|kept| kept.complete) else {
            return;
        };
        let k = u32::from(kept.k);
        let made = |kept: &Kept, esi| kept.repairs.iter().any(|(e, _)| *e == esi);
        let mut first = esis.start.max(k);
        while first < esis.end && made(kept, first) {
            first += 1;
        }
        let end = esis.end.min(MAX_SYMBOLS);
        if first >= end {
            return;
        }
        let mut out = vec![0; (end - first) as usize * self.symbol_len];
        let code = Code::new(Scheme::ReedSolomon);
        if code.encode(k, self.symbol_len, &kept.data, first..end, &mut out).is_ok() {
            let out = Bytes::from(out);
            for (at, esi) in (first..end).enumerate() {
                let symbol = out.slice(at * self.symbol_len..(at + 1) * self.symbol_len);
                if !made(kept, esi) {
                    kept.repairs.push((esi, symbol));
                }
            }
        }
    }

    fn symbol(&mut self, block: u32, esi: u32) -> Load {
        let gone = || Load::Gone(format!("block {block} is not kept"));
        self.prefetch(block, esi..esi + 1);
        let can = |kept: &&Kept| kept.complete || kept.held.contains(esi);
        let Some(kept) = self.blocks.get(&block).filter(can) else {
            return gone();
        };
        if esi < u32::from(kept.k) {
            let len = match kept.short {
                Some((short, len)) if short == esi => len,
                _ => self.symbol_len,
            };
            let start = esi as usize * self.symbol_len;
            return Load::Ready(Bytes::copy_from_slice(&kept.data[start..start + len]));
        }
        let made = kept.repairs.iter().find(|(e, _)| *e == esi);
        made.map_or_else(gone, |(_, symbol)| Load::Ready(symbol.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 8;

    fn symbol(block: u32, esi: u32) -> Vec<u8> {
        (0..LEN).map(|at| (block as usize * 31 + esi as usize * 7 + at) as u8).collect()
    }

    fn ready(buffer: &mut Buffer, block: u32, esi: u32) -> Vec<u8> {
        match buffer.symbol(block, esi) {
            Load::Ready(bytes) => bytes.to_vec(),
            other => panic!("{block} {esi}: {other:?}"),
        }
    }

    #[test]
    fn repair_symbols_of_one_buffer_restore_the_block_in_another() {
        let mut full = Buffer::new(LEN, 1000);
        for esi in 0..4 {
            assert!(full.store(0, 4, esi, &symbol(0, esi)));
        }
        assert_eq!(full.held(0), None, "not complete yet");
        assert!(full.complete(0));
        full.prefetch(0, 4..6);
        let mut other = Buffer::new(LEN, 1000);
        other.store(0, 4, 1, &symbol(0, 1));
        other.store(0, 4, 3, &symbol(0, 3));
        for esi in [5, 200] {
            let repair = ready(&mut full, 0, esi);
            other.store(0, 4, esi, &repair);
        }
        assert!(other.complete(0));
        for esi in 0..4 {
            assert_eq!(ready(&mut other, 0, esi), symbol(0, esi));
        }
        // Its own repair symbols are the same as the other's.
        assert_eq!(ready(&mut other, 0, 77), ready(&mut full, 0, 77));
    }

    #[test]
    fn a_short_symbol_stays_short() {
        let mut buffer = Buffer::new(LEN, 1000);
        buffer.store(3, 1, 0, b"abc");
        assert!(buffer.complete(3));
        assert_eq!(ready(&mut buffer, 3, 0), b"abc");
        assert!(!buffer.store(4, 1, 0, b"nine bytes"));
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut buffer = Buffer::new(LEN, 2 * 4 * LEN);
        for block in [5, 6] {
            assert!(buffer.store(block, 4, 0, &symbol(block, 0)));
        }
        assert!(!buffer.has_room(7, 4) && !buffer.store(7, 4, 0, &symbol(7, 0)));
        assert!(buffer.store(6, 4, 1, &symbol(6, 1)), "a block that has its room");
        buffer.release_before(6);
        assert_eq!((buffer.lowest(), buffer.bytes()), (Some(6), 4 * LEN));
        assert!(buffer.store(7, 4, 0, &symbol(7, 0)));
        assert!(!buffer.has_room(8, 4) && buffer.has_room(5, 4), "what is lacked first fits");
        buffer.release_before(8);
        assert!(buffer.has_room(9, 200), "the only block always fits");
        assert_eq!(buffer.symbol(6, 0), Load::Gone("block 6 is not kept".to_owned()));
    }

    #[test]
    fn old_blocks_give_way_to_new_ones_and_parts_of_blocks_can_be_sent() {
        let mut buffer = Buffer::new(LEN, 2 * 4 * LEN);
        for block in 3..7 {
            assert!(buffer.make_room(block, 4) && buffer.store(block, 4, 2, &symbol(block, 2)));
        }
        assert_eq!((buffer.lowest(), buffer.bytes()), (Some(5), 2 * 4 * LEN));
        assert!(!buffer.make_room(4, 4), "it is older than those that are kept");
        assert_eq!((buffer.has(5, 2), buffer.has(5, 1), buffer.held(5)), (Some(4), None, None));
        assert_eq!(ready(&mut buffer, 5, 2), symbol(5, 2));
        assert!(matches!(buffer.symbol(5, 7), Load::Gone(_)));
    }

    #[test]
    fn a_block_that_cannot_be_restored_is_not_kept() {
        let mut buffer = Buffer::new(LEN, 1000);
        buffer.store(0, 2, 0, &symbol(0, 0));
        buffer.store(0, 2, 9, b"short");
        assert!(!buffer.complete(0));
        assert_eq!((buffer.lowest(), buffer.bytes()), (None, 0));
    }
}
