//! The simulator beside closed formulas. `docs/laboratory/validation.md` has the numbers, which
//! `cargo test -p umbel-sim --test all formulas:: -- --nocapture` prints.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::repository::config::{NakConfig, PaperReading, SegmentConfig, StartConfig};
use umbel_engine::repository::{ReceiverConfig, SourceConfig};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, exponential, stream, uniform};
use umbel_sim::repository::{Catalog, Client, ClientHost, Server, ServerHost};
use umbel_sim::{
    App, Context, Destination, Instant, Kind, Kinds, LinkSpec, Loss, Network, NodeId, Packet,
    Queue, Simulation, basep, channel,
};
use umbel_wire::{Scheme, Toi, Tsi};

/// Bits per second at which a packet of 1,000 bytes takes 1 ms.
const RATE_BITS_PER_S: u64 = 8_000_000;
/// Mean length of a packet in bytes, and its time on the link in seconds.
const MEAN_LEN: f64 = 1_000.0;
const SERVICE_S: f64 = 0.001;
/// Propagation time of the link.
const DELAY: Duration = Duration::from_millis(7);

/// Lengths of packets in bytes.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    Equal,
    Uniform,
    Exponential,
}

impl Lengths {
    fn draw(self, random: &mut rand_xoshiro::Xoshiro256PlusPlus) -> u32 {
        let len = match self {
            Lengths::Equal => MEAN_LEN,
            Lengths::Uniform => 2.0 * MEAN_LEN * uniform(random),
            Lengths::Exponential => exponential(random, MEAN_LEN),
        };
        (len.round() as u32).max(1)
    }

    /// Returns the second moment of the time on the link, over the square of its mean.
    fn second_moment(self) -> f64 {
        match self {
            Lengths::Equal => 1.0,
            Lengths::Uniform => 4.0 / 3.0,
            Lengths::Exponential => 2.0,
        }
    }
}

/// Sends packets as a Poisson process, each with the time at which it leaves.
struct Arrivals {
    to: NodeId,
    lengths: Lengths,
    mean_s: f64,
    left: u32,
    random: rand_xoshiro::Xoshiro256PlusPlus,
}

impl App for Arrivals {
    fn start(&mut self, context: &mut Context<'_>) {
        self.wake(context);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let stamp = Bytes::copy_from_slice(&now.as_nanos().to_be_bytes());
        let to = Destination::Unicast(self.to);
        let mut packet = Packet::new(context.node(), to, Kind::Data, stamp);
        packet.wire_len = self.lengths.draw(&mut self.random);
        context.send(packet);
        self.left -= 1;
        if self.left > 0 {
            let next = exponential(&mut self.random, self.mean_s);
            context.wake_at(Some(now + Duration::from_secs_f64(next)));
        }
    }
}

/// Sums up how long packets waited before the link sent them.
#[derive(Default)]
struct Waits {
    packets: u32,
    sum_s: f64,
}

impl App for Waits {
    fn start(&mut self, _context: &mut Context<'_>) {}

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        let sent = Instant::from_nanos(u64::from_be_bytes(packet.payload[..].try_into().unwrap()));
        let took = context.now().since(sent).saturating_sub(DELAY).as_secs_f64();
        self.packets += 1;
        self.sum_s += took - f64::from(packet.wire_len) / MEAN_LEN * SERVICE_S;
    }
}

/// Offers a link this share of what it can carry. Returns the mean wait in seconds of what it
/// carried, and the share that it dropped.
fn queue(lengths: Lengths, load: f64, queue: Queue, packets: u32) -> (f64, f64) {
    let mut network = Network::new();
    let (source, sink) = (network.host("source"), network.host("sink"));
    let rate = Rate::from_bits_per_s(RATE_BITS_PER_S).unwrap();
    let spec = LinkSpec::default().rate(rate).delay(DELAY).queue(queue);
    network.link(source, sink, spec, LinkSpec::default()).unwrap();
    let mut simulation = Simulation::new(network, 1);
    let arrivals = Arrivals {
        to: sink,
        lengths,
        mean_s: SERVICE_S / load,
        left: packets,
        random: stream(1, Purpose::Workload, 0),
    };
    simulation.set_app(source, arrivals, Instant::EPOCH).unwrap();
    simulation.set_app(sink, Waits::default(), Instant::EPOCH).unwrap();
    simulation.run_until(Instant::EPOCH + Duration::from_hours(24));
    let waits = simulation.app::<Waits>(sink).unwrap();
    let carried = f64::from(waits.packets);
    (waits.sum_s / carried, 1.0 - carried / f64::from(packets))
}

