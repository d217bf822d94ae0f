//! State of a block between prefetch and release.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use umbel_engine::symbols::{BlockId, Load};
use umbel_fec::{Code, Partition};

use super::pool::Pool;
use crate::{Content, Fault, Item, ReadError};

/// Position of a block in its object, and its symbols.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// Number of source symbols.
    k: u32,
    /// Number of encoding symbols that can be made.
    symbols: u32,
    symbol_len: usize,
    /// Offset of its first byte in the object.
    offset: u64,
    /// Bytes of the object in the block. The last source symbol ends here.
    len: usize,
}

impl Shape {
    fn new(item: &Item, sbn: u32) -> Option<Shape> {
        let partition = Partition::new(&item.oti()).ok()?;
        let range = partition.block_range(sbn);
        (sbn < partition.blocks()).then(|| Shape {
            k: partition.block_symbols(sbn),
            symbols: partition.max_encoding_symbols(sbn),
            symbol_len: usize::from(partition.symbol_len()),
            offset: range.start,
            len: (range.end - range.start) as usize,
        })
    }

    fn padded_len(&self) -> usize {
        self.k as usize * self.symbol_len
    }

    fn bytes_of(&self, esis: &Range<u32>) -> usize {
        esis.len() * self.symbol_len
    }
}

/// The loaded symbols of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded {
    /// The whole block, padded with zeros.
    source: Option<Bytes>,
    /// Runs of repair symbols: the first ID, and the symbols one after the other.
    repairs: Vec<(u32, Bytes)>,
}

impl Loaded {
    /// Returns a symbol if it is loaded.
    pub(super) fn symbol(&self, shape: &Shape, esi: u32) -> Option<Bytes> {
        if esi < shape.k {
            let start = esi as usize * shape.symbol_len;
            let source = self.source.as_ref()?;
            return Some(source.slice(start..(start + shape.symbol_len).min(shape.len)));
        }
        self.repairs.iter().find_map(|(first, symbols)| {
            let start = esi.checked_sub(*first)? as usize * shape.symbol_len;
            let end = start + shape.symbol_len;
            (end <= symbols.len()).then(|| symbols.slice(start..end))
        })
    }
}

/// A block that was prefetched or requested, and not released since.
pub(super) struct Entry {
    pub(super) block: BlockId,
    pub(super) shape: Shape,
    item: Option<Arc<Item>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loaded: Loaded,
    /// Whether source symbols are wanted.
    source_wanted: bool,
    /// Repair symbols that are wanted and not made yet.
    repairs_wanted: Vec<Range<u32>>,
    gone: Option<String>,
    phase: Phase,
    /// Bytes of memory that this block accounts for.
    charged: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No work is due.
    #[default]
    Idle,
    /// The block waits for a worker.
    Queued,
    /// A worker has the block.
    Running,
    /// The sender does not want the block any more.
    Released,
}

impl Entry {
    pub(super) fn new(block: BlockId, item: Option<Arc<Item>>) -> Entry {
        let shape = item.as_ref().and_then(|item| Shape::new(item, block.sbn));
        let gone = match (&item, &shape) {
            (None, _) => Some(format!("there is no item {}", block.toi.0)),
            (Some(item), None) => Some(format!("{} has no block {}", item.name(), block.sbn)),
            (Some(_), Some(_)) => None,
        };
        Entry {
            block,
            shape: shape.unwrap_or_default(),
            item,
            state: Mutex::new(State { gone, ..State::default() }),
        }
    }

    /// Records that these symbols are wanted. Returns whether a worker must be notified.
    pub(super) fn want(&self, esis: Range<u32>) -> bool {
        self.state.lock().want(&self.shape, esis)
    }

    /// Returns the loaded symbols and the requested one. If that is not loaded, records that it is
    /// wanted and sets `sleeping` before a worker can publish it.
    pub(super) fn look(&self, esi: u32, sleeping: &AtomicBool) -> (Loaded, Load) {
        let mut state = self.state.lock();
        if let Some(reason) = &state.gone {
            return (Loaded::default(), Load::Gone(reason.clone()));
        }
        if esi >= self.shape.symbols {
            let reason = format!("block {} has no encoding symbol {esi}", self.block.sbn);
            return (state.loaded.clone(), Load::Gone(reason));
        }
        let load = if let Some(symbol) = state.loaded.symbol(&self.shape, esi) {
            Load::Ready(symbol)
        } else {
            state.want(&self.shape, esi..esi + 1);
            sleeping.store(true, Ordering::Relaxed);
            Load::Pending
        };
        (state.loaded.clone(), load)
    }

    /// Returns the bytes of memory that a worker needs for the wanted symbols; 0 if none are
    /// wanted.
    pub(super) fn cost(&self) -> usize {
        let state = self.state.lock();
        if state.phase == Phase::Queued { state.cost(&self.shape) } else { 0 }
    }

    /// Passes the wanted symbols to the calling worker, with their memory. Returns `None` if none
    /// are wanted.
    pub(super) fn take(&self) -> Option<Task> {
        let mut state = self.state.lock();
        (state.phase == Phase::Queued).then(|| {
            state.phase = Phase::Running;
            state.task(&self.shape)
        })
    }

