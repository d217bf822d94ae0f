//! Random graphs on a plane of side 1.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Core, CoreLink, Mistake, router};
use crate::random::{ln, uniform};

/// Place on the plane.
pub(super) type Place = (f64, f64);

/// Limit on draws of a graph, after which it counts as one that does not come out connected.
const TRIES: usize = 1_000;
/// Limit on random numbers that may be drawn for this.
const MOST_DRAWS: u64 = 1_000_000_000;

pub(super) fn distance((x, y): Place, (u, v): Place) -> f64 {
    ((x - u) * (x - u) + (y - v) * (y - v)).sqrt()
}

/// Returns a place in the square of side `side` whose lowest corner is `corner`.
pub(super) fn place(random: &mut Xoshiro256PlusPlus, corner: Place, side: f64) -> Place {
    let x = corner.0 + side * uniform(random);
    (x, corner.1 + side * uniform(random))
}

pub(super) fn gnp(
    routers: usize,
    p: f64,
    random: &mut Xoshiro256PlusPlus,
) -> Result<Core, Mistake> {
    let places = scatter(routers, random);
    let links = connected_gnp(routers, p, random).ok_or_else(|| {
        let n = routers as f64;
        Mistake::new(format!(
            "no connected graph of {routers} routers with p = {p} came up: it takes about \
             ln(n) / n = {:.3} or more",
            n.ln() / n
        ))
    })?;
    Ok(core(&places, &links))
}

pub(super) fn waxman(
    routers: usize,
    alpha: f64,
    beta: f64,
    random: &mut Xoshiro256PlusPlus,
) -> Result<Core, Mistake> {
    let places = scatter(routers, random);
    let scale = alpha * 2_f64.sqrt();
    let mut draws = 0;
    for _ in 0..TRIES {
        let mut links = Vec::new();
        for b in 1..routers {
            for a in 0..b {
                // ln u < ln(beta · exp(-d / scale)), by a logarithm that is the same everywhere.
                let u = uniform(random);
                let limit = -distance(places[a], places[b]) / scale;
                if u == 0.0 || (beta > 0.0 && ln(u) - ln(beta) < limit) {
                    links.push((a, b));
                }
            }
        }
        if is_connected(routers, &links) {
            return Ok(core(&places, &links));
        }
        draws += (routers * routers / 2) as u64;
        if draws > MOST_DRAWS {
            break;
        }
    }
    Err(Mistake::new(format!(
        "no connected graph of {routers} routers with alpha = {alpha} and beta = {beta} came up: \
         higher values give more links"
    )))
}

fn scatter(count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<Place> {
    (0..count).map(|_| place(random, (0.0, 0.0), 1.0)).collect()
}

fn core(places: &[Place], links: &[(usize, usize)]) -> Core {
    let link = |&(a, b): &(usize, usize)| CoreLink {
        length: distance(places[a], places[b]),
        ..CoreLink::plain(a, b)
    };
    Core {
        nodes: (1..=places.len()).map(|n| router(format!("r{n}"))).collect(),
        links: links.iter().map(link).collect(),
        edge: (0..places.len()).collect(),
        receivers_each: 1,
        ..Core::default()
    }
}

/// Returns the links of a connected G(n, p); `None` if no draw is connected.
pub(super) fn connected_gnp(
    nodes: usize,
    p: f64,
    random: &mut Xoshiro256PlusPlus,
) -> Option<Vec<(usize, usize)>> {
    let mut draws = 0;
    for _ in 0..TRIES {
        let links = draw_gnp(nodes, p, random);
        if is_connected(nodes, &links) {
            return Some(links);
        }
        draws += links.len() as u64 + 1;
        if draws > MOST_DRAWS {
            break;
        }
    }
    None
}

/// Draws the links of G(n, p), in time that grows with their number [Batagelj and Brandes 2005].
fn draw_gnp(nodes: usize, p: f64, random: &mut Xoshiro256PlusPlus) -> Vec<(usize, usize)> {
    let pairs = (1..nodes).flat_map(|b| (0..b).map(move |a| (a, b)));
    if p >= 1.0 {
        return pairs.collect();
    }
    let mut links = Vec::new();
    if p <= 0.0 || nodes < 2 {
        return links;
    }
    let log_without = ln(1.0 - p);
    let (mut a, mut b) = (0_usize, 1_usize);
    loop {
        // Number of pairs without a link before the next pair with one.
        let skip = ln(1.0 - uniform(random)) / log_without;
        if skip >= (nodes * nodes) as f64 {
            return links;
        }
        a += skip as usize;
        while a >= b {
            a -= b;
            b += 1;
            if b >= nodes {
                return links;
            }
        }
        links.push((a, b));
        a += 1;
    }
}

pub(super) fn is_connected(nodes: usize, links: &[(usize, usize)]) -> bool {
    let mut neighbours = vec![Vec::new(); nodes];
    for &(a, b) in links {
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    let mut seen = vec![false; nodes];
    let mut open = vec![0];
    seen[0] = true;
    let mut count = 1;
    while let Some(node) = open.pop() {
        for &next in &neighbours[node] {
            if !std::mem::replace(&mut seen[next], true) {
                count += 1;
                open.push(next);
            }
        }
    }
    count == nodes
}
