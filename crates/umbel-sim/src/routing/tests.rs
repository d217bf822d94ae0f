use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::link::LinkSpec;

fn ms(n: u64) -> LinkSpec {
    LinkSpec::default().delay(Duration::from_millis(n))
}

/// Follows the routes from `from` to `to`. Returns `None` if they end, pass a host or meet a link
/// that is down; otherwise the delay in milliseconds and the number of links.
fn walk(network: &Network, down: &[LinkId], from: NodeId, to: NodeId) -> Option<(u64, u32)> {
    let mut routing = Routing::new(network);
    let (mut at, mut length) = (from, (0, 0));
    while at != to {
        if at != from && network.kind(at) == NodeKind::Host {
            return None;
        }
        let line = routing.next(at, to, |line| !down.contains(&line.link()))?;
        if down.contains(&line.link()) {
            return None;
        }
        let (a, b) = network.ends(line.link());
        let (ab, ba) = network.specs(line.link());
        let (spec, far) = if line == LineId::of(line.link())[0] { (ab, b) } else { (ba, a) };
        length = (length.0 + spec.delay.as_millis() as u64, length.1 + 1);
        at = far;
        assert!(length.1 as usize <= network.node_count(), "the routes go in a circle");
    }
    Some(length)
}

#[test]
fn a_star_and_a_line_need_no_tables() {
    let mut network = Network::new();
    let hub = network.router("hub");
    let mut ends = Vec::new();
    for n in 0..5 {
        let middle = network.router(format!("m{n}"));
        let leaf = network.host(format!("l{n}"));
        network.link(middle, hub, ms(1), ms(2)).unwrap();
        network.link(leaf, middle, ms(3), ms(4)).unwrap();
        ends.push(leaf);
    }
    let routing = Routing::new(&network);
    assert_eq!(routing.core.nodes.len(), 1);
    for (&from, &to) in ends.iter().zip(&ends[1..]) {
        assert_eq!(walk(&network, &[], from, to), Some((10, 4)));
    }
}

#[test]
fn the_faster_way_is_taken_and_the_other_one_when_it_is_down() {
    let mut network = Network::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| network.router(name));
    let fast = network.link(a, b, ms(1), ms(1)).unwrap();
    network.link(b, c, ms(1), ms(1)).unwrap();
    network.link(a, c, ms(5), ms(1)).unwrap();
    assert_eq!(walk(&network, &[], a, c), Some((2, 2)));
    // Only the delay of the direction counts.
    assert_eq!(walk(&network, &[], c, a), Some((1, 1)));
    assert_eq!(walk(&network, &[fast], a, c), Some((5, 1)));
}

#[test]
fn tables_follow_links_of_the_core_only() {
    let mut network = Network::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| network.router(name));
    let leaf = network.host("leaf");
    let ring = [(a, b), (b, c), (c, a)].map(|(x, y)| network.link(x, y, ms(1), ms(1)).unwrap());
    let stub = network.link(leaf, a, ms(1), ms(1)).unwrap();
    let mut routing = Routing::new(&network);
    assert_eq!(routing.next(b, leaf, |_| true), Some(LineId::of(ring[0])[1]));
    assert!(!routing.link_changed(stub));
    assert!(routing.link_changed(ring[0]));
    let around = |line: LineId| line.link() != ring[0];
    assert_eq!(routing.next(b, leaf, around), Some(LineId::of(ring[1])[0]));
    assert_eq!(routing.next(c, leaf, around), Some(LineId::of(ring[2])[0]));
    assert_eq!(routing.next(a, leaf, around), Some(LineId::of(stub)[1]));
}

#[test]
fn hosts_pass_nothing_on() {
    let mut network = Network::new();
    let [a, b] = ["a", "b"].map(|name| network.router(name));
    let host = network.host("two-legged");
    network.link(a, host, ms(1), ms(1)).unwrap();
    network.link(host, b, ms(1), ms(1)).unwrap();
    assert_eq!(walk(&network, &[], a, b), None);
    network.link(a, b, ms(9), ms(9)).unwrap();
    assert_eq!(walk(&network, &[], a, b), Some((9, 1)));
    assert_eq!(walk(&network, &[], host, b), Some((1, 1)));
}

/// Nodes (`true` for hosts), and links with their delays and whether they are down.
#[derive(Clone, Debug)]
struct Graph {
    hosts: Vec<bool>,
    links: Vec<(usize, usize, u64, u64, bool)>,
}

fn graphs() -> impl Strategy<Value = Graph> {
    (2_usize..14).prop_flat_map(|nodes| {
        let link = (0..nodes, 0..nodes, 0_u64..4, 0_u64..4, proptest::bool::weighted(0.15));
        let links = proptest::collection::vec(link, 0..2 * nodes);
        let hosts = proptest::collection::vec(proptest::bool::weighted(0.25), nodes);
        (hosts, links).prop_map(|(hosts, links)| Graph { hosts, links })
    })
}

proptest! {
    #[test]
    fn routes_are_as_short_as_any(graph in graphs()) {
        let mut network = Network::new();
        for &host in &graph.hosts {
            if host { network.host("h") } else { network.router("r") };
        }
        let count = graph.hosts.len();
        let mut down = Vec::new();
        // Floyd and Warshall's algorithm, over routers only.
        let mut best = vec![vec![None; count]; count];
        let shorter = |a: Option<(u64, u32)>, b: Option<(u64, u32)>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        for &(a, b, ab, ba, is_down) in &graph.links {
            if a == b {
                continue;
            }
            let [from, to] = [a, b].map(|node| NodeId(node as u32));
            let link = network.link(from, to, ms(ab), ms(ba)).unwrap();
            if is_down {
                down.push(link);
            } else {
                best[a][b] = shorter(best[a][b], Some((ab, 1)));
                best[b][a] = shorter(best[b][a], Some((ba, 1)));
            }
        }
        for (node, row) in best.iter_mut().enumerate() {
            row[node] = Some((0, 0));
        }
        for middle in (0..count).filter(|&node| !graph.hosts[node]) {
            for a in 0..count {
                for b in 0..count {
                    if let (Some(x), Some(y)) = (best[a][middle], best[middle][b]) {
                        best[a][b] = shorter(best[a][b], Some((x.0 + y.0, x.1 + y.1)));
                    }
                }
            }
        }
        for (a, row) in best.iter().enumerate() {
            for (b, &expected) in row.iter().enumerate() {
                let [from, to] = [a, b].map(|node| NodeId(node as u32));
                prop_assert_eq!(walk(&network, &down, from, to), expected, "{} to {}", a, b);
            }
        }
    }
}
