//! Commands and events between the engines and their applications, and counters.

use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::basep::MAX_PAYLOAD;

use crate::load::ProcessingLoad;

/// Requests of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Send a packet; the first is number 0.
    Send {
        /// Its content.
        payload: Bytes,
        /// Whether it ends the transmission.
        last: bool,
    },
}

/// Reason for which a packet cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// It is too long for a datagram.
    #[error("a packet of {len} bytes; at most {MAX_PAYLOAD} fit a datagram")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Too many packets wait.
    #[error("{waiting} packets wait to be acknowledged already")]
    Full {
        /// Number of packets that wait to be sent or acknowledged.
        waiting: usize,
    },
    /// The transmission has ended.
    #[error("the transmission ended with packet {last}")]
    Ended {
        /// The last packet.
        last: u64,
    },
}

/// News for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A receiver has everything.
    GotIt {
        /// The receiver.
        receiver: SocketAddr,
    },
    /// A receiver did not acknowledge a packet despite all retransmissions.
    GivenUp {
        /// The receiver.
        receiver: SocketAddr,
    },
    /// The transmission has ended. All receivers have acknowledged everything or were given up.
    Finished,
}

/// A source's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Events that cost processing time.
    pub load: ProcessingLoad,
}

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The next packet in order.
    Packet {
        /// Its number.
        sequence: u64,
        /// Its content.
        payload: Bytes,
    },
    /// The last packet was delivered.
    Complete,
}

/// A receiver's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets received.
    pub packets: u64,
    /// Of these, packets received as a retransmission.
    pub repaired: u64,
    /// Acknowledgements sent, including `GOT_IT`s.
    pub acks: u64,
}
