//! Handles the events of the source's engine.

mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::symbols::SymbolSource;
use umbel_engine::tmtp::{BlockCount, NodeId, Source, SourceCommand, SourceEvent, SourceStats};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, RateClass};
use umbel_wire::tmtp::{ReceiverReport, ReceiverState, Totals};

use super::{SendObserver, WaitFor};
use crate::feed::admission::Receipts;

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Longest time for which the end is repeated.
const CLOSE: Duration = Duration::from_secs(5);
/// Time that the last reports of receivers may take to come up the tree once all is acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Time that a late receiver may remain without progress: twice the longest wait of a FETCH.
const LATE_WORDS: Duration = Duration::from_secs(10);
/// Time that the source waits for further receivers when all that came have everything.
const IDLE: Duration = Duration::from_secs(3);
/// The same if one of them was in the tree and never spoke: it may have lost its place, and be on
/// its way back.
const ABSENT: Duration = Duration::from_secs(10);
/// Silence of all receivers after which the source waits for none to come back: by then they have
/// given it up, too, unless their users want them to have more patience.
const DESERTED: Duration = Duration::from_secs(30);
/// Most receivers with narrow paths that are waited for at the end.
const MOST_ASIDE: usize = 1 << 12;
/// Reason that receivers are told when none of them was left.
const NOBODY: &str = "no receiver was left: nothing was heard of any for 30 s";
/// Reason that receivers are told when the user ends the feed.
const INTERRUPTED: &str = "the sender was interrupted";
/// State of a receiver that is not on a list with keys.
const NOT_ADMITTED: &str = "not admitted";

/// Input of the source's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// Blocks of a pipe, its end, or symbols that are ready.
    Command(SourceCommand),
    /// The user interrupts the feed.
    Interrupt,
    /// The user waits for nobody else.
    Begin,
}

/// Content of a feed.
pub(crate) trait Content {
    /// The source of the engine's symbols.
    type Symbols: SymbolSource;

    /// Returns the number of files; 0 for a pipe.
    fn files(&self) -> u64;

    /// Returns the bytes known so far.
    fn bytes(&self) -> u64;

    /// Returns the bytes of the content, without what comes before it, in the blocks below this
    /// one, of `sent` blocks so far; approximately.
    fn bytes_below(&self, block: u32, sent: u32) -> u64;

    /// Returns the blocks that come before the content: the list of files, or the head of a sealed
    /// pipe.
    fn head_blocks(&self) -> Vec<BlockCount>;

    /// Begins. Returns the blocks of the content, or `None` if they come as input.
    ///
    /// # Errors
    ///
    /// One line that says why the content cannot be read.
    fn begin(&mut self) -> Result<Option<Vec<BlockCount>>, String>;

    /// Notes that everyone has acknowledged the blocks below this one.
    fn acknowledged(&mut self, below: u32);

    /// Returns why the content could not be read to its end, if so.
    fn failure(&self) -> Option<String>;
}

/// Stage of the feed; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sending,
    Complete(Instant),
    Closing(Instant),
    Closed,
}

/// Receivers that should have the feed.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Names by which the receivers report.
    pub(crate) names: BTreeSet<String>,
    /// Whether they alone can read the feed.
    pub(crate) alone: bool,
    /// Proof that one of them is done.
    pub(crate) receipts: Receipts,
}

impl Expected {
    fn admits(&self, name: &str) -> bool {
        !self.alone || self.names.contains(name)
    }
}

/// A receiver and its last report.
struct Heard {
    /// Number of the receiver, in the order in which receivers were first heard.
    since: usize,
    report: ReceiverReport,
}

/// The host's access to its machine.
type Machine<'a, C> = dyn Io<Source<<C as Content>::Symbols>> + 'a;

/// Sends a command; a refusal of it changes nothing.
fn tell<S: SymbolSource>(io: &mut dyn Io<Source<S>>, command: SourceCommand) {
    if let Err(error) = io.command(command) {
        tracing::debug!("the source refuses: {error}");
    }
}

/// Rules by which a feed begins and ends.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) wait_for: WaitFor,
    pub(crate) linger: Duration,
    pub(crate) expected: Expected,
}

