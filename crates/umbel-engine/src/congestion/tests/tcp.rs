//! TCP connections that use the same link: windows of Reno and of CUBIC, with selective
//! acknowledgements.

use std::collections::VecDeque;

/// Bytes of a packet.
pub(super) const SEGMENT: f64 = 1_500.0;

/// How a window grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// [RFC 5681].
    Reno,
    /// [RFC 9438].
    Cubic,
}

/// Factor and coefficient of CUBIC.
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// A packet under way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    sent: f64,
    /// When its acknowledgement comes, if it was not dropped.
    answered: Option<f64>,
}

/// A connection that always has data.
pub(super) struct Flow {
    kind: Kind,
    /// Round trip without queues.
    rtt: f64,
    window: f64,
    threshold: f64,
    next: u64,
    flight: VecDeque<Packet>,
    armed: f64,
    /// Losses before this number belong to the last reduction.
    recovery: u64,
    /// Of CUBIC: window before the last reduction, and when that was.
    most: f64,
    reduced: f64,
    smoothed: f64,
    heard: f64,
    pub(super) delivered: u64,
}

impl Flow {
    pub(super) fn new(kind: Kind, rtt: f64) -> Flow {
        Flow {
            kind,
            rtt,
            window: 10.0,
            threshold: f64::INFINITY,
            next: 0,
            flight: VecDeque::new(),
            armed: 0.0,
            recovery: 0,
            most: 0.0,
            reduced: 0.0,
            smoothed: rtt,
            heard: 0.0,
            delivered: 0,
        }
    }

    pub(super) fn may_send(&self) -> bool {
        (self.flight.len() as f64) < self.window
    }

    /// Notes that a packet was sent, which leaves the link at a time unless it was dropped.
    pub(super) fn sent(&mut self, now: f64, leaves: Option<f64>) {
        let answered = leaves.map(|at| at + self.rtt);
        self.flight.push_back(Packet { number: self.next, sent: now, answered });
        self.next += 1;
    }

    /// Returns when the next acknowledgement comes, if nobody waits for it yet.
    pub(super) fn next_ack(&mut self, now: f64) -> Option<f64> {
        if self.armed > now {
            return None;
        }
        let at = self.flight.iter().filter_map(|packet| packet.answered).find(|&at| at > now)?;
        self.armed = at;
        Some(at)
    }

    pub(super) fn patience(&self) -> f64 {
        self.smoothed * 2.0 + 0.2
    }

    /// Takes the acknowledgements that have come.
    pub(super) fn on_acks(&mut self, now: f64) {
        let arrived = |packet: &Packet| packet.answered.is_some_and(|at| at <= now);
        while let Some(&packet) = self.flight.front() {
            if arrived(&packet) {
                self.flight.pop_front();
                self.heard = now;
                self.delivered += 1;
                self.hear_delay(packet.answered.unwrap() - packet.sent);
                self.grow(now);
            } else if packet.answered.is_none()
                && self.flight.iter().skip(1).filter(|packet| arrived(packet)).take(3).count() == 3
            {
                // Three later packets were acknowledged: it is lost.
                self.flight.pop_front();
                self.reduce(now, packet.number);
            } else {
                return;
            }
        }
    }

    /// Starts, or starts again when nothing comes back.
    pub(super) fn on_timeout(&mut self, now: f64) {
        if now - self.heard < self.patience() * 0.99 || self.flight.is_empty() {
            return;
        }
        self.flight.retain(|packet| packet.answered.is_some_and(|at| at > now));
        if self.flight.is_empty() {
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = 1.0;
            self.recovery = self.next;
        }
    }

    fn hear_delay(&mut self, rtt: f64) {
        self.smoothed = self.smoothed * 0.9 + rtt * 0.1;
        if self.window < self.threshold && rtt - self.rtt > (self.rtt / 8.0).clamp(4e-3, 16e-3) {
            // HyStart [RFC 9406].
            self.threshold = self.window;
        }
    }

    fn grow(&mut self, now: f64) {
        if self.window < self.threshold {
            self.window += 1.0;
            if self.window >= self.threshold {
                (self.most, self.reduced) = (self.window, now);
            }
            return;
        }
        if self.kind == Kind::Reno {
            self.window += 1.0 / self.window;
            return;
        }
        let since = now - self.reduced;
        let k = (self.most * (1.0 - BETA) / C).cbrt();
        let ahead = self.most + C * (since + self.smoothed - k).powi(3);
        let friendly = self.most * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * since / self.smoothed;
        let target = ahead.clamp(self.window, self.window * 1.5).max(friendly);
        self.window += ((target - self.window) / self.window).clamp(0.0, 0.5);
    }

    fn reduce(&mut self, now: f64, number: u64) {
        if number < self.recovery {
            return;
        }
        self.recovery = self.next;
        let factor = if self.kind == Kind::Reno { 0.5 } else { BETA };
        // Fast convergence.
        let falls = self.kind == Kind::Cubic && self.window < self.most;
        self.most = if falls { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * factor).max(2.0);
        self.threshold = self.window;
        self.reduced = now;
    }
}
