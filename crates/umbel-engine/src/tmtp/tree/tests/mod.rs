//! Many nodes in subnets, with a network that loses, repeats, delays and reorders.

mod churn;
mod hostile;
mod joining;
mod leaving;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::tmtp::{Body, FeedInfo, Message, NodeId, Progress, Role, Timing};
use umbel_wire::{Channel, Tsi};

use super::{Arrival, Outlook, Tree, TreeEvent, UNICAST_HOPS, Way};
use crate::Instant;
use crate::tmtp::config::Draws;
use crate::tmtp::{DropReason, Drops, NodeConfig, TreeConfig};

const FEED: Tsi = Tsi(7);
const PORT: u16 = 7703;
const SOURCE: NodeId = NodeId(1 << 40);

const fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn address(node: usize) -> SocketAddr {
    ([10, 0, (node >> 8) as u8, node as u8], PORT).into()
}

fn timing() -> Timing {
    Timing { t_ack: Duration::from_millis(100), intervals: 3, rtt: Duration::from_millis(20) }
}

fn outlook() -> Outlook {
    let feed = FeedInfo {
        source: SOURCE,
        address: address(0),
        symbol_len: 1000,
        block_symbols: 1,
        fec: false,
        manifest: None,
    };
    Outlook {
        feed: Some(feed),
        progress: Progress::default(),
        timing: timing(),
        from: 0,
        closing: false,
        watched: false,
    }
}

fn node_config(id: NodeId, node: usize) -> NodeConfig {
    let channel = |last| Channel { source: None, group: [239, 255, 0, last].into(), port: PORT };
    let mut config = NodeConfig::new(id, FEED, (channel(1), channel(2)), address(node));
    config.name = format!("node {node}");
    config
}

fn tree(id: NodeId, node: usize, config: &TreeConfig) -> Tree {
    let role = if id == SOURCE { Role::Source } else { Role::Member };
    let random = Draws::from_seed(node as u64).tree;
    let node = node_config(id, node);
    Tree::new(&node, address(0), config.clone(), role, timing(), random)
}

struct Node {
    tree: Tree,
    subnet: usize,
    alive: bool,
    drops: Drops,
    events: Vec<TreeEvent>,
}

#[derive(Clone)]
struct Parcel {
    to: usize,
    arrival: Arrival,
    message: Message,
}

/// Nodes, the network between them, and datagrams on their way.
struct World {
    now: Instant,
    nodes: Vec<Node>,
    config: TreeConfig,
    /// Routers between each two subnets.
    routers: Vec<Vec<u8>>,
    /// Subnets that are cut off.
    cut: BTreeSet<usize>,
    random: Xoshiro256PlusPlus,
    /// Number of datagrams in a thousand that are lost, and that come twice.
    loss: u64,
    /// Longest delay of a datagram, in milliseconds.
    delay: u64,
    /// Beacons that say that their sender has no path are lost.
    hides_detached: bool,
    flying: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
}

impl World {
    /// Creates the source alone, in subnet 0.
    fn new(routers: Vec<Vec<u8>>, config: TreeConfig, seed: u64) -> World {
        let mut world = World {
            now: ms(0),
            nodes: Vec::new(),
            config,
            routers,
            cut: BTreeSet::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            loss: 0,
            delay: 5,
            hides_detached: false,
            flying: BTreeMap::new(),
            sent: 0,
        };
        world.add(SOURCE, 0);
        world
    }

    /// Creates subnets in a row, with one router between neighbours.
    fn row(subnets: usize, config: TreeConfig) -> World {
        let routers =
            (0..subnets).map(|a| (0..subnets).map(|b| a.abs_diff(b) as u8).collect()).collect();
        World::new(routers, config, 1)
    }

    /// Adds a node that does nothing yet.
    fn add(&mut self, id: NodeId, subnet: usize) -> usize {
        let node = self.nodes.len();
        let (tree, drops) = (tree(id, node, &self.config), Drops::default());
        self.nodes.push(Node { tree, subnet, alive: true, drops, events: Vec::new() });
        node
    }

    /// Adds a node that joins now.
    fn join(&mut self, subnet: usize) -> usize {
        let node = self.add(NodeId(self.nodes.len() as u64), subnet);
        self.nodes[node].tree.join(self.now);
        self.drain(node);
        node
    }

    fn tree(&self, node: usize) -> &Tree {
        &self.nodes[node].tree
    }

    fn parent(&self, node: usize) -> Option<usize> {
        let parent = self.tree(node).parent()?;
        self.nodes.iter().position(|node| node.tree.id == parent.id)
    }

