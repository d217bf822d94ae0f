//! Fallback to unicast when multicast brings nothing, and the way back.

use std::time::Duration;

use rand_core::Rng;
use umbel_wire::repository::{ClientMessage, limits};

use crate::Instant;
use crate::chance::Generator;
use crate::repository::config::ReceiverConfig;

/// Returns the request for a burst that tests whether multicast works again. It is slow enough for
/// any path. Its packets are as long as those of data, since a link may be too narrow for these.
pub(super) fn probe(probe: u32, packet_len: u16) -> ClientMessage {
    ClientMessage::Probe {
        probe,
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

/// Decides between multicast and unicast. A stranger that forges packets cannot hold a client on a
/// multicast that brings nothing. Only a probe leads back, and later each time that it was in vain.
#[derive(Debug)]
pub(super) struct Fallback {
    way: Way,
    /// Time since which an announced transmission has run without a packet.
    silent_since: Option<Instant>,
    after: Option<Duration>,
    probe_every: Duration,
    /// Number of the last probe, until one of its packets has come.
    probe: Option<u32>,
    /// Time of the last return to multicast.
    returned: Option<Instant>,
    /// Number of returns in a row that brought nothing.
    in_vain: u32,
}

/// Time on multicast after which a return to it was not in vain.
const STEADY: Duration = Duration::from_mins(1);
/// Greatest number of times that the interval between probes doubles, since returns were in vain.
const DOUBLED_MOST: u32 = 6;

impl Fallback {
    pub(super) fn new(config: &ReceiverConfig) -> Fallback {
        Fallback {
            way: Way::Multicast,
            silent_since: None,
            after: config.fallback_after,
            probe_every: config.probe_every,
            probe: None,
            returned: None,
            in_vain: 0,
        }
    }

    pub(super) fn is_multicast(&self) -> bool {
        self.way == Way::Multicast
    }

    /// Restarts with multicast.
    pub(super) fn reset(&mut self) {
        self.way = Way::Multicast;
        (self.silent_since, self.probe, self.returned) = (None, None, None);
        self.in_vain = 0;
    }

    /// Expects packets of a transmission from this time on.
    pub(super) fn expect(&mut self, starts: Instant) {
        self.silent_since.get_or_insert(starts);
    }

    /// Notes that a symbol of a wanted item came by multicast.
    pub(super) fn hear(&mut self) {
        self.silent_since = None;
    }

    /// Draws the number of a probe, which only the server and those who hear its packets know.
    pub(super) fn number_probe(&mut self, random: &mut Generator) -> u32 {
        let probe = random.next_u32();
        self.probe = Some(probe);
        probe
    }

    /// Notes that a packet of a probe came. Returns to multicast if it is the one that was asked
    /// for: no other packet shows that multicast works. Returns whether it does.
    pub(super) fn hear_probe(&mut self, now: Instant, probe: u32) -> bool {
        let back = !self.is_multicast() && self.probe.take_if(|asked| *asked == probe).is_some();
        if back {
            self.way = Way::Multicast;
            (self.silent_since, self.returned) = (None, Some(now));
        }
        back
    }

    /// Returns the time at which the client gives multicast up, unless a packet comes.
    #[inline]
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.silent_since.filter(|_| self.is_multicast()).zip(self.after).map(|(at, d)| at + d)
    }

    /// Switches to unicast. Returns the time for which nothing came.
    pub(super) fn give_up(&mut self, now: Instant) -> Duration {
        let silent = self.silent_since.take().map_or(Duration::ZERO, |since| now - since);
        let in_vain = self.returned.take().is_some_and(|returned| now.since(returned) < STEADY);
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
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
        let wait = self.probe_every * (1 << self.in_vain.min(DOUBLED_MOST));
        self.way = Way::Unicast { next_probe: now + wait };
    }
}
