//! Many receivers, whose acknowledgements come at once and overflow the queue before the source.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::{Flags, Head, Seq};

use super::network::{Network, PORT, Way, content};
use crate::chance::generator;
use crate::smo::*;
use crate::testing::channel;
use crate::testing::world::Bottleneck;
use crate::units::Rate;
use crate::{Address, Datagram, Engine, Instant, TransmitBuf};

const MINUTE: Duration = Duration::from_mins(1);
const LEN: usize = 300_000;

/// Returns a network of so many receivers after they were sent [`LEN`] bytes, and the time that it
/// took. `room` is that of the queue before the source, which takes in an acknowledgement in 3 µs.
/// Those of a segment come within a third of the time that they take.
fn transfer(receivers: usize, room: usize, is_paced: bool) -> (Network, Duration) {
    let mut network = Network::new(1, |_| {});
    network.expect_faults();
    network.is_paced = is_paced;
    for n in 0..receivers as u64 {
        let delay = Duration::from_micros(500 + n);
        network.add(Way { delay, ..Way::clean(0) }, |_| {});
    }
    network.connect_all();
    network.run_until(MINUTE, |network| network.source.len() == receivers);
    let per_ack = Rate::from_bits_per_s(20 * 8 * 333_333).unwrap();
    network.host(0).bottleneck = Some(Bottleneck::new(per_ack, room));
    let begin = network.now;
    let bytes = content(LEN);
    network.send_all(bytes.clone());
    network.run_until(10 * MINUTE, |network| {
        network.receivers.iter().all(|node| node.got.len() == LEN)
    });
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    let took = network.now.since(begin);
    (network, took)
}

#[test]
fn a_crowd_whose_acknowledgements_are_lost_has_no_time_outs() {
    for is_paced in [false, true] {
        let (network, took) = transfer(1_000, 256, is_paced);
        let (stats, left) = (network.source.stats(), network.left);
        let dropped = network.network.hosts[0].bottleneck.as_ref().unwrap().dropped;
        println!("{took:?}, {left} bytes left, {dropped} ACKs dropped, {stats:?}");
        assert!(dropped > 10_000, "{dropped}");
        assert_eq!((stats.timeouts, network.removed()), (0, Vec::new()), "{stats:?}");
        // Nothing of the stream was lost. Questions and acknowledgements are in it, too.
        assert!(left < 2 * LEN as u64 + 30 * stats.control, "{left}: {stats:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

/// A client of a source, of which only numbers are kept.
fn open(source: &mut Source, now: Instant, peer: SocketAddr) -> Option<ChildId> {
    let mut say = |flags, seq, ack| {
        let head = Head {
            source_port: peer.port(),
            destination_port: PORT,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: 0,
            ..Head::default()
        };
        let mut payload = Vec::new();
        head.emit(&mut payload);
        let by = Address::Host(peer);
        source.handle_datagram(now, Datagram { by, hop_limit: None, payload: &payload });
        let mut buffer = TransmitBuf::default();
        let _ = (0..64).find(|_| source.poll_transmit(now, &mut buffer).is_none());
    };
    say(Flags::SYN, 0, 0);
    say(Flags::ACK, 1, 0);
    source.children().find(|child| child.peer == peer).map(|child| child.child)
}

fn asked(children: usize) -> Source {
    let mut config = SourceConfig::new(PORT, channel());
    (config.base, config.join, config.children) = (Some(0), Join::Asked, children);
    Source::new(config, generator(0))
}

#[test]
fn a_host_with_all_connections_gives_them_up_for_other_hosts() {
    let (mut source, now) = (asked(100), Instant::from_nanos(1));
    let peer = |host, port| SocketAddr::from(([10, 0, 0, host], port));
    let greedy: Vec<_> =
        (0..1_000).filter_map(|n| open(&mut source, now, peer(1, n + 1))).collect();
    assert_eq!(greedy.len(), 100, "they are its own while nobody else wants any");
    let mut others = 0;
    for host in 2..32 {
        others += usize::from(open(&mut source, now, peer(host, 1)).is_some());
    }
    assert_eq!((others, source.len()), (30, 100));
    let mut removed = Vec::new();
    while let Some(event) = source.poll_event() {
        if let SourceEvent::Removed { child, reason, .. } = event {
            assert_eq!(reason, CloseReason::Crowded);
            removed.push(child);
        }
    }
    assert_eq!(removed, greedy[..30], "those that asked longest ago");
    assert_eq!(open(&mut source, now, peer(1, 5_000)), None);
}

#[test]
fn a_host_that_reads_nothing_holds_a_share_of_the_memory() {
    let (mut source, now) = (asked(10_000), Instant::from_nanos(1));
    let peer = |host, port| SocketAddr::from(([10, 0, 0, host], port));
    let held = |source: &mut Source, peer| {
        let child = open(source, now, peer).unwrap();
        let piece = content(32 << 10);
        let write = || SourceCommand::Write { to: Stream::Child(child), bytes: piece.clone() };
        let mut held = 0;
        while source.handle_command(now, write()).is_ok() {
            held += piece.len();
        }
        held
    };
    let most = source.config().alone;
    let first = held(&mut source, peer(1, 1));
    assert_eq!(first, source.config().buffer, "alone it has a whole buffer");
    let deaf: usize = first + (1..400).map(|n| held(&mut source, peer(1, n + 1))).sum::<usize>();
    assert!(deaf > most / 5 && deaf < most / 4 + 400 * (96 << 10), "{deaf}");
    // Others find what they would have found without it.
    for host in 2..5 {
        assert_eq!(held(&mut source, peer(host, 1)), source.config().buffer);
    }
}
