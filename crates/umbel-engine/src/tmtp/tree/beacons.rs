//! When a node sends its beacons.

use std::time::Duration;

use crate::Instant;

/// The beacons of a source or manager. A member sends none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beacons {
    next: Option<Instant>,
    last: Option<Instant>,
}

impl Beacons {
    /// Begins, with a beacon at this time.
    pub(super) fn start(&mut self, at: Instant) {
        (self.next, self.last) = (Some(at), None);
    }

    /// Sends no more.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }

    /// Returns when the next one is sent.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Brings the next one forward, to `min` after the last one at the earliest.
    pub(super) fn hurry(&mut self, now: Instant, min: Duration) {
        let soon = self.last.map_or(now, |last| now.max(last + min));
        self.next = self.next.map(|at| at.min(soon));
    }

    /// Returns whether one is due. The next follows after a period.
    pub(super) fn take_due(&mut self, now: Instant, period: Duration) -> bool {
        let is_due = self.next.is_some_and(|at| at <= now);
        if is_due {
            (self.next, self.last) = (Some(now + period), Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hurried_beacon_keeps_its_distance_and_none_comes_after_the_end() {
        let ms = Duration::from_millis;
        let at = |t| Instant::EPOCH + ms(t);
        let mut beacons = Beacons::default();
        beacons.hurry(at(0), ms(50));
        assert_eq!(beacons.next(), None, "a member sends none");
        beacons.start(at(0));
        assert!(beacons.take_due(at(0), ms(500)) && !beacons.take_due(at(0), ms(500)));
        assert_eq!(beacons.next(), Some(at(500)));
        beacons.hurry(at(10), ms(50));
        assert_eq!(beacons.next(), Some(at(50)));
        beacons.hurry(at(100), ms(50));
        assert_eq!(beacons.next(), Some(at(50)), "it is not put off");
        beacons.stop();
        assert!(!beacons.take_due(at(1000), ms(500)));
    }
}
