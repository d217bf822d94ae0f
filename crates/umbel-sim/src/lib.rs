//! A discrete-event simulator of packet networks. It hosts the same protocol engines as the driver
//! on real sockets.
//!
//! - A [`Network`] is a graph of hosts, routers and switches. A [`LinkSpec`] describes one
//!   direction of a link: rate, delay, queue, loss, and when it is up.
//! - Hosts run [`App`]s. [`EngineHost`] is the one that runs an engine.
//! - Routers forward unicast along shortest paths and multicast along source-rooted trees, which
//!   joins and leaves change hop by hop. A [`RouterHook`] is an engine that lives in a router.
//! - A [`Simulation`] runs the network, and reports the events to a [`Tracer`].
//!
//! A run is a function of the network, the applications and the seed. Time is in whole nanoseconds.
//! Events of one moment run in the order in which they were scheduled. Every node and every purpose
//! draws from its own stream, and nothing iterates in hash order.

#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type,
        clippy::print_stderr,
        clippy::print_stdout,
        reason = "what it does is a function of what it is given"
    )
)]

mod address;
mod app;
pub mod basep;
mod counters;
mod engine_host;
mod fabric;
pub mod generate;
mod line;
mod link;
pub mod lms;
mod network;
mod outside;
mod packet;
pub mod pgm;
pub mod random;
pub mod recovery;
pub mod repository;
pub mod rlm;
mod router;
mod routing;
pub mod scenario;
mod simulation;
pub mod smo;
pub mod srm;
pub mod statistics;
pub mod tmtp;
mod topology;
pub mod trace;
mod wheel;

pub use address::{address_of, channel, channel_parts, node_of};
pub use app::{App, Context, TreeLinks};
pub use counters::{Counters, LinkCounters};
pub use engine_host::{EngineHost, HostConfig, KindOf};
pub use line::{Line, Refusal, Treatment};
pub use link::{LinkSpec, Loss, Queue, RedConfig, ScriptedLoss, TraceEnd};
pub use network::{LinkId, Network, NetworkError, NodeId, NodeKind};
pub use outside::{Alone, NodeSessions, Outside, session_with};
pub use packet::{Destination, FlowId, GroupId, Kind, Kinds, Packet};
pub use router::{Forwarding, RouterHook, RouterHost};
pub use simulation::{Outcome, SessionDelay, Simulation};
pub use topology::Schedules;
pub use trace::Tracer;
pub use umbel_engine::Instant;
pub use wheel::Wheel;

#[cfg(test)]
mod tests;
