//! Pictures in whole macroblocks, and where a macroblock's blocks are.

use crate::frame::{Component, Frame, Size};
use crate::planes::{BLOCKS, Macroblock};
use crate::transform::{self, Block};

/// Macroblocks a row and rows of them; addresses run row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) wide: usize,
    pub(crate) high: usize,
}

impl Grid {
    pub(crate) const fn of(size: Size) -> Self {
        let (width, height) = size.of(Component::Y);
        Self { wide: width.div_ceil(16), high: height.div_ceil(16) }
    }

    pub(crate) const fn len(self) -> usize {
        self.wide * self.high
    }
}

/// A picture whose sides are multiples of a macroblock's.
#[derive(Debug, Clone)]
pub(crate) struct Canvas {
    grid: Grid,
    planes: [Vec<u8>; 3],
}

/// Returns the place of a macroblock's block: its plane, and its position in units of eight
/// samples.
const fn place(block: usize, x: usize, y: usize) -> (usize, usize, usize) {
    match block {
        0..4 => (0, 2 * x + block % 2, 2 * y + block / 2),
        _ => (block - 3, x, y),
    }
}

impl Canvas {
    /// Returns a grey one.
    pub(crate) fn grey(grid: Grid) -> Self {
        let samples = grid.len() * 64;
        Self { grid, planes: [vec![128; samples * 4], vec![128; samples], vec![128; samples]] }
    }

    /// Samples from a row of a component to the next.
    pub(crate) const fn stride(&self, plane: usize) -> usize {
        if plane == 0 { self.grid.wide * 16 } else { self.grid.wide * 8 }
    }

    pub(crate) fn plane(&self, plane: usize) -> &[u8] {
        &self.planes[plane]
    }

    pub(crate) fn plane_mut(&mut self, plane: usize) -> &mut [u8] {
        &mut self.planes[plane]
    }

    /// Returns plane and first sample of a block.
    pub(crate) fn block(&self, address: usize, block: usize) -> (usize, usize) {
        let (x, y) = (address % self.grid.wide, address / self.grid.wide);
        let (plane, x, y) = place(block, x, y);
        (plane, y * 8 * self.stride(plane) + x * 8)
    }

    /// Copies a frame, and repeats its last row and column to fill the last macroblocks.
    pub(crate) fn load(&mut self, frame: &Frame) {
        for component in Component::ALL {
            let (width, height) = frame.size().of(component);
            let stride = self.stride(component as usize);
            let source = frame.plane(component);
            let rows = self.planes[component as usize].chunks_exact_mut(stride);
            for (y, row) in rows.enumerate() {
                let from = &source[y.min(height - 1) * width..][..width];
                row[..width].copy_from_slice(from);
                row[width..].fill(from[width - 1]);
            }
        }
    }

    /// Copies what lies within the frame's size into it.
    pub(crate) fn store(&self, frame: &mut Frame) {
        for component in Component::ALL {
            let width = frame.size().of(component).0;
            let stride = self.stride(component as usize);
            let rows = self.planes[component as usize].chunks_exact(stride);
            let to = frame.plane_mut(component).chunks_exact_mut(width);
            for (row, to) in rows.zip(to) {
                to.copy_from_slice(&row[..width]);
            }
        }
    }

    /// Copies a macroblock from another of the same size.
    pub(crate) fn copy(&mut self, from: &Self, address: usize) {
        for block in 0..BLOCKS {
            let (plane, start) = self.block(address, block);
            let stride = self.stride(plane);
            for row in 0..8 {
                let at = start + row * stride;
                self.planes[plane][at..at + 8].copy_from_slice(&from.planes[plane][at..at + 8]);
            }
        }
    }

    /// Returns a macroblock as frequencies, bit by bit.
    pub(crate) fn analyse(&self, address: usize) -> Macroblock {
        let mut blocks: [Block; BLOCKS] = std::array::from_fn(|block| {
            let (plane, start) = self.block(address, block);
            transform::forward(&self.planes[plane][start..], self.stride(plane))
        });
        Macroblock::analyse(&mut blocks)
    }

    /// Draws a macroblock of which the planes from `held` are known.
    pub(crate) fn draw(&mut self, address: usize, macroblock: &Macroblock, held: u8) {
        for (block, numbers) in macroblock.synthesise(held).iter().enumerate() {
            let (plane, start) = self.block(address, block);
            let stride = self.stride(plane);
            transform::inverse(numbers, &mut self.planes[plane][start..], stride);
        }
    }
}
