//! Construction of topologies in Rust.

use std::time::Duration;

use umbel_engine::units::Rate;

use crate::{Impairment, LinkSpec, NodeKind, NodeSpec, Queue, Topology};

impl Topology {
    /// Creates a topology without nodes and links.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Creates hosts `h1` … `hn` on the switch `sw`.
    pub fn star(hosts: usize) -> Topology {
        let mut topology = Topology::new().switch("sw");
        for n in 1..=hosts {
            let name = format!("h{n}");
            topology = topology.host(&name).link(&name, "sw");
        }
        topology
    }

    /// Creates `h1 – r1 – … – rn – h2`; without routers, `h1 – h2`.
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

    /// Creates a tree of routers below host `src`. It has `depth` levels, `fanout` children each,
    /// and a host `h1` … below every router of the lowest level.
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

    /// Changes the link that was added last.
    ///
    /// # Panics
    /// If there is no link yet. The methods below panic likewise.
    #[must_use]
    pub fn with_link(mut self, change: impl FnOnce(&mut LinkSpec)) -> Topology {
        change(self.links.last_mut().expect("a link was added before it is changed"));
        self
    }

    /// Changes every link that was added so far.
    #[must_use]
    pub fn with_every_link(mut self, change: impl FnMut(&mut LinkSpec)) -> Topology {
        self.links.iter_mut().for_each(change);
        self
    }

    /// Changes both directions of the link that was added last.
    #[must_use]
    pub fn impair(self, mut change: impl FnMut(&mut Impairment)) -> Topology {
        self.with_link(|link| {
            change(&mut link.a_to_b);
            change(&mut link.b_to_a);
        })
    }

    /// Sets the share of frames lost, independently in each direction.
    #[must_use]
    pub fn loss(self, loss: f64) -> Topology {
        self.impair(|i| i.loss = loss)
    }

    /// Sets the delay.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Topology {
        self.impair(|i| i.delay = delay)
    }

    /// Sets the jitter: the delay varies by up to this much either way.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Topology {
        self.impair(|i| i.jitter = jitter)
    }

    /// Sets the rate.
    #[must_use]
    pub fn rate(self, rate: Rate) -> Topology {
        self.impair(|i| i.rate = Some(rate))
    }

    /// Sets the bound of the queue in front of the rate.
    #[must_use]
    pub fn queue(self, queue: Queue) -> Topology {
        self.impair(|i| i.queue = queue)
    }

    /// Makes frames pass the emulator although nothing is impaired yet.
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
}
