//! Packets that links lose by plan: `[[drop]]`.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::cut::{links_between, no_link};
use super::file::Text;
use super::hosts::matches;
use crate::link::{Loss, ScriptedLoss};
use crate::network::{LinkId, Network, NetworkError, NodeId};
use crate::packet::{FlowId, Kind, Kinds};
use crate::topology::{Mistake, Topology};

/// Packets that one direction of some links loses, besides those that it loses by chance.
#[derive(Clone, Debug, PartialEq)]
pub struct Drop {
    /// The links, and the nodes at which the direction begins.
    pub links: Vec<(LinkId, NodeId)>,
    /// Kinds of packets that count and are lost.
    pub of: Kinds,
    /// Which of them each of the links loses.
    pub loss: Loss,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropEntry {
    link: Spanned<Vec<Spanned<String>>>,
    nth: Option<Spanned<Vec<u64>>>,
    every: Option<Spanned<u64>>,
    first: Option<Spanned<u64>>,
    of: Option<OfEntry>,
}

/// Kinds of packets.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OfEntry {
    Data,
    Repair,
    Request,
    Control,
    All,
}

impl OfEntry {
    pub(super) fn kinds(self) -> Kinds {
        match self {
            OfEntry::Data => Kinds::NONE.with(Kind::Data),
            OfEntry::Repair => Kinds::NONE.with(Kind::Repair),
            OfEntry::Request => Kinds::NONE.with(Kind::Nak),
            OfEntry::Control => Kinds::NONE.with(Kind::Control).with(Kind::Announcement),
            OfEntry::All => Kinds::ALL,
        }
    }
}

impl Drop {
    /// Adds the losses to those that the links have.
    pub(super) fn apply(&self, network: &mut Network) -> Result<(), NetworkError> {
        for &(link, from) in &self.links {
            network.add_loss(link, from, self.of, self.loss.clone())?;
        }
        Ok(())
    }
}

/// Reads the drops of a file.
pub(super) fn read(
    entries: Vec<DropEntry>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<Drop>, Mistake> {
    entries.into_iter().map(|entry| entry.read(text, topology)).collect()
}

impl DropEntry {
    fn read(self, text: &Text<'_>, topology: &Topology) -> Result<Drop, Mistake> {
        let links = self.links(text, topology)?;
        let loss = self.loss(text)?;
        let of = self.of.unwrap_or(OfEntry::Data).kinds();
        Ok(Drop { links, of, loss })
    }

    fn loss(&self, text: &Text<'_>) -> Result<Loss, Mistake> {
        let zero = |place: Range<usize>| {
            text.mistake(place, "packets are counted from 1: expected at least 1")
        };
        match (&self.nth, &self.every) {
            (Some(_), Some(every)) => {
                Err(text.mistake(every.span(), "nth and every both say which packets are lost"))
            }
            (None, None) => {
                let message = "expected `nth`, the numbers of the packets to lose, or `every`";
                Err(text.mistake(self.link.span(), message))
            }
            (Some(nth), None) => {
                if let Some(first) = &self.first {
                    let message = "`first` belongs to `every`: with `nth` all numbers are written";
                    return Err(text.mistake(first.span(), message));
                }
                if nth.get_ref().contains(&0) {
                    return Err(zero(nth.span()));
                }
                let scripted = |nth: &u64| ScriptedLoss { flow: FlowId(0), nth: *nth };
                Ok(Loss::Script(nth.get_ref().iter().map(scripted).collect()))
            }
            (None, Some(every)) => {
                let first = self.first.as_ref().unwrap_or(every);
                for number in [every, first] {
                    if *number.get_ref() == 0 {
                        return Err(zero(number.span()));
                    }
                }
                Ok(Loss::Every { first: *first.get_ref(), every: *every.get_ref() })
            }
        }
    }

    /// Returns the links that are meant, in the direction in which they are written. `*` in a name
    /// stands for any characters.
    fn links(
        &self,
        text: &Text<'_>,
        topology: &Topology,
    ) -> Result<Vec<(LinkId, NodeId)>, Mistake> {
        let number = |name: &str| topology.node_id(name).unwrap_or(NodeId(u32::MAX));
        let has_pattern = self.link.get_ref().iter().any(|end| end.get_ref().contains('*'));
        if !has_pattern || self.link.get_ref().len() != 2 {
            let ([a, b], links) = links_between(&self.link, text, topology)?;
            if links.is_empty() {
                return Err(text.mistake(self.link.span(), no_link(topology, &a, &b)));
            }
            let from = number(&a);
            return Ok(links.into_iter().map(|link| (LinkId(link as u32), from)).collect());
        }
        let (a, b) = (self.link.get_ref()[0].get_ref(), self.link.get_ref()[1].get_ref());
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
            return Err(text.mistake(self.link.span(), message));
        }
        Ok(found)
    }
}
