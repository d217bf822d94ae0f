//! Assembles one item from its blocks: decodes, writes and hashes them.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use umbel_fec::{FecError, SymbolSet};
use umbel_wire::Digest;

use super::errors::SinkError;
use super::finish::{Finished, Verification};
use super::held::HeldBlock;
use super::item::{Item, SMALL_LEN, Shelf};
use super::journal::Replay;
use super::part::{BlockBuffer, Part};
use super::tree::Role;
use crate::{DeviceError, holes};

/// Number of blocks that are read back at once to continue the digest. The rest waits for the end.
const CATCH_UP_BLOCKS: u32 = 8;

/// Result of restoring a block.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The block was restored before.
    Known,
    /// The block is restored now.
    Restored,
    /// The symbols restored another block than its digest says. Those on the disk are dropped.
    Wrong,
    /// The held symbols do not restore the block. These symbols are held.
    NotEnough(HeldBlock),
}

/// Progress of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Blocks are missing.
    Receiving,
    /// All blocks are restored. The digest is being computed, or the file renamed to its place.
    Finishing,
    /// All blocks are restored, but the digest does not match.
    Suspect,
}

/// State of one item on the disk thread.
#[derive(Debug)]
pub(super) struct Assembler {
    pub(super) item: Arc<Item>,
    pub(super) phase: Phase,
    pub(super) part: Part,
    /// Whether the disk thread counts the part among its open files.
    pub(super) listed: bool,
    shelf: Arc<Shelf>,
    hasher: blake3::Hasher,
    /// Number of blocks that the hasher has seen.
    hashed: u32,
    /// Whether each restored block was compared with its own digest as it came, so that the
    /// digest of the whole would prove nothing more.
    proved: bool,
    /// The only block of an item, restored but not written yet.
    whole: Option<Vec<u8>>,
    restored_len: u64,
}

impl Assembler {
    pub(super) fn new(item: Arc<Item>, shelf: Arc<Shelf>, replay: Option<&Replay>) -> Assembler {
        let partition = item.partition;
        let part = Part::new(shelf.tree.clone(), item.clone(), replay);
        let lens = (0..partition.blocks()).filter(|&sbn| part.restored().contains(sbn));
        let restored_len =
            lens.map(|sbn| partition.block_range(sbn)).map(|range| range.end - range.start).sum();
        Assembler {
            item,
            phase: Phase::Receiving,
            part,
            listed: false,
            shelf,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            proved: restored_len == 0,
            whole: None,
            restored_len,
        }
    }

