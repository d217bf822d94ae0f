//! What the receiver's engine, the disk and the output tell, and what is done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Time};

use bytes::Bytes;
use umbel_engine::tmtp::{
    Receiver, ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats, Start, TreeView,
};
use umbel_engine::{Engine, Instant, SessionId};
use umbel_net::driver::{Host, Io};
use umbel_store::feed::seal::OpenError;
use umbel_store::feed::{
    FeedPrepared, FeedSink, FileEvent, Layout, Manifest, ManifestError, PipeEvent,
};
use umbel_store::sink::{Held, SinkEvent};
use umbel_wire::feed::{Feed, FeedContent};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::{BlockRun, End, Refusal, Role};
use umbel_wire::{Digest, Toi};

use super::super::cut_of;
use super::items::Items;
use super::outside::{Inside, Outer, Outside};
use super::{RecvObserver, RecvSnapshot, RecvSummary};

/// Without a parent for so long, the user is told where to look.
const LONELY: Duration = Duration::from_secs(5);
/// How long a manager serves its children when it has everything itself.
const SERVE: Duration = Duration::from_mins(2);
/// How long leaving takes, at most: children find other parents, and one that fails meanwhile is
/// replaced to be told what came of this receiver. A user who interrupts a receiver without children
/// waits less long.
const LEAVE: Duration = Duration::from_secs(12);
const LEAVE_ALONE: Duration = Duration::from_secs(2);
/// A file whose digest is wrong this often is given up.
const MISMATCHES: u32 = 2;
/// A block that is wrong this often will not come right.
const DAMAGES: u32 = 8;
const DAMAGED: &str = "it changed at the source, or was altered on the way";

/// How far the receiver is; see the page of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Receiving,
    Serving(Time),
    Leaving(Time),
    Gone,
}

/// The receiver's engine.
type ReceiverEngine = Receiver<FeedSink>;

/// The receiver around its engine.
pub(super) struct RecvHost {
    feed: Feed,
    start: Start,
    /// This receiver's line in the list of a sealed feed's sender.
    line: Option<String>,
    observer: Arc<dyn RecvObserver>,
    inside: Inside,
    outside: Outside,
    interrupted: Arc<AtomicBool>,
    stage: Stage,
    created: Time,
    ended: Option<Time>,
    /// The first block after the manifest that is wanted, where it matters.
    first: Option<u32>,
    manifest: Option<Vec<ItemInfo>>,
    items: Items,
    mismatches: BTreeSet<(Toi, u32)>,
    /// How often blocks were wrong.
    damages: BTreeMap<u32, u32>,
    end: Option<End>,
    written: bool,
    failure: Option<String>,
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

impl RecvHost {
    pub(super) fn new(
        (feed, start, line): (Feed, Start, Option<String>),
        observer: Arc<dyn RecvObserver>,
        inside: Inside,
        outside: Outside,
        interrupted: Arc<AtomicBool>,
    ) -> RecvHost {
        RecvHost {
            feed,
            start,
            line,
            observer,
            inside,
            outside,
            interrupted,
            stage: Stage::Receiving,
            created: Time::now(),
            ended: None,
            first: None,
            manifest: None,
            items: Items::default(),
            mismatches: BTreeSet::new(),
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

    fn is_pipe(&self) -> bool {
        self.feed.content == FeedContent::Pipe
    }

    /// What came of it all.
    pub(super) fn finish(self) -> RecvSummary {
        let stats = self.stats;
        let written = self.outside.written();
        let interrupted = self.interrupted.load(Ordering::Acquire) && self.ended.is_none();
        RecvSummary {
            pipe: self.is_pipe(),
            items: self.items.done,
            already_there: self.items.already_there,
            bytes: if self.is_pipe() { written } else { self.items.received_bytes },
            resumed_bytes: self.items.resumed_bytes,
            seconds: self
                .ended
                .unwrap_or_else(Time::now)
                .duration_since(self.created)
                .as_secs_f64(),
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
            drops: self.drops,
            failures: self.items.failures,
            failure: self.failure,
            interrupted,
        }
    }

    fn command(&mut self, now: Instant, engine: &mut ReceiverEngine, command: ReceiverCommand) {
        if let Err(error) = engine.handle_command(now, command) {
            Host::<ReceiverEngine>::refused(self, error);
        }
    }

    /// Nothing more can be had: says so to the parent, and leaves.
    fn give_up(&mut self, now: Instant, engine: &mut ReceiverEngine, reason: &str) {
        if self.stage != Stage::Receiving {
            return;
        }
        self.failure.get_or_insert_with(|| reason.to_owned());
        if let Some(pipe) = engine.sink_mut().pipe() {
            pipe.abort();
        }
        let failed = Some(reason.to_owned());
        self.command(now, engine, ReceiverCommand::Done { failed });
        self.leave(now, engine);
    }

    fn leave(&mut self, now: Instant, engine: &mut ReceiverEngine) {
        self.stage = Stage::Leaving(Time::now());
        self.command(now, engine, ReceiverCommand::Leave);
    }

    /// Everything is there, or will never be.
    fn settle_if_done(&mut self, now: Instant, engine: &mut ReceiverEngine) {
        if self.stage != Stage::Receiving {
            return;
        }
        let whole = if self.is_pipe() { self.written } else { self.items.all_settled() };
        let source_failed = self.end.as_ref().and_then(|end| end.failed.clone());
        if !whole {
            return;
        }
        self.ended = Some(Time::now());
        if self.is_pipe() {
            self.failure = self.failure.take().or(source_failed);
        }
        let failed = match (&self.failure, self.items.failures.first()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some(failure)) => Some(format!("{}: {}", failure.name, failure.reason)),
            (None, None) => None,
        };
        self.command(now, engine, ReceiverCommand::Done { failed });
        self.stage = Stage::Serving(Time::now());
    }

    fn has_children(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.members > 0 || view.children > 0)
    }

