//! A delivery is driven by packets, and its exact output is asserted.

use proptest::prelude::*;
use umbel_wire::checksum::Sum;
use umbel_wire::ip::TCP;
use umbel_wire::tcp::{Head, Options, pseudo_header};

use super::*;

const SOURCES: [&str; 2] = ["10.0.0.1", "fd00::1"];
const GROUPS: [&str; 2] = ["232.7.7.7", "ff3e::7:7"];
const HOSTS: [&str; 2] = ["10.0.0.2", "fd00::2"];
/// Port of the source, and of its channel.
const PORT: u16 = 8080;

/// One delivery, and the addresses of its family.
struct Scene {
    delivery: Delivery,
    source: IpAddr,
    group: IpAddr,
    host: IpAddr,
    /// Number of the next byte that the connection sends.
    own: u32,
    /// Number of a unicast segment of the source.
    theirs: u32,
}

/// A delivered segment: its port, acknowledgement number, sequence number and payload.
type Delivered = (u16, u32, u32, Vec<u8>);

fn scene(family: usize) -> Scene {
    let parse = |all: [&str; 2]| all[family].parse::<IpAddr>().unwrap();
    let (source, group, host) = (parse(SOURCES), parse(GROUPS), parse(HOSTS));
    let mut delivery = Delivery::new(SocketAddr::new(source, PORT), group, 3);
    delivery.set_own_addresses([host]);
    Scene { delivery, source, group, host, own: 0, theirs: 50 }
}

fn head(ports: [u16; 2], seq: u32, ack: u32, flags: Flags, membership: Option<u16>) -> Head {
    let membership = membership.map(Membership::Port);
    Head {
        source_port: ports[0],
        destination_port: ports[1],
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 100,
        options: Options { membership, ..Options::default() },
    }
}

/// Returns an IP packet with right checksums.
fn packet(from: IpAddr, to: IpAddr, head: &Head, payload: &[u8]) -> Vec<u8> {
    let mut tcp = Vec::new();
    head.emit(&mut tcp);
    tcp.extend(payload);
    let checksum = pseudo_header(from, to, tcp.len()).bytes(&tcp).checksum();
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, TCP, 0, 0];
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip[2..4].copy_from_slice(&((20 + tcp.len()) as u16).to_be_bytes());
            let checksum = Sum::default().bytes(&ip).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            ip
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, TCP, 64];
            ip[4..6].copy_from_slice(&(tcp.len() as u16).to_be_bytes());
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip
        }
        _ => panic!("two families"),
    };
    packet.extend(tcp);
    packet
}

impl Scene {
    fn handle(&mut self, direction: Direction, bytes: &[u8], checksum: Checksum) -> Vec<Delivered> {
        let mut all = Vec::new();
        let (source, host) = (self.source, self.host);
        self.delivery.handle_packet(direction, bytes, checksum, &mut |to, packet| {
            let parsed = Parsed::new(packet).unwrap();
            assert_eq!((parsed.source.ip(), parsed.destination), (source, to));
            assert_eq!(to.ip(), host);
            assert!(parsed.packet.is_sound(), "the checksum of TCP");
            if host.is_ipv4() {
                assert_eq!(Sum::default().bytes(&packet[..20]).folded(), 0xFFFF, "that of IP");
            }
            let head = parsed.segment.head;
            all.push((to.port(), head.ack.0, head.seq.0, parsed.segment.payload.to_vec()));
        });
        all
    }

    /// Passes a unicast segment of the source to a port of the host.
    fn unicast(&mut self, port: u16, ack: u32, flags: Flags, membership: Option<u16>) {
        let head = head([PORT, port], self.theirs, ack, flags, membership);
        let packet = packet(self.source, self.host, &head, &[]);
        assert_eq!(self.handle(Direction::In, &packet, Checksum::Whole), []);
    }

    /// Enrols a connection that begins to send with `ack`, and expects 51.
    fn enrol(&mut self, port: u16, ack: u32) {
        self.unicast(port, ack, Flags::SYN | Flags::ACK, Some(PORT));
        self.own = ack;
        self.own(port, 51, Flags::ACK);
    }

