//! What each recovery costs between real hosts: the table of docs/recovery.md, beside the one in
//! virtual time (`umbel-sim`, `recovery::tests::table`).
//!
//! `cargo test --release -p umbel --test lab_recovery_costs -- --ignored --nocapture` prints it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt, sockopt};
use support::bench::SOON;
use support::feeds::{Feeds, Receiver};
use support::process::Process;
use support::routers::Routers;
use support::{files, group, lab};
use umbel_engine::Instant;
use umbel_lab::{Lab, Topology};
use umbel_sim::recovery::{COLUMNS, Costs, Observer};
use umbel_wire::datagram::IpDatagram;

/// Groups where feeds of local scope are announced and asked for.
const DIRECTORY: &str = "239.255.255.255";
/// Bytes of IPv4 and UDP headers.
const HEADERS: u64 = 28;
const LIMIT: Duration = Duration::from_mins(10);

/// A socket that sees all packets of a node.
struct Ear {
    socket: OwnedFd,
    node: String,
    /// Names behind the interfaces.
    peers: BTreeMap<usize, String>,
}

/// Shows an observer all packets of a lab, until it is stopped.
struct Tap {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Observer>,
}

impl Tap {
    fn new(lab: &Lab, mut observer: Observer) -> Tap {
        let ears: Vec<Ear> = lab
            .hosts_and_routers()
            .map(|node| {
                let all = i32::from((libc::ETH_P_ALL as u16).to_be());
                let socket = node.socket(libc::AF_PACKET, libc::SOCK_DGRAM, all).unwrap();
                setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
                setsockopt(&socket, sockopt::ReceiveTimestampns, &true).unwrap();
                let peers = node.interfaces().iter().map(|i| (i.index as usize, i.peer.clone()));
                Ear { socket, node: node.name().to_owned(), peers: peers.collect() }
            })
            .collect();
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let mut fds: Vec<PollFd<'_>> =
                    ears.iter().map(|e| PollFd::new(e.socket.as_fd(), PollFlags::POLLIN)).collect();
                let _ = poll(&mut fds, PollTimeout::from(20_u8));
                let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
                for (ear, _) in ears.iter().zip(ready).filter(|(_, ready)| *ready) {
                    ear.listen(&mut observer);
                }
            }
            observer
        });
        Tap { stop, thread }
    }

    fn finish(self) -> Observer {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

impl Ear {
    fn listen(&self, observer: &mut Observer) {
        let mut buffer = vec![0; 65_536];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        for _ in 0..1024 {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let Ok(got) = recvmsg::<LinkAddr>(fd, &mut slices, Some(&mut control), flags) else {
                return;
            };
            let stamp = got.cmsgs().unwrap().find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(at) => Some(at),
                _ => None,
            });
            let (len, from) = (got.bytes, got.address.unwrap());
            let Some(peer) = self.peers.get(&from.ifindex()) else { continue };
            let Ok(datagram) = IpDatagram::parse(&buffer[..len]) else { continue };
            match from.pkttype() {
                libc::PACKET_OUTGOING => {
                    let wire_len = datagram.payload.len() as u64 + HEADERS;
                    observer.on_sent(&self.node, peer, datagram.payload, wire_len);
                }
                libc::PACKET_HOST | libc::PACKET_MULTICAST => {
                    let stamp = Duration::from(stamp.unwrap());
                    observer.on_arrived(Instant::EPOCH + stamp, &self.node, datagram.payload);
                }
                _ => {}
            }
        }
    }
}

/// Returns the sample network of seven routers with a sixteenth receiver, whose links lose 2 % in
/// both directions.
fn seven_routers() -> Topology {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab/seven-routers.toml");
    let topology = Topology::from_file(Path::new(file)).unwrap();
    let mut topology = topology.host("e16").link("r6", "e16").delay(Duration::from_millis(3));
    for link in &mut topology.links {
        (link.a_to_b.loss, link.b_to_a.loss) = (0.02, 0.02);
    }
    topology
}

/// Sends files to all hosts with one recovery. Returns what it took.
fn run(recovery: &str, bytes: u64) -> Option<Costs> {
    let topology = seven_routers();
    let lab = lab(&topology)?;
    let is_routed = ["lms", "source"].contains(&recovery);
    let _routers = is_routed.then(|| Routers::start(&lab));
    let feeds = Feeds::unannounced(&lab, &[("large", bytes)]);
    if !is_routed {
        let directory: IpAddr = DIRECTORY.parse().unwrap();
        lab.route_multicast_from_all([directory]).unwrap();
    }
    let mut command = feeds.umbel("source");
    command.args(["send", "--json", "--name", "feed"]).arg(feeds.input());
    command.args(["--rate", "10M", "--wait-for", "16", "--recovery", recovery]);
    let mut sender = Process::start("sender", command, &feeds.logs);
    let sending = sender.wait_for_event("sending", SOON);
    if !is_routed {
        lab.route_multicast("source", group(&sending["data"])).unwrap();
        lab.route_multicast_from_all([group(&sending["domain"])]).unwrap();
    }
    let tap = Tap::new(&lab, Observer::new(&topology, "source"));
    let begin = std::time::Instant::now();
    let address = lab.host("source").unwrap().addr4();
    let feed = if is_routed { format!("feed@{address}") } else { "feed".to_owned() };
    let mut receivers: Vec<Receiver> = (1..=16)
        .map(|n| {
            let (host, out) = (format!("e{n}"), feeds.out(&format!("e{n}")));
            let mut command = feeds.umbel(&host);
            command.args(["recv", "--json", &feed, "--as", &host, "--wait", "60s", "-o"]).arg(&out);
            Receiver { process: Process::start(&host, command, &feeds.logs), out }
        })
        .collect();
    for receiver in &mut receivers {
        receiver.process.wait_done(LIMIT);
        files::assert_same(&feeds.input(), &receiver.out, |_| true);
    }
    let took = begin.elapsed();
    let sent = sender.wait_done(SOON);
    println!("{recovery}: {sent}");
    Some(Costs::of(&tap.finish(), &topology, "source", took))
}

#[test]
#[ignore = "prints a table, and takes minutes"]
fn table() {
    let bytes = std::env::var("UMBEL_BYTES").ok().and_then(|text| text.parse().ok());
    println!("| | {COLUMNS} |");
    for recovery in ["tree", "lms", "srm", "source"] {
        let Some(costs) = run(recovery, bytes.unwrap_or(20_000_000)) else { return };
        println!("| `{recovery}` | {costs} |");
    }
}
