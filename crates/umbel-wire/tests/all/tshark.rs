//! Wireshark's dissector reads our packets as ALC, with every number where it belongs.
//!
//! Wireshark 4.0 names FEC Encoding ID 5 but does not know its FEC Payload ID, which it shows as
//! the first bytes of the payload. These tests tolerate only this deviation, and only with that
//! scheme.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};

use umbel_wire::reception::ChannelStamp;
use umbel_wire::{DataHeader, Scheme, Toi, Tsi};

const PORT: u16 = 7702;
const SYMBOL: &[u8] = b"sixteen byte sym";
const SYMBOL_HEX: &str = "7369787465656e20627974652073796d";
/// pcap's link type for packets that begin with the IP header.
const LINKTYPE_RAW: u32 = 101;

/// Fields that tshark prints for each packet.
const FIELDS: [&str; 14] = [
    "alc.version",
    "rmt-lct.fsize.cci",
    "rmt-lct.tsi",
    "rmt-lct.toi",
    "rmt-lct.cci",
    "rmt-lct.hlen",
    "rmt-lct.codepoint",
    "rmt-lct.flags.close_session",
    "rmt-lct.flags.close_object",
    "rmt-fec.encoding_id",
    "rmt-fec.sbn",
    "rmt-fec.esi",
    "alc.payload",
    "data.data",
];

/// A capture file that is deleted with the test.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str, headers: &[DataHeader]) -> Capture {
        let file = format!("umbel-wire-{name}-{}.pcap", std::process::id());
        let path = std::env::temp_dir().join(file);
        fs::write(&path, pcap(headers)).unwrap();
        Capture(path)
    }

    /// Runs tshark on the file. Returns `None`, with a message on stderr, if it is not installed.
    fn tshark(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("tshark");
        command.arg("-n").arg("-r").arg(&self.0).args(["-d", &format!("udp.port=={PORT},alc")]);
        match command.args(args).output() {
            Ok(Output { status, stdout, stderr }) => {
                check(status, &stderr);
                Some(String::from_utf8(stdout).unwrap())
            }
            Err(error) => {
                eprintln!("SKIPPED: tshark does not start: {error}");
                None
            }
        }
    }
}

fn check(status: ExitStatus, stderr: &[u8]) {
    assert!(status.success(), "tshark: {}", String::from_utf8_lossy(stderr));
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a capture of one packet for each header, all with the same symbol.
fn pcap(headers: &[DataHeader]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4, 0x0002_0004, 0, 0, 0xFFFF, LINKTYPE_RAW] {
        file.extend_from_slice(&u32::to_be_bytes(word));
    }
    for header in headers {
        let packet = ipv4(&udp(&[&header.emit().unwrap(), SYMBOL].concat()));
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(&packet);
    }
    file
}

/// Creates a datagram without a checksum, which IPv4 allows.
fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for half in [40_000, PORT, payload.len() as u16 + 8, 0] {
        datagram.extend_from_slice(&half.to_be_bytes());
    }
    [&datagram, payload].concat()
}

fn ipv4(datagram: &[u8]) -> Vec<u8> {
    let len = (datagram.len() as u16 + 20).to_be_bytes();
    let mut header = vec![0x45, 0, len[0], len[1], 0, 1, 0, 0, 16, 17, 0, 0];
    header.extend_from_slice(&Ipv4Addr::new(192, 0, 2, 2).octets());
    header.extend_from_slice(&Ipv4Addr::new(232, 1, 2, 3).octets());
    let sum =
        header.chunks(2).map(|half| u32::from(half[0]) << 8 | u32::from(half[1])).sum::<u32>();
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&header, datagram].concat()
}

/// Returns a header of each scheme.
fn headers() -> [DataHeader; 3] {
    [
        (Scheme::NoCode, 0x0102, 0xFFFE),
        (Scheme::ReedSolomon, 0x01_0203, 0xFD),
        (Scheme::RaptorQ, 0x3F, 0xFF_FFFE),
    ]
    .map(|(scheme, sbn, esi)| DataHeader {
        tsi: Tsi(0xF001_0203),
        toi: Toi(0xF004_0506),
        transmission: 0x1122_3344,
        index: 0x5566_7788,
        stamp: ChannelStamp::new(0x99AA_BBCC, 0xDD_EEFF, 1),
        scheme,
        sbn,
        esi,
    })
}

/// Returns the output expected of tshark for a packet. With `payload_id_shown` = false it is that
/// of an old version, which does not know the FEC Payload ID of Reed–Solomon.
fn expected(header: &DataHeader, payload_id_shown: bool) -> String {
    let mut fields = vec![
        "1".to_owned(),
        "16".to_owned(),
        header.tsi.0.to_string(),
        header.toi.0.to_string(),
        format!("{:08x}{:08x}99aabbccddeeff01", header.transmission, header.index),
        (DataHeader::LEN - 4).to_string(),
        header.scheme.encoding_id().to_string(),
        "0".to_owned(),
        "0".to_owned(),
        header.scheme.encoding_id().to_string(),
    ];
    let none = String::new;
    let (sbn, esi) = (header.sbn, header.esi);
    if payload_id_shown {
        fields.extend([sbn.to_string(), format!("0x{esi:08x}"), SYMBOL_HEX.to_owned(), none()]);
    } else {
        fields.extend([none(), none(), none(), format!("{sbn:06x}{esi:02x}{SYMBOL_HEX}")]);
    }
    fields.join("|")
}

#[test]
fn tshark_reads_every_number_of_our_packets() {
    let headers = headers();
    let capture = Capture::new("fields", &headers);
    let mut args = vec!["-T", "fields", "-E", "separator=|"];
    args.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let Some(lines) = capture.tshark(&args) else { return };
    assert_eq!(lines.lines().count(), headers.len(), "{lines}");
    for (line, header) in lines.lines().zip(&headers) {
        if header.scheme == Scheme::ReedSolomon && line == expected(header, false) {
            eprintln!("this tshark does not know the FEC Payload ID of Reed–Solomon");
        } else {
            assert_eq!(line, expected(header, true), "{FIELDS:?}");
        }
    }
}

#[test]
fn tshark_finds_nothing_wrong_with_our_packets() {
    let headers = headers();
    let capture = Capture::new("clean", &headers);
    let Some(text) = capture.tshark(&["-V"]) else { return };
    assert_eq!(text.matches("\nAsynchronous Layered Coding").count(), headers.len(), "{text}");
    assert!(!text.contains("Malformed"), "{text}");
    let wrong = capture.tshark(&["-Y", "_ws.malformed || _ws.short"]);
    assert_eq!(wrong.as_deref(), Some(""));
    let Some(warnings) = capture.tshark(&["-T", "fields", "-e", "_ws.expert.message"]) else {
        return;
    };
    assert_eq!(warnings.lines().count(), headers.len(), "{warnings}");
    assert!(warnings.lines().all(str::is_empty), "{warnings}");
}
