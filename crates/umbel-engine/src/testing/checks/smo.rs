//! A TCP server with a stream for all, and the delivery at a receiver's host.

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::smo;
use umbel_engine::{Address, Datagram, Engine, Instant};

use super::data_channel;
use super::network::{HEAD, drive};

/// Checks a delivery at a receiver's host, which packets of anybody pass. The first byte of a step
/// tells whether the host sends it, and whether its checksum is complete.
pub fn smo_delivery(bytes: &[u8]) {
    use umbel_engine::smo::delivery::{Checksum, Delivery, Direction};
    const CONNECTIONS: usize = 3;
    let addresses = |texts: [&str; 3]| texts.map(|text| text.parse::<std::net::IpAddr>().unwrap());
    let families = [
        addresses(["10.0.0.1", "232.7.7.7", "10.0.0.2"]),
        addresses(["fd00::1", "ff3e::7:7", "fd00::2"]),
    ];
    let mut deliveries = families.map(|[source, group, own]| {
        let mut delivery =
            Delivery::new(std::net::SocketAddr::new(source, 50_000), group, CONNECTIONS);
        delivery.set_own_addresses([own]);
        delivery
    });
    let mut rest = bytes;
    while let Some(([kind, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (packet, next) = after.split_at(length);
        rest = next;
        let direction = if kind & 1 == 0 { Direction::In } else { Direction::Out };
        let checksum = if kind & 2 == 0 { Checksum::Whole } else { Checksum::Partial };
        for delivery in &mut deliveries {
            delivery.handle_packet(direction, packet, checksum, &mut |to, made| {
                assert!(made.len() <= packet.len());
                assert!(families.iter().any(|[.., own]| to.ip() == *own));
            });
            assert!(delivery.connections().len() <= CONNECTIONS);
        }
    }
}

/// Checks a TCP server with two connections and a stream. Segments have the ports of the corpus of
/// `tcp_segment`; their sequence numbers fit those of its seeds.
pub fn smo_source(bytes: &[u8]) {
    use smo::{MasterId, Source, SourceCommand, SourceConfig, SourceEvent, Stream};
    use umbel_wire::tcp::{Flags, Head, Options, Seq};
    let mut config = SourceConfig::new(50_000, data_channel());
    (config.base, config.children, config.half_open) = (Some(0), 3, 2);
    let mut engine = Source::new(config, generator(0));
    let start = Instant::from_nanos(1_000_000_000);
    let peer = |last| Address::Host(([192, 0, 2, last], 8080).into());
    for by in [peer(1), peer(2)] {
        let syn = Options { mss: Some(1460), sack_permitted: true, ..Options::default() };
        let opening =
            [(Flags::SYN, u32::MAX - 3, syn), (Flags::ACK, u32::MAX - 2, Options::default())];
        for (flags, seq, options) in opening {
            let mut payload = Vec::new();
            let (source_port, destination_port, window) = (8080, 50_000, u16::MAX);
            let (seq, ack) = (Seq(seq), Seq(0));
            Head { source_port, destination_port, seq, ack, flags, window, options }
                .emit(&mut payload);
            engine.handle_datagram(start, Datagram { by, hop_limit: None, payload: &payload });
        }
    }
    assert_eq!(engine.len(), 2);
    let to = Stream::Master(MasterId::FIRST);
    let bytes_to_send = Bytes::from_static(&[7; 9000]);
    engine.handle_command(start, SourceCommand::Write { to, bytes: bytes_to_send }).unwrap();
    let senders = [peer(1), peer(2), peer(3), Address::Channel(data_channel())];
    drive(&mut engine, start, bytes, &senders, |engine, now, event| {
        if let SourceEvent::Received { child, bytes } = event {
            let consumed = SourceCommand::Consumed { child, bytes: bytes.len() };
            let _ = engine.handle_command(now, consumed);
        }
    });
    assert!(engine.len() <= 3 && engine.half_open() <= 2);
}
