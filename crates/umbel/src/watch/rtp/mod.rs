//! The way of a stream of RTP to a player.
//!
//! ```text
//! units ─▶ Parts, Order, one a layer ─┬─ cumulative ──────────────▶ a port for each layer
//!                                     └─ independent ─▶ HandOver ─▶ one port
//! ```
//!
//! Packets of cumulative layers reach the player as the source got them. Encodings of which one at
//! a time is received become one stream.

mod description;
mod hand_over;
mod order;
mod parts;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use umbel_engine::Instant;
use umbel_wire::rtp::RtpPacket;
use umbel_wire::stream::{RtpFormat, Stream, StreamMode};

use self::hand_over::HandOver;
use self::order::{Order, Packet};
use self::parts::Parts;
use super::host::ScreenStats;
use crate::stream::BLOCK_TIME;

/// Time for which packets wait for one before them. Chosen: networks rarely reorder by more.
const WAIT: Duration = Duration::from_millis(50);

/// Address at which a player receives a stream of RTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtpTarget {
    /// Address and port of the base layer, or of all encodings. Layer l is 2 l ports further.
    pub to: SocketAddr,
    /// File that the session description for the player is written to.
    pub description: Option<PathBuf>,
}

impl RtpTarget {
    /// Writes the session description for a stream of these formats.
    ///
    /// # Errors
    ///
    /// If there is no room for the ports, or the file cannot be written.
    pub(super) fn describe(&self, stream: &Stream, formats: &[RtpFormat]) -> anyhow::Result<()> {
        let to = self.to;
        let last = (description::lanes(stream.mode, formats) as u16 - 1) * description::PORTS;
        if to.ip().is_multicast() || to.ip().is_unspecified() || to.port() == 0 {
            bail!("--rtp {to}: give the address and port of a player");
        }
        if to.port().checked_add(last).is_none() {
            bail!("--rtp {to}: the layers take {} ports: give a lower one", last + 1);
        }
        let Some(path) = &self.description else { return Ok(()) };
        let text = description::describe(stream, formats, to).emit();
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns where the packets of a lane are sent.
    pub(super) fn of_lane(&self, lane: u8) -> SocketAddr {
        let port = self.to.port().saturating_add(u16::from(lane) * description::PORTS);
        SocketAddr::new(self.to.ip(), port)
    }
}

/// Puts the packets of a stream in order for a player.
#[derive(Debug)]
pub(crate) struct Relay {
    parts: Vec<Parts>,
    orders: Vec<Order>,
    hand_over: Option<HandOver>,
    /// Layer of the last packet.
    latest: Option<u8>,
    ready: VecDeque<(u8, Bytes)>,
    /// Timestamp of the last packet of the first lane.
    picture: Option<u32>,
    stats: ScreenStats,
}

impl Relay {
    /// Creates the relay of a stream whose layers have these formats.
    pub(crate) fn new(stream: &Stream, formats: &[RtpFormat]) -> Relay {
        let order = |layer: &umbel_wire::stream::LayerInfo| {
            // A restored packet comes late.
            Order::new(WAIT + layer.fec.map_or(Duration::ZERO, |_| BLOCK_TIME))
        };
        let independent = stream.mode == StreamMode::Independent;
        Relay {
            parts: stream.layers.iter().map(|_| Parts::default()).collect(),
            orders: stream.layers.iter().map(order).collect(),
            hand_over: formats.first().filter(|_| independent).map(HandOver::new),
            latest: None,
            ready: VecDeque::new(),
            picture: None,
            stats: ScreenStats::default(),
        }
    }

    /// Takes a unit of a layer.
    pub(crate) fn unit(&mut self, now: Instant, layer: u8, unit: Bytes) {
        let parts = self.parts.get_mut(usize::from(layer));
        let bytes = match parts.map(|parts| parts.take(unit)) {
            Some(Ok(Some(bytes))) => bytes,
            Some(Ok(None)) => return,
            Some(Err(_)) | None => return self.stats.refused += 1,
        };
        let parsed = RtpPacket::parse(&bytes).map(|packet| (packet.ssrc, packet.sequence));
        let Ok((ssrc, sequence)) = parsed else { return self.stats.refused += 1 };
        let before = self.latest.replace(layer).filter(|before| *before != layer);
        if let Some(before) = before.filter(|_| self.hand_over.is_some()) {
            // The other encoding is not received any more: nothing comes to fill its gaps.
            while let Some(packet) = self.orders[usize::from(before)].pop_now() {
                self.pass(now, before, packet.bytes);
            }
        }
        let in_time = self.orders[usize::from(layer)].insert(now, Packet { ssrc, sequence, bytes });
        self.stats.useless += u64::from(!in_time);
    }

    /// Returns the next packet that is due, and the lane that it takes.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(u8, Bytes)> {
        for layer in 0..self.orders.len() {
            while let Some(packet) = self.orders[layer].pop(now) {
                self.pass(now, layer as u8, packet.bytes);
            }
        }
        self.ready.pop_front()
    }

    /// Returns the time at which a packet is due although one before it is missing.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.orders.iter().filter_map(Order::next).min()
    }

    /// Returns the counters. Pictures are timestamps of the first lane; useless are packets that
    /// came too late, or before a decoder could start.
    pub(crate) fn stats(&self) -> ScreenStats {
        self.stats
    }

    /// Returns how many times another encoding took the place of one.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> u64 {
        self.hand_over.as_ref().map_or(0, |hand_over| hand_over.changes)
    }

    fn pass(&mut self, now: Instant, layer: u8, bytes: Bytes) {
        let (lane, bytes) = match &mut self.hand_over {
            None => (layer, bytes),
            Some(hand_over) => match hand_over.pass(now, layer, &bytes) {
                Some(bytes) => (0, bytes),
                None => return self.stats.useless += 1,
            },
        };
        if lane == 0 {
            let timestamp = RtpPacket::parse(&bytes).ok().map(|packet| packet.timestamp);
            self.stats.shown += u64::from(self.picture != timestamp);
            self.picture = timestamp;
        }
        self.ready.push_back((lane, bytes));
    }
}

#[cfg(test)]
mod tests;
