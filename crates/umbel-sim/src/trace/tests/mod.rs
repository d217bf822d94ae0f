//! A short run with one event of every kind, reported to every tracer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::units::Rate;
use umbel_wire::{DataHeader, Scheme, Toi, Tsi};

use super::{
    ChannelParts, FanOut, HashTracer, Hop, MembershipRecord, MessageRecord, Note, NoteRecord,
    PacketRecord, TraceError, Tracer, open,
};
use crate::link::LinkSpec;
use crate::network::{LinkId, Network, NodeId};
use crate::packet::{Destination, FlowId, GroupId, Kind, Packet};

mod tables;
mod tshark;

const SOURCE: NodeId = NodeId(0);
const ROUTER: NodeId = NodeId(1);
const NEAR: NodeId = NodeId(2);
const FAR: NodeId = NodeId(3);
const CHANNEL: ChannelParts = ChannelParts { source: Some(SOURCE), group: 7 };
/// End of the run.
pub(super) const END: Instant = at_ms(100);

const fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Creates a source, a router and two receivers with awkward names; 1 Mbit/s and 10 ms to each.
pub(super) fn network() -> Network {
    let mut network = Network::new();
    let source = network.host("source");
    let router = network.router("router");
    let near = network.host("near, \"quoted\"");
    let far = network.host("<far & away>");
    let spec = LinkSpec::default()
        .delay(Duration::from_millis(10))
        .rate(Rate::from_bits_per_s(1_000_000).unwrap());
    for end in [source, near, far] {
        network.link(router, end, spec.clone(), spec.clone()).unwrap();
    }
    network
}

/// Creates a data packet of the source with a real header.
fn data(index: u32) -> Packet {
    let header = DataHeader {
        tsi: Tsi(0xF001_0203),
        toi: Toi(9),
        transmission: 5,
        index,
        stamp: umbel_wire::reception::ChannelStamp::default(),
        scheme: Scheme::NoCode,
        sbn: 0,
        esi: index,
    };
    let payload = [&header.emit().unwrap()[..], &[0; 16]].concat();
    let kind = if index < 2 { Kind::Data } else { Kind::Repair };
    let payload = Bytes::from(payload);
    Packet::new(SOURCE, Destination::Group(GroupId(0)), kind, payload)
}

/// Creates a request for repair, which the simulation counts as longer than its payload.
fn nak() -> Packet {
    let payload = Bytes::from_static(b"please");
    Packet {
        wire_len: 200,
        flow: FlowId(3),
        hop_limit: 1,
        ..Packet::new(FAR, Destination::Unicast(SOURCE), Kind::Nak, payload)
    }
}

/// Crossing of a link: link, near end, far end.
type Crossing = (u32, NodeId, NodeId);
const UP: Crossing = (0, SOURCE, ROUTER);
const TO_NEAR: Crossing = (1, ROUTER, NEAR);
const TO_FAR: Crossing = (2, ROUTER, FAR);

struct Teller<'a>(&'a mut dyn Tracer);

impl Teller<'_> {
    fn packet(&mut self, ms: u64, id: u64, packet: &Packet, crossing: Crossing, what: Hop) {
        let (link, from, to) = crossing;
        let in_node = matches!(what, Hop::NoRoute | Hop::HopLimit);
        let channel = match packet.destination {
            Destination::Unicast(_) => None,
            Destination::Group(_) => Some(CHANNEL),
        };
        self.0.packet(&PacketRecord {
            at: at_ms(ms),
            link: (!in_node).then_some(LinkId(link)),
            from,
            to: if in_node { from } else { to },
            what,
            arrives: (what == Hop::Sent).then_some(at_ms(ms + 10)),
            packet,
            channel,
            id,
        });
    }

    fn join(&mut self, ms: u64, node: NodeId, joined: bool) {
        self.0.membership(&MembershipRecord { at: at_ms(ms), node, channel: CHANNEL, joined });
    }

    fn note(&mut self, ms: u64, node: NodeId, name: &'static str, values: [f64; 3]) {
        self.0.note(&NoteRecord { at: at_ms(ms), node, note: &Note { name, values } });
    }
}

/// Reports a run of 100 ms: 2 data packets, a request, a repair, and every kind of drop once.
pub(super) fn tell(tracer: &mut dyn Tracer) {
    let mut teller = Teller(tracer);
    teller.join(0, NEAR, true);
    teller.join(1, FAR, true);
    teller.note(1, FAR, "outstanding", [2.0, 0.1, -1.5e300]);
    teller.packet(10, 1, &data(0), UP, Hop::Sent);
    teller.packet(20, 1, &data(0), UP, Hop::Delivered);
    teller.packet(20, 1, &data(0), TO_NEAR, Hop::Sent);
    teller.packet(20, 1, &data(0), TO_FAR, Hop::Sent);
    teller.packet(30, 1, &data(0), TO_NEAR, Hop::Delivered);
    teller.packet(30, 1, &data(0), TO_FAR, Hop::Lost);
    teller.packet(30, 2, &data(1), UP, Hop::QueueDrop);
    teller.packet(35, 3, &nak(), (2, FAR, ROUTER), Hop::Sent);
    teller.packet(45, 3, &nak(), (2, FAR, ROUTER), Hop::Delivered);
    teller.packet(45, 3, &nak(), (2, ROUTER, ROUTER), Hop::HopLimit);
    teller.packet(50, 4, &data(2), UP, Hop::Down);
    teller.packet(51, 5, &data(3), (0, SOURCE, SOURCE), Hop::NoRoute);
    let message = Bytes::from(vec![0x55; 70_000]);
    let (at, arrives) = (at_ms(60), at_ms(65));
    teller.0.message(&MessageRecord { at, from: FAR, to: SOURCE, arrives, message: &message });
    teller.note(65, FAR, "done", [0.0; 3]);
    teller.join(70, NEAR, false);
}

