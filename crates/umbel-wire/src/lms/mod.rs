//! Messages of LMS: data, requests, directed multicasts, advertisements, and the collect and
//! anycast services [LMS §II, §III].
//!
//! Each is one control message ([`control`](crate::control)) in one datagram. Type numbers differ
//! from those of all other protocols, since routers see everybody's messages.
//!
//! | message | from | to | by |
//! |---|---|---|---|
//! | data, heartbeat, collect | source | channel | plain multicast |
//! | request, report | receiver | source | routers, hop by hop |
//! | advertisement | receiver, router | source | the next router on the way takes it |
//! | solicit | router | its replier | unicast |
//! | DMCAST | replier | turning point | unicast |
//! | repair | turning point | subtree | multicast on one interface |
//! | repair | replier | requestor | unicast (two-step recovery) |
//! | ping, pong | receiver, source | each other | unicast |
//! | election, repair | receiver | its LAN | a group that no router forwards |
//! | anycast advertisement | server, router | neighbours | one link |
//! | anycast request | client | nearest server | routers, hop by hop |
//!
//! Sequence numbers count a source's data units from 0 and do not wrap. Parsing accepts nothing
//! that a type's comment rules out. Emitting does not check.

use std::net::SocketAddr;
use std::time::Duration;

mod message;

use crate::{Channel, Tsi};

/// How much a message may hold. What exceeds a limit is refused when it is parsed.
pub mod limits {
    use std::time::Duration;

    /// Most bytes of a data unit or an anycast query; a repair in a DMCAST, too, fits a UDP datagram.
    pub const PAYLOAD_LEN: usize = crate::control::MAX_UNIT;
    /// Longest time that a message may speak of.
    pub const DURATION: Duration = Duration::from_hours(1);
    /// Most routers that pass on one message: none goes round for ever while routes change.
    pub const HOPS: u8 = 64;
}

/// Where a request turned around: the root of the subtree that it came from [LMS §II-F].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurningPoint {
    /// The router.
    pub router: SocketAddr,
    /// The interface on which the request arrived there: the router's own number.
    pub interface: u32,
    /// Shows the router that it wrote this itself.
    pub tag: u64,
}

/// The units that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitSet {
    /// The lowest sequence number.
    pub first: u64,
    /// Bit `n` stands for unit `first + 1 + n`, which fits 64 bits.
    pub following: u32,
}

impl UnitSet {
    /// One unit.
    pub const fn one(first: u64) -> UnitSet {
        UnitSet { first, following: 0 }
    }

    /// Adds a unit, if it lies within 32 of the first one.
    #[must_use]
    pub fn with(self, sequence: u64) -> Option<UnitSet> {
        match sequence.checked_sub(self.first)? {
            0 => Some(self),
            offset @ 1..=32 => {
                Some(UnitSet { following: self.following | 1 << (offset - 1), ..self })
            }
            _ => None,
        }
    }

    /// The sequence numbers, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        let following = (0..32).filter(move |bit| self.following >> bit & 1 == 1);
        std::iter::once(self.first).chain(following.map(move |bit| self.first + 1 + bit))
    }
}

/// Asks for data units [LMS §II-E].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The channel; it has a source.
    pub channel: Channel,
    /// The source's session.
    pub tsi: Tsi,
    /// What is missing.
    pub units: UnitSet,
    /// Which request for these units it is, from 1 [LMS §III-A].
    pub number: u8,
    /// Who asks: the first router writes it, unless it stands there already.
    pub requestor: Option<SocketAddr>,
    /// Where it turned around, once it did.
    pub turning_point: Option<TurningPoint>,
    /// Requests before this one were not answered: the turning point is asked to look after its
    /// replier [LMS §III-C].
    pub replier_failed: bool,
    /// The reply goes to the requestor, not to the turning point [LMS §II-I].
    pub unicast_reply: bool,
    /// Routers and repliers that passed it on; at most [`limits::HOPS`].
    pub hops: u8,
}

