//! What a lab or a simulation is made of: hosts, routers, switches and links.
//!
//! A topology is written in TOML ([`Topology::from_toml`]) or built in Rust:
//!
//! ```
//! use std::time::Duration;
//! use umbel_sim::topology::Topology;
//!
//! let topology = Topology::new()
//!     .host("server").host("client").router("r")
//!     .link("server", "r")
//!     .link("r", "client").loss(0.05).delay(Duration::from_millis(20));
//! topology.validate()?;
//! # Ok::<(), umbel_sim::topology::Mistake>(())
//! ```
//!
//! Loss on the link of a server or of a switch is shared by all who sit behind it; loss on a
//! receiver's own link is independent of everyone else's.

mod file;
mod impairment;
pub mod link_model;
mod mistake;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::units::Rate;

pub use self::impairment::{Impairment, Queue};
pub use self::mistake::Mistake;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Runs programs; forwards nothing.
    Host,
    /// Forwards IPv4 and IPv6 between its links; can run programs too.
    Router,
    /// Joins links into one Ethernet.
    Switch {
        /// Whether multicast goes only to ports whose members reported; off floods it. As
        /// Linux has it, this takes a querier, on the switch or behind it, and about a second.
        snooping: bool,
        /// Whether the switch itself sends IGMP and MLD queries.
        querier: bool,
    },
}

/// A host, router or switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Unique; letters, digits, `-`, `_` and `.`, at most 32.
    pub name: String,
    /// What it does.
    pub kind: NodeKind,
}

/// An address with the length of its prefix, like `10.1.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The interface's address.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

/// A cable between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// One end's node.
    pub a: String,
    /// The other end's node.
    pub b: String,
    /// What happens to frames from `a` to `b`.
    pub a_to_b: Impairment,
    /// What happens to frames from `b` to `a`.
    pub b_to_a: Impairment,
    /// Largest IP packet, in bytes; 1,500 unless given.
    pub mtu: Option<u32>,
    /// Segmentation and checksum offload at the ends. On by default on plain links where nothing
    /// is routed (Linux drops multicast that is not cut yet and larger than the next link's MTU),
    /// always off on emulated ones, where every packet is judged by itself.
    pub offload: Option<bool>,
    /// Whether frames pass the emulator. By default only if the link impairs them; `true` lets
    /// an unimpaired link be impaired later.
    pub emulated: Option<bool>,
    /// Addresses of the interface at `a`; empty lets the lab choose.
    pub a_addresses: Vec<Cidr>,
    /// Addresses of the interface at `b`; empty lets the lab choose.
    pub b_addresses: Vec<Cidr>,
}

impl LinkSpec {
    /// An unimpaired link.
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

    /// Whether frames pass the emulator.
    pub fn is_emulated(&self) -> bool {
        self.emulated.unwrap_or(false) || !self.a_to_b.is_none() || !self.b_to_a.is_none()
    }

    /// `a–b`, for messages.
    pub fn label(&self) -> String {
        format!("{}–{}", self.a, self.b)
    }

    fn joins(&self, x: &str, y: &str) -> bool {
        (self.a == x && self.b == y) || (self.a == y && self.b == x)
    }
}

/// Nodes and the links between them.
///
/// The methods named after impairments change the link that was added last, so that a topology
/// reads as a list of links each with its properties.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Hosts, routers and switches in order of definition.
    pub nodes: Vec<NodeSpec>,
    /// Links in order of definition.
    pub links: Vec<LinkSpec>,
    /// Seed of the links' random draws; each direction of each link has its own stream.
    pub seed: u64,
}

impl Topology {
    /// No nodes, no links.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Hosts `h1` … `hn` on the switch `sw`.
    pub fn star(hosts: usize) -> Topology {
        let mut topology = Topology::new().switch("sw");
        for n in 1..=hosts {
            let name = format!("h{n}");
            topology = topology.host(&name).link(&name, "sw");
        }
        topology
    }

    /// `h1 – r1 – … – rn – h2`; without routers, `h1 – h2`.
    pub fn line(routers: usize) -> Topology {
        let mut topology = Topology::new().host("h1").host("h2");
        let mut previous = "h1".to_owned();
        for n in 1..=routers {
            let name = format!("r{n}");
            topology = topology.router(&name).link(&previous, &name);
            previous = name;
        }
        topology.link(&previous, "h2")
    }

    /// A tree of routers below host `src`: `depth` levels, `fanout` children each, a host `h1` …
    /// below every router of the lowest level.
    pub fn tree(depth: usize, fanout: usize) -> Topology {
        let mut topology = Topology::new().host("src").router("r1").link("src", "r1");
        let (mut level, mut routers, mut hosts) = (vec!["r1".to_owned()], 1, 0);
        for below in (0..depth).rev() {
            let mut next = Vec::new();
            for parent in &level {
                for _ in 0..fanout {
                    let child = if below == 0 {
                        hosts += 1;
                        format!("h{hosts}")
                    } else {
                        routers += 1;
                        format!("r{routers}")
                    };
                    topology =
                        if below == 0 { topology.host(&child) } else { topology.router(&child) };
                    topology = topology.link(parent, &child);
                    next.push(child);
                }
            }
            level = next;
        }
        topology
    }

    /// Adds a host.
    #[must_use]
    pub fn host(self, name: &str) -> Topology {
        self.node(name, NodeKind::Host)
    }

