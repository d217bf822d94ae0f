//! Packets that links lose by plan: `[[drop]]`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use toml::Spanned;
use umbel_topology::{Mistake, Topology};

use super::cut::directions;
use super::file::Text;
use crate::link::{Loss, ScriptedLoss, TraceEnd};
use crate::network::{LinkId, Network, NetworkError, NodeId};
use crate::packet::{FlowId, Kind, Kinds};

/// Packets that one direction of some links loses, besides those that it loses by chance.
#[derive(Clone, Debug, PartialEq)]
pub struct Drop {
    /// The links, and the nodes at which the direction begins.
    pub links: Vec<(LinkId, NodeId)>,
    /// Kinds of packets that count and are lost.
    pub of: Kinds,
    /// Which of them each of the links loses.
    pub loss: Loss,
    /// File of the trace that says so, if a run is to end where the trace does.
    pub ends_with: Option<PathBuf>,
}

/// Mark of a trace that has ended.
#[derive(Debug)]
pub(super) struct Ending {
    flag: Arc<AtomicBool>,
    file: PathBuf,
}

impl Ending {
    /// Returns the file of the trace, if it has ended.
    pub(super) fn file(&self) -> Option<&Path> {
        self.flag.load(Ordering::Relaxed).then_some(&self.file)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropEntry {
    link: Spanned<Vec<Spanned<String>>>,
    nth: Option<Spanned<Vec<u64>>>,
    every: Option<Spanned<u64>>,
    first: Option<Spanned<u64>>,
    trace: Option<Spanned<PathBuf>>,
    at_end: Option<Spanned<AtEndEntry>>,
    of: Option<OfEntry>,
}

/// Behaviour after a trace.
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum AtEndEntry {
    Error,
    Repeat,
    Pass,
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
    /// Adds the losses to those that the links have. Returns what tells that the trace has ended,
    /// and its file, if the run is to end then.
    pub(super) fn apply(&self, network: &mut Network) -> Result<Option<Ending>, NetworkError> {
        let mut loss = self.loss.clone();
        let mut ending = None;
        if let (Some(file), Loss::Trace { at_end, .. }) = (&self.ends_with, &mut loss) {
            // Each run has its own.
            let flag = Arc::new(AtomicBool::new(false));
            *at_end = TraceEnd::Tell(flag.clone());
            ending = Some(Ending { flag, file: file.clone() });
        }
        for &(link, from) in &self.links {
            network.add_loss(link, from, self.of, loss.clone())?;
        }
        Ok(ending)
    }
}

/// Reads the drops of a file.
pub(super) fn read(
    entries: Vec<DropEntry>,
    text: &Text<'_>,
    topology: &Topology,
    folder: &Path,
) -> Result<Vec<Drop>, Mistake> {
    entries.into_iter().map(|entry| entry.read(text, topology, folder)).collect()
}

impl DropEntry {
    fn read(self, text: &Text<'_>, topology: &Topology, folder: &Path) -> Result<Drop, Mistake> {
        let links = directions(&self.link, text, topology)?;
        let of = self.of.unwrap_or(OfEntry::Data).kinds();
        if let Some(trace) = &self.trace {
            for (key, other) in [
                ("nth", self.nth.as_ref().map(Spanned::span)),
                ("every", self.every.as_ref().map(Spanned::span)),
            ] {
                if let Some(span) = other {
                    let message = format!("trace and {key} both say which packets are lost");
                    return Err(text.mistake(span, message));
                }
            }
            let at_end = self.at_end.as_ref().map_or(AtEndEntry::Error, |at_end| *at_end.get_ref());
            let losses = read_trace(text, trace, folder)?;
            let is_error = at_end == AtEndEntry::Error;
            let at_end =
                if at_end == AtEndEntry::Repeat { TraceEnd::Repeat } else { TraceEnd::Pass };
            let ends_with = is_error.then(|| folder.join(trace.get_ref()));
            return Ok(Drop { links, of, loss: Loss::Trace { losses, at_end }, ends_with });
        }
        if let Some(at_end) = &self.at_end {
            return Err(text.mistake(at_end.span(), "`at_end` belongs to `trace`"));
        }
        let loss = self.loss(text)?;
        Ok(Drop { links, of, loss, ends_with: None })
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
                let message =
                    "expected `nth`, the numbers of the packets to lose, or `every`, or `trace`";
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
}

/// Limit on a trace, in packets.
const MOST_PACKETS: usize = 100_000_000;

/// Reads a trace of losses: `1`, `l` or `L` for a packet that is lost, `0` or `.` for one that is
/// not. White space separates nothing, and lines that begin with `#` are skipped.
#[allow(clippy::disallowed_methods, reason = "scenarios are read before a run")]
fn read_trace(
    text: &Text<'_>,
    path: &Spanned<PathBuf>,
    folder: &Path,
) -> Result<Arc<[bool]>, Mistake> {
    let file = folder.join(path.get_ref());
    let content = std::fs::read_to_string(&file)
        .map_err(|error| text.mistake(path.span(), format!("{}: {error}", file.display())))?;
    let mut losses = Vec::new();
    for (line, number) in content.lines().zip(1..) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for sign in line.chars().filter(|sign| !sign.is_whitespace()) {
            losses.push(match sign {
                '1' | 'l' | 'L' => true,
                '0' | '.' => false,
                _ => {
                    let message = format!(
                        "`{sign}` is no packet: expected 1 or l for one that is lost, 0 or . for \
                         one that is not"
                    );
                    return Err(Mistake::at_line(number, message).in_file(&file));
                }
            });
        }
        if losses.len() > MOST_PACKETS {
            let message = format!("more than {MOST_PACKETS} packets do not fit");
            return Err(Mistake::at_line(number, message).in_file(&file));
        }
    }
    if losses.is_empty() {
        let message = format!("{}: expected at least one packet", file.display());
        return Err(text.mistake(path.span(), message));
    }
    Ok(losses.into())
}
