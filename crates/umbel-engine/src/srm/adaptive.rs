//! Timer intervals that adapt to the observed duplicates and delays [SRM, adaptive timers].

/// Average number of duplicates above which the interval grows.
const AVERAGE_DUPLICATES: f64 = 1.0;
/// Average delay, in round trips, above which the interval shrinks.
const AVERAGE_DELAY: f64 = 1.0;
/// Weight of the newest value in the averages.
const WEIGHT: f64 = 0.25;

/// An interval [start·d, (start + width)·d] for request timers (C1, C2) or repair timers (D1, D2).
#[derive(Clone, Debug)]
pub(super) struct Interval {
    start: f64,
    width: f64,
    adapts: bool,
    max_start: f64,
    duplicates: f64,
    delay: f64,
    /// Whether one of the last units was requested or repaired by this member, and all duplicates
    /// came from farther away.
    closest: bool,
}

impl Interval {
    /// Creates an interval that is fixed, or adapts.
    pub(super) fn new((start, width): (f64, f64), adapts: bool) -> Interval {
        Interval {
            start,
            width,
            adapts,
            max_start: start.max(2.0),
            duplicates: 0.0,
            delay: 0.0,
            closest: false,
        }
    }

    /// Returns start and width in distances.
    pub(super) fn get(&self) -> (f64, f64) {
        (self.start, self.width)
    }

    /// Sets the initial interval, before anything was observed.
    pub(super) fn reset(&mut self, (start, width): (f64, f64)) {
        (self.start, self.width) = (start, width);
        self.max_start = start.max(2.0);
    }

    /// Notes that this member sent a request or repair. Others may rely on its being early.
    pub(super) fn on_sent(&mut self) {
        if self.adapts {
            self.closest = true;
            self.start -= 0.05;
            self.keep_in_bounds(f64::MAX);
        }
    }

    /// Notes that another member was earlier, or sent the same from less than 1.5 times this
    /// member's distance.
    pub(super) fn on_nearer(&mut self) {
        self.closest = false;
    }

    /// Records the delay from the timer's start until the first request or repair, in round trips.
    pub(super) fn on_delay(&mut self, round_trips: f64) {
        self.delay += WEIGHT * (round_trips - self.delay);
    }

    /// Records the number of superfluous requests or repairs for a unit, once it is dealt with.
    pub(super) fn on_duplicates(&mut self, duplicates: u32) {
        self.duplicates += WEIGHT * (f64::from(duplicates) - self.duplicates);
    }

    /// Adapts the interval before a new timer is set in a group of this number of members.
    pub(super) fn adapt(&mut self, members: u64) {
        if !self.adapts {
            return;
        }
        if self.closest {
            self.start -= 0.05;
        } else if self.duplicates >= AVERAGE_DUPLICATES {
            self.start += 0.1;
            self.width += 0.5;
        } else if self.duplicates < AVERAGE_DUPLICATES - 0.1 {
            if self.delay > AVERAGE_DELAY {
                self.width -= 0.1;
            }
            if self.duplicates < 0.25 {
                self.start -= 0.05;
            }
        } else {
            self.start += 0.05;
        }
        self.keep_in_bounds(members as f64);
    }

    fn keep_in_bounds(&mut self, members: f64) {
        self.start = self.start.clamp(0.5, self.max_start);
        self.width = self.width.clamp(1.0, members.max(2.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_widen_the_interval_and_silence_narrows_it() {
        let mut interval = Interval::new((2.0, 2.0), true);
        for _ in 0..20 {
            interval.on_duplicates(5);
            interval.adapt(100);
        }
        let (start, width) = interval.get();
        assert!((start - 2.0).abs() < 1e-9 && width > 10.0, "{start} {width}");
        for _ in 0..200 {
            interval.on_duplicates(0);
            interval.on_delay(3.0);
            interval.adapt(100);
        }
        let (start, width) = interval.get();
        assert!((start - 0.5).abs() < 1e-9 && (width - 1.0).abs() < 1e-9, "{start} {width}");
    }

    #[test]
    fn who_is_closest_asks_ever_earlier() {
        let mut interval = Interval::new((2.0, 2.0), true);
        for _ in 0..5 {
            interval.on_sent();
            interval.on_duplicates(4);
            interval.adapt(100);
        }
        let (start, width) = interval.get();
        assert!(start < 1.6 && (width - 2.0).abs() < 1e-9, "{start} {width}");
        interval.on_nearer();
        interval.adapt(100);
        assert!(interval.get().0 > start);
    }

    #[test]
    fn a_fixed_interval_stays() {
        let mut interval = Interval::new((2.0, 2.0), false);
        interval.on_sent();
        interval.on_duplicates(9);
        interval.adapt(100);
        let (start, width) = interval.get();
        assert!((start - 2.0).abs() < 1e-9 && (width - 2.0).abs() < 1e-9);
    }
}
