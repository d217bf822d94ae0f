//! A receiver's window on one source's data units: held, missing, delivered.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// Limits of a [`ReceiveWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Number of units, from the next one to be delivered, that may be held or requested at once;
    /// at least 1. Default 1024.
    pub units: u64,
    /// Bytes of units that came and were not delivered yet. One more unit is accepted if it is the
    /// next to be delivered. Default 1 MiB.
    pub bytes: usize,
    /// Distance beyond the next unit to be delivered from which a sequence number is refused as
    /// invalid. At least `units`; default 2²⁰.
    pub far_ahead: u64,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits { units: 1024, bytes: 1 << 20, far_ahead: 1 << 20 }
    }
}

/// Reason for which a unit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The unit is held or was delivered.
    #[error("unit {0} came before")]
    Duplicate(u64),
    /// The unit lies before the horizon, or was given up.
    #[error("unit {sequence} lies before the horizon {horizon}")]
    BeforeHorizon {
        /// The unit's sequence number.
        sequence: u64,
        /// The first unit not given up.
        horizon: u64,
    },
    /// There is no room for the unit now. It counts as missing and can arrive again.
    #[error("no room for unit {0} yet")]
    NoRoom(u64),
    /// The unit is too far ahead for any source.
    #[error("unit {sequence} is far ahead of {next}")]
    FarAhead {
        /// The unit's sequence number.
        sequence: u64,
        /// The next unit to be delivered.
        next: u64,
    },
}

/// Units received and missing of one source. Each unit from the horizon on is delivered once, in
/// order.
///
/// ```text
///   horizon        next               known
///      │ delivered   │ held │ missing │ not sent yet, as far as is known
/// ─────┴─────────────┴────────────────┴──────────────▶ sequence numbers
///                    └─ at most `WindowLimits::units` are held or asked for ─┘
/// ```
///
/// All operations cost O(log n) of the units held, except [`missing`](ReceiveWindow::missing).
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    limits: WindowLimits,
    /// Missing units before this one are not waited for.
    horizon: u64,
    next: u64,
    /// One beyond the highest that the source is known to have sent.
    known: u64,
    /// First unit not covered by the gaps returned so far.
    told: u64,
    held: BTreeMap<u64, Bytes>,
    held_bytes: usize,
}

