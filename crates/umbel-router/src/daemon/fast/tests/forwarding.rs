//! The cost of forwarding: Table II of the paper, on the kernel of this machine.
//!
//! ```text
//!   sender ── up0 │ router │ down1 … down31 ── far
//! ```
//!
//! Datagrams that arrive at the sender or far are dropped as they arrive.
//!
//! One thread sends frames, and the kernel does its part of the forwarding within that thread. The
//! daemon takes what is left to it in bursts. The CPU time of both is added, and that of frames
//! that the router drops as they arrive is taken off. The best of some rounds counts.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, bind, send, socket};

use super::namespaces::Host;
use super::*;
use crate::kernel::mroute::MulticastTable;

const FAN_OUT: usize = 31;
const ROUNDS: usize = 10;
const BURSTS: usize = 200;
/// Frames at a time: this number fits into every buffer.
const BURST: usize = 64;

/// The way of frames to the router.
struct Sender {
    host: Host,
    mac: [u8; 6],
}

fn thread_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Opens a socket for the frames of `eth0`.
fn open() -> OwnedFd {
    let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
    let mut all = nix::ifaddrs::getifaddrs().unwrap();
    let address = all.find_map(|entry| {
        let is_it = entry.interface_name == "eth0";
        entry.address.filter(|_| is_it)?.as_link_addr().copied()
    });
    bind(raw.as_raw_fd(), &address.unwrap()).unwrap();
    raw
}

impl Sender {
    fn frame(&self, packet: &[u8]) -> Vec<u8> {
        [&self.mac, &[2; 6][..], &[8, 0], packet].concat()
    }

