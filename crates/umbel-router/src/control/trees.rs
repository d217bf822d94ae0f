//! Trees: for each channel the interface towards its source, and those on which it goes out.
//!
//! An interface is an output because hosts there want the channel, for which the designated router
//! forwards, or because neighbours there have joined it. All that may change is marked in
//! [`Work`](super::work::Work); `ControlPlane::settle` then brings joins and forwarding in step.

use std::collections::BTreeMap;
use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::router::InterfaceId;

use super::ControlPlane;
use super::addresses;
use super::api::{Family, ForwardingChange, NextHop, SourceGroup, UnicastRoutes};
use super::drops::DropReason;
use super::pim::AssertState;
use super::work::{LinkId, Timer, Work};

/// Joins of a channel by neighbours on one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Downstream {
    /// Neighbours that have joined, with the times until which they are believed.
    pub(super) joined: BTreeMap<IpAddr, Instant>,
    /// Time at which the prune of the last takes effect.
    pub(super) prune_at: Option<Instant>,
}

impl Downstream {
    pub(super) fn neighbours(&self) -> Vec<IpAddr> {
        self.joined.keys().copied().collect()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.joined.values().copied().chain(self.prune_at).min()
    }

    /// Returns whether nobody wants the channel here, not even until a prune takes effect.
    pub(super) fn is_over(&self) -> bool {
        self.joined.is_empty() && self.prune_at.is_none()
    }
}

/// State of one channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// The way to the source by unicast routing.
    pub(super) rpf: Option<NextHop>,
    pub(super) downstream: BTreeMap<InterfaceId, Downstream>,
    pub(super) asserts: BTreeMap<InterfaceId, AssertState>,
    /// Interface on which packets arrived that no tree was there for.
    pub(super) heard: Option<InterfaceId>,
    /// The neighbour that was asked for the channel.
    pub(super) joined: Option<(LinkId, IpAddr)>,
    /// The forwarding entry: input and outputs, ascending.
    pub(super) forwarding: Option<(InterfaceId, Vec<InterfaceId>)>,
}

impl Tree {
    /// Returns whether the channel goes out on this interface.
    pub(super) fn is_output(&self, interface: InterfaceId) -> bool {
        self.outputs().binary_search(&interface).is_ok()
    }

    /// Returns the interfaces on which the channel goes out, ascending.
    pub(super) fn outputs(&self) -> &[InterfaceId] {
        self.forwarding.as_ref().map_or(&[], |(_, outputs)| outputs)
    }

    fn lost_to(&self, interface: InterfaceId) -> Option<IpAddr> {
        match self.asserts.get(&interface) {
            Some(AssertState::Lost { winner, .. }) => Some(winner.router),
            _ => None,
        }
    }

    /// Sets the timer for the next change of the joins on an interface.
    pub(super) fn wait(&self, channel: SourceGroup, on: InterfaceId, work: &mut Work) {
        let next = self.downstream.get(&on).and_then(Downstream::next);
        work.timers.put(Timer::Downstream(channel, on), next);
    }
}

impl ControlPlane {
    /// Brings joins and forwarding in step with all that has changed.
    pub(super) fn settle(&mut self, now: Instant, routes: &dyn UnicastRoutes) {
        loop {
            while let Some(group) = self.work.changed_groups.pop_first() {
                let from = SourceGroup { group, source: [0; 4].into() };
                let channels = self.trees.range(from..).map(|(channel, _)| *channel);
                self.work.changed.extend(channels.take_while(|channel| channel.group == group));
            }
            let Some(channel) = self.work.changed.pop_first() else { return };
            self.update(now, routes, channel);
        }
    }

    /// Returns the state of a channel. It is created if there is room.
    pub(super) fn tree(
        &mut self,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
    ) -> Option<&mut Tree> {
        if !self.trees.contains_key(&channel) {
            if self.trees.len() >= self.config.bounds.trees {
                self.work.drop(DropReason::TreesOverLimit);
                return None;
            }
            let rpf = routes.towards(channel.source);
            self.trees.insert(channel, Tree { rpf, ..Tree::default() });
        }
        self.trees.get_mut(&channel)
    }

