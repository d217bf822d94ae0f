//! A block device to which one item is written.
//!
//! ```text
//! prepare ── compare ──▶ receive ──▶ zeros ──▶ sync ──▶ read back ──▶ partition table
//!   what is on the         blocks     where the item's    against the item's
//!   device already         in place   holes are           digest
//! ```
//!
//! There is no part file, and no journal that outlives the run: what a device has already is read
//! and compared with the digests of the blocks, so that a run goes on with what an interrupted one,
//! or an earlier version of the item, has left. A few blocks are compared first, and all of them
//! only if one of these fits. So a device with other data is not read before it is written.
//!
//! Where the item has holes the device gets zeros, since it may have anything there. They come last,
//! since a disk that cannot be told to have zeros takes as long as for data, and others would have
//! to wait for it.
//!
//! # Scope and limitations
//!
//! Errors of the medium that reading back does not show are not found. What was compared and found
//! to be there is not read a second time.

mod edges;
mod medium;
mod open;
mod zeros;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::libc::{EINVAL, ENOTTY};
use nix::sys::memfd::{MFdFlags, memfd_create};
use umbel_fec::{Partition, SymbolSet};
use umbel_wire::Digest;

use super::errors::SinkError;
use super::item::Item;
use crate::device::{self, BlockDevice, DeviceError};
use edges::Edges;
use medium::Medium;

/// Number of blocks in which old data is looked for before all are read.
const PROBES: u32 = 256;
/// Bytes that are read back at once.
const READ_BACK: u64 = 4 << 20;
/// Number of times that other bytes may be read back than were written, before the device is given
/// up.
const MOST_MISMATCHES: u32 = 2;
/// Time to wait for others to close the device: a daemon looks at one that was just plugged in.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// A block device as the target of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTarget {
    /// Path of the device.
    pub path: PathBuf,
    /// Whether it is written to although it is mounted or otherwise in use. Default: no.
    pub force: bool,
}

impl DeviceTarget {
    /// Checks that the path leads to a block device that nobody uses, and that this user may write
    /// to. Opening the sink does it again.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not, or if somebody uses it without [`force`](Self::force).
    pub fn check(&self) -> Result<(), DeviceError> {
        self.open().map(drop)
    }

    /// Opens it to write, for this process alone unless by force.
    fn open(&self) -> Result<(BlockDevice, File), DeviceError> {
        let DeviceTarget { path, force } = self;
        let found = BlockDevice::find(path)?;
        if !force {
            found.check_unused()?;
        }
        // The kernel refuses a device that is mounted or held, whatever its lists say.
        let alone = if *force { OFlag::empty() } else { OFlag::O_EXCL };
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags((alone | OFlag::O_CLOEXEC).bits())
                .open(path)
                .map_err(DeviceError::io("open", path))
        };
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            match open() {
                Err(DeviceError::Busy { .. }) if Instant::now() < give_up_at => {
                    std::thread::sleep(PAUSE);
                }
                file => {
                    let file = file?;
                    let found = found.confirm(&file)?;
                    if !force {
                        // Somebody may have mounted it meanwhile.
                        found.check_unused()?;
                    }
                    return Ok((found, file));
                }
            }
        }
    }
}

/// What was done with a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Bytes of blocks that the device had already, holes included.
    pub kept_bytes: u64,
    /// Bytes of holes that were made zeros.
    pub zeroed_bytes: u64,
    /// Bytes that were read back and have the item's digest.
    pub read_back_bytes: u64,
    /// Whether they were read from the medium past the system's cache. If not, the cache was told
    /// to forget them before.
    pub past_cache: bool,
    /// Result of having the partition table read again, if the device is a whole disk.
    pub partitions: Option<Result<(), String>>,
}

/// The device of a sink.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) path: PathBuf,
    file: Arc<File>,
    medium: Medium,
    size: u64,
    is_disk: bool,
    /// Whether anything was written to it.
    is_written: AtomicBool,
    /// Whether the sink is being closed.
    is_closing: AtomicBool,
    edges: Mutex<Edges>,
    /// Held while the device is compared with an item: once, whoever asks meanwhile.
    comparing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Name and digest of the item that it takes, once there is one.
    taken: Option<(String, Digest)>,
    /// Blocks of that item that it has.
    same: Option<SymbolSet>,
    /// Number of times that other bytes were read back.
    mismatches: u32,
    report: DeviceReport,
}

