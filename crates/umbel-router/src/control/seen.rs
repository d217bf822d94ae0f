//! Packets of a channel that another router forwards to a link.
//!
//! Whoever says that it forwards to a link may lie, or be gone. So this router forwards what hosts
//! there want, until it sees the channel's packets come from another router that has the better
//! claim: the designated router, the querier where PIM is not spoken, or the winner of an Assert.
//! It does so again when it has not seen any for
//! [`seen_lifetime`](super::config::PimConfig::seen_lifetime). A link may thus get a packet twice
//! when a channel begins, and when it was silent for longer.

use umbel_engine::Instant;
use umbel_engine::router::InterfaceId;

use super::ControlPlane;
use super::api::SourceGroup;
use super::work::Timer;

impl ControlPlane {
    /// Notes a packet that came by another interface than that towards its source.
    pub(super) fn see(&mut self, now: Instant, channel: SourceGroup, on: InterfaceId) {
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        if tree.rpf.is_some_and(|rpf| rpf.interface == on) {
            return;
        }
        let until = now + self.config.pim.seen_lifetime;
        self.work.timers.set(Timer::Seen(channel, on), until);
        if tree.seen.insert(on) {
            self.work.changed.insert(channel);
        }
    }

    /// Believes no longer that another router forwards.
    pub(super) fn on_unseen(&mut self, channel: SourceGroup, on: InterfaceId) {
        if self.trees.get_mut(&channel).is_some_and(|tree| tree.seen.remove(&on)) {
            self.work.changed.insert(channel);
        }
    }
}
