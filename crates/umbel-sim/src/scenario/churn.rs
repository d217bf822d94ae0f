//! Hosts that come and go: `[[churn]]`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_topology::values::{Time, Written};
use umbel_topology::{Mistake, NodeKind, Topology};

use super::cut::{Cut, listed};
use super::file::Text;
use super::hosts::matches;
use super::settings::Period;
use crate::network::NodeId;
use crate::random::{Purpose, exponential, stream};

/// Hosts that are off the network now and then, without a word. Their programs stay, and go on when
/// they are back.
#[derive(Clone, Debug, PartialEq)]
pub struct Churn {
    /// The hosts.
    pub hosts: Vec<NodeId>,
    /// Mean time for which a host is there.
    pub here: Duration,
    /// Mean time for which it is away; `None` if it does not come back.
    pub away: Option<Duration>,
    /// Start of the first time for which hosts are there.
    pub from: Duration,
    /// Time at which all are there again that have not gone for good.
    pub until: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChurnEntry {
    hosts: Spanned<Vec<Spanned<String>>>,
    here: Period,
    away: Option<Period>,
    #[serde(default)]
    from: Option<Written<Time>>,
    until: Option<Spanned<Written<Time>>>,
}

/// Base of the random streams of churn; those of clients have the numbers of their nodes, and those
/// of cross traffic are lower.
const STREAMS: u64 = 4 << 40;

/// Shortest time for which a host is there or away, so that a run has an end.
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads the churn of a file.
pub(super) fn read(
    entries: Vec<ChurnEntry>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<Churn>, Mistake> {
    let (mut taken, mut all) = (BTreeSet::new(), Vec::new());
    for entry in entries {
        all.push(entry.read(text, topology, &mut taken)?);
    }
    Ok(all)
}

impl ChurnEntry {
    fn read(
        self,
        text: &Text<'_>,
        topology: &Topology,
        taken: &mut BTreeSet<NodeId>,
    ) -> Result<Churn, Mistake> {
        let all = || {
            let nodes = topology.nodes.iter().zip(0..);
            nodes.filter(|(node, _)| node.kind == NodeKind::Host)
        };
        let mut hosts = Vec::new();
        for pattern in self.hosts.get_ref() {
            let before = hosts.len();
            for (node, number) in all().filter(|(node, _)| matches(pattern.get_ref(), &node.name)) {
                if !taken.insert(NodeId(number)) {
                    let message = format!("`{}` comes and goes already", node.name);
                    return Err(text.mistake(pattern.span(), message));
                }
                hosts.push(NodeId(number));
            }
            if hosts.len() == before {
                let there = listed(all().map(|(node, _)| node.name.as_str()));
                let message = format!("no host matches `{}`: there are {there}", pattern.get_ref());
                return Err(text.mistake(pattern.span(), message));
            }
        }
        if hosts.is_empty() {
            return Err(text.mistake(self.hosts.span(), "expected at least one host"));
        }
        let from = self.from.map_or(Duration::ZERO, |from| from.0.0);
        if let Some(until) = self.until.as_ref().filter(|until| until.get_ref().0.0 <= from) {
            let message = format!("{:?} is not after `from` = {from:?}", until.get_ref().0.0);
            return Err(text.mistake(until.span(), message));
        }
        Ok(Churn {
            hosts,
            here: self.here.0,
            away: self.away.map(|away| away.0),
            from,
            until: self.until.map(|until| until.into_inner().0.0),
        })
    }
}

impl Churn {
    /// Draws when each host is away, until the run `ends`. Hosts have draws of their own.
    pub(super) fn absences(&self, topology: &Topology, seed: u64, ends: Duration) -> Vec<Cut> {
        let ends = self.until.map_or(ends, |until| until.min(ends));
        let mut cuts = Vec::new();
        for &host in &self.hosts {
            let mut random = stream(seed, Purpose::Workload, STREAMS + u64::from(host.0));
            let mut draw = |mean: Duration| {
                Duration::from_secs_f64(exponential(&mut random, mean.as_secs_f64())).max(SHORTEST)
            };
            let name = &topology.nodes[host.0 as usize].name;
            let links = topology.links.iter().enumerate();
            let own = links.filter(|(_, link)| link.a == *name || link.b == *name);
            let links: Vec<usize> = own.map(|(index, _)| index).collect();
            let mut from = self.from + draw(self.here);
            while from < ends {
                let Some(away) = self.away else {
                    cuts.push(Cut { links, from, until: None });
                    break;
                };
                let back = from + draw(away);
                let back = self.until.map_or(back, |until| back.min(until));
                cuts.push(Cut { links: links.clone(), from, until: Some(back) });
                from = back + draw(self.here);
            }
        }
        cuts
    }
}
