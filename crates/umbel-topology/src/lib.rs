//! Topologies of labs and simulations: hosts, routers, switches and links.
//!
//! A topology is written in TOML ([`Topology::from_toml`]) or built in Rust:
//!
//! ```
//! use std::time::Duration;
//! use umbel_topology::Topology;
//!
//! let topology = Topology::new()
//!     .host("server").host("client").router("r")
//!     .link("server", "r")
//!     .link("r", "client").loss(0.05).delay(Duration::from_millis(20));
//! topology.validate()?;
//! # Ok::<(), umbel_topology::Mistake>(())
//! ```
//!
//! Loss on the link of a server or of a switch is shared by all hosts behind it. Loss on a
//! receiver's own link is independent of all others.
//!
//! - [`mod@file`] reads the TOML form, and [`Topology::to_toml`] writes it.
//! - [`link_model`] is one direction of a link, as the lab's emulator applies it.
//! - [`Mistake`] says what is wrong with a file, with its line.

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

mod build;
mod check;
pub mod file;
mod impairment;
pub mod link_model;
mod mistake;
pub mod values;
mod write;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use self::impairment::{Access, Impairment, Queue, TwoStates};
pub use self::mistake::Mistake;

/// Function of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Runs programs; forwards nothing.
    Host,
    /// Forwards IPv4 and IPv6 between its links; can run programs too.
    Router,
    /// Joins links into one Ethernet.
    Switch {
        /// Whether multicast goes only to ports whose members reported; otherwise it is flooded. As
        /// Linux has it, this takes a querier, on the switch or behind it, and about a second.
        snooping: bool,
        /// Whether the switch itself sends IGMP and MLD queries.
        querier: bool,
    },
}

/// Host, router or switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Unique; letters, digits, `-`, `_` and `.`, at most 32.
    pub name: String,
    /// Function of the node.
    pub kind: NodeKind,
}

/// Address with the length of its prefix, like `10.1.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// Address of the interface.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

/// Cable between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Node at one end.
    pub a: String,
    /// Node at the other end.
    pub b: String,
    /// Treatment of frames from `a` to `b`.
    pub a_to_b: Impairment,
    /// Treatment of frames from `b` to `a`.
    pub b_to_a: Impairment,
    /// Largest IP packet, in bytes; default 1,500.
    pub mtu: Option<u32>,
    /// Segmentation and checksum offload at the ends. On by default on plain links where nothing is
    /// routed (Linux drops multicast that is not segmented yet and larger than the next link's
    /// MTU). Always off on emulated links, where every packet is judged by itself.
    pub offload: Option<bool>,
    /// Whether frames pass the emulator. By default only if the link impairs them; `true` allows an
    /// unimpaired link to be impaired later.
    pub emulated: Option<bool>,
    /// Addresses of the interface at `a`; if empty, the lab chooses.
    pub a_addresses: Vec<Cidr>,
    /// Addresses of the interface at `b`; if empty, the lab chooses.
    pub b_addresses: Vec<Cidr>,
}

impl LinkSpec {
    /// Creates an unimpaired link.
    pub fn new(a: impl Into<String>, b: impl Into<String>) -> LinkSpec {
        LinkSpec {
            a: a.into(),
            b: b.into(),
            a_to_b: Impairment::none(),
            b_to_a: Impairment::none(),
            mtu: None,
            offload: None,
            emulated: None,
            a_addresses: Vec::new(),
            b_addresses: Vec::new(),
        }
    }

    /// Returns whether frames pass the emulator.
    pub fn is_emulated(&self) -> bool {
        self.emulated.unwrap_or(false) || !self.a_to_b.is_none() || !self.b_to_a.is_none()
    }

    /// Returns the delay from `a` to `b` and back, without jitter.
    pub fn round_trip(&self) -> Duration {
        self.a_to_b.delay + self.b_to_a.delay
    }

    /// Returns `a–b`, for messages.
    pub fn label(&self) -> String {
        format!("{}–{}", self.a, self.b)
    }

    fn joins(&self, x: &str, y: &str) -> bool {
        (self.a == x && self.b == y) || (self.a == y && self.b == x)
    }
}

/// Nodes and the links between them.
///
/// The methods named after impairments change the link that was added last. So a topology reads as
/// a list of links, each with its properties.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Hosts, routers and switches in order of definition.
    pub nodes: Vec<NodeSpec>,
    /// Links in order of definition.
    pub links: Vec<LinkSpec>,
    /// Seed of the links' random draws; each direction of each link has its own stream.
    pub seed: u64,
    /// What of the file that it comes from was not read, for the user.
    pub notes: Vec<String>,
}

impl Topology {
    /// Returns the position of the node with this name.
    pub fn node_index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the position of the first link between these two nodes, in either order.
    pub fn link_index(&self, a: &str, b: &str) -> Option<usize> {
        self.links.iter().position(|link| link.joins(a, b))
    }

    /// Returns whether segmentation and checksum offload stay on at the ends of a link.
    pub fn has_offload(&self, link: &LinkSpec) -> bool {
        let routed = || self.nodes.iter().any(|node| node.kind == NodeKind::Router);
        !link.is_emulated() && link.offload.unwrap_or_else(|| !routed())
    }

    /// Returns the position of every node by name; of two with the same name, the first.
    pub fn names(&self) -> BTreeMap<&str, usize> {
        let nodes = self.nodes.iter().enumerate().rev();
        nodes.map(|(index, node)| (node.name.as_str(), index)).collect()
    }
}

#[cfg(test)]
mod tests;
