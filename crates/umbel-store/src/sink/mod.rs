//! The storage of items that a client receives.
//!
//! The receiving engine passes symbols to a [`DiskSink`] as a [`SymbolSink`]. Storing a symbol
//! copies it into the buffer of its block. All operations that wait for a disk run on the sink's
//! own threads:
//!
//! ```text
//! receiving thread      disk thread               sync thread           verifying thread
//! store ─ copy          restore: decode, write,   sync, rename  ◄────── digest of large items
//! restore, rest ──────► hash, journal ──────────► checkpoints
//!                       events ◄──────────────────┘
//! ```
//!
//! An incomplete item is stored beside its target as `.NAME.umbel-part`. A [`journal`] records the
//! parts held, so that a client killed at any instant resumes where it was. An item is verified
//! against its digest, or each of its blocks against its own as it came. Then it is made durable,
//! and only then renamed. If the target has appeared meanwhile, the contents decide: the same is
//! there already, another is not replaced without being asked. Items of one block are written once, when they are complete, and many of
//! them become durable together.
//!
//! Memory is bounded. Open blocks and those on their way to the disk share one budget. When it is
//! used up, `store` returns `false`. Each block of an incomplete item takes one bit, and 8 bytes
//! more if some of its symbols are on the disk.
//!
//! # Scope and limitations
//!
//! No symbolic link below the output directory is followed. Links that are items are made
//! ([`Links`]). Other files are not replaced, and hidden ones not written, unless the options say
//! so. An item whose directory or file system fails is reported and dropped, and the other items
//! continue. Its part file stays, so that it can be resumed.

mod assembler;
mod attributes;
mod brought;
mod buffers;
mod changes;
mod claim;
mod device;
mod directories;
mod disk;
mod errors;
mod finish;
mod held;
mod item;
pub mod journal;
mod links;
mod memory;
mod names;
mod options;
mod others;
mod part;
mod tree;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::Sender;
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

pub use attributes::Unkept;
pub use changes::{Change, Purpose};
pub use claim::{Attempt, Claim, Claimant, is_claim};
pub use device::{DeviceReport, DeviceTarget};
pub use errors::SinkError;
pub use held::{Held, HeldBlock, HeldParts};
pub use item::Prepared;
pub use links::{Links, NameOutcome, NamedFile};
pub use memory::MemorySink;
pub use names::{NameError, Names, RelativePath};
pub use options::SinkOptions;
pub use others::{Hidden, Other};

use attributes::Allowed;
use buffers::{Budget, Doubted, OpenBlocks, Stored};
use changes::Changes;
use device::Device;
use directories::Directories;
use disk::{Disk, Job};
use finish::{Syncer, Verifier};
use item::{Item, Shelf};
use links::OtherNames;
use tree::Tree;

/// Maximum number of waiting tasks of the sync thread.
const SYNC_QUEUE: usize = 4096;

/// Minimum number of items at which closed items are removed.
const TIDY_FROM: usize = 1024;

/// Called for each event, on a thread of the sink. It must not block.
type EventHandler = Arc<dyn Fn(SinkEvent) + Send + Sync>;

/// Event of a sink.
#[derive(Clone, Debug)]
pub enum SinkEvent {
    /// The block is restored and written.
    BlockRestored {
        /// Identifier of the block.
        block: BlockId,
    },
    /// The block could not be restored. Either RaptorQ needs a few more symbols, or some that were
    /// on the disk are damaged. Restore it again when more are held.
    RestoreFailed {
        /// Identifier of the block.
        block: BlockId,
        /// Symbols held of the block now.
        held: HeldBlock,
    },
    /// Progress of an item, at most ten times a second.
    Progress {
        /// Object identifier of the item.
        toi: Toi,
        /// Bytes of restored blocks.
        restored: u64,
        /// Bytes of the item.
        size: u64,
    },
    /// The item is verified and at its target. No further event about it follows.
    ItemDone {
        /// Object identifier of the item.
        toi: Toi,
        /// Name of the item.
        name: String,
        /// Path of the item's file.
        path: PathBuf,
        /// Bytes of the item.
        size: u64,
    },
    /// Meanwhile somebody else has brought the item to its target. Nothing is left of what was
    /// received. No further event about it follows.
    ItemAppeared {
        /// Object identifier of the item.
        toi: Toi,
    },
    /// All blocks of the item are on its block device, which is synced now and read back.
    ReadingBack {
        /// Object identifier of the item.
        toi: Toi,
    },
    /// All blocks are restored, but the item's digest does not match. Get the digests of its blocks
    /// and call [`DiskSink::check_blocks`].
    DigestMismatch {
        /// Object identifier of the item.
        toi: Toi,
    },
    /// Nothing is held of these blocks. They must be received again.
    BlocksDropped {
        /// Object identifier of the item.
        toi: Toi,
        /// Source block numbers, ascending; at least one.
        blocks: Vec<u32>,
    },
    /// The item cannot be kept. No further event about it follows; other items continue.
    ItemFailed {
        /// Object identifier of the item.
        toi: Toi,
        /// Reason, as one line for the user.
        error: SinkError,
    },
}