    /// Whether children still lack something that this manager may be able to give.
    fn is_needed(&self) -> bool {
        let totals = self.stats.totals;
        self.has_children() && totals.done + totals.failed < totals.members
    }

    fn advance(&mut self, now: Instant, engine: &mut ReceiverEngine) {
        self.stats = engine.stats();
        self.settle_if_done(now, engine);
        let interrupted = self.interrupted.load(Ordering::Acquire);
        match self.stage {
            Stage::Receiving if interrupted => self.leave(now, engine),
            Stage::Serving(since)
                if interrupted || since.elapsed() >= SERVE || !self.is_needed() =>
            {
                self.leave(now, engine);
            }
            Stage::Leaving(since) => {
                let alone = interrupted && !self.has_children();
                let most = if alone { LEAVE_ALONE } else { LEAVE };
                if since.elapsed() >= most {
                    self.stage = Stage::Gone;
                }
            }
            _ => {}
        }
    }

    /// Looks at the disk as soon as the list is there and it is known where to begin.
    fn look_at_disk(&mut self, now: Instant, engine: &mut ReceiverEngine) {
        let first = match (self.start, self.first) {
            (Start::Everything, _) => 0,
            (Start::Now, Some(first)) => first,
            (Start::Now, None) => return,
        };
        let Some(infos) = self.manifest.take() else { return };
        let FeedContent::Files { manifest_len, .. } = self.feed.content else { return };
        let layout =
            cut_of(&self.feed).and_then(|shape| Ok(Layout::new(shape, manifest_len, &infos)?));
        let layout = match layout {
            Ok(layout) => layout,
            Err(error) => return self.give_up(now, engine, &error.to_string()),
        };
        self.items.list(&infos);
        let late = |info: &ItemInfo| layout.item(info.toi).is_some_and(|(at, _)| at < first);
        let items: Vec<(ItemInfo, bool)> =
            infos.into_iter().map(|info| (late(&info), info)).map(|(l, i)| (i, !l)).collect();
        let passed = items.iter().filter(|(_, wanted)| !wanted).count();
        if passed > 0 {
            self.observer.note(&format!("{passed} files were sent before, and are left out"));
        }
        let Some(files) = engine.sink_mut().files() else { return };
        let preparer = files.disk().preparer();
        if let Err(error) = self.outside.prepare(preparer, items) {
            self.give_up(now, engine, &format!("no thread to look at the disk: {error}"));
        }
    }

