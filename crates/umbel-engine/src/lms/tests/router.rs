use super::*;
use crate::bucket::Limit;
use crate::lms::Router;
use crate::lms::config::RouterConfig;
use crate::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterEngine, RouterTransmit, Routes,
    Upstream, Verdict,
};

/// Interface 0 leads to the source, all others away from it.
pub(super) struct Tree {
    pub(super) upstream: Option<Upstream>,
    pub(super) downstream: Vec<u32>,
    pub(super) attached: Option<IpAddr>,
}

impl Default for Tree {
    fn default() -> Tree {
        let upstream = Some(Upstream::Interface(InterfaceId(0)));
        Tree { upstream, downstream: vec![1, 2, 3], attached: None }
    }
}

impl Routes for Tree {
    fn upstream(&mut self, _channel: &Channel) -> Option<Upstream> {
        self.upstream
    }

    fn is_downstream(&mut self, _channel: &Channel, interface: InterfaceId) -> bool {
        self.downstream.contains(&interface.0)
    }

    fn downstream(&mut self, _channel: &Channel, to: &mut Vec<InterfaceId>) {
        to.extend(self.downstream.iter().map(|n| InterfaceId(*n)));
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend((0..4).map(InterfaceId));
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        self.attached == Some(host)
    }
}

/// A router with its surroundings. Its address is that of host 200.
struct Bench {
    router: Tested<Router>,
    tree: Tree,
    now: Instant,
}

const ROUTER: u8 = 200;

impl Bench {
    fn new(change: impl FnOnce(&mut RouterConfig)) -> Bench {
        let mut config = RouterConfig::new(host(ROUTER), [3; 32]);
        change(&mut config);
        let router = Tested::new(Router::new(config), |router| router.drops().to_string());
        Bench { router, tree: Tree::default(), now: ms(1_000) }
    }

    /// Creates a router to which host 11 on link 1 and host 12 on link 2 offer themselves, the
    /// first one cheaper.
    fn with_repliers() -> Bench {
        let mut bench = Bench::new(|_| {});
        bench.advertise(1, 11, Some(100));
        bench.advertise(2, 12, Some(200));
        bench
    }

    fn give(&mut self, interface: u32, from: u8, to: u8, message: &Message<'_>) -> Verdict {
        let payload = bytes(message);
        let datagram = PassingDatagram {
            arrived_on: InterfaceId(interface),
            from: host(from),
            to: Address::Host(host(to)),
            payload: &payload,
        };
        self.router.handle_datagram(self.now, &mut self.tree, datagram)
    }

    fn advertise(&mut self, interface: u32, from: u8, cost: Option<u32>) {
        let message = Message::Advertisement { channel: channel(), cost };
        assert_eq!(self.give(interface, from, 1, &message), Verdict::Take);
        // The advertisement to the router above is seen in `wait`.
        assert_eq!(self.sent(), []);
    }

    fn sent(&mut self) -> Vec<RouterTransmit> {
        std::iter::from_fn(|| self.router.poll_transmit(self.now)).collect()
    }

    /// Returns the destination of a request from a link, and the request as sent there.
    fn steer(&mut self, interface: u32, from: u8, to: u8, sent: Request) -> (SocketAddr, Request) {
        assert_eq!(self.give(interface, from, to, &Message::Request(sent)), Verdict::Take);
        let all = self.sent();
        let [RouterTransmit { to: RouterDestination::Host(to), payload, .. }] = &all[..] else {
            panic!("one request becomes {all:?}");
        };
        let Message::Request(request) = parse(payload) else { panic!("{payload:?}") };
        (*to, request)
    }

    /// Lets time pass. Returns the datagrams that the router sends meanwhile.
    fn wait(&mut self, duration: Duration) -> Vec<RouterTransmit> {
        let end = self.now + duration;
        let mut all = Vec::new();
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now || all.is_empty(), "time goes back");
            self.now = self.now.max(at);
            self.router.handle_timeout(self.now, &mut self.tree);
            all.extend(self.sent());
        }
        self.now = end;
        all
    }
}

