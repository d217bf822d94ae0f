//! The data that waits to be written to a stream.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use super::error::{CloseCode, SendError};

/// Maximum number of chunks that are passed to QUIC at once.
const BATCH: usize = 64;

/// The end of a stream, and of the session with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) code: CloseCode,
    pub(super) reason: String,
    /// Maximum time for the waiting data to reach the peer; zero drops it.
    pub(super) drain: Duration,
}

/// A bounded queue of bytes between any thread and the task that writes to the stream.
///
/// Bytes count until QUIC has accepted them, so that a peer which does not read fills the queue.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// Wakes the writing task when there is data to write, or no more will come.
    filled: Notify,
    /// Wakes the session's task when an ending is set.
    ended: Notify,
    /// Wakes the session's task when QUIC has accepted data.
    wrote: Notify,
    /// Wakes threads that wait for room.
    room: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Bytes>,
    /// Bytes that QUIC has not accepted.
    bytes: usize,
    ending: Option<Ending>,
    last_write: Option<Instant>,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Outbox {
        Outbox {
            state: Mutex::default(),
            filled: Notify::new(),
            ended: Notify::new(),
            wrote: Notify::new(),
            room: Condvar::new(),
            limit,
        }
    }

    /// Locks the state. No code panics while it holds the lock, so that a poisoned state is still
    /// valid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a chunk, or ends the session if the queue exceeds its limit. Never blocks.
    pub(super) fn push(&self, chunk: Bytes) -> Result<(), SendError> {
        let state = self.lock();
        if state.ending.is_some() {
            return Err(SendError::Ended);
        }
        if !self.has_room(&state, chunk.len()) {
            let waiting = state.bytes;
            drop(state);
            self.end(Ending {
                code: CloseCode::TooSlow,
                reason: format!("reads too slowly: {waiting} bytes wait for it"),
                drain: Duration::ZERO,
            });
            return Err(SendError::TooSlow);
        }
        self.enqueue(state, chunk);
        Ok(())
    }

    /// Adds a chunk if there is room. Otherwise returns it.
    pub(super) fn try_push(&self, chunk: Bytes) -> Result<Option<Bytes>, SendError> {
        let state = self.lock();
        if state.ending.is_some() {
            return Err(SendError::Ended);
        }
        if !self.has_room(&state, chunk.len()) {
            return Ok(Some(chunk));
        }
        self.enqueue(state, chunk);
        Ok(None)
    }

    /// Adds a chunk when there is room. Blocks the thread until then.
    pub(super) fn push_when_room(&self, chunk: Bytes) -> Result<(), SendError> {
        let full = |state: &mut State| state.ending.is_none() && !self.has_room(state, chunk.len());
        let state = self.room.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.ending.is_some() {
            return Err(SendError::Ended);
        }
        self.enqueue(state, chunk);
        Ok(())
    }

    /// Returns whether there is room for `len` bytes. A chunk longer than the limit fits into the
    /// empty queue only.
    fn has_room(&self, state: &State, len: usize) -> bool {
        state.bytes == 0 || state.bytes.saturating_add(len) <= self.limit
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        state.bytes += chunk.len();
        state.queue.push_back(chunk);
        drop(state);
        self.filled.notify_one();
    }

    /// Ends the queue. Nothing is added from now on. The first ending stands, except that a later
    /// one without draining cuts the draining short.
    pub(super) fn end(&self, ending: Ending) {
        let mut state = self.lock();
        if let Some(earlier) = &state.ending
            && (earlier.drain.is_zero() || !ending.drain.is_zero())
        {
            return;
        }
        if ending.drain.is_zero() {
            state.queue.clear();
        }
        state.ending = Some(ending);
        drop(state);
        self.ended.notify_one();
        self.filled.notify_one();
        self.room.notify_all();
    }

    /// Waits for an ending that satisfies `wanted`.
    pub(super) async fn ended(&self, wanted: impl Fn(&Ending) -> bool) -> Ending {
        loop {
            if let Some(ending) = self.ending().filter(&wanted) {
                return ending;
            }
            self.ended.notified().await;
        }
    }

    /// Returns the ending, if one is set.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.lock().ending.clone()
    }

    /// Waits for the next chunks to write. Returns none when the queue has ended and is empty.
    pub(super) async fn next_batch(&self) -> Vec<Bytes> {
        loop {
            {
                let mut state = self.lock();
                if !state.queue.is_empty() {
                    let n = state.queue.len().min(BATCH);
                    return state.queue.drain(..n).collect();
                }
                if state.ending.is_some() {
                    return Vec::new();
                }
                if state.queue.capacity() > BATCH {
                    state.queue = VecDeque::new();
                }
            }
            self.filled.notified().await;
        }
    }

    /// Records that QUIC has accepted `bytes` bytes, or the end of the stream.
    pub(super) fn written(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        state.last_write = Some(Instant::now());
        drop(state);
        self.wrote.notify_one();
        self.room.notify_all();
    }

    /// Waits until QUIC has accepted data. Returns the time of the last acceptance.
    pub(super) async fn wrote(&self) -> Instant {
        loop {
            self.wrote.notified().await;
            if let Some(last) = self.last_write() {
                return last;
            }
        }
    }

    /// Returns the time at which QUIC last accepted data.
    pub(super) fn last_write(&self) -> Option<Instant> {
        self.lock().last_write
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn chunk(len: usize) -> Bytes {
        Bytes::from(vec![0; len])
    }

    fn ending(drain: Duration) -> Ending {
        Ending { code: CloseCode::Done, reason: String::new(), drain }
    }

    #[test]
    fn a_full_queue_ends_the_session_and_never_waits() {
        let outbox = Outbox::new(10);
        assert_eq!(outbox.push(chunk(30)), Ok(()), "one message fits whatever its length");
        assert_eq!(outbox.push(chunk(1)), Err(SendError::TooSlow));
        assert_eq!(outbox.push(chunk(1)), Err(SendError::Ended));
        assert_eq!(outbox.ending().unwrap().code, CloseCode::TooSlow);
    }

    #[test]
    fn a_blocked_thread_goes_on_when_bytes_were_taken_and_stops_at_the_end() {
        let outbox = Arc::new(Outbox::new(10));
        outbox.push(chunk(10)).unwrap();
        assert_eq!(outbox.try_push(chunk(1)), Ok(Some(chunk(1))));
        let (tell, told) = std::sync::mpsc::channel();
        let writer = {
            let outbox = outbox.clone();
            std::thread::spawn(move || {
                tell.send(outbox.push_when_room(chunk(4))).unwrap();
                outbox.push_when_room(chunk(8))
            })
        };
        std::thread::sleep(Duration::from_millis(20));
        assert!(told.try_recv().is_err());
        outbox.written(5);
        assert_eq!(told.recv(), Ok(Ok(())));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        outbox.end(ending(Duration::ZERO));
        assert_eq!(writer.join().unwrap(), Err(SendError::Ended));
    }

    #[test]
    fn a_hard_ending_cuts_a_draining_one_short_and_not_the_other_way_round() {
        let outbox = Outbox::new(10);
        outbox.push(chunk(1)).unwrap();
        outbox.end(ending(Duration::from_secs(1)));
        assert_eq!(outbox.lock().queue.len(), 1);
        outbox.end(ending(Duration::ZERO));
        assert!(outbox.lock().queue.is_empty());
        outbox.end(ending(Duration::from_secs(2)));
        assert_eq!(outbox.ending(), Some(ending(Duration::ZERO)));
    }
}
