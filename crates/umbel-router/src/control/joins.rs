//! Joins and prunes of neighbours to this router, and those that it overhears [RFC 7761 §4.5].

use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::router::InterfaceId;
use umbel_wire::pim::{self, JoinPrune};

use super::ControlPlane;
use super::addresses;
use super::api::{Family, SourceGroup, UnicastRoutes};
use super::drops::DropReason;
use super::pim::{AssertState, Heard};
use super::trees::Tree;
use super::work::{LinkId, Timer};

/// A holdtime that never ends, in practice.
const FOREVER: Duration = Duration::from_hours(100 * 365 * 24);
/// Range of the time for which an overheard join stands for one's own, over the interval between
/// joins: t_suppressed [RFC 7761 §4.11].
const SUPPRESSED: std::ops::Range<f64> = 1.1..1.4;

/// A join or a prune of one channel by a neighbour.
#[derive(Clone, Copy, Debug)]
struct Request {
    link: LinkId,
    from: IpAddr,
    /// The neighbour that is asked.
    upstream: IpAddr,
    channel: SourceGroup,
    holdtime: Duration,
}

impl ControlPlane {
    /// Does what follows from a Hello.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        link: LinkId,
        (from, is_vouched): (IpAddr, bool),
        hello: pim::Hello,
    ) {
        let Some(of) = self.links.get_mut(&link) else { return };
        let before = of.neighbours.designated(&self.config.pim);
        let from_whom = (from, is_vouched);
        let heard = of.neighbours.on_hello(now, from_whom, hello, &self.config, &mut self.work);
        of.membership.set_alone(of.neighbours.len() == 0);
        if of.neighbours.designated(&self.config.pim) != before {
            of.membership.touch_all(&mut self.work);
        }
        match heard {
            Heard::Known => {}
            Heard::Readdressed => self.touch_trees_by(link),
            Heard::New => self.on_new_neighbour(now, link, from),
            Heard::Gone => self.on_neighbour_gone(link, from),
        }
    }

    /// Sends joins again soon to a neighbour that is new, or has forgotten all that it was told.
    fn on_new_neighbour(&mut self, now: Instant, link: LinkId, from: IpAddr) {
        self.forget_winner(link, from);
        let is_upstream = |tree: &Tree| tree.joined == Some((link, from));
        let joined = self.trees.iter().filter(|(_, tree)| is_upstream(tree));
        for channel in joined.map(|(channel, _)| *channel).collect::<Vec<_>>() {
            self.requests.join(link, from, channel);
            self.repeat_soon(now, channel);
        }
        self.touch_trees_by(link);
    }

    /// Forgets a neighbour that is not heard any more.
    pub(super) fn on_neighbour_silent(&mut self, link: LinkId, neighbour: IpAddr) {
        let Some(of) = self.links.get_mut(&link) else { return };
        let before = of.neighbours.designated(&self.config.pim);
        of.neighbours.forget(neighbour, &mut self.work);
        of.membership.set_alone(of.neighbours.len() == 0);
        if of.neighbours.designated(&self.config.pim) != before {
            of.membership.touch_all(&mut self.work);
        }
        self.on_neighbour_gone(link, neighbour);
    }

    pub(super) fn on_neighbour_gone(&mut self, link: LinkId, neighbour: IpAddr) {
        self.forget_winner(link, neighbour);
        self.touch_trees_by(link);
        let Some(of) = self.links.get(&link) else { return };
        if of.neighbours.len() > 0 {
            // Others may rely on its joins, which they overheard. They end by themselves.
            return;
        }
        let on = link.interface;
        for (channel, tree) in &mut self.trees {
            if Family::of(channel.group) == link.family && tree.downstream.remove(&on).is_some() {
                self.work.timers.cancel(Timer::Downstream(*channel, on));
                self.work.changed.insert(*channel);
            }
        }
    }

    /// Forgets that a neighbour forwards by an Assert.
    fn forget_winner(&mut self, link: LinkId, neighbour: IpAddr) {
        let on = link.interface;
        for (channel, tree) in &mut self.trees {
            if matches!(tree.asserts.get(&on),
                Some(AssertState::Lost { winner, .. }) if winner.router == neighbour)
            {
                tree.asserts.remove(&on);
                self.work.timers.cancel(Timer::Assert(*channel, on));
                self.work.changed.insert(*channel);
            }
        }
    }

    /// Takes in a Join/Prune.
    pub(super) fn on_join_prune(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        (link, from): (LinkId, IpAddr),
        message: &JoinPrune,
    ) {
        let Some(of) = self.links.get(&link) else { return };
        if !of.neighbours.contains(from) {
            self.work.drop(DropReason::NoNeighbour);
            return;
        }
        let is_to_me = of.neighbours.is_mine(message.upstream);
        let holdtime = match message.holdtime_s {
            pim::FOREVER => FOREVER,
            seconds => Duration::from_secs(seconds.into()),
        };
        for group in &message.groups {
            if Family::of(group.group) != link.family || !addresses::is_routable_group(group.group)
            {
                self.work.drop(DropReason::LinkGroup);
                continue;
            }
            let joins = group.joins.iter().map(|source| (source, true));
            let prunes = group.prunes.iter().map(|source| (source, false));
            for (source, is_join) in joins.chain(prunes) {
                if !group.is_specific
                    || !source.is_specific
                    || Family::of(source.source) != link.family
                    || !addresses::is_source(source.source)
                {
                    self.work.drop(DropReason::SharedTree);
                    continue;
                }
                let channel = SourceGroup { group: group.group, source: source.source };
                let upstream = message.upstream;
                let request = Request { link, from, upstream, channel, holdtime };
                match (is_to_me, is_join) {
                    (true, true) => self.on_join(now, routes, request),
                    (true, false) => self.on_prune(now, request),
                    (false, _) => self.on_overheard(now, request, is_join),
                }
            }
        }
    }

    fn on_join(&mut self, now: Instant, routes: &dyn UnicastRoutes, request: Request) {
        let Request { link, from, channel, holdtime, .. } = request;
        let on = link.interface;
        let Some(tree) = self.tree(now, routes, channel, &[(link, from)]) else { return };
        let downstream = tree.downstream.entry(on).or_default();
        let until = now + holdtime;
        let joined = downstream.joined.entry(from).or_insert(until);
        *joined = until.max(*joined);
        downstream.prune_at = None;
        // A neighbour that asks the loser of an Assert wants it to forward [RFC 7761 §4.6.1].
        let lost = matches!(tree.asserts.get(&on), Some(AssertState::Lost { .. }));
        if lost {
            tree.asserts.remove(&on);
        }
        let next = tree.downstream.get(&on).and_then(super::trees::Downstream::next);
        self.work.timers.put(Timer::Downstream(channel, on), next);
        if lost {
            self.work.timers.cancel(Timer::Assert(channel, on));
        }
        self.work.changed.insert(channel);
    }

    fn on_prune(&mut self, now: Instant, request: Request) {
        let Request { link, from, channel, .. } = request;
        let on = link.interface;
        let Some(of) = self.links.get(&link) else { return };
        let delay = of.neighbours.prune_delay(&self.config.pim);
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        let Some(downstream) = tree.downstream.get_mut(&on) else { return };
        downstream.joined.remove(&from);
        if downstream.joined.is_empty() && !delay.is_zero() {
            let at = downstream.prune_at.get_or_insert(now + delay);
            *at = (*at).min(now + delay);
        }
        self.tend_downstream(channel, on);
    }

    /// Takes in what a neighbour asks of another one.
    fn on_overheard(&mut self, now: Instant, request: Request, is_join: bool) {
        let Request { link, upstream, channel, holdtime, .. } = request;
        let Some(tree) = self.trees.get(&channel) else { return };
        let Some(of) = self.links.get(&link) else { return };
        let towards = of.neighbours.find(upstream);
        if tree.joined.is_none() || tree.joined != towards.map(|towards| (link, towards)) {
            return;
        }
        let config = &self.config.pim;
        let timer = Timer::Refresh(channel);
        if is_join {
            // It stands for this router's own.
            let spread = SUPPRESSED.end - SUPPRESSED.start;
            let share = SUPPRESSED.start + spread * chance::uniform(&mut self.work.random);
            let at = now + config.join_interval.mul_f64(share).min(holdtime);
            if self.work.timers.at(timer).is_some_and(|before| before < at) {
                self.work.timers.set(timer, at);
            }
        } else {
            let delay = of.neighbours.override_delay(config, &mut self.work);
            self.work.timers.lower(timer, now + delay);
        }
    }

    /// Ends the joins on an interface whose time is over, and carries out a prune that nobody has
    /// overridden.
    pub(super) fn on_downstream(&mut self, now: Instant, channel: SourceGroup, on: InterfaceId) {
        let id = LinkId::of(on, &channel);
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        let Some(downstream) = tree.downstream.get_mut(&on) else { return };
        downstream.joined.retain(|_, until| *until > now);
        if downstream.prune_at.take_if(|at| *at <= now).is_some()
            && let Some(of) = self.links.get(&id)
        {
            // Routers that missed the prune hear the echo [RFC 7761 §4.5.1].
            self.requests.prune(id, of.me, channel);
        }
        self.tend_downstream(channel, on);
    }

    /// Forgets an interface on which nobody has joined a channel, or waits for its next change.
    fn tend_downstream(&mut self, channel: SourceGroup, on: InterfaceId) {
        let Some(tree) = self.trees.get_mut(&channel) else { return };
        if tree.downstream.get(&on).is_some_and(super::trees::Downstream::is_over) {
            tree.downstream.remove(&on);
        }
        tree.wait(channel, on, &mut self.work);
        self.work.changed.insert(channel);
    }
}
