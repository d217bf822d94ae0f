//! Properties that hold for any seed. `UMBEL_SEEDS=1000` runs more of them, `UMBEL_SEED=7` runs
//! one.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::tcp::{Flags, Head, Options, Seq};

use super::network::{Network, PORT, Way, content};
use crate::chance::{Generator, generator, uniform};
use crate::smo::receiver::{self, ReceiverCommand, ReceiverEvent};
use crate::smo::*;
use crate::testing::{events, seeds, sent};
use crate::{Address, Datagram, Engine, Instant};

const MINUTE: Duration = Duration::from_mins(1);

fn below(random: &mut Generator, n: u64) -> u64 {
    random.next_u64() % n
}

/// Returns a network whose conditions are drawn.
fn any_network(seed: u64, random: &mut Generator) -> Network {
    let mut network = Network::new(seed, |config| {
        if below(random, 2) == 0 {
            config.base = Some(u32::MAX - below(random, 60_000) as u32);
        }
        if below(random, 3) == 0 {
            config.congestion = Congestion::Cubic;
        }
        config.skip_every = [0, 1, 8, 256][below(random, 4) as usize];
        config.buffer = 20_000 << below(random, 6);
        config.threshold = [0.0, 0.05, 0.5, 2.0][below(random, 4) as usize];
        config.removal.stall = Duration::from_mins(10);
        // A client that says nothing never learns that its last ACK was lost each time.
        config.syn_ack_transmissions = 20;
        config.receive_buffer = [u16::MAX, 3000][below(random, 2) as usize];
        // Of another generator, so that the rest stays as it was.
        let other = &mut generator(!seed);
        config.acks_per_window = NonZeroU32::new([0, 8, 32][below(other, 3) as usize]);
        config.frame = [1, 16, 44][below(other, 3) as usize];
    });
    network.expect_faults();
    network.network.subnet_loss.insert(1, uniform(random) * 0.03);
    for _ in 0..=below(random, 6) {
        let loss = |random: &mut Generator| [0.0, 0.01, 0.1][below(random, 3) as usize];
        let way = Way {
            delay: Duration::from_millis(1 + below(random, 60)),
            jitter: Duration::from_millis([0, 0, 3, 30][below(random, 4) as usize]),
            loss: (loss(random), loss(random)),
            duplicates: [0.0, 0.05][below(random, 2) as usize],
        };
        network.add(way, |config| {
            config.sack = below(random, 4) > 0;
            config.ack_every = 1 + below(random, 4) as u8;
            config.buffer = 5_000 << below(random, 8);
            config.transmissions = 30;
            match below(random, 8) {
                0 => config.channel = None,
                1 => config.mss = 500,
                2 => config.window_scale = None,
                _ => {}
            }
        });
    }
    network
}

#[test]
fn everyone_receives_every_byte_in_both_directions_and_every_connection_ends() {
    for seed in seeds(60) {
        let random = &mut generator(seed);
        let mut network = any_network(seed, random);
        let nodes = network.receivers.len();
        network.connect_all();
        let connected = |event: &SourceEvent| matches!(event, SourceEvent::Connected { .. });
        network.run_until(5 * MINUTE, |network| network.count(connected) == nodes);
        let len = 1000 + below(random, 100_000) as usize;
        let bytes = content(len);
        let back = content(below(random, 20_000) as usize);
        network.send_all(bytes.clone());
        for node in 0..nodes {
            network.tell(node, ReceiverCommand::Send(back.clone()));
            if below(random, 2) == 0 {
                network.tell(node, ReceiverCommand::Finish);
            }
        }
        let has_all =
            |network: &mut Network| network.receivers.iter().all(|node| node.got.len() == len);
        network.run_until(20 * MINUTE, has_all);
        assert!(network.receivers.iter().all(|node| node.got == bytes));
        for node in 0..nodes {
            // Some have finished.
            let command = ReceiverCommand::Finish;
            let _ = network.receivers[node].receiver.handle_command(network.now, command);
            network.drain(node + 1);
        }
        let is_over = |network: &mut Network| network.source.is_empty();
        network.run_until(20 * MINUTE, is_over);
        for (child, received) in &network.received {
            assert!(*received == back, "{child:?} {}", received.len());
        }
        assert!(back.is_empty() || network.received.len() == nodes);
        let drained = SourceEvent::Drained { master: MasterId::FIRST };
        assert_eq!(network.count(|event| *event == drained), 1);
        for node in &network.receivers {
            assert!(node.has(&ReceiverEvent::ReceivedEnd));
        }
        assert_eq!((network.beyond_window, network.beyond_permission), (0, 0));
    }
}

