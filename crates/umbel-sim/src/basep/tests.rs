use std::time::Duration;

use super::*;
use crate::{LinkSpec, Loss, Network, Simulation, channel};

const PACKETS: u64 = 30;
const START: Instant = Instant::from_nanos(1_000_000_000);
const RECEIVERS: u32 = 12;

/// A star on whose links packets are lost in both directions.
struct World {
    simulation: Simulation,
    source: NodeId,
    receivers: Vec<NodeId>,
}

fn world(seed: u64, window: Option<u64>, loss: f64) -> World {
    let mut network = Network::new();
    let (source, middle) = (network.host("source"), network.router("middle"));
    let spec = || LinkSpec::default().delay(Duration::from_millis(50)).loss(Loss::Bernoulli(loss));
    network.link(source, middle, spec(), spec()).unwrap();
    let receivers: Vec<NodeId> = (1..=RECEIVERS)
        .map(|n| {
            let receiver = network.host(format!("h{n}"));
            network.link(middle, receiver, spec(), spec()).unwrap();
            receiver
        })
        .collect();
    let group = channel(Some(source), 1);
    let mut simulation = Simulation::new(network, seed);
    let change = |config: &mut SourceConfig| {
        (config.window, config.timeout) = (window, Duration::from_millis(400));
    };
    let host = Source::host(group, receivers.iter().copied(), change, (START, PACKETS, 1000));
    simulation.set_app(source, host, Instant::EPOCH).unwrap();
    for &receiver in &receivers {
        simulation.set_app(receiver, Receiver::host(group), Instant::EPOCH).unwrap();
    }
    World { simulation, source, receivers }
}

impl World {
    fn run(&mut self, seconds: u64) {
        self.simulation.run_until(START + Duration::from_secs(seconds));
    }

    fn source(&self) -> &SourceHost {
        self.simulation.app(self.source).unwrap()
    }

    /// Returns the number of receivers that have the whole file, as it was sent.
    fn complete(&self) -> usize {
        let is_complete = |node: &&NodeId| {
            let receiver = self.simulation.app::<ReceiverHost>(**node).unwrap().host();
            assert_eq!(receiver.wrong(), 0);
            receiver.completed().is_some() && receiver.delivered() == PACKETS
        };
        self.receivers.iter().filter(is_complete).count()
    }
}

#[test]
fn without_loss_a_burst_takes_one_round_trip_and_a_window_one_for_each_five_packets() {
    for (window, round_trips) in [(None, 1), (Some(5), 6)] {
        let mut world = world(1, window, 0.0);
        world.run(10);
        assert_eq!(world.complete(), world.receivers.len());
        let finished = world.source().host().finished().unwrap();
        let expected = Duration::from_millis(200 * round_trips);
        let took = finished.since(START);
        assert!(took >= expected && took < expected + Duration::from_millis(1), "{took:?}");
        let load = world.source().engine().stats().load;
        // One ACK from each receiver for each packet; the count for the last one includes GOT_IT.
        assert_eq!(load.acks, PACKETS * u64::from(RECEIVERS));
        assert_eq!((load.nacks, load.timers, load.retransmissions), (0, 0, 0));
    }
}

#[test]
fn everyone_gets_everything_although_data_and_acks_are_lost() {
    for seed in 0..100 {
        for window in [None, Some(5)] {
            let mut world = world(seed, window, 0.1);
            world.run(600);
            assert_eq!(world.complete(), world.receivers.len(), "seed {seed}, window {window:?}");
            let application = world.source().host();
            assert!(application.finished().is_some(), "seed {seed}, window {window:?}");
            assert_eq!(application.given_up(), 0);
            let load = world.source().engine().stats().load;
            assert!(load.retransmissions > 0);
            assert!(load.timers >= load.retransmissions, "{load:?}");
        }
    }
}

#[test]
fn one_that_is_cut_off_does_not_stop_the_others_for_ever() {
    let World { simulation, source, receivers } = world(1, Some(5), 0.0);
    let network = simulation.network().clone();
    let mut simulation = Simulation::new(network, 1);
    let group = channel(Some(source), 1);
    let change = |config: &mut SourceConfig| (config.window, config.retransmissions) = (Some(5), 3);
    let host = Source::host(group, receivers.iter().copied(), change, (START, PACKETS, 1000));
    simulation.set_app(source, host, Instant::EPOCH).unwrap();
    // The first receiver does not run.
    for &receiver in &receivers[1..] {
        simulation.set_app(receiver, Receiver::host(group), Instant::EPOCH).unwrap();
    }
    simulation.run_until(START + Duration::from_secs(100));
    let application = simulation.app::<SourceHost>(source).unwrap().host();
    assert_eq!(application.given_up(), 1);
    assert!(application.finished().is_some());
    assert_eq!(application.got_it().len(), receivers.len() - 1);
}
