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
use offsets::Offsets;

/// Records are kept back until there are this many bytes of them, or a checkpoint is due.
const JOURNAL_BUFFER_LEN: usize = 256 << 10;
/// Bytes set aside for the next records, so that they can be written even when the disk is full.
const JOURNAL_ROOM: i64 = 4096;
/// A journal is written anew when this many of its bytes no longer matter, and they are most.
const MAX_DEAD_LEN: u64 = 64 << 20;
/// Bytes of data between two checkpoints, if they come faster.
const CHECKPOINT_LEN: u64 = 64 << 20;

/// The encoding symbols that one buffer holds of a block.
#[derive(Debug)]
pub(super) struct BlockBuffer {
    /// `k * symbol_len` bytes: the source symbols in their places; what is not there has any
    /// content.
    pub(super) data: Vec<u8>,
    /// The source symbols that are there.
    pub(super) source: SymbolSet,
    /// IDs of the repair symbols that are there.
    pub(super) repair_esis: Vec<u32>,
    /// The repair symbols, in the order of their IDs.
    pub(super) repairs: Vec<u8>,
}

impl BlockBuffer {
    /// No symbols of the block.
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

/// What a checkpoint makes durable, on another thread.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) data: Arc<File>,
    pub(super) journal: Arc<File>,
    /// Records before this offset tell of data that is in the kernel's hands.
    pub(super) up_to: u64,
}

/// The open files.
#[derive(Debug)]
struct Files {
    data: Arc<File>,
    journal: Option<Arc<File>>,
}

/// An incomplete item on the disk. No file is made before something is to be kept.
#[derive(Debug)]
pub(super) struct Part {
    tree: Arc<Tree>,
    item: Arc<Item>,
    files: Option<Files>,
    /// Bytes of the journal that are written.
    written_len: u64,
    /// Records that are not written yet.
    pending: Vec<u8>,
    /// The last run of restored blocks, not yet made a record.
    restored_run: Option<(u32, u32)>,
    restored: SymbolSet,
    /// Offset of the last record about the symbols of a block.
    symbols: Offsets,
    dead_len: u64,
    /// Whether a session record was written.
    begun: bool,
    dirty_len: u64,
    changed: bool,
    checkpoint_at: Instant,
    checkpoint_running: bool,
    /// Whether another thread has the open files for a checkpoint.
    lent: bool,
}

impl Part {
    /// Goes on from what the journal said, or starts with nothing.
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

    /// The restored blocks.
    pub(super) fn restored(&self) -> &SymbolSet {
        &self.restored
    }

