//! Reports to the source of how the packets of the data channel arrive.

use std::time::Duration;

use rand_core::Rng;
use umbel_wire::reception::{ChannelStamp, ReportSchedule};
use umbel_wire::tmtp::Body;

use crate::Instant;
use crate::chance::Generator;
use crate::congestion::{Meter, Reporter};
use crate::tmtp::drops::DropReason;

/// Time after which a receiver without a cookie reports again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Measures the reception of the data channel, and decides when to report.
#[derive(Debug)]
pub(super) struct Measure {
    meter: Meter,
    reporter: Reporter,
    /// Number that the source's words to this receiver return.
    nonce: u64,
    /// Time of the last report without a cookie.
    asked: Option<Instant>,
}

impl Measure {
    pub(super) fn new(mut random: Generator) -> Measure {
        let nonce = random.next_u64();
        Measure { meter: Meter::default(), reporter: Reporter::new(random), nonce, asked: None }
    }

    /// Counts a packet of `len` bytes.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, stamp: ChannelStamp, len: usize) {
        self.meter.on_packet(now, stamp, len, false);
    }

    /// Counts packets that the machine dropped.
    pub(super) fn on_overrun(&mut self, packets: u32) {
        self.meter.on_overrun(packets);
    }

    /// Counts the last packet as dropped, because there was no room for its symbol.
    pub(super) fn on_no_room(&mut self) {
        self.meter.on_no_room();
    }

    /// Reports as the source says.
    ///
    /// # Errors
    ///
    /// If whoever says it does not know the nonce.
    pub(super) fn follow(
        &mut self,
        nonce: u64,
        schedule: ReportSchedule,
    ) -> Result<(), DropReason> {
        if nonce != self.nonce {
            return Err(DropReason::NotAsked);
        }
        self.reporter.set_schedule(schedule);
        Ok(())
    }

    /// Returns the time of the next report. `cookie` is this receiver's, or 0.
    pub(super) fn next(&self, cookie: u64) -> Option<Instant> {
        let at = self.reporter.next(&self.meter)?;
        let asked = self.asked.filter(|_| cookie == 0);
        Some(asked.map_or(at, |asked| at.max(asked + ASK_AGAIN)))
    }

    /// Returns a report if one is due.
    pub(super) fn poll(&mut self, now: Instant, cookie: u64) -> Option<Body> {
        if cookie == 0 && self.asked.is_some_and(|asked| now < asked + ASK_AGAIN) {
            return None;
        }
        let report = self.reporter.poll(now, &mut self.meter)?;
        self.asked = Some(now);
        Some(Body::Reception { nonce: self.nonce, cookie, report })
    }
}
