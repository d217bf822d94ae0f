//! The program in the kernel and the rules in user space make the same packets of the same frames.

use std::net::TcpListener;

use aya::programs::{TestRun as _, TestRunOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use socket2::{Domain, Socket, Type};
use umbel_engine::smo::delivery::{Checksum, Delivery as Rules, Direction};
use umbel_wire::tcp::{Flags, Head, Membership, Options, Segment, Seq};

use super::*;
use crate::namespaces::{in_namespace, run, skip};
use crate::objects;
use crate::packet::filter::Program as Filter;
use crate::packet::frame::{ETHERNET, Envelope};
use crate::packet::ring::Ring;

/// Ports of the source, its channel, and the connection.
const PORT: u16 = 8080;
const CHANNEL: u16 = 8081;
const LOCAL_PORT: u16 = 4001;

/// A connection on the loopback interface, of which one end plays the source.
struct Connected {
    source: IpAddr,
    group: IpAddr,
    local: IpAddr,
    /// Number of the connection's next byte, all before it acknowledged: `SND.UNA`.
    una: Seq,
    /// Number of the source's next byte: the connection's `RCV.NXT`.
    next: Seq,
    /// Keeps it open.
    #[expect(dead_code, reason = "dropped with the rest")]
    ends: [Socket; 3],
}

fn connect(source: &str, local: &str, group: &str) -> Connected {
    let [source, local, group] = [source, local, group].map(|text| text.parse::<IpAddr>().unwrap());
    let protocol = if source.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
    let lo = Interface::resolve("lo").unwrap();
    let mut ring = Ring::open(lo.index, protocol, &Filter::between(source), false, 0).unwrap();
    let listener = TcpListener::bind((source, PORT)).unwrap();
    let domain = if source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(local, LOCAL_PORT).into()).unwrap();
    socket.connect(&SocketAddr::new(source, PORT).into()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    // The source's SYN,ACK tells both numbers.
    let mut found = None;
    while found.is_none() {
        ring.take(8, &mut |frame| {
            let header = if source.is_ipv4() { 20 } else { 40 };
            let segment = Segment::parse(&frame.bytes[ETHERNET + header..]).unwrap();
            if segment.head.source_port == PORT && segment.head.flags.has(Flags::SYN) {
                found = Some((segment.head.ack, segment.head.seq.plus(1)));
            }
        });
    }
    let (una, next) = found.unwrap();
    let ends = [socket, listener.into(), accepted.into()];
    Connected { source, group, local, una, next, ends }
}

/// A frame, as a proptest draws it.
#[derive(Clone, Debug)]
struct Drawn {
    to_group: bool,
    /// Source and destination port, mostly the right ones.
    ports: [u16; 2],
    /// Distance of the sequence number from what the connection expects.
    ahead: i32,
    /// Distance of the acknowledgement from what the connection has sent.
    acked: i32,
    flags: u8,
    membership: Option<Membership>,
    payload: Vec<u8>,
    /// A byte that is changed after all checksums were made.
    damage: Option<(usize, u8)>,
    padding: usize,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let port = prop_oneof![4 => Just(CHANNEL), 1 => Just(PORT), 1 => any::<u16>()];
    let membership = prop_oneof![
        4 => Just(None),
        3 => Just(Some(Membership::Port(CHANNEL))),
        1 => Just(Some(Membership::Port(0))),
        1 => Just(Some(Membership::Port(PORT))),
        1 => any::<u8>().prop_map(|version| Some(Membership::Other(version))),
    ];
    let source_port = prop_oneof![9 => Just(PORT), 1 => any::<u16>()];
    let damage = proptest::option::weighted(0.2, (14..100_usize, any::<u8>()));
    (
        proptest::bool::weighted(0.7),
        (source_port, port),
        prop_oneof![9 => -150..150_i32, 1 => any::<i32>()],
        prop_oneof![9 => Just(0), 1 => any::<i32>()],
        (any::<u8>(), proptest::bool::weighted(0.05)),
        membership,
        proptest::collection::vec(any::<u8>(), 0..120),
        damage,
        0..10_usize,
    )
        .prop_map(
            |(to_group, ports, ahead, acked, flags, membership, payload, damage, padding)| {
                let (source, destination) = ports;
                let (flags, odd) = flags;
                // No RST and no SYN of a connection: the rules conclude from them what the kernel
                // knows. No FIN that the connection has acknowledged, for the same reason.
                let left = if odd && to_group { !0 } else { !6 } & if ahead > 0 { !0 } else { !1 };
                Drawn {
                    to_group,
                    ports: [source, destination],
                    ahead,
                    acked: if to_group { 0 } else { acked },
                    flags: (flags & left) | 16,
                    membership: membership.filter(|_| !to_group),
                    payload,
                    damage,
                    padding,
                }
            },
        )
}

fn frame(drawn: &Drawn, connected: &Connected) -> Vec<u8> {
    let [source_port, channel] = drawn.ports;
    let head = Head {
        source_port,
        destination_port: if drawn.to_group { channel } else { LOCAL_PORT },
        seq: connected.next.plus(drawn.ahead as u32),
        ack: if drawn.to_group { Seq(0) } else { connected.una.plus(drawn.acked as u32) },
        flags: Flags(drawn.flags),
        window: 1000,
        options: Options { membership: drawn.membership, ..Options::default() },
    };
    let mut tcp = Vec::new();
    head.emit(&mut tcp);
    let envelope = Envelope {
        source: connected.source,
        destination: if drawn.to_group { connected.group } else { connected.local },
        hop_limit: 5,
        identification: 9,
    };
    let mut packet = Vec::new();
    envelope.packet(&mut packet, &tcp, &[&drawn.payload]);
    let kind = if connected.source.is_ipv4() { [8, 0] } else { [0x86, 0xDD] };
    let mut frame = [&[0; 12][..], &kind, &packet, &vec![0; drawn.padding]].concat();
    // Rubbish taken for options makes the rules drop what the program leaves to the kernel to drop.
    let header_length = ETHERNET + if connected.source.is_ipv4() { 20 } else { 40 } + 12;
    if let Some((at, bits)) = drawn.damage
        && at != header_length
        && let Some(byte) = frame.get_mut(at)
    {
        *byte ^= bits;
    }
    frame
}

/// Runs the program on a frame. Returns what it made of it.
fn run_program(classifier: &mut Classifier, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len()];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ..TestRunOptions::default()
    };
    let result = classifier.program().unwrap().test_run(options).unwrap();
    assert_eq!(result.return_value as i32, -1);
    assert_eq!(result.data_size_out as usize, frame.len());
    out
}

