//! Traces of a run agree with the simulation's own counters.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::units::Rate;
use umbel_sim::trace::{FanOut, HashTracer, Note, SummaryTracer, Tracer, open};
use umbel_sim::{
    App, Context, Destination, GroupId, Instant, Kind, LinkSpec, Loss, Network, NodeId, Packet,
    Queue, SessionDelay, Simulation,
};

const END: Instant = Instant::from_nanos(2_000_000_000);

/// Sends a packet to the group every millisecond, and occasionally one that cannot be delivered.
struct Sender {
    group: Option<GroupId>,
    /// A host without a link.
    unreachable: NodeId,
    sent: u32,
}

impl App for Sender {
    fn start(&mut self, context: &mut Context<'_>) {
        self.group = Some(context.group(Some(context.node()), 1));
        self.wake(context);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}

    fn wake(&mut self, context: &mut Context<'_>) {
        let Some(group) = self.group.filter(|_| self.sent < 1_000) else { return };
        let node = context.node();
        let kind = if self.sent.is_multiple_of(5) { Kind::Repair } else { Kind::Data };
        let payload = Bytes::from(vec![7; 400]);
        context.send(Packet::new(node, Destination::Group(group), kind, payload.clone()));
        if self.sent.is_multiple_of(50) {
            let nowhere = Destination::Unicast(self.unreachable);
            context.send(Packet::new(node, nowhere, Kind::Control, payload.clone()));
            let near = Packet::new(node, Destination::Group(group), Kind::Control, payload);
            context.send(Packet { hop_limit: 1, ..near });
        }
        self.sent += 1;
        context.wake_at(Some(context.now() + Duration::from_millis(1)));
    }
}

/// Listens from its start on, and thanks the sender for each hundredth packet.
struct Listener {
    source: NodeId,
    received: u32,
}

impl App for Listener {
    fn start(&mut self, context: &mut Context<'_>) {
        let group = context.group(Some(self.source), 1);
        context.join(group);
    }

    fn packet(&mut self, context: &mut Context<'_>, _packet: &Packet) {
        self.received += 1;
        if self.received.is_multiple_of(100) {
            context.send_message(self.source, Bytes::from_static(b"thank you"));
            context.note(Note { name: "received", values: [f64::from(self.received), 0.0, 0.0] });
        }
    }
}

/// Runs a network with every kind of drop, and reports it to these tracers.
fn run(seed: u64, tracers: impl FnOnce(&Network, &mut FanOut)) -> (Simulation, Box<FanOut>) {
    let mut network = Network::new();
    let source = network.host("source");
    let router = network.router("router");
    let unreachable = network.host("unreachable");
    let delay = || LinkSpec::default().delay(Duration::from_millis(3));
    network.link(source, router, delay(), delay()).unwrap();
    let narrow = Rate::from_bits_per_s(3_000_000).unwrap();
    let specs = [
        delay().loss(Loss::Bernoulli(0.1)),
        delay().rate(narrow).queue(Queue::DropTailPackets(8)),
        delay().schedule(vec![
            (Instant::from_nanos(300_500_000), false),
            (Instant::from_nanos(400_500_000), true),
        ]),
    ];
    let listeners: Vec<NodeId> = specs
        .into_iter()
        .enumerate()
        .map(|(number, spec)| {
            let host = network.host(format!("listener{number}"));
            network.link(router, host, spec, delay()).unwrap();
            host
        })
        .collect();
    let mut all = FanOut::new();
    tracers(&network, &mut all);
    let mut simulation = Simulation::new(network, seed);
    let millisecond = Duration::from_millis(1);
    simulation.set_sessions(SessionDelay { min: millisecond, mean_extra: millisecond });
    let sender = Sender { group: None, unreachable, sent: 0 };
    simulation.set_app(source, sender, Instant::from_nanos(50_000_000)).unwrap();
    for host in listeners {
        simulation.set_app(host, Listener { source, received: 0 }, Instant::EPOCH).unwrap();
    }
    simulation.set_tracer(Box::new(all));
    simulation.run_until(END);
    let tracer: Box<dyn std::any::Any> = simulation.take_tracer().unwrap();
    let mut all: Box<FanOut> = tracer.downcast().unwrap();
    all.finish(END).unwrap();
    (simulation, all)
}

