//! Measures a router's time per packet: Table II of the LMS paper.
//!
//! A plain multicast packet is looked up and copied to each interface, as an engine's host does
//! after the engine has let it pass. A request is stamped and turned around. A DMCAST is checked,
//! unwrapped and sent out on one interface. All carry 1,000 bytes except the request. Prints
//! nanoseconds by fan-out, the best of five. Run with `cargo bench -p umbel-engine --bench
//! lms_router`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant as Clock;

use bytes::Bytes;
use umbel_engine::bucket::Limit;
use umbel_engine::lms::Router;
use umbel_engine::lms::config::RouterConfig;
use umbel_engine::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterTransmit, Routes, Upstream, Verdict,
};
use umbel_engine::{Address, Instant, RouterEngine};
use umbel_wire::lms::{Message, Request, UnitSet};
use umbel_wire::{Channel, Parsed, Tsi};

const PACKETS: u32 = 200_000;
const REPETITIONS: u32 = 5;
const PAYLOAD: [u8; 1000] = [7; 1000];

/// Interface 0 leads to the source, the others away from it.
struct Tree {
    routes: BTreeMap<Channel, Vec<InterfaceId>>,
}

impl Routes for Tree {
    fn upstream(&mut self, of: &Channel) -> Option<Upstream> {
        self.routes.contains_key(of).then_some(Upstream::Interface(InterfaceId(0)))
    }

    fn is_downstream(&mut self, of: &Channel, interface: InterfaceId) -> bool {
        self.routes.get(of).is_some_and(|all| all.binary_search(&interface).is_ok())
    }

    fn downstream(&mut self, of: &Channel, to: &mut Vec<InterfaceId>) {
        to.extend(self.routes.get(of).into_iter().flatten());
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.push(InterfaceId(0));
        to.extend(self.routes.values().flatten());
    }

    fn is_attached(&mut self, _host: IpAddr) -> bool {
        false
    }
}

fn channel() -> Channel {
    Channel { source: Some([10, 0, 0, 1].into()), group: [232, 0, 0, 1].into(), port: 7702 }
}

fn me() -> SocketAddr {
    ([10, 0, 0, 2], 7702).into()
}

/// Returns a receiver below an interface.
fn below(interface: u32) -> SocketAddr {
    ([10, 1, 0, interface as u8], 7702).into()
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit(&mut out);
    out
}

/// Returns a first request, as a receiver sends it.
fn request() -> Vec<u8> {
    bytes(&Message::Request(Request {
        channel: channel(),
        tsi: Tsi(1),
        units: UnitSet::one(9),
        number: 1,
        requestor: None,
        turning_point: None,
        replier_failed: false,
        unicast_reply: false,
        hops: 0,
    }))
}

/// The router and its routes.
struct Bench {
    router: Router,
    tree: Tree,
    fan_out: u32,
}

impl Bench {
    /// Creates a router whose replier is below interface 1.
    fn new(fan_out: u32) -> Bench {
        let endless = Limit { per_s: u32::MAX, burst: u32::MAX };
        let mut config = RouterConfig::new(me(), [1; 32]);
        (config.requests, config.dmcasts) = (endless, endless);
        let interfaces = (1..=fan_out).map(InterfaceId).collect();
        let tree = Tree { routes: BTreeMap::from([(channel(), interfaces)]) };
        let mut bench = Bench { router: Router::new(config), tree, fan_out };
        for interface in 1..=fan_out {
            let cost = Some(interface);
            let offer = bytes(&Message::Advertisement { channel: channel(), cost });
            bench.give(interface, (below(interface), Address::Host(me())), &offer);
            while bench.router.poll_transmit(Instant::EPOCH).is_some() {}
        }
        bench
    }

    fn give(&mut self, on: u32, (from, to): (SocketAddr, Address), payload: &[u8]) -> Verdict {
        let arrived_on = InterfaceId(on);
        let datagram = PassingDatagram { arrived_on, from, to, payload };
        self.router.handle_datagram(Instant::EPOCH, &mut self.tree, datagram)
    }

    fn plain(&mut self) -> f64 {
        let data = bytes(&Message::Data { tsi: Tsi(1), sequence: 9, payload: &PAYLOAD });
        let source = (
            SocketAddr::new(channel().source.expect("it has one"), 7702),
            Address::Channel(channel()),
        );
        let mut queue = VecDeque::new();
        let mut to = Vec::new();
        best(|| {
            assert_eq!(self.give(0, source, &data), Verdict::Forward);
            let payload = Bytes::copy_from_slice(&data);
            self.tree.downstream(&channel(), &mut to);
            for interface in to.drain(..) {
                let to = RouterDestination::Branch { channel: channel(), interface };
                queue.push_back(RouterTransmit { to, alert: false, payload: payload.clone() });
            }
            let mut sent = 0;
            while let Some(transmit) = queue.pop_front() {
                std::hint::black_box(transmit);
                sent += 1;
            }
            assert_eq!(sent, self.fan_out);
        })
    }

    /// Measures a request from interface 2 that is turned around.
    fn turned(&mut self) -> f64 {
        let request = request();
        best(|| {
            let _ = self.turn(&request);
        })
    }

    fn turn(&mut self, request: &[u8]) -> RouterTransmit {
        let source = Address::Host((channel().source.expect("it has one"), 7702).into());
        assert_eq!(self.give(2, (below(2), source), request), Verdict::Take);
        let sent = self.router.poll_transmit(Instant::EPOCH).expect("it was turned around");
        assert_eq!(sent.to, RouterDestination::Host(below(1)));
        sent
    }

    fn dmcast(&mut self) -> f64 {
        let turned = self.turn(&request()).payload;
        let Ok(Parsed::Message { message: Message::Request(stamped), .. }) =
            Message::parse(&turned)
        else {
            panic!("a request")
        };
        let turning_point = stamped.turning_point.expect("it is stamped");
        let (tsi, sequence) = (Tsi(1), 9);
        let repair =
            bytes(&Message::Repair { tsi, sequence, number: 1, unicast: false, payload: &PAYLOAD });
        let message =
            bytes(&Message::Dmcast { channel: channel(), turning_point, repair: &repair });
        best(|| {
            assert_eq!(self.give(1, (below(1), Address::Host(me())), &message), Verdict::Take);
            let sent = self.router.poll_transmit(Instant::EPOCH).expect("it was sent on");
            assert!(
                matches!(sent.to, RouterDestination::Branch { interface, .. } if interface.0 == 2)
            );
        })
    }
}

/// Returns the nanoseconds of a call, the best of some repetitions.
fn best(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..REPETITIONS {
        let start = Clock::now();
        (0..PACKETS).for_each(|_| call());
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS));
    }
    best
}

fn main() {
    println!("{:>7} {:>9} {:>9} {:>9}   ns a packet", "fan-out", "multicast", "request", "DMCAST");
    for fan_out in [1, 2, 4, 8, 16, 32] {
        let mut bench = Bench::new(fan_out);
        let plain = bench.plain();
        if fan_out == 1 {
            println!("{fan_out:>7} {plain:>9.0} {:>9} {:>9}", "–", "–");
            continue;
        }
        let (request, dmcast) = (bench.turned(), bench.dmcast());
        println!("{fan_out:>7} {plain:>9.0} {request:>9.0} {dmcast:>9.0}");
    }
}
