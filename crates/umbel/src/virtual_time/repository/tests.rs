//! Clients get every byte, whatever happens around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::repository::SealConfig;
use umbel_engine::repository::drops::DropReason;
use umbel_sim::random::{below, uniform};
use umbel_sim::{LinkSpec, Loss, Network, NodeId, Outcome, SessionDelay, Simulation};

use umbel_wire::repository::GroupSecret;

use super::super::store::{Disk, Faults};
use super::super::{draws, for_seeds};
use super::client::{Client, Fate, client};
use super::content::Catalog;
use super::leaver::Leaver;
use super::server::{Server, server};

/// Parameters of a scenario.
#[derive(Clone, Copy, Debug, Default)]
struct Scenario {
    clients: u32,
    /// Greatest loss of a client's link.
    loss: f64,
    /// Whether announcements go to a control group.
    control: bool,
    /// Whether one client hears no multicast at all.
    deaf: bool,
    /// Most times that a session is cut.
    cuts: u64,
    /// Whether the server crashes, and another takes its place.
    restarts: bool,
    /// Whether disks are full for a while.
    full: bool,
    /// Faults of the disks.
    faults: Faults,
    /// Whether the server seals, and how long a key is used.
    sealed: Option<Duration>,
    /// One in this number of symbols is not ready at once.
    slow_symbols: u64,
}

struct World {
    simulation: Simulation,
    servers: Vec<NodeId>,
    /// A host with a link without loss, on which nothing runs.
    spare: NodeId,
    clients: Vec<(NodeId, Vec<String>, Disk)>,
    catalog: Arc<Catalog>,
}

/// Lifetime of keys that change all the time.
const OFTEN: Duration = Duration::from_millis(300);

