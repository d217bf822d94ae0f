//! Smooths the edges between blocks, as far as coarse numbers made them.
//!
//! The step at an edge, beyond what the slopes on both sides lead one to expect, is spread over the
//! four samples on either side:
//!
//! ```text
//!      ─────────┐              ──────╮
//!         step  │        ▶            ╲
//!               └───────               ╰──────
//!      3  2  1  0 │ 0  1  2  3     shares 1 3 5 7 │ 7 5 3 1, of 16
//! ```
//!
//! A step that the missing planes can explain goes altogether. One of twice as much is in the
//! picture and stays; between the two the share falls. So flat blocks turn into a smooth surface,
//! and edges of letters stay. As nothing is predicted from what is shown, encoders need not know.

use crate::canvas::{Canvas, Grid};

/// Returns twice the step that the planes above `plane` leave open, in grey levels.
const fn limit(plane: u8) -> i16 {
    // A number of 2^plane half grey levels makes a step of 2^plane/16 or more in the samples.
    match plane {
        0..=1 => 0,
        _ => (STRENGTH * (1 << plane) / 32) as i16,
    }
}

const STRENGTH: i32 = 8;

/// Samples beside an edge that differ by no more are flat.
const FLAT: i16 = 1;

/// Pictures on the way out.
#[derive(Debug)]
pub(super) struct Smoother {
    grid: Grid,
    /// Edges between columns are smoothed.
    columns: Canvas,
    /// And those between rows.
    both: Canvas,
    limits: Vec<i16>,
}

/// Returns the part of the step at an edge that goes, in halves of a grey level.
#[inline]
fn step(before: [i16; 2], after: [i16; 2], limit: i16) -> i16 {
    let step = 3 * (after[0] - before[0]) + before[1] - after[1];
    let size = step.abs();
    // Only the means of flat blocks are known, which explains larger steps.
    let is_flat = (before[0] - before[1]).abs() + (after[0] - after[1]).abs() <= FLAT;
    let limit = if is_flat { limit * 2 } else { limit };
    let goes = size.min((2 * limit - size).max(0));
    if step < 0 { -goes } else { goes }
}

/// Returns a sample, `away` samples from an edge.
#[inline]
fn moved(sample: u8, step: i16, away: i16) -> u8 {
    (i16::from(sample) + ((step * (7 - 2 * away) + 16) >> 5)).clamp(0, 255) as u8
}

impl Smoother {
    pub(super) fn new(grid: Grid) -> Self {
        let canvas = Canvas::grey(grid);
        Self { grid, columns: canvas.clone(), both: canvas, limits: Vec::new() }
    }

    /// Smooths the rows of macroblocks that are `dirty`, and those beside them.
    pub(super) fn smooth(
        &mut self,
        raw: &Canvas,
        dirty: &[bool],
        plane_of: impl Fn(usize) -> u8,
    ) -> &Canvas {
        for (row, _) in dirty.iter().enumerate().filter(|(_, dirty)| **dirty) {
            for plane in 0..3 {
                self.smooth_columns(raw, row, plane, &plane_of);
            }
        }
        for row in 0..self.grid.high {
            let near = dirty[row.saturating_sub(1)..self.grid.high.min(row + 2)].contains(&true);
            if near {
                for plane in 0..3 {
                    self.smooth_rows(row, plane, &plane_of);
                }
            }
        }
        &self.both
    }

    fn smooth_columns(
        &mut self,
        raw: &Canvas,
        row: usize,
        plane: usize,
        plane_of: &impl Fn(usize) -> u8,
    ) {
        let stride = raw.stride(plane);
        let side = stride / self.grid.wide;
        // Greatest shift of each edge, from the second block on.
        self.limits.clear();
        self.limits.extend((1..stride / 8).map(|block| {
            let at = |block: usize| plane_of(row * self.grid.wide + block * 8 / side);
            limit(at(block - 1).max(at(block)))
        }));
        let lines = row * side * stride..(row + 1) * side * stride;
        let out = &mut self.columns.plane_mut(plane)[lines.clone()];
        out.copy_from_slice(&raw.plane(plane)[lines]);
        for line in out.chunks_exact_mut(stride) {
            for (edge, &limit) in line[4..].chunks_exact_mut(8).zip(&self.limits) {
                if limit == 0 {
                    continue;
                }
                let edge: &mut [u8; 8] = edge.try_into().expect("eight of them");
                let [a, b, c, d] = [3, 2, 4, 5].map(|i: usize| i16::from(edge[i]));
                let step = step([a, b], [c, d], limit);
                if step != 0 {
                    for i in 0..4 {
                        edge[3 - i] = moved(edge[3 - i], step, i as i16);
                        edge[4 + i] = moved(edge[4 + i], -step, i as i16);
                    }
                }
            }
        }
    }

    /// Smooths the edges above, within and below a row. Each sample belongs to one edge.
    fn smooth_rows(&mut self, row: usize, plane: usize, plane_of: &impl Fn(usize) -> u8) {
        let stride = self.columns.stride(plane);
        let side = stride / self.grid.wide;
        let lines = row * side..(row + 1) * side;
        let from = self.columns.plane(plane);
        let out = self.both.plane_mut(plane);
        let bytes = lines.start * stride..lines.end * stride;
        out[bytes.clone()].copy_from_slice(&from[bytes]);
        let last = self.grid.high * side;
        for edge in lines.clone().step_by(8).chain([lines.end]) {
            if edge == 0 || edge == last {
                continue;
            }
            for x in (0..stride).step_by(8) {
                let at = |line: usize| plane_of(line / side * self.grid.wide + x / side);
                let limit = limit(at(edge - 1).max(at(edge)));
                if limit == 0 {
                    continue;
                }
                let line = |y: usize| -> [u8; 8] {
                    from[y * stride + x..][..8].try_into().expect("eight of them")
                };
                let [b1, b0, a0, a1] = [edge - 2, edge - 1, edge, edge + 1].map(line);
                let mut steps = [0; 8];
                for i in 0..8 {
                    let wide = [b0, b1, a0, a1].map(|line| i16::from(line[i]));
                    steps[i] = step([wide[0], wide[1]], [wide[2], wide[3]], limit);
                }
                if steps == [0; 8] {
                    continue;
                }
                for away in 0..4 {
                    for (y, sign) in [(edge - 1 - away, 1), (edge + away, -1)] {
                        if lines.contains(&y) {
                            let given = line(y);
                            let to: &mut [u8; 8] = (&mut out[y * stride + x..][..8])
                                .try_into()
                                .expect("eight of them");
                            for i in 0..8 {
                                to[i] = moved(given[i], sign * steps[i], away as i16);
                            }
                        }
                    }
                }
            }
        }
    }
}