/// Prints both numbers, and requires that they differ by at most this share.
fn compare(what: &str, simulated: f64, formula: f64, tolerance: f64) {
    println!("{what}: {simulated:.5} simulated, {formula:.5} by the formula");
    let share = (simulated / formula - 1.0).abs();
    assert!(share <= tolerance, "{what}: {simulated} differs by {share} from {formula}");
}

#[test]
fn waits_at_a_link_are_those_of_pollaczek_and_khinchine() {
    for lengths in [Lengths::Equal, Lengths::Uniform, Lengths::Exponential] {
        for load in [0.3, 0.5, 0.8] {
            // The longer the queues, the more do their lengths vary.
            let packets = if load > 0.5 { 300_000 } else { 60_000 };
            let (wait, dropped) = queue(lengths, load, Queue::Unbounded, packets);
            let formula = load * SERVICE_S * lengths.second_moment() / (2.0 * (1.0 - load));
            let what = format!("mean wait in ms, {lengths:?} lengths, load {load}");
            compare(&what, wait * 1e3, formula * 1e3, 0.04);
            assert!(dropped.abs() < 1e-12);
        }
    }
}

#[test]
fn a_full_queue_drops_the_share_of_the_m_m_1_k_system() {
    for (load, places) in [(0.8, 5), (0.8, 10), (1.0, 10), (1.5, 10)] {
        let limit = Queue::DropTailPackets(places);
        let (_, dropped) = queue(Lengths::Exponential, load, limit, 200_000);
        let full = |load: f64| {
            if (load - 1.0).abs() < 1e-9 {
                return 1.0 / f64::from(places + 1);
            }
            (1.0 - load) * load.powi(places as i32) / (1.0 - load.powi(places as i32 + 1))
        };
        compare(&format!("share dropped, load {load}, {places} places"), dropped, full(load), 0.04);
    }
}

/// Returns the mean greatest of `count` geometric variables. It is how often something is sent
/// until each of `count` receivers has it, if each sending fails for each with probability `loss`.
fn rounds(count: u32, loss: f64) -> f64 {
    let unfinished = |round: i32| 1.0 - (1.0 - loss.powi(round)).powi(count as i32);
    (0..10_000).map(unfinished).take_while(|share| *share > 1e-12).sum()
}

#[test]
fn a_packet_is_sent_until_the_last_of_n_receivers_has_it() {
    const PACKETS: u64 = 3_000;
    for (receivers, loss) in [(1, 0.1), (10, 0.1), (10, 0.3), (100, 0.05)] {
        let mut network = Network::new();
        let (source, router) = (network.host("source"), network.router("router"));
        network.link(source, router, LinkSpec::default(), LinkSpec::default()).unwrap();
        let lossy = LinkSpec::default().loss(Loss::Bernoulli(loss));
        let nodes: Vec<NodeId> = (0..receivers)
            .map(|n| {
                let node = network.host(format!("r{n}"));
                network.link(router, node, lossy.clone(), LinkSpec::default()).unwrap();
                node
            })
            .collect();
        let group = channel(Some(source), 1);
        let mut simulation = Simulation::new(network, 1);
        let start = Instant::EPOCH + Duration::from_secs(1);
        let file = (start, PACKETS, 100);
        // The data in flight fits the receivers' windows.
        let change = |config: &mut umbel_engine::basep::SourceConfig| config.window = Some(500);
        let host = basep::Source::host(group, nodes.iter().copied(), change, file);
        simulation.set_app(source, host, Instant::EPOCH).unwrap();
        for &node in &nodes {
            simulation.set_app(node, basep::Receiver::host(group), Instant::EPOCH).unwrap();
        }
        simulation.run_until(start + Duration::from_mins(10));
        let source = simulation.app::<basep::SourceHost>(source).unwrap();
        assert!(source.host().finished().is_some());
        let again = source.engine().stats().load.retransmissions as f64 / PACKETS as f64;
        let what = format!("sendings of a packet, {receivers} receivers that lose {loss}");
        compare(&what, 1.0 + again, rounds(receivers, loss), 0.03);
    }
}

