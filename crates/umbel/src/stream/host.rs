//! Handles the events of the source's engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{Source, SourceCommand};

use super::BLOCK_TIME;
use super::ladder::Step;
use super::on_air::{OnAir, Totals};
use super::{StreamObserver, StreamSnapshot, StreamSummary};

/// Time without a picture after which the user is told.
const STALL: Duration = Duration::from_secs(3);
/// Time that the last packets and their repairs may take to leave.
const LAST_PACKETS: Duration = Duration::from_secs(2);

/// Input of the source's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// An encoded picture.
    Picture(Picture),
    /// A picture for which the encoder had no time.
    LeftOut,
    /// The input is over.
    Ended {
        /// Reason why it broke off, if it did.
        failed: Option<String>,
    },
    /// The user ends the stream.
    Interrupt,
}

/// An encoded picture.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    /// Packets with their layers.
    pub(crate) packets: Vec<(u8, Bytes)>,
    /// Whether it is new; otherwise it stands in for one that did not come.
    pub(crate) fresh: bool,
    /// Time that the encoder took.
    pub(crate) encoding: Duration,
}

/// Stage of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Live,
    /// The last packets leave, since this time.
    Ending(Instant),
}

/// The host of a stream's source.
pub(crate) struct StreamHost {
    observer: Arc<dyn StreamObserver<StreamSnapshot>>,
    air: OnAir,
    stage: Stage,
    begun: Option<Instant>,
    /// Time of the last new picture, and whether the user knows that none came since.
    fresh_at: Instant,
    told_stall: bool,
    summary: StreamSummary,
    encoding: Duration,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl StreamHost {
    /// Creates the host of a source whose layers have these rates.
    pub(crate) fn new(
        ladder: &[Step],
        observer: Arc<dyn StreamObserver<StreamSnapshot>>,
    ) -> StreamHost {
        StreamHost {
            observer,
            air: OnAir::new(ladder.iter().map(|step| step.pace)),
            stage: Stage::Live,
            begun: None,
            fresh_at: Instant::EPOCH,
            told_stall: false,
            summary: StreamSummary::default(),
            encoding: Duration::ZERO,
        }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> StreamSummary {
        let Totals { packets, bytes, repairs, dropped } = self.air.totals();
        StreamSummary {
            packets,
            bytes,
            repairs,
            dropped,
            experiments: self.air.experiments(),
            ..self.summary.clone()
        }
    }

    fn on_picture(&mut self, io: &mut Machine<'_>, picture: Picture) {
        let now = io.now();
        let begun = *self.begun.get_or_insert(now);
        self.summary.seconds = (now - begun).as_secs_f64();
        if picture.fresh {
            self.summary.pictures += 1;
            self.encoding += picture.encoding;
            if self.told_stall {
                self.observer.note("the input goes on");
                self.told_stall = false;
            }
            self.fresh_at = now;
        }
        for (layer, body) in picture.packets {
            if let Err(error) = io.command(SourceCommand::Unit { layer, body }) {
                tracing::warn!("a packet of the encoder is not sent: {error}");
            }
        }
    }

    fn on_ended(&mut self, io: &mut Machine<'_>, failed: Option<String>) {
        self.summary.failure = failed;
        self.stage = Stage::Ending(io.now());
    }

    fn snapshot(&self) -> StreamSnapshot {
        let encoding = self.encoding.as_secs_f64() * 1e3 / self.summary.pictures.max(1) as f64;
        StreamSnapshot {
            air: self.air.snapshot(),
            pictures: self.summary.pictures,
            left_out: self.summary.left_out,
            encoding_ms: encoding,
            stalled: self.told_stall,
        }
    }
}

impl Host<Source> for StreamHost {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        self.fresh_at = io.now();
        self.air.start(io);
    }

    fn event(&mut self, _io: &mut Machine<'_>, event: std::convert::Infallible) {
        match event {}
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        match input {
            Input::Picture(picture) => self.on_picture(io, picture),
            Input::LeftOut => self.summary.left_out += 1,
            Input::Ended { failed } => self.on_ended(io, failed),
            Input::Interrupt => {
                self.summary.interrupted = true;
                self.air.stop(io);
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        self.air.tick(io);
        if let Stage::Ending(since) = self.stage
            && (now - since >= LAST_PACKETS || now - since >= BLOCK_TIME * 2 && self.air.is_idle())
        {
            io.stop();
        }
        if self.stage == Stage::Live && now - self.fresh_at >= STALL && !self.told_stall {
            self.told_stall = true;
            self.observer.note("no picture comes from the input; the last one is shown on");
        }
        if let Some(line) = self.air.take_trouble() {
            self.observer.note(&line);
        }
        self.observer.progress(&self.snapshot());
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        self.air.on_trouble(trouble);
    }
}
