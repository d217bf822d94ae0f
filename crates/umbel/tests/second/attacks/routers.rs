//! Attacks on `umbel router` by a host of one of its links, under its own address, and by requests
//! that claim to have passed a router.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use nix::libc;
use socket2::Socket;
use umbel_lab::{Node, Topology};
use umbel_wire::lms::{self, Request, TurningPoint, UnitSet};
use umbel_wire::membership::{Message, Record, RecordType, Report};
use umbel_wire::{Channel, igmp, pim};

use super::stranger::{Mark, Stranger};
use super::town::{HONEST, STRANGER, STRANGERS, town_with};
use super::{ATTACK, PATIENCE, PLAN};
use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::lab;
use crate::support::lms::wait_until;
use crate::support::routers::Routers;
use crate::support::ssm::{Member, Sender};

/// A router with a source, a link of hosts, and another one.
fn site() -> Topology {
    let site = Topology::new().host("source").router("r").switch("lan").host("far");
    let site = site.host("near").host("stranger");
    let site = site.link("source", "r").link("r", "lan").link("r", "far");
    site.link("lan", "near").link("lan", "stranger")
}

/// Sends messages of one of IP's protocols, whose groups are of the link.
struct Voice {
    socket: Socket,
    here: Ipv4Addr,
}

impl Voice {
    fn of(host: Node<'_>, protocol: i32) -> Voice {
        let socket = Socket::from(host.socket(libc::AF_INET, libc::SOCK_RAW, protocol).unwrap());
        socket.set_multicast_if_v4(&host.addr4()).unwrap();
        socket.set_multicast_ttl_v4(1).unwrap();
        Voice { socket, here: host.addr4() }
    }

    fn say(&self, to: Ipv4Addr, message: &[u8]) {
        let to = SocketAddrV4::new(to, 0).into();
        self.socket.send_to(message, &to).unwrap();
    }
}

#[test]
fn r1_a_strangers_hello_takes_no_channel_from_its_link() {
    let Some(lab) = lab(&site()) else { return };
    let routers = Routers::start(&lab);
    let near = Member::new(&lab, "near", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    near.join();
    assert!(near.hears(SOON), "{}", routers.logs.dump());
    let stranger = Voice::of(lab.host("stranger").unwrap(), 103);
    let hello = pim::Hello {
        holdtime_s: Some(pim::FOREVER),
        dr_priority: Some(u32::MAX),
        generation: Some(7),
        ..pim::Hello::default()
    };
    let mut message = Vec::new();
    let group = pim::ALL_ROUTERS_V4;
    let from = stranger.here.into();
    pim::emit(&pim::Message::Hello(hello), from, group.into(), &mut message);
    stranger.say(group, &message);
    wait_until("the router refuses it", SOON, || {
        routers.status("r")["control"]["drops"]["NotNamed"] == 1
    });
    near.forget();
    for _ in 0..100 {
        assert!(near.hears(SOON), "{}", routers.logs.dump());
    }
}

#[test]
fn r2_a_host_that_names_channels_without_end_keeps_nobody_from_joining() {
    let Some(lab) = lab(&site()) else { return };
    let routers = Routers::start(&lab);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    let host = lab.host("stranger").unwrap();
    let stranger = Voice::of(host, libc::IPPROTO_IGMP);
    for round in 0..20_u8 {
        for group in 0..=255 {
            let sources = (1..=64).map(|n| [10, 80, group, n].into()).collect();
            let group = Ipv4Addr::new(232, 9, round, group).into();
            let records = vec![Record { kind: RecordType::Allow, group, sources }];
            let mut message = Vec::new();
            igmp::emit(&Message::Report(Report { records, offer: None }), &mut message);
            stranger.say(igmp::REPORT_GROUP, &message);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let members = [Member::new(&lab, "far", false), Member::new(&lab, "near", false)];
    for member in &members {
        member.join();
        assert!(member.hears(SOON), "{}", routers.logs.dump());
    }
    let status = routers.status("r");
    assert!(status["control"]["drops"]["Flood"].as_u64() > Some(1_000), "{status:#}");
    assert!(status["control"]["trees"].as_array().unwrap().len() <= 256 + 1, "{status:#}");
}

#[test]
fn r3_a_host_that_a_request_names_as_its_router_is_sent_nothing_but_questions() {
    let Some(lab) = town_with(2) else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let options = ["--rate", "10M", "--wait-for", "4", "--recovery", "lms"];
    let mut sender = feeds.send(&options);
    let sending = sender.events("sending").remove(0);
    let mark = Mark::of(&sending);
    let (data, _) = sending["data"].as_str().unwrap().split_once('@').unwrap();
    let data: SocketAddr = data.parse().unwrap();
    let victim = feeds.host(STRANGERS[1]);
    let router = SocketAddr::new(victim.addr4().into(), 9_999);
    let ear = victim.udp_socket(router).unwrap();
    let stranger = Stranger::start(feeds.host(STRANGER), mark, move |voice, _| {
        let source = Some(mark.source.ip());
        let n = voice.sent();
        let request = Request {
            channel: Channel { source, group: data.ip(), port: data.port() },
            tsi: mark.tsi,
            // All of a block.
            units: UnitSet::one((n / 7 % 9) << 8 | 0xFF),
            number: 2,
            requestor: None,
            turning_point: Some(TurningPoint { router, interface: n as u32, tag: n }),
            replier_failed: false,
            unicast_reply: false,
            hops: 1,
        };
        let mut bytes = Vec::new();
        lms::Message::Request(request).emit(&mut bytes);
        voice.say(SocketAddr::new(mark.source.ip(), data.port()), &bytes);
    });
    let mut receivers = HONEST.map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, PATIENCE);
    }
    sender.wait_done(PATIENCE);
    let said = stranger.stop();
    assert!(said > ATTACK);
    ear.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2_000];
    let heard: Vec<usize> = std::iter::from_fn(|| ear.recv(&mut buffer).ok()).collect();
    assert!(!heard.is_empty(), "it is asked whether it is there");
    assert!(heard.len() as u64 <= said && heard.iter().all(|len| *len < 64), "{said}: {heard:?}");
}
