//! A parent's side: joining by algorithm (B) of [TMTP Fig. 2], and giving children up.
//!
//! The children are a [`Family`](super::family::Family). The rest of this side's state is
//! [`Answers`](super::Answers), which bound the answers to strangers, and the hosts barred as slow.
//! Whether a child is taken follows from the node's own place, hence the methods of [`Tree`].

use std::net::SocketAddr;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::tmtp::{
    Body, Dismissal, JoinConfirm, JoinRequest, NodeId, Refusal, Role, Search, Willing, limits,
};

use super::family::Child;
use super::{Arrival, Due, Outlook, Parting, Tree, TreeEvent, UNICAST_HOPS, Way};
use crate::Instant;
use crate::tmtp::DropReason;

/// Most receivers of a source without a tree, a bound of memory.
const MAX_FLAT: usize = u16::MAX as usize;

impl Tree {
    /// Answers a search: "All existing domain managers that receive the SEARCH_FOR_PARENT message
    /// will respond … unless they already support the maximum number of children" [TMTP, control
    /// tree management].
    pub(super) fn on_search(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        search: Search,
    ) -> Result<(), DropReason> {
        if self.flat {
            return Err(DropReason::Unexpected);
        }
        let hops = Tree::hops(arrival, search.hop_limit)?.unwrap_or(search.hop_limit);
        let mut address = arrival.from;
        address.set_port(search.port);
        let is_too_deep = |depth: u16| self.path.len() > usize::from(depth);
        if search.less_deep_than.is_some_and(is_too_deep)
            || self.refusal_of(sender, search.role, Some(hops)).is_some()
        {
            return Ok(());
        }
        // A node that failed as a parent may be a child.
        if self.slow.is_barred(now, address.ip()) {
            return Err(DropReason::Barred);
        }
        if !self.answers.may_leave(now, address.ip()) {
            return Err(DropReason::OverLimit);
        }
        let willing = Willing {
            nonce: search.nonce,
            hop_limit: UNICAST_HOPS,
            role: self.role,
            children: self.family.managers(),
            standing: self.standing_at(now),
        };
        self.due.push_back(Due::Ready(Way::Host(address), Body::Willing(willing)));
        Ok(())
    }

    /// Returns why this node does not accept another as its child.
    /// What comes by unicast may come from anywhere, and has no `hops`.
    fn refusal_of(&self, child: NodeId, role: Role, hops: Option<u8>) -> Option<Refusal> {
        let depth = self.path.len();
        let known = self.family.get(child).is_some_and(|known| known.role == role);
        let full = match role {
            Role::Member if self.flat => self.family.members() >= MAX_FLAT,
            Role::Member => self.family.members() >= usize::from(self.config.max_members),
            _ if self.flat => true,
            _ => self.family.managers() >= self.config.max_children,
        };
        if self.role == Role::Member || !self.is_attached() || depth >= limits::PATH {
            Some(Refusal::Detached)
        } else if self.departure.is_retiring() {
            Some(Refusal::Leaving)
        } else if self.path.contains(&child) {
            Some(Refusal::Loop)
        } else if hops
            .is_some_and(|hops| hops > self.scope || role == Role::Member && hops > 1 && !self.flat)
        {
            Some(Refusal::TooFar)
        } else {
            (full && !known).then_some(Refusal::Full)
        }
    }

    /// Returns whether one host has as many children here as it may.
    fn is_crowded(&self, arrival: Arrival, child: NodeId) -> bool {
        self.family.get(child).is_none()
            && self.family.at(arrival.from.ip()) >= usize::from(self.config.max_per_host)
    }

    pub(super) fn on_request(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        request: &JoinRequest,
    ) -> Result<(), DropReason> {
        // The child measured the direction that repairs take. It is believed only about the
        // distance.
        let hops = match Tree::hops(arrival, request.hop_limit)? {
            Some(hops) => hops.max(request.hops.min(hops.saturating_add(self.config.hop_slack))),
            None => request.hops,
        };
        if !self.answers.may_leave(now, arrival.from.ip()) {
            return Err(DropReason::OverLimit);
        }
        // Such a child is the source's alone. Its distance is no matter of the group.
        let by_unicast = request.by_unicast;
        if by_unicast && (self.role != Role::Source || request.role != Role::Member) {
            return Err(DropReason::Unexpected);
        }
        let hops = if by_unicast { 1 } else { hops };
        let refusal = if !self.standing_at(now).may_be_above(request.standing) {
            Some(Refusal::Loop)
        } else if !by_unicast && self.slow.is_barred(now, arrival.from.ip())
            || self.is_crowded(arrival, sender)
        {
            Some(Refusal::Full)
        } else {
            self.refusal_of(sender, request.role, (!by_unicast).then_some(hops))
        };
        if let Some(reason) = refusal {
            let body = Body::JoinRefused { nonce: request.nonce, reason };
            self.due.push_back(Due::Ready(Way::Host(arrival.from), body));
            return if reason == Refusal::Loop { Err(DropReason::Loop) } else { Ok(()) };
        }
        self.adopt(now, arrival, sender, request, hops)
    }

