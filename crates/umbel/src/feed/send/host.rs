//! What the source's engine tells, and what is done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Time};

use bytes::Bytes;
use umbel_engine::tmtp::{
    NodeId, Source, SourceCommand, SourceCommandError, SourceEvent, SourceStats,
};
use umbel_engine::{Engine, Instant, SessionId};
use umbel_net::driver::{Host, Io, Mailbox};
use umbel_store::feed::FeedSource;
use umbel_wire::tmtp::{ReceiverReport, ReceiverState};

use super::content::Plan;
use super::{ReceiverLine, SendObserver, SendSnapshot, SendSummary, WaitFor};

/// How long the end is told, at most.
const CLOSE: Duration = Duration::from_secs(5);
/// How long the last words of receivers may take to come up the tree once all is acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What receivers are told when the user ends the feed.
const INTERRUPTED: &str = "the sender was interrupted";
/// What is said of a receiver that is not on a list with keys.
const NOT_ADMITTED: &str = "not admitted";

/// How far the feed is; see the page of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sending,
    Complete(Time),
    Closing(Time),
    Closed,
}

/// Receivers that should have the feed.
#[derive(Debug)]
pub(super) struct Expected {
    /// What they call themselves.
    pub(super) names: BTreeSet<String>,
    /// Nobody else can read it.
    pub(super) alone: bool,
}

impl Expected {
    fn admits(&self, name: &str) -> bool {
        !self.alone || self.names.contains(name)
    }
}

/// What was heard of a receiver.
struct Heard {
    /// Counts receivers in the order in which they were first heard of.
    since: usize,
    report: ReceiverReport,
}

/// The source's engine.
type SourceEngine = Source<FeedSource>;

/// The source around its engine.
pub(super) struct SendHost {
    plan: Plan,
    observer: Arc<dyn SendObserver>,
    interrupted: Arc<AtomicBool>,
    wait_for: WaitFor,
    linger: Duration,
    expected: Expected,
    mailbox: Mailbox<SourceCommand>,
    stage: Stage,
    created: Time,
    /// When sending began and ended.
    sent: Option<(Time, Option<Time>)>,
    finished: bool,
    receivers: BTreeMap<NodeId, Heard>,
    failure: Option<String>,
    stats: SourceStats,
    drops: String,
    told_trouble: bool,
}

impl SendHost {
    pub(super) fn new(
        plan: Plan,
        observer: Arc<dyn SendObserver>,
        interrupted: Arc<AtomicBool>,
        (wait_for, linger): (WaitFor, Duration),
        expected: Expected,
        mailbox: Mailbox<SourceCommand>,
    ) -> SendHost {
        SendHost {
            plan,
            observer,
            interrupted,
            wait_for,
            linger,
            expected,
            mailbox,
            stage: Stage::Waiting,
            created: Time::now(),
            sent: None,
            finished: false,
            receivers: BTreeMap::new(),
            failure: None,
            stats: SourceStats::default(),
            drops: String::new(),
            told_trouble: false,
        }
    }

    /// What came of it all.
    pub(super) fn finish(self) -> SendSummary {
        let seconds = self.sent.map_or(0.0, |(start, end)| {
            end.unwrap_or_else(Time::now).duration_since(start).as_secs_f64()
        });
        let mut receivers: Vec<ReceiverLine> =
            self.heard().map(|heard| line(&heard.report)).collect();
        let came: BTreeSet<String> =
            receivers.iter().map(|receiver| receiver.name.clone()).collect();
        for receiver in &mut receivers {
            if !self.expected.admits(&receiver.name) {
                (receiver.state, receiver.reason) = (NOT_ADMITTED, None);
            }
        }
        for name in &self.expected.names {
            if !came.contains(name) {
                let (name, node) = (name.clone(), String::new());
                receivers.push(ReceiverLine { name, node, state: "missing", reason: None });
            }
        }
        for receiver in receivers.iter_mut().filter(|receiver| receiver.state == "receiving") {
            receiver.state = "vanished";
        }
        let named = receivers.iter().filter(|receiver| receiver.state == "done").count() as u32;
        // A report that was lost on the way counts in the totals all the same.
        let done = named.max(self.stats.totals.done);
        let without = |receiver: &&ReceiverLine| !["done", NOT_ADMITTED].contains(&receiver.state);
        let without = receivers.iter().filter(without).count() as u32;
        SendSummary {
            items: if let Plan::Files(files) = &self.plan { files.items } else { 0 },
            bytes: self.plan.bytes(),
            seconds,
            done,
            without,
            receivers,
            packets: self.stats.data_sent,
            repairs: self.stats.repairs_sent,
            fetched: self.stats.fetched_sent,
            evicted: self.stats.evicted,
            load: self.stats.load.total(),
            drops: self.drops,
            failure: self.failure.or_else(|| self.plan.failure()),
            interrupted: self.interrupted.load(Ordering::Acquire),
        }
    }

