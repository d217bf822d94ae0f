//! The application of a source.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::host::{Host, Io};
use umbel_engine::smo::{
    ChildId, CloseReason, MasterId, Source, SourceCommand, SourceCommandError, SourceEvent, Stream,
};
use umbel_engine::{Instant, RateClass};

use super::content;

/// The stream of the session.
const MASTER: Stream = Stream::Master(MasterId::FIRST);

/// Writes a stream, and records what becomes of it.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Bytes of the stream; `None` if they come from elsewhere until they end.
    len: Option<u64>,
    /// Bytes that are written at once, and the time between.
    frames: Option<(u64, Duration)>,
    wait_for: usize,
    keep_pace: bool,
    /// Time of the next frame.
    next: Instant,
    /// Position up to which there are bytes to write.
    ready: u64,
    /// Bytes that came from elsewhere.
    queue: VecDeque<Bytes>,
    has_ended: bool,
    is_finished: bool,
    /// Bytes that each receiver has sent.
    positions: BTreeMap<ChildId, u64>,
    record: Record,
}

/// Record of a stream.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Connections that were opened.
    pub connected: usize,
    /// Time at which the stream began.
    pub started: Option<Instant>,
    /// Bytes written.
    pub written: u64,
    /// Time at which all had everything.
    pub drained: Option<Instant>,
    /// Connections that were removed.
    pub removed: Vec<(Instant, CloseReason)>,
    /// Bytes received from receivers.
    pub received: u64,
    /// Bytes received that were wrong, if receivers send what the stream has.
    pub wrong: u64,
}

impl Feed {
    /// Creates a stream of this length, which is written as fast as the source takes it.
    pub fn bulk(len: u64) -> Feed {
        Feed {
            len: Some(len),
            frames: None,
            wait_for: 1,
            keep_pace: true,
            next: Instant::EPOCH,
            ready: 0,
            queue: VecDeque::new(),
            has_ended: false,
            is_finished: false,
            positions: BTreeMap::new(),
            record: Record::default(),
        }
    }

    /// Creates a stream of frames of `frame_len` bytes, one at each `interval`.
    pub fn frames(count: u64, frame_len: u64, interval: Duration) -> Feed {
        Feed { frames: Some((frame_len, interval)), ..Feed::bulk(count * frame_len) }
    }

    /// Creates a stream that a receiver on another node passes on.
    pub fn relayed() -> Feed {
        Feed { len: None, ..Feed::bulk(0) }
    }

    /// Sets the number of connections at which the stream begins. Default 1.
    #[must_use]
    pub fn wait_for(self, connections: usize) -> Feed {
        Feed { wait_for: connections, ..self }
    }

    /// Sends first transmissions as soon as the windows permit, instead of at the engine's pace.
    #[must_use]
    pub fn unpaced(self) -> Feed {
        Feed { keep_pace: false, ..self }
    }

    /// Returns what became of the stream.
    pub fn record(&self) -> &Record {
        &self.record
    }

    fn begin(&mut self, io: &mut dyn Io<Source>) {
        if self.record.started.is_some() || self.record.connected < self.wait_for {
            return;
        }
        self.record.started = Some(io.now());
        self.next = io.now();
        match (self.frames, self.len) {
            (Some(_), _) => self.wake(io),
            (None, Some(len)) => {
                self.ready = len;
                self.write(io);
            }
            (None, None) => self.write(io),
        }
    }

    /// Returns the next bytes to write.
    fn next_piece(&self) -> Option<Bytes> {
        if self.len.is_none() {
            return self.queue.front().cloned();
        }
        let left = self.ready - self.record.written;
        (left > 0).then(|| content::piece(self.record.written, left.min(1 << 30) as usize))
    }

    /// Writes what the buffer has room for.
    fn write(&mut self, io: &mut dyn Io<Source>) {
        if self.record.started.is_none() || self.is_finished {
            return;
        }
        while let Some(mut bytes) = self.next_piece() {
            let write = |bytes| SourceCommand::Write { to: MASTER, bytes };
            // A refusal asks for `Writable`.
            let refused = io.command(write(bytes.clone())).err();
            match refused {
                None => {}
                Some(SourceCommandError::Full { room }) if room > 0 => {
                    bytes.truncate(room);
                    io.command(write(bytes.clone())).expect("there is room");
                }
                Some(_) => return,
            }
            self.record.written += bytes.len() as u64;
            if let Some(first) = self.queue.front_mut() {
                drop(first.split_to(bytes.len()));
            }
            if self.queue.front().is_some_and(Bytes::is_empty) {
                self.queue.pop_front();
            }
        }
        let is_all = match self.len {
            Some(len) => self.record.written == len,
            None => self.has_ended && self.queue.is_empty(),
        };
        if is_all {
            self.is_finished = true;
            io.command(SourceCommand::Finish { to: MASTER }).expect("the stream is open");
        }
    }
}

impl Host<Source> for Feed {
    /// The next bytes of a relayed stream; none at its end.
    type Input = Bytes;

    fn start(&mut self, io: &mut dyn Io<Source>) {
        self.begin(io);
    }

    fn input(&mut self, io: &mut dyn Io<Source>, bytes: Bytes) {
        if bytes.is_empty() {
            self.has_ended = true;
        } else {
            self.queue.push_back(bytes);
        }
        self.write(io);
    }

    fn event(&mut self, io: &mut dyn Io<Source>, event: SourceEvent) {
        match event {
            SourceEvent::Connected { .. } => {
                self.record.connected += 1;
                self.begin(io);
            }
            SourceEvent::Received { child, bytes } => {
                let len = bytes.len() as u64;
                let position = self.positions.entry(child).or_default();
                let is_right = content::is_right(*position, &bytes);
                *position += len;
                self.record.received += len;
                self.record.wrong += if is_right { 0 } else { len };
                // The connection may have ended meanwhile.
                let _ = io.command(SourceCommand::Consumed { child, bytes: bytes.len() });
            }
            SourceEvent::Writable { .. } => self.write(io),
            SourceEvent::Drained { .. } => self.record.drained = Some(io.now()),
            SourceEvent::Removed { reason, .. } => self.record.removed.push((io.now(), reason)),
            SourceEvent::Pace { rate, .. } if self.keep_pace => {
                io.set_pace(RateClass::Data, Some(rate));
            }
            SourceEvent::ReceivedEnd { .. }
            | SourceEvent::Closed { .. }
            | SourceEvent::Pace { .. }
            | SourceEvent::AckFilter(_) => {}
        }
    }

    fn wake(&mut self, io: &mut dyn Io<Source>) {
        let (Some((frame_len, interval)), Some(len)) = (self.frames, self.len) else { return };
        while self.next <= io.now() && self.ready < len {
            self.ready += frame_len;
            self.next += interval;
        }
        self.write(io);
        if self.ready < len {
            io.wake_at(Some(self.next));
        }
    }
}
