//! The blocks that are being received, in bounded memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender};
use umbel_engine::symbols::BlockId;
use umbel_fec::SymbolSet;

use super::item::Item;
use super::part::BlockBuffer;

/// Memory of open blocks and of those on their way to the disk.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicUsize::new(0), limit })
    }

    /// Takes so many bytes, if they are left. The first one gets what it asks for in any case, so
    /// that a block larger than the whole budget can be received.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        let fits = |used: usize| (used == 0 || used + bytes <= self.limit).then_some(used + bytes);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Lease { budget: self.clone(), bytes })
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

/// Bytes of a budget, given back when dropped.
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
    /// Gives the memory back.
    pub(super) fn recycle(self) {
        let Filled { buffer, lease, pool } = self;
        // If nobody receives any more, the buffer is simply freed.
        let _ = pool.send(buffer.data);
        drop(lease);
    }
}

#[derive(Debug)]
struct Open {
    filled: Filled,
    touched: u64,
}

/// The blocks that symbols are stored in now.
#[derive(Debug)]
pub(super) struct OpenBlocks {
    blocks: HashMap<BlockId, Open>,
    budget: Arc<Budget>,
    clock: u64,
    pool: Sender<Vec<u8>>,
    free: Receiver<Vec<u8>>,
}

/// Whether a symbol could be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is held.
    Yes,
    /// It does not belong to the item.
    Unfit,
    /// There is no memory for it.
    NoRoom,
}

impl OpenBlocks {
    pub(super) fn new(budget: Arc<Budget>) -> OpenBlocks {
        let (pool, free) = crossbeam_channel::unbounded();
        OpenBlocks { blocks: HashMap::new(), budget, clock: 0, pool, free }
    }

    /// Keeps a symbol.
    pub(super) fn store(&mut self, item: &Item, sbn: u32, esi: u32, symbol: &[u8]) -> Stored {
        let k = item.partition.block_symbols(sbn);
        let symbol_len = item.symbol_len();
        if esi >= item.partition.max_encoding_symbols(sbn) {
            return Stored::Unfit;
        }
        let own_len = item.partition.symbol_range(sbn, esi);
        let own_len = if esi < k { (own_len.end - own_len.start) as usize } else { symbol_len };
        if symbol.len() != symbol_len && symbol.len() != own_len {
            return Stored::Unfit;
        }
        let Some(filled) = self.open(item, sbn) else { return Stored::NoRoom };
        let buffer = &mut filled.buffer;
        if esi < k {
            if buffer.source.insert(esi) {
                let place = &mut buffer.data[esi as usize * symbol_len..][..symbol_len];
                place[..own_len].copy_from_slice(&symbol[..own_len]);
                place[own_len..].fill(0);
            }
        } else {
            if !filled.lease.grow(symbol_len) {
                return Stored::NoRoom;
            }
            buffer.repair_esis.push(esi);
            buffer.repairs.extend_from_slice(symbol);
        }
        Stored::Yes
    }

    /// Takes the block out.
    pub(super) fn take(&mut self, block: BlockId) -> Option<Filled> {
        self.blocks.remove(&block).map(|open| open.filled)
    }

    /// The blocks of an item, or all.
    pub(super) fn ids(&self, of: impl Fn(BlockId) -> bool) -> Vec<BlockId> {
        let mut ids: Vec<BlockId> = self.blocks.keys().copied().filter(|&id| of(id)).collect();
        ids.sort_unstable();
        ids
    }

    /// The block that nothing was stored in for the longest time, if open blocks rather than the
    /// disk use up the memory.
    pub(super) fn stalest(&self) -> Option<BlockId> {
        let open: usize = self.blocks.values().map(|open| open.filled.lease.bytes).sum();
        let stalest = self.blocks.iter().min_by_key(|(_, open)| open.touched);
        stalest.filter(|_| open > self.budget.limit / 2).map(|(&id, _)| id)
    }

    fn open(&mut self, item: &Item, sbn: u32) -> Option<&mut Filled> {
        let id = BlockId { toi: item.toi, sbn };
        self.clock += 1;
        if !self.blocks.contains_key(&id) {
            let filled = self.empty(item, sbn)?;
            self.blocks.insert(id, Open { filled, touched: 0 });
        }
        let open = self.blocks.get_mut(&id)?;
        open.touched = self.clock;
        Some(&mut open.filled)
    }

    /// An empty buffer for the block.
    fn empty(&self, item: &Item, sbn: u32) -> Option<Filled> {
        let k = item.partition.block_symbols(sbn);
        let len = k as usize * item.symbol_len();
        let lease = self.budget.take(len)?;
        // One buffer out of the pool for each that is needed, whether it fits or not: so the pool
        // and the blocks together stay within the budget.
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
