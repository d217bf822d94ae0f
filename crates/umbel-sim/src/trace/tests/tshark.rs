//! Wireshark reads our captures: every packet at its link and time, ALC where it is ALC, checksums
//! right, drops with their reason.

use std::process::{Command, Output};

use super::*;

/// Runs tshark on the capture of the run. Returns `None` with a note on stderr if it is not
/// installed.
fn tshark(name: &str, args: &[&str]) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), name);
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(directory.path().join(name)).args(["-d", "udp.port==7702,alc"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    match command.args(args).output() {
        Ok(Output { status, stdout, stderr }) => {
            assert!(status.success(), "tshark: {}", String::from_utf8_lossy(&stderr));
            Some(String::from_utf8(stdout).unwrap())
        }
        Err(error) => {
            eprintln!("SKIPPED: tshark does not start: {error}");
            None
        }
    }
}

/// Returns the values of some fields of all packets that a filter selects, one line for each
/// packet.
fn fields(name: &str, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut args = vec!["-Y", filter, "-T", "fields", "-E", "separator=|"];
    args.extend(fields.iter().flat_map(|field| ["-e", field]));
    Some(tshark(name, &args)?.lines().map(str::to_owned).collect())
}

#[test]
fn tshark_sees_each_packet_at_its_link() {
    let shown = [
        "frame.time_epoch",
        "frame.interface_name",
        "ip.src",
        "ip.dst",
        "ip.ttl",
        "udp.dstport",
        "rmt-lct.toi",
        "frame.len",
    ];
    let wanted = "frame.interface_name != \"drops\" && frame.interface_name != \"sessions\"";
    let Some(lines) = fields("run.pcapng", wanted, &shown) else { return };
    assert_eq!(
        lines,
        [
            "0.010000000|router-source|10.0.0.1|232.0.0.7|255|7702|9|76",
            "0.020000000|router-near, \"quoted\"|10.0.0.1|232.0.0.7|255|7702|9|76",
            "0.020000000|router-<far & away>|10.0.0.1|232.0.0.7|255|7702|9|76",
            "0.035000000|router-<far & away>|10.0.0.4|10.0.0.1|1|7701||200",
        ]
    );
}

#[test]
fn tshark_tells_which_way_a_packet_went() {
    let Some(lines) = fields("run.pcapng", "frame", &["frame.packet_flags_direction"]) else {
        return;
    };
    let directions: Vec<u32> = lines
        .iter()
        .filter_map(|line| u32::from_str_radix(line.trim_start_matches("0x"), 16).ok())
        .collect();
    assert_eq!(directions, [1, 2, 2, 1], "{lines:?}");
}

#[test]
fn tshark_shows_why_packets_were_dropped() {
    let wanted = "frame.interface_name == \"drops\"";
    let shown = ["frame.time_epoch", "ip.id", "frame.comment"];
    let Some(lines) = fields("run.pcapng", wanted, &shown) else { return };
    assert_eq!(
        lines,
        [
            "0.030000000|0x0001|lost from router to <far & away>",
            "0.030000000|0x0002|dropped by the queue from source to router",
            "0.045000000|0x0003|the hop limit ran out at router",
            "0.050000000|0x0004|the link from source to router is down",
            "0.051000000|0x0005|source knows no way to the destination",
        ]
    );
}

#[test]
fn tshark_shows_messages_of_sessions() {
    let wanted = "frame.interface_name == \"sessions\"";
    let shown = ["ip.src", "ip.dst", "udp.dstport", "udp.length"];
    let Some(lines) = fields("run.pcapng", wanted, &shown) else { return };
    assert_eq!(lines, ["10.0.0.4|10.0.0.1|7700|65515", "10.0.0.4|10.0.0.1|7700|4501"]);
}

#[test]
fn tshark_reads_the_older_format_too() {
    let shown = ["frame.time_epoch", "ip.dst", "rmt-lct.toi", "frame.len", "frame.cap_len"];
    let Some(lines) = fields("run.pcap", "frame", &shown) else { return };
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[0], "0.010000000|232.0.0.7|9|76|76");
    assert_eq!(lines[3], "0.035000000|10.0.0.1||200|34");
}

#[test]
fn tshark_finds_nothing_wrong() {
    for name in ["run.pcapng", "run.pcap"] {
        let wrong = "_ws.malformed || _ws.short || ip.checksum.status == 0 \
                     || udp.checksum.status == 0 || _ws.expert.severity >= 0x600000";
        let Some(lines) = fields(name, wrong, &["_ws.expert.message"]) else { return };
        assert_eq!(lines, [""; 0], "{name}");
        let right = "ip.checksum.status == 1 && udp.checksum.status == 1";
        let Some(lines) = fields(name, right, &["frame.number"]) else { return };
        assert_eq!(lines.len(), if name == "run.pcapng" { 11 } else { 6 });
    }
}
