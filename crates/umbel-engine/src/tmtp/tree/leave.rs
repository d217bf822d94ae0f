//! Leaving the tree [TMTP Fig. 3].

use std::net::SocketAddr;

use rand_core::Rng;
use umbel_wire::tmtp::{Body, NodeId, Role};

use super::search::Stage;
use super::{Arrival, Due, Parting, Tree, TreeEvent, Way};
use crate::Instant;
use crate::tmtp::DropReason;

/// Progress of this node's leaving.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departure {
    /// No more children are accepted.
    retiring: bool,
    /// This node has something to tell its parent before it leaves it.
    held: bool,
}

impl Departure {
    /// Returns whether no more children are accepted.
    pub(super) fn is_retiring(self) -> bool {
        self.retiring
    }

    /// Accepts children again.
    pub(super) fn call_off(&mut self) {
        self.retiring = false;
    }

    /// Notes whether the node has something to tell its parent. Returns whether it is told now.
    fn hold(&mut self, held: bool) -> bool {
        std::mem::replace(&mut self.held, held) && !held
    }
}

/// A parent that has left, as it named itself in FIND_NEW_PARENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departed {
    address: SocketAddr,
    /// Token with which this node proved itself.
    token: u64,
    /// Nonce of the FIND_NEW_PARENT.
    nonce: u64,
}

impl Tree {
    /// Accepts no more children.
    pub(in crate::tmtp) fn retire(&mut self) {
        self.departure.retiring = true;
    }

