//! The control plane of a multicast router: the wishes of hosts and neighbours, and the trees that
//! follow from them.
//!
//! ```text
//!   hosts ── IGMPv3, MLDv2 ──▶ membership ─┐                ┌──▶ joins to the neighbour upstream
//!                                          ├──▶ trees ──────┤
//!   neighbours ── PIM joins ──▶ downstream ┘      ▲         └──▶ forwarding: input, outputs
//!                                                 │
//!                                        unicast routes (RPF)
//! ```
//!
//! [`ControlPlane`] takes messages, the interfaces, changes of unicast routing and the time. It
//! gives messages, changes of forwarding, and what hosts offer as repliers of LMS. It has no I/O:
//! the router daemon hosts it on the kernel, tests in virtual time.
//!
//! One rule: after each call that takes the time, drain
//! [`poll_transmit`](ControlPlane::poll_transmit),
//! [`poll_forwarding`](ControlPlane::poll_forwarding) and
//! [`poll_cost`](ControlPlane::poll_cost) until each returns `None`, then read
//! [`poll_timeout`](ControlPlane::poll_timeout). Waking early is harmless.
//!
//! - `membership/`: the querier of IGMP and MLD, and the members, host by host.
//! - `pim/`: neighbours, Join/Prunes, Asserts; `joins.rs` and `contests.rs` bring them to trees.
//! - `trees.rs`: incoming and outgoing interfaces of each channel, and why.
//! - [`config`]: every constant, and the bounds of all tables.
//!
//! # Scope and limitations
//!
//! Source-specific multicast. Some hosts want any source (IGMPv1, IGMPv2, `MLDv1`, or an EXCLUDE
//! record). Outside the range of source-specific groups, they are served with what reaches this
//! router anyway: sources on its links, and channels that others have named. There is no rendezvous
//! point.
//!
//! # Validation
//!
//! `tests/`: scripts against single planes, and a world of several in virtual time that loses
//! messages, changes routes, restarts routers and takes interfaces away.

mod addresses;
mod api;
pub mod config;
mod contests;
mod deadlines;
mod drops;
mod joins;
mod link;
mod membership;
mod pim;
mod prunes;
mod routes;
mod seen;
mod status;
#[cfg(test)]
mod tests;
mod trees;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_engine::chance::Generator;
use umbel_engine::router::InterfaceId;
use umbel_engine::shares::Places;
use umbel_wire::membership::Message;
use umbel_wire::{igmp, mld, pim as wire};

pub use self::api::{
    ControlMessage, ControlTransmit, CostHeard, Family, ForwardingChange, InterfaceAddress,
    InterfaceInfo, NextHop, Protocol, SourceGroup, UnicastRoutes,
};
pub use self::config::{ControlConfig, NamedNeighbour};
pub use self::drops::{DropReason, Drops};
pub use self::pim::PimRole;
pub use self::status::{
    ControlStatus, InterfaceStatus, LinkStatus, MemberStatus, NeighbourStatus, OutputStatus,
    QuerierStatus, TreeStatus,
};

use self::link::Link;
use self::pim::Requests;
use self::prunes::Pruned;
use self::trees::Tree;
use self::work::{Due, LinkId, Timer, Work};

/// The control plane of a multicast router.
#[derive(Debug)]
pub struct ControlPlane {
    config: ControlConfig,
    interfaces: BTreeMap<InterfaceId, InterfaceInfo>,
    links: BTreeMap<LinkId, Link>,
    trees: BTreeMap<SourceGroup, Tree>,
    /// The places of trees. What gives way is the channel that carried packets longest ago.
    places: Places<LinkId, SourceGroup>,
    /// Those of trees that are known by their packets.
    heard: Places<LinkId, SourceGroup>,
    forwarding: VecDeque<ForwardingChange>,
    requests: Requests,
    /// Prunes that will be said again, and how often they were.
    pruned: BTreeMap<Pruned, u8>,
    /// Links on which to say goodbye, after all else has been said.
    goodbyes: VecDeque<LinkId>,
    work: Work,
}

