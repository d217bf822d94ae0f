//! A parent's side of joining: algorithm (B) of [TMTP Fig. 2].

use rand_core::Rng;
use umbel_wire::tmtp::{
    Body, JoinConfirm, JoinRequest, NodeId, Refusal, Role, Search, Willing, limits,
};

use super::family::Child;
use super::{Arrival, Due, Outlook, Tree, TreeEvent, UNICAST_HOPS, Way};
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
            || self.refusal_of(sender, search.role, hops).is_some()
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
    fn refusal_of(&self, child: NodeId, role: Role, hops: u8) -> Option<Refusal> {
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
        } else if self.retiring {
            Some(Refusal::Leaving)
        } else if self.path.contains(&child) {
            Some(Refusal::Loop)
        } else if hops > self.scope || role == Role::Member && hops > 1 && !self.flat {
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
        let refusal = if !self.standing_at(now).may_be_above(request.standing) {
            Some(Refusal::Loop)
        } else if self.slow.is_barred(now, arrival.from.ip()) || self.is_crowded(arrival, sender) {
            Some(Refusal::Full)
        } else {
            self.refusal_of(sender, request.role, hops)
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
        match self.family.get(sender) {
            Some(known) if known.address != arrival.from => return Err(DropReason::ForgedChild),
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
}
