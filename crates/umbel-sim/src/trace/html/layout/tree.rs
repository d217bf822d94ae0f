//! Pictures of trees.

use std::collections::BTreeSet;

use super::{Label, Layout, Neighbours, Place};

/// Number of leaves above which a tree is drawn as a circle, where there is more room.
const MAX_ROWS: usize = 40;
/// Gap between leaves of different parents, where leaves of one parent are 1 apart.
const FAMILY_GAP: f64 = 0.6;

/// Tree seen from one of its nodes.
struct Rooted {
    /// Parents before their children, with the leaves from top to bottom.
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

/// Returns the one or two nodes in the middle of the longest path.
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

/// Returns the tree seen from `root`, without the part behind `cut`.
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
    /// Returns a row for each node of this tree, and the number of rows. Leaves are one below the
    /// other, and other nodes midway between their first and last child.
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

    /// Returns the depth of each leaf.
    fn leaf_depths(&self) -> Vec<u32> {
        let parents: BTreeSet<usize> =
            self.order.iter().filter_map(|&node| self.parent[node]).collect();
        let leaves = self.order.iter().filter(|&node| !parents.contains(node));
        leaves.map(|&leaf| self.depth[leaf]).collect()
    }
}

/// Draws a tree from left to right, with leaves in rows.
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

/// Draws a tree from a link in the middle to both sides, with the source on the left. Returns
/// `None` unless both sides branch, their leaves are equally deep, and they have room.
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
                // Both halves have the same height, whatever their numbers of leaves.
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

/// Draws a tree around the root, with each node on the circle of its depth.
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