#[test]
fn the_summary_counts_what_the_simulation_counts() {
    let (simulation, tracers) =
        run(1, |network, all| all.add(Box::new(SummaryTracer::new(network))));
    let summary = tracers.get::<SummaryTracer>().unwrap().summary(END);
    let counters = simulation.counters();
    let sum = |count: fn(&umbel_sim::trace::summary::Traffic) -> u64| {
        summary.kinds.iter().map(|kind| count(&kind.traffic)).sum::<u64>()
    };
    assert_eq!(sum(|traffic| traffic.packets), counters.sent);
    assert_eq!(sum(|traffic| traffic.hops), counters.hops);
    // No control packet ends at the host to which it is addressed.
    let meant = summary.kinds.iter().filter(|kind| kind.kind != "control");
    assert_eq!(meant.map(|kind| kind.traffic.arrived).sum::<u64>(), counters.delivered);
    assert_eq!(sum(|traffic| traffic.drops.lost), counters.lost);
    assert_eq!(sum(|traffic| traffic.drops.queue_drops), counters.queue_drops);
    assert_eq!(sum(|traffic| traffic.drops.down), counters.down);
    assert_eq!(sum(|traffic| traffic.drops.no_route), counters.no_route);
    assert_eq!(sum(|traffic| traffic.drops.hop_limit), counters.hop_limit);
    assert_eq!(summary.sessions.messages, counters.messages);
    assert_eq!(summary.sessions.bytes, counters.message_bytes);
    let drops =
        [counters.lost, counters.queue_drops, counters.down, counters.no_route, counters.hop_limit];
    assert!(drops.iter().all(|count| *count > 10), "{counters:?}");
    for link in &summary.links {
        let (out, back) = simulation.link_counters(umbel_sim::LinkId(link.link));
        let direction = if link.from == "router" && link.to != "source" { out } else { back };
        let direction = if link.from == "source" { out } else { direction };
        assert_eq!(
            (link.traffic.packets, link.traffic.bytes, link.traffic.drops.lost),
            (direction.packets, direction.bytes, direction.lost),
            "{link:?}"
        );
    }
    let narrow = summary.links.iter().find(|link| link.to == "listener1").unwrap();
    // Half of the two seconds.
    assert!((0.45..0.55).contains(&narrow.utilisation.unwrap()), "{narrow:?}");
}

#[test]
fn the_hash_of_a_run_depends_on_the_seed_alone() {
    let digest = |seed| {
        let (_, tracers) = run(seed, |_, all| all.add(Box::new(HashTracer::new())));
        tracers.get::<HashTracer>().unwrap().digest()
    };
    let first = digest(1);
    assert_eq!(digest(1), first);
    assert_ne!(digest(2), first);
}

/// Returns the number of lines of a CSV file that have this in the column `event`.
fn events(csv: &str, event: &str) -> u64 {
    csv.lines().filter(|line| line.split(',').nth(1) == Some(event)).count() as u64
}

#[test]
fn files_hold_every_packet_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (simulation, _) = run(1, |network, all| {
        for name in ["run.csv", "run.pcapng", "run.pcap", "run.html"] {
            all.add(open(&file(name), network).unwrap());
        }
    });
    let counters = simulation.counters();
    let csv = fs::read_to_string(file("run.csv")).unwrap();
    let counted = [
        ("sent", counters.hops),
        ("lost", counters.lost),
        ("queue_drop", counters.queue_drops),
        ("down", counters.down),
        ("no_route", counters.no_route),
        ("hop_limit", counters.hop_limit),
        ("message", counters.messages),
        ("join", 3),
    ];
    for (event, count) in counted {
        assert_eq!(events(&csv, event), count, "{event}");
    }
    // 24 bytes of head, then 16 and 428 for each packet; a message has 9 + 28 bytes.
    let expected = 24 + counters.hops * 444 + counters.messages * 53;
    assert_eq!(fs::metadata(file("run.pcap")).unwrap().len(), expected);
    let page = fs::read_to_string(file("run.html")).unwrap();
    assert!(page.contains(&format!("\"cut\":null,\"hops\":{}", counters.hops)));
}
