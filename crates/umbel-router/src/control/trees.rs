//! Trees: for each channel the interface towards its source, and those on which it goes out.
//!
//! An interface is an output because hosts there want the channel, for which the designated router
//! forwards, or because neighbours there have joined it. All that may change is marked in
//! [`Work`](super::work::Work); `ControlPlane::settle` then brings joins and forwarding in step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::router::InterfaceId;
use umbel_engine::shares::{Origin, Places};

use super::ControlPlane;
use super::addresses;
use super::api::{Family, ForwardingChange, NextHop, SourceGroup, UnicastRoutes};
use super::drops::DropReason;
use super::link::Link;
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
    /// Interfaces to which another router forwards it.
    pub(super) seen: BTreeSet<InterfaceId>,
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

    /// Returns the state of a channel. It is created if there is a place for one of the hosts that
    /// want it, with their links.
    pub(super) fn tree(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
        hosts: &[(LinkId, IpAddr)],
    ) -> Option<&mut Tree> {
        if !self.trees.contains_key(&channel) {
            if !self.take_place(now, channel, hosts) {
                self.work.drop(DropReason::TreesOverLimit);
                return None;
            }
            let rpf = routes.towards(channel.source);
            self.trees.insert(channel, Tree { rpf, ..Tree::default() });
        }
        self.trees.get_mut(&channel)
    }

    /// Takes a place for the first of these hosts that can have one. The tree that loses its place
    /// may have one by another host that wants it.
    fn take_place(
        &mut self,
        now: Instant,
        channel: SourceGroup,
        hosts: &[(LinkId, IpAddr)],
    ) -> bool {
        let enter = |places: &mut Places<_, _>, channel, hosts: &[(LinkId, IpAddr)]| {
            let enter = |&(link, host)| places.enter(link, Origin::alone(host), channel).ok();
            hosts.iter().find_map(enter)
        };
        let Some(mut lost) = enter(&mut self.places, channel, hosts) else { return false };
        // It ends, since each loss makes the shares more even.
        while let Some(loser) = lost {
            let others = self.claimants(&loser);
            lost = enter(&mut self.places, loser, &others).unwrap_or_else(|| {
                self.work.drop(DropReason::GaveWay);
                self.end_tree(now, loser);
                None
            });
        }
        true
    }

    /// Returns the hosts and neighbours that want a channel, with their links.
    fn claimants(&self, channel: &SourceGroup) -> Vec<(LinkId, IpAddr)> {
        let mut claimants = self.members(channel);
        if let Some(tree) = self.trees.get(channel) {
            for (on, downstream) in &tree.downstream {
                let link = LinkId::of(*on, channel);
                claimants.extend(downstream.joined.keys().map(|neighbour| (link, *neighbour)));
            }
            let heard = tree.heard.map(|on| (LinkId::of(on, channel), channel.source));
            claimants.extend(heard);
        }
        claimants
    }

    /// Returns the hosts that have named a channel, with their links.
    fn members(&self, channel: &SourceGroup) -> Vec<(LinkId, IpAddr)> {
        let links = self.links.values().filter(|link| link.family == Family::of(channel.group));
        let members = |link: &Link| {
            let (id, members) = (link.id, link.membership.who_names(channel));
            members.map(|host| (id, host)).collect::<Vec<_>>()
        };
        links.flat_map(members).collect()
    }

    /// Forgets a channel, whoever wants it.
    fn end_tree(&mut self, now: Instant, channel: SourceGroup) {
        self.places.leave(channel);
        self.heard.leave(channel);
        let Some(mut tree) = self.trees.remove(&channel) else { return };
        self.join(now, channel, &mut tree, false);
        for on in tree.downstream.keys() {
            self.work.timers.cancel(Timer::Downstream(channel, *on));
        }
        for on in tree.asserts.keys() {
            self.work.timers.cancel(Timer::Assert(channel, *on));
        }
        for on in &tree.seen {
            self.work.timers.cancel(Timer::Seen(channel, *on));
        }
        self.work.timers.cancel(Timer::Heard(channel));
        if tree.forwarding.is_some() {
            self.forwarding.push_back(ForwardingChange::Remove { channel });
        }
    }

    /// Notes that packets of a channel arrived for which there is no entry.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
        on: InterfaceId,
    ) {
        let claimant = (LinkId::of(on, &channel), channel.source);
        if !self.take_heard(channel, claimant) {
            self.work.drop(DropReason::TreesOverLimit);
            return;
        }
        let lifetime = self.config.heard_lifetime;
        let Some(tree) = self.tree(now, routes, channel, &[claimant]) else {
            self.heard.leave(channel);
            return;
        };
        tree.heard = Some(on);
        // The host says that it has no entry, even if it was given one before.
        tree.forwarding = None;
        self.work.timers.set(Timer::Heard(channel), now + lifetime);
        self.work.changed.insert(channel);
    }

    /// Takes a place among the channels that are known by their packets.
    fn take_heard(&mut self, channel: SourceGroup, (link, host): (LinkId, IpAddr)) -> bool {
        let lost = self.heard.enter(link, Origin::alone(host), channel);
        if let Ok(Some(lost)) = lost {
            self.forget_heard(lost);
        }
        lost.is_ok()
    }

    /// Forgets that packets of a channel arrived.
    pub(super) fn forget_heard(&mut self, channel: SourceGroup) {
        self.work.timers.cancel(Timer::Heard(channel));
        self.heard.leave(channel);
        if let Some(tree) = self.trees.get_mut(&channel)
            && tree.heard.take().is_some()
        {
            self.work.changed.insert(channel);
        }
    }

    /// Returns whether hosts or neighbours on an interface want a channel, and this router is the
    /// one to forward, leaving Asserts aside.
    pub(super) fn is_wanted_on(&self, channel: &SourceGroup, tree: &Tree, on: InterfaceId) -> bool {
        let Some(link) = self.links.get(&LinkId::of(on, channel)) else { return false };
        let is_winner = matches!(tree.asserts.get(&on), Some(AssertState::Won { .. }));
        let is_input = tree.rpf.is_some_and(|rpf| rpf.interface == on);
        let speaks = || {
            is_winner
                || link.forwarder(&self.config.pim) == link.me
                || (!is_input && !tree.seen.contains(&on))
        };
        tree.downstream.contains_key(&on) || (link.membership.wants(channel) && speaks())
    }

    /// Brings one channel in step.
    fn update(&mut self, now: Instant, routes: &dyn UnicastRoutes, channel: SourceGroup) {
        let members = self.members(&channel);
        let is_named = !members.is_empty();
        let can_be = is_named && addresses::is_source(channel.source);
        if !self.trees.contains_key(&channel) && !can_be {
            return;
        }
        // It is created if need be.
        self.tree(now, routes, channel, &members);
        let Some(mut tree) = self.trees.remove(&channel) else { return };
        let input = tree.rpf.map(|rpf| rpf.interface);
        let is_wanted_on = |on: &InterfaceId| {
            let is_lost = tree.lost_to(*on).is_some() && tree.seen.contains(on);
            !is_lost && self.is_wanted_on(&channel, &tree, *on)
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
        let before = tree.forwarding.as_ref().map(|(input, _)| *input);
        if let Some(on) = before.filter(|_| ended && tree.heard.is_none())
            && self.take_heard(channel, (LinkId::of(on, &channel), channel.source))
        {
            tree.heard = Some(on);
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
            tree.seen.iter().for_each(|on| self.work.timers.cancel(Timer::Seen(channel, *on)));
            self.places.leave(channel);
        } else {
            self.trees.insert(channel, tree);
            self.keep_place(now, channel);
        }
    }

    /// Moves the place of a channel to a link that wants it, if that of its link does not any more.
    fn keep_place(&mut self, now: Instant, channel: SourceGroup) {
        let claimants = self.claimants(&channel);
        let owner = self.places.owner(&channel);
        if claimants.is_empty() || claimants.iter().any(|(link, _)| Some(*link) == owner) {
            return;
        }
        self.places.leave(channel);
        // There is one free now.
        self.take_place(now, channel, &claimants);
    }

    /// Joins the neighbour towards the source if the channel is wanted, and prunes the one before
    /// [RFC 7761 §4.5.5].
    fn join(&mut self, now: Instant, channel: SourceGroup, tree: &mut Tree, wanted: bool) {
        let towards = tree.rpf.filter(|_| wanted).and_then(|rpf| {
            let id = LinkId::of(rpf.interface, &channel);
            let link = self.links.get(&id)?;
            // The winner of an Assert on that LAN is the one to ask.
            let winner = tree.lost_to(rpf.interface);
            let winner = winner.filter(|winner| link.neighbours.contains(*winner));
            Some((id, winner.or_else(|| link.towards(channel.source, rpf.gateway))?))
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