/// Stores items below an output directory, or one on a block device. Clones are the same sink. An
/// engine stores symbols through one, and its host adds and cancels items through another.
///
/// Dropping the last clone closes the sink.
#[derive(Clone)]
pub struct DiskSink {
    shared: Arc<Shared>,
}

struct Shared {
    open: Mutex<Open>,
    preparer: Preparer,
    jobs: Sender<Job>,
    closing: Arc<AtomicBool>,
    disk: Mutex<Option<JoinHandle<()>>>,
}

/// Items that are being received, and blocks of them in memory.
struct Open {
    items: HashMap<Toi, Arc<Item>>,
    /// Number of items at which closed ones are removed.
    tidy_at: usize,
    blocks: OpenBlocks,
}

/// Looks items up on the disk for a sink. Any thread may use it, since verifying a large file that
/// already exists takes a while.
#[derive(Clone, Debug)]
pub struct Preparer {
    shelf: Arc<Shelf>,
}

impl Preparer {
    /// Determines the item's place and looks up its state on the disk. Pass the result to
    /// [`DiskSink::admit`]. Reads the whole target if one of the right size exists, and the journal
    /// if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the item cannot be kept. Its name is refused or taken, another file may
    /// not be replaced, there is no room, or an operation of the file system fails. Other items are
    /// not affected.
    pub fn prepare(&self, info: &ItemInfo) -> Result<Prepared, SinkError> {
        self.shelf.prepare(info)
    }
}

impl DiskSink {
    /// Opens the output directory, creates it if necessary, and starts the sink's threads.
    /// `on_event` is called for each event on one of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created, opened or written to, or if a thread
    /// cannot be started.
    pub fn open(
        directory: &Path,
        options: SinkOptions,
        on_event: impl Fn(SinkEvent) + Send + Sync + 'static,
    ) -> Result<DiskSink, SinkError> {
        let (tree, folds_case, allowed) = if options.purpose == Purpose::Look {
            let tree = Tree::open_to_look(directory)?;
            let allowed = tree.look_at_allowed();
            (tree, false, allowed)
        } else {
            let tree = Tree::open(directory)?;
            let (folds_case, allowed) = tree.try_names()?;
            (tree, folds_case, allowed)
        };
        DiskSink::with((tree, folds_case, allowed), None, options, on_event)
    }

    fn with(
        (tree, folds_case, allowed): (Tree, bool, Allowed),
        device: Option<Arc<Device>>,
        options: SinkOptions,
        on_event: impl Fn(SinkEvent) + Send + Sync + 'static,
    ) -> Result<DiskSink, SinkError> {
        let directory = tree.path().to_owned();
        let folds_case = options.folds_case.unwrap_or(folds_case);
        let shelf = Arc::new(Shelf {
            tree: Arc::new(tree),
            names: Mutex::new(Names::new(folds_case)),
            check_space: options.check_space,
            preserve_times: options.preserve_times,
            overwrite: options.overwrite,
            durable: options.durable,
            directories: Directories::default(),
            links: options.links,
            other_names: OtherNames::default(),
            brought: Mutex::default(),
            last: OnceLock::new(),
            own_claim: OnceLock::new(),
            hidden: options.hidden,
            allowed,
            unkept: attributes::Counts::default(),
            reserved: AtomicU64::new(0),
            purpose: options.purpose,
            changes: Changes::default(),
            device,
        });
        let closing = Arc::new(AtomicBool::new(false));
        let doubted = Doubted::default();
        let parts = (&closing, doubted.clone());
        let (jobs, disk) = start(&shelf, options, parts, Arc::new(on_event))
            .map_err(SinkError::io("start threads for", &directory))?;
        let blocks = OpenBlocks::new(Budget::new(options.memory), doubted);
        let open = Open { items: HashMap::new(), tidy_at: TIDY_FROM, blocks };
        let shared = Shared {
            open: Mutex::new(open),
            preparer: Preparer { shelf },
            jobs,
            closing,
            disk: Mutex::new(Some(disk)),
        };
        Ok(DiskSink { shared: Arc::new(shared) })
    }

    /// Returns what files could not keep so far.
    pub fn unkept(&self) -> Unkept {
        self.shared.preparer.shelf.unkept.get()
    }

