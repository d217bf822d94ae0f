//! The parts of the Linux kernel that a multicast router needs.
//!
//! - [`mroute`]: the forwarding of multicast, and upcalls where an entry is missing;
//! - [`interfaces`], [`routes`]: links, addresses and unicast routes by netlink, and their changes;
//! - [`signalling`]: the messages of IGMP, MLD and PIM;
//! - [`alert`]: datagrams in transit that carry the Router Alert option;
//! - [`inject`]: datagrams under any source address;
//! - [`capabilities`]: what the process may do.
//!
//! No call waits. All sockets belong to the network namespace in which they were opened.

pub mod alert;
pub mod capabilities;
pub mod inject;
pub mod interfaces;
pub mod mroute;
mod netlink;
pub mod routes;
pub mod signalling;
mod socket;

pub use socket::{Envelope, InterfaceSocket};
pub use umbel_net::interface::Family;
