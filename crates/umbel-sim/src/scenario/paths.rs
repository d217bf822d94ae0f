//! Travel times of packets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use umbel_engine::units::Rate;

use umbel_topology::{NodeKind, Topology};

/// Returns the least propagation time from a node to each other one over routers and switches, and
/// back. `None` where there is no route. Rates, queues and jitter are ignored.
pub(super) fn delays(topology: &Topology, node: usize) -> Vec<Option<(Duration, Duration)>> {
    let names = topology.names();
    let mut out = vec![Vec::new(); topology.nodes.len()];
    let mut back = out.clone();
    for link in &topology.links {
        let (a, b) = (names[link.a.as_str()], names[link.b.as_str()]);
        out[a].push((b, link.a_to_b.delay));
        out[b].push((a, link.b_to_a.delay));
        back[b].push((a, link.a_to_b.delay));
        back[a].push((b, link.b_to_a.delay));
    }
    let (there, back) = (shortest(topology, node, &out), shortest(topology, node, &back));
    there.into_iter().zip(back).map(|(there, back)| there.zip(back)).collect()
}

/// Returns the least rate on the fastest way from a node to each other one. It is `None` where no
/// link has a rate, or there is no way.
pub(super) fn bottlenecks(topology: &Topology, node: usize) -> Vec<Option<Rate>> {
    let names = topology.names();
    let mut out = vec![Vec::new(); topology.nodes.len()];
    let mut rates = BTreeMap::new();
    for link in &topology.links {
        let (a, b) = (names[link.a.as_str()], names[link.b.as_str()]);
        out[a].push((b, link.a_to_b.delay));
        out[b].push((a, link.b_to_a.delay));
        rates.insert((a, b), link.a_to_b.rate);
        rates.insert((b, a), link.b_to_a.rate);
    }
    let found = search(topology, node, &out);
    let least = |mut at: usize| {
        let mut least: Option<Rate> = None;
        while let Some((_, before)) = found[at].filter(|_| at != node) {
            let rate = rates.get(&(before, at)).copied().flatten();
            least = match (least, rate) {
                (Some(least), Some(rate)) => Some(least.min(rate)),
                (least, rate) => least.or(rate),
            };
            at = before;
        }
        least
    };
    (0..topology.nodes.len()).map(least).collect()
}

fn shortest(
    topology: &Topology,
    from: usize,
    edges: &[Vec<(usize, Duration)>],
) -> Vec<Option<Duration>> {
    search(topology, from, edges).into_iter().map(|found| Some(found?.0)).collect()
}

/// Computes distances by Dijkstra's algorithm, and the node before each one on its way.
fn search(
    topology: &Topology,
    from: usize,
    edges: &[Vec<(usize, Duration)>],
) -> Vec<Option<(Duration, usize)>> {
    let mut found = vec![None; edges.len()];
    let mut open = BinaryHeap::from([Reverse((Duration::ZERO, from, from))]);
    while let Some(Reverse((distance, node, before))) = open.pop() {
        if found[node].is_some() {
            continue;
        }
        found[node] = Some((distance, before));
        if node != from && topology.nodes[node].kind == NodeKind::Host {
            continue;
        }
        for &(next, delay) in &edges[node] {
            if found[next].is_none() {
                open.push(Reverse((distance + delay, next, node)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_way_counts_and_each_direction_by_itself() {
        let ms = Duration::from_millis;
        let topology = Topology::new()
            .host("s")
            .host("h")
            .host("x")
            .router("r1")
            .router("r2")
            .link("s", "r1")
            .delay(ms(1))
            .link("r1", "h")
            .delay(ms(30))
            .link("r1", "r2")
            .with_link(|link| (link.a_to_b.delay, link.b_to_a.delay) = (ms(5), ms(9)))
            .link("r2", "h")
            .delay(ms(2))
            .link("h", "x");
        let found = delays(&topology, 0);
        assert_eq!(found[1], Some((ms(8), ms(12))));
        assert_eq!(found[0], Some((ms(0), ms(0))));
        assert_eq!(found[2], None, "a host forwards nothing");
    }
}
