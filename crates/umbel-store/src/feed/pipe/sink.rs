//! The receiver's end of a pipe.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_fec::FecError;
use umbel_wire::Digest;

use super::super::BlockShape;
use super::super::block::MemoryBlock;
use super::super::head::{Forged, HeadSink};
use super::super::seal::{FeedKey, OpenError, Opener};
use super::run::{Ending, PipeId, Verifier};

/// Event of a [`PipeSink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeEvent {
    /// The pipe is sealed and cannot be opened. Nothing of it can be read.
    Unreadable(OpenError),
    /// The blocks of the head that were received are not those that were announced. They are
    /// dropped.
    HeadForged {
        /// Number of the head's blocks, which come first.
        blocks: u32,
    },
    /// The received symbols of a block do not restore the block that was sent. They are dropped.
    Damaged {
        /// Number of the block.
        block: u32,
    },
    /// There is room again after symbols were refused for lack of it.
    Room,
}

/// End of a pipe as its reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipeOutcome {
    /// Its sender signed that it is whole.
    Whole,
    /// Its sender signed that it is incomplete, for this reason.
    Failed(String),
    /// It was cut short: nothing says that it is whole.
    Cut,
}

/// Creates the two ends of a pipe in a receiver. Blocks are taken from the holder of this Ed25519
/// key alone. `memory` bounds the bytes that wait to be read. If `shape` says that the pipe is
/// sealed, `seal` has the length and digest of the head, and the opener for it. `on_event` is
/// called on either end's thread and must not block.
///
/// # Errors
///
/// Returns an error if a head of this length cannot be split.
pub fn pipe_sink(
    (pipe, key): (PipeId, [u8; 32]),
    shape: BlockShape,
    memory: usize,
    seal: Option<((u64, Digest), Opener)>,
    on_event: impl Fn(PipeEvent) + Send + Sync + 'static,
) -> Result<(PipeSink, PipeReader), FecError> {
    let seal = match seal {
        None => None,
        Some((about, opener)) => {
            let head = HeadSink::new(shape, about)?;
            Some(Box::new(PipeSeal { head, opener, key: None, waiting: Vec::new() }))
        }
    };
    let shared = Arc::new(Queue {
        state: Mutex::default(),
        moved: Condvar::new(),
        memory,
        on_event: Box::new(on_event),
    });
    let sink = Blocks {
        shared: shared.clone(),
        verifier: Verifier::new(pipe, key),
        symbol_len: shape.symbol_len.into(),
        seal,
        open: BTreeMap::new(),
        open_bytes: 0,
        ready: BTreeMap::new(),
        ready_bytes: 0,
        next: None,
        end: None,
    };
    let end = PipeEnd { shared: shared.clone() };
    let sink = PipeSink { blocks: Arc::new(Mutex::new(sink)), end: Arc::new(end) };
    Ok((sink, PipeReader { shared }))
}

struct Queue {
    state: Mutex<Waiting>,
    /// Notified when there is more to read, or when the pipe ends.
    moved: Condvar,
    memory: usize,
    on_event: Box<dyn Fn(PipeEvent) + Send + Sync>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    /// Contents of blocks in order.
    contents: VecDeque<Bytes>,
    bytes: usize,
    /// Whether a symbol was refused since the last time there was room.
    refused: bool,
    /// End of the pipe, if it has ended.
    ended: Option<PipeOutcome>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State for opening a sealed pipe.
#[derive(Debug)]
struct PipeSeal {
    head: HeadSink,
    opener: Opener,
    /// Key of the feed, once the head is complete.
    key: Option<FeedKey>,
    /// Blocks that can be restored once the key is known.
    waiting: Vec<u32>,
}

/// Accepts the blocks of a pipe in any order and passes them on in the pipe's order. Clones are the
/// same sink. The reader ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct PipeSink {
    blocks: Arc<Mutex<Blocks>>,
    end: Arc<PipeEnd>,
}

impl PipeSink {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the first block of the pipe. Earlier blocks are dropped.
    pub fn begin(&self, first: u32) {
        self.blocks().begin(first);
    }

    /// Returns whether the sender's word is known where the pipe ends.
    pub fn has_end(&self) -> bool {
        let blocks = self.blocks();
        blocks.end.is_some() || blocks.shared.lock().ended.is_some()
    }

    /// Ends the pipe for the reader, after the blocks that were passed on already.
    pub fn abort(&self) {
        self.end.abort();
    }
}

/// Ends the pipe for the reader when it is dropped.
#[derive(Debug)]
struct PipeEnd {
    shared: Arc<Queue>,
}