/// The source around its engine.
pub(crate) struct SendHost<C> {
    content: C,
    observer: Arc<dyn SendObserver>,
    terms: Terms,
    interrupted: bool,
    stage: Stage,
    created: Instant,
    /// Times at which sending began and ended.
    sent: Option<(Instant, Option<Instant>)>,
    /// Time of the host's last turn.
    last: Instant,
    /// Time of the receivers' last progress, and the packets sent and receivers finished by then.
    progress: (Instant, (u64, u64)),
    finished: bool,
    /// Time since which all receivers that came have everything, though not all of it was sent.
    idle: Option<Instant>,
    receivers: BTreeMap<NodeId, Heard>,
    /// Receivers whose paths carry too little for the channel. They fetch what they lack, and are
    /// waited for while the source has something to send.
    aside: BTreeSet<NodeId>,
    /// Receivers that multicast does not reach, by the last word.
    by_unicast: BTreeSet<NodeId>,
    /// Most receivers that were in the tree at a time.
    most: u32,
    /// Names on a list with keys that came. Nobody else's word takes one away.
    came: BTreeSet<String>,
    failure: Option<String>,
    stats: SourceStats,
    /// The rate that the engine has found.
    rate: Rate,
    drops: String,
    /// Reason why packets cannot leave, if they cannot.
    trouble: Option<String>,
    told_trouble: bool,
}

impl<C: Content> SendHost<C> {
    pub(crate) fn new(
        content: C,
        observer: Arc<dyn SendObserver>,
        terms: Terms,
        rate: Rate,
    ) -> SendHost<C> {
        SendHost {
            content,
            observer,
            terms,
            interrupted: false,
            stage: Stage::Waiting,
            created: Instant::EPOCH,
            sent: None,
            last: Instant::EPOCH,
            progress: (Instant::EPOCH, (0, 0)),
            finished: false,
            idle: None,
            receivers: BTreeMap::new(),
            aside: BTreeSet::new(),
            by_unicast: BTreeSet::new(),
            most: 0,
            came: BTreeSet::new(),
            failure: None,
            stats: SourceStats::default(),
            rate,
            drops: String::new(),
            trouble: None,
            told_trouble: false,
        }
    }

    /// Advances the stage when a deadline has passed, the tree has finished or the user interrupts.
    fn advance(&mut self, io: &mut Machine<'_, C>) {
        let now = io.now();
        self.last = now;
        self.stats = io.engine().stats();
        let silence = io.engine().heard_at().map(|at| now - at);
        self.most = self.most.max(self.stats.totals.members);
        self.note_progress(now);
        self.pause_if_idle(io);
        match self.stage {
            Stage::Waiting | Stage::Sending if self.interrupted => self.give_up(io, INTERRUPTED),
            Stage::Waiting if self.enough(now) => self.begin(io),
            Stage::Sending if self.idle.is_some_and(|since| now - since >= self.idle_wait()) => {
                self.complete(now);
            }
            Stage::Sending if self.all_listed_have_it() => self.complete(now),
            Stage::Sending if self.is_deserted(silence) => self.give_up(io, NOBODY),
            Stage::Complete(at) if self.interrupted || self.may_close(now, at) => self.close(io),
            // The end is not repeated forever.
            Stage::Closing(at) if now - at >= CLOSE => self.stage = Stage::Closed,
            _ => {}
        }
        if self.stage == Stage::Closed {
            io.stop();
        }
    }

    /// Ends the feed before all of it was sent.
    fn give_up(&mut self, io: &mut Machine<'_, C>, reason: &str) {
        self.failure.get_or_insert_with(|| reason.to_owned());
        if !self.finished {
            tell(io, SourceCommand::Finish { failed: Some(reason.to_owned()) });
        }
        self.close(io);
    }

    /// Returns whether all receivers that came have gone without a word, none is still expected,
    /// and nothing was heard since. Without reports the rate falls further and further, so that the
    /// rest would be sent to nobody for hours.
    fn is_deserted(&self, silence: Option<Duration>) -> bool {
        let has_come = |name: &String| self.heard().any(|heard| heard.report.name == *name);
        self.most > 0
            && self.stats.totals.members == 0
            && silence.is_some_and(|silence| silence >= DESERTED)
            && self.terms.expected.names.iter().all(has_come)
    }

    /// Pauses first transmissions while all receivers that came have all files. Resumes when a
    /// receiver comes that misses something.
    fn pause_if_idle(&mut self, io: &mut Machine<'_, C>) {
        let files = self.content.files() > 0;
        let sends = matches!(self.stage, Stage::Sending | Stage::Complete(_));
        let idle = files && sends && self.nobody_lacks();
        if idle != self.idle.is_some() {
            self.idle = idle.then(|| io.now());
            tell(io, SourceCommand::Pause(idle));
        }
    }

