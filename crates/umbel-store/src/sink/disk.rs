//! The disk thread, which executes all jobs that wait for the disk, one after the other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use umbel_engine::symbols::BlockId;
use umbel_wire::{Digest, Toi};

use super::assembler::{Assembler, Outcome, Phase};
use super::buffers::{Doubted, Filled, Open};
use super::errors::SinkError;
use super::finish::{Finish, SYNC_ALL_FROM, SyncTask, Verification};
use super::item::{Item, Shelf};
use super::journal::Replay;
use super::part::BlockBuffer;
use super::{EventHandler, SinkEvent};

/// Maximum number of items whose files are open at the same time.
const MAX_OPEN_PARTS: usize = 64;
/// Maximum interval between checks for due checkpoints.
const MAX_TICK: Duration = Duration::from_millis(200);
/// Minimum interval between two progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Jobs of the disk thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Adds an item.
    Add(Arc<Item>, Option<Box<Replay>>),
    /// Restores a block from these symbols and those on the disk.
    Restore(BlockId, Option<Filled>),
    /// Saves symbols on the disk until more arrive.
    Rest(BlockId, Filled),
    /// Drops the symbols of a block that are on the disk.
    Forget(BlockId),
    /// Compares the blocks of an item with their digests.
    CheckBlocks(Toi, Vec<Digest>),
    /// Drops an item. Its data stays on the disk.
    Cancel(Toi),
    /// Result of a checkpoint, either of one item or of many together.
    Synced { toi: Toi, up_to: u64, alone: bool, result: Result<(), SinkError> },
    /// Result of finishing an item.
    Finished { toi: Toi, end: Finish },
    /// Makes everything durable and ends the thread.
    Close,
}

/// The disk thread.
pub(super) struct Disk {
    pub(super) shelf: Arc<Shelf>,
    pub(super) durable: bool,
    pub(super) checkpoint_interval: Duration,
    pub(super) jobs: Receiver<Job>,
    pub(super) sync: Sender<SyncTask>,
    pub(super) verify: Sender<Verification>,
    pub(super) on_event: EventHandler,
    pub(super) helpers: Vec<JoinHandle<()>>,
    pub(super) items: HashMap<Toi, Assembler>,
    /// Symbols of blocks that were wrong.
    pub(super) doubted: Doubted,
    /// Items with open files, in the order of opening.
    pub(super) open: VecDeque<Toi>,
    pub(super) progress_at: Instant,
}

