//! Queues of links that the topology cannot say, since the lab has none of them: `[[queue]]`.

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::units::ByteCount;
use umbel_topology::values::Written;
use umbel_topology::{Mistake, Topology};

use super::cut::directions;
use super::file::Text;
use super::settings::{AtLeast, Portion};
use crate::link::{Queue, RedConfig};
use crate::network::{LinkId, Network, NetworkError, NodeId};

/// Queue of one direction of some links, in place of the one that the topology has.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkQueue {
    /// The links, and the nodes at which the direction begins.
    pub links: Vec<(LinkId, NodeId)>,
    /// Their queue.
    pub queue: Queue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueEntry {
    link: Spanned<Vec<Spanned<String>>>,
    packets: Option<Spanned<AtLeast<1, u32>>>,
    bytes: Option<Spanned<Written<ByteCount>>>,
    red: Option<Spanned<[f64; 2]>>,
    max_probability: Option<Spanned<Portion>>,
    weight: Option<Spanned<Portion>>,
    gentle: Option<Spanned<bool>>,
    mean_packet: Option<Spanned<Written<ByteCount>>>,
}

impl LinkQueue {
    /// Puts the queue in front of the links.
    pub(super) fn apply(&self, network: &mut Network) -> Result<(), NetworkError> {
        self.links.iter().try_for_each(|&(link, from)| network.set_queue(link, from, self.queue))
    }
}

/// Reads the queues of a file.
pub(super) fn read(
    entries: Vec<QueueEntry>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<LinkQueue>, Mistake> {
    entries.into_iter().map(|entry| entry.read(text, topology)).collect()
}

impl QueueEntry {
    fn read(self, text: &Text<'_>, topology: &Topology) -> Result<LinkQueue, Mistake> {
        let links = directions(&self.link, text, topology)?;
        for &(LinkId(number), from) in &links {
            let link = &topology.links[number as usize];
            let is_first = NodeId::named(topology, &link.a) == Some(from);
            let direction = if is_first { &link.a_to_b } else { &link.b_to_a };
            if direction.rate.is_none() {
                let message = format!(
                    "link {}: it has no `rate` in this direction, so that nothing waits",
                    link.label()
                );
                return Err(text.mistake(self.link.span(), message));
            }
        }
        Ok(LinkQueue { links, queue: self.queue(text)? })
    }

    fn queue(&self, text: &Text<'_>) -> Result<Queue, Mistake> {
        let Some(red) = &self.red else { return self.drop_tail(text) };
        if let Some(bytes) = &self.bytes {
            return Err(text.mistake(bytes.span(), "RED counts packets: expected `packets`"));
        }
        let &[min, max] = red.get_ref();
        if !(0.0 <= min && min < max && max <= 1e9) {
            let message = format!(
                "red = [{min}, {max}]: expected two lengths in packets, the lower threshold first"
            );
            return Err(text.mistake(red.span(), message));
        }
        let mut config = RedConfig::new(min, max);
        if let Some(packets) = &self.packets {
            config.limit = packets.get_ref().0;
        }
        if let Some(share) = &self.max_probability {
            config.max_probability = share.get_ref().0;
        }
        if let Some(weight) = &self.weight {
            config.weight = weight.get_ref().0;
        }
        if let Some(gentle) = &self.gentle {
            config.gentle = *gentle.get_ref();
        }
        if let Some(len) = &self.mean_packet {
            if len.get_ref().0.0 == 0 {
                return Err(text.mistake(len.span(), "mean_packet = 0: expected at least a byte"));
            }
            config.mean_packet = len.get_ref().0;
        }
        Ok(Queue::Red(config))
    }

    /// Reads a queue that drops what does not fit.
    fn drop_tail(&self, text: &Text<'_>) -> Result<Queue, Mistake> {
        for (key, place) in [
            ("max_probability", self.max_probability.as_ref().map(Spanned::span)),
            ("weight", self.weight.as_ref().map(Spanned::span)),
            ("gentle", self.gentle.as_ref().map(Spanned::span)),
            ("mean_packet", self.mean_packet.as_ref().map(Spanned::span)),
        ] {
            if let Some(place) = place {
                return Err(text.mistake(place, format!("`{key}` belongs to `red`")));
            }
        }
        match (&self.packets, &self.bytes) {
            (Some(packets), None) => Ok(Queue::DropTailPackets(packets.get_ref().0)),
            (None, Some(bytes)) if bytes.get_ref().0.0 == 0 => {
                Err(text.mistake(bytes.span(), "bytes = 0: nothing would pass"))
            }
            (None, Some(bytes)) => Ok(Queue::DropTailBytes(bytes.get_ref().0)),
            (Some(_), Some(bytes)) => {
                Err(text.mistake(bytes.span(), "packets and bytes both bound the queue"))
            }
            (None, None) => {
                let message = "expected `packets` or `bytes`, which the queue holds at most, or \
                               `red`, two thresholds";
                Err(text.mistake(self.link.span(), message))
            }
        }
    }
}
