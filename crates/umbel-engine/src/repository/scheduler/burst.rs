//! Bursts: the number of symbols of an item that are worth sending at once.

use super::requests::FILL_UNIT;

/// Gain of a request that is the only one its client waits for.
const WHOLE: f64 = (1_u64 << 40) as f64;
/// Smallest share of packets that a client is assumed to receive, in parts of [`FILL_UNIT`]. It
/// keeps symbols from being sent more than twenty times for one that receives almost nothing.
const LEAST_FILL: u32 = FILL_UNIT / 20;
/// Fixed cost of announcing a burst, in sixteenths of a symbol. Each client adds one sixteenth,
/// because it is told on its own session.
const COST: u64 = 16;
/// Cost of a symbol, in the same unit.
const COST_PER_SYMBOL: u64 = 16;
/// Reaches below this have a class of their own. Above, the classes are finer than a thirtieth.
const EXACT: u64 = 64;

/// Returns the number of symbols to send until a client that is missing `size` is expected to have
/// them.
pub(super) fn reach(size: u32, fill: u32) -> u64 {
    (u64::from(size) * u64::from(FILL_UNIT)).div_ceil(u64::from(fill.max(LEAST_FILL)))
}

/// Returns the gain of a client's completing an item of `full` symbols, of all that it `asked` for.
pub(super) fn gain(full: u32, asked: u64) -> u64 {
    let share = f64::from(full) / asked.max(1) as f64;
    // The conversion saturates.
    ((share * share * WHOLE) as u64).max(1)
}

/// Returns the class of a reach.
pub(super) fn class(reach: u64) -> u16 {
    if reach < EXACT {
        return reach as u16;
    }
    // 64 to 127 is the first octave, of 32 classes.
    let octave = reach.ilog2() - 6;
    let within = (reach >> (octave + 1)) - 32;
    (64 + 32 * u64::from(octave) + within) as u16
}

/// Returns the greatest reach of a class.
pub(super) fn upper(class: u16) -> u64 {
    let class = u64::from(class);
    if class < EXACT {
        return class;
    }
    let (octave, within) = ((class - 64) / 32, (class - 64) % 32);
    ((32 + within + 1) << (octave + 1)) - 1
}

/// A burst of symbols of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// Number of its symbols. Clients that need no more are expected to complete the item with it.
    pub(super) reach: u64,
    /// Sum of the gains of the requests that it satisfies.
    pub(super) gain: u64,
    /// Its cost in sixteenths of a symbol.
    pub(super) cost: u64,
}

impl Burst {
    /// Returns the burst with the greatest gain over cost, and of equals the longest. `steps` are
    /// the requests' ascending reaches and their gains. `wanting` clients are told of the burst.
    pub(super) fn best(steps: impl IntoIterator<Item = (u64, u64)>, wanting: u32) -> Option<Burst> {
        let mut best: Option<Burst> = None;
        let mut sum = 0_u64;
        for (reach, gain) in steps {
            sum = sum.saturating_add(gain);
            let cost = reach * COST_PER_SYMBOL + COST + u64::from(wanting);
            let burst = Burst { reach, gain: sum, cost };
            if best.is_none_or(|best| burst.is_worth(&best)) {
                best = Some(burst);
            }
        }
        best
    }

    /// Returns whether it is at least as good as another.
    fn is_worth(&self, other: &Burst) -> bool {
        let this = u128::from(self.gain) * u128::from(other.cost);
        this >= u128::from(other.gain) * u128::from(self.cost)
    }

    /// Returns gain over cost.
    pub(super) fn score(&self) -> f64 {
        self.gain as f64 / self.cost as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_goes_as_far_as_the_next_client_is_worth_its_symbols() {
        // A client that is missing 2 symbols, ten that are missing 60, one that is missing 120.
        let steps = |near, far| [(2, near), (60, 100), (120, far)];
        let best = |near, far| Burst::best(steps(near, far), 12).map(|burst| burst.reach);
        assert_eq!(best(1, 1), Some(60));
        assert_eq!(best(20, 1), Some(2));
        assert_eq!(best(1, 150), Some(120));
        assert_eq!(Burst::best([], 0), None);
    }

    #[test]
    fn announcements_to_many_make_short_bursts_dear() {
        let steps = [(1, 1), (60, 10)];
        assert_eq!(Burst::best(steps, 2).map(|burst| burst.reach), Some(1));
        assert_eq!(Burst::best(steps, 1000).map(|burst| burst.reach), Some(60));
    }

    #[test]
    fn what_a_client_gains_is_the_square_of_the_share() {
        assert_eq!(gain(10, 10), 1 << 40);
        assert_eq!(gain(10, 20), 1 << 38);
        assert_eq!(gain(1, u64::MAX), 1);
    }

    #[test]
    fn a_client_that_loses_half_needs_twice_as_many() {
        assert_eq!(reach(60, FILL_UNIT), 60);
        assert_eq!(reach(60, FILL_UNIT / 2), 120);
        assert_eq!(reach(60, 1), 1200);
        assert_eq!(reach(u32::MAX, 1), 20 * u64::from(u32::MAX));
    }

    proptest! {
        #[test]
        fn classes_are_narrow_and_in_order(reach in 0..20 * u64::from(u32::MAX)) {
            let upper = upper(class(reach));
            prop_assert!(upper >= reach && upper - reach <= reach / 32);
            prop_assert_eq!(class(upper), class(reach));
            prop_assert_eq!(class(upper + 1), class(reach) + 1);
        }
    }
}
