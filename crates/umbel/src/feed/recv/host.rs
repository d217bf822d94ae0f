//! Handles the events of the receiver's engine, the disk and the output.

use std::sync::Arc;
use std::time::Duration;

use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::symbols::SymbolSink;
use umbel_engine::tmtp::{
    Receiver, ReceiverCommand, ReceiverEvent, ReceiverStats, Start, TooLittle, TreeView,
};
use umbel_engine::{Instant, RateClass};
use umbel_store::feed::PipeEvent;
use umbel_store::feed::seal::OpenError;
use umbel_wire::feed::Feed;
use umbel_wire::tmtp::{End, Refusal, Role};

use super::content::{Content, Hopeless};
use super::path::{Finding, Path};
use super::store::{FeedStore, Input};
use super::{RecvObserver, RecvSnapshot, RecvSummary};
use crate::directory::{Signs, Silence};

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Time after which a pipe that seems to have ended is believed to have.
const QUIET: Duration = Duration::from_secs(5);
const CUT: &str = "the source is gone, and the pipe was cut short";
/// Time without a parent after which the user is told where to look.
const LONELY: Duration = Duration::from_secs(5);
/// Time for which a receiver that is complete before it has joined the tree looks for a place
/// there. Only in the tree can it report that it is complete.
const TELL: Duration = Duration::from_secs(10);
/// Time for which a complete manager serves its children.
const SERVE: Duration = Duration::from_mins(2);
/// Longest time that leaving takes. Meanwhile children find other parents, and a parent that fails
/// is replaced, so that another can be told how this receiver ended. When the user interrupts a
/// receiver without children, which has told how those before ended, `LEAVE_ALONE` applies instead.
const LEAVE: Duration = Duration::from_secs(12);
const LEAVE_ALONE: Duration = Duration::from_secs(2);

/// Stage of the receiver; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Receiving,
    Serving(Instant),
    Leaving(Instant),
    Gone,
}

/// The feed, and how to receive it, as known beforehand.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) feed: Feed,
    pub(crate) start: Start,
    /// This receiver's line in the list of a sealed feed's sender.
    pub(crate) line: Option<String>,
}

/// The receiver around its engine.
pub(crate) struct RecvHost<S> {
    content: Content<S>,
    observer: Arc<dyn RecvObserver>,
    interrupted: bool,
    /// Whether another feed took the place of this one.
    replaced: bool,
    stage: Stage,
    created: Instant,
    /// Time of the host's last turn.
    last: Instant,
    /// Time at which everything was complete or had failed permanently.
    ended: Option<Instant>,
    end: Option<End>,
    written: bool,
    failure: Option<String>,
    path: Path,
    /// Those since a pipe seemed to have ended.
    end_signs: Signs,
    signs: Signs,
    silence: Silence,
    lonely: bool,
    joined: bool,
    unicast: bool,
    parents: u64,
    wrong_parents: u64,
    managed: bool,
    radius: u8,
    dropped_here: u64,
    stats: ReceiverStats,
    view: Option<TreeView>,
    drops: String,
}

/// The host's access to its machine.
pub(super) type Machine<'a, S> = dyn Io<Receiver<<S as FeedStore>::Sink>> + 'a;

/// Sends a command; a refusal of it changes nothing.
pub(super) fn tell<K: SymbolSink>(io: &mut dyn Io<Receiver<K>>, command: ReceiverCommand) {
    if let Err(error) = io.command(command) {
        tracing::debug!("the receiver refuses: {error}");
    }
}

impl<S: FeedStore> RecvHost<S> {
    pub(crate) fn new(about: About, observer: Arc<dyn RecvObserver>, store: S) -> RecvHost<S> {
        RecvHost {
            path: Path::new(&about.feed),
            content: Content::new(about, observer.clone(), store),
            observer,
            interrupted: false,
            replaced: false,
            stage: Stage::Receiving,
            created: Instant::EPOCH,
            last: Instant::EPOCH,
            ended: None,
            end: None,
            written: false,
            failure: None,
            end_signs: Signs::default(),
            signs: Signs::default(),
            silence: Silence::default(),
            lonely: false,
            joined: false,
            unicast: false,
            parents: 0,
            wrong_parents: 0,
            managed: false,
            radius: 0,
            dropped_here: 0,
            stats: ReceiverStats::default(),
            view: None,
            drops: String::new(),
        }
    }

