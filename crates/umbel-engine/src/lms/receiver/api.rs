//! What a receiver and its application say to each other.

use bytes::Bytes;

use crate::Instant;

/// What the receiver's application asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Receive the channel.
    Join,
    /// No longer receive it; the routers are told.
    Leave,
    /// Answer a [`ReceiverEvent::Question`].
    Answer {
        /// Its round.
        round: u32,
        /// The answer.
        value: u64,
    },
}

/// What the receiver's application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The next unit; each once, in order.
    Unit {
        /// Its sequence number.
        sequence: u64,
        /// Its content.
        payload: Bytes,
    },
    /// Units that nobody has any more were given up.
    GivenUp {
        /// All that were missing before this number.
        before: u64,
        /// How many.
        units: u64,
    },
    /// A unit that was missing came.
    Recovered {
        /// Its sequence number.
        sequence: u64,
        /// When it was found missing; it came now.
        detected: Instant,
        /// Requests sent for it.
        requests: u8,
    },
    /// The source asks; answer with [`ReceiverCommand::Answer`] [LMS §III-G].
    Question {
        /// The round.
        round: u32,
        /// What is asked.
        question: u32,
    },
}

/// What a receiver did and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Units that came in the first place.
    pub originals: u64,
    /// Units that were missing and came.
    pub recovered: u64,
    /// Units that came again: exposure [LMS §IV-A].
    pub duplicates: u64,
    /// Units found missing.
    pub losses: u64,
    /// Requests sent.
    pub requests: u64,
    /// Requests from others that came.
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
