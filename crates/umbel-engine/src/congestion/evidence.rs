//! What has to be seen for a while before it counts.
//!
//! A machine that does something else for 50 ms looks like a path that carries little: packets are
//! late, and what its socket does not hold is lost. It is over soon. A receiver therefore leaves
//! the pace only for trouble that lasts, and for what was delivered meanwhile.

use std::time::Duration;

use super::config::evidence::{
    CERTAIN_PACKETS, CERTAIN_REPORTS, CERTAIN_ROUNDS, CERTAIN_TIME, LONG, OVERRUN_LONG,
    OVERRUN_SHORT, SHORT,
};
use crate::Instant;

/// Trouble of a path: a queue that grows or stands, or loss beyond that at any rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// When it began, and was seen last.
    spell: Option<(Instant, Instant)>,
    /// Reports that tell of it.
    reports: u32,
    packets: f64,
}

/// What a path has delivered of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    bits: f64,
    sent_over: f64,
    arrived_over: f64,
}

/// Packets that arrived in a stretch of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) bits: f64,
    pub(super) sent_over: f64,
    pub(super) arrived_over: f64,
}

impl Trouble {
    /// Notes a report, and whether it tells of trouble. `rtt` is in seconds.
    pub(super) fn hear(&mut self, now: Instant, rtt: f64, packets: f64, is_trouble: bool) {
        let lasts = lasts(rtt);
        if self.spell.is_some_and(|(_, last)| now.since(last) > lasts) {
            *self = Trouble::default();
        }
        if is_trouble {
            let since = self.spell.map_or(now, |spell| spell.0);
            self.spell = Some((since, now));
            self.reports = self.reports.saturating_add(1);
        }
        if self.spell.is_some() {
            self.packets += packets;
        }
    }

    /// Returns whether it has lasted long enough to do without the receiver.
    pub(super) fn is_certain(&self, rtt: f64) -> bool {
        self.spell.is_some_and(|(since, last)| last.since(since) >= lasts(rtt))
            && self.reports >= CERTAIN_REPORTS
            && self.packets >= CERTAIN_PACKETS
    }
}

impl Delivered {
    /// Takes what arrived. `rtt` is in seconds.
    pub(super) fn hear(&mut self, rtt: f64, seen: &Delivery) {
        let time = seen.sent_over.max(seen.arrived_over);
        let kept = (1.0 - time / lasts(rtt).as_secs_f64()).max(0.0);
        let Delivery { bits, sent_over, arrived_over } = *seen;
        for (sum, new) in [
            (&mut self.bits, bits),
            (&mut self.sent_over, sent_over),
            (&mut self.arrived_over, arrived_over),
        ] {
            *sum = *sum * kept + new;
        }
    }

    /// Returns the rate in bits per second, if enough is known.
    pub(super) fn rate(&self, rtt: f64) -> Option<f64> {
        let time = self.sent_over.max(self.arrived_over);
        (time > lasts(rtt).as_secs_f64() / 3.0).then(|| self.bits / time)
    }
}

/// Returns how long trouble must last, and for how long none is seen until it is over.
fn lasts(rtt: f64) -> Duration {
    Duration::from_secs_f64((rtt * CERTAIN_ROUNDS).min(10.0)).max(CERTAIN_TIME)
}

/// Packets that a machine dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overruns {
    short: Share,
    long: Share,
}

/// The share of packets in the last seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    all: f64,
    dropped: f64,
    time: f64,
}

impl Overruns {
    /// Takes packets and those that were dropped, sent over so many seconds.
    pub(super) fn hear(&mut self, all: f64, dropped: f64, sent_over: f64) {
        self.short.add(all, dropped, sent_over, SHORT);
        self.long.add(all, dropped, sent_over, LONG);
    }

    /// Returns the share of packets that the machine drops, if that is more than it does while it is
    /// busy with something else for a moment.
    pub(super) fn excess(&self) -> Option<f64> {
        let short = self.short.known(SHORT / 3.0).filter(|&share| share > OVERRUN_SHORT);
        short.or_else(|| self.long.known(LONG / 2.0).filter(|&share| share > OVERRUN_LONG))
    }

    /// Begins anew, at another rate.
    pub(super) fn forget(&mut self) {
        *self = Overruns::default();
    }
}

impl Share {
    fn add(&mut self, all: f64, dropped: f64, time: f64, lasts: f64) {
        let kept = (1.0 - time / lasts).max(0.0);
        self.all = self.all * kept + all;
        self.dropped = self.dropped * kept + dropped;
        self.time = self.time * kept + time;
    }

    fn known(&self, time: f64) -> Option<f64> {
        (self.time >= time && self.all > 0.0).then(|| self.dropped / self.all)
    }
}
