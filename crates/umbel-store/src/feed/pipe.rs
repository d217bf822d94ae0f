//! A pipe in a feed: a stream of bytes in self-contained blocks.
//!
//! A block consists of the BLAKE3 digest of (feed, block number, content), the content's length,
//! and the content. A damaged block, or one of another feed or place, is therefore never mistaken
//! for it. The symbols of a sealed pipe are all full, so that they can be opened one by one.

mod sink;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_wire::Tsi;

use super::head::HeadFeed;
use super::seal::{FeedKey, SEAL_LEN, Seal};
use super::{BlockShape, encoding_symbol};

pub use sink::{PipeEvent, PipeReader, PipeSink, pipe_sink};

/// Bytes before a block's content: digest and length.
const HEAD: usize = 32 + 4;

fn digest(feed: Tsi, number: u32, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&feed.0.to_be_bytes()).update(&number.to_be_bytes()).update(content);
    hasher.finalize()
}

/// Creates the two ends of a pipe in a source. `memory` is the maximum number of bytes of the
/// blocks held; at least one block is held in any case. `seal` seals the pipe, if `shape` says that
/// it is sealed. The pipe's blocks then come after those of the head.
///
/// # Errors
///
/// Returns an error if a block of this shape has no room for content, or if the head cannot be
/// split.
pub fn pipe(
    feed: Tsi,
    shape: BlockShape,
    memory: usize,
    seal: Option<Seal>,
) -> Result<(PipeWriter, PipeFeed), io::Error> {
    let too_small = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    let room = usize::from(shape.content_len()) * usize::from(shape.block_symbols);
    if room <= HEAD {
        return Err(too_small(format!("blocks of {room} bytes are too small for a pipe")));
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
    let writer = PipeWriter { shared: shared.clone(), feed, shape, key, most, buffer: Vec::new() };
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

/// Divides the bytes written into blocks.
#[derive(Debug)]
pub struct PipeWriter {
    shared: Arc<Ring>,
    feed: Tsi,
    shape: BlockShape,
    /// Key that seals the symbols.
    key: Option<Box<FeedKey>>,
    /// Maximum number of blocks held.
    most: usize,
    buffer: Vec<u8>,
}

impl PipeWriter {
    /// Returns the number of content bytes of a full block.
    fn room(&self) -> usize {
        usize::from(self.shape.content_len()) * usize::from(self.shape.block_symbols) - HEAD
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

    /// Returns whether the block that is being filled is empty.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Ends the block that is being filled and waits for room for it. Returns the number of its
    /// source symbols. Returns `None` if the block is empty or the other end is dropped.
    pub fn cut(&mut self) -> Option<u8> {
        if self.buffer.is_empty() {
            return None;
        }
        let content_len = usize::from(self.shape.content_len());
        let len = HEAD + self.buffer.len();
        let symbols = len.div_ceil(content_len);
        let mut state = self.shared.lock();
        while state.held.len() >= self.most && !state.closed {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        let number = state.first.wrapping_add(state.held.len() as u32);
        let mut bytes = Vec::with_capacity(symbols * content_len);
        bytes.extend_from_slice(digest(self.feed, number, &self.buffer).as_bytes());
        bytes.extend_from_slice(&(self.buffer.len() as u32).to_be_bytes());
        bytes.append(&mut self.buffer);
        bytes.resize(symbols * content_len, 0);
        let (bytes, len) = match &self.key {
            None => (bytes, len),
            Some(key) => {
                let mut sealed = Vec::with_capacity(symbols * (content_len + SEAL_LEN));
                for (esi, symbol) in (0..).zip(bytes.chunks_exact(content_len)) {
                    key.seal(number, esi, symbol, &mut sealed);
                }
                let len = sealed.len();
                (sealed, len)
            }
        };
        let block = PipeBlock { bytes: bytes.into(), len, symbols: symbols as u32 };
        state.held.push_back(block);
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
            None => Load::Gone(format!("block {} of the pipe is not kept any more", block.sbn)),
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
