//! Connects the engine with the desk, and reports.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use serde::Serialize;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::smo::{
    ChildId, ChildReport, MasterId, Source, SourceCommand, SourceConfig, SourceEvent,
};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, RateClass};

use super::super::report::{self, Account, RateMeter, Report, Traffic};
use super::acks::Acks;
use super::desk::{Desk, Rules};
use super::library::{Library, News};

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Message for the user when a stream is interrupted.
const GAP: &str = "the server further up cut this relay off; it goes on where the stream is now, and \
                   its receivers are cut off, too";

/// Input of a server's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// An answer of the library.
    News(News),
    /// A question about the server's state.
    Status(Sender<Report>),
    /// The user ends the server.
    Interrupt,
}

/// Receives news of a server. It is called on the engine's thread and must not block.
pub trait ServeObserver: Send + Sync {
    /// Called when the server listens.
    fn serving(&self, _serving: &super::Serving) {}

    /// Reports progress, about ten times a second.
    fn progress(&self, _report: &Report) {}

    /// Called when a connection ended, in order or not.
    fn ended(&self, _account: &Account) {}

    /// Called when a receiver was cut off.
    fn removed(&self, _peer: &str, _reason: &'static str) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}
}

/// Result of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServeSummary {
    /// Seconds for which it ran.
    pub seconds: f64,
    /// Responses, or receivers of the file or pipe.
    pub answers: u64,
    /// Of these, those that shared a stream.
    pub together: u64,
    /// Connections that ended before their time.
    pub removed: u64,
    /// Connections that were being opened at the end.
    pub half_open: usize,
    /// Bytes and segments.
    pub traffic: Traffic,
    /// Input discarded, by reason.
    pub drops: String,
    /// Acknowledgements that were dropped before they were taken.
    pub filtered: u64,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// The host of a server.
pub(crate) struct ServeHost<L> {
    desk: Desk<L>,
    rules: Rules,
    observer: Arc<dyn ServeObserver>,
    acks: Acks,
    /// Highest rate of first transmissions.
    rate: Option<Rate>,
    /// Whether it goes on after everyone is served.
    keep: bool,
    started: Instant,
    next_report: Instant,
    meter: RateMeter,
    report: Report,
    removed: u64,
    /// Segments that came faster than they were taken.
    overruns: u64,
    told_trouble: bool,
    interrupted: bool,
    /// Whether the accounts of all connections are told.
    is_stopping: bool,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl<L: Library> ServeHost<L> {
    /// Creates the host of a server whose engine has this configuration. `report` names its
    /// addresses.
    pub(crate) fn new(
        library: L,
        rules: Rules,
        config: &SourceConfig,
        report: Report,
        observer: Arc<dyn ServeObserver>,
    ) -> ServeHost<L> {
        ServeHost {
            desk: Desk::new(library, rules, config.channel, config.buffer),
            rules,
            acks: Acks::All(String::new()),
            observer,
            rate: None,
            keep: matches!(rules, Rules::Web { .. }),
            started: Instant::EPOCH,
            next_report: Instant::EPOCH,
            meter: RateMeter::default(),
            report,
            removed: 0,
            overruns: 0,
            told_trouble: false,
            interrupted: false,
            is_stopping: false,
        }
    }

    /// Has acknowledgements dropped that the engine does not want.
    #[must_use]
    pub(crate) fn acks(mut self, acks: Acks) -> ServeHost<L> {
        self.report.ack_filter = acks.way();
        self.acks = acks;
        self
    }

    /// Sets the highest rate of first transmissions.
    #[must_use]
    pub(crate) fn rate(mut self, rate: Option<Rate>) -> ServeHost<L> {
        self.rate = rate;
        self
    }

    /// Returns the numbers of what was discarded, by reason.
    fn drops(&self, engine: &Source) -> String {
        let overruns = (self.overruns > 0).then(|| format!("Overrun {}", self.overruns));
        let all = std::iter::once(engine.drops().to_string()).chain(overruns);
        all.filter(|drop| !drop.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Makes a server of a file go on after everyone is served.
    #[must_use]
    pub(crate) fn keep(mut self, keep: bool) -> ServeHost<L> {
        self.keep |= keep;
        self
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> ServeSummary {
        ServeSummary {
            seconds: self.report.seconds,
            answers: self.desk.answers,
            together: self.desk.together,
            removed: self.removed,
            half_open: self.report.half_open,
            traffic: self.report.traffic,
            drops: self.report.drops.clone(),
            filtered: self.report.filtered,
            interrupted: self.interrupted,
        }
    }

    /// Brings the report up to date. Names receivers only if somebody looks.
    fn look(&mut self, io: &mut Machine<'_>, named: bool) {
        let at = io.now() - self.started;
        let engine: &Source = io.engine();
        let drops = self.drops(engine);
        let traffic = Traffic::from(&engine.stats());
        self.meter.measure(at, traffic.multicast_bytes + traffic.unicast_bytes);
        let (mut receivers, mut hearing) = (0, 0);
        for child in engine.children() {
            receivers += 1;
            hearing += usize::from(child.hears);
        }
        let report = &mut self.report;
        report.drops = drops;
        report.filtered = self.acks.dropped();
        (report.receivers, report.hearing, report.traffic) = (receivers, hearing, traffic);
        report.half_open = engine.half_open();
        report.seconds = at.as_secs_f64();
        report.streams = self.desk.streams();
        report.rate_bits_per_s = self.meter.bits_per_s();
        report.slowest = if named { report::slowest(engine) } else { Vec::new() };
        report.by_stream = if named { report::by_stream(engine) } else { Vec::new() };
    }

    fn gone(&mut self, io: &mut Machine<'_>, child: ChildId) -> Option<String> {
        let peer = self.desk.gone(io, child)?;
        if !self.keep && matches!(self.rules, Rules::File(_)) && self.desk.is_done() {
            self.stop(io);
        }
        Some(peer.to_string())
    }

    /// Reports the account of a connection that ends.
    fn account(&self, io: &Machine<'_>, child: &ChildReport, reason: &'static str) {
        if !self.is_stopping {
            self.observer.ended(&Account::new(child, reason, io.now()));
        }
    }

    /// Reports the accounts of connections that are open when the server ends.
    fn account_for_open(&mut self, io: &mut Machine<'_>) {
        let open: Vec<_> = io.engine().children().collect();
        for child in &open {
            self.account(io, child, Account::SERVER_ENDS);
        }
        self.is_stopping = true;
    }

    fn stop(&mut self, io: &mut Machine<'_>) {
        self.account_for_open(io);
        self.look(io, false);
        io.stop();
    }
}

impl<L: Library> Host<Source> for ServeHost<L> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        self.started = io.now();
        self.next_report = io.now() + TICK;
        io.set_pace(RateClass::Data, self.rate);
        self.set_alarm(io);
    }

    fn event(&mut self, io: &mut Machine<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Connected { child, peer, .. } => {
                self.desk.connected(io, child, peer);
                // Something may have to begin before the next report.
                self.set_alarm(io);
            }
            SourceEvent::Received { child, bytes } => {
                self.desk.received(io, child, &bytes);
                self.set_alarm(io);
            }
            SourceEvent::ReceivedEnd { child } => self.desk.received_end(io, child),
            SourceEvent::Writable { to, .. } => self.desk.writable(io, to),
            SourceEvent::Drained { master } => {
                self.desk.drained(master);
                if matches!(self.rules, Rules::Live(_)) && master == MasterId::FIRST {
                    self.stop(io);
                }
            }
            SourceEvent::Closed { child, report } => {
                self.account(io, &report, Account::FINISHED);
                self.gone(io, child);
            }
            SourceEvent::Removed { child, reason, report } => {
                self.account(io, &report, report::reason(reason));
                self.removed += 1;
                if report.master.is_some() {
                    self.desk.parted.note(io.now(), report.peer.ip(), reason);
                }
                if let Some(peer) = self.gone(io, child) {
                    self.observer.removed(&peer, report::reason(reason));
                }
            }
            SourceEvent::Pace { rate, burst } => {
                let rate = self.rate.map_or(rate, |most| most.min(rate));
                io.set_burst(RateClass::Data, burst);
                io.set_pace(RateClass::Data, Some(rate));
            }
            SourceEvent::AckFilter(change) => self.acks.apply(change),
        }
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        match input {
            Input::News(news) => {
                if matches!(news, News::Gap { .. }) {
                    self.observer.note(GAP);
                }
                self.desk.news(io, news);
                self.set_alarm(io);
            }
            Input::Status(answer) => {
                self.look(io, true);
                let _ = answer.send(self.report.clone());
            }
            Input::Interrupt => {
                self.interrupted = true;
                self.account_for_open(io);
                let children: Vec<_> = io.engine().children().map(|child| child.child).collect();
                for child in children {
                    let _ = io.command(SourceCommand::Abort { child });
                }
                self.stop(io);
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        self.desk.wake(io);
        if io.now() >= self.next_report {
            self.next_report = io.now() + TICK;
            self.look(io, false);
            self.observer.progress(&self.report);
        }
        if let Some(trouble) = self.report.trouble.as_ref().filter(|_| !self.told_trouble) {
            self.told_trouble = true;
            self.observer.note(&format!("segments do not leave: {trouble}"));
        }
        self.set_alarm(io);
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                self.report.trouble = Some(reason);
            }
            // Of ACKs, later ones say the same.
            Trouble::Overrun { datagrams } => self.overruns += datagrams,
        }
    }
}

impl<L: Library> ServeHost<L> {
    /// Sets the timer for the next report, or for what has to begin before it.
    fn set_alarm(&mut self, io: &mut Machine<'_>) {
        let due = self.desk.next().unwrap_or(self.next_report);
        io.wake_at(Some(due.min(self.next_report)));
    }
}
