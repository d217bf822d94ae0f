//! Commands and events between the engines and their applications, and counters.

use std::time::Duration;

use bytes::Bytes;
use umbel_wire::lms::{Summary, limits};

use crate::Instant;

/// Requests of the source's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Send a data unit.
    Send(Bytes),
    /// Ask all members for a value [LMS §III-G]. The answers come as
    /// [`SourceEvent::Collected`].
    Collect {
        /// The question, as a number chosen by the application.
        question: u32,
        /// Bound of the random time for which members hold answers, to merge them.
        spread: Duration,
    },
}

/// Reason for which a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// It is too long for a datagram.
    #[error("a unit of {len} bytes; at most {max} fit a datagram", max = limits::PAYLOAD_LEN)]
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

/// News for the source's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// Answers of some members to the question of a round; more may follow.
    Collected {
        /// The round, counted from 1.
        round: u32,
        /// Summary of their values.
        summary: Summary,
    },
}

/// A source's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Units sent.
    pub units: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Requests received.
    pub requests: u64,
    /// Repairs sent by DMCAST.
    pub dmcasts: u64,
    /// Repairs sent by unicast.
    pub unicasts: u64,
    /// Repairs multicast to all.
    pub multicasts: u64,
}

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

/// A router's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Requests turned around here.
    pub turned: u64,
    /// Requests sent upstream.
    pub sent_up: u64,
    /// Requests from above sent to the replier.
    pub sent_down: u64,
    /// Reports passed on.
    pub reports: u64,
    /// DMCASTs turned into multicasts.
    pub dmcasts: u64,
    /// Repliers given up because they did not answer.
    pub repliers_failed: u64,
    /// Anycast requests passed on.
    pub anycasts: u64,
}
