//! The program in the kernel and the daemon make the same packets of the same packets, and discard
//! the same.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use aya::programs::{TestRun as _, TestRunOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use umbel_engine::Address;
use umbel_engine::bucket::Limit;
use umbel_engine::lms::{DropReason, RouterStats};
use umbel_engine::router::{PassingDatagram, RouterEngine};
use umbel_net::clock::Clock;
use umbel_net::interface::Interface;
use umbel_wire::Tsi;
use umbel_wire::datagram::{ALERT_VALUE_V6, IpDatagram};
use umbel_wire::lms::{Message, Request, TurningPoint, UnitSet};

use super::program::{OBJECT_V4, OBJECT_V6};
use super::*;
use crate::daemon::lms::{Lms, Outlet};
use drawn::{Stamps, dmcast, drawn, repair, request, turning_point_of};
use namespaces::{in_namespace, run, skip};

mod drawn;
mod forwarding;

#[path = "../../../../umbel-net/tests/common/namespaces.rs"]
mod namespaces;
#[path = "../../../../umbel-net/tests/common/objects.rs"]
mod objects;

thread_local! {
    /// The family of all addresses here.
    static FAMILY: Cell<Family> = const { Cell::new(Family::V4) };
}

/// The interface towards the source, and those away from it. Interface `n` has 10.n.0.1/24 and
/// fd00:n::1/64.
const NAMES: [&str; 4] = ["up0", "down1", "down2", "down3"];
const ETHERNET: usize = 14;
/// Return value of `bpf_redirect_neigh`, and the codes of the next program and of none.
const REDIRECTED: i32 = 7;
const NEXT: i32 = -1;
const DROPPED: i32 = 2;

/// Turning points stay valid for so long that no test sees them expire.
const LIFETIME: Duration = Duration::from_hours(1);
/// The daemon began this long ago.
const AGE: Duration = Duration::from_hours(10);

fn is_v6() -> bool {
    FAMILY.get() == Family::V6
}

fn source() -> IpAddr {
    if is_v6() { [0xFD00, 9, 9, 0, 0, 0, 0, 9].into() } else { [10, 9, 9, 9].into() }
}

fn channel() -> Channel {
    let group: IpAddr =
        if is_v6() { [0xFF3E, 0, 0, 0, 0, 0, 0x8000, 1].into() } else { [232, 1, 1, 1].into() };
    Channel { source: Some(source()), group, port: 7702 }
}

/// Returns another group.
fn other_group() -> IpAddr {
    if is_v6() { [0xFF3E, 0, 0, 0, 0, 0, 0x8000, 2].into() } else { [232, 1, 1, 2].into() }
}

/// Returns the router's address.
fn me() -> SocketAddr {
    SocketAddr::new(host(1, 1).ip(), 7706)
}

/// Returns a host below, or above, by an interface.
fn host(interface: usize, number: u8) -> SocketAddr {
    let interface = interface as u8;
    let address: IpAddr = if is_v6() {
        [0xFD00, interface.into(), 0, 0, 0, 0, 0, number.into()].into()
    } else {
        [10, interface, 0, number].into()
    };
    (address, 5000).into()
}

/// The trees of one channel.
#[derive(Debug)]
struct Tree {
    interfaces: Vec<InterfaceId>,
}

impl Routes for Tree {
    fn upstream(&mut self, of: &Channel) -> Option<Upstream> {
        (*of == channel()).then_some(Upstream::Interface(self.interfaces[0]))
    }

    fn is_downstream(&mut self, of: &Channel, interface: InterfaceId) -> bool {
        *of == channel() && self.interfaces[1..].contains(&interface)
    }

    fn downstream(&mut self, of: &Channel, to: &mut Vec<InterfaceId>) {
        if *of == channel() {
            to.extend(&self.interfaces[1..]);
        }
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend(&self.interfaces);
    }

    fn is_attached(&mut self, _host: IpAddr) -> bool {
        false
    }
}

/// Keeps what is sent.
#[derive(Clone, Debug, Default)]
struct Kept(Rc<RefCell<Vec<Vec<u8>>>>);

impl Outlet for Kept {
    fn send(&self, _: Option<u32>, _: IpAddr, packet: &[u8]) -> std::io::Result<()> {
        self.0.borrow_mut().push(packet.to_vec());
        Ok(())
    }
}

/// A daemon's LMS, with the fast path or without.
struct Side {
    lms: Lms,
    kept: Kept,
    tree: Tree,
    /// Time of the fast path's news, which passes faster than the packets'.
    told: Instant,
}

