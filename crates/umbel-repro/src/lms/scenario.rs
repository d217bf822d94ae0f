//! A graph with a source and receivers, and the network between them [LMS §IV-B].

use std::time::Duration;

use umbel_engine::units::Rate;
use umbel_sim::generate::{Generator, Shape, TransitStub};
use umbel_sim::random::{Purpose, below, stream};
use umbel_sim::trace::{Hop, NoteRecord, PacketRecord, Tracer};
use umbel_sim::{
    App, Context, Destination, Instant, Kind, LinkId, LinkSpec, Network, NodeId, Packet, Schedules,
    Simulation,
};
use umbel_topology::{Impairment, LinkSpec as TopologyLink, NodeKind, NodeSpec, Queue, Topology};

use crate::record::Cell;

/// Number of routers of a random graph [LMS §IV-E].
const ROUTERS: usize = 100;
/// Probability of each of its links [LMS §IV-E].
const EDGE_P: f64 = 0.1;
/// Number of graphs drawn of each kind [LMS §IV-B].
pub const GRAPHS: u32 = 10;
/// Delay of a link between routers, if all are equal.
const LINK_DELAY: Duration = Duration::from_millis(10);
/// Delay of a link across the plane; a link between two random places takes half of it on average.
const PLANE_DELAY: Duration = Duration::from_millis(20);
/// Rate of all links of the graphs, so that a packet of 1,000 bytes takes some 80 µs. Without one a
/// NAK and the retransmission that it crosses would meet at the very same time where delays are
/// equal. The paper has none.
const LINK_RATE_BITS_PER_S: u64 = 100_000_000;
/// Packets that wait for a link at most; more than ever do.
const LINK_QUEUE: u32 = 10_000;
/// Number of the group that all hosts join.
pub(super) const GROUP: u32 = 1;

/// Kind of graph of the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Graph {
    /// A binary tree with the source at its root and receivers as leaves, `height` links below it.
    Binary {
        /// Links from the source to a receiver.
        height: u32,
    },
    /// G(100, 0.1), connected, with receivers at any router.
    Random {
        /// Number of receivers.
        receivers: u32,
    },
    /// GT-ITM's 1 × 4 × (1 + 3 × 8), with receivers at stub routers.
    TransitStub {
        /// Number of receivers.
        receivers: u32,
    },
}

/// Delays of the links between routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Delays {
    /// In proportion to the distance between random places on a plane.
    #[default]
    Plane,
    /// Equal for all links.
    Equal,
}

impl Delays {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Delays::Plane => "plane",
            Delays::Equal => "equal",
        }
    }

    /// Returns the default delay of a host's link, in percent of a mean link between routers. On
    /// the plane it is short, like a link to the next router of a site.
    pub fn usual_access_percent(self) -> u32 {
        match self {
            Delays::Plane => 20,
            Delays::Equal => 100,
        }
    }
}

/// A graph, before its receivers are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Kind of the graph.
    pub graph: Graph,
    /// Delays of its links.
    pub delays: Delays,
    /// Number of the graph, from 0, among the random ones of its kind.
    pub number: u32,
    /// Delay of a host's link, in percent of a mean link between routers. A binary tree has no such
    /// links: its leaves are the receivers.
    pub access_percent: u32,
}

/// Class of a link of the tree, by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkClass {
    /// Source and its router: all receivers lose the packet.
    Source,
    /// Receiver and its router: one receiver loses the packet.
    Receiver,
    /// Two routers of a graph in which all routers are alike.
    Core,
    /// Two transit routers.
    TransitTransit,
    /// A transit router and a stub router.
    TransitStub,
    /// Two stub routers.
    StubStub,
}

impl LinkClass {
    const NAMED: [(LinkClass, &'static str); 6] = [
        (LinkClass::Source, "source"),
        (LinkClass::Receiver, "receiver"),
        (LinkClass::Core, "core"),
        (LinkClass::TransitTransit, "transit-transit"),
        (LinkClass::TransitStub, "transit-stub"),
        (LinkClass::StubStub, "stub-stub"),
    ];
}

impl Cell for LinkClass {
    fn text(&self) -> String {
        let named = LinkClass::NAMED.iter().find(|(class, _)| class == self);
        named.map_or("", |(_, name)| name).to_owned()
    }