/// Sends bytes to each connection alone, and returns whether all have them in time.
fn send_alone(network: &mut Network, bytes: &bytes::Bytes) {
    let children: Vec<ChildId> = network.source.children().map(|child| child.child).collect();
    for child in children {
        let to = Stream::Child(child);
        network.command(SourceCommand::Write { to, bytes: bytes.clone() });
        network.command(SourceCommand::Finish { to });
    }
    network.run_until(20 * MINUTE, |network| {
        network.receivers.iter().all(|node| node.got.len() == bytes.len())
    });
}

#[test]
fn no_honest_receiver_that_is_served_alone_is_taken_for_an_optimist() {
    let mut filled = 0;
    for seed in seeds(60) {
        let random = &mut generator(seed);
        let mut network = Network::new(seed, |config| {
            config.join = Join::Asked;
            config.skip_every = 1 + below(random, 10) as u32;
            config.removal.stall = Duration::from_mins(10);
            config.syn_ack_transmissions = 20;
        });
        network.expect_faults();
        for _ in 0..=below(random, 6) {
            let way = Way {
                delay: Duration::from_millis(1 + below(random, 60)),
                jitter: Duration::from_millis([0, 3, 30][below(random, 3) as usize]),
                loss: (uniform(random) * 0.1, uniform(random) * 0.1),
                duplicates: uniform(random) * 0.2,
            };
            network.add(way, |config| {
                config.sack = below(random, 3) > 0;
                config.ack_every = 1 + below(random, 4) as u8;
                config.buffer = 2_500 << below(random, 8);
                config.transmissions = 30;
            });
        }
        network.connect_all();
        let nodes = network.receivers.len();
        network.run_until(5 * MINUTE, |network| network.source.len() == nodes);
        let bytes = content(1000 + below(random, 200_000) as usize);
        send_alone(&mut network, &bytes);
        assert!(network.receivers.iter().all(|node| node.got == bytes), "seed {seed}");
        assert_eq!(network.removed(), [], "seed {seed}");
        filled += network.source.left_out();
    }
    assert!(filled > 60, "{filled} segments were left out");
}

#[test]
fn leaving_out_segments_costs_an_honest_receiver_little() {
    let time = |skip_every| {
        let mut network = Network::new(1, |config| {
            (config.join, config.skip_every) = (Join::Asked, skip_every);
        });
        network.add(Way::clean(20), |_| {});
        network.expect_faults();
        network.connect_all();
        network.run_for(Duration::from_millis(200));
        let begin = network.now;
        send_alone(&mut network, &content(3_000_000));
        assert_eq!(network.source.stats().loss_events, 0);
        assert!(network.needless < 3, "{} segments were known", network.needless);
        network.now.since(begin)
    };
    let (without, with) = (time(0), time(256));
    println!("{without:?} without, {with:?} with");
    assert!(with < without * 11 / 10, "{without:?} without, {with:?} with");
}

