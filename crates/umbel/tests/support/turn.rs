//! Turns: sessions of pictures need a core each while they last, so few run at a time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Most sessions at a time.
const AT_A_TIME: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// One session's turn, until it is dropped.
pub(crate) struct Turn(());

impl Turn {
    /// Waits for a turn.
    pub(crate) fn wait() -> Turn {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ENDED.wait_while(running, |running| *running >= AT_A_TIME);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