impl ReceiveWindow {
    /// Creates a window whose first unit is `horizon`. It is 0 for a receiver present from the
    /// start, and for a late joiner the first unit that it wants recovered.
    pub fn new(horizon: u64, limits: WindowLimits) -> ReceiveWindow {
        ReceiveWindow {
            limits,
            horizon,
            next: horizon,
            known: horizon,
            told: horizon,
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// Returns the next unit to be delivered.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the unit after the highest that the source is known to have sent.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Returns the number of units that came and were not delivered yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the bytes of the units that came and were not delivered yet.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns whether every unit that the source is known to have sent was delivered or given up.
    pub fn is_complete(&self) -> bool {
        self.next == self.known
    }

    /// Returns whether the unit is waited for. The source is then known to have sent it, it did not
    /// come, and there is room for it in the window.
    pub fn is_missing(&self, sequence: u64) -> bool {
        self.wanted().contains(&sequence) && !self.held.contains_key(&sequence)
    }

    /// Returns all units that are waited for, ascending. O(window).
    pub fn missing(&self) -> impl Iterator<Item = u64> {
        self.wanted().filter(|sequence| !self.held.contains_key(sequence))
    }

    /// Returns the range of units that may be held or waited for now.
    fn wanted(&self) -> Range<u64> {
        self.next.max(self.horizon)..self.end()
    }

    /// Returns the end of the window. No unit from here on is requested yet.
    fn end(&self) -> u64 {
        self.known.min(self.next.saturating_add(self.limits.units))
    }

    /// Adds a unit.
    ///
    /// # Errors
    ///
    /// Returns the reason if the unit was refused. [`Refused::NoRoom`] still shows that the unit
    /// exists.
    pub fn insert(&mut self, sequence: u64, payload: Bytes) -> Result<(), Refused> {
        if self.held.contains_key(&sequence) {
            return Err(Refused::Duplicate(sequence));
        }
        if sequence < self.horizon {
            return Err(Refused::BeforeHorizon { sequence, horizon: self.horizon });
        }
        if sequence < self.next {
            return Err(Refused::Duplicate(sequence));
        }
        self.note_sent(sequence)?;
        let fits = self.held_bytes.saturating_add(payload.len()) <= self.limits.bytes;
        if sequence >= self.end() || !(fits || sequence == self.next) {
            return Err(Refused::NoRoom(sequence));
        }
        self.held_bytes += payload.len();
        self.held.insert(sequence, payload);
        Ok(())
    }

    /// Notes that the source has sent every unit up to and including `sequence`.
    ///
    /// # Errors
    ///
    /// Returns [`Refused::FarAhead`] if `sequence` is invalid.
    pub fn note_sent(&mut self, sequence: u64) -> Result<(), Refused> {
        if sequence >= self.next.saturating_add(self.limits.far_ahead) {
            return Err(Refused::FarAhead { sequence, next: self.next });
        }
        // The greatest number is never below `next + far_ahead`, so that this cannot overflow.
        self.known = self.known.max(sequence + 1);
        Ok(())
    }

    /// Returns the next run of units found missing. Each unit is returned once. Call it until
    /// `None` after any unit was added, noted or delivered.
    pub fn poll_gap(&mut self) -> Option<Range<u64>> {
        let end = self.end();
        let mut start = self.told.max(self.next).max(self.horizon);
        while start < end {
            let held_at = self.held.range(start..end).next().map_or(end, |(&held, _)| held);
            self.told = held_at;
            if start < held_at {
                return Some(start..held_at);
            }
            start += 1;
            self.told = start;
        }
        None
    }

    /// Returns the next unit in order, if it is held.
    pub fn poll_delivery(&mut self) -> Option<(u64, Bytes)> {
        let (&first, _) = self.held.first_key_value()?;
        // The units in between were given up.
        if first != self.next && first > self.horizon.max(self.next) {
            return None;
        }
        let (sequence, payload) = self.held.pop_first()?;
        self.held_bytes -= payload.len();
        self.next = sequence + 1;
        self.skip_given_up();
        Some((sequence, payload))
    }

    /// Gives up the missing units before `horizon`, which are no longer available. Held units are
    /// still delivered. Returns the number of units given up.
    pub fn give_up_before(&mut self, horizon: u64) -> u64 {
        if horizon <= self.horizon.max(self.next) {
            self.horizon = self.horizon.max(horizon);
            return 0;
        }
        let from = self.horizon.max(self.next);
        let held = self.held.range(from..horizon).count() as u64;
        self.horizon = horizon;
        self.known = self.known.max(horizon);
        self.skip_given_up();
        horizon - from - held
    }

    /// Skips units before the horizon that did not come.
    fn skip_given_up(&mut self) {
        if self.next < self.horizon {
            let first = self.held.first_key_value().map_or(self.horizon, |(&first, _)| first);
            self.next = self.next.max(first.min(self.horizon));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn window(horizon: u64) -> ReceiveWindow {
        ReceiveWindow::new(horizon, WindowLimits { units: 8, bytes: 100, far_ahead: 50 })
    }

    fn unit(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    /// Returns the first and last unit of each run that is newly found missing.
    fn gaps(window: &mut ReceiveWindow) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| window.poll_gap()).map(|gap| (gap.start, gap.end - 1)).collect()
    }

    fn delivered(window: &mut ReceiveWindow) -> Vec<u64> {
        std::iter::from_fn(|| window.poll_delivery()).map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn delivers_in_order_and_tells_each_gap_once() {
        let mut window = window(0);
        window.insert(0, unit(1)).unwrap();
        window.insert(3, unit(1)).unwrap();
        assert_eq!(delivered(&mut window), [0]);
        assert_eq!(gaps(&mut window), [(1, 2)]);
        window.insert(5, unit(1)).unwrap();
        assert_eq!(gaps(&mut window), [(4, 4)]);
        assert_eq!(window.missing().collect::<Vec<_>>(), [1, 2, 4]);
        window.insert(2, unit(1)).unwrap();
        window.insert(1, unit(1)).unwrap();
        assert_eq!(delivered(&mut window), [1, 2, 3]);
        assert_eq!(gaps(&mut window), []);
        assert!(window.is_missing(4) && !window.is_missing(5) && !window.is_missing(6));
    }

    #[test]
    fn the_loss_of_the_last_unit_is_found_when_its_number_is_told() {
        let mut window = window(0);
        window.note_sent(1).unwrap();
        assert_eq!(gaps(&mut window), [(0, 1)]);
        assert!(!window.is_complete());
    }

    #[test]
    fn a_late_joiner_starts_at_its_horizon() {
        let mut window = window(1000);
        let refused = Refused::BeforeHorizon { sequence: 999, horizon: 1000 };
        assert_eq!(window.insert(999, unit(1)), Err(refused));
        window.insert(1001, unit(1)).unwrap();
        assert_eq!(gaps(&mut window), [(1000, 1000)]);
    }

    #[test]
    fn what_came_before_is_a_duplicate() {
        let mut window = window(0);
        window.insert(0, unit(1)).unwrap();
        assert_eq!(window.insert(0, unit(1)), Err(Refused::Duplicate(0)));
        assert_eq!(delivered(&mut window), [0]);
        assert_eq!(window.insert(0, unit(1)), Err(Refused::Duplicate(0)));
    }

    #[test]
    fn what_is_far_ahead_is_refused_and_opens_no_gap() {
        let mut window = window(10);
        for sequence in [60, u64::MAX] {
            let refused = Refused::FarAhead { sequence, next: 10 };
            assert_eq!(window.insert(sequence, unit(1)), Err(refused));
            assert_eq!(window.note_sent(sequence), Err(refused));
        }
        assert_eq!((gaps(&mut window), window.known()), (vec![], 10));
        let mut last = ReceiveWindow::new(u64::MAX, WindowLimits::default());
        assert!(matches!(last.insert(u64::MAX, unit(1)), Err(Refused::FarAhead { .. })));
    }

    #[test]
    fn holds_no_more_units_and_bytes_than_it_may() {
        let mut window = window(0);
        assert_eq!(window.insert(8, unit(1)), Err(Refused::NoRoom(8)));
        assert_eq!(gaps(&mut window), [(0, 7)]);
        window.insert(1, unit(90)).unwrap();
        assert_eq!(window.insert(2, unit(11)), Err(Refused::NoRoom(2)));
        window.insert(0, unit(50)).unwrap();
        assert_eq!(delivered(&mut window), [0, 1]);
        // The window has moved on: a unit that did not fit is found missing now.
        assert_eq!(gaps(&mut window), [(8, 8)]);
    }

    #[test]
    fn what_is_given_up_is_stepped_over_and_what_came_is_delivered() {
        let mut window = window(0);
        window.insert(2, unit(1)).unwrap();
        window.insert(5, unit(1)).unwrap();
        assert_eq!(window.give_up_before(4), 3);
        assert_eq!(delivered(&mut window), [2]);
        assert_eq!((window.next(), gaps(&mut window)), (4, vec![(4, 4)]));
        assert_eq!(window.give_up_before(3), 0);
        assert_eq!(window.give_up_before(20), 15);
        assert_eq!(delivered(&mut window), [5]);
        assert_eq!((window.next(), window.known()), (20, 20));
        let refused = Refused::BeforeHorizon { sequence: 4, horizon: 20 };
        assert_eq!(window.insert(4, unit(1)), Err(refused));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, usize),
        NoteSent(u64),
        GiveUp(u64),
        Deliver,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0_u64..70, 0_usize..40).prop_map(|(at, len)| Step::Insert(at, len)),
            1 => prop_oneof![0_u64..70, Just(u64::MAX)].prop_map(Step::NoteSent),
            1 => (0_u64..40).prop_map(Step::GiveUp),
            4 => Just(Step::Deliver),
        ]
    }

    proptest! {
        #[test]
        fn each_unit_that_was_taken_is_delivered_once_and_in_order(
            horizon in 0_u64..5,
            steps in prop::collection::vec(step(), 1..120),
        ) {
            let mut window = window(horizon);
            let mut taken = BTreeSet::new();
            let mut last = None;
            let mut told = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Insert(at, len) => {
                        let was_missing = window.is_missing(at);
                        if window.insert(at, unit(len)).is_ok() {
                            prop_assert!(taken.insert(at), "{} was taken twice", at);
                        } else if was_missing {
                            prop_assert!(window.is_missing(at));
                        }
                    }
                    Step::NoteSent(at) => drop(window.note_sent(at)),
                    Step::GiveUp(before) => {
                        let missing = window.missing().filter(|&s| s < before).count() as u64;
                        prop_assert!(window.give_up_before(before) >= missing);
                        prop_assert!(window.missing().all(|s| s >= before));
                    }
                    Step::Deliver => if let Some((at, _)) = window.poll_delivery() {
                        prop_assert!(taken.contains(&at) && last < Some(at));
                        last = Some(at);
                    },
                }
                while let Some(gap) = window.poll_gap() {
                    prop_assert!(!gap.is_empty());
                    for sequence in gap {
                        prop_assert!(window.is_missing(sequence));
                        prop_assert!(told.insert(sequence), "{} was told twice", sequence);
                    }
                }
                prop_assert!(window.missing().all(|s| told.contains(&s)));
                prop_assert!(window.held() <= 8 && window.held_bytes() <= 100 + 40);
                prop_assert!(window.next() <= window.known());
            }
            let held: usize = window.held();
            let waiting = taken.range(last.map_or(0, |l| l + 1)..).count();
            prop_assert_eq!(held, waiting);
        }

        #[test]
        fn any_order_of_arrival_is_put_right(
            order in Just((0_u64..8).collect::<Vec<_>>()).prop_shuffle()
        ) {
            let mut window = window(0);
            let mut came = Vec::new();
            for sequence in order {
                window.insert(sequence, unit(1)).unwrap();
                came.extend(delivered(&mut window));
            }
            prop_assert_eq!(came, (0..8).collect::<Vec<_>>());
            prop_assert!(window.is_complete());
        }
    }
}