/// Returns the segments that left to a client that acknowledges all that was sent, and whether it
/// was removed.
fn outwit(seed: u64, join: Join) -> (u64, bool) {
    let mut channel = crate::testing::channel();
    channel.port = PORT;
    let config =
        SourceConfig { mss: 1000, join, base: Some(0), ..SourceConfig::new(PORT, channel) };
    let mut source = Source::new(config, generator(seed));
    let mut now = Instant::from_nanos(1_000_000_000);
    let by = Address::Host(([10, 0, 0, 2], 40_000).into());
    let say = |source: &mut Source, now: Instant, flags: Flags, seq: u32, ack: u32| {
        // Multicast segments would be too long for it.
        let options = Options { mss: Some(900), window_scale: Some(14), ..Options::default() };
        let options = if flags.has(Flags::SYN) { options } else { Options::default() };
        let head = Head {
            source_port: 40_000,
            destination_port: PORT,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: u16::MAX,
            options,
        };
        let mut payload = Vec::new();
        head.emit(&mut payload);
        source.handle_datagram(now, Datagram { by, hop_limit: None, payload: &payload });
    };
    say(&mut source, now, Flags::SYN, 0, 0);
    sent(&mut source, now);
    say(&mut source, now, Flags::ACK, 1, 0);
    let child = source.children().next().unwrap().child;
    let to =
        if join == Join::Asked { Stream::Child(child) } else { Stream::Master(MasterId::FIRST) };
    let mut end = 0;
    for _ in 0..100 {
        now += Duration::from_millis(5);
        let len = source.room(to);
        let write = SourceCommand::Write { to, bytes: vec![7; len].into() };
        // Its host has a share of the memory only.
        let written = source.handle_command(now, write);
        assert!(matches!(written, Ok(()) | Err(SourceCommandError::Full { .. })), "{written:?}");
        for (to, bytes) in sent(&mut source, now) {
            let segment = umbel_wire::tcp::Segment::parse(&bytes).unwrap();
            if matches!(to, Address::Host(_)) {
                end = end.max(segment.end().0);
            }
        }
        say(&mut source, now, Flags::ACK, 1, end);
        if source.is_empty() {
            break;
        }
    }
    (source.stats().unicast.segments, source.is_empty())
}

#[test]
fn who_acknowledges_all_that_was_sent_is_found_out_soon() {
    for seed in seeds(60) {
        for join in [Join::Asked, Join::AtOnce] {
            let (segments, is_gone) = outwit(seed, join);
            // At most 384 segments until one is left out, and twice as many in the next window.
            assert!(is_gone && segments < 1200, "seed {seed}, {join:?}: {segments} segments");
        }
    }
}

/// Returns a segment as an attacker makes it up, often near the numbers of a connection.
fn any_segment(random: &mut Generator, port: u16, base: Seq) -> Vec<u8> {
    let near = |random: &mut Generator| match below(random, 4) {
        0 => random.next_u32(),
        1 => 65_535,
        _ => below(random, 8000) as u32,
    };
    let mut options = Options::default();
    if below(random, 3) == 0 {
        options.mss = Some(random.next_u32() as u16);
        options.window_scale = Some(below(random, 15) as u8);
        options.sack_permitted = true;
    }
    for _ in 0..below(random, 4) {
        options.sack.push(base.plus(near(random)), base.plus(near(random)));
    }
    let usual = [Flags::ACK, Flags::ACK | Flags::PSH, Flags::ACK | Flags::FIN, Flags::SYN];
    let flags = match below(random, 8) {
        0 => Flags(random.next_u32() as u8),
        n => usual[n as usize % 4],
    };
    let head = Head {
        source_port: port,
        destination_port: PORT,
        seq: Seq(near(random)),
        ack: base.plus(near(random)),
        flags,
        window: [0, 1, 700, u16::MAX][below(random, 4) as usize],
        options,
    };
    let mut bytes = Vec::new();
    head.emit(&mut bytes);
    let len = [0, 0, 1, 700][below(random, 4) as usize];
    bytes.extend(vec![7; len]);
    bytes
}

