//! Topologies as networks of the simulator.

use std::collections::BTreeMap;
use umbel_engine::Instant;
use umbel_topology::{Impairment, Mistake, NodeKind, Queue, Topology, TwoStates};

use crate::link::{self, LinkSpec, Loss};
use crate::network::{LinkId, Network, NetworkError, NodeId};

/// Times when links go up (`true`) and down, by the position of the link, for both directions.
pub type Schedules = BTreeMap<usize, Vec<(Instant, bool)>>;

impl Network {
    /// Returns a topology as a network, in which node and link numbers are positions here.
    /// `schedules` are failures of links, which a topology does not have.
    ///
    /// A packet that `corrupt` damages counts as lost, as it is wherever checksums are verified.
    /// Addresses, MTU and offload have no effect in a simulation.
    ///
    /// # Errors
    /// Returns the error of [`Topology::validate`]. Also returns an error if a link reorders,
    /// duplicates or corrupts silently, which simulated links do not support.
    pub fn from_topology(topology: &Topology, schedules: &Schedules) -> Result<Network, Mistake> {
        topology.validate()?;
        let mut network = Network::new();
        for node in &topology.nodes {
            match node.kind {
                NodeKind::Host => network.host(&node.name),
                NodeKind::Router => network.router(&node.name),
                NodeKind::Switch { .. } => network.switch(&node.name),
            };
        }
        let names = topology.names();
        for (index, link) in topology.links.iter().enumerate() {
            let fail = |message| Mistake::new(format!("link {}: {message}", link.label()));
            let schedule = schedules.get(&index).map(Vec::as_slice).unwrap_or_default();
            let [a, b] = [&link.a, &link.b].map(|name| NodeId(names[name.as_str()] as u32));
            let there = spec_of(link.a_to_b, schedule).map_err(fail)?;
            let back = spec_of(link.b_to_a, schedule).map_err(fail)?;
            let added = network.link(a, b, there, back).map_err(|error| fail(error.to_string()))?;
            debug_assert_eq!(added, LinkId(index as u32));
        }
        Ok(network)
    }
}

impl NodeId {
    /// Returns the number of the node with this name in the network of a topology.
    pub fn named(topology: &Topology, name: &str) -> Option<NodeId> {
        topology.node_index(name).map(|index| NodeId(index as u32))
    }
}

impl From<NetworkError> for Mistake {
    fn from(error: NetworkError) -> Mistake {
        Mistake::new(error.to_string())
    }
}

/// Returns one direction of a simulated link.
fn spec_of(impairment: Impairment, schedule: &[(Instant, bool)]) -> Result<LinkSpec, String> {
    for (name, share) in [
        ("reorder", impairment.reorder),
        ("duplicate", impairment.duplicate),
        ("corrupt_silently", impairment.corrupt_silently),
    ] {
        if share > 0.0 {
            return Err(format!("simulated links have no `{name}`: leave it to the lab"));
        }
    }
    Ok(LinkSpec {
        rate: impairment.rate,
        delay: impairment.delay,
        jitter: impairment.jitter,
        queue: match impairment.queue {
            Queue::Packets(packets) => link::Queue::DropTailPackets(packets),
            Queue::Bytes(bytes) => link::Queue::DropTailBytes(bytes),
        },
        loss: loss_of(&impairment),
        schedule: schedule.to_vec(),
        ..LinkSpec::default()
    })
}