    fn command(&mut self, now: Instant, engine: &mut SourceEngine, command: SourceCommand) {
        if let Err(error) = engine.handle_command(now, command) {
            Host::<SourceEngine>::refused(self, error);
        }
    }

    /// Does what the time, the tree or the user ask for.
    fn advance(&mut self, now: Instant, engine: &mut SourceEngine) {
        self.stats = engine.stats();
        let interrupted = self.interrupted.load(Ordering::Acquire);
        match self.stage {
            Stage::Waiting | Stage::Sending if interrupted => {
                self.failure.get_or_insert_with(|| INTERRUPTED.to_owned());
                if !self.finished {
                    let failed = Some(INTERRUPTED.to_owned());
                    self.command(now, engine, SourceCommand::Finish { failed });
                }
                self.close(now, engine);
            }
            Stage::Waiting if self.enough() => self.begin(now, engine),
            Stage::Complete(at) if interrupted || self.may_close(at) => self.close(now, engine),
            // Nobody has to be told twice for ever.
            Stage::Closing(at) if at.elapsed() >= CLOSE => self.stage = Stage::Closed,
            _ => {}
        }
    }

    /// Whether late receivers have been waited for, and those that are known have had their last
    /// words, which may come later than their acknowledgements.
    fn may_close(&self, complete: Time) -> bool {
        let spoken = self.heard().all(|heard| heard.report.state != ReceiverState::Receiving);
        complete.elapsed() >= self.linger && (spoken || complete.elapsed() >= LAST_WORDS)
    }

    /// What was heard of each receiver, without those that died and were started again.
    fn heard(&self) -> impl Iterator<Item = &Heard> {
        self.receivers.values().filter(|heard| {
            let again =
                |other: &Heard| other.report.name == heard.report.name && other.since > heard.since;
            heard.report.state != ReceiverState::Receiving || !self.receivers.values().any(again)
        })
    }

    fn enough(&self) -> bool {
        match self.wait_for {
            // Those that are not admitted soon leave.
            WaitFor::Receivers(count) if self.expected.alone => {
                let here = |heard: &&Heard| {
                    self.expected.admits(&heard.report.name)
                        && heard.report.state == ReceiverState::Receiving
                };
                self.heard().filter(here).count() >= count as usize
            }
            WaitFor::Receivers(count) => self.stats.totals.members >= count,
            WaitFor::Time(time) => self.created.elapsed() >= time,
        }
    }

    fn begin(&mut self, now: Instant, engine: &mut SourceEngine) {
        self.stage = Stage::Sending;
        self.sent = Some((Time::now(), None));
        match &mut self.plan {
            Plan::Files(files) => {
                let (_, rest) = files.split();
                self.finished = true;
                self.command(now, engine, SourceCommand::Extend(rest));
                self.command(now, engine, SourceCommand::Finish { failed: None });
            }
            Plan::Pipe(pipe) => {
                if let Err(error) = pipe.start(self.mailbox.clone()) {
                    let failed = Some(format!("no thread to read the input: {error}"));
                    self.failure.clone_from(&failed);
                    self.command(now, engine, SourceCommand::Finish { failed });
                }
            }
        }
    }

    fn close(&mut self, now: Instant, engine: &mut SourceEngine) {
        self.stage = Stage::Closing(Time::now());
        self.command(now, engine, SourceCommand::Close);
    }

