//! An incomplete item on the disk: the part file and its journal.

mod offsets;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};
use umbel_fec::{Partition, SymbolSet};

use super::errors::SinkError;
use super::item::Item;
use super::journal::{self, MAX_REPAIRS_LEN, Record, Replay, Symbols, read_record};
use super::tree::{Role, Tree};
use crate::holes;
use offsets::Offsets;

/// Number of bytes of records from which they are written. A due checkpoint writes fewer.
const JOURNAL_BUFFER_LEN: usize = 256 << 10;
/// Bytes reserved for the next records, so that they can be written even when the disk is full.
const JOURNAL_ROOM: i64 = 4096;
/// A journal is compacted when more than this number of its bytes are obsolete, and these are more
/// than half.
const MAX_DEAD_LEN: u64 = 64 << 20;
/// Number of bytes of data after which a checkpoint is due at once.
const CHECKPOINT_LEN: u64 = 64 << 20;

/// The encoding symbols of a block in one buffer.
#[derive(Debug)]
pub(super) struct BlockBuffer {
    /// `k * symbol_len` bytes: the source symbols in their places. The bytes of missing symbols are
    /// arbitrary.
    pub(super) data: Vec<u8>,
    /// The source symbols present.
    pub(super) source: SymbolSet,
    /// IDs of the repair symbols present.
    pub(super) repair_esis: Vec<u32>,
    /// The repair symbols, in the order of their IDs.
    pub(super) repairs: Vec<u8>,
}

impl BlockBuffer {
    /// Creates a buffer without symbols of the block.
    pub(super) fn empty(partition: &Partition, sbn: u32) -> BlockBuffer {
        let k = partition.block_symbols(sbn);
        BlockBuffer {
            data: vec![0; k as usize * usize::from(partition.symbol_len())],
            source: SymbolSet::new(k),
            repair_esis: Vec::new(),
            repairs: Vec::new(),
        }
    }
}

/// The files that another thread makes durable in a checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) data: Arc<File>,
    pub(super) journal: Arc<File>,
    /// The data of all records before this offset has been passed to the kernel.
    pub(super) up_to: u64,
}

/// The open files.
#[derive(Debug)]
struct Files {
    data: Arc<File>,
    journal: Option<Arc<File>>,
}

/// An incomplete item on the disk. No file is created before there is data to keep.
#[derive(Debug)]
pub(super) struct Part {
    tree: Arc<Tree>,
    item: Arc<Item>,
    files: Option<Files>,
    /// Number of written bytes of the journal.
    written_len: u64,
    /// Records not written yet.
    pending: Vec<u8>,
    /// Last run of restored blocks, not recorded yet: the first block and the number of blocks.
    restored_run: Option<(u32, u32)>,
    restored: SymbolSet,
    /// Blocks that may not be all zeros on the disk; `None` if any of them may not.
    touched: Option<BTreeSet<u32>>,
    /// Offset of the last record about the symbols of a block.
    symbols: Offsets,
    dead_len: u64,
    /// Whether a session record was written.
    begun: bool,
    dirty_len: u64,
    changed: bool,
    checkpoint_at: Instant,
    checkpoint_running: bool,
    /// Whether another thread uses the open files for a checkpoint.
    lent: bool,
}

impl Part {
    /// Creates the state from the journal, or an empty one.
    pub(super) fn new(tree: Arc<Tree>, item: Arc<Item>, replay: Option<&Replay>) -> Part {
        let blocks = item.partition.blocks();
        let mut symbols = Offsets::default();
        for (&sbn, &offset) in replay.iter().flat_map(|replay| &replay.last_records) {
            symbols.set(sbn, offset);
        }
        Part {
            tree,
            item,
            files: None,
            written_len: replay.map_or(0, |replay| replay.trusted_len),
            pending: Vec::new(),
            restored_run: None,
            restored: replay
                .map_or_else(|| SymbolSet::new(blocks), |replay| replay.restored.clone()),
            touched: replay.is_none_or(|replay| replay.trusted_len == 0).then(BTreeSet::new),
            symbols,
            dead_len: replay.map_or(0, |replay| replay.dead_len),
            begun: false,
            dirty_len: 0,
            changed: false,
            checkpoint_at: Instant::now(),
            checkpoint_running: false,
            lent: false,
        }
    }

    /// Returns the restored blocks.
    pub(super) fn restored(&self) -> &SymbolSet {
        &self.restored
    }