/// Compares program and rules on many frames, of which each may enrol the connection or not.
fn compare(classifier: Classifier, connected: &Connected) {
    let v6 = connected.source.is_ipv6();
    let program = std::cell::RefCell::new(Program { classifier, v6 });
    let rules = std::cell::RefCell::new({
        let mut rules =
            Rules::new(SocketAddr::new(connected.source, PORT), connected.group, 100_000);
        rules.set_own_addresses([connected.local]);
        rules
    });
    let mut runner = TestRunner::new(Config {
        cases: 3000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    });
    let ran = runner.run(&drawn(), |drawn| {
        let (mut program, mut rules) = (program.borrow_mut(), rules.borrow_mut());
        // The rules hear what the kernel knows: what the connection has received.
        let mut tcp = Vec::new();
        Head {
            source_port: LOCAL_PORT,
            destination_port: PORT,
            seq: connected.una,
            ack: connected.next,
            flags: Flags::ACK,
            ..Head::default()
        }
        .emit(&mut tcp);
        let own = Envelope {
            source: connected.local,
            destination: connected.source,
            hop_limit: 64,
            identification: 0,
        };
        let mut packet = Vec::new();
        own.packet(&mut packet, &tcp, &[]);
        let own = packet;
        rules.handle_packet(Direction::Out, &own, Checksum::Whole, &mut |_, _| ());

        let frame = frame(&drawn, connected);
        let mut expected = frame.clone();
        let packet = &frame[ETHERNET..];
        rules.handle_packet(Direction::In, packet, Checksum::Whole, &mut |_, packet| {
            expected[ETHERNET..ETHERNET + packet.len()].copy_from_slice(packet);
        });
        // They enrol a connection once it has said something.
        rules.handle_packet(Direction::Out, &own, Checksum::Whole, &mut |_, _| ());
        let made = run_program(&mut program.classifier, &frame);
        prop_assert_eq!(made, expected);
        let ours: Vec<_> = rules.connections().collect();
        prop_assert_eq!(program.connections(), ours);
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    let (mut program, mut rules) = (program.into_inner(), rules.into_inner());
    let drawn = Drawn {
        to_group: false,
        ports: [PORT, LOCAL_PORT],
        ahead: 0,
        acked: 0,
        flags: 16,
        membership: Some(Membership::Other(7)),
        payload: Vec::new(),
        damage: None,
        padding: 0,
    };
    let frame = frame(&drawn, connected);
    run_program(&mut program.classifier, &frame);
    rules.handle_packet(Direction::In, &frame[ETHERNET..], Checksum::Whole, &mut |_, _| ());
    let (program, rules) = (program.counts(), rules.counts());
    assert_eq!([program, rules].map(|counts| counts.their_version), [7, 7]);
    let both = [program, rules];
    assert!(both[0].delivered > 100 && both[0].already_held > 20, "{both:?}");
    assert_eq!(program.delivered, rules.delivered, "{both:?}");
    assert_eq!(program.already_held, rules.already_held, "{both:?}");
    assert_eq!(program.segments, rules.segments, "{both:?}");
    // Damaged segments count for the program alone.
    let others = both.map(|counts| counts.other_version);
    assert!(others[1] > 20 && others[0] >= others[1], "{both:?}");
}

#[test]
fn program_and_rules_make_the_same_of_any_frame() {
    in_namespace(|| {
        for address in ["10.9.0.1", "10.9.0.2", "fd09::1", "fd09::2"] {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            run(&format!("ip addr add {address} dev lo {nodad}"));
        }
        let lo = Interface::resolve("lo").unwrap();
        for [source, local, group] in
            [["10.9.0.1", "10.9.0.2", "232.7.7.7"], ["fd09::1", "fd09::2", "ff3e::7:7"]]
        {
            let connected = connect(source, local, group);
            match load(SocketAddr::new(connected.source, PORT), connected.group, &lo) {
                Ok(classifier) => compare(classifier, &connected),
                Err(error @ (DeliveryError::NotPermitted { .. } | DeliveryError::OldKernel)) => {
                    return skip(&error.to_string());
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn the_object_is_what_the_source_compiles_to() {
    objects::assert_object_is_made_of("delivery.bpf.c", env!("CARGO_MANIFEST_DIR"), OBJECT);
}
