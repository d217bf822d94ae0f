//! Commands and events between the engines and their applications, and counters.

use bytes::Bytes;
use umbel_wire::pgm::MAX_PAYLOAD;

/// Requests of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Send a unit; the first is number 0.
    Send(Bytes),
}

/// Reason for which a unit cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// It is too long for a datagram.
    #[error("a unit of {len} bytes; at most {MAX_PAYLOAD} fit a datagram")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Too many units wait for the pacer.
    #[error("{waiting} units wait to be sent already")]
    Full {
        /// Number of waiting units.
        waiting: usize,
    },
}

/// A source's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Units sent.
    pub sent: u64,
    /// Retransmissions sent.
    pub repairs: u64,
    /// NAKs accepted.
    pub naks: u64,
    /// SPMs sent.
    pub spms: u64,
}

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The next unit in order.
    Unit {
        /// Its number.
        sequence: u64,
        /// Its content.
        payload: Bytes,
    },
    /// Units that are lost: the source no longer has them, or no node answered.
    Lost {
        /// Number of units lost since the last event.
        units: u64,
    },
}

/// A receiver's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Units received.
    pub units: u64,
    /// Of these, retransmissions.
    pub repaired: u64,
    /// NAKs sent.
    pub naks: u64,
    /// NAKs that were not needed because another's was confirmed first.
    pub suppressed: u64,
    /// Retransmissions sent as a designated local repairer.
    pub repairs: u64,
}

/// A router's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// NAKs accepted.
    pub naks: u64,
    /// NAKs sent upstream, repeated ones included.
    pub naks_up: u64,
    /// Retransmissions received and passed on by at least one interface.
    pub repairs: u64,
    /// Copies of retransmissions sent.
    pub copies: u64,
    /// States dropped without a retransmission.
    pub expired: u64,
}