    /// Makes it say to the directory's watch whether nothing is heard of the source.
    #[must_use]
    pub(crate) fn with_silence(self, silence: Silence) -> RecvHost<S> {
        RecvHost { silence, ..self }
    }

    /// Says whether nothing was heard of the source for a while.
    fn note_silence(&mut self, now: Instant) {
        let quiet_for = self.signs.quiet_for(self.count_signs(), now);
        self.silence.note(quiet_for);
    }

    /// Returns the number of signs of the source.
    fn count_signs(&self) -> u64 {
        self.stats.heartbeats + self.stats.data_received
    }

    /// Gives up if the path from the source carries no full packets.
    fn look_at_path(&mut self, io: &mut Machine<'_, S>) {
        match self.path.look(io.now(), io.engine().progress(), &self.stats) {
            Some(Finding::Suspicious) => self.observer.note(&self.path.advice()),
            Some(Finding::TooNarrow) => self.give_up(io, &self.path.advice()),
            None => {}
        }
    }

    fn is_pipe(&self) -> bool {
        self.content.is_pipe()
    }

    /// Returns the summary, if the loop has ended.
    #[cfg(test)]
    pub(crate) fn outcome(&self) -> Option<RecvSummary> {
        (self.stage == Stage::Gone).then(|| self.summary())
    }

    /// Returns the summary.
    pub(crate) fn summary(&self) -> RecvSummary {
        let stats = self.stats;
        let written = self.content.store.written();
        let ended = self.ended.unwrap_or(self.last);
        RecvSummary {
            pipe: self.is_pipe(),
            sealed: self.content.about.feed.sealed.is_some(),
            items: self.content.items.done,
            already_there: self.content.items.already_there,
            left_out: self.content.items.left_out,
            removed: 0,
            differing: self.content.items.differing,
            bytes: if self.is_pipe() { written } else { self.content.items.received_bytes },
            resumed_bytes: self.content.items.resumed_bytes,
            seconds: (ended - self.created).as_secs_f64(),
            packets: stats.data_received,
            lost: stats.data_lost,
            repairs: stats.repairs_received,
            helped: stats.helped,
            requests: stats.requests_sent,
            fetched: stats.fetched_received,
            nacks: stats.nacks_sent,
            repairs_sent: stats.repairs_sent,
            parents: self.parents,
            wrong_parents: self.wrong_parents,
            managed: self.managed,
            radius: self.radius,
            dropped_here: self.dropped_here,
            drops: self.drops.clone(),
            interrupted: self.interrupted && self.ended.is_none(),
            replaced: self.replaced,
            failures: self.content.items.failures.clone(),
            failure: self.failure.clone(),
        }
    }

    fn has_children(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.members > 0 || view.children > 0)
    }

    /// Returns whether children still miss blocks that this manager may be able to send.
    fn is_needed(&self) -> bool {
        self.has_children() && !self.stats.totals.is_settled()
    }

    fn snapshot(&self) -> RecvSnapshot {
        let view = self.view.as_ref();
        let written = self.content.store.written();
        let (bytes, bytes_done) = if self.is_pipe() {
            (written, written)
        } else {
            (self.content.items.bytes(), self.content.items.bytes_done)
        };
        let (items, items_done) = self.content.items.counts();
        let packets = self.stats.data_received + self.stats.data_lost;
        RecvSnapshot {
            items,
            items_done,
            bytes,
            bytes_done,
            loss: self.stats.data_lost as f64 / packets.max(1) as f64,
            joined: self.joined,
            unicast: self.unicast,
            manager: view.is_some_and(|view| view.role == Role::Manager),
            children: view.map_or(0, |view| view.members + u32::from(view.children)),
            radius: self.radius,
        }
    }
}

impl<S: FeedStore> RecvHost<S> {
    /// Gives up because nothing more can be received: tells the parent, and leaves.
    fn give_up(&mut self, io: &mut Machine<'_, S>, reason: &str) {
        if self.stage != Stage::Receiving {
            return;
        }
        self.failure.get_or_insert_with(|| reason.to_owned());
        self.content.store.abort_pipe();
        let failed = Some(reason.to_owned());
        tell(io, ReceiverCommand::Done { failed });
        self.leave(io);
    }

