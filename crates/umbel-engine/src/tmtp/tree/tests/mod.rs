//! Many nodes in subnets, with a network that loses, repeats, delays and reorders.

mod churn;
mod hostile;
mod improving;
mod joining;
mod leaving;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::tmtp::{Body, FeedInfo, Message, NodeId, Progress, Role, Timing};
use umbel_wire::{Channel, Tsi};

use super::search::Stage;
use super::{Arrival, Outlook, Tree, TreeEvent, UNICAST_HOPS};
use crate::testing::world::{self, Host, Link, NoRouter, Protocol};
use crate::testing::{Tested, ms};
use crate::tmtp::config::{Authentication, Draws};
use crate::tmtp::incoming;
use crate::tmtp::{DropReason, Drops, NodeConfig, TreeConfig};
use crate::{Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

const FEED: Tsi = Tsi(7);
const PORT: u16 = 7703;
const SOURCE: NodeId = NodeId(1 << 40);

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
    let mut config =
        NodeConfig::new(id, FEED, (channel(1), channel(2)), address(node), Authentication::Paper);
    config.name = format!("node {node}");
    config
}

fn tree(id: NodeId, node: usize, config: &TreeConfig) -> Tree {
    let role = if id == SOURCE { Role::Source } else { Role::Member };
    let random = Draws::from_seed(node as u64).tree;
    let node = node_config(id, node);
    Tree::new(&node, address(0), config.clone(), role, timing(), random)
}

fn node(id: NodeId, node: usize, config: &TreeConfig) -> Tested<Node> {
    let tree = tree(id, node, config);
    let config = node_config(id, node);
    let node = Node { tree, config, is_in: false, drops: Drops::default() };
    Tested::new(node, |node| node.drops.to_string())
}

/// A tree in the place of an engine.
struct Node {
    tree: Tree,
    config: NodeConfig,
    is_in: bool,
    drops: Drops,
}