    /// Sends a frame this number of times from one core, which also does what the router does with
    /// it. Returns the time by the clock, and the CPU time of the thread and of the core's
    /// `ksoftirqd`, which does what the thread leaves.
    fn flood(&self, packet: &[u8], bursts: usize) -> [Duration; 2] {
        const CORE: usize = 0;
        let mut frame = self.frame(packet);
        self.host.run(move || {
            let mut cores = nix::sched::CpuSet::new();
            cores.set(CORE).unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cores).unwrap();
            let raw = open();
            let mut part =
                libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            // SAFETY: plain data of which all bits zero is a value.
            #[allow(unsafe_code)]
            let empty: libc::mmsghdr = unsafe { std::mem::zeroed() };
            let mut messages = vec![empty; BURST];
            for message in &mut messages {
                message.msg_hdr.msg_iov = &raw mut part;
                message.msg_hdr.msg_iovlen = 1;
            }
            let (clock, thread, helper) =
                (std::time::Instant::now(), thread_time(), time_of_ksoftirqd(CORE));
            for _ in 0..bursts {
                // SAFETY: the messages and the frame that they point to live here.
                #[allow(unsafe_code)]
                let sent = unsafe {
                    libc::sendmmsg(raw.as_raw_fd(), messages.as_mut_ptr(), BURST as u32, 0)
                };
                assert_eq!(sent, BURST as i32, "{}", std::io::Error::last_os_error());
            }
            let spent = thread_time().saturating_sub(thread);
            let helped = time_of_ksoftirqd(CORE).saturating_sub(helper);
            [clock.elapsed(), spent + helped]
        })
    }

    /// Sends frames, and has the daemon take what came after each burst. Returns the nanoseconds of
    /// CPU for each.
    fn cost(&self, packets: &[Vec<u8>], mut drain: impl FnMut()) -> f64 {
        let frames: Vec<Vec<u8>> = packets.iter().map(|packet| self.frame(packet)).collect();
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

/// Returns the CPU time that the kernel's thread for the soft interrupts of a core has had.
fn time_of_ksoftirqd(core: usize) -> Duration {
    let name = format!("ksoftirqd/{core}");
    let read = |process: &std::path::Path, file| std::fs::read_to_string(process.join(file));
    let mut processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let found = processes.find_map(|process| {
        let comm = read(&process.path(), "comm").ok()?;
        if comm.trim() == name { read(&process.path(), "schedstat").ok() } else { None }
    });
    let spent = found.and_then(|stat| stat.split(' ').next()?.parse().ok());
    Duration::from_nanos(spent.unwrap_or(0))
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

/// Has a core do all that the kernel does with what arrives on an interface.
fn take_on_core(interface: &str, core: u32) {
    let mask = 1_u32 << core;
    let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    // What `/sys` shows is of the namespace that it was mounted in.
    let script = format!("mount -t sysfs none /sys && echo {mask:x} > {file}");
    let mut command = std::process::Command::new("unshare");
    assert!(command.args(["--mount", "sh", "-c", &script]).status().unwrap().success());
}

fn id(name: &str) -> InterfaceId {
    InterfaceId(Interface::resolve(name).unwrap().index)
}

#[test]
#[ignore = "a measurement"]
fn what_forwarding_costs() {
    in_namespace(|| {
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
            table.set(source(), channel().group, up.0, outputs).unwrap();
            let cost = sender.cost(&data, || {});
            let packets = table.counters(source(), channel().group).unwrap().packets;
            assert!(packets as usize >= ROUNDS * BURSTS * BURST);
            rows.push((format!("kernel multicast to {fan_out}"), cost));
        }
        table.set(source(), channel().group, up.0, &outputs[..1]).unwrap();

        for mode in [FastPathMode::Off, FastPathMode::Required] {
            // The source is above down2, the requests come from up0, the replier is at down1.
            let (config, engine) = without_limits(32);
            let config = LmsConfig { fast_path: mode, ..config };
            let mut lms = Lms::open(Family::V4, config, [3; 32]).unwrap();
            match lms.start_fast_path(Instant::EPOCH + AGE) {
                Ok(()) => {}
                Err(error) => return skip(&error.to_string()),
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
            lms.take_message(now, &mut offered, (up, host(0, 9)), &solicit());
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

/// Number of requests that a core steers while it only makes them.
#[test]
#[ignore = "a measurement"]
fn how_many_requests_leave_in_a_second() {
    const AT_A_TIME: usize = 500;
    in_namespace(|| {
        let (sender, _far) = make_links();
        let [up, down] = [id("up0"), id("down1")];
        let (config, engine) = without_limits(32);
        let config = LmsConfig { fast_path: FastPathMode::Required, ..config };
        let mut lms = Lms::open(Family::V4, config, [3; 32]).unwrap();
        if let Err(error) = lms.start_fast_path(Instant::EPOCH + AGE) {
            return skip(&error.to_string());
        }
        lms.begin(Some(engine));
        lms.fast.attach(up, "up0");
        let clock = Clock::new();
        let own = |address: IpAddr| address == me().ip();
        let mut tree = Tree { interfaces: vec![id("down2"), up, down] };
        let mut offer = Vec::new();
        Message::Advertisement { channel: channel(), cost: Some(1) }.emit(&mut offer);
        let mut offer = packet(host(1, 7), to_source(), Some(0), &offer);
        let now = clock.now() + AGE;
        lms.take_packet(now, &mut tree, &own, down, &mut offer);
        lms.take_message(now, &mut tree, (up, host(0, 9)), &solicit());
        let mut turn = Turn { now, routes: &mut tree, own: &own, buffer: &mut [] };
        lms.tell_fast_path(&mut turn, &|_| 1500);
        let mut asking = Vec::new();
        Message::Request(request(channel())).emit(&mut asking);
        let asking = packet(host(0, 9), to_source(), Some(0), &asking);
        // Counts what `down1` has sent: the tenth number behind its name.
        let left = || -> u64 {
            let all = std::fs::read_to_string("/proc/net/dev").unwrap();
            let line = all.lines().find_map(|line| line.trim().strip_prefix("down1:")).unwrap();
            line.split_whitespace().nth(9).unwrap().parse().unwrap()
        };
        let requests = (AT_A_TIME * BURST) as u64;
        let mut best = [0.0_f64; 2];
        for _ in 0..20 {
            let (before, steered) = (left(), lms.fast.status().counts.turned);
            let times = sender.flood(&asking, AT_A_TIME);
            let steered = lms.fast.status().counts.turned - steered;
            let left = left() - before;
            assert_eq!(steered, requests);
            // A packet of the kernel's own may leave meanwhile.
            assert!((requests..requests + 10).contains(&left), "{left} of {requests} left");
            for (best, time) in best.iter_mut().zip(times) {
                *best = best.max(requests as f64 / time.as_secs_f64());
            }
        }
        println!(
            "requests that left in a second: {:.0} by the clock, {:.0} of CPU time; the best of 20 \
             rounds of {requests}, with what makes them",
            best[0], best[1]
        );

        if std::thread::available_parallelism().unwrap().get() < 2 {
            return;
        }
        take_on_core("up0", 1);
        let mut best = 0.0_f64;
        for _ in 0..20 {
            let before = left();
            let [clock, _] = sender.flood(&asking, 10 * AT_A_TIME);
            // Requests that still wait, or found no room because more were made, do not count.
            best = best.max((left() - before) as f64 / clock.as_secs_f64());
        }
        println!(
            "{best:.0} by the clock where another core makes them; the best of 20 rounds of {}",
            10 * requests
        );
    });
}
