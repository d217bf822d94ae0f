//! Links that fail for some time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_topology::values::{Time, Written};
use umbel_topology::{Mistake, Topology};

use super::file::Text;
use super::hosts::matches;
use crate::network::{LinkId, NodeId};
use crate::topology::Schedules;

/// Link that is down for some time, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Positions of the link in the topology; several links may join the same two nodes.
    pub links: Vec<usize>,
    /// Start of the failure.
    pub from: Duration,
    /// End of the failure; `None` if it is permanent.
    pub until: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CutEntry {
    link: Spanned<Vec<Spanned<String>>>,
    from: Written<Time>,
    until: Option<Spanned<Written<Time>>>,
}

impl CutEntry {
    fn read(self, text: &Text<'_>, topology: &Topology) -> Result<(Cut, Range<usize>), Mistake> {
        let span = self.link.span();
        let ([a, b], links) = links_between(&self.link, text, topology)?;
        if links.is_empty() {
            return Err(text.mistake(span, no_link(topology, &a, &b)));
        }
        let Written(Time(from)) = self.from;
        if let Some(until) = &self.until
            && until.get_ref().0.0 <= from
        {
            let message = format!("{:?} is not after `from` = {from:?}", until.get_ref().0.0);
            return Err(text.mistake(until.span(), message));
        }
        let until = self.until.map(|until| until.into_inner().0.0);
        Ok((Cut { links, from, until }, span))
    }
}

/// Returns the two nodes that a link is written as, and the positions of the links that join them.
pub(super) fn links_between(
    link: &Spanned<Vec<Spanned<String>>>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<([String; 2], Vec<usize>), Mistake> {
    let [a, b] = &link.get_ref()[..] else {
        return Err(text.mistake(link.span(), "a link is two nodes, as in [\"r1\", \"r2\"]"));
    };
    for end in [a, b] {
        if topology.node_index(end.get_ref()).is_none() {
            return Err(text.mistake(end.span(), unknown_node(topology, end.get_ref())));
        }
    }
    let (a, b) = (a.get_ref(), b.get_ref());
    let joins = |(_, link): &(usize, &umbel_topology::LinkSpec)| {
        (link.a == *a && link.b == *b) || (link.a == *b && link.b == *a)
    };
    let links = topology.links.iter().enumerate().filter(joins).map(|(index, _)| index);
    Ok(([a.clone(), b.clone()], links.collect()))
}

/// Returns the links that are meant, in the direction in which they are written. `*` in a name
/// stands for any characters.
pub(super) fn directions(
    link: &Spanned<Vec<Spanned<String>>>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<(LinkId, NodeId)>, Mistake> {
    let number = |name: &str| NodeId::named(topology, name).unwrap_or(NodeId(u32::MAX));
    let has_pattern = link.get_ref().iter().any(|end| end.get_ref().contains('*'));
    if !has_pattern || link.get_ref().len() != 2 {
        let ([a, b], links) = links_between(link, text, topology)?;
        if links.is_empty() {
            return Err(text.mistake(link.span(), no_link(topology, &a, &b)));
        }
        let from = number(&a);
        return Ok(links.into_iter().map(|link| (LinkId(link as u32), from)).collect());
    }
    let (a, b) = (link.get_ref()[0].get_ref(), link.get_ref()[1].get_ref());
    let names = topology.names();
    let mut found = Vec::new();
    for (index, link) in topology.links.iter().enumerate() {
        for (from, to) in [(&link.a, &link.b), (&link.b, &link.a)] {
            if matches(a, from) && matches(b, to) {
                found.push((LinkId(index as u32), NodeId(names[from.as_str()] as u32)));
            }
        }
    }
    if found.is_empty() {
        let message = format!("no link goes from `{a}` to `{b}`");
        return Err(text.mistake(link.span(), message));
    }
    Ok(found)
}

/// Returns the text of a mistake that names the neighbours of a node.
pub(super) fn no_link(topology: &Topology, a: &str, b: &str) -> String {
    let neighbours = listed(topology.links.iter().filter_map(|link| {
        let near = link.a == a;
        (near || link.b == a).then_some(if near { &link.b } else { &link.a }.as_str())
    }));
    format!("no link joins `{a}` and `{b}`: `{a}` has links to {neighbours}")
}

/// Reads the cuts of a file.
pub(super) fn read(
    entries: Vec<CutEntry>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<Cut>, Mistake> {
    let mut cuts: Vec<Cut> = Vec::new();
    for entry in entries {
        let (cut, span) = entry.read(text, topology)?;
        let overlaps = |other: &&Cut| {
            other.links == cut.links
                && other.until.is_none_or(|until| cut.from <= until)
                && cut.until.is_none_or(|until| other.from <= until)
        };
        if let Some(other) = cuts.iter().find(overlaps) {
            let until = other.until.map_or("the end".to_owned(), |until| format!("{until:?}"));
            let message = format!("this link is cut from {:?} to {until} already", other.from);
            return Err(text.mistake(span, message));
        }
        cuts.push(cut);
    }
    Ok(cuts)
}

/// Returns the times when each link goes up and down. Failures of one link may overlap.
pub(super) fn schedules<'a>(cuts: impl IntoIterator<Item = &'a Cut>) -> Schedules {
    let mut down: BTreeMap<usize, Vec<(Duration, Option<Duration>)>> = BTreeMap::new();
    for cut in cuts {
        for &link in &cut.links {
            down.entry(link).or_default().push((cut.from, cut.until));
        }
    }
    down.into_iter().map(|(link, times)| (link, schedule(times))).collect()
}

/// Returns the times when a link goes up and down that is down in each of these spans.
fn schedule(mut down: Vec<(Duration, Option<Duration>)>) -> Vec<(Instant, bool)> {
    down.sort_unstable();
    let mut joined: Vec<(Duration, Option<Duration>)> = Vec::new();
    for (from, until) in down {
        match joined.last_mut() {
            Some((_, end)) if end.is_none_or(|end| from <= end) => {
                *end = end.zip(until).map(|(end, until)| end.max(until));
            }
            _ => joined.push((from, until)),
        }
    }
    let at = |time| Instant::EPOCH + time;
    let changes = joined
        .into_iter()
        .flat_map(|(from, until)| [Some((at(from), false)), until.map(|until| (at(until), true))]);
    changes.flatten().collect()
}

/// Returns the text of a mistake that names an unknown node and the known ones.
pub(super) fn unknown_node(topology: &Topology, name: &str) -> String {
    let all = listed(topology.nodes.iter().map(|node| node.name.as_str()));
    format!("no node is called `{name}`: there are {all}")
}

/// Returns the first few of many names as text.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => {
            format!("{} and {} more", names[..MOST].join(", "), count - MOST)
        }
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_overlap_or_touch_are_one() {
        let s = Duration::from_secs;
        let cut = |link, from, until: Option<u64>| Cut {
            links: vec![link],
            from: s(from),
            until: until.map(s),
        };
        let cuts = [
            cut(0, 7, Some(9)),
            cut(0, 1, Some(3)),
            cut(0, 2, Some(5)),
            cut(0, 5, Some(6)),
            cut(1, 8, Some(9)),
            cut(1, 4, None),
        ];
        let at = |time| Instant::EPOCH + s(time);
        let expected = [
            (0, vec![(at(1), false), (at(6), true), (at(7), false), (at(9), true)]),
            (1, vec![(at(4), false)]),
        ];
        assert_eq!(schedules(&cuts), Schedules::from(expected));
    }
}
