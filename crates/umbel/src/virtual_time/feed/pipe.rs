//! A pipe on both sides of a feed: the real store's, read and written at given times.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use rand_core::Rng as _;
use umbel_engine::Instant;
use umbel_engine::symbols::BlockId;
use umbel_engine::tmtp::{BlockCount, SourceCommand};
use umbel_sim::random::below;
use umbel_store::feed::{
    FeedSink, FeedSource, PipeId, PipeKeeper, PipeReader, PipeWriter, pipe, pipe_sink,
};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Toi, Tsi};

use super::super::draws;
use super::super::later::Later;
use super::files::SHAPE;
use crate::directory::tests::signer;
use crate::feed::recv::store::{FeedStore, Input};
use crate::feed::recv::target::outcome;
use crate::feed::send::host::Content;

/// Writes that the input of a pipe has still to make, each with its time in milliseconds.
type Writes = Arc<Mutex<Option<VecDeque<(u64, Vec<u8>)>>>>;

/// The sender's side of a pipe.
#[derive(Debug)]
pub(super) struct Source {
    keeper: PipeKeeper,
    writes: Writes,
    planned: VecDeque<(u64, Vec<u8>)>,
    bytes: u64,
}

/// Writes to the pipe once it has begun.
#[derive(Debug)]
pub(super) struct Writer {
    end: PipeWriter,
    writes: Writes,
    /// Time at which it began.
    begun: Option<Instant>,
}

/// Creates a pipe of 60 pieces at random times, and returns all of its bytes as well.
pub(super) fn source(tsi: Tsi, seed: u64) -> (Source, FeedSource, Writer, Vec<u8>) {
    let mut random = draws(seed, 50);
    let signer = signer(1);
    let sign = Box::new(move |run: &[u8]| signer.sign(run));
    let (writer, feed) = pipe(id_of(tsi), SHAPE, 4 << 20, None, sign).unwrap();
    let mut planned = VecDeque::new();
    let (mut at, mut all) = (0, Vec::new());
    for _ in 0..60 {
        at += below(&mut random, 100);
        let mut piece = vec![0; 1 + below(&mut random, 3_000) as usize];
        random.fill_bytes(&mut piece);
        all.extend_from_slice(&piece);
        planned.push_back((at, piece));
    }
    let writes = Writes::default();
    let bytes = all.len() as u64;
    let keeper = feed.keeper();
    let source = Source { keeper, writes: writes.clone(), planned, bytes };
    (source, FeedSource::Pipe(feed), Writer { end: writer, writes, begun: None }, all)
}

fn id_of(feed: Tsi) -> PipeId {
    PipeId { feed, version: 1 }
}

fn extend(symbols: u8) -> SourceCommand {
    SourceCommand::Extend(vec![BlockCount { count: 1, symbols }])
}

impl Writer {
    /// Writes the pieces that are due. Appends the commands for the engine.
    pub(super) fn write(&mut self, now: Instant, commands: &mut VecDeque<SourceCommand>) {
        let mut writes = self.writes.lock().unwrap();
        let Some(queue) = writes.as_mut() else { return };
        let begun = *self.begun.get_or_insert(now);
        let passed = (now - begun).as_millis() as u64;
        while let Some((_, piece)) = queue.pop_front_if(|(at, _)| *at <= passed) {
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                self.end.read_from(&mut rest).unwrap();
                self.end.cut();
            }
            self.end.sign(|symbols| commands.push_back(extend(symbols)));
        }
        if queue.is_empty() {
            *writes = None;
            self.end.end(None, |symbols| commands.push_back(extend(symbols)));
            commands.push_back(SourceCommand::Finish { failed: None });
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let writes = self.writes.lock().unwrap();
        let (at, _) = writes.as_ref()?.front()?;
        Some(self.begun.unwrap_or(Instant::EPOCH) + std::time::Duration::from_millis(*at))
    }
}

impl Content for Source {
    type Symbols = FeedSource;

    fn files(&self) -> u64 {
        0
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_below(&self, block: u32, sent: u32) -> u64 {
        self.bytes * u64::from(block) / u64::from(sent.max(1))
    }

    fn head_blocks(&self) -> Vec<BlockCount> {
        Vec::new()
    }

    fn begin(&mut self) -> Result<Option<Vec<BlockCount>>, String> {
        *self.writes.lock().unwrap() = Some(std::mem::take(&mut self.planned));
        Ok(None)
    }

    fn acknowledged(&mut self, below: u32) {
        self.keeper.forget(below.saturating_sub(1_000));
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

/// The receiver's side. Clones are the same side.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    end: FeedSink,
    events: Later<Input>,
    state: Arc<Mutex<Output>>,
}

#[derive(Debug)]
struct Output {
    reader: PipeReader,
    bytes: Vec<u8>,
    told: bool,
}

impl Sink {
    pub(super) fn new(tsi: Tsi) -> Sink {
        let events: Later<Input> = Later::in_order();
        let told = events.clone();
        let (sink, reader) =
            pipe_sink((id_of(tsi), signer(1).public()), SHAPE, 130_000, None, move |event| {
                told.put(std::time::Duration::ZERO, Input::Pipe(event));
            })
            .unwrap();
        let output = Output { reader, bytes: Vec::new(), told: false };
        Sink { end: FeedSink::Pipe(sink), events, state: Arc::new(Mutex::new(output)) }
    }

    /// Returns the engine's handle.
    pub(super) fn engine(&self) -> FeedSink {
        self.end.clone()
    }

    pub(super) fn events(&self) -> &Later<Input> {
        &self.events
    }

    /// Reads all bytes that are ready.
    pub(super) fn read(&self) {
        let mut output = self.state.lock().unwrap();
        while let Some(bytes) = output.reader.take() {
            output.bytes.extend_from_slice(&bytes);
        }
        let ended = output.reader.outcome();
        if ended.is_some() && !std::mem::replace(&mut output.told, true) {
            self.events.put(std::time::Duration::ZERO, Input::Written(outcome(ended)));
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.state.lock().unwrap().bytes.clone()
    }
}

impl FeedStore for Sink {
    type Sink = FeedSink;

    fn look_up(&mut self, _items: Vec<(ItemInfo, bool)>) -> Result<(), String> {
        Ok(())
    }

    fn begin(&mut self) -> Result<Vec<BlockRun>, String> {
        Ok(Vec::new())
    }

    fn blocks_of(&self, _toi: Toi) -> Option<BlockRun> {
        None
    }

    fn block_of(&self, _id: BlockId) -> Option<u32> {
        None
    }

    fn files_in(&self, _run: BlockRun) -> Option<BTreeSet<Toi>> {
        None
    }

    fn check_blocks(&mut self, _toi: Toi) {}

    fn cancel(&mut self, _toi: Toi) {}

    fn begin_pipe(&mut self, first: u32) {
        if let FeedSink::Pipe(pipe) = &self.end {
            pipe.begin(first);
        }
    }

    fn pipe_has_end(&self) -> bool {
        matches!(&self.end, FeedSink::Pipe(pipe) if pipe.has_end())
    }

    fn abort_pipe(&mut self) {
        if let FeedSink::Pipe(pipe) = &self.end {
            pipe.abort();
        }
    }

    fn written(&self) -> u64 {
        self.state.lock().unwrap().bytes.len() as u64
    }
}