impl Disk {
    /// Executes jobs until it is told to close.
    pub(super) fn run(mut self) {
        let tick = self.checkpoint_interval.min(MAX_TICK);
        // Time of the next check for due checkpoints; `None` while nothing new is on the disk.
        let mut tick_at = None;
        loop {
            let job = match tick_at {
                Some(at) => self.jobs.recv_deadline(at),
                None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(job) => {
                    self.handle(job);
                    tick_at.get_or_insert_with(|| Instant::now() + tick);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if tick_at.is_some_and(|at| at <= now) {
                self.checkpoint(now);
                let more = self.items.values().any(Assembler::awaits_checkpoint);
                tick_at = more.then(|| now + tick);
            }
        }
        self.close();
    }

    fn handle(&mut self, job: Job) {
        match job {
            Job::Add(item, replay) => self.add(item, replay.as_deref()),
            Job::Restore(block, filled) => self.restore(block, filled),
            Job::Rest(block, filled) => self.rest(block, filled),
            Job::Forget(block) => self.forget_block(block),
            Job::CheckBlocks(toi, digests) => self.check_blocks(toi, &digests),
            Job::Cancel(toi) => self.cancel(toi),
            Job::Synced { toi, up_to, alone, result } => self.on_synced(toi, up_to, alone, result),
            Job::Finished { toi, end } => self.on_finished(toi, end),
            Job::Close => {}
        }
    }

    fn add(&mut self, item: Arc<Item>, replay: Option<&Replay>) {
        let toi = item.toi;
        let waiting = replay.map(|replay| enough(&item, replay)).unwrap_or_default();
        self.items.insert(toi, Assembler::new(item, self.shelf.clone(), replay));
        for sbn in waiting {
            self.restore(BlockId { toi, sbn }, None);
        }
        self.finish_if_whole(toi);
    }

    fn restore(&mut self, block: BlockId, filled: Option<Filled>) {
        let result = self.items.get_mut(&block.toi).map(|assembler| {
            if let Some(mut filled) = filled {
                let result = assembler.restore(block.sbn, &mut filled.buffer);
                match result {
                    Ok(Outcome::Wrong) => {
                        self.doubted.put(Open::new(block, assembler.item.clone(), filled));
                    }
                    _ => filled.recycle(),
                }
                result
            } else {
                let mut buffer = BlockBuffer::empty(&assembler.item.partition, block.sbn);
                assembler.restore(block.sbn, &mut buffer)
            }
        });
        match result {
            Some(Ok(Outcome::Restored)) => {
                self.tell(SinkEvent::BlockRestored { block });
                self.tell_progress(block.toi);
                self.finish_if_whole(block.toi);
            }
            Some(Ok(Outcome::Wrong)) => {
                let BlockId { toi, sbn } = block;
                self.tell(SinkEvent::BlocksDropped { toi, blocks: vec![sbn] });
            }
            Some(Ok(Outcome::NotEnough(held))) => {
                self.tell(SinkEvent::RestoreFailed { block, held });
            }
            Some(Err(error)) => self.fail(block.toi, error),
            Some(Ok(Outcome::Known)) | None => {}
        }
        self.limit_open(block.toi);
    }

    fn rest(&mut self, block: BlockId, filled: Filled) {
        if let Some(assembler) = self.items.get_mut(&block.toi)
            && let Err(error) = assembler.rest(block.sbn, &filled.buffer)
        {
            self.fail(block.toi, error);
        }
        filled.recycle();
        self.limit_open(block.toi);
    }

    /// Starts to finish an item if all its blocks are restored.
    fn finish_if_whole(&mut self, toi: Toi) {
        let Some(assembler) = self.items.get_mut(&toi) else { return };
        if assembler.phase != Phase::Receiving || !assembler.is_whole() {
            return;
        }
        assembler.phase = Phase::Finishing;
        if let Some(whole) = assembler.take_whole() {
            match whole.map(|content| assembler.write_whole(&content)) {
                Ok(Ok(finished)) => self.pass(SyncTask::Finish(finished)),
                Ok(Err(error)) => self.fail(toi, error),
                Err(_) => self.on_finished(toi, Finish::Mismatch),
            }
            return;
        }
        let item = &assembler.item;
        let has_changes = item.device.as_ref().is_some_and(|device| device.has_changes(item));
        let verification = assembler.verification();
        if has_changes && verification.is_ok() {
            self.tell(SinkEvent::ReadingBack { toi });
        }
        match verification {
            // The verifying thread receives until this thread drops its sender.
            Ok(verification) => drop(self.verify.send(verification)),
            Err(error) => self.fail(toi, error),
        }
    }

    fn on_finished(&mut self, toi: Toi, end: Finish) {
        let Some(assembler) = self.items.get_mut(&toi) else { return };
        match end {
            Finish::Done => {
                let event = done(&assembler.item);
                self.forget(toi);
                self.tell(event);
            }
            Finish::Appeared => {
                self.forget(toi);
                self.tell(SinkEvent::ItemAppeared { toi });
            }
            Finish::Mismatch => {
                assembler.phase = Phase::Suspect;
                self.tell(SinkEvent::DigestMismatch { toi });
            }
            Finish::Failed(error) => self.fail(toi, error),
            Finish::Aborted => {}
        }
    }

    fn forget_block(&mut self, block: BlockId) {
        if let Some(assembler) = self.items.get_mut(&block.toi)
            && let Err(error) = assembler.forget(block.sbn)
        {
            self.fail(block.toi, error);
        }
        self.limit_open(block.toi);
    }

    fn check_blocks(&mut self, toi: Toi, digests: &[Digest]) {
        let Some(assembler) = self.items.get_mut(&toi) else { return };
        if assembler.phase == Phase::Finishing {
            return;
        }
        let was_suspect = assembler.phase == Phase::Suspect;
        match assembler.check_blocks(digests) {
            Ok(blocks) if blocks.is_empty() && !was_suspect => {}
            Ok(blocks) if blocks.is_empty() => {
                let name = assembler.item.name.clone();
                self.fail(toi, SinkError::Inconsistent { name });
            }
            Ok(blocks) => self.tell(SinkEvent::BlocksDropped { toi, blocks }),
            Err(error) => self.fail(toi, error),
        }
    }

    /// Starts the checkpoints that are due.
    fn checkpoint(&mut self, now: Instant) {
        let items = self.items.values();
        let due: Vec<Toi> =
            items.filter(|item| item.checkpoint_due(now)).map(|item| item.item.toi).collect();
        if due.len() >= SYNC_ALL_FROM {
            self.checkpoint_together(due);
            return;
        }
        for toi in due {
            let Some(assembler) = self.items.get_mut(&toi) else { continue };
            let item = assembler.item.clone();
            match assembler.part.start_checkpoint() {
                Ok(checkpoint) => self.pass(SyncTask::Checkpoint(item, checkpoint)),
                Err(error) => self.fail(toi, error),
            }
            self.limit_open(toi);
        }
    }

    /// Starts checkpoints of many items with one sync of the file system.
    fn checkpoint_together(&mut self, due: Vec<Toi>) {
        let mut ends = Vec::with_capacity(due.len());
        for toi in due {
            let Some(assembler) = self.items.get_mut(&toi) else { continue };
            match assembler.part.start_common_checkpoint() {
                Ok(up_to) => ends.push((toi, up_to)),
                Err(error) => self.fail(toi, error),
            }
            self.limit_open(toi);
        }
        self.pass(SyncTask::Checkpoints(ends));
    }

    fn on_synced(&mut self, toi: Toi, up_to: u64, alone: bool, result: Result<(), SinkError>) {
        let Some(assembler) = self.items.get_mut(&toi) else { return };
        let journal =
            result.and_then(|()| assembler.part.end_checkpoint(up_to, self.checkpoint_interval));
        match journal.map(|()| assembler.part.open_journal()) {
            Ok(Some(journal)) if alone => self.pass(SyncTask::Journal(journal)),
            Ok(_) => {}
            Err(error) => self.fail(toi, error),
        }
        self.limit_open(toi);
    }

    /// Ends an item that has failed. Its data stays on the disk.
    fn fail(&mut self, toi: Toi, mut error: SinkError) {
        if let Some(assembler) = self.items.get_mut(&toi) {
            if let Some(device) = &assembler.item.device {
                error = device.explain(error);
            }
            // Symbols without a record are received again, if the item is ever added again.
            let _ = assembler.part.flush();
        }
        self.forget(toi);
        self.tell(SinkEvent::ItemFailed { toi, error });
    }

    fn cancel(&mut self, toi: Toi) {
        if let Some(assembler) = self.items.get_mut(&toi)
            && assembler.phase != Phase::Finishing
        {
            // Data that cannot be made durable is received again.
            let _ = assembler.part.sync(self.durable);
        }
        if let Some(assembler) = self.items.get(&toi)
            && let Some(device) = &assembler.item.device
        {
            device.remember(&assembler.item, assembler.part.restored());
        }
        self.forget(toi);
    }

    fn forget(&mut self, toi: Toi) {
        if let Some(assembler) = self.items.remove(&toi) {
            assembler.item.closed.store(true, Ordering::Release);
            self.shelf.unreserve(&assembler.item, u64::MAX);
            if assembler.listed {
                self.open.retain(|&open| open != toi);
            }
        }
    }

    /// Closes the files of the item that has been open for longest, if too many are open.
    fn limit_open(&mut self, toi: Toi) {
        if let Some(assembler) = self.items.get_mut(&toi)
            && assembler.part.is_open()
            && !assembler.listed
        {
            assembler.listed = true;
            self.open.push_back(toi);
        }
        if self.open.len() <= MAX_OPEN_PARTS {
            return;
        }
        let Some(oldest) = self.open.pop_front() else { return };
        let Some(assembler) = self.items.get_mut(&oldest) else { return };
        if oldest == toi || assembler.phase == Phase::Finishing || !assembler.part.can_close() {
            self.open.push_back(oldest);
            return;
        }
        assembler.listed = false;
        if let Err(error) = assembler.part.close() {
            self.fail(oldest, error);
        }
    }

    fn close(mut self) {
        if let Err(error) = self.sync_parts() {
            tracing::warn!("{error}; something may be received again");
        }
        let Disk { sync, verify, helpers, jobs, on_event, items, .. } = self;
        drop((sync, verify));
        for helper in helpers {
            // A helper that panicked has reported the reason already.
            let _ = helper.join();
        }
        for job in jobs.try_iter() {
            let Job::Finished { toi, end } = job else { continue };
            match (end, items.get(&toi)) {
                (Finish::Done, Some(assembler)) => on_event(done(&assembler.item)),
                (Finish::Appeared, Some(_)) => on_event(SinkEvent::ItemAppeared { toi }),
                _ => {}
            }
        }
    }

    /// Makes the data of all items durable. Other threads own the files of items that are being
    /// finished, so only their records are written.
    fn sync_parts(&mut self) -> Result<(), SinkError> {
        let mut parts = Vec::new();
        for assembler in self.items.values_mut() {
            match assembler.phase {
                Phase::Finishing => assembler.part.flush()?,
                _ if assembler.part.is_changed() => parts.push(&mut assembler.part),
                _ => {}
            }
        }
        if parts.len() < SYNC_ALL_FROM || !self.durable {
            return parts.into_iter().try_for_each(|part| part.sync(self.durable));
        }
        let mut ends = Vec::with_capacity(parts.len());
        for part in &mut parts {
            ends.push(part.start_common_checkpoint()?);
            part.close()?;
        }
        self.shelf.tree.sync_all()?;
        for (part, up_to) in parts.into_iter().zip(ends) {
            part.end_checkpoint(up_to, self.checkpoint_interval)?;
            part.close()?;
        }
        self.shelf.tree.sync_all()
    }

    fn pass(&self, task: SyncTask) {
        // The sync thread receives until this thread drops its sender.
        let _ = self.sync.send(task);
    }

    fn tell(&self, event: SinkEvent) {
        (self.on_event)(event);
    }

    fn tell_progress(&mut self, toi: Toi) {
        let now = Instant::now();
        if now < self.progress_at {
            return;
        }
        self.progress_at = now + PROGRESS_INTERVAL;
        if let Some(assembler) = self.items.get(&toi) {
            let (restored, size) = (assembler.restored_len(), assembler.item.len());
            self.tell(SinkEvent::Progress { toi, restored, size });
        }
    }
}

fn done(item: &Item) -> SinkEvent {
    SinkEvent::ItemDone {
        toi: item.toi,
        name: item.name.clone(),
        path: item.place.target.clone(),
        size: item.len(),
    }
}

/// Returns the blocks of which the journal has enough symbols.
fn enough(item: &Item, replay: &Replay) -> Vec<u32> {
    let blocks = replay.partial.iter();
    blocks
        .filter(|&(&sbn, held)| held.count() >= item.partition.block_symbols(sbn))
        .map(|(&sbn, _)| sbn)
        .collect()
}