    /// Whether anything of the item may be on the disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.files.is_some() || self.written_len > 0
    }

    /// Whether symbols of the block are on the disk.
    pub(super) fn has_symbols(&self, sbn: u32) -> bool {
        self.symbols.get(sbn) != 0
    }

    /// Whether files are open.
    pub(super) fn is_open(&self) -> bool {
        self.files.is_some()
    }

    /// The part file, opened and locked.
    pub(super) fn data(&mut self) -> Result<Arc<File>, SinkError> {
        if let Some(files) = &self.files {
            return Ok(files.data.clone());
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
        self.write_data(&block[..len], range.start)?;
        self.set_restored(sbn);
        Ok(())
    }

    /// Notes that the block is in the part file.
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

    /// Keeps symbols of a block that cannot be restored yet.
    pub(super) fn save_symbols(&mut self, sbn: u32, block: &BlockBuffer) -> Result<(), SinkError> {
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

    /// Adds what the disk holds of a block to what the buffer holds. `false` if the journal is
    /// damaged: then nothing of the block that was on the disk counts any more.
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

    /// Notes that nothing of the block is held.
    pub(super) fn drop_block(&mut self, sbn: u32) -> Result<(), SinkError> {
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
        self.data()?
            .read_exact_at(out, range.start)
            .map_err(SinkError::io("read", &self.item.place.path(Role::Part)))
    }

    /// Writes all records out.
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
        // On a file system without this, the next record may find no room; that is all.
        let (offset, len) = (self.written_len as i64, JOURNAL_ROOM);
        let _ = fallocate(&*journal, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset, len);
        Ok(())
    }

    /// When the next checkpoint is due, if there is anything to be made durable.
    pub(super) fn next_checkpoint(&self) -> Option<Instant> {
        (self.changed && !self.checkpoint_running).then(|| {
            if self.dirty_len >= CHECKPOINT_LEN { Instant::now() } else { self.checkpoint_at }
        })
    }

    /// Starts a checkpoint of its own: another thread is to sync these files.
    pub(super) fn start_checkpoint(&mut self) -> Result<Checkpoint, SinkError> {
        let up_to = self.start_common_checkpoint()?;
        self.lent = true;
        Ok(Checkpoint { data: self.data()?, journal: self.journal()?, up_to })
    }

    /// Starts a checkpoint together with others, for which the whole file system is synced: writes
    /// all records out, or the journal anew if too much of it is of no use. Gives the end of the
    /// records.
    pub(super) fn start_common_checkpoint(&mut self) -> Result<u64, SinkError> {
        self.flush()?;
        if self.dead_len > MAX_DEAD_LEN && self.dead_len > self.written_len / 2 {
            self.compact()?;
        }
        self.changed = false;
        self.dirty_len = 0;
        self.checkpoint_running = true;
        Ok(self.written_len)
    }

    /// Notes that everything that records before `up_to` tell of is on the disk. The next
    /// checkpoint is due after `interval`.
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

    /// Makes everything durable, here and now; or only writes it, if `durable` does not ask for
    /// more.
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

    /// Closes the files, which are opened again when needed, and gives up the lock.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        self.files = None;
        Ok(())
    }

    /// Whether the files may be closed now: no other thread has them.
    pub(super) fn can_close(&self) -> bool {
        !self.lent
    }

    /// Whether something is not durable yet.
    pub(super) fn is_changed(&self) -> bool {
        self.changed || self.restored_run.is_some() || !self.pending.is_empty()
    }

    /// Closes the files without another thought: the item is in other hands.
    pub(super) fn release(&mut self) {
        self.files = None;
    }

    /// The journal, if it is open.
    pub(super) fn open_journal(&self) -> Option<Arc<File>> {
        self.files.as_ref().and_then(|files| files.journal.clone())
    }

    /// Writes a journal that holds only what still matters, and puts it in place of the old one.
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
        self.tree.rename(&self.item.place, Role::Compact, Role::Journal)?;
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

    /// The source symbols of the block that are in the part file.
    fn last_source(&mut self, sbn: u32) -> Result<SymbolSet, SinkError> {
        let mut body = Vec::new();
        let offset = self.symbols.get(sbn);
        let read = self.read_symbols(sbn, offset, &mut body)?;
        let source = read.map(|(symbols, _)| symbols.source);
        Ok(source.unwrap_or_else(|| SymbolSet::new(self.item.partition.block_symbols(sbn))))
    }

    /// The record about symbols of the block at this offset, and its length.
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

    fn write_data(&mut self, bytes: &[u8], offset: u64) -> Result<(), SinkError> {
        self.data()?
            .write_all_at(bytes, offset)
            .map_err(SinkError::io("write", &self.item.place.path(Role::Part)))?;
        self.dirty_len += bytes.len() as u64;
        self.changed = true;
        Ok(())
    }

    /// The journal, opened, with what does not count cut off.
    fn journal(&mut self) -> Result<Arc<File>, SinkError> {
        self.data()?;
        let files = self.files.as_mut().expect("data() has just opened the files");
        if let Some(journal) = &files.journal {
            return Ok(journal.clone());
        }
        let journal = self.tree.open_to_write(&self.item.place, Role::Journal)?;
        journal
            .set_len(self.written_len)
            .map_err(SinkError::io("truncate", &self.item.place.path(Role::Journal)))?;
        Ok(files.journal.insert(Arc::new(journal)).clone())
    }

    /// Begins the journal, or this process's part of it.
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

    /// Makes a record of the run of restored blocks.
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

    /// Appends a record that by itself is no reason for a checkpoint.
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

    /// Writes if much is waiting.
    fn relieve(&mut self) -> io::Result<()> {
        if self.pending.len() >= JOURNAL_BUFFER_LEN { self.write() } else { Ok(()) }
    }
}

/// The runs of neighbouring members of a set: the first, and how many.
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
