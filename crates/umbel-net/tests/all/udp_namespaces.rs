//! Multicast between two hosts, which are network namespaces that each test makes and that vanish
//! with it.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use crate::namespaces::{Host, has_nft, in_namespace, run};
use bytes::Bytes;
use umbel_engine::{Address, Allowance, Transmit, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::interface::{Family, Interface, InterfaceError};
use umbel_net::port::{Port, UdpPort};
use umbel_net::udp::{
    JoinError, OpenSenderError, Receiver, ReceiverOptions, SendError, Sender, SenderOptions,
};
use umbel_wire::Channel;

const PORT: u16 = 7_702;
/// Time longer than anything in these tests takes.
const LAST_RESORT: Duration = Duration::from_mins(2);

/// Creates a host and a link to it: `near` here, 10.9.0.1 and fd09::1; `far` there, 10.9.0.2 and
/// fd09::2.
fn linked() -> Host {
    let host = Host::alone();
    run(&format!("ip link add near type veth peer name far netns {}", host.namespace));
    set_up("near", 1);
    host.run(|| set_up("far", 2));
    host.run(|| await_link_local("far"));
    await_link_local("near");
    host
}

fn set_up(interface: &str, number: u8) {
    run("ip link set lo up");
    run(&format!("ip link set {interface} up"));
    run(&format!("ip addr add 10.9.0.{number}/24 dev {interface}"));
    run(&format!("ip addr add fd09::{number}/64 dev {interface} nodad"));
}

/// Waits until the interface has a link-local address, from which MLD reports are sent. It appears
/// when both ends are up.
fn await_link_local(interface: &str) {
    let end = Instant::now() + LAST_RESORT;
    while Interface::resolve(interface).unwrap().v6.len() < 2 {
        assert!(Instant::now() < end, "no link-local address");
        thread::sleep(Duration::from_millis(10));
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn channel(group: &str, source: Option<&str>) -> Channel {
    Channel { source: source.map(address), group: address(group), port: PORT }
}

fn sender(interface: &str, family: Family, offload: bool) -> Sender {
    let interface = Interface::resolve(interface).unwrap();
    Sender::open(&interface, &SenderOptions { offload, ..SenderOptions::new(family) }).unwrap()
}

fn receiver(interface: &str, channel: &Channel) -> Receiver {
    let interface = Interface::resolve(interface).unwrap();
    let options = ReceiverOptions::default();
    let family = Family::of(channel.group);
    let mut receiver = Receiver::open(PORT, family, &interface, &options).unwrap();
    receiver.join(channel).unwrap();
    receiver
}

/// Returns `count` datagrams of `bytes`, each with its number.
fn datagrams(count: usize, bytes: usize) -> TransmitBuf {
    let mut buf = TransmitBuf::new(Allowance::data(count));
    for n in 0..count {
        buf.push(&[n as u8], Bytes::from(vec![n as u8; bytes - 1]));
    }
    buf
}

/// Returns the numbers of the datagrams that arrive, until there are `count` or no more arrive.
/// Checks that each is whole.
fn collect(receiver: &mut Receiver, count: usize, bytes: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let end = Instant::now() + LAST_RESORT;
    while got.len() < count && Instant::now() < end {
        let wait = Some(Duration::from_millis(100));
        receiver
            .receive(wait, None, |datagram| {
                assert_eq!(datagram.payload.len(), bytes);
                assert!(datagram.payload.iter().all(|byte| *byte == datagram.payload[0]));
                got.push(datagram.payload[0]);
            })
            .unwrap();
    }
    got
}

/// Checks that nothing arrives for a while.
fn assert_silent(receiver: &mut Receiver) {
    let wait = Some(Duration::from_millis(50));
    let reception = receiver.receive(wait, None, |_| {}).unwrap();
    assert_eq!(reception.datagrams, 0);
}

/// Returns the channels that both hosts can use: either family, from any source and from one.
fn channels() -> [Channel; 4] {
    [
        channel("239.255.9.1", None),
        channel("232.9.9.1", Some("10.9.0.1")),
        channel("ff15::9:1", None),
        channel("ff3e::9:1", Some("fd09::1")),
    ]
}

#[test]
fn every_kind_of_channel_reaches_the_other_host_and_this_one() {
    in_namespace(|| {
        let host = linked();
        for channel in channels() {
            for offload in [true, false] {
                let family = Family::of(channel.group);
                let mut there = host.run(move || receiver("far", &channel));
                let mut here = [receiver("near", &channel), receiver("near", &channel)];
                let mut sender = sender("near", family, offload);
                sender.send(channel.destination(), &datagrams(100, 1_400)).unwrap();
                let all: Vec<u8> = (0..100).collect();
                assert_eq!(collect(&mut there, 100, 1_400), all, "{channel}, offload {offload}");
                for here in &mut here {
                    assert_eq!(collect(here, 100, 1_400), all, "{channel} here");
                }
                assert_eq!(sender.offloads(), offload);
                there.leave(&channel).unwrap();
                sender.send(channel.destination(), &datagrams(1, 10)).unwrap();
                assert_silent(&mut there);
                assert_eq!(collect(&mut here[0], 1, 10), [0]);
            }
        }
    });
}

#[test]
fn a_source_specific_channel_does_not_take_another_host_as_its_source() {
    in_namespace(|| {
        let host = linked();
        for channel in
            [channel("232.9.9.2", Some("10.9.0.77")), channel("ff3e::9:2", Some("fd09::77"))]
        {
            let mut there = host.run(move || receiver("far", &channel));
            let mut sender = sender("near", Family::of(channel.group), true);
            sender.send(channel.destination(), &datagrams(5, 100)).unwrap();
            assert_silent(&mut there);
        }
    });
}

#[test]
fn without_loopback_only_the_other_host_gets_it() {
    in_namespace(|| {
        let host = linked();
        for channel in channels() {
            let mut there = host.run(move || receiver("far", &channel));
            let mut here = receiver("near", &channel);
            let near = Interface::resolve("near").unwrap();
            let family = Family::of(channel.group);
            let options = SenderOptions { loopback: false, ..SenderOptions::new(family) };
            let mut sender = Sender::open(&near, &options).unwrap();
            sender.send(channel.destination(), &datagrams(3, 100)).unwrap();
            assert_eq!(collect(&mut there, 3, 100), [0, 1, 2]);
            assert_silent(&mut here);
        }
    });
}

#[test]
fn nothing_is_fragmented_and_the_mtu_is_named() {
    in_namespace(|| {
        let host = linked();
        for channel in channels() {
            let family = Family::of(channel.group);
            let mut there = host.run(move || receiver("far", &channel));
            for offload in [true, false] {
                let mut sender = sender("near", family, offload);
                let most = sender.max_datagram();
                assert_eq!(most, 1_500 - family.header_bytes());
                sender.send(channel.destination(), &datagrams(3, most)).unwrap();
                assert_eq!(collect(&mut there, 3, most), [0, 1, 2]);
                for count in [1, 3] {
                    let buf = datagrams(count, most + 1);
                    let error = sender.send(channel.destination(), &buf).unwrap_err();
                    assert!(matches!(error, SendError::TooLong { mtu: 1_500, .. }), "{error}");
                    assert!(error.to_string().contains("near"), "{error}");
                }
                assert_silent(&mut there);
                // The offload did not cause that error.
                assert_eq!(sender.offloads(), offload);
            }
        }
    });
}

#[test]
fn a_link_that_goes_away_is_an_error_that_may_pass() {
    in_namespace(|| {
        let _host = linked();
        for channel in channels() {
            let family = Family::of(channel.group);
            let mut sender = sender("near", family, true);
            run("ip link set near down");
            let error = sender.send(channel.destination(), &datagrams(5, 100)).unwrap_err();
            assert!(error.is_transient(), "{error}");
            assert!(error.to_string().contains("near"), "{error}");
            assert_eq!(sender.counts().unsent, 5);
            assert_eq!(sender.counts().transient_errors, 1);
            run("ip link set near up");
            // The kernel removed the address with the link.
            run("ip addr add fd09::1/64 dev near nodad");
            let end = Instant::now() + LAST_RESORT;
            while let Err(error) = sender.send(channel.destination(), &datagrams(1, 100)) {
                assert!(error.is_transient() && Instant::now() < end, "{error}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
}

#[test]
fn a_firewall_that_refuses_is_named() {
    in_namespace(|| {
        let _host = linked();
        if !has_nft() {
            return;
        }
        run("nft add table ip t");
        run("nft add chain ip t out { type filter hook output priority 0 ; }");
        run("nft add rule ip t out udp dport 7702 drop");
        let mut sender = sender("near", Family::V4, true);
        let to = SocketAddr::new(address("239.255.9.1"), PORT);
        let error = sender.send(to, &datagrams(5, 100)).unwrap_err();
        assert!(matches!(error, SendError::Refused(_)) && error.is_transient(), "{error}");
        run("nft flush ruleset");
        assert_eq!(sender.send(to, &datagrams(5, 100)).unwrap().datagrams, 5);
    });
}

#[test]
fn the_interface_of_the_route_is_found_and_a_useless_one_is_refused() {
    in_namespace(|| {
        let _host = linked();
        for peer in ["10.9.0.2", "fd09::2", "10.9.0.1", "fd09::1"] {
            assert_eq!(Interface::for_peer(address(peer)).unwrap().name, "near", "{peer}");
        }
        let error = Interface::for_peer(address("192.0.2.1")).unwrap_err();
        assert!(matches!(error, InterfaceError::NoRoute { .. }), "{error}");
        let near = Interface::resolve("fd09::1").unwrap();
        let link_local = near.v6[1];
        assert!(link_local.is_unicast_link_local());
        let zoned = Interface::resolve(&format!("{link_local}%near")).unwrap();
        assert_eq!((zoned.index, zoned.v6[0]), (near.index, link_local));
        // It can also be used as a source, as soon as no other host is known to have it.
        let end = Instant::now() + LAST_RESORT;
        let sender = loop {
            match Sender::open(&zoned, &SenderOptions::new(Family::V6)) {
                Ok(sender) => break sender,
                Err(OpenSenderError::NotReady(address)) => {
                    assert!(address == link_local && Instant::now() < end);
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(sender.source().ip(), link_local);

        run("ip link set near multicast off");
        let error = Interface::resolve("near").unwrap_err();
        assert!(matches!(error, InterfaceError::NoMulticast(_)), "{error}");
        run("ip link set near multicast on");
        run("ip link set near down");
        assert!(matches!(Interface::resolve("near").unwrap_err(), InterfaceError::Down(_)));
    });
}

#[test]
fn joining_on_an_interface_that_vanished_says_so() {
    in_namespace(|| {
        let _host = linked();
        for channel in channels() {
            let mut interface = Interface::resolve("near").unwrap();
            interface.index = 4_242;
            let family = Family::of(channel.group);
            let options = ReceiverOptions::default();
            let mut receiver = Receiver::open(PORT, family, &interface, &options).unwrap();
            let error = receiver.join(&channel).unwrap_err();
            assert!(matches!(error, JoinError::Interface { .. }), "{error}");
        }
    });
}

#[test]
fn ipv6_works_on_the_loopback_interface_once_groups_are_routed_there() {
    in_namespace(|| {
        for channel in [channel("ff15::9:3", None), channel("ff3e::9:3", Some("::1"))] {
            let mut receiver = receiver("lo", &channel);
            let mut sender = sender("lo", Family::V6, true);
            let error = sender.send(channel.destination(), &datagrams(1, 100)).unwrap_err();
            assert!(matches!(error, SendError::Unreachable { .. }), "{error}");
            // The command that the message advises does help.
            let advice = "ip -6 route add local ff00::/8 dev lo table local";
            assert!(error.to_string().contains(advice), "{error}");
            run(advice);
            sender.send(channel.destination(), &datagrams(50, 1_400)).unwrap();
            assert_eq!(collect(&mut receiver, 50, 1_400).len(), 50);
            run("ip -6 route del local ff00::/8 dev lo table local");
        }
    });
}

/// Runs a port until it hands over a datagram.
fn hear(port: &mut UdpPort, clock: Clock, mut between: impl FnMut()) {
    let end = Instant::now() + LAST_RESORT;
    let mut heard = false;
    while !heard {
        assert!(Instant::now() < end, "nothing is heard");
        between();
        port.turn(clock.now(), true, &mut |_| heard = true);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_port_goes_on_when_its_interface_was_made_anew() {
    in_namespace(|| {
        let channel = channel("239.1.2.3", None);
        let clock = Clock::new();
        let host = linked();
        let near = Interface::resolve("near").unwrap();
        let options = ReceiverOptions::default();
        let mut port = UdpPort::receiver(Family::V4, PORT, &near, &options).unwrap();
        port.join(&channel).unwrap();
        let send = move || {
            let mut sender = sender("far", Family::V4, true);
            let _ = sender.send(channel.destination(), &datagrams(1, 10));
        };
        hear(&mut port, clock, || host.run(send));
        run("ip link del near");
        port.turn(clock.now(), true, &mut |_| {});
        drop(host);
        let host = linked();
        hear(&mut port, clock, || host.run(send));
    });
}

#[test]
fn a_datagram_that_does_not_fit_any_more_is_trouble_and_no_end() {
    in_namespace(|| {
        let _host = linked();
        let channel = channel("239.1.2.3", None);
        let near = Interface::resolve("near").unwrap();
        let mut port = UdpPort::source(channel, &near, &SenderOptions::new(Family::V4)).unwrap();
        let transmit = Transmit::data(Address::Channel(channel));
        let now = Clock::new().now();
        port.send(now, &transmit, &mut datagrams(3, 1_400)).unwrap();
        run("ip link set near mtu 1000");
        let error = port.send(now, &transmit, &mut datagrams(3, 1_400)).unwrap_err();
        assert!(error.to_string().contains("MTU"), "{error}");
        port.send(now, &transmit, &mut datagrams(3, 900)).unwrap();
    });
}
