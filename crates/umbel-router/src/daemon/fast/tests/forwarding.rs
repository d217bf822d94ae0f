//! What forwarding costs: Table II of the paper, on the kernel of this machine.
//!
//! ```text
//!   sender ── up0 │ router │ down1 … down31 ── far
//! ```
//!
//! What arrives at the sender or far is dropped as it arrives.
//!
//! One thread sends frames, and the kernel does its part of the forwarding within that thread. The
//! daemon takes what is left to it in bursts. The CPU time of both is added, and that of frames that
//! the router drops as they arrive is taken off. The best of some rounds counts.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, bind, send, socket};

use super::namespaces::Host;
use super::*;
use crate::kernel::mroute::MulticastTable;

const FAN_OUT: usize = 31;
const ROUNDS: usize = 10;
const BURSTS: usize = 200;
/// Frames at a time: so many fit into every buffer.
const BURST: usize = 64;

/// The way of frames to the router.
struct Sender {
    host: Host,
    mac: [u8; 6],
}

fn thread_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

impl Sender {
    /// Sends frames, and has the daemon take what came after each burst. Returns the nanoseconds of
    /// CPU for each.
    fn cost(&self, packets: &[Vec<u8>], mut drain: impl FnMut()) -> f64 {
        let frame = |packet: &Vec<u8>| [&self.mac, &[2; 6][..], &[8, 0], packet].concat();
        let frames: Vec<Vec<u8>> = packets.iter().map(frame).collect();
        let open = || -> OwnedFd {
            let raw =
                socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
            let mut all = nix::ifaddrs::getifaddrs().unwrap();
            let address = all.find_map(|entry| {
                let is_it = entry.interface_name == "eth0";
                entry.address.filter(|_| is_it)?.as_link_addr().copied()
            });
            bind(raw.as_raw_fd(), &address.unwrap()).unwrap();
            raw
        };
        let socket = std::sync::Arc::new(self.host.run(open));
        let frames = std::sync::Arc::new(frames);
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let mut spent = Duration::ZERO;
            for _ in 0..BURSTS {
                let (socket, frames) = (socket.clone(), frames.clone());
                spent += self.host.run(move || {
                    let began = thread_time();
                    for frame in frames.iter().cycle().take(BURST) {
                        send(socket.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
                    }
                    thread_time().saturating_sub(began)
                });
                let began = thread_time();
                drain();
                spent += thread_time().saturating_sub(began);
            }
            best = best.min(spent.as_secs_f64() * 1e9 / (BURSTS * BURST) as f64);
        }
        best
    }
}

/// Drops what arrives on an interface, before IP sees it.
fn drop_all(interface: &str) {
    run(&format!("tc qdisc add dev {interface} clsact"));
    // A program of one instruction, which returns 2 for any packet.
    let filter = ["ingress", "bpf", "da", "bytecode", "1,6 0 0 2"];
    let mut command = std::process::Command::new("tc");
    let command = command.args(["filter", "add", "dev", interface]).args(filter);
    assert!(command.status().unwrap().success());
}

/// Makes the router's links, of which the far ends drop all.
fn make_links() -> (Sender, Host) {
    let (host, far) = (Host::alone(), Host::alone());
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    let namespace = &host.namespace;
    run(&format!("ip link add up0 type veth peer name eth0 netns {namespace}"));
    run("ip addr add 10.0.0.1/24 dev up0");
    run("ip link set up0 up");
    host.run(|| {
        run("ip link set eth0 up");
        drop_all("eth0");
    });
    for n in 1..=FAN_OUT {
        run(&format!("ip link add down{n} type veth peer name far{n} netns {}", far.namespace));
        run(&format!("ip addr add 10.{n}.0.1/24 dev down{n}"));
        run(&format!("ip link set down{n} up"));
        far.run(move || {
            run(&format!("ip link set far{n} up"));
            drop_all(&format!("far{n}"));
        });
    }
    for name in ["all", "default", "up0", "down1", "down2"] {
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
    }
    run("ip route add 10.9.9.0/24 via 10.2.0.2");
    for neighbour in ["10.1.0.7 dev down1", "10.2.0.2 dev down2"] {
        run(&format!("ip neigh add {neighbour} lladdr 02:00:00:00:00:09 nud permanent"));
    }
    (Sender { host, mac: mac_of("up0") }, far)
}

fn id(name: &str) -> InterfaceId {
    InterfaceId(Interface::resolve(name).unwrap().index)
}

