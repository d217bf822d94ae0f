//! Packet-hops per second of processor time on one core, and bytes per receiver.
//!
//! - `tree`: a binary tree of 128 leaves with a constant-rate multicast from its root. Every link
//!   has a rate, a delay and a bounded queue. `bench/ns2/tree.tcl` is the same network for ns-2.
//! - `star`: a router with 100, 10,000 and 1,000,000 receivers, without and with loss.
//!
//! Run with `cargo bench -p umbel-sim --bench forward`; an argument restricts the run to the
//! networks whose names contain it.

use std::sync::LazyLock;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use umbel_engine::units::Rate;
use umbel_sim::{
    App, Context, Destination, GroupId, Instant, Kind, LinkSpec, Loss, Network, NodeId, Packet,
    Queue, Simulation,
};

/// Sends a packet of 1,000 bytes every `interval`.
struct Sender {
    group: GroupId,
    interval: Duration,
    left: u32,
    payload: Bytes,
}

impl App for Sender {
    fn start(&mut self, context: &mut Context<'_>) {
        self.wake(context);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}

    fn wake(&mut self, context: &mut Context<'_>) {
        if self.left > 0 {
            self.left -= 1;
            let to = Destination::Group(self.group);
            let packet = Packet::new(context.node(), to, Kind::Data, self.payload.clone());
            context.send(Packet { wire_len: 1_000, ..packet });
            context.wake_at(Some(context.now() + self.interval));
        }
    }
}

/// Joins and counts packets.
struct Receiver {
    group: GroupId,
    packets: u64,
    bytes: u64,
}

impl App for Receiver {
    fn start(&mut self, context: &mut Context<'_>) {
        context.join(self.group);
    }

    fn packet(&mut self, _context: &mut Context<'_>, packet: &Packet) {
        self.packets += 1;
        self.bytes += u64::from(packet.wire_len);
    }
}

fn link() -> LinkSpec {
    LinkSpec::default()
        .rate(Rate::from_bits_per_s(10_000_000).expect("not zero"))
        .delay(Duration::from_millis(10))
        .queue(Queue::DropTailPackets(50))
}

/// Runs `packets` packets. Prints packet-hops and events per second, and with many receivers the
/// memory of the process per receiver.
fn run(name: &str, network: Network, source: NodeId, leaves: &[NodeId], packets: u32) {
    let mut simulation = Simulation::new(network, 1);
    let group = simulation.group(Some(source), 1);
    for &leaf in leaves {
        let receiver = Receiver { group, packets: 0, bytes: 0 };
        simulation.set_app(leaf, receiver, Instant::EPOCH).expect("a free host");
    }
    let sender = Sender {
        group,
        interval: Duration::from_millis(1),
        left: packets,
        payload: Bytes::from(vec![0; 972]),
    };
    let start = Instant::EPOCH + Duration::from_secs(1);
    simulation.set_app(source, sender, start).expect("a free host");
    // Joins and their grafts are not measured.
    simulation.run_until(start + Duration::from_micros(100));
    let (warm, clock) = (*simulation.counters(), cpu_time());
    simulation.run_until(Instant::from_nanos(u64::MAX));
    let elapsed = cpu_time().saturating_sub(clock).as_secs_f64();
    let counters = simulation.counters();
    let delivered = counters.delivered + counters.lost;
    assert_eq!(
        delivered,
        u64::from(packets) * leaves.len() as u64,
        "every packet is accounted for"
    );
    // With fewer receivers, the base memory of the process would dominate.
    let memory = match leaves.len() as u64 {
        many @ 100_000.. => (resident_bytes() / many).to_string(),
        _ => "-".to_owned(),
    };
    println!(
        "{name:<22} {:>8.2} {:>8.2} {elapsed:>9.3} {memory:>10}",
        (counters.hops - warm.hops) as f64 / elapsed / 1e6,
        (counters.events - warm.events) as f64 / elapsed / 1e6,
    );
}

fn tree(spec: impl Fn() -> LinkSpec) -> (Network, NodeId, Vec<NodeId>) {
    const DEPTH: u32 = 7;
    let mut network = Network::new();
    let root = network.host("root");
    let mut level = vec![root];
    for depth in 1..=DEPTH {
        let mut below = Vec::new();
        for &above in &level {
            for side in 0..2 {
                let name = format!("{depth}.{}.{side}", above.0);
                let node = if depth == DEPTH { network.host(name) } else { network.router(name) };
                network.link(above, node, spec(), spec()).expect("both ends exist");
                below.push(node);
            }
        }
        level = below;
    }
    (network, root, level)
}

fn star(count: u32, leaf: &LinkSpec) -> (Network, NodeId, Vec<NodeId>) {
    let mut network = Network::new();
    let source = network.host("source");
    let hub = network.router("hub");
    network.link(source, hub, link(), link()).expect("both ends exist");
    let leaves = (0..count)
        .map(|n| {
            let node = network.host(format!("r{n}"));
            network.link(hub, node, leaf.clone(), link()).expect("both ends exist");
            node
        })
        .collect();
    (network, source, leaves)
}

/// Returns the processor time of this thread, so that other work on the machine counts less. Where
/// Linux does not report it, returns the time of day.
fn cpu_time() -> Duration {
    static START: LazyLock<Clock> = LazyLock::new(Clock::now);
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match schedstat.split(' ').next().and_then(|ns| ns.parse().ok()) {
        Some(ns) => Duration::from_nanos(ns),
        None => START.elapsed(),
    }
}

/// Returns the memory of this process as Linux reports it; 0 elsewhere.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{:<22} {:>8} {:>8} {:>9} {:>10}", "", "Mhops/s", "Mevents", "s", "B/receiver");
    let wants = |name: &str| name.contains(&filter);
    if wants("tree 128") {
        for _ in 0..3 {
            let (network, root, leaves) = tree(link);
            run("tree 128", network, root, &leaves, 100_000);
        }
    }
    if wants("tree 128, no rate") {
        let (network, root, leaves) = tree(|| LinkSpec::default().delay(Duration::from_millis(10)));
        run("tree 128, no rate", network, root, &leaves, 100_000);
    }
    for (count, packets) in [(100, 200_000), (10_000, 2_000), (1_000_000, 20)] {
        let plain = LinkSpec::default().delay(Duration::from_millis(10));
        let lossy = plain.clone().loss(Loss::Bernoulli(0.1));
        for (what, leaf) in [("", plain), (" 10 % loss", lossy), (" rate", link())] {
            let name = format!("star {count}{what}");
            if wants(&name) {
                let (network, source, leaves) = star(count, &leaf);
                run(&name, network, source, &leaves, packets);
            }
        }
    }
}
