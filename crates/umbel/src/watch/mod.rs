//! A receiver of a layered live stream.
//!
//! ```text
//! directory::Station ─▶ which stream
//! a channel for each layer, control group ─▶ driver ─ Receiver ─ WatchHost ─▶ decoder ─▶ output
//! ```
//!
//! The receiver joins as many layers as its path carries, and tries another one now and then
//! [RLM §3]. Each thread is in `screen.rs` or `outlet.rs`, and none waits for the one after it. A
//! stream of RTP goes to a player, as `rtp` tells.

mod diagnosing;
pub(crate) mod host;
mod outlet;
pub(crate) mod playout;
mod projector;
pub(crate) mod reception;
pub(crate) mod rtp;
mod screen;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use umbel_engine::rlm::ControllerKind;
use umbel_net::interface::Interface;
use umbel_wire::stream::Stream;

use self::diagnosing::Diagnosing;
pub use self::host::ScreenStats;
use self::host::{Bounds, Input, WatchHost};
pub use self::outlet::Target;
use self::projector::Projector;
pub use self::rtp::RtpTarget;
use self::screen::ThreadScreen;
use crate::directory::{SessionSelector, Silence, Succession};
pub use crate::endpoint::Interrupt;
use crate::endpoint::Wiring;

/// Pictures for which packets wait for late ones by default. One picture is spread over the time
/// until the next by the pace of its layers.
pub(crate) const DELAY: u32 = 2;

/// Options of a reception: the stream, and how to show it.
#[derive(Debug)]
pub struct WatchOptions {
    /// The stream.
    pub stream: SessionSelector,
    /// Destination of the pictures.
    pub target: Target,
    /// Rule by which the level is chosen.
    pub controller: ControllerKind,
    /// Most layers that are received. Default: all.
    pub max_level: Option<u8>,
    /// Pictures for which packets wait for late ones. Default 2.
    pub delay: u32,
    /// Name or address of the interface. Default: that of the default route.
    pub interface: Option<String>,
    /// Time to wait for a stream of this name to be on the air.
    pub wait: Duration,
    /// Silence after which the source counts as gone. Default 30 s.
    pub patience: Duration,
    /// Time for which to watch. Default: to the end.
    pub last: Option<Duration>,
    /// Directory of the senders that are known. Default: that of the user.
    pub state_dir: Option<PathBuf>,
}

impl WatchOptions {
    /// Creates options with the defaults.
    pub fn new(stream: SessionSelector, target: Target) -> WatchOptions {
        WatchOptions {
            stream,
            target,
            controller: ControllerKind::default(),
            max_level: None,
            delay: DELAY,
            interface: None,
            wait: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            last: None,
            state_dir: None,
        }
    }
}

/// A second of reception.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WatchSnapshot {
    /// Seconds since the start.
    pub seconds: f64,
    /// Number of layers that are received.
    pub level: u8,
    /// Number of layers that there are.
    pub layers: u8,
    /// State of the receiver [RLM Fig. 6]: `steady`, `hysteresis`, `measurement`, `drop`; `left`
    /// outside.
    pub state: &'static str,
    /// UDP payload received, in bits per second.
    pub rate_bits_per_s: u64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Packets lost.
    pub lost: u64,
    /// Packets so far that were dropped since the source had not signed them.
    pub forged: u64,
    /// Packets so far that were dropped without a look, since more wrong signatures came than are
    /// verified.
    pub unchecked: u64,
    /// Pictures shown per second.
    pub pictures_per_s: f64,
    /// Estimated number of receivers.
    pub receivers: u64,
    /// Join-experiments so far.
    pub experiments: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Estimated time in which a failure shows, in seconds.
    pub detection_s: f64,
    /// Counters of the screen so far.
    pub screen: ScreenStats,
}

/// A join-experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Experiment {
    /// It begins.
    Started {
        /// The level that is tried.
        level: u8,
    },
    /// It brought loss.
    Failed {
        /// The level that was tried.
        level: u8,
        /// Time to the onset of congestion, in milliseconds.
        after_ms: f64,
    },
    /// The level stays.
    Succeeded {
        /// The level.
        level: u8,
    },
}

/// Result of watching.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WatchSummary {
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// Level at the end.
    pub level: u8,
    /// Seconds at each level, from 0 on.
    pub at_level: Vec<f64>,
    /// Number of changes of the level.
    pub changes: u64,
    /// Packets received.
    pub packets: u64,
    /// Bytes of UDP payload received.
    pub bytes: u64,
    /// Packets lost while their layer was received.
    pub lost: u64,
    /// Packets that came after they had been taken for lost.
    pub late: u64,
    /// Packets restored from repairs.
    pub restored: u64,
    /// Packets dropped since the source had not signed them.
    pub forged: u64,
    /// Packets dropped without a look, since more wrong signatures came than are verified.
    pub unchecked: u64,
    /// Join-experiments.
    pub experiments: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Experiments of others heard.
    pub heard: u64,
    /// Experiments forgone since others experimented.
    pub suppressed: u64,
    /// Datagrams that this host's kernel dropped because the program was too slow.
    pub dropped_here: u64,
    /// Counters of the screen.
    pub screen: ScreenStats,
    /// Reason why it broke off, if it did.
    pub failure: Option<String>,
    /// Whether the source announced the end.
    pub over: bool,
    /// Whether the output was closed.
    pub closed: bool,
    /// Whether the user interrupted it.
    pub interrupted: bool,
    /// Whether the source was started again, and another stream took the place of this one.
    #[serde(skip)]
    replaced: bool,
}