    /// Adds a router.
    #[must_use]
    pub fn router(self, name: &str) -> Topology {
        self.node(name, NodeKind::Router)
    }

    /// Adds a switch that floods multicast.
    #[must_use]
    pub fn switch(self, name: &str) -> Topology {
        self.node(name, NodeKind::Switch { snooping: false, querier: false })
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, name: &str, kind: NodeKind) -> Topology {
        self.nodes.push(NodeSpec { name: name.to_owned(), kind });
        self
    }

    /// Adds a link without impairments.
    #[must_use]
    pub fn link(mut self, a: &str, b: &str) -> Topology {
        self.links.push(LinkSpec::new(a, b));
        self
    }

    /// Sets the seed of the links' random draws.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Topology {
        self.seed = seed;
        self
    }

    /// Changes the link added last.
    ///
    /// # Panics
    /// If there is no link yet, as do the methods below.
    #[must_use]
    pub fn with_link(mut self, change: impl FnOnce(&mut LinkSpec)) -> Topology {
        change(self.links.last_mut().expect("a link was added before it is changed"));
        self
    }

    /// Changes every link there is.
    #[must_use]
    pub fn with_every_link(mut self, change: impl FnMut(&mut LinkSpec)) -> Topology {
        self.links.iter_mut().for_each(change);
        self
    }

    /// Changes both directions of the link added last.
    #[must_use]
    pub fn impair(self, mut change: impl FnMut(&mut Impairment)) -> Topology {
        self.with_link(|link| {
            change(&mut link.a_to_b);
            change(&mut link.b_to_a);
        })
    }

    /// Loses this share of the frames, each direction by itself.
    #[must_use]
    pub fn loss(self, loss: f64) -> Topology {
        self.impair(|i| i.loss = loss)
    }

    /// Delays every frame.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Topology {
        self.impair(|i| i.delay = delay)
    }

    /// Varies the delay by up to this much either way.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Topology {
        self.impair(|i| i.jitter = jitter)
    }

    /// Limits the rate.
    #[must_use]
    pub fn rate(self, rate: Rate) -> Topology {
        self.impair(|i| i.rate = Some(rate))
    }

    /// Bounds the queue in front of the rate.
    #[must_use]
    pub fn queue(self, queue: Queue) -> Topology {
        self.impair(|i| i.queue = queue)
    }

    /// Lets frames pass the emulator although nothing is impaired yet.
    #[must_use]
    pub fn emulated(self) -> Topology {
        self.with_link(|link| link.emulated = Some(true))
    }

    /// Sets the largest IP packet of the link.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Topology {
        self.with_link(|link| link.mtu = Some(mtu))
    }

    /// Turns segmentation and checksum offload on or off at the link's ends.
    #[must_use]
    pub fn offload(self, on: bool) -> Topology {
        self.with_link(|link| link.offload = Some(on))
    }

    /// The position of the node with this name.
    pub fn node_index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The position of the first link between these two nodes, in either order.
    pub fn link_index(&self, a: &str, b: &str) -> Option<usize> {
        self.links.iter().position(|link| link.joins(a, b))
    }

    /// Whether segmentation and checksum offload stay on at the ends of a link.
    pub fn has_offload(&self, link: &LinkSpec) -> bool {
        let routed = || self.nodes.iter().any(|node| node.kind == NodeKind::Router);
        !link.is_emulated() && link.offload.unwrap_or_else(|| !routed())
    }

    /// Checks that names are unique and known and that every value is in range.
    ///
    /// # Errors
    /// The first contradiction, in one line.
    pub fn validate(&self) -> Result<(), Mistake> {
        let fail = |message: String| Err(Mistake::new(message));
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            let name = &node.name;
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || name.len() > 32 || !name.chars().all(allowed) {
                return fail(format!(
                    "`{name}` is not a name: use 1 to 32 letters, digits, `-`, `_` or `.`"
                ));
            }
            if !names.insert(name) {
                return fail(format!("two nodes are called `{name}`"));
            }
        }
        self.links.iter().try_for_each(|link| self.validate_link(link))
    }

    fn validate_link(&self, link: &LinkSpec) -> Result<(), Mistake> {
        let fail = |message: String| Err(Mistake::new(format!("link {}: {message}", link.label())));
        for (end, addresses) in [(&link.a, &link.a_addresses), (&link.b, &link.b_addresses)] {
            let Some(index) = self.node_index(end) else {
                return fail(format!("no host, router or switch is called `{end}`"));
            };
            if matches!(self.nodes[index].kind, NodeKind::Switch { .. }) && !addresses.is_empty() {
                return fail(format!("`{end}` is a switch and takes no addresses"));
            }
        }
        if link.a == link.b {
            return fail("a link joins two different nodes".to_owned());
        }
        if let Some(mtu) = link.mtu
            && !(1280..=65_535).contains(&mtu)
        {
            return fail(format!("mtu = {mtu} is not between 1280 and 65535"));
        }
        for impairment in [&link.a_to_b, &link.b_to_a] {
            if let Err(message) = impairment.validate() {
                return fail(message);
            }
        }
        if link.emulated == Some(false) && link.is_emulated() {
            return fail("it is impaired, so `emulated = false` cannot hold".to_owned());
        }
        if link.offload == Some(true) && link.is_emulated() {
            return fail("an emulated link judges packets singly, so `offload` is off".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
