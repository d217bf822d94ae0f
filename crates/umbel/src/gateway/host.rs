//! Handles the events of the receiver's engine: what comes goes to the shelf, what is lost is
//! repaired.

use std::sync::Arc;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::chance::{Generator, uniform};
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{
    LevelReason, Receiver, ReceiverCommand, ReceiverEvent, ReceiverStats, StreamKey,
};
use umbel_store::hls::FileName;

use super::board::Board;
use super::repairs::{Key, Repairs};
use super::{GatewayObserver, GatewaySnapshot, GatewaySummary};
use crate::directory::{News, Signs, Silence};
use crate::http::{Fetched, Wanted};
use crate::watch::Experiment;
use crate::watch::host::{reason_name, state_name};
use crate::watch::reception;

/// Interval at which the host looks around.
const TICK: Duration = Duration::from_millis(50);
/// Interval of progress reports, and time over which rates and losses are measured.
const SECOND: Duration = Duration::from_secs(1);
/// Silence after which the user is told.
const QUIET: Duration = Duration::from_secs(5);
/// Time for which what is held is served after the end, so that players reach it.
const LINGER: Duration = Duration::from_secs(30);

/// Input of the gateway's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// The source's answer to [`Fetch::fetch`].
    Fetched {
        /// The file.
        key: Key,
        /// What came; `None` if it failed.
        answer: Option<Fetched>,
    },
    /// News from the directory.
    News(News),
    /// The user ends it.
    Interrupt,
}

/// Fetches what multicast did not bring.
pub(crate) trait Fetch {
    /// Asks for a file. The answer is an input of the host.
    fn fetch(&mut self, key: Key, wanted: Wanted);
}

/// The host of a gateway.
pub(crate) struct GatewayHost<F> {
    observer: Arc<dyn GatewayObserver>,
    board: Arc<Board>,
    /// `None`: the source repairs nothing.
    source: Option<F>,
    repairs: Repairs,
    random: Generator,
    layers: u8,
    started: Instant,
    /// Packets that came, and whether the user knows that no others do.
    signs: Signs,
    told_quiet: bool,
    silence: Silence,
    told_trouble: bool,
    told_forged: bool,
    /// Renditions that the source leaves out, as the user knows.
    told_left_out: Vec<String>,
    /// Time of the source's end.
    over: Option<Instant>,
    /// State at the start of the second that is being measured.
    second: (Instant, ReceiverStats),
    stats: ReceiverStats,
    summary: GatewaySummary,
}

type Machine<'a> = dyn Io<Receiver> + 'a;

impl<F: Fetch> GatewayHost<F> {
    /// Creates the host of a receiver of a ladder with this number of layers, signed with this
    /// key.
    pub(crate) fn new(
        (layers, key): (u8, StreamKey),
        board: Arc<Board>,
        source: Option<F>,
        random: Generator,
        observer: Arc<dyn GatewayObserver>,
    ) -> GatewayHost<F> {
        GatewayHost {
            observer,
            board,
            source,
            repairs: Repairs::of(key),
            random,
            layers,
            started: Instant::EPOCH,
            signs: Signs::default(),
            told_quiet: false,
            silence: Silence::default(),
            told_trouble: false,
            told_forged: false,
            told_left_out: Vec::new(),
            over: None,
            second: (Instant::EPOCH, ReceiverStats::default()),
            stats: ReceiverStats::default(),
            summary: GatewaySummary::default(),
        }
    }

