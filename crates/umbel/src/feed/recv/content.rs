//! A receiver's part of a feed: its list, its files, and the blocks that are wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use umbel_engine::symbols::BlockId;
use umbel_engine::tmtp::{ReceiverCommand, Start};
use umbel_engine::units::{Rate, counted};
use umbel_store::feed::seal::OpenError;
use umbel_store::feed::{FileEvent, Layout, Manifest, ManifestError};
use umbel_store::sink::{NameOutcome, SinkEvent};
use umbel_wire::Toi;
use umbel_wire::feed::FeedContent;
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::tmtp::BlockRun;

use super::super::cut_of;
use super::RecvObserver;
use super::host::{About, Machine, tell};
use super::store::{FeedStore, Found, Looked};
use crate::endpoint::{Items, READING_BACK};

/// A block is given up after being wrong this number of times: then it comes from the source alone,
/// and is wrong there.
const DAMAGES: u32 = 8;
const DAMAGED: &str = "it changed at the source, or was altered on the way";

/// Reason why nothing more can be received.
#[derive(Debug)]
pub(super) struct Hopeless {
    /// Reason that the source hears.
    pub(super) reason: String,
    /// Text for this receiver's user instead.
    pub(super) advice: Option<String>,
}

impl From<String> for Hopeless {
    fn from(reason: String) -> Hopeless {
        Hopeless { reason, advice: None }
    }
}

/// Content of a feed, as far as it is known and kept.
pub(super) struct Content<S> {
    pub(super) about: About,
    observer: Arc<dyn RecvObserver>,
    pub(super) store: S,
    /// The first wanted block after the manifest, where it matters.
    pub(super) first: Option<u32>,
    manifest: Option<Vec<ItemInfo>>,
    pub(super) items: Items,
    /// Number of times each block was wrong.
    damages: BTreeMap<u32, u32>,
}

impl<S: FeedStore> Content<S> {
    pub(super) fn new(about: About, observer: Arc<dyn RecvObserver>, store: S) -> Content<S> {
        Content {
            about,
            observer,
            store,
            first: None,
            manifest: None,
            items: Items::default(),
            damages: BTreeMap::new(),
        }
    }

    /// Returns the rate of repairs while the source sends at this one: no more than it announced.
    pub(super) fn repair_rate(&self, rate: Rate) -> Rate {
        let most = Rate::from_bits_per_s(self.about.feed.kbit_per_s.saturating_mul(1000));
        most.map_or(rate, |most| rate.min(most))
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.about.feed.content == FeedContent::Pipe
    }

    /// Learns the first wanted block after the manifest.
    pub(super) fn on_started(
        &mut self,
        io: &mut Machine<'_, S>,
        from: u32,
    ) -> Result<(), Hopeless> {
        self.first = Some(from);
        if self.is_pipe() {
            self.store.begin_pipe(from);
            tell(io, ReceiverCommand::Want { from, skip: Vec::new() });
        }
        self.look_up()
    }

    /// Has the files looked up as soon as the list and the first wanted block are known.
    fn look_up(&mut self) -> Result<(), Hopeless> {
        let About { feed, start, .. } = &self.about;
        let first = match (start, self.first) {
            (Start::Everything, _) => 0,
            (Start::Now, Some(first)) => first,
            (Start::Now, None) => return Ok(()),
        };
        let Some(infos) = self.manifest.take() else { return Ok(()) };
        let FeedContent::Files { manifest_len, .. } = feed.content else { return Ok(()) };
        let layout = cut_of(feed)
            .and_then(|shape| Ok(Layout::new(shape, manifest_len, &infos)?))
            .map_err(|error| error.to_string())?;
        self.items.expect(&infos);
        let begins_late = |info: &ItemInfo| layout.item(info.toi).is_some_and(|(at, _)| at < first);
        // Another name of a file that is not wanted is not, either.
        let passed: BTreeSet<String> =
            infos.iter().filter(|info| begins_late(info)).map(|info| info.name.clone()).collect();
        let late = |info: &ItemInfo| match &info.kind {
            ItemKind::HardLink(name) => passed.contains(name),
            _ => passed.contains(&info.name),
        };
        let items: Vec<(ItemInfo, bool)> =
            infos.into_iter().map(|info| (late(&info), info)).map(|(l, i)| (i, !l)).collect();
        let passed = items.iter().filter(|(_, wanted)| !wanted).count();
        if passed > 0 {
            let files = counted(passed, "file");
            self.observer.note(&format!("left out, as they were sent before: {files}"));
        }
        Ok(self.store.look_up(items)?)
    }

