//! Commands and events between a receiver and its application.

use bytes::Bytes;

use crate::Instant;

/// Requests of the receiver's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Receive the channel.
    Join,
    /// Stop receiving the channel. The routers are told.
    Leave,
    /// Answer a [`ReceiverEvent::Question`].
    Answer {
        /// Round of the question.
        round: u32,
        /// Value of the answer.
        value: u64,
    },
}

/// News for the receiver's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The next unit; each once, in order.
    Unit {
        /// Its sequence number.
        sequence: u64,
        /// Its content.
        payload: Bytes,
    },
    /// Missing units that are no longer available were given up.
    GivenUp {
        /// All missing units before this number were given up.
        before: u64,
        /// Number of units given up.
        units: u64,
    },
    /// A missing unit was recovered.
    Recovered {
        /// Its sequence number.
        sequence: u64,
        /// Time at which it was found missing; it came now.
        detected: Instant,
        /// Requests sent for it.
        requests: u8,
    },
    /// The source asks a question. Answer with [`ReceiverCommand::Answer`] [LMS §III-G].
    Question {
        /// The round.
        round: u32,
        /// The question's number.
        question: u32,
    },
}

/// A receiver's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Units whose original transmission arrived.
    pub originals: u64,
    /// Units that were missing and recovered.
    pub recovered: u64,
    /// Duplicate units received: exposure [LMS §IV-A].
    pub duplicates: u64,
    /// Units found missing.
    pub losses: u64,
    /// Requests sent.
    pub requests: u64,
    /// Requests received from others.
    pub requests_heard: u64,
    /// Repairs sent by DMCAST.
    pub dmcasts: u64,
    /// Repairs sent by unicast.
    pub unicasts: u64,
    /// Repairs sent to the LAN.
    pub lan_repairs: u64,
    /// Requests of others passed on upstream.
    pub proxied: u64,
}
