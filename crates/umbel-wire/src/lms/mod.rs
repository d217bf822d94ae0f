//! Messages of LMS: data, requests, directed multicasts, advertisements, and the collect and
//! anycast services [LMS §II, §III].
//!
//! Each is one control message ([`control`](crate::control)) in one datagram. Type numbers differ
//! from those of all other protocols, since routers inspect the messages of all of them.
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
//! Sequence numbers count a source's data units from 0 and do not wrap. Parsing accepts only values
//! within the documented ranges. Emitting does not check.

use std::net::SocketAddr;
use std::time::Duration;

mod message;
mod plain;

pub use self::plain::{Plain, PlainRequest};
use crate::{Channel, Tsi};

/// Limits of messages. Parsing refuses a message that exceeds one.
pub mod limits {
    use std::time::Duration;

    /// Maximum length of a data unit or an anycast query in bytes. A repair in a DMCAST also fits a
    /// UDP datagram.
    pub const PAYLOAD_LEN: usize = crate::control::MAX_UNIT;
    /// Bytes around a data packet in a DMCAST, at most, less what `umbel send` leaves free of an
    /// MTU for other headers.
    pub const AROUND_PACKET: usize = 96;
    /// Maximum of any duration in a message.
    pub const DURATION: Duration = Duration::from_hours(1);
    /// Maximum number of routers that forward a message, so that none loops forever while routes
    /// change.
    pub const HOPS: u8 = 64;
}

/// Point at which a request turned around: the root of the subtree that it came from [LMS §II-F].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurningPoint {
    /// The router.
    pub router: SocketAddr,
    /// The interface on which the request arrived there, in the router's own numbering.
    pub interface: u32,
    /// Authenticator by which the router recognizes its own turning points.
    pub tag: u64,
}

/// A set of the units that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitSet {
    /// The lowest sequence number.
    pub first: u64,
    /// Bit `n` is set if unit `first + 1 + n` is wanted, which fits 64 bits.
    pub following: u32,
}

impl UnitSet {
    /// Creates a set of one unit.
    pub const fn one(first: u64) -> UnitSet {
        UnitSet { first, following: 0 }
    }

    /// Adds a unit. Returns `None` unless it lies within 32 of the first one.
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

    /// Returns the sequence numbers, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        let following = (0..32).filter(move |bit| self.following >> bit & 1 == 1);
        std::iter::once(self.first).chain(following.map(move |bit| self.first + 1 + bit))
    }
}

/// A request for data units [LMS §II-E].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The channel; it has a source.
    pub channel: Channel,
    /// The source's session.
    pub tsi: Tsi,
    /// The missing units.
    pub units: UnitSet,
    /// Number of the request for these units, from 1 [LMS §III-A].
    pub number: u8,
    /// Address of the requestor. The first router writes it, unless it is already set.
    pub requestor: Option<SocketAddr>,
    /// The turning point, once the request has turned around.
    pub turning_point: Option<TurningPoint>,
    /// Whether earlier requests were not answered. If so, the turning point is asked to check its
    /// replier [LMS §III-C].
    pub replier_failed: bool,
    /// Whether the reply goes to the requestor, not to the turning point [LMS §II-I].
    pub unicast_reply: bool,
    /// Number of routers and repliers that forwarded it; at most [`limits::HOPS`].
    pub hops: u8,
}

/// The merged answers of many members [LMS §III-G].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of answers; at least 1.
    pub count: u64,
    /// Sum of their values, wrapping.
    pub sum: u64,
    /// Least value.
    pub min: u64,
    /// Greatest value; at least `min`.
    pub max: u64,
}

impl Summary {
    /// Creates the answer of one member.
    pub const fn of(value: u64) -> Summary {
        Summary { count: 1, sum: value, min: value, max: value }
    }

    /// Merges both.
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
    /// The source's progress.
    Heartbeat {
        /// The source's session.
        tsi: Tsi,
        /// One beyond the last unit sent.
        lead: u64,
        /// The first unit that the source can still retransmit; at most `lead`.
        trail: u64,
    },
    /// A retransmitted data unit.
    Repair {
        /// The source's session.
        tsi: Tsi,
        /// Its sequence number.
        sequence: u64,
        /// The number of the request that it answers.
        number: u8,
        /// Whether it goes to the requestor alone.
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
        /// The turning point that multicasts it.
        turning_point: TurningPoint,
        /// A whole repair message.
        repair: &'a [u8],
    },
    /// Offers the sender as replier for the nodes below it [LMS §II-D].
    Advertisement {
        /// The channel; it has a source.
        channel: Channel,
        /// Cost of the replier, of which lower is better; `None` withdraws the offer.
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
        /// Number that the answer carries.
        nonce: u64,
    },
    /// Answers a ping.
    Pong {
        /// The source's session.
        tsi: Tsi,
        /// The ping's.
        nonce: u64,
    },
    /// Offers the sender as the replier of its LAN [LMS §III-D].
    Election {
        /// The channel; it has a source.
        channel: Channel,
        /// Cost of the replier, of which lower is better; `None` withdraws the offer.
        cost: Option<u32>,
    },
    /// Asks all members for a value [LMS §III-G].
    Collect {
        /// The source's session.
        tsi: Tsi,
        /// Number of the round; grows from one to the next.
        round: u32,
        /// The question, as the application numbers it.
        question: u32,
        /// Upper bound of the random time for which a member holds its answer to merge more with
        /// it; at most [`limits::DURATION`].
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
        /// Number of routers that forwarded it; at most [`limits::HOPS`].
        hops: u8,
    },
    /// Announces a server of a service [LMS §III-G].
    AnycastAdvertisement {
        /// The service: a channel without a source.
        service: Channel,
        /// Cost of the server, of which lower is better; `None` withdraws the advertisement.
        cost: Option<u32>,
        /// Number of routers that forwarded it; at most [`limits::HOPS`].
        hops: u8,
    },
    /// A query to the nearest server.
    AnycastRequest {
        /// The service: a channel without a source.
        service: Channel,
        /// Address of the requestor. The first router writes it, unless it is already set.
        requestor: Option<SocketAddr>,
        /// Number that the answer carries.
        nonce: u64,
        /// Number of routers that forwarded it; at most [`limits::HOPS`].
        hops: u8,
        /// The query; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
    /// The server's answer, by unicast.
    AnycastReply {
        /// The service: a channel without a source.
        service: Channel,
        /// The request's.
        nonce: u64,
        /// The answer; at most [`limits::PAYLOAD_LEN`] bytes.
        payload: &'a [u8],
    },
}
