//! A parent's side by itself: acknowledgements, NACKs, repairs.

use std::ops::Range;

use bytes::Bytes;
use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::{AckRun, BlockRun, NackRun, Need, Totals};

use super::super::config::HoldUp;
use super::*;
use crate::Allowance;
use crate::symbols::Load;

const T_ACK: Duration = Duration::from_millis(1100);

/// Blocks up to this number, each of so many symbols.
struct Shelf(u32, u8);

impl Stock for Shelf {
    fn held(&self, block: u32) -> Option<u8> {
        (block < self.0).then_some(self.1)
    }

    fn prefetch(&mut self, _: u32, _: Range<u32>) {}

    fn symbol(&mut self, block: u32, _: u32) -> Load {
        Load::Ready(Bytes::copy_from_slice(&block.to_be_bytes()))
    }
}

fn at(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

/// Creates a domain with the paper's timing, children 1 and 2, and blocks sent every 100 ms
/// from 0 on.
fn domain(blocks: u32) -> (Domain, Shelf) {
    let timing = TimingConfig::fixed(T_ACK, 3);
    let mut domain = Domain::new(Tsi(7), false, RepairConfig::default(), Ledger::new(timing), 0);
    domain.adopt(at(0), NodeId(1), 0, 0);
    domain.adopt(at(0), NodeId(2), 0, 0);
    for block in 0..blocks {
        domain.extend(at(u64::from(block) * 100), block + 1);
    }
    (domain, Shelf(blocks, 1))
}

/// Creates the acknowledgement of this number.
fn ack(round: u32, below: u32, beyond: &[(u32, u32)]) -> Ack {
    let run = |&(first, count)| AckRun { run: BlockRun { first, count }, lacks: 0 };
    Ack {
        token: 0,
        round,
        below,
        known: below,
        beyond: beyond.iter().map(run).collect(),
        received: 0,
        lost: 0,
        full: false,
        totals: Totals::default(),
        echo: None,
    }
}

fn nack(blocks: &[u32]) -> Nack {
    let run = |&first| NackRun { run: BlockRun { first, count: 1 }, need: Need::Whole };
    Nack { parent: NodeId(0), hop_limit: 1, runs: blocks.iter().map(run).collect() }
}

fn repaired(domain: &mut Domain, stock: &mut Shelf, now: Instant) -> Vec<u32> {
    let mut blocks = Vec::new();
    let mut buf = TransmitBuf::new(Allowance::data(4));
    while domain.fill(now, stock, &mut buf) == Filled::Packets {
        for (head, body) in buf.iter() {
            let packet = [head, body].concat();
            let packet = SmallBlockPacket::parse(&packet).unwrap();
            assert_eq!(packet.symbol, packet.header.sbn.to_be_bytes());
            assert_eq!(packet.header.transmission, 1);
            blocks.push(packet.header.sbn);
        }
        buf.reset(Allowance::data(4));
    }
    blocks
}

#[test]
fn at_t_retrans_all_unacknowledged_blocks_of_the_first_interval_are_sent_again() {
    let (mut domain, mut stock) = domain(33);
    domain.on_ack(at(2000), NodeId(1), &ack(0, 33, &[]), 33).unwrap();
    domain.on_ack(at(2000), NodeId(2), &ack(0, 2, &[(5, 3), (9, 20)]), 33).unwrap();
    domain.on_timeout(at(3299), &stock, false);
    assert_eq!(repaired(&mut domain, &mut stock, at(3299)), []);
    assert!(domain.may_send(at(3299)) && !domain.may_send(at(3300)));
    domain.on_timeout(at(3300), &stock, false);
    assert_eq!(repaired(&mut domain, &mut stock, at(3300)), [2, 3, 4, 8]);
    // The window advances by the interval when it is acknowledged.
    domain.on_ack(at(3400), NodeId(2), &ack(1, 11, &[]), 33).unwrap();
    assert_eq!((domain.acked_below(), domain.may_send(at(3400))), (11, true));
    assert_eq!((domain.load().acks, domain.load().timers), (3, 1));
    assert_eq!(domain.load().retransmissions, 4);
}

#[test]
fn a_nack_is_answered_at_once_and_only_for_what_may_be_lacking() {
    let (mut domain, mut stock) = domain(20);
    domain.on_ack(at(2000), NodeId(1), &ack(0, 4, &[]), 20).unwrap();
    let result = domain.on_nack(at(2000), NodeId(1), &nack(&[3, 5, 25]), &stock);
    assert_eq!(result, Err(Unfounded::NotLacking));
    assert_eq!(repaired(&mut domain, &mut stock, at(2000)), [5]);
    let result = domain.on_nack(at(2000), NodeId(2), &nack(&[30]), &stock);
    assert_eq!(result, Err(Unfounded::NeverSent));
    assert!(domain.on_nack(at(2000), NodeId(9), &nack(&[1]), &stock).is_err());
    assert_eq!(repaired(&mut domain, &mut stock, at(2000)), []);
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let (mut domain, _) = domain(5);
    let absurd = Err(Unfounded::NeverSent);
    assert_eq!(domain.on_ack(at(9), NodeId(1), &ack(0, 6, &[]), 5), absurd);
    assert_eq!(domain.on_ack(at(9), NodeId(1), &ack(0, 3, &[(4, 9)]), 5), absurd);
    let stranger = domain.on_ack(at(9), NodeId(3), &ack(0, 5, &[]), 5);
    assert_eq!((stranger, domain.acked_below()), (Err(Unfounded::Old), 0));
}

#[test]
fn a_child_that_holds_up_everyone_is_evicted_unless_it_lacks_nothing_that_is_here() {
    let (mut domain, _) = domain(5);
    let evict = |domain: &mut Domain, ms, stock: &Shelf| domain.on_timeout(at(ms), stock, false);
    // The parent itself has nothing.
    assert_eq!(evict(&mut domain, 40_000, &Shelf(0, 1)), []);
    domain.on_ack(at(50_000), NodeId(2), &ack(0, 5, &[]), 5).unwrap();
    assert_eq!(evict(&mut domain, 60_000, &Shelf(5, 1)), []);
    assert_eq!(evict(&mut domain, 71_000, &Shelf(5, 1)), [NodeId(1)]);
    assert_eq!(domain.acked_below(), 5);
    assert!(domain.may_send(at(71_000)));
}

#[test]
fn an_acknowledgement_that_a_later_one_overtook_takes_nothing_back() {
    let (mut domain, _) = domain(9);
    domain.remove(NodeId(2));
    domain.on_ack(at(20), NodeId(1), &ack(u32::MAX, 3, &[]), 9).unwrap();
    domain.on_ack(at(30), NodeId(1), &ack(1, 7, &[]), 9).unwrap();
    for late in [0, 1, u32::MAX] {
        let taken = domain.on_ack(at(40), NodeId(1), &ack(late, 5, &[]), 9);
        assert_eq!((taken, domain.acked_below()), (Err(Unfounded::Old), 7));
    }
}

#[test]
fn without_children_all_is_acknowledged() {
    let (mut domain, _) = domain(5);
    domain.remove(NodeId(1));
    domain.remove(NodeId(2));
    domain.extend(at(1000), 9);
    assert_eq!((domain.acked_below(), domain.end()), (9, 9));
    assert!(domain.may_send(at(99_999)) && domain.next_timeout().is_none());
}

#[test]
fn in_an_open_feed_a_child_that_never_answers_gets_a_symbol_at_a_time() {
    for (fec, open) in [(false, true), (true, true), (true, false)] {
        let ledger = Ledger::new(TimingConfig::default());
        let hold_up = open.then(HoldUp::default);
        let repair = RepairConfig { hold_up, ..RepairConfig::default() };
        let mut domain = Domain::new(Tsi(7), fec, repair, ledger, 0);
        let mut stock = Shelf(10, 8);
        domain.adopt(at(0), NodeId(1), 0, 0);
        domain.adopt(at(0), NodeId(2), 0, 0);
        (0..10).for_each(|block| domain.extend(at(u64::from(block) * 20), block + 1));
        let mut repairs = Vec::new();
        for round in 0..100 {
            let now = at(200 + 50 * u64::from(round));
            domain.on_ack(now, NodeId(1), &ack(round, 10, &[]), 10).unwrap();
            domain.on_timeout(now, &stock, false);
            repairs.extend(repaired(&mut domain, &mut stock, now));
        }
        // T_retrans falls from 300 to 150 ms, in 5 s. In an open feed the child counts no longer
        // when the budget is spent, and is owed nothing then.
        let times = if open { 1..36 } else { 8 * 16..8 * 36 };
        assert!(times.contains(&repairs.len()), "{fec} {open} {}", repairs.len());
        assert!(repairs.iter().all(|&block| block == 0));
    }
}

#[test]
fn t_ack_follows_the_round_trip_and_the_number_of_children() {
    let repair = RepairConfig::default();
    let mut domain = Domain::new(Tsi(7), false, repair, Ledger::new(TimingConfig::default()), 0);
    domain.adopt(at(0), NodeId(0), 0, 0);
    let echo = Echo { stamp_ns: 1_000_000_000, held: Duration::from_millis(100) };
    let measured = Ack { echo: Some(echo), ..ack(0, 0, &[]) };
    domain.on_ack(at(1300), NodeId(0), &measured, 0).unwrap();
    domain.on_timeout(at(1300), &Shelf(0, 1), false);
    assert_eq!(domain.timing().rtt, Duration::from_millis(200));
    assert_eq!(domain.timing().t_ack, Duration::from_millis(400));
    for id in 1..1000 {
        domain.adopt(at(1400), NodeId(id), 0, 0);
    }
    domain.on_timeout(at(3000), &Shelf(0, 1), false);
    assert_eq!(domain.timing().t_ack, Duration::from_secs(1));
}
