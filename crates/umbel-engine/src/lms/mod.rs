//! LMS: light-weight multicast services.
//!
//! Routers do only the work that their place in the tree makes easy, and keep no state per packet.
//! Hosts do the rest:
//!
//! - [`Router`]: selects a replier link for each source by the costs that receivers advertise
//!   [LMS §II-C, §II-D]. It steers requests to it, stamps the turning point [LMS §II-F], and turns
//!   DMCASTs into multicasts [LMS §II-G].
//! - [`Source`]: numbers data units, sends heartbeats, answers requests that no receiver could
//!   answer.
//! - [`Receiver`]: finds losses, requests missing units, and answers others.
//! - [`config`]: every constant.
//!
//! ```text
//!   source ───────────── data, heartbeats ─────────────▶ receivers
//!      ▲                                                   │ request
//!      │ requests of the topmost repliers                  ▼
//!      └──────────────── routers ◀────────────────── first router
//!                           │ turned around, with the turning point
//!                           ▼
//!                        replier ── DMCAST ──▶ turning point ── repair ──▶ its subtree
//! ```
//!
//! Datagrams that routers take on their way carry the IP Router Alert option
//! ([`Transmit::alert`](crate::Transmit::alert),
//! [`RouterTransmit::alert`](crate::router::RouterTransmit::alert)).
//!
//! # The details of §III
//!
//! | | |
//! |---|---|
//! | late requests §III-A | `late.rs`: an ignore period, and request numbers |
//! | shared trees §III-B | `router`: what reaches the core is stamped there and unicast to the source |
//! | replier failure §III-C | flag in requests; the router asks the replier to advertise, and meanwhile sends flagged requests to a backup or upstream; offers expire |
//! | multi-access LANs §III-D | `lan.rs`: an election by cost |
//! | large fan-out §III-E | `router/offers.rs`: sets of links, their repliers in a chain |
//! | proxy DMCAST §III-F | `receiver/requests.rs`: what is no longer kept is asked for upstream |
//! | collect, anycast §III-G | `receiver/collect.rs`, `router/anycast.rs`, [`anycast`] |
//! | two-step recovery §II-I | [`ReceiverConfig::two_step`](config::ReceiverConfig::two_step) |
//!
//! # Scope and limitations
//!
//! The paper says little on security. A turning point carries a tag that only its router can make,
//! so that a DMCAST answers a request that this router has steered. But a receiver that offers a
//! low cost becomes a replier, and LMS itself trusts a replier's packets. Data units that must be
//! trusted are authenticated above this layer.
//!
//! # Validation
//!
//! `tests/` drives single engines by scripts and by arbitrary input from the network, and runs a
//! source, receivers and routers together with losses, a partition and a router's restart.
//! `umbel-sim`'s `lms` runs them on simulated networks with losses, crashes, partitions and churn.
//! `umbel-repro`'s `lms` compares with Figures 11 to 13 and Table I.

pub mod anycast;
mod api;
pub mod config;
mod drops;
mod lan;
pub(crate) mod late;
mod receiver;
pub(crate) mod replier;
mod router;
pub(crate) mod rtt;
mod source;
#[cfg(test)]
mod tests;

pub use api::{
    ReceiverCommand, ReceiverEvent, ReceiverStats, RouterStats, SourceCommand, SourceCommandError,
    SourceEvent, SourceStats,
};
pub use config::{ReceiverConfig, RouterConfig, SourceConfig};
pub use drops::{DropReason, Drops};
pub use receiver::Receiver;
pub use router::{Direction, Router, Steer, Steering};
pub use source::Source;
