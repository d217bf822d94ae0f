//! When the source sends its heartbeats.

use std::time::Duration;

use crate::Instant;

/// The heartbeats of a source: soon after the last data, then less and less often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeats {
    /// Time from the last data to the first one.
    first: Duration,
    /// Longest time between two.
    longest: Duration,
    next: Instant,
    /// Time from the next one to the one after.
    step: Duration,
    /// One is to be sent now.
    due: bool,
}

impl Heartbeats {
    pub(super) fn new(first: Duration, longest: Duration) -> Heartbeats {
        Heartbeats { first, longest, next: Instant::EPOCH, step: first, due: false }
    }

    /// Returns when the next one becomes due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Begins now, whatever was scheduled.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.next, self.step) = (now, self.first);
    }

    /// Schedules the next one soon, and those after it further apart.
    pub(super) fn hurry(&mut self, now: Instant) {
        (self.next, self.step) = (self.next.min(now + self.first), self.first);
    }

    /// Puts the next one off while data flow, since then only the regular one is needed.
    pub(super) fn rest_while_data_flow(&mut self, now: Instant) {
        if self.next < now + self.first {
            (self.next, self.step) = (now + self.longest, self.first);
        }
    }

    /// Makes one due, and schedules the next.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.due = true;
        self.next = now + self.step;
        self.step = (self.step * 2).min(self.longest);
    }

    /// Makes one due beside those that are scheduled.
    pub(super) fn add(&mut self) {
        self.due = true;
    }

    /// Returns whether one is to be sent now.
    pub(super) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_follow_the_last_data_further_and_further_apart() {
        let ms = Duration::from_millis;
        let at = |t| Instant::EPOCH + ms(t);
        let mut heartbeats = Heartbeats::new(ms(20), ms(100));
        heartbeats.begin(at(0));
        assert!(!heartbeats.take_due());
        let mut sent = Vec::new();
        for _ in 0..5 {
            sent.push(heartbeats.next());
            heartbeats.on_timeout(heartbeats.next());
            assert!(heartbeats.take_due() && !heartbeats.take_due());
        }
        assert_eq!(sent, [at(0), at(20), at(60), at(140), at(240)]);
        heartbeats.rest_while_data_flow(at(330));
        assert_eq!(heartbeats.next(), at(430), "data flow");
        heartbeats.rest_while_data_flow(at(340));
        assert_eq!(heartbeats.next(), at(430), "the regular one is not put off for ever");
        heartbeats.hurry(at(350));
        assert_eq!(heartbeats.next(), at(370), "data ended");
    }
}