    /// Gives up if there is no hope for the content.
    fn heed(&mut self, io: &mut Machine<'_, S>, content: Result<(), Hopeless>) {
        if let Err(Hopeless { reason, advice }) = content {
            self.failure = advice.or(self.failure.take());
            self.give_up(io, &reason);
        }
    }

    fn leave(&mut self, io: &mut Machine<'_, S>) {
        self.stage = Stage::Leaving(io.now());
        tell(io, ReceiverCommand::Leave);
    }

    /// Settles the reception if all items are complete or have failed permanently.
    fn settle_if_done(&mut self, io: &mut Machine<'_, S>) {
        if self.stage != Stage::Receiving {
            return;
        }
        let whole = if self.is_pipe() {
            self.written && self.end.is_some()
        } else {
            self.content.items.all_settled()
        };
        if !whole {
            return;
        }
        self.content.name_files();
        self.ended = Some(io.now());
        let failed = match (&self.failure, self.content.items.failures.first()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some(failure)) => Some(format!("{}: {}", failure.name, failure.reason)),
            (None, None) if self.content.items.differing > 0 => {
                Some("it was only compared with the list, and differs".to_owned())
            }
            (None, None) => None,
        };
        tell(io, ReceiverCommand::Done { failed });
        self.stage = Stage::Serving(io.now());
    }

    /// Advances the stage when a deadline has passed, data is complete or the user interrupts.
    fn advance(&mut self, io: &mut Machine<'_, S>) {
        self.stats = io.engine().stats();
        self.settle_if_done(io);
        let now = io.now();
        self.last = now;
        match self.stage {
            Stage::Receiving if self.interrupted => self.leave(io),
            Stage::Serving(since)
                if self.interrupted
                    || now - since >= SERVE
                    || !self.is_needed() && (self.parents > 0 || now - since >= TELL) =>
            {
                self.leave(io);
            }
            Stage::Leaving(since) => {
                let needed = self.has_children() || io.engine().speaks_for_others();
                let alone = self.interrupted && !needed;
                let most = if alone { LEAVE_ALONE } else { LEAVE };
                if now - since >= most {
                    self.stage = Stage::Gone;
                }
            }
            _ => {}
        }
        if self.stage == Stage::Gone {
            io.stop();
        }
    }

    /// Handles the end of the feed as nodes tell it. A pipe ends where its sender has signed that
    /// it does; an item that is incomplete when the sender has failed stays so.
    fn on_end(&mut self, io: &mut Machine<'_, S>, end: End) {
        if let (Some(reason), false) = (&end.failed, self.is_pipe()) {
            let reason = format!("the source gave up: {reason}");
            self.give_up(io, &reason);
        }
        self.end = Some(end);
    }

    fn on_source_gone(&mut self, io: &mut Machine<'_, S>) {
        match self.stage {
            Stage::Receiving => {
                // Data that has arrived may just not be written yet. A receiver that never had a
                // parent does not know where to begin, and writes nothing.
                let begun = self.content.first.is_some() && io.engine().stats().blocks > 0;
                if self.content.store.pipe_has_end() {
                    let blocks = io.engine().progress().1;
                    self.end.get_or_insert(End { blocks, failed: None });
                    return;
                }
                if begun && !self.is_pipe() && self.is_complete(io.engine()) {
                    return;
                }
                let failed = self.end.as_ref().and_then(|end| end.failed.clone());
                let quiet = self.signs.quiet_for(self.count_signs(), io.now());
                let reason = failed.unwrap_or_else(|| match quiet.as_secs() {
                    s @ 2.. => {
                        format!("nothing was heard of the source for {s} s, and not all had come")
                    }
                    _ => "the source is gone, and not all had come".to_owned(),
                });
                self.give_up(io, &reason);
            }
            Stage::Serving(_) => self.leave(io),
            Stage::Leaving(_) => self.stage = Stage::Gone,
            Stage::Gone => {}
        }
    }

    /// Gives up a pipe of which no more comes, though its sender has not signed that it ends there.
    /// The sender failed or is gone, or sent its last block before this receiver came.
    fn look_for_end(&mut self, io: &mut Machine<'_, S>) {
        let Some(end) = self.end.as_ref().filter(|_| self.is_pipe()) else { return };
        let (held, known) = io.engine().progress();
        let late = self.content.first.is_some_and(|first| first >= end.blocks && known <= first);
        let all = held == known && known >= end.blocks;
        if self.content.store.pipe_has_end() || !(late || all) {
            self.end_signs = Signs::default();
            return;
        }
        if let Some(reason) = end.failed.clone() {
            return self.cut_pipe(reason);
        }
        // A source that is alive is heard.
        let signs = if late { 0 } else { self.count_signs() };
        if self.end_signs.quiet_for(signs, io.now()) >= QUIET {
            let why = if late { "the pipe ended before this receiver came" } else { CUT };
            self.cut_pipe(why.to_owned());
        }
    }

    /// Ends a pipe after what was passed on. The receiver gives up when that is written.
    fn cut_pipe(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.content.store.abort_pipe();
    }

    /// Handles a restart of the source, whose new feed takes the place of this one.
    fn on_replaced(&mut self, io: &mut Machine<'_, S>) {
        if self.stage != Stage::Receiving {
            return;
        }
        if self.is_pipe() {
            return self.give_up(io, "the source was restarted, and its pipe began again");
        }
        self.replaced = true;
        // The old source is gone, so there is no one left to tell.
        self.stage = Stage::Gone;
    }

    /// Handles a change of this host's address: it needs a new place in the tree.
    fn on_moved(&mut self, io: &mut Machine<'_, S>) {
        if matches!(self.stage, Stage::Leaving(_) | Stage::Gone) {
            return;
        }
        if self.is_pipe() {
            return self.give_up(io, "the address of this host has changed");
        }
        self.replaced = true;
        // Nothing can be said to the parent from here.
        self.stage = Stage::Gone;
    }

    /// Returns whether the engine has every block up to the end.
    fn is_complete(&self, engine: &Receiver<S::Sink>) -> bool {
        let (held, known) = engine.progress();
        self.end.as_ref().is_some_and(|end| held == known && known >= end.blocks)
    }

    fn on_refused(&mut self, io: &mut Machine<'_, S>, refusal: Refusal) {
        match refusal {
            Refusal::NotAdmitted => {
                let reason = "the source does not admit this receiver: is --token right?";
                self.give_up(io, reason);
            }
            Refusal::Leaving => {
                self.give_up(io, "the feed is over");
            }
            Refusal::Full | Refusal::Detached | Refusal::Loop | Refusal::TooFar => {
                tracing::info!("no parent yet: {refusal:?}");
            }
        }
    }
}

