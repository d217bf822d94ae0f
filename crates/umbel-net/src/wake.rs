//! Waiting for sockets and deadlines, and interrupting such a wait from another thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

/// Interrupts a waiting thread. Clones wake the same thread.
///
/// Several calls of [`wake`](Waker::wake) before the thread looks count as one. A thread that was
/// woken must check everything for which it can be woken.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Whether [`wake`](Waker::wake) was called since the thread last looked. Saves system calls,
    /// since only the first call writes to `event`.
    called: AtomicBool,
    event: EventFd,
}

impl Waker {
    /// Creates a waker that has not been called yet.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub fn new() -> std::io::Result<Waker> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Waker { shared: Arc::new(Shared { called: AtomicBool::new(false), event }) })
    }

    /// Ends the wait of the thread, or its next one if it does not wait now.
    pub fn wake(&self) {
        if !self.shared.called.swap(true, Ordering::AcqRel) {
            // It fails only if the counter is full, and then the thread wakes anyway.
            let _ = self.shared.event.write(1);
        }
    }

    /// Returns whether it was called since the last time. Costs no system call if not.
    pub fn take(&self) -> bool {
        self.shared.called.load(Ordering::Acquire) && self.clear()
    }

    /// Clears the event and then the flag, in this order. If a call comes in between, the thread,
    /// which is about to look, sees its reason. If a call has set the flag and its event is still
    /// to come, the flag stays: without it nobody would clear that event, and waits would end at
    /// once until the next call.
    fn clear(&self) -> bool {
        match self.shared.event.read() {
            Ok(_) => self.shared.called.swap(false, Ordering::AcqRel),
            Err(_) => self.shared.called.load(Ordering::Acquire),
        }
    }

    /// Waits until [`wake`](Waker::wake) is called, or for `timeout` (`None`: forever). Returns
    /// whether it was called. May return early.
    ///
    /// # Errors
    ///
    /// If the system refuses to wait.
    pub fn wait(&self, timeout: Option<Duration>) -> std::io::Result<bool> {
        if self.take() {
            return Ok(true);
        }
        let [called] = wait_for([self.as_fd()], PollFlags::POLLIN, timeout)?;
        Ok(called && { self.clear() })
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

/// Waits until one of `fds` is ready for `events`, or for `timeout` to the nanosecond (`None`:
/// forever). Returns which are ready; none if the timeout has passed or a signal came.
///
/// # Errors
///
/// If the system refuses to wait.
pub fn wait_for<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    events: PollFlags,
    timeout: Option<Duration>,
) -> std::io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, events));
    match ppoll(&mut polled, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) => Ok(polled.map(|fd| fd.any().unwrap_or(false))),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until one of `fds` is ready, or for `timeout` to the nanosecond (`None`: forever). Their
/// `revents` state which are ready; none if the timeout has passed or a signal came.
///
/// # Errors
///
/// If the system refuses to wait.
pub fn wait_for_any(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> std::io::Result<()> {
    match ppoll(fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes the waits of the calling thread end on time. By default the system may delay each of them
/// by 50 µs.
///
/// # Errors
///
/// If the system refuses.
pub fn wait_precisely() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_timerslack(1)?)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_when_its_time_is_up() {
        let waker = Waker::new().unwrap();
        let start = Instant::now();
        assert!(!waker.wait(Some(Duration::from_millis(20))).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn calls_before_the_wait_end_it_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(waker.wait(None).unwrap());
        assert!(!waker.take());
        assert!(!waker.wait(Some(Duration::from_millis(1))).unwrap());
        waker.wake();
        assert!(waker.take());
    }

    #[test]
    fn a_call_that_is_seen_before_its_event_leaves_no_event_behind() {
        let waker = Waker::new().unwrap();
        // The two halves of a call.
        waker.shared.called.store(true, Ordering::Release);
        assert!(waker.take());
        waker.shared.event.write(1).unwrap();
        assert!(waker.take());
        assert!(!waker.take());
        assert!(!waker.wait(Some(Duration::from_millis(1))).unwrap());
        let ready = wait_for([waker.as_fd()], PollFlags::POLLIN, Some(Duration::ZERO)).unwrap();
        assert_eq!(ready, [false]);
    }

    #[test]
    fn another_thread_ends_the_wait() {
        let waker = Waker::new().unwrap();
        let theirs = waker.clone();
        let caller = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            theirs.wake();
        });
        assert!(waker.wait(Some(Duration::from_mins(2))).unwrap());
        caller.join().unwrap();
    }

    #[test]
    fn no_call_is_lost_between_two_threads() {
        let waker = Waker::new().unwrap();
        let theirs = waker.clone();
        let (give, take) = crossbeam_channel::unbounded();
        let giver = thread::spawn(move || {
            for n in 0..20_000_u32 {
                give.send(n).unwrap();
                theirs.wake();
            }
        });
        let mut expected = 0;
        while expected < 20_000 {
            waker.wait(Some(Duration::from_secs(5))).unwrap();
            while let Ok(n) = take.try_recv() {
                assert_eq!(n, expected);
                expected += 1;
            }
        }
        giver.join().unwrap();
    }
}