/// What many members answered, as one [LMS §III-G].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many answered; at least 1.
    pub count: u64,
    /// Sum of their values, wrapping.
    pub sum: u64,
    /// Least value.
    pub min: u64,
    /// Greatest value; at least `min`.
    pub max: u64,
}

impl Summary {
    /// The answer of one member.
    pub const fn of(value: u64) -> Summary {
        Summary { count: 1, sum: value, min: value, max: value }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Summary) -> Summary {
        Summary {
            count: self.count.saturating_add(other.count),
            sum: self.sum.wrapping_add(other.sum),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A message of LMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A data unit.
    Data {
        /// The source's session.
        tsi: Tsi,
        /// Its sequence number.
        sequence: u64,
        /// Content; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
    /// How far the source has come.
    Heartbeat {
        /// The source's session.
        tsi: Tsi,
        /// One beyond the last unit that was sent.
        lead: u64,
        /// The first unit that can still be had from the source; at most `lead`.
        trail: u64,
    },
    /// A data unit again.
    Repair {
        /// The source's session.
        tsi: Tsi,
        /// Its sequence number.
        sequence: u64,
        /// The number of the request that it answers.
        number: u8,
        /// It goes to the requestor alone.
        unicast: bool,
        /// Content; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
    /// Asks for data units.
    Request(Request),
    /// A repair on its way to the turning point [LMS §II-G].
    Dmcast {
        /// The channel; it has a source.
        channel: Channel,
        /// Where to multicast it.
        turning_point: TurningPoint,
        /// A whole repair message.
        repair: &'a [u8],
    },
    /// Offers the sender as replier for what lies below it [LMS §II-D].
    Advertisement {
        /// The channel; it has a source.
        channel: Channel,
        /// The lower the better; `None` withdraws the offer.
        cost: Option<u32>,
    },
    /// Asks the receiver of the message to advertise at once [LMS §III-C].
    Solicit {
        /// The channel; it has a source.
        channel: Channel,
    },
    /// Measures the round trip to the source.
    Ping {
        /// The source's session.
        tsi: Tsi,
        /// Comes back.
        nonce: u64,
    },
    /// Answers a ping.
    Pong {
        /// The source's session.
        tsi: Tsi,
        /// As it came.
        nonce: u64,
    },
    /// Offers the sender as the replier of its LAN [LMS §III-D].
    Election {
        /// The channel; it has a source.
        channel: Channel,
        /// The lower the better; `None` withdraws the offer.
        cost: Option<u32>,
    },
    /// Asks all members for a value [LMS §III-G].
    Collect {
        /// The source's session.
        tsi: Tsi,
        /// Grows from one to the next.
        round: u32,
        /// What is asked; the application's number.
        question: u32,
        /// A member holds what it has for a random time below this, to merge more with it; at
        /// most [`limits::DURATION`].
        spread: Duration,
    },
    /// Answers of members, on the way to the source.
    Report {
        /// The channel; it has a source.
        channel: Channel,
        /// The source's session.
        tsi: Tsi,
        /// The round.
        round: u32,
        /// The answers.
        summary: Summary,
        /// Routers that passed it on; at most [`limits::HOPS`].
        hops: u8,
    },
    /// Tells of a server of a service [LMS §III-G].
    AnycastAdvertisement {
        /// The service: a channel without a source.
        service: Channel,
        /// The lower the better; `None` withdraws it.
        cost: Option<u32>,
        /// Routers that passed it on; at most [`limits::HOPS`].
        hops: u8,
    },
    /// A query to the nearest server.
    AnycastRequest {
        /// The service: a channel without a source.
        service: Channel,
        /// Who asks: the first router writes it, unless it stands there already.
        requestor: Option<SocketAddr>,
        /// Comes back.
        nonce: u64,
        /// Routers that passed it on; at most [`limits::HOPS`].
        hops: u8,
        /// The query; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
    /// The server's answer, by unicast.
    AnycastReply {
        /// The service: a channel without a source.
        service: Channel,
        /// As it came.
        nonce: u64,
        /// The answer; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
}
