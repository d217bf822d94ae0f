//! Runs as functions of network, programs and seed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::*;
use crate::link::{Loss, Queue, RedConfig};
use crate::simulation::{Outcome, SessionDelay};
use crate::trace::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, Tracer};

/// Hashes all reports.
#[derive(Clone, Default)]
struct Hashing(Arc<Mutex<(DefaultHasher, u64)>>);

impl Hashing {
    fn add(&mut self, what: impl Hash) {
        let mut state = self.0.lock().unwrap();
        what.hash(&mut state.0);
        state.1 += 1;
    }
}

impl Tracer for Hashing {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let PacketRecord { at, link, from, to, what, arrives, packet, channel, id } = record;
        self.add((at, link, from, to, what, arrives, channel, id));
        self.add((packet.flow, packet.kind, packet.hop_limit, packet.wire_len));
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        self.add((record.at, record.node, record.note.name));
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.add((record.at, record.from, record.to, record.arrives, record.message));
    }

    fn membership(&mut self, record: &MembershipRecord) {
        self.add((record.at, record.node, record.channel, record.joined));
    }
}

/// Runs a network with everything that draws, and hosts that join and leave.
fn everything(seed: u64) -> (u64, u64) {
    let mut network = Network::new();
    let source = network.host("source");
    let routers: Vec<NodeId> = (0..6).map(|n| network.router(format!("r{n}"))).collect();
    let red = slow().queue(Queue::Red(RedConfig::new(2.0, 6.0)));
    network.link(source, routers[0], red, delay_ms(1)).unwrap();
    for n in 0..6 {
        let jittery = LinkSpec { jitter: Duration::from_micros(300), ..delay_ms(1 + n as u64 % 3) };
        let flaps = vec![(ms(40 + n as u64), n % 2 == 1), (ms(90), true)];
        network
            .link(routers[n], routers[(n + 1) % 6], jittery.schedule(flaps), delay_ms(2))
            .unwrap();
    }
    let mut scripts = vec![(source, Vec::new())];
    for n in 0..200 {
        scripts[0].1.push((us(n * 700), Do::Cast(Some(source), n as u32)));
    }
    for n in 0..30 {
        let leaf = network.host(format!("leaf{n}"));
        let loss = if n % 3 == 0 { Loss::bursts(0.2, 3.0) } else { Loss::Bernoulli(0.1) };
        let flaps = if n % 5 == 0 { vec![(ms(50), false), (ms(80), true)] } else { Vec::new() };
        let spec = delay_ms(1).loss(loss).schedule(flaps);
        network.link(routers[n % 6], leaf, spec, delay_ms(1)).unwrap();
        let n = n as u64;
        let script = vec![
            (ms(n), Do::Join(Some(source))),
            (ms(20 + n), Do::Say(source, n as u8)),
            (ms(30 + n), Do::Send(source, 999, 255)),
            (ms(60 + 2 * n), Do::Leave(Some(source))),
            (ms(100 + n), Do::Join(None)),
            (ms(140), Do::Cast(None, 500)),
        ];
        scripts.push((leaf, script));
    }
    let scripts: Vec<_> = scripts.iter().map(|(node, script)| (*node, script.as_slice())).collect();
    let mut simulation = seeded(network, &scripts, seed);
    let millisecond = Duration::from_millis(1);
    simulation.set_sessions(SessionDelay { min: millisecond, mean_extra: 5 * millisecond });
    let tracer = Hashing::default();
    simulation.set_tracer(Box::new(tracer.clone()));
    simulation.run_until(ms(10_000));
    let counters = simulation.counters();
    assert!(counters.lost > 100 && counters.queue_drops > 10 && counters.down > 10, "{counters:?}");
    let (hasher, records) = &*tracer.0.lock().unwrap();
    (hasher.finish(), *records)
}

#[test]
fn equal_seeds_give_equal_traces_on_any_number_of_threads() {
    let alone: Vec<(u64, u64)> = (0..8).map(everything).collect();
    assert!(alone[0].1 > 5_000, "{} records", alone[0].1);
    assert_eq!(everything(3), alone[3]);
    let next = Arc::new(Mutex::new(0_u64));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let next = next.clone();
            std::thread::spawn(move || {
                let mut results = Vec::new();
                loop {
                    let seed = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        *next - 1
                    };
                    if seed >= 8 {
                        return results;
                    }
                    results.push((seed, everything(seed)));
                }
            })
        })
        .collect();
    let mut together: Vec<_> =
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    together.sort_unstable();
    let together: Vec<_> = together.into_iter().map(|(_, result)| result).collect();
    assert_eq!(together, alone);
    let mut hashes: Vec<u64> = alone.iter().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 8);
}

#[test]
fn one_more_receiver_changes_nobody_elses_losses() {
    let run = |leaves: usize| {
        let mut network = Network::new();
        network.set_graft_latency(Duration::ZERO);
        let source = network.host("source");
        let hub = network.router("hub");
        network.link(source, hub, delay_ms(1), delay_ms(1)).unwrap();
        let packets = stream(source, 300);
        let join: &[_] = &[(ms(0), Do::Join(Some(source)))];
        let mut scripts = vec![(source, packets.as_slice())];
        for n in 0..leaves {
            let leaf = network.host(format!("{n}"));
            let lossy = delay_ms(1).loss(Loss::Bernoulli(0.3));
            network.link(hub, leaf, lossy, delay_ms(1)).unwrap();
            scripts.push((leaf, join));
        }
        let mut simulation = scripted(network, &scripts);
        simulation.run_until(ms(10_000));
        scripts[1..].iter().map(|(leaf, _)| got(&simulation, *leaf).to_vec()).collect::<Vec<_>>()
    };
    let (few, more) = (run(3), run(4));
    assert_eq!(few, more[..3]);
    assert!(more.iter().all(|got| (180..240).contains(&got.len())));
}

/// Fails after this number of packets.
struct Full(u32);

impl Tracer for Full {
    fn packet(&mut self, _record: &PacketRecord<'_>) {
        self.0 = self.0.saturating_sub(1);
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}

    fn failed(&self) -> bool {
        self.0 == 0
    }
}

#[test]
fn a_run_whose_trace_fails_stops_soon_and_goes_on_without_it() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    network.link(a, b, delay_ms(1), delay_ms(1)).unwrap();
    let script: Vec<_> = (0..5_000).map(|n| (ms(n), Do::Send(b, n as u32, 255))).collect();
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.set_tracer(Box::new(Full(100)));
    assert_eq!(simulation.run_until(ms(10_000)), Outcome::TraceFailed);
    assert!(simulation.now() < ms(400), "{:?}", simulation.now());
    assert_eq!(simulation.run_until(ms(10_000)), Outcome::TraceFailed);
    simulation.take_tracer();
    assert_eq!(simulation.run_until(ms(10_000)), Outcome::Idle);
    assert_eq!(got(&simulation, b).len(), 5_000);
}
