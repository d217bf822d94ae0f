//! Limits for one client, and for all of them together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use umbel_engine::shares::{Budget, Origin};

/// Body bytes that count as one more message, so that a few long messages are limited as many short
/// ones are.
const BYTES_PER_TOKEN: usize = 16 * 1024;

/// Limits the number of messages that a client sends: a token bucket.
#[derive(Debug)]
pub(super) struct RateLimit {
    per_s: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl RateLimit {
    /// Creates a limit of `per_s` tokens a second on average, and up to `burst` at once.
    pub(super) fn new(per_s: u32, burst: u32, now: Instant) -> RateLimit {
        let burst = f64::from(burst);
        RateLimit { per_s: f64::from(per_s), burst, tokens: burst, filled: now }
    }

    /// Returns whether a message of `len` bytes is within the limit. If so, counts it.
    pub(super) fn admit(&mut self, now: Instant, len: usize) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_s).min(self.burst);
        self.filled = now;
        let cost = (1 + len / BYTES_PER_TOKEN) as f64;
        // A message that costs more than the bucket holds passes when the bucket is full.
        if self.tokens < cost.min(self.burst) {
            return false;
        }
        self.tokens -= cost;
        true
    }
}

/// Limits what has come from a client and is not worked off yet. Beyond it nothing more is read of
/// its stream, and QUIC's flow control holds the client back.
#[derive(Debug)]
pub(super) struct Backlog(Arc<Semaphore>);

/// Maximum number of bytes of a client's messages that wait. Each message counts as 1 KiB more.
pub(super) const BACKLOG: usize = 1 << 20;
const BACKLOG_UNIT: usize = 1 << 10;

impl Backlog {
    pub(super) fn new() -> Backlog {
        Backlog(Arc::new(Semaphore::new(BACKLOG / BACKLOG_UNIT)))
    }

    /// Waits until there is room for a message. Returns it; its room is free again once the last
    /// clone of the result is dropped. A message that is longer than the limit waits until nothing
    /// else does.
    pub(super) async fn admit(&self, message: Bytes) -> Bytes {
        let units = (1 + message.len() / BACKLOG_UNIT).min(BACKLOG / BACKLOG_UNIT);
        let room = self.0.clone().acquire_many_owned(units as u32).await;
        // The semaphore is never closed.
        Bytes::from_owner(Waiting { message, _room: room.ok() })
    }
}

/// A message that waits to be worked off.
struct Waiting {
    message: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

/// Bytes that all sessions together may hold in incomplete messages.
#[derive(Debug)]
pub(super) struct Unfinished(Mutex<Budget>);

impl Unfinished {
    pub(super) fn new(limit: usize) -> Arc<Unfinished> {
        Arc::new(Unfinished(Mutex::new(Budget::new(limit))))
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session's part of what is [`Unfinished`], returned when dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<Unfinished>,
    origin: Origin,
    held: usize,
}

impl Share {
    pub(super) fn new(of: Arc<Unfinished>, origin: Origin) -> Share {
        Share { of, origin, held: 0 }
    }

    /// Sets the share to `bytes`. Returns `false` if that is more than before, and more than its
    /// host may have.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let may = match bytes.checked_sub(self.held) {
            Some(0) => return true,
            Some(more) => self.of.budget().take(self.origin, more),
            None => {
                self.of.budget().give(self.origin, self.held - bytes);
                true
            }
        };
        if may {
            self.held = bytes;
        }
        may
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_only_the_rate() {
        let start = Instant::now();
        let mut limit = RateLimit::new(10, 5, start);
        assert_eq!((0..20).filter(|_| limit.admit(start, 0)).count(), 5);
        let later = start + Duration::from_millis(300);
        assert_eq!((0..20).filter(|_| limit.admit(later, 0)).count(), 3);
        let much_later = start + Duration::from_hours(1);
        assert_eq!((0..20).filter(|_| limit.admit(much_later, 0)).count(), 5);
    }

    #[test]
    fn a_long_message_counts_as_several_and_the_longest_still_passes() {
        let start = Instant::now();
        let mut limit = RateLimit::new(10, 5, start);
        assert!(limit.admit(start, 1 << 20));
        assert!(!limit.admit(start, 0));
        assert!(!limit.admit(start + Duration::from_secs(5), 0), "it is paid back first");
        assert!(limit.admit(start + Duration::from_secs(7), 0));
    }

    #[tokio::test]
    async fn ten_times_as_much_as_may_wait_waits_until_it_is_worked_off() {
        let backlog = Backlog::new();
        let message = || Bytes::from(vec![7; BACKLOG_UNIT / 2]);
        let mut waiting = Vec::new();
        for _ in 0..10 * BACKLOG / BACKLOG_UNIT {
            let admitted = tokio::time::timeout(Duration::ZERO, backlog.admit(message())).await;
            waiting.extend(admitted.ok());
        }
        assert_eq!(waiting.len(), BACKLOG / BACKLOG_UNIT);
        assert_eq!(waiting[0], message());
        waiting.pop();
        waiting.push(backlog.admit(message()).await);
        waiting.clear();
        // The longest message passes, too.
        let long = backlog.admit(Bytes::from(vec![7; 4 * BACKLOG])).await;
        let next = tokio::time::timeout(Duration::ZERO, backlog.admit(message())).await;
        assert!(next.is_err());
        drop(long);
        backlog.admit(message()).await;
    }

    #[test]
    fn a_host_with_many_sessions_holds_no_more_than_it_leaves_to_others() {
        let all = Unfinished::new(200);
        let origin = |host: u8| Origin::of([192, 0, 2, host].into());
        let mut shares = [1, 1, 2].map(|host| Share::new(all.clone(), origin(host)));
        let [one, other, two] = &mut shares;
        assert!(one.hold(60) && other.hold(40));
        assert!(!other.hold(41), "a host alone has half");
        assert!(two.hold(50) && !two.hold(51));
        assert!(two.hold(10) && one.hold(20) && other.hold(60));
        drop(shares);
        assert!(all.budget().is_empty());
    }
}