    /// Returns whether every block is restored.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some() || self.part.restored().is_full()
    }

    /// Returns the bytes of restored blocks.
    pub(super) fn restored_len(&self) -> u64 {
        self.restored_len
    }

    /// Saves the symbols on the disk until more arrive.
    pub(super) fn rest(&mut self, sbn: u32, block: &BlockBuffer) -> Result<(), SinkError> {
        if self.is_restored(sbn) {
            return Ok(());
        }
        self.part.save_symbols(sbn, block)
    }

    /// Drops the symbols of a block that are on the disk.
    pub(super) fn forget(&mut self, sbn: u32) -> Result<(), SinkError> {
        let is_block = sbn < self.item.partition.blocks();
        if is_block && !self.is_restored(sbn) && self.part.has_symbols(sbn) {
            self.part.drop_block(sbn)?;
        }
        Ok(())
    }

    /// Restores the block from the given symbols and those on the disk. If the block is wrong, the
    /// buffer has the symbols from which it was restored.
    pub(super) fn restore(
        &mut self,
        sbn: u32,
        block: &mut BlockBuffer,
    ) -> Result<Outcome, SinkError> {
        if self.is_restored(sbn) {
            return Ok(Outcome::Known);
        }
        let was_on_disk = self.part.has_symbols(sbn);
        if was_on_disk {
            self.part.load_symbols(sbn, block)?;
        }
        let received = block.source.clone();
        match self.decode(sbn, block) {
            Ok(()) => {}
            Err(FecError::NotEnough { .. }) => {
                if was_on_disk && self.part.has_symbols(sbn) {
                    self.part.drop_block(sbn)?;
                }
                self.part.save_symbols(sbn, block)?;
                let held = HeldBlock::new(block.source.clone(), block.repair_esis.clone());
                return Ok(Outcome::NotEnough(held));
            }
            Err(source) => return Err(SinkError::Oti { name: self.item.name.clone(), source }),
        }
        let range = self.item.partition.block_range(sbn);
        let len = (range.end - range.start) as usize;
        let is_right = self.is_right(sbn, &block.data[..len]);
        if is_right == Some(false) {
            if was_on_disk && self.part.has_symbols(sbn) {
                self.part.drop_block(sbn)?;
            }
            block.source = received;
            return Ok(Outcome::Wrong);
        }
        self.proved &= is_right.is_some();
        let small = range.end <= SMALL_LEN;
        let is_device = self.item.device.is_some();
        if small && self.item.partition.blocks() == 1 && !self.part.is_on_disk() && !is_device {
            self.whole = Some(block.data[..len].to_vec());
        } else {
            self.part.write_restored(sbn, &block.data)?;
            // A device is read back in the end in any case.
            if !self.proved && !is_device {
                self.hash_restored(sbn, &block.data[..len])?;
            }
        }
        self.restored_len += len as u64;
        self.shelf.unreserve(&self.item, len as u64);
        Ok(Outcome::Restored)
    }

    /// Returns the content of an empty item or of an item with only one block, or the actual digest
    /// if it does not match.
    pub(super) fn take_whole(&mut self) -> Option<Result<Vec<u8>, Digest>> {
        let whole = match self.item.partition.blocks() {
            0 => Vec::new(),
            _ => self.whole.take()?,
        };
        let digest = Digest(*blake3::hash(&whole).as_bytes());
        if digest == self.item.key.item {
            return Some(Ok(whole));
        }
        self.restored_len = 0;
        Some(Err(digest))
    }

    /// Writes a small item's part file at once.
    pub(super) fn write_whole(&mut self, content: &[u8]) -> Result<Finished, SinkError> {
        let written = self.part.data().and_then(|file| {
            let written = match self.item.holes {
                None => file.write_all_at(content, 0),
                // The part file is new, and as long as the item.
                Some(_) => holes::write(&file, content, 0).map(drop),
            };
            written.map_err(SinkError::io("write", &self.item.place.path(Role::Part)))?;
            Finished::small(self.item.clone(), &file, &self.shelf)
        });
        self.part.release();
        if written.is_err() {
            // A piece of a small item is not worth keeping.
            let _ = self.shelf.tree.remove(&self.item.place, Role::Part);
        }
        written
    }

    /// Returns the state that another thread needs to verify and finish the item.
    pub(super) fn verification(&mut self) -> Result<Verification, SinkError> {
        Ok(Verification {
            item: self.item.clone(),
            data: self.part.data()?,
            hasher: (!self.proved).then(|| self.hasher.clone()),
            hashed_len: self.hashed_len(),
        })
    }

    /// Compares each restored block with its digest and drops those that do not match. Returns the
    /// numbers of these; of all blocks that are missing, if all were there.
    /// Later blocks are compared as they come, so that the item is not read for each damage.
    pub(super) fn check_blocks(&mut self, digests: &[Digest]) -> Result<Vec<u32>, SinkError> {
        if digests.len() == self.item.partition.blocks() as usize {
            self.item.digests.get_or_init(|| digests.into());
        }
        let were_there = self.phase == Phase::Suspect;
        self.whole = None;
        self.proved = false;
        let mut bad = Vec::new();
        let mut buffer = Vec::new();
        let device = self.item.device.clone();
        for sbn in 0..self.item.partition.blocks() {
            let is_hole = device.is_some() && self.item.is_hole(sbn);
            if is_hole && !were_there {
                // Its zeros are written in the end.
                continue;
            }
            if let Some(device) = device.as_ref().filter(|_| were_there) {
                if let Some(digest) = digests.get(sbn as usize)
                    && device.has_block(&self.item, sbn, digest)?
                {
                    continue;
                }
                if is_hole {
                    // The zeros that were written there do not stay.
                    return Err(DeviceError::Forgets { path: device.path.clone() }.into());
                }
                let range = self.item.partition.block_range(sbn);
                self.part.drop_block(sbn)?;
                self.restored_len -= range.end - range.start;
            } else if self.part.restored().contains(sbn) {
                self.part.read_block(sbn, &mut buffer)?;
                let digest = Digest(*blake3::hash(&buffer).as_bytes());
                if digests.get(sbn as usize) == Some(&digest) {
                    continue;
                }
                self.part.drop_block(sbn)?;
                self.restored_len -= buffer.len() as u64;
            } else if !were_there {
                continue;
            }
            bad.push(sbn);
        }
        if !bad.is_empty() {
            self.hasher.reset();
            self.hashed = 0;
            self.phase = Phase::Receiving;
        }
        Ok(bad)
    }

    /// Returns whether it is time to make the written data durable.
    pub(super) fn checkpoint_due(&self, now: Instant) -> bool {
        self.phase != Phase::Finishing && self.part.next_checkpoint().is_some_and(|due| due <= now)
    }

    /// Returns whether written data was not made durable yet.
    pub(super) fn awaits_checkpoint(&self) -> bool {
        self.phase != Phase::Finishing && self.part.next_checkpoint().is_some()
    }

    /// Returns whether a block has its digest, if that is known.
    fn is_right(&self, sbn: u32, block: &[u8]) -> Option<bool> {
        let digest = self.item.digests.get().and_then(|digests| digests.get(sbn as usize))?;
        Some(blake3::hash(block).as_bytes() == &digest.0)
    }

    fn is_restored(&self, sbn: u32) -> bool {
        self.whole.is_some() || self.part.restored().contains(sbn)
    }

    fn decode(&self, sbn: u32, block: &mut BlockBuffer) -> Result<(), FecError> {
        if block.source.is_full() {
            return Ok(());
        }
        let k = self.item.partition.block_symbols(sbn);
        let symbol_len = self.item.symbol_len();
        let BlockBuffer { data, source, repair_esis, repairs } = block;
        let repairs: Vec<(u32, &[u8])> =
            repair_esis.iter().copied().zip(repairs.chunks_exact(symbol_len)).collect();
        self.item.code.restore(k, symbol_len, data, source, &repairs)?;
        *source = SymbolSet::full(k);
        Ok(())
    }

    /// Continues the digest if this block is the next one, and with a few subsequent blocks that
    /// are on the disk.
    fn hash_restored(&mut self, sbn: u32, block: &[u8]) -> Result<(), SinkError> {
        if sbn != self.hashed {
            return Ok(());
        }
        self.hasher.update(block);
        self.hashed += 1;
        let mut buffer = Vec::new();
        for _ in 0..CATCH_UP_BLOCKS {
            if !self.part.restored().contains(self.hashed) {
                break;
            }
            self.part.read_block(self.hashed, &mut buffer)?;
            self.hasher.update(&buffer);
            self.hashed += 1;
        }
        Ok(())
    }

    fn hashed_len(&self) -> u64 {
        // For a block number past the last one, the range is empty and at the end.
        self.item.partition.block_range(self.hashed).start
    }
}