    /// Passes a multicast segment to a channel's port.
    fn multicast(&mut self, port: u16, seq: u32, flags: Flags) -> Vec<Delivered> {
        let head = head([PORT, port], seq, 77, Flags::ACK | flags, None);
        let packet = packet(self.source, self.group, &head, b"some data");
        self.handle(Direction::In, &packet, Checksum::Whole)
    }

    /// Passes a segment of the host to the source.
    fn own(&mut self, port: u16, ack: u32, flags: Flags) {
        let head = head([port, PORT], self.own, ack, flags, None);
        let packet = packet(self.host, self.source, &head, &[]);
        assert_eq!(self.handle(Direction::Out, &packet, Checksum::Partial), []);
    }

    fn ports(&self) -> Vec<u16> {
        self.delivery.connections().map(|(connection, _)| connection.local.port()).collect()
    }
}

#[test]
fn a_membership_of_another_version_enrols_nobody_and_is_told() {
    for family in 0..2 {
        let mut scene = scene(family);
        for version in [0, 2, 255] {
            let mut head = head([PORT, 5000], 50, 7, Flags::SYN | Flags::ACK, None);
            head.options.membership = Some(Membership::Other(version));
            let packet = packet(scene.source, scene.host, &head, &[]);
            assert_eq!(scene.handle(Direction::In, &packet, Checksum::Whole), []);
        }
        assert_eq!(scene.multicast(PORT, 100, Flags::PSH), []);
        let counts = scene.delivery.counts();
        assert_eq!((counts.other_version, counts.their_version, counts.not_enrolled), (3, 255, 1));
    }
}

#[test]
fn each_enrolled_connection_gets_a_segment_of_its_own() {
    for family in 0..2 {
        let mut scene = scene(family);
        assert_eq!(scene.multicast(PORT, 100, Flags::PSH), []);
        scene.enrol(4001, 11);
        scene.enrol(4002, 22);
        let data = b"some data".to_vec();
        let expected = [(4001, 11, 100, data.clone()), (4002, 22, 100, data)];
        assert_eq!(scene.multicast(PORT, 100, Flags::PSH), expected);
        let counts = scene.delivery.counts();
        assert_eq!((counts.segments, counts.delivered, counts.not_enrolled), (2, 2, 1));
    }
}

#[test]
fn only_connections_of_the_same_channel_get_it() {
    let mut scene = scene(0);
    scene.enrol(4001, 1);
    scene.unicast(4002, 1, Flags::ACK, Some(PORT + 1));
    scene.own(4002, 50, Flags::ACK);
    scene.unicast(4003, 1, Flags::ACK, Some(0));
    scene.unicast(4004, 1, Flags::ACK, None);
    for port in [4003, 4004] {
        scene.own(port, 50, Flags::ACK);
    }
    assert_eq!(
        scene.multicast(PORT, 100, Flags::PSH)[..].iter().map(|d| d.0).collect::<Vec<_>>(),
        [4001]
    );
    assert_eq!(scene.multicast(PORT + 1, 100, Flags::PSH)[0].0, 4002);
    // One that is enrolled for another from now on, and one for none.
    scene.unicast(4002, 1, Flags::ACK, Some(PORT));
    scene.unicast(4001, 1, Flags::ACK, Some(0));
    assert_eq!(scene.multicast(PORT, 100, Flags::PSH)[0].0, 4002);
    assert_eq!(scene.ports(), [4002]);
}

#[test]
fn it_acknowledges_the_greatest_number_that_the_source_did() {
    let mut scene = scene(0);
    scene.enrol(4001, u32::MAX - 5);
    scene.own = 20;
    scene.own(4001, 51, Flags::ACK);
    for (ack, expected) in [(u32::MAX, u32::MAX), (10, 10), (u32::MAX, 10)] {
        scene.unicast(4001, ack, Flags::ACK, None);
        assert_eq!(scene.multicast(PORT, 100, Flags::PSH)[0].1, expected);
    }
    // A connection that begins anew at the same port does so from its own numbers.
    scene.own(4001, 0, Flags::SYN);
    scene.enrol(4001, 5);
    assert_eq!(scene.multicast(PORT, 100, Flags::PSH)[0].1, 5);
}

