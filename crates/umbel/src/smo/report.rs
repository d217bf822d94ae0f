//! What a server tells about itself: to its operator, in its summary, and to `umbel smo status`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbel_engine::smo::{ChildReport, CloseReason, SourceStats, State};

/// Receivers named in a report at most, the slowest first.
pub const NAMED: usize = 1_000;

/// A server at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where it listens.
    pub listen: String,
    /// Its channel.
    pub channel: String,
    /// Seconds since it began.
    pub seconds: f64,
    /// Open connections.
    pub receivers: usize,
    /// Of these, those that multicast reaches.
    pub hearing: usize,
    /// Streams that are being multicast.
    pub streams: usize,
    /// Rate of what is acknowledged first, in the last second, in bits per second.
    pub rate_bits_per_s: u64,
    /// Bytes and segments so far.
    pub traffic: Traffic,
    /// Receivers, the slowest first; at most [`NAMED`].
    pub slowest: Vec<Receiver>,
    /// Input discarded, by reason.
    pub drops: String,
    /// What keeps segments from leaving, if anything does.
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
    /// Bytes that receivers acknowledged: what unicast had sent at least.
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

/// A receiver at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receiver {
    /// Its address.
    pub peer: String,
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
    /// What bounds it.
    pub bound: Bound,
}

/// What bounds a receiver's progress.
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

impl From<&ChildReport> for Receiver {
    fn from(child: &ChildReport) -> Receiver {
        Receiver {
            peer: child.peer.to_string(),
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

/// Returns the receivers of a report: of those that hold up others, the slowest first.
pub(crate) fn slowest(children: impl Iterator<Item = ChildReport>) -> Vec<Receiver> {
    let mut children: Vec<ChildReport> = children.collect();
    // How far it lets its source send, in the order of streams.
    children.sort_by_key(|child| (child.master.is_none(), edge(child), child.child));
    children.iter().take(NAMED).map(Receiver::from).collect()
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
        CloseReason::Dead => "it does not answer any more",
        CloseReason::TooLate => "it fell behind what is kept",
        CloseReason::TooFar => "its round trip is too long",
        CloseReason::TooSlow => "its path is too slow",
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
        CloseReason::Optimistic => "it acknowledged what it was not sent",
        CloseReason::Lingered => "it has everything, but did not close its side",