    fn on_prepared(
        &mut self,
        now: Instant,
        engine: &mut ReceiverEngine,
        looked_at: Vec<(FeedPrepared, Option<String>)>,
    ) {
        let mut items = Vec::with_capacity(looked_at.len());
        for (item, error) in looked_at {
            if let Some(reason) = error {
                self.items.refuse(&item.info.name, &reason);
                self.observer.failed(&item.info.name, &reason);
            }
            match item.prepared.as_ref().map(umbel_store::sink::Prepared::held) {
                Some(Held::AlreadyThere) => {
                    self.items.was_there(&item.info);
                    self.observer.already_there(&item.info.name);
                }
                Some(Held::Parts(parts)) => {
                    let partition = parts.partition();
                    let held: u64 = (0..partition.blocks())
                        .filter(|&sbn| parts.is_restored(sbn))
                        .map(|sbn| partition.block_range(sbn))
                        .map(|range| range.end - range.start)
                        .sum();
                    self.items.begin(item.info.clone(), held);
                }
                None => {}
            }
            items.push(item);
        }
        self.items.known = true;
        let Some(files) = engine.sink_mut().files() else { return };
        match files.begin(items) {
            Ok(skip) => {
                let from = self.first.unwrap_or(0);
                self.command(now, engine, ReceiverCommand::Want { from, skip });
            }
            Err(error) => self.give_up(now, engine, &error.to_string()),
        }
    }

    fn on_file(&mut self, now: Instant, engine: &mut ReceiverEngine, event: FileEvent) {
        match event {
            FileEvent::Manifest(Manifest(items)) => {
                self.manifest = Some(items);
                self.look_at_disk(now, engine);
            }
            FileEvent::Unreadable(ManifestError::Sealed(error)) => {
                self.on_unreadable(now, engine, error);
            }
            FileEvent::Unreadable(error) => self.give_up(now, engine, &error.to_string()),
            // What failed for good is not received again.
            FileEvent::Lost { block, toi } if self.items.is_underway(toi) => {
                self.command(now, engine, ReceiverCommand::RestoreFailed { block });
            }
            FileEvent::Lost { .. } => {}
        }
    }

    /// The feed is sealed, and not for this receiver.
    fn on_unreadable(&mut self, now: Instant, engine: &mut ReceiverEngine, error: OpenError) {
        if let (OpenError::NotAdmitted, Some(line)) = (error, &self.line) {
            self.failure = Some(format!(
                "not admitted to `{}`: ask its sender to add this line to the --admit file: {line}",
                self.feed.name
            ));
        }
        self.give_up(now, engine, &error.to_string());
    }

    fn on_disk(&mut self, now: Instant, engine: &mut ReceiverEngine, event: SinkEvent) {
        match event {
            SinkEvent::BlockRestored { .. } => {}
            SinkEvent::Progress { toi, restored, .. } => self.items.restored(toi, restored),
            SinkEvent::RestoreFailed { block: id, .. } => {
                let lost = engine.sink_mut().files().and_then(|files| files.block_of(id));
                if let Some(block) = lost
                    && !self.receive_again(now, engine, block)
                {
                    self.cancel(now, engine, id.toi, DAMAGED);
                }
            }
            SinkEvent::ItemDone { toi, name, path, size } => {
                if self.items.is_underway(toi) {
                    self.items.finish(toi);
                    self.observer.item(&name, &path, size);
                }
            }
            SinkEvent::DigestMismatch { toi } => self.on_mismatch(now, engine, toi),
            SinkEvent::BlocksDropped { toi, blocks } => {
                let Some(files) = engine.sink_mut().files() else { return };
                let id = |sbn| umbel_engine::symbols::BlockId { toi, sbn };
                let lost: Vec<u32> =
                    blocks.into_iter().filter_map(|sbn| files.block_of(id(sbn))).collect();
                for block in lost {
                    self.command(now, engine, ReceiverCommand::RestoreFailed { block });
                }
            }
            SinkEvent::ItemFailed { toi, error } => {
                self.fail_item(now, engine, toi, &error.to_string());
            }
        }
    }

    /// A block was wrong: it is received again, unless that was in vain too often.
    fn receive_again(&mut self, now: Instant, engine: &mut ReceiverEngine, block: u32) -> bool {
        let times = self.damages.entry(block).or_default();
        *times += 1;
        let again = *times < DAMAGES;
        if again {
            self.command(now, engine, ReceiverCommand::RestoreFailed { block });
        }
        again
    }

