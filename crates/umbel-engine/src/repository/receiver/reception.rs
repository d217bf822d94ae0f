//! Reports of how the packets of the data channel arrive.

use umbel_wire::reception::{ChannelStamp, ReceptionReport, ReportSchedule};

use crate::Instant;
use crate::chance::Generator;
use crate::congestion::{Meter, Reporter};

/// Measures the reception of the data channel while it is joined, and decides when to report.
#[derive(Debug)]
pub(super) struct Reception {
    meter: Meter,
    reporter: Reporter,
    /// Whether the server asks for reports.
    asked: bool,
}

impl Reception {
    pub(super) fn new(random: Generator) -> Reception {
        Reception { meter: Meter::default(), reporter: Reporter::new(random), asked: false }
    }

    /// Reports as the server says.
    pub(super) fn follow(&mut self, schedule: ReportSchedule) {
        self.asked = true;
        self.reporter.set_schedule(schedule);
    }

    /// Forgets what was measured, since the channel is left.
    pub(super) fn stop(&mut self) {
        self.meter = Meter::default();
    }

    /// Counts a packet of `len` bytes.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, stamp: ChannelStamp, len: usize) {
        if self.asked {
            self.meter.on_packet(now, stamp, len, false);
        }
    }

    /// Counts packets that the machine dropped.
    pub(super) fn on_overrun(&mut self, packets: u32) {
        if self.asked {
            self.meter.on_overrun(packets);
        }
    }

    /// Counts the last packet as dropped, because there was no room for its symbol.
    pub(super) fn on_no_room(&mut self) {
        if self.asked {
            self.meter.on_no_room();
        }
    }

    /// Returns the time of the next report.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        if self.asked { self.reporter.next(&self.meter) } else { None }
    }

    /// Returns a report if one is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<ReceptionReport> {
        self.reporter.poll(now, &mut self.meter)
    }
}
