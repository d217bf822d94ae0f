//! A pipe in a feed: its bytes as they come, in blocks that stand for themselves.
//!
//! A block is the BLAKE3 digest of (feed, block number, content), the content's length, and the
//! content, so that a block of another feed or place, or one that was damaged, is never taken for
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_wire::Tsi;

use super::block::MemoryBlock;
use super::{BlockShape, encoding_symbol};

/// Bytes before a block's content: digest and length.
const HEAD: usize = 32 + 4;

fn digest(feed: Tsi, number: u32, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&feed.0.to_be_bytes()).update(&number.to_be_bytes()).update(content);
    hasher.finalize()
}

/// The two ends of a pipe in a source. `memory` is how many bytes of blocks it holds; it holds one
/// block in any case.
///
/// # Errors
///
/// A block of this shape has no room for anything but its head.
pub fn pipe(
    feed: Tsi,
    shape: BlockShape,
    memory: usize,
) -> Result<(PipeWriter, PipeFeed), io::Error> {
    let block_len = usize::from(shape.symbol_len) * usize::from(shape.block_symbols);
    if block_len <= HEAD {
        let text = format!("blocks of {block_len} bytes are too small for a pipe");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let shared = Arc::new(Ring { state: Mutex::default(), moved: Condvar::new() });
    let most = (memory / block_len).max(1);
    let writer = PipeWriter { shared: shared.clone(), feed, shape, most, buffer: Vec::new() };
    Ok((writer, PipeFeed { shared, symbol_len: shape.symbol_len.into() }))
}

#[derive(Debug)]
struct Ring {
    state: Mutex<Blocks>,
    /// There is room, or nobody reads any more.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Number of the first block that is held.
    first: u32,
    held: VecDeque<PipeBlock>,
    closed: bool,
}

/// A block, filled up with zeros to whole symbols.
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

/// Cuts what is written into blocks.
#[derive(Debug)]
pub struct PipeWriter {
    shared: Arc<Ring>,
    feed: Tsi,
    shape: BlockShape,
    /// Most blocks that are held.
    most: usize,
    buffer: Vec<u8>,
}

impl PipeWriter {
    /// Bytes of content of a full block.
    fn room(&self) -> usize {
        usize::from(self.shape.symbol_len) * usize::from(self.shape.block_symbols) - HEAD
    }

    /// Reads a part of a block; gives how many bytes there were, 0 at the end.
    ///
    /// # Errors
    ///
    /// What the input says.
    pub fn read_from(&mut self, input: &mut impl Read) -> io::Result<usize> {
        let (start, room) = (self.buffer.len(), self.room());
        self.buffer.resize(room, 0);
        let read = input.read(&mut self.buffer[start..]);
        self.buffer.truncate(start + read.as_ref().copied().unwrap_or(0));
        read
    }

    /// Whether the block that is being filled is full.
    pub fn is_full(&self) -> bool {
        self.buffer.len() == self.room()
    }

    /// Whether nothing is in the block that is being filled.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Ends the block that is being filled, and waits for room for it. Gives its source symbols;
    /// `None` if it is empty, or the other end is gone.
    pub fn cut(&mut self) -> Option<u8> {
        if self.buffer.is_empty() {
            return None;
        }
        let symbol_len = usize::from(self.shape.symbol_len);
        let len = HEAD + self.buffer.len();
        let symbols = len.div_ceil(symbol_len);
        let mut state = self.shared.lock();
        while state.held.len() >= self.most && !state.closed {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        let number = state.first.wrapping_add(state.held.len() as u32);
        let mut bytes = Vec::with_capacity(symbols * symbol_len);
        bytes.extend_from_slice(digest(self.feed, number, &self.buffer).as_bytes());
        bytes.extend_from_slice(&(self.buffer.len() as u32).to_be_bytes());
        bytes.append(&mut self.buffer);
        bytes.resize(symbols * symbol_len, 0);
        let block = PipeBlock { bytes: bytes.into(), len, symbols: symbols as u32 };
        state.held.push_back(block);
        Some(symbols as u8)
    }
}

/// The symbols of a pipe, for its source.
#[derive(Debug)]
pub struct PipeFeed {
    shared: Arc<Ring>,
    symbol_len: usize,
}

impl PipeFeed {
    /// What lets blocks be forgotten.
    pub fn keeper(&self) -> PipeKeeper {
        PipeKeeper { shared: self.shared.clone() }
    }
}

/// Forgets blocks of a pipe that need not be sent any more.
#[derive(Clone, Debug)]
pub struct PipeKeeper {
    shared: Arc<Ring>,
}

impl PipeKeeper {
    /// Lets the writer have the room of the blocks before this one: they cannot be sent any more.
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

/// What a [`PipeSink`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeEvent {
    /// What was received of a block is not what was sent; nothing of it is held any more.
    Damaged {
        /// The block.
        block: u32,
    },
    /// Symbols were refused for want of room, and there is room again.
    Room,
}

/// The two ends of a pipe in a receiver. `memory` bounds the bytes that wait to be read;
/// `on_event` is called on either end's thread and must not wait.
pub fn pipe_sink(
    feed: Tsi,
    shape: BlockShape,
    memory: usize,
    on_event: impl Fn(PipeEvent) + Send + Sync + 'static,
) -> (PipeSink, PipeReader) {
    let shared = Arc::new(Queue {
        state: Mutex::default(),
        moved: Condvar::new(),
        memory,
        on_event: Box::new(on_event),
    });
    let sink = PipeSink {
        shared: shared.clone(),
        feed,
        symbol_len: shape.symbol_len.into(),
        open: BTreeMap::new(),
        open_bytes: 0,
        ready: BTreeMap::new(),
        ready_bytes: 0,
        next: None,
        end: None,
    };
    (sink, PipeReader { shared })
}

struct Queue {
    state: Mutex<Waiting>,
    /// There is more to read, or nothing will come any more.
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
    /// Contents in order.
    contents: VecDeque<Bytes>,
    bytes: usize,
    /// A symbol was refused since there was room last.
    refused: bool,
    /// No more will come.
    ended: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the blocks of a pipe, in any order, and passes them on in theirs.
#[derive(Debug)]
pub struct PipeSink {
    shared: Arc<Queue>,
    feed: Tsi,
    symbol_len: usize,
    /// Blocks that are not restored.
    open: BTreeMap<u32, MemoryBlock>,
    open_bytes: usize,
    /// Blocks that are, but not all before them.
    ready: BTreeMap<u32, Bytes>,
    ready_bytes: usize,
    /// The block that is to be passed on next, once it is known.
    next: Option<u32>,
    /// The block with which the pipe ends.
    end: Option<u32>,
}

impl PipeSink {
    /// Says which block is the first. What came before it is dropped.
    pub fn begin(&mut self, first: u32) {
        if self.next.is_some() {
            return;
        }
        self.next = Some(first);
        self.open = self.open.split_off(&first);
        self.ready = self.ready.split_off(&first);
        self.open_bytes = self.open.values().map(MemoryBlock::bytes).sum();
        self.ready_bytes = self.ready.values().map(Bytes::len).sum();
        self.pass_on();
    }

    /// Says that there are no blocks from this one on: the reader ends with the last one before.
    pub fn end(&mut self, blocks: u32) {
        self.end = Some(blocks);
        self.pass_on();
    }

    /// Ends the pipe for the reader, after what was passed on already.
    pub fn abort(&mut self) {
        self.shared.lock().ended = true;
        self.shared.moved.notify_all();
    }

    /// Passes on what is whole and in order.
    fn pass_on(&mut self) {
        let Some(next) = &mut self.next else { return };
        let mut state = self.shared.lock();
        while let Some(content) = self.ready.remove(next) {
            self.ready_bytes -= content.len();
            state.bytes += content.len();
            state.contents.push_back(content);
            *next += 1;
        }
        state.ended |= self.end.is_some_and(|end| *next >= end);
        drop(state);
        self.shared.moved.notify_all();
    }

    /// Whether there is room for a symbol of this block. For the first block that is missing there
    /// always is, since nothing can leave before it.
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

    fn check(&self, number: u32, block: &MemoryBlock) -> Option<Bytes> {
        let data = block.restore(block.count(), self.symbol_len)?;
        let len = data.get(32..HEAD)?.try_into().ok().map(u32::from_be_bytes)? as usize;
        let content = data.get(HEAD..HEAD.checked_add(len)?)?;
        let sound = digest(self.feed, number, content).as_bytes() == &data[..32];
        sound.then(|| Bytes::from(data).slice(HEAD..HEAD + len))
    }
}

impl SymbolSink for PipeSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let number = block.sbn;
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
        let Some(open) = self.open.remove(&number) else { return };
        self.open_bytes -= open.bytes();
        match self.check(number, &open) {
            Some(content) => {
                self.ready_bytes += content.len();
                self.ready.insert(number, content);
                self.pass_on();
            }
            None => (self.shared.on_event)(PipeEvent::Damaged { block: number }),
        }
    }

    fn rest(&mut self, _block: BlockId) {}
}

impl Drop for PipeSink {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Gives the bytes of a pipe in order.
#[derive(Debug)]
pub struct PipeReader {
    shared: Arc<Queue>,
}

impl PipeReader {
    /// Whether nothing is there to be read now.
    pub fn is_empty(&self) -> bool {
        self.shared.lock().contents.is_empty()
    }

    /// Waits for the next bytes; `None` after the last.
    pub fn read(&mut self) -> Option<Bytes> {
        let mut state = self.shared.lock();
        loop {
            if let Some(content) = state.contents.pop_front() {
                state.bytes -= content.len();
                let room = state.refused && state.bytes <= self.shared.memory / 2;
                state.refused &= !room;
                drop(state);
                if room {
                    (self.shared.on_event)(PipeEvent::Room);
                }
                return Some(content);
            }
            if state.ended {
                return None;
            }
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_engine::tmtp::FEED;

    use super::*;

    const SHAPE: BlockShape = BlockShape { symbol_len: 40, block_symbols: 8 };

    fn id(sbn: u32) -> BlockId {
        BlockId { toi: FEED, sbn }
    }

    fn ready(load: Load) -> Bytes {
        match load {
            Load::Ready(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Writes pieces, each as blocks of its own; gives the source symbols of each block.
    fn write(writer: &mut PipeWriter, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut blocks = Vec::new();
        for piece in pieces {
            let mut input = &piece[..];
            while writer.read_from(&mut input).unwrap() > 0 {
                if writer.is_full() {
                    blocks.extend(writer.cut());
                }
            }
            blocks.extend(writer.cut());
        }
        blocks
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_whatever_is_lost_and_in_whatever_order(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..900), 1..6),
            shuffle in prop::collection::vec(any::<u32>(), 40),
            lost in any::<u8>(),
        ) {
            let (mut writer, mut feed) = pipe(Tsi(7), SHAPE, 1 << 20).unwrap();
            let blocks = write(&mut writer, &pieces);
            let damaged = Arc::new(Mutex::new(Vec::new()));
            let told = damaged.clone();
            let (mut sink, mut reader) = pipe_sink(Tsi(7), SHAPE, 1 << 20, move |event| {
                told.lock().unwrap().push(event);
            });
            sink.begin(0);
            let mut order: Vec<usize> = (0..blocks.len()).collect();
            order.sort_by_key(|place| shuffle[place % shuffle.len()]);
            for block in order {
                let (k, sbn) = (u32::from(blocks[block]), block as u32);
                // The first symbols are lost; repair symbols come instead.
                let lost = u32::from(lost) % (k + 1);
                for esi in lost..k + lost {
                    prop_assert!(sink.store(id(sbn), esi, &ready(feed.symbol(id(sbn), esi))));
                }
                sink.restore(id(sbn));
            }
            sink.end(blocks.len() as u32);
            let mut read = Vec::new();
            while let Some(bytes) = reader.read() {
                read.extend_from_slice(&bytes);
            }
            prop_assert_eq!(read, pieces.concat());
            prop_assert_eq!(&damaged.lock().unwrap()[..], &[]);
        }
    }

    #[test]
    fn a_damaged_block_or_one_of_another_place_is_not_passed_on() {
        let (mut writer, mut feed) = pipe(Tsi(7), SHAPE, 1 << 20).unwrap();
        assert_eq!(write(&mut writer, &[vec![1; 30], vec![2; 30]]), [2, 2]);
        let (told, events) = crossbeam_channel::unbounded();
        let (mut sink, _reader) = pipe_sink(Tsi(7), SHAPE, 1 << 20, move |event| {
            told.send(event).unwrap();
        });
        sink.begin(0);
        let mut symbols = [0, 1].map(|esi| ready(feed.symbol(id(0), esi)).to_vec());
        symbols[1][3] ^= 1;
        for (esi, symbol) in (0..).zip(&symbols) {
            assert!(sink.store(id(0), esi, symbol));
        }
        sink.restore(id(0));
        assert_eq!(events.try_recv(), Ok(PipeEvent::Damaged { block: 0 }));
        for esi in 0..2 {
            assert!(sink.store(id(0), esi, &ready(feed.symbol(id(1), esi))));
        }
        sink.restore(id(0));
        assert_eq!(events.try_recv(), Ok(PipeEvent::Damaged { block: 0 }));
    }

    #[test]
    fn a_reader_that_does_not_read_makes_the_sink_refuse_and_hears_of_nothing_lost() {
        let (mut writer, mut feed) = pipe(Tsi(7), SHAPE, 1 << 20).unwrap();
        let pieces: Vec<_> = (0..20).map(|n| vec![n; 200]).collect();
        let blocks = write(&mut writer, &pieces);
        let (told, events) = crossbeam_channel::unbounded();
        let (mut sink, mut reader) = pipe_sink(Tsi(7), SHAPE, 1_000, move |event| {
            told.send(event).unwrap();
        });
        sink.begin(0);
        let mut read = Vec::new();
        let mut refused = 0;
        for (sbn, &k) in (0..).zip(&blocks) {
            for esi in 0..u32::from(k) {
                let symbol = ready(feed.symbol(id(sbn), esi));
                while !sink.store(id(sbn), esi, &symbol) {
                    refused += 1;
                    read.extend_from_slice(&reader.read().unwrap());
                }
            }
            sink.restore(id(sbn));
        }
        assert!(refused > 0);
        sink.end(20);
        while let Some(bytes) = reader.read() {
            read.extend_from_slice(&bytes);
        }
        assert_eq!(read, pieces.concat());
        assert_eq!(events.try_recv(), Ok(PipeEvent::Room));
    }

    #[test]
    fn the_first_missing_block_has_room_when_everything_after_it_has_taken_all() {
        let (mut writer, mut feed) = pipe(Tsi(7), SHAPE, 1 << 20).unwrap();
        let blocks = write(&mut writer, &vec![vec![9; 200]; 10]);
        let (mut sink, mut reader) = pipe_sink(Tsi(7), SHAPE, 500, |_| {});
        sink.begin(0);
        let mut store = |sink: &mut PipeSink, sbn: u32| {
            let whole = (0..u32::from(blocks[sbn as usize]))
                .all(|esi| sink.store(id(sbn), esi, &ready(feed.symbol(id(sbn), esi))));
            if whole {
                sink.restore(id(sbn));
            }
            whole
        };
        assert!(store(&mut sink, 1) && store(&mut sink, 2));
        assert!(!store(&mut sink, 3));
        assert!(store(&mut sink, 0));
        assert_eq!(reader.read().unwrap().len(), 200);
    }

    #[test]
    fn the_writer_waits_for_room_until_blocks_are_forgotten() {
        let (mut writer, mut feed) = pipe(Tsi(7), SHAPE, 2 * 320).unwrap();
        let (told, heard) = crossbeam_channel::unbounded();
        let thread = std::thread::spawn(move || {
            for n in 0..4 {
                let mut input = &[n; 10][..];
                writer.read_from(&mut input).unwrap();
                told.send(writer.cut()).unwrap();
            }
        });
        let wait = std::time::Duration::from_secs(5);
        assert_eq!(heard.recv_timeout(wait), Ok(Some(2)));
        assert_eq!(heard.recv_timeout(wait), Ok(Some(2)));
        assert!(heard.recv_timeout(std::time::Duration::from_millis(50)).is_err());
        feed.keeper().forget(1);
        assert_eq!(heard.recv_timeout(wait), Ok(Some(2)));
        assert!(matches!(feed.symbol(id(0), 0), Load::Gone(_)));
        assert!(matches!(feed.symbol(id(1), 0), Load::Ready(_)));
        drop(feed);
        assert_eq!(heard.recv_timeout(wait), Ok(None));
        thread.join().unwrap();
    }
}
