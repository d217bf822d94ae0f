//! SRM over blocks: any member that has a block may repair it, and the first one does.
//!
//! ```text
//!              request heard                        own repair sent
//!   held ─────────────────────▶ waits              ───────────────────▶ held down for 3·d:
//!    ▲                          [D1·d, (D1 + D2)·d] enough repairs heard requests are ignored
//!    └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! d is the distance to the member that asks [SRM, loss recovery]. SRM's session messages measure
//! it between all pairs. Here a member measures its distance to the source, and takes as much of it
//! as the request's hops are of the source's. Requests are TMTP's NACKs, which are timed by
//! `receiver/recovery.rs` by SRM's rules. They wait a random time that grows with the distance to
//! the source, and back off when another member asks for as much.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::tmtp::EsiSet;

use super::distance::Distance;
use super::reception::Lack;
use super::repairs::Repairs;
use super::{Debts, Filled, Stock, Unfounded};
use crate::chance::{Generator, uniform};
use crate::{Instant, TransmitBuf};

/// D1 and D2, for groups of some dozens: the logarithm of the members [SRM, loss recovery].
const D1: f64 = 1.0;
const D2: f64 = 2.0;
/// Distances for which requests for a block are ignored after its repair.
const HOLD_DOWN: f64 = 3.0;
/// Shortest distance that is believed: nodes are busy.
const LEAST_AWAY: Duration = Duration::from_millis(1);

/// Returns the distance of a member that is this number of hops away. `rtt` is the round trip to
/// another node, which is `of` hops from here.
pub(crate) fn away(rtt: Duration, hops: Option<u8>, of: Option<u8>) -> Duration {
    let share = match (hops, of) {
        (Some(hops), Some(of)) => f64::from(hops) / f64::from(of.max(1)),
        _ => 1.0,
    };
    (rtt / 2).mul_f64(share.clamp(0.05, 4.0)).max(LEAST_AWAY)
}

/// A block that another member lacks, while this one waits whether a third one answers.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Instant,
    away: Duration,
    lack: Lack,
    /// Symbols that others sent meanwhile.
    heard: EsiSet,
}

/// A member that repairs what nobody nearer does.
#[derive(Debug)]
pub(crate) struct Volunteer {
    feed: Tsi,
    random: Generator,
    pub(crate) distance: Distance,
    waiting: BTreeMap<u32, Waiting>,
    /// Blocks that were repaired, and until when requests for them are ignored.
    held_down: BTreeMap<u32, Instant>,
    repairs: Repairs,
    most: usize,
    sent: u32,
}

impl Volunteer {
    /// Creates a member that owes nothing. At most `most` blocks wait. With FEC each member sends
    /// other fresh symbols than the rest, most times.
    pub(crate) fn new(
        feed: Tsi,
        source: SocketAddr,
        (fec, most): (bool, usize),
        random: Generator,
    ) -> Volunteer {
        let mut scatter = random.clone();
        scatter.jump();
        let mut pings = scatter.clone();
        pings.jump();
        Volunteer {
            feed,
            random,
            distance: Distance::new(feed, source, pings),
            waiting: BTreeMap::new(),
            held_down: BTreeMap::new(),
            repairs: Repairs::new(fec, most).scattered(scatter),
            most,
            sent: 0,
        }
    }

    /// Returns the number of repairs sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.into()
    }

    /// Notes that a block is complete here, so that all of it can be sent.
    pub(crate) fn on_held(&mut self, block: u32, k: u8) {
        self.repairs.on_held(block, k);
    }

    /// Notes a repair of another member, which all hear.
    pub(crate) fn on_repair(&mut self, now: Instant, block: u32, esi: u32) {
        let Some(waiting) = self.waiting.get_mut(&block) else { return };
        waiting.heard.insert(esi);
        let enough = match waiting.lack {
            Lack::Exact(missing) => missing.minus(waiting.heard).is_empty(),
            Lack::Count(count) => waiting.heard.len() >= count.into(),
            // Others answer, and the member that asks will say what it still lacks.
            Lack::Whole => true,
        };
        if enough {
            let until = now + waiting.away.mul_f64(HOLD_DOWN);
            self.waiting.remove(&block);
            self.hold_down(block, until);
        }
    }

    fn hold_down(&mut self, block: u32, until: Instant) {
        if self.held_down.len() >= self.most {
            self.held_down.pop_first();
        }
        self.held_down.insert(block, until);
    }

    /// Returns when there is something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.values().map(|waiting| waiting.at).min();
        [waiting, self.distance.next()].into_iter().flatten().min()
    }

    /// Answers for those that nobody has answered in time.
    pub(crate) fn on_timeout(&mut self, now: Instant, stock: &impl Stock) {
        let due: Vec<u32> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.at <= now)
            .map(|(&block, _)| block)
            .collect();
        for block in due {
            let Some(waiting) = self.waiting.remove(&block) else { continue };
            let hold_down = waiting.away.mul_f64(HOLD_DOWN);
            self.repairs.ask(now, block, waiting.lack, stock.held(block), hold_down);
            self.hold_down(block, now + hold_down);
        }
    }
}

impl Debts for Volunteer {
    /// The distance of the member that asks.
    type Asker = Duration;

