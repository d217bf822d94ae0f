//! PIM for source-specific multicast: neighbours, joins hop by hop, Asserts [RFC 7761].
//!
//! A tree ([`trees`](super::trees)) joins the neighbour on the way to its source, and says so again
//! every [`join_interval`](super::config::PimConfig::join_interval). Downstream, an interface is
//! joined as long as a neighbour there says so:
//!
//! ```text
//!                   join                        prune of the last
//!   not joined ─────────────▶ joined ──────────────────────────────▶ prune pending
//!      ▲                      ▲    │                                    │      │
//!      │                      └────│──────────── join ──────────────────┘      │
//!      └───────────────────────────┴──── not heard, nobody overrides ──────────┘
//! ```
//!
//! Joins are tracked for each neighbour. On a LAN of two routers a prune takes effect at once;
//! where there are more, the others are given time to override it.
//!
//! Who may be a neighbour on a link is its [`PimRole`]. Where PIM is not spoken, the querier of IGMP or
//! MLD forwards for the hosts, as in [RFC 4605 §3]. Neither it nor a designated router nor the
//! winner of an Assert is believed to forward a channel to a link unless its packets are seen there
//! ([`seen`](super::seen)).
//!
//! # Scope and limitations
//!
//! Neighbours are not authenticated. On a link where PIM is spoken and no neighbour is named, any
//! host can be one: it joins channels up to its share, and misleads other routers there.
//!
//! No shared trees: no Register, no rendezvous points, no (*,G), and Join/Prunes about such are
//! counted as drops. No explicit tracking in the sense of the T bit, since neighbours may suppress
//! their joins.

mod asserts;
mod messages;
mod neighbours;
mod role;

pub(super) use self::asserts::{AssertMetric, AssertState};
pub(super) use self::messages::Requests;
pub(super) use self::neighbours::{Heard, Neighbours};
pub use self::role::PimRole;