    fn adopt(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        request: &JoinRequest,
        hops: u8,
    ) -> Result<(), DropReason> {
        let radius = self.radius();
        if self.family.get(sender).is_some_and(|known| known.address != arrival.from) {
            if !self.keyed {
                return Err(DropReason::ForgedChild);
            }
            // Its host has moved.
            self.part(sender, Parting::Left);
        }
        match self.family.get(sender) {
            // The confirmation was lost.
            Some(known) if known.nonce == request.nonce && known.role == request.role => {}
            _ => {
                let child = Child {
                    address: arrival.from,
                    role: request.role,
                    hops,
                    token: self.random.next_u64(),
                    name: request.name.clone(),
                    nonce: request.nonce,
                    from: None,
                    heard: now,
                    by_unicast: request.by_unicast,
                };
                self.family.insert(sender, child);
                self.events.push_back(TreeEvent::ChildJoined { id: sender });
            }
        }
        self.due.push_back(Due::Confirm(sender));
        if self.radius() != radius {
            self.beacon_soon(now);
        }
        Ok(())
    }

    /// Returns the JOIN_CONFIRM for a child; `None` if it has gone, or the feed is unknown. If
    /// the first was lost, the next promises the same blocks.
    pub(super) fn confirm(
        &mut self,
        now: Instant,
        id: NodeId,
        outlook: &Outlook,
    ) -> Option<(Way, Body)> {
        let feed = outlook.feed?;
        let beacon = self.beacon(now, outlook, UNICAST_HOPS);
        let child = self.family.get_mut(id)?;
        let from = *child.from.get_or_insert(outlook.from);
        let confirm = JoinConfirm { nonce: child.nonce, token: child.token, from, feed, beacon };
        Some((Way::Host(child.address), Body::JoinConfirm(Box::new(confirm))))
    }

    /// Checks that a message can be from the child that it names, and notes that the child lives.
    ///
    /// # Errors
    ///
    /// If it is no child's. The sender is told.
    pub(in crate::tmtp) fn check_child(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        token: u64,
    ) -> Result<(), DropReason> {
        if let Some(child) = self.family.authentic(id, from, token) {
            child.heard = now;
            return Ok(());
        }
        if self.family.get(id).is_none() && self.answers.may_leave(now, from.ip()) {
            // The first dismissal may have been lost, or overtaken.
            let reason = self.family.departed(from, token).unwrap_or(Dismissal::Unknown);
            let body = Body::Dismiss { token, reason };
            self.due.push_back(Due::Ready(Way::Host(from), body));
        }
        Err(DropReason::ForgedChild)
    }

    /// Checks that a message by the group can be from the child that it names. The group shows
    /// only its IP address, and every node would read a token.
    ///
    /// # Errors
    ///
    /// If it is no child's.
    pub(in crate::tmtp) fn check_child_in_group(
        &self,
        id: NodeId,
        from: SocketAddr,
    ) -> Result<(), DropReason> {
        match self.family.get(id) {
            Some(child) if child.address.ip() == from.ip() => Ok(()),
            _ => Err(DropReason::ForgedChild),
        }
    }

    /// Returns how often children at the host of this one held up the feed before.
    pub(in crate::tmtp) fn strikes(&self, id: NodeId) -> u8 {
        self.family.get(id).map_or(0, |child| self.slow.times(child.address.ip()))
    }

    /// Gives up a child that holds up the feed, and accepts none from its host for a while.
    pub(in crate::tmtp) fn evict(&mut self, now: Instant, id: NodeId) {
        if let Some(child) = self.family.get(id) {
            self.slow.bar(now, child.address.ip());
        }
        self.dismiss(id, Dismissal::Slow);
    }

    /// Gives up a child and tells it the reason.
    pub(super) fn dismiss(&mut self, id: NodeId, reason: Dismissal) {
        self.dismiss_as(id, reason, Parting::Dismissed);
    }

    fn dismiss_as(&mut self, id: NodeId, reason: Dismissal, why: Parting) {
        let Some(child) = self.family.get(id) else { return };
        let (way, body) = (Way::Host(child.address), Body::Dismiss { token: child.token, reason });
        self.due.push_back(Due::Ready(way, body));
        self.part_as(id, reason, why);
    }

    pub(super) fn part(&mut self, id: NodeId, why: Parting) {
        self.part_as(id, Dismissal::Unknown, why);
    }

    fn part_as(&mut self, id: NodeId, reason: Dismissal, why: Parting) {
        if self.family.remove(id, reason).is_some() {
            self.events.push_back(TreeEvent::ChildLeft { id, why });
        }
    }

    /// Returns how long a child may be silent before it has gone.
    pub(super) fn child_patience(&self) -> Duration {
        let silence = self.timing.t_ack.saturating_mul(self.config.child_silence);
        silence.max(self.config.child_silence_min)
    }

    pub(super) fn dismiss_silent_children(&mut self, now: Instant) {
        let patience = self.child_patience();
        let late = |heard: Instant| now.since(heard) >= patience;
        while self.family.all_heard_since().is_some_and(late)
            && let Some((id, heard)) = self.family.most_silent()
            && late(heard)
        {
            // The child may live and be cut off in one direction only.
            self.dismiss_as(id, Dismissal::Unknown, Parting::Silent);
        }
    }

    /// Gives up the remaining children.
    pub(super) fn abandon(&mut self) {
        let children: Vec<NodeId> = self.family.iter().map(|(id, _)| id).collect();
        for id in children {
            self.part(id, Parting::Dismissed);
        }
    }
}