    fn parse(text: &str) -> Option<LinkClass> {
        LinkClass::NAMED.iter().find(|(_, name)| *name == text).map(|(class, _)| *class)
    }
}

/// A link of the tree, in the direction away from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLink {
    /// The link.
    pub link: LinkId,
    /// Its end on the source's side.
    pub from: NodeId,
    /// Class of the link.
    pub class: LinkClass,
}

/// A graph with a source and receivers.
#[derive(Clone, Debug)]
pub struct Scenario {
    network: Network,
    /// The source.
    pub source: NodeId,
    /// Whether the source is at its router: its link takes no time.
    pub source_is_root: bool,
    /// The receivers.
    pub receivers: Vec<NodeId>,
    /// The routers.
    pub routers: Vec<NodeId>,
    /// Delay of a packet from the source to each receiver.
    pub distances: Vec<Duration>,
    /// Links of the tree. Those nearer to the source come later, so that a packet lost on a link
    /// has crossed none of the preceding ones.
    pub tree: Vec<TreeLink>,
}

impl Setting {
    /// Returns the graph with a source and receivers. Placements differ in the routers of these;
    /// binary trees have one placement.
    pub fn place(&self, placement: u64) -> Scenario {
        let topology = self.topology(placement);
        let network =
            Network::from_topology(&topology, &Schedules::new()).expect("links only delay");
        Scenario::new(network)
    }

    pub(super) fn topology(&self, placement: u64) -> Topology {
        let generate = |shape: Shape, link: Duration, across: Duration| {
            let generator = Generator {
                link: treatment(link),
                delay_across: across,
                sources: 0,
                receivers: Vec::new(),
                ..Generator::new(shape)
            };
            let seed = u64::from(self.number) + 1;
            generator.generate(seed).expect("the shape is possible and comes out connected")
        };
        let (link, across) = match self.delays {
            Delays::Plane => (Duration::ZERO, PLANE_DELAY),
            Delays::Equal => (LINK_DELAY, Duration::ZERO),
        };
        let (mut topology, receivers, is_place): (_, _, fn(&str) -> bool) = match self.graph {
            Graph::Binary { height } => return binary(height),
            Graph::Random { receivers } => {
                let shape = Shape::Gnp { routers: ROUTERS, p: EDGE_P };
                (generate(shape, link, across), receivers, |_| true)
            }
            Graph::TransitStub { receivers } => {
                let shape = Shape::TransitStub(TransitStub::new(1, 4, 3, 8));
                (generate(shape, link, across), receivers, |name| name.starts_with('s'))
            }
        };
        let places: Vec<String> = topology.nodes.iter().map(|node| node.name.clone()).collect();
        let places: Vec<String> = places.into_iter().filter(|name| is_place(name)).collect();
        let key = placement << 32 | u64::from(self.number);
        let mut random = stream(key, Purpose::Workload, u64::from(receivers));
        let access = LINK_DELAY * self.access_percent / 100;
        let names = std::iter::once(SOURCE.to_owned());
        for name in names.chain((1..=receivers).map(|n| format!("{RECEIVER}{n}"))) {
            let at = &places[below(&mut random, places.len() as u64) as usize];
            attach(&mut topology, at, name, access);
        }
        topology
    }
}

/// Names of hosts; no router's name begins like a receiver's.
const SOURCE: &str = "source";
const RECEIVER: &str = "h";

/// Returns the treatment of one direction of a link of a graph.
fn treatment(delay: Duration) -> Impairment {
    let rate = Rate::from_bits_per_s(LINK_RATE_BITS_PER_S).expect("it is not 0");
    Impairment::none().rate(rate).queue(Queue::Packets(LINK_QUEUE)).delay(delay)
}

fn attach(topology: &mut Topology, router: &str, name: String, delay: Duration) {
    let link = TopologyLink::new(router, &name);
    let both = treatment(delay);
    topology.links.push(TopologyLink { a_to_b: both, b_to_a: both, ..link });
    topology.nodes.push(NodeSpec { name, kind: NodeKind::Host });
}

/// Creates a binary tree. The source is at the root itself: its link takes no time. Links have no
/// rate, so that latencies are whole multiples of a link's delay.
fn binary(height: u32) -> Topology {
    let tree = Generator::new(Shape::Tree { depth: height, fanout: 2 });
    let mut topology = tree.generate(1).expect("a tree is possible");
    for link in &mut topology.links {
        let delay = if [&link.a, &link.b].iter().any(|end| *end == SOURCE) {
            Duration::ZERO
        } else {
            LINK_DELAY
        };
        (link.a_to_b.delay, link.b_to_a.delay) = (delay, delay);
    }
    topology
}