    /// Returns what was changed so far, or would be, by the paths below the output directory. Empty
    /// unless the [`Purpose`] is to tell.
    pub fn changes(&self) -> Vec<(String, Change)> {
        self.shared.preparer.shelf.changes.get()
    }

    /// Returns a handle that looks items up for this sink, on other threads if desired.
    pub fn preparer(&self) -> Preparer {
        self.shared.preparer.clone()
    }

    /// Returns a handle to become the only run that brings what `source` has to the directory. Any
    /// text will do that names it.
    pub fn claimant(&self, source: &str) -> Claimant {
        let shelf = &self.shared.preparer.shelf;
        let claimant = Claimant::new(&shelf.tree, source);
        shelf.own_claim.get_or_init(|| claimant.name().to_owned());
        claimant
    }

    /// Lists what comes from now on in the directory, as from `source`, for the next run: what a run
    /// brought that does not end with [`complete`](Self::complete) may be replaced by another version.
    /// So may what earlier runs have listed.
    pub fn resume(&self, source: &str) {
        let shelf = &self.shared.preparer.shelf;
        shelf.brought().resume(shelf.tree.root(), source);
    }

    /// Notes that the run is not to be gone on with.
    pub fn complete(&self) {
        self.shared.preparer.shelf.brought().complete();
    }

    /// Takes items over from this directory, which has the release before, if they are the same.
    /// Their files are linked to the output directory, or copied if their permissions or times are
    /// others. Nothing is done if it is not there.
    pub fn take_over_from(&self, directory: &Path) {
        if directory.is_dir()
            && let Ok(tree) = Tree::open(directory)
        {
            let _ = self.shared.preparer.shelf.last.set(tree);
        }
    }

    /// Forgets the other names of files that were added. To be called before a list of items
    /// begins.
    pub fn begin_list(&self) {
        self.shared.preparer.shelf.other_names.clear();
    }

    /// Gives files the other names that were added, if this run has verified them. To be called
    /// when all files are there that will be, before [`set_directories`](Self::set_directories).
    pub fn name_files(&self) -> Vec<NamedFile> {
        self.shared.preparer.shelf.name_files()
    }

    /// Gives the directories that are items their permissions and times. To be called when nothing
    /// is written below them any more.
    pub fn set_directories(&self) {
        self.shared.preparer.shelf.set_directories();
    }

    /// Returns everything in the output directory but the items of these names, which were added,
    /// and directories that have some, the deepest first. Follows no link, and leaves out what is
    /// mounted there, and incomplete files while another run goes on there.
    pub fn others(&self, names: &HashSet<String>, hidden: Hidden) -> Vec<Other> {
        self.shared.preparer.shelf.others(names, hidden)
    }

    /// Removes what [`others`](Self::others) returns. Returns what it has removed.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be removed. Others may be removed by then.
    pub fn remove_others(
        &self,
        names: &HashSet<String>,
        hidden: Hidden,
    ) -> Result<Vec<Other>, SinkError> {
        self.shared.preparer.shelf.remove(self.others(names, hidden))
    }

    /// Adds an item to be received. Combines [`Preparer::prepare`] and [`admit`](Self::admit).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Preparer::prepare`].
    pub fn add(&self, info: &ItemInfo) -> Result<Held, SinkError> {
        let prepared = self.shared.preparer.prepare(info)?;
        Ok(self.admit(prepared))
    }

    /// Adds an item that was looked up. Returns the state of the item.
    pub fn admit(&self, prepared: Prepared) -> Held {
        let Prepared { item, replay, held } = prepared;
        if let (Some(item), Held::Parts(_)) = (item, &held) {
            self.shared.open().add(&item);
            self.shared.send(Job::Add(item, replay.map(Box::new)));
        }
        held
    }

    /// Returns whether blocks of `bytes` together can be stored now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.shared.open().blocks.has_room(bytes)
    }

    /// Compares the restored blocks of an item with these digests, one for each block in order.
    /// Blocks that do not match are dropped and reported by [`SinkEvent::BlocksDropped`], and so
    /// are blocks that come later. If all match after [`SinkEvent::DigestMismatch`], the item
    /// fails.
    pub fn check_blocks(&self, toi: Toi, digests: Vec<Digest>) {
        self.shared.send(Job::CheckBlocks(toi, digests));
    }

    /// Drops an item that is no longer wanted. Its data stays on the disk.
    pub fn cancel(&self, toi: Toi) {
        let mut open = self.shared.open();
        for block in open.blocks.ids(|block| block.toi == toi) {
            self.shared.rest(&mut open, block);
        }
        open.blocks.forget_doubted(|block| block.toi == toi);
        if let Some(item) = open.items.remove(&toi) {
            item.closed.store(true, Ordering::Release);
            self.shared.preparer.shelf.names().release(&item.name, &item.place.relative);
            self.shared.send(Job::Cancel(toi));
        }
    }

    /// Writes all held symbols to the disk, makes them durable, and ends the threads. Other clones
    /// store nothing more. Items that are being verified are left as they are. All their blocks are
    /// held when they are added again.
    pub fn close(self) {
        self.shared.shut_down();
    }
}

