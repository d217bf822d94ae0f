//! Makes data durable and renames finished items to their targets, away from the disk thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender};
use umbel_wire::{Digest, Toi};

use super::attributes;
use super::device::{Device, ReadBack};
use super::disk::Job;
use super::errors::SinkError;
use super::item::{Item, READ_LEN, Shelf};
use super::part::Checkpoint;
use super::tree::{FileId, Role, Tree, sync_directory};
use crate::DeviceError;

/// Maximum number of tasks that are taken at once, so that small items become durable together.
const BATCH: usize = 4096;
/// Number of items from which syncing the whole file system is cheaper than syncing each file.
pub(super) const SYNC_ALL_FROM: usize = 5;

/// Tasks of the sync thread.
#[derive(Debug)]
pub(super) enum SyncTask {
    /// Makes a checkpoint durable.
    Checkpoint(Arc<Item>, Checkpoint),
    /// Makes the checkpoints of these items durable, up to these offsets.
    Checkpoints(Vec<(Toi, u64)>),
    /// Makes a journal durable.
    Journal(Arc<File>),
    /// Makes a verified part file durable and renames it to its target.
    Finish(Finished),
}

/// An item whose part file is complete and verified.
#[derive(Debug)]
pub(super) struct Finished {
    item: Arc<Item>,
    id: FileId,
    /// Kept open and locked for large items; `None` for small ones, of which there may be
    /// thousands.
    file: Option<Arc<File>>,
}

impl Finished {
    /// Creates the task for a small item, whose file may be closed now.
    pub(super) fn small(
        item: Arc<Item>,
        file: &File,
        shelf: &Shelf,
    ) -> Result<Finished, SinkError> {
        attributes::set(item.attributes, file, shelf.allowed, &shelf.unkept);
        let id =
            FileId::of(file).map_err(SinkError::io("look at", &item.place.path(Role::Part)))?;
        Ok(Finished { item, id, file: None })
    }

    /// Creates the task for a large item.
    fn large(item: Arc<Item>, file: Arc<File>, shelf: &Shelf) -> Result<Finished, SinkError> {
        let finished = Finished::small(item, &file, shelf)?;
        Ok(Finished { file: Some(file), ..finished })
    }

    /// Makes the content of the file durable.
    fn sync(&self, tree: &Tree) -> Result<(), SinkError> {
        let path = || self.item.place.path(Role::Part);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => match tree.open_to_read(&self.item.place, Role::Part)? {
                Some(file) => Arc::new(file),
                None => return Err(SinkError::Replaced { path: path() }),
            },
        };
        file.sync_data().map_err(SinkError::io("sync", &path()))
    }

    fn put_in_place(&self, shelf: &Shelf) -> Result<(), SinkError> {
        let (tree, place) = (&shelf.tree, &self.item.place);
        if tree.id(place, Role::Part)? != Some(self.id) {
            return Err(SinkError::Replaced { path: place.path(Role::Part) });
        }
        shelf.note_arrival(place);
        tree.rename(place, Role::Part, Role::Target, shelf.may_replace(place))?;
        shelf.brought().put(place.relative.joined(), self.item.version());
        tree.remove(place, Role::Journal)?;
        tree.remove(place, Role::Compact)
    }

    /// Returns how the item has ended if it could not be put in place. Another process may have
    /// brought it meanwhile.
    fn end_otherwise(&self, shelf: &Shelf, error: SinkError) -> Finish {
        let met = matches!(error, SinkError::Exists { .. } | SinkError::Replaced { .. });
        if !met || !shelf.has_appeared(&self.item) {
            return Finish::Failed(error);
        }
        let place = &self.item.place;
        let part = shelf.tree.id(place, Role::Part).ok().flatten();
        if part == Some(self.id) {
            for role in [Role::Journal, Role::Compact, Role::Part] {
                // What remains is removed by the next run.
                let _ = shelf.tree.remove(place, role);
            }
        }
        Finish::Appeared
    }
}

/// An item whose blocks are all in the part file.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) item: Arc<Item>,
    pub(super) data: Arc<File>,
    /// State of the digest, unless each block was compared with its own.
    pub(super) hasher: Option<blake3::Hasher>,
    /// Number of bytes from the beginning that the hasher has seen.
    pub(super) hashed_len: u64,
}

/// Result of finishing an item.
#[derive(Debug)]
pub(super) enum Finish {
    /// The item is at its target.
    Done,
    /// Another process has brought the item to its target.
    Appeared,
    /// The digest does not match.
    Mismatch,
    /// An operation of the file system failed.
    Failed(SinkError),
    /// The sink is closing, or the item is no longer wanted.
    Aborted,
}

/// The sync thread.
pub(super) struct Syncer {
    pub(super) shelf: Arc<Shelf>,
    pub(super) durable: bool,
    pub(super) tasks: Receiver<SyncTask>,
    pub(super) reports: Sender<Job>,
}

