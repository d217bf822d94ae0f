//! Reads what is on a device, and not what the system remembers of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::libc::EINVAL;

/// Multiple of bytes at which reads past the cache begin and end, in the device and in memory. All
/// devices take it, but at their ends.
const ALIGNMENT: u64 = 4_096;

/// The reader of a device.
#[derive(Debug)]
pub(super) struct Medium {
    /// The device as it is written.
    file: Arc<File>,
    /// The device past the cache, where that is possible.
    direct: Option<File>,
    size: u64,
    /// Whether a read past the cache was refused.
    refused: AtomicBool,
    buffer: Mutex<Vec<u8>>,
}

impl Medium {
    pub(super) fn open(file: Arc<File>, size: u64) -> Medium {
        let flags = (OFlag::O_DIRECT | OFlag::O_CLOEXEC).bits();
        // What is open: the path of the device may lead to another one by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(path).ok();
        let (refused, buffer) = (AtomicBool::new(false), Mutex::default());
        Medium { file, direct, size, refused, buffer }
    }

    /// Returns whether everything was read past the cache so far.
    pub(super) fn is_past_cache(&self) -> bool {
        self.direct.is_some() && !self.refused.load(Ordering::Acquire)
    }

    /// Reads a part of the device, and passes it on.
    pub(super) fn read<T>(
        &self,
        range: Range<u64>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let start = range.start / ALIGNMENT * ALIGNMENT;
        let end = range.end.next_multiple_of(ALIGNMENT).min(self.size.max(range.end));
        let len = (end - start) as usize;
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < len + ALIGNMENT as usize {
            buffer.resize(len + ALIGNMENT as usize, 0);
        }
        let skip = buffer.as_ptr().align_offset(ALIGNMENT as usize).min(ALIGNMENT as usize);
        let place = &mut buffer[skip..skip + len];
        self.fill(start, place)?;
        let from = (range.start - start) as usize;
        Ok(take(&place[from..from + (range.end - range.start) as usize]))
    }

    fn fill(&self, start: u64, place: &mut [u8]) -> io::Result<()> {
        if self.is_past_cache()
            && let Some(direct) = &self.direct
        {
            match direct.read_exact_at(place, start) {
                Err(error) if error.raw_os_error() == Some(EINVAL) => {
                    self.refused.store(true, Ordering::Release);
                }
                result => return result,
            }
        }
        // Pages that are written are forgotten, unless somebody else uses them.
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let _ = posix_fadvise(&*self.file, start as i64, place.len() as i64, advice);
        self.file.read_exact_at(place, start)
    }
}
