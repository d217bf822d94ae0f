//! Reports of a server: to its operator, in its summary, and to `umbel smo status`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbel_engine::Instant;
use umbel_engine::smo::{
    ChildReport, CloseReason, MasterId, MasterReport, Source, SourceStats, State,
};

/// Receivers named in a report at most, the slowest first.
pub const NAMED: usize = 1_000;

/// A server at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Address at which it listens.
    pub listen: String,
    /// Its channel.
    pub channel: String,
    /// Seconds since it began.
    pub seconds: f64,
    /// Open connections.
    pub receivers: usize,
    /// Of these, those that multicast reaches.
    pub hearing: usize,
    /// Connections that are being opened.
    pub half_open: usize,
    /// Streams that are being multicast.
    pub streams: usize,
    /// Rate of first acknowledgements in the last second, in bits per second.
    pub rate_bits_per_s: u64,
    /// Bytes and segments so far.
    pub traffic: Traffic,
    /// Receivers: the slowest of each stream, then the second of each, and so on; at most
    /// [`NAMED`].
    pub slowest: Vec<Receiver>,
    /// The streams that have receivers, the one first whose slowest permits least.
    pub by_stream: Vec<Group>,
    /// Where acknowledgements are dropped that tell nothing new, or why none are.
    pub ack_filter: String,
    /// Number of those that were dropped.
    pub filtered: u64,
    /// Input discarded, by reason.
    pub drops: String,
    /// Reason why segments cannot leave, if they cannot.
    pub trouble: Option<String>,
}

/// Bytes of payload, and segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections so far.
    pub connected: u64,
    /// Bytes multicast for the first time.
    pub multicast_bytes: u64,
    /// Bytes multicast again.
    pub multicast_again_bytes: u64,
    /// Segments multicast again.
    pub multicast_again: u64,
    /// Bytes sent to a single receiver for the first time.
    pub unicast_bytes: u64,
    /// Bytes sent to a single receiver again.
    pub unicast_again_bytes: u64,
    /// Segments sent to a single receiver again.
    pub unicast_again: u64,
    /// All bytes sent.
    pub sent_bytes: u64,
    /// Bytes that receivers acknowledged: the least that unicast would have sent.
    pub acknowledged_bytes: u64,
    /// Bytes saved against unicast.
    pub saved_bytes: u64,
    /// Segments received.
    pub acknowledgements: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

impl From<&SourceStats> for Traffic {
    fn from(stats: &SourceStats) -> Traffic {
        let parts = [stats.multicast, stats.multicast_again, stats.unicast, stats.unicast_again];
        let sent_bytes = parts.iter().map(|part| part.bytes).sum();
        Traffic {
            connected: stats.connected,
            multicast_bytes: stats.multicast.bytes,
            multicast_again_bytes: stats.multicast_again.bytes,
            multicast_again: stats.multicast_again.segments,
            unicast_bytes: stats.unicast.bytes,
            unicast_again_bytes: stats.unicast_again.bytes,
            unicast_again: stats.unicast_again.segments,
            sent_bytes,
            acknowledged_bytes: stats.acknowledged_bytes,
            saved_bytes: stats.acknowledged_bytes.saturating_sub(sent_bytes),
            acknowledgements: stats.segments,
            timeouts: stats.timeouts,
        }
    }
}

/// A stream that is multicast, and its receivers, at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Port of its channel.
    pub port: u16,
    /// Its receivers.
    pub receivers: usize,
    /// Of these, those that multicast reaches.
    pub hearing: usize,
    /// Bytes of it that were multicast.
    pub position: u64,
    /// Round-trip time of the group in milliseconds.
    pub rtt_ms: f64,
    /// Bytes that may be under way.
    pub window: u64,
    /// The receiver that holds up the others, if any does, and what bounds it.
    pub slowest: Option<Receiver>,
}

