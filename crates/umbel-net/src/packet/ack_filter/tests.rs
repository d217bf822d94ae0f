//! The program in the kernel and the rule in user space drop the same segments.

use std::net::IpAddr;
use std::time::Duration;

use aya::programs::{TestRun as _, TestRunOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use umbel_engine::Instant;
use umbel_engine::smo::AckFilter as Rules;
use umbel_wire::tcp::{Flags, Head, Options, Seq};

use super::*;
use crate::namespaces::{in_namespace, run, skip};
use crate::objects;
use crate::packet::frame::{ETHERNET, Envelope};

/// What the program does with a frame.
const DROP: u32 = 1;
const PASS: u32 = 2;

/// Ports of the server and of two clients, of which one has a rule at the beginning.
const PORT: u16 = 8080;
const CLIENTS: [u16; 2] = [4001, 4002];

/// Either a change of the rules, or a frame.
#[derive(Clone, Debug)]
enum Step {
    Set { client: u16, rule: AckRule },
    Clear { client: u16 },
    Wanted { master: u32, from: u32 },
    Frame { client: u16, to: u16, head: Head, payload: usize, padding: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let client = || prop_oneof![Just(CLIENTS[0]), Just(CLIENTS[1])];
    let near = || 0..3000_u32;
    let rule =
        (0..2_u32, near(), prop_oneof![Just(0), Just(500), Just(u32::MAX / 4)], any::<bool>())
            .prop_map(|(master, last, step, is_short)| AckRule {
                master,
                seq: Seq(7),
                last: Seq(last),
                step,
                // Time does not matter then: nothing, or more than the test takes.
                period: if is_short { Duration::ZERO } else { Duration::from_hours(1) },
            });
    let flags = prop_oneof![40 => Just(Flags::ACK), 1 => any::<u8>().prop_map(Flags)];
    let options = prop_oneof![
        40 => Just(Options::default()),
        1 => Just(Options { mss: Some(1000), ..Options::default() }),
    ];
    let seq = prop_oneof![40 => Just(7_u32), 1 => any::<u32>()];
    let to = prop_oneof![40 => Just(PORT), 1 => any::<u16>()];
    let payload = prop_oneof![40 => Just(0), 1 => 1..50_usize];
    let frame = (client(), to, seq, near(), flags, options, payload, 0..10_usize).prop_map(
        |(client, to, seq, ack, flags, options, payload, padding)| Step::Frame {
            client,
            to,
            head: Head {
                source_port: client,
                destination_port: to,
                seq: Seq(seq),
                ack: Seq(ack),
                flags,
                window: 100,
                options,
            },
            payload,
            padding,
        },
    );
    prop_oneof![
        2 => (client(), rule).prop_map(|(client, rule)| Step::Set { client, rule }),
        1 => client().prop_map(|client| Step::Clear { client }),
        2 => (0..2_u32, 0..6000_u32).prop_map(|(master, from)| Step::Wanted { master, from }),
        30 => frame,
    ]
}

/// Lays out a frame.
fn frame(from: IpAddr, to: IpAddr, head: &Head, payload: usize, padding: usize) -> Vec<u8> {
    let mut tcp = Vec::new();
    head.emit(&mut tcp);
    let envelope = Envelope { source: from, destination: to, hop_limit: 5, identification: 9 };
    let mut packet = Vec::new();
    envelope.packet(&mut packet, &tcp, &[&vec![1; payload]]);
    let kind = if from.is_ipv4() { [8, 0] } else { [0x86, 0xDD] };
    [&[0; 12][..], &kind, &packet, &vec![0; padding]].concat()
}

/// The program in the kernel, attached to nothing.
struct Loaded {
    ebpf: Ebpf,
    maps: Maps,
}

impl Loaded {
    fn new(server: SocketAddr) -> Result<Loaded, AckFilterError> {
        let mut ebpf = load(server)?;
        let maps = Maps::take(&mut ebpf)?;
        Ok(Loaded { ebpf, maps })
    }

    fn passes(&mut self, frame: &[u8]) -> bool {
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..TestRunOptions::default()
        };
        let result = program(&mut self.ebpf).unwrap().test_run(options).unwrap();
        assert_eq!(out, frame);
        assert!([PASS, DROP].contains(&result.return_value), "{}", result.return_value);
        result.return_value == PASS
    }
}

/// Compares program and rule, step by step.
fn compare(server: SocketAddr, client: IpAddr) -> Result<(), AckFilterError> {
    let loaded = std::cell::RefCell::new(Loaded::new(server)?);
    let dropped = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 1_000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    });
    let ran = runner.run(&proptest::collection::vec(step(), 1..60), |steps| {
        let loaded = &mut *loaded.borrow_mut();
        let mut rules = Rules::default();
        // What the last case left.
        for port in CLIENTS {
            let _ = loaded.maps.rules.remove(&key(SocketAddr::new(client, port)));
        }
        (0..2).for_each(|master| loaded.maps.wanted.set(master, 0, 0).unwrap());
        for step in steps {
            let address = |port| SocketAddr::new(client, port);
            let change = match step {
                Step::Set { client, rule } => AckFilterChange::Set { peer: address(client), rule },
                Step::Clear { client } => AckFilterChange::Clear { peer: address(client) },
                Step::Wanted { master, from } => {
                    AckFilterChange::Wanted { master, from: Seq(from) }
                }
                Step::Frame { client: port, to, head, payload, padding } => {
                    let frame = frame(client, server.ip(), &head, payload, padding);
                    let ip = if client.is_ipv4() { 20 } else { 40 };
                    let segment = &frame[ETHERNET + ip..frame.len() - padding];
                    let now = Instant::from_nanos(1_000_000_000);
                    let passes = to != PORT || rules.passes(now, address(port), segment);
                    prop_assert_eq!(loaded.passes(&frame), passes, "{:?}", head);
                    dropped.set(dropped.get() + u64::from(!passes));
                    continue;
                }
            };
            rules.apply(change);
            // A rule that is not there cannot be removed.
            let _ = loaded.maps.apply(change);
        }
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    let counted = loaded.borrow().maps.dropped();
    assert_eq!(counted, dropped.get());
    // Some 300 on average; the rest shows nothing about drops.
    assert!(counted > 10, "{counted} were dropped");
    Ok(())
}

#[test]
fn program_and_rule_drop_the_same_segments() {
    in_namespace(|| {
        for (server, client) in [("10.9.0.1:8080", "10.9.0.2"), ("[fd09::1]:8080", "fd09::2")] {
            let result = compare(server.parse().unwrap(), client.parse().unwrap());
            match result {
                Ok(()) => {}
                Err(AckFilterError::Program(
                    error @ (ClassifierError::NotPermitted | ClassifierError::OldKernel),
                )) => return skip(&error.to_string()),
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn a_program_is_attached_until_it_is_dropped_and_takes_no_other_ones_place() {
    in_namespace(|| {
        run("ip link add one type veth peer name two");
        for name in ["one", "two", "lo"] {
            run(&format!("ip link set {name} up"));
        }
        let server = "10.9.0.1:8080".parse().unwrap();
        for (name, mode) in [("one", AckFilterMode::Driver), ("lo", AckFilterMode::Generic)] {
            let interface = Interface::resolve(name).unwrap();
            let first = match AckFilter::open(server, &interface) {
                Err(AckFilterError::Program(
                    error @ (ClassifierError::NotPermitted | ClassifierError::OldKernel),
                )) => return skip(&error.to_string()),
                first => first.unwrap(),
            };
            assert_eq!(first.mode(), mode);
            let second = AckFilter::open(server, &interface);
            assert!(matches!(second, Err(AckFilterError::Occupied(_))), "{second:?}");
            drop(first);
            // The kernel detaches it a moment later.
            let again = (0..1000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                AckFilter::open(server, &interface).ok()
            });
            assert!(again.is_some());
        }
    });
}

#[test]
fn the_object_is_what_the_source_compiles_to() {
    objects::assert_object_is_made_of("acks.bpf.c", env!("CARGO_MANIFEST_DIR"), OBJECT);
}
