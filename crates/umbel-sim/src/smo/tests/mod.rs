//! Sessions with loss, reordering, duplication, and receivers that misbehave.

mod delivery;
mod relays;
mod troubles;

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::smo::{SourceConfig, SourceStats};
use umbel_engine::units::Rate;

use super::*;
use crate::random::{below, uniform};
use crate::{LinkSpec, Loss, Network, Outcome, Queue, Simulation};

/// Returns the time this number of milliseconds after the beginning.
fn at(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

/// A source, a switch, and hosts of receivers around it.
struct World {
    simulation: Simulation,
    session: Session,
    hosts: Vec<NodeId>,
}

impl World {
    /// Creates the network. Each host has its own link.
    fn new(seed: u64, links: &[LinkSpec]) -> World {
        let mut network = Network::new();
        let (source, switch) = (network.host("source"), network.switch("switch"));
        let fast = LinkSpec::default().rate(rate(100)).delay(Duration::from_millis(1));
        network.link(source, switch, fast.clone(), fast.clone()).unwrap();
        let mut hosts = Vec::new();
        for (n, link) in links.iter().enumerate() {
            let host = network.host(format!("host {n}"));
            network
                .link(switch, host, link.clone(), LinkSpec { loss: Loss::None, ..link.clone() })
                .unwrap();
            hosts.push(host);
        }
        let simulation = Simulation::new(network, seed);
        World { simulation, session: Session::new(source), hosts }
    }

    fn begin(&mut self, seed: u64, feed: Feed, change: impl FnOnce(&mut SourceConfig)) {
        let mut config = self.session.source_config();
        change(&mut config);
        let host = self.session.source_host(config, feed, seed);
        self.simulation.set_app(self.session.source, host, Instant::EPOCH).unwrap();
    }

    fn crowd(&mut self, host: usize, crowd: Crowd) {
        self.simulation.set_app(self.hosts[host], crowd, Instant::EPOCH).unwrap();
    }

    fn source(&self) -> &SourceHost {
        self.simulation.app(self.session.source).unwrap()
    }

    fn stats(&self) -> SourceStats {
        self.source().engine().stats()
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.hosts.iter().flat_map(|host| self.simulation.app::<Crowd>(*host).unwrap().members())
    }

    /// Runs until all streams have ended.
    fn run(&mut self, limit_s: u64) {
        for second in 1..=limit_s {
            let outcome = self.simulation.run_until(at(1000 * second));
            assert!(!matches!(outcome, Outcome::Stuck(_)), "{outcome:?}");
            let crowds = || self.hosts.iter().map(|h| self.simulation.app::<Crowd>(*h).unwrap());
            if crowds().all(Crowd::is_done) {
                break;
            }
        }
    }

    /// Asserts that everybody has everything.
    #[track_caller]
    fn assert_whole(&self, len: u64, what: &str) {
        for (n, member) in self.members().enumerate() {
            assert!(
                member.is_whole(len),
                "{what}: receiver {n} from {} has {} of {len}, {} wrong, ended {:?}, broken {:?}, \
                 {}; source {:?}",
                member.first,
                member.received,
                member.wrong,
                member.ended,
                member.broken,
                member.receiver().drops(),
                self.stats(),
            );
        }
        assert_eq!(self.source().host().record().wrong, 0, "{what}");
    }
}

fn rate(mbit: u64) -> Rate {
    Rate::from_bits_per_s(mbit * 1_000_000).unwrap()
}

fn link(mbit: u64, delay_ms: u64, queue: u32) -> LinkSpec {
    LinkSpec::default()
        .rate(rate(mbit))
        .delay(Duration::from_millis(delay_ms))
        .queue(Queue::DropTailPackets(queue))
}