#[test]
fn what_a_connection_has_acknowledged_it_does_not_get_again() {
    let mut scene = scene(0);
    scene.enrol(4001, 1);
    scene.own(4001, 104, Flags::ACK);
    assert_eq!(scene.multicast(PORT, 95, Flags::PSH), []);
    // A part of it is new.
    assert_eq!(scene.multicast(PORT, 96, Flags::PSH).len(), 1);
    assert_eq!(scene.delivery.counts().already_held, 1);
}

#[test]
fn a_connection_that_is_over_is_forgotten() {
    let over: [&dyn Fn(&mut Scene); 6] = [
        &|scene| {
            scene.delivery.forget_silent();
            scene.delivery.forget_silent();
        },
        &|scene| scene.own(4001, 1, Flags::RST),
        &|scene| scene.own(4001, 0, Flags::SYN),
        &|scene| {
            scene.theirs = 100;
            scene.unicast(4001, 1, Flags::RST, None);
        },
        &|scene| {
            scene.multicast(PORT, 100, Flags::FIN);
            scene.own(4001, 110, Flags::ACK);
        },
        &|scene| {
            scene.unicast(4001, 1, Flags::FIN | Flags::ACK, None);
            scene.own(4001, 51, Flags::ACK);
        },
    ];
    for end in over {
        let mut scene = scene(0);
        scene.enrol(4001, 1);
        scene.own(4001, 100, Flags::ACK);
        assert_eq!(scene.ports(), [4001]);
        end(&mut scene);
        assert_eq!(scene.ports(), []);
    }
}

#[test]
fn only_who_knows_a_connection_changes_it() {
    let mut scene = scene(0);
    scene.enrol(4001, 1000);
    scene.own = 1010;
    scene.own(4001, 51, Flags::ACK);
    // Numbers that the source cannot have acknowledged, or is far from sending.
    for (theirs, ack) in [(52, 999), (52, 1011), (51 + NEAR + 1, 1000), (1 << 31, 1000)] {
        scene.theirs = theirs;
        for (flags, membership) in [
            (Flags::ACK, Some(7)),
            (Flags::ACK, Some(0)),
            (Flags::SYN | Flags::ACK, Some(7)),
            (Flags::RST, None),
            (Flags::RST | Flags::ACK, Some(7)),
            (Flags::FIN | Flags::ACK, None),
        ] {
            scene.unicast(4001, ack, flags, membership);
            let expected = vec![(4001, 1000, 100, b"some data".to_vec())];
            assert_eq!(scene.multicast(PORT, 100, Flags::PSH), expected, "{theirs} {ack}");
        }
    }
    // What the source does say.
    (scene.theirs, scene.own) = (60, 1010);
    scene.unicast(4001, 1010, Flags::ACK, Some(7));
    assert_eq!(scene.multicast(7, 100, Flags::PSH)[0].1, 1010);
}

#[test]
fn a_connection_is_enrolled_once_it_has_said_something_that_fits() {
    // Those of the connection: it has sent 1000, and expects 51.
    for (theirs, ack, fits) in [
        (50, 1000, true),
        (50 + 1000, 1000, true),
        (50, 1000_u32.wrapping_sub(UNDER_WAY), true),
        (50, 1000_u32.wrapping_sub(UNDER_WAY + 1), false),
        (50, 1001, false),
        (51 + NEAR + 1, 1000, false),
        (0x1234_5678, 0x1234, false),
    ] {
        let mut scene = scene(0);
        (scene.theirs, scene.own) = (theirs, 1000);
        scene.unicast(4001, ack, Flags::ACK, Some(PORT));
        assert_eq!(scene.ports(), [], "nobody has said that it is there");
        scene.own(4001, 51, Flags::ACK);
        assert_eq!(scene.ports() == [4001], fits, "{theirs} {ack}");
        // It is asked once.
        scene.own(4001, theirs, Flags::ACK);
        assert_eq!(scene.ports() == [4001], fits, "{theirs} {ack}");
    }
}

