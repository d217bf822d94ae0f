//! Commands and events between a member and its application.

use std::time::Duration;

use bytes::Bytes;
use umbel_wire::srm::{MemberId, limits};

/// A data unit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// Member that sent it first.
    pub source: MemberId,
    /// Its number among the source's units, from 0.
    pub sequence: u64,
}

/// Requests of the application.
#[derive(Clone, Debug)]
pub enum Command {
    /// Join the group.
    Join,
    /// Announce the departure to the group and leave it.
    Leave,
    /// Send a data unit to the group, with this member as its source.
    Send(Bytes),
    /// Give up this member's units before this one. Late joiners do not recover them, and members
    /// that miss one give it up.
    Horizon(u64),
    /// Set the distance to a member, one way, if the application knows it better.
    Distance(MemberId, Duration),
}

/// Reason for which a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The member is not in the group.
    #[error("not in the group")]
    Outside,
    /// A data unit that is too long for a message.
    #[error("a data unit of {len} bytes; at most {max} fit a message", max = limits::PAYLOAD_LEN)]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// The history is full of units that have not been sent yet.
    #[error("{waiting} data units wait to be sent already")]
    Full {
        /// Number of waiting units.
        waiting: u64,
    },
}

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next unit of a source: each once, in order if
    /// [`Config::in_order`](super::Config::in_order).
    Delivered {
        /// Its name.
        unit: Unit,
        /// Its content.
        payload: Bytes,
    },
    /// Units that will not be delivered: their source has given them up, or no member repaired
    /// them.
    Lost {
        /// Their source.
        source: MemberId,
        /// Number of the first unit that is not given up.
        before: u64,
        /// Number of lost units.
        units: u64,
    },
    /// A step of recovery, with [`Config::observe`](super::Config::observe).
    Step {
        /// The unit.
        unit: Unit,
        /// The step taken.
        step: Step,
    },
}

/// A step of the recovery of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was found missing.
    Missing,
    /// This member sent a request for it.
    RequestSent,
    /// A request for it came from another member.
    RequestHeard,
    /// This member sent a repair of it.
    RepairSent,
    /// A repair of it came from another member.
    RepairHeard {
        /// Whether it was missing here.
        needed: bool,
    },
    /// It arrived after it had been found missing.
    Recovered {
        /// Latency of the recovery.
        after: Duration,
    },
}

/// A member's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Data units of this member, sent for the first time.
    pub data_sent: u64,
    /// Data units of others received from their source, including duplicates.
    pub data_heard: u64,
    /// Units delivered.
    pub delivered: u64,
    /// Units given up.
    pub lost: u64,
    /// Units requested, counted once for each request.
    pub requests_sent: u64,
    /// Units requested by others, counted once for each request.
    pub requests_heard: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Repairs received from others.
    pub repairs_heard: u64,
    /// Received repairs that were not needed here.
    pub repairs_unneeded: u64,
    /// Session messages sent.
    pub sessions_sent: u64,
    /// Session messages received from others.
    pub sessions_heard: u64,
}

/// Sizes of a member's tables, all of them bounded by its [`Config`](super::Config).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Members whose distance is kept.
    pub peers: usize,
    /// Sources known.
    pub sources: usize,
    /// Units missing.
    pub requests: usize,
    /// Repairs waiting to be sent.
    pub repairs: usize,
    /// Units repaired recently, whose requests are ignored.
    pub held_down: usize,
    /// Units kept for repairs.
    pub history: usize,
}