impl ControlPlane {
    /// Creates a control plane without interfaces. The generator must be another one after each
    /// start, since neighbours tell by its draws that the router has restarted.
    pub fn new(config: ControlConfig, random: Generator) -> ControlPlane {
        let bounds = &config.bounds;
        ControlPlane {
            places: Places::new(bounds.trees, bounds.trees),
            heard: Places::new(bounds.heard, bounds.channels_of_host),
            config,
            interfaces: BTreeMap::new(),
            links: BTreeMap::new(),
            trees: BTreeMap::new(),
            forwarding: VecDeque::new(),
            requests: Requests::default(),
            pruned: BTreeMap::new(),
            goodbyes: VecDeque::new(),
            work: Work::new(random),
        }
    }

    /// Begins to serve an interface, or takes over what has changed of it.
    pub fn interface_up(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        interface: InterfaceId,
        info: InterfaceInfo,
    ) {
        let is_new = !self.interfaces.contains_key(&interface);
        if is_new && self.interfaces.len() >= self.config.bounds.interfaces {
            self.work.drop(DropReason::InterfacesOverLimit);
            return;
        }
        for family in [Family::Ipv4, Family::Ipv6] {
            let id = LinkId { interface, family };
            let me = Link::address_of(&info, family);
            if self.links.get(&id).is_some_and(|link| Some(link.me) != me) {
                self.end_link(id);
            }
            let Some(me) = me else { continue };
            let (config, work) = (&self.config, &mut self.work);
            let link = self.links.entry(id);
            let link = link.or_insert_with(|| Link::start(now, id, me, config, work));
            link.describe(now, &info, config, work);
            self.touch_trees_by(id);
        }
        self.interfaces.insert(interface, info);
        self.find_roles(now, routes);
        self.find_routes(routes);
        self.settle(now, routes);
    }

    /// Ends to serve an interface that is down, gone, or no longer wanted.
    pub fn interface_down(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        interface: InterfaceId,
    ) {
        for family in [Family::Ipv4, Family::Ipv6] {
            self.end_link(LinkId { interface, family });
        }
        self.interfaces.remove(&interface);
        self.find_routes(routes);
        self.settle(now, routes);
    }

    /// Finds out on which links PIM is spoken, and with whom.
    fn find_roles(&mut self, now: Instant, routes: &dyn UnicastRoutes) {
        let mut gone = Vec::new();
        for (id, link) in &mut self.links {
            let Some(info) = self.interfaces.get(&id.interface) else { continue };
            let role = PimRole::of(link, &info.name, &self.config.pim, routes);
            if role == *link.neighbours.role() {
                continue;
            }
            let left = link.neighbours.set_role(now, role, &self.config.pim, &mut self.work);
            link.membership.set_alone(link.neighbours.len() == 0);
            link.membership.touch_all(&mut self.work);
            gone.extend(left.into_iter().map(|neighbour| (*id, neighbour)));
        }
        for (link, neighbour) in gone {
            self.on_neighbour_gone(link, neighbour);
        }
    }

    /// Forgets all about a link.
    fn end_link(&mut self, id: LinkId) {
        self.touch_trees_by(id);
        let Some(mut link) = self.links.remove(&id) else { return };
        link.membership.end(&mut self.work);
        self.requests.forget(id);
        self.forget_prunes_on(id);
        self.work.timers.cancel_all(|timer| timer.is_of_link(id));
        for (channel, tree) in &mut self.trees {
            if Family::of(channel.group) != id.family {
                continue;
            }
            let on = id.interface;
            if tree.downstream.remove(&on).is_some() {
                self.work.timers.cancel(Timer::Downstream(*channel, on));
                self.work.changed.insert(*channel);
            }
            if tree.asserts.remove(&on).is_some() {
                self.work.timers.cancel(Timer::Assert(*channel, on));
                self.work.changed.insert(*channel);
            }
            if tree.seen.remove(&on) {
                self.work.timers.cancel(Timer::Seen(*channel, on));
            }
        }
    }

    /// Takes in a message of IGMP, MLD or PIM. An invalid one is a counted drop.
    pub fn handle_message(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        message: ControlMessage<'_>,
    ) {
        if let Err(reason) = self.on_message(now, routes, message) {
            self.work.drop(reason);
        }
        self.settle(now, routes);
    }

