//! Chooses the data channel's next transmission, by `auto` or by a policy that is set by hand.

mod auto;
mod gathering;
mod hand_set;

use std::time::Duration;

use umbel_wire::Toi;

use self::auto::Auto;
use self::hand_set::HandSet;
use super::answers::Answers;
use super::clients::Clients;
use super::transmission::{Purpose, Transmission};
use super::wanted::Wanted;
use crate::repository::config::{SegmentConfig, SourceConfig};
use crate::repository::missing::Missing;
use crate::repository::policy::Policy;
use crate::units::Rate;
use crate::{Instant, SessionId};

/// Planner of transmissions, with the state that only it needs.
#[derive(Debug)]
pub(super) enum Planner {
    Auto(Auto),
    HandSet(HandSet),
}

/// A planner's view of the channel.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    pub(super) now: Instant,
    pub(super) wanted: &'a mut Wanted,
    pub(super) clients: &'a Clients,
    pub(super) answers: &'a Answers,
    pub(super) segments: Segments,
}

/// Length of transmissions at the present rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    pub(super) config: SegmentConfig,
    pub(super) packet_len: usize,
    pub(super) rate: Rate,
}

impl Segments {
    /// Returns the number of packets of a transmission of an item that `clients` clients want.
    fn packets(&self, clients: usize) -> u32 {
        let SegmentConfig { time, max_bytes, min_packets, clients: doubling } = self.config;
        if time == Duration::MAX {
            return u32::MAX;
        }
        let packets = self.rate.bytes_in(time).min(max_bytes) / self.packet_len.max(1) as u64;
        let stretch = 1 + clients as u64 / u64::from(doubling.max(1));
        let packets = packets.saturating_mul(stretch);
        u32::try_from(packets).unwrap_or(u32::MAX).max(min_packets)
    }
}

/// Symbols missing at a client after a transmission.
#[derive(Debug)]
pub(super) struct Lack {
    pub(super) session: SessionId,
    pub(super) toi: Toi,
    pub(super) missing: Missing,
    /// End of the transmission's gathering time, or `None` if the transmission is not known.
    pub(super) gather_until: Option<Instant>,
}

impl Planner {
    pub(super) fn new(config: &SourceConfig) -> Planner {
        match config.policy {
            Policy::Auto => Planner::Auto(Auto::new(config.oldest_share)),
            Policy::HandSet(scheme) => Planner::HandSet(HandSet::new(scheme, config.reading)),
        }
    }

    /// Plans one transmission.
    pub(super) fn plan(&mut self, desk: &mut Desk<'_>) -> Option<Transmission> {
        match self {
            Planner::Auto(auto) => auto.plan(desk),
            Planner::HandSet(scheme) => scheme.plan(desk),
        }
    }

    /// Returns the time at which work that waits for NAKs may be planned.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match self {
            Planner::Auto(auto) => auto.next_due(),
            Planner::HandSet(scheme) => scheme.next_due(),
        }
    }

    /// Returns whether a client that is missing anything of an item is sent all of it.
    pub(super) fn sends_whole(&self) -> bool {
        match self {
            Planner::Auto(_) => false,
            Planner::HandSet(scheme) => scheme.reading.reschedule_whole,
        }
    }

    /// Returns whether a transmission ends when no client needs the rest.
    pub(super) fn cuts_short(&self) -> bool {
        match self {
            Planner::Auto(_) => true,
            Planner::HandSet(scheme) => scheme.reading.cut_short,
        }
    }

    /// Handles a NAK that names missing symbols.
    pub(super) fn on_nak(&mut self, now: Instant, wanted: &mut Wanted, lack: Lack) {
        match self {
            Planner::Auto(auto) => auto.on_nak(now, wanted, lack),
            Planner::HandSet(scheme) => scheme.on_nak(now, wanted, lack),
        }
    }

    /// Notes that every client has answered an item's transmissions. The gathered NAKs need not
    /// wait for more.
    pub(super) fn on_all_answered(&mut self, now: Instant, wanted: &mut Wanted, toi: Toi) {
        match self {
            Planner::Auto(auto) => auto.on_all_answered(now, wanted, toi),
            Planner::HandSet(scheme) => scheme.on_all_answered(now, toi),
        }
    }

    /// Forgets a client's answers about an item, because the client names its missing symbols anew.
    pub(super) fn on_want(&mut self, session: SessionId, toi: Toi) {
        if let Planner::Auto(auto) = self {
            auto.forget(session, toi);
        }
    }

    /// Notes that a late client hears the transmissions of these blocks.
    pub(super) fn on_late(
        &mut self,
        now: Instant,
        wanted: &mut Wanted,
        (session, toi): (SessionId, Toi),
        blocks: &[u32],
    ) {
        if let Planner::Auto(_) = self {
            wanted.expect(now, session, toi, blocks);
        }
    }

    /// Forgets a client of an item that others want, too.
    pub(super) fn on_client_gone(&mut self, session: SessionId, toi: Toi) {
        match self {
            Planner::Auto(auto) => auto.forget(session, toi),
            Planner::HandSet(scheme) => scheme.forget(session, toi),
        }
    }

    /// Forgets an item.
    pub(super) fn on_item_gone(&mut self, toi: Toi) {
        match self {
            Planner::Auto(auto) => auto.forget_item(toi),
            Planner::HandSet(scheme) => scheme.forget_item(toi),
        }
    }

    /// Notes that a transmission was cancelled.
    pub(super) fn on_cancelled(&mut self, wanted: &mut Wanted, toi: Toi, purpose: Purpose) {
        if let (Planner::HandSet(scheme), Purpose::Pass) = (self, purpose) {
            scheme.close_segment(wanted, toi);
        }
    }

    /// Notes that a transmission is over. Returns whether error correction may have hidden the
    /// losses of clients that do not complain.
    pub(super) fn on_finished(&mut self, wanted: &mut Wanted, transmission: &Transmission) -> bool {
        match self {
            // A client that has all of an item reports its losses. Error correction may have saved
            // one that completed only some blocks of it.
            Planner::Auto(_) => {
                wanted.get(transmission.toi).is_some_and(|item| item.partition.blocks() > 1)
            }
            Planner::HandSet(scheme) => {
                scheme.on_finished(wanted, transmission);
                true
            }
        }
    }
}
