//! Handles the events of the receiver's engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{
    LevelReason, Receiver, ReceiverCommand, ReceiverEvent, ReceiverStats, State,
};

use super::{Experiment, WatchObserver, WatchSnapshot, WatchSummary, reception};
use crate::directory::{News, Signs, Silence};

/// Interval at which the host looks around.
const TICK: Duration = Duration::from_millis(100);
/// Interval of progress reports, and time over which rates and losses are measured.
const SECOND: Duration = Duration::from_secs(1);
/// Silence after which the user is told.
const QUIET: Duration = Duration::from_secs(3);

/// Input of the receiver's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// News from the directory.
    News(News),
    /// The output takes no more pictures.
    Closed {
        /// Reason, unless its reader just went away.
        failed: Option<String>,
    },
    /// The user ends it.
    Interrupt,
}

/// The consumer of packets.
pub(crate) trait Screen {
    /// Takes a packet of a layer. Does not block.
    fn unit(&mut self, layer: u8, body: Bytes);

    /// Returns the counters.
    fn stats(&self) -> ScreenStats;
}

/// Counters of a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScreenStats {
    /// Pictures shown.
    pub shown: u64,
    /// Of these, pictures for which nothing had come since the one before.
    pub repeated: u64,
    /// Pictures for which the reader of the output was too slow.
    pub skipped: u64,
    /// Packets that were no packets of this stream's codec, or for which there was no room.
    pub refused: u64,
    /// Parts of packets that need what was lost.
    pub useless: u64,
}

/// Bounds of a receiver's patience.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Silence after which the source counts as gone.
    pub(crate) patience: Duration,
    /// Time for which to watch, if not to the end.
    pub(crate) last: Option<Duration>,
}

/// The host of a receiver.
pub(crate) struct WatchHost<S> {
    observer: Arc<dyn WatchObserver>,
    screen: S,
    bounds: Bounds,
    layers: u8,
    started: Instant,
    /// Packets that came, and whether the user knows that no others do.
    signs: Signs,
    told_quiet: bool,
    silence: Silence,
    told_trouble: bool,
    told_slow: bool,
    told_forged: bool,
    /// State at the start of the second that is being measured.
    second: (Instant, ReceiverStats, ScreenStats),
    stats: ReceiverStats,
    last_level: (Instant, u8),
    snapshot: WatchSnapshot,
    summary: WatchSummary,
}

type Machine<'a> = dyn Io<Receiver> + 'a;

impl<S: Screen> WatchHost<S> {
    /// Creates the host of a receiver of a stream with this number of layers.
    pub(crate) fn new(
        layers: u8,
        bounds: Bounds,
        screen: S,
        observer: Arc<dyn WatchObserver>,
    ) -> WatchHost<S> {
        let summary =
            WatchSummary { at_level: vec![0.0; usize::from(layers) + 1], ..Default::default() };
        WatchHost {
            observer,
            screen,
            bounds,
            layers,
            started: Instant::EPOCH,
            signs: Signs::default(),
            told_quiet: false,
            silence: Silence::default(),
            told_trouble: false,
            told_slow: false,
            told_forged: false,
            second: (Instant::EPOCH, ReceiverStats::default(), ScreenStats::default()),
            stats: ReceiverStats::default(),
            last_level: (Instant::EPOCH, 0),
            snapshot: WatchSnapshot::default(),
            summary,
        }
    }