#[test]
fn no_segments_harm_a_source() {
    for seed in seeds(60) {
        let random = &mut generator(seed);
        let mut network = any_network(seed, random);
        let mut source = Source::new(
            SourceConfig { half_open: 4, children: 8, ..network.source.config().clone() },
            generator(seed),
        );
        let base = source.config().base.map_or(Seq(0), Seq);
        let to = Stream::Master(MasterId::FIRST);
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut answers = 0;
        for _ in 0..2000 {
            now += Duration::from_millis([0, 1, 30, 700][below(random, 4) as usize]);
            let peer = ([10, 0, 0, 1 + below(random, 12) as u8], 40_000).into();
            let payload = any_segment(random, 40_000, base);
            let by = Address::Host(peer);
            source.handle_datagram(now, Datagram { by, hop_limit: None, payload: &payload });
            let len = source.room(to).min(below(random, 3000) as usize);
            if below(random, 4) == 0 && len > 0 {
                let write = SourceCommand::Write { to, bytes: content(len) };
                source.handle_command(now, write).unwrap();
            }
            for _ in 0..1000 {
                answers += sent(&mut source, now).len();
                events(&mut source);
                if source.poll_timeout().is_none_or(|at| at > now) {
                    break;
                }
                source.handle_timeout(now);
            }
            assert!(source.poll_timeout().is_none_or(|at| at > now), "time stands still");
            assert!(source.half_open() <= 4 && source.len() <= 8);
        }
        assert!(answers < 40_000, "{answers} answers");
        network.now = now;
    }
}

/// Gives a source a SYN of a client of its own, by number.
fn give_syn(source: &mut Source, now: Instant, number: u32) {
    let [_, high, mid, low] = number.to_be_bytes();
    give_syn_of(source, now, ([11, high, mid, low], 1234).into());
}

fn give_syn_of(source: &mut Source, now: Instant, peer: SocketAddr) {
    let mut bytes = Vec::new();
    Head { source_port: peer.port(), destination_port: PORT, flags: Flags::SYN, ..Head::default() }
        .emit(&mut bytes);
    let by = Address::Host(peer);
    source.handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes });
}

#[test]
fn a_flood_of_syns_leaves_room_for_those_who_answer() {
    let mut network = Network::new(1, |config| config.half_open = 100);
    network.may_drop(DropReason::Flood);
    network.add(Way::clean(5), |_| {});
    for n in 0..50_000_u32 {
        let now = network.now;
        give_syn(&mut network.source, now, n);
        network.drain(0);
        if n == 49_950 {
            network.tell(0, ReceiverCommand::Connect);
        }
    }
    assert_eq!(network.source.half_open(), 100);
    network.run_for(Duration::from_millis(100));
    assert!(network.receivers[0].has(&ReceiverEvent::Connected));
    network.send_all(content(50_000));
    assert!(network.reaches(MINUTE, |network| network.receivers[0].got.len() == 50_000));
    network.run_for(MINUTE);
    assert_eq!(network.source.half_open(), 0);
}

/// Ten times its share, from as many ports of one address, while another is on its way.
#[test]
fn a_host_that_opens_connections_without_end_has_its_share() {
    let mut network = Network::new(1, |config| config.half_open = 1600);
    network.may_drop(DropReason::Flood);
    // What looks after an idle connection has a number that was received.
    network.may_drop(DropReason::Duplicate);
    network.add(Way::clean(100), |_| {});
    network.tell(0, ReceiverCommand::Connect);
    for n in 0..1000 {
        let now = network.now;
        let peer = ([11, 0, 0, 1], 1000 + n).into();
        give_syn_of(&mut network.source, now, peer);
        network.drain(0);
    }
    assert_eq!(network.source.half_open(), 100);
    network.run_for(Duration::from_millis(500));
    assert!(network.receivers[0].has(&ReceiverEvent::Connected));
    assert_eq!(network.source.half_open(), 100);
    network.run_for(MINUTE);
    assert_eq!(network.source.half_open(), 0);
}

