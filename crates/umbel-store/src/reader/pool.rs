//! A pool of block buffers, so that the kernel need not provide fresh pages for each block.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Sizes of pooled buffers are multiples of this number of bytes. Shorter buffers are not pooled.
const GRAIN: usize = 64 * 1024;

/// Buffers that wait for reuse.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    /// Maximum number of buffers that wait.
    capacity: usize,
}

impl Pool {
    /// Creates a pool of at most `capacity` buffers.
    pub(super) fn new(capacity: usize) -> Pool {
        Pool { free: Mutex::new(Vec::new()), capacity }
    }

    /// Returns `len` bytes as `write` leaves them. Their content before is arbitrary.
    pub(super) fn fill<E>(
        self: &Arc<Pool>,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        if len < GRAIN {
            let mut data = vec![0; len];
            write(&mut data)?;
            return Ok(data.into());
        }
        let mut buffer = Buffer { data: self.take(len), len, pool: Arc::downgrade(self) };
        write(&mut buffer.data[..len])?;
        Ok(Bytes::from_owner(buffer))
    }

    fn take(&self, len: usize) -> Vec<u8> {
        let size = len.next_multiple_of(GRAIN);
        let mut free = self.free.lock();
        if let Some(index) = free.iter().rposition(|buffer| buffer.len() == size) {
            return free.swap_remove(index);
        }
        drop(free);
        vec![0; size]
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock();
        if free.len() >= self.capacity {
            // Sizes change from item to item, so a waiting buffer is dropped for the new one.
            free.swap_remove(0);
        }
        free.push(buffer);
    }
}

/// A buffer that returns to its pool when the last slice of it is dropped.
struct Buffer {
    data: Vec<u8>,
    len: usize,
    pool: Weak<Pool>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give(std::mem::take(&mut self.data));
        }
    }
}
