//! Fallback to unicast when multicast brings nothing, and the way back.

use std::time::Duration;

use umbel_wire::repository::{ClientMessage, limits};

use crate::Instant;
use crate::repository::config::ReceiverConfig;

/// Returns the request for a burst that tests whether multicast works again. It is slow enough for
/// any path. Its packets are as long as those of data, since a link may be too narrow for these.
pub(super) fn probe(packet_len: u16) -> ClientMessage {
    ClientMessage::Probe {
        probe: 0,
        channel: 0,
        packets: 8,
        packet_len: packet_len.clamp(limits::PROBE_PACKET_MIN, limits::PROBE_PACKET_MAX),
        rate_bits_per_s: 1_000_000,
    }
}

/// Way by which the client gets its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Multicast,
    /// On the session. Multicast is probed at this time.
    Unicast {
        next_probe: Instant,
    },
}

/// Decides between multicast and unicast.
#[derive(Debug)]
pub(super) struct Fallback {
    way: Way,
    /// Time since which an announced transmission has run without a packet.
    silent_since: Option<Instant>,
    after: Option<Duration>,
    probe_every: Duration,
}

impl Fallback {
    pub(super) fn new(config: &ReceiverConfig) -> Fallback {
        Fallback {
            way: Way::Multicast,
            silent_since: None,
            after: config.fallback_after,
            probe_every: config.probe_every,
        }
    }

    pub(super) fn is_multicast(&self) -> bool {
        self.way == Way::Multicast
    }

    /// Restarts with multicast.
    pub(super) fn reset(&mut self) {
        self.way = Way::Multicast;
        self.silent_since = None;
    }

    /// Expects packets of a transmission from this time on.
    pub(super) fn expect(&mut self, starts: Instant) {
        self.silent_since.get_or_insert(starts);
    }

    /// Notes that a packet came by multicast. Returns whether the client was on unicast.
    pub(super) fn hear(&mut self) -> bool {
        let back = !self.is_multicast();
        self.reset();
        back
    }

    /// Returns the time at which the client gives multicast up, unless a packet comes.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.silent_since.filter(|_| self.is_multicast()).zip(self.after).map(|(at, d)| at + d)
    }

    /// Switches to unicast. Returns the time for which nothing came.
    pub(super) fn give_up(&mut self, now: Instant) -> Duration {
        let silent = self.silent_since.take().map_or(Duration::ZERO, |since| now - since);
        self.probe_later(now);
        silent
    }

    /// Returns the time of the next probe of multicast.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        match self.way {
            Way::Unicast { next_probe } => Some(next_probe),
            Way::Multicast => None,
        }
    }

    /// Stays on unicast until the next probe.
    pub(super) fn probe_later(&mut self, now: Instant) {
        self.way = Way::Unicast { next_probe: now + self.probe_every };
    }
}
