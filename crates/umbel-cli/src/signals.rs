//! Handles Ctrl-C and similar signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// The signal that told the program to end, or 0.
static SEEN: AtomicI32 = AtomicI32::new(0);

/// Returns the exit code of a command that a signal has ended, as shells expect it: 128 and its
/// number.
pub(super) fn exit_code() -> Option<u8> {
    match SEEN.load(Ordering::Acquire) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// Reports that the user wants the program to end.
#[derive(Clone, Debug)]
pub struct Watch {
    ended: Receiver<()>,
    flag: Arc<AtomicBool>,
}

/// Starts to watch. A second signal ends the program at once.
///
/// # Errors
///
/// If the system refuses.
pub fn watch() -> std::io::Result<Watch> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (end, ended) = crossbeam_channel::bounded(1);
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    std::thread::Builder::new().name("umbel-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            SEEN.store(signal, Ordering::Release);
            if seen.swap(true, Ordering::AcqRel) {
                super::screen::abandon();
                std::process::exit(128 + signal);
            }
            let _ = end.try_send(());
        }
    })?;
    Ok(Watch { ended, flag })
}

/// Calls `f` on another thread at each SIGUSR1, which otherwise would end the program. A failure is
/// only a warning.
pub fn on_user_signal(f: impl Fn() + Send + 'static) {
    let begun = Signals::new([SIGUSR1]).and_then(|mut signals| {
        let heed = move || signals.forever().for_each(|_| f());
        std::thread::Builder::new().name("umbel-usr1".to_owned()).spawn(heed)
    });
    if let Err(error) = begun {
        tracing::warn!("SIGUSR1 will not be heard: {error}");
    }
}

impl Watch {
    /// Waits. Returns whether the program is to end.
    pub fn wait(&self, timeout: Duration) -> bool {
        if self.flag.load(Ordering::Acquire) {
            return true;
        }
        !matches!(self.ended.recv_timeout(timeout), Err(RecvTimeoutError::Timeout))
    }

    /// Calls `f` on another thread when the program is to end.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn then(&self, f: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let ended = self.ended.clone();
        std::thread::Builder::new().spawn(move || {
            if ended.recv().is_ok() {
                f();
            }
        })?;
        Ok(())
    }

    /// Calls `interrupt` on another thread when the program is to end. A failure is only a warning,
    /// and the transfer continues.
    pub fn interrupts(&self, interrupt: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.then(interrupt) {
            tracing::warn!("Ctrl-C will not be heard: {error}");
        }
    }
}
