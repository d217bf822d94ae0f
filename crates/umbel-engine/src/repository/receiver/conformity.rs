//! Whether packets fit what the server has announced.
//!
//! In a repository that is open, somebody else may send symbols with the server's address. One who
//! repeats no symbol's number contradicts nothing that is held. But it has to claim a place for
//! each packet: a transmission, and a number in it. The server announces its transmissions on the
//! session, sends one after the other, and numbers the packets of each from 0. So a forged packet
//!
//! - is of an announced transmission of another item, other blocks or fewer packets; or
//! - has the number of a genuine one, which comes before or after it; or
//! - is far ahead of the others; or
//! - is of a transmission that comes later, so that the genuine packets fall behind; or
//! - is of one that is over.
//!
//! Symbols of packets that do not fit are kept. Their item becomes [suspect](super::suspicion), and
//! their digests tell whether they are right. So an honest network that looks like this, now and
//! then, costs some digests.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::Toi;
use umbel_wire::repository::Announcement;

use crate::Instant;
use crate::seal::Window;

/// Most announcements that are remembered. What belongs to an earlier one counts as not announced.
const MOST: usize = 32;
/// Words of the windows of numbers seen: the last 1,024 packets of a transmission.
const WORDS: usize = 17;
/// Packets lost in a row beyond which a repair symbol is out of place.
const GAP: u32 = 128;
/// Longest time for which reordering holds up a packet after the first of the next transmission,
/// and most packets at the end of a transmission that may be held up.
const REORDERING: (Duration, u32) = (Duration::from_millis(50), 64);
/// Most transmissions whose beginnings are remembered, and for how long at least.
const BEGINNINGS: (usize, Duration) = (64, Duration::from_secs(1));

/// An announced transmission.
#[derive(Debug)]
struct Plan {
    toi: Toi,
    blocks: Range<u32>,
    packets: u32,
    /// Numbers of packets heard, once there are any.
    numbers: Option<Window>,
    highest: Option<u32>,
}

/// Place that a packet claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) toi: Toi,
    pub(super) sbn: u32,
    pub(super) transmission: u32,
    pub(super) index: u32,
    pub(super) is_repair: bool,
}

/// What the server has announced in a session, and which of it came.
#[derive(Debug, Default)]
pub(super) struct Conformity {
    /// Announced transmissions by their numbers, the oldest first. The one whose packets come is
    /// among the last, so it is found from the end.
    plans: VecDeque<(u32, Plan)>,
    /// Transmissions by the time at which their first packets came, as far as they came in order.
    /// None is later than one behind it.
    begun: VecDeque<(u32, Instant)>,
}

impl Conformity {
    /// Notes an announced transmission of an item that is wanted.
    pub(super) fn announce(&mut self, announcement: &Announcement) {
        let Announcement { transmission, toi, first_block, blocks, packets, .. } = *announcement;
        let plan = Plan {
            toi,
            blocks: first_block..first_block.saturating_add(blocks),
            packets,
            numbers: None,
            highest: None,
        };
        if self.plan(transmission).is_some() {
            return;
        }
        if self.plans.len() == MOST {
            self.plans.pop_front();
        }
        self.plans.push_back((transmission, plan));
    }

    fn plan(&mut self, transmission: u32) -> Option<&mut Plan> {
        let mut plans = self.plans.iter_mut().rev();
        plans.find(|(number, _)| *number == transmission).map(|(_, plan)| plan)
    }

    /// Notes a packet. Returns whether it is where the server's could be.
    pub(super) fn fits(&mut self, now: Instant, claim: Claim) -> bool {
        // Either may be forged: the packet, or what it seems to come after.
        self.is_in_order(now, claim) & self.is_planned(claim)
    }

    fn is_in_order(&mut self, now: Instant, claim: Claim) -> bool {
        let Claim { transmission, index, .. } = claim;
        let is_last = self.begun.back().is_some_and(|(number, _)| *number == transmission);
        if !is_last
            && let Some(&(_, since)) = self.begun.iter().find(|(n, _)| is_later(*n, transmission))
        {
            // A client that comes late has not heard of those before.
            let left = self.plan(transmission).map_or(0, |plan| plan.packets.saturating_sub(index));
            let (time, tail) = REORDERING;
            let in_order = now.since(since) < time && left <= tail;
            if !in_order {
                self.begun.clear();
            }
            return in_order;
        }
        let (most, time) = BEGINNINGS;
        while self.begun.front().is_some_and(|(_, at)| now.since(*at) > time) {
            self.begun.pop_front();
        }
        // If it is the last, it may have been forgotten just now.
        if (!is_last || self.begun.is_empty()) && self.begun.len() < most {
            self.begun.push_back((transmission, now));
        }
        true
    }