impl Syncer {
    /// Executes tasks until the disk thread ends.
    pub(super) fn run(self) {
        // Directories with new names, each with one of its items.
        let mut renamed = BTreeMap::new();
        while let Ok(first) = self.tasks.recv() {
            let mut finished = Vec::new();
            for task in std::iter::once(first).chain(self.tasks.try_iter().take(BATCH)) {
                match task {
                    SyncTask::Checkpoint(item, checkpoint) => self.checkpoint(&item, &checkpoint),
                    SyncTask::Checkpoints(items) => self.checkpoints(items),
                    // If this fails, so will the next checkpoint, which is reported.
                    SyncTask::Journal(journal) if self.durable => drop(journal.sync_data()),
                    SyncTask::Journal(_) => {}
                    SyncTask::Finish(item) => finished.push(item),
                }
            }
            self.finish(&finished, &mut renamed);
            if self.tasks.is_empty() {
                self.sync_names(std::mem::take(&mut renamed).into_values());
            }
        }
    }

    fn checkpoint(&self, item: &Item, checkpoint: &Checkpoint) {
        let result = if self.durable { checkpoint.data.sync_data() } else { Ok(()) };
        let result = result.map_err(SinkError::io("sync", &item.place.path(Role::Part)));
        self.report(Job::Synced { toi: item.toi, up_to: checkpoint.up_to, alone: true, result });
    }

    fn checkpoints(&self, items: Vec<(Toi, u64)>) {
        let result = if self.durable { self.shelf.tree.sync_all() } else { Ok(()) };
        for (toi, up_to) in items {
            self.report(Job::Synced { toi, up_to, alone: false, result: result.clone() });
        }
    }

    fn finish(&self, finished: &[Finished], renamed: &mut BTreeMap<Vec<String>, Arc<Item>>) {
        let tree = &self.shelf.tree;
        let together = finished.len() >= SYNC_ALL_FROM;
        let all = if together && self.durable { tree.sync_all() } else { Ok(()) };
        for one in finished {
            let synced = match &all {
                Ok(()) if together || !self.durable => Ok(()),
                Ok(()) => one.sync(tree),
                Err(error) => Err(error.clone()),
            };
            let end = match synced.and_then(|()| one.put_in_place(&self.shelf)) {
                Ok(()) => Finish::Done,
                Err(error) => one.end_otherwise(&self.shelf, error),
            };
            let (directory, _) = one.item.place.relative.split();
            renamed.entry(directory.to_vec()).or_insert_with(|| one.item.clone());
            self.report(Job::Finished { toi: one.item.toi, end });
        }
    }

    /// Makes the new names durable. The items are done in any case. If the machine crashes before,
    /// their part files are found again.
    fn sync_names(&self, items: impl ExactSizeIterator<Item = Arc<Item>>) {
        if !self.durable {
            return;
        }
        if items.len() == 0 {
            return;
        }
        if items.len() >= SYNC_ALL_FROM {
            let _ = self.shelf.tree.sync_all();
        }
        // Directories above the output directory may be on another file system.
        self.shelf.tree.sync_new_directories();
        if items.len() >= SYNC_ALL_FROM {
            return;
        }
        for item in items {
            if let Ok(Some(directory)) = self.shelf.tree.directory(&item.place, false) {
                let _ = sync_directory(&directory);
            }
        }
    }

    fn report(&self, job: Job) {
        // The disk thread receives until this thread ends.
        let _ = self.reports.send(job);
    }
}

/// The verifying thread.
pub(super) struct Verifier {
    pub(super) shelf: Arc<Shelf>,
    pub(super) closing: Arc<AtomicBool>,
    pub(super) tasks: Receiver<Verification>,
    pub(super) finished: Sender<SyncTask>,
    pub(super) reports: Sender<Job>,
}

impl Verifier {
    /// Executes tasks until the disk thread ends.
    pub(super) fn run(self) {
        while let Ok(task) = self.tasks.recv() {
            let toi = task.item.toi;
            if let Some(device) = &task.item.device {
                self.report(toi, on_device(device, &task.item));
                continue;
            }
            match self.digest(&task) {
                Ok(Some(digest)) if digest == task.item.key.item => {
                    match Finished::large(task.item, task.data, &self.shelf) {
                        Ok(finished) => drop(self.finished.send(SyncTask::Finish(finished))),
                        Err(error) => self.report(toi, Finish::Failed(error)),
                    }
                }
                Ok(Some(_)) => self.report(toi, Finish::Mismatch),
                Ok(None) => self.report(toi, Finish::Aborted),
                Err(error) => self.report(toi, Finish::Failed(error)),
            }
        }
    }

    /// Computes the digest of the part file, unless its blocks were compared with theirs. Returns
    /// `None` if the item is no longer wanted.
    fn digest(&self, task: &Verification) -> Result<Option<Digest>, SinkError> {
        let Some(mut hasher) = task.hasher.clone() else { return Ok(Some(task.item.key.item)) };
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

/// Finishes an item whose blocks are all on a device.
fn on_device(device: &Device, item: &Item) -> Finish {
    match device.finish(item) {
        Ok(ReadBack::Whole) => Finish::Done,
        Ok(ReadBack::WasThere) => Finish::Appeared,
        Ok(ReadBack::Differs) => Finish::Mismatch,
        Err(DeviceError::Interrupted) => Finish::Aborted,
        Err(error) => Finish::Failed(error.into()),
    }
}