fn loss_of(impairment: &Impairment) -> Loss {
    let Impairment { loss, corrupt, .. } = *impairment;
    match impairment.two_states() {
        Some(TwoStates { change: [good_to_bad, bad_to_good], loss }) => {
            let [loss_good, loss_bad] = loss.map(|loss| 1.0 - (1.0 - loss) * (1.0 - corrupt));
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad }
        }
        None if loss == 0.0 && corrupt == 0.0 => Loss::None,
        None => Loss::Bernoulli(1.0 - (1.0 - loss) * (1.0 - corrupt)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;
    use umbel_engine::units::{ByteCount, Rate};

    use super::*;
    use crate::line::{Line, Refusal, Treatment};
    use crate::random::{Purpose, stream};
    use umbel_topology::link_model::{LinkDrop, LinkModel, Verdict};

    fn line(impairment: Impairment) -> Line {
        let treatment = Arc::new(Treatment::new(spec_of(impairment, &[]).unwrap()).unwrap());
        Line::new(treatment, || stream(1, Purpose::Link, 0))
    }

    #[test]
    fn nodes_and_links_keep_their_positions() {
        let topology = Topology::tree(2, 2).switch("sw").link("r1", "sw").loss(0.25);
        let schedules = Schedules::from([(1, vec![(Instant::from_nanos(5), false)])]);
        let network = Network::from_topology(&topology, &schedules).unwrap();
        assert_eq!(network.node_count(), topology.nodes.len());
        for (node, spec) in topology.nodes.iter().enumerate() {
            assert_eq!(network.name(NodeId(node as u32)), spec.name);
            assert_eq!(NodeId::named(&topology, &spec.name), Some(NodeId(node as u32)));
        }
        for (link, spec) in topology.links.iter().enumerate() {
            let (a, b) = network.ends(LinkId(link as u32));
            assert_eq!([network.name(a), network.name(b)], [&spec.a, &spec.b]);
        }
        let specs = |link: usize| network.specs(LinkId(link as u32));
        assert_eq!(specs(topology.links.len() - 1).0.loss, Loss::Bernoulli(0.25));
        assert_eq!(specs(1).0.schedule, specs(1).1.schedule);
        assert_eq!(specs(1).0.schedule.len(), 1);
        assert!(specs(0).0.schedule.is_empty());
    }

    #[test]
    fn what_no_simulated_link_does_is_refused() {
        let reordering = Topology::star(1).impair(|i| i.reorder = 0.1);
        let mistake = Network::from_topology(&reordering, &Schedules::new()).unwrap_err();
        let expected = "link h1–sw: simulated links have no `reorder`: leave it to the lab";
        assert_eq!(mistake.to_string(), expected);
        let damaged = Topology::star(1).impair(|i| i.corrupt = 0.1).loss(0.5);
        let network = Network::from_topology(&damaged, &Schedules::new()).unwrap();
        let Loss::Bernoulli(loss) = network.specs(LinkId(0)).0.loss else { panic!() };
        assert!((loss - 0.55).abs() < 1e-12);
    }

    prop_compose! {
        fn impairments()(
            rate in proptest::option::of(100_000_u64..1_000_000_000),
            delay in 0_u64..100_000, bytes: bool, limit in 1_u32..50,
        ) -> Impairment {
            Impairment {
                rate: rate.and_then(Rate::from_bits_per_s),
                delay: Duration::from_micros(delay),
                queue: if bytes {
                    Queue::Bytes(ByteCount(u64::from(limit) * 500))
                } else {
                    Queue::Packets(limit)
                },
                ..Impairment::none()
            }
        }
    }

    proptest! {
        #[test]
        fn the_labs_links_and_the_simulators_agree_on_rate_delay_and_queue(
            impairment in impairments(), loss in 0.0..0.9_f64,
            steps in proptest::collection::vec((0_u64..5_000, 14_u32..9_000), 1..300),
        ) {
            // A lost packet has been queued and sent before. So loss, which the two models draw
            // from their own streams, changes nothing else.
            let (mut lab, mut simulator) = (LinkModel::new(impairment.loss(loss), 1), line(impairment));
            let mut now = Instant::EPOCH;
            for (step, length) in steps {
                now += Duration::from_micros(step);
                let arrival = simulator.offer(now, length);
                match lab.offer(now, length as usize) {
                    Verdict::Deliver(delivered) => prop_assert_eq!(arrival, Ok(delivered.at)),
                    Verdict::Drop(LinkDrop::QueueFull) => {
                        prop_assert_eq!(arrival, Err(Refusal::Queue));
                    }
                    Verdict::Drop(LinkDrop::Loss) => prop_assert!(arrival.is_ok()),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn the_labs_links_and_the_simulators_lose_alike() {
        const FRAMES: u64 = 200_000;
        for (loss, burst) in [(0.05, None), (0.1, Some(5.0)), (0.4, Some(2.0))] {
            let impairment = Impairment { loss_burst: burst, ..Impairment::none().loss(loss) };
            let (mut lab, mut simulator) = (LinkModel::new(impairment, 1), line(impairment));
            let (mut lost, mut runs) = ([0_u64; 2], [0_u64; 2]);
            let mut before = [false; 2];
            for n in 0..FRAMES {
                let at = Instant::from_nanos(n * 1_000);
                let now_lost = [
                    matches!(lab.offer(at, 1_000), Verdict::Drop(_)),
                    !simulator.passes(crate::Kind::Data, crate::FlowId(0)),
                ];
                for world in 0..2 {
                    lost[world] += u64::from(now_lost[world]);
                    runs[world] += u64::from(now_lost[world] && !before[world]);
                }
                before = now_lost;
            }
            for world in 0..2 {
                let share = lost[world] as f64 / FRAMES as f64;
                assert!((share - loss).abs() < 0.01, "{share} instead of {loss}");
                let run = lost[world] as f64 / runs[world] as f64;
                let expected = burst.unwrap_or(1.0 / (1.0 - loss));
                assert!((run / expected - 1.0).abs() < 0.05, "runs of {run}, not {expected}");
            }
        }
    }

    #[test]
    fn two_states_lose_their_shares_and_stay_as_long_as_they_should() {
        const FRAMES: usize = 400_000;
        let impairment = Impairment {
            loss_burst: Some(8.0),
            loss_good: Some(0.02),
            loss_bad: Some(0.52),
            ..Impairment::none().loss(0.12)
        };
        let (mut lab, mut simulator) = (LinkModel::new(impairment, 1), line(impairment));
        let at = |n: usize| Instant::from_nanos(n as u64 * 1_000);
        let in_lab = (0..FRAMES).map(|n| matches!(lab.offer(at(n), 1_000), Verdict::Drop(_)));
        let simulated = (0..FRAMES).map(|_| !simulator.passes(crate::Kind::Data, crate::FlowId(0)));
        let worlds: [Vec<bool>; 2] = [in_lab.collect(), simulated.collect()];
        for losses in worlds {
            let lost = |n: usize| f64::from(u8::from(losses[n]));
            let mean = (0..FRAMES).map(lost).sum::<f64>() / FRAMES as f64;
            assert!((mean - 0.12).abs() < 0.006, "{mean}");
            // A fifth is lost in the bad state: the covariance of losses `lag` apart is that of the
            // states, 0.2 · 0.8 · (1 - 1/8 - 1/32)^lag, times the square of 0.52 - 0.02.
            for lag in [1_usize, 5] {
                let products = (lag..FRAMES).map(|n| (lost(n) - mean) * (lost(n - lag) - mean));
                let found = products.sum::<f64>() / (FRAMES - lag) as f64;
                let expected = 0.04 * (1.0 - 1.0 / 8.0 - 1.0 / 32.0_f64).powi(lag as i32);
                assert!((found / expected - 1.0).abs() < 0.1, "lag {lag}: {found}, not {expected}");
            }
        }
    }
}
