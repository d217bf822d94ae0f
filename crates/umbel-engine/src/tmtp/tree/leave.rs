//! Leaving the tree [TMTP Fig. 3].

use rand_core::Rng;
use umbel_wire::tmtp::{Body, NodeId, Role};

use super::search::Stage;
use super::{Arrival, Due, Parting, Tree, TreeEvent, Way};
use crate::Instant;
use crate::tmtp::DropReason;

impl Tree {
    /// Leaves: "send FIND_NEW_PARENT message to children, receive FIND_NEW_PARENT reply from all
    /// children, send LEAVE_TREE request to parent, receive LEAVE_CONFIRM, terminate"
    /// [TMTP Fig. 3]. The embedder has fulfilled all pending obligations before. Each wait is
    /// bounded.
    pub(in crate::tmtp) fn leave(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Dissolving { .. } | Stage::Leaving { .. } | Stage::Left) {
            return;
        }
        self.retiring = true;
        self.improvement.stop();
        self.leave_former(now);
        // Others in the subnet are to elect a manager. Otherwise the children would come back.
        self.beacon_at = None;
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
        let released = self.held && !held;
        self.held = held;
        if released && self.family.is_empty() {
            self.on_dissolving(now);
        }
    }

    /// Asks the remaining children, or goes on without them.
    pub(super) fn on_dissolving(&mut self, now: Instant) {
        let Stage::Dissolving { parent, nonce, retry, until } = &mut self.stage else { return };
        let held = self.held && parent.is_some();
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
        match &self.stage {
            Stage::Attached(parent) if (parent.address, parent.token) == (arrival.from, token) => {
                self.former = Some((arrival.from, token, nonce));
                self.lose_parent(now, false);
                Ok(())
            }
            // The parent did not hear the reply.
            _ if self.former == Some((arrival.from, token, nonce)) => {
                if matches!(self.stage, Stage::Attached(_)) {
                    self.answer_former();
                }
                Ok(())
            }
            _ => Err(DropReason::ForgedParent),
        }
    }

    /// Tells the former parent that there is another one.
    pub(super) fn answer_former(&mut self) {
        if let Some((address, token, nonce)) = self.former {
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
