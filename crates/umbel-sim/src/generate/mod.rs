//! Networks of known shapes.
//!
//! A shape has routers and the links between them. Hosts are added at its routers, each on its own
//! link: the `source` (or `source1`, `source2` …) and the receivers `h1`, `h2` ….
//!
//! | shape | routers | edge, where receivers are put | the source is at |
//! |---|---|---|---|
//! | star | the switch `hub` | the hub | the hub |
//! | line | `r1` – … – `rn` | the last | the first |
//! | tree | `r1` and below it `depth` - 1 levels, `fanout` children each | lowest level, `fanout` receivers each | `r1` |
//! | dumbbell | `left` – `right` | `right` | `left` |
//! | gnp | `r1` … `rn`, each two joined with probability `p` | all | a random one |
//! | waxman | `r1` … `rn` on a plane, near ones joined more often | all | a random one |
//! | transit-stub | domains of transit routers, stub domains at each of them | stub routers | a random stub router |
//! | graphml | those of the file | all | a random one |
//! | gt-itm | those of the file | stub routers, or all if there are none | a random one |
//! | ns2 | those of the file | all | a random one |
//!
//! Random shapes are drawn again until they are connected. So each connected shape appears in
//! proportion to its own probability. The shape, the places of sources and those of receivers are
//! drawn from their own streams, so that more receivers leave the graph unchanged.

mod file;
mod graphml;
mod gt_itm;
mod ns2;
mod plane;
mod regular;
mod transit_stub;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_topology::{Access, Impairment, LinkSpec, Mistake, NodeKind, NodeSpec, Topology};

pub use self::file::known;

use crate::random::{Purpose, below, stream};

/// Arrangement of routers and links.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// One switch with all hosts.
    Star,
    /// Routers in a row.
    Line {
        /// Number of routers, at least 1.
        routers: usize,
    },
    /// A tree in which every router has the same number of children.
    Tree {
        /// Links from the root to a receiver, at least 1.
        depth: u32,
        /// Children of a router, at least 1.
        fanout: usize,
    },
    /// Two routers with one link between them, sources on the left, receivers on the right.
    Dumbbell,
    /// A random graph in which each pair of routers is joined independently.
    Gnp {
        /// Number of routers, at least 1.
        routers: usize,
        /// Probability of a link.
        p: f64,
    },
    /// A random graph on the plane in which the probability of a link falls with its length d
    /// [Waxman 1988]. It is `beta` · exp(-d / (`alpha` · L)), where L is the diagonal of the plane.
    Waxman {
        /// Number of routers, at least 1.
        routers: usize,
        /// Decay length of the probability, above 0; the larger, the more slowly the probability
        /// falls.
        alpha: f64,
        /// Probability of a link of length 0.
        beta: f64,
    },
    /// The shape that GT-ITM generates [Zegura, Calvert, Bhattacharjee 1996].
    TransitStub(TransitStub),
    /// A graph from a file of GT-ITM, as its `sgb2alt` writes it.
    GtItm {
        /// Path of the file.
        file: PathBuf,
    },
    /// The links that a script of ns-2 lists.
    Ns2 {
        /// Path of the file.
        file: PathBuf,
    },
    /// A graph from a file in GraphML, with delays by geographic distance if it has places.
    GraphMl {
        /// Path of the file.
        file: PathBuf,
    },
}

/// Domains of transit routers that are joined to each other, with stub domains at each transit
/// router. Stub domains are random graphs too. Sizes are exact, not averages.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitStub {
    /// Transit domains, at least 1.
    pub domains: usize,
    /// Routers in a transit domain, at least 1.
    pub transit: usize,
    /// Stub domains at each transit router.
    pub stubs: usize,
    /// Routers in a stub domain, at least 1.
    pub stub_nodes: usize,
    /// Probability that two transit domains are joined. Default 1.
    pub domain_p: f64,
    /// Probability that two routers of a transit domain are joined. Default 0.6.
    pub transit_p: f64,
    /// Probability that two routers of a stub domain are joined. Default 0.42.
    pub stub_p: f64,
    /// Further links between a random transit router and a random stub router. Default 0.
    pub extra_transit_stub: usize,
    /// Further links between random stub routers of different domains. Default 0.
    pub extra_stub_stub: usize,
}

