//! Groups across switches and routers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{LAST_RESORT, lab, receive, socket};
use umbel_lab::{Lab, NodeKind, Topology};

const PORT: u16 = 7300;
/// Silence after which a datagram counts as not delivered.
const QUIET: Duration = Duration::from_millis(200);
const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x77);

fn member(lab: &Lab, host: &str, group: IpAddr) -> UdpSocket {
    let host = lab.host(host).unwrap();
    let socket = socket(host, group, PORT);
    match group {
        IpAddr::V4(group) => socket.join_multicast_v4(&group, &host.addr4()).unwrap(),
        IpAddr::V6(group) => {
            socket.join_multicast_v6(&group, host.interfaces()[0].index).unwrap();
        }
    }
    socket.set_read_timeout(Some(QUIET)).unwrap();
    socket
}

/// Numbers what is sent, so that nobody takes a late datagram for the next one.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Sends to the group with a hop limit of 8. Returns which members hear it, and waits longer for
/// those that are expected to.
fn heard<const N: usize>(
    lab: &Lab,
    source: &str,
    group: IpAddr,
    members: [&UdpSocket; N],
    patience: [Duration; N],
) -> [bool; N] {
    let host = lab.host(source).unwrap();
    let sender = socket2::Socket::from(socket(host, group, 0));
    if group.is_ipv4() {
        sender.set_multicast_ttl_v4(8).unwrap();
        sender.set_multicast_if_v4(&host.addr4()).unwrap();
    } else {
        sender.set_multicast_hops_v6(8).unwrap();
        sender.set_multicast_if_v6(host.interfaces()[0].index).unwrap();
    }
    let sender = UdpSocket::from(sender);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    sender.send_to(&number, SocketAddr::new(group, PORT)).unwrap();
    std::array::from_fn(|n| {
        members[n].set_read_timeout(Some(patience[n])).unwrap();
        let mut buffer = [0; 16];
        while let Ok((length, _)) = receive(members[n], &mut buffer) {
            if buffer[..length] == number {
                return true;
            }
        }
        false
    })
}

/// Sends to the group, and checks which members hear it.
#[track_caller]
fn assert_heard<const N: usize>(
    lab: &Lab,
    source: &str,
    group: IpAddr,
    members: [&UdpSocket; N],
    expected: [bool; N],
) {
    let patience = expected.map(|expected| if expected { LAST_RESORT } else { QUIET });
    let heard = heard(lab, source, group, members, patience);
    assert_eq!(heard, expected, "{group} from {source}");
}

#[test]
fn a_group_crosses_two_routers_once_it_is_routed() {
    for group in [IpAddr::V4(GROUP4), IpAddr::V6(GROUP6)] {
        let Some(lab) = lab(&Topology::line(2)) else { return };
        let h2 = member(&lab, "h2", group);
        assert_heard(&lab, "h1", group, [&h2], [false]);
        lab.route_multicast("h1", group).unwrap();
        assert_heard(&lab, "h1", group, [&h2], [true]);
    }
}

#[test]
fn only_the_listed_hosts_get_a_group_and_each_gets_one_copy() {
    for group in [IpAddr::V4(GROUP4), IpAddr::V6(GROUP6)] {
        let Some(lab) = lab(&Topology::tree(2, 2)) else { return };
        let members = ["h1", "h2", "h3", "h4"].map(|host| member(&lab, host, group));
        let members = members.each_ref();
        lab.route_multicast_to("src", group, &["h1", "h4"]).unwrap();
        assert_heard(&lab, "src", group, members, [true, false, false, true]);
        assert_heard(&lab, "src", group, members, [true, false, false, true]);
        members[0].set_read_timeout(Some(QUIET)).unwrap();
        assert!(receive(members[0], &mut [0; 16]).is_err(), "a second copy");
        lab.route_multicast_from_all([group]).unwrap();
        assert_heard(&lab, "h2", group, members, [true, true, true, true]);
        assert_heard(&lab, "src", group, members, [true; 4]);
        lab.release_multicast();
        assert_heard(&lab, "src", group, members, [false; 4]);
    }
}