/// Writes the run to a file of this name, and returns the bytes.
fn written(directory: &Path, name: &str) -> Vec<u8> {
    let path = directory.join(name);
    let mut tracer = open(&path, &network()).unwrap();
    tell(&mut *tracer);
    tracer.finish(END).unwrap();
    fs::read(path).unwrap()
}

const FILES: &[&str] = &["run.pcapng", "run.pcap", "run.csv", "run.html"];

#[test]
fn equal_runs_give_equal_files() {
    let directory = tempfile::tempdir().unwrap();
    for &name in FILES {
        assert!(written(directory.path(), name) == written(directory.path(), name), "{name}");
    }
}

#[test]
fn several_tracers_write_what_each_alone_would() {
    let directory = tempfile::tempdir().unwrap();
    let alone: Vec<_> = FILES.iter().map(|name| written(directory.path(), name)).collect();
    let mut all = FanOut::new();
    for &name in FILES {
        all.add(open(&directory.path().join(name), &network()).unwrap());
    }
    all.add(Box::new(HashTracer::new()));
    tell(&mut all);
    all.finish(END).unwrap();
    for (name, expected) in FILES.iter().zip(alone) {
        assert!(fs::read(directory.path().join(name)).unwrap() == expected, "{name}");
    }
    let mut hash = HashTracer::new();
    tell(&mut hash);
    hash.finish(END).unwrap();
    assert_eq!(all.get::<HashTracer>().unwrap().digest(), hash.digest());
}

#[test]
fn an_unknown_extension_is_refused() {
    for name in ["run.txt", "run", "csv"] {
        let refused = open(Path::new(name), &network());
        assert!(matches!(refused, Err(TraceError::Extension(path)) if path == Path::new(name)));
    }
}

#[test]
fn a_file_that_cannot_be_created_is_an_error() {
    for &name in FILES {
        let path = Path::new("/nonexistent").join(name);
        assert!(matches!(open(&path, &network()), Err(TraceError::Create { .. })), "{name}");
    }
}

/// Links a name to the device that is always full, so that a file can be written to it.
#[cfg(target_os = "linux")]
fn full_disk(directory: &Path, name: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    path
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_of_that_file_and_stops_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good.csv");
    for &name in FILES {
        let mut both = FanOut::new();
        let path = full_disk(directory.path(), name);
        both.add(open(&path, &network()).unwrap());
        both.add(open(&good, &network()).unwrap());
        for _ in 0..2_000 {
            tell(&mut both);
        }
        let error = both.finish(END).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        assert!(error.contains("No space left"), "{error}");
        assert!(fs::read(&good).unwrap().len() > 1_000_000);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_trace_that_failed_says_so_while_the_run_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["run.pcapng", "run.csv"] {
        let mut tracer = open(&full_disk(directory.path(), name), &network()).unwrap();
        assert!(!tracer.failed());
        for _ in 0..2_000 {
            tell(&mut *tracer);
        }
        assert!(tracer.failed(), "{name}");
    }
}

mod hash {
    use super::*;

    type Run = Box<dyn FnOnce(&mut dyn Tracer)>;

    fn digest(run: impl FnOnce(&mut dyn Tracer)) -> u64 {
        let mut tracer = HashTracer::new();
        run(&mut tracer);
        tracer.digest()
    }

    #[test]
    fn the_number_of_a_run_is_the_same_for_ever() {
        assert_eq!(digest(tell), 0x853D_C862_9A9A_BC4A);
    }

    #[test]
    fn every_part_of_a_record_counts() {
        let packet = data(0);
        let mut runs: Vec<Run> = Vec::new();
        let told = |ms, id, packet: &Packet, crossing, what| {
            let packet = packet.clone();
            let run: Run = Box::new(move |t| Teller(t).packet(ms, id, &packet, crossing, what));
            run
        };
        runs.push(told(1, 1, &packet, UP, Hop::Delivered));
        runs.push(told(2, 1, &packet, UP, Hop::Delivered));
        runs.push(told(1, 2, &packet, UP, Hop::Delivered));
        runs.push(told(1, 1, &data(1), UP, Hop::Delivered));
        runs.push(told(1, 1, &packet, TO_NEAR, Hop::Delivered));
        runs.push(told(1, 1, &packet, UP, Hop::Lost));
        runs.push(told(1, 1, &Packet { hop_limit: 3, ..packet.clone() }, UP, Hop::Delivered));
        runs.push(told(1, 1, &Packet { flow: FlowId(3), ..packet.clone() }, UP, Hop::Delivered));
        runs.push(told(1, 1, &Packet { wire_len: 3, ..packet.clone() }, UP, Hop::Delivered));
        runs.push(told(1, 1, &Packet { kind: Kind::Other(0), ..packet }, UP, Hop::Delivered));
        runs.push(Box::new(|t| Teller(t).join(1, NEAR, true)));
        runs.push(Box::new(|t| Teller(t).join(1, NEAR, false)));
        runs.push(Box::new(|t| Teller(t).note(1, NEAR, "a", [0.0; 3])));
        runs.push(Box::new(|t| Teller(t).note(1, NEAR, "b", [0.0; 3])));
        runs.push(Box::new(|t| Teller(t).note(1, NEAR, "a", [0.0, 0.0, 1.0])));
        let count = runs.len();
        let digests: std::collections::BTreeSet<u64> = runs.into_iter().map(digest).collect();
        assert_eq!(digests.len(), count);
    }
}
