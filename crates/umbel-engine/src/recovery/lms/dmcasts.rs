//! Repairs by DMCAST: what a source or a replier owes to turning points.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::{Channel, Tsi};

use super::{Points, unit};
use crate::bucket::{Limit, Limiter};
use crate::lms::late::{IgnorePeriods, LateRequests, Place};
use crate::lms::replier::{Repair, RepairTo};
use crate::recovery::reception::Lack;
use crate::recovery::{Debts, Filled, Stock, Unfounded, head_of};
use crate::symbols::Load;
use crate::tmtp::Purpose;
use crate::{Address, Instant, RateClass, TransmitBuf};

/// Most symbols that wait to be sent.
const MOST_DUE: usize = 8192;
/// Most repairs a second, and at once.
const REPAIRS: Limit = Limit { per_s: 50_000, burst: 4_000 };
/// Replies that are remembered, to tell late requests [LMS §III-A].
const REMEMBERED: usize = 16_384;
/// Time after a reply or an overheard repair in which first requests are late. A requestor may be
/// much farther from the source than this node.
const IGNORE_FIRST: Duration = Duration::from_secs(1);

/// A symbol that is owed.
#[derive(Clone, Copy, Debug)]
struct Due {
    block: u32,
    esi: u32,
    number: u8,
    to: RepairTo,
}

/// Requestor: the address for the answer, and the number of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requestor {
    pub(crate) to: RepairTo,
    pub(crate) number: u8,
}

/// The repairs that a node owes, symbol by symbol.
#[derive(Debug)]
pub(crate) struct Dmcasts {
    channel: Channel,
    feed: Tsi,
    late: LateRequests,
    limiter: Limiter,
    pub(crate) points: Points,
    due: VecDeque<Due>,
    /// Entries of the queue, so that nothing waits twice.
    queued: BTreeSet<(u64, Place)>,
    /// Round trip to the source: the time in which requests cross a reply.
    rtt: Duration,
    sent: u64,
}

impl Dmcasts {
    /// Creates a node's part, with a secret for its cookies.
    pub(crate) fn new(channel: Channel, feed: Tsi, secret: [u8; 32]) -> Dmcasts {
        Dmcasts {
            channel,
            feed,
            late: LateRequests::new(REMEMBERED),
            limiter: Limiter::new(REPAIRS),
            points: Points::new(feed, secret),
            due: VecDeque::new(),
            queued: BTreeSet::new(),
            rtt: Duration::from_millis(20),
            sent: 0,
        }
    }

    /// Sets the round trip to the source.
    pub(crate) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// Returns the number of repairs sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Notes an overheard repair, which all neighbours have heard too.
    pub(crate) fn on_heard(&mut self, now: Instant, block: u32, esi: u32) {
        self.late.on_reply(now, unit(block, esi), Place::Everyone);
    }

    fn owe(&mut self, now: Instant, due: Due, k: u8) -> Result<(), Unfounded> {
        let Due { block, esi, number, to } = due;
        let (unit, place) = (unit(block, esi), to.place());
        let ignore = IgnorePeriods { any: self.rtt, first: IGNORE_FIRST };
        if self.queued.contains(&(unit, place))
            || self.late.is_late(now, unit, place, number, ignore)
        {
            return Err(Unfounded::Old);
        }
        if self.due.len() >= MOST_DUE || !self.limiter.take(now) {
            return Err(Unfounded::TooMany);
        }
        if let RepairTo::Subtree(point) = to
            && !self.points.take(point.router, block, k)
        {
            return Err(Unfounded::TooMany);
        }
        self.queued.insert((unit, place));
        self.due.push_back(due);
        Ok(())
    }

    /// Removes the first of what waits.
    fn pop(&mut self) {
        if let Some(due) = self.due.pop_front() {
            self.queued.remove(&(unit(due.block, due.esi), due.to.place()));
        }
    }