    fn ask(
        &mut self,
        now: Instant,
        away: &Duration,
        block: u32,
        lack: Lack,
        stock: &impl Stock,
    ) -> Result<(), Unfounded> {
        if stock.held(block).is_none() {
            return Err(Unfounded::NotLacking);
        }
        if self.held_down.get(&block).is_some_and(|&until| now < until) {
            return Err(Unfounded::Old);
        }
        if let Some(waiting) = self.waiting.get_mut(&block) {
            waiting.lack = waiting.lack.or(lack);
            return Ok(());
        }
        if self.waiting.len() >= self.most {
            return Err(Unfounded::TooMany);
        }
        let delay = away.mul_f64(D1 + D2 * uniform(&mut self.random));
        let (away, heard) = (*away, EsiSet::default());
        self.waiting.insert(block, Waiting { at: now + delay, away, lack, heard });
        Ok(())
    }

    fn any_due(&self) -> bool {
        self.repairs.any_due()
    }

    fn fill(&mut self, now: Instant, stock: &mut impl Stock, buf: &mut TransmitBuf) -> Filled {
        let hold_down = LEAST_AWAY;
        self.repairs.fill((now, hold_down), (self.feed, &mut self.sent), None, stock, buf)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use bytes::Bytes;

    use super::*;
    use crate::Allowance;
    use crate::chance::generator;
    use crate::symbols::Load;

    /// Blocks 0 to 9, of four symbols.
    struct Blocks;

    impl Stock for Blocks {
        fn held(&self, block: u32) -> Option<u8> {
            (block < 10).then_some(4)
        }

        fn prefetch(&mut self, _: u32, _: Range<u32>) {}

        fn symbol(&mut self, _: u32, _: u32) -> Load {
            Load::Ready(Bytes::from_static(b"symbol"))
        }
    }

    /// All blocks, of one symbol.
    struct All;

    impl Stock for All {
        fn held(&self, _: u32) -> Option<u8> {
            Some(1)
        }

        fn prefetch(&mut self, _: u32, _: Range<u32>) {}

        fn symbol(&mut self, _: u32, _: u32) -> Load {
            Load::Ready(Bytes::new())
        }
    }

    const AWAY: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn volunteer(fec: bool) -> Volunteer {
        let source = ([10, 0, 0, 1], 7702).into();
        Volunteer::new(Tsi(1), source, (fec, 100), generator(5))
    }

    /// Returns the number of packets that leave by this time.
    fn sent(volunteer: &mut Volunteer, ms: u64) -> usize {
        volunteer.on_timeout(at(ms), &Blocks);
        let mut buf = TransmitBuf::new(Allowance::data(100));
        volunteer.fill(at(ms), &mut Blocks, &mut buf);
        buf.len()
    }

    #[test]
    fn what_nobody_else_repairs_is_repaired_after_one_to_three_distances() {
        let mut volunteer = volunteer(true);
        volunteer.ask(at(0), &AWAY, 3, Lack::Count(2), &Blocks).unwrap();
        volunteer.ask(at(0), &AWAY, 3, Lack::Count(1), &Blocks).unwrap();
        assert_eq!(
            volunteer.ask(at(0), &AWAY, 30, Lack::Whole, &Blocks),
            Err(Unfounded::NotLacking)
        );
        let due = volunteer.next_timeout().unwrap();
        assert!(due >= at(10) && due <= at(30), "{due:?}");
        assert_eq!((sent(&mut volunteer, 9), sent(&mut volunteer, 30)), (0, 2));
        // The same request may have crossed the repair.
        assert_eq!(volunteer.ask(at(50), &AWAY, 3, Lack::Whole, &Blocks), Err(Unfounded::Old));
        volunteer.ask(at(70), &AWAY, 3, Lack::Count(1), &Blocks).unwrap();
    }

    #[test]
    fn enough_repairs_of_others_spare_ones_own() {
        let mut volunteer = volunteer(true);
        volunteer.ask(at(0), &AWAY, 3, Lack::Count(2), &Blocks).unwrap();
        volunteer.on_repair(at(1), 3, 77);
        volunteer.on_repair(at(1), 3, 77);
        assert!(volunteer.next_timeout().is_some(), "one symbol is not enough");
        volunteer.on_repair(at(2), 3, 78);
        assert_eq!((volunteer.next_timeout(), sent(&mut volunteer, 99)), (None, 0));
        assert_eq!(volunteer.ask(at(9), &AWAY, 3, Lack::Whole, &Blocks), Err(Unfounded::Old));
    }

    #[test]
    fn without_fec_exactly_what_lacks_is_repaired() {
        let mut volunteer = volunteer(false);
        let lack = |symbols: &[u32]| Lack::Exact(symbols.iter().copied().collect());
        volunteer.ask(at(0), &AWAY, 3, lack(&[0, 2]), &Blocks).unwrap();
        volunteer.on_repair(at(1), 3, 1);
        volunteer.on_repair(at(1), 3, 2);
        assert_eq!(sent(&mut volunteer, 30), 2);
    }

    #[test]
    fn who_is_nearer_by_hops_is_nearer_by_time() {
        let rtt = Duration::from_millis(80);
        assert_eq!(away(rtt, Some(1), Some(4)), AWAY);
        assert_eq!(away(rtt, None, Some(4)), AWAY * 4);
        assert!(away(rtt, Some(255), Some(0)) <= rtt * 2);
    }

    #[test]
    fn memory_is_bounded() {
        let mut volunteer = volunteer(true);
        for block in 0..1000 {
            let _ = volunteer.ask(at(0), &AWAY, block, Lack::Whole, &All);
        }
        assert_eq!(volunteer.waiting.len(), 100);
        volunteer.on_timeout(at(99), &All);
        assert!(volunteer.held_down.len() <= 100);
    }
}