    /// Begins with what is missing of the files.
    pub(super) fn on_looked_up(
        &mut self,
        io: &mut Machine<'_, S>,
        files: Vec<Looked>,
    ) -> Result<(), Hopeless> {
        for Looked { info, found } in files {
            match found {
                Found::Unwanted | Found::Directory | Found::OtherName => {}
                Found::Link(path) => {
                    self.items.made(&info);
                    self.observer.item(&info.name, &path, 0);
                }
                Found::LeftOut => self.items.leave_out(&info),
                Found::Differs => self.items.differs(&info),
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
        let (from, skip) = (self.first.unwrap_or(0), self.store.begin()?);
        tell(io, ReceiverCommand::Want { from, skip });
        Ok(())
    }

    /// Gives files their other names, when all files are there that will be.
    pub(super) fn name_files(&mut self) {
        for named in self.store.name_files() {
            self.items.named(&named);
            match &named.result {
                Ok(NameOutcome::WasThere) => self.observer.already_there(&named.name),
                Ok(NameOutcome::Made(path)) => self.observer.item(&named.name, path, 0),
                Err(error) => self.observer.failed(&named.name, &error.to_string()),
            }
        }
    }

    pub(super) fn on_file(
        &mut self,
        io: &mut Machine<'_, S>,
        event: FileEvent,
    ) -> Result<(), Hopeless> {
        match event {
            FileEvent::Manifest(Manifest { items, left_out, .. }) => {
                self.items.left_out = left_out;
                if left_out > 0 {
                    let files = counted(left_out, "file");
                    self.observer.note(&format!(
                        "not in it, as the sender could not read or name them: {files}"
                    ));
                }
                self.manifest = Some(items);
                return self.look_up();
            }
            FileEvent::HeadForged { blocks } => Content::<S>::on_head_forged(io, blocks),
            FileEvent::Unreadable(ManifestError::Sealed(error)) => {
                return Err(self.unreadable(error));
            }
            FileEvent::Unreadable(error) => return Err(error.to_string().into()),
            // An item that failed permanently is not received again.
            FileEvent::Lost { block, toi } if self.items.is_underway(toi) => {
                tell(io, ReceiverCommand::RestoreFailed { block });
            }
            FileEvent::Lost { .. } => {}
        }
        Ok(())
    }

    pub(super) fn on_disk(&mut self, io: &mut Machine<'_, S>, event: SinkEvent) {
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
            SinkEvent::ReadingBack { .. } => self.observer.note(READING_BACK),
            SinkEvent::ItemDone { toi, name, path, size } => {
                if self.items.is_underway(toi) {
                    self.items.finish(toi);
                    self.observer.item(&name, &path, size);
                }
            }
            SinkEvent::ItemAppeared { toi } => {
                if let Some(name) = self.items.appeared(toi) {
                    self.observer.already_there(&name);
                }
            }
            // Blocks of an earlier run may be wrong.
            SinkEvent::DigestMismatch { toi } => self.store.check_blocks(toi),
            SinkEvent::BlocksDropped { toi, blocks } => {
                for id in blocks.into_iter().map(|sbn| BlockId { toi, sbn }) {
                    // What the list of files calls a hole is not sent at all.
                    let again = self.store.block_of(id).map(|block| self.receive_again(io, block));
                    if again != Some(true) {
                        return self.cancel(io, toi, DAMAGED);
                    }
                }
            }
            SinkEvent::ItemFailed { toi, error } => {
                self.fail_item(io, toi, &error.to_string());
            }
        }
    }

    /// Receives the head again, since some of it was not the sender's. However often that happens,
    /// it is no reason to give up.
    pub(super) fn on_head_forged(io: &mut Machine<'_, S>, blocks: u32) {
        for block in 0..blocks {
            tell(io, ReceiverCommand::RestoreFailed { block });
        }
    }

    /// Receives a block of a pipe again that was wrong.
    pub(super) fn on_damage(
        &mut self,
        io: &mut Machine<'_, S>,
        block: u32,
    ) -> Result<(), Hopeless> {
        if self.receive_again(io, block) { Ok(()) } else { Err(DAMAGED.to_owned().into()) }
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

    /// Gives up a file. Its partial content stays where it is.
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

    /// Returns why the feed cannot be read: it is sealed, and not for this receiver.
    pub(super) fn unreadable(&self, error: OpenError) -> Hopeless {
        let line = self.about.line.as_ref().filter(|_| error == OpenError::NotAdmitted);
        let advice = line.map(|line| {
            format!(
                "not admitted to `{}`: ask its sender to add this line to the --admit file: {line}",
                self.about.feed.name
            )
        });
        Hopeless { reason: error.to_string(), advice }
    }

    /// Gives up the files of which blocks are not available any more.
    pub(super) fn on_gone(
        &mut self,
        io: &mut Machine<'_, S>,
        run: BlockRun,
    ) -> Result<(), Hopeless> {
        const WHY: &str = "it was sent before, and is no longer kept";
        if self.is_pipe() {
            let why = "the beginning was sent before, and is no longer kept: `--from now` \
                       takes what comes";
            return Err(why.to_owned().into());
        }
        let lost = self.store.files_in(run).ok_or_else(|| WHY.to_owned())?;
        for toi in lost {
            self.cancel(io, toi, WHY);
        }
        Ok(())
    }
}