    fn on_message(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        message: ControlMessage<'_>,
    ) -> Result<(), DropReason> {
        let ControlMessage { interface, from, to, protocol, payload } = message;
        let id = LinkId { interface, family: Family::of(from) };
        let link = self.links.get_mut(&id).ok_or(DropReason::NoSuchInterface)?;
        if link.neighbours.is_mine(from) {
            return Err(DropReason::Own);
        }
        // A host that has no address yet speaks IGMP all the same [RFC 3376 §4.2.13].
        let is_nameless = from.is_unspecified() && protocol == Protocol::Igmp;
        if !is_nameless && !link.is_on_link(from, routes) {
            return Err(DropReason::OffLink);
        }
        let malformed = |_| DropReason::Malformed;
        if protocol == Protocol::Pim {
            let is_named = link.neighbours.is_named(from);
            let is_vouched = is_named || routes.is_gateway(interface, from);
            if !link.neighbours.admits(now, from, is_vouched) {
                return Err(DropReason::Flood);
            }
            let message = wire::parse(payload, from, to).map_err(malformed)?;
            if !link.neighbours.accepts(from) {
                return Err(DropReason::NotNamed);
            }
            match message {
                Some(wire::Message::Hello(_)) if !link.neighbours.admits_hello(now, from) => {
                    return Err(DropReason::Flood);
                }
                Some(wire::Message::Hello(hello)) => {
                    self.on_hello(now, id, (from, is_vouched), hello);
                }
                Some(wire::Message::JoinPrune(message)) => {
                    self.on_join_prune(now, routes, (id, from), &message);
                }
                Some(wire::Message::Assert(assert)) => self.on_assert(now, (id, from), &assert),
                None => return Err(DropReason::OtherType),
            }
            return Ok(());
        }
        let parsed = match (protocol, from, to) {
            (Protocol::Igmp, IpAddr::V4(_), _) => igmp::parse(payload),
            (Protocol::Icmpv6, IpAddr::V6(from), IpAddr::V6(to)) => mld::parse(payload, from, to),
            _ => return Err(DropReason::Malformed),
        };
        let message = parsed.map_err(malformed)?.ok_or(DropReason::OtherType)?;
        // Members would be forgotten that have not heard the question.
        if let Message::Query(query) = &message
            && to != query.group.unwrap_or(Link::all_hosts(id.family))
        {
            return Err(DropReason::Unheard);
        }
        let before = link.forwarder(&self.config.pim);
        link.membership.on_message(now, from, message, &self.config, &mut self.work);
        if link.forwarder(&self.config.pim) != before {
            link.membership.touch_all(&mut self.work);
        }
        Ok(())
    }

    /// Looks up all routes again, since unicast routing has changed.
    pub fn routes_changed(&mut self, now: Instant, routes: &dyn UnicastRoutes) {
        self.find_roles(now, routes);
        self.find_routes(routes);
        self.settle(now, routes);
    }

    /// Takes note of a packet for which there was no entry: the kernel's upcall NOCACHE.
    pub fn unresolved(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
        arrived_on: InterfaceId,
    ) {
        let is_known = self.links.contains_key(&LinkId::of(arrived_on, &channel));
        let is_channel = addresses::is_routable_group(channel.group)
            && addresses::is_source(channel.source)
            && Family::of(channel.source) == Family::of(channel.group);
        if !is_known || !is_channel {
            let reason = if is_known { DropReason::LinkGroup } else { DropReason::NoSuchInterface };
            self.work.drop(reason);
            return;
        }
        self.hear(now, routes, channel, arrived_on);
        self.see(now, channel, arrived_on);
        self.settle(now, routes);
    }

    /// Takes note of a packet that arrived on another interface than the entry's input: the
    /// kernel's upcall WRONGVIF. If it is an output, two routers forward to the same link.
    pub fn wrong_interface(
        &mut self,
        now: Instant,
        routes: &dyn UnicastRoutes,
        channel: SourceGroup,
        arrived_on: InterfaceId,
    ) {
        self.see(now, channel, arrived_on);
        self.on_contested(now, channel, arrived_on);
        self.settle(now, routes);
    }

