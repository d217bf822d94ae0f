//! When the source had nothing to send.
//!
//! A report covers the time from the last packet of the report before. If the source paused in it,
//! for want of answers or of content, that is no time in which packets were sent: what a path
//! carried in a burst after a pause of a second would seem to be what it carries in a second.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::reception::ReceptionReport;

use crate::Instant;

/// Pauses that are remembered; reports of packets before them are on their way no more.
const KEPT: usize = 32;
/// Shortest pause. Shorter ones are the delays of machines, after which what was due is sent at once.
const LEAST: Duration = Duration::from_millis(20);
/// Time that is left of a report's: so short a time of sending proves nothing.
const LEFT: Duration = Duration::from_micros(10);

/// The pauses of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// Number of the first packet after each, and how long it lasted.
    kept: VecDeque<(u32, Duration)>,
    /// Time at which the next packet was due.
    due: Option<Instant>,
}

impl Pauses {
    /// Notes that packets leave from the number `first` on. The next is due after `until_next`.
    pub(super) fn on_sent(&mut self, now: Instant, first: u32, until_next: Duration) {
        let pause = self.due.map_or(Duration::ZERO, |due| now.since(due));
        if pause >= LEAST {
            self.kept.push_back((first, pause));
            if self.kept.len() > KEPT {
                self.kept.pop_front();
            }
        }
        self.due = Some(now + until_next);
    }

    /// Takes the pauses out of the times of a report. Returns whether they were most of it.
    pub(super) fn take_out(&self, report: &mut ReceptionReport) -> bool {
        let all = report.received.saturating_add(report.lost);
        let before = report.newest.number.wrapping_sub(all);
        let within =
            |&&(first, _): &&(u32, Duration)| (1..=all).contains(&first.wrapping_sub(before));
        let paused: Duration = self.kept.iter().filter(within).map(|&(_, lasted)| lasted).sum();
        if !paused.is_zero() {
            report.sent_over = report.sent_over.saturating_sub(paused).max(LEFT);
            report.arrived_over = report.arrived_over.saturating_sub(paused).max(LEFT);
        }
        paused > report.sent_over
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::reception::ChannelStamp;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn report(newest: u32, all: u32) -> ReceptionReport {
        ReceptionReport {
            newest: ChannelStamp::new(newest, 0, 0),
            received: all,
            sent_over: ms(1_100),
            arrived_over: ms(1_150),
            ..ReceptionReport::default()
        }
    }

    #[test]
    fn a_pause_is_no_time_of_sending() {
        let mut pauses = Pauses::default();
        let at = |millis| Instant::EPOCH + ms(millis);
        let start = u32::MAX - 4;
        pauses.on_sent(at(0), start, ms(10));
        pauses.on_sent(at(25), start.wrapping_add(5), ms(10));
        pauses.on_sent(at(1_035), start.wrapping_add(10), ms(10));
        // Packets 5 to 9 left before the pause, 10 and those after it when it was over.
        for (newest, all, sent_over) in [(9, 5, 1_100), (10, 1, 100), (12, 8, 100), (14, 4, 1_100)]
        {
            let mut report = report(start.wrapping_add(newest), all);
            pauses.take_out(&mut report);
            assert_eq!(report.sent_over, ms(sent_over), "{newest} {all}");
            assert_eq!(report.arrived_over, ms(sent_over + 50), "{newest} {all}");
        }
    }

    #[test]
    fn something_is_left_of_the_time_and_old_pauses_are_forgotten() {
        let mut pauses = Pauses::default();
        for number in 0..100 {
            pauses.on_sent(Instant::EPOCH + ms(2_000) * number, number, ms(10));
        }
        assert_eq!(pauses.kept.len(), KEPT);
        let mut report = report(99, 1);
        assert!(pauses.take_out(&mut report));
        assert_eq!((report.sent_over, report.arrived_over), (LEFT, LEFT));
    }
}