impl<S: FeedStore> Host<Receiver<S::Sink>> for RecvHost<S> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_, S>) {
        self.created = io.now();
        io.wake_at(Some(io.now()));
        tell(io, ReceiverCommand::Join);
    }

    fn event(&mut self, io: &mut Machine<'_, S>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Feed(_) | ReceiverEvent::Complete => {}
            ReceiverEvent::Started { from } => {
                let begun = self.content.on_started(io, from);
                self.heed(io, begun);
            }
            ReceiverEvent::Joined { parent, address, hops } => {
                self.joined = true;
                self.parents += 1;
                self.observer.joined(&format!("{address} ({:016x})", parent.0), hops);
            }
            ReceiverEvent::Orphaned => {
                self.joined = false;
                tracing::info!("the parent failed or left; another one is sought");
            }
            ReceiverEvent::WrongRepairs { by } => {
                self.wrong_parents += 1;
                let what = format!("repairs from {by} were wrong; another parent is sought");
                self.observer.note(&what);
            }
            ReceiverEvent::BecameManager => {
                self.managed = true;
                self.observer.managing(true);
            }
            ReceiverEvent::StoppedManaging => self.observer.managing(false),
            ReceiverEvent::Refused(refusal) => self.on_refused(io, refusal),
            ReceiverEvent::NotListed => {
                let hopeless = self.content.unreadable(OpenError::NotAdmitted);
                self.heed(io, Err(hopeless));
            }
            ReceiverEvent::Evicted if self.path.is_suspicious() => {}
            ReceiverEvent::Evicted => {
                self.observer.note("this receiver is too slow: the feed goes on without waiting");
            }
            ReceiverEvent::End(end) => self.on_end(io, end),
            ReceiverEvent::Gone(run) => {
                let rest = self.content.on_gone(io, run);
                self.heed(io, rest);
            }
            ReceiverEvent::ByUnicast { why, brought } => {
                self.unicast = true;
                let cause = (why == TooLittle::NoData).then(|| self.path.cause());
                self.observer.fallback(&brought, cause.as_deref());
            }
            ReceiverEvent::SourceRate(rate) => {
                // A manager repairs no faster than the paths carry, which the source has found.
                io.set_pace(RateClass::Data, Some(self.content.repair_rate(rate)));
            }
            ReceiverEvent::ByMulticast => {
                self.unicast = false;
                self.observer.note("multicast works again");
            }
            ReceiverEvent::SourceSilent(silence) => {
                self.observer.note(&format!(
                    "nothing was heard of the source for {} s; joined its groups again",
                    silence.as_secs()
                ));
            }
            ReceiverEvent::SourceGone => self.on_source_gone(io),
            ReceiverEvent::Left => self.stage = Stage::Gone,
        }
        self.advance(io);
    }

    fn input(&mut self, io: &mut Machine<'_, S>, input: Input) {
        match input {
            Input::File(event) => {
                let rest = self.content.on_file(io, event);
                self.heed(io, rest);
            }
            Input::Disk(event) => self.content.on_disk(io, event),
            Input::LookedUp(files) => {
                let rest = self.content.on_looked_up(io, files);
                self.heed(io, rest);
            }
            Input::Pipe(PipeEvent::Damaged { block }) => {
                let rest = self.content.on_damage(io, block);
                self.heed(io, rest);
            }
            Input::Pipe(PipeEvent::HeadForged { blocks }) => {
                Content::<S>::on_head_forged(io, blocks);
            }
            Input::Pipe(PipeEvent::Unreadable(error)) => {
                let hopeless = self.content.unreadable(error);
                self.heed(io, Err(hopeless));
            }
            Input::Pipe(PipeEvent::Room) => tell(io, ReceiverCommand::Room),
            Input::Written(Ok(())) => self.written = true,
            Input::Written(Err(error)) => {
                let reason = self.failure.clone().unwrap_or(error);
                self.give_up(io, &reason);
            }
            Input::Replaced => self.on_replaced(io),
            Input::Moved => self.on_moved(io),
            Input::Interrupt => self.interrupted = true,
        }
        self.advance(io);
    }

    fn wake(&mut self, io: &mut Machine<'_, S>) {
        io.wake_at(Some(io.now() + TICK));
        let view = io.engine().tree();
        if view.role == Role::Manager {
            self.radius = self.radius.max(view.radius);
        }
        self.view = Some(view);
        self.drops = io.engine().drops().to_string();
        self.advance(io);
        if !self.joined && !self.lonely && io.now() - self.created >= LONELY {
            self.lonely = true;
            let feed = &self.content.about.feed;
            self.observer.lonely(&if feed.recovery.has_tree() {
                "no place in the feed's tree yet: if this lasts, multicast to UDP port 7703 may \
                 not pass (`umbel doctor`)"
                    .to_owned()
            } else {
                format!(
                    "no place in the feed yet: if this lasts, multicast to {} or UDP to {} may not \
                     pass (`umbel doctor`)",
                    feed.data, feed.source
                )
            });
        }
        self.note_silence(io.now());
        self.look_at_path(io);
        self.look_for_end(io);
        self.observer.progress(&self.snapshot());
    }

    fn trouble(&mut self, io: &mut Machine<'_, S>, trouble: Trouble) {
        match trouble {
            Trouble::Overrun { datagrams } => {
                self.dropped_here += datagrams;
                let packets = u32::try_from(datagrams).unwrap_or(u32::MAX);
                tell(io, ReceiverCommand::Overrun { packets });
            }
            Trouble::NotJoined { reason, .. } => {
                self.observer.note(&reason);
            }
            Trouble::NotSent { reason } => tracing::debug!("{reason}"),
        }
    }
}