/// A receiver at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receiver {
    /// Its address.
    pub peer: String,
    /// Port of the channel of its stream, if it shares one.
    pub stream: Option<u16>,
    /// Whether multicast reaches it.
    pub hearing: bool,
    /// Whether it shares a stream with others.
    pub shared: bool,
    /// State of the connection [RFC 9293 §3.3.2].
    pub state: String,
    /// Bytes that it has acknowledged.
    pub acknowledged: u64,
    /// Bytes that may be under way to it.
    pub outstanding: u64,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Receive window in bytes.
    pub receive_window: u64,
    /// Bytes sent to it alone.
    pub unicast_bytes: u64,
    /// Cuts of its congestion window.
    pub loss_events: u64,
    /// Its retransmission time-outs.
    pub timeouts: u64,
    /// Limit of its progress.
    pub bound: Bound,
}

/// Account of one connection at its end: what it took [SMO §IV-A].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// Address of the receiver.
    pub peer: String,
    /// Seconds from its handshake to its end.
    pub seconds: f64,
    /// Bytes that it acknowledged.
    pub bytes: u64,
    /// Of these, those that were first sent to it by multicast.
    pub multicast_bytes: u64,
    /// Bytes first sent to it alone.
    pub unicast_bytes: u64,
    /// Bytes sent again to it alone.
    pub unicast_again_bytes: u64,
    /// Segments sent again to it alone.
    pub unicast_again: u64,
    /// Bytes that it sent.
    pub received_bytes: u64,
    /// Cuts of its congestion window.
    pub loss_events: u64,
    /// Its retransmission time-outs.
    pub timeouts: u64,
    /// Reason of its end.
    pub reason: &'static str,
}

impl Account {
    /// Reason of a connection that ends in order.
    pub(crate) const FINISHED: &str = "both sides have finished";
    /// Reason of a connection that is open when the server ends.
    pub(crate) const SERVER_ENDS: &str = "the server ends";

    /// Creates the account of a connection that ends.
    pub(crate) fn new(child: &ChildReport, reason: &'static str, now: Instant) -> Account {
        Account {
            peer: child.peer.to_string(),
            seconds: now.since(child.since).as_secs_f64(),
            bytes: child.received,
            multicast_bytes: child.received_by_multicast(),
            unicast_bytes: child.unicast_bytes - child.unicast_again.bytes,
            unicast_again_bytes: child.unicast_again.bytes,
            unicast_again: child.unicast_again.segments,
            received_bytes: child.received_bytes,
            loss_events: child.loss_events,
            timeouts: child.timeouts,
            reason,
        }
    }
}

/// Limit of a receiver's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Nothing is under way to it.
    Nothing,
    /// Its application reads too slowly: the receive window is closed, or nearly.
    Application,
    /// It answers no more.
    Silence,
    /// Losses or a long way keep the congestion window small.
    Network,
}

impl Bound {
    /// Returns the words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Bound::Nothing => "nothing under way",
            Bound::Application => "its application reads slowly",
            Bound::Silence => "it does not answer",
            Bound::Network => "its path: losses, or a long way",
        }
    }
}

impl Receiver {
    fn new(child: &ChildReport, stream: Option<u16>) -> Receiver {
        Receiver {
            peer: child.peer.to_string(),
            stream,
            hearing: child.hears,
            shared: child.master.is_some(),
            state: state(child.state).to_owned(),
            acknowledged: child.acknowledged,
            outstanding: child.outstanding,
            rtt_ms: child.rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3),
            congestion_window: child.congestion_window,
            receive_window: child.receive_window,
            unicast_bytes: child.unicast_bytes,
            loss_events: child.loss_events,
            timeouts: child.timeouts,
            bound: bound(child),
        }
    }
}