    /// Returns the events of a node since the last call.
    fn events(&mut self, node: usize) -> Vec<TreeEvent> {
        std::mem::take(&mut self.nodes[node].events)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn drain(&mut self, node: usize) {
        while let Some((way, body)) = self.nodes[node].tree.poll_message(self.now, &outlook()) {
            let message = Message { feed: FEED, sender: self.nodes[node].tree.id, body };
            self.send(node, way, &message);
        }
        while let Some(event) = self.nodes[node].tree.poll_event() {
            self.nodes[node].events.push(event);
        }
    }

    fn send(&mut self, from: usize, way: Way, message: &Message) {
        if let Body::Beacon(beacon) = &message.body
            && self.hides_detached
            && beacon.path.is_empty()
        {
            return;
        }
        let (hop_limit, multicast) = match way {
            Way::Domain { hop_limit } => (hop_limit, true),
            Way::Host(_) => (UNICAST_HOPS, false),
        };
        for to in 0..self.nodes.len() {
            let meant = match way {
                Way::Domain { .. } => to != from,
                Way::Host(host) => address(to) == host,
            };
            let (a, b) = (self.nodes[from].subnet, self.nodes[to].subnet);
            let routers = self.routers[a][b];
            let cut = a != b && (self.cut.contains(&a) || self.cut.contains(&b));
            if !meant || routers >= hop_limit || cut {
                continue;
            }
            let mut source = address(from);
            if multicast {
                source.set_port(0);
            }
            let hops_left = Some(hop_limit - routers);
            let arrival = Arrival { from: source, multicast, hops_left };
            let copies = match self.below(1000) {
                draw if draw < self.loss => 0,
                draw if draw < 2 * self.loss => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let delay = Duration::from_millis(1 + self.below(self.delay));
                self.sent += 1;
                let parcel = Parcel { to, arrival, message: message.clone() };
                self.flying.insert((self.now + delay, self.sent), parcel);
            }
        }
    }

    fn deliver(&mut self, parcel: &Parcel) {
        let node = &mut self.nodes[parcel.to];
        if !node.alive {
            return;
        }
        if let Err(reason) = node.tree.handle(self.now, parcel.arrival, &parcel.message) {
            node.drops.count(reason);
        }
        self.drain(parcel.to);
    }

    /// Returns the time of the next event.
    fn next(&self) -> Option<Instant> {
        let timers = self.nodes.iter().filter(|node| node.alive);
        let timers = timers.filter_map(|node| node.tree.poll_timeout()).min();
        let parcel = self.flying.keys().next().map(|&(at, _)| at);
        timers.into_iter().chain(parcel).min()
    }

    /// Makes children heard as if they acknowledged.
    fn acknowledge(&mut self) {
        for child in 0..self.nodes.len() {
            let Some(parent) = self.parent(child) else { continue };
            if !self.nodes[child].alive || !self.nodes[parent].alive {
                continue;
            }
            let tree = &self.nodes[child].tree;
            let (id, token) = (tree.id, tree.parent().map_or(0, |parent| parent.token));
            let (a, b) = (self.nodes[child].subnet, self.nodes[parent].subnet);
            if a == b || !self.cut.contains(&a) && !self.cut.contains(&b) {
                let from = address(child);
                let _ = self.nodes[parent].tree.check_child(self.now, id, from, token);
                self.drain(parent);
            }
        }
    }

    /// Lets time pass. Checks after each event that there is no loop and that no node has more
    /// than K managers as children.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.next().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            while let Some(parcel) = self.flying.first_entry().filter(|p| p.key().0 <= self.now) {
                let parcel = parcel.remove();
                self.deliver(&parcel);
            }
            for node in 0..self.nodes.len() {
                let due = self.nodes[node].tree.poll_timeout().is_some_and(|at| at <= self.now);
                if self.nodes[node].alive && due {
                    self.nodes[node].tree.handle_timeout(self.now);
                    self.drain(node);
                }
            }
            self.check();
        }
        self.now = until;
    }

    /// Lets time pass, with acknowledgements.
    fn run_acknowledging(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.run(Duration::from_millis(200).min(until - self.now));
            self.acknowledge();
        }
    }

    #[track_caller]
    fn check(&self) {
        for node in 0..self.nodes.len() {
            let children = self.tree(node).view().children;
            assert!(children <= self.config.max_children, "node {node} has {children} managers");
            let (mut at, mut steps) = (node, 0);
            while let Some(parent) = self.parent(at) {
                at = parent;
                steps += 1;
                assert!(steps <= self.nodes.len(), "a loop above node {node} at {:?}", self.now);
            }
        }
    }

    /// Checks that every living node is where it belongs.
    #[track_caller]
    fn check_settled(&self) {
        let mut managers = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            assert!(
                node.tree.is_attached(),
                "node {index} in subnet {} is {:?} {:?} at {:?}",
                node.subnet,
                node.tree.role,
                node.tree.stage,
                self.now
            );
            assert_eq!(node.tree.path()[0], SOURCE, "node {index}");
            if node.tree.role() != Role::Member {
                let other = managers.insert(node.subnet, index);
                assert_eq!(other, None, "two managers in subnet {}", node.subnet);
            }
            let Some(parent) = self.parent(index) else { continue };
            let child = self.tree(parent).child(node.tree.id);
            assert!(self.nodes[parent].alive && child.is_some(), "node {index} of {parent}");
            let same = self.nodes[parent].subnet == node.subnet;
            assert_eq!(same, node.tree.role() == Role::Member, "node {index} of {parent}");
        }
    }

    fn drops(&self, node: usize, reason: DropReason) -> u64 {
        self.nodes[node].drops.of(reason)
    }
}

/// Returns a message from a node of the harness.
fn from(world: &World, node: usize, body: Body) -> Message {
    Message { feed: FEED, sender: world.tree(node).id, body }
}
