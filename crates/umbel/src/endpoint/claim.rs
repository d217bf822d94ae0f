//! Waits until no other run brings the same to the same directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_store::sink::{Attempt, Claim, Claimant};

use super::Interrupt;

/// Interval between attempts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Whether a command is interrupted that waits for something else than its input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Returns an interrupt that sets it, too.
    pub(crate) fn with(&self, interrupt: Interrupt) -> Interrupt {
        let stop = self.0.clone();
        Interrupt::new(move || {
            stop.store(true, Ordering::Release);
            interrupt.interrupt();
        })
    }

    /// Returns the flag, for what looks at it while it works.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Waits for this time. Returns whether the command is interrupted.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        self.is_set()
    }

    /// Returns whether the command is interrupted.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How a wait for other runs has ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is this run's turn.
    Ours(Claim),
    /// The other run has ended and left this word.
    Left(String),
    /// The user has interrupted it.
    Interrupted,
}

/// Waits until no other run is there, and tells `note` for which one it waits.
pub(crate) fn take_turn(
    mut claimant: Claimant,
    stop: &Interrupted,
    note: impl FnOnce(&str),
) -> Turn {
    let mut note = Some(note);
    loop {
        let process = match claimant.attempt() {
            Attempt::Ours(claim) => return Turn::Ours(claim),
            Attempt::Left(word) => return Turn::Left(word),
            Attempt::Held { process } => process,
        };
        if let Some(note) = note.take() {
            let who = process.map_or_else(
                || "another process".to_owned(),
                |process| format!("process {process}"),
            );
            note(&format!("{who} is receiving the same to this directory; waiting for it"));
        }
        if stop.pause(INTERVAL) {
            return Turn::Interrupted;
        }
    }
}
