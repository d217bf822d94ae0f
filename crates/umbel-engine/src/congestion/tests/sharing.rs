//! Beside TCP connections that use the same queue.

use std::time::Duration;

use super::link::LinkSpec;
use super::tcp::Kind;
use super::world::*;
use crate::congestion::Share;

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// A link that a channel shares with connections of one kind.
fn beside(share: Share, kind: Kind, flows: usize, rate: f64, rtt: f64, bdp: f64) -> Spec {
    let queue = (rate / 8.0 * rtt * bdp).max(20.0 * f64::from(PACKET));
    let mut spec = Spec::one(LinkSpec::new(rate, queue), ReceiverSpec::new(0, secs(rtt)));
    spec.config.share = share;
    spec.flows = vec![(kind, secs(rtt)); flows];
    spec
}

/// Returns the part of the link that the channel gets, and a connection on average.
fn shares(spec: Spec, time: f64) -> (f64, f64) {
    let rate = spec.links[0].rates[0].1;
    let flows = spec.flows.len() as f64;
    let mut world = World::new(spec);
    world.trace = std::env::var("TRACE").is_ok();
    world.run(secs(time / 4.0));
    let count = |world: &World| -> (u64, u64) {
        (world.receivers[0].received, world.flows.iter().map(|flow| flow.delivered).sum())
    };
    let before = count(&world);
    world.run(secs(time));
    let after = count(&world);
    let bits = rate * time * 0.75;
    let ours = (after.0 - before.0) as f64 * f64::from(PACKET) * 8.0 / bits;
    let theirs = (after.1 - before.1) as f64 * 1500.0 * 8.0 / bits / flows;
    (ours, theirs)
}

#[test]
fn a_tcp_connection_gets_its_part() {
    for kind in [Kind::Reno, Kind::Cubic] {
        let (ours, theirs) = shares(beside(Share::Fair, kind, 1, 1e7, 0.01, 4.0), 40.0);
        assert!((0.4..2.5).contains(&(ours / theirs)), "{kind:?}: {ours} {theirs}");
        let spec = beside(Share::Background, kind, 1, 1e7, 0.01, 4.0);
        let (ours, theirs) = shares(spec, 40.0);
        assert!(ours < theirs / 4.0, "{kind:?}: {ours} {theirs} in the background");
    }
}

#[test]
#[ignore = "takes a minute"]
fn table() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let (mut all, mut good) = (0, 0);
    for share in [Share::Fair, Share::Background] {
        for kind in [Kind::Reno, Kind::Cubic] {
            for rate in [1e7, 1e8, 1e9] {
                for rtt in [0.001, 0.01, 0.1] {
                    for bdp in [1.0, 4.0] {
                        for flows in [1, 2, 4] {
                            let name = format!(
                                "{share:?} {flows} {kind:?} {} Mbit/s {} ms {bdp} BDP",
                                rate / 1e6,
                                rtt * 1e3
                            );
                            if !only.split(';').all(|part| name.contains(part)) {
                                continue;
                            }
                            let time: f64 = if rate > 5e8 { 20.0 } else { 40.0 };
                            let spec = beside(share, kind, flows, rate, rtt, bdp);
                            let (ours, theirs) = shares(spec, time);
                            let ratio = ours / theirs;
                            let fine = match share {
                                Share::Background => {
                                    ours < 0.05 + (1.0 - ours - theirs * flows as f64)
                                }
                                _ => (0.5..=2.0).contains(&ratio),
                            };
                            all += 1;
                            good += u32::from(fine);
                            println!(
                                "{name:<46} {ours:.3} {theirs:.3} {ratio:6.2}{}",
                                if fine { "" } else { " !" }
                            );
                        }
                    }
                }
            }
        }
    }
    println!("{good} of {all}");
}