    /// Returns whether some receiver is done, and none that is in the tree or expected is
    /// incomplete.
    fn nobody_lacks(&self) -> bool {
        let Totals { members, done, failed, .. } = self.stats.totals;
        let (mut any, mut missing) = (false, self.terms.expected.names.clone());
        for heard in self.heard() {
            match heard.report.state {
                ReceiverState::Receiving => return false,
                ReceiverState::Done => any = true,
                ReceiverState::Failed(_) | ReceiverState::Left => {}
            }
            missing.remove(&heard.report.name);
        }
        any && self.aside.is_empty() && missing.is_empty() && done.saturating_add(failed) >= members
    }

    /// Returns how long the source waits for further receivers.
    fn idle_wait(&self) -> Duration {
        if self.receivers.len() < self.most as usize { ABSENT } else { IDLE }
    }

    fn complete(&mut self, now: Instant) {
        self.stage = Stage::Complete(now);
        self.sent = self.sent.map(|(start, _)| (start, Some(now)));
    }

    /// Returns whether the time for late receivers is over, and the known receivers have reported
    /// their end, which may come later than their acknowledgements. A late receiver that still
    /// makes progress is not cut off.
    fn may_close(&self, now: Instant, complete: Instant) -> bool {
        let spoken = self.stats.totals.is_settled()
            && self.aside.is_empty()
            && self.heard().all(|heard| heard.report.state != ReceiverState::Receiving);
        let (last, _) = self.progress;
        let is_late = last > complete || !self.aside.is_empty();
        let given_up =
            if is_late { last.max(complete) + LATE_WORDS } else { complete + LAST_WORDS };
        let enough = spoken || self.all_listed_have_it() || now >= given_up;
        now - complete >= self.terms.linger && enough
    }

    /// Returns whether each name on a list with keys is done by proof. Nobody else is waited for,
    /// so that strangers in the tree do not hold up the end.
    fn all_listed_have_it(&self) -> bool {
        let Expected { names, receipts, .. } = &self.terms.expected;
        let is_done = |name: &String| {
            self.receivers.values().any(|heard| {
                heard.report.state == ReceiverState::Done && heard.report.name == *name
            })
        };
        receipts.has_owners() && names.iter().all(is_done)
    }

    /// Notes progress of the receivers.
    fn note_progress(&mut self, now: Instant) {
        let stats = &self.stats;
        let served = stats.data_sent + stats.fetched_sent + stats.repairs_sent;
        let mark = (served, u64::from(stats.totals.done) + u64::from(stats.totals.failed));
        if mark != self.progress.1 {
            self.progress = (now, mark);
        }
    }

    fn enough(&self, now: Instant) -> bool {
        let wait_for = self.terms.wait_for;
        wait_for.longest().is_some_and(|longest| now - self.created >= longest)
            || wait_for.receivers().is_some_and(|count| self.are_there(count))
    }

    /// Returns whether so many receivers are there.
    fn are_there(&self, count: u32) -> bool {
        if self.terms.expected.alone {
            // Receivers that are not admitted leave soon.
            return self.came.len() >= count as usize;
        }
        // Receivers that already had everything may have left.
        let count_of =
            |state: ReceiverState| self.heard().filter(|heard| heard.report.state == state).count();
        let had = count_of(ReceiverState::Done);
        self.stats.totals.members >= count
            || had > 0 && had + count_of(ReceiverState::Receiving) >= count as usize
    }

    fn begin(&mut self, io: &mut Machine<'_, C>) {
        self.stage = Stage::Sending;
        self.sent = Some((io.now(), None));
        match self.content.begin() {
            Ok(Some(blocks)) => {
                self.finished = true;
                tell(io, SourceCommand::Extend(blocks));
                tell(io, SourceCommand::Finish { failed: None });
            }
            Ok(None) => {}
            Err(reason) => {
                self.failure = Some(reason.clone());
                tell(io, SourceCommand::Finish { failed: Some(reason) });
            }
        }
    }

    fn close(&mut self, io: &mut Machine<'_, C>) {
        self.stage = Stage::Closing(io.now());
        tell(io, SourceCommand::Close);
    }
}

