//! The line of input that leads from other threads to a host.

use crossbeam_channel::Receiver;
use umbel_engine::host::Mailbox;

use crate::wake::Waker;

/// The end of a line: a [`Driver`](crate::driver::Driver) takes its host's input from here.
#[derive(Debug)]
pub struct Line<I> {
    inbox: Receiver<I>,
    waker: Waker,
}

/// Makes a mailbox and the end of its line.
///
/// # Errors
///
/// When the process has no file descriptor left.
pub fn line<I: Send + 'static>() -> std::io::Result<(Mailbox<I>, Line<I>)> {
    let (outbox, inbox) = crossbeam_channel::unbounded();
    let waker = Waker::new()?;
    let called = waker.clone();
    let mailbox = Mailbox::new(move |input| {
        if outbox.send(input).is_ok() {
            called.wake();
        }
    });
    Ok((mailbox, Line { inbox, waker }))
}

impl<I> Line<I> {
    /// The next input; `None` if nothing waits.
    pub(crate) fn take(&self) -> Option<I> {
        self.inbox.try_recv().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
