//! Results of a run.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Serialize, Serializer};
use umbel_engine::repository::source::SourceStats;
use umbel_engine::units::{ByteCount, counted};

pub use super::table::{Column, Table};
use crate::network::NodeId;
use crate::{Counters, LinkCounters, Simulation};

/// Results of a run. Displays as a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Length of the run in simulated seconds.
    pub simulated_s: f64,
    /// Results of the protocol's programs.
    #[serde(flatten)]
    pub results: Results,
    /// Counters of the network.
    pub network: Network,
}

/// Results of the programs of a protocol, in a form that all protocols share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// All receivers.
    pub clients: Clients,
    /// Receivers of each group.
    pub groups: Vec<Clients>,
    /// Meaning of the delay of a receiver, in a word or two.
    #[serde(skip)]
    pub delay: &'static str,
    /// Numbers with names, the most important ones first. Sweeps compare them.
    #[serde(serialize_with = "as_map")]
    pub measures: Vec<Measure>,
    /// Results of single receivers, losses or links.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// The results for people, in a few lines.
    #[serde(skip)]
    pub text: String,
    /// Further results for programs, by name.
    #[serde(flatten)]
    pub details: BTreeMap<&'static str, serde_json::Value>,
}

/// Number that tells of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Name; its end says the unit: `_s` seconds, `_rtt` round trips, `_bytes`.
    pub name: &'static str,
    /// The number; `None` if there was nothing to measure.
    pub value: Option<f64>,
}

impl Measure {
    /// Creates a measure. A value that is not finite counts as none.
    pub fn new(name: &'static str, value: impl Into<Option<f64>>) -> Measure {
        Measure { name, value: value.into().filter(|value: &f64| value.is_finite()) }
    }
}

fn as_map<S: Serializer>(measures: &[Measure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(measures.iter().map(|measure| (measure.name, measure.value)))
}

impl Results {
    /// Returns the results of a transfer to receivers that are all of one group.
    pub(super) fn of_transfer(
        clients: Clients,
        measures: Vec<Measure>,
        tables: Vec<Table>,
        text: String,
    ) -> Results {
        Results {
            groups: vec![clients.clone()],
            clients,
            delay: "delay",
            measures,
            tables,
            text,
            details: BTreeMap::new(),
        }
    }

    /// Returns a measure by its name.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.iter().find(|measure| measure.name == name)?.value
    }

    /// Returns a table by its name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }
}

/// Delays of some receivers. With the repository a delay is the time from a client's arrival until
/// it had everything that it wanted. Means and percentiles exclude receivers without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Clients {
    /// Name of the receivers.
    pub name: String,
    /// Number of receivers.
    pub count: usize,
    /// Number of receivers that have everything that they want.
    pub finished: usize,
    /// Mean delay in seconds.
    pub mean_s: Option<f64>,
    /// Delay that half of the receivers do not exceed, in seconds.
    pub median_s: Option<f64>,
    /// Delay that 99 of 100 receivers do not exceed, in seconds.
    pub p99_s: Option<f64>,
    /// Longest delay in seconds.
    pub max_s: Option<f64>,
}

/// Counters of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerReport {
    /// Transmissions.
    pub transmissions: u64,
    /// Transmissions that are retransmissions.
    pub retransmissions: u64,
    /// Data packets.
    pub packets: u64,
    /// Bytes of UDP payload of the data packets.
    pub bytes: u64,
    /// NAKs that arrived.
    pub naks: u64,
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Packets that hosts and hooks sent.
    pub packets: u64,
    /// Packets that entered a link: packet-hops.
    pub hops: u64,
    /// Packets lost on links.
    pub lost: u64,
    /// Packets dropped by full queues.
    pub queue_drops: u64,
    /// Packets lost because a link was down.
    pub down: u64,
    /// Packets dropped for other reasons: no route, too many hops.
    pub undelivered: u64,
    /// Messages of sessions.
    pub messages: u64,
    /// Bytes of those messages.
    pub message_bytes: u64,
    /// Events that were simulated.
    pub events: u64,
}

impl Clients {
    pub(super) fn new(name: &str, delays: &[Option<Duration>]) -> Clients {
        let mut finished: Vec<Duration> = delays.iter().flatten().copied().collect();
        finished.sort_unstable();
        // The smallest delay that at least this share of all delays does not exceed.
        let percentile = |share: f64| {
            let rank = (share * finished.len() as f64).ceil().max(1.0) as usize;
            finished.get(rank - 1).map(Duration::as_secs_f64)
        };
        let sum: Duration = finished.iter().sum();
        Clients {
            name: name.to_owned(),
            count: delays.len(),
            finished: finished.len(),
            mean_s: (!finished.is_empty()).then(|| sum.as_secs_f64() / finished.len() as f64),
            median_s: percentile(0.5),
            p99_s: percentile(0.99),
            max_s: percentile(1.0),
        }
    }

