//! Who manages a subnet.

use std::net::SocketAddr;

use rand_core::Rng;
use umbel_wire::tmtp::{Beacon, Body, Dismissal, NodeId, Role};

use super::search::{Candidate, Stage};
use super::{Due, Parent, Tree, TreeEvent, Way};
use crate::Instant;

impl Tree {
    /// A member hears the manager of its subnet.
    pub(super) fn on_managers_beacon(
        &mut self,
        now: Instant,
        sender: NodeId,
        address: SocketAddr,
        beacon: &Beacon,
    ) {
        if !matches!(self.stage, Stage::Subnet { .. }) {
            return;
        }
        self.subnet_heard = Some(now);
        let may_join = !beacon.path.is_empty()
            && self.check_path(&beacon.path).is_ok()
            && self.check_candidate(now, address, beacon.standing).is_ok();
        if may_join {
            let (children, draw) = (beacon.children, self.random.next_u64());
            let depth = beacon.standing.depth;
            let candidate = Candidate { id: sender, address, hops: 1, depth, children, draw };
            self.request(now, candidate, Vec::new());
        }
    }

    /// A manager hears another one in its subnet.
    pub(super) fn on_rival(
        &mut self,
        now: Instant,
        sender: NodeId,
        address: SocketAddr,
        beacon: &Beacon,
    ) {
        let stays = |role: Role, attached: bool, id: NodeId| {
            (role == Role::Source, attached, std::cmp::Reverse(id))
        };
        let attached = !beacon.path.is_empty();
        let below_me = beacon.path.contains(&self.id);
        if below_me
            || stays(self.role, self.is_attached(), self.id) > stays(beacon.role, attached, sender)
        {
            // The other one learns so from this node's beacon.
            return self.beacon_soon(now);
        }
        if self.parent().is_some_and(|parent| parent.address == address)
            && beacon.role != Role::Source
        {
            // A child of the other manager: it goes on as one, but as its member.
            self.lose_parent(now, false);
        }
        self.demote(now);
        self.on_managers_beacon(now, sender, address, beacon);
    }

    /// Another one manages the subnet.
    fn demote(&mut self, now: Instant) {
        if self.role != Role::Manager {
            return;
        }
        if let Some(Parent { address, token, .. }) = self.parent().cloned() {
            let nonce = self.random.next_u64();
            self.due.push_back(Due::Ready(Way::Host(address), Body::LeaveTree { token, nonce }));
            self.events.push_back(TreeEvent::Detached);
        }
        self.stop_managing();
        self.search(now);
    }

    /// Is a member from now on; its children have to find others.
    pub(super) fn stop_managing(&mut self) {
        let children: Vec<NodeId> = self.family.iter().map(|(id, _)| id).collect();
        for id in children {
            self.dismiss(id, Dismissal::Demoted);
        }
        if self.role == Role::Manager {
            self.role = Role::Member;
            self.beacon_at = None;
            self.events.push_back(TreeEvent::StoppedManaging);
        }
    }

    pub(super) fn become_manager(&mut self, now: Instant) {
        self.role = Role::Manager;
        self.has_managed = true;
        self.beaconed = None;
        self.beacon_at = Some(now);
        self.events.push_back(TreeEvent::BecameManager);
        self.search(now);
    }

    /// The application is told once of another source in the same groups.
    pub(super) fn on_rival_source(&mut self, address: SocketAddr) {
        if self.rival.replace(address).is_none() {
            self.events.push_back(TreeEvent::Rival(address));
        }
    }
}