fn ms(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

impl World {
    fn new(scenario: &Scenario, seed: u64) -> World {
        let mut random = draws(seed, 0);
        let mut network = Network::new();
        let servers: Vec<NodeId> =
            ["first", "second"].into_iter().map(|name| network.host(name)).collect();
        let hub = network.router("hub");
        let spec = || LinkSpec::default().delay(Duration::from_millis(1));
        for &node in &servers {
            network.link(node, hub, spec(), spec()).unwrap();
        }
        let nodes: Vec<NodeId> = (0..scenario.clients)
            .map(|number| {
                let node = network.host(format!("client{number}"));
                let deaf = scenario.deaf && number == 0;
                let loss = if deaf { 1.0 } else { uniform(&mut random) * scenario.loss };
                let down = spec().loss(Loss::Bernoulli(loss));
                network.link(hub, node, down, spec()).unwrap();
                node
            })
            .collect();
        let spare = network.host("spare");
        network.link(hub, spare, spec(), spec()).unwrap();
        let mut simulation = Simulation::new(network, seed);
        let delay =
            SessionDelay { min: Duration::from_millis(5), mean_extra: Duration::from_millis(3) };
        simulation.set_sessions(delay);
        // Another server has other numbers for the same items.
        let catalogs = [1, 101].map(|first| Arc::new(Catalog::new(12, first, &mut draws(seed, 1))));
        let crash = scenario.restarts.then(|| ms(500 + below(&mut random, 4_000)));
        for (&node, catalog) in servers.iter().zip(&catalogs) {
            let how = (scenario.control, scenario.slow_symbols);
            let seal = scenario.sealed.map(|change_every| SealConfig {
                change_every,
                change_gap: (change_every / 2).min(Duration::from_secs(1)),
                ..SealConfig::new(GroupSecret([node.0 as u8; 32]))
            });
            let mut host = server(node, catalog, seed, how, seal);
            if let Some(at) = crash.filter(|_| node == servers[0]) {
                host.crash_at(at);
            }
            simulation.set_app(node, host, Instant::EPOCH).unwrap();
        }
        let mut world =
            World { simulation, servers, spare, clients: Vec::new(), catalog: catalogs[0].clone() };
        for node in nodes {
            world.add_client(scenario, seed, node, crash);
        }
        world
    }

    fn add_client(&mut self, scenario: &Scenario, seed: u64, node: NodeId, crash: Option<Instant>) {
        let number = u64::from(node.0);
        let mut random = draws(seed, 100 + number);
        let mut fate = Fate::default();
        fate.servers.insert(Instant::EPOCH, self.servers[0]);
        let cuts = below(&mut random, scenario.cuts + 1);
        fate.cuts = (0..cuts).map(|_| ms(below(&mut random, 10_000))).collect();
        if let Some(at) = crash {
            // The address leads to the new server before the loss of the old one is noticed.
            fate.servers.insert(at, self.servers[1]);
            fate.cuts.push_back(at + Duration::from_millis(below(&mut random, 15_000)));
        }
        fate.cuts.make_contiguous().sort_unstable();
        if scenario.full {
            let from = below(&mut random, 2_000);
            let until = from + 1 + below(&mut random, 8_000);
            fate.full = [(ms(from), true), (ms(until), false)].into();
        }
        fate.heals = (scenario.faults.altered > 0.0).then(|| ms(20_000));
        let disk = Disk::new(scenario.faults, draws(seed, 200 + number));
        let all: Vec<String> = self.catalog.items().map(|(info, _)| info.name.clone()).collect();
        let wanted: Vec<String> =
            all.iter().filter(|_| below(&mut random, 2) == 0).cloned().collect();
        let (patterns, wanted) =
            if wanted.is_empty() { (Vec::new(), all) } else { (wanted.clone(), wanted) };
        let start = ms(below(&mut random, 3_000));
        let host = client(patterns, &disk, fate, draws(seed, 300 + number), seed ^ number);
        self.simulation.set_app(node, host, start).unwrap();
        self.clients.push((node, wanted, disk));
    }

    fn client(&self, node: NodeId) -> &Client {
        self.simulation.app(node).unwrap()
    }

    /// Runs until every client has ended. Asserts that each has every byte.
    fn run(&mut self, scenario: &Scenario) {
        let limit = ms(1_200_000);
        while !self.clients.iter().all(|(node, ..)| self.client(*node).host().has_ended()) {
            let now = self.simulation.now();
            let outcome = self.simulation.run_until(now + Duration::from_secs(1));
            let goes_on = outcome == Outcome::Reached && now < limit;
            let unfinished = self.unfinished();
            assert!(goes_on || unfinished.is_empty(), "{scenario:?}, {outcome:?}: {unfinished:?}");
        }
        let contents: BTreeMap<&str, &[u8]> = self
            .catalog
            .items()
            .map(|(info, content)| (info.name.as_str(), content.as_ref()))
            .collect();
        for (node, wanted, disk) in &self.clients {
            let outcome = self.client(*node).host().outcome();
            assert!(outcome.is_ok(), "{scenario:?}: {node:?}: {outcome:?}");
            for name in wanted {
                let got = disk.verified(name);
                let expected = contents.get(name.as_str()).copied();
                assert_eq!(got.as_deref(), expected, "{scenario:?}: {node:?} lacks {name}");
            }
        }
    }

    fn unfinished(&self) -> Vec<String> {
        let clients =
            self.clients.iter().filter(|(node, ..)| !self.client(*node).host().has_ended());
        clients
            .map(|(node, wanted, _)| {
                let client = self.client(*node);
                let (engine, host) = (client.engine(), client.host());
                format!(
                    "{node:?} wants {wanted:?}: {} outstanding, {:?}, {:?}, dropped: {}",
                    engine.outstanding(),
                    engine.stats(),
                    host.outcome(),
                    engine.drops()
                )
            })
            .collect()
    }
}

fn check(seeds: u64, scenario: Scenario) {
    for_seeds(seeds, |seed| World::new(&scenario, seed).run(&scenario));
}

#[test]
fn everything_arrives_over_lossy_links() {
    check(20, Scenario { clients: 4, loss: 0.3, slow_symbols: 20, ..Scenario::default() });
}

#[test]
fn nobody_is_left_behind_at_the_server() {
    for_seeds(20, |seed| {
        let scenario = Scenario { clients: 3, loss: 0.2, ..Scenario::default() };
        let mut world = World::new(&scenario, seed);
        world.run(&scenario);
        let now = world.simulation.now();
        world.simulation.run_until(now + Duration::from_secs(5));
        let server = world.simulation.app::<Server>(world.servers[0]).unwrap();
        assert_eq!((server.outside().sessions(), server.engine().pending_items()), (0, 0));
    });
}

#[test]
fn announcements_in_a_group_serve_as_well() {
    let scenario = Scenario { clients: 4, loss: 0.2, control: true, ..Scenario::default() };
    check(20, scenario);
}

#[test]
fn a_session_that_is_cut_is_opened_again_and_nothing_is_lost() {
    check(20, Scenario { clients: 3, loss: 0.2, cuts: 4, ..Scenario::default() });
}

#[test]
fn a_client_that_hears_no_multicast_gets_everything_on_its_session() {
    let scenario = Scenario { clients: 2, loss: 0.1, deaf: true, cuts: 2, ..Scenario::default() };
    check(20, scenario);
}

#[test]
fn a_server_that_takes_the_place_of_one_that_crashed_ends_what_that_began() {
    check(20, Scenario { clients: 3, loss: 0.2, restarts: true, ..Scenario::default() });
}

#[test]
fn disks_may_be_full_and_slow_for_a_while() {
    let faults = Faults { slow: Duration::from_secs(2), ..Faults::default() };
    check(20, Scenario { clients: 3, loss: 0.2, full: true, faults, ..Scenario::default() });
}

#[test]
fn symbols_that_are_altered_cost_time_and_no_byte() {
    let faults = Faults { altered: 0.02, slow: Duration::from_millis(50) };
    check(20, Scenario { clients: 2, loss: 0.1, faults, ..Scenario::default() });
}

#[test]
fn everything_at_once() {
    let faults = Faults { altered: 0.01, slow: Duration::from_millis(500) };
    let scenario = Scenario {
        clients: 4,
        loss: 0.3,
        control: true,
        deaf: true,
        cuts: 3,
        restarts: true,
        full: true,
        faults,
        sealed: Some(OFTEN),
        slow_symbols: 20,
    };
    check(20, scenario);
}

#[test]
fn no_packet_is_lost_when_the_key_changes_whoever_comes_and_goes() {
    let changes = AtomicU64::new(0);
    for_seeds(20, |seed| {
        let (control, cuts) = (seed % 2 == 0, if seed % 3 == 0 { 3 } else { 0 });
        let scenario = Scenario {
            clients: 4,
            loss: 0.2,
            control,
            cuts,
            sealed: Some(OFTEN),
            slow_symbols: 20,
            ..Scenario::default()
        };
        let mut world = World::new(&scenario, seed);
        world.run(&scenario);
        for &(node, ..) in &world.clients {
            let drops = world.client(node).engine().drops();
            for reason in [DropReason::UnknownKey, DropReason::Forged, DropReason::Replayed] {
                assert_eq!(drops.of(reason), 0, "{node:?}: {drops}");
            }
        }
        let server = world.simulation.app::<Server>(world.servers[0]).unwrap();
        changes.fetch_add(server.engine().key_changes().unwrap(), Ordering::Relaxed);
    });
    assert!(changes.into_inner() > 40, "keys change while items are sent");
}

#[test]
fn who_has_left_reads_nothing_of_what_comes_after_the_next_change() {
    let heard = AtomicU64::new(0);
    for_seeds(20, |seed| {
        let scenario = Scenario {
            clients: 3,
            loss: 0.2,
            control: true,
            sealed: Some(Duration::from_hours(1)),
            ..Scenario::default()
        };
        // The key changes because somebody leaves.
        let mut world = World::new(&scenario, seed);
        let leaves = ms(200 + below(&mut draws(seed, 9), 3_000));
        let leaver = Leaver::new(world.servers[0], leaves);
        let node = world.spare;
        world.simulation.set_app(node, leaver, Instant::EPOCH).unwrap();
        world.run(&scenario);
        let now = world.simulation.now();
        world.simulation.run_until(now.max(leaves) + Duration::from_secs(20));
        let leaver = world.simulation.app::<Leaver>(node).unwrap();
        assert!(leaver.read_before > 0, "it was admitted");
        // A second between changes, and the delays of sessions and of randomness.
        let last = leaver.last_read.unwrap();
        assert!(last < leaves + Duration::from_secs(3), "{last:?}, left at {leaves:?}");
        heard.fetch_add(leaver.unreadable, Ordering::Relaxed);
    });
    assert!(heard.into_inner() > 400, "it heard enough that it could not read");
}
