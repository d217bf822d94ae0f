//! Hosts, switches and routers without impairments.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, LAST_RESORT, lab, receive, socket};
use umbel_lab::{Lab, LabError, Topology};

/// The next port. Ports are not reused, since a fork of another test may hold a closed socket a
/// little longer.
static NEXT_PORT: AtomicU16 = AtomicU16::new(7000);

fn exchange(lab: &Lab, a: &str, b: &str, v6: bool) {
    let (a, b) = (lab.host(a).unwrap(), lab.host(b).unwrap());
    let address =
        |n: umbel_lab::Node<'_>| -> IpAddr { if v6 { n.addr6().into() } else { n.addr4().into() } };
    let port = NEXT_PORT.fetch_add(2, Ordering::Relaxed);
    let (from, to) = (socket(a, address(a), port), socket(b, address(b), port + 1));
    let mut buffer = [0; 10];
    // Neighbours that were cut off a moment ago may still count as unreachable.
    let deadline = Instant::now() + LAST_RESORT;
    let (length, peer) = loop {
        let _ = from.send_to(b"ping", SocketAddr::new(address(b), port + 1));
        match receive(&to, &mut buffer) {
            Ok(heard) => break heard,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(&buffer[..length], b"ping");
    assert_eq!(peer, SocketAddr::new(address(a), port));
    from.set_read_timeout(Some(LAST_RESORT)).unwrap();
    to.send_to(b"pong", peer).unwrap();
    assert_eq!(receive(&from, &mut buffer).unwrap().0, 4);
}

#[test]
fn two_hosts_on_a_switch_talk_over_both_families() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    exchange(&lab, "h1", "h2", false);
    exchange(&lab, "h1", "h2", true);
}

#[test]
fn two_hosts_joined_by_a_cable_talk() {
    let Some(lab) = lab(&Topology::line(0)) else { return };
    exchange(&lab, "h1", "h2", false);
    exchange(&lab, "h2", "h1", true);
}

#[test]
fn routers_forward_along_a_line_and_a_tree() {
    let Some(lab) = lab(&Topology::line(3)) else { return };
    exchange(&lab, "h1", "h2", false);
    exchange(&lab, "h1", "h2", true);
    drop(lab);
    let Some(lab) = support::lab(&Topology::tree(2, 2)) else { return };
    exchange(&lab, "h1", "h4", false);
    exchange(&lab, "src", "h3", true);
}

#[test]
fn commands_run_inside_and_see_only_their_own_interfaces() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let h1 = lab.host("h1").unwrap();
    let output = h1.command("ip").args(["-o", "addr"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&h1.addr4().to_string()), "{text}");
    assert!(text.contains(&h1.addr6().to_string()), "{text}");
    assert!(!text.contains(&lab.host("h2").unwrap().addr4().to_string()), "{text}");
    let output = h1.command("sh").args(["-c", "echo $UMBEL_LAB_HOST"]).output().unwrap();
    assert_eq!(output.stdout, b"h1\n");
    assert_eq!(h1.interface(), "eth0");
    assert_eq!(h1.interfaces()[0].peer, "sw");
    assert!(h1.interfaces()[0].index > 1);
}

#[test]
fn commands_can_be_spawned_from_short_lived_threads() {
    let Some(lab) = lab(&Topology::star(1)) else { return };
    let h1 = lab.host("h1").unwrap();
    let mut child = std::thread::scope(|scope| {
        scope.spawn(|| h1.command("sleep").arg("1000").spawn().unwrap()).join().unwrap()
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.try_wait().unwrap(), None, "it ended with the thread that started it");
    drop(lab);
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it outlived the lab");
}

#[test]
fn dropping_the_lab_kills_what_runs_in_it_with_its_children() {
    let Some(lab) = lab(&Topology::star(1)) else { return };
    let h1 = lab.host("h1").unwrap();
    let script = "setsid sleep 1001 & echo $!; wait";
    let mut shell = h1.command("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    drop(lab);
    shell.wait().unwrap();
    let grandchild = std::path::PathBuf::from(format!("/proc/{}/ns/net", line.trim()));
    assert!(grandchild.read_link().is_err(), "the grandchild runs on");
}

#[test]
fn a_cut_plain_link_carries_nothing_and_a_mended_one_does_again() {
    for topology in [Topology::star(2), Topology::line(0), Topology::line(1)] {
        let Some(lab) = lab(&topology) else { return };
        let first = &topology.links[0];
        exchange(&lab, "h1", "h2", false);
        lab.set_link_up(&first.a, &first.b, false).unwrap();
        let (h1, h2) = (lab.host("h1").unwrap(), lab.host("h2").unwrap());
        let to = socket(h2, h2.addr4().into(), 6999);
        let from = socket(h1, h1.addr4().into(), 0);
        let _ = from.send_to(b"x", (h2.addr4(), 6999));
        assert!(receive(&to, &mut [0; 10]).is_err());
        lab.set_link_up(&first.a, &first.b, true).unwrap();
        // A switch port takes a moment to notice its carrier.
        let deadline = Instant::now() + LAST_RESORT;
        while from.send_to(b"x", (h2.addr4(), 6999)).is_err() || receive(&to, &mut [0; 10]).is_err()
        {
            assert!(Instant::now() < deadline);
        }
        exchange(&lab, "h1", "h2", true);
    }
}

#[test]
fn unknown_names_and_plain_links_are_refused_by_name() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    assert!(lab.host("sw").is_err());
    assert_eq!(lab.host("x").unwrap_err().to_string(), "the lab has no host or router `x`");
    let error = lab.set_link("h1", "sw", umbel_lab::Impairment::none()).unwrap_err();
    assert!(matches!(error, LabError::NotEmulated(_)));
    assert!(lab.set_link_up("h1", "h2", true).is_err());
    assert!(lab.link_stats().iter().all(|link| link.directions.is_none()));
}

#[test]
fn a_large_star_comes_up() {
    let Some(lab) = lab(&Topology::star(50)) else { return };
    exchange(&lab, "h1", "h50", false);
}