impl TransitStub {
    /// Creates domains of these sizes, with the defaults.
    pub fn new(domains: usize, transit: usize, stubs: usize, stub_nodes: usize) -> TransitStub {
        TransitStub {
            domains,
            transit,
            stubs,
            stub_nodes,
            domain_p: 1.0,
            transit_p: 0.6,
            stub_p: 0.42,
            extra_transit_stub: 0,
            extra_stub_stub: 0,
        }
    }
}

/// Receivers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Receivers {
    /// Number of receivers; `None` is one at each router of the edge, in a tree `fanout`.
    pub count: Option<usize>,
    /// Name of the receivers, which is followed by a number from 1.
    pub name: String,
    /// Links of the receivers.
    pub access: Access,
}

impl Receivers {
    /// Creates `count` receivers on unimpaired links, named `h1`, `h2` ….
    pub fn new(count: impl Into<Option<usize>>) -> Receivers {
        Receivers { count: count.into(), name: "h".to_owned(), access: Access::default() }
    }
}

/// Order in which receivers are distributed over the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One after the other, again from the first when each has a receiver.
    Even,
    /// All in random order, again from the first when each has a receiver.
    Random,
}

/// Shape, impairments of its links, and the hosts at its routers.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// Arrangement of routers and links.
    pub shape: Shape,
    /// Impairment of the links between routers.
    pub link: Impairment,
    /// Additional delay of a link between routers that is as long as the side of the plane; shorter
    /// links are delayed in proportion. Only shapes with places on a plane have lengths: gnp,
    /// waxman, transit-stub, and GraphML files with coordinates.
    pub delay_across: Duration,
    /// Number of sources.
    pub sources: usize,
    /// Links of the sources.
    pub source_link: Access,
    /// Groups of receivers.
    pub receivers: Vec<Receivers>,
    /// Whether receivers can be at all routers rather than only at the edge.
    pub anywhere: bool,
    /// Order in which routers get receivers.
    pub placement: Placement,
}

/// Name of the source. With several sources, a number from 1 follows.
pub const SOURCE: &str = "source";

/// Streams for the places of sources and of receivers. The shape itself is drawn from stream 0.
const SOURCE_STREAM: u64 = 1;
const RECEIVER_STREAM: u64 = 2;

/// Routers of a shape.
#[derive(Debug, Default)]
struct Core {
    nodes: Vec<NodeSpec>,
    links: Vec<CoreLink>,
    /// Routers at which receivers are put, in order.
    edge: Vec<usize>,
    /// Router of the sources; drawn among the edge if the shape does not determine it.
    source: Option<usize>,
    /// Number of receivers at each router of the edge if none is specified.
    receivers_each: usize,
    /// Whether the shape has its own hosts and needs no others.
    has_hosts: bool,
    /// What of a file was not read.
    notes: Vec<String>,
}

/// Link between routers.
#[derive(Debug)]
struct CoreLink {
    ends: (usize, usize),
    /// Length in sides of the plane; 0 without a plane.
    length: f64,
    /// Impairment from the first end to the second, if the shape determines it.
    treatment: Option<Impairment>,
    /// That from the second end to the first.
    back: Option<Impairment>,
}

impl CoreLink {
    fn plain(a: usize, b: usize) -> CoreLink {
        CoreLink { ends: (a, b), length: 0.0, treatment: None, back: None }
    }
}

fn router(name: String) -> NodeSpec {
    NodeSpec { name, kind: NodeKind::Router }
}

impl Generator {
    /// Creates a generator with one source and a receiver at each router of the shape's edge, in a
    /// tree `fanout`. Links have no impairments.
    pub fn new(shape: Shape) -> Generator {
        let random = !matches!(
            shape,
            Shape::Star | Shape::Line { .. } | Shape::Tree { .. } | Shape::Dumbbell
        );
        Generator {
            shape,
            link: Impairment::none(),
            delay_across: Duration::ZERO,
            sources: 1,
            source_link: Access::default(),
            receivers: vec![Receivers::new(None)],
            anywhere: false,
            placement: if random { Placement::Random } else { Placement::Even },
        }
    }

