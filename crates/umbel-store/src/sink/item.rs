//! An item as the threads of the sink share it, and the preparation of new items.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sys::stat::FileStat;
use umbel_fec::{Code, Partition, SymbolSet};
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Toi};

use super::attributes::{self, Allowed, Attributes, Counts};
use super::brought::{Bringer, Brought, Version};
use super::changes::{Changes, Purpose};
use super::device::Device;
use super::directories::Directories;
use super::errors::SinkError;
use super::held::{Held, HeldParts};
use super::journal::{self, JournalKey, Replay};
use super::links::{Links, OtherNames};
use super::names::Names;
use super::tree::{Place, Role, Tree, is_directory, is_regular};
use crate::DeviceError;

/// Maximum length of a small item. An item of one block, or up to this length, is examined even
/// without a journal, because its part file may be complete already.
pub(super) const SMALL_LEN: u64 = 4 << 20;
/// Maximum bytes of a source block, which must be in memory to be restored. 56,403 symbols of
/// RaptorQ of 1,500 bytes fit.
const MAX_BLOCK_LEN: u64 = 96 << 20;
/// Number of bytes read at once to compute a digest.
pub(super) const READ_LEN: usize = 1 << 20;

/// An item that is being received.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) toi: Toi,
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) key: JournalKey,
    pub(super) partition: Partition,
    pub(super) code: Code,
    /// Digests of its blocks, if they are known beforehand.
    pub(super) digests: OnceLock<Box<[Digest]>>,
    /// Blocks that are holes, and not sent; `None` if the file is to have no holes.
    pub(super) holes: Option<Vec<Range<u32>>>,
    /// The device to which it is written, if it is not a file.
    pub(super) device: Option<Arc<Device>>,
    /// Permissions and time to set on the file.
    pub(super) attributes: Attributes,
    /// Whether no more symbols are accepted, because the item is done, failed, or no longer wanted.
    pub(super) closed: AtomicBool,
    /// Bytes reserved on the file system and not written yet.
    pub(super) reserved: AtomicU64,
}

impl Item {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn symbol_len(&self) -> usize {
        usize::from(self.partition.symbol_len())
    }

    /// Returns the number of bytes of the object.
    pub(super) fn len(&self) -> u64 {
        self.partition.object_len()
    }

    /// Returns the blocks that are holes, in ascending order.
    pub(super) fn hole_blocks(&self) -> impl Iterator<Item = u32> {
        let blocks = self.holes.iter().flatten().flat_map(Range::clone);
        blocks.take_while(|sbn| *sbn < self.partition.blocks())
    }

    /// Returns whether a block is a hole.
    pub(super) fn is_hole(&self, sbn: u32) -> bool {
        let holes = self.holes.as_deref().unwrap_or_default();
        let after = holes.partition_point(|hole| hole.start <= sbn);
        after.checked_sub(1).is_some_and(|place| holes[place].contains(&sbn))
    }

    /// Adds the holes to what a journal has: the part file has nothing but zeros there.
    fn with_holes(&self, replay: Option<Replay>) -> Option<Replay> {
        if self.hole_blocks().next().is_none() {
            return replay;
        }
        let mut replay = replay.unwrap_or_else(|| Replay::nothing(self.partition.blocks()));
        for sbn in self.hole_blocks() {
            replay.restored.insert(sbn);
            replay.partial.remove(&sbn);
        }
        Some(replay)
    }

    pub(super) fn version(&self) -> Version {
        Version { digest: self.key.item, len: self.len() }
    }
}

/// State shared by all threads that add items.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) tree: Arc<Tree>,
    pub(super) names: Mutex<Names>,
    pub(super) check_space: bool,
    pub(super) preserve_times: bool,
    /// Whether other files at the targets are replaced.
    pub(super) overwrite: bool,
    /// Whether what is made is to be safe on the disk.
    pub(super) durable: bool,
    /// Directories that are items.
    pub(super) directories: Directories,
    /// Symbolic links that are made.
    pub(super) links: Links,
    /// Other names that files get.
    pub(super) other_names: OtherNames,
    /// Files that a later version of the item may replace.
    pub(super) brought: Mutex<Brought>,
    /// The release before, from which the same items are taken over.
    pub(super) last: OnceLock<Tree>,
    /// Name of the file by which other runs of this source are kept away.
    pub(super) own_claim: OnceLock<String>,
    /// Whether hidden files of the output directory are written.
    pub(super) hidden: bool,
    /// Permissions of new files.
    pub(super) allowed: Allowed,
    /// What files could not keep.
    pub(super) unkept: Counts,
    /// Bytes reserved for all items together.
    pub(super) reserved: AtomicU64,
    /// What is done with differences.
    pub(super) purpose: Purpose,
    /// What was changed so far, or would be.
    pub(super) changes: Changes,
    /// The device to which the only item is written, instead of a file in the tree.
    pub(super) device: Option<Arc<Device>>,
}

