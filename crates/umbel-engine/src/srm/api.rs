//! What a member is asked for and what it tells.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::srm::{MemberId, limits};

/// A data unit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// Who sent it first.
    pub source: MemberId,
    /// Its number among the source's units, from 0.
    pub sequence: u64,
}

/// What the application asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Join the group.
    Join,
    /// Tell the group and leave it.
    Leave,
    /// Send a data unit to the group; its source is this member.
    Send(Bytes),
    /// This member's units before this one no longer matter: late joiners do not recover them,
    /// and whoever misses one gives it up.
    Horizon(u64),
    /// The distance to a member, one way, from whoever knows it better.
    Distance(MemberId, Duration),
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The member is not in the group.
    #[error("not in the group")]
    Outside,
    /// A data unit that fits no message.
    #[error("a data unit of {0} bytes; at most {max} fit a message", max = limits::PAYLOAD_LEN)]
    TooLong(usize),
    /// The history is full of units that were not sent yet.
    #[error("{0} data units wait to be sent already")]
    Backlog(u64),
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next unit of a source: each once, in order if [`Config::in_order`](super::Config::in_order).
    Delivered {
        /// Its name.
        unit: Unit,
        /// Its content.
        payload: Bytes,
    },
    /// Units that will not be delivered: their source has given them up, or nobody repaired them.
    Lost {
        /// Their source.
        source: MemberId,
        /// They lie before this one.
        before: u64,
        /// How many.
        units: u64,
    },
    /// A step of recovery, with [`Config::observe`](super::Config::observe).
    Step {
        /// The unit.
        unit: Unit,
        /// What happened.
        step: Step,
    },
}

/// A step of the recovery of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was found missing.
    Missing,
    /// A request for it was sent from here.
    RequestSent,
    /// Another's request for it came.
    RequestHeard,
    /// A repair of it was sent from here.
    RepairSent,
    /// Another's repair of it came.
    RepairHeard {
        /// It was missing here.
        needed: bool,
    },
    /// It came, so long after it was found missing.
    Recovered {
        /// The recovery's latency.
        after: Duration,
    },
}

/// Decides which data units are genuine, before anything is done with them.
pub trait UnitCheck: fmt::Debug + Send {
    /// Whether the unit is what its source sent. It is asked for each unit that is not held yet.
    fn admits(&self, unit: Unit, payload: &[u8]) -> bool;
}

/// What a member has done and seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Data units sent first from here.
    pub data_sent: u64,
    /// Data units of others that came from their source, duplicates among them.
    pub data_heard: u64,
    /// Units delivered.
    pub delivered: u64,
    /// Units given up.
    pub lost: u64,
    /// Units asked for, each as often as it was.
    pub requests_sent: u64,
    /// Units that others asked for, each as often as they did.
    pub requests_heard: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Others' repairs.
    pub repairs_heard: u64,
    /// Those of them that were not needed here.
    pub repairs_unneeded: u64,
    /// Session messages sent.
    pub sessions_sent: u64,
    /// Session messages of others.
    pub sessions_heard: u64,
}

/// How much a member remembers, all of it bounded by its [`Config`](super::Config).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Members whose distance is kept.
    pub peers: usize,
    /// Sources.
    pub sources: usize,
    /// Units missing.
    pub requests: usize,
    /// Repairs that wait.
    pub repairs: usize,
    /// Units repaired a moment ago.
    pub held_down: usize,
    /// Units kept for repairs.
    pub history: usize,
}