    /// Executes a task: reads the block if it is not loaded, and makes repair symbols. Calls
    /// `publish` as soon as a symbol is ready. When the system lacks something, calls `wait`, and
    /// goes on if that says so. Returns the bytes that no longer count.
    pub(super) fn run(
        &self,
        task: &Task,
        (content, pool): (&Content, &Arc<Pool>),
        wait: impl Fn(&Fault) -> bool,
        publish: impl Fn(),
    ) -> usize {
        let result = self.load(task, (content, pool), &wait, &publish);
        let mut state = self.state.lock();
        if let Err(reason) = result {
            state.gone = Some(reason);
            state.loaded = Loaded::default();
            state.repairs_wanted.clear();
        }
        if state.phase == Phase::Released {
            state.loaded = Loaded::default();
            return std::mem::take(&mut state.charged);
        }
        state.phase = Phase::Idle;
        drop(state);
        publish();
        0
    }

    fn load(
        &self,
        task: &Task,
        (content, pool): (&Content, &Arc<Pool>),
        wait: &impl Fn(&Fault) -> bool,
        publish: &impl Fn(),
    ) -> Result<(), String> {
        let source = match &task.source {
            Some(source) => source.clone(),
            None => self.read(content, pool, wait)?,
        };
        let item = self.item.as_ref().ok_or("no item")?;
        self.state.lock().loaded.source = Some(source.clone());
        if task.source.is_none() && !task.repairs.is_empty() {
            publish();
        }
        let code = Code::new(item.oti().scheme);
        for esis in &task.repairs {
            let Shape { k, symbol_len, .. } = self.shape;
            let symbols = pool.fill(self.shape.bytes_of(esis), |out| {
                code.encode(k, symbol_len, &source, esis.clone(), out).map_err(|e| e.to_string())
            })?;
            self.state.lock().loaded.repairs.push((esis.start, symbols));
        }
        Ok(())
    }

    fn read(
        &self,
        content: &Content,
        pool: &Arc<Pool>,
        wait: &impl Fn(&Fault) -> bool,
    ) -> Result<Bytes, String> {
        let item = self.item.as_ref().ok_or("no item")?;
        pool.fill(self.shape.padded_len(), |buffer| {
            let (data, padding) = buffer.split_at_mut(self.shape.len);
            padding.fill(0);
            loop {
                match content.read_item(item, self.shape.offset, data) {
                    Err(ReadError::Gone { fault, .. })
                        if fault.is_shortage() && self.is_wanted() && wait(&fault) => {}
                    read => return read.map_err(|error| error.to_string()),
                }
            }
        })
    }

    fn is_wanted(&self) -> bool {
        self.state.lock().phase != Phase::Released
    }

    /// Drops the block. Returns the bytes that no longer count. Bytes of a running task count until
    /// it ends.
    pub(super) fn release(&self) -> usize {
        let mut state = self.state.lock();
        let running = state.phase == Phase::Running;
        state.phase = Phase::Released;
        if running {
            return 0;
        }
        state.loaded = Loaded::default();
        std::mem::take(&mut state.charged)
    }

    /// Queues the entry again if more symbols became wanted while a worker had it. Returns whether
    /// it did.
    pub(super) fn requeue(&self) -> bool {
        self.state.lock().queue()
    }
}

impl State {
    /// Records that symbols are wanted. Returns whether the entry must be queued.
    fn want(&mut self, shape: &Shape, esis: Range<u32>) -> bool {
        if self.gone.is_some() {
            return false;
        }
        if esis.start < esis.end.min(shape.k) {
            self.source_wanted = true;
        }
        let repairs = esis.start.max(shape.k)..esis.end.min(shape.symbols);
        self.want_repairs(shape, repairs);
        self.queue()
    }

    /// Adds those of some repair symbols that are neither loaded nor wanted yet.
    fn want_repairs(&mut self, shape: &Shape, mut esis: Range<u32>) {
        while !esis.is_empty() {
            let Some(known) = self.known_repairs(shape, &esis) else {
                self.repairs_wanted.push(esis);
                return;
            };
            if esis.start < known.start {
                self.repairs_wanted.push(esis.start..known.start);
            }
            esis.start = known.end;
        }
    }

    /// Returns the first run of loaded or wanted repair symbols that overlaps `esis`.
    fn known_repairs(&self, shape: &Shape, esis: &Range<u32>) -> Option<Range<u32>> {
        let made = self
            .loaded
            .repairs
            .iter()
            .map(|(first, symbols)| *first..*first + (symbols.len() / shape.symbol_len) as u32);
        made.chain(self.repairs_wanted.iter().cloned())
            .filter(|run| run.start < esis.end && esis.start < run.end)
            .min_by_key(|run| run.start)
    }

    fn queue(&mut self) -> bool {
        let missing = self.source_wanted && self.loaded.source.is_none();
        let due = missing || !self.repairs_wanted.is_empty();
        let queue = due && self.gone.is_none() && self.phase == Phase::Idle;
        if queue {
            self.phase = Phase::Queued;
        }
        queue
    }

    fn cost(&self, shape: &Shape) -> usize {
        let source = if self.loaded.source.is_some() { 0 } else { shape.padded_len() };
        source + self.repairs_wanted.iter().map(|esis| shape.bytes_of(esis)).sum::<usize>()
    }

    fn task(&mut self, shape: &Shape) -> Task {
        let cost = self.cost(shape);
        self.charged += cost;
        Task {
            cost,
            source: self.loaded.source.clone(),
            repairs: std::mem::take(&mut self.repairs_wanted),
        }
    }
}

/// Work of a worker for a block.
pub(super) struct Task {
    /// Bytes of memory that count for it.
    pub(super) cost: usize,
    /// The source block, if it is loaded already.
    source: Option<Bytes>,
    /// Repair symbols to make.
    repairs: Vec<Range<u32>>,
}
