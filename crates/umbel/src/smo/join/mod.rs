//! The helper at a receiver's host: subscribes to a channel, and passes its segments to the local
//! connections that the server has put on it.
//!
//! Applications do nothing for it, and nothing happens to them when it ends. The server notices
//! that multicast does not reach them, and sends by unicast.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_net::delivery::{Delivery, Way};
use umbel_net::interface::Interface;
use umbel_wire::tcp::Membership;

use super::address::Target;
pub use crate::endpoint::Interrupt;

/// Interval of reports.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the end of the user's program is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Options of a helper.
#[derive(Clone, Debug)]
pub struct HelperOptions {
    /// The server and its channel.
    pub target: Target,
    /// Name or address of the interface. Default: that of the route to the server.
    pub interface: Option<String>,
    /// Way by which segments reach the connections.
    pub way: Way,
}

/// A helper at work. It ends when dropped.
#[derive(Debug)]
pub struct Helper {
    delivery: Delivery,
    interface: String,
}

impl Helper {
    /// Starts to help.
    ///
    /// # Errors
    ///
    /// If the channel cannot be joined, or a right is missing.
    pub fn start(options: &HelperOptions) -> anyhow::Result<Helper> {
        let HelperOptions { target, interface, way } = options;
        let source = target.server.ip();
        let interface = match interface {
            Some(wanted) => Interface::resolve(wanted)?,
            None => Interface::for_peer(source)?,
        };
        let delivery = Delivery::start(target.server, target.group.ip(), &interface, *way)?;
        Ok(Helper { delivery, interface: interface.name })
    }

    /// Returns how segments reach the connections.
    pub fn way(&self) -> Way {
        self.delivery.way()
    }

    /// Returns the reason if nothing is delivered any more.
    pub fn failure(&self) -> Option<String> {
        self.delivery.failure()
    }

    fn snapshot(&self, since: Instant) -> JoinSnapshot {
        let counts = self.delivery.counts();
        JoinSnapshot {
            seconds: since.elapsed().as_secs_f64(),
            connections: self.delivery.connections().len(),
            segments: counts.segments,
            delivered: counts.delivered,
            not_enrolled: counts.not_enrolled,
            already_held: counts.already_held,
            not_ready: counts.not_ready + counts.gone,
            malformed: counts.malformed,
            table_full: counts.table_full,
            other_version: counts.other_version,
            their_version: counts.their_version,
        }
    }
}

/// A helper at a moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JoinSnapshot {
    /// Seconds since it began.
    pub seconds: f64,
    /// Connections that multicast reaches.
    pub connections: usize,
    /// Multicast segments that came.
    pub segments: u64,
    /// Segments handed to connections.
    pub delivered: u64,
    /// Segments for which there is no connection here.
    pub not_enrolled: u64,
    /// Segments not handed to a connection that had their data.
    pub already_held: u64,
    /// Segments not handed to a connection that was being opened or closed.
    pub not_ready: u64,
    /// Packets that are no whole TCP segments.
    pub malformed: u64,
    /// Connections for which there was no room.
    pub table_full: u64,
    /// Segments of the server that are for helpers of another version.
    pub other_version: u64,
    /// The version of the last of these.
    pub their_version: u8,
}

/// End of the helper's work: a time, a command, or an interruption.
#[derive(Clone, Debug, Default)]
pub struct Meanwhile {
    /// Time after which it ends; without one it ends when it is interrupted.
    pub time: Option<Duration>,
    /// A program to run, and its arguments. The helper ends with it.
    pub command: Vec<OsString>,
}

/// A helper that has begun.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The server and its channel.
    pub target: Target,
    /// Name of the interface.
    pub interface: String,
    /// Way by which segments reach the connections.
    pub way: Way,
    /// Reason why it is not eBPF, if that was tried.
    pub instead_of_ebpf: Option<String>,
}

/// Receives news of a helper.
pub trait JoinObserver: Send + Sync {
    /// Called when the helper is at work.
    fn joined(&self, _joined: &Joined) {}

    /// Reports progress, once a second.
    fn progress(&self, _snapshot: &JoinSnapshot) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}
}

/// Result of a helper.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JoinSummary {
    /// The last counters.
    #[serde(flatten)]
    pub snapshot: JoinSnapshot,
    /// Exit code of the user's program, or 128 and the number of the signal that ended it.
    pub exit_code: Option<i32>,
}

/// Helps until it is interrupted, the time is over, or the user's program ends.
///
/// # Errors
///
/// If the helper or the program cannot start, or the helper fails.
pub fn join(
    options: &HelperOptions,
    meanwhile: &Meanwhile,
    observer: &Arc<dyn JoinObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<JoinSummary> {
    let (interrupted, interrupts) = crossbeam_channel::bounded(1);
    started(Interrupt::new(move || {
        let _ = interrupted.try_send(());
    }));
    let helper = Helper::start(options)?;
    observer.joined(&Joined {
        target: options.target,
        interface: helper.interface.clone(),
        way: helper.way(),
        instead_of_ebpf: helper.delivery.instead_of_ebpf().map(str::to_owned),
    });
    let mut program = match meanwhile.command.split_first() {
        None => None,
        Some((program, arguments)) => {
            let started = Command::new(program).args(arguments).spawn();
            Some(started.with_context(|| format!("cannot run `{}`", program.display()))?)
        }
    };
    let began = Instant::now();
    let until = meanwhile.time.and_then(|time| began.checked_add(time));
    let mut next_report = began;
    let (mut advised, mut told_version) = (false, false);
    let exit_code = loop {
        let now = Instant::now();
        if let Some(status) = program.as_mut().map(Child::try_wait).transpose()?.flatten() {
            break Some(exit_code(status));
        }
        if let Some(failure) = helper.failure() {
            bail!("{failure}; connections go on by unicast");
        }
        if now >= next_report {
            next_report = now + TICK;
            let snapshot = helper.snapshot(began);
            observer.progress(&snapshot);
            if !told_version && snapshot.other_version > 0 {
                told_version = true;
                observer.note(&format!(
                    "the server speaks version {} of what puts connections on a channel, this \
                     helper version {}: connections here get unicast; use the same release of umbel \
                     on both sides",
                    snapshot.their_version,
                    Membership::VERSION
                ));
            }
            if !advised && let Some(advice) = helper.delivery.advice() {
                advised = true;
                observer.note(&advice);
            }
        }
        let wake = if program.is_some() { now + LOOK } else { next_report };
        let wake = until.map_or(wake, |until| until.min(wake));
        if until.is_some_and(|until| until <= now) || interrupts.recv_deadline(wake).is_ok() {
            // A program goes on by unicast. Ctrl-C on a terminal reaches it, too.
            break None;
        }
    };
    Ok(JoinSummary { snapshot: helper.snapshot(began), exit_code })
}

fn exit_code(status: ExitStatus) -> i32 {
    let signal = status.signal().unwrap_or_default();
    status.code().unwrap_or(128 + signal)
}
