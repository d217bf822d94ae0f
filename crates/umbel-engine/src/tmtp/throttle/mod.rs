//! The source's rate: the maximum, or what its children and the paths to them can take.
//!
//! Children's acknowledgements show both, and the lower of both rates counts:
//!
//! - `crate::overrun`: packets that reached a child's machine and could not be kept.
//! - `network`: packets that did not reach it. Packets that routers drop because a link is
//!   overloaded look like random loss. A trial tells them apart.
//!
//! The source hears only its own children, and most of them have to complain. One slow domain
//! slows the source by back-pressure alone, and one child that lies changes nothing among three.
//!
//! The paper's rate is fixed.

mod network;

use std::time::Duration;

use umbel_wire::tmtp::{Ack, NodeId};

use crate::Instant;
use crate::overrun::Overrun;
use crate::units::Rate;
use network::Network;

/// Numbers of packets that the source has sent by the data channel: first sendings, and repairs.
/// They count modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) first: u32,
    pub(super) repairs: u32,
}

/// The rate of a source.
#[derive(Clone, Debug)]
pub(super) struct Throttle {
    overrun: Overrun<NodeId>,
    /// Time at which the rate was last cut for overrun.
    cut: Instant,
    network: Network,
    /// Rate that was last told.
    told: Rate,
}

impl Throttle {
    /// Starts at the rate `most`. The rate never falls below the share `least_share` of it.
    pub(super) fn new(most: Rate, least_share: f64) -> Throttle {
        Throttle {
            overrun: Overrun::new(most, least_share),
            cut: Instant::EPOCH,
            network: Network::new(most, least_share),
            told: most,
        }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        self.overrun.rate().min(self.network.rate())
    }

    /// Notes packets of `bytes` bytes that leave by the data channel. Then the source is at
    /// `position`.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize, position: Position) {
        self.network.on_sent(now, bytes as u64, position);
    }

    /// Handles an acknowledgement of a child of the source's own.
    pub(super) fn on_ack(&mut self, now: Instant, id: NodeId, ack: &Ack, t_ack: Duration) {
        let old = now.since(self.cut) < t_ack;
        self.overrun.hear(now, id, (ack.received, ack.overrun), old);
        // Packets that the child's machine dropped are missing too.
        let lost = ack.lost.saturating_sub(ack.overrun);
        let position = Position { first: ack.next_index, repairs: ack.next_repair };
        self.network.on_ack(now, id, (ack.received, lost), position);
    }

    /// Forgets a child that is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.overrun.forget(&id);
        self.network.forget(id);
    }

    /// Reviews the rate every T_ack, with this number of children. `busy` tells whether data were
    /// sent since. Returns the new rate, if it has changed.
    pub(super) fn review(
        &mut self,
        now: Instant,
        children: usize,
        t_ack: Duration,
        busy: bool,
    ) -> Option<Rate> {
        let before = self.overrun.rate();
        let rate = self.overrun.review(now, children, t_ack * 2, (busy, self.told));
        if rate.is_some_and(|rate| rate < before) {
            self.cut = now;
        }
        self.review_network(now, children, t_ack)
    }

    /// Reviews the network's rate after an acknowledgement, so that trials are short. Returns the
    /// new rate, if it has changed.
    pub(super) fn review_network(
        &mut self,
        now: Instant,
        children: usize,
        t_ack: Duration,
    ) -> Option<Rate> {
        let present = self.told;
        self.network.review(now, children, t_ack, present);
        let rate = self.rate();
        (std::mem::replace(&mut self.told, rate) != rate).then_some(rate)
    }
}

/// Returns the greatest share that more than half of the children tell or exceed; 0 if no more
/// than half tell one.
fn of_most(mut shares: Vec<f64>, children: usize) -> f64 {
    shares.sort_unstable_by(|a, b| b.total_cmp(a));
    shares.get(children / 2).copied().unwrap_or(0.0)
}