#[test]
fn a_request_from_a_nonreplier_link_turns_around_and_is_stamped() {
    let mut bench = Bench::with_repliers();
    let (to, turned) = bench.steer(3, 13, 1, request(5));
    assert_eq!(to, host(11));
    assert_eq!(turned.requestor, Some(host(13)));
    let turning_point = turned.turning_point.unwrap();
    assert_eq!((turning_point.router, turning_point.interface), (host(ROUTER), 3));
    assert_eq!(Request { requestor: None, turning_point: None, hops: 0, ..turned }, request(5));
}

#[test]
fn a_request_from_the_replier_link_goes_upstream_and_is_not_stamped() {
    let mut bench = Bench::with_repliers();
    let (to, sent) = bench.steer(1, 11, 1, request(5));
    assert_eq!((to, sent.turning_point, sent.requestor), (host(1), None, Some(host(11))));
}

#[test]
fn a_request_from_upstream_goes_to_the_replier_as_it_is() {
    let mut bench = Bench::with_repliers();
    let above =
        Request { turning_point: Some(turning_point(9)), requestor: Some(host(99)), ..request(5) };
    let (to, sent) = bench.steer(0, 210, ROUTER, above);
    assert_eq!((to, sent), (host(11), Request { hops: 1, ..above }));
}

#[test]
fn a_turning_point_that_is_there_is_not_overwritten() {
    let mut bench = Bench::with_repliers();
    let stamped = Request { turning_point: Some(turning_point(9)), ..request(5) };
    assert_eq!(bench.steer(2, 12, 1, stamped).1.turning_point, stamped.turning_point);
}

#[test]
fn without_a_replier_requests_go_upstream_for_others_to_stamp() {
    let mut bench = Bench::new(|_| {});
    let (to, sent) = bench.steer(3, 13, 1, request(5));
    assert_eq!((to, sent.turning_point), (host(1), None));
}

#[test]
fn an_attached_source_is_the_replier_of_all_links() {
    let mut bench = Bench::with_repliers();
    bench.tree.attached = Some(host(1).ip());
    for (interface, from) in [(1, 11), (3, 13)] {
        let (to, sent) = bench.steer(interface, from, 1, request(5));
        assert_eq!((to, sent.turning_point.unwrap().interface), (host(1), interface));
    }
}

#[test]
fn the_core_of_a_shared_tree_stamps_what_goes_to_the_source() {
    let mut bench = Bench::with_repliers();
    bench.tree.upstream = Some(Upstream::Root);
    let (to, sent) = bench.steer(1, 11, 1, request(5));
    assert_eq!((to, sent.turning_point.unwrap().interface), (host(1), 1));
    assert_eq!(bench.steer(3, 13, 1, request(5)).0, host(11));
}

/// Returns a repair for a turning point.
fn repair_bytes() -> Vec<u8> {
    bytes(&Message::Repair { tsi: TSI, sequence: 5, number: 1, unicast: false, payload: b"unit" })
}

#[test]
fn a_dmcast_becomes_a_multicast_on_the_interface_of_the_request() {
    let mut bench = Bench::with_repliers();
    let turning_point = bench.steer(3, 13, 1, request(5)).1.turning_point.unwrap();
    let repair = repair_bytes();
    let dmcast = Message::Dmcast { channel: channel(), turning_point, repair: &repair };
    assert_eq!(bench.give(1, 11, ROUTER, &dmcast), Verdict::Take);
    let interface = InterfaceId(3);
    let to = RouterDestination::Branch { channel: channel(), interface };
    assert_eq!(bench.sent(), [RouterTransmit { to, alert: false, payload: repair.clone().into() }]);
    // A DMCAST on its way to another router passes.
    assert_eq!(bench.give(1, 11, 201, &dmcast), Verdict::Forward);
}

