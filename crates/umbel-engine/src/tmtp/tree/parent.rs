//! The parent of a node: what the node knows of it, and the watch over it.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tmtp::{Beacon, Dismissal, JoinConfirm, NodeId, limits};

use super::search::{Candidate, Stage};
use super::{Arrival, Tree, TreeEvent};
use crate::Instant;
use crate::tmtp::{DropReason, TreeConfig};

/// Number of beacons that must be lost before a silent parent has failed. Where a fifth is lost on
/// each of two links, that happens to one run of beacons in 3,500.
const LOST_BEACONS: u32 = 8;
/// Number of silences after which a parent has failed even though not all was heard.
const DEAF_PATIENCE: u32 = 16;

/// The parent of a node.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Parent {
    /// Number of the node.
    pub(in crate::tmtp) id: NodeId,
    /// Unicast address of the parent.
    pub(in crate::tmtp) address: SocketAddr,
    /// Token with which this node proves itself.
    pub(in crate::tmtp) token: u64,
    /// Hops from the parent.
    pub(in crate::tmtp) hops: u8,
    /// Multicast radius of the parent's domain, at most the scope.
    pub(in crate::tmtp) radius: u8,
    /// The parent's T_ack.
    t_ack: Duration,
    /// Time at which the parent was last heard.
    heard: Instant,
    /// Time at which the parent last brought a later epoch.
    fresh: Instant,
    /// Time at which something was last not heard, since too much came at once.
    deaf: Option<Instant>,
    /// A beacon of the parent was heard, so its domain's multicast arrives here.
    serves: bool,
}

/// Reason to look for another parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was silent for too long.
    Silent {
        /// It was never heard by multicast, so it may go on answering searches.
        unheard: bool,
    },
    /// It is heard, and cut off from the source.
    CutOff,
}

impl Parent {
    /// Creates the parent that has confirmed itself.
    pub(super) fn new(
        now: Instant,
        (candidate, hops): (&Candidate, u8),
        (id, confirm): (NodeId, &JoinConfirm),
        scope: u8,
    ) -> Parent {
        Parent {
            id,
            address: candidate.address,
            token: confirm.token,
            hops: candidate.hops.min(hops),
            radius: confirm.beacon.radius.min(scope),
            t_ack: confirm.beacon.timing.t_ack,
            heard: now,
            fresh: now,
            deaf: None,
            serves: false,
        }
    }

    fn hear_beacon(&mut self, now: Instant, beacon: &Beacon, scope: u8) {
        self.heard = now;
        self.serves = true;
        self.radius = beacon.radius.min(scope);
        self.t_ack = beacon.timing.t_ack;
    }

    /// Notes that the parent leaves, and listens until then. It sends no more beacons.
    pub(super) fn stay(&mut self, until: Instant) {
        (self.heard, self.fresh) = (until, until);
    }

    /// Returns the silence after which the parent has failed.
    fn silence(&self, config: &TreeConfig) -> Duration {
        let period = self.t_ack.clamp(config.beacon_min, config.beacon_max);
        let silence = self.t_ack.max(period).saturating_mul(config.parent_silence);
        silence.max(period.saturating_mul(LOST_BEACONS)).max(config.parent_silence_min)
    }

    /// Returns when a silence since a time is over. Who does not hear everything cannot tell for so
    /// long, within limits.
    fn over_at(&self, since: Instant, silence: Duration) -> Instant {
        let over = since + silence;
        let deaf = self.deaf.map_or(over, |deaf| deaf + silence);
        over.max(deaf.min(since + silence.saturating_mul(DEAF_PATIENCE)))
    }

    /// Returns when it has been silent, and when cut off, for too long.
    fn limits(&self, config: &TreeConfig) -> (Instant, Instant) {
        let silence = self.silence(config);
        let cut_off = silence.saturating_mul(config.detached_patience);
        (self.over_at(self.heard, silence), self.over_at(self.fresh, cut_off))
    }