/// In a flood of 8,000 SYNs a second an answer comes after 3 s: the way is long, as if others had
/// been lost.
#[test]
fn who_answers_late_in_a_flood_of_syns_is_still_known() {
    let mut network = Network::new(1, |_| {});
    // Its SYN, which it sends again after a second, is answered again.
    network.may_drop(receiver::DropReason::Duplicate);
    network.add(Way::clean(1500), |_| {});
    network.tell(0, ReceiverCommand::Connect);
    for n in 0..40_000 {
        let now = network.now;
        give_syn(&mut network.source, now, n);
        network.drain(0);
        if n % 8 == 7 {
            network.run_for(Duration::from_millis(1));
        }
    }
    assert!(network.receivers[0].has(&ReceiverEvent::Connected));
    // Each SYN was answered once, while thousands of others were half open.
    let answers = network.source.stats().control;
    assert!((40_000..40_100).contains(&answers), "{answers} answers");
}

/// SYNs at a higher rate than the pace of the stream, whose answers the host sends at once.
#[test]
fn answers_to_a_flood_of_syns_take_nothing_of_the_pace_of_a_stream() {
    let mut network = Network::new(1, |_| {});
    network.is_paced = true;
    network.may_drop(DropReason::Flood);
    network.add(Way::clean(100), |_| {});
    network.connect_all();
    network.run_for(Duration::from_millis(500));
    network.writes = Some((content(50_000), false));
    network.drain(0);
    for n in 0..16_000 {
        let now = network.now;
        give_syn(&mut network.source, now, n);
        network.drain(0);
        if n % 8 == 7 {
            network.run_for(Duration::from_millis(1));
        }
    }
    assert_eq!(network.receivers[0].got.len(), 50_000);
}

#[test]
fn data_takes_turns_with_answers_and_syns_beyond_the_backlog_are_dropped() {
    let mut network = Network::new(1, |config| config.half_open = 1000);
    network.add(Way::clean(5), |_| {});
    network.connect_all();
    network.run_for(Duration::from_millis(100));
    let now = network.now;
    let source = &mut network.source;
    for n in 0..1000 {
        give_syn(source, now, n);
    }
    assert_eq!(source.drops().of(DropReason::Backlog), 750);
    let write = SourceCommand::Write { to: Stream::Master(MasterId::FIRST), bytes: content(2000) };
    source.handle_command(now, write).unwrap();
    let sent = sent(&mut **source, now);
    let data = sent.iter().position(|(to, _)| matches!(to, Address::Channel(_)));
    assert!(data.is_some_and(|at| at < 10), "data after {data:?} answers");
    let answers = sent.iter().filter(|(to, _)| matches!(to, Address::Host(_))).count();
    assert_eq!(answers, 250);
    // Those who try again are answered now.
    give_syn(source, now, 999);
    assert_eq!(source.drops().of(DropReason::Backlog), 750);
    network.may_drop(DropReason::Backlog);
}

#[test]
fn repeated_acks_cause_no_answers() {
    let mut network = Network::new(1, |_| {});
    network.add(Way::clean(5), |config| config.sack = false);
    network.connect_all();
    network.run_for(Duration::from_millis(100));
    network.send_all(content(5000));
    let base = network.source.position(MasterId::FIRST).unwrap();
    assert_eq!(base, 5001);
    let before = network.source.stats();
    let peer = network.receivers[0].address;
    let mut bytes = Vec::new();
    let (source_port, destination_port) = (peer.port(), PORT);
    // Neither a number of the client nor of the source is right.
    for n in 0..100_000_u32 {
        bytes.clear();
        let seq = Seq(n.wrapping_mul(77_777));
        let flags = Flags::ACK;
        Head { source_port, destination_port, seq, flags, ..Head::default() }.emit(&mut bytes);
        let datagram = Datagram { by: Address::Host(peer), hop_limit: None, payload: &bytes };
        network.source.handle_datagram(network.now, datagram);
        network.drain(0);
    }
    for reason in [DropReason::OutOfWindow, DropReason::FarAhead, DropReason::HeldDown] {
        network.may_drop(reason);
    }
    let control = network.source.stats().control - before.control;
    assert!(control <= 1, "{control}");
    assert!(network.reaches(MINUTE, |network| network.receivers[0].got.len() == 5000));
}
