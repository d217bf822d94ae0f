//! `umbel router` between routers of other people, and as `tshark` sees it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::lab;
use crate::support::lms::{receiver, send_unit, source, units, wait_until};
use crate::support::routers::Routers;
use crate::support::smo::have;
use crate::support::ssm::{GROUP, Member, Sender};
use nix::sys::signal::{Signal, kill};
use umbel_lab::testing::say_skipped;
use umbel_lab::{Node, Topology};

/// Returns three routers in a row.
fn row() -> Topology {
    Topology::new()
        .host("source")
        .router("r1")
        .router("r2")
        .router("r3")
        .host("far")
        .link("source", "r1")
        .link("r1", "r2")
        .link("r2", "r3")
        .link("r3", "far")
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `pimd` with its own `/run`.
fn pimd(router: Node<'_>, program: &str, config: &Path) -> Running {
    let script = format!("mount -t tmpfs none /run && exec {program} -f -c {}", config.display());
    let mut command = router.command("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

#[test]
fn a_channel_passes_between_two_routers_that_run_pimd() {
    let programs = ["pimd", "/usr/sbin/pimd"];
    let runs = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let Some(program) = programs.into_iter().find(runs) else {
        return say_skipped("`pimd` is not installed");
    };
    let Some(lab) = lab(&row()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("pimd.conf");
    std::fs::write(&config, "").unwrap();
    let mut routers = Routers::none(&lab);
    // pimd's clock ticks every five seconds; neighbours must last longer than that.
    routers.run("r2", &["--hello-interval", "10s"]);
    let peers = ["r1", "r3"].map(|name| pimd(lab.host(name).unwrap(), program, &config));
    // They say Hello every 30 seconds, and must have heard each other.
    let neighbours = Duration::from_mins(1);
    wait_until("r2 knows both", neighbours, || routers.neighbours("r2") == 2);
    let far = Member::new(&lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    let begin = Instant::now();
    // pimd sends its joins every five seconds, once it has heard our Hello.
    if !far.hears(Duration::from_mins(1)) {
        routers.logs.fail(&format!("nothing comes: {:#}", routers.status("r2")));
    }
    println!("the first packet came after {:?}", begin.elapsed());
    routers.wait_for_outputs("r2", &GROUP.to_string(), &["r3"]);
    far.forget();
    for _ in 0..100 {
        assert!(far.hears(SOON));
    }
    // The join that r2 sent is one that pimd keeps: it is refreshed.
    far.leave();
    routers.wait_for_outputs_within("r2", &GROUP.to_string(), &[], Duration::from_mins(1));
    drop(peers);
    routers.process("r2").stop();
}

/// Captures what passes an interface, until it ends.
struct Capture {
    tshark: Child,
    file: std::path::PathBuf,
}

impl Capture {
    fn start(node: Node<'_>, interface: &str, file: &Path) -> Capture {
        let mut tshark = node.command("tshark");
        tshark.args(["-i", interface, "-F", "pcap", "-w"]).arg(file);
        tshark.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tshark = tshark.spawn().unwrap();
        // It has begun when its file has a head.
        let has_head = || std::fs::metadata(file).map_or(0, |data| data.len()) > 0;
        wait_until("tshark begins", SOON, has_head);
        Capture { tshark, file: file.to_owned() }
    }

    fn end(&mut self) {
        // Captured frames reach the file within moments.
        std::thread::sleep(Duration::from_secs(1));
        let id = nix::unistd::Pid::from_raw(self.tshark.id() as i32);
        kill(id, Signal::SIGINT).unwrap();
        self.tshark.wait().unwrap();
    }

    /// Returns the packets that match a filter, one line each.
    fn matching(&self, filter: &str) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-Y", filter]);
        for check in ["ip.check_checksum", "udp.check_checksum"] {
            command.args(["-o", &format!("{check}:TRUE")]);
        }
        let output = command.stderr(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{filter}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn tshark_finds_igmp_mld_pim_and_router_alert_well_formed() {
    if !have(&["tshark"]) {
        return;
    }
    let topology = row().host("other").link("r3", "other");
    let Some(lab) = lab(&topology) else { return };
    let folder = tempfile::tempdir().unwrap();
    let r3 = lab.host("r3").unwrap();
    let file = |name: &str| folder.path().join(name);
    let mut upstream = Capture::start(r3, "eth0", &file("upstream.pcap"));
    let mut downstream = Capture::start(r3, "eth1", &file("downstream.pcap"));
    let routers = Routers::start(&lab);
    let host = |name: &str| lab.host(name).unwrap();
    let receivers = ["far", "other"].map(|name| receiver(host(name), host("source"), 10));
    let sender = source(host("source"));
    let arrived = |count| {
        wait_until("the units come", SOON, || receivers.iter().all(|r| units(r) == count));
    };
    wait_until("the tree stands", SOON, || {
        routers.outputs("r1", &crate::support::lms::GROUP.to_string()) == ["r2"]
    });
    send_unit(&sender, b"one");
    arrived(1);
    upstream.end();
    downstream.end();
    let bad = "_ws.malformed || _ws.expert.severity == error || ip.checksum.status == 0 || \
               udp.checksum.status == 0 || igmp.checksum.status == 0 || pim.cksum.status == 0 \
               || icmpv6.checksum.status == 0";
    for capture in [&upstream, &downstream] {
        assert_eq!(capture.matching(bad), [""; 0]);
        for filter in ["igmp.type == 0x11 && ip.opt.ra == 0", "icmpv6.type == 130"] {
            assert!(!capture.matching(filter).is_empty(), "{filter}");
        }
    }
    assert_eq!(downstream.matching("pim"), [""; 0], "there are only hosts");
    // Joins go up; offers go up with the option, in datagrams of UDP.
    for filter in ["pim.type == 0", "pim.type == 3 && ip", "udp && ip.opt.ra == 0"] {
        assert!(!upstream.matching(filter).is_empty(), "{filter}");
    }
}
