//! The rate beside connections that fill the queue: that of a TCP connection in its place.
//!
//! Who drains a queue that others fill gets nothing. Where a queue does not become shorter though
//! the channel sends less, it therefore sends as CUBIC would [RFC 9438]: a window that grows with
//! time, and falls when packets are lost. Now and then it drains the queue again to see whether it
//! is alone.

use std::time::Duration;

use super::config::compete::{BETA, CUBIC, FRIENDLY};
use crate::Instant;

/// The window of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Competition {
    /// Packets under way.
    window: f64,
    /// Packets before the last reduction.
    most: f64,
    /// Seconds since then, while the window grew, and packets then.
    since: f64,
    base: f64,
    /// Time of the last report, and of the last reduction.
    heard: Instant,
    reduced: Instant,
}

impl Competition {
    /// Begins with a window.
    pub(super) fn new(now: Instant, packets: f64) -> Competition {
        let packets = packets.max(2.0);
        let since = root(packets * (1.0 - BETA) / CUBIC);
        Competition {
            window: packets,
            most: packets,
            since,
            base: packets,
            heard: now,
            reduced: now,
        }
    }

    /// Returns the packets in a second. Round trips are in seconds, with the time in queues.
    pub(super) fn rate(&self, rtt: f64) -> f64 {
        self.window / rtt
    }

    /// The time in between does not count.
    pub(super) fn resume(&mut self, now: Instant) {
        self.heard = now;
        self.reduced = now;
    }

    /// Takes a report: whether packets were lost, and the round trip. Returns whether the window was
    /// reduced.
    pub(super) fn hear(&mut self, now: Instant, lost: bool, rtt: f64) -> bool {
        let passed = now.since(self.heard).as_secs_f64().min(1.0);
        self.heard = now;
        if lost && now.since(self.reduced) > Duration::from_secs_f64(rtt) {
            let falls = self.window < self.most;
            self.most = if falls { self.window * (1.0 + BETA) / 2.0 } else { self.window };
            self.window = (self.window * BETA).max(2.0);
            (self.base, self.since, self.reduced) = (self.window, 0.0, now);
            return true;
        }
        self.since += passed;
        let k = root((self.most - self.base).max(0.0) / CUBIC);
        let ahead = self.since - k;
        let cubic = self.most + CUBIC * ahead * ahead * ahead;
        let friendly = self.base + FRIENDLY * self.since / rtt;
        let wanted = cubic.max(friendly).max(self.window);
        self.window = wanted.min(self.window * (1.0 + 0.5 * passed / rtt));
        false
    }
}

/// Returns the cube root of a number that is not negative, by Newton's method: the same on any
/// machine.
fn root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    for _ in 0..100 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if (next - root).abs() <= root * 1e-12 {
            return next;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_right() {
        for x in [0.0, 1e-9, 0.3, 1.0, 8.0, 12_345.0, 1e12] {
            let r = root(x);
            assert!((r * r * r - x).abs() <= 1e-6 * x, "{x}: {r}");
        }
    }
}
