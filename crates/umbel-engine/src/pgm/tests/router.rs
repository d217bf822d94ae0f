use std::net::IpAddr;

use umbel_wire::Channel;

use super::*;
use crate::RouterEngine;
use crate::pgm::{Router, RouterConfig};
use crate::router::{InterfaceId, PassingDatagram, RouterDestination, Routes, Upstream, Verdict};

const UP: u32 = 0;
const REPAIRER: &str = "10.0.0.99:7702";

/// Interface 0 leads to the source, those up to `fan_out` away from it.
struct Tree {
    fan_out: u32,
}

impl Routes for Tree {
    fn upstream(&mut self, of: &Channel) -> Option<Upstream> {
        (*of == channel()).then_some(Upstream::Interface(InterfaceId(UP)))
    }

    fn is_downstream(&mut self, of: &Channel, interface: InterfaceId) -> bool {
        *of == channel() && (1..=self.fan_out).contains(&interface.0)
    }

    fn downstream(&mut self, of: &Channel, to: &mut Vec<InterfaceId>) {
        if *of == channel() {
            to.extend((1..=self.fan_out).map(InterfaceId));
        }
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend((0..=self.fan_out).map(InterfaceId));
    }

    fn is_attached(&mut self, _host: IpAddr) -> bool {
        false
    }
}

fn router(change: impl FnOnce(&mut RouterConfig)) -> Tested<Router> {
    let mut config = RouterConfig::new(host(ROUTER));
    change(&mut config);
    Tested::new(Router::new(config), |router| router.drops().to_string())
}

fn give(
    router: &mut Tested<Router>,
    now: Instant,
    on: u32,
    (from, to): (&str, Address),
    message: &Message<'_>,
) -> Verdict {
    let datagram = PassingDatagram {
        arrived_on: InterfaceId(on),
        from: host(from),
        to,
        payload: &bytes(message),
    };
    router.handle_datagram(now, &mut Tree { fan_out: 3 }, datagram)
}

/// Passes the router a message down the tree, on the interface towards the source.
fn down(router: &mut Tested<Router>, now: Instant, message: &Message<'_>) -> Verdict {
    give(router, now, UP, (SOURCE, Address::Channel(channel())), message)
}

/// Passes the router a message from below, addressed to it.
fn up(router: &mut Tested<Router>, now: Instant, on: u32, message: &Message<'_>) -> Verdict {
    give(router, now, on, ("10.0.0.50:7702", Address::Host(host(ROUTER))), message)
}

/// Returns the datagrams that leave: `nak 3 to 10.0.0.1:7702`, `ncf 3 on 2`.
fn out(router: &mut Tested<Router>, now: Instant) -> Vec<String> {
    if router.poll_timeout().is_some_and(|at| at <= now) {
        router.handle_timeout(now, &mut Tree { fan_out: 3 });
    }
    std::iter::from_fn(|| router.poll_transmit(now))
        .map(|transmit| {
            let message = short(&transmit.payload);
            match transmit.to {
                RouterDestination::Host(to) => format!("{message} to {to}"),
                RouterDestination::Branch { channel: to, interface } => {
                    assert_eq!(to, channel());
                    format!("{message} on {}", interface.0)
                }
                RouterDestination::Neighbours { .. } => panic!("PGM speaks to no neighbours"),
            }
        })
        .collect()
}

#[test]
fn an_spm_goes_on_with_the_routers_address_and_tells_where_naks_go() {
    let mut router = router(|_| {});
    let from_above = Message::Spm { number: 5, trail: 1, next: 9, path: host("10.0.0.7:9") };
    assert_eq!(down(&mut router, ms(0), &from_above), Verdict::Take);
    let expected: Vec<_> = (1..=3).map(|on| format!("spm 1..9 by {ROUTER} on {on}")).collect();
    assert_eq!(out(&mut router, ms(0)), expected);
    up(&mut router, ms(1), 2, &nak(3));
    assert_eq!(out(&mut router, ms(1)), ["ncf 3 on 2", "nak 3 to 10.0.0.7:9"]);
    // An older SPM, and one from below, change nothing.
    down(&mut router, ms(2), &spm(4, 9));
    let forged = Message::Spm { number: 6, trail: 0, next: 9, path: host("10.6.6.6:6") };
    give(&mut router, ms(2), 1, (SOURCE, Address::Channel(channel())), &forged);
    up(&mut router, ms(2), 2, &nak(4));
    assert_eq!(out(&mut router, ms(2)), ["ncf 4 on 2", "nak 4 to 10.0.0.7:9"]);
    router.assert_dropped("Unexpected 1, Duplicate 1");
}