impl PipeEnd {
    fn abort(&self) {
        self.shared.lock().ended.get_or_insert(PipeOutcome::Cut);
        self.shared.moved.notify_all();
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The blocks of a pipe that are not passed on yet.
#[derive(Debug)]
struct Blocks {
    shared: Arc<Queue>,
    verifier: Verifier,
    symbol_len: usize,
    /// State for opening the pipe, if it is sealed.
    seal: Option<Box<PipeSeal>>,
    /// Blocks that are not restored yet.
    open: BTreeMap<u32, MemoryBlock>,
    open_bytes: usize,
    /// Blocks that are restored, while an earlier one is missing.
    ready: BTreeMap<u32, Bytes>,
    ready_bytes: usize,
    /// Next block to pass on, once it is known.
    next: Option<u32>,
    /// Number after the last block, once it is known, and how the pipe ends there.
    end: Option<(u32, PipeOutcome)>,
}

impl Blocks {
    fn begin(&mut self, first: u32) {
        if self.next.is_some() {
            return;
        }
        let first = first.max(self.head_blocks());
        self.next = Some(first);
        self.open = self.open.split_off(&first);
        self.ready = self.ready.split_off(&first);
        self.open_bytes = self.open.values().map(MemoryBlock::bytes).sum();
        self.ready_bytes = self.ready.values().map(Bytes::len).sum();
        self.pass_on();
    }

    fn head_blocks(&self) -> u32 {
        self.seal.as_ref().map_or(0, |seal| seal.head.blocks())
    }

    /// Passes on the restored blocks that are next in order.
    fn pass_on(&mut self) {
        let Some(next) = &mut self.next else { return };
        let mut state = self.shared.lock();
        while let Some(content) = self.ready.remove(next) {
            self.ready_bytes -= content.len();
            state.bytes += content.len();
            // The last block may have none.
            state.contents.extend(Some(content).filter(|content| !content.is_empty()));
            *next += 1;
        }
        if let Some((_, outcome)) = self.end.take_if(|(end, _)| *end <= *next) {
            state.ended.get_or_insert(outcome);
        }
        drop(state);
        self.shared.moved.notify_all();
    }

    /// Returns whether there is room for a symbol of this block. The first missing block always has
    /// room once everything passed on is read, since no later block can be passed on before it.
    fn has_room(&self, block: u32, bytes: usize) -> bool {
        let first = self.next.unwrap_or_else(|| {
            let opened = self.open.keys().next().copied().unwrap_or(block);
            opened.min(block)
        });
        let mut state = self.shared.lock();
        let used = state.bytes + self.open_bytes + self.ready_bytes;
        let fits = block == first && state.bytes == 0 || used + bytes <= self.shared.memory;
        state.refused |= !fits;
        fits
    }

    fn check(&mut self, number: u32, block: &MemoryBlock) -> Option<(Ending, Bytes)> {
        let mut data = block.restore(block.count(), self.symbol_len)?;
        if let Some(seal) = &self.seal {
            data = open(seal.key.as_ref()?, number, &mut data, self.symbol_len)?;
        }
        let (ending, content) = self.verifier.check(number, &data)?;
        Some((ending, Bytes::from(data).slice(content)))
    }

    /// Restores a block of the head. After the last one, takes the key from the head.
    fn restore_head(&mut self, number: u32) {
        let Some(seal) = &mut self.seal else { return };
        let Some(head) = seal.head.restore(number) else { return };
        match head.map(|head| seal.opener.open(&head)) {
            Err(Forged) => {
                let blocks = seal.head.blocks();
                (self.shared.on_event)(PipeEvent::HeadForged { blocks });
            }
            Ok(Ok((key, _))) => {
                seal.key = Some(key);
                for number in std::mem::take(&mut seal.waiting) {
                    self.restore_data(number);
                }
                self.pass_on();
            }
            Ok(Err(error)) => (self.shared.on_event)(PipeEvent::Unreadable(error)),
        }
    }

    fn restore_data(&mut self, number: u32) {
        let Some(open) = self.open.remove(&number) else { return };
        self.open_bytes -= open.bytes();
        match self.check(number, &open) {
            Some((ending, content)) => {
                let content = match ending {
                    Ending::None => content,
                    Ending::Whole => {
                        self.end = Some((number.saturating_add(1), PipeOutcome::Whole));
                        content
                    }
                    Ending::Failed => {
                        let reason = String::from_utf8_lossy(&content).into_owned();
                        let outcome = PipeOutcome::Failed(reason);
                        self.end = Some((number.saturating_add(1), outcome));
                        Bytes::new()
                    }
                };
                self.ready_bytes += content.len();
                self.ready.insert(number, content);
                self.pass_on();
            }
            None => (self.shared.on_event)(PipeEvent::Damaged { block: number }),
        }
    }
}

/// Returns the content of a sealed block.
fn open(key: &FeedKey, number: u32, sealed: &mut [u8], symbol_len: usize) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(sealed.len());
    for (esi, symbol) in (0..).zip(sealed.chunks_exact_mut(symbol_len)) {
        content.extend_from_slice(key.open(number, esi, symbol)?);
    }
    Some(content)
}

impl SymbolSink for PipeSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        self.blocks().store(block, esi, symbol)
    }

    fn restore(&mut self, block: BlockId) {
        self.blocks().restore(block);
    }

    fn rest(&mut self, _block: BlockId) {}

    fn source_symbols(&self, block: BlockId) -> Option<u8> {
        self.blocks().source_symbols(block)
    }

    fn is_genuine(&self, block: BlockId, k: u8, esi: u32, symbol: &[u8]) -> bool {
        self.blocks().is_genuine(block, k, esi, symbol)
    }

    fn forget(&mut self, block: BlockId) {
        self.blocks().forget(block);
    }
}

