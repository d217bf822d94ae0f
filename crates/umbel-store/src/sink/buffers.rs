//! The open blocks, which are being received, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender};
use umbel_engine::symbols::BlockId;
use umbel_fec::SymbolSet;

use super::item::Item;
use super::part::BlockBuffer;

/// Greatest number of wrong blocks of which symbols are held.
const MOST_DOUBTED: usize = 64;

/// Memory budget of open blocks and of those on their way to the disk.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicUsize::new(0), limit })
    }

    /// Takes `bytes` from the budget if they are left. A lease on an unused budget always succeeds,
    /// so that a block larger than the whole budget can be received.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        let fits = |used: usize| (used == 0 || used + bytes <= self.limit).then_some(used + bytes);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Lease { budget: self.clone(), bytes })
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.used() + bytes <= self.limit
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

/// Bytes of a budget, returned to it when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Lease {
    fn grow(&mut self, bytes: usize) -> bool {
        let alone = self.budget.used() == self.bytes;
        let fits =
            |used: usize| (alone || used + bytes <= self.budget.limit).then_some(used + bytes);
        let grown =
            self.budget.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        self.bytes += if grown { bytes } else { 0 };
        grown
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A block on its way to the disk.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) buffer: BlockBuffer,
    lease: Lease,
    pool: Sender<Vec<u8>>,
}

impl Filled {
    /// Returns the memory to the pool and the budget.
    pub(super) fn recycle(self) {
        let Filled { buffer, lease, pool } = self;
        // If the receiver of the pool is gone, the buffer is simply freed.
        let _ = pool.send(buffer.data);
        drop(lease);
    }
}

/// A block of which symbols are held in memory.
#[derive(Debug)]
pub(super) struct Open {
    id: BlockId,
    item: Arc<Item>,
    filled: Filled,
    touched: u64,
}

/// Symbols of blocks that were wrong, until it is known which of them are to blame. They keep their
/// part of the budget. The oldest go when there are too many. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubted(Arc<Mutex<VecDeque<Open>>>);

impl Doubted {
    fn blocks(&self) -> MutexGuard<'_, VecDeque<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the symbols of a block.
    pub(super) fn put(&self, block: Open) {
        let mut blocks = self.blocks();
        if blocks.len() >= MOST_DOUBTED {
            blocks.pop_front();
        }
        blocks.push_back(block);
    }

    fn take(&self, id: BlockId) -> Option<Open> {
        let mut blocks = self.blocks();
        let place = blocks.iter().position(|block| block.id == id)?;
        blocks.remove(place)
    }

    /// Drops the symbols of blocks for which `of` is true, or of the oldest block.
    fn forget(&self, of: impl Fn(BlockId) -> bool) {
        self.blocks().retain(|block| !of(block.id));
    }

    fn forget_oldest(&self) {
        self.blocks().pop_front();
    }
}

/// The blocks in which symbols are stored now.
#[derive(Debug)]
pub(super) struct OpenBlocks {
    /// The block of the last symbol. The next symbol most often belongs to it too, which saves a
    /// look-up in the map.
    current: Option<Open>,
    others: HashMap<BlockId, Open>,
    doubted: Doubted,
    budget: Arc<Budget>,
    clock: u64,
    pool: Sender<Vec<u8>>,
    free: Receiver<Vec<u8>>,
}

/// Result of storing a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// The symbol is held.
    Yes,
    /// The symbol does not belong to the item, or the item accepts no more.
    Unfit,
    /// There is no memory for the symbol.
    NoRoom,
}

impl OpenBlocks {
    pub(super) fn new(budget: Arc<Budget>, doubted: Doubted) -> OpenBlocks {
        let (pool, free) = crossbeam_channel::unbounded();
        let others = HashMap::new();
        OpenBlocks { current: None, others, doubted, budget, clock: 0, pool, free }
    }

