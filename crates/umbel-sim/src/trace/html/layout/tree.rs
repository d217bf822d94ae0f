//! Pictures of trees.

use std::collections::BTreeSet;

use super::{Label, Layout, Neighbours, Place};

/// With more leaves than this a tree is drawn round: they have more room on a circle.
const MAX_ROWS: usize = 40;
/// Room between leaves of different parents, where leaves of one parent are 1 apart.
const FAMILY_GAP: f64 = 0.6;

/// A tree seen from one of its nodes.
struct Rooted {
    /// Parents before their children, the leaves from top to bottom.
    order: Vec<usize>,
    parent: Vec<Option<usize>>,
    depth: Vec<u32>,
}

/// Draws a tree.
pub(super) fn layout(neighbours: &Neighbours, source: usize) -> Layout {
    let leaves = neighbours.iter().filter(|next| next.len() == 1).count();
    let centre = centre(neighbours);
    if let [left, right] = centre[..]
        && let Some(layout) = both_sides(neighbours, left, right, source)
    {
        return layout;
    }
    if leaves > MAX_ROWS { round(neighbours, centre[0]) } else { rows(neighbours, source) }
}

/// The one or two nodes in the middle of the longest way.
fn centre(neighbours: &Neighbours) -> Vec<usize> {
    let mut left = neighbours.len();
    let mut degree: Vec<usize> = neighbours.iter().map(Vec::len).collect();
    let mut outer: Vec<usize> = (0..left).filter(|&node| degree[node] <= 1).collect();
    while left > 2 {
        left -= outer.len();
        let mut next_outer = Vec::new();
        for node in outer {
            for &next in &neighbours[node] {
                degree[next] -= 1;
                if degree[next] == 1 {
                    next_outer.push(next);
                }
            }
        }
        outer = next_outer;
    }
    outer.sort_unstable();
    outer
}

/// Looks at the tree from `root`, without what is behind `cut`.
fn rooted(neighbours: &Neighbours, root: usize, cut: Option<usize>) -> Rooted {
    let mut tree = Rooted {
        order: Vec::new(),
        parent: vec![None; neighbours.len()],
        depth: vec![0; neighbours.len()],
    };
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        tree.order.push(node);
        for &next in neighbours[node].iter().rev() {
            if Some(next) != tree.parent[node] && Some(next) != cut {
                tree.parent[next] = Some(node);
                tree.depth[next] = tree.depth[node] + 1;
                stack.push(next);
            }
        }
    }
    tree
}

impl Rooted {
    /// A row for each node of this tree: leaves one below the other, the others in the middle of
    /// their first and last child. Also how many rows there are.
    fn rows(&self) -> (Vec<f64>, f64) {
        let nodes = self.parent.len();
        let mut rows = vec![0.0; nodes];
        let mut children: Vec<Option<(f64, f64)>> = vec![None; nodes];
        let is_parent: Vec<bool> = {
            let mut is_parent = vec![false; nodes];
            self.parent.iter().flatten().for_each(|&parent| is_parent[parent] = true);
            is_parent
        };
        let mut next_row = 0.0;
        let mut family = None;
        for &leaf in self.order.iter().filter(|&&node| !is_parent[node]) {
            if family.is_some() && family != Some(self.parent[leaf]) {
                next_row += FAMILY_GAP;
            }
            family = Some(self.parent[leaf]);
            rows[leaf] = next_row;
            next_row += 1.0;
        }
        for &node in self.order.iter().rev() {
            if let Some((first, last)) = children[node] {
                rows[node] = f64::midpoint(first, last);
            }
            if let Some(parent) = self.parent[node] {
                let row = rows[node];
                let (first, last) = children[parent].unwrap_or((row, row));
                children[parent] = Some((first.min(row), last.max(row)));
            }
        }
        (rows, next_row)
    }

    /// How deep each leaf is.
    fn leaf_depths(&self) -> Vec<u32> {
        let parents: BTreeSet<usize> =
            self.order.iter().filter_map(|&node| self.parent[node]).collect();
        let leaves = self.order.iter().filter(|&node| !parents.contains(node));
        leaves.map(|&leaf| self.depth[leaf]).collect()
    }
}

/// From left to right, leaves in rows.
fn rows(neighbours: &Neighbours, root: usize) -> Layout {
    let tree = rooted(neighbours, root, None);
    let (rows, _) = tree.rows();
    let place = |node: usize| {
        let is_leaf = neighbours[node].len() == 1 && node != root;
        let label = if is_leaf { Label::Right } else { Label::Above };
        Place { x: f64::from(tree.depth[node]), y: rows[node], label }
    };
    Layout { places: (0..neighbours.len()).map(place).collect(), stretch: true }
}

/// From a link in the middle to both sides, the source on the left; `None` unless either side
/// branches, its leaves are equally deep, and they have room.
fn both_sides(neighbours: &Neighbours, a: usize, b: usize, source: usize) -> Option<Layout> {
    let halves = [rooted(neighbours, a, Some(b)), rooted(neighbours, b, Some(a))];
    let is_fan = |half: &Rooted| {
        let depths = half.leaf_depths();
        (2..=MAX_ROWS).contains(&depths.len()) && depths.iter().all(|depth| *depth == depths[0])
    };
    if !halves.iter().all(is_fan) {
        return None;
    }
    let source_is_in_b = halves[1].order.contains(&source);
    let mut places = vec![Place { x: 0.0, y: 0.0, label: Label::Above }; neighbours.len()];
    for (half, is_left) in halves.iter().zip([!source_is_in_b, source_is_in_b]) {
        let (rows, count) = half.rows();
        for &node in &half.order {
            let depth = f64::from(half.depth[node]) + 0.5;
            places[node] = Place {
                x: if is_left { -depth } else { depth },
                // Both halves are as high, whatever their numbers of leaves.
                y: (rows[node] + 0.5) / count,
                label: match (neighbours[node].len() == 1, is_left) {
                    (false, _) => Label::Above,
                    (true, true) => Label::Left,
                    (true, false) => Label::Right,
                },
            };
        }
    }
    Some(Layout { places, stretch: true })
}

/// Around the root, each node on the circle of its depth.
fn round(neighbours: &Neighbours, root: usize) -> Layout {
    let tree = rooted(neighbours, root, None);
    let (rows, count) = tree.rows();
    let place = |node: usize| {
        let angle = rows[node] / count * std::f64::consts::TAU;
        let radius = f64::from(tree.depth[node]);
        let (x, y) = (radius * angle.cos(), radius * angle.sin());
        let label = match (x.abs() > 0.4 * radius, x < 0.0, y < 0.0) {
            (true, true, _) => Label::Left,
            (true, false, _) => Label::Right,
            (false, _, true) => Label::Above,
            (false, _, false) => Label::Below,
        };
        Place { x, y, label }
    };
    Layout { places: (0..neighbours.len()).map(place).collect(), stretch: false }
}