#[test]
fn a_group_goes_where_hosts_have_joined_it_and_no_longer_than_they_stay() {
    let Some(lab) = lab(&Topology::tree(2, 2)) else { return };
    let source = lab.host("src").unwrap().addr4();
    lab.follow_members("src", GROUP4.into(), Duration::ZERO).unwrap();
    // All listen, and only those get it that have told their routers.
    let listener = |host: &str| {
        let socket = socket(lab.host(host).unwrap(), GROUP4.into(), PORT);
        socket2::Socket::from(socket)
    };
    let sockets = ["h1", "h2", "h3"].map(listener);
    let members: Vec<UdpSocket> =
        sockets.iter().map(|socket| socket.try_clone().unwrap().into()).collect();
    let becomes = |expected| {
        let [a, b, c] = &members[..] else { panic!() };
        // A report is under way for some milliseconds, or for longer on a busy machine.
        let start = Instant::now();
        loop {
            let heard = heard(&lab, "src", GROUP4.into(), [a, b, c], [QUIET; 3]);
            if heard == expected {
                return;
            }
            assert!(start.elapsed() < LAST_RESORT, "{heard:?} instead of {expected:?}");
        }
    };
    let address = |host: &str| lab.host(host).unwrap().addr4();
    sockets[0].join_ssm_v4(&source, &GROUP4, &address("h1")).unwrap();
    becomes([true, false, false]);
    sockets[2].join_multicast_v4(&GROUP4, &address("h3")).unwrap();
    becomes([true, false, true]);
    sockets[0].leave_ssm_v4(&source, &GROUP4, &address("h1")).unwrap();
    becomes([false, false, true]);
    // Its link is spared as well.
    let before = received_frames(&lab, "h1");
    members[2].set_read_timeout(Some(LAST_RESORT)).unwrap();
    let sender = socket2::Socket::from(socket(lab.host("src").unwrap(), GROUP4.into(), 0));
    sender.set_multicast_ttl_v4(8).unwrap();
    let sender = UdpSocket::from(sender);
    for _ in 0..200 {
        sender.send_to(b"group", (GROUP4, PORT)).unwrap();
    }
    assert!(receive(&members[2], &mut [0; 16]).is_ok());
    let leaked = received_frames(&lab, "h1") - before;
    assert!(leaked < 100, "{leaked} frames reached a host that has left");
}

#[test]
fn what_is_no_group_or_no_host_is_refused() {
    let Some(lab) = lab(&Topology::line(1)) else { return };
    assert!(lab.route_multicast("h1", "10.0.0.1".parse().unwrap()).is_err());
    assert!(lab.route_multicast("x", GROUP4.into()).is_err());
    assert!(lab.route_multicast_to("h1", GROUP4.into(), &["x"]).is_err());
}

/// Counts the frames that reach a host.
fn received_frames(lab: &Lab, host: &str) -> usize {
    let raw = lab.host(host).unwrap();
    let output = raw.command("cat").arg("/proc/net/dev").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|l| l.trim().starts_with("eth0:")).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn a_snooping_switch_with_a_querier_spares_those_who_did_not_join() {
    for (snooping, spared) in [(false, false), (true, true)] {
        let kind = NodeKind::Switch { snooping, querier: snooping };
        let topology = Topology::new()
            .node("sw", kind)
            .host("a")
            .link("a", "sw")
            .host("b")
            .link("b", "sw")
            .host("c")
            .link("c", "sw");
        let Some(lab) = lab(&topology) else { return };
        let b = member(&lab, "b", GROUP4.into());
        b.set_read_timeout(Some(LAST_RESORT)).unwrap();
        let sender = socket(lab.host("a").unwrap(), GROUP4.into(), 0);
        let leaked = || {
            let before = received_frames(&lab, "c");
            for _ in 0..200 {
                sender.send_to(b"group", (GROUP4, PORT)).unwrap();
            }
            assert!(receive(&b, &mut [0; 16]).is_ok());
            received_frames(&lab, "c") - before
        };
        // Snooping begins a query response interval after the querier's start.
        let start = Instant::now();
        while (leaked() < 100) != spared {
            assert!(start.elapsed() < LAST_RESORT, "snooping: {snooping}");
            std::thread::sleep(QUIET);
        }
    }
}