    /// Returns when the parent has failed, unless it is heard before.
    fn fails_at(&self, config: &TreeConfig) -> Instant {
        let (silent, cut_off) = self.limits(config);
        silent.min(cut_off)
    }

    /// Returns how the parent has failed, if it has.
    pub(super) fn failure(&self, now: Instant, config: &TreeConfig) -> Option<Failure> {
        let (silent, cut_off) = self.limits(config);
        if now >= silent {
            Some(Failure::Silent { unheard: !self.serves })
        } else if now >= cut_off {
            Some(Failure::CutOff)
        } else {
            None
        }
    }
}

impl Tree {
    /// Checks that a message can be from the parent, and notes that the parent lives. The group
    /// shows only its IP address.
    ///
    /// # Errors
    ///
    /// If it is not the parent's.
    pub(in crate::tmtp) fn check_parent(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
    ) -> Result<(), DropReason> {
        match &mut self.stage {
            Stage::Attached(parent) | Stage::Dissolving { parent: Some(parent), .. }
                if parent.id == id && parent.address.ip() == from.ip() =>
            {
                parent.heard = parent.heard.max(now);
                Ok(())
            }
            _ => Err(DropReason::ForgedParent),
        }
    }

    /// Notes that something of the parent came that is no message: what was fetched.
    pub(in crate::tmtp) fn note_parent_lives(&mut self, now: Instant) {
        if let Stage::Attached(parent) = &mut self.stage {
            parent.heard = parent.heard.max(now);
        }
    }

    /// Notes that something was not heard, since too much came at once. It may have been the
    /// parent's.
    pub(in crate::tmtp) fn note_deafness(&mut self, now: Instant) {
        if let Stage::Attached(parent) = &mut self.stage {
            parent.deaf = Some(now);
        }
    }

    pub(super) fn on_parents_beacon(
        &mut self,
        now: Instant,
        beacon: &Beacon,
    ) -> Result<(), DropReason> {
        let attached = !beacon.path.is_empty();
        let later = beacon.standing.epoch > self.standing.epoch;
        if attached && later {
            self.source.check_epoch(now, beacon.standing.epoch)?;
            if let Err(reason) = self.check_path(&beacon.path) {
                self.lose_parent(now, true);
                return Err(reason);
            }
            if beacon.path.len() >= limits::PATH {
                self.lose_parent(now, false);
                return Ok(());
            }
        }
        let scope = self.scope;
        let Stage::Attached(parent) = &mut self.stage else { return Ok(()) };
        parent.hear_beacon(now, beacon, scope);
        if !attached {
            // Nodes below learn so too.
            if !self.path.is_empty() {
                self.path.clear();
                self.beacon_soon(now);
            }
        } else if later {
            parent.fresh = now;
            self.bars.pardon(parent.address);
            let moved =
                self.path.len() != beacon.path.len() + 1 || !self.path.starts_with(&beacon.path);
            self.standing = beacon.standing.below();
            if moved {
                let is_deeper = self.path.len() <= beacon.path.len();
                self.path.clone_from(&beacon.path);
                self.path.push(self.id);
                self.beacon_soon(now);
                if is_deeper {
                    self.improve_soon(now);
                }
            }
        }
        self.watch_parent();
        Ok(())
    }

    /// Checks on the parent when it may have failed.
    pub(super) fn watch_parent(&mut self) {
        if let Stage::Attached(parent) = &self.stage {
            self.stage_timer = Some(parent.fails_at(&self.config));
        }
    }

    /// Searches for another parent. `bar` tells whether this one is to blame.
    pub(super) fn lose_parent(&mut self, now: Instant, bar: bool) {
        let Some(address) = self.parent().map(|parent| parent.address) else { return };
        if bar {
            self.bars.bar(now, address);
        }
        self.events.push_back(TreeEvent::Detached);
        self.search(now);
        self.beacon_soon(now);
    }

