//! Pictures of networks that are no trees, by minimising stress [Gansner, Koren, North 2004].
//! Stress is the square of the difference between each distance on the page and the number of links
//! in between. Its weight falls with the number of links.

use rand_core::SeedableRng;
use rand_xoshiro::SplitMix64;

use super::{Neighbours, distances};
use crate::random::uniform;

/// Number of sweeps over all pairs of nodes, after which the picture hardly changes any more.
const SWEEPS: usize = 80;
/// Number of pairs times starts in a sweep, which limits the starts. Small networks are drawn from
/// several starts, and the best result is used.
const PAIRS: usize = 200_000;
/// Limit on starts.
const MAX_STARTS: usize = 12;

type Point = (f64, f64);

/// Returns points for all nodes.
pub(super) fn layout(neighbours: &Neighbours) -> Vec<Point> {
    let nodes = neighbours.len();
    let wanted = wanted(neighbours);
    let starts = (PAIRS / (nodes * nodes).max(1)).clamp(1, MAX_STARTS);
    let mut best = (f64::INFINITY, Vec::new());
    let mut generator = SplitMix64::seed_from_u64(1);
    for _ in 0..starts {
        let side = (nodes as f64).sqrt();
        let mut points: Vec<Point> = (0..nodes)
            .map(|_| (uniform(&mut generator) * side, uniform(&mut generator) * side))
            .collect();
        (0..SWEEPS).for_each(|_| sweep(&mut points, &wanted));
        let stress = stress(&points, &wanted);
        if best.1.is_empty() || stress < best.0 {
            best = (stress, points);
        }
    }
    upright(&mut best.1);
    best.1
}

/// Returns the wanted distance of each pair of nodes, which is the number of links between them.
/// Pairs without a path between them should be a little farther apart than any others.
fn wanted(neighbours: &Neighbours) -> Vec<Vec<f64>> {
    let links: Vec<_> = (0..neighbours.len()).map(|node| distances(neighbours, node)).collect();
    let most = links.iter().flatten().flatten().max().copied().unwrap_or_default();
    let wanted = |links: Option<u32>| f64::from(links.unwrap_or(most + 1));
    links.into_iter().map(|row| row.into_iter().map(wanted).collect()).collect()
}

/// Moves each point to the place of least stress, if each of the others alone pulled it to its
/// wanted distance.
fn sweep(points: &mut [Point], wanted: &[Vec<f64>]) {
    for index in 0..points.len() {
        let here = points[index];
        let (mut sum, mut weights) = ((0.0, 0.0), 0.0);
        for (other, (&there, &wish)) in points.iter().zip(&wanted[index]).enumerate() {
            if other == index {
                continue;
            }
            let (dx, dy) = (here.0 - there.0, here.1 - there.1);
            // Two points in one place are pushed apart in their own direction.
            let distance = (dx * dx + dy * dy).sqrt();
            let (dx, dy) = if distance < 1e-9 {
                if index < other { (1.0, 0.0) } else { (0.0, 1.0) }
            } else {
                (dx / distance, dy / distance)
            };
            let weight = 1.0 / (wish * wish);
            sum.0 += weight * (there.0 + wish * dx);
            sum.1 += weight * (there.1 + wish * dy);
            weights += weight;
        }
        if weights > 0.0 {
            points[index] = (sum.0 / weights, sum.1 / weights);
        }
    }
}

fn stress(points: &[Point], wanted: &[Vec<f64>]) -> f64 {
    let mut sum = 0.0;
    for (index, &(x, y)) in points.iter().enumerate() {
        for (&(other_x, other_y), &wish) in points[..index].iter().zip(&wanted[index]) {
            let (dx, dy) = (x - other_x, y - other_y);
            let error = ((dx * dx + dy * dy).sqrt() - wish) / wish;
            sum += error * error;
        }
    }
    sum
}

/// Rotates the picture so that its longer axis is horizontal.
fn upright(points: &mut [Point]) {
    let count = points.len() as f64;
    let (sum_x, sum_y) = points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for point in points.iter_mut() {
        *point = (point.0 - mean_x, point.1 - mean_y);
        xx += point.0 * point.0;
        xy += point.0 * point.1;
        yy += point.1 * point.1;
    }
    let angle = (2.0 * xy).atan2(xx - yy) / 2.0;
    let (sin, cos) = angle.sin_cos();
    for point in points {
        *point = (point.0 * cos + point.1 * sin, point.1 * cos - point.0 * sin);
    }
}
