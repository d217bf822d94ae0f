//! Random access to the items of an archive.
//!
//! A body that is stored as it is, in a plain archive, is read where it lies. Any other comes out
//! of a stream: the member is inflated, or the chunks are put together, from the start. The
//! stream's position is kept with the content that it gave last, so that blocks read in about
//! their order cost one pass. Of all streams only those opened last are kept.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::content::Content;
use super::record::Record;
use crate::Fault;
use crate::origin::Body;

/// Content kept behind the position of a stream: some blocks, which workers read side by side.
const KEPT: usize = 1 << 20;
/// Streams that are open at a time.
const STREAMS: usize = 32;

/// Where an archive's bytes are.
pub(super) trait Storage: Send + Sync {
    /// Reads some bytes at `offset`; 0 at the end.
    fn read_some(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
}

impl Storage for File {
    fn read_some(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Storage for Vec<u8> {
    fn read_some(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// A WARC file that is open.
pub(crate) struct Archive {
    storage: Box<dyn Storage>,
    /// The streams in use, the oldest first.
    streams: Mutex<VecDeque<Weak<Slot>>>,
}

impl Archive {
    pub(super) fn new(storage: Box<dyn Storage>) -> Archive {
        Archive { storage, streams: Mutex::new(VecDeque::new()) }
    }

    /// The bytes from `offset` on.
    pub(super) fn tape(self: &Arc<Archive>, offset: u64) -> Tape {
        Tape {
            archive: Arc::clone(self),
            buffer: vec![0; Tape::BUFFER].into(),
            next: 0,
            filled: 0,
            position: offset,
        }
    }

    /// Opens an item, after making sure that its header is where it was.
    pub(super) fn open(archive: &Arc<Archive>, record: &Record) -> Result<Arc<dyn Body>, Fault> {
        let content = Content::open(archive, record)?;
        let (archive, record) = (Arc::clone(archive), *record);
        if record.member.is_none() && !record.chunked {
            let body = record.start + u64::from(record.header_len) + u64::from(record.http_len);
            return Ok(Arc::new(StoredBody { archive, offset: body }));
        }
        let body = StreamedBody { archive, record, slot: Arc::default() };
        body.archive.keep(&body.slot);
        *body.slot.stream.lock() = Some(Stream::new(content));
        Ok(Arc::new(body))
    }

    /// Counts a stream, and closes the oldest ones beyond the limit.
    fn keep(&self, slot: &Arc<Slot>) {
        let slot = Arc::downgrade(slot);
        let mut streams = self.streams.lock();
        streams.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&slot));
        streams.push_back(slot);
        while streams.len() > STREAMS
            && let Some(oldest) = streams.pop_front()
        {
            // One that is being read now counts on.
            if let Some(slot) = oldest.upgrade()
                && let Some(mut stream) = slot.stream.try_lock()
            {
                *stream = None;
            }
        }
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").finish_non_exhaustive()
    }
}

/// Reads an archive from some position on.
pub(super) struct Tape {
    archive: Arc<Archive>,
    buffer: Box<[u8]>,
    next: usize,
    filled: usize,
    /// Where in the archive the buffer ends.
    position: u64,
}

impl Tape {
    const BUFFER: usize = 64 * 1024;

    /// Where the next byte comes from.
    pub(super) fn offset(&self) -> u64 {
        self.position - (self.filled - self.next) as u64
    }
}

impl BufRead for Tape {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.next == self.filled {
            self.next = 0;
            self.filled = 0;
            self.filled = self.archive.storage.read_some(self.position, &mut self.buffer)?;
            self.position += self.filled as u64;
        }
        Ok(&self.buffer[self.next..self.filled])
    }

    fn consume(&mut self, amount: usize) {
        self.next = (self.next + amount).min(self.filled);
    }
}

impl io::Read for Tape {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let len = ready.len().min(buf.len());
        buf[..len].copy_from_slice(&ready[..len]);
        self.consume(len);
        Ok(len)
    }
}

/// A body that lies in the archive as it is.
struct StoredBody {
    archive: Arc<Archive>,
    offset: u64,
}

impl Body for StoredBody {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let mut at = self.offset + offset;
        let mut rest = buf;
        while !rest.is_empty() {
            match self.archive.storage.read_some(at, rest)? {
                0 => return Err(Fault::Changed),
                read => {
                    at += read as u64;
                    rest = &mut rest[read..];
                }
            }
        }
        Ok(())
    }
}

/// A body that must be unpacked.
struct StreamedBody {
    archive: Arc<Archive>,
    record: Record,
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    stream: Mutex<Option<Stream>>,
}

impl Body for StreamedBody {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let mut slot = self.slot.stream.lock();
        let mut stream = match slot.take() {
            Some(stream) if offset >= stream.start => stream,
            _ => {
                self.archive.keep(&self.slot);
                Stream::new(Content::open(&self.archive, &self.record)?)
            }
        };
        stream.read_at(offset, buf)?;
        *slot = Some(stream);
        Ok(())
    }
}

/// A content that is read from its start to its end, and the last of what came out of it.
struct Stream {
    content: Content,
    recent: Vec<u8>,
    /// Where in the content `recent` starts.
    start: u64,
}

impl Stream {
    fn new(content: Content) -> Stream {
        Stream { content, recent: Vec::new(), start: 0 }
    }

    /// Reads what is not before `start`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let end = offset + buf.len() as u64;
        while self.start + (self.recent.len() as u64) < end {
            self.forget(offset);
            if self.content.read_more(&mut self.recent)? == 0 {
                return Err(Fault::Changed);
            }
        }
        let at = (offset - self.start) as usize;
        buf.copy_from_slice(&self.recent[at..at + buf.len()]);
        Ok(())
    }

    /// Drops the oldest content beyond what is kept, but nothing from `needed` on.
    fn forget(&mut self, needed: u64) {
        if self.recent.len() >= 2 * KEPT {
            let spare = self.recent.len() - KEPT;
            let spare = spare.min(needed.saturating_sub(self.start) as usize);
            self.recent.drain(..spare);
            self.start += spare as u64;
        }
    }
}