    /// Makes it say to the directory's watch whether nothing comes.
    #[must_use]
    pub(crate) fn with_silence(self, silence: Silence) -> WatchHost<S> {
        WatchHost { silence, ..self }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> WatchSummary {
        let ReceiverStats { packets, bytes, lost, late, restored, .. } = self.stats;
        let ReceiverStats { forged, unchecked, .. } = self.stats;
        let ReceiverStats { experiments, failed, heard, suppressed, .. } = self.stats;
        WatchSummary {
            packets,
            bytes,
            lost,
            late,
            restored,
            forged,
            unchecked,
            experiments,
            failed,
            heard,
            suppressed,
            screen: self.screen.stats(),
            ..self.summary.clone()
        }
    }

    fn on_level(&mut self, now: Instant, level: u8, reason: LevelReason) {
        self.pass_time(now);
        self.last_level.1 = level;
        self.summary.level = level;
        self.summary.changes += 1;
        self.observer.level(level, self.layers, reason_name(reason, level));
    }

    /// Adds the time since the last call to that at the present level.
    fn pass_time(&mut self, now: Instant) {
        let (since, level) = self.last_level;
        if let Some(time) = self.summary.at_level.get_mut(usize::from(level)) {
            *time += (now - since).as_secs_f64();
        }
        self.last_level.0 = now;
        self.summary.seconds = (now - self.started).as_secs_f64();
    }

    /// Leaves all channels, says so to the others, and ends.
    fn leave(&mut self, io: &mut Machine<'_>) {
        self.pass_time(io.now());
        self.stats = io.engine().stats();
        // Leaving is never refused.
        let _ = io.command(ReceiverCommand::Leave);
        io.stop();
    }

    fn measure(&mut self, now: Instant) {
        let (since, before, screen_before) = self.second;
        let passed = now - since;
        if passed < SECOND {
            return;
        }
        let (stats, screen) = (self.stats, self.screen.stats());
        let packets = stats.packets - before.packets;
        let lost = stats.lost.saturating_sub(before.lost);
        let seconds = passed.as_secs_f64();
        self.snapshot = WatchSnapshot {
            seconds: (now - self.started).as_secs_f64(),
            level: stats.level,
            layers: self.layers,
            state: stats.state.map_or("left", state_name),
            rate_bits_per_s: ((stats.bytes - before.bytes) as f64 * 8.0 / seconds) as u64,
            loss: lost as f64 / (packets + lost).max(1) as f64,
            lost,
            forged: stats.forged,
            unchecked: stats.unchecked,
            pictures_per_s: (screen.shown - screen_before.shown) as f64 / seconds,
            receivers: stats.receivers,
            experiments: stats.experiments,
            failed: stats.failed,
            detection_s: stats.detection_time.as_secs_f64(),
            screen,
        };
        self.second = (now, stats, screen);
        self.observer.second(&self.snapshot);
        if screen.skipped > screen_before.skipped && !self.told_slow {
            self.told_slow = true;
            self.observer.note("the output is read too slowly: pictures are left out");
        }
    }

    fn listen(&mut self, io: &mut Machine<'_>) {
        let quiet_for = self.signs.quiet_for(self.stats.packets, io.now());
        self.silence.note(quiet_for);
        if self.told_quiet && quiet_for.is_zero() {
            self.told_quiet = false;
            self.observer.note("packets arrive again");
        }
        if quiet_for >= self.bounds.patience {
            let seconds = quiet_for.as_secs_f64();
            self.summary.failure = Some(format!(
                "nothing has come for {seconds:.0} s: the source is gone, or multicast does not \
                 reach this host (`umbel doctor`)"
            ));
            self.leave(io);
        } else if quiet_for >= QUIET && !self.told_quiet {
            self.told_quiet = true;
            self.observer.silent("no packets come");
        }
    }
}

impl<S: Screen> Host<Receiver> for WatchHost<S> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        self.started = now;
        self.signs.quiet_for(0, now);
        (self.second.0, self.last_level.0) = (now, now);
        // Joining is never refused.
        let _ = io.command(ReceiverCommand::Join);
        io.wake_at(Some(now + TICK));
    }

    fn event(&mut self, io: &mut Machine<'_>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Unit { layer, body, .. } => self.screen.unit(layer, body),
            ReceiverEvent::Level { level, reason } => self.on_level(io.now(), level, reason),
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
            // A stream of pictures has no objects.
            ReceiverEvent::Object { .. } | ReceiverEvent::ObjectMissing { .. } => {}
        }
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        match input {
            Input::News(News::Replaced | News::Moved) => self.summary.replaced = true,
            Input::News(News::Over) => self.summary.over = true,
            Input::Closed { failed } => {
                self.summary.closed = failed.is_none();
                self.summary.failure = failed;
            }
            Input::Interrupt => self.summary.interrupted = true,
        }
        self.leave(io);
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        io.wake_at(Some(now + TICK));
        self.stats = io.engine().stats();
        if self.stats.forged > 0 && !self.told_forged {
            self.told_forged = true;
            self.observer.note(reception::FORGED);
        }
        self.pass_time(now);
        self.measure(now);
        if self.bounds.last.is_some_and(|last| now - self.started >= last) {
            self.leave(io);
        } else {
            self.listen(io);
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

/// Returns the name of a reason for a level, in reports.
pub(crate) fn reason_name(reason: LevelReason, level: u8) -> &'static str {
    match reason {
        LevelReason::Application if level == 0 => "left",
        LevelReason::Application => "joined",
        LevelReason::Experiment => "experiment",
        LevelReason::Failed => "experiment-failed",
        LevelReason::Congestion => "congestion",
        LevelReason::Limit => "limit",
    }
}

/// Returns the name of a state in reports.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Steady => "steady",
        State::Hysteresis => "hysteresis",
        State::Measurement => "measurement",
        State::Drop => "drop",
    }
}