    fn is_planned(&mut self, Claim { toi, sbn, transmission, index, is_repair }: Claim) -> bool {
        let Some(plan) = self.plan(transmission) else { return true };
        if toi != plan.toi || !plan.blocks.contains(&sbn) || index >= plan.packets {
            return false;
        }
        let highest = plan.highest.unwrap_or(index);
        plan.highest = Some(highest.max(index));
        let numbers = plan.numbers.get_or_insert_with(|| Window::new(WORDS));
        if !numbers.is_fresh(index) {
            return false;
        }
        numbers.note(index);
        !is_repair || index <= highest.saturating_add(GAP)
    }

    /// Forgets the session.
    pub(super) fn reset(&mut self) {
        *self = Conformity::default();
    }
}

/// Returns whether a transmission has a later number than another. Numbers wrap.
fn is_later(number: u32, than: u32) -> bool {
    number != than && number.wrapping_sub(than) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOI: Toi = Toi(3);

    fn announcement(transmission: u32) -> Announcement {
        Announcement {
            transmission,
            toi: TOI,
            channel: 0,
            first_block: 2,
            blocks: 10,
            packets: 2_000,
        }
    }

    fn conformity() -> Conformity {
        let mut conformity = Conformity::default();
        for number in [7, 8] {
            conformity.announce(&announcement(number));
        }
        conformity
    }

    fn source(transmission: u32, index: u32) -> Claim {
        Claim { toi: TOI, sbn: 2 + index % 10, transmission, index, is_repair: false }
    }

    fn repair(transmission: u32, index: u32) -> Claim {
        Claim { is_repair: true, ..source(transmission, index) }
    }

    /// Hears a packet that comes at its time, one each millisecond.
    fn fits(conformity: &mut Conformity, claim: Claim) -> bool {
        let now = Instant::EPOCH + Duration::from_millis(claim.index.into());
        conformity.fits(now, claim)
    }

    #[test]
    fn what_the_server_sends_fits_through_loss_and_some_reordering() {
        let mut conformity = conformity();
        // Neighbours change places, one of seven is lost, and a thousand in a row.
        let arrivals = (0..2_000).map(|index| index ^ 1);
        for index in arrivals.filter(|index| index % 7 != 3 && !(500..1_500).contains(index)) {
            assert!(fits(&mut conformity, source(7, index)), "{index}");
        }
        let mut later =
            |ms, claim| conformity.fits(Instant::EPOCH + Duration::from_millis(ms), claim);
        for index in 0..20 {
            assert!(later(2_000 + u64::from(index), repair(8, index)), "{index}");
        }
        // The last one comes after the first of the next, and what follows is not announced yet.
        assert!(later(2_030, source(7, 1_970)) && later(2_030, repair(9, 0)));
    }

    #[test]
    fn what_contradicts_an_announcement_does_not_fit() {
        let fits = |claim: Claim| fits(&mut conformity(), claim);
        assert!(fits(source(7, 5)));
        assert!(!fits(source(7, 2_000)));
        assert!(!fits(Claim { sbn: 12, ..source(7, 5) }));
        assert!(!fits(Claim { toi: Toi(4), ..source(7, 5) }));
    }

    #[test]
    fn of_two_packets_with_one_number_the_second_does_not_fit() {
        let mut conformity = conformity();
        (0..50).for_each(|index| assert!(fits(&mut conformity, source(7, index))));
        assert!(!fits(&mut conformity, repair(7, 49)));
        assert!(fits(&mut conformity, repair(7, 60)));
        assert!((50..60).all(|index| fits(&mut conformity, source(7, index))));
        assert!(!fits(&mut conformity, source(7, 60)), "the genuine one comes after the forged");
        assert!(!fits(&mut conformity, repair(7, 300)), "far ahead");
    }

    #[test]
    fn genuine_packets_that_fall_behind_forged_ones_do_not_fit() {
        for forged in [8, 500, u32::MAX] {
            let mut conformity = conformity();
            let misfits = (0..100).filter(|&index| {
                let genuine = fits(&mut conformity, source(7, index));
                let number = if forged == 500 { forged + index } else { forged };
                !(fits(&mut conformity, repair(number, index)) && genuine)
            });
            let misfits = misfits.take(1).last();
            assert!(misfits.is_some_and(|index| index < 80), "{forged}: {misfits:?}");
        }
    }

    #[test]
    fn ten_times_as_many_announcements_are_forgotten() {
        let mut conformity = Conformity::default();
        (0..10 * MOST as u32).for_each(|number| conformity.announce(&announcement(number)));
        assert_eq!(conformity.plans.len(), MOST);
        conformity.reset();
        assert!(conformity.plans.is_empty() && conformity.begun.is_empty());
    }
}
