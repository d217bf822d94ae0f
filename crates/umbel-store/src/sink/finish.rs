//! Makes things durable and puts finished items in their places, away from the disk thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender};
use umbel_wire::{Digest, Toi};

use super::disk::Job;
use super::errors::SinkError;
use super::item::{Item, READ_LEN, Shelf};
use super::part::Checkpoint;
use super::tree::{Role, sync_directory};

/// Most small items that become durable together.
const BATCH: usize = 256;
/// From so many items on, syncing the whole file system is cheaper than syncing each file.
const SYNC_ALL_FROM: usize = 5;

/// What the sync thread does.
#[derive(Debug)]
pub(super) enum SyncTask {
    /// Makes a checkpoint durable.
    Checkpoint(Arc<Item>, Checkpoint),
    /// Makes a journal durable.
    Journal(Arc<File>),
    /// Makes a verified part file durable and puts it in its place.
    Finish(Finished),
}

/// An item whose part file is complete and verified.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) item: Arc<Item>,
    pub(super) file: Arc<File>,
}

/// An item all blocks of which are in the part file.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) item: Arc<Item>,
    pub(super) data: Arc<File>,
    pub(super) hasher: blake3::Hasher,
    /// Bytes from the beginning that the hasher has seen.
    pub(super) hashed_len: u64,
}

/// How finishing an item ended.
#[derive(Debug)]
pub(super) enum Finish {
    /// It is in its place.
    Done,
    /// Its digest is another.
    Mismatch,
    /// The file system refused something.
    Failed(SinkError),
    /// The sink is closing, or the item is not wanted any more.
    Aborted,
}

/// The sync thread.
pub(super) struct Syncer {
    pub(super) shelf: Arc<Shelf>,
    pub(super) durable: bool,
    pub(super) preserve_times: bool,
    pub(super) tasks: Receiver<SyncTask>,
    pub(super) reports: Sender<Job>,
}

impl Syncer {
    /// Works until the disk thread is gone.
    pub(super) fn run(self) {
        while let Ok(first) = self.tasks.recv() {
            let mut finished = Vec::new();
            for task in std::iter::once(first).chain(self.tasks.try_iter().take(BATCH)) {
                match task {
                    SyncTask::Checkpoint(item, checkpoint) => self.checkpoint(&item, &checkpoint),
                    // If this fails, so will the next checkpoint, which is reported.
                    SyncTask::Journal(journal) => drop(journal.sync_data()),
                    SyncTask::Finish(item) => finished.push(item),
                }
            }
            self.finish(&finished);
        }
    }

    fn checkpoint(&self, item: &Item, checkpoint: &Checkpoint) {
        let result = if self.durable { checkpoint.data.sync_data() } else { Ok(()) };
        let result = result.map_err(SinkError::io("sync", &item.place.path(Role::Part)));
        self.report(Job::Synced { toi: item.toi, up_to: checkpoint.up_to, result });
    }

    fn finish(&self, finished: &[Finished]) {
        let together = finished.len() >= SYNC_ALL_FROM;
        for Finished { item, file } in finished {
            if self.preserve_times {
                set_modified(item, file);
            }
        }
        let all = if together && self.durable { self.sync_all() } else { Ok(()) };
        let mut directories = BTreeMap::new();
        for Finished { item, file } in finished {
            let one = match &all {
                Ok(()) if together || !self.durable => Ok(()),
                Ok(()) => {
                    file.sync_data().map_err(SinkError::io("sync", &item.place.path(Role::Part)))
                }
                Err(error) => Err(error.clone()),
            };
            let end = match one.and_then(|()| self.put_in_place(item)) {
                Ok(()) => Finish::Done,
                Err(error) => Finish::Failed(error),
            };
            directories.entry(item.place.relative.split().0).or_insert(item);
            self.report(Job::Finished { toi: item.toi, end });
        }
        if self.durable {
            self.sync_names(directories.into_values());
        }
    }

    /// Syncs the whole file system.
    fn sync_all(&self) -> Result<(), SinkError> {
        let tree = &self.shelf.tree;
        nix::unistd::syncfs(tree.root()).map_err(SinkError::io("sync", tree.path()))
    }

    fn put_in_place(&self, item: &Item) -> Result<(), SinkError> {
        let tree = &self.shelf.tree;
        tree.rename(&item.place, Role::Part, Role::Target)?;
        tree.remove(&item.place, Role::Journal)
    }

    /// Makes the new names durable. The items are done in any case; if the machine dies before,
    /// their part files are found again.
    fn sync_names<'a>(&self, items: impl ExactSizeIterator<Item = &'a Arc<Item>>) {
        if items.len() >= SYNC_ALL_FROM {
            let _ = self.sync_all();
            return;
        }
        for item in items {
            if let Ok(Some(directory)) = self.shelf.tree.directory(&item.place, false) {
                let _ = sync_directory(&directory);
            }
        }
    }

    fn report(&self, job: Job) {
        // The disk thread receives until this thread is done.
        let _ = self.reports.send(job);
    }
}

/// Gives the file the item's modification time. If it cannot be set, the item is no worse.
fn set_modified(item: &Item, file: &File) {
    let Some(ns) = item.modified_ns else { return };
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = match ns {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    if let Some(time) = time {
        let _ = file.set_modified(time);
    }
}

/// The verifying thread.
pub(super) struct Verifier {
    pub(super) closing: Arc<AtomicBool>,
    pub(super) tasks: Receiver<Verification>,
    pub(super) finished: Sender<SyncTask>,
    pub(super) reports: Sender<Job>,
}

impl Verifier {
    /// Works until the disk thread is gone.
    pub(super) fn run(self) {
        while let Ok(task) = self.tasks.recv() {
            let toi = task.item.toi;
            match self.digest(&task) {
                Ok(Some(digest)) if digest == task.item.key.item => {
                    let finished = Finished { item: task.item, file: task.data };
                    let _ = self.finished.send(SyncTask::Finish(finished));
                }
                Ok(Some(_)) => self.report(toi, Finish::Mismatch),
                Ok(None) => self.report(toi, Finish::Aborted),
                Err(error) => self.report(toi, Finish::Failed(error)),
            }
        }
    }

    /// The digest of the part file; `None` if it is not wanted any more.
    fn digest(&self, task: &Verification) -> Result<Option<Digest>, SinkError> {
        let mut hasher = task.hasher.clone();
        let mut offset = task.hashed_len;
        let mut buffer = vec![0; READ_LEN];
        while offset < task.item.len() {
            if self.closing.load(Ordering::Acquire) || task.item.is_closed() {
                return Ok(None);
            }
            let len = (task.item.len() - offset).min(READ_LEN as u64) as usize;
            task.data
                .read_exact_at(&mut buffer[..len], offset)
                .map_err(SinkError::io("read", &task.item.place.path(Role::Part)))?;
            hasher.update(&buffer[..len]);
            offset += len as u64;
        }
        Ok(Some(Digest(*hasher.finalize().as_bytes())))
    }

    fn report(&self, toi: Toi, end: Finish) {
        let _ = self.reports.send(Job::Finished { toi, end });
    }
}
