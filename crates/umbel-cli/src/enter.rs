//! Heeds the Enter key while a command waits for something that its user may not want to wait for.

use std::io::{IsTerminal as _, Stdin};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, tcgetpgrp};

use super::screen;

/// Time between two looks whether the key counts, and whether the command is in the foreground.
const PAUSE: Duration = Duration::from_millis(100);

/// The key does not count yet.
const SHUT: u8 = 0;
/// The key counts.
const OPEN: u8 = 1;
/// The key does not count any more. What is typed is for the next command.
const OVER: u8 = 2;

/// The Enter key, which counts from time to time.
#[derive(Clone, Debug, Default)]
pub struct Enter(Arc<AtomicU8>);

impl Enter {
    /// Calls `f` on another thread at the first line that is typed while the key counts. Returns
    /// `None` where nobody can type: standard input is no terminal, or there is no further thread.
    ///
    /// Nothing is read in the background, since the system would stop the program for it.
    pub fn watch(f: impl FnOnce() + Send + 'static) -> Option<Enter> {
        let input = std::io::stdin();
        if !input.is_terminal() {
            return None;
        }
        let enter = Enter::default();
        let state = enter.0.clone();
        let thread = std::thread::Builder::new().name("umbel-enter".to_owned());
        thread.spawn(move || heed(&input, &state).then(f)).ok()?;
        Some(enter)
    }

    /// Says whether the key counts. What was typed before does not.
    pub fn counts(&self, counts: bool) {
        let state = if counts { OPEN } else { SHUT };
        let change = |now| (now != OVER).then_some(state);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// Leaves the keyboard to others.
    pub fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }
}

/// Waits for a line that counts. Returns `false` if there will be none.
fn heed(input: &Stdin, state: &AtomicU8) -> bool {
    let in_foreground = || tcgetpgrp(input).is_ok_and(|group| group == getpgrp());
    let mut counted = false;
    loop {
        let counts = match state.load(Ordering::Acquire) {
            OVER => return false,
            now => now == OPEN && in_foreground(),
        };
        if !counts {
            counted = false;
            std::thread::sleep(PAUSE);
            continue;
        }
        if !std::mem::replace(&mut counted, true) {
            let _ = tcflush(input, FlushArg::TCIFLUSH);
        }
        let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
        if poll(&mut ready, patience).is_ok_and(|ready| ready == 0) {
            continue;
        }
        // It may have been sent to the background, or have ended its wait, meanwhile.
        if in_foreground() && state.load(Ordering::Acquire) == OPEN {
            let typed = input.read_line(&mut String::new()).is_ok_and(|read| read > 0);
            screen::entered();
            return typed;
        }
    }
}
