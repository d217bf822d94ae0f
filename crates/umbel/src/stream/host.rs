//! Handles the events of the source's engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{Source, SourceCommand, SourceStats};
use umbel_engine::{Instant, RateClass};

use super::BLOCK_TIME;
use super::ladder::Step;
use super::way::RateMeter;
use super::{LayerSnapshot, StreamObserver, StreamSnapshot, StreamSummary};

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Time without a picture after which the user is told.
const STALL: Duration = Duration::from_secs(3);
/// How long the last packets and their repairs may take to leave.
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
        /// Why it broke off, if it did.
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
    observer: Arc<dyn StreamObserver>,
    ladder: Vec<Step>,
    stage: Stage,
    begun: Option<Instant>,
    /// Time of the last new picture, and whether the user knows that none came since.
    fresh_at: Instant,
    told_stall: bool,
    told_trouble: bool,
    trouble: Option<String>,
    meter: RateMeter,
    stats: SourceStats,
    summary: StreamSummary,
    encoding: Duration,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl StreamHost {
    /// Creates the host of a source whose layers have these rates.
    pub(crate) fn new(ladder: Vec<Step>, observer: Arc<dyn StreamObserver>) -> StreamHost {
        StreamHost {
            observer,
            stage: Stage::Live,
            begun: None,
            fresh_at: Instant::EPOCH,
            told_stall: false,
            told_trouble: false,
            trouble: None,
            meter: RateMeter::new(ladder.len()),
            ladder,
            stats: SourceStats::default(),
            summary: StreamSummary::default(),
            encoding: Duration::ZERO,
        }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> StreamSummary {
        let layers = &self.stats.layers;
        StreamSummary {
            packets: layers.iter().map(|layer| layer.packets).sum(),
            bytes: layers.iter().map(|layer| layer.bytes).sum(),
            repairs: layers.iter().map(|layer| layer.repairs).sum(),
            dropped: layers.iter().map(|layer| layer.dropped).sum(),
            experiments: self.stats.experiments,
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
        let steps = self.ladder.iter().zip(self.meter.rates());
        let layers = steps.zip(&self.stats.layers).map(|((step, &rate), stats)| LayerSnapshot {
            rate_bits_per_s: rate,
            limit_bits_per_s: step.pace.bits_per_s(),
            dropped: stats.dropped,
        });
        let encoding = self.encoding.as_secs_f64() * 1e3 / self.summary.pictures.max(1) as f64;
        StreamSnapshot {
            layers: layers.collect(),
            pictures: self.summary.pictures,
            left_out: self.summary.left_out,
            encoding_ms: encoding,
            stalled: self.told_stall,
            receivers: self.stats.receivers,
            at_level: self.stats.at_level.clone(),
            worst_loss: f64::from(self.stats.worst_loss.thousandths()) / 1e3,
            experiments: self.stats.experiments,
            trouble: self.trouble.clone(),
        }
    }

    /// Returns whether the engine has sent everything.
    fn is_idle(&self) -> bool {
        self.stats.layers.iter().all(|layer| layer.waiting == 0)
    }
}

impl Host<Source> for StreamHost {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        for (layer, step) in (0..).zip(&self.ladder) {
            io.set_pace(RateClass::Layer(layer), Some(step.pace));
        }
        self.fresh_at = now;
        self.meter.start(now);
        io.wake_at(Some(now + TICK));
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
                self.stats = io.engine().stats();
                io.stop();
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        io.wake_at(Some(now + TICK));
        self.stats = io.engine().stats();
        self.meter.measure(now, &self.stats.layers);
        if let Stage::Ending(since) = self.stage
            && (now - since >= LAST_PACKETS || now - since >= BLOCK_TIME * 2 && self.is_idle())
        {
            io.stop();
        }
        if self.stage == Stage::Live && now - self.fresh_at >= STALL && !self.told_stall {
            self.told_stall = true;
            self.observer.note("no picture comes from the input; the last one is shown on");
        }
        if let Some(trouble) = self.trouble.as_ref().filter(|_| !self.told_trouble) {
            self.told_trouble = true;
            self.observer.note(&format!("packets do not leave: {trouble}"));
        }
        self.observer.progress(&self.snapshot());
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                self.trouble = Some(reason);
            }
            // Receivers repeat what they say in the control group.
            Trouble::Overrun { .. } => {}
        }
    }
}