#[test]
fn a_source_that_starts_anew_is_heard_when_its_old_session_has_expired() {
    let mut router = router(|config| config.session_expiry = Duration::from_mins(1));
    down(&mut router, ms(0), &spm(500, 9));
    assert_eq!(out(&mut router, ms(0)).len(), 3);
    // Until then it could be an old SPM.
    down(&mut router, ms(59_999), &spm(0, 1));
    assert_eq!(out(&mut router, ms(59_999)), [""; 0]);
    down(&mut router, ms(60_000), &spm(0, 1));
    assert_eq!(out(&mut router, ms(60_000)).len(), 3);
    router.assert_dropped("Duplicate 1");
}

#[test]
fn one_nak_goes_up_and_the_retransmission_goes_where_naks_came_from() {
    let mut router = router(|_| {});
    for on in [3, 1, 3] {
        up(&mut router, ms(0), on, &nak(7));
    }
    let nak_up = format!("nak 7 to {SOURCE}");
    assert_eq!(out(&mut router, ms(0)), ["ncf 7 on 3", &nak_up, "ncf 7 on 1", "ncf 7 on 3"]);
    assert_eq!(down(&mut router, ms(1), &ncf(7)), Verdict::Take);
    assert_eq!(router.states(), 1);
    assert_eq!(down(&mut router, ms(2), &rdata(7)), Verdict::Take);
    assert_eq!(out(&mut router, ms(2)), ["rdata 7 on 1", "rdata 7 on 3"]);
    assert_eq!((router.states(), router.poll_timeout()), (0, None));
    // A NAK after that sets up state again [LMS §IV-H].
    up(&mut router, ms(3), 2, &nak(7));
    assert_eq!(out(&mut router, ms(3)), ["ncf 7 on 2", &nak_up]);
}

#[test]
fn a_retransmission_that_nobody_asked_for_stays_out() {
    let mut router = router(|_| {});
    assert_eq!(down(&mut router, ms(0), &rdata(7)), Verdict::Take);
    assert_eq!(down(&mut router, ms(0), &ncf(7)), Verdict::Take);
    assert!(out(&mut router, ms(0)).is_empty());
    router.assert_dropped("NotAsked 2");
    assert_eq!(down(&mut router, ms(0), &odata(7)), Verdict::Forward);
}

#[test]
fn a_nak_without_confirmation_is_repeated_and_then_forgotten() {
    let mut router = router(|config| config.nak_retries = 3);
    up(&mut router, ms(0), 1, &nak(7));
    let mut naks = 0;
    while router.states() > 0 {
        let next = router.poll_timeout().unwrap_or(ms(0));
        naks += out(&mut router, next).len();
    }
    assert_eq!((naks, router.stats().naks_up, router.stats().expired), (2 + 2, 3, 1));
    assert_eq!(router.poll_timeout(), None);
}

#[test]
fn a_nak_after_the_elimination_interval_goes_up_again() {
    let mut router = router(|_| {});
    up(&mut router, ms(0), 1, &nak(7));
    down(&mut router, ms(1), &ncf(7));
    out(&mut router, ms(1));
    up(&mut router, ms(249), 2, &nak(7));
    assert_eq!(out(&mut router, ms(249)), ["ncf 7 on 2"]);
    up(&mut router, ms(250), 2, &nak(7));
    assert_eq!(out(&mut router, ms(250)), ["ncf 7 on 2".to_owned(), format!("nak 7 to {SOURCE}")]);
}

#[test]
fn state_without_data_expires() {
    let mut router = router(|_| {});
    up(&mut router, ms(0), 1, &nak(7));
    down(&mut router, ms(1), &ncf(7));
    out(&mut router, ms(1));
    assert_eq!(router.poll_timeout(), Some(ms(5_001)));
    assert!(out(&mut router, ms(5_001)).is_empty());
    assert_eq!((router.states(), router.stats().expired), (0, 1));
}