    /// Stores a symbol. Calls `item` for the block's item if the block is not open yet.
    pub(super) fn store<'a>(
        &mut self,
        id: BlockId,
        esi: u32,
        symbol: &[u8],
        item: impl FnOnce() -> Option<&'a Arc<Item>>,
    ) -> Stored {
        if !self.turn_to(id) {
            let Some(item) = item().filter(|item| fits(item, id.sbn, esi, symbol)) else {
                return Stored::Unfit;
            };
            self.doubted.forget(|block| block == id);
            let Some(filled) = self.empty(item, id.sbn) else {
                self.doubted.forget_oldest();
                return Stored::NoRoom;
            };
            self.make_current(Open::new(id, item.clone(), filled));
        }
        self.clock += 1;
        let Some(open) = &mut self.current else { return Stored::NoRoom };
        open.touched = self.clock;
        open.store(esi, symbol)
    }

    /// Makes an open block the current one. Returns `false` if it is not open.
    fn turn_to(&mut self, id: BlockId) -> bool {
        if self.current.as_ref().is_some_and(|open| open.id == id) {
            return true;
        }
        let Some(open) = self.others.remove(&id) else { return false };
        self.make_current(open);
        true
    }

    fn make_current(&mut self, open: Open) {
        if let Some(open) = self.current.replace(open) {
            self.others.insert(open.id, open);
        }
    }

    /// Returns whether blocks of this number of bytes can be opened now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.budget.has_room(bytes)
    }

    /// Removes the block and returns it.
    pub(super) fn take(&mut self, block: BlockId) -> Option<Filled> {
        let current = self.current.take_if(|open| open.id == block);
        current.or_else(|| self.others.remove(&block)).map(|open| open.filled)
    }

    /// Returns whether another symbol than this is held under its number in an open block.
    pub(super) fn differs(&self, id: BlockId, esi: u32, symbol: &[u8]) -> bool {
        self.find(id).and_then(|open| open.symbol(esi)).is_some_and(|held| held != symbol)
    }

    /// Drops the symbols of wrong blocks for which `of` is true.
    pub(super) fn forget_doubted(&self, of: impl Fn(BlockId) -> bool) {
        self.doubted.forget(of);
    }

    /// Drops the symbols of an open block, or of one that was wrong, that are not right. Returns
    /// their numbers. The block is open then.
    pub(super) fn retain(
        &mut self,
        id: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        if self.find(id).is_none() {
            let open = self.doubted.take(id)?;
            self.others.insert(id, open);
        }
        let current = self.current.as_mut().filter(|open| open.id == id);
        let open = current.or_else(|| self.others.get_mut(&id))?;
        Some(open.retain(is_right))
    }

    fn find(&self, id: BlockId) -> Option<&Open> {
        self.current.as_ref().filter(|open| open.id == id).or_else(|| self.others.get(&id))
    }

    /// Returns the open blocks for which `of` is true, in ascending order.
    pub(super) fn ids(&self, of: impl Fn(BlockId) -> bool) -> Vec<BlockId> {
        let mut ids: Vec<BlockId> = self.open().map(|open| open.id).filter(|&id| of(id)).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the least recently used block, if open blocks rather than the disk use up the
    /// memory.
    pub(super) fn stalest(&self) -> Option<BlockId> {
        let bytes: usize = self.open().map(|open| open.filled.lease.bytes).sum();
        let stalest = self.open().min_by_key(|open| open.touched);
        stalest.filter(|_| bytes > self.budget.limit / 2).map(|open| open.id)
    }

    fn open(&self) -> impl Iterator<Item = &Open> {
        self.current.iter().chain(self.others.values())
    }

    /// Returns an empty buffer for the block.
    fn empty(&self, item: &Item, sbn: u32) -> Option<Filled> {
        let k = item.partition.block_symbols(sbn);
        let len = k as usize * item.symbol_len();
        let lease = self.budget.take(len)?;
        // Each new buffer takes one out of the pool, whether that one fits or not. The pool and the
        // blocks together thus stay within the budget.
        let reused =
            self.free.try_recv().ok().filter(|data| (len..=len * 2).contains(&data.capacity()));
        let mut data = reused.unwrap_or_default();
        if data.capacity() == 0 {
            data = vec![0; len];
        }
        data.resize(len, 0);
        let buffer = BlockBuffer {
            data,
            source: SymbolSet::new(k),
            repair_esis: Vec::new(),
            repairs: Vec::new(),
        };
        Some(Filled { buffer, lease, pool: self.pool.clone() })
    }
}