    /// Leaves a parent whose repairs are wrong, and bars its host. Returns its address; `None` if
    /// there is no parent to leave.
    pub(in crate::tmtp) fn leave_liar(&mut self, now: Instant) -> Option<SocketAddr> {
        let Stage::Attached(parent) = &self.stage else { return None };
        let address = parent.address;
        self.liars.bar(now, address.ip());
        self.lose_parent(now, false);
        Some(address)
    }

    pub(super) fn on_dismiss(
        &mut self,
        now: Instant,
        arrival: Arrival,
        token: u64,
        reason: Dismissal,
    ) -> Result<(), DropReason> {
        if self.on_former_goes(now, arrival.from, token) {
            return Ok(());
        }
        let Stage::Attached(parent) = &self.stage else {
            return Err(DropReason::ForgedParent);
        };
        if (parent.address, parent.token) != (arrival.from, token) {
            return Err(DropReason::ForgedParent);
        }
        if reason == Dismissal::Slow {
            // The nodes below are better off elsewhere, and so are others in the subnet.
            self.stop_managing();
            self.improvement.stop();
            self.path.clear();
            self.stage = Stage::Outside;
            self.stage_timer = None;
            self.events.push_back(TreeEvent::Detached);
        } else {
            self.lose_parent(now, false);
        }
        self.events.push_back(TreeEvent::Dismissed(reason));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn parent() -> Parent {
        let address = SocketAddr::from(([10, 0, 0, 1], 5000));
        Parent {
            id: NodeId(1),
            address,
            token: 7,
            hops: 1,
            radius: 1,
            t_ack: Duration::from_millis(100),
            heard: at(0),
            fresh: at(0),
            deaf: None,
            serves: false,
        }
    }

    #[test]
    fn a_silent_parent_fails_and_one_without_later_epochs_is_cut_off() {
        let config = TreeConfig::default();
        let mut parent = parent();
        assert_eq!(parent.fails_at(&config), at(1000));
        assert_eq!(parent.failure(at(999), &config), None);
        assert_eq!(parent.failure(at(1000), &config), Some(Failure::Silent { unheard: true }));
        (parent.heard, parent.serves) = (at(3500), true);
        assert_eq!(parent.fails_at(&config), at(4000));
        assert_eq!(parent.failure(at(4000), &config), Some(Failure::CutOff));
        assert_eq!(parent.failure(at(4500), &config), Some(Failure::Silent { unheard: false }));
    }

    #[test]
    fn a_parent_with_rare_beacons_has_not_failed_before_eight_of_them_are_lost() {
        let config = TreeConfig::default();
        for (t_ack, beacon, silence) in
            [(100, 100, 1_000), (360, 360, 2_880), (500, 500, 4_000), (2_000, 500, 6_000)]
        {
            let parent = Parent { t_ack: Duration::from_millis(t_ack), ..parent() };
            assert_eq!(parent.fails_at(&config), at(silence));
            assert!(silence >= 8 * beacon);
        }
    }

    #[test]
    fn who_does_not_hear_everything_is_patient_with_a_silent_parent_for_a_while() {
        let config = TreeConfig::default();
        let mut parent = parent();
        for ms in (900..=14_900).step_by(1_000) {
            parent.deaf = Some(at(ms));
            assert_eq!(parent.fails_at(&config), at(ms + 1_000));
            assert_eq!(parent.failure(at(ms + 999), &config), None, "{ms}");
            // Once it hears, silence tells something again.
            let silent = Some(Failure::Silent { unheard: true });
            assert_eq!(parent.failure(at(ms + 1_000), &config), silent);
        }
        parent.deaf = Some(at(15_900));
        assert_eq!(parent.fails_at(&config), at(16_000), "there is an end to it");
        (parent.heard, parent.deaf) = (at(3_500), Some(at(3_500)));
        assert_eq!(parent.failure(at(4_499), &config), None, "no news for that long");
    }
}
