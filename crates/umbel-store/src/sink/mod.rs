//! Where a client keeps what it receives.
//!
//! The receiving engine hands symbols to a [`DiskSink`] as a
//! [`SymbolSink`]. Storing one is a copy into the buffer of its
//! block; everything that waits for a disk happens on threads of the sink's own:
//!
//! ```text
//! receiving thread      disk thread               sync thread           verifying thread
//! store ─ copy          restore: decode, write,   sync, rename  ◄────── digest of large items
//! restore, rest ──────► hash, journal ──────────► checkpoints
//!                       events ◄──────────────────┘
//! ```
//!
//! An incomplete item lives beside its target as `.NAME.umbel-part`, with a [`journal`] of what is
//! held of it, so that a client killed at any instant goes on where it was. An item is verified
//! against its digest, made durable, and only then renamed. Items of one block are written once,
//! when they are complete, and many of them become durable together.
//!
//! Memory is bounded: open blocks and those on their way to the disk share one budget; when it is
//! used up, `store` gives `false`. Per block of an incomplete item a bit is kept, and 8 bytes for
//! one of which symbols are on the disk.
//!
//! # Scope and limitations
//!
//! No symbolic link below the output directory is followed. An item whose directory or file
//! system fails is reported and dropped, and the others go on; its part file stays, so that it
//! can be resumed.

mod assembler;
mod buffers;
mod disk;
mod errors;
mod finish;
mod held;
mod item;
pub mod journal;
mod memory;
mod names;
mod part;
mod tree;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

pub use errors::SinkError;
pub use held::{Held, HeldBlock, HeldParts};
pub use item::Prepared;
pub use memory::MemorySink;
pub use names::{NameError, Names, RelativePath};

use buffers::{Budget, OpenBlocks, Stored};
use disk::{Disk, Job};
use finish::{Syncer, Verifier};
use item::{Item, Shelf};
use tree::Tree;

/// Tasks of the sync thread that may wait.
const SYNC_QUEUE: usize = 4096;

/// Least number of items among which to look for closed ones.
const TIDY_FROM: usize = 1024;

/// Called for each event, on a thread of the sink: it must not wait for anything.
type EventHandler = Arc<dyn Fn(SinkEvent) + Send + Sync>;

/// How a [`DiskSink`] works.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// Bytes of memory for open blocks and those on their way to the disk. A block that is larger
    /// is received alone. Default 32 MiB.
    pub memory: usize,
    /// Whether names that differ only in case are the same file; `None` (the default) finds out.
    pub folds_case: Option<bool>,
    /// Whether items and journals are synced to the disk; without, a crash of the machine (not of
    /// the process) may lose items that were reported as done. Default true.
    pub durable: bool,
    /// Time between two checkpoints of an incomplete item: when what is held of it is written to
    /// the journal and made durable. Large items have more of them. Default 1 s.
    pub checkpoint_interval: Duration,
    /// Whether a file gets the item's modification time. Default true.
    pub preserve_times: bool,
    /// Whether an item that the file system has no room for is refused at once. Default true.
    pub check_space: bool,
}

impl Default for SinkOptions {
    fn default() -> SinkOptions {
        SinkOptions {
            memory: 32 << 20,
            folds_case: None,
            durable: true,
            checkpoint_interval: Duration::from_secs(1),
            preserve_times: true,
            check_space: true,
        }
    }
}

