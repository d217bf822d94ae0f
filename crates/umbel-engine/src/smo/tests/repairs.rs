//! Retransmissions where round trips are long: about as many as losses, and found without
//! time-outs.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::*;

const LEN: usize = 500_000;

/// Sends 50 segments a second to ten receivers at 100 ms, each of which loses 2 %. Returns the
/// network after all have them.
#[track_caller]
fn repaired(seed: u64, fairness: Fairness) -> Network {
    let mut network = Network::new(seed, |config| {
        config.fairness = fairness;
        // Each loss has retransmissions of its own.
        config.threshold = 1.0;
    });
    network.expect_faults();
    for _ in 0..10 {
        network.add(Way { loss: (0.02, 0.0), ..Way::clean(50) }, |_| {});
    }
    network.connect_all();
    network.run_for(Duration::from_secs(2));
    let to = Stream::Master(MasterId::FIRST);
    for _ in 0..LEN / 1000 {
        network.command(SourceCommand::Write { to, bytes: content(1000) });
        network.run_for(Duration::from_millis(20));
    }
    network.command(SourceCommand::Finish { to });
    network.run_until(Duration::from_mins(2), |network| {
        network.receivers.iter().all(|node| node.got.len() == LEN)
    });
    network
}

#[test]
fn what_is_under_way_is_not_sent_again() {
    for fairness in [Fairness::Strict, Fairness::Essential { a: 1000.0, b: 1000.0 }] {
        for seed in 0..3 {
            let network = repaired(seed, fairness);
            let stats = network.source.stats();
            let again = stats.unicast_again.segments;
            println!("{fairness:?}, seed {seed}: {} of {again} were known", network.needless);
            // A third, where the time-out did not wait for the answer to a retransmission.
            assert!(again > 50 && network.needless * 20 <= again, "{stats:?}");
        }
    }
}

#[test]
fn a_loss_in_a_stream_is_found_without_a_timeout() {
    for seed in 0..3 {
        let network = repaired(seed, Fairness::Essential { a: 1000.0, b: 1000.0 });
        let stats = network.source.stats();
        println!("seed {seed}: {} time-outs, {} losses", stats.timeouts, stats.loss_events);
        assert!(stats.loss_events > 50 && stats.timeouts <= 2, "{stats:?}");
    }
}
