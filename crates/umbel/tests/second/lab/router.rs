//! `umbel router` in a lab: trees that grow and are cut hop by hop, and all that happens to
//! routers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::lms::wait_until;
use crate::support::routers::{FAST, Routers, chain};
use crate::support::ssm::{GROUP, Member, Sender};
use crate::support::{lab, sh};
use umbel_lab::Topology;

#[test]
fn a_router_that_is_killed_and_starts_again_forwards_again() {
    let Some(lab) = lab(&chain()) else { return };
    let mut routers = Routers::start(&lab);
    let far = Member::new(&lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    assert!(far.hears(SOON));
    for router in ["r2", "r3", "r1"] {
        routers.process(router).kill();
        // The datagrams that were under way have arrived.
        while far.hears(Duration::from_millis(200)) {}
        let begin = Instant::now();
        routers.run(router, &[]);
        assert!(far.hears(SOON), "{router}: {}", routers.logs.dump());
        println!("{router}: again after {:?}; two query intervals are 4 s", begin.elapsed());
    }
}

#[test]
fn an_interface_that_vanishes_and_comes_again_is_taken_again() {
    let Some(lab) = lab(&chain()) else { return };
    let routers = Routers::start(&lab);
    let (near, far) = (Member::new(&lab, "near", false), Member::new(&lab, "far", false));
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    near.join();
    far.join();
    assert!(near.hears(SOON) && far.hears(SOON));
    // Without carrier.
    lab.set_link_up("r2", "r3", false).unwrap();
    routers.wait_for_outputs("r2", &GROUP.to_string(), &["near"]);
    assert!(near.hears(SOON));
    lab.set_link_up("r2", "r3", true).unwrap();
    far.forget();
    assert!(far.hears(SOON), "{}", routers.logs.dump());
    // An interface that is made and removed, again and again: another number each time.
    let r3 = lab.host("r3").unwrap();
    for _ in 0..2 {
        sh(r3, "ip link add late type veth peer name later; ip addr add 10.99.0.1/24 dev late");
        sh(r3, "ip link set later up; ip link set late up");
        let has_it = || {
            let status = routers.status("r3");
            let interfaces = status["control"]["interfaces"].as_array().unwrap().clone();
            interfaces.iter().any(|interface| interface["name"] == "late")
        };
        wait_until("it takes part", SOON, has_it);
        sh(r3, "ip link del late");
        wait_until("it does not", SOON, || !has_it());
    }
    far.forget();
    assert!(far.hears(SOON));
}

/// Runs a router that must fail. Returns what it says.
#[track_caller]
fn refusal(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    text
}

#[test]
fn a_second_router_on_a_host_is_refused_unless_it_takes_another_table() {
    let Some(lab) = lab(&chain()) else { return };
    let mut routers = Routers::start(&lab);
    let r2 = lab.host("r2").unwrap();
    let again = |options: &[&str]| {
        let mut command = r2.command(env!("CARGO_BIN_EXE_umbel"));
        command.arg("router").args(options);
        command
    };
    let text = refusal(again(&[]));
    assert!(text.contains("another multicast router runs on this host"), "{text}");
    let text = refusal(again(&["--table", "100"]));
    assert!(text.contains("UDP port 7706 is taken"), "{text}");
    let mut command = r2.command(env!("CARGO_BIN_EXE_umbel"));
    command.args(["router", "--json", "--no-lms", "--table", "100"]).args(FAST);
    let mut other = crate::support::process::Process::start("other", command, &routers.logs);
    other.wait_for_event("routing", SOON);
    let text = refusal(again(&["status"]));
    assert!(text.contains("several routers run here") && text.contains("100, main"), "{text}");
    other.stop();
    routers.process("r2").stop();
}

#[test]
fn missing_capabilities_are_named_in_one_line() {
    let umbel = env!("CARGO_BIN_EXE_umbel");
    let command = if nix::unistd::geteuid().is_root() {
        let has = |program: &str| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).status().is_ok()
        };
        if !has("setpriv") {
            return crate::support::skip("`setpriv` (package util-linux) is not installed");
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", umbel]);
        command
    } else {
        Command::new(umbel)
    };
    let mut command = command;
    command.arg("router");
    let text = refusal(command);
    assert!(text.contains("a router needs the capabilities CAP_NET_ADMIN"), "{text}");
    assert!(text.contains("setcap cap_net_"), "{text}");
}

#[test]
fn metrics_are_served() {
    let Some(lab) = lab(&chain()) else { return };
    let mut routers = Routers::start(&lab);
    routers.process("r1").stop();
    routers.run("r1", &["--http", "127.0.0.1:7780"]);
    let far = Member::new(&lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    assert!(far.hears(SOON));
    let r1 = lab.host("r1").unwrap();
    let script = "exec 3<>/dev/tcp/127.0.0.1/7780; \
                  printf 'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3";
    let output = r1.command("bash").args(["-c", script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("umbel_router_packets_total{")).unwrap();
    assert!(line.contains("group=\"232.1.1.1\""), "{text}");
    let packets: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(packets > 0, "{text}");
}

#[test]
fn a_route_that_changes_moves_the_tree() {
    let topology = Topology::new()
        .host("source")
        .router("r1")
        .router("r2")
        .router("r3")
        .router("r4")
        .host("far")
        .link("source", "r1")
        .link("r1", "r2")
        .link("r1", "r3")
        .link("r2", "r4")
        .link("r3", "r4")
        .link("r4", "far");
    let Some(lab) = lab(&topology) else { return };
    let routers = Routers::start(&lab);
    let group = GROUP.to_string();
    let far = Member::new(&lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    assert!(far.hears(SOON));
    routers.wait_for_outputs("r2", &group, &["r4"]);
    routers.wait_for_outputs("r3", &group, &[]);
    let r3 = lab.host("r3").unwrap();
    let via = r3.interfaces().iter().find(|interface| interface.peer == "r4").unwrap().addr4;
    sh(lab.host("r4").unwrap(), &format!("ip route replace 10.1.0.0/16 via {via}"));
    routers.wait_for_outputs("r3", &group, &["r4"]);
    routers.wait_for_outputs("r2", &group, &[]);
    far.forget();
    assert!(far.hears(SOON), "{}", routers.logs.dump());
}

#[test]
fn interfaces_beyond_the_kernels_table_are_named() {
    let Some(lab) = lab(&chain()) else { return };
    let routers = Routers::start(&lab);
    let r3 = lab.host("r3").unwrap();
    // Two of its own and 34 more, of which 30 have room.
    sh(
        r3,
        "for i in $(seq 17); do ip link add a$i type veth peer name b$i; \
         ip addr add 10.200.$i.1/24 dev a$i; ip addr add 10.201.$i.1/24 dev b$i; \
         ip link set a$i up; ip link set b$i up; done",
    );
    let full = || {
        let status = routers.status("r3");
        let troubles = status["troubles"].as_array().unwrap();
        let full = troubles.iter().filter(|trouble| {
            trouble.as_str().unwrap().contains("the kernel's table has 32 interfaces")
        });
        full.count()
    };
    wait_until("four are left out", SOON, || full() == 4);
    sh(r3, "for i in $(seq 17); do ip link del a$i; done");
    wait_until("none is left out", SOON, || full() == 0);
    let far = Member::new(&lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    assert!(far.hears(SOON), "{}", routers.logs.dump());
}
