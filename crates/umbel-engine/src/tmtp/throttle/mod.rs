//! The source's rate: the maximum one, or what its children and the ways to them can take.
//!
//! Both are found from what the children say, and the lower of both rates counts:
//!
//! - `crate::overrun`: packets that reached a child's machine and could not be kept.
//! - `network.rs`: packets that did not reach it. What routers drop because more comes than a link
//!   carries looks like loss at random, and is told from it by trial.
//!
//! Only the source's own children are heard, and most of them have to complain: one slow domain slows
//! the source by back-pressure alone, and one child that lies changes nothing among three.
//!
//! The paper's rate is fixed.

mod network;

use std::time::Duration;

use umbel_wire::tmtp::{Ack, NodeId};

use crate::Instant;
use crate::overrun::Overrun;
use crate::units::Rate;
use network::Network;

/// How many packets the source has sent by the data channel: first sendings, and repairs. They count
/// modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) first: u32,
    pub(super) repairs: u32,
}

/// The rate of a source.
#[derive(Clone, Debug)]
pub(super) struct Throttle {
    overrun: Overrun<NodeId>,
    /// When the rate was last cut for overrun.
    cut: Instant,
    network: Network,
    /// The rate as it was told last.
    told: Rate,
}

impl Throttle {
    /// At most the rate `most`, and at least this share of it.
    pub(super) fn new(most: Rate, least_share: f64) -> Throttle {
        Throttle {
            overrun: Overrun::new(most, least_share),
            cut: Instant::EPOCH,
            network: Network::new(most, least_share),
            told: most,
        }
    }

    /// The present rate.
    pub(super) fn rate(&self) -> Rate {
        self.overrun.rate().min(self.network.rate())
    }

    /// Packets leave by the data channel, of so many bytes; then the source is at `position`.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize, position: Position) {
        self.network.on_sent(now, bytes as u64, position);
    }

    /// A child of the source's own has acknowledged.
    pub(super) fn on_ack(&mut self, now: Instant, id: NodeId, ack: &Ack, t_ack: Duration) {
        let old = now.since(self.cut) < t_ack;
        self.overrun.hear(now, id, (ack.received, ack.overrun), old);
        // What the child's machine dropped is missing too.
        let lost = ack.lost.saturating_sub(ack.overrun);
        let position = Position { first: ack.next_index, repairs: ack.next_repair };
        self.network.on_ack(now, id, (ack.received, lost), position);
    }

    /// The child is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.overrun.forget(&id);
        self.network.forget(id);
    }

    /// Looks every T_ack whether the rate should change, with so many children. `busy` tells
    /// whether data were sent since. Gives the new rate.
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

    /// Looks after an acknowledgement whether it shows something of the network already: trials
    /// are to be short. Gives the new rate.
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

/// The greatest share that more than half of the children tell or exceed; 0 if no more than half
/// tell one.
fn of_most(mut shares: Vec<f64>, children: usize) -> f64 {
    shares.sort_unstable_by(|a, b| b.total_cmp(a));
    shares.get(children / 2).copied().unwrap_or(0.0)
}
