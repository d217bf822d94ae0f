//! Groups of any size on one large network.

use std::time::Duration;

use umbel_sim::generate::{Generator, Shape, TransitStub};
use umbel_sim::random::{Purpose, below, stream};
use umbel_sim::{Kind, Kinds, LinkSpec, Loss, Network, NodeId, NodeKind, Schedules};
use umbel_topology::Impairment;

/// 4 × 8 transit routers with 4 stub domains of 8 routers each: 1,056 routers, 1,024 of them in
/// stub domains.
const SHAPE: (usize, usize, usize, usize) = (4, 8, 4, 8);
/// Delay of a link across the plane.
const ACROSS: Duration = Duration::from_millis(20);
/// Delay of a link in a subnet.
const LAN: Duration = Duration::from_micros(200);

/// A group in subnets at random stub routers.
#[derive(Debug)]
pub(super) struct Internet {
    pub(super) network: Network,
    /// The source, in its own subnet.
    pub(super) source: NodeId,
    /// The receivers, by subnet.
    pub(super) receivers: Vec<NodeId>,
    /// The first receiver of each subnet.
    pub(super) firsts: Vec<NodeId>,
}

impl Internet {
    /// Creates a network with `receivers` receivers, spread evenly over `subnets` subnets. Links
    /// between routers lose `loss` hundredths of a percent of data, repairs and requests; ACKs are
    /// not lost. The graph is always the same; the seed chooses the routers.
    pub(super) fn new(receivers: u32, subnets: u32, loss: u32, seed: u64) -> Internet {
        let (domains, transit, stubs, nodes) = SHAPE;
        let shape = Shape::TransitStub(TransitStub::new(domains, transit, stubs, nodes));
        let generator = Generator {
            link: Impairment::none(),
            delay_across: ACROSS,
            sources: 0,
            receivers: Vec::new(),
            ..Generator::new(shape)
        };
        let topology =
            generator.generate(1).expect("the shape is possible and comes out connected");
        let bare = Network::from_topology(&topology, &Schedules::new()).expect("links only delay");
        let mut network = Network::new();
        for (node, _) in bare.nodes() {
            network.router(bare.name(node));
        }
        let lost = Kinds::NONE.with(Kind::Data).with(Kind::Repair).with(Kind::Nak);
        let loss = Loss::Bernoulli(f64::from(loss) / 10_000.0);
        for (link, a, b) in bare.links() {
            let (forth, back) = bare.specs(link);
            let [forth, back] = [forth, back].map(|spec| LinkSpec {
                loss: loss.clone(),
                loss_of: lost,
                ..spec.clone()
            });
            network.link(a, b, forth, back).expect("both ends are there");
        }
        let mut places: Vec<NodeId> = network
            .nodes()
            .filter(|(node, kind)| {
                *kind == NodeKind::Router && network.name(*node).starts_with('s')
            })
            .map(|(node, _)| node)
            .collect();
        let mut random = stream(seed, Purpose::Workload, 0);
        let mut place = || places.swap_remove(below(&mut random, places.len() as u64) as usize);
        let source = network.host("source");
        join(&mut network, place(), source);
        let (mut all, mut firsts) = (Vec::new(), Vec::new());
        for subnet in 0..subnets {
            let switch = network.switch(format!("n{}", subnet + 1));
            join(&mut network, place(), switch);
            let hosts = receivers.saturating_sub(subnet).div_ceil(subnets);
            for host in 0..hosts {
                let node = network.host(format!("h{}", all.len() + 1));
                join(&mut network, switch, node);
                all.push(node);
                if host == 0 {
                    firsts.push(node);
                }
            }
        }
        Internet { network, source, receivers: all, firsts }
    }
}

fn join(network: &mut Network, a: NodeId, b: NodeId) {
    let lan = || LinkSpec::default().delay(LAN);
    network.link(a, b, lan(), lan()).expect("both ends are there");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_any_size_are_spread_evenly_over_the_same_graph() {
        for (receivers, subnets) in [(10, 7), (100, 40), (10_000, 1_000)] {
            let internet = Internet::new(receivers, subnets, 20, 1);
            assert_eq!(internet.receivers.len(), receivers as usize);
            assert_eq!(internet.firsts.len(), subnets as usize);
            let routers = internet.network.nodes().filter(|(_, kind)| *kind == NodeKind::Router);
            assert_eq!(routers.count(), 4 * 8 * (1 + 4 * 8));
        }
    }
}