/// Returns the receivers of a report. Positions of different streams do not compare: those of each
/// are ranked among themselves, and by how far they let their stream go on.
pub(crate) fn slowest(source: &Source) -> Vec<Receiver> {
    let masters: BTreeMap<MasterId, MasterReport> =
        source.masters().map(|master| (master.master, master)).collect();
    let mut children: Vec<ChildReport> = source.children().collect();
    children.sort_by_key(|child| (child.master.is_none(), child.master, edge(child), child.child));
    let (mut last, mut rank) = (None, 0);
    let ranked = children.iter().map(|child| {
        rank = if child.master == last { rank + 1 } else { 0 };
        last = child.master;
        let master = child.master.and_then(|master| masters.get(&master));
        let ahead = master.map(|master| edge(child).saturating_sub(master.position));
        let order = (ahead.is_none(), rank, ahead, child.child);
        (order, child, master.map(|master| master.channel.port))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(order, ..)| *order);
    ranked.iter().take(NAMED).map(|(_, child, stream)| Receiver::new(child, *stream)).collect()
}

/// Returns the streams that have receivers, the one first whose slowest permits least.
pub(crate) fn by_stream(source: &Source) -> Vec<Group> {
    let masters = source.masters().filter(|master| master.children > 0);
    let mut groups: Vec<Group> = masters.map(|master| Group::new(source, &master)).collect();
    groups.sort_by_key(|group| (group.window, group.port));
    groups
}

impl Group {
    fn new(source: &Source, master: &MasterReport) -> Group {
        let port = master.channel.port;
        let slowest = master.slowest.and_then(|child| source.report(child));
        Group {
            port,
            receivers: master.children,
            hearing: master.hearing,
            position: master.position,
            rtt_ms: master.rtt.as_secs_f64() * 1e3,
            window: master.window,
            slowest: slowest.map(|child| Receiver::new(&child, Some(port))),
        }
    }
}

/// Returns the position up to which a child permits to send.
fn edge(child: &ChildReport) -> u64 {
    child.acknowledged + child.congestion_window.min(child.receive_window)
}

fn bound(child: &ChildReport) -> Bound {
    /// A window below which a sender waits for the receiver rather than for the network.
    const SMALL: u64 = 2 * 1460;
    if child.receive_window < SMALL {
        Bound::Application
    } else if child.outstanding == 0 {
        Bound::Nothing
    } else if child.receive_window < child.congestion_window {
        Bound::Application
    } else if child.congestion_window <= SMALL && child.timeouts > child.loss_events {
        Bound::Silence
    } else {
        Bound::Network
    }
}

const fn state(state: State) -> &'static str {
    match state {
        State::Established => "established",
        State::CloseWait => "close-wait",
        State::FinWait1 => "fin-wait-1",
        State::FinWait2 => "fin-wait-2",
        State::Closing => "closing",
        State::LastAck => "last-ack",
    }
}

/// Returns why a connection ended before its time, as part of a sentence.
pub(crate) const fn reason(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Reset => "it reset the connection",
        CloseReason::Aborted => "the server ended the connection",
        CloseReason::Stalled => "it made no progress for too long",
        CloseReason::ClosedWindow => "its application did not read for too long",
        CloseReason::Dead => "it no longer answers",
        CloseReason::TooLate => "it fell behind what is kept",
        CloseReason::HoldsUp => "it held up the stream for too long",
        CloseReason::Gap => "its stream goes on after a gap",
        CloseReason::TooFar => "its round trip is too long",
        CloseReason::TooSlow => "its path is too slow",
        CloseReason::Optimistic => "it acknowledged what it was not sent",
        CloseReason::Crowded => "its host has most of all connections, and others want some",
        CloseReason::Lingered => "it has everything, but did not close its side",
    }
}

/// Measures the rate of a counter over the last second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateMeter {
    since: Duration,
    bytes: u64,
    rate_bits_per_s: u64,
}

impl RateMeter {
    /// Notes the counter at a time since the beginning.
    pub(crate) fn measure(&mut self, at: Duration, bytes: u64) {
        let time = at.saturating_sub(self.since);
        if time < Duration::from_secs(1) {
            return;
        }
        let bits = bytes.saturating_sub(self.bytes) as f64 * 8.0;
        self.rate_bits_per_s = (bits / time.as_secs_f64()) as u64;
        (self.since, self.bytes) = (at, bytes);
    }

    pub(crate) const fn bits_per_s(&self) -> u64 {
        self.rate_bits_per_s
    }
}