#[test]
fn the_state_of_one_interface_is_bounded_and_does_not_hurt_others() {
    let mut router = router(|config| config.interface_states = 100);
    for sequence in 0..10_000 {
        up(&mut router, ms(0), 1, &nak(sequence));
    }
    assert_eq!(router.states(), 100);
    router.assert_dropped("OverLimit 9900");
    // Two datagrams for each NAK that is accepted, none for the others.
    assert_eq!(out(&mut router, ms(0)).len(), 200);
    up(&mut router, ms(1), 2, &nak(5_000));
    assert_eq!(out(&mut router, ms(1)).len(), 2);
    // A repeated NAK of a noted unit does not exceed the limit.
    up(&mut router, ms(1), 1, &nak(50));
    assert_eq!(out(&mut router, ms(1)), ["ncf 50 on 1"]);
    down(&mut router, ms(2), &rdata(50));
    assert_eq!(out(&mut router, ms(2)), ["rdata 50 on 1"]);
    up(&mut router, ms(3), 1, &nak(20_000));
    assert_eq!(out(&mut router, ms(3)).len(), 2, "there is room again");
}

#[test]
fn naks_by_ways_that_no_data_go_are_dropped() {
    let mut router = router(|_| {});
    up(&mut router, ms(0), UP, &nak(7));
    up(&mut router, ms(0), 4, &nak(7));
    up(&mut router, ms(0), 1, &Message::Nak { channel: other_channel(), sequence: 7 });
    up(&mut router, ms(0), 1, &rdata(7));
    up(&mut router, ms(0), 1, &Message::Ncf { channel: Some(channel()), sequence: 7 });
    router.assert_dropped("Unexpected 5");
    assert!(out(&mut router, ms(0)).is_empty() && router.states() == 0);
    // Other datagrams are forwarded: those to another host, or not PGM's at all.
    let elsewhere = Address::Host(host("10.0.0.60:7702"));
    assert_eq!(give(&mut router, ms(0), 1, (SOURCE, elsewhere), &nak(7)), Verdict::Forward);
    let junk = PassingDatagram {
        arrived_on: InterfaceId(1),
        from: host(SOURCE),
        to: Address::Host(host(ROUTER)),
        payload: b"Um\x01\x84\0\0\0\x09",
    };
    assert_eq!(router.handle_datagram(ms(0), &mut Tree { fan_out: 3 }, junk), Verdict::Take);
    router.assert_dropped("Unexpected 5, Malformed 1");
}

#[test]
fn a_nak_on_its_way_to_the_source_is_taken() {
    let mut router = router(|_| {});
    let to = Address::Host(host(SOURCE));
    assert_eq!(give(&mut router, ms(0), 1, ("10.0.0.50:1", to), &nak(7)), Verdict::Take);
    assert_eq!(out(&mut router, ms(0)), ["ncf 7 on 1".to_owned(), format!("nak 7 to {SOURCE}")]);
}

#[test]
fn the_number_of_sessions_is_bounded() {
    let mut router = router(|config| config.sessions = 0);
    assert_eq!(down(&mut router, ms(0), &spm(0, 4)), Verdict::Forward);
    router.assert_dropped("OverLimit 1");
}

#[test]
fn a_designated_repairer_is_asked_first_and_the_node_above_when_it_is_silent() {
    let mut router = router(|config| config.repairer = Some(host(REPAIRER)));
    up(&mut router, ms(0), 1, &nak(7));
    let ask = format!("nak 7 to {REPAIRER}");
    assert_eq!(out(&mut router, ms(0)), ["ncf 7 on 1", &ask]);
    let repairer = (REPAIRER, Address::Host(host(ROUTER)));
    let confirm = Message::Ncf { channel: Some(channel()), sequence: 7 };
    give(&mut router, ms(1), 3, repairer, &confirm);
    let repair =
        Message::Rdata { channel: Some(channel()), sequence: 7, trail: 0, payload: b"unit" };
    give(&mut router, ms(1), 3, ("10.0.0.50:7702", repairer.1), &repair);
    assert!(out(&mut router, ms(1)).is_empty(), "from someone else");
    router.assert_dropped("Unexpected 1");
    give(&mut router, ms(1), 3, repairer, &repair);
    assert_eq!(out(&mut router, ms(1)), ["rdata 7 on 1"]);
    up(&mut router, ms(2), 1, &nak(8));
    out(&mut router, ms(2));
    assert_eq!(out(&mut router, ms(502)), [format!("nak 8 to {SOURCE}")]);
}