impl Scenario {
    /// Creates the scenario of a network, from the host `source`, the hosts `h…` and the routers.
    pub(crate) fn new(network: Network) -> Scenario {
        let named = |prefix: &str, kind| -> Vec<NodeId> {
            let nodes = network
                .nodes()
                .filter(|(node, found)| *found == kind && network.name(*node).starts_with(prefix));
            nodes.map(|(node, _)| node).collect()
        };
        let source = named(SOURCE, umbel_sim::NodeKind::Host)[0];
        let receivers = named(RECEIVER, umbel_sim::NodeKind::Host);
        let routers = named("", umbel_sim::NodeKind::Router);
        let (tree, distances) = explore(&network, source, &receivers);
        let first = tree.last().map(|link| network.specs(link.link).0.delay);
        let source_is_root = first == Some(Duration::ZERO);
        Scenario { network, source, source_is_root, receivers, routers, distances, tree }
    }

    /// Returns the network, with each direction of each link as changed by `change`. The arguments
    /// of `change` are the link, the node at which the direction begins, and its present treatment.
    pub fn network(&self, change: impl Fn(LinkId, NodeId, LinkSpec) -> LinkSpec) -> Network {
        changed(&self.network, change)
    }

    /// Reduces `tree` to the source's link and nine others.
    pub(super) fn keep_some_links(&mut self) {
        let step = self.tree.len().div_ceil(9).max(1);
        let last = self.tree.len() - 1;
        let mut position = 0;
        self.tree.retain(|_| {
            position += 1;
            (position - 1) % step == 0 || position - 1 == last
        });
    }

    /// Returns the longest round trip from the source to a receiver.
    pub fn greatest_rtt(&self) -> Duration {
        self.distances.iter().max().copied().unwrap_or_default() * 2
    }
}

/// Returns a network with each direction of each link as changed by `change`.
fn changed(of: &Network, change: impl Fn(LinkId, NodeId, LinkSpec) -> LinkSpec) -> Network {
    let mut network = Network::new();
    for (node, kind) in of.nodes() {
        let name = of.name(node);
        match kind {
            umbel_sim::NodeKind::Host => network.host(name),
            umbel_sim::NodeKind::Router => network.router(name),
            umbel_sim::NodeKind::Switch => network.switch(name),
        };
    }
    for (link, a, b) in of.links() {
        let (forth, back) = of.specs(link);
        let forth = change(link, a, forth.clone());
        let back = change(link, b, back.clone());
        network.link(a, b, forth, back).expect("the ends are there and the loss is a share");
    }
    network
}

/// Sends a packet down the tree and returns its path. This is its links, those nearest to the
/// source last, and the propagation time to each receiver.
fn explore(
    network: &Network,
    source: NodeId,
    receivers: &[NodeId],
) -> (Vec<TreeLink>, Vec<Duration>) {
    const AT: Instant = Instant::from_nanos(3_600_000_000_000);
    let unlimited = changed(network, |_, _, spec| LinkSpec { rate: None, ..spec });
    let mut simulation = Simulation::new(unlimited, 0);
    simulation.set_app(source, Caster, AT).expect("the source is a free host");
    for &receiver in receivers {
        let member = Member { source };
        simulation.set_app(receiver, member, Instant::EPOCH).expect("receivers are free hosts");
    }
    simulation.set_tracer(Box::new(Path::default()));
    simulation.run_until(AT + Duration::from_hours(1));
    let path = simulation.take_tracer().expect("it was set") as Box<dyn std::any::Any>;
    let path = path.downcast::<Path>().expect("it is the one that was set");
    let links = path.crossed.iter().rev().map(|&(link, from, to)| {
        let class = class(network, from, to);
        TreeLink { link, from, class }
    });
    let arrival = |receiver: &NodeId| {
        let arrived = path.arrived.iter().find(|(node, _)| node == receiver);
        arrived.map_or(Duration::ZERO, |(_, at)| at.since(AT))
    };
    (links.collect(), receivers.iter().map(arrival).collect())
}

