//! Asserts, as far as trees go: who forwards a channel on a LAN [RFC 7761 §4.6.1].

use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_engine::router::InterfaceId;
use umbel_wire::pim::Assert;

use super::ControlPlane;
use super::api::SourceGroup;
use super::drops::DropReason;
use super::pim::{AssertMetric, AssertState};
use super::trees::Tree;
use super::work::{Due, LinkId, Timer};

impl ControlPlane {
    /// Returns what this router can claim on an interface, if it would forward a channel there.
    fn claim(&self, channel: &SourceGroup, on: InterfaceId) -> Option<AssertMetric> {
        let tree = self.trees.get(channel)?;
        let rpf = tree.rpf.filter(|rpf| rpf.interface != on)?;
        let link = self.links.get(&LinkId::of(on, channel))?;
        let link = Some(link).filter(|link| link.neighbours.is_spoken())?;
        let claim = AssertMetric {
            preference: self.config.pim.assert_preference,
            metric: rpf.metric,
            router: link.me,
        };
        self.is_wanted_on(channel, tree, on).then_some(claim)
    }

    /// Handles a packet that another router forwarded to a link on which this one forwards, too.
    pub(super) fn on_contested(&mut self, now: Instant, channel: SourceGroup, on: InterfaceId) {
        let Some(claim) = self.claim(&channel, on) else { return };
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        match tree.asserts.get(&on) {
            Some(AssertState::Lost { .. }) => {}
            Some(AssertState::Won { said }) if now.since(*said) < self.config.pim.assert_gap => {}
            _ => self.say(now, channel, on, &claim),
        }
    }

    /// Claims to be the forwarder.
    fn say(&mut self, now: Instant, channel: SourceGroup, on: InterfaceId, claim: &AssertMetric) {
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        let config = &self.config.pim;
        tree.asserts.insert(on, AssertState::Won { said: now });
        let link = LinkId::of(on, &channel);
        self.work.due.push_back(Due::Assert(link, claim.claim(&channel)));
        let again = config.assert_time.saturating_sub(config.assert_override_interval);
        self.work.timers.set(Timer::Assert(channel, on), now + again);
        self.work.changed.insert(channel);
    }

    /// Takes in a neighbour's Assert.
    pub(super) fn on_assert(
        &mut self,
        now: Instant,
        (link, from): (LinkId, IpAddr),
        assert: &Assert,
    ) {
        if !self.links.get(&link).is_some_and(|of| of.neighbours.contains(from)) {
            self.work.drop(DropReason::NoNeighbour);
            return;
        }
        if assert.shared || assert.source.is_unspecified() {
            self.work.drop(DropReason::SharedTree);
            return;
        }
        let channel = SourceGroup { group: assert.group, source: assert.source };
        let on = link.interface;
        let theirs = AssertMetric::of(from, assert);
        let claim = self.claim(&channel, on);
        let config = &self.config.pim;
        let (until, gap) = (now + config.assert_time, config.assert_gap);
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        let is_upstream = tree.rpf.is_some_and(|rpf| rpf.interface == on);
        let best = match tree.asserts.get(&on) {
            Some(AssertState::Lost { winner, .. }) => Some(*winner),
            _ => claim,
        };
        let is_winner = best.is_some_and(|best| best.router == from);
        if theirs.is_cancel() || (is_winner && claim.is_some_and(|mine| mine.beats(&theirs))) {
            // The winner gives up, or is no longer better.
            if is_winner {
                tree.asserts.remove(&on);
                self.work.timers.cancel(Timer::Assert(channel, on));
                self.work.changed.insert(channel);
            }
        } else if is_winner || best.is_none_or(|best| theirs.beats(&best)) {
            if claim.is_some() || is_upstream {
                tree.asserts.insert(on, AssertState::Lost { winner: theirs, until });
                self.work.timers.set(Timer::Assert(channel, on), until);
                self.work.changed.insert(channel);
            }
        } else if let Some(claim) = claim.filter(|claim| Some(*claim) == best) {
            let said = match tree.asserts.get(&on) {
                Some(AssertState::Won { said }) => Some(*said),
                _ => None,
            };
            if said.is_none_or(|said| now.since(said) >= gap) {
                self.say(now, channel, on, &claim);
            }
        }
    }

    /// Repeats a claim, or forgets that of another.
    pub(super) fn on_assert_time(&mut self, now: Instant, channel: SourceGroup, on: InterfaceId) {
        let claim = self.claim(&channel, on);
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        let is_winner = matches!(tree.asserts.get(&on), Some(AssertState::Won { .. }));
        if let Some(claim) = claim.filter(|_| is_winner) {
            self.say(now, channel, on, &claim);
        } else {
            tree.asserts.remove(&on);
            self.work.changed.insert(channel);
        }
    }

    /// Ends Asserts on interfaces to which the channel does not go any more.
    pub(super) fn keep_asserts(&mut self, channel: &SourceGroup, tree: &mut Tree) {
        let input = tree.rpf.map(|rpf| rpf.interface);
        let over: Vec<(InterfaceId, AssertState)> = tree
            .asserts
            .iter()
            .filter(|&(&on, state)| match state {
                AssertState::Won { .. } => {
                    Some(on) == input || !self.is_wanted_on(channel, tree, on)
                }
                AssertState::Lost { .. } => {
                    Some(on) != input && !self.is_wanted_on(channel, tree, on)
                }
            })
            .map(|(on, state)| (*on, *state))
            .collect();
        for (on, state) in over {
            tree.asserts.remove(&on);
            self.work.timers.cancel(Timer::Assert(*channel, on));
            let link = LinkId::of(on, channel);
            if matches!(state, AssertState::Won { .. }) && self.links.contains_key(&link) {
                self.work.due.push_back(Due::Assert(link, AssertMetric::cancel(channel)));
            }
        }
    }
}
