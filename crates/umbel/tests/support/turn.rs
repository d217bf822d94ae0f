//! Turns: sessions of pictures need processors while they last, so few run at a time.

use std::sync::{Condvar, Mutex, PoisonError};

/// What there is for all sessions, in the shares that one of small pictures needs.
const SHARES: usize = 4;

/// Who has a turn, and who has the next.
struct Turns {
    taken: usize,
    /// Number of those that came, and of those that have or had a turn.
    came: u64,
    served: u64,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { taken: 0, came: 0, served: 0 });
static CHANGED: Condvar = Condvar::new();

/// One session's turn, until it is dropped, and the shares that it takes.
pub(crate) struct Turn(usize);

impl Turn {
    /// Waits for a turn of a session whose pictures keep half of a processor busy, or ffmpeg.
    pub(crate) fn wait() -> Turn {
        Turn::wait_for(2)
    }

    /// Waits for a turn of a session of small pictures, a tenth of a processor.
    pub(crate) fn wait_small() -> Turn {
        Turn::wait_for(1)
    }

    /// Waits for so many shares. Nobody overtakes, or small sessions would keep out others.
    fn wait_for(shares: usize) -> Turn {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = turns.came;
        turns.came += 1;
        let waits = |turns: &mut Turns| turns.served != number || turns.taken + shares > SHARES;
        let mut turns = CHANGED.wait_while(turns, waits).unwrap_or_else(PoisonError::into_inner);
        turns.taken += shares;
        turns.served += 1;
        CHANGED.notify_all();
        Turn(shares)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS.lock().unwrap_or_else(PoisonError::into_inner).taken -= self.0;
        CHANGED.notify_all();
    }
}