    /// Returns the repair with a symbol.
    fn repair(&self, due: &Due, k: u8, symbol: &Bytes) -> Repair {
        let Due { block, esi, number, to } = *due;
        let head = head_of(self.feed, (Purpose::Repair, 0), (block, k, esi));
        let mut packet = Vec::with_capacity(SmallBlockHeader::LEN + symbol.len());
        packet.extend_from_slice(&head);
        packet.extend_from_slice(symbol);
        Repair { sequence: unit(block, esi), number, to, payload: packet.into() }
    }
}

impl Debts for Dmcasts {
    type Asker = Requestor;

    fn ask(
        &mut self,
        now: Instant,
        asker: &Requestor,
        block: u32,
        lack: Lack,
        stock: &impl Stock,
    ) -> Result<(), Unfounded> {
        let Requestor { to, number } = *asker;
        let symbols: Vec<u32> = match lack {
            Lack::Exact(missing) => missing.iter().collect(),
            Lack::Whole => (0..u32::from(stock.held(block).unwrap_or(0))).collect(),
            Lack::Count(count) => (0..u32::from(count)).collect(),
        };
        let mut result = Err(Unfounded::NotLacking);
        for esi in symbols {
            let owed = match stock.has(block, esi).filter(|k| esi < u32::from(*k)) {
                Some(k) => self.owe(now, Due { block, esi, number, to }, k),
                None => Err(Unfounded::NotLacking),
            };
            result = result.or(owed);
        }
        result
    }

    fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    fn fill(&mut self, now: Instant, stock: &mut impl Stock, buf: &mut TransmitBuf) -> Filled {
        let mut to = None;
        while buf.has_room(RateClass::Data) {
            let Some(due) = self.due.front().copied() else { break };
            let Some(k) = stock.has(due.block, due.esi) else {
                self.pop();
                continue;
            };
            let symbol = match stock.symbol(due.block, due.esi) {
                Load::Ready(symbol) => symbol,
                Load::Pending if buf.is_empty() => return Filled::Pending,
                Load::Pending => break,
                Load::Gone(_) => {
                    self.pop();
                    continue;
                }
            };
            let (address, message) = self.repair(&due, k, &symbol).build(self.channel, self.feed);
            let Address::Host(host) = address else {
                self.pop();
                continue;
            };
            if to.is_some_and(|to| to != host) || !buf.admits(message.len()) {
                break;
            }
            buf.push_message(message);
            to = Some(host);
            self.sent += 1;
            self.late.on_reply(now, unit(due.block, due.esi), due.to.place());
            self.pop();
        }
        to.map_or(Filled::Nothing, Filled::PacketsTo)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use umbel_wire::Parsed;
    use umbel_wire::lms::{Message, TurningPoint, limits};
    use umbel_wire::small_block::SmallBlockPacket;

    use super::*;
    use crate::Allowance;

    /// Blocks of four symbols: 0 to 9 completely, 10 only its symbol 2.
    struct Blocks;

    impl Stock for Blocks {
        fn held(&self, block: u32) -> Option<u8> {
            (block < 10 || block == u32::MAX).then_some(4)
        }

        fn has(&self, block: u32, esi: u32) -> Option<u8> {
            if (block, esi) == (10, 2) { Some(4) } else { self.held(block) }
        }

        fn prefetch(&mut self, _: u32, _: Range<u32>) {}

        fn symbol(&mut self, _: u32, esi: u32) -> Load {
            Load::Ready(vec![esi as u8; 1000].into())
        }
    }

    fn channel() -> Channel {
        Channel {
            source: Some("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap()),
            group: "ff35::8111:2222".parse().unwrap(),
            port: 65535,
        }
    }

    fn place(interface: u32) -> RepairTo {
        let router = "[2001:db8:1111:2222:3333:4444:5555:7777]:65535".parse().unwrap();
        RepairTo::Subtree(TurningPoint { router, interface, tag: u64::MAX })
    }

    fn exact(symbols: &[u32]) -> Lack {
        Lack::Exact(symbols.iter().copied().collect())
    }

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn dmcasts() -> Dmcasts {
        let mut dmcasts = Dmcasts::new(channel(), Tsi(u32::MAX), [3; 32]);
        let RepairTo::Subtree(point) = place(1) else { panic!("a subtree") };
        dmcasts.points.know(point.router);
        dmcasts
    }

    fn ask(dmcasts: &mut Dmcasts, ms: u64, block: u32, lack: Lack, number: u8) -> bool {
        let asker = Requestor { to: place(1), number };
        dmcasts.ask(at(ms), &asker, block, lack, &Blocks).is_ok()
    }

    /// Returns the blocks and symbols in the datagrams that are due, and their lengths.
    fn drain(dmcasts: &mut Dmcasts) -> Vec<(u32, u8, usize)> {
        let mut sent = Vec::new();
        let mut buf = TransmitBuf::new(Allowance::data(3));
        while let Filled::PacketsTo(_) = dmcasts.fill(at(0), &mut Blocks, &mut buf) {
            for message in buf.messages() {
                let Parsed::Message { message: parsed, .. } = Message::parse(&message).unwrap()
                else {
                    panic!("a message of LMS");
                };
                let Message::Dmcast { repair, .. } = parsed else { panic!("{parsed:?}") };
                let repair = Message::parse(repair).unwrap().message().unwrap();
                let Message::Repair { payload, .. } = repair else { panic!("{repair:?}") };
                let packet = SmallBlockPacket::parse(payload).unwrap();
                sent.push((packet.header.sbn, packet.header.esi, message.len()));
            }
            buf.reset(Allowance::data(3));
        }
        sent
    }

    fn names(sent: &[(u32, u8, usize)]) -> Vec<(u32, u8)> {
        sent.iter().map(|&(block, esi, _)| (block, esi)).collect()
    }

    #[test]
    fn what_is_held_is_sent_to_the_turning_point() {
        let mut dmcasts = dmcasts();
        assert!(ask(&mut dmcasts, 0, 3, exact(&[1, 2]), 1));
        assert!(ask(&mut dmcasts, 0, 10, exact(&[1, 2]), 1), "a part of it");
        assert!(!ask(&mut dmcasts, 0, 11, exact(&[1]), 1));
        assert!(!ask(&mut dmcasts, 0, 3, exact(&[4, 200]), 1), "it has no such symbol");
        assert!(ask(&mut dmcasts, 0, 4, Lack::Whole, 1));
        let all = [(3, 1), (3, 2), (10, 2), (4, 0), (4, 1), (4, 2), (4, 3)];
        assert_eq!(names(&drain(&mut dmcasts)), all);
        assert_eq!(dmcasts.sent(), 7);
    }

    #[test]
    fn requests_that_crossed_the_answer_are_ignored() {
        let mut dmcasts = dmcasts();
        dmcasts.set_rtt(Duration::from_millis(50));
        assert!(ask(&mut dmcasts, 0, 3, exact(&[1]), 1));
        assert!(!ask(&mut dmcasts, 0, 3, exact(&[1]), 2), "it waits for the pacer");
        assert_eq!(names(&drain(&mut dmcasts)), [(3, 1)]);
        assert!(!ask(&mut dmcasts, 40, 3, exact(&[1]), 2));
        assert!(ask(&mut dmcasts, 60, 3, exact(&[1]), 2), "the answer was lost");
        dmcasts.on_heard(at(100), 5, 0);
        assert!(!ask(&mut dmcasts, 300, 5, exact(&[0]), 1));
        assert_eq!(names(&drain(&mut dmcasts)), [(3, 1)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut dmcasts = dmcasts();
        for n in 0..100_000_u32 {
            let asker = Requestor { to: place(n), number: 1 };
            let _ = dmcasts.ask(at(0), &asker, 3, Lack::Whole, &Blocks);
        }
        assert!(dmcasts.due.len() <= MOST_DUE);
    }

    #[test]
    fn a_repair_in_its_envelope_fits_where_symbols_are_shorter_by_what_is_around_it() {
        let mut dmcasts = dmcasts();
        assert!(ask(&mut dmcasts, 0, u32::MAX, exact(&[3]), u8::MAX));
        let sent = drain(&mut dmcasts);
        let around = sent[0].2 - (SmallBlockHeader::LEN + 1000);
        // The rest of the MTU carries the headers of IPv6 and UDP.
        assert!(around <= limits::AROUND_PACKET + 100 - 48, "{around} bytes");
    }
}