    /// Generates the network. Equal seeds produce equal networks.
    ///
    /// # Errors
    /// If a parameter is out of its range, a file cannot be read, or a random shape does not come
    /// out connected.
    pub fn generate(&self, seed: u64) -> Result<Topology, Mistake> {
        self.check().map_err(|(_, message)| Mistake::new(message))?;
        let core = self.shape.routers(&mut stream(seed, Purpose::Topology, 0))?;
        let mut topology = Topology::new().seed(seed);
        if !core.has_hosts {
            self.add_sources(&core, seed, &mut topology);
            self.add_receivers(&core, seed, &mut topology);
        }
        let mut host_links = std::mem::take(&mut topology.links);
        topology.links = core.links.iter().map(|link| self.core_link(&core, link)).collect();
        topology.links.append(&mut host_links);
        topology.nodes.extend(core.nodes);
        topology.notes = core.notes;
        topology.nodes.sort_by_key(|node| order(node.kind));
        topology.validate()?;
        Ok(topology)
    }

    /// Checks the ranges before anything is generated. Returns the parameter and its mistake.
    fn check(&self) -> Result<(), (&'static str, String)> {
        self.shape.check()?;
        let edge = if self.anywhere { self.shape.size().nodes } else { self.shape.edge() };
        let default = edge * self.shape.receivers_each();
        let counts = self.receivers.iter().map(|group| group.count.map_or(default, |n| n as f64));
        for (key, count) in [("sources", self.sources as f64), ("receivers", counts.sum())] {
            if count > MOST_NODES {
                return Err((key, format!("{} {key}: at most {MOST_NODES} fit", readable(count))));
            }
        }
        Ok(())
    }

    fn core_link(&self, core: &Core, link: &CoreLink) -> LinkSpec {
        let treat = |treatment: Option<Impairment>| {
            let mut treatment = treatment.unwrap_or(self.link);
            treatment.delay += self.delay_across.mul_f64(link.length);
            treatment
        };
        let (a, b) = link.ends;
        LinkSpec {
            a_to_b: treat(link.treatment),
            b_to_a: treat(link.back),
            ..LinkSpec::new(&core.nodes[a].name, &core.nodes[b].name)
        }
    }

    fn add_sources(&self, core: &Core, seed: u64, topology: &mut Topology) {
        let mut random = stream(seed, Purpose::Topology, SOURCE_STREAM);
        for n in 1..=self.sources {
            let name = if self.sources == 1 { SOURCE.to_owned() } else { format!("{SOURCE}{n}") };
            let at = core.source.unwrap_or_else(|| *pick(&mut random, &core.edge));
            attach(topology, name, &core.nodes[at].name, &self.source_link);
        }
    }

    fn add_receivers(&self, core: &Core, seed: u64, topology: &mut Topology) {
        let mut places: Vec<usize> =
            if self.anywhere { (0..core.nodes.len()).collect() } else { core.edge.clone() };
        if self.placement == Placement::Random {
            shuffle(&mut stream(seed, Purpose::Topology, RECEIVER_STREAM), &mut places);
        }
        let default = places.len() * core.receivers_each;
        let mut places = places.iter().cycle();
        for group in &self.receivers {
            for (n, &at) in (1..=group.count.unwrap_or(default)).zip(&mut places) {
                let name = format!("{}{n}", group.name);
                attach(topology, name, &core.nodes[at].name, &group.access);
            }
        }
    }
}

fn attach(topology: &mut Topology, host: String, router: &str, access: &Access) {
    topology.links.push(LinkSpec {
        a_to_b: access.down,
        b_to_a: access.up,
        ..LinkSpec::new(router, &host)
    });
    topology.nodes.push(NodeSpec { name: host, kind: NodeKind::Host });
}