impl Open {
    pub(super) fn new(id: BlockId, item: Arc<Item>, filled: Filled) -> Open {
        Open { id, item, filled, touched: 0 }
    }

    fn store(&mut self, esi: u32, symbol: &[u8]) -> Stored {
        let (item, sbn) = (&self.item, self.id.sbn);
        if item.is_closed() || !fits(item, sbn, esi, symbol) {
            return Stored::Unfit;
        }
        let symbol_len = item.symbol_len();
        let buffer = &mut self.filled.buffer;
        if esi >= item.partition.block_symbols(sbn) {
            if !self.filled.lease.grow(symbol_len) {
                return Stored::NoRoom;
            }
            buffer.repair_esis.push(esi);
            buffer.repairs.extend_from_slice(symbol);
        } else if buffer.source.insert(esi) {
            let own_len = source_len(item, sbn, esi);
            let place = &mut buffer.data[esi as usize * symbol_len..][..symbol_len];
            place[..own_len].copy_from_slice(&symbol[..own_len]);
            place[own_len..].fill(0);
        }
        Stored::Yes
    }
}

impl Open {
    /// Returns a symbol that is held in memory.
    fn symbol(&self, esi: u32) -> Option<&[u8]> {
        let symbol_len = self.item.symbol_len();
        let buffer = &self.filled.buffer;
        if esi < self.item.partition.block_symbols(self.id.sbn) {
            let own_len = source_len(&self.item, self.id.sbn, esi);
            let place = buffer.data.get(esi as usize * symbol_len..)?.get(..own_len)?;
            return buffer.source.contains(esi).then_some(place);
        }
        let place = buffer.repair_esis.iter().position(|&held| held == esi)?;
        buffer.repairs.get(place * symbol_len..(place + 1) * symbol_len)
    }

    /// Drops symbols that are not right, and returns their numbers.
    fn retain(&mut self, is_right: &dyn Fn(u32, &[u8]) -> bool) -> Vec<u32> {
        let buffer = &self.filled.buffer;
        let source = (0..buffer.source.len()).filter(|&esi| buffer.source.contains(esi));
        let held = source.chain(buffer.repair_esis.iter().copied());
        let is_wrong = |&esi: &u32| !self.symbol(esi).is_some_and(|symbol| is_right(esi, symbol));
        let wrong: Vec<u32> = held.filter(is_wrong).collect();
        let symbol_len = self.item.symbol_len();
        let buffer = &mut self.filled.buffer;
        let k = buffer.source.len();
        for &esi in &wrong {
            if esi < k {
                buffer.source.remove(esi);
            } else if let Some(place) = buffer.repair_esis.iter().position(|&held| held == esi) {
                buffer.repair_esis.remove(place);
                buffer.repairs.drain(place * symbol_len..(place + 1) * symbol_len);
            }
        }
        wrong
    }
}

/// Returns the bytes of the object in a source symbol.
fn source_len(item: &Item, sbn: u32, esi: u32) -> usize {
    let range = item.partition.symbol_range(sbn, esi);
    (range.end - range.start) as usize
}

/// Returns whether the symbol belongs to the item and has either full length or the length of its
/// part of the object.
fn fits(item: &Item, sbn: u32, esi: u32, symbol: &[u8]) -> bool {
    let source = esi < item.partition.block_symbols(sbn);
    esi < item.partition.max_encoding_symbols(sbn)
        && (symbol.len() == item.symbol_len()
            || (source && symbol.len() == source_len(item, sbn, esi)))
}
