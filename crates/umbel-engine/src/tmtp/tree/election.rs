//! The election of a subnet's manager.

use std::net::SocketAddr;

use rand_core::Rng;
use umbel_wire::tmtp::{Beacon, Body, Dismissal, NodeId, Role};

use super::others::Others;
use super::parent::Parent;
use super::search::{Asked, Candidate, Stage};
use super::{Due, Tree, TreeEvent, Way};
use crate::Instant;
use crate::tmtp::TreeConfig;

/// A node's memory of the elections in its subnet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Election {
    /// A manager of the subnet was heard while the node searches it.
    hears_manager: bool,
    /// This node was a manager once, so others may still take it for their parent.
    has_managed: bool,
    rival: Option<Rival>,
    /// Times that this node gave way to another manager although it had children.
    yielded: u32,
}

/// Another manager in the subnet, which has the better claim.
#[derive(Clone, Copy, Debug)]
struct Rival {
    id: NodeId,
    address: SocketAddr,
    /// Start of the time in which it was heard without a gap.
    since: Instant,
    heard: Instant,
}

impl Election {
    pub(super) fn new(has_managed: bool) -> Election {
        Election { hears_manager: false, has_managed, rival: None, yielded: 0 }
    }

    pub(super) fn has_managed(&self) -> bool {
        self.has_managed
    }

    /// Returns whether a manager was heard since the last call.
    pub(super) fn take_hears_manager(&mut self) -> bool {
        std::mem::take(&mut self.hears_manager)
    }

    /// Returns whether a manager that serves children gives way now. It waits until the other was
    /// heard for a while, and twice as long each time. Otherwise a host with a low number could
    /// take the subnet over again and again.
    fn yields(
        &mut self,
        now: Instant,
        (id, address): (NodeId, SocketAddr),
        config: &TreeConfig,
    ) -> bool {
        let gap = config.beacon_max * config.parent_silence;
        let rival = match self.rival {
            Some(rival)
                if (rival.id, rival.address) == (id, address) && now.since(rival.heard) <= gap =>
            {
                Rival { heard: now, ..rival }
            }
            _ => Rival { id, address, since: now, heard: now },
        };
        let wait = config.takeover.saturating_mul(1 << self.yielded.min(8));
        let yields = now.since(rival.since) >= wait;
        self.yielded += u32::from(yields);
        self.rival = (!yields).then_some(rival);
        yields
    }
}

impl Tree {
    /// Handles a beacon of a subnet's manager, heard by a member.
    pub(super) fn on_managers_beacon(
        &mut self,
        now: Instant,
        sender: NodeId,
        address: SocketAddr,
        beacon: &Beacon,
    ) {
        let Stage::Subnet { nonce, .. } = self.stage else { return };
        self.election.hears_manager = true;
        let may_join = !beacon.path.is_empty()
            && self.check_path(&beacon.path).is_ok()
            && self.check_candidate(now, address, beacon.standing).is_ok();
        if may_join {
            let (children, draw) = (beacon.children, self.random.next_u64());
            let depth = beacon.standing.depth;
            let id = Some(sender);
            let asked = Asked::default();
            let candidate = Candidate { id, address, hops: 1, depth, children, draw, asked };
            self.request(now, candidate, Others::of_subnet(nonce));
        }
    }

    /// Handles a beacon of another manager in the subnet, heard by a manager.
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
            // The other manager learns so from this node's beacon.
            return self.beacon_soon(now);
        }
        let serves = self.is_attached() && !self.family.is_empty();
        if beacon.role != Role::Source
            && serves
            && !self.election.yields(now, (sender, address), &self.config)
        {
            return;
        }
        if self.parent().is_some_and(|parent| parent.address == address)
            && beacon.role != Role::Source
        {
            // A child of the other manager stays one, but as its member.
            self.lose_parent(now, false);
        }
        self.demote(now);
        self.on_managers_beacon(now, sender, address, beacon);
    }

    /// Gives way to another manager of the subnet.
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

    /// Becomes a member. The children have to find other parents.
    pub(super) fn stop_managing(&mut self) {
        let children: Vec<NodeId> = self.family.iter().map(|(id, _)| id).collect();
        for id in children {
            self.dismiss(id, Dismissal::Demoted);
        }
        if self.role == Role::Manager {
            self.role = Role::Member;
            self.improvement.stop();
            self.beacons.stop();
            self.events.push_back(TreeEvent::StoppedManaging);
        }
    }

    pub(super) fn become_manager(&mut self, now: Instant) {
        self.role = Role::Manager;
        self.election.has_managed = true;
        self.beacons.start(now);
        self.events.push_back(TreeEvent::BecameManager);
        self.search(now);
    }

    /// Reports another source in the same groups to the application, once.
    pub(super) fn on_rival_source(&mut self, address: SocketAddr) {
        if self.source.note_rival(address) {
            self.events.push_back(TreeEvent::Rival(address));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rival_is_heard_without_a_gap_and_twice_as_long_each_time() {
        let config = TreeConfig::default();
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let rival = (NodeId(1), SocketAddr::from(([10, 0, 0, 1], 1)));
        let mut election = Election::new(true);
        let mut yields = |ms| election.yields(at(ms), rival, &config);
        assert!(!yields(0) && !yields(900) && yields(1000));
        assert!(!yields(2000) && !yields(3000) && yields(4000), "twice as long");
        assert!(!yields(5000) && !yields(6000), "four times as long");
        assert!(!yields(8000) && !yields(9400) && !yields(10_800), "a gap begins anew");
    }
}