    /// Returns the delays and the share of receivers that finished as
    /// measures.
    pub(super) fn measures(&self) -> Vec<Measure> {
        vec![
            Measure::new("delay_mean_s", self.mean_s),
            Measure::new("delay_median_s", self.median_s),
            Measure::new("delay_p99_s", self.p99_s),
            Measure::new("delay_max_s", self.max_s),
            Measure::new("finished_share", self.finished as f64 / self.count as f64),
        ]
    }
}

impl ServerReport {
    pub(super) fn new(stats: SourceStats) -> ServerReport {
        let SourceStats { transmissions, repairs, packets, bytes, naks, .. } = stats;
        ServerReport { transmissions, retransmissions: repairs, packets, bytes, naks }
    }
}

impl Network {
    pub(super) fn new(counters: &Counters) -> Network {
        Network {
            packets: counters.sent,
            hops: counters.hops,
            lost: counters.lost,
            queue_drops: counters.queue_drops,
            down: counters.down,
            undelivered: counters.no_route + counters.hop_limit,
            messages: counters.messages,
            message_bytes: counters.message_bytes,
            events: counters.events,
        }
    }
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerReport { transmissions, retransmissions, packets, bytes, naks } = *self;
        write!(
            f,
            "server   {}, {}, in {}, {retransmissions} of them again; {}",
            counted(packets, "data packet"),
            ByteCount(bytes),
            counted(transmissions, "transmission"),
            counted(naks, "NAK")
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} · {:.3} s simulated", self.seed, self.simulated_s)?;
        writeln!(f, "{}", self.results.text.trim_end())?;
        let Network { hops, lost, queue_drops, down, undelivered, .. } = self.network;
        write!(f, "network  {}: {lost} lost", counted(hops, "packet-hop"))?;
        for (count, what) in [
            (queue_drops, "dropped by queues"),
            (down, "on cut links"),
            (undelivered, "undeliverable"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        let Network { messages, message_bytes, .. } = self.network;
        if messages > 0 {
            let messages = counted(messages, "message");
            write!(f, "; {messages}, {}", ByteCount(message_bytes))?;
        }
        Ok(())
    }
}

/// Returns a table of delays with a line for each group. `who` is the heading of the names.
pub(super) fn delay_table<'a>(who: &str, rows: impl Iterator<Item = &'a Clients>) -> String {
    let mut text = format!(
        "{:<16} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10}\n",
        who, "count", "finished", "mean s", "median s", "99 % s", "longest s"
    );
    for row in rows {
        let _ = write!(text, "{:<16} {:>9} {:>9}", row.name, row.count, row.finished);
        for delay in [row.mean_s, row.median_s, row.p99_s, row.max_s] {
            let delay = delay.map_or_else(|| "–".to_owned(), |delay| format!("{delay:.3}"));
            let _ = write!(text, " {delay:>10}");
        }
        text.push('\n');
    }
    text
}

/// Returns the traffic of each direction of each link.
pub(super) fn links(simulation: &Simulation) -> Table {
    let network = simulation.network();
    let directions: Vec<(NodeId, NodeId, LinkCounters)> = network
        .links()
        .flat_map(|(link, a, b)| {
            let (there, back) = simulation.link_counters(link);
            [(a, b, there), (b, a, back)]
        })
        .collect();
    let name = |node: NodeId| network.name(node).to_owned();
    let of = |value: fn(&LinkCounters) -> u64| {
        Column::Integers(directions.iter().map(|(.., counters)| value(counters)).collect())
    };
    Table::new(
        "links",
        vec![
            ("from", Column::Texts(directions.iter().map(|(from, ..)| name(*from)).collect())),
            ("to", Column::Texts(directions.iter().map(|(_, to, _)| name(*to)).collect())),
            ("packets", of(|counters| counters.packets)),
            ("bytes", of(|counters| counters.bytes)),
            ("lost", of(|counters| counters.lost)),
            ("queue_drops", of(|counters| counters.queue_drops)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_up_over_those_who_finished() {
        let delays: Vec<_> = (1..=200).map(|s| Some(Duration::from_secs(s))).collect();
        let clients = Clients::new("x", &[delays, vec![None; 5]].concat());
        assert_eq!((clients.count, clients.finished), (205, 200));
        assert_eq!(clients.mean_s, Some(100.5));
        let percentiles = (clients.median_s, clients.p99_s, clients.max_s);
        assert_eq!(percentiles, (Some(100.0), Some(198.0), Some(200.0)));
        let none = Clients::new("x", &[None]);
        assert_eq!((none.finished, none.mean_s, none.max_s), (0, None, None));
    }
}
