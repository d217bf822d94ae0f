//! A pipe in a feed: a stream of bytes in self-contained blocks.
//!
//! The sender signs the blocks in [runs](run), so that whatever is damaged, another's, or of
//! another place is never mistaken for a block. The last block says that it is the last, or why the
//! pipe is incomplete: a pipe that ends without it was cut short. The symbols of a sealed pipe are
//! all full, so that they can be opened one by one.

mod run;
mod sink;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_engine::Sign;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};

use super::head::HeadFeed;
use super::seal::{FeedKey, SEAL_LEN, Seal};
use super::{BlockShape, encoding_symbol};

use run::Ending;

pub use run::PipeId;
pub use sink::{PipeEvent, PipeOutcome, PipeReader, PipeSink, pipe_sink};

/// Creates the two ends of a pipe in a source. `memory` is the maximum number of bytes of the
/// blocks held; at least one block is held in any case. `seal` seals the pipe, if `shape` says that
/// it is sealed. The pipe's blocks then come after those of the head. `sign` signs with the key of
/// the feed's announcement.
///
/// # Errors
///
/// Returns an error if a block of this shape has no room for content, or if the head cannot be
/// split.
pub fn pipe(
    pipe: PipeId,
    shape: BlockShape,
    memory: usize,
    seal: Option<Seal>,
    sign: Sign,
) -> Result<(PipeWriter, PipeFeed), io::Error> {
    let too_small = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    if run::room(shape) == 0 {
        let len = usize::from(shape.content_len()) * usize::from(shape.block_symbols);
        return Err(too_small(format!("blocks of {len} bytes are too small for a pipe")));
    }
    let (key, head) = match seal {
        None => (None, None),
        Some(Seal { key, head }) => {
            let head = HeadFeed::new(shape, head.into());
            (Some(Box::new(key)), Some(head.map_err(|error| too_small(error.to_string()))?))
        }
    };
    let first = head.as_ref().map_or(0, HeadFeed::blocks);
    let state = Mutex::new(Blocks { first, ..Blocks::default() });
    let shared = Arc::new(Ring { state, moved: Condvar::new() });
    let block_len = usize::from(shape.symbol_len) * usize::from(shape.block_symbols);
    let most = (memory / block_len).max(1);
    let writer = PipeWriter {
        shared: shared.clone(),
        pipe,
        shape,
        key,
        sign,
        most,
        next: first,
        buffer: Vec::new(),
        cut: Vec::new(),
    };
    Ok((writer, PipeFeed { shared, symbol_len: shape.symbol_len.into(), head }))
}

#[derive(Debug)]
struct Ring {
    state: Mutex<Blocks>,
    /// Notified when there is room, or when the reading end is dropped.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Number of the first block held.
    first: u32,
    held: VecDeque<PipeBlock>,
    closed: bool,
}

/// A block, padded with zeros to whole symbols.
#[derive(Clone, Debug)]
struct PipeBlock {
    bytes: Bytes,
    len: usize,
    symbols: u32,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Divides the bytes written into blocks, and signs them in runs.
pub struct PipeWriter {
    shared: Arc<Ring>,
    pipe: PipeId,
    shape: BlockShape,
    /// Key that seals the symbols.
    key: Option<Box<FeedKey>>,
    sign: Sign,
    /// Maximum number of blocks held.
    most: usize,
    /// Number of the next block that is signed.
    next: u32,
    buffer: Vec<u8>,
    /// Blocks that are not signed yet.
    cut: Vec<(Ending, Vec<u8>)>,
}

impl std::fmt::Debug for PipeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipeWriter").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

impl PipeWriter {
    /// Returns the number of content bytes of a full block.
    fn room(&self) -> usize {
        run::room(self.shape)
    }

    /// Reads a part of a block from `input`. Returns the number of bytes read, 0 at the end of the
    /// input or if the block is full.
    ///
    /// # Errors
    ///
    /// Returns the error of `input`.
    pub fn read_from(&mut self, input: &mut impl Read) -> io::Result<usize> {
        let (start, room) = (self.buffer.len(), self.room());
        self.buffer.resize(room, 0);
        let read = input.read(&mut self.buffer[start..]);
        self.buffer.truncate(start + read.as_ref().copied().unwrap_or(0));
        read
    }

    /// Returns whether the block that is being filled is full.
    pub fn is_full(&self) -> bool {
        self.buffer.len() == self.room()
    }

