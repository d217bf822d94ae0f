//! Prunes to upstream neighbours, which are sent several times. Nobody acknowledges them, and a
//! channel that nobody wants would go on until the last join ends.

use std::net::IpAddr;

use umbel_engine::Instant;

use super::ControlPlane;
use super::api::SourceGroup;
use super::work::{LinkId, Timer};

/// A channel that a neighbour on a link was asked to prune.
pub(super) type Pruned = (SourceGroup, LinkId, IpAddr);

impl ControlPlane {
    /// Asks a neighbour no longer for a channel, now and some times more.
    pub(super) fn prune(&mut self, now: Instant, channel: SourceGroup, link: LinkId, to: IpAddr) {
        if !self.links.get(&link).is_some_and(|link| link.neighbours.contains(to)) {
            return;
        }
        self.requests.prune(link, to, channel);
        // Those beyond the bound end with their joins.
        if self.pruned.len() < self.config.bounds.trees {
            self.pruned.insert((channel, link, to), 0);
            self.work
                .timers
                .set(Timer::Prune(channel, link, to), now + self.config.pim.join_repeat);
        }
    }

    /// Repeats no prune, since the channel is joined again.
    pub(super) fn forget_prune(&mut self, pruned: Pruned) {
        if self.pruned.remove(&pruned).is_some() {
            let (channel, link, to) = pruned;
            self.work.timers.cancel(Timer::Prune(channel, link, to));
        }
    }

    /// Forgets the prunes on a link that ends.
    pub(super) fn forget_prunes_on(&mut self, id: LinkId) {
        self.pruned.retain(|(_, link, _), _| *link != id);
    }

    /// Sends a prune again, and waits twice as long for the next time.
    pub(super) fn on_prune_again(&mut self, now: Instant, pruned: Pruned) {
        let (channel, link, to) = pruned;
        let Some(said) = self.pruned.get_mut(&pruned) else { return };
        *said += 1;
        let (said, most) = (*said, self.config.pim.prune_repeats);
        let is_there = self.links.get(&link).is_some_and(|link| link.neighbours.contains(to));
        if is_there {
            self.requests.prune(link, to, channel);
        }
        if is_there && said < most {
            let wait = self.config.pim.join_repeat.saturating_mul(1 << said.min(16));
            self.work.timers.set(Timer::Prune(channel, link, to), now + wait);
        } else {
            self.pruned.remove(&pruned);
        }
    }
}