impl WatchSummary {
    /// Adds the result of the previous stream, whose place this one took.
    fn after(self, past: &WatchSummary) -> WatchSummary {
        let (mine, theirs) = (self.screen, past.screen);
        let mut at_level = past.at_level.clone();
        at_level.resize(at_level.len().max(self.at_level.len()), 0.0);
        for (sum, seconds) in at_level.iter_mut().zip(&self.at_level) {
            *sum += seconds;
        }
        WatchSummary {
            seconds: past.seconds + self.seconds,
            at_level,
            changes: past.changes + self.changes,
            packets: past.packets + self.packets,
            bytes: past.bytes + self.bytes,
            lost: past.lost + self.lost,
            late: past.late + self.late,
            restored: past.restored + self.restored,
            forged: past.forged + self.forged,
            unchecked: past.unchecked + self.unchecked,
            experiments: past.experiments + self.experiments,
            failed: past.failed + self.failed,
            heard: past.heard + self.heard,
            suppressed: past.suppressed + self.suppressed,
            dropped_here: past.dropped_here + self.dropped_here,
            screen: ScreenStats {
                shown: mine.shown + theirs.shown,
                repeated: mine.repeated + theirs.repeated,
                skipped: mine.skipped + theirs.skipped,
                refused: mine.refused + theirs.refused,
                useless: mine.useless + theirs.useless,
            },
            ..self
        }
    }
}

/// Receives news of the reception. It is called on the engine's thread and must not block.
pub trait WatchObserver: Send + Sync {
    /// Called when the stream was found.
    fn found(&self, _stream: &Stream, _interface: &str) {}

    /// Called when the level changed.
    fn level(&self, _level: u8, _layers: u8, _reason: &'static str) {}

    /// News of a join-experiment.
    fn experiment(&self, _experiment: &Experiment) {}

    /// Reports on a second.
    fn second(&self, _snapshot: &WatchSnapshot) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}

    /// Called when the stream is silent.
    fn silent(&self, line: &str) {
        self.note(line);
    }
}

/// Watches a stream. Returns when it is over.
///
/// # Errors
///
/// One line that says why nothing can be received at all. The [`WatchSummary`] says why it broke
/// off later.
pub fn watch(
    mut options: WatchOptions,
    observer: &Arc<dyn WatchObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<WatchSummary> {
    let mut succession = Succession::open(options.interface.as_deref())?;
    started(succession.interrupt(|| Input::Interrupt));
    let mut diagnosing =
        Diagnosing { observer: observer.clone(), wanted: options.interface.clone(), base: None };
    let (lonely, note) = (|line: &str| diagnosing.silent(line), |line: &str| observer.note(line));
    let (state_dir, wait) = (options.state_dir.take(), options.wait);
    let found = succession.find(&mut options.stream, state_dir, wait, (lonely, note))?;
    let Some((stream, key)) = found else {
        return Ok(WatchSummary { interrupted: true, ..WatchSummary::default() });
    };
    let target = std::mem::replace(&mut options.target, Target::Nowhere);
    let mailbox = succession.mailbox();
    let projector = Projector::open(&stream, target, move |input| mailbox.put(input))?;
    let content = stream.content.clone();
    let mut past = WatchSummary::default();
    let news = |news| Some(Input::News(news));
    succession.run(
        (&options.stream, stream),
        news,
        note,
        |stream: Stream, interface, wiring, silence| {
            if !projector.shows(&stream.content, &content) {
                past.failure = Some(format!(
                    "the source was started again with other content ({}): watch it again",
                    stream.content
                ));
                return Ok(false);
            }
            diagnosing.base = Some((interface.clone(), stream.base));
            let screen = projector.screen(&stream, options.delay)?;
            // A successor has the same key.
            let summary = receive(
                (&stream, key),
                &options,
                screen,
                interface,
                &diagnosing,
                (wiring, silence),
            )?;
            past = summary.after(&past);
            Ok(past.replaced)
        },
    )?;
    if let Err(error) = projector.finish() {
        past.failure.get_or_insert(error.to_string());
    }
    Ok(past)
}

/// Receives one stream, until it is over or replaced, or the user has seen enough.
fn receive(
    (stream, key): (&Stream, [u8; 32]),
    options: &WatchOptions,
    screen: ThreadScreen,
    interface: &Interface,
    observer: &Diagnosing,
    (wiring, silence): (Wiring<Input>, Silence),
) -> anyhow::Result<WatchSummary> {
    observer.found(stream, &interface.name);
    let layers = stream.layers.len() as u8;
    let bounds = Bounds { patience: options.patience, last: options.last };
    let host =
        WatchHost::new(layers, bounds, screen, Arc::new(observer.clone())).with_silence(silence);
    let levels = (options.controller, options.max_level);
    Ok(reception::run((stream, key), interface, levels, host, wiring)?.summary())
}
