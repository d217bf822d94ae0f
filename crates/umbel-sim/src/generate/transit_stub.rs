//! Domains of routers in two levels.
//!
//! Each transit domain has a square of the plane. The square of a stub domain is smaller and
//! contains its transit router.

use std::collections::BTreeSet;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::plane::{Place, connected_gnp, distance, place};
use super::{Core, CoreLink, Mistake, TransitStub, pick, router};
use crate::random::uniform;

/// Side of a stub domain's square in sides of the transit domain's.
const STUB_SIDE: f64 = 0.3;
/// Limit on draws of an extra link, after which there seems to be no room for it.
const TRIES: usize = 1_000;

pub(super) fn make(sizes: &TransitStub, random: &mut Xoshiro256PlusPlus) -> Result<Core, Mistake> {
    let mut graph = Graph::default();
    // Number of cells on a side.
    let cells = sizes.domains.isqrt() + usize::from(sizes.domains.isqrt().pow(2) < sizes.domains);
    let side = 1.0 / cells as f64;
    let (mut transit, mut stubs) = (Vec::new(), Vec::new());
    for domain in 0..sizes.domains {
        let corner = ((domain % cells) as f64 * side, (domain / cells) as f64 * side);
        let name = |n| format!("t{}.{n}", domain + 1);
        let what = ("transit", sizes.transit, sizes.transit_p);
        let routers = graph.domain(what, corner, side, name, random)?;
        for (n, &at) in routers.iter().enumerate() {
            for stub in 1..=sizes.stubs {
                let side = side * STUB_SIDE;
                let (x, y) = graph.places[at];
                let corner = (x - side * uniform(random), y - side * uniform(random));
                let name = |m| format!("s{}.{}.{stub}.{m}", domain + 1, n + 1);
                let what = ("stub", sizes.stub_nodes, sizes.stub_p);
                let members = graph.domain(what, corner, side, name, random)?;
                graph.join(at, *pick(random, &members));
                stubs.push(members);
            }
        }
        transit.push(routers);
    }
    let between = connected_gnp(sizes.domains, sizes.domain_p, random)
        .ok_or_else(|| unconnected("transit domains", sizes.domains, "domain_p", sizes.domain_p))?;
    for (a, b) in between {
        graph.join(*pick(random, &transit[a]), *pick(random, &transit[b]));
    }
    for _ in 0..sizes.extra_transit_stub {
        let draw = |random: &mut _| {
            let (domain, stub) = (pick(random, &transit), pick(random, &stubs));
            (*pick(random, domain), *pick(random, stub))
        };
        graph.join_anew("extra_transit_stub", sizes.extra_transit_stub, random, draw)?;
    }
    for _ in 0..sizes.extra_stub_stub {
        let draw = |random: &mut _| {
            let (a, b) = (pick(random, &stubs), pick(random, &stubs));
            // A link within one domain does not join two domains, so it is drawn again.
            if a == b { (a[0], a[0]) } else { (*pick(random, a), *pick(random, b)) }
        };
        graph.join_anew("extra_stub_stub", sizes.extra_stub_stub, random, draw)?;
    }
    let stub_routers: Vec<usize> = stubs.into_iter().flatten().collect();
    let transit_routers = transit.into_iter().flatten();
    let edge = if stub_routers.is_empty() { transit_routers.collect() } else { stub_routers };
    Ok(Core { edge, receivers_each: 1, ..graph.core })
}

#[derive(Default)]
struct Graph {
    core: Core,
    places: Vec<Place>,
    joined: BTreeSet<(usize, usize)>,
}

impl Graph {
    /// Adds a connected random graph in a square. Returns its routers.
    fn domain(
        &mut self,
        (what, size, p): (&str, usize, f64),
        corner: Place,
        side: f64,
        name: impl Fn(usize) -> String,
        random: &mut Xoshiro256PlusPlus,
    ) -> Result<Vec<usize>, Mistake> {
        let first = self.places.len();
        for n in 1..=size {
            self.core.nodes.push(router(name(n)));
            self.places.push(place(random, corner, side));
        }
        let links = connected_gnp(size, p, random).ok_or_else(|| {
            unconnected(&format!("{what} routers"), size, &format!("{what}_p"), p)
        })?;
        for (a, b) in links {
            self.join(first + a, first + b);
        }
        Ok((first..first + size).collect())
    }

    /// Adds a link unless it exists. Returns whether it was added.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let new = a != b && self.joined.insert((a.min(b), a.max(b)));
        if new {
            let length = distance(self.places[a], self.places[b]);
            self.core.links.push(CoreLink { length, ..CoreLink::plain(a, b) });
        }
        new
    }

    /// Adds a link that did not exist.
    fn join_anew(
        &mut self,
        key: &str,
        count: usize,
        random: &mut Xoshiro256PlusPlus,
        draw: impl Fn(&mut Xoshiro256PlusPlus) -> (usize, usize),
    ) -> Result<(), Mistake> {
        for _ in 0..TRIES {
            let (a, b) = draw(random);
            if self.join(a, b) {
                return Ok(());
            }
        }
        Err(Mistake::new(format!("{key} = {count}: there is no room for so many")))
    }
}

fn unconnected(what: &str, size: usize, key: &str, p: f64) -> Mistake {
    Mistake::new(format!("no connected graph of {size} {what} with {key} = {p} came up"))
}