#[test]
fn forged_and_absurd_dmcasts_are_dropped_and_counted() {
    let mut bench = Bench::with_repliers();
    let good = bench.steer(3, 13, 1, request(5)).1.turning_point.unwrap();
    let repair = repair_bytes();
    let refused = |bench: &mut Bench, turning_point, repair: &[u8], dropped| {
        let dmcast = Message::Dmcast { channel: channel(), turning_point, repair };
        assert_eq!(bench.give(1, 66, ROUTER, &dmcast), Verdict::Take);
        assert_eq!(bench.sent(), []);
        bench.router.assert_dropped(dropped);
    };
    // From a host to which no request was steered, so it has to guess.
    let forged = TurningPoint { tag: good.tag ^ 1, ..good };
    refused(&mut bench, forged, &repair, "ForgedTurningPoint 1");
    // Another interface than that of the request, also one that does not exist.
    refused(&mut bench, TurningPoint { interface: 2, ..good }, &repair, "ForgedTurningPoint 2");
    refused(&mut bench, TurningPoint { interface: 77, ..good }, &repair, "ForgedTurningPoint 3");
    // Another router's turning point.
    let other = TurningPoint { router: host(201), ..good };
    refused(&mut bench, other, &repair, "ForgedTurningPoint 4");
    // Not a repair: the router would speak in the source's name.
    let not_a_repair = "ForgedTurningPoint 4, NotARepair 1";
    refused(&mut bench, good, b"Um\x01\x61", not_a_repair);
    // The interface is no longer on the tree.
    bench.tree.downstream.pop();
    let no_such = "ForgedTurningPoint 4, NoSuchInterface 1, NotARepair 1";
    refused(&mut bench, good, &repair, no_such);
    bench.tree.downstream.push(3);
    // Too old.
    bench.wait(Duration::from_mins(1));
    let too_old = "ForgedTurningPoint 5, NoSuchInterface 1, NotARepair 1";
    refused(&mut bench, good, &repair, too_old);
    // From before a restart.
    bench = Bench::new(|config| config.secret = [4; 32]);
    refused(&mut bench, good, &repair, "ForgedTurningPoint 1");
}

#[test]
fn a_flood_of_requests_is_cut_off_and_keeps_no_state() {
    let mut bench = Bench::with_repliers();
    let state = bench.router.state_len();
    let mut passed = 0;
    for n in 0..50_000 {
        bench.give(3, 13, 1, &Message::Request(request(n)));
        passed += bench.sent().len();
    }
    assert!(passed <= 2_000, "{passed}");
    bench.router.assert_dropped(&format!("Flood {}", 50_000 - passed));
    assert!(bench.router.state_len() <= state + 1, "one more interface has been heard");
}

#[test]
fn dmcasts_are_bounded_too() {
    let allowance = Limit { per_s: 10, burst: 20 };
    let mut bench = Bench::new(|config| config.dmcasts = allowance);
    bench.advertise(1, 11, Some(100));
    let turning_point = bench.steer(3, 13, 1, request(5)).1.turning_point.unwrap();
    let repair = repair_bytes();
    let dmcast = Message::Dmcast { channel: channel(), turning_point, repair: &repair };
    for _ in 0..1_000 {
        bench.give(1, 11, ROUTER, &dmcast);
    }
    assert_eq!(bench.sent().len(), 20);
    bench.router.assert_dropped("Flood 980");
}

#[test]
fn requests_from_off_the_tree_and_in_circles_are_dropped() {
    let mut bench = Bench::with_repliers();
    bench.give(9, 66, 1, &Message::Request(request(5)));
    assert_eq!(bench.sent(), []);
    bench.router.assert_dropped("OffTree 1");
    bench.give(3, 13, 1, &Message::Request(Request { hops: 64, ..request(5) }));
    assert_eq!(bench.sent(), []);
    bench.router.assert_dropped("OffTree 1, Hops 1");
    bench.give(9, 66, 1, &Message::Advertisement { channel: channel(), cost: Some(0) });
    bench.router.assert_dropped("OffTree 2, Hops 1");
    assert_eq!(bench.steer(3, 13, 1, request(5)).0, host(11), "the offer was not taken");
    bench.tree.upstream = None;
    let verdict = bench.give(3, 13, 1, &Message::Request(request(5)));
    assert_eq!(verdict, Verdict::Forward, "a router off the tree is as one without LMS");
}

#[test]
fn what_is_not_of_lms_passes() {
    let mut bench = Bench::new(|_| {});
    for payload in [&b""[..], b"hello", b"Um\x01\x01\0\0\0\0", b"Um\x01\x61\0\0\0\0"] {
        let datagram = PassingDatagram {
            arrived_on: InterfaceId(1),
            from: host(9),
            to: Address::Host(host(1)),
            payload,
        };
        let verdict = bench.router.handle_datagram(bench.now, &mut bench.tree, datagram);
        assert_eq!(verdict, Verdict::Forward);
    }
}

