//! The queue of input that leads from other threads to a host.

use crossbeam_channel::Receiver;
use umbel_engine::host::Mailbox;

use crate::wake::Waker;

/// The receiving end of the queue. A [`Driver`](crate::driver::Driver) takes its host's input from
/// here; other loops may, too.
#[derive(Debug)]
pub struct Line<I> {
    inbox: Receiver<I>,
    waker: Waker,
}

/// Creates a mailbox and the receiving end of its queue.
///
/// # Errors
///
/// If the process has no file descriptor left.
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
    /// Returns the next input, or `None` if none waits.
    pub fn take(&self) -> Option<I> {
        self.inbox.try_recv().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Returns the waker that is called when something is put in.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}