#[test]
#[ignore = "a measurement"]
fn what_forwarding_costs() {
    const NAME: &str = "daemon::fast::tests::forwarding::what_forwarding_costs";
    in_namespace(NAME, || {
        let (sender, _far) = make_links();
        let mut rows: Vec<(String, f64)> = Vec::new();
        let payload = [5; 128];
        let group = SocketAddr::new(channel().group, channel().port);
        let data = [packet(to_source(), group, None, &payload)];
        let [up, down] = [id("up0"), id("down1")];

        drop_all("up0");
        let dropped = sender.cost(&data, || {});
        run("tc qdisc del dev up0 clsact");

        let mut table = MulticastTable::open(Family::V4, None).unwrap();
        table.add_interface(up.0).unwrap();
        let outputs: Vec<u32> = (1..=FAN_OUT).map(|n| id(&format!("down{n}")).0).collect();
        for output in &outputs {
            table.add_interface(*output).unwrap();
        }
        for fan_out in [1, 2, 8, 31] {
            let outputs = &outputs[..fan_out];
            table.set(source().into(), channel().group, up.0, outputs).unwrap();
            let cost = sender.cost(&data, || {});
            let packets = table.counters(source().into(), channel().group).unwrap().packets;
            assert!(packets as usize >= ROUNDS * BURSTS * BURST);
            rows.push((format!("kernel multicast to {fan_out}"), cost));
        }
        table.set(source().into(), channel().group, up.0, &outputs[..1]).unwrap();

        for mode in [FastPathMode::Off, FastPathMode::Required] {
            // The source is above down2, the requests come from up0, the replier is at down1.
            let (config, engine) = without_limits(32);
            let config = LmsConfig { fast_path: mode, ..config };
            let mut lms = Lms::open(Family::V4, config, [3; 32]).unwrap();
            match lms.start_fast_path(Instant::EPOCH + AGE) {
                Ok(()) => {}
                Err(error) => return skip(NAME, &error.to_string()),
            }
            lms.begin(Some(engine.clone()));
            lms.fast.attach(up, "up0");
            let clock = Clock::new();
            let mut tree = Tree { interfaces: vec![id("down2"), up, down] };
            let own = |address: IpAddr| address == me().ip();
            let mut buffer = vec![0; 4096];
            let mut take = |lms: &mut Lms| {
                let now = clock.now() + AGE;
                let mut turn = Turn { now, routes: &mut tree, own: &own, buffer: &mut buffer };
                while lms.take_alerts(&mut turn) | lms.take_mine(&mut turn) {}
                lms.tell_fast_path(&mut turn, &|_| 1500);
            };
            let mut offer = Vec::new();
            Message::Advertisement { channel: channel(), cost: Some(1) }.emit(&mut offer);
            let now = clock.now() + AGE;
            let mut offered = Tree { interfaces: vec![id("down2"), up, down] };
            let mut offer = packet(host(1, 7), to_source(), Some(0), &offer);
            lms.take_packet(now, &mut offered, &own, down, &mut offer);
            take(&mut lms);

            let way = if mode == FastPathMode::Off { "the daemon" } else { "the program" };
            if mode == FastPathMode::Required {
                let cost = sender.cost(&data, || {});
                rows.push(("kernel multicast to 1, past the program".to_owned(), cost));
            }
            let mut asking = Vec::new();
            let units = UnitSet { first: 300, following: u32::MAX };
            Message::Request(Request { units, ..request(channel()) }).emit(&mut asking);
            let asking = packet(host(0, 9), to_source(), Some(0), &asking);
            let cost = sender.cost(std::slice::from_ref(&asking), || take(&mut lms));
            rows.push((format!("request by {way}"), cost));

            let stamps = Stamps { engine, interfaces: vec![up] };
            for len in [128, 1300] {
                let point = stamps.point(clock.now() + AGE, 0, channel(), 0);
                let answer = dmcast(channel(), point, &repair(len));
                let answer = packet(host(0, 9), me(), None, &answer);
                // One request in a burst permits the DMCASTs of it.
                let mut frames = vec![answer; BURST - 1];
                frames.push(asking.clone());
                let cost = sender.cost(&frames, || take(&mut lms));
                rows.push((format!("DMCAST of {len} bytes by {way}"), cost));
            }
            let stats = lms.engine().unwrap().stats();
            let stats = lms.fast.status().counts.add_to(stats);
            println!("{way}: {stats:?} {:?} {:?}", lms.counts(), lms.fast.status());
        }
        println!("{:<44} {:>7} {:>7} {:>7}", "ns of CPU a packet", "all", "net", "ratio");
        println!("{:<44} {dropped:>7.0}", "dropped as it arrives");
        let one = rows[0].1 - dropped;
        for (what, cost) in rows {
            let net = cost - dropped;
            println!("{what:<44} {cost:>7.0} {net:>7.0} {:>7.2}", net / one);
        }
    });
}
