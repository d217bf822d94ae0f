//! Networks of known shapes.
//!
//! A shape gives routers and the links between them. Hosts are put at its routers, each on a link
//! of its own: the `source` (or `source1`, `source2` …) and the receivers `h1`, `h2` ….
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
//!
//! The random shapes are drawn again until they are connected, so that they are those that are
//! connected among all, each with its own probability. The shape, the places of sources and those
//! of receivers are drawn from streams of their own: more receivers leave the graph as it was.

mod file;
mod graphml;
mod plane;
mod regular;
mod transit_stub;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;

pub use self::file::known;
use super::{Impairment, LinkSpec, Mistake, NodeKind, NodeSpec, Topology};
use crate::random::{Purpose, below, stream};

/// How routers are joined.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Everyone at one switch.
    Star,
    /// Routers in a row.
    Line {
        /// How many, at least 1.
        routers: usize,
    },
    /// A tree in which every router has equally many children.
    Tree {
        /// Links from the root to a receiver, at least 1.
        depth: u32,
        /// Children of a router, at least 1.
        fanout: usize,
    },
    /// Two routers with one link between them, sources on the left, receivers on the right.
    Dumbbell,
    /// A random graph in which each two routers are joined independently.
    Gnp {
        /// How many, at least 1.
        routers: usize,
        /// Probability of a link.
        p: f64,
    },
    /// A random graph on the plane in which the probability of a link falls with its length d
    /// [Waxman 1988]: `beta` · exp(-d / (`alpha` · L)), where L is the diagonal of the plane.
    Waxman {
        /// How many, at least 1.
        routers: usize,
        /// How slowly the probability falls, above 0.
        alpha: f64,
        /// Probability of a link of length 0.
        beta: f64,
    },
    /// The shape that GT-ITM makes [Zegura, Calvert, Bhattacharjee 1996].
    TransitStub(TransitStub),
    /// A graph from a file in GraphML, with delays by geographic distance if it has places.
    GraphMl {
        /// The file.
        file: PathBuf,
    },
}

/// Domains of transit routers, joined to each other; at each transit router stub domains, which
/// are random graphs too. Sizes are exact, not averages.
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
    /// Of these sizes, with the defaults.
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

/// The link of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// From the host into the network.
    pub up: Impairment,
    /// From the network to the host.
    pub down: Impairment,
}

impl Access {
    /// The same in both directions.
    pub fn both(impairment: Impairment) -> Access {
        Access { up: impairment, down: impairment }
    }
}

/// Receivers that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Receivers {
    /// How many; `None` is one at each router of the edge, in a tree `fanout`.
    pub count: Option<usize>,
    /// They are called so, with a number from 1.
    pub name: String,
    /// Their links.
    pub access: Access,
}

impl Receivers {
    /// So many on unimpaired links, called `h1`, `h2` ….
    pub fn new(count: impl Into<Option<usize>>) -> Receivers {
        Receivers { count: count.into(), name: "h".to_owned(), access: Access::default() }
    }
}

/// To which of the routers receivers are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To one after the other, again from the first when all have one.
    Even,
    /// To all in random order, again from the first when all have one.
    Random,
}

/// A shape, what its links do, and the hosts at its routers.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// How routers are joined.
    pub shape: Shape,
    /// The links between routers.
    pub link: Impairment,
    /// What a link between routers delays on top of that if it is as long as the side of the
    /// plane, shorter ones in proportion. Only shapes with places on a plane have lengths: gnp,
    /// waxman, transit-stub, and GraphML files with coordinates.
    pub delay_across: Duration,
    /// How many sources.
    pub sources: usize,
    /// The links of the sources.
    pub source_link: Access,
    /// Groups of receivers.
    pub receivers: Vec<Receivers>,
    /// Whether receivers can be at all routers rather than at the edge only.
    pub anywhere: bool,
    /// The order in which routers get receivers.
    pub placement: Placement,
}

/// Sources are called so.
pub const SOURCE: &str = "source";

/// What the places of hosts are drawn from; the shape itself is drawn from stream 0.
const SOURCE_STREAM: u64 = 1;
const RECEIVER_STREAM: u64 = 2;

/// The routers of a shape.
#[derive(Debug, Default)]
struct Core {
    nodes: Vec<NodeSpec>,
    links: Vec<CoreLink>,
    /// Where receivers are put, in order.
    edge: Vec<usize>,
    /// Where sources are; drawn among the edge if the shape does not say.
    source: Option<usize>,
    /// Receivers at each router of the edge where nobody says how many.
    receivers_each: usize,
    /// Whether the shape has hosts of its own and needs no others.
    has_hosts: bool,
}