impl Side {
    fn new(
        config: &LmsConfig,
        engine: &RouterConfig,
        interfaces: &[InterfaceId],
    ) -> Result<Side, ClassifierError> {
        let kept = Kept::default();
        let mut lms = Lms::open(FAMILY.get(), config.clone(), [3; 32]).unwrap();
        lms.outlet = Box::new(kept.clone());
        lms.start_fast_path(Instant::EPOCH + AGE)?;
        lms.begin(Some(engine.clone()));
        for (id, name) in interfaces.iter().zip(NAMES) {
            lms.fast.attach(*id, name);
        }
        let tree = Tree { interfaces: interfaces.to_vec() };
        Ok(Side { lms, kept, tree, told: Instant::EPOCH + AGE })
    }

    /// Runs the program on a packet, as the kernel does. Returns the packets that it sends.
    fn give(&mut self, now: Instant, interface: InterfaceId, packet: &[u8]) -> Vec<Vec<u8>> {
        let own = |address: IpAddr| address == me().ip();
        let datagram = IpDatagram::parse(packet).ok();
        if let Some(datagram) = datagram.filter(|_| is_v6() || checksum(packet) == 0xFFFF) {
            // IPv4 puts aside what is to the router itself, too.
            let is_aside = if is_v6() {
                datagram.alert == Some(ALERT_VALUE_V6) && !own(datagram.destination.ip())
            } else {
                packet[0] & 0x0F > 5
            };
            if is_aside {
                let mut packet = packet.to_vec();
                self.lms.take_packet(now, &mut self.tree, &own, interface, &mut packet);
            }
            if datagram.destination == me() {
                let from = (interface, datagram.source);
                self.lms.take_message(now, &mut self.tree, from, datagram.payload);
            }
        }
        self.told += Duration::from_secs(1);
        let now = self.told;
        let mut turn = Turn { now, routes: &mut self.tree, own: &own, buffer: &mut [] };
        self.lms.tell_fast_path(&mut turn, &|_| 1500);
        self.kept.0.take()
    }

    fn offer(&mut self, now: Instant, interface: usize, cost: u32) {
        let mut payload = Vec::new();
        let cost = Some(cost);
        Message::Advertisement { channel: channel(), cost }.emit(&mut payload);
        let on = self.tree.interfaces[interface];
        self.give(now, on, &packet(host(interface, 7), to_source(), Some(0), &payload));
    }

    /// Returns the counted requests, DMCASTs and drops.
    fn counts(&self) -> (RouterStats, Vec<(DropReason, u64)>, [u64; 3]) {
        let engine = self.lms.engine().unwrap();
        let fast = self.lms.fast.status().counts;
        let drops =
            DropReason::ALL.map(|reason| (reason, engine.drops().of(reason) + fast.drops(reason)));
        let beside = fast.add_to_datagrams(self.lms.counts());
        let beside = [beside.flood, beside.unasked, beside.sent];
        (fast.add_to(engine.stats()), drops.to_vec(), beside)
    }
}

/// Returns a message that makes a host known and has no other effect.
fn solicit() -> Vec<u8> {
    let mut payload = Vec::new();
    Message::Solicit { channel: channel() }.emit(&mut payload);
    payload
}

fn to_source() -> SocketAddr {
    (source(), channel().port).into()
}

fn packet(from: SocketAddr, to: SocketAddr, alert: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let alert = alert.map(|value| if is_v6() { ALERT_VALUE_V6 } else { value });
    let datagram = IpDatagram { source: from, destination: to, hop_limit: 9, alert, payload };
    datagram.emit(&mut packet).unwrap();
    packet
}

/// Returns the sum of an IP header, which is all ones.
fn checksum(packet: &[u8]) -> u16 {
    let header = packet.get(..usize::from(packet[0] & 0x0F) * 4).unwrap_or_default();
    umbel_wire::checksum::Sum::default().bytes(header).folded()
}

/// Both sides, which are given the same packets.
struct Pair {
    fast: Side,
    plain: Side,
    interfaces: Vec<InterfaceId>,
    /// Their addresses of Ethernet.
    macs: Vec<[u8; 6]>,
    clock: Clock,
    /// Packets that the program redirected, dropped, and left to the daemon.
    verdicts: [u64; 3],
}

impl Pair {
    /// Makes four interfaces and begins. Returns none where no program can be loaded.
    fn new(config: &LmsConfig, engine: &RouterConfig) -> Option<Pair> {
        let required = LmsConfig { fast_path: FastPathMode::Required, ..config.clone() };
        let clock = Clock::new();
        let interfaces = NAMES.map(|name| InterfaceId(Interface::resolve(name).unwrap().index));
        let interfaces: Vec<InterfaceId> = interfaces.into();
        let macs = NAMES.map(mac_of).to_vec();
        let off =
            LmsConfig { fast_path: FastPathMode::Off, port: config.port + 1, ..config.clone() };
        let fast = match Side::new(&required, engine, &interfaces) {
            Ok(fast) => fast,
            Err(ClassifierError::Refused(words)) => panic!("{words}"),
            Err(_) => return None,
        };
        let plain = Side::new(&off, engine, &interfaces).unwrap();
        let mut pair = Pair { fast, plain, interfaces, macs, clock, verdicts: [0; 3] };
        for (interface, cost) in [(1, 10), (2, 20)] {
            let now = pair.now();
            pair.fast.offer(now, interface, cost);
            pair.plain.offer(now, interface, cost);
        }
        Some(pair)
    }

