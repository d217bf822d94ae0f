//! LMS in a router.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_engine::lms;
use umbel_engine::router::{InterfaceId, PassingDatagram, RouterEngine, Routes, Upstream, Verdict};
use umbel_engine::{Address, Instant};
use umbel_wire::Channel;

use super::data_channel;
use super::network::{MOST, for_each_step, pause};

/// Checks LMS in a router with three links below. The first byte of a step selects where a datagram
/// comes from, where it goes, and how much time passes.
pub fn lms_router(bytes: &[u8]) {
    let address = ([192, 0, 2, 200], 7705).into();
    let mut config = lms::config::RouterConfig::new(address, [3; 32]);
    config.channels = 8;
    let mut router = lms::Router::new(config);
    let mut now = Instant::from_nanos(1_000_000_000);
    let host = |last| SocketAddr::from(([192, 0, 2, last], 7705));
    for_each_step(bytes, |kind, payload| {
        now = pass_router(&mut router, now, now + Duration::from_millis(pause(kind)));
        let interface = u32::from(kind & 3);
        let to = match kind >> 5 {
            0..=2 => Address::Host(address),
            3..=5 => Address::Host(host(1)),
            _ => Address::Channel(data_channel()),
        };
        let datagram = PassingDatagram {
            arrived_on: InterfaceId(interface),
            from: host(if interface == 0 { 1 } else { 10 + interface as u8 }),
            to,
            payload,
        };
        let verdict = router.handle_datagram(now, &mut Tree, datagram);
        assert!(matches!(verdict, Verdict::Forward | Verdict::Take));
        let sent = std::iter::from_fn(|| router.poll_transmit(now)).take(MOST).count();
        assert!(sent < MOST, "it has always something to say");
    });
    pass_router(&mut router, now, now + Duration::from_mins(1));
}

/// Lets time pass at a router; returns the time after it.
fn pass_router(router: &mut lms::Router, mut now: Instant, until: Instant) -> Instant {
    let mut at_once = 0;
    while let Some(due) = router.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        router.handle_timeout(now, &mut Tree);
        while router.poll_transmit(now).is_some() {}
    }
    until
}

/// Interface 0 leads to the source of every channel, all others away from it.
struct Tree;

impl Routes for Tree {
    fn upstream(&mut self, _channel: &Channel) -> Option<Upstream> {
        Some(Upstream::Interface(InterfaceId(0)))
    }

    fn is_downstream(&mut self, _channel: &Channel, interface: InterfaceId) -> bool {
        (1..4).contains(&interface.0)
    }

    fn downstream(&mut self, _channel: &Channel, to: &mut Vec<InterfaceId>) {
        to.extend((1..4).map(InterfaceId));
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend((0..4).map(InterfaceId));
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        host == IpAddr::from([192, 0, 2, 11])
    }
}