    /// Returns whether any data of the item may be on the disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.files.is_some() || self.written_len > 0
    }

    /// Returns whether symbols of the block are on the disk.
    pub(super) fn has_symbols(&self, sbn: u32) -> bool {
        self.symbols.get(sbn) != 0
    }

    /// Returns whether files are open.
    pub(super) fn is_open(&self) -> bool {
        self.files.is_some()
    }

    /// Returns the part file, opened and locked.
    pub(super) fn data(&mut self) -> Result<Arc<File>, SinkError> {
        if let Some(files) = &self.files {
            return Ok(files.data.clone());
        }
        if let Some(device) = &self.item.device {
            let data = device.file();
            self.files = Some(Files { data: data.clone(), journal: None });
            return Ok(data);
        }
        let data = self.tree.open_part(&self.item.place)?;
        data.set_len(self.item.partition.object_len())
            .map_err(SinkError::io("extend", &self.item.place.path(Role::Part)))?;
        let data = Arc::new(data);
        self.files = Some(Files { data: data.clone(), journal: None });
        Ok(data)
    }

    /// Writes a restored block.
    pub(super) fn write_restored(&mut self, sbn: u32, block: &[u8]) -> Result<(), SinkError> {
        let range = self.item.partition.block_range(sbn);
        let len = (range.end - range.start) as usize;
        let zeros = self.touched.as_ref().is_some_and(|touched| !touched.contains(&sbn));
        if self.item.holes.is_some() && self.item.device.is_none() && zeros {
            self.write_around_zeros(&block[..len], range.start)?;
        } else {
            self.write_data(&block[..len], range.start)?;
        }
        self.set_restored(sbn);
        Ok(())
    }

    /// Records that the block is in the part file.
    pub(super) fn set_restored(&mut self, sbn: u32) {
        self.symbols.set(sbn, 0);
        self.restored.insert(sbn);
        self.changed = true;
        match &mut self.restored_run {
            Some((first, count)) if *first + *count == sbn => *count += 1,
            _ => {
                self.end_run();
                self.restored_run = Some((sbn, 1));
            }
        }
    }

    /// Saves symbols of a block that cannot be restored yet.
    pub(super) fn save_symbols(&mut self, sbn: u32, block: &BlockBuffer) -> Result<(), SinkError> {
        self.touch(sbn);
        let symbol_len = usize::from(self.item.partition.symbol_len());
        for (first, count) in runs(&block.source) {
            let start = self.item.partition.symbol_range(sbn, first).start;
            let end = self.item.partition.symbol_range(sbn, first + count - 1).end;
            let from = first as usize * symbol_len;
            let bytes = &block.data[from..from + (end - start) as usize];
            self.write_data(bytes, start)?;
        }
        let mut source = block.source.clone();
        if self.has_symbols(sbn) {
            let before = self.last_source(sbn)?;
            (0..source.len()).filter(|&esi| before.contains(esi)).for_each(|esi| {
                source.insert(esi);
            });
        }
        let per_record = (MAX_REPAIRS_LEN / symbol_len).max(1);
        let mut esis = block.repair_esis.chunks(per_record);
        let mut repairs = block.repairs.chunks(per_record * symbol_len);
        loop {
            let (esis, repairs) = (esis.next(), repairs.next());
            let symbols = Symbols {
                sbn,
                previous: self.symbols.get(sbn),
                source: source.clone(),
                repair_esis: esis.unwrap_or_default().to_vec(),
                repairs: repairs.unwrap_or_default(),
            };
            self.end_run();
            self.begin();
            self.symbols.set(sbn, self.next_offset());
            self.append(&Record::Symbols(symbols))?;
            if esis.is_none() || block.repair_esis.len() <= per_record {
                return Ok(());
            }
        }
    }

    /// Loads the symbols of a block from the disk into the buffer. Returns `false` if the journal
    /// is damaged. The block's data on the disk is then dropped.
    pub(super) fn load_symbols(
        &mut self,
        sbn: u32,
        block: &mut BlockBuffer,
    ) -> Result<bool, SinkError> {
        let symbol_len = usize::from(self.item.partition.symbol_len());
        let mut offset = self.symbols.get(sbn);
        let mut on_disk = None;
        let mut held: BTreeSet<u32> = block.repair_esis.iter().copied().collect();
        let mut body = Vec::new();
        while offset != 0 {
            let Some((symbols, len)) = self.read_symbols(sbn, offset, &mut body)? else {
                self.drop_block(sbn)?;
                return Ok(false);
            };
            self.dead_len += len;
            offset = symbols.previous;
            let repairs = symbols.repairs.chunks_exact(symbol_len);
            for (&esi, repair) in symbols.repair_esis.iter().zip(repairs) {
                if held.insert(esi) {
                    block.repair_esis.push(esi);
                    block.repairs.extend_from_slice(repair);
                }
            }
            on_disk.get_or_insert(symbols.source);
        }
        let Some(mut on_disk) = on_disk else { return Ok(true) };
        (0..on_disk.len()).filter(|&esi| block.source.contains(esi)).for_each(|esi| {
            on_disk.remove(esi);
        });
        self.flush_device()?;
        let data = self.data()?;
        for (first, count) in runs(&on_disk) {
            let start = self.item.partition.symbol_range(sbn, first).start;
            let end = self.item.partition.symbol_range(sbn, first + count - 1).end;
            let from = first as usize * symbol_len;
            let to = from + (end - start) as usize;
            data.read_exact_at(&mut block.data[from..to], start)
                .map_err(SinkError::io("read", &self.item.place.path(Role::Part)))?;
            block.data[to..(first + count) as usize * symbol_len].fill(0);
            (first..first + count).for_each(|esi| {
                block.source.insert(esi);
            });
        }
        Ok(true)
    }

    /// Records that nothing of the block is held.
    pub(super) fn drop_block(&mut self, sbn: u32) -> Result<(), SinkError> {
        self.touch(sbn);
        self.end_run();
        self.symbols.set(sbn, 0);
        self.restored.remove(sbn);
        self.begin();
        self.append(&Record::Dropped { sbn })
    }

    /// Reads a restored block from the part file into `out`.
    pub(super) fn read_block(&mut self, sbn: u32, out: &mut Vec<u8>) -> Result<(), SinkError> {
        let range = self.item.partition.block_range(sbn);
        out.resize((range.end - range.start) as usize, 0);
        self.flush_device()?;
        self.data()?
            .read_exact_at(out, range.start)
            .map_err(SinkError::io("read", &self.item.place.path(Role::Part)))
    }

    /// Writes all pending records.
    pub(super) fn flush(&mut self) -> Result<(), SinkError> {
        self.end_run();
        if self.pending.is_empty() {
            return Ok(());
        }
        let journal = self.journal()?;
        journal
            .write_all_at(&self.pending, self.written_len)
            .map_err(SinkError::io("write", &self.item.place.path(Role::Journal)))?;
        self.written_len += self.pending.len() as u64;
        self.pending.clear();
        // On a file system without this operation, the next record may find no room. There is no
        // other effect.
        let (offset, len) = (self.written_len as i64, JOURNAL_ROOM);
        let _ = fallocate(&*journal, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len);
        Ok(())
    }

    /// Returns the time of the next checkpoint, if any data is not durable yet.
    pub(super) fn next_checkpoint(&self) -> Option<Instant> {
        (self.changed && !self.checkpoint_running).then(|| {
            if self.dirty_len >= CHECKPOINT_LEN { Instant::now() } else { self.checkpoint_at }
        })
    }

    /// Starts a checkpoint of this item alone. Another thread must sync the files returned.
    pub(super) fn start_checkpoint(&mut self) -> Result<Checkpoint, SinkError> {
        let up_to = self.start_common_checkpoint()?;
        self.lent = true;
        Ok(Checkpoint { data: self.data()?, journal: self.journal()?, up_to })
    }

    /// Starts a checkpoint together with others, for which the whole file system is synced. Writes
    /// all pending records, and compacts the journal if too much of it is obsolete. Returns the end
    /// of the records.
    pub(super) fn start_common_checkpoint(&mut self) -> Result<u64, SinkError> {
        self.flush()?;
        self.flush_device()?;
        // The journal of a device is in memory alone.
        let is_long = self.dead_len > MAX_DEAD_LEN && self.dead_len > self.written_len / 2;
        if is_long && self.item.device.is_none() {
            self.compact()?;
        }
        self.changed = false;
        self.dirty_len = 0;
        self.checkpoint_running = true;
        Ok(self.written_len)
    }

    /// Records that the data of all records before `up_to` is on the disk. The next checkpoint is
    /// due after `interval`.
    pub(super) fn end_checkpoint(
        &mut self,
        up_to: u64,
        interval: Duration,
    ) -> Result<(), SinkError> {
        self.checkpoint_running = false;
        self.lent = false;
        self.checkpoint_at = Instant::now() + interval;
        self.append_quietly(&Record::Durable { up_to })?;
        self.flush()
    }

    /// Makes all data durable on this thread. If `durable` is false, only writes it.
    pub(super) fn sync(&mut self, durable: bool) -> Result<(), SinkError> {
        if !self.is_changed() {
            return Ok(());
        }
        if !durable {
            return self.flush();
        }
        let checkpoint = self.start_checkpoint()?;
        checkpoint
            .data
            .sync_data()
            .map_err(SinkError::io("sync", &self.item.place.path(Role::Part)))?;
        self.end_checkpoint(checkpoint.up_to, Duration::ZERO)?;
        checkpoint
            .journal
            .sync_data()
            .map_err(SinkError::io("sync", &self.item.place.path(Role::Journal)))
    }

    /// Closes the files, which are opened again when needed, and releases the lock.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        self.files = None;
        Ok(())
    }

    /// Returns whether the files may be closed now because no other thread uses them.
    pub(super) fn can_close(&self) -> bool {
        !self.lent
    }

    /// Returns whether any data is not durable yet.
    pub(super) fn is_changed(&self) -> bool {
        self.changed || self.restored_run.is_some() || !self.pending.is_empty()
    }

    /// Closes the files without writing pending records, since another thread finishes the item.
    pub(super) fn release(&mut self) {
        self.files = None;
    }

    /// Returns the journal, if it is open.
    pub(super) fn open_journal(&self) -> Option<Arc<File>> {
        self.files.as_ref().and_then(|files| files.journal.clone())
    }

    /// Replaces the journal with one that has only the records still needed.
    fn compact(&mut self) -> Result<(), SinkError> {
        let data = self.data()?;
        data.sync_data().map_err(SinkError::io("sync", &self.item.place.path(Role::Part)))?;
        let new = Arc::new(self.tree.open_to_write(&self.item.place, Role::Compact)?);
        let path = self.item.place.path(Role::Compact);
        new.set_len(0).map_err(SinkError::io("truncate", &path))?;
        let mut writer =
            Appender { file: &new, offset: 0, pending: self.item.key.header().to_vec() };
        if let Some(boot) = journal::boot_id() {
            Record::Session { boot }.emit(&mut writer.pending);
        }
        for (first, count) in runs(&self.restored) {
            Record::Restored { first, count }.emit(&mut writer.pending);
            writer.relieve().map_err(SinkError::io("write", &path))?;
        }
        let mut offsets = Offsets::default();
        for sbn in self.symbols.blocks() {
            self.copy_symbols(sbn, &mut writer, &mut offsets)?;
        }
        let up_to = writer.offset + writer.pending.len() as u64;
        Record::Durable { up_to }.emit(&mut writer.pending);
        writer.write().map_err(SinkError::io("write", &path))?;
        new.sync_data().map_err(SinkError::io("sync", &path))?;
        self.written_len = writer.offset;
        self.tree.rename(&self.item.place, Role::Compact, Role::Journal, true)?;
        self.symbols = offsets;
        self.dead_len = 0;
        if let Some(files) = &mut self.files {
            files.journal = Some(new);
        }
        Ok(())
    }

    /// Copies the records about the symbols of a block, the oldest first.
    fn copy_symbols(
        &mut self,
        sbn: u32,
        writer: &mut Appender<'_>,
        offsets: &mut Offsets,
    ) -> Result<(), SinkError> {
        let mut chain = Vec::new();
        let mut body = Vec::new();
        let mut offset = self.symbols.get(sbn);
        while offset != 0 {
            chain.push(offset);
            let read = self.read_symbols(sbn, offset, &mut body)?;
            let Some((symbols, _)) = read else { return Ok(()) };
            offset = symbols.previous;
        }
        for &offset in chain.iter().rev() {
            let read = self.read_symbols(sbn, offset, &mut body)?;
            let Some((mut symbols, _)) = read else { return Ok(()) };
            symbols.previous = offsets.get(sbn);
            offsets.set(sbn, writer.offset + writer.pending.len() as u64);
            Record::Symbols(symbols).emit(&mut writer.pending);
            writer
                .relieve()
                .map_err(SinkError::io("write", &self.item.place.path(Role::Compact)))?;
        }
        Ok(())
    }

    /// Returns the source symbols of the block that are in the part file.
    fn last_source(&mut self, sbn: u32) -> Result<SymbolSet, SinkError> {
        let mut body = Vec::new();
        let offset = self.symbols.get(sbn);
        let read = self.read_symbols(sbn, offset, &mut body)?;
        let source = read.map(|(symbols, _)| symbols.source);
        Ok(source.unwrap_or_else(|| SymbolSet::new(self.item.partition.block_symbols(sbn))))
    }

    /// Returns the record about symbols of the block at this offset, and its length.
    fn read_symbols<'a>(
        &mut self,
        sbn: u32,
        offset: u64,
        body: &'a mut Vec<u8>,
    ) -> Result<Option<(Symbols<'a>, u64)>, SinkError> {
        if offset >= self.written_len {
            self.flush()?;
        }
        let journal = self.journal()?;
        let fail =
            |error: io::Error| SinkError::io("read", &self.item.place.path(Role::Journal))(error);
        let mut reader: &File = &journal;
        reader.seek(SeekFrom::Start(offset)).map_err(fail)?;
        let room = self.written_len.saturating_sub(offset);
        let record = read_record(&mut reader, room, &self.item.partition, body).map_err(fail)?;
        Ok(record.and_then(|(record, len)| match record {
            Record::Symbols(symbols) if symbols.sbn == sbn && symbols.previous < offset => {
                Some((symbols, len))
            }
            _ => None,
        }))
    }

    /// Notes that the block may not be all zeros on the disk.
    fn touch(&mut self, sbn: u32) {
        if let Some(touched) = self.touched.as_mut().filter(|_| self.item.holes.is_some()) {
            touched.insert(sbn);
        }
    }

    /// Writes bytes where nothing but zeros is, without the pages that are zeros.
    fn write_around_zeros(&mut self, bytes: &[u8], offset: u64) -> Result<(), SinkError> {
        let written = holes::write(&*self.data()?, bytes, offset)
            .map_err(SinkError::io("write", &self.item.place.path(Role::Part)))?;
        self.dirty_len += written;
        self.changed = true;
        Ok(())
    }

    fn write_data(&mut self, bytes: &[u8], offset: u64) -> Result<(), SinkError> {
        match &self.item.device {
            Some(device) => device.write(bytes, offset)?,
            None => self
                .data()?
                .write_all_at(bytes, offset)
                .map_err(SinkError::io("write", &self.item.place.path(Role::Part)))?,
        }
        self.dirty_len += bytes.len() as u64;
        self.changed = true;
        Ok(())
    }

    /// Passes everything that was written to a device to the system.
    fn flush_device(&self) -> Result<(), SinkError> {
        let device = self.item.device.as_ref();
        device.map_or(Ok(()), |device| device.flush().map_err(SinkError::from))
    }

    /// Opens and returns the journal. Cuts its invalid end off.
    fn journal(&mut self) -> Result<Arc<File>, SinkError> {
        self.data()?;
        let files = self.files.as_mut().expect("data() has just opened the files");
        if let Some(journal) = &files.journal {
            return Ok(journal.clone());
        }
        let journal = match &self.item.device {
            None => self.tree.open_to_write(&self.item.place, Role::Journal)?,
            Some(device) => device.new_journal()?,
        };
        journal
            .set_len(self.written_len)
            .map_err(SinkError::io("truncate", &self.item.place.path(Role::Journal)))?;
        Ok(files.journal.insert(Arc::new(journal)).clone())
    }

    /// Begins the journal, or this process's session in it.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        if self.written_len == 0 {
            self.pending.extend_from_slice(&self.item.key.header());
        }
        if let Some(boot) = journal::boot_id() {
            Record::Session { boot }.emit(&mut self.pending);
        }
    }

    fn next_offset(&self) -> u64 {
        self.written_len + self.pending.len() as u64
    }

    /// Appends a record of the run of restored blocks.
    fn end_run(&mut self) {
        if let Some((first, count)) = self.restored_run.take() {
            self.begin();
            Record::Restored { first, count }.emit(&mut self.pending);
        }
    }

    fn append(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        self.changed = true;
        self.append_quietly(record)
    }

    /// Appends a record that does not by itself require a checkpoint.
    fn append_quietly(&mut self, record: &Record<'_>) -> Result<(), SinkError> {
        record.emit(&mut self.pending);
        if self.pending.len() >= JOURNAL_BUFFER_LEN { self.flush() } else { Ok(()) }
    }
}

/// Writes a file from its beginning, in large pieces.
struct Appender<'a> {
    file: &'a File,
    offset: u64,
    pending: Vec<u8>,
}

impl Appender<'_> {
    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.pending, self.offset)?;
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes if many bytes are pending.
    fn relieve(&mut self) -> io::Result<()> {
        if self.pending.len() >= JOURNAL_BUFFER_LEN { self.write() } else { Ok(()) }
    }
}

/// Returns the runs of consecutive members of a set, as pairs of the first member and the length.
pub(super) fn runs(set: &SymbolSet) -> impl Iterator<Item = (u32, u32)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = (next..set.len()).find(|&member| set.contains(member))?;
        let end = (first..set.len()).find(|&member| !set.contains(member)).unwrap_or(set.len());
        next = end;
        Some((first, end - first))
    })
}

#[cfg(test)]
mod tests;