    fn now(&self) -> Instant {
        self.clock.now() + AGE
    }

    /// Runs both on a packet. Returns the outcome of each.
    fn give(&mut self, interface: usize, packet: &[u8]) -> [Vec<Vec<u8>>; 2] {
        let now = self.now();
        let on = self.interfaces[interface];
        let ethertype = if is_v6() { [0x86, 0xDD] } else { [8, 0] };
        let frame = [&self.macs[interface][..], &[2; 6], &ethertype, packet].concat();
        let (verdict, made) = self.run(on, &frame);
        let of_fast = match verdict {
            REDIRECTED => {
                self.verdicts[0] += 1;
                vec![made[ETHERNET..].to_vec()]
            }
            DROPPED => {
                self.verdicts[1] += 1;
                Vec::new()
            }
            _ => {
                self.verdicts[2] += 1;
                assert_eq!(verdict, NEXT);
                assert_eq!(made, frame, "what is left to the daemon stays as it was");
                self.fast.give(now, on, packet)
            }
        };
        [of_fast, self.plain.give(now, on, packet)]
    }

    /// Runs the program.
    fn run(&mut self, on: InterfaceId, frame: &[u8]) -> (i32, Vec<u8>) {
        let mut out = vec![0; frame.len() + 128];
        let mut context = [0; 44];
        context[40..].copy_from_slice(&on.0.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let fast = self.fast.lms.fast.program.as_mut().unwrap();
        let result = fast.classifier.program().unwrap().test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        (result.return_value as i32, out)
    }
}

/// Returns an interface's address of Ethernet.
fn mac_of(name: &str) -> [u8; 6] {
    let mut all = nix::ifaddrs::getifaddrs().unwrap().filter(|entry| entry.interface_name == name);
    all.find_map(|entry| entry.address?.as_link_addr()?.addr()).unwrap()
}

fn make_interfaces() {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        run(&format!("ip link add {name} type veth peer name far{number}"));
        run(&format!("ip link set far{number} up"));
        run(&format!("ip addr add 10.{number}.0.1/24 dev {name}"));
        run(&format!("ip addr add fd00:{number}::1/64 dev {name} nodad"));
        run(&format!("ip link set {name} up"));
    }
    run("ip route add 10.9.9.0/24 via 10.0.0.2");
    run("ip route add fd00:9:9::/64 via fd00:0::2");
}

/// Does something in both families, or in none if it returns false.
fn in_both(mut act: impl FnMut() -> bool) {
    make_interfaces();
    for family in [Family::V4, Family::V6] {
        FAMILY.set(family);
        if !act() {
            return skip("no program can be loaded here");
        }
    }
}

fn without_limits(set_size: usize) -> (LmsConfig, RouterConfig) {
    let endless = Limit { per_s: 1_000_000, burst: 1_000_000 };
    let config = LmsConfig {
        datagrams_of_host: endless,
        datagrams: endless,
        credit_lifetime: LIFETIME,
        ..LmsConfig::default()
    };
    let engine = RouterConfig {
        tag_lifetime: LIFETIME,
        offer_lifetime: LIFETIME,
        requests: endless,
        dmcasts: endless,
        set_size,
        ..RouterConfig::new(me(), [7; 32])
    };
    (config, engine)
}

