//! Handles the events of the receiver's engine, the disk and the output.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_engine::tmtp::{
    Receiver, ReceiverCommand, ReceiverEvent, ReceiverStats, Start, TreeView,
};
use umbel_store::feed::seal::OpenError;
use umbel_store::feed::{FileEvent, Layout, Manifest, ManifestError, PipeEvent};
use umbel_store::sink::SinkEvent;
use umbel_wire::Toi;
use umbel_wire::feed::{Feed, FeedContent};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::{BlockRun, End, Refusal, Role};

use super::super::cut_of;
use super::path::{Finding, Path};
use super::store::{FeedStore, Found, Input, Looked};
use super::{RecvObserver, RecvSnapshot, RecvSummary};
use crate::endpoint::Items;

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Time without a parent after which the user is told where to look.
const LONELY: Duration = Duration::from_secs(5);
/// How long a receiver that is complete before it has joined the tree looks for a place there. Only
/// in the tree can it report that it is complete.
const TELL: Duration = Duration::from_secs(10);
/// How long a complete manager serves its children.
const SERVE: Duration = Duration::from_mins(2);
/// How long leaving takes, at most. Meanwhile children find other parents, and a parent that fails
/// is replaced, so that another can be told how this receiver ended. When the user interrupts a
/// receiver without children, `LEAVE_ALONE` applies instead.
const LEAVE: Duration = Duration::from_secs(12);
const LEAVE_ALONE: Duration = Duration::from_secs(2);
/// A file is given up after this number of wrong digests.
const MISMATCHES: u32 = 2;
/// A block is given up after being wrong this number of times.
const DAMAGES: u32 = 8;
const DAMAGED: &str = "it changed at the source, or was altered on the way";

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
    about: About,
    observer: Arc<dyn RecvObserver>,
    store: S,
    interrupted: bool,
    /// Whether another feed took the place of this one.
    replaced: bool,
    stage: Stage,
    created: Instant,
    /// Time of the host's last turn.
    last: Instant,
    /// Time at which everything was complete or had failed permanently.
    ended: Option<Instant>,
    /// The first wanted block after the manifest, where it matters.
    first: Option<u32>,
    manifest: Option<Vec<ItemInfo>>,
    items: Items,
    /// Number of wrong digests of each file.
    mismatches: BTreeMap<Toi, u32>,
    /// Number of times each block was wrong.
    damages: BTreeMap<u32, u32>,
    end: Option<End>,
    written: bool,
    failure: Option<String>,
    path: Path,
    lonely: bool,
    joined: bool,
    parents: u64,
    managed: bool,
    radius: u8,
    dropped_here: u64,
    stats: ReceiverStats,
    view: Option<TreeView>,
    drops: String,
}

/// The host's access to its machine.
type Machine<'a, S> = dyn Io<Receiver<<S as FeedStore>::Sink>> + 'a;

/// Sends a command; a refusal of it changes nothing.
fn tell<K: SymbolSink>(io: &mut dyn Io<Receiver<K>>, command: ReceiverCommand) {
    if let Err(error) = io.command(command) {
        tracing::debug!("the receiver refuses: {error}");
    }
}

impl<S: FeedStore> RecvHost<S> {
    pub(crate) fn new(about: About, observer: Arc<dyn RecvObserver>, store: S) -> RecvHost<S> {
        RecvHost {
            path: Path::new(&about.feed),
            about,
            observer,
            store,
            interrupted: false,
            replaced: false,
            stage: Stage::Receiving,
            created: Instant::EPOCH,
            last: Instant::EPOCH,
            ended: None,
            first: None,
            manifest: None,
            items: Items::default(),
            mismatches: BTreeMap::new(),
            damages: BTreeMap::new(),
            end: None,
            written: false,
            failure: None,
            lonely: false,
            joined: false,
            parents: 0,
            managed: false,
            radius: 0,
            dropped_here: 0,
            stats: ReceiverStats::default(),
            view: None,
            drops: String::new(),
        }
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
        self.about.feed.content == FeedContent::Pipe
    }

    /// Returns the summary, if the loop has ended.
    #[cfg(test)]
    pub(crate) fn outcome(&self) -> Option<RecvSummary> {
        (self.stage == Stage::Gone).then(|| self.summary())
    }

