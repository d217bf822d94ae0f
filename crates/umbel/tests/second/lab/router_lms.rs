//! LMS by `umbel router` in a lab: requests are steered hop by hop, and repairs go where they are
//! missing and nowhere else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::lab;
use crate::support::lms::{
    Endpoint, GROUP, Kind, PORT, Seen, Tap, address, channel, receiver_in, send_unit, source_in,
    units, wait_until,
};
use crate::support::routers::Routers;
use nix::sys::signal::Signal;
use serde_json::Value;
use umbel_engine::lms::{Receiver, Source};
use umbel_lab::{Impairment, Lab, Topology};
use umbel_wire::lms::{Message, TurningPoint};

/// Receivers by name, each with its cost.
type Receivers = BTreeMap<&'static str, Endpoint<Receiver>>;

/// A source, receivers and routers of which each knows its replier.
struct Session<'lab> {
    lab: &'lab Lab,
    v6: bool,
    routers: Routers<'lab>,
    source: Endpoint<Source>,
    receivers: Receivers,
    tap: Tap,
    sent: u64,
}

impl<'lab> Session<'lab> {
    /// Starts all, and waits until these routers have these hosts or routers for repliers.
    #[track_caller]
    fn start(
        lab: &'lab Lab,
        routers: Routers<'lab>,
        costs: &[(&'static str, u32)],
        repliers: &[(&str, &str)],
    ) -> Session<'lab> {
        Session::start_in(false, lab, routers, costs, (repliers, &[]))
    }

    /// Does so in one of the families. Some of the hosts elect the replier of their LAN.
    #[track_caller]
    fn start_in(
        v6: bool,
        lab: &'lab Lab,
        routers: Routers<'lab>,
        costs: &[(&'static str, u32)],
        (repliers, electors): (&[(&str, &str)], &[&str]),
    ) -> Session<'lab> {
        let host = |name: &str| lab.host(name).unwrap();
        let tap = Tap::new(lab);
        let start = |&(name, cost): &(&'static str, u32)| {
            let elects = electors.contains(&name);
            (name, receiver_in(v6, host(name), host("source"), cost, elects))
        };
        let receivers: Receivers = costs.iter().map(start).collect();
        let source = source_in(v6, host("source"));
        let mut session = Session { lab, v6, routers, source, receivers, tap, sent: 0 };
        for &(router, peer) in repliers {
            session.wait_for_replier(router, peer);
        }
        // Everyone has heard of the session before something is lost.
        for _ in 0..2 {
            session.send(b"begin");
            session.wait_for_all();
        }
        session.tap.clear();
        session
    }

    #[track_caller]
    fn wait_for_replier(&self, router: &str, peer: &str) {
        let interfaces = self.lab.host(router).unwrap().interfaces();
        let interface = interfaces.iter().find(|interface| interface.peer == peer).unwrap();
        let until = std::time::Instant::now() + SOON;
        loop {
            let status = self.routers.status(router);
            let lms = &status["lms"][usize::from(self.v6)];
            if lms["repliers"][0]["interface"] == *interface.name {
                return;
            }
            if std::time::Instant::now() > until {
                self.routers
                    .logs
                    .fail(&format!("{router} has not {peer} for a replier: {status:#}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn send(&mut self, unit: &'static [u8]) {
        send_unit(&self.source, unit);
        self.sent += 1;
    }

    /// Sends a unit that is lost on its way between two nodes.
    fn send_and_lose(&mut self, from: &str, to: &str) {
        let before = self.lab.impairment(from, to).unwrap();
        self.lab.set_link_direction(from, to, Impairment { loss: 1.0, ..before }).unwrap();
        self.send(b"lost");
        let reached =
            |seen: &Seen| seen.contains_key(&(from.to_owned(), to.to_owned(), Kind::Data));
        wait_until("the unit comes to where it is lost", SOON, || reached(&self.tap.seen()));
        // The frame has left for the emulator, which drops it at once.
        std::thread::sleep(Duration::from_millis(20));
        self.lab.set_link_direction(from, to, before).unwrap();
    }

    #[track_caller]
    fn wait_for_all(&self) {
        for (name, receiver) in &self.receivers {
            let until = std::time::Instant::now() + SOON;
            while units(receiver) < self.sent {
                if std::time::Instant::now() > until {
                    let stats = receiver.with(|engine, _| (engine.stats(), *engine.drops()));
                    let statuses: Vec<Value> =
                        ["r1", "r2", "r3"].map(|router| self.routers.status(router)).into();
                    self.routers.logs.fail(&format!(
                        "{name} has not got all of {}: {stats:?}; {statuses:#?}",
                        self.sent
                    ));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Loses a unit between two nodes, and checks that its recovery takes these links and no
    /// others. Where the machine stalls, a request is repeated, so that it may try again: a wrong
    /// link is taken each time.
    #[track_caller]
    fn assert_recovery(&mut self, (from, to): (&str, &str), expected: &[(Kind, &[&str])]) {
        for attempt in 0..10 {
            self.tap.clear();
            let duplicates = self.duplicates();
            self.send_and_lose(from, to);
            // The next unit shows the gap.
            self.send(b"next");
            self.wait_for_all();
            std::thread::sleep(Duration::from_secs(1));
            let seen = self.tap.seen();
            let is_so = |(kind, of_kind): &(Kind, &[&str])| links(&seen, *kind) == sorted(of_kind);
            if expected.iter().all(is_so) && self.duplicates() == duplicates {
                return;
            }
            assert!(attempt < 9, "{seen:#?}");
        }
    }

    fn stats(&self, name: &str) -> umbel_engine::lms::ReceiverStats {
        self.receivers[name].with(|engine, _| engine.stats())
    }

    fn duplicates(&self) -> u64 {
        self.receivers.keys().map(|name| self.stats(name).duplicates).sum()
    }
}

/// Returns the counts of a kind, as `from>to` with the number if it is not one.
fn links(seen: &Seen, kind: Kind) -> Vec<String> {
    let of_kind = seen.iter().filter(|((_, _, seen), _)| *seen == kind);
    of_kind
        .map(|((from, to, _), count)| {
            let times = if *count == 1 { String::new() } else { format!(" x{count}") };
            format!("{from}>{to}{times}")
        })
        .collect()
}

fn sorted(links: &[&str]) -> Vec<String> {
    let mut links: Vec<String> = links.iter().map(|&link| link.to_owned()).collect();
    links.sort();
    links
}

#[test]
fn a_loss_between_r1_and_r2_takes_the_links_of_figure_6() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab/seven-routers.toml");
    let Some(lab) = lab(&Topology::from_file(Path::new(file)).unwrap()) else { return };
    let routers = Routers::start(&lab);
    // The even ones of each pair are repliers, E7 that of R2, E8 that of R1.
    let costs = [
        ("e1", 60),
        ("e2", 50),
        ("e3", 60),
        ("e4", 50),
        ("e5", 60),
        ("e6", 50),
        ("e7", 40),
        ("e8", 10),
        ("e9", 70),
        ("e10", 80),
        ("e11", 80),
        ("e12", 80),
        ("e13", 80),
        ("e14", 80),
        ("e15", 80),
    ];
    let repliers = [
        ("r0", "r1"),
        ("r1", "e8"),
        ("r2", "e7"),
        ("r3", "e2"),
        ("r4", "e4"),
        ("r5", "e6"),
        ("r6", "e9"),
    ];
    let mut session = Session::start(&lab, routers, &costs, &repliers);
    let requests = [
        // E1 by R3 to E2, which asks itself; R3 asks for E2, by R2 to E7.
        "e1>r3", "r3>e2", "e2>r3", "r3>r2", "e3>r4", "r4>e4", "e4>r4", "r4>r2", "e5>r5", "r5>e6",
        "e6>r5", "r5>r2", "r2>e7 x3", "e7>r2", "r2>r1", "r1>e8",
    ];
    let repairs = [
        "r1>r2", "r2>e7", "r2>r3", "r2>r4", "r2>r5", "r3>e1", "r3>e2", "r4>e3", "r4>e4", "r5>e5",
        "r5>e6",
    ];
    let expected: [(Kind, &[&str]); 3] =
        [(Kind::Request, &requests), (Kind::Dmcast, &["e8>r1"]), (Kind::Repair, &repairs)];
    session.assert_recovery(("r1", "r2"), &expected);
    assert_eq!(session.source.with(|engine, _| engine.stats().requests), 0);
}

/// Returns two receivers behind four routers, and one at the second. The first router has one
/// branch alone.
///
/// ```text
///   source ── r0 ── r1 ── r2 ── r3 ── a, b
///                   └ near
/// ```
fn tail() -> Topology {
    let topology = Topology::new()
        .host("source")
        .router("r0")
        .router("r1")
        .router("r2")
        .router("r3")
        .host("near")
        .host("a")
        .host("b")
        .link("source", "r0")
        .link("r0", "r1")
        .link("r1", "near")
        .link("r1", "r2")
        .link("r2", "r3")
        .link("r3", "a")
        .link("r3", "b");
    topology.with_every_link(|link| link.emulated = Some(true))
}

const TAIL_COSTS: [(&str, u32); 3] = [("near", 10), ("a", 20), ("b", 30)];

#[test]
fn a_router_without_lms_in_the_path_lets_all_of_it_pass() {
    let Some(lab) = lab(&tail()) else { return };
    let routers = Routers::start_with(&lab, |name| if name == "r2" { &["--no-lms"] } else { &[] });
    let mut session = Session::start(&lab, routers, &TAIL_COSTS, &[("r1", "near"), ("r3", "a")]);
    let requests = ["a>r3", "b>r3", "r3>a", "r3>r2", "r2>r1", "r1>near"];
    let repairs = ["r1>r2", "r2>r3", "r3>a", "r3>b"];
    let expected: [(Kind, &[&str]); 3] =
        [(Kind::Request, &requests), (Kind::Dmcast, &["near>r1"]), (Kind::Repair, &repairs)];
    session.assert_recovery(("r1", "r2"), &expected);
}

#[test]
fn a_replier_that_dies_is_replaced_and_its_router_restarts() {
    let Some(lab) = lab(&tail()) else { return };
    let routers = Routers::start(&lab);
    let mut session =
        Session::start(&lab, routers, &TAIL_COSTS, &[("r1", "near"), ("r2", "r3"), ("r3", "a")]);
    // The replier of r3 falls silent, and the next loss is b's own.
    drop(session.receivers.remove("a"));
    session.send_and_lose("r3", "b");
    session.send(b"next");
    session.wait_for_all();
    // A router that restarts has other secrets and no repliers; it gets both again.
    session.routers.process("r3").kill();
    session.routers.run("r3", &[]);
    session.wait_for_replier("r3", "b");
    session.routers.wait_for_outputs("r3", &GROUP.to_string(), &["b"]);
    session.tap.clear();
    session.send_and_lose("r1", "r2");
    session.send(b"next");
    session.wait_for_all();
}

#[test]
fn a_spoofed_dmcast_is_refused_and_a_replayed_one_buys_nothing() {
    let Some(lab) = lab(&tail()) else { return };
    let routers = Routers::start(&lab);
    let mut session =
        Session::start(&lab, routers, &TAIL_COSTS, &[("r1", "near"), ("r2", "r3"), ("r3", "a")]);
    let status = session.routers.status("r1");
    let router = status["lms"][0]["address"].as_str().unwrap().parse().unwrap();
    let interfaces = lab.host("r1").unwrap().interfaces();
    let interface = interfaces.iter().find(|interface| interface.peer == "r2").unwrap().index;
    let near = lab.host("near").unwrap();
    let attacker = near.udp_socket((near.addr4(), 0).into()).unwrap();
    let mut repair = Vec::new();
    let payload = b"spoofed".as_slice();
    // A unit that all have: one that is yet to come would make receivers ask for those before it.
    let (tsi, sequence) = (umbel_wire::Tsi(1), 0);
    Message::Repair { tsi, sequence, number: 1, unicast: false, payload }.emit(&mut repair);
    let dmcast = |tag| {
        let channel = channel(lab.host("source").unwrap());
        let turning_point = TurningPoint { router, interface, tag };
        let mut message = Vec::new();
        Message::Dmcast { channel, turning_point, repair: &repair }.emit(&mut message);
        message
    };
    for tag in 0..100 {
        attacker.send_to(&dmcast(tag), router).unwrap();
    }
    wait_until("they are refused", SOON, || {
        let status = session.routers.status("r1");
        let drops = status["lms"][0]["drops"].as_array().unwrap().clone();
        let forged = drops.iter().find(|drop| drop[0] == "ForgedTurningPoint");
        forged.is_some_and(|drop| drop[1].as_u64() > Some(50))
    });
    assert!(links(&session.tap.seen(), Kind::Repair).is_empty());

    // An earlier replier keeps a turning point that is valid, and uses it again and again.
    session.tap.clear();
    session.send_and_lose("r1", "r2");
    session.send(b"next");
    session.wait_for_all();
    let mut point = None;
    wait_until("the reply is seen", SOON, || {
        // Those that were made up have small tags, and may be seen late.
        let is_it = |point: &TurningPoint| {
            point.tag >= 100 && (point.router, point.interface) == (router, interface)
        };
        point = session.tap.turning_points().into_iter().find(is_it);
        point.is_some()
    });
    let point = point.unwrap();
    session.tap.clear();
    // A request buys four; a busy machine asks more than once.
    for _ in 0..300 {
        attacker.send_to(&dmcast(point.tag), router).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let until = std::time::Instant::now() + SOON;
    loop {
        let lms = session.routers.status("r1")["lms"][0].clone();
        if lms["datagrams"]["unasked"].as_u64().unwrap() >= 150 {
            break;
        }
        assert!(std::time::Instant::now() < until, "not refused: {lms:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let sprayed = session.tap.seen().get(&("r1".into(), "r2".into(), Kind::Repair)).copied();
    assert!(sprayed.unwrap_or(0) < 100, "{sprayed:?}");
}

#[test]
fn a_storm_of_requests_is_limited_and_counted() {
    let Some(lab) = lab(&tail()) else { return };
    let routers = Routers::start(&lab);
    let mut session =
        Session::start(&lab, routers, &TAIL_COSTS, &[("r1", "near"), ("r2", "r3"), ("r3", "a")]);
    let b = lab.host("b").unwrap();
    let attacker = b.udp_socket((b.addr4(), 0).into()).unwrap();
    crate::support::lms::set_alert(&attacker, true);
    let mut garbage = Vec::new();
    Message::Advertisement { channel: channel(lab.host("source").unwrap()), cost: Some(1) }
        .emit(&mut garbage);
    garbage.truncate(garbage.len() - 1);
    let to = (lab.host("source").unwrap().addr4(), PORT);
    let flood = |session: &Session<'_>| {
        let status = session.routers.status("r3");
        status["lms"][0]["datagrams"]["flood"].as_u64().unwrap()
            + status["lms"][0]["datagrams"]["overflow"].as_u64().unwrap()
    };
    let until = std::time::Instant::now() + SOON;
    while flood(&session) == 0 {
        // On a busy machine a storm may be slower than the limit. A router that pauses has all of
        // it to read at once.
        session.routers.process("r3").signal(Signal::SIGSTOP);
        for _ in 0..20_000 {
            let _ = attacker.send_to(&garbage, to);
        }
        session.routers.process("r3").signal(Signal::SIGCONT);
        assert!(std::time::Instant::now() < until, "{}", session.routers.status("r3"));
    }
    session.send_and_lose("r1", "r2");
    session.send(b"next");
    session.wait_for_all();
}

#[test]
fn over_ipv6_a_loss_takes_the_same_links_and_the_program_steers() {
    let Some(lab) = lab(&tail()) else { return };
    let routers = Routers::start(&lab);
    let repliers = [("r1", "near"), ("r2", "r3"), ("r3", "a")];
    let mut session = Session::start_in(true, &lab, routers, &TAIL_COSTS, (&repliers, &[]));
    let requests = ["a>r3", "b>r3", "r3>a", "r3>r2", "r2>r1", "r1>near"];
    let repairs = ["r1>r2", "r2>r3", "r3>a", "r3>b"];
    let expected: [(Kind, &[&str]); 3] =
        [(Kind::Request, &requests), (Kind::Dmcast, &["near>r1"]), (Kind::Repair, &repairs)];
    session.assert_recovery(("r1", "r2"), &expected);
    let lms = session.routers.status("r1")["lms"][1].clone();
    assert_eq!(lms["family"], "IPv6");
    assert!(lms["turned"].as_u64() > Some(0) && lms["dmcasts"].as_u64() > Some(0), "{lms:#}");
    let fast = &lms["fast_path"];
    if fast["state"] != "on" {
        return crate::support::skip(&format!("no fast path here: {}", fast["state"]));
    }
    let count = |name: &str| fast["counts"][name].as_u64().unwrap();
    assert!(count("turned") > 0 && count("dmcasts") > 0, "{lms:#}");
    let r1 = lab.host("r1").unwrap();
    let text = r1.command(env!("CARGO_BIN_EXE_umbel")).args(["router", "status"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let line = text.lines().skip_while(|line| !line.starts_with("LMS at [fd00")).nth(1);
    assert!(line.is_some_and(|line| line.starts_with("fast path on")), "{text}");
}

/// Returns two receivers on a LAN, and one at the router before it.
///
/// ```text
///   source ── r1 ── r2 ── switch ── a, b
///             └ near
/// ```
fn with_a_lan() -> Topology {
    let topology = Topology::new()
        .host("source")
        .router("r1")
        .router("r2")
        .switch("switch")
        .host("near")
        .host("a")
        .host("b")
        .link("source", "r1")
        .link("r1", "near")
        .link("r1", "r2")
        .link("r2", "switch")
        .link("switch", "a")
        .link("switch", "b");
    topology.with_every_link(|link| link.emulated = Some(true))
}

/// Lets b alone miss a unit, which a has. Returns who sent requests, repairs and DMCASTs until b has
/// it.
fn b_alone_misses_a_unit(lab: &Lab, session: &mut Session<'_>) -> [Vec<String>; 3] {
    session.tap.clear();
    let before = lab.impairment("switch", "b").unwrap();
    lab.set_link_direction("switch", "b", Impairment { loss: 1.0, ..before }).unwrap();
    session.send(b"lost");
    wait_until("a has it", SOON, || units(&session.receivers["a"]) == session.sent);
    std::thread::sleep(Duration::from_millis(20));
    lab.set_link_direction("switch", "b", before).unwrap();
    session.send(b"next");
    session.wait_for_all();
    let seen = session.tap.seen();
    [Kind::Request, Kind::Repair, Kind::Dmcast].map(|kind| {
        let of_kind = seen.keys().filter(|(_, _, seen)| *seen == kind);
        of_kind.map(|(from, _, _)| from.clone()).collect()
    })
}

#[test]
fn receivers_of_a_lan_elect_one_replier_and_ask_it_first() {
    let Some(lab) = lab(&with_a_lan()) else { return };
    let routers = Routers::start(&lab);
    let costs = [("near", 10), ("a", 20), ("b", 30)];
    let repliers = [("r1", "near"), ("r2", "switch")];
    let mut session = Session::start_in(false, &lab, routers, &costs, (&repliers, &["a", "b"]));
    let is_replier = |session: &Session<'_>, name: &str| {
        session.receivers[name].with(|engine, _| engine.is_lan_replier())
    };
    let wait_for = |session: &Session<'_>, name: &'static str| {
        let neighbour = format!("{}:{PORT}", address(false, lab.host(name).unwrap()));
        wait_until("the one elected is the router's replier", SOON, || {
            is_replier(session, name)
                && session.routers.status("r2")["lms"][0]["repliers"][0]["neighbour"] == neighbour
        });
    };
    wait_for(&session, "a");
    assert!(!is_replier(&session, "b"));
    // Where a hardly gets a processor, its answer is late, and b asks the router, too.
    let on_the_lan = (0..10).map(|_| b_alone_misses_a_unit(&lab, &mut session)).find(|sent| {
        let [requests, ..] = sent;
        requests.len() == 1
    });
    assert_eq!(on_the_lan, Some([vec!["b".into()], vec!["a".into()], vec![]]));
    // When it falls silent, the other one is elected.
    drop(session.receivers.remove("a"));
    wait_for(&session, "b");
}