/// Returns the class of a link. Transit routers are called `t…`, stub routers `s…`, all others
/// `r…`.
fn class(network: &Network, from: NodeId, to: NodeId) -> LinkClass {
    if network.name(from) == SOURCE {
        return LinkClass::Source;
    }
    if network.kind(to) == umbel_sim::NodeKind::Host {
        return LinkClass::Receiver;
    }
    let is = |node, prefix| network.name(node).starts_with(prefix);
    match (is(from, 't'), is(to, 't')) {
        (true, true) => LinkClass::TransitTransit,
        (false, false) if is(from, 'r') => LinkClass::Core,
        (false, false) => LinkClass::StubStub,
        _ => LinkClass::TransitStub,
    }
}

struct Caster;

impl App for Caster {
    fn start(&mut self, context: &mut Context<'_>) {
        let group = context.group(Some(context.node()), GROUP);
        let to = Destination::Group(group);
        context.send(Packet::new(context.node(), to, Kind::Data, bytes::Bytes::new()));
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}
}

struct Member {
    source: NodeId,
}

impl App for Member {
    fn start(&mut self, context: &mut Context<'_>) {
        let group = context.group(Some(self.source), GROUP);
        context.join(group);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}
}

/// Path of a packet.
#[derive(Debug, Default)]
struct Path {
    crossed: Vec<(LinkId, NodeId, NodeId)>,
    arrived: Vec<(NodeId, Instant)>,
}

impl Tracer for Path {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        match (record.what, record.link) {
            (Hop::Sent, Some(link)) => self.crossed.push((link, record.from, record.to)),
            (Hop::Delivered, _) => self.arrived.push((record.to, record.at)),
            _ => {}
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(graph: Graph) -> Setting {
        Setting { graph, delays: Delays::Plane, number: 3, access_percent: 10 }
    }

    fn count(scenario: &Scenario, class: LinkClass) -> usize {
        scenario.tree.iter().filter(|link| link.class == class).count()
    }

    #[test]
    fn a_binary_tree_has_its_source_at_the_root() {
        let scenario = setting(Graph::Binary { height: 3 }).place(1);
        assert_eq!(scenario.receivers.len(), 8);
        assert_eq!(scenario.tree.len(), 1 + 2 + 4 + 8);
        assert!(scenario.distances.iter().all(|&distance| distance == LINK_DELAY * 3));
        assert_eq!(scenario.tree.last().map(|link| link.class), Some(LinkClass::Source));
        assert_eq!(count(&scenario, LinkClass::Receiver), 8);
    }

    #[test]
    fn links_nearer_to_the_source_come_later() {
        let scenario = setting(Graph::Random { receivers: 20 }).place(2);
        assert_eq!(scenario.receivers.len(), 20);
        assert_eq!(count(&scenario, LinkClass::Receiver), 20);
        assert_eq!(count(&scenario, LinkClass::Source), 1);
        let network = &scenario.network;
        let far = |link: &TreeLink| {
            let (a, b) = network.ends(link.link);
            if a == link.from { b } else { a }
        };
        for (later, link) in scenario.tree.iter().enumerate().skip(1) {
            assert!(scenario.tree[..later].iter().all(|deeper| far(deeper) != link.from));
        }
    }

    #[test]
    fn transit_stub_receivers_hang_on_stub_routers() {
        let scenario = setting(Graph::TransitStub { receivers: 100 }).place(1);
        assert_eq!((scenario.routers.len(), scenario.receivers.len()), (100, 100));
        for &receiver in &scenario.receivers {
            let mut links = scenario.network.links();
            let (_, router, _) = links.find(|&(_, _, host)| host == receiver).unwrap();
            assert!(scenario.network.name(router).starts_with('s'));
        }
        for class in [LinkClass::TransitTransit, LinkClass::TransitStub, LinkClass::StubStub] {
            assert!(count(&scenario, class) > 0, "{class:?}");
        }
    }

    #[test]
    fn placements_differ_and_the_graph_stays() {
        let setting = setting(Graph::Random { receivers: 5 });
        let [first, again, other] = [1, 1, 2].map(|placement| setting.place(placement));
        assert_eq!(first.distances, again.distances);
        assert_eq!(first.tree, again.tree);
        assert_ne!(first.distances, other.distances);
        assert_eq!(first.network.link_count(), other.network.link_count());
    }
}