/// Returns the costs advertised to the router above.
fn told(all: &[RouterTransmit]) -> Vec<Option<u32>> {
    let cost = |transmit: &RouterTransmit| match parse(&transmit.payload) {
        Message::Advertisement { cost, .. } => {
            assert_eq!(transmit.to, RouterDestination::Host(host(1)));
            assert!(transmit.alert);
            Some(cost)
        }
        _ => None,
    };
    all.iter().filter_map(cost).collect()
}

#[test]
fn the_cheapest_is_chosen_and_its_cost_is_told_upstream() {
    let mut bench = Bench::with_repliers();
    assert_eq!(told(&bench.wait(Duration::from_millis(20))), [Some(100)]);
    // A slightly cheaper replier is not worth a change, a much cheaper one is.
    bench.advertise(2, 12, Some(95));
    assert_eq!(bench.router.replier(&channel()).unwrap().1, host(11));
    bench.advertise(2, 12, Some(50));
    assert_eq!(bench.router.replier(&channel()), Some((InterfaceId(2), host(12))));
    assert_eq!(told(&bench.wait(Duration::from_millis(20))), [Some(50)]);
    // A replier that leaves withdraws its offer.
    bench.advertise(2, 12, None);
    bench.advertise(1, 11, None);
    assert_eq!(bench.router.replier(&channel()), None);
    assert_eq!(told(&bench.wait(Duration::from_millis(20))), [None]);
}

#[test]
fn state_that_is_not_renewed_goes() {
    let mut bench = Bench::with_repliers();
    let all = told(&bench.wait(Duration::from_secs(20)));
    assert_eq!(all.last(), Some(&None));
    assert!(all.iter().filter(|cost| cost.is_some()).count() >= 3, "{all:?}");
    assert_eq!(bench.router.replier(&channel()), None);
    assert_eq!(bench.router.state_len(), 0);
    assert_eq!(bench.router.poll_timeout(), None);
}

#[test]
fn a_replier_that_is_said_to_have_failed_is_asked_and_then_replaced() {
    let mut bench = Bench::with_repliers();
    bench.wait(Duration::from_millis(20));
    let failed = Request { replier_failed: true, number: 3, ..request(5) };
    bench.give(3, 13, 1, &Message::Request(failed));
    let all = bench.sent();
    // The replier is asked, and the request goes to the other one meanwhile.
    let to: Vec<_> = all.iter().map(|transmit| transmit.to).collect();
    let [first, second] = [11, 12].map(|n| RouterDestination::Host(host(n)));
    assert_eq!(to, [first, second]);
    assert_eq!(parse(&all[0].payload), Message::Solicit { channel: channel() });
    let Message::Request(turned) = parse(&all[1].payload) else { panic!("{all:?}") };
    assert_eq!(turned.turning_point.unwrap().interface, 3);
    let asked = bench.wait(Duration::from_millis(350));
    assert_eq!(asked.iter().filter(|transmit| transmit.to == first).count(), 2);
    assert_eq!(told(&asked), [Some(200)]);
    assert_eq!(bench.router.replier(&channel()), Some((InterfaceId(2), host(12))));
    assert_eq!(bench.router.stats().repliers_failed, 1);
}

#[test]
fn a_replier_that_answers_stays_and_is_not_asked_again_at_once() {
    let mut bench = Bench::with_repliers();
    let failed = Request { replier_failed: true, number: 3, ..request(5) };
    bench.give(3, 13, 1, &Message::Request(failed));
    bench.sent();
    bench.advertise(1, 11, Some(100));
    bench.wait(Duration::from_millis(500));
    assert_eq!(bench.router.replier(&channel()).unwrap().1, host(11));
    bench.give(3, 13, 1, &Message::Request(failed));
    let solicits =
        bench.sent().iter().filter(|t| t.to == RouterDestination::Host(host(11))).count();
    assert_eq!(solicits, 0);
}

#[test]
fn without_a_backup_flagged_requests_go_upstream() {
    let mut bench = Bench::new(|_| {});
    bench.advertise(1, 11, Some(100));
    let failed = Request { replier_failed: true, number: 3, ..request(5) };
    bench.give(3, 13, 1, &Message::Request(failed));
    let all = bench.sent();
    assert_eq!(all[1].to, RouterDestination::Host(host(1)));
    let Message::Request(sent) = parse(&all[1].payload) else { panic!("{all:?}") };
    assert_eq!(sent.turning_point.unwrap().interface, 3, "so that only that subtree is repaired");
}

