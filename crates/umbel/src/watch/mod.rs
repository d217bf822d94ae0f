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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use umbel_engine::host::Mailbox;
use umbel_engine::rlm::{ControllerKind, Receiver};
use umbel_net::clock::Clock;
use umbel_net::driver::Driver;
use umbel_net::interface::Interface;
use umbel_net::mailbox;
use umbel_wire::session::SessionKind;
use umbel_wire::stream::Stream;

use self::diagnosing::Diagnosing;
pub use self::host::ScreenStats;
use self::host::{Bounds, Input, WatchHost};
pub use self::outlet::Target;
use self::projector::Projector;
pub use self::rtp::RtpTarget;
use self::screen::ThreadScreen;
use crate::directory::{KnownSenders, Noun, SessionSelector, Station, Watch};
pub use crate::endpoint::Interrupt;
use crate::endpoint::{channel, generator};

/// Pictures for which packets wait for late ones by default. One picture is spread over the time
/// until the next by the pace of its layers.
pub(crate) const DELAY: u32 = 2;

/// Which stream to watch, and how.
#[derive(Debug)]
pub struct WatchOptions {
    /// The stream.
    pub stream: SessionSelector,
    /// Where pictures go.
    pub target: Target,
    /// Rule by which the level is chosen.
    pub controller: ControllerKind,
    /// Most layers that are received. Default: all.
    pub max_level: Option<u8>,
    /// Pictures for which packets wait for late ones. Default 2.
    pub delay: u32,
    /// Name or address of the interface. Default: that of the default route.
    pub interface: Option<String>,
    /// How long to wait for a stream of this name to be on the air.
    pub wait: Duration,
    /// Silence after which the source counts as gone. Default 30 s.
    pub patience: Duration,
    /// How long to watch. Default: to the end.
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
    /// Why it broke off, if it did.
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
    /// The stream was found.
    fn found(&self, _stream: &Stream, _interface: &str) {}

    /// The level changed.
    fn level(&self, _level: u8, _layers: u8, _reason: &'static str) {}

    /// News of a join-experiment.
    fn experiment(&self, _experiment: &Experiment) {}

    /// Reports on a second.
    fn second(&self, _snapshot: &WatchSnapshot) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}

    /// Nothing is heard of the stream.
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
    let interface = channel::choose_interface(options.interface.as_deref())?;
    let (mailbox, mut line) = mailbox::line::<Input>().context("cannot start")?;
    let mailbox = Arc::new(Mutex::new(mailbox));
    let mut station = Station::open(&interface)?;
    started(Interrupt::new({
        let (mailbox, station) = (mailbox.clone(), station.waker());
        move || {
            current(&mailbox).put(Input::Interrupt);
            station.wake();
        }
    }));
    let mut diagnosing =
        Diagnosing { observer: observer.clone(), interface: interface.clone(), base: None };
    let state_dir = options.state_dir.take().map_or_else(crate::state::default_dir, Ok)?;
    let known = KnownSenders::in_dir(Noun::Stream, &state_dir).look_up(&mut options.stream)?;
    let found =
        station.find_stream(&options.stream, options.wait, |line| diagnosing.silent(line))?;
    let Some((mut stream, signer)) = found else {
        return Ok(WatchSummary { interrupted: true, ..WatchSummary::default() });
    };
    let note = |line: &str| observer.note(line);
    known.made(&mut options.stream, (signer, None), stream.source.ip(), note)?;
    let target = std::mem::replace(&mut options.target, Target::Nowhere);
    let told = mailbox.clone();
    let projector = Projector::open(&stream, target, move |input| current(&told).put(input))?;
    let mut past = WatchSummary::default();
    loop {
        let to = current(&mailbox).clone();
        let told = to.clone();
        let session = SessionKind::from(stream.clone());
        let watch = Watch::start(station, options.stream.clone(), session, move |news| {
            told.put(Input::News(news));
        })?;
        diagnosing.base = Some(stream.base);
        let screen = projector.screen(&stream, options.delay);
        let summary = screen
            .and_then(|screen| receive(&stream, &options, screen, &interface, &diagnosing, line));
        drop(to);
        let successor = watch.stop();
        past = summary?.after(&past);
        let Some((heard, SessionKind::Stream(successor))) = successor.filter(|_| past.replaced)
        else {
            break;
        };
        observer.note(&format!("the source of `{}` was started again", successor.name));
        if !projector.shows(&successor.content, &stream.content) {
            past.failure = Some(format!(
                "the source was started again with other content ({}): watch it again",
                successor.content
            ));
            break;
        }
        let (fresh, fresh_line) = mailbox::line::<Input>().context("cannot start")?;
        *current(&mailbox) = fresh;
        (station, stream, line) = (heard, *successor, fresh_line);
    }
    if let Err(error) = projector.finish() {
        past.failure.get_or_insert(error.to_string());
    }
    Ok(past)
}

/// Returns the mailbox of the host that is running.
fn current(mailbox: &Mutex<Mailbox<Input>>) -> MutexGuard<'_, Mailbox<Input>> {
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives one stream, until it is over or replaced, or the user has seen enough.
fn receive(
    stream: &Stream,
    options: &WatchOptions,
    screen: ThreadScreen,
    interface: &Interface,
    observer: &Diagnosing,
    line: mailbox::Line<Input>,
) -> anyhow::Result<WatchSummary> {
    observer.found(stream, &interface.name);
    let config = reception::config(stream, options.controller, options.max_level)?;
    let layers = stream.layers.len() as u8;
    let bounds = Bounds { patience: options.patience, last: options.last };
    let host = WatchHost::new(layers, bounds, screen, Arc::new(observer.clone()));
    let engine = Receiver::new(config, generator()?)?;
    let mut driver = Driver::new(engine, host, Clock::new(), line);
    for port in reception::ports(stream, interface)? {
        driver = driver.port(port);
    }
    Ok(driver.run()?.summary())
}
