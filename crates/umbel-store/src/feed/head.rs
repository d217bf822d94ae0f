//! The beginning of a feed, announced by its digest: the manifest, or the head of a sealed feed.
//! Source and receiver keep all of it in memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbel_engine::symbols::Load;
use umbel_fec::{FecError, Partition};
use umbel_wire::Digest;

use super::block::MemoryBlock;
use super::layout::runs_of;
use super::{BlockShape, encoding_symbol};

/// The head in a source.
#[derive(Debug)]
pub(super) struct HeadFeed {
    bytes: Bytes,
    partition: Partition,
}

impl HeadFeed {
    pub(super) fn new(shape: BlockShape, bytes: Bytes) -> Result<HeadFeed, FecError> {
        let partition = shape.partition(bytes.len() as u64)?;
        Ok(HeadFeed { bytes, partition })
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.partition.object_len()
    }

    /// Returns its number of blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.partition.blocks()
    }

    /// Returns runs of its blocks: number of blocks, and their source symbols.
    pub(super) fn runs(&self) -> Vec<(u32, u8)> {
        runs_of(std::iter::once((&self.partition, 0..self.partition.blocks())))
    }

    /// Returns a symbol of one of its blocks.
    pub(super) fn symbol(&self, sbn: u32, esi: u32) -> Load {
        let range = self.partition.block_range(sbn);
        let symbol_len = usize::from(self.partition.symbol_len());
        let (k, len) = (self.partition.block_symbols(sbn), (range.end - range.start) as usize);
        let bytes = self.bytes.slice(range.start as usize..range.end as usize);
        if esi < k {
            return encoding_symbol(&bytes, len, symbol_len, k, esi);
        }
        let mut padded = bytes.to_vec();
        padded.resize(k as usize * symbol_len, 0);
        encoding_symbol(&padded.into(), len, symbol_len, k, esi)
    }
}

/// Error of a head that differs from the one that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forged;

/// The head in a receiver.
#[derive(Debug)]
pub(super) struct HeadSink {
    partition: Partition,
    digest: Digest,
    /// Blocks that are not restored yet.
    open: BTreeMap<u32, MemoryBlock>,
    /// Blocks that are restored.
    restored: BTreeMap<u32, Vec<u8>>,
}

impl HeadSink {
    /// Creates the sink for a head of this length and digest.
    pub(super) fn new(
        shape: BlockShape,
        (len, digest): (u64, Digest),
    ) -> Result<HeadSink, FecError> {
        let partition = shape.partition(len)?;
        Ok(HeadSink { partition, digest, open: BTreeMap::new(), restored: BTreeMap::new() })
    }

    /// Returns its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.partition.object_len()
    }

    /// Returns its number of blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.partition.blocks()
    }

    /// Returns the number of source symbols of one of its blocks.
    pub(super) fn source_symbols(&self, sbn: u32) -> u8 {
        self.partition.block_symbols(sbn) as u8
    }

    /// Stores a symbol of one of its blocks.
    pub(super) fn store(&mut self, sbn: u32, esi: u32, symbol: &[u8]) {
        self.open.entry(sbn).or_default().store(esi, symbol);
    }

    /// Restores a block from its symbols. Returns the head after the last block. Returns an error
    /// if the symbols do not restore the block or the head's digest is wrong. Nothing is held then.
    pub(super) fn restore(&mut self, sbn: u32) -> Option<Result<Vec<u8>, Forged>> {
        let block = self.open.remove(&sbn)?;
        let k = self.partition.block_symbols(sbn);
        let range = self.partition.block_range(sbn);
        let Some(mut data) = block.restore(k, self.partition.symbol_len().into()) else {
            return Some(Err(self.drop_all()));
        };
        data.truncate((range.end - range.start) as usize);
        self.restored.insert(sbn, data);
        if self.restored.len() < self.partition.blocks() as usize {
            return None;
        }
        let bytes: Vec<u8> = std::mem::take(&mut self.restored).into_values().flatten().collect();
        let sound = blake3::hash(&bytes).as_bytes() == &self.digest.0;
        Some(if sound { Ok(bytes) } else { Err(self.drop_all()) })
    }

    /// Drops everything, since nothing tells which block is forged.
    fn drop_all(&mut self) -> Forged {
        self.open.clear();
        self.restored.clear();
        Forged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives all blocks, the last first, each with one symbol lost and repaired.
    fn receive(
        feed: &HeadFeed,
        sink: &mut HeadSink,
        forged: bool,
    ) -> Option<Result<Vec<u8>, Forged>> {
        let mut result = None;
        for sbn in (0..feed.blocks()).rev() {
            assert!(result.is_none());
            let k = feed.partition.block_symbols(sbn);
            for esi in 1..=k {
                let Load::Ready(symbol) = feed.symbol(sbn, esi) else { panic!() };
                let mut symbol = symbol.to_vec();
                symbol[0] ^= u8::from(forged);
                sink.store(sbn, esi, &symbol);
            }
            result = sink.restore(sbn);
        }
        result
    }

    #[test]
    fn a_forged_head_is_dropped_and_the_genuine_one_is_taken_after_it() {
        let shape = BlockShape { symbol_len: 10, block_symbols: 4, sealed: false };
        let bytes: Vec<u8> = (0..105).collect();
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let feed = HeadFeed::new(shape, bytes.clone().into()).unwrap();
        let mut sink = HeadSink::new(shape, (105, digest)).unwrap();
        for _ in 0..3 {
            assert_eq!(receive(&feed, &mut sink, true), Some(Err(Forged)));
        }
        assert_eq!(receive(&feed, &mut sink, false), Some(Ok(bytes)));
    }
}