#[test]
fn forged_connections_keep_no_genuine_one_out() {
    let mut scene = scene(0);
    for round in 0..10 {
        for port in 1025..2025 {
            scene.unicast(port, 7, Flags::ACK, Some(PORT));
        }
        if round == 5 {
            scene.enrol(4001, 1000);
        }
    }
    assert!(scene.delivery.claims.all.len() <= 3 && scene.delivery.claims.order.len() <= 3);
    assert_eq!(scene.ports(), [4001]);
    assert_eq!(scene.delivery.counts().table_full, 0);
}

#[test]
fn other_ports_of_the_source_do_not_matter() {
    let mut scene = scene(0);
    let (source, host) = (scene.source, scene.host);
    let theirs = head([PORT + 1, 4001], 50, 1000, Flags::ACK, Some(PORT));
    let own = head([4001, PORT + 1], 1000, 51, Flags::ACK, None);
    let theirs = packet(source, host, &theirs, &[]);
    let own = packet(host, source, &own, &[]);
    scene.handle(Direction::In, &theirs, Checksum::Whole);
    scene.handle(Direction::Out, &own, Checksum::Whole);
    assert_eq!(scene.ports(), []);
    scene.enrol(4001, 1);
    let head = head([PORT + 1, PORT], 100, 0, Flags::ACK, None);
    let multicast = packet(source, scene.group, &head, b"x");
    assert_eq!(scene.handle(Direction::In, &multicast, Checksum::Whole), []);
    assert_eq!(scene.delivery.counts().segments, 0);
}

#[test]
fn a_multicast_segment_that_would_end_or_begin_a_connection_is_dropped() {
    let mut scene = scene(0);
    scene.enrol(4001, 1);
    for flags in [Flags::RST, Flags::SYN, Flags::RST | Flags::FIN] {
        assert_eq!(scene.multicast(PORT, 51, flags), []);
    }
    assert_eq!((scene.delivery.counts().malformed, scene.delivery.counts().segments), (3, 0));
    assert_eq!(scene.ports(), [4001]);
}

#[test]
fn the_table_is_bounded() {
    let mut scene = scene(0);
    for port in 4000..4010 {
        scene.enrol(port, 1);
    }
    assert_eq!(scene.ports(), [4000, 4001, 4002]);
    assert_eq!(scene.delivery.counts().table_full, 7);
}

#[test]
fn connections_of_other_hosts_and_segments_of_other_sources_do_not_matter() {
    let mut scene = scene(0);
    let other: IpAddr = "10.0.0.3".parse().unwrap();
    let head = head([PORT, 4001], 1, 1, Flags::ACK, Some(PORT));
    for (from, to) in [(scene.source, other), (other, scene.host)] {
        let packet = packet(from, to, &head, &[]);
        scene.handle(Direction::In, &packet, Checksum::Whole);
        scene.own(4001, 2, Flags::ACK);
    }
    assert_eq!(scene.ports(), []);
    scene.enrol(4001, 1);
    let packet = packet(other, scene.group, &Head { destination_port: PORT, ..head }, b"x");
    assert_eq!(scene.handle(Direction::In, &packet, Checksum::Whole), []);
}

#[test]
fn a_checksum_that_was_left_to_the_card_is_completed() {
    for family in 0..2 {
        let mut scene = scene(family);
        scene.enrol(4001, 1);
        let head = head([PORT, PORT], 99, 0, Flags::ACK, None);
        let mut packet = packet(scene.source, scene.group, &head, b"odd");
        let tcp = packet.len() - 23;
        let partial = pseudo_header(scene.source, scene.group, 23).folded();
        packet[tcp + CHECKSUM..tcp + CHECKSUM + 2].copy_from_slice(&partial.to_be_bytes());
        // The check of the checksum is in `handle`.
        assert_eq!(scene.handle(Direction::In, &packet, Checksum::Partial).len(), 1);
    }
}

