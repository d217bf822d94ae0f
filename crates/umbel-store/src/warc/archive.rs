//! Random access to the items of an archive.
//!
//! A body that is stored unchanged in a plain archive is read in place. Any other body is read from
//! a stream, which inflates the member, or joins the chunks, from the start. The stream's position
//! is kept together with its most recent content, so that blocks read in about their order cost one
//! pass. Only the most recently opened streams are kept.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Read as _};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::content::Content;
use super::inflate::{Frames, Packing};
use super::record::Record;
use crate::Fault;
use crate::origin::Body;

/// Minimum bytes of content kept before the position of a stream: some blocks, which workers read
/// in parallel.
const KEPT: usize = 1 << 20;
/// Maximum number of open streams.
const STREAMS: usize = 32;
/// Maximum bytes of what their members are inflated with, two of the largest windows.
const WINDOWS: u64 = 256 << 20;

/// The storage of an archive's bytes.
pub(super) trait Storage: Send + Sync {
    /// Reads some bytes at `offset`. Returns their number, 0 at the end.
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

/// A stored file within another.
pub(super) struct Window {
    pub(super) file: Arc<File>,
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Storage for Window {
    fn read_some(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        match self.start.checked_add(offset) {
            Some(at) => self.file.read_some(at, &mut buf[..rest]),
            None => Ok(0),
        }
    }
}

/// An open WARC or ARC file.
pub(crate) struct Archive {
    storage: Box<dyn Storage>,
    /// Known once the file is not empty.
    packing: OnceLock<Packing>,
    pub(super) frames: Mutex<Frames>,
    /// Open streams, the oldest first.
    streams: Mutex<VecDeque<Kept>>,
}

/// A stream that is kept.
struct Kept {
    slot: Weak<Slot>,
    /// Bytes of what its member is inflated with.
    window: u64,
}

impl Archive {
    pub(super) fn new(storage: Box<dyn Storage>) -> Archive {
        Archive {
            storage,
            packing: OnceLock::new(),
            frames: Mutex::default(),
            streams: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns how the records are stored.
    pub(super) fn packing(self: &Arc<Archive>) -> io::Result<Packing> {
        if let Some(packing) = self.packing.get() {
            return Ok(*packing);
        }
        let mut start = Vec::new();
        self.tape(0).take(8).read_to_end(&mut start)?;
        let packing = Packing::of(&start);
        if start.len() == 8 {
            let _ = self.packing.set(packing);
        }
        Ok(packing)
    }

    /// Returns a reader of the bytes from `offset` on.
    pub(super) fn tape(self: &Arc<Archive>, offset: u64) -> Tape {
        Tape {
            archive: Arc::clone(self),
            buffer: vec![0; Tape::BUFFER].into(),
            next: 0,
            filled: 0,
            position: offset,
        }
    }

    /// Opens an item. Unless its body is stored unchanged, a stream for it is kept. Returns
    /// [`Fault::Changed`] if its header is not where the scan found it.
    pub(super) fn open(archive: &Arc<Archive>, record: &Record) -> Result<Arc<dyn Body>, Fault> {
        let content = Content::open(archive, record)?;
        let (archive, record) = (Arc::clone(archive), *record);
        if record.member.is_none() && record.codings.none() {
            let body = record.start + u64::from(record.header_len) + u64::from(record.http_len);
            return Ok(Arc::new(StoredBody { archive, offset: body }));
        }
        let body = StreamedBody { archive, record, slot: Arc::default() };
        body.archive.keep(&body.slot, content.window());
        *body.slot.stream.lock() = Some(Stream::new(content));
        Ok(Arc::new(body))
    }

    /// Adds a stream, and closes the oldest ones beyond the limits, but not this one.
    fn keep(&self, slot: &Arc<Slot>, window: u64) {
        let slot = Arc::downgrade(slot);
        let mut streams = self.streams.lock();
        streams.retain(|other| other.slot.strong_count() > 0 && !other.slot.ptr_eq(&slot));
        streams.push_back(Kept { slot, window });
        let mut windows: u64 = streams.iter().map(|kept| kept.window).sum();
        while (streams.len() > STREAMS || windows > WINDOWS && streams.len() > 1)
            && let Some(oldest) = streams.pop_front()
        {
            windows -= oldest.window;
            // A stream that is being read now stays open and is no longer counted.
            if let Some(slot) = oldest.slot.upgrade()
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

/// A buffered reader of an archive from some position on.
pub(super) struct Tape {
    archive: Arc<Archive>,
    buffer: Box<[u8]>,
    next: usize,
    filled: usize,
    /// Offset in the archive at which the buffer ends.
    position: u64,
}

impl Tape {
    const BUFFER: usize = 64 * 1024;

    /// Returns the offset in the archive of the next byte.
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

/// A body that is stored unchanged in the archive.
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

/// A body that must be inflated or joined from chunks.
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
                let content = Content::open(&self.archive, &self.record)?;
                self.archive.keep(&self.slot, content.window());
                Stream::new(content)
            }
        };
        stream.read_at(offset, buf)?;
        *slot = Some(stream);
        Ok(())
    }
}

/// A content that is read from its start to its end, with its most recent bytes.
struct Stream {
    content: Content,
    recent: Vec<u8>,
    /// Offset in the content at which `recent` starts.
    start: u64,
}

impl Stream {
    fn new(content: Content) -> Stream {
        Stream { content, recent: Vec::new(), start: 0 }
    }

    /// Reads bytes at `offset`, which must not be before `start`.
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

    /// Drops the oldest bytes of `recent` if there are too many, but none from `needed` on.
    fn forget(&mut self, needed: u64) {
        if self.recent.len() >= 2 * KEPT {
            let spare = self.recent.len() - KEPT;
            let spare = spare.min(needed.saturating_sub(self.start) as usize);
            self.recent.drain(..spare);
            self.start += spare as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many streams are kept after so many with these windows were opened.
    fn kept(number: usize, window: u64) -> usize {
        let archive = Archive::new(Box::new(Vec::new()));
        let slots: Vec<Arc<Slot>> = (0..number).map(|_| Arc::default()).collect();
        for slot in &slots {
            archive.keep(slot, window);
        }
        let streams = archive.streams.lock();
        assert!(
            streams
                .back()
                .is_some_and(|last| last.slot.ptr_eq(&Arc::downgrade(&slots[number - 1])))
        );
        streams.len()
    }

    #[test]
    fn streams_are_bounded_by_number_and_by_what_inflates_them() {
        assert_eq!(kept(40, 8 << 20), 32);
        assert_eq!(kept(40, 128 << 20), 2);
        // One alone is kept, however large.
        assert_eq!(kept(3, 300 << 20), 1);
    }
}
