//! Places of a network's nodes in a drawing.
//!
//! - A tree grows from left to right out of its source, or, with many leaves, around its centre.
//! - A dumbbell, or another tree with two halves whose leaves are equally deep, grows from its
//!   middle to both sides.
//! - Any other network is drawn so that distances on the page match the numbers of links in between
//!   (`stress.rs`).
//!
//! The same network always has the same picture.

use std::collections::VecDeque;

use crate::network::{Network, NodeId};

mod stress;
mod tree;

/// Picture of a network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// Place of each node; x grows to the right, y downwards, the unit is arbitrary.
    pub(super) places: Vec<Place>,
    /// Whether width and height may be stretched independently to fill a page.
    pub(super) stretch: bool,
}

/// Place of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Coordinate to the right.
    pub(super) x: f64,
    /// Coordinate downwards.
    pub(super) y: f64,
    /// Side of the node with room for its name.
    pub(super) label: Label,
}

/// Side of a node on which its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Right,
    Left,
    Below,
    Above,
}

/// Neighbours of each node, in the order of the links.
type Neighbours = Vec<Vec<usize>>;

/// Draws a network. A tree grows out of `source`.
pub(super) fn layout(network: &Network, source: NodeId) -> Layout {
    let neighbours = neighbours(network);
    let source = source.0 as usize;
    if neighbours.is_empty() {
        return Layout { places: Vec::new(), stretch: false };
    }
    if is_tree(&neighbours, network.link_count()) {
        tree::layout(&neighbours, source.min(neighbours.len() - 1))
    } else {
        let points = stress::layout(&neighbours);
        let place = |(x, y)| Place { x, y, label: Label::Below };
        Layout { places: points.into_iter().map(place).collect(), stretch: false }
    }
}

fn neighbours(network: &Network) -> Neighbours {
    let mut neighbours = vec![Vec::new(); network.node_count()];
    for (_, a, b) in network.links() {
        neighbours[a.0 as usize].push(b.0 as usize);
        neighbours[b.0 as usize].push(a.0 as usize);
    }
    neighbours
}

fn is_tree(neighbours: &Neighbours, links: usize) -> bool {
    links + 1 == neighbours.len() && distances(neighbours, 0).iter().all(Option::is_some)
}

/// Returns the number of links from `start` to each node, if there is a path.
fn distances(neighbours: &Neighbours, start: usize) -> Vec<Option<u32>> {
    let mut distances = vec![None; neighbours.len()];
    distances[start] = Some(0);
    let mut line = VecDeque::from([(start, 0)]);
    while let Some((node, distance)) = line.pop_front() {
        for &next in &neighbours[node] {
            if distances[next].is_none() {
                distances[next] = Some(distance + 1);
                line.push_back((next, distance + 1));
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::LinkSpec;

    /// Creates a network of nodes without names.
    fn network(nodes: u32, links: &[(u32, u32)]) -> Network {
        let mut network = Network::new();
        (0..nodes).for_each(|_| _ = network.router(""));
        for &(a, b) in links.iter().filter(|(a, b)| a != b) {
            let spec = LinkSpec::default();
            network.link(NodeId(a), NodeId(b), spec.clone(), spec).unwrap();
        }
        network
    }

    fn places(network: &Network, source: u32) -> Vec<(f64, f64)> {
        let layout = layout(network, NodeId(source));
        layout.places.iter().map(|place| (place.x, place.y)).collect()
    }

    fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
        (a.0 - b.0).hypot(a.1 - b.1)
    }

    fn nearest(places: &[(f64, f64)]) -> f64 {
        let pairs = places
            .iter()
            .enumerate()
            .flat_map(|(index, &a)| places[..index].iter().map(move |&b| distance(a, b)));
        pairs.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_tree_grows_from_its_source_to_the_right() {
        // 3 is the source. 0, 1 and 6 are routers, 2, 4 and 5 leaves.
        let links = [(0, 1), (0, 2), (3, 6), (6, 0), (1, 4), (1, 5)];
        let places = places(&network(7, &links), 3);
        let columns: Vec<f64> = places.iter().map(|place| place.0).collect();
        assert!(columns[3] < columns[6] && columns[6] < columns[0]);
        assert!(columns[0] < columns[1] && columns[1] < columns[4]);
        assert!((columns[1] - columns[2]).abs() < 1e-9 && (columns[4] - columns[5]).abs() < 1e-9);
        assert!((places[1].1 - f64::midpoint(places[4].1, places[5].1)).abs() < 1e-9);
    }

    #[test]
    fn a_dumbbell_grows_from_its_middle_to_both_sides() {
        let links = [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)];
        let places = places(&network(6, &links), 2);
        assert!(
            places[2].0 < places[0].0 && places[0].0 < places[1].0 && places[1].0 < places[4].0
        );
        assert!(nearest(&places) > 0.3);
    }

    #[test]
    fn a_large_star_is_round() {
        let links: Vec<_> = (1..=100).map(|leaf| (0, leaf)).collect();
        let places = places(&network(101, &links), 1);
        for leaf in &places[1..] {
            assert!((distance(places[0], *leaf) - distance(places[0], places[1])).abs() < 1e-9);
        }
        assert!(nearest(&places) > 0.05);
    }

    #[test]
    fn a_ring_is_round_and_distances_are_kept() {
        let links: Vec<_> = (0..12).map(|node| (node, (node + 1) % 12)).collect();
        let places = places(&network(12, &links), 0);
        let sides: Vec<f64> =
            links.iter().map(|&(a, b)| distance(places[a as usize], places[b as usize])).collect();
        let (least, most) = (
            sides.iter().copied().fold(f64::INFINITY, f64::min),
            sides.iter().copied().fold(0.0, f64::max),
        );
        assert!(most / least < 1.05, "{least} {most}");
        assert!(distance(places[0], places[6]) > 3.0 * most);
    }

    #[test]
    fn islands_are_drawn_apart() {
        let places = places(&network(7, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]), 0);
        assert!(nearest(&places) > 0.3, "{places:?}");
    }

    #[test]
    fn networks_of_no_and_one_node_are_drawn() {
        assert_eq!(places(&network(0, &[]), 0), []);
        assert_eq!(places(&network(1, &[]), 0).len(), 1);
        assert_eq!(places(&network(2, &[]), 0).len(), 2);
    }

    proptest! {
        #[test]
        fn every_network_is_drawn_with_its_nodes_apart(
            nodes in 1_u32..40, ends in proptest::collection::vec((0_u32..40, 0_u32..40), 0..60),
            source in 0_u32..50,
        ) {
            let links: Vec<_> = ends.iter().map(|(a, b)| (a % nodes, b % nodes)).collect();
            let network = network(nodes, &links);
            let places = places(&network, source);
            prop_assert_eq!(places.len(), nodes as usize);
            prop_assert!(places.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
            prop_assert!(nearest(&places) > 1e-3);
            prop_assert_eq!(places, super::tests::places(&network, source));
        }

        #[test]
        fn every_tree_is_drawn_with_its_nodes_apart(
            parents in proptest::collection::vec(0_u32..1000, 1..200), source in 0_u32..200,
        ) {
            let links: Vec<_> = parents.iter().zip(1..).map(|(p, node)| (p % node, node)).collect();
            let places = places(&network(parents.len() as u32 + 1, &links), source);
            prop_assert!(nearest(&places) > 1e-3);
        }
    }
}