    /// Returns the summary.
    pub(crate) fn summary(&self) -> RecvSummary {
        let stats = self.stats;
        let written = self.store.written();
        let ended = self.ended.unwrap_or(self.last);
        RecvSummary {
            pipe: self.is_pipe(),
            sealed: self.about.feed.sealed.is_some(),
            items: self.items.done,
            already_there: self.items.already_there,
            left_out: self.items.left_out,
            bytes: if self.is_pipe() { written } else { self.items.received_bytes },
            resumed_bytes: self.items.resumed_bytes,
            seconds: (ended - self.created).as_secs_f64(),
            packets: stats.data_received,
            lost: stats.data_lost,
            repairs: stats.repairs_received,
            fetched: stats.fetched_received,
            nacks: stats.nacks_sent,
            repairs_sent: stats.repairs_sent,
            parents: self.parents,
            managed: self.managed,
            radius: self.radius,
            dropped_here: self.dropped_here,
            drops: self.drops.clone(),
            interrupted: self.interrupted && self.ended.is_none(),
            replaced: self.replaced,
            failures: self.items.failures.clone(),
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
        let written = self.store.written();
        let (bytes, bytes_done) = if self.is_pipe() {
            (written, written)
        } else {
            (self.items.bytes(), self.items.bytes_done)
        };
        let (items, items_done) = self.items.counts();
        let packets = self.stats.data_received + self.stats.data_lost;
        RecvSnapshot {
            items,
            items_done,
            bytes,
            bytes_done,
            loss: self.stats.data_lost as f64 / packets.max(1) as f64,
            joined: self.joined,
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
        self.store.abort_pipe();
        let failed = Some(reason.to_owned());
        tell(io, ReceiverCommand::Done { failed });
        self.leave(io);
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
        let whole = if self.is_pipe() { self.written } else { self.items.all_settled() };
        let source_failed = self.end.as_ref().and_then(|end| end.failed.clone());
        if !whole {
            return;
        }
        self.ended = Some(io.now());
        if self.is_pipe() {
            self.failure = self.failure.take().or(source_failed);
        }
        let failed = match (&self.failure, self.items.failures.first()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some(failure)) => Some(format!("{}: {}", failure.name, failure.reason)),
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
                let alone = self.interrupted && !self.has_children();
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

    /// Has the files looked up as soon as the list and the first wanted block are known.
    fn look_up(&mut self, io: &mut Machine<'_, S>) {
        let About { feed, start, .. } = &self.about;
        let first = match (start, self.first) {
            (Start::Everything, _) => 0,
            (Start::Now, Some(first)) => first,
            (Start::Now, None) => return,
        };
        let Some(infos) = self.manifest.take() else { return };
        let FeedContent::Files { manifest_len, .. } = feed.content else { return };
        let layout = cut_of(feed).and_then(|shape| Ok(Layout::new(shape, manifest_len, &infos)?));
        let layout = match layout {
            Ok(layout) => layout,
            Err(error) => return self.give_up(io, &error.to_string()),
        };
        self.items.expect(&infos);
        let late = |info: &ItemInfo| layout.item(info.toi).is_some_and(|(at, _)| at < first);
        let items: Vec<(ItemInfo, bool)> =
            infos.into_iter().map(|info| (late(&info), info)).map(|(l, i)| (i, !l)).collect();
        let passed = items.iter().filter(|(_, wanted)| !wanted).count();
        if passed > 0 {
            self.observer.note(&format!("{passed} files were sent before, and are left out"));
        }
        if let Err(reason) = self.store.look_up(items) {
            self.give_up(io, &reason);
        }
    }

    fn on_looked_up(&mut self, io: &mut Machine<'_, S>, files: Vec<Looked>) {
        for Looked { info, found } in files {
            match found {
                Found::Unwanted => {}
                Found::Whole => {
                    self.items.was_there(&info);
                    self.observer.already_there(&info.name);
                }
                Found::Parts(bytes) => {
                    self.items.resumed_bytes += bytes;
                    self.items.begin(info);
                }
                Found::Refused(reason) => {
                    self.items.refuse(&info, &reason);
                    self.observer.failed(&info.name, &reason);
                }
            }
        }
        self.items.complete_list = true;
        match self.store.begin() {
            Ok(skip) => {
                let from = self.first.unwrap_or(0);
                tell(io, ReceiverCommand::Want { from, skip });
            }
            Err(reason) => self.give_up(io, &reason),
        }
    }

    fn on_file(&mut self, io: &mut Machine<'_, S>, event: FileEvent) {
        match event {
            FileEvent::Manifest(Manifest { items, left_out }) => {
                self.items.left_out = left_out;
                if left_out > 0 {
                    self.observer.note(&format!(
                        "{left_out} files are not in it: the sender could not read or name them"
                    ));
                }
                self.manifest = Some(items);
                self.look_up(io);
            }
            FileEvent::Unreadable(ManifestError::Sealed(error)) => {
                self.on_unreadable(io, error);
            }
            FileEvent::Unreadable(error) => self.give_up(io, &error.to_string()),
            // An item that failed permanently is not received again.
            FileEvent::Lost { block, toi } if self.items.is_underway(toi) => {
                tell(io, ReceiverCommand::RestoreFailed { block });
            }
            FileEvent::Lost { .. } => {}
        }
    }

    /// Fails because the feed is sealed, and not for this receiver.
    fn on_unreadable(&mut self, io: &mut Machine<'_, S>, error: OpenError) {
        if let (OpenError::NotAdmitted, Some(line)) = (error, &self.about.line) {
            self.failure = Some(format!(
                "not admitted to `{}`: ask its sender to add this line to the --admit file: {line}",
                self.about.feed.name
            ));
        }
        self.give_up(io, &error.to_string());
    }

    fn on_disk(&mut self, io: &mut Machine<'_, S>, event: SinkEvent) {
        match event {
            SinkEvent::BlockRestored { .. } => {}
            SinkEvent::Progress { toi, restored, .. } => self.items.restored(toi, restored),
            SinkEvent::RestoreFailed { block: id, .. } => {
                if let Some(block) = self.store.block_of(id)
                    && !self.receive_again(io, block)
                {
                    self.cancel(io, id.toi, DAMAGED);
                }
            }
            SinkEvent::ItemDone { toi, name, path, size } => {
                if self.items.is_underway(toi) {
                    self.items.finish(toi);
                    self.observer.item(&name, &path, size);
                }
            }
            SinkEvent::DigestMismatch { toi } => self.on_mismatch(io, toi),
            SinkEvent::BlocksDropped { toi, blocks } => {
                for block in blocks.into_iter().map(|sbn| BlockId { toi, sbn }) {
                    if let Some(block) = self.store.block_of(block) {
                        tell(io, ReceiverCommand::RestoreFailed { block });
                    }
                }
            }
            SinkEvent::ItemFailed { toi, error } => {
                self.fail_item(io, toi, &error.to_string());
            }
        }
    }

    /// Receives a wrong block again, unless that failed too often. Returns whether it does.
    fn receive_again(&mut self, io: &mut Machine<'_, S>, block: u32) -> bool {
        let times = self.damages.entry(block).or_default();
        *times += 1;
        let again = *times < DAMAGES;
        if again {
            tell(io, ReceiverCommand::RestoreFailed { block });
        }
        again
    }

    /// Handles a file that is complete but has a wrong digest. Nothing says which of its blocks is
    /// wrong, so all of the file is received again, once.
    fn on_mismatch(&mut self, io: &mut Machine<'_, S>, toi: Toi) {
        let times = self.mismatches.entry(toi).or_default();
        *times += 1;
        if *times == MISMATCHES || self.store.blocks_of(toi).is_none() {
            return self.cancel(io, toi, DAMAGED);
        }
        self.store.drop_blocks(toi);
        self.observer.note("a file was damaged on the way, and is received again");
    }

    /// Gives a file up. Its partial content stays where it is.
    fn cancel(&mut self, io: &mut Machine<'_, S>, toi: Toi, reason: &str) {
        self.store.cancel(toi);
        self.fail_item(io, toi, reason);
    }

    /// Stops asking for the blocks of an item: if the sink refused them, they would hold up the
    /// feed.
    fn fail_item(&mut self, io: &mut Machine<'_, S>, toi: Toi, reason: &str) {
        let Some(name) = self.items.fail(toi, reason) else { return };
        self.observer.failed(&name, reason);
        if let Some(run) = self.store.blocks_of(toi) {
            tell(io, ReceiverCommand::Skip(run));
        }
    }

    fn on_gone(&mut self, io: &mut Machine<'_, S>, run: BlockRun) {
        const WHY: &str = "it was sent before, and is not kept any more";
        if self.is_pipe() {
            let why = "the beginning was sent before, and is not kept any more: `--from now` \
                       takes what comes";
            return self.give_up(io, why);
        }
        let Some(lost) = self.store.files_in(run) else { return self.give_up(io, WHY) };
        for toi in lost {
            self.cancel(io, toi, WHY);
        }
    }

    /// Handles the end of the feed; an item that is incomplete by then stays so.
    fn on_end(&mut self, io: &mut Machine<'_, S>, end: End) {
        self.store.end_pipe(end.blocks);
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
                let begun = self.first.is_some() && io.engine().stats().blocks > 0;
                if begun && self.is_complete(io.engine()) {
                    return;
                }
                let failed = self.end.as_ref().and_then(|end| end.failed.clone());
                let reason =
                    failed.unwrap_or_else(|| "the source is gone, and not all had come".to_owned());
                self.give_up(io, &reason);
            }
            Stage::Serving(_) => self.leave(io),
            Stage::Leaving(_) => self.stage = Stage::Gone,
            Stage::Gone => {}
        }
    }

    /// Handles a restart of the source, whose new feed takes the place of this one.
    fn on_replaced(&mut self, io: &mut Machine<'_, S>) {
        if self.stage != Stage::Receiving {
            return;
        }
        if self.is_pipe() {
            return self.give_up(io, "the source was started again, and its pipe began anew");
        }
        self.replaced = true;
        // The old source is gone, so there is no one left to tell.
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
                self.first = Some(from);
                if self.is_pipe() {
                    self.store.begin_pipe(from);
                    tell(io, ReceiverCommand::Want { from, skip: Vec::new() });
                }
                self.look_up(io);
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
            ReceiverEvent::BecameManager => {
                self.managed = true;
                self.observer.managing(true);
            }
            ReceiverEvent::StoppedManaging => self.observer.managing(false),
            ReceiverEvent::Refused(refusal) => self.on_refused(io, refusal),
            ReceiverEvent::Evicted if self.path.is_suspicious() => {}
            ReceiverEvent::Evicted => {
                self.observer.note("this receiver is too slow: the feed goes on without waiting");
            }
            ReceiverEvent::End(end) => self.on_end(io, end),
            ReceiverEvent::Gone(run) => self.on_gone(io, run),
            ReceiverEvent::SourceSilent(silence) => {
                let minutes = silence.as_secs() / 60;
                self.observer.note(&format!(
                    "nothing was heard of the source for {minutes} min; still listening"
                ));
            }
            ReceiverEvent::SourceGone => self.on_source_gone(io),
            ReceiverEvent::Left => self.stage = Stage::Gone,
        }
        self.advance(io);
    }

    fn input(&mut self, io: &mut Machine<'_, S>, input: Input) {
        match input {
            Input::File(event) => self.on_file(io, event),
            Input::Disk(event) => self.on_disk(io, event),
            Input::LookedUp(files) => self.on_looked_up(io, files),
            Input::Pipe(PipeEvent::Damaged { block }) => {
                if !self.receive_again(io, block) {
                    self.give_up(io, DAMAGED);
                }
            }
            Input::Pipe(PipeEvent::Unreadable(error)) => self.on_unreadable(io, error),
            Input::Pipe(PipeEvent::Room) => tell(io, ReceiverCommand::Room),
            Input::Written(Ok(())) => self.written = true,
            Input::Written(Err(error)) => {
                self.give_up(io, &format!("cannot write the output: {error}"));
            }
            Input::Replaced => self.on_replaced(io),
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
            self.observer.lonely(
                "no place in the feed's tree yet: if this lasts, multicast to UDP port 7703 may \
                 not pass (`umbel doctor`)",
            );
        }
        self.look_at_path(io);
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