    /// Ends the block that is being filled, unless it is empty. Returns whether the run is full, so
    /// that it must be [signed](PipeWriter::sign).
    pub fn cut(&mut self) -> bool {
        if !self.buffer.is_empty() {
            self.put(Ending::None);
        }
        self.cut.len() >= run::blocks(self.shape)
    }

    fn put(&mut self, ending: Ending) {
        let content = std::mem::take(&mut self.buffer);
        self.cut.push((ending, content));
    }

    /// Ends the pipe, whole or for this reason. Signs and passes on what is left, as
    /// [`sign`](PipeWriter::sign) does.
    pub fn end(&mut self, failed: Option<&str>, mut passed: impl FnMut(u8)) {
        let Some(reason) = failed else {
            self.put(Ending::Whole);
            return self.sign(passed);
        };
        self.cut();
        self.sign(&mut passed);
        let len = reason.floor_char_boundary(self.room());
        self.buffer = reason.as_bytes()[..len].to_vec();
        self.put(Ending::Failed);
        self.sign(passed);
    }

    /// Signs the blocks that were cut, and passes each on as soon as there is room for it. Tells
    /// `passed` the number of its source symbols. Blocks are lost if the other end is dropped.
    pub fn sign(&mut self, mut passed: impl FnMut(u8)) {
        let cut = std::mem::take(&mut self.cut);
        for run in cut.chunks(run::blocks(self.shape)) {
            let blocks = run::signed(self.pipe, self.next, run, &self.sign);
            for block in blocks {
                let Some(symbols) = self.pass_on(block) else { return };
                passed(symbols);
            }
        }
    }

    /// Passes a block on when there is room for it. Returns the number of its source symbols, or
    /// `None` if the other end is dropped.
    fn pass_on(&mut self, mut bytes: Vec<u8>) -> Option<u8> {
        let content_len = usize::from(self.shape.content_len());
        let len = bytes.len();
        let symbols = len.div_ceil(content_len);
        bytes.resize(symbols * content_len, 0);
        let (bytes, len) = match &self.key {
            None => (bytes, len),
            Some(key) => {
                let mut sealed = Vec::with_capacity(symbols * (content_len + SEAL_LEN));
                for (esi, symbol) in (0..).zip(bytes.chunks_exact(content_len)) {
                    key.seal(self.next, esi, symbol, &mut sealed);
                }
                let len = sealed.len();
                (sealed, len)
            }
        };
        let mut state = self.shared.lock();
        while state.held.len() >= self.most && !state.closed {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        state.held.push_back(PipeBlock { bytes: bytes.into(), len, symbols: symbols as u32 });
        Some(symbols as u8)
    }
}

/// The source of the symbols of a pipe.
#[derive(Debug)]
pub struct PipeFeed {
    shared: Arc<Ring>,
    symbol_len: usize,
    /// Head before a sealed pipe.
    head: Option<HeadFeed>,
}

impl PipeFeed {
    /// Returns runs of blocks of a sealed pipe's head: number of blocks, and their source symbols.
    pub fn head_runs(&self) -> Vec<(u32, u8)> {
        self.head.as_ref().map(HeadFeed::runs).unwrap_or_default()
    }

    /// Returns a handle that can drop blocks.
    pub fn keeper(&self) -> PipeKeeper {
        PipeKeeper { shared: self.shared.clone() }
    }
}

/// Drops blocks of a pipe that need not be sent any more.
#[derive(Clone, Debug)]
pub struct PipeKeeper {
    shared: Arc<Ring>,
}

impl PipeKeeper {
    /// Drops the blocks before `below`, which frees their room for the writer. They can no longer
    /// be sent.
    pub fn forget(&self, below: u32) {
        let mut state = self.shared.lock();
        while state.first < below && state.held.pop_front().is_some() {
            state.first += 1;
        }
        drop(state);
        self.shared.moved.notify_all();
    }
}

impl SymbolSource for PipeFeed {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        if let Some(head) = self.head.as_ref().filter(|head| block.sbn < head.blocks()) {
            return head.symbol(block.sbn, esi);
        }
        let state = self.shared.lock();
        let held = block.sbn.checked_sub(state.first);
        let held = held.and_then(|place| state.held.get(place as usize)).cloned();
        drop(state);
        match held {
            Some(PipeBlock { bytes, len, symbols }) => {
                encoding_symbol(&bytes, len, self.symbol_len, symbols, esi)
            }
            None => Load::Gone(format!("block {} of the pipe is no longer kept", block.sbn)),
        }
    }

    fn release(&mut self, _block: BlockId) {}
}

impl Drop for PipeFeed {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.moved.notify_all();
    }
}
