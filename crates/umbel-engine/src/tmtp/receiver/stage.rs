//! A receiver's place in the group: how it comes and goes.

use umbel_wire::tmtp::{NodeId, ReceiverState};

use super::Receiver;
use crate::symbols::SymbolSink;
use crate::tmtp::api::ReceiverEvent;
use crate::tmtp::tree::Child;
use crate::{Instant, Membership};

/// The receiver's place in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Outside,
    Inside,
    /// The receiver gives its children what they still need, and leaves then.
    Leaving {
        /// Time at which the receiver leaves in any case.
        until: Instant,
        /// The receiver leaves a second parent, because the first failed before it had confirmed,
        /// or there was none in time.
        again: bool,
    },
    /// The receiver has told the tree that it leaves.
    Parting {
        /// The same.
        again: bool,
    },
    Left,
}

impl Stage {
    /// Returns whether the receiver takes part in the group.
    pub(super) fn takes_part(self) -> bool {
        !matches!(self, Stage::Outside | Stage::Left)
    }

    /// Returns whether the receiver is on its way out.
    pub(super) fn is_leaving(self) -> bool {
        matches!(self, Stage::Leaving { .. } | Stage::Parting { .. })
    }

    /// Returns whether the receiver needs blocks, or has children that it does not leave yet.
    pub(super) fn needs_blocks(self) -> bool {
        matches!(self, Stage::Inside | Stage::Leaving { .. })
    }

    /// Returns when the receiver leaves in any case, if it is to leave.
    pub(super) fn leaves_at(self) -> Option<Instant> {
        match self {
            Stage::Leaving { until, .. } => Some(until),
            _ => None,
        }
    }
}

impl<K: SymbolSink> Receiver<K> {
    pub(super) fn join(&mut self, now: Instant) {
        if self.stage == Stage::Outside {
            self.stage = Stage::Inside;
            self.memberships.push_back(Membership::Join(self.config.node.data));
            self.memberships.extend(self.config.node.group().map(Membership::Join));
            self.unicast.begin(now);
            if !self.authentic.begin(now) {
                self.tree.join(now);
            }
        }
    }

    pub(super) fn leave(&mut self, now: Instant) {
        if self.wanted.outcome.is_none() {
            self.report(ReceiverState::Left);
        }
        self.tree.retire();
        if let Some(help) = &mut self.help {
            help.stop();
        }
        let until = now + self.config.tree.leave_wait;
        self.stage = Stage::Leaving { until, again: false };
    }

    pub(super) fn on_left(&mut self, now: Instant, confirmed: bool) {
        let again = self.stage == Stage::Parting { again: true };
        // A receiver that never had a parent knows of none to tell.
        let told = self.reports.is_idle() || self.joined_at.is_none();
        let is_heard = confirmed && told;
        if !is_heard && !again && !self.source.is_gone() {
            // A failed parent may not have passed on what it was told. Another one is told.
            self.reports.restart();
            let until = now + self.config.tree.leave_wait;
            self.stage = Stage::Leaving { until, again: true };
            self.tree.join(now);
            self.tree.retire();
            return;
        }
        self.stage = Stage::Left;
        self.memberships.push_back(Membership::Leave(self.config.node.data));
        self.memberships.extend(self.config.node.group().map(Membership::Leave));
        self.events.push_back(ReceiverEvent::Left);
    }

    /// Leaves the former parent once all blocks have come that the present one does not guarantee.
    pub(super) fn leave_former_if_ready(&mut self, now: Instant) {
        let Some(before) = self.tree.needs_former_before() else { return };
        let joined_at = self.joined_at.unwrap_or(0);
        if self.delivery.reception().first_gap(joined_at) >= before {
            self.tree.leave_former(now);
        }
    }

    /// Leaves the tree once every child holds what this node has for it, and the parent knows what
    /// this node has to report. Leaves also when time is up.
    pub(super) fn leave_if_ready(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Parting { .. }) {
            // Children may have their last words while they look for another parent.
            self.tree.hold(now, !self.reports.is_idle());
        }
        let Stage::Leaving { until, again } = self.stage else { return };
        let given = self.duty.manager().is_none_or(|manager| {
            // The last words of some may follow their acknowledgements.
            let ended = |(child, _): (NodeId, &Child)| self.reports.has_ended(child);
            let expects_words = manager.is_settled()
                && (self.reports.receiving() > 0 || !self.tree.children().all(ended));
            manager.is_acknowledged() && !expects_words
        });
        // An orphan first finds another parent to tell, unless it never had one.
        let orphaned = self.tree.parent().is_none();
        let mute = orphaned && (self.joined_at.is_none() || self.source.is_gone());
        if now >= until || given && (self.reports.is_idle() || mute) {
            self.stage = Stage::Parting { again };
            self.tree.hold(now, !self.reports.is_idle());
            self.tree.leave(now);
            self.settle(now);
        }
    }
}