/// Compares both on many packets.
fn compare(set_size: usize) -> bool {
    let (config, engine) = without_limits(set_size);
    let Some(pair) = Pair::new(&config, &engine) else { return false };
    let stamps = Stamps { engine, interfaces: pair.interfaces.clone() };
    let pair = RefCell::new(pair);
    let cases =
        Cases { cases: 1200, failure_persistence: None, max_shrink_iters: 0, ..Cases::default() };
    let ran = TestRunner::new(cases).run(&drawn(), |drawn| {
        let mut pair = pair.borrow_mut();
        let packet = drawn.packet(pair.now(), &stamps);
        let [fast, plain] = pair.give(drawn.interface, &packet);
        prop_assert_eq!(fast, plain);
        prop_assert_eq!(pair.fast.counts(), pair.plain.counts());
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    let pair = pair.into_inner();
    let counts = pair.fast.lms.fast.status().counts;
    let least = [counts.turned, counts.sent_up, counts.sent_down, counts.dmcasts, counts.forged];
    assert!(least.iter().all(|count| *count > 5), "{counts:?} {:?}", pair.verdicts);
    true
}

#[test]
fn program_and_daemon_make_the_same_of_any_packet() {
    in_namespace(|| {
        // One replier for all links, and a chain of repliers.
        in_both(|| compare(32) && compare(1));
    });
}

#[test]
fn a_request_permits_so_many_dmcasts_and_no_more_whoever_steers_it() {
    in_namespace(|| in_both(requests_permit_so_many));
}

fn requests_permit_so_many() -> bool {
    let (config, engine) = without_limits(32);
    let Some(mut pair) = Pair::new(&config, &engine) else { return false };
    pair.give(2, &packet(host(2, 9), me(), None, &solicit()));
    for replier_failed in [false, true] {
        let mut payload = Vec::new();
        Message::Request(Request { replier_failed, ..request(channel()) }).emit(&mut payload);
        let asked = packet(host(2, 9), to_source(), Some(0), &payload);
        let [fast, plain] = pair.give(2, &asked);
        assert_eq!(fast, plain);
        let mut datagrams = fast.iter().filter_map(|sent| IpDatagram::parse(sent).ok());
        let point = datagrams.find_map(|sent| turning_point_of(sent.payload)).unwrap();
        let answer = packet(host(1, 7), me(), None, &dmcast(channel(), point, &repair(1000)));
        let sent: Vec<usize> = (0..6)
            .map(|_| {
                let [fast, plain] = pair.give(1, &answer);
                assert_eq!(fast, plain);
                fast.len()
            })
            .collect();
        assert_eq!(sent, [1, 1, 1, 1, 0, 0]);
        assert_eq!(pair.fast.counts(), pair.plain.counts());
    }
    assert_eq!(pair.fast.counts().2[1], 4);
    true
}

#[test]
fn program_and_daemon_have_the_same_limits() {
    in_namespace(|| in_both(limits_are_the_same));
}

fn limits_are_the_same() -> bool {
    let few = Limit { per_s: 1, burst: 3 };
    let mut request_bytes = Vec::new();
    Message::Request(request(channel())).emit(&mut request_bytes);
    // No offer came by this interface.
    let asked = packet(host(3, 9), to_source(), Some(0), &request_bytes);
    // Until it takes less than a second, after which more would be let through.
    for attempt in 0.. {
        assert!(attempt < 50, "this machine never gets so far within a second");
        let (endless, engine) = without_limits(32);
        let config = LmsConfig { datagrams_of_host: few, ..endless.clone() };
        let Some(mut of_host) = Pair::new(&config, &engine) else { return false };
        let config = LmsConfig { port: config.port + 2, ..endless };
        let engine = RouterConfig { requests: few, dmcasts: few, ..engine };
        let mut of_engine = Pair::new(&config, &engine).unwrap();
        for pair in [&mut of_host, &mut of_engine] {
            pair.give(3, &packet(host(3, 9), me(), None, &solicit()));
        }
        let stamps = Stamps { engine, interfaces: of_engine.interfaces.clone() };
        let point = stamps.point(of_engine.now(), 3, channel(), 0);
        let answer = dmcast(channel(), point, &repair(100));
        let answer = packet(host(1, 7), me(), None, &answer);

        let began = std::time::Instant::now();
        let passed = |pair: &mut Pair, interface, packet: &[u8]| {
            let sent = (0..5).map(|_| pair.give(interface, packet).map(|sent| sent.len()));
            sent.fold([0, 0], |all, sent| [all[0] + sent[0], all[1] + sent[1]])
        };
        let requests = passed(&mut of_host, 3, &asked);
        let others = [passed(&mut of_engine, 3, &asked), passed(&mut of_engine, 1, &answer)];
        if began.elapsed() < Duration::from_millis(900) {
            assert_eq!((requests, others), ([3, 3], [[3, 3], [3, 3]]));
            for pair in [&of_host, &of_engine] {
                assert_eq!(pair.fast.counts(), pair.plain.counts());
            }
            // Another host has its own allowance. Its first message is for the daemon.
            let asked = packet(host(3, 10), to_source(), Some(0), &request_bytes);
            let left = of_host.verdicts[2];
            let [fast, plain] = of_host.give(3, &asked);
            assert_eq!((fast.len(), fast), (1, plain));
            assert_eq!(of_host.verdicts[2], left + 1);
            assert_eq!(of_host.fast.counts().2[0], 2);
            let of_engine = of_engine.fast.lms.fast.status().counts;
            assert_eq!((of_engine.request_flood, of_engine.dmcast_flood), (2, 2));
            return true;
        }
    }
    false
}

#[test]
fn the_objects_are_what_the_sources_compile_to() {
    for (source, object) in [("steering4.bpf.c", OBJECT_V4), ("steering6.bpf.c", OBJECT_V6)] {
        objects::assert_object_is_made_of(source, env!("CARGO_MANIFEST_DIR"), object);
    }
}