#[test]
fn sets_of_links_form_a_chain_of_repliers() {
    // Links 1 and 2, 3 and 4, 5 and 6: repliers 12 (cost 5), 13 (cost 7), 16 (cost 3).
    let mut bench = Bench::new(|config| config.set_size = 2);
    bench.tree.downstream = (1..=6).collect();
    for (interface, cost) in [(1, 9), (2, 5), (3, 7), (4, 8), (5, 6), (6, 3)] {
        bench.advertise(interface, 10 + interface as u8, Some(cost));
    }
    let mut to = |interface: u32| bench.steer(interface, 10 + interface as u8, 1, request(5)).0;
    // In their sets.
    assert_eq!([1, 4, 5].map(&mut to), [12, 13, 16].map(host));
    // Along the chain, in order of cost.
    assert_eq!([3, 2, 6].map(&mut to), [12, 16, 1].map(host));
}

#[test]
fn only_the_best_offers_of_a_link_are_kept() {
    let mut bench = Bench::new(|_| {});
    for n in 0..100 {
        bench.advertise(1, 50 + n, Some(2_000 - u32::from(n) * 20));
    }
    assert!(bench.router.state_len() <= 4, "{}", bench.router.state_len());
    assert_eq!(bench.steer(2, 13, 1, request(1)).0, host(149));
}

#[test]
fn channels_are_bounded() {
    let mut bench = Bench::new(|config| config.channels = 10);
    for n in 0..100 {
        let group = IpAddr::from([232, 0, 0, n]);
        let message =
            Message::Advertisement { channel: Channel { group, ..channel() }, cost: Some(1) };
        bench.give(1, 11, 1, &message);
    }
    bench.router.assert_dropped("OverLimit 90");
}

#[test]
fn a_host_that_names_channels_without_end_takes_no_others_place() {
    let mut bench = Bench::new(|config| config.channels = 10);
    let advertise = |bench: &mut Bench, interface, from, port| {
        let message =
            Message::Advertisement { channel: Channel { port, ..channel() }, cost: Some(1) };
        bench.give(interface, from, 1, &message);
        bench.router.replier(&Channel { port, ..channel() }).map(|(_, neighbour)| neighbour)
    };
    for port in 1_000..1_100 {
        advertise(&mut bench, 1, 11, port);
    }
    // Another link has half, and on the same link another host has half of what is left.
    for port in 1..=5 {
        assert_eq!(advertise(&mut bench, 2, 12, port), Some(host(12)));
    }
    for port in 6..=7 {
        assert_eq!(advertise(&mut bench, 1, 13, port), Some(host(13)));
    }
    for port in 1_100..1_200 {
        advertise(&mut bench, 1, 11, port);
    }
    for (port, from) in [(1, 12), (5, 12), (6, 13), (7, 13)] {
        let replier = bench.router.replier(&Channel { port, ..channel() });
        assert_eq!(replier.map(|(_, neighbour)| neighbour), Some(host(from)));
    }
    bench.router.assert_dropped("OverLimit 190");
}

#[test]
fn a_host_that_pings_without_end_takes_no_others_answer() {
    let mut bench = Bench::with_repliers();
    let mut pings = |from, times: u64| {
        for nonce in 0..times {
            bench.give(1, from, ROUTER, &Message::Ping { tsi: TSI, nonce });
        }
        bench.sent().len()
    };
    assert_eq!(pings(11, 20_000), 50);
    assert_eq!(pings(12, 1), 1);
    bench.router.assert_dropped("Flood 19950");
}

#[test]
fn reports_take_the_way_of_requests() {
    let mut bench = Bench::with_repliers();
    let summary = umbel_wire::lms::Summary::of(4);
    let report = |hops| Message::Report { channel: channel(), tsi: TSI, round: 1, summary, hops };
    for (interface, from, to) in [(3, 13, 11), (1, 11, 1)] {
        assert_eq!(bench.give(interface, from, 1, &report(0)), Verdict::Take);
        let all = bench.sent();
        assert_eq!(all[0].to, RouterDestination::Host(host(to)));
        assert_eq!(parse(&all[0].payload), report(1));
    }
}
