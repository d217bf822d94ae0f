//! The acknowledgements of a member, and the counts of packets that they carry.

use umbel_wire::tmtp::{Ack, Echo, Totals, limits};

use super::upstream::Upstream;
use super::wariness::Wariness;
use crate::Instant;
use crate::recovery::reception::Reception;

/// Most acknowledgements in a T_ack.
const EARLY_ACKS: u32 = 4;
/// After this number of packets an acknowledgement may leave before T_ack is over.
const MUCH: u32 = 2048;
/// A greater gap in the numbers of packets was no loss: the source began anew, or this receiver was
/// away.
const GREATEST_LOSS: u32 = 1 << 20;

/// Numbers of the packets that come. A number that is left out was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// One beyond the last.
    next: Option<u32>,
}

impl Numbers {
    /// Notes the number of a packet. Returns how many before it are found to be lost; -1 if the
    /// packet comes late, and was counted as lost.
    fn note(&mut self, number: u32) -> i32 {
        let ahead = self.next.map_or(0, |next| number.wrapping_sub(next));
        if ahead > u32::MAX - GREATEST_LOSS {
            return -1;
        }
        self.next = Some(number.wrapping_add(1));
        if ahead < GREATEST_LOSS { ahead.cast_signed() } else { 0 }
    }
}

/// Packets of the data channel since the last acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    received: u32,
    lost: u32,
}

/// The acknowledgements of a member, and the packets that the next one counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acks {
    round: u32,
    /// Time of the last acknowledgement.
    sent_at: Instant,
    heard: Heard,
    /// Numbers of first sendings.
    first: Numbers,
    /// Numbers of repairs by the data channel, while the source is the parent.
    repairs: Numbers,
}

impl Acks {
    /// Starts at round 0.
    pub(super) fn new() -> Acks {
        Acks {
            round: 0,
            sent_at: Instant::EPOCH,
            heard: Heard::default(),
            first: Numbers::default(),
            repairs: Numbers::default(),
        }
    }

    /// Notes a first sending. Returns how many before it are found to be lost; -1 if it was counted
    /// as lost itself.
    pub(super) fn on_first(&mut self, number: u32) -> i32 {
        let lost = self.first.note(number);
        self.note(lost);
        lost
    }

    /// Notes a repair by the data channel.
    pub(super) fn on_repair(&mut self, number: u32) {
        let lost = self.repairs.note(number);
        self.note(lost);
    }

    fn note(&mut self, lost: i32) {
        self.heard.received = self.heard.received.saturating_add(1);
        self.heard.lost = self.heard.lost.saturating_add_signed(lost);
    }

    /// Forgets the numbers of repairs, which belong to one parent.
    pub(super) fn on_detached(&mut self) {
        self.repairs = Numbers::default();
    }

    /// Returns whether there is much to tell before T_ack is over.
    pub(super) fn is_much(&self) -> bool {
        self.heard.received.saturating_add(self.heard.lost) >= MUCH
    }

    /// Schedules an acknowledgement before T_ack is over. The paper does not.
    pub(super) fn hurry(&self, now: Instant, upstream: &mut Upstream) {
        let soonest = self.sent_at + upstream.timing().t_ack / EARLY_ACKS;
        upstream.ack_by(soonest.max(now));
    }

    /// Builds the acknowledgement that is due every T_ack.
    pub(super) fn build(
        &mut self,
        now: Instant,
        upstream: &mut Upstream,
        token: u64,
        (reception, wariness): (&Reception, &mut Wariness),
        full: bool,
        totals: Totals,
    ) -> Ack {
        let from = upstream.from();
        let known = reception.known().max(from);
        let unsure = wariness.first_unsure(now).map_or(u32::MAX, |unsure| unsure.max(from));
        let below = reception.first_gap(from).min(known).min(unsure);
        let mut beyond = reception.held_from(below, limits::ACK_RUNS);
        beyond.retain_mut(|run| {
            run.run.count = run.run.end().min(known).saturating_sub(run.run.first);
            run.run.first < known && run.run.count > 0
        });
        let beyond = wariness.mark(beyond, limits::ACK_RUNS);
        let echo = upstream.on_ack_sent(now);
        self.sent_at = now;
        let round = self.round;
        self.round = round.wrapping_add(1);
        let Heard { received, lost } = std::mem::take(&mut self.heard);
        Ack {
            token,
            round,
            below,
            known,
            beyond,
            received,
            lost,
            full,
            totals,
            echo: echo.map(|(stamp_ns, at)| Echo { stamp_ns, held: now.since(at) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_left_out_is_lost_until_it_comes_late() {
        let mut acks = Acks::new();
        let lost: Vec<i32> = [7, 8, 11, 9, 12].map(|number| acks.on_first(number)).into();
        assert_eq!(lost, [0, 0, 2, -1, 0]);
        assert_eq!((acks.heard.received, acks.heard.lost), (5, 1));
        assert_eq!(acks.on_first(12 + (2 << 20)), 0, "the source began anew");
        assert_eq!(acks.on_first(0), 0, "and again");
        assert_eq!(acks.on_first(u32::MAX), -1, "numbers wrap");
    }
}