impl SymbolSink for Blocks {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let number = block.sbn;
        let head = self.head_blocks();
        if let Some(seal) = self.seal.as_mut().filter(|_| number < head) {
            let fits = symbol.len() <= self.symbol_len;
            if fits {
                seal.head.store(number, esi, symbol);
            }
            return fits;
        }
        if symbol.len() > self.symbol_len || self.next.is_some_and(|next| number < next) {
            return false;
        }
        if !self.has_room(number, symbol.len()) {
            return false;
        }
        let open = self.open.entry(number).or_default();
        let before = open.bytes();
        open.store(esi, symbol);
        self.open_bytes += open.bytes() - before;
        true
    }

    fn restore(&mut self, block: BlockId) {
        let number = block.sbn;
        if number < self.head_blocks() {
            return self.restore_head(number);
        }
        match &mut self.seal {
            Some(seal) if seal.key.is_none() => seal.waiting.push(number),
            _ => self.restore_data(number),
        }
    }

    fn rest(&mut self, _block: BlockId) {}

    fn source_symbols(&self, block: BlockId) -> Option<u8> {
        let seal = self.seal.as_ref().filter(|seal| block.sbn < seal.head.blocks())?;
        Some(seal.head.source_symbols(block.sbn))
    }

    fn is_genuine(&self, block: BlockId, k: u8, esi: u32, symbol: &[u8]) -> bool {
        let sealed = block.sbn >= self.head_blocks() && esi < k.into();
        let key = self.seal.as_ref().filter(|_| sealed).and_then(|seal| seal.key.as_ref());
        key.is_none_or(|key| key.open(block.sbn, esi, &mut symbol.to_vec()).is_some())
    }

    fn forget(&mut self, block: BlockId) {
        if let Some(open) = self.open.remove(&block.sbn) {
            self.open_bytes -= open.bytes();
        }
    }
}

/// Reads the bytes of a pipe in order.
#[derive(Debug)]
pub struct PipeReader {
    shared: Arc<Queue>,
}

impl PipeReader {
    /// Returns whether there is nothing to read now.
    pub fn is_empty(&self) -> bool {
        self.shared.lock().contents.is_empty()
    }

    /// Waits for the next bytes and returns them. Returns `None` after the last.
    pub fn read(&mut self) -> Option<Bytes> {
        let waiting = |state: &mut Waiting| state.contents.is_empty() && state.ended.is_none();
        let state = self.shared.lock();
        let waited = self.shared.moved.wait_while(state, waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.take()
    }

    /// Returns the next bytes, if there are any now.
    pub fn take(&mut self) -> Option<Bytes> {
        let mut state = self.shared.lock();
        let content = state.contents.pop_front()?;
        state.bytes -= content.len();
        let room = state.refused && state.bytes <= self.shared.memory / 2;
        state.refused &= !room;
        drop(state);
        if room {
            (self.shared.on_event)(PipeEvent::Room);
        }
        Some(content)
    }

    /// Returns how the pipe ended, once everything is read.
    pub fn outcome(&self) -> Option<PipeOutcome> {
        let state = self.shared.lock();
        state.ended.clone().filter(|_| state.contents.is_empty())
    }
}