    /// Makes it say to the directory's watch whether nothing comes.
    #[must_use]
    pub(crate) fn with_silence(self, silence: Silence) -> GatewayHost<F> {
        GatewayHost { silence, ..self }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> GatewaySummary {
        let (shelf, repairs) = (self.board.shelf().stats(), self.repairs.stats());
        let ReceiverStats { packets, bytes, lost, experiments, failed, .. } = self.stats;
        let ReceiverStats { forged, unchecked, .. } = self.stats;
        GatewaySummary {
            segments: shelf.segments,
            skipped: shelf.skipped,
            switches: shelf.switches,
            repaired: repairs.repaired,
            repaired_bytes: repairs.bytes,
            packets,
            bytes,
            lost,
            forged,
            unchecked,
            experiments,
            failed,
            ..self.summary.clone()
        }
    }

    fn draw(&mut self) -> f64 {
        uniform(&mut self.random)
    }

    fn on_missing(&mut self, now: Instant, event: ReceiverEvent) {
        let ReceiverEvent::ObjectMissing { layer, head: Some(head), held, missing, .. } = event
        else {
            return;
        };
        // Playlists are sent again anyway.
        let name = FileName::parse(&head.name).ok().filter(|name| !name.is_playlist());
        if let Some(name) = name.filter(|_| self.source.is_some()) {
            let draw = self.draw();
            self.repairs.lost(now, (layer.into(), name), &head, (held, missing), draw);
        }
    }

    fn on_fetched(&mut self, now: Instant, key: &Key, answer: Option<Fetched>) {
        let draw = self.draw();
        if let Some(body) = self.repairs.answered(now, key, answer, draw) {
            self.board.shelf().take(now, key.0, key.1.as_str(), body);
        }
    }

    /// Asks for what is due.
    fn repair(&mut self, now: Instant) {
        if self.source.is_none() {
            return;
        }
        for key in self.board.shelf().absent(now) {
            let draw = uniform(&mut self.random);
            self.repairs.absent(now, key, draw);
        }
        let board = self.board.clone();
        let shelf = board.shelf();
        while let Some((key, wanted)) =
            self.repairs.poll(now, |layer, name| shelf.needs(layer, name))
        {
            if let Some(source) = &mut self.source {
                source.fetch(key, wanted);
            }
        }
    }

    fn on_level(&mut self, level: u8, reason: LevelReason) {
        self.summary.level = level;
        if let Some(layer) = level.checked_sub(1) {
            self.board.shelf().prefer(layer.into());
        }
        self.observer.level(level, self.layers, reason_name(reason, level));
    }

    /// Leaves all channels, and says so to the others.
    fn leave(&mut self, io: &mut Machine<'_>) {
        self.stats = io.engine().stats();
        // Leaving is never refused.
        let _ = io.command(ReceiverCommand::Leave);
    }

    fn measure(&mut self, now: Instant) {
        let (since, before) = self.second;
        let passed = (now - since).as_secs_f64();
        let stats = self.stats;
        let packets = stats.packets - before.packets;
        let lost = stats.lost.saturating_sub(before.lost);
        let shelf = self.board.shelf();
        let (held, time, bytes) = shelf.held();
        let (counted, repairs) = (shelf.stats(), self.repairs.stats());
        let newest = shelf.newest().map(|(layer, name)| (layer, name.to_string()));
        let resolution = newest.as_ref().and_then(|(layer, _)| shelf.resolution(*layer));
        let snapshot = GatewaySnapshot {
            seconds: (now - self.started).as_secs_f64(),
            level: stats.level,
            layers: self.layers,
            state: stats.state.map_or("left", state_name),
            rate_bits_per_s: ((stats.bytes - before.bytes) as f64 * 8.0 / passed.max(1e-3)) as u64,
            loss: lost as f64 / (packets + lost).max(1) as f64,
            lost: stats.lost,
            forged: stats.forged,
            unchecked: stats.unchecked,
            receivers: stats.receivers,
            experiments: stats.experiments,
            failed: stats.failed,
            held,
            held_s: time.as_secs_f64(),
            held_bytes: bytes as u64,
            resolution: resolution.map(str::to_owned),
            newest: newest.map(|(_, name)| name),
            segments: counted.segments,
            skipped: counted.skipped,
            switches: counted.switches,
            refused: counted.refused,
            repaired: repairs.repaired,
            repaired_bytes: repairs.bytes,
            suppressed: repairs.suppressed,
            unrepaired: repairs.failed,
            over: self.over.is_some(),
        };
        let left_out = shelf.left_out().to_vec();
        drop(shelf);
        if !left_out.is_empty() && left_out != self.told_left_out {
            self.observer.note(&format!(
                "the source leaves out renditions with other tracks or codecs: {}",
                left_out.join(", ")
            ));
            self.told_left_out = left_out;
        }
        self.second = (now, stats);
        self.observer.second(&snapshot);
        self.board.report(snapshot);
    }

    fn listen(&mut self, now: Instant) {
        let quiet_for = self.signs.quiet_for(self.stats.packets, now);
        self.silence.note(quiet_for);
        if self.told_quiet && quiet_for.is_zero() {
            self.told_quiet = false;
            self.observer.note("packets arrive again");
        } else if quiet_for >= QUIET && !self.told_quiet {
            self.told_quiet = true;
            self.observer.note(
                "no packets come: the source is silent, or multicast does not reach this host \
                 (`umbel doctor`)",
            );
        }
    }
}

impl<F: Fetch> Host<Receiver> for GatewayHost<F> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        (self.started, self.second.0) = (now, now);
        self.signs.quiet_for(0, now);
        // Joining is never refused.
        let _ = io.command(ReceiverCommand::Join);
        io.wake_at(Some(now + TICK));
    }

    fn event(&mut self, io: &mut Machine<'_>, event: ReceiverEvent) {
        let now = io.now();
        match event {
            ReceiverEvent::Object { layer, name, body, .. } => {
                self.board.shelf().take(now, layer.into(), &name, body);
            }
            ReceiverEvent::ObjectMissing { .. } => self.on_missing(now, event),
            ReceiverEvent::Level { level, reason } => self.on_level(level, reason),
            ReceiverEvent::ExperimentStarted { level } => {
                self.observer.experiment(&Experiment::Started { level });
            }
            ReceiverEvent::ExperimentFailed { level, after } => {
                let after_ms = after.as_secs_f64() * 1e3;
                self.observer.experiment(&Experiment::Failed { level, after_ms });
            }
            ReceiverEvent::ExperimentSucceeded { level } => {
                self.observer.experiment(&Experiment::Succeeded { level });
            }
            // A ladder has no units.
            ReceiverEvent::Unit { .. } => {}
        }
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        let now = io.now();
        match input {
            Input::Fetched { key, answer } => self.on_fetched(now, &key, answer),
            Input::News(News::Over) => {
                self.summary.over = true;
                self.over = Some(now);
                self.leave(io);
                self.board.shelf().end();
                self.observer.note("the stream is over; what is held is served for 30 s more");
            }
            Input::News(News::Replaced | News::Moved) => {
                self.summary.replaced = true;
                self.leave(io);
                io.stop();
            }
            Input::Interrupt => {
                self.summary.interrupted = true;
                self.leave(io);
                io.stop();
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        io.wake_at(Some(now + TICK));
        self.stats = io.engine().stats();
        self.summary.seconds = (now - self.started).as_secs_f64();
        if self.stats.forged > 0 && !self.told_forged {
            self.told_forged = true;
            self.observer.note(reception::FORGED);
        }
        if now - self.second.0 >= SECOND {
            self.measure(now);
        }
        match self.over {
            Some(since) if now - since >= LINGER => io.stop(),
            Some(_) => {}
            None => {
                self.listen(now);
                self.repair(now);
                self.board.shelf().advance(now);
            }
        }
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        match trouble {
            Trouble::NotJoined { reason, .. } | Trouble::NotSent { reason } => {
                if !self.told_trouble {
                    self.told_trouble = true;
                    self.observer.note(&reason);
                }
            }
            Trouble::Overrun { datagrams } => self.summary.dropped_here += datagrams,
        }
    }
}
