//! The wiring of every command with an engine: mailbox, engine, host and driver.

use anyhow::Context;
use umbel_engine::Engine;
use umbel_engine::host::{Host, Mailbox};
use umbel_net::clock::Clock;
use umbel_net::driver::Driver;
use umbel_net::mailbox::{self, Line};

use super::Interrupt;

/// The queue of input that leads to a host, before the host exists.
pub(crate) struct Wiring<I> {
    mailbox: Mailbox<I>,
    line: Line<I>,
}

impl<I: Send + 'static> Wiring<I> {
    /// Creates an empty queue.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub(crate) fn new() -> anyhow::Result<Wiring<I>> {
        let (mailbox, line) = mailbox::line().context("cannot start")?;
        Ok(Wiring { mailbox, line })
    }

    /// Returns an interrupt that puts the result of `input` into the mailbox.
    pub(crate) fn interrupt(&self, input: impl Fn() -> I + Send + Sync + 'static) -> Interrupt {
        let mailbox = self.mailbox.clone();
        Interrupt::new(move || mailbox.put(input()))
    }
}

impl<I> Wiring<I> {
    /// Returns the mailbox through which other threads reach the host.
    pub(crate) fn mailbox(&self) -> &Mailbox<I> {
        &self.mailbox
    }

    /// Returns the driver of an engine and its host. The command adds ports and paces.
    pub(crate) fn driver<E: Engine, H: Host<E, Input = I>>(
        self,
        engine: E,
        host: H,
    ) -> Driver<E, H> {
        Driver::new(engine, host, Clock::new(), self.line)
    }
}