/// A link between routers.
#[derive(Debug)]
struct CoreLink {
    ends: (usize, usize),
    /// In sides of the plane; 0 without a plane.
    length: f64,
    /// What it does, where the shape says.
    treatment: Option<Impairment>,
}

impl CoreLink {
    fn plain(a: usize, b: usize) -> CoreLink {
        CoreLink { ends: (a, b), length: 0.0, treatment: None }
    }
}

fn router(name: String) -> NodeSpec {
    NodeSpec { name, kind: NodeKind::Router }
}

impl Generator {
    /// A shape with one source and a receiver at each router of its edge, in a tree `fanout`;
    /// the links do nothing.
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

    /// Makes the network. Equal seeds give equal networks.
    ///
    /// # Errors
    /// A parameter that is out of range, a file that cannot be read, or a random shape that does
    /// not come out connected.
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
        topology.sort_nodes();
        topology.validate()?;
        Ok(topology)
    }

    /// Checks the ranges before anything is made; gives the parameter and what is wrong with it.
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
        let mut treatment = link.treatment.unwrap_or(self.link);
        treatment.delay += self.delay_across.mul_f64(link.length);
        let (a, b) = link.ends;
        LinkSpec {
            a_to_b: treatment,
            b_to_a: treatment,
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

impl Topology {
    /// Puts the nodes in the order in which files have them.
    fn sort_nodes(&mut self) {
        self.nodes.sort_by_key(|node| match node.kind {
            NodeKind::Host => 0,
            NodeKind::Router => 1,
            NodeKind::Switch { .. } => 2,
        });
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
        })
    }

    /// Checks the ranges; gives the parameter and what is wrong with it.
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
            Shape::Star | Shape::Dumbbell | Shape::GraphMl { .. } => {}
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

    /// The parameter that is to blame if a shape is too large.
    fn size_key(&self) -> &'static str {
        match self {
            Shape::Tree { .. } => "depth",
            Shape::Line { .. } | Shape::Gnp { .. } | Shape::Waxman { .. } => "routers",
            Shape::Star | Shape::Dumbbell | Shape::GraphMl { .. } | Shape::TransitStub(_) => {
                "generator"
            }
        }
    }

    /// What a shape comes to; of random ones on average. As numbers that do not overflow.
    fn size(&self) -> Size {
        let pairs = |n: f64| n * (n - 1.0) / 2.0;
        match self {
            // A file is as large as it is.
            Shape::Star | Shape::GraphMl { .. } => Size { nodes: 1.0, ..Size::default() },
            Shape::Dumbbell => Size { nodes: 2.0, links: 1.0, pairs: 0.0 },
            Shape::Line { routers } => {
                Size { nodes: *routers as f64, links: *routers as f64, pairs: 0.0 }
            }
            Shape::Tree { depth, fanout } => {
                let (depth, fanout) = (f64::from(*depth), *fanout as f64);
                // The lowest level, and those above it.
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

    /// How many routers are at the edge.
    fn edge(&self) -> f64 {
        match self {
            Shape::Tree { depth, fanout } => (*fanout as f64).powf(f64::from(*depth) - 1.0),
            Shape::Star | Shape::Line { .. } | Shape::Dumbbell => 1.0,
            _ => self.size().nodes,
        }
    }

    /// Receivers at each router of the edge where nobody says how many.
    fn receivers_each(&self) -> f64 {
        if let Shape::Tree { fanout, .. } = self { *fanout as f64 } else { 1.0 }
    }
}

/// A large number in few digits.
fn readable(number: f64) -> String {
    if number < 1e12 { format!("{number:.0}") } else { format!("{number:.1e}") }
}

/// How large a shape is.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: f64,
    links: f64,
    /// Pairs of routers that are looked at one by one.
    pairs: f64,
}

/// More nodes than a machine with 8 GB simulates: what is larger was a slip of the keyboard.
const MOST_NODES: f64 = 5_000_000.0;
/// Most links between routers.
const MOST_LINKS: f64 = 10_000_000.0;
/// Most pairs of routers that are looked at one by one: half a minute.
const MOST_PAIRS: f64 = 1e9;

fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, from: &'a [T]) -> &'a T {
    &from[below(random, from.len() as u64) as usize]
}

fn shuffle<T>(random: &mut Xoshiro256PlusPlus, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(random, last as u64 + 1) as usize);
    }
}