    /// All blocks of a file are there, and its digest is another: as nothing says which of them is
    /// wrong, all of it is received again, once.
    fn on_mismatch(&mut self, now: Instant, engine: &mut ReceiverEngine, toi: Toi) {
        let times = (0..MISMATCHES).find(|times| self.mismatches.insert((toi, *times)));
        let Some(files) = engine.sink_mut().files() else { return };
        let blocks = files.layout().and_then(|layout| layout.item(toi));
        let blocks = blocks.map_or(0, |(_, partition)| partition.blocks());
        if times.is_none_or(|times| times + 1 == MISMATCHES) || blocks == 0 {
            return self.cancel(now, engine, toi, DAMAGED);
        }
        // No block has this digest, so that all of them are dropped.
        files.disk().check_blocks(toi, vec![Digest([0; 32]); blocks as usize]);
        self.observer.note("a file was damaged on the way, and is received again");
    }

    /// A file cannot be had: what has come of it stays where it is.
    fn cancel(&mut self, now: Instant, engine: &mut ReceiverEngine, toi: Toi, reason: &str) {
        if let Some(files) = engine.sink_mut().files() {
            files.disk().cancel(toi);
        }
        self.fail_item(now, engine, toi, reason);
    }

    /// Its blocks are asked for no more: refused by the sink they would hold up the feed.
    fn fail_item(&mut self, now: Instant, engine: &mut ReceiverEngine, toi: Toi, reason: &str) {
        let Some(name) = self.items.fail(toi, reason) else { return };
        self.observer.failed(&name, reason);
        let layout = engine.sink_mut().files().and_then(|files| files.layout());
        if let Some((first, partition)) = layout.and_then(|layout| layout.item(toi)) {
            let run = BlockRun { first, count: partition.blocks() };
            self.command(now, engine, ReceiverCommand::Skip(run));
        }
    }

    fn on_gone(&mut self, now: Instant, engine: &mut ReceiverEngine, run: BlockRun) {
        const WHY: &str = "it was sent before, and is not kept any more";
        if self.is_pipe() {
            let why = "the beginning was sent before, and is not kept any more: `--from now` \
                       takes what comes";
            return self.give_up(now, engine, why);
        }
        let Some(files) = engine.sink_mut().files() else { return };
        let manifest = files.manifest_blocks();
        let Some(layout) = files.layout().filter(|_| run.first >= manifest) else {
            return self.give_up(now, engine, WHY);
        };
        let lost: BTreeSet<Toi> =
            run.blocks().filter_map(|block| layout.locate(block)).map(|id| id.toi).collect();
        for toi in lost {
            self.cancel(now, engine, toi, WHY);
        }
    }

    /// The feed ends here; what is not complete by then never will be.
    fn on_end(&mut self, now: Instant, engine: &mut ReceiverEngine, end: End) {
        if let Some(pipe) = engine.sink_mut().pipe() {
            pipe.end(end.blocks);
        }
        if let (Some(reason), false) = (&end.failed, self.is_pipe()) {
            let reason = format!("the source gave up: {reason}");
            self.give_up(now, engine, &reason);
        }
        self.end = Some(end);
    }

    fn on_source_gone(&mut self, now: Instant, engine: &mut ReceiverEngine) {
        match self.stage {
            Stage::Receiving => {
                // What has come may just not be written yet.
                if engine.stats().blocks > 0 && self.is_complete(engine) {
                    return;
                }
                let failed = self.end.as_ref().and_then(|end| end.failed.clone());
                let reason =
                    failed.unwrap_or_else(|| "the source is gone, and not all had come".to_owned());
                self.give_up(now, engine, &reason);
            }
            Stage::Serving(_) => self.leave(now, engine),
            Stage::Leaving(_) => self.stage = Stage::Gone,
            Stage::Gone => {}
        }
    }

    /// Whether the engine has every block up to the end.
    fn is_complete(&self, engine: &ReceiverEngine) -> bool {
        let (held, known) = engine.progress();
        self.end.as_ref().is_some_and(|end| held == known && known >= end.blocks)
    }

