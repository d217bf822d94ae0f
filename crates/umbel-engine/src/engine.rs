//! The interface of every engine to its host.

use crate::{Datagram, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// A protocol engine.
///
/// One rule: after each `handle_*`, drain [`poll_membership`](Engine::poll_membership),
/// [`poll_transmit`](Engine::poll_transmit) and [`poll_event`](Engine::poll_event) until each
/// returns `None`, then read [`poll_timeout`](Engine::poll_timeout). A join is returned before the
/// datagram that relies on it. Waking early is harmless. While
/// [`has_output`](Engine::has_output) returns `false`, there is nothing to drain.
///
/// The machine paces data packets. It asks for as many of each class as may be sent now
/// ([`TransmitBuf::allows`]), and polls again while [`wants`](Engine::wants) returns true. Packets
/// are built when polled. An engine holds what is due, not queued bytes, so pacing bounds memory.
pub trait Engine {
    /// A command of the application.
    type Command;
    /// The reason why a command is refused.
    type CommandError;
    /// An event for the application.
    type Event;

    /// Handles a datagram. An invalid one is a counted drop.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>);

    /// Handles a command of the application.
    ///
    /// # Errors
    ///
    /// If the command is invalid. The engine is then unchanged.
    fn handle_command(
        &mut self,
        now: Instant,
        command: Self::Command,
    ) -> Result<(), Self::CommandError>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns the next change of group membership.
    fn poll_membership(&mut self) -> Option<Membership>;

    /// Puts the next datagrams for one destination into `buf`, which the host has reset. They are
    /// one control message, or up to [`TransmitBuf::allows`] packets of one class. The packets have
    /// equal length, except that the last may be shorter.
    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit>;

    /// Returns whether packets of a class wait for its pace. Only sources have any.
    fn wants(&self, _class: RateClass) -> bool {
        false
    }

    /// Returns whether a poll may return something at this time. `false` promises that each of
    /// [`poll_membership`](Engine::poll_membership), [`poll_transmit`](Engine::poll_transmit) and
    /// [`poll_event`](Engine::poll_event) would return `None` and change nothing, so that the host
    /// need not ask. It holds until the next `handle_*`, at any later time. `true` promises
    /// nothing, and is what an engine says that does not know better.
    fn has_output(&self) -> bool {
        true
    }

    /// Returns the next event for the application.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns the time at which [`handle_timeout`](Engine::handle_timeout) is next due.
    fn poll_timeout(&self) -> Option<Instant>;
}