/// Sends one item of [`SYMBOLS`] packets, which many clients want at once. Returns the number of
/// NAKs for each client until all have it. With a code hardly any needs a third transmission.
fn naks(policy: &str, scheme: Scheme, clients: u32, loss: f64, seed: u64) -> f64 {
    const LEN: usize = 1_400;
    let mut network = Network::new();
    let (server, hub) = (network.host("server"), network.router("hub"));
    network.link(server, hub, LinkSpec::default(), LinkSpec::default()).unwrap();
    let originals = Kinds::NONE.with(Kind::Data).with(Kind::Repair);
    let lossy = LinkSpec { loss_of: originals, ..LinkSpec::default() }.loss(Loss::Bernoulli(loss));
    let nodes: Vec<NodeId> = (0..clients)
        .map(|n| {
            let node = network.host(format!("c{n}"));
            network.link(hub, node, lossy.clone(), LinkSpec::default()).unwrap();
            node
        })
        .collect();
    // A packet takes 22 ms, so that a host that lost the last one notices before the next comes.
    let rate = Rate::from_bits_per_s(500_000).unwrap();
    let config = SourceConfig {
        policy: policy.parse().unwrap(),
        packet_len: LEN,
        lookahead: Duration::ZERO,
        segment: SegmentConfig { time: Duration::MAX, ..SegmentConfig::default() },
        start: StartConfig { fraction: 1.0, ..StartConfig::default() },
        // NAKs come before the next transmission, which would make some needless.
        naks: NakConfig { spread: (Duration::ZERO, Duration::ZERO), ..NakConfig::default() },
        reading: PaperReading {
            cut_short: false,
            reschedule_whole: true,
            ..PaperReading::default()
        },
        loss_cap: 1.0,
        ..SourceConfig::new(Tsi(1), channel(Some(server), 1), rate)
    };
    let len = (LEN - umbel_wire::alc::DataHeader::LEN) as u16;
    let catalog = Arc::new(Catalog::uniform(1, SYMBOLS, len, scheme));
    let mut simulation = Simulation::new(network, seed);
    let host = Server::host(config, 1, catalog.clone());
    simulation.set_app(server, host, Instant::EPOCH).unwrap();
    for &node in &nodes {
        let config = ReceiverConfig { linger: Duration::ZERO, ..ReceiverConfig::default() };
        let host = Client::host(config, u64::from(node.0), server, catalog.clone(), vec![Toi(1)]);
        simulation.set_app(node, host, Instant::EPOCH).unwrap();
    }
    simulation.run_until(Instant::EPOCH + Duration::from_mins(2));
    let is_done = |node: &&NodeId| {
        simulation.app::<ClientHost>(**node).is_some_and(|host| host.host().delay().is_some())
    };
    assert_eq!(nodes.iter().filter(is_done).count(), nodes.len());
    let stats = simulation.app::<ServerHost>(server).unwrap().engine().stats();
    stats.naks as f64 / f64::from(clients)
}

/// Packets of the item.
const SYMBOLS: u16 = 60;

/// Returns the probability that more than `most` of `n` are lost, each with probability `loss`.
fn more_lost(n: u32, most: u32, loss: f64) -> f64 {
    let mut term = (1.0 - loss).powi(n as i32);
    let mut sum = term;
    for lost in 0..most {
        term *= f64::from(n - lost) / f64::from(lost + 1) * loss / (1.0 - loss);
        sum += term;
    }
    1.0 - sum
}

#[test]
fn what_an_erasure_code_leaves_is_the_tail_of_the_binomial_distribution() {
    const CLIENTS: u32 = 4_000;
    for (expansion, loss) in [(0.1, 0.05), (0.1, 0.1), (0.2, 0.1), (0.3, 0.2)] {
        let policy = format!("FEC({expansion})+R(0)");
        let naks = naks(&policy, Scheme::ReedSolomon, CLIENTS, loss, 1);
        let n = (f64::from(SYMBOLS) * (1.0 + expansion) - 1e-9).ceil() as u32;
        let formula = more_lost(n, n - u32::from(SYMBOLS), loss);
        let what = format!("clients that need more than {n} of {SYMBOLS} packets at loss {loss}");
        // Three standard deviations of the share of this number of clients.
        let deviation = ((1.0 - formula) / formula / f64::from(CLIENTS)).sqrt();
        compare(&what, naks, formula, 3.0 * deviation);
    }
}

#[test]
fn a_client_without_a_code_gets_an_item_again_until_it_has_every_packet() {
    const RUNS: u64 = 1_500;
    for loss in [0.0, 0.05, 0.2] {
        let transmissions = |seed| 1.0 + naks("R(0)+no-ecc", Scheme::NoCode, 1, loss, seed);
        let all: Vec<f64> = (1..=RUNS).map(transmissions).collect();
        let mean = all.iter().sum::<f64>() / RUNS as f64;
        let what = format!("transmissions of {SYMBOLS} packets without a code, loss {loss}");
        // Three standard deviations of the mean are 2 %.
        compare(&what, mean, rounds(SYMBOLS.into(), loss), 0.02);
    }
}
