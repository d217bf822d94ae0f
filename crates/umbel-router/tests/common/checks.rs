//! The control plane of a router behind whatever its links say. A fuzz target runs this, and
//! `corpus.rs` runs it on the target's corpus.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used, reason = "shared by test binaries")]

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::chance::generator;
use umbel_engine::router::InterfaceId;
use umbel_router::control::{
    ControlConfig, ControlMessage, ControlPlane, Family, InterfaceAddress, InterfaceInfo, NextHop,
    Protocol, UnicastRoutes,
};
use umbel_wire::checksum::Sum;

/// Length of a step's head.
const HEAD: usize = 4;
/// Interfaces of the router.
const INTERFACES: u32 = 3;
/// Steps of the time between two messages.
const PAUSES_MS: [u64; 4] = [0, 10, 1_000, 60_000];
/// Greatest number of outputs between two inputs, and of wake-ups at one moment.
const MOST: usize = 10_000;

/// Hands steps to a control plane. Each is a byte for interface, host and pause, one for protocol
/// and destination, the length of a message in two bytes, and the message. Its checksum is made
/// right, since a fuzzer would hardly ever guess one.
pub fn router_control(bytes: &[u8]) {
    let config = ControlConfig::default();
    let most_trees = config.bounds.trees;
    let mut plane = ControlPlane::new(config, generator(7));
    let mut now = Instant::from_nanos(1_000_000_000);
    for interface in 1..=INTERFACES {
        plane.interface_up(now, &Routes, InterfaceId(interface), info(interface));
    }
    let mut rest = bytes;
    while let Some((&[who, what, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (message, next) = after.split_at(len);
        rest = next;
        now = pass(&mut plane, now, now + Duration::from_millis(PAUSES_MS[usize::from(who >> 6)]));
        let interface = 1 + u32::from(who & 3) % INTERFACES;
        let v6 = what & 4 != 0;
        let from = host(interface, 1 + (who >> 2 & 15), v6);
        let to = destination(what >> 3, v6);
        let protocol = match (what & 3, v6) {
            (0 | 1, false) => Protocol::Igmp,
            (0 | 1, true) => Protocol::Icmpv6,
            _ => Protocol::Pim,
        };
        let payload = with_checksum(message, protocol, from, to);
        let interface = InterfaceId(interface);
        plane.handle_message(
            now,
            &Routes,
            ControlMessage { interface, from, to, protocol, payload: &payload },
        );
        drain(&mut plane);
        assert!(plane.status(now).trees.len() <= most_trees);
    }
    pass(&mut plane, now, now + Duration::from_mins(10));
}

/// Lets time pass; returns the time after it.
fn pass(plane: &mut ControlPlane, mut now: Instant, until: Instant) -> Instant {
    let mut at_once = 0;
    drain(plane);
    while let Some(due) = plane.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        plane.handle_timeout(now, &Routes);
        drain(plane);
    }
    until
}

fn drain(plane: &mut ControlPlane) {
    let sent = std::iter::from_fn(|| plane.poll_transmit());
    let sent = sent.inspect(|sent| assert!(sent.payload.len() <= 1500)).take(MOST).count();
    let changed = std::iter::from_fn(|| plane.poll_forwarding()).take(MOST).count();
    let costs = std::iter::from_fn(|| plane.poll_cost()).take(MOST).count();
    assert!(sent.max(changed).max(costs) < MOST, "it has always something to say");
}

/// Returns a message with the checksum at the place where all three protocols have it.
fn with_checksum(message: &[u8], protocol: Protocol, from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if bytes.len() >= 4 {
        bytes[2..4].fill(0);
        let number = if protocol == Protocol::Pim { 103 } else { 58 };
        let head = if from.is_ipv6() {
            Sum::pseudo_header(number, from, to, bytes.len())
        } else {
            Sum::default()
        };
        let checksum = head.bytes(&bytes).checksum();
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

fn host(interface: u32, number: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfe80, 0, 0, interface as u16, 0, 0, 0, number.into()).into()
    } else {
        [10, 0, interface as u8, number].into()
    }
}

/// Returns a group to which such messages go.
fn destination(choice: u8, v6: bool) -> IpAddr {
    let groups: [(&str, &str); 4] = [
        ("224.0.0.13", "ff02::d"),
        ("224.0.0.22", "ff02::16"),
        ("224.0.0.1", "ff02::1"),
        ("232.1.1.1", "ff3e::1:1"),
    ];
    let (of_v4, of_v6) = groups[usize::from(choice) % groups.len()];
    if v6 { of_v6.parse().unwrap() } else { of_v4.parse().unwrap() }
}

fn info(interface: u32) -> InterfaceInfo {
    let address =
        |v6, prefix_len| InterfaceAddress { address: host(interface, 100, v6), prefix_len };
    let addresses = vec![address(false, 24), address(true, 64)];
    InterfaceInfo { name: format!("eth{interface}"), addresses, mtu: 1500 }
}

/// The links' own hosts are on their links, all others behind a router on the first.
struct Routes;

impl UnicastRoutes for Routes {
    fn towards(&self, to: IpAddr) -> Option<NextHop> {
        let on_link = |interface: u32| NextHop {
            interface: InterfaceId(interface),
            gateway: None,
            metric: 0,
        };
        let behind =
            |gateway| NextHop { interface: InterfaceId(1), gateway: Some(gateway), metric: 5 };
        match to {
            IpAddr::V4(to) if to.octets()[..2] == [10, 0] => Some(on_link(to.octets()[2].into())),
            IpAddr::V4(_) => Some(behind(host(1, 1, false))),
            IpAddr::V6(to) if to.is_unicast_link_local() => None,
            IpAddr::V6(_) => Some(behind(host(1, 1, true))),
        }
    }

    /// Interface 3 is one of hosts alone.
    fn leads_beyond(&self, on: InterfaceId, _: Family, _: &[InterfaceAddress]) -> bool {
        on != InterfaceId(3)
    }

    fn leads_to_link(&self, _: InterfaceId, _: IpAddr) -> bool {
        true
    }

    fn is_gateway(&self, on: InterfaceId, to: IpAddr) -> bool {
        on == InterfaceId(1) && [host(1, 1, false), host(1, 1, true)].contains(&to)
    }
}