/// What was found on a device once all of an item is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadBack {
    /// The item. It was there before, and nothing was written.
    WasThere,
    /// The item.
    Whole,
    /// Something else.
    Differs,
}

impl Device {
    pub(super) fn open(target: &DeviceTarget) -> Result<Device, DeviceError> {
        let (found, file) = target.open()?;
        let is_disk = found.is_disk();
        Ok(Device::new(found.path, file, found.size, is_disk))
    }

    fn new(path: PathBuf, file: File, size: u64, is_disk: bool) -> Device {
        let file = Arc::new(file);
        let medium = Medium::open(file.clone(), size);
        Device {
            path,
            file,
            medium,
            size,
            is_disk,
            is_written: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            edges: Mutex::default(),
            comparing: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open device.
    pub(super) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Returns an empty file in memory, for the journal: symbols that wait for others of their
    /// blocks.
    pub(super) fn new_journal(&self) -> Result<File, SinkError> {
        let file = memfd_create("umbel-journal", MFdFlags::MFD_CLOEXEC);
        Ok(file.map_err(SinkError::io("make a journal for", &self.path))?.into())
    }

    /// Writes to a place of the device. Some of it may wait until [`flush`](Self::flush).
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.is_written.store(true, Ordering::Release);
        let mut edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        edges.write(&self.file, bytes, offset).map_err(self.failed("write to"))
    }

    /// Passes everything that was written to the system.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        let mut edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        edges.flush(&self.file).map_err(self.failed("write to"))
    }