/// What happens in a sink.
#[derive(Clone, Debug)]
pub enum SinkEvent {
    /// The block is restored and written.
    BlockRestored {
        /// The block.
        block: BlockId,
    },
    /// The block could not be restored: RaptorQ needs a few more symbols, or some that were on
    /// the disk are damaged. Restore it again when more are held.
    RestoreFailed {
        /// The block.
        block: BlockId,
        /// What is held of it now.
        held: HeldBlock,
    },
    /// How far an item is; not more often than ten times a second.
    Progress {
        /// The item.
        toi: Toi,
        /// Bytes of restored blocks.
        restored: u64,
        /// Bytes of the item.
        size: u64,
    },
    /// The item is verified and in its place. Nothing follows about it.
    ItemDone {
        /// The item.
        toi: Toi,
        /// Its name.
        name: String,
        /// Where it is.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// All blocks are there, but the item's digest is another: get the digests of its blocks and
    /// call [`DiskSink::check_blocks`].
    DigestMismatch {
        /// The item.
        toi: Toi,
    },
    /// Nothing is held of these blocks any more, or ever was; they are to be received again.
    BlocksDropped {
        /// The item.
        toi: Toi,
        /// Source block numbers, ascending; at least one.
        blocks: Vec<u32>,
    },
    /// The item cannot be kept. Nothing follows about it; other items go on.
    ItemFailed {
        /// The item.
        toi: Toi,
        /// Why: one line for the user.
        error: SinkError,
    },
}

/// Keeps items below an output directory. Clones are the same sink: an engine stores symbols by
/// one, its host adds and cancels items by another.
///
/// Dropping the last one is closing it.
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

/// Items that are received, and blocks of them in memory.
struct Open {
    items: HashMap<Toi, Arc<Item>>,
    /// How many items there are when those that are closed are let go of.
    tidy_at: usize,
    blocks: OpenBlocks,
}

/// Looks items up on the disk for a sink, on any thread: verifying a large file that is already
/// there takes a while.
#[derive(Clone, Debug)]
pub struct Preparer {
    shelf: Arc<Shelf>,
}

impl Preparer {
    /// Finds out where the item goes and what is there of it. Hand the answer to
    /// [`DiskSink::admit`]. Reads the whole target if one of the right size is there, and the
    /// journal if there is one.
    ///
    /// # Errors
    ///
    /// When the item cannot be kept: its name is refused or taken, there is no room, or the file
    /// system says no. Other items are not affected.
    pub fn prepare(&self, info: &ItemInfo) -> Result<Prepared, SinkError> {
        self.shelf.prepare(info)
    }
}

impl DiskSink {
    /// Opens the output directory, makes it if need be, and starts the sink's threads. Each event
    /// is given to `on_event` on one of them.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, opened or written to, or no thread can be started.
    pub fn open(
        directory: &Path,
        options: SinkOptions,
        on_event: impl Fn(SinkEvent) + Send + Sync + 'static,
    ) -> Result<DiskSink, SinkError> {
        let tree = Tree::open(directory)?;
        let folds_case = match options.folds_case {
            Some(folds) => folds,
            None => tree.folds_case()?,
        };
        let shelf = Arc::new(Shelf {
            tree: Arc::new(tree),
            names: Mutex::new(Names::new(folds_case)),
            check_space: options.check_space,
            preserve_times: options.preserve_times,
            reserved: AtomicU64::new(0),
        });
        let closing = Arc::new(AtomicBool::new(false));
        let (jobs, disk) = start(&shelf, options, &closing, Arc::new(on_event))
            .map_err(SinkError::io("start threads for", directory))?;
        let blocks = OpenBlocks::new(Budget::new(options.memory));
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

    /// Looks items up for this sink, on other threads if that is better.
    pub fn preparer(&self) -> Preparer {
        self.shared.preparer.clone()
    }

    /// Takes in an item that is to be received: [`Preparer::prepare`] and
    /// [`admit`](Self::admit) in one.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`].
    pub fn add(&self, info: &ItemInfo) -> Result<Held, SinkError> {
        let prepared = self.shared.preparer.prepare(info)?;
        Ok(self.admit(prepared))
    }

    /// Takes in an item that was looked up, and gives what is held of it.
    pub fn admit(&self, prepared: Prepared) -> Held {
        let Prepared { item, replay, held } = prepared;
        if matches!(held, Held::Parts(_)) {
            self.shared.open().add(&item);
            self.shared.send(Job::Add(item, replay.map(Box::new)));
        }
        held
    }

    /// Whether blocks of so many bytes together can be stored now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.shared.open().blocks.has_room(bytes)
    }

    /// Compares the blocks of an item with these digests, one of each block in order, after
    /// [`SinkEvent::DigestMismatch`]. Those that do not match are dropped and told in
    /// [`SinkEvent::BlocksDropped`]. If all match, the item fails.
    pub fn check_blocks(&self, toi: Toi, digests: Vec<Digest>) {
        self.shared.send(Job::CheckBlocks(toi, digests));
    }

    /// Lets go of an item that is not wanted any more. What is held of it stays on the disk.
    pub fn cancel(&self, toi: Toi) {
        let mut open = self.shared.open();
        for block in open.blocks.ids(|block| block.toi == toi) {
            self.shared.rest(&mut open, block);
        }
        if let Some(item) = open.items.remove(&toi) {
            item.closed.store(true, Ordering::Release);
            self.shared.preparer.shelf.names().release(&item.name, &item.place.relative);
            self.shared.send(Job::Cancel(toi));
        }
    }

    /// Writes everything that is held to the disk, makes it durable, and ends the threads; the
    /// other clones keep nothing more. Items that are being verified are left as they are: all is
    /// there when they are added again.
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
        // If the disk thread is gone, nothing can be kept any more, and `store` says so.
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
                // A block that nobody has touched for long makes room.
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

/// Starts the threads; gives the way to the disk thread.
fn start(
    shelf: &Arc<Shelf>,
    options: SinkOptions,
    closing: &Arc<AtomicBool>,
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
        open: VecDeque::new(),
        progress_at: Instant::now(),
    };
    Ok((jobs, spawn("umbel-disk").spawn(|| disk.run())?))
}