    /// Notes that packets of a channel arrived for which there is no entry.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
        on: InterfaceId,
    ) {
        let is_known = self.trees.get(&channel).is_some_and(|tree| tree.heard.is_some());
        if !is_known && self.heard >= self.config.bounds.heard {
            self.work.drop(DropReason::TreesOverLimit);
            return;
        }
        let lifetime = self.config.heard_lifetime;
        let Some(tree) = self.tree(routes, channel) else { return };
        tree.heard = Some(on);
        // The host says that it has no entry, even if it was given one before.
        tree.forwarding = None;
        self.heard += usize::from(!is_known);
        self.work.timers.set(Timer::Heard(channel), now + lifetime);
        self.work.changed.insert(channel);
    }

    /// Forgets that packets of a channel arrived.
    pub(super) fn forget_heard(&mut self, channel: SourceGroup) {
        self.work.timers.cancel(Timer::Heard(channel));
        if let Some(tree) = self.trees.get_mut(&channel)
            && tree.heard.take().is_some()
        {
            self.heard = self.heard.saturating_sub(1);
            self.work.changed.insert(channel);
        }
    }

    /// Returns whether hosts or neighbours on an interface want a channel, and this router is the
    /// one to forward, leaving Asserts aside.
    pub(super) fn is_wanted_on(&self, channel: &SourceGroup, tree: &Tree, on: InterfaceId) -> bool {
        let Some(link) = self.links.get(&LinkId::of(on, channel)) else { return false };
        let is_winner = matches!(tree.asserts.get(&on), Some(AssertState::Won { .. }));
        let speaks = || is_winner || link.neighbours.designated(&self.config.pim) == link.me;
        tree.downstream.contains_key(&on) || (link.membership.wants(channel) && speaks())
    }

    /// Brings one channel in step.
    fn update(&mut self, now: Instant, routes: &dyn UnicastRoutes, channel: SourceGroup) {
        let is_named = self.links.values().any(|link| {
            link.family == Family::of(channel.group) && link.membership.names(&channel)
        });
        let can_be = is_named && addresses::is_source(channel.source);
        if !self.trees.contains_key(&channel) && !can_be {
            return;
        }
        // It is created if need be.
        self.tree(routes, channel);
        let Some(mut tree) = self.trees.remove(&channel) else { return };
        let input = tree.rpf.map(|rpf| rpf.interface);
        let is_wanted_on = |on: &InterfaceId| {
            tree.lost_to(*on).is_none() && self.is_wanted_on(&channel, &tree, *on)
        };
        let wanted = self.interfaces.keys().copied().filter(is_wanted_on);
        let mut outputs: Vec<InterfaceId> = wanted.collect();
        // Hosts may be on the LAN towards the source. It is joined for them, and the router there
        // forwards [RFC 7761 §4.1.6].
        let is_wanted = !outputs.is_empty();
        outputs.retain(|on| Some(*on) != input);
        self.keep_asserts(&channel, &mut tree);
        self.join(now, channel, &mut tree, is_wanted);

        // Packets still arrive until those above have heard of it; they are discarded unasked.
        let ended = outputs.is_empty() && !tree.outputs().is_empty();
        if ended && tree.heard.is_none() && self.heard < self.config.bounds.heard {
            tree.heard = tree.forwarding.as_ref().map(|(input, _)| *input);
            self.heard += 1;
            let until = now + self.config.heard_lifetime;
            self.work.timers.set(Timer::Heard(channel), until);
        }
        let forwarding = match input.filter(|_| !outputs.is_empty()) {
            Some(input) => Some((input, outputs)),
            None => tree.heard.map(|on| (input.unwrap_or(on), Vec::new())),
        };
        if forwarding != tree.forwarding {
            self.forwarding.push_back(match &forwarding {
                Some((input, outputs)) => {
                    let (input, outputs) = (*input, outputs.clone());
                    ForwardingChange::Set { channel, input, outputs }
                }
                None => ForwardingChange::Remove { channel },
            });
            tree.forwarding = forwarding;
        }
        let is_over = !is_named && tree.downstream.is_empty() && tree.heard.is_none();
        if is_over {
            if tree.forwarding.is_some() {
                self.forwarding.push_back(ForwardingChange::Remove { channel });
            }
            self.join(now, channel, &mut tree, false);
            tree.asserts.keys().for_each(|on| self.work.timers.cancel(Timer::Assert(channel, *on)));
        } else {
            self.trees.insert(channel, tree);
        }
    }

    /// Joins the neighbour towards the source if the channel is wanted, and prunes the one before
    /// [RFC 7761 §4.5.5].
    fn join(&mut self, now: Instant, channel: SourceGroup, tree: &mut Tree, wanted: bool) {
        let towards = tree.rpf.filter(|_| wanted).and_then(|rpf| {
            let id = LinkId::of(rpf.interface, &channel);
            let neighbours = &self.links.get(&id)?.neighbours;
            // The winner of an Assert on that LAN is the one to ask.
            let winner = tree.lost_to(rpf.interface).filter(|winner| neighbours.contains(*winner));
            Some((id, winner.or_else(|| neighbours.find(rpf.gateway?))?))
        });
        if towards == tree.joined {
            return;
        }
        if let Some((link, before)) = tree.joined {
            self.prune(now, channel, link, before);
        }
        tree.joined = towards;
        match towards {
            Some((link, to)) => {
                self.forget_prune((channel, link, to));
                self.requests.join(link, to, channel);
                self.repeat_soon(now, channel);
            }
            None => self.work.timers.cancel(Timer::Refresh(channel)),
        }
    }

    /// Repeats a new join once before its refresh, since it may be lost.
    pub(super) fn repeat_soon(&mut self, now: Instant, channel: SourceGroup) {
        let share = f64::midpoint(1.0, chance::uniform(&mut self.work.random));
        let again = self.config.pim.join_repeat.mul_f64(share);
        self.work.timers.set(Timer::Refresh(channel), now + again);
    }

    /// Repeats joins whose time has come, and those of the same neighbour that would soon follow.
    pub(super) fn on_refresh(&mut self, now: Instant, channel: SourceGroup) {
        let interval = self.config.pim.join_interval;
        let Some(joined) = self.trees.get(&channel).and_then(|tree| tree.joined) else { return };
        let mut channels = vec![channel];
        channels.extend(self.work.timers.until(now + interval / 10).filter_map(|timer| {
            let Timer::Refresh(other) = timer else { return None };
            (self.trees.get(&other)?.joined == Some(joined)).then_some(other)
        }));
        for channel in channels {
            self.requests.join(joined.0, joined.1, channel);
            self.work.timers.set(Timer::Refresh(channel), now + interval);
        }
    }

    /// Marks the trees whose source is reached by a link as changed.
    pub(super) fn touch_trees_by(&mut self, id: LinkId) {
        for (channel, tree) in &self.trees {
            let by = tree.rpf.map(|rpf| LinkId::of(rpf.interface, channel));
            if by == Some(id) || tree.joined.is_some_and(|(link, _)| link == id) {
                self.work.changed.insert(*channel);
            }
        }
    }

    /// Asks unicast routing again about all sources.
    pub(super) fn find_routes(&mut self, routes: &dyn UnicastRoutes) {
        for (channel, tree) in &mut self.trees {
            let rpf = routes.towards(channel.source);
            if rpf == tree.rpf {
                continue;
            }
            // Asserts on these LANs were agreed with other metrics.
            for hop in [rpf, tree.rpf].into_iter().flatten() {
                if tree.asserts.remove(&hop.interface).is_some() {
                    self.work.timers.cancel(Timer::Assert(*channel, hop.interface));
                }
            }
            tree.rpf = rpf;
            self.work.changed.insert(*channel);
        }
    }
}