impl Engine for Node {
    type Command = Infallible;
    type CommandError = Infallible;
    type Event = TreeEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let taken = incoming::message(datagram.payload, &self.config).and_then(|message| {
            self.tree.handle(now, incoming::arrival(&datagram, &self.config)?, &message)
        });
        if let Err(reason) = taken {
            self.drops.count(reason);
        }
    }

    fn handle_command(&mut self, _: Instant, command: Infallible) -> Result<(), Infallible> {
        match command {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tree.handle_timeout(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        let is_out = matches!(self.tree.stage, Stage::Outside | Stage::Left);
        let is_in = self.tree.role == Role::Source || !is_out;
        let changes = std::mem::replace(&mut self.is_in, is_in) != is_in;
        let change = if is_in { Membership::Join } else { Membership::Leave };
        changes.then(|| change(self.config.domain))
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let (way, body) = self.tree.poll_message(now, &outlook())?;
        buf.push_message(bytes(&Message { feed: FEED, sender: self.tree.id, body }));
        let (to, hop_limit) = way.address(self.config.domain);
        Some(Transmit::control(to).within(hop_limit))
    }

    fn poll_event(&mut self) -> Option<TreeEvent> {
        self.tree.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tree.poll_timeout()
    }
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn parse(payload: &[u8]) -> Message {
    Message::parse(payload).unwrap().message().unwrap()
}

/// Shape of the trees of a world, and their reports.
struct Forest {
    config: TreeConfig,
    /// Events of each node.
    events: Vec<Vec<TreeEvent>>,
    /// Subnets that are cut off.
    cut: BTreeSet<usize>,
    /// Beacons that say that their sender has no path are lost.
    hides_detached: bool,
    /// Number of searches for better parents, and of all answers to searches.
    searches: usize,
    answers: usize,
}

type World = world::World<Forest>;

impl Protocol for Forest {
    type Source = Tested<Node>;
    type Receiver = Tested<Node>;
    type Router = NoRouter;

    fn on_source_event(world: &mut World, event: TreeEvent) {
        world.events[0].push(event);
    }

    fn on_receiver_event(world: &mut World, receiver: usize, event: TreeEvent) {
        world.events[receiver + 1].push(event);
    }

    fn passes(world: &mut World, _: usize, _: Transmit, payload: &mut Bytes) -> bool {
        match parse(payload).body {
            Body::Search(search) => world.searches += usize::from(search.less_deep_than.is_some()),
            Body::Willing(_) => world.answers += 1,
            Body::Beacon(beacon) => return !(world.hides_detached && beacon.path.is_empty()),
            _ => {}
        }
        true
    }

    /// Checks that there is no loop above a node, and that it has no more than K managers as
    /// children.
    fn check(world: &World, host: usize) {
        let children = world.tree(host).view().children;
        assert!(children <= world.config.max_children, "node {host} has {children} managers");
        let (mut at, mut steps) = (host, 0);
        while let Some(parent) = world.parent(at) {
            at = parent;
            steps += 1;
            let nodes = world.network.hosts.len();
            assert!(steps <= nodes, "a loop above node {host} at {:?}", world.now);
        }
    }
}

impl World {
    /// Creates the source alone, in subnet 0.
    fn new(routers: Vec<Vec<u8>>, config: TreeConfig, seed: u64) -> World {
        let source = node(SOURCE, 0, &config);
        let forest = Forest {
            config,
            events: vec![Vec::new()],
            cut: BTreeSet::new(),
            hides_detached: false,
            searches: 0,
            answers: 0,
        };
        let mut world = World::with_source(seed, forest, source, Host::new(address(0), 0));
        world.network.routers = routers;
        world.set_weather(0.0, 5);
        world
    }

    /// Creates subnets in a row, with one router between neighbours.
    fn row(subnets: usize, config: TreeConfig) -> World {
        let routers =
            (0..subnets).map(|a| (0..subnets).map(|b| a.abs_diff(b) as u8).collect()).collect();
        World::new(routers, config, 1)
    }

    /// Sets the share of datagrams that are lost, which as many come twice, and the longest delay.
    fn set_weather(&mut self, loss: f64, delay_ms: u64) {
        let (delay, jitter) = (Duration::from_millis(1), Duration::from_millis(delay_ms));
        self.network.weather = Link { loss, duplicates: loss, delay, jitter };
    }

    /// Allows what honest nodes drop when datagrams are lost or late, and when nodes fail, leave or
    /// move: messages of those who are their children or parents no more or not yet.
    fn expect_faults(&mut self) {
        for reason in [
            DropReason::NotAsked,
            DropReason::Unexpected,
            DropReason::ForgedChild,
            DropReason::ForgedParent,
            DropReason::Loop,
            DropReason::Barred,
        ] {
            self.may_drop(reason);
        }
    }

    /// Cuts off these subnets, and no others.
    fn cut_off(&mut self, subnets: BTreeSet<usize>) {
        let all: Vec<usize> = (0..self.network.routers.len()).collect();
        self.network.heal();
        for &subnet in &subnets {
            self.network.partition(&[subnet], &all);
        }
        self.cut = subnets;
    }

    /// Adds a node that does nothing yet.
    fn add(&mut self, id: NodeId, subnet: usize) -> usize {
        let number = self.network.hosts.len();
        self.events.push(Vec::new());
        let node = node(id, number, &self.config);
        self.add_host(node, Host::new(address(number), subnet))
    }

    /// Adds a node that joins now.
    fn join(&mut self, subnet: usize) -> usize {
        let node = self.add(NodeId(self.network.hosts.len() as u64), subnet);
        let now = self.now;
        self.tree_mut(node).join(now);
        self.drain(node);
        node
    }

    fn leave(&mut self, node: usize) {
        let now = self.now;
        self.tree_mut(node).leave(now);
        self.drain(node);
    }

    fn node(&self, node: usize) -> &Node {
        node.checked_sub(1).map_or(&self.source, |receiver| &self.receivers[receiver])
    }

    fn tree(&self, node: usize) -> &Tree {
        &self.node(node).tree
    }

    fn tree_mut(&mut self, node: usize) -> &mut Tree {
        let node = match node.checked_sub(1) {
            None => &mut self.source,
            Some(receiver) => &mut self.receivers[receiver],
        };
        &mut node.tree
    }

    fn nodes(&self) -> Range<usize> {
        0..self.network.hosts.len()
    }

    fn parent(&self, node: usize) -> Option<usize> {
        let parent = self.tree(node).parent()?;
        self.nodes().find(|&node| self.tree(node).id == parent.id)
    }

    /// Returns the events of a node since the last call.
    fn events(&mut self, node: usize) -> Vec<TreeEvent> {
        std::mem::take(&mut self.events[node])
    }

    /// Makes children heard as if they acknowledged.
    fn acknowledge(&mut self) {
        for child in self.nodes() {
            let Some(parent) = self.parent(child) else { continue };
            let subnet = |node: usize| self.network.hosts[node].subnet;
            let are_up = self.is_up(child) && self.is_up(parent);
            if are_up && self.network.connects(subnet(child), subnet(parent)) {
                let tree = self.tree(child);
                let (id, token) = (tree.id, tree.parent().map_or(0, |parent| parent.token));
                let now = self.now;
                let _ = self.tree_mut(parent).check_child(now, id, address(child), token);
                self.drain(parent);
            }
        }
    }

    /// Lets time pass, with acknowledgements.
    fn run_acknowledging(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.run_for(Duration::from_millis(200).min(until - self.now));
            self.acknowledge();
        }
    }

    /// Checks that every living node is where it belongs.
    #[track_caller]
    fn check_settled(&self) {
        let mut managers = BTreeMap::new();
        for index in self.nodes().filter(|&node| self.is_up(node)) {
            let (tree, subnet) = (self.tree(index), self.network.hosts[index].subnet);
            assert!(
                tree.is_attached(),
                "node {index} in subnet {subnet} is {:?} {:?} at {:?}",
                tree.role,
                tree.stage,
                self.now
            );
            assert_eq!(tree.path()[0], SOURCE, "node {index}");
            if tree.role() != Role::Member {
                let other = managers.insert(subnet, index);
                assert_eq!(other, None, "two managers in subnet {subnet}");
            }
            let Some(parent) = self.parent(index) else { continue };
            let child = self.tree(parent).child(tree.id);
            assert!(self.is_up(parent) && child.is_some(), "node {index} of {parent}");
            let same = self.network.hosts[parent].subnet == subnet;
            assert_eq!(same, tree.role() == Role::Member, "node {index} of {parent}");
        }
    }

    fn drops(&self, node: usize, reason: DropReason) -> u64 {
        self.node(node).drops.of(reason)
    }
}

/// Returns a message from a node of the harness.
fn from(world: &World, node: usize, body: Body) -> Message {
    Message { feed: FEED, sender: world.tree(node).id, body }
}
