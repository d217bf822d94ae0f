//! Decides at a receiver when to report.

use std::time::Duration;

use umbel_wire::reception::{ReceptionReport, ReportSchedule};

use super::config::reporter::{LEAST_JUDGED, TROUBLE_LOSS, TROUBLE_OVERRUN, TROUBLE_QUEUE};
use super::meter::Meter;
use crate::Instant;
use crate::chance::{Generator, uniform};

/// Says when a receiver reports what its [`Meter`] measured: by the schedule that its source gave it,
/// and soon after trouble begins.
///
/// Trouble is a queue, or more loss than there was. It is reported after a random part of the
/// schedule's spread, if it is still there: where many receivers are behind the same queue, the
/// first of them tells, and the source slows down before the others do.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    schedule: ReportSchedule,
    /// Time of the last report.
    reported: Instant,
    /// Time at which trouble is reported, if it is still there.
    urgent: Option<Instant>,
    /// Share of packets that was lost in the reports so far, smoothed.
    loss: f64,
    random: Generator,
}

impl Reporter {
    /// Creates a reporter that follows [`ReportSchedule::START`] until it is told another schedule.
    pub(crate) fn new(random: Generator) -> Reporter {
        Reporter {
            schedule: ReportSchedule::START,
            reported: Instant::EPOCH,
            urgent: None,
            loss: 0.0,
            random,
        }
    }

    /// Follows another schedule.
    pub(crate) fn set_schedule(&mut self, schedule: ReportSchedule) {
        self.schedule = schedule;
    }

    /// Returns the time at which [`poll`](Reporter::poll) is worth a call. To be asked after each
    /// packet or batch of packets.
    pub(crate) fn next(&self, meter: &Meter) -> Option<Instant> {
        if meter.received() == 0 {
            return None;
        }
        let enough = meter.received() >= self.schedule.packets;
        let wait = if enough { self.schedule.every } else { self.schedule.latest };
        let due = self.reported + wait.min(self.schedule.latest);
        Some(self.urgent.map_or(due, |urgent| urgent.min(due)))
    }

    /// Returns a report if one is due.
    pub(crate) fn poll(&mut self, now: Instant, meter: &mut Meter) -> Option<ReceptionReport> {
        if self.is_seldom() {
            self.watch(now, meter);
        }
        if self.next(meter).is_none_or(|at| at > now) {
            return None;
        }
        let report = meter.report(now)?;
        self.reported = now;
        self.urgent = None;
        let all = f64::from(report.received) + f64::from(report.lost);
        let share = f64::from(report.lost) / all.max(1.0);
        self.loss += (share - self.loss) * (all / (all + LEAST_JUDGED));
        Some(report)
    }

    /// Returns whether trouble would have to wait for long.
    fn is_seldom(&self) -> bool {
        self.schedule.latest > Duration::from_secs(1)
    }

    /// Looks for trouble.
    fn watch(&mut self, now: Instant, meter: &Meter) {
        let in_trouble = self.is_in_trouble(meter);
        if self.urgent.is_some_and(|at| at <= now) && !in_trouble {
            // Another one has told.
            self.urgent = None;
        }
        if in_trouble && self.urgent.is_none() {
            let wait = self.schedule.spread.as_secs_f64() * uniform(&mut self.random);
            self.urgent = Some(now + Duration::from_secs_f64(wait));
        }
    }

    fn is_in_trouble(&self, meter: &Meter) -> bool {
        let seen = meter.seen();
        let all = f64::from(seen.received) + f64::from(seen.lost);
        let judged = all >= LEAST_JUDGED;
        let loss = f64::from(seen.lost) / all.max(1.0);
        let overrun = f64::from(seen.overrun) / all.max(1.0);
        // A queue that goes away is a probe's.
        let queue = seen.queue_least.as_secs_f64();
        judged
            && (queue > TROUBLE_QUEUE
                || loss > self.loss + TROUBLE_LOSS
                || overrun > TROUBLE_OVERRUN)
    }
}
