//! In which layer each new content starts, and down to which plane each layer goes.
//!
//! ```text
//!            changed blocks, most important first
//!  layer 0   ████████▒▒▒▒            start here, as many as fit at the floor
//!  layer 1   ░░░░░░░░░░░░████████    go on, or start here
//!  layer 2   ░░░░░░░░░░░░░░░░░░░░██  …
//! ```
//!
//! A layer takes on as many blocks as fit into its bits at the *floor*, the coarsest plane that is
//! worth sending. Blocks that are left start in the next layer, and levels below keep the older
//! content. Then the layer's blocks share its bits: all go down to the same level, a plane and a
//! fraction.
//!
//! **Policy.** When few blocks change, they start at a plane that looks well, and those that do not
//! fit wait for another layer. When many change, a level whose bits do not suffice would be a
//! mosaic of old and new. So all blocks start, at a coarser plane. When not even that fits, the
//! layer saves its bits for a whole picture: its frame rate falls, not its coherence.

use crate::packet::{NOTHING, Sixteenths};
use crate::planes::PLANES;

use super::rate::{self, Budget, Cost};

/// A macroblock with new content.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    pub(super) address: usize,
    pub(super) importance: f32,
    pub(super) cost: Cost,
    /// The layer in which it starts; none if no layer has bits for it.
    pub(super) start: Option<u8>,
}

/// The plane at which few blocks start, and the coarsest at which many do.
const FLOOR: u8 = 7;
const COARSEST: u8 = 10;

/// From this share of changed blocks on, there is motion everywhere.
const MANY: f64 = 0.35;

/// A layer's plan for the new contents of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Down to which plane.
    pub(super) to: Sixteenths,
    /// Estimated cost in bits.
    pub(super) estimate: f32,
}

/// Assigns a start layer to each block, and returns each layer's level. `fresh` is sorted, most
/// important first. `finest` is the plane of each layer below which bits are better spent on blocks
/// that stand still. `ready` tells which layers send in this frame.
pub(super) fn plan(
    fresh: &mut [Fresh],
    total: usize,
    budgets: &[Budget],
    finest: &[u8],
    kept: &[f32],
    ready: &[bool],
) -> Vec<Level> {
    let many = fresh.len() as f64 >= MANY * total as f64;
    let mut levels = Vec::with_capacity(budgets.len());
    // Sums over the blocks that started, and the level that they have.
    let mut started: Cost = [0.0; PLANES as usize];
    let mut level = NOTHING;
    let mut first = 0;
    for (layer, budget) in budgets.iter().enumerate() {
        let bits = budget.estimated_tokens() * (1.0 - kept[layer]);
        if !ready[layer] || bits <= 0.0 {
            levels.push(Level { to: level, estimate: 0.0 });
            continue;
        }
        let (taken, floor) = admit(&fresh[first..], bits, &started, level, many, budget.is_full());
        let mut starting: Cost = [0.0; PLANES as usize];
        for block in &mut fresh[first..first + taken] {
            block.start = Some(layer as u8);
            for (sum, cost) in starting.iter_mut().zip(&block.cost) {
                *sum += cost;
            }
        }
        first += taken;
        let finest = finest[layer].min(floor);
        let means = taken as f32 * rate::MEANS;
        let (to, estimate) = share(bits - means, &starting, &started, level, finest);
        // A block that started lower down loses nothing.
        let to = if taken == 0 { to.min(level) } else { to };
        levels.push(Level { to, estimate: estimate + means });
        level = level.min(to);
        for (sum, cost) in started.iter_mut().zip(&starting) {
            *sum += cost;
        }
    }
    levels
}

/// Returns how many of the blocks start in a layer, and at which floor.
fn admit(
    blocks: &[Fresh],
    bits: f32,
    started: &Cost,
    level: Sixteenths,
    many: bool,
    full: bool,
) -> (usize, u8) {
    let floors = if many { FLOOR..=COARSEST } else { FLOOR..=FLOOR };
    let mut fitting = (0, FLOOR);
    for floor in floors {
        let mut left = bits - rate::sum(started, level / 16, floor);
        let fit = blocks
            .iter()
            .take_while(|block| {
                left -= rate::MEANS + rate::sum(&block.cost, PLANES, floor);
                left >= 0.0
            })
            .count();
        fitting = (fit, floor);
        if fit == blocks.len() {
            return fitting;
        }
    }
    if many && !full { (0, FLOOR) } else { fitting }
}