    /// Takes note of the channels that carried packets since it was last told. When places are
    /// scarce, the others go first.
    pub fn carried(&mut self, channels: impl Iterator<Item = SourceGroup>) {
        self.work.live = channels.collect();
        self.work.live.iter().for_each(|channel| self.places.renew(*channel));
    }

    /// Takes leave of the neighbours before an end.
    pub fn leave(&mut self, now: Instant) {
        let joined: Vec<SourceGroup> = self.trees.keys().copied().collect();
        for channel in joined {
            if let Some((link, to)) = self.trees.get_mut(&channel).and_then(|t| t.joined.take()) {
                self.prune(now, channel, link, to);
                self.work.timers.cancel(Timer::Refresh(channel));
            }
        }
        for link in self.links.values().filter(|link| link.neighbours.is_spoken()) {
            let link = &link.id;
            self.goodbyes.push_back(*link);
            self.work.timers.set(Timer::Hello(*link), now + self.config.pim.hello_interval);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant, routes: &dyn UnicastRoutes) {
        while let Some(timer) = self.work.timers.pop_due(now) {
            self.on_timer(now, timer);
        }
        self.settle(now, routes);
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        let (config, work) = (&self.config, &mut self.work);
        match timer {
            Timer::Hello(id) => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.neighbours.on_hello_time(now, &config.pim, work);
                }
            }
            Timer::Querier(id) => {
                if let Some(link) = self.links.get_mut(&id) {
                    let before = link.forwarder(&config.pim);
                    link.membership.on_querier(now, config, work);
                    if link.forwarder(&config.pim) != before {
                        link.membership.touch_all(work);
                    }
                }
            }
            Timer::LastMember(id, group) => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.membership.on_last_member(now, group, config, work);
                }
            }
            Timer::Members(id, group) => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.membership.on_expiry(now, group, work);
                }
            }
            Timer::Neighbour(id, neighbour) => self.on_neighbour_silent(id, neighbour),
            Timer::Downstream(channel, on) => self.on_downstream(now, channel, on),
            Timer::Assert(channel, on) => self.on_assert_time(now, channel, on),
            Timer::Seen(channel, on) => self.on_unseen(channel, on),
            Timer::Refresh(channel) => self.on_refresh(now, channel),
            Timer::Prune(channel, link, to) => self.on_prune_again(now, (channel, link, to)),
            Timer::Heard(channel) => self.forget_heard(channel),
        }
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self) -> Option<ControlTransmit> {
        let pim = &self.config.pim;
        while let Some(due) = self.work.due.pop_front() {
            let holdtime_s = pim.hello_holdtime.as_secs().min(0xFFFE) as u16;
            let (Due::Query(id, _) | Due::Hello(id) | Due::Assert(id, _)) = due;
            let Some(link) = self.links.get(&id) else { continue };
            return Some(match due {
                Due::Query(_, query) => link.query(query),
                Due::Hello(_) => link.hello(holdtime_s, &self.config),
                Due::Assert(_, assert) => link.assert(assert),
            });
        }
        let holdtime_s = pim.join_holdtime.as_secs().min(0xFFFE) as u16;
        let links = &self.links;
        let mtu_of = |id| links.get(&id).map_or(0, |link: &Link| link.mtu);
        while let Some((id, message)) = self.requests.next(holdtime_s, mtu_of) {
            if let Some(link) = links.get(&id) {
                return Some(link.join_prune(message));
            }
        }
        let mut goodbyes = std::iter::from_fn(|| self.goodbyes.pop_front());
        goodbyes.find_map(|id| Some(links.get(&id)?.hello(0, &self.config)))
    }

    /// Returns the next change of what is forwarded.
    pub fn poll_forwarding(&mut self) -> Option<ForwardingChange> {
        self.forwarding.pop_front()
    }

    /// Returns the next news of what hosts offer as repliers of LMS.
    pub fn poll_cost(&mut self) -> Option<CostHeard> {
        self.work.costs.pop_front()
    }

    /// Returns the time at which [`handle_timeout`](ControlPlane::handle_timeout) is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.work.timers.next()
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.work.drops
    }
}