/// An item that was looked up on the disk, ready to be passed to its sink.
#[derive(Debug)]
pub struct Prepared {
    /// `None` if it is a directory or link.
    pub(super) item: Option<Arc<Item>>,
    pub(super) replay: Option<Replay>,
    pub(super) held: Held,
}

impl Prepared {
    /// Returns the state of the item on the disk.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Has each block compared with its digest as soon as it is restored; one for each block in
    /// order. [`SinkEvent::BlocksDropped`](super::SinkEvent::BlocksDropped) tells those that
    /// differ. An item whose blocks all came so is not hashed as a whole any more: the digests
    /// must come from whoever vouches for that of the item.
    #[must_use]
    pub fn verified_by(self, digests: &[Digest]) -> Prepared {
        if let Some(item) = &self.item {
            item.digests.get_or_init(|| digests.into());
        }
        self
    }
}

impl Shelf {
    /// Determines the item's place and looks up its state on the disk.
    pub(super) fn prepare(&self, info: &ItemInfo) -> Result<Prepared, SinkError> {
        if self.device.is_some() {
            return self.prepare_on_device(info, &[]);
        }
        if self.purpose == Purpose::Look {
            return self.look(info);
        }
        let held = match &info.kind {
            ItemKind::File => return self.prepare_file(info),
            ItemKind::Directory => self.prepare_directory(info)?,
            ItemKind::Link(text) => self.prepare_link(info, text)?,
            ItemKind::HardLink(first) => self.prepare_other_name(info, first)?,
        };
        Ok(Prepared { item: None, replay: None, held })
    }

    /// Compares the item with what its device has. Without the digests of its blocks all of it
    /// counts as missing.
    pub(super) fn prepare_on_device(
        &self,
        info: &ItemInfo,
        digests: &[Digest],
    ) -> Result<Prepared, SinkError> {
        let device = self.device.as_ref().ok_or(SinkError::Closed)?;
        if !info.kind.is_file() {
            return Err(DeviceError::NoContent { name: info.name.clone() }.into());
        }
        let partition = Shelf::check(info)?;
        device.take(&info.name, info.digest, partition.object_len())?;
        let place = Place::of_device(&device.path)?;
        let item =
            Arc::new(Item { device: Some(device.clone()), ..self.item(info, partition, place) });
        let same = device.compare(&partition, |sbn| item.is_hole(sbn), digests)?;
        if digests.len() == partition.blocks() as usize {
            item.digests.get_or_init(|| digests.into());
        }
        let replay = Replay { restored: same, ..Replay::nothing(partition.blocks()) };
        let replay = item.with_holes(Some(replay));
        let held = Held::Parts(held_parts(&item, replay.as_ref()));
        Ok(Prepared { item: Some(item), replay, held })
    }

    fn prepare_file(&self, info: &ItemInfo) -> Result<Prepared, SinkError> {
        let partition = Shelf::check(info)?;
        let relative = self.names().place(&info.name)?;
        let place = Place::new(self.tree.path(), relative, info.mode);
        let item = Arc::new(self.item(info, partition, place));
        let prepared = self.look_up(&item);
        if prepared.is_err() {
            self.names().release(&item.name, &item.place.relative);
        }
        prepared
    }

    /// Checks that an item can be received.
    fn check(info: &ItemInfo) -> Result<Partition, SinkError> {
        let name = || info.name.clone();
        let partition =
            Partition::new(&info.oti).map_err(|source| SinkError::Oti { name: name(), source })?;
        if info.digest == Digest([0; 32]) {
            return Err(SinkError::NoDigest { name: name() });
        }
        let block_len = u64::from(partition.block_symbols(0)) * u64::from(partition.symbol_len());
        if block_len > MAX_BLOCK_LEN {
            return Err(SinkError::BlockTooLong {
                name: name(),
                len: block_len,
                max: MAX_BLOCK_LEN,
            });
        }
        Ok(partition)
    }

