//! The seven sites of the paper's tests [TMTP Fig. 5a].
//!
//! The paper names them and reports a round trip of about 1 s to the farthest. The tunnels between
//! them, their delays and their losses are chosen here.

use std::time::Duration;

use umbel_sim::{Kind, Kinds, LinkSpec, Loss, Network, NodeId};

/// A site, and the tunnel that connects it to another.
struct Site {
    name: &'static str,
    /// Index of the site at the other end, and delay of the tunnel in milliseconds.
    tunnel: Option<(usize, u64)>,
}

/// The sites [TMTP "The Test Environment"]. Delays grow with the distances; with the two local
/// networks they add up to 500 ms from the sender to Mannheim. The sender is at the first site.
const SITES: [Site; 7] = [
    Site { name: "washington-u", tunnel: None },
    Site { name: "purdue", tunnel: Some((0, 30)) },
    Site { name: "icsi", tunnel: Some((0, 80)) },
    Site { name: "rutgers", tunnel: Some((0, 60)) },
    Site { name: "delaware", tunnel: Some((3, 20)) },
    Site { name: "ucl", tunnel: Some((3, 240)) },
    Site { name: "mannheim", tunnel: Some((5, 195)) },
];

/// Sites of the five receivers of the smallest group: five domains, including the farthest one and
/// those of all the sender's children.
const FIVE: [usize; 5] = [0, 1, 2, 3, 6];

/// Delay of a local network in microseconds.
const LAN_US: u64 = 2_500;

/// A group on the MBone.
#[derive(Debug)]
pub(super) struct Mbone {
    pub(super) network: Network,
    /// The sender, in its own subnet.
    pub(super) sender: NodeId,
    /// The receivers, by site.
    pub(super) receivers: Vec<Receiver>,
}

/// A receiver with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) node: NodeId,
    /// Index of its site, which is its domain.
    pub(super) site: usize,
    /// One-way delay between the sender and it; the same in both directions.
    pub(super) distance: Duration,
}

impl Mbone {
    /// Creates a network with `receivers` receivers, spread evenly over five or seven sites. The
    /// tunnels lose `loss` hundredths of a percent in each direction.
    ///
    /// Only packets that the protocols exchange during the transfer are lost. The control tree has
    /// the same shape in all runs, as in the paper's tests.
    pub(super) fn new(receivers: u32, loss: u32) -> Mbone {
        let sites = if receivers <= 5 { &FIVE[..] } else { &[0, 1, 2, 3, 4, 5, 6] };
        let mut network = Network::new();
        let sender = network.host("sender");
        let routers = SITES.each_ref().map(|site| network.router(site.name));
        let lan = || LinkSpec::default().delay(Duration::from_micros(LAN_US));
        let join = |network: &mut Network, a, b, spec: LinkSpec| {
            network.link(a, b, spec.clone(), spec).expect("both ends are there");
        };
        join(&mut network, sender, routers[0], lan());
        let mut distances = [Duration::from_micros(2 * LAN_US); SITES.len()];
        for (number, site) in SITES.iter().enumerate() {
            let Some((nearer, ms)) = site.tunnel else { continue };
            let delay = Duration::from_millis(ms);
            distances[number] = distances[nearer] + delay;
            let loss = Loss::Bernoulli(f64::from(loss) / 10_000.0);
            let spec = LinkSpec::default().delay(delay).loss(loss).loss_of(LOST);
            join(&mut network, routers[nearer], routers[number], spec);
        }
        let mut all = Vec::new();
        for (place, &site) in sites.iter().enumerate() {
            let hosts = (receivers as usize).saturating_sub(place).div_ceil(sites.len());
            // The receivers at the sender's site have their own subnet behind a router.
            let router = if site == 0 {
                let inner = network.router("washington-u-2");
                join(&mut network, routers[0], inner, LinkSpec::default());
                inner
            } else {
                routers[site]
            };
            let subnet = network.switch(format!("{}-lan", SITES[site].name));
            join(&mut network, router, subnet, lan());
            for n in 1..=hosts {
                let node = network.host(format!("{}-{n}", SITES[site].name));
                join(&mut network, subnet, node, LinkSpec::default());
                all.push(Receiver { node, site, distance: distances[site] });
            }
        }
        Mbone { network, sender, receivers: all }
    }

    /// Returns the nodes of the receivers.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.receivers.iter().map(|receiver| receiver.node)
    }
}

/// The kinds that can be lost: data, repairs, ACKs and NACKs. The control tree's packets are of
/// other kinds.
const LOST: Kinds =
    Kinds::NONE.with(Kind::Data).with(Kind::Repair).with(Kind::Control).with(Kind::Nak);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_spread_evenly_and_the_farthest_is_a_second_away() {
        for (receivers, domains) in [(5, 5), (10, 7), (15, 7), (30, 7)] {
            let mbone = Mbone::new(receivers, 100);
            assert_eq!(mbone.receivers.len(), receivers as usize);
            let at = |site| mbone.receivers.iter().filter(|r| r.site == site).count();
            let counts: Vec<usize> = (0..SITES.len()).map(at).filter(|&count| count > 0).collect();
            assert_eq!(counts.len(), domains);
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            let farthest = mbone.receivers.iter().map(|r| r.distance).max().unwrap();
            assert_eq!(farthest * 2, Duration::from_secs(1));
        }
    }
}
