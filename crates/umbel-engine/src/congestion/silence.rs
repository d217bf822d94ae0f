//! What happens to the rate while nobody reports, or nothing is sent.
//!
//! Without reports the rate halves again and again, down to a packet a round trip, and then ever
//! more slowly [RFC 8085 §3.1]. Half of what was carried before comes back with the first report.
//! While the application pauses, the rate halves, too, since nothing is known any more of what the
//! paths carry [RFC 7661].

use std::time::Duration;

use crate::Instant;

/// Longest time between two packets in silence, as long as it has not lasted long.
const LISTEN_EVERY: f64 = 0.1;
/// Pause of the application, beside four round trips, after which the rate halves.
const IDLE: Duration = Duration::from_secs(1);
/// Longest time until the rate halves again.
const LONGEST: Duration = Duration::from_mins(1);

/// Watches over reports and packets.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    first_rtt: Duration,
    /// Time of the first packet since the last report, and of the last packet.
    asked: Option<Instant>,
    sent: Option<Instant>,
    /// Time after which the rate falls unless a report comes, and how long was waited for it.
    due: Option<Instant>,
    waits: Duration,
    /// Rate before the silence.
    before: Option<f64>,
    /// Whether nothing is sent.
    idle: bool,
}

impl Silence {
    /// `rtt` is the round trip that is assumed until one is known.
    pub(super) fn new(rtt: Duration) -> Silence {
        Silence {
            first_rtt: rtt,
            asked: None,
            sent: None,
            due: None,
            waits: Duration::ZERO,
            before: None,
            idle: false,
        }
    }

    pub(super) fn first_rtt(&self) -> Duration {
        self.first_rtt
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn is_silent(&self) -> bool {
        self.before.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    pub(super) fn on_sent(&mut self, now: Instant, patience: Duration) {
        self.sent = Some(now);
        self.idle = false;
        if self.asked.is_none() {
            self.asked = Some(now);
            self.waits = patience;
            self.due = Some(now + patience);
        }
    }

    /// Notes a report. Returns whether a silence is over.
    pub(super) fn hear(&mut self) -> bool {
        self.asked = None;
        if !self.idle {
            self.due = self.sent.map(|at| at + IDLE);
        }
        self.before.is_some()
    }

    /// Returns the rate before the silence, which is over.
    pub(super) fn take_before(&mut self) -> Option<f64> {
        self.before.take()
    }

    /// Returns the rate that is allowed from now on, if it falls. `packet` is the rate of a packet
    /// a second, `first` the rate with which a channel begins, `rtt` the round trip in seconds;
    /// whether the source `waits` for the first report.
    pub(super) fn on_timeout(
        &mut self,
        now: Instant,
        rate: f64,
        packet: f64,
        first: f64,
        rtt: f64,
        waits: bool,
    ) -> Option<f64> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let pause = self.sent.map_or(Duration::ZERO, |at| now.since(at));
        let gap = Duration::from_secs_f64(packet / rate.max(1.0));
        if self.asked.is_none() || !waits && pause > self.waits / 2 + gap {
            return self.on_idle(now, rate, first, rtt);
        }
        let floor = packet / rtt.max(LISTEN_EVERY);
        if self.before.is_none() {
            self.before = Some(rate);
        } else if rate < floor * 1.01 {
            self.waits = (self.waits * 2).min(LONGEST);
        }
        let rate = if rate > floor { (rate / 2.0).max(floor) } else { rate / 2.0 };
        self.due = Some(now + self.waits);
        Some(rate)
    }

    fn on_idle(&mut self, now: Instant, rate: f64, first: f64, rtt: f64) -> Option<f64> {
        let period = IDLE + Duration::from_secs_f64((4.0 * rtt).min(10.0));
        let pause = self.sent.map_or(Duration::ZERO, |at| now.since(at));
        if pause < period {
            self.due = self.sent.map(|at| at + period);
            return None;
        }
        self.asked = None;
        self.idle = true;
        if rate <= first {
            self.due = None;
            return None;
        }
        self.due = Some(now + period);
        Some((rate / 2.0).max(first))
    }
}