    fn item(&self, info: &ItemInfo, partition: Partition, place: Place) -> Item {
        Item {
            toi: info.toi,
            name: info.name.clone(),
            place,
            key: JournalKey::new(&info.name, info.digest, info.oti),
            partition,
            code: Code::new(info.oti.scheme),
            digests: OnceLock::new(),
            holes: info.holes.clone(),
            device: None,
            attributes: Attributes::of(info, self.preserve_times),
            closed: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
        }
    }

    /// Returns whether another file at the target may be replaced.
    pub(super) fn may_replace(&self, place: &Place) -> bool {
        let brought = || self.brought().bringer(&place.relative.joined());
        self.overwrite || matches!(brought(), Some(Bringer::ThisRun(_)))
    }

    pub(super) fn brought(&self) -> std::sync::MutexGuard<'_, Brought> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn names(&self) -> std::sync::MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, item: &Arc<Item>) -> Result<Prepared, SinkError> {
        if !self.hidden && item.place.relative.is_hidden() {
            return Err(SinkError::Hidden { path: item.place.target.clone() });
        }
        if self.target_is_there(item)? || self.is_taken_over(item)? {
            let held = Held::AlreadyThere;
            return Ok(Prepared { item: Some(item.clone()), replay: None, held });
        }
        let replay = item.with_holes(self.replay(item)?);
        let held = held_parts(item, replay.as_ref());
        self.reserve(item, &held)?;
        Ok(Prepared { item: Some(item.clone()), replay, held: Held::Parts(held) })
    }

    /// Returns whether the finished item is at its target. Fails if something else is there that
    /// may not be replaced.
    fn target_is_there(&self, item: &Item) -> Result<bool, SinkError> {
        let Some(stat) = self.tree.stat(&item.place, Role::Target)? else { return Ok(false) };
        if is_directory(&stat) {
            return Err(SinkError::IsDirectory { path: item.place.target.clone() });
        }
        let path = item.place.relative.joined();
        let whole = Shelf::whole(&self.tree, &item.place, &stat, item.version())?;
        let Some(file) = whole else {
            if self.may_replace(&item.place) {
                return Ok(false);
            }
            if self.is_left(&item.place, &stat)? {
                self.brought().note(path);
                return Ok(false);
            }
            return Err(SinkError::Exists { path: item.place.target.clone() });
        };
        self.brought().note_whole(path, item.version());
        self.note_attributes(&item.place.relative, item.attributes, &file);
        attributes::set(item.attributes, &file, self.allowed, &self.unkept);
        // Something remains if a process ended between renaming and cleaning up, or if the file
        // came in another way. The item is there in any case.
        let _ = self.tree.discard(&item.place);
        Ok(true)
    }

    /// Returns whether the release before has the item, and it was taken over from there.
    fn is_taken_over(&self, item: &Item) -> Result<bool, SinkError> {
        let Some(last) = self.last.get() else { return Ok(false) };
        let place = &item.place;
        let Some(stat) = last.stat(place, Role::Target).ok().flatten() else { return Ok(false) };
        let whole = Shelf::whole(last, place, &stat, item.version()).ok().flatten();
        let Some(file) = whole else { return Ok(false) };
        self.note_arrival(place);
        self.tree.remove(place, Role::Target)?;
        let is_linked =
            attributes::fit(item.attributes, &file, self.allowed) && last.link(place, &self.tree);
        if !is_linked {
            self.tree.discard(place)?;
            let part = self.tree.open_part(place)?;
            let copied = (&file).rewind().and_then(|()| io::copy(&mut &file, &mut &part));
            copied.map_err(SinkError::io("copy", &place.target))?;
            attributes::set(item.attributes, &part, self.allowed, &self.unkept);
            self.tree.rename(place, Role::Part, Role::Target, true)?;
        }
        let _ = self.tree.discard(place);
        self.brought().note_whole(place.relative.joined(), item.version());
        Ok(true)
    }

    /// Returns whether the target, which appeared while the item was received, is the item.
    pub(super) fn has_appeared(&self, item: &Item) -> bool {
        let stat = self.tree.stat(&item.place, Role::Target).ok().flatten();
        let (place, version) = (&item.place, item.version());
        let whole = |stat| Shelf::whole(&self.tree, place, &stat, version).ok().flatten();
        let Some(file) = stat.and_then(whole) else { return false };
        self.brought().note_whole(place.relative.joined(), version);
        attributes::set(item.attributes, &file, self.allowed, &self.unkept);
        true
    }

    /// Returns the file at the target in a tree, with this metadata, if it is this version.
    pub(super) fn whole(
        tree: &Tree,
        place: &Place,
        stat: &FileStat,
        version: Version,
    ) -> Result<Option<File>, SinkError> {
        if !is_regular(stat) || stat.st_size as u64 != version.len {
            return Ok(None);
        }
        let Some(file) = tree.open_to_read(place, Role::Target)? else { return Ok(None) };
        let is_it = Shelf::digest(place, Role::Target, &file)? == version.digest;
        Ok(is_it.then_some(file))
    }

    /// Reads the journal. Removes files of another version of the item.
    fn replay(&self, item: &Item) -> Result<Option<Replay>, SinkError> {
        let Some(stat) = self.tree.stat(&item.place, Role::Part)? else { return Ok(None) };
        if is_directory(&stat) {
            return Err(SinkError::IsDirectory { path: item.place.path(Role::Part) });
        }
        if !is_regular(&stat) {
            self.tree.remove(&item.place, Role::Part)?;
            return Ok(None);
        }
        let part = self.tree.open_part(&item.place)?;
        let is_whole = stat.st_size as u64 == item.len();
        if is_whole && let Some(mut journal) = self.tree.open_to_read(&item.place, Role::Journal)? {
            let path = item.place.path(Role::Journal);
            let boot = journal::boot_id();
            let replay = journal::replay(&mut journal, &item.key, &item.partition, boot)
                .map_err(SinkError::io("read", &path))?;
            if replay.is_some() {
                return Ok(replay);
            }
        }
        let is_small = item.partition.blocks() <= 1 || item.len() <= SMALL_LEN;
        if is_whole && is_small && Shelf::digest(&item.place, Role::Part, &part)? == item.key.item {
            let restored = SymbolSet::full(item.partition.blocks());
            return Ok(Some(Replay { restored, ..Replay::nothing(item.partition.blocks()) }));
        }
        self.tree.remove(&item.place, Role::Journal)?;
        self.tree.remove(&item.place, Role::Part)?;
        Ok(None)
    }

    fn digest(place: &Place, role: Role, mut file: &File) -> Result<Digest, SinkError> {
        let mut hasher = blake3::Hasher::new();
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        let len = usize::try_from(len).unwrap_or(READ_LEN).min(READ_LEN);
        let mut buffer = vec![0; len.max(1)];
        loop {
            let read = file.read(&mut buffer);
            match read.map_err(SinkError::io("read", &place.path(role)))? {
                0 => return Ok(Digest(*hasher.finalize().as_bytes())),
                len => hasher.update(&buffer[..len]),
            };
        }
    }

    /// Reserves room for the missing blocks.
    fn reserve(&self, item: &Item, held: &HeldParts) -> Result<(), SinkError> {
        if !self.check_space {
            return Ok(());
        }
        let missing = (0..item.partition.blocks()).filter(|&sbn| !held.is_restored(sbn));
        let needed = match held.restored_blocks() {
            0 => item.len(),
            _ => missing.map(|sbn| item.partition.block_range(sbn)).map(|r| r.end - r.start).sum(),
        };
        self.find_room(&item.place, needed)?;
        item.reserved.store(needed, Ordering::Relaxed);
        self.reserved.fetch_add(needed, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses what needs more room than the file system has beside what is reserved.
    pub(super) fn find_room(&self, place: &Place, needed: u64) -> Result<(), SinkError> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        match self.tree.available().map(|available| available.saturating_sub(reserved)) {
            Some(available) if self.check_space && needed > available => {
                Err(SinkError::NoSpace { path: place.target.clone(), needed, available })
            }
            _ => Ok(()),
        }
    }

    /// Releases `bytes` of the item's reservation, which are written or not needed.
    pub(super) fn unreserve(&self, item: &Item, bytes: u64) {
        let before = item
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                Some(held.saturating_sub(bytes))
            })
            .unwrap_or(0);
        self.reserved.fetch_sub(before.min(bytes), Ordering::Relaxed);
    }
}

/// Returns what is held of an item.
fn held_parts(item: &Item, replay: Option<&Replay>) -> HeldParts {
    replay.map_or_else(
        || HeldParts::nothing(item.partition),
        |replay| {
            HeldParts::new(item.partition, replay.restored.clone(), replay.partial.clone())
                .with_holes(item.holes.clone().unwrap_or_default())
        },
    )
}