impl Open {
    fn add(&mut self, item: &Arc<Item>) {
        if self.items.len() >= self.tidy_at {
            self.items.retain(|_, item| !item.is_closed());
            self.tidy_at = TIDY_FROM.max(self.items.len() * 2);
        }
        self.items.insert(item.toi, item.clone());
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, job: Job) {
        // If the disk thread has ended, nothing can be kept any more, and the job is dropped.
        let _ = self.jobs.send(job);
    }

    fn rest(&self, open: &mut Open, block: BlockId) {
        if let Some(filled) = open.blocks.take(block) {
            self.send(Job::Rest(block, filled));
        }
    }

    fn shut_down(&self) {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(disk) = disk else { return };
        let mut open = self.open();
        for block in open.blocks.ids(|_| true) {
            self.rest(&mut open, block);
        }
        self.closing.store(true, Ordering::Release);
        if let Some(device) = &self.preparer.shelf.device {
            device.close();
        }
        self.send(Job::Close);
        if disk.join().is_err() {
            tracing::error!("the disk thread panicked; what it held is lost");
        }
    }
}

impl SymbolSink for DiskSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let mut open = self.shared.open();
        let Open { items, blocks, .. } = &mut *open;
        let item = || items.get(&block.toi).filter(|item| !item.is_closed());
        match blocks.store(block, esi, symbol, item) {
            Stored::Yes => true,
            Stored::Unfit => false,
            Stored::NoRoom => {
                // The least recently used block makes room.
                if let Some(stalest) = blocks.stalest() {
                    self.shared.rest(&mut open, stalest);
                }
                false
            }
        }
    }

    fn restore(&mut self, block: BlockId) {
        let filled = self.shared.open().blocks.take(block);
        self.shared.send(Job::Restore(block, filled));
    }

    fn rest(&mut self, block: BlockId) {
        let mut open = self.shared.open();
        self.shared.rest(&mut open, block);
    }

    fn forget(&mut self, block: BlockId) {
        let mut open = self.shared.open();
        if let Some(filled) = open.blocks.take(block) {
            filled.recycle();
        }
        open.blocks.forget_doubted(|id| id == block);
        drop(open);
        self.shared.send(Job::Forget(block));
    }

    fn differs(&self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        self.shared.open().blocks.differs(block, esi, symbol)
    }

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        let wrong = self.shared.open().blocks.retain(block, is_right);
        if wrong.is_none() {
            self.forget(block);
        }
        wrong
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl fmt::Debug for DiskSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskSink")
            .field("items", &self.shared.open().items.len())
            .finish_non_exhaustive()
    }
}

/// Starts the threads. Returns the channel to the disk thread and its handle.
fn start(
    shelf: &Arc<Shelf>,
    options: SinkOptions,
    (closing, doubted): (&Arc<AtomicBool>, Doubted),
    on_event: EventHandler,
) -> std::io::Result<(Sender<Job>, JoinHandle<()>)> {
    let (jobs, inbox) = crossbeam_channel::unbounded();
    let (sync, sync_tasks) = crossbeam_channel::bounded(SYNC_QUEUE);
    let (verify, verify_tasks) = crossbeam_channel::unbounded();
    let syncer = Syncer {
        shelf: shelf.clone(),
        durable: options.durable,
        tasks: sync_tasks,
        reports: jobs.clone(),
    };
    let verifier = Verifier {
        shelf: shelf.clone(),
        closing: closing.clone(),
        tasks: verify_tasks,
        finished: sync.clone(),
        reports: jobs.clone(),
    };
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let helpers = vec![
        spawn("umbel-sync").spawn(|| syncer.run())?,
        spawn("umbel-verify").spawn(|| verifier.run())?,
    ];
    let disk = Disk {
        shelf: shelf.clone(),
        durable: options.durable,
        checkpoint_interval: options.checkpoint_interval,
        jobs: inbox,
        sync,
        verify,
        on_event,
        helpers,
        items: HashMap::new(),
        doubted,
        open: VecDeque::new(),
        progress_at: Instant::now(),
    };
    Ok((jobs, spawn("umbel-disk").spawn(|| disk.run())?))
}