    /// Has everything that takes long end soon.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    fn check_open(&self) -> Result<(), DeviceError> {
        let is_closing = self.is_closing.load(Ordering::Acquire);
        if is_closing { Err(DeviceError::Interrupted) } else { Ok(()) }
    }

    pub(super) fn report(&self) -> DeviceReport {
        self.state().report.clone()
    }

    /// Takes an item. There is only one that it can take.
    pub(super) fn take(&self, name: &str, digest: Digest, len: u64) -> Result<(), DeviceError> {
        let (path, name) = (self.path.clone(), name.to_owned());
        if len == 0 {
            return Err(DeviceError::NoContent { name });
        }
        if len > self.size {
            return Err(DeviceError::TooSmall { path, size: self.size, name, needed: len });
        }
        let mut state = self.state();
        let is_known = match &state.taken {
            Some((taken, _)) if *taken != name => {
                let taken = taken.clone();
                return Err(DeviceError::Taken { path, taken });
            }
            Some((_, known)) => *known == digest,
            None => false,
        };
        if !is_known {
            state.same = None;
        }
        state.taken = Some((name, digest));
        Ok(())
    }

    /// Returns the blocks of an item that the device has already.
    pub(super) fn compare(
        &self,
        partition: &Partition,
        is_hole: impl Fn(u32) -> bool,
        digests: &[Digest],
    ) -> Result<SymbolSet, DeviceError> {
        let blocks = partition.blocks();
        let _one = self.comparing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = self.state().same.clone().filter(|same| same.len() == blocks) {
            // This run has read or written them before its session broke.
            return Ok(same);
        }
        let mut same = SymbolSet::new(blocks);
        if digests.len() == blocks as usize && self.has_some(partition, is_hole, digests)? {
            for (sbn, digest) in (0..blocks).zip(digests) {
                if self.digest_of_block(partition, sbn)? == *digest {
                    same.insert(sbn);
                }
            }
        }
        let mut state = self.state();
        state.report.kept_bytes = bytes_of(partition, &same);
        state.same = Some(same.clone());
        Ok(same)
    }

    /// Returns whether any of a few blocks that are no holes is there.
    fn has_some(
        &self,
        partition: &Partition,
        is_hole: impl Fn(u32) -> bool,
        digests: &[Digest],
    ) -> Result<bool, DeviceError> {
        let data: Vec<u32> = (0..partition.blocks()).filter(|sbn| !is_hole(*sbn)).collect();
        if data.is_empty() {
            return Ok(true);
        }
        let probes = (data.len() as u64).min(PROBES.into());
        for probe in 0..probes {
            let sbn = data[(probe * data.len() as u64 / probes) as usize];
            if self.digest_of_block(partition, sbn)? == digests[sbn as usize] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn digest_of_block(&self, partition: &Partition, sbn: u32) -> Result<Digest, DeviceError> {
        self.check_open()?;
        let read = |block: &[u8]| Digest(*blake3::hash(block).as_bytes());
        self.medium.read(partition.block_range(sbn), read).map_err(self.failed("read"))
    }

    /// Returns whether a block is on the medium.
    pub(super) fn has_block(
        &self,
        item: &Item,
        sbn: u32,
        digest: &Digest,
    ) -> Result<bool, SinkError> {
        Ok(self.digest_of_block(&item.partition, sbn)? == *digest)
    }

    /// Remembers the blocks that are there, for when the item is looked up again.
    pub(super) fn remember(&self, item: &Item, restored: &SymbolSet) {
        let mut state = self.state();
        let Some(same) = &mut state.same else { return };
        for sbn in (0..restored.len()).filter(|sbn| !item.is_hole(*sbn)) {
            if restored.contains(sbn) {
                same.insert(sbn);
            } else {
                same.remove(sbn);
            }
        }
    }

    /// Returns whether anything was written, or has to be.
    pub(super) fn has_changes(&self, item: &Item) -> bool {
        self.is_written.load(Ordering::Acquire) || self.missing_holes(item).next().is_some()
    }

    /// Returns the holes of an item where the device may have something else than zeros.
    fn missing_holes<'a>(&self, item: &'a Item) -> impl Iterator<Item = u32> + 'a {
        let same = self.state().same.clone();
        let is_there = move |sbn: u32| same.as_ref().is_some_and(|same| same.contains(sbn));
        item.hole_blocks().filter(move |sbn| !is_there(*sbn))
    }

    /// Writes zeros where the item has holes, makes everything durable, and reads it back.
    pub(super) fn finish(&self, item: &Item) -> Result<ReadBack, DeviceError> {
        self.flush()?;
        self.write_holes(item)?;
        if !self.is_written.load(Ordering::Acquire) {
            return Ok(ReadBack::WasThere);
        }
        self.file.sync_all().map_err(self.failed("sync"))?;
        let digest = self.read_back(item.len())?;
        if digest != item.key.item {
            let mut state = self.state();
            state.mismatches += 1;
            state.same = None;
            if state.mismatches > MOST_MISMATCHES {
                return Err(DeviceError::Forgets { path: self.path.clone() });
            }
            return Ok(ReadBack::Differs);
        }
        let partitions = self.is_disk.then(|| device::read_again(&self.file));
        // Not a disk that has partitions at all.
        let has_none = |error: &io::Error| matches!(error.raw_os_error(), Some(EINVAL | ENOTTY));
        let partitions = partitions.filter(|result| !result.as_ref().is_err_and(has_none));
        let mut state = self.state();
        state.report.read_back_bytes = item.len();
        state.report.past_cache = self.medium.is_past_cache();
        state.report.partitions = partitions.map(|result| result.map_err(|e| e.to_string()));
        Ok(ReadBack::Whole)
    }

    fn write_holes(&self, item: &Item) -> Result<(), DeviceError> {
        for range in zeros::ranges(&item.partition, self.missing_holes(item)) {
            for piece in zeros::pieces(range) {
                self.check_open()?;
                self.is_written.store(true, Ordering::Release);
                let len = piece.end - piece.start;
                zeros::write(&self.file, piece).map_err(self.failed("write zeros to"))?;
                self.state().report.zeroed_bytes += len;
            }
        }
        // They need not be written again if the item is looked at again.
        if let Some(same) = &mut self.state().same {
            // They are below the number of blocks, which is that of the set.
            for sbn in item.hole_blocks() {
                same.insert(sbn);
            }
        }
        Ok(())
    }

    fn read_back(&self, len: u64) -> Result<Digest, DeviceError> {
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < len {
            self.check_open()?;
            let end = (at + READ_BACK).min(len);
            let read = self.medium.read(at..end, |bytes| {
                hasher.update(bytes);
            });
            read.map_err(self.failed("read"))?;
            at = end;
        }
        Ok(Digest(*hasher.finalize().as_bytes()))
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> DeviceError {
        DeviceError::io(doing, &self.path)
    }

    /// Says what an error means for a device.
    pub(super) fn explain(&self, error: SinkError) -> SinkError {
        match error {
            SinkError::Io { doing, source, .. } => {
                DeviceError::of(doing, &self.path, source).into()
            }
            other => other,
        }
    }
}

/// Returns the bytes of blocks.
fn bytes_of(partition: &Partition, blocks: &SymbolSet) -> u64 {
    let ranges = (0..blocks.len()).filter(|sbn| blocks.contains(*sbn));
    ranges.map(|sbn| partition.block_range(sbn)).map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests;