#[test]
fn a_damaged_segment_stays_damaged() {
    let mut scene = scene(0);
    scene.enrol(4001, 1);
    let head = head([PORT, PORT], 99, 0, Flags::ACK, None);
    let mut packet = packet(scene.source, scene.group, &head, b"some data");
    *packet.last_mut().unwrap() ^= 1;
    let mut seen = 0;
    let host = scene.host;
    scene.delivery.handle_packet(Direction::In, &packet, Checksum::Whole, &mut |_, packet| {
        seen += 1;
        let sum = pseudo_header(SOURCES[0].parse().unwrap(), host, packet.len() - 20);
        assert_ne!(sum.bytes(&packet[20..]).folded(), 0xFFFF);
    });
    assert_eq!(seen, 1);
}

#[test]
fn a_damaged_unicast_segment_enrols_nothing() {
    for family in 0..2 {
        let mut scene = scene(family);
        let head = head([PORT, 4001], 9, 1, Flags::ACK, Some(PORT));
        let mut packet = packet(scene.source, scene.host, &head, b"x");
        *packet.last_mut().unwrap() ^= 1;
        scene.handle(Direction::In, &packet, Checksum::Whole);
        scene.own(4001, 10, Flags::ACK);
        assert_eq!(scene.ports(), []);
        assert_eq!(scene.delivery.counts().malformed, 1);
        *packet.last_mut().unwrap() ^= 1;
        scene.handle(Direction::In, &packet, Checksum::Whole);
        scene.own = 1;
        scene.own(4001, 10, Flags::ACK);
        assert_eq!(scene.ports(), [4001]);
    }
}

proptest! {
    /// Whatever is forged without the numbers of a connection changes nothing of what it gets.
    #[test]
    fn a_blind_forger_changes_nothing(
        family in 0..2_usize,
        forged in proptest::collection::vec(
            (any::<u32>(), any::<u32>(), any::<u8>(), 0..3_u16, 4000..4003_u16), 0..60),
    ) {
        let (mut scene, mut untouched) = (scene(family), scene(family));
        scene.enrol(4001, 1000);
        untouched.enrol(4001, 1000);
        for (seq, ack, flags, membership, port) in forged {
            let (near, right) = (is_near(Seq(seq), Seq(51)), ack == 1000);
            if (near && right) || seq == 51 {
                continue;
            }
            scene.theirs = seq;
            scene.unicast(port, ack, Flags(flags), membership.checked_sub(1));
            // The host's answer to what it does not expect: its true numbers, or RST.
            if port == 4001 {
                scene.own(port, 51, Flags::ACK);
            } else {
                scene.own(port, seq, Flags::RST);
            }
            let (got, expected) =
                (scene.multicast(PORT, 100, Flags::PSH), untouched.multicast(PORT, 100, Flags::PSH));
            prop_assert_eq!(got, expected);
            prop_assert_eq!(scene.ports(), [4001]);
        }
    }

    #[test]
    fn no_packet_makes_it_fail(
        family in 0..2_usize,
        changes in proptest::collection::vec((0..80_usize, any::<u8>()), 0..6),
        cut in 0..100_usize, out: bool, partial: bool, multicast: bool,
    ) {
        let mut scene = scene(family);
        scene.enrol(4001, 1);
        let to = if multicast { scene.group } else { scene.host };
        let head = head([PORT, PORT], 9, 0, Flags::ACK, Some(7));
        let mut packet = packet(scene.source, to, &head, b"some data");
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(cut.max(20));
        let direction = if out { Direction::Out } else { Direction::In };
        let checksum = if partial { Checksum::Partial } else { Checksum::Whole };
        let length = packet.len();
        scene.delivery.handle_packet(direction, &packet, checksum, &mut |_, packet| {
            assert!(packet.len() <= length);
        });
    }
}
