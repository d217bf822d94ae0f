//! Costs of recovery.

use std::fmt;
use std::time::Duration;

use umbel_topology::{NodeKind, Topology};

use super::Observer;

/// Costs of recovery, summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Bytes that the source sent for the first time, with headers.
    pub data: u64,
    /// Bytes of repairs over the link of the source, from it and to it.
    pub source_link: (u64, u64),
    /// Bytes of requests over the link of the source, to it.
    pub source_requests: u64,
    /// Bytes of repairs over all links between routers, in both directions.
    pub router_links: u64,
    /// Bytes of repairs over all links of receivers, in both directions.
    pub receiver_links: u64,
    /// Repair packets that the source sent, and that receivers sent.
    pub repairs: (u64, u64),
    /// Recovery latencies in round trips to the source, ascending.
    pub latencies: Vec<f64>,
    /// Repairs that receivers heard, and those that brought them nothing.
    pub heard: (u64, u64),
    /// Number of receivers.
    pub receivers: u64,
    /// Time from the first packet until all receivers had everything.
    pub took: Duration,
}

impl Costs {
    /// Sums up what an observer saw on the links of a topology.
    pub fn of(observer: &Observer, topology: &Topology, source: &str, took: Duration) -> Costs {
        let is_router = |name: &str| {
            topology.nodes.iter().any(|node| node.name == name && node.kind == NodeKind::Router)
        };
        let mut costs = Costs { took, ..Costs::default() };
        for (from, to, crossed) in observer.links() {
            let (packets, bytes) = crossed.repairs;
            if from == source {
                costs.data += crossed.data.1;
                costs.source_link.0 += bytes;
                costs.repairs.0 += packets;
            } else if to == source {
                costs.source_link.1 += bytes;
                costs.source_requests += crossed.requests.1;
            } else if is_router(from) && is_router(to) {
                costs.router_links += bytes;
            } else {
                costs.receiver_links += bytes;
                costs.repairs.1 += if is_router(from) { 0 } else { packets };
            }
        }
        costs.latencies = observer.latencies();
        costs.heard = observer.repairs_heard();
        costs.receivers = observer.receivers();
        costs
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Costs) {
        let pair = |a: &mut (u64, u64), b: (u64, u64)| *a = (a.0 + b.0, a.1 + b.1);
        self.data += other.data;
        pair(&mut self.source_link, other.source_link);
        self.source_requests += other.source_requests;
        self.router_links += other.router_links;
        self.receiver_links += other.receiver_links;
        pair(&mut self.repairs, other.repairs);
        self.latencies.extend(&other.latencies);
        self.latencies.sort_by(f64::total_cmp);
        pair(&mut self.heard, other.heard);
        self.receivers = other.receivers;
        self.took += other.took;
    }

    /// Returns the bytes of repairs that crossed the source's link in either direction, as a share
    /// of the data.
    pub fn source_share(&self) -> f64 {
        (self.source_link.0 + self.source_link.1) as f64 / self.data as f64
    }

    /// Returns the mean share of the receivers that hear a repair and do not need it.
    pub fn exposure(&self) -> f64 {
        self.heard.1 as f64 / ((self.repairs.0 + self.repairs.1) * self.receivers) as f64
    }

    /// Returns the recovery latency that this share of the blocks does not exceed.
    pub fn latency(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share) as usize).copied().unwrap_or(0.0)
    }

    /// Returns the mean recovery latency.
    pub fn mean_latency(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len().max(1) as f64
    }
}

/// The row of a table, whose columns [`COLUMNS`] names. Bytes are shares of the data.
impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |bytes: u64| 100.0 * bytes as f64 / self.data as f64;
        write!(
            f,
            "{:.2} / {:.2} / {:.1} | {:.1} % | {:.1} % / {:.1} % | {:.2} % | {:.0} % | {:.0} % | \
             {} / {} | {:.0} s",
            self.mean_latency(),
            self.latency(0.5),
            self.latency(0.99),
            100.0 * self.exposure(),
            percent(self.source_link.0),
            percent(self.source_link.1),
            percent(self.source_requests),
            percent(self.router_links),
            percent(self.receiver_links),
            self.repairs.0,
            self.repairs.1,
            self.took.as_secs_f64(),
        )
    }
}

/// Names of the columns of a row.
pub const COLUMNS: &str = "latency, round trips: mean / median / 99 % | exposure | repairs over \
    the source's link: from / to it | requests there | repairs over routers' links | over \
    receivers' links | repairs by the source / by receivers | time";
