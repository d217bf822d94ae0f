//! The seven sites of the paper's tests [TMTP Fig. 5a].
//!
//! The paper names them and says that the round trip to the farthest is about 1 s. The tunnels
//! between them, what each takes and what it loses are chosen here.

use std::time::Duration;

use umbel_sim::{Kind, Kinds, LinkSpec, Loss, Network, NodeId};

/// A site, and the tunnel by which it hangs on another.
struct Site {
    name: &'static str,
    /// The site at the other end and what the tunnel takes, in milliseconds.
    tunnel: Option<(usize, u64)>,
}

/// [TMTP "The Test Environment"]. Times grow with the distances; with the two local networks they
/// come to 500 ms from the sender to Mannheim. The sender is at the first site.
const SITES: [Site; 7] = [
    Site { name: "washington-u", tunnel: None },
    Site { name: "purdue", tunnel: Some((0, 30)) },
    Site { name: "icsi", tunnel: Some((0, 80)) },
    Site { name: "rutgers", tunnel: Some((0, 60)) },
    Site { name: "delaware", tunnel: Some((3, 20)) },
    Site { name: "ucl", tunnel: Some((3, 240)) },
    Site { name: "mannheim", tunnel: Some((5, 195)) },
];

/// Where the five receivers of the smallest group are: five domains, the farthest and all children of the
/// sender among them.
const FIVE: [usize; 5] = [0, 1, 2, 3, 6];

/// What a local network takes, in microseconds.
const LAN_US: u64 = 2_500;

/// A group on the MBone.
#[derive(Debug)]
pub(super) struct Mbone {
    pub(super) network: Network,
    /// In a subnet of its own.
    pub(super) sender: NodeId,
    /// Those of one site after those of another, in the order of the sites.
    pub(super) receivers: Vec<Receiver>,
}

/// A receiver and what it is known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) node: NodeId,
    /// The number of its site: its domain.
    pub(super) site: usize,
    /// What a packet takes from the sender to it, and back.
    pub(super) distance: Duration,
}

impl Mbone {
    /// So many receivers, spread evenly over five or seven sites; the tunnels lose so many
    /// hundredths of a percent of what they carry in each direction.
    ///
    /// Only what the protocols exchange during the transfer is lost: the control tree has the same
    /// shape in all runs, as in the paper's tests.
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
            // The receivers at the sender's site have a subnet of their own behind a router.
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

    /// The nodes of the receivers.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.receivers.iter().map(|receiver| receiver.node)
    }
}

/// What can be lost: data, repairs, ACKs and NACKs. What makes the control tree has other kinds.
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