    fn snapshot(&self, io: &Io) -> SendSnapshot {
        let (bytes, totals) = (self.plan.bytes(), self.stats.totals);
        let acknowledged = self.stats.acknowledged.min(self.stats.blocks_sent);
        let blocks = match &self.plan {
            Plan::Files(files) => files.blocks,
            Plan::Pipe(_) => self.stats.blocks_sent,
        };
        let part = u128::from(bytes) * u128::from(acknowledged) / u128::from(blocks.max(1));
        SendSnapshot {
            stage: match self.stage {
                Stage::Waiting => "waiting",
                Stage::Sending => "sending",
                Stage::Complete(_) => "complete",
                Stage::Closing(_) | Stage::Closed => "closing",
            },
            bytes_done: part as u64,
            bytes,
            receivers: totals.members,
            done: totals.done,
            failed: totals.failed,
            rate_bits_per_s: io
                .sender
                .as_ref()
                .and_then(|(_, pacer)| pacer.rate())
                .map_or(0, umbel_engine::units::Rate::bits_per_s),
            stalls: self.stats.stalls,
            trouble: io.transient_error.as_ref().map(ToString::to_string),
        }
    }
}

/// A receiver as its user sees it.
fn line(report: &ReceiverReport) -> ReceiverLine {
    let (state, reason) = match &report.state {
        ReceiverState::Receiving => ("receiving", None),
        ReceiverState::Done => ("done", None),
        ReceiverState::Failed(reason) => ("failed", Some(reason.clone())),
        ReceiverState::Left => ("left", None),
    };
    let node = format!("{:016x}", report.node.0);
    ReceiverLine { name: report.name.clone(), node, state, reason }
}

impl Host<SourceEngine> for SendHost {
    fn post(&mut self, _session: SessionId, _message: Bytes) {}

    fn event(&mut self, now: Instant, engine: &mut SourceEngine, io: &mut Io, event: SourceEvent) {
        match event {
            SourceEvent::Acknowledged { below } => {
                if let Plan::Pipe(pipe) = &self.plan {
                    pipe.keeper.forget(below.saturating_sub(pipe.history));
                }
            }
            SourceEvent::Rate(rate) => {
                if let Some((_, pacer)) = &mut io.sender {
                    pacer.set_rate(Some(rate), now);
                }
            }
            SourceEvent::Totals(_) => self.advance(now, engine),
            SourceEvent::Report(report) => {
                let known = self.receivers.get(&report.node);
                if known.is_none_or(|known| known.report.state != report.state) {
                    self.observer.receiver(&line(&report));
                }
                let news = known.is_none();
                let since = known.map_or(self.receivers.len(), |known| known.since);
                if news && self.expected.alone && !self.expected.admits(&report.name) {
                    self.observer.note(&format!(
                        "`{}` is no name on the list, and is not waited for: if its key is there, it needs \
                         `recv --as` with its name",
                        report.name
                    ));
                }
                self.receivers.insert(report.node, Heard { since, report });
            }
            SourceEvent::Tree(_) => {}
            SourceEvent::Evicted(node) => {
                let known = self.receivers.get(&node).map(|heard| heard.report.name.clone());
                let name = known.unwrap_or_else(|| format!("node {:016x}", node.0));
                self.observer.note(&format!("{name} is too slow: the feed goes on without it"));
            }
            SourceEvent::Complete => {
                if self.stage == Stage::Sending {
                    self.stage = Stage::Complete(Time::now());
                    self.sent = self.sent.map(|(start, _)| (start, Some(Time::now())));
                }
                self.advance(now, engine);
            }
            SourceEvent::Gone(reason) => {
                self.observer.note(&format!("the feed ends here: {reason}"));
                self.failure.get_or_insert(reason);
            }
            SourceEvent::Rival(address) => {
                self.observer.note(&format!("another source, {address}, uses this feed's groups"));
            }
            SourceEvent::Closed => self.stage = Stage::Closed,
        }
    }

    fn woken(&mut self, now: Instant, engine: &mut SourceEngine, _io: &mut Io) {
        self.advance(now, engine);
    }

    fn tick(&mut self, now: Instant, engine: &mut SourceEngine, io: &mut Io) {
        self.advance(now, engine);
        self.drops = engine.drops().to_string();
        let snapshot = self.snapshot(io);
        if let Some(trouble) = snapshot.trouble.as_ref().filter(|_| !self.told_trouble) {
            self.told_trouble = true;
            self.observer.note(&format!("packets do not leave: {trouble}"));
        }
        self.observer.progress(&snapshot);
    }

    fn refused(&mut self, error: SourceCommandError) {
        tracing::debug!("the source refuses: {error}");
    }

    fn goes_on(&self) -> bool {
        self.stage != Stage::Closed
    }
}
