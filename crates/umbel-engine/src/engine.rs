//! What every engine offers to its host.

use crate::{Datagram, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// A protocol engine.
///
/// One rule: after each `handle_*`, drain [`poll_membership`](Engine::poll_membership),
/// [`poll_transmit`](Engine::poll_transmit) and [`poll_event`](Engine::poll_event) until each
/// gives `None`, then read [`poll_timeout`](Engine::poll_timeout). A join comes out before the
/// datagram that relies on it. Waking early is harmless.
///
/// Data packets are paced by the machine: it asks for as many of each class as may leave now
/// ([`TransmitBuf::allows`]), and comes back for more while [`wants`](Engine::wants) says so.
/// Packets are built when polled: an engine holds what is due, not queued bytes, so pacing bounds
/// memory.
pub trait Engine {
    /// What the application can ask for.
    type Command;
    /// Why a command cannot be carried out.
    type CommandError;
    /// What the application is told.
    type Event;

    /// Takes a datagram. A bad one is a counted drop.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>);

    /// Takes a command of the application.
    ///
    /// # Errors
    ///
    /// What is wrong with the command; the engine has not changed then.
    fn handle_command(
        &mut self,
        now: Instant,
        command: Self::Command,
    ) -> Result<(), Self::CommandError>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// The next change of group membership.
    fn poll_membership(&mut self) -> Option<Membership>;

    /// Puts the next datagrams for one destination into `buf`, which the host has reset: one
    /// control message, or up to [`TransmitBuf::allows`] packets of one class, of equal length (the
    /// last may be shorter).
    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit>;

    /// Whether packets of a class wait for its pace. Only sources have any.
    fn wants(&self, _class: RateClass) -> bool {
        false
    }

    /// The next thing that the application should know.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`handle_timeout`](Engine::handle_timeout) wants to be called next.
    fn poll_timeout(&self) -> Option<Instant>;
}