/// Returns the level down to which the bits go, and what that takes.
fn share(
    bits: f32,
    starting: &Cost,
    started: &Cost,
    level: Sixteenths,
    finest: u8,
) -> (Sixteenths, f32) {
    let mut spent = 0.0;
    for plane in (finest..PLANES).rev() {
        // Some of the blocks that started have the plane already.
        let missing = f32::from((i16::from(level) - i16::from(plane) * 16).clamp(0, 16)) / 16.0;
        let cost = starting[usize::from(plane)] + started[usize::from(plane)] * missing;
        if spent + cost > bits {
            let part = ((bits - spent) / cost).clamp(0.0, 1.0);
            let sixteenths = (part * 16.0) as u8;
            return ((plane + 1) * 16 - sixteenths, spent + cost * part);
        }
        spent += cost;
    }
    (finest * 16, spent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameRate;

    /// Blocks of which each plane from 4 up costs 10 bits.
    fn blocks(count: usize) -> Vec<Fresh> {
        let mut cost = [0.0; PLANES as usize];
        cost[4..].fill(10.0);
        (0..count).map(|address| Fresh { address, importance: 1.0, cost, start: None }).collect()
    }

    /// Returns a layer that has this many bits; it is full with 0.25 s of its rate.
    fn budget(bits: u64, full: bool) -> Budget {
        let rate = FrameRate::new(30, 1).expect("a rate");
        let mut budget = Budget::new(bits * 8, rate, 0);
        if full {
            budget.earn(1000);
        }
        budget
    }

    fn starts(fresh: &[Fresh], layer: Option<u8>) -> usize {
        fresh.iter().filter(|fresh| fresh.start == layer).count()
    }

    #[test]
    fn blocks_that_do_not_fit_start_in_the_next_layer() {
        let mut fresh = blocks(20);
        let budgets = [budget(620, false), budget(100_000, false)];
        let levels = plan(&mut fresh, 1000, &budgets, &[0; 2], &[0.0; 2], &[true; 2]);
        // At the floor of plane 7 a block takes 50 bits, and 12 for means and address.
        assert_eq!((starts(&fresh, Some(0)), starts(&fresh, Some(1))), (10, 10));
        assert_eq!(levels[0].to, 7 * 16);
        assert_eq!(levels[1].to, 0);
    }

    #[test]
    fn where_much_moves_a_layer_saves_its_bits_for_a_whole_picture() {
        let plan = |budgets: &[Budget]| {
            let mut fresh = blocks(800);
            plan(&mut fresh, 1000, budgets, &[0], &[0.0], &[true]);
            starts(&fresh, Some(0))
        };
        assert_eq!(plan(&[budget(20_000, false)]), 0);
        // All of them at a coarser plane, 42 bits or less.
        assert_eq!(plan(&[budget(34_000, false)]), 800);
        // Waiting brings no more: as many as fit.
        assert!((300..800).contains(&plan(&[budget(10_000, true)])));
    }

    #[test]
    fn a_layer_that_has_no_bits_or_is_not_ready_passes() {
        let mut fresh = blocks(10);
        let budgets = [budget(100_000, false), budget(0, false), budget(100_000, false)];
        let ready = [false, true, true];
        let levels = plan(&mut fresh, 1000, &budgets, &[0; 3], &[0.0; 3], &ready);
        assert_eq!((levels[0].to, levels[1].to), (NOTHING, NOTHING));
        assert_eq!(starts(&fresh, Some(2)), 10);
    }

    #[test]
    fn new_content_goes_no_further_than_what_stands_still() {
        let mut fresh = blocks(10);
        let levels = plan(&mut fresh, 1000, &[budget(100_000, false)], &[5], &[0.0], &[true]);
        assert_eq!(levels[0].to, 5 * 16);
    }
}