    fn on_refused(&mut self, now: Instant, engine: &mut ReceiverEngine, refusal: Refusal) {
        match refusal {
            Refusal::NotAdmitted => {
                let reason = "the source does not admit this receiver: is --token right?";
                self.give_up(now, engine, reason);
            }
            Refusal::Leaving => {
                self.give_up(now, engine, "the feed is over");
            }
            Refusal::Full | Refusal::Detached | Refusal::Loop | Refusal::TooFar => {
                tracing::info!("no parent yet: {refusal:?}");
            }
        }
    }

    fn snapshot(&self) -> RecvSnapshot {
        let view = self.view.as_ref();
        let written = self.outside.written();
        let (bytes, bytes_done) = if self.is_pipe() {
            (written, written)
        } else {
            (self.items.bytes, self.items.bytes_done)
        };
        let packets = self.stats.data_received + self.stats.data_lost;
        RecvSnapshot {
            items: self.items.count,
            items_done: self.items.done + self.items.already_there,
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

impl Host<ReceiverEngine> for RecvHost {
    fn post(&mut self, _session: SessionId, _message: Bytes) {}

    fn event(
        &mut self,
        now: Instant,
        engine: &mut ReceiverEngine,
        _io: &mut Io,
        event: ReceiverEvent,
    ) {
        match event {
            ReceiverEvent::Feed(_) | ReceiverEvent::Complete => {}
            ReceiverEvent::Started { from } => {
                self.first = Some(from);
                if let Some(pipe) = engine.sink_mut().pipe() {
                    pipe.begin(from);
                    self.command(now, engine, ReceiverCommand::Want { from, skip: Vec::new() });
                }
                self.look_at_disk(now, engine);
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
            ReceiverEvent::Refused(refusal) => self.on_refused(now, engine, refusal),
            ReceiverEvent::Evicted => {
                self.observer.note("this receiver is too slow: the feed goes on without waiting");
            }
            ReceiverEvent::End(end) => self.on_end(now, engine, end),
            ReceiverEvent::Gone(run) => self.on_gone(now, engine, run),
            ReceiverEvent::SourceGone => self.on_source_gone(now, engine),
            ReceiverEvent::Left => self.stage = Stage::Gone,
        }
        self.advance(now, engine);
    }

    fn woken(&mut self, now: Instant, engine: &mut ReceiverEngine, _io: &mut Io) {
        while let Ok(event) = self.inside.try_recv() {
            match event {
                Outer::File(event) => self.on_file(now, engine, event),
                Outer::Disk(event) => self.on_disk(now, engine, event),
                Outer::Prepared(items) => self.on_prepared(now, engine, items),
                Outer::Pipe(PipeEvent::Damaged { block }) => {
                    if !self.receive_again(now, engine, block) {
                        self.give_up(now, engine, DAMAGED);
                    }
                }
                Outer::Pipe(PipeEvent::Unreadable(error)) => {
                    self.on_unreadable(now, engine, error);
                }
                Outer::Pipe(PipeEvent::Room) => {
                    self.command(now, engine, ReceiverCommand::Room);
                }
                Outer::Written(Ok(())) => self.written = true,
                Outer::Written(Err(error)) => {
                    self.give_up(now, engine, &format!("cannot write the output: {error}"));
                }
            }
        }
        self.advance(now, engine);
    }

    fn tick(&mut self, now: Instant, engine: &mut ReceiverEngine, _io: &mut Io) {
        let view = engine.tree();
        if view.role == Role::Manager {
            self.radius = self.radius.max(view.radius);
        }
        self.view = Some(view);
        self.drops = engine.drops().to_string();
        self.advance(now, engine);
        if !self.joined && !self.lonely && self.created.elapsed() >= LONELY {
            self.lonely = true;
            self.observer.note(
                "no place in the feed's tree yet: if this lasts, multicast may not pass \
                 (`umbel doctor`)",
            );
        }
        self.observer.progress(&self.snapshot());
    }

    fn overran(&mut self, now: Instant, engine: &mut ReceiverEngine, datagrams: u64) {
        self.dropped_here += datagrams;
        let packets = u32::try_from(datagrams).unwrap_or(u32::MAX);
        self.command(now, engine, ReceiverCommand::Overrun { packets });
    }

    fn refused(&mut self, error: ReceiverCommandError) {
        tracing::debug!("the receiver refuses: {error}");
    }

    fn goes_on(&self) -> bool {
        self.stage != Stage::Gone
    }
}
