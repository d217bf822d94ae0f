use umbel_wire::rtp::{Identity, identify};
use umbel_wire::sdp::Description;
use umbel_wire::stream::{LayerFec, LayerInfo, StreamContent};
use umbel_wire::{Channel, Tsi};

use super::*;

fn formats() -> Vec<RtpFormat> {
    let format = RtpFormat {
        kind: "video".to_owned(),
        payload_type: 96,
        map: Some("H264/90000".to_owned()),
        parameters: Some("packetization-mode=1".to_owned()),
    };
    vec![format.clone(), RtpFormat { payload_type: 97, ..format }]
}

fn stream(mode: StreamMode, fec: Option<LayerFec>) -> Stream {
    Stream {
        name: "x".parse().unwrap(),
        tsi: Tsi(7),
        source: "192.0.2.2:40123".parse().unwrap(),
        base: Channel {
            source: Some([192, 0, 2, 2].into()),
            group: [232, 7, 7, 7].into(),
            port: 7704,
        },
        control: None,
        scope: 32,
        mode,
        symbol_len: 1372,
        layers: vec![LayerInfo { kbit_per_s: 250, fec }, LayerInfo { kbit_per_s: 750, fec }],
        content: StreamContent::Rtp(formats()),
        repair: None,
        version: 1,
    }
}

fn relay(mode: StreamMode, fec: Option<LayerFec>) -> Relay {
    Relay::new(&stream(mode, fec), &formats())
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Returns a packet of a picture that a decoder can start with.
fn packet(ssrc: u32, sequence: u16, timestamp: u32) -> Bytes {
    let mut bytes = vec![0x80; 13];
    bytes[12] = 0x65;
    identify(&mut bytes, Identity { payload_type: 96, sequence, timestamp, ssrc });
    bytes.into()
}

fn drain(relay: &mut Relay, ms: u64) -> Vec<(u8, u16)> {
    let packets = std::iter::from_fn(|| relay.pop(at(ms)));
    packets.map(|(lane, bytes)| (lane, RtpPacket::parse(&bytes).unwrap().sequence)).collect()
}

#[test]
fn cumulative_layers_keep_their_packets_and_go_to_lanes_of_their_own() {
    let mut relay = relay(StreamMode::Cumulative, None);
    let packets = [packet(1, 5, 0), packet(1, 7, 3_000), packet(9, 70, 0), packet(1, 6, 0)];
    for (bytes, layer) in packets.iter().zip([0, 0, 1, 0]) {
        relay.unit(at(0), layer, bytes.clone());
    }
    let out: Vec<_> = std::iter::from_fn(|| relay.pop(at(0))).collect();
    let expected = [(0, 0), (0, 3), (0, 1), (1, 2)].map(|(lane, n)| (lane, packets[n].clone()));
    assert_eq!(out, expected);
    assert_eq!(relay.stats().shown, 2);
    relay.unit(at(1), 2, packet(1, 8, 0));
    relay.unit(at(1), 0, Bytes::from_static(b"not RTP"));
    relay.unit(at(1), 0, packet(1, 6, 0));
    let stats = relay.stats();
    assert_eq!((stats.refused, stats.useless, drain(&mut relay, 9_000)), (2, 1, vec![]));
}

#[test]
fn where_packets_are_restored_they_are_waited_for() {
    let fec = Some(LayerFec { source_symbols: 8, repair_symbols: 3 });
    for (fec, wait) in [(None, WAIT), (fec, WAIT + BLOCK_TIME)] {
        let mut relay = relay(StreamMode::Cumulative, fec);
        relay.unit(at(0), 0, packet(1, 5, 0));
        relay.unit(at(1), 0, packet(1, 7, 0));
        assert_eq!(drain(&mut relay, 1), [(0, 5)]);
        assert_eq!(relay.next(), Some(at(1) + wait));
    }
}

#[test]
fn encodings_become_one_stream_and_what_waited_goes_first() {
    let mut relay = relay(StreamMode::Independent, None);
    relay.unit(at(0), 0, packet(1, 5, 0));
    relay.unit(at(1), 0, packet(1, 7, 3_000));
    assert_eq!(drain(&mut relay, 1), [(0, 5)]);
    relay.unit(at(2), 1, packet(9, 1_000, 0));
    relay.unit(at(3), 1, packet(9, 1_001, 3_000));
    assert_eq!(drain(&mut relay, 3), [(0, 7), (0, 8), (0, 9)]);
    assert_eq!((relay.changes(), relay.next()), (1, None));
}

#[test]
fn the_description_for_players_has_a_port_for_each_lane() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("watch.sdp");
    let to: SocketAddr = "127.0.0.1:5004".parse().unwrap();
    let target = RtpTarget { to, description: Some(path.clone()) };
    for (mode, expected) in [
        (StreamMode::Cumulative, vec![(5004, "96"), (5006, "97")]),
        (StreamMode::Independent, vec![(5004, "96")]),
    ] {
        target.describe(&stream(mode, None), &formats()).unwrap();
        let text = std::fs::read(&path).unwrap();
        let description = Description::parse(&text).unwrap();
        let media: Vec<_> = description.media.iter().map(|m| (m.port, &m.formats[..])).collect();
        assert_eq!(media, expected);
        let again: Vec<RtpFormat> =
            description.media.iter().map(|media| RtpFormat::of_medium(media).unwrap()).collect();
        assert_eq!(again, formats()[..again.len()]);
    }
    assert_eq!(target.of_lane(1), "127.0.0.1:5006".parse().unwrap());
    let cumulative = stream(StreamMode::Cumulative, None);
    for wrong in ["127.0.0.1:65535", "239.1.1.1:5004", "0.0.0.0:5004", "127.0.0.1:0"] {
        let target = RtpTarget { to: wrong.parse().unwrap(), description: None };
        assert!(target.describe(&cumulative, &formats()).is_err(), "{wrong}");
    }
}