impl<C: Content> Host<Source<C::Symbols>> for SendHost<C> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_, C>) {
        self.created = io.now();
        self.last = io.now();
        io.wake_at(Some(io.now()));
        tell(io, SourceCommand::Start);
        // While the source waits, receivers look at their disks, or learn that they are not
        // admitted.
        let head = self.content.head_blocks();
        tell(io, SourceCommand::Extend(head));
    }

    fn input(&mut self, io: &mut Machine<'_, C>, input: Input) {
        match input {
            Input::Command(command) => tell(io, command),
            Input::Interrupt => self.interrupted = true,
            Input::Begin => self.terms.wait_for = WaitFor::Time(Duration::ZERO),
        }
        self.advance(io);
    }

    fn event(&mut self, io: &mut Machine<'_, C>, event: SourceEvent) {
        match event {
            SourceEvent::Acknowledged { below } => self.content.acknowledged(below),
            SourceEvent::Rate(rate) => {
                self.rate = rate;
                io.set_pace(RateClass::Data, Some(rate));
            }
            SourceEvent::Totals(_) => self.advance(io),
            SourceEvent::Report(report) => {
                let known = self.receivers.get(&report.node);
                let is_done = |heard: &Heard| heard.report.state == ReceiverState::Done;
                let proved = !matches!(self.terms.expected.receipts, Receipts::None);
                // A receiver that is done by proof stays so, whatever others report.
                if proved && known.is_some_and(is_done)
                    || !self.terms.expected.receipts.believes(&report)
                {
                    return;
                }
                if known.is_none_or(|known| known.report.state != report.state) {
                    self.observer.receiver(&self.line_of(&report));
                }
                let news = known.is_none();
                let since = known.map_or(self.receivers.len(), |known| known.since);
                if news && self.terms.expected.alone && !self.terms.expected.admits(&report.name) {
                    self.observer.note(&format!(
                        "`{}` is no name on the list, and is not waited for: if its key is there, it needs \
                         `recv --as` with its name",
                        report.name
                    ));
                }
                let Expected { names, alone, .. } = &self.terms.expected;
                let came = report.state == ReceiverState::Receiving;
                if came && *alone && names.contains(&report.name) {
                    self.came.insert(report.name.clone());
                }
                if report.state != ReceiverState::Receiving {
                    self.aside.remove(&report.node);
                }
                self.receivers.insert(report.node, Heard { since, report });
            }
            SourceEvent::Tree(_) => {}
            SourceEvent::Evicted(node) => {
                let name = self.name_of(node);
                self.observer.note(&format!("{name} is too slow: the feed goes on without it"));
            }
            SourceEvent::Aside { node, address, carries, was_child } => {
                let name = self.name_of(node);
                if was_child && self.aside.len() < MOST_ASIDE {
                    self.aside.insert(node);
                }
                self.observer.note(&format!(
                    "the path to {name} ({address}) carries {carries}, less than the others': it is \
                     not waited for, and fetches what it lacks"
                ));
            }
            SourceEvent::ByUnicast { node, address } => {
                // It is in the tree, where it is waited for.
                self.aside.remove(&node);
                let news = self.by_unicast.len() < MOST_ASIDE && self.by_unicast.insert(node);
                if news {
                    let name = self.name_of(node);
                    self.observer.note(&format!(
                        "multicast does not reach {name} ({address}): it gets the feed by unicast"
                    ));
                }
            }
            SourceEvent::ByMulticast { node } => {
                if self.by_unicast.remove(&node) {
                    let name = self.name_of(node);
                    self.observer.note(&format!("multicast reaches {name} again"));
                }
            }
            SourceEvent::Complete => {
                if self.stage == Stage::Sending {
                    self.complete(io.now());
                }
                self.advance(io);
            }
            SourceEvent::Gone(reason) => {
                self.observer.note(&format!("the feed ends here: {reason}"));
                self.failure.get_or_insert(reason);
            }
            SourceEvent::Rival(address) => {
                self.observer.note(&format!("another source, {address}, uses this feed's groups"));
            }
            SourceEvent::Closed => {
                self.stage = Stage::Closed;
                self.advance(io);
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_, C>) {
        io.wake_at(Some(io.now() + TICK));
        self.advance(io);
        self.drops = io.engine().drops().to_string();
        let snapshot = self.snapshot(io);
        if let Some(trouble) = snapshot.trouble.as_ref().filter(|_| !self.told_trouble) {
            self.told_trouble = true;
            self.observer.note(&format!("packets do not leave: {trouble}"));
        }
        self.observer.progress(&snapshot);
    }

    fn trouble(&mut self, _io: &mut Machine<'_, C>, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                self.trouble = Some(reason);
            }
            // Children repeat messages that were not heard.
            Trouble::Overrun { .. } => {}
        }
    }
}