    /// Leaves: "send FIND_NEW_PARENT message to children, receive FIND_NEW_PARENT reply from all
    /// children, send LEAVE_TREE request to parent, receive LEAVE_CONFIRM, terminate"
    /// [TMTP Fig. 3]. The embedder has fulfilled all pending obligations before. Each wait is
    /// bounded.
    pub(in crate::tmtp) fn leave(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Dissolving { .. } | Stage::Leaving { .. } | Stage::Left) {
            return;
        }
        self.retire();
        self.improvement.stop();
        self.leave_former(now);
        // Others in the subnet are to elect a manager. Otherwise the children would come back.
        self.beacons.stop();
        let parent = match &self.stage {
            Stage::Attached(parent) => Some(parent.clone()),
            _ => None,
        };
        let (nonce, retry) = (self.random.next_u64(), self.config.retry);
        let until = now + self.config.leave_wait;
        self.stage = Stage::Dissolving { parent, nonce, retry, until };
        self.on_dissolving(now);
    }

    /// Keeps a node that leaves with its parent while it has something to tell it.
    pub(in crate::tmtp) fn hold(&mut self, now: Instant, held: bool) {
        if self.departure.hold(held) && self.family.is_empty() {
            self.on_dissolving(now);
        }
    }

    /// Asks the remaining children, or goes on without them.
    pub(super) fn on_dissolving(&mut self, now: Instant) {
        let Stage::Dissolving { parent, nonce, retry, until } = &mut self.stage else { return };
        let held = self.departure.held && parent.is_some();
        if self.family.is_empty() && !held || now >= *until {
            let parent = parent.take();
            self.abandon();
            return match parent {
                Some(parent) => {
                    let nonce = self.random.next_u64();
                    let (parent, token) = (parent.address, parent.token);
                    self.stage = Stage::Leaving { parent, token, nonce, tries: 0 };
                    self.on_leaving(now);
                }
                None => self.on_left(true),
            };
        }
        let nonce = *nonce;
        self.stage_timer = Some((now + *retry).min(*until));
        *retry *= 2;
        for (_, child) in self.family.iter() {
            let body = Body::FindNewParent { token: child.token, nonce };
            self.due.push_back(Due::Ready(Way::Host(child.address), body));
        }
    }

    /// Sends LEAVE_TREE, for the first time or again.
    pub(super) fn on_leaving(&mut self, now: Instant) {
        let Stage::Leaving { parent, token, nonce, tries } = &mut self.stage else { return };
        if *tries >= self.config.tries {
            return self.on_left(false);
        }
        let body = Body::LeaveTree { token: *token, nonce: *nonce };
        self.stage_timer = Some(now + self.config.retry * (1 << (*tries).min(8)));
        *tries += 1;
        let to = *parent;
        self.due.push_back(Due::Ready(Way::Host(to), body));
    }

    fn on_left(&mut self, confirmed: bool) {
        self.stage = Stage::Left;
        self.stage_timer = None;
        self.path.clear();
        if self.role == Role::Manager {
            self.role = Role::Member;
            self.events.push_back(TreeEvent::StoppedManaging);
        }
        self.events.push_back(TreeEvent::Left { confirmed });
    }

    pub(super) fn on_leave_confirm(
        &mut self,
        arrival: Arrival,
        nonce: u64,
    ) -> Result<(), DropReason> {
        if self.on_former_left(arrival.from, nonce) {
            return Ok(());
        }
        match &self.stage {
            Stage::Leaving { parent, nonce: sent, .. }
                if (*parent, *sent) == (arrival.from, nonce) =>
            {
                self.on_left(true);
                Ok(())
            }
            _ => Err(DropReason::NotAsked),
        }
    }

    pub(super) fn on_leave_tree(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        token: u64,
        nonce: u64,
    ) -> Result<(), DropReason> {
        if self.family.authentic(sender, arrival.from, token).is_some() {
            self.part(sender, Parting::Left);
            if self.family.is_empty() {
                self.on_dissolving(now);
            }
        } else if self.family.departed(arrival.from, token).is_none() {
            return Err(DropReason::ForgedChild);
        }
        let confirm = Due::Ready(Way::Host(arrival.from), Body::LeaveConfirm { nonce });
        self.due.push_back(confirm);
        Ok(())
    }

    /// Handles that the parent leaves: "the children then begin the process of joining the tree
    /// all over again" [TMTP, control tree management].
    pub(super) fn on_find_new_parent(
        &mut self,
        now: Instant,
        arrival: Arrival,
        token: u64,
        nonce: u64,
    ) -> Result<(), DropReason> {
        if self.on_former_goes(now, arrival.from, token) {
            return Ok(());
        }
        let departed = Departed { address: arrival.from, token, nonce };
        let leaves_too = self.departure.is_retiring() && self.family.is_empty();
        match &mut self.stage {
            // The parent still listens. Who has only to tell how it ended need not look for another
            // one.
            Stage::Attached(parent)
                if leaves_too && (parent.address, parent.token) == (arrival.from, token) =>
            {
                parent.stay(now + self.config.leave_wait);
                self.watch_parent();
                Ok(())
            }
            Stage::Attached(parent) if (parent.address, parent.token) == (arrival.from, token) => {
                self.departed = Some(departed);
                self.lose_parent(now, false);
                Ok(())
            }
            // The parent did not hear the reply.
            _ if self.departed == Some(departed) => {
                if matches!(self.stage, Stage::Attached(_)) {
                    self.answer_departed();
                }
                Ok(())
            }
            _ => Err(DropReason::ForgedParent),
        }
    }

    /// Answers a parent that has left that there is another one.
    pub(super) fn answer_departed(&mut self) {
        if let Some(Departed { address, token, nonce }) = self.departed {
            let body = Body::FindNewParentReply { token, nonce };
            self.due.push_back(Due::Ready(Way::Host(address), body));
        }
    }

    pub(super) fn on_find_new_parent_reply(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        token: u64,
    ) -> Result<(), DropReason> {
        if self.family.authentic(sender, arrival.from, token).is_some() {
            self.part(sender, Parting::Left);
            if self.family.is_empty() {
                self.on_dissolving(now);
            }
        } else if self.family.departed(arrival.from, token).is_none() {
            return Err(DropReason::ForgedChild);
        }
        Ok(())
    }
}
