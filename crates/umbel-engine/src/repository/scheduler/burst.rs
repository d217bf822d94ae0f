//! How many symbols of an item are worth sending at once.

use super::requests::FILL_UNIT;

/// The gain of a request that is all that its client waits for.
const WHOLE: f64 = (1_u64 << 40) as f64;
/// A client is taken to receive at least this share of packets, in parts of [`FILL_UNIT`], so
/// that nothing is sent twenty times for one that hardly receives at all.
const LEAST_FILL: u32 = FILL_UNIT / 20;
/// Announcing a burst costs as much as this many symbols, counted in sixteenths…
const COST: u64 = 16;
/// …and a sixteenth for each client, who is told on its own session.
const COST_PER_SYMBOL: u64 = 16;
/// Reaches below this have a class of their own; above, the classes are finer than a thirtieth.
const EXACT: u64 = 64;

/// How many symbols must be sent until a client that lacks `size` is expected to have them.
pub(super) fn reach(size: u32, fill: u32) -> u64 {
    (u64::from(size) * u64::from(FILL_UNIT)).div_ceil(u64::from(fill.max(LEAST_FILL)))
}

/// What it gains that a client has an item of `full` symbols, of all that it `asked` for.
pub(super) fn gain(full: u32, asked: u64) -> u64 {
    let share = f64::from(full) / asked.max(1) as f64;
    // The conversion saturates.
    ((share * share * WHOLE) as u64).max(1)
}

/// The class of a reach.
pub(super) fn class(reach: u64) -> u16 {
    if reach < EXACT {
        return reach as u16;
    }
    // 64 to 127 is the first octave, of 32 classes.
    let octave = reach.ilog2() - 6;
    let within = (reach >> (octave + 1)) - 32;
    (64 + 32 * u64::from(octave) + within) as u16
}

/// The greatest reach of a class.
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
    /// Its symbols; those who need no more are expected to have the item with it.
    pub(super) reach: u64,
    /// What it gains.
    pub(super) gain: u64,
    /// What it costs, in sixteenths of a symbol.
    pub(super) cost: u64,
}

impl Burst {
    /// The burst with the greatest gain over cost, by the ascending reaches of the requests and
    /// what each gains; of those with the same, the longest. `wanting` clients hear of it.
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

    /// Whether it is at least as good as another.
    fn is_worth(&self, other: &Burst) -> bool {
        let this = u128::from(self.gain) * u128::from(other.cost);
        this >= u128::from(other.gain) * u128::from(self.cost)
    }

    /// Gain over cost.
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
        // A client that lacks 2 symbols, ten that lack 60, one that lacks 120.
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
