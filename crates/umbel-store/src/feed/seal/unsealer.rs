//! Sealed blocks of files in a receiver.

use std::collections::BTreeMap;
use std::ops::Range;

use umbel_fec::Partition;

use super::{FeedKey, OpenError, Opener, SEAL_LEN};
use crate::feed::block::MemoryBlock;

/// Keeps the symbols of sealed blocks until the blocks can be opened.
#[derive(Debug)]
pub(in crate::feed) struct Unsealer {
    opener: Opener,
    key: Option<FeedKey>,
    symbol_len: usize,
    blocks: BTreeMap<u32, MemoryBlock>,
    /// Bytes that the blocks will have when all their symbols are stored.
    bytes: usize,
}

/// The opened content of a block.
#[derive(Debug)]
pub(in crate::feed) struct OpenedBlock {
    data: Vec<u8>,
    symbols: Vec<Range<usize>>,
}

impl OpenedBlock {
    /// Returns its source symbols.
    pub(in crate::feed) fn symbols(&self) -> impl Iterator<Item = &[u8]> {
        self.symbols.iter().map(|range| &self.data[range.clone()])
    }
}

impl Unsealer {
    /// Creates an unsealer. Sealed symbols have `symbol_len` bytes.
    pub(in crate::feed) fn new(opener: Opener, symbol_len: u16) -> Unsealer {
        let symbol_len = symbol_len.into();
        Unsealer { opener, key: None, symbol_len, blocks: BTreeMap::new(), bytes: 0 }
    }

    /// Opens the head, keeps its key and returns its manifest.
    ///
    /// # Errors
    ///
    /// Returns an error if the receiver is not admitted or the head is damaged.
    pub(in crate::feed) fn open_head(&mut self, head: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (key, manifest) = self.opener.open(head)?;
        self.key = Some(key);
        Ok(manifest)
    }

    /// Returns whether a source symbol is the sender's. Returns `true` as long as the key is
    /// missing.
    pub(in crate::feed) fn is_genuine(&self, number: u32, esi: u32, symbol: &[u8]) -> bool {
        self.key.as_ref().is_none_or(|key| key.open(number, esi, &mut symbol.to_vec()).is_some())
    }

    /// Stores a symbol of a block of `k` source symbols. `has_room` is asked whether there is room
    /// for the given number of bytes of all blocks together. It is asked only when a block begins;
    /// the first block never needs it. Returns whether there was room.
    pub(in crate::feed) fn store(
        &mut self,
        (number, k): (u32, u32),
        esi: u32,
        symbol: &[u8],
        has_room: impl FnOnce(usize) -> bool,
    ) -> bool {
        if !self.blocks.contains_key(&number) {
            let len = k as usize * self.symbol_len;
            if !self.blocks.is_empty() && !has_room(self.bytes + len) {
                return false;
            }
            self.bytes += len;
        }
        let block = self.blocks.entry(number).or_default();
        // Symbols in excess of `k` are not needed.
        if block.count() < k {
            block.store(esi, symbol);
        }
        true
    }

    /// Opens a block with enough stored symbols, the `sbn`th of an item with this partition.
    /// Returns `None` if one of the symbols is not the sender's; all of them are dropped then.
    pub(in crate::feed) fn open(
        &mut self,
        number: u32,
        (partition, sbn): (&Partition, u32),
    ) -> Option<OpenedBlock> {
        let block = self.blocks.remove(&number)?;
        let k = partition.block_symbols(sbn);
        self.bytes -= k as usize * self.symbol_len;
        let mut data = block.restore(k, self.symbol_len)?;
        let key = self.key.as_ref()?;
        let range = partition.block_range(sbn);
        let content_len = usize::from(partition.symbol_len());
        let mut left = (range.end - range.start) as usize;
        let mut symbols = Vec::with_capacity(k as usize);
        for esi in 0..k {
            let start = esi as usize * self.symbol_len;
            let len = left.min(content_len);
            left -= len;
            let sealed = data[start..].get_mut(..len + SEAL_LEN)?;
            let opened = key.open(number, esi, sealed)?.len();
            // The nonce precedes the content.
            let first = start + SEAL_LEN - umbel_engine::seal::TAG_LEN;
            symbols.push(first..first + opened);
        }
        Some(OpenedBlock { data, symbols })
    }
}
