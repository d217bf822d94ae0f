//! A stream of packets from one source to receivers that repair what they lose: what `[lms]`,
//! `[srm]` and `[pgm]` share.
//!
//! All of them are measured alike: by the packets on the network, of which each protocol only tells
//! what they say ([`Said`]).

mod observer;
mod results;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::units::ByteCount;
use umbel_topology::values::{Time, Written};
use umbel_topology::{Mistake, NodeKind};

pub(super) use self::observer::Said;
pub(super) use self::results::Running;
use super::protocol::Section;
use super::settings::{Period, Portion, Settings};
use super::{Scenario, party, paths};
use crate::network::NodeId;
use crate::random::{Purpose, below, stream};

/// Number of the group that all hosts join.
pub(super) const GROUP: u32 = 1;

/// Stream that a source sends to receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Host of the source.
    pub source: NodeId,
    /// Hosts of the receivers, in the order of the topology.
    pub receivers: Vec<NodeId>,
    /// Times when the source sends a packet, ascending.
    pub sends: Vec<Duration>,
    /// Bytes of a packet's payload.
    pub packet_len: usize,
    /// Time after the last packet for repairs; then the run ends.
    pub after: Duration,
}

/// Keys of a stream.
#[derive(Debug, Default, Deserialize)]
struct StreamEntry {
    source: Option<Spanned<String>>,
    receivers: Option<Spanned<Vec<Spanned<String>>>>,
    packets: Option<Spanned<u32>>,
    interval: Option<Spanned<Period>>,
    packet_size: Option<Spanned<Written<ByteCount>>>,
    start: Option<Written<Time>>,
    sends: Option<Spanned<Vec<Written<Time>>>>,
    after: Option<Written<Time>>,
}

impl Settings for StreamEntry {
    const KEYS: &'static [&'static str] =
        &["source", "receivers", "packets", "interval", "packet_size", "start", "sends", "after"];
}

/// Limit on packets, so that a slip of the finger does not take hours.
const MOST_PACKETS: u32 = 10_000_000;
const INTERVAL: Duration = Duration::from_millis(100);
const PACKET_LEN: u64 = 1000;
/// Longest packet that all protocols carry.
const MOST_LEN: u64 = 1400;
/// Repliers are elected and distances measured by then.
const START: Duration = Duration::from_secs(30);
const AFTER: Duration = Duration::from_mins(1);

impl Stream {
    /// Reads the keys of a stream in a section.
    pub(super) fn read(section: &mut Section<'_>) -> Result<Stream, Mistake> {
        let entry: StreamEntry = section.take()?;
        let text = section.text;
        let (source, receivers) =
            party::read(section, entry.source.as_ref(), entry.receivers.as_ref())?;
        let packet_len = match &entry.packet_size {
            Some(size) if !(1..=MOST_LEN).contains(&size.get_ref().0.0) => {
                let message =
                    format!("packet_size = {}: expected 1 to {MOST_LEN} bytes", size.get_ref().0);
                return Err(text.mistake(size.span(), message));
            }
            Some(size) => size.get_ref().0.0,
            None => PACKET_LEN,
        };
        let sends = entry.sends(section)?;
        Ok(Stream {
            source,
            receivers,
            sends,
            packet_len: packet_len as usize,
            after: entry.after.map_or(AFTER, |after| after.0.0),
        })
    }

    /// Returns the time when the run ends.
    pub fn ends(&self) -> Duration {
        self.sends.last().copied().unwrap_or_default() + self.after
    }

    /// Returns the times when the source sends, by the clock of the run.
    pub(super) fn send_times(&self) -> impl Iterator<Item = Instant> {
        self.sends.iter().map(|time| Instant::EPOCH + *time)
    }

    /// Returns what a section with this stream comes to.
    pub(super) fn extent(&self) -> Vec<(&'static str, usize)> {
        vec![("packets", self.sends.len()), ("receivers", self.receivers.len())]
    }

    /// Returns the travel time of a packet to each receiver and back.
    pub(super) fn distances(&self, scenario: &Scenario) -> Vec<(Duration, Duration)> {
        let delays = paths::delays(&scenario.topology, self.source.0 as usize);
        // Hosts that cannot be reached are no receivers.
        self.receivers.iter().map(|node| delays[node.0 as usize].unwrap_or_default()).collect()
    }
}

/// Key of routers that says which of them have a protocol's program.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Deployment {
    deployed: Option<Portion>,
}

impl Settings for Deployment {
    const KEYS: &'static [&'static str] = &["deployed"];
}

impl Deployment {
    /// Reads the share of the routers that have it.
    pub(super) fn read(part: &mut Section<'_>) -> Result<f64, Mistake> {
        let Deployment { deployed } = part.take()?;
        Ok(deployed.map_or(1.0, |share| share.0))
    }
}

/// Returns the routers that have a protocol's program, of which a share has it, at random.
pub(super) fn routers(scenario: &Scenario, share: f64, seed: u64) -> Vec<NodeId> {
    let nodes = scenario.topology.nodes.iter().zip(0..);
    let routers = nodes.filter(|(node, _)| node.kind == NodeKind::Router);
    let percent = (share * 100.0).round() as u64;
    let has_it = |node: &NodeId| {
        percent >= 100 || {
            let mut draw = stream(seed, Purpose::Workload, u64::from(node.0));
            below(&mut draw, 100) < percent
        }
    };
    routers.map(|(_, number)| NodeId(number)).filter(has_it).collect()
}

impl StreamEntry {
    /// Returns the times when the source sends.
    fn sends(&self, section: &Section<'_>) -> Result<Vec<Duration>, Mistake> {
        let text = section.text;
        let (sends, place) = match (&self.sends, &self.packets) {
            (Some(_), Some(packets)) => {
                let message = "packets and sends both say how many packets there are";
                return Err(text.mistake(packets.span(), message));
            }
            (Some(sends), None) => {
                let times: Vec<Duration> = sends.get_ref().iter().map(|time| time.0.0).collect();
                if !times.is_sorted() {
                    return Err(text.mistake(sends.span(), "sends: expected ascending times"));
                }
                (times, sends.span())
            }
            (None, Some(packets)) => {
                if *packets.get_ref() > MOST_PACKETS {
                    let message =
                        format!("packets = {}: at most {MOST_PACKETS} fit", packets.get_ref());
                    return Err(text.mistake(packets.span(), message));
                }
                let start = self.start.map_or(START, |start| start.0.0);
                let interval =
                    self.interval.as_ref().map_or(INTERVAL, |interval| interval.get_ref().0);
                let times = (0..*packets.get_ref()).map(|n| start + interval * n);
                (times.collect(), packets.span())
            }
            (None, None) => {
                let message = "`packets` is missing: expected the number of packets of the stream";
                return Err(text.mistake(section.span(), message));
            }
        };
        match sends.last() {
            None => Err(text.mistake(place, "no packets: expected at least 1")),
            Some(last) if *last >= section.end => {
                let message = format!(
                    "the last packet leaves after {last:?}, and the run ends after {:?}: expected \
                     fewer packets, or a longer `duration`",
                    section.end
                );
                Err(text.mistake(place, message))
            }
            Some(_) => Ok(sends),
        }
    }
}