/// Returns the place of nodes of a kind in the order of files.
fn order(kind: NodeKind) -> u32 {
    match kind {
        NodeKind::Host => 0,
        NodeKind::Router => 1,
        NodeKind::Switch { .. } => 2,
    }
}

impl Shape {
    fn routers(&self, random: &mut Xoshiro256PlusPlus) -> Result<Core, Mistake> {
        Ok(match self {
            Shape::Star => regular::star(),
            Shape::Line { routers } => regular::line(*routers),
            Shape::Tree { depth, fanout } => regular::tree(*depth, *fanout),
            Shape::Dumbbell => regular::dumbbell(),
            Shape::Gnp { routers, p } => plane::gnp(*routers, *p, random)?,
            Shape::Waxman { routers, alpha, beta } => {
                plane::waxman(*routers, *alpha, *beta, random)?
            }
            Shape::TransitStub(sizes) => transit_stub::make(sizes, random)?,
            Shape::GraphMl { file } => graphml::read(file)?,
            Shape::GtItm { file } => gt_itm::read(file)?,
            Shape::Ns2 { file } => ns2::read(file)?,
        })
    }

    /// Checks the ranges. Returns the parameter and its mistake.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let at_least_1 = |key: &'static str, value: usize| {
            let message = || format!("{key} = {value}: there is at least 1");
            if value == 0 { Err((key, message())) } else { Ok(()) }
        };
        let probability = |key: &'static str, value: f64| {
            let message = || format!("{key} = {value} is not a probability between 0 and 1");
            if (0.0..=1.0).contains(&value) { Ok(()) } else { Err((key, message())) }
        };
        match self {
            Shape::Star
            | Shape::Dumbbell
            | Shape::GraphMl { .. }
            | Shape::GtItm { .. }
            | Shape::Ns2 { .. } => {}
            Shape::Line { routers } => at_least_1("routers", *routers)?,
            Shape::Tree { depth, fanout } => {
                at_least_1("depth", *depth as usize)?;
                at_least_1("fanout", *fanout)?;
            }
            Shape::Gnp { routers, p } => {
                at_least_1("routers", *routers)?;
                probability("p", *p)?;
            }
            Shape::Waxman { routers, alpha, beta } => {
                at_least_1("routers", *routers)?;
                if !alpha.is_finite() || *alpha <= 0.0 {
                    return Err(("alpha", format!("alpha = {alpha} is not above 0")));
                }
                probability("beta", *beta)?;
            }
            Shape::TransitStub(sizes) => {
                at_least_1("domains", sizes.domains)?;
                at_least_1("transit", sizes.transit)?;
                at_least_1("stub_nodes", sizes.stub_nodes)?;
                probability("domain_p", sizes.domain_p)?;
                probability("transit_p", sizes.transit_p)?;
                probability("stub_p", sizes.stub_p)?;
                let stubs = sizes.domains.saturating_mul(sizes.transit).saturating_mul(sizes.stubs);
                let few = stubs < 2;
                if sizes.extra_stub_stub > 0 && few {
                    let message = "extra_stub_stub needs at least two stub domains".to_owned();
                    return Err(("extra_stub_stub", message));
                }
                if sizes.extra_transit_stub > 0 && sizes.stubs == 0 {
                    let message = "extra_transit_stub needs stub domains".to_owned();
                    return Err(("extra_transit_stub", message));
                }
            }
        }
        let (key, size) = (self.size_key(), self.size());
        if size.nodes > MOST_NODES {
            let nodes = readable(size.nodes);
            return Err((key, format!("{nodes} routers: at most {MOST_NODES} fit")));
        }
        if size.links > MOST_LINKS {
            let links = readable(size.links);
            return Err((key, format!("about {links} links: at most {MOST_LINKS} fit")));
        }
        if size.pairs > MOST_PAIRS {
            let most = (2.0 * MOST_PAIRS).sqrt();
            let message = format!(
                "{} routers: at most {most:.0}, as each two of them are looked at",
                readable(size.nodes)
            );
            return Err((key, message));
        }
        Ok(())
    }

    /// Returns the parameter that is responsible if a shape is too large.
    fn size_key(&self) -> &'static str {
        match self {
            Shape::Tree { .. } => "depth",
            Shape::Line { .. } | Shape::Gnp { .. } | Shape::Waxman { .. } => "routers",
            Shape::Star
            | Shape::Dumbbell
            | Shape::GraphMl { .. }
            | Shape::GtItm { .. }
            | Shape::Ns2 { .. }
            | Shape::TransitStub(_) => "generator",
        }
    }

    /// Returns the size of a shape; for random ones, the average. Its numbers do not overflow.
    fn size(&self) -> Size {
        let pairs = |n: f64| n * (n - 1.0) / 2.0;
        match self {
            // The size of a file's graph is not limited here.
            Shape::Star | Shape::GraphMl { .. } | Shape::GtItm { .. } | Shape::Ns2 { .. } => {
                Size { nodes: 1.0, ..Size::default() }
            }
            Shape::Dumbbell => Size { nodes: 2.0, links: 1.0, pairs: 0.0 },
            Shape::Line { routers } => {
                Size { nodes: *routers as f64, links: *routers as f64, pairs: 0.0 }
            }
            Shape::Tree { depth, fanout } => {
                let (depth, fanout) = (f64::from(*depth), *fanout as f64);
                // Routers of the lowest level, and of those above it.
                let below = fanout.powf(depth - 1.0);
                let nodes = if fanout > 1.0 { below * fanout / (fanout - 1.0) } else { depth };
                Size { nodes, links: nodes, pairs: 0.0 }
            }
            Shape::Gnp { routers, p } => {
                let nodes = *routers as f64;
                Size { nodes, links: pairs(nodes) * p, pairs: 0.0 }
            }
            Shape::Waxman { routers, beta, .. } => {
                let nodes = *routers as f64;
                Size { nodes, links: pairs(nodes) * beta, pairs: pairs(nodes) }
            }
            Shape::TransitStub(sizes) => {
                let (domains, transit) = (sizes.domains as f64, sizes.transit as f64);
                let (stubs, stub) = (sizes.stubs as f64, sizes.stub_nodes as f64);
                let stub_domains = domains * transit * stubs;
                let extra = sizes.extra_transit_stub as f64 + sizes.extra_stub_stub as f64;
                let links = pairs(domains) * sizes.domain_p
                    + domains * pairs(transit) * sizes.transit_p
                    + stub_domains * (1.0 + pairs(stub) * sizes.stub_p)
                    + extra;
                Size { nodes: domains * transit + stub_domains * stub, links, pairs: 0.0 }
            }
        }
    }

    /// Returns the number of routers at the edge.
    fn edge(&self) -> f64 {
        match self {
            Shape::Tree { depth, fanout } => (*fanout as f64).powf(f64::from(*depth) - 1.0),
            Shape::Star | Shape::Line { .. } | Shape::Dumbbell => 1.0,
            _ => self.size().nodes,
        }
    }

    /// Returns the number of receivers at each router of the edge if none is specified.
    fn receivers_each(&self) -> f64 {
        if let Shape::Tree { fanout, .. } = self { *fanout as f64 } else { 1.0 }
    }
}

/// Returns a large number in few digits.
fn readable(number: f64) -> String {
    if number < 1e12 { format!("{number:.0}") } else { format!("{number:.1e}") }
}

/// Size of a shape.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: f64,
    links: f64,
    /// Pairs of routers that are examined one by one.
    pairs: f64,
}

/// Limit on nodes, above the number that a machine with 8 GB can simulate. A larger number is
/// likely a typing error.
const MOST_NODES: f64 = 5_000_000.0;
/// Limit on links between routers.
const MOST_LINKS: f64 = 10_000_000.0;
/// Limit on pairs of routers that are examined one by one: half a minute.
const MOST_PAIRS: f64 = 1e9;

fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, from: &'a [T]) -> &'a T {
    &from[below(random, from.len() as u64) as usize]
}

fn shuffle<T>(random: &mut Xoshiro256PlusPlus, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(random, last as u64 + 1) as usize);
    }
}
