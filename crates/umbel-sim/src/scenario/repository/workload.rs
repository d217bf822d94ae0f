//! Arrivals of clients and the items that they want, as a function of the scenario and the seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::Instant;

use super::{Arrivals, ClientGroup, Repository};
use crate::network::NodeId;
use crate::random::{Purpose, below, exponential, stream};

/// Arrival of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Position of the client's group.
    pub group: usize,
    /// Host of the client.
    pub node: NodeId,
    /// Time of arrival.
    pub at: Instant,
    /// Positions of the items that the client wants, in increasing order.
    pub items: Arc<[u32]>,
}

/// Base of the streams that belong to no client. Clients' streams have the numbers of their nodes.
const ORDER: u64 = 1 << 40;
const TIMES: u64 = 2 << 40;

impl Repository {
    /// Returns all clients, group by group in the order in which they arrive. One more client in a
    /// group changes neither the items of others nor the times of those before it.
    pub fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let groups = self.clients.iter().enumerate();
        groups.flat_map(|(index, group)| group.arrivals(index, seed)).collect()
    }
}

impl ClientGroup {
    fn arrivals(&self, index: usize, seed: u64) -> Vec<Arrival> {
        let number = index as u64;
        let mut hosts = self.hosts.clone();
        if self.shuffled {
            let mut random = stream(seed, Purpose::Workload, ORDER + number);
            for last in (1..hosts.len()).rev() {
                hosts.swap(last, below(&mut random, last as u64 + 1) as usize);
            }
        }
        let mut random = stream(seed, Purpose::Workload, TIMES + number);
        let everything: Arc<[u32]> = self.items.clone().into();
        let mut at = Instant::EPOCH + self.start;
        let mut arrivals = Vec::with_capacity(hosts.len());
        for node in hosts {
            let items = match self.want {
                Some(want) if want < self.items.len() => match self.zipf {
                    Some(exponent) => self.choose_popular(want, exponent, node, seed),
                    None => self.choose(want, node, seed),
                },
                _ => everything.clone(),
            };
            arrivals.push(Arrival { group: index, node, at, items });
            at += match self.arrivals {
                Arrivals::Together => Duration::ZERO,
                Arrivals::Regular(every) => every,
                Arrivals::Poisson(mean) => {
                    Duration::from_secs_f64(exponential(&mut random, mean.as_secs_f64()))
                }
            };
        }
        arrivals
    }

    /// Returns a random choice of `want` items, every choice equally likely [Floyd 1987].
    fn choose(&self, want: usize, node: NodeId, seed: u64) -> Arc<[u32]> {
        let mut random = stream(seed, Purpose::Workload, u64::from(node.0));
        let mut chosen = BTreeSet::new();
        for last in self.items.len() - want..self.items.len() {
            let position = below(&mut random, last as u64 + 1) as usize;
            if !chosen.insert(self.items[position]) {
                chosen.insert(self.items[last]);
            }
        }
        chosen.into_iter().collect()
    }

    /// Returns `want` items, chosen one after the other, each in proportion to its popularity among
    /// those that are left [Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
    /// 2006]. The first item is the most popular one.
    fn choose_popular(&self, want: usize, exponent: f64, node: NodeId, seed: u64) -> Arc<[u32]> {
        let mut random = stream(seed, Purpose::Workload, u64::from(node.0));
        // The first of independent exponential times is that of an item with a probability in
        // proportion to its rate, and so is each further one among those left.
        let mut times: Vec<(f64, u32)> = (self.items.iter().zip(1..))
            .map(|(&item, rank)| (exponential(&mut random, f64::from(rank).powf(exponent)), item))
            .collect();
        if want > 0 && want < times.len() {
            times.select_nth_unstable_by(want - 1, |a, b| a.0.total_cmp(&b.0));
            times.truncate(want);
        }
        let mut chosen: Vec<u32> = times.into_iter().map(|(_, item)| item).collect();
        chosen.sort_unstable();
        chosen.into()
    }
}
