//! Packets without numbers among those of the channel.
//!
//! Repairs for the source's own children go to these alone and have no numbers, since whoever does
//! not hear them would take them for lost. They share the paths with the data all the same. So
//! congestion control sees a row of all packets, and what is reported of the numbered ones stands
//! for those between them. To a path that only the numbered ones take, the rate is then what the
//! whole row may have so that they pass.

use std::collections::VecDeque;

use umbel_wire::reception::{ChannelStamp, ReceptionReport};

/// Most places in the row that are remembered: some seconds of repairs at a gigabit.
const MOST_MARKS: usize = 4_096;

/// Places of numbered packets in the row of all.
#[derive(Debug, Default)]
pub(super) struct Row {
    marks: VecDeque<Mark>,
    /// Packets without a number before the first mark.
    before: u32,
    /// All packets without a number.
    unnumbered: u32,
}

/// Place where packets without a number were sent.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Number of the next packet that had one.
    next: u32,
    /// Packets without a number before it.
    unnumbered: u32,
}

impl Row {
    /// Notes that packets without a number leave before the packet of the number `next`.
    pub(super) fn on_unnumbered(&mut self, next: u32, packets: usize) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.unnumbered = self.unnumbered.wrapping_add(packets);
        let unnumbered = self.unnumbered;
        match self.marks.back_mut() {
            Some(last) if last.next == next => last.unnumbered = unnumbered,
            _ => self.marks.push_back(Mark { next, unnumbered }),
        }
        if self.marks.len() > MOST_MARKS {
            self.before = self.marks.pop_front().map_or(0, |mark| mark.unnumbered);
        }
    }

    /// Returns the place of the packet of this number.
    pub(super) fn place(&self, number: u32) -> u32 {
        number.wrapping_add(self.before(number))
    }

    /// Returns the packets without a number before the one of this number.
    fn before(&self, number: u32) -> u32 {
        let is_before = |mark: &Mark| number.wrapping_sub(mark.next).cast_signed() >= 0;
        let after = self.marks.partition_point(is_before);
        after.checked_sub(1).map_or(self.before, |last| self.marks[last].unnumbered)
    }

    /// Returns a report on numbered packets as one on the row.
    pub(super) fn of_row(&self, report: &ReceptionReport) -> ReceptionReport {
        let newest = report.newest;
        let numbered = report.received.saturating_add(report.lost);
        let first = newest.number.wrapping_sub(numbered);
        let between = self.before(newest.number).wrapping_sub(self.before(first));
        let newest = ChannelStamp { number: self.place(newest.number), ..newest };
        let all = numbered.saturating_add(between);
        let scaled = |count: u32| {
            let count = u64::from(count) * u64::from(all) / u64::from(numbered.max(1));
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let lost = scaled(report.lost);
        ReceptionReport {
            newest,
            lost,
            received: all - lost,
            tails: scaled(report.tails),
            gaps: scaled(report.gaps),
            overrun: scaled(report.overrun),
            marked: scaled(report.marked),
            ..*report
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(newest: u32, received: u32, lost: u32) -> ReceptionReport {
        let newest = ChannelStamp { number: newest, ..ChannelStamp::default() };
        ReceptionReport { newest, received, lost, gaps: lost, ..ReceptionReport::default() }
    }

    #[test]
    fn without_packets_between_them_a_report_is_as_it_was() {
        let mut row = Row::default();
        row.on_unnumbered(10, 5);
        assert_eq!(row.place(9), 9);
        assert_eq!(row.place(10), 15);
        let told = row.of_row(&report(30, 15, 5));
        assert_eq!((told.newest.number, told.received, told.lost), (35, 15, 5));
    }

    #[test]
    fn what_lay_between_them_arrived_and_was_lost_like_the_rest() {
        let mut row = Row::default();
        row.on_unnumbered(u32::MAX - 4, 4);
        row.on_unnumbered(3, 6);
        // Of 20 packets half were lost, and ten others lay between them.
        let told = row.of_row(&report(10, 10, 10));
        assert_eq!((told.newest.number, told.received, told.lost, told.gaps), (20, 15, 15, 15));
    }

    proptest! {
        /// Whatever a receiver says, and whatever is forgotten, counts add up.
        #[test]
        fn a_report_of_the_row_is_one_of_as_many_packets_as_its_places_say(
            bursts in prop::collection::vec((0..50u32, 1..40usize), 0..6_000),
            newest in any::<u32>(),
            received in 0..5_000u32,
            lost in 0..5_000u32,
        ) {
            let (mut row, mut next) = (Row::default(), 0);
            for (numbered, packets) in bursts {
                next += numbered;
                row.on_unnumbered(next, packets);
            }
            let newest = newest % (next + 10);
            let told = row.of_row(&report(newest, received, lost));
            let first = row.place(newest.wrapping_sub(received + lost));
            prop_assert_eq!(told.newest.number.wrapping_sub(first), told.received + told.lost);
            prop_assert!(told.lost >= lost && told.received >= received);
            prop_assert!(row.marks.len() <= MOST_MARKS);
        }
    }
}
