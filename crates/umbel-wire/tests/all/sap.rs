//! Announcements survive emitting and parsing, no input makes the parsers panic, and Wireshark
//! reads our announcements.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use proptest::prelude::*;
use umbel_wire::feed::{Feed, FeedContent, MANIFEST_LEN, Recovery, Sealed};
use umbel_wire::sap::{PORT, SapPacket};
use umbel_wire::sdp::Description;
use umbel_wire::session::SessionName;
use umbel_wire::{Channel, Digest, Tsi};

use crate::{checks, seeds};

fn names() -> impl Strategy<Value = SessionName> {
    "[^\\p{Cc}]{1,25}".prop_filter_map("no name of a session", |text| text.parse().ok())
}

/// Generates a source and its two channels, of one address family.
fn places() -> impl Strategy<Value = (SocketAddr, Channel, Channel)> {
    (any::<bool>(), any::<[u8; 4]>(), 1_u16.., 1_u16.., 1_u16..).prop_map(
        |(ipv6, [a, b, c, d], port, data_port, domain_port)| {
            let group = |head: u8| -> IpAddr {
                if ipv6 {
                    [0xFF, 0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, head, b, c, d].into()
                } else {
                    [head, b, c, d].into()
                }
            };
            let source: IpAddr = if ipv6 {
                [0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d].into()
            } else {
                [10, b, c, d].into()
            };
            let specific = (a % 2 == 0).then_some(source);
            (
                SocketAddr::new(source, port),
                Channel { source: specific, group: group(232), port: data_port },
                Channel { source: None, group: group(239), port: domain_port },
            )
        },
    )
}

fn contents() -> impl Strategy<Value = FeedContent> {
    prop_oneof![
        Just(FeedContent::Pipe),
        (any::<[u64; 2]>(), 0..=MANIFEST_LEN, any::<[u8; 32]>()).prop_map(
            |([items, bytes], manifest_len, digest)| FeedContent::Files {
                items,
                bytes,
                manifest_len,
                digest: Digest(digest),
            }
        ),
    ]
}

/// Generates the key of a sealed feed, and the length and digest of the head of a sealed pipe.
fn seals() -> impl Strategy<Value = Option<([u8; 32], u64, [u8; 32])>> {
    prop::option::of((any::<[u8; 32]>(), 0..=MANIFEST_LEN, any::<[u8; 32]>()))
}

fn feeds() -> impl Strategy<Value = Feed> {
    let code = (1_u16.., 1..=255_u16, any::<[bool; 2]>(), 1_u64..);
    (names(), any::<(u32, u64)>(), places(), 1_u8.., code, (contents(), seals())).prop_map(
        |(name, (tsi, version), (source, data, domain), scope, code, (content, seal))| {
            let (symbol_len, block_symbols, [fec, token], kbit_per_s) = code;
            let tsi = Tsi(tsi);
            let sealed = seal.map(|(key, len, digest)| match content {
                FeedContent::Pipe => Sealed { key, head_len: len, head_digest: Digest(digest) },
                FeedContent::Files { manifest_len: head_len, digest: head_digest, .. } => {
                    Sealed { key, head_len, head_digest }
                }
            });
            Feed {
                name,
                tsi,
                source,
                node: umbel_wire::tmtp::NodeId(version),
                data,
                domain,
                scope,
                symbol_len,
                block_symbols,
                fec,
                recovery: Recovery::ALL[tsi.0 as usize % 4],
                kbit_per_s,
                content,
                token,
                last_word: sealed.is_none().then_some(Digest([version as u8; 32])),
                sealed,
                version,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_feed_comes_back_from_its_announcement(feed in feeds(), deletion in any::<bool>()) {
        let text = feed.describe("umbel").emit();
        let mut packet = Vec::new();
        SapPacket::new(deletion, feed.source.ip(), text.as_bytes()).emit(&mut packet);
        let parsed = SapPacket::parse(&packet).unwrap();
        prop_assert_eq!((parsed.deletion, parsed.origin), (deletion, feed.source.ip()));
        let description = Description::parse(parsed.payload).unwrap();
        prop_assert_eq!(Feed::from_description(&description), Ok(Some(feed)));
        checks::sap_packet(&packet);
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        checks::sap_packet(&bytes);
    }

    #[test]
    fn a_damaged_announcement_is_read_or_refused(
        feed in feeds(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let text = feed.describe("umbel").emit();
        let mut packet = Vec::new();
        SapPacket::new(false, feed.source.ip(), text.as_bytes()).emit(&mut packet);
        for (place, byte) in damage {
            let place = place.index(packet.len());
            packet[place] = byte;
        }
        checks::sap_packet(&packet);
    }
}

/// Creates a capture of IPv4 datagrams to the port of announcements.
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4, 0x0002_0004, 0, 0, 0xFFFF, 101] {
        file.extend_from_slice(&u32::to_be_bytes(word));
    }
    for payload in payloads {
        let len = (payload.len() + 28) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 16, 17, 0, 0, 192, 0, 2, 2];
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet.extend_from_slice(&[239, 255, 255, 255]);
        for half in [40_000, PORT, len - 20, 0] {
            packet.extend_from_slice(&half.to_be_bytes());
        }
        packet.extend_from_slice(payload);
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(&packet);
    }
    file
}

#[test]
fn tshark_reads_our_announcements() {
    let seeds = seeds::of("sap_packet");
    let packets: Vec<_> = seeds.into_iter().map(|(_, packet)| packet).collect();
    let path = std::env::temp_dir().join(format!("umbel-sap-{}.pcap", std::process::id()));
    std::fs::write(&path, pcap(&packets)).unwrap();
    let tshark = |fields: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]).arg(&path);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let numbers = ["sap.flags.t", "sap.payload_type", "sdp.session_name", "sdp.media.port"];
    let (read, wrong) = (tshark(&numbers), tshark(&["sdp.invalid", "_ws.malformed"]));
    std::fs::remove_file(&path).unwrap();
    let (Some(read), Some(wrong)) = (read, wrong) else {
        eprintln!("SKIPPED: tshark does not start");
        return;
    };
    let announced = |name: &str| format!("0|application/sdp|{name}|7702,7703");
    let deleted = "1|application/sdp||".to_owned();
    let (live, sealed) = (announced("live"), announced("live"));
    let stream = || "0|application/sdp|lecture|7704,7704".to_owned();
    let mut lines = vec![announced("nightly"), deleted.clone(), live, deleted, sealed];
    lines.extend([stream(), stream(), stream()]);
    let read = read.replace("False", "0").replace("True", "1");
    assert_eq!(read.lines().collect::<Vec<_>>(), lines);
    assert!(wrong.lines().all(|line| line == "|"), "{wrong}");
}
