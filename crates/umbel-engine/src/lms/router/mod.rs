//! LMS in a router: it selects repliers, steers requests, and turns DMCASTs into multicasts on one
//! interface [LMS §II].
//!
//! For each channel the router knows the interface towards the source, from multicast routing, and
//! its replier link, from advertisements. A request's way then depends on where it came from
//! [LMS §II-F]:
//!
//! ```text
//! from a non-replier link ── turning point stamped, if empty ──▶ to the replier
//! from the replier link   ─────────────────────────────────────▶ upstream
//! from upstream           ─────────────────────────────────────▶ to the replier
//! ```
//!
//! The router keeps nothing about a request that passed. It recognizes its own turning points by a
//! tag: a keyed hash of channel, interface and time. The hash is SipHash-2-4, which programs in the
//! kernel can compute, too. A DMCAST from a host that no request was steered to is thus refused.
//!
//! A replier sends DMCASTs only to a router that has answered its ping, since a request may name
//! anybody as the turning point.
//!
//! A neighbour is the next router with LMS, or a receiver if there is none between. It sends its
//! advertisements and requests towards the source, and the first router with LMS takes them.
//! Requests from above are sent to the neighbour by unicast. Hence routers without LMS in between
//! do no harm.

mod anycast;
mod groups;
mod offers;
mod outbox;
mod steering;
mod turning_point;

use std::net::SocketAddr;

use umbel_wire::lms::{Message, Plain, PlainRequest, limits};
use umbel_wire::{Channel, Parsed};

use self::anycast::Services;
use self::groups::{Check, Group, Groups};
use self::offers::{Replier, Step};
use self::outbox::Outbox;
pub use self::steering::{Direction, Steer, Steering};
use self::steering::{stamps_upwards, step};
use self::turning_point::Tags;
use super::api::RouterStats;
use super::config::RouterConfig;
use super::drops::{DropReason, Drops};
use crate::bounds::ROUTER_PONGS;
use crate::bucket::HostLimiter;
use crate::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterEngine, RouterTransmit, Routes,
    Upstream, Verdict,
};
use crate::shares::Origin;
use crate::{Address, Instant};

/// Most hosts whose pings are counted apart.
const PINGING_HOSTS: usize = 1_024;

/// LMS in a router.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    groups: Groups,
    services: Services,
    outbox: Outbox,
    tags: Tags,
    /// Bound on the next work, which is not before it.
    wake_at: Option<Instant>,
    pings: HostLimiter<Origin>,
    drops: Drops,
    stats: RouterStats,
}

/// Side of the tree from which a datagram came, as seen from the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl Router {
    /// Creates a router that knows of no replier yet.
    pub fn new(config: RouterConfig) -> Router {
        Router {
            tags: Tags::new(&config),
            groups: Groups::new(config.channels),
            services: Services::new(config.channels),
            config,
            outbox: Outbox::default(),
            wake_at: None,
            pings: ROUTER_PONGS.limiter(PINGING_HOSTS),
            drops: Drops::default(),
            stats: RouterStats::default(),
        }
    }

    /// Returns the router's counters.
    pub fn stats(&self) -> RouterStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the number of entries of its tables: channels, offers, interfaces, services. None of
    /// them grows with losses.
    pub fn state_len(&self) -> usize {
        let of_group = |group: &Group| 1 + group.offers.len() + group.links.len();
        self.groups.iter().map(|(_, group)| of_group(group)).sum::<usize>() + self.services.len()
    }

    /// Returns the interface and the next hop to the replier of a channel, if there is one.
    pub fn replier(&self, channel: &Channel) -> Option<(InterfaceId, SocketAddr)> {
        let replier = self.groups.get(channel)?.offers.first()?;
        Some((replier.interface, replier.neighbour))
    }

    /// Returns the repliers of all channels: the interface, the next hop, and its cost.
    pub fn repliers(&self) -> impl Iterator<Item = (&Channel, InterfaceId, SocketAddr, u32)> {
        self.groups.iter().filter_map(|(channel, group)| {
            let replier = group.offers.first()?;
            Some((channel, replier.interface, replier.neighbour, replier.cost))
        })
    }

    pub(super) fn drop(&mut self, reason: DropReason) -> Verdict {
        self.drops.count(reason);
        Verdict::Take
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |wake_at| wake_at.min(at)));
    }

    fn send(&mut self, to: RouterDestination, alert: bool, message: &Message<'_>) {
        self.outbox.send(to, alert, message);
    }

    fn send_up(&mut self, channel: &Channel, message: &Message<'_>) {
        if let Some(source) = channel.source {
            let to = RouterDestination::Host(SocketAddr::new(source, channel.port));
            self.send(to, true, message);
        }
    }

    fn is_for_me(&self, datagram: &PassingDatagram<'_>) -> bool {
        matches!(datagram.to, Address::Host(to) if to.ip() == self.config.address.ip())
    }

    /// Returns the side of the router on which a datagram about a channel came in.
    fn side(
        routes: &mut dyn Routes,
        channel: &Channel,
        upstream: Upstream,
        arrived_on: InterfaceId,
    ) -> Option<Side> {
        if upstream == Upstream::Interface(arrived_on) {
            Some(Side::Above)
        } else if routes.is_downstream(channel, arrived_on) {
            Some(Side::Below)
        } else {
            None
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        request: &mut PlainRequest<'_>,
    ) -> Verdict {
        let channel = request.channel();
        let (arrived_on, from) = (datagram.arrived_on, datagram.from);
        let (side, upstream) = match self.place(routes, datagram, &channel, request.hops()) {
            Ok(place) => place,
            Err(verdict) => return verdict,
        };
        // The channel is looked up once, so that what follows borrows single fields.
        let (config, wake_at) = (&self.config, &mut self.wake_at);
        let by = (arrived_on, from.ip());
        let Some(group) = self.groups.entry(now, &channel, by, config, wake_at) else {
            return self.drop(DropReason::OverLimit);
        };
        let link = group.links.entry(arrived_on, config);
        if !link.requests.take(now) {
            return self.drop(DropReason::Flood);
        }
        request.count_hop();
        let step = match side {
            Side::Above => match group.offers.first() {
                Some(replier) => Step::Turn(replier),
                None => return self.drop(DropReason::NoReplier),
            },
            Side::Below => {
                request.set_requestor(from);
                let arrived = (arrived_on, Some(from.ip()));
                let step = step(config, &group.offers, routes, &channel, arrived);
                let stamps = step != Step::Up || stamps_upwards(config, routes, &channel, upstream);
                if stamps && request.turning_point().is_none() {
                    let point = link.turning_point(now, &self.tags, &channel, arrived_on);
                    request.set_turning_point(point);
                }
                step
            }
        };
        let count = match (side, step) {
            (Side::Above, _) => &mut self.stats.sent_down,
            (Side::Below, Step::Turn(_)) => &mut self.stats.turned,
            (Side::Below, Step::Up) => &mut self.stats.sent_up,
        };
        *count += 1;
        match step {
            Step::Turn(replier) if request.replier_failed() => {
                let backup = group.offers.backup(replier.neighbour.ip(), from.ip());
                self.check_replier(now, &channel, replier);
                let instead = match side {
                    Side::Above => Some(backup.unwrap_or(replier)),
                    Side::Below => backup,
                };
                self.outbox.send_request(instead.as_ref(), request);
            }
            Step::Turn(replier) => self.outbox.send_request(Some(&replier), request),
            Step::Up => self.outbox.send_request(None, request),
        }
        Verdict::Take
    }

    /// Returns the side that a request or report came from, if it may pass there. Requests from
    /// above are addressed to this router; others are only passing through.
    fn place(
        &mut self,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        channel: &Channel,
        hops: u8,
    ) -> Result<(Side, Upstream), Verdict> {
        let Some(upstream) = routes.upstream(channel) else {
            return Err(if self.is_for_me(datagram) {
                self.drop(DropReason::OffTree)
            } else {
                Verdict::Forward
            });
        };
        let side = match Router::side(routes, channel, upstream, datagram.arrived_on) {
            Some(Side::Above) if !self.is_for_me(datagram) => return Err(Verdict::Forward),
            Some(side) => side,
            None => return Err(self.drop(DropReason::OffTree)),
        };
        if hops >= limits::HOPS {
            return Err(self.drop(DropReason::Hops));
        }
        Ok((side, upstream))
    }

    fn send_down(&mut self, replier: Replier, message: &Message<'_>) {
        self.send(RouterDestination::Host(replier.neighbour), false, message);
    }

    fn on_report(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        mut message: Message<'_>,
    ) -> Verdict {
        let Message::Report { channel, ref mut hops, .. } = message else { return Verdict::Take };
        let (side, _) = match self.place(routes, datagram, &channel, *hops) {
            Ok(place) => place,
            Err(verdict) => return verdict,
        };
        let (config, wake_at) = (&self.config, &mut self.wake_at);
        let by = (datagram.arrived_on, datagram.from.ip());
        let Some(group) = self.groups.entry(now, &channel, by, config, wake_at) else {
            return self.drop(DropReason::OverLimit);
        };
        if !group.links.entry(datagram.arrived_on, config).requests.take(now) {
            return self.drop(DropReason::Flood);
        }
        *hops += 1;
        let step = match side {
            Side::Above => match group.offers.first() {
                Some(replier) => Step::Turn(replier),
                None => return self.drop(DropReason::NoReplier),
            },
            Side::Below => group.offers.step(datagram.arrived_on, Some(datagram.from.ip())),
        };
        self.stats.reports += 1;
        match step {
            Step::Up => self.send_up(&channel, &message),
            Step::Turn(replier) => self.send_down(replier, &message),
        }
        Verdict::Take
    }

    fn on_advertisement(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        (channel, cost): (Channel, Option<u32>),
    ) -> Verdict {
        let (interface, from) = (datagram.arrived_on, datagram.from);
        let Some(cost) = cost else {
            if let Some(group) = self.groups.get_mut(&channel) {
                group.offers.remove(interface, from.ip());
                self.choose(now, &channel);
                return Verdict::Take;
            }
            return Verdict::Forward;
        };
        let Some(upstream) = routes.upstream(&channel) else { return Verdict::Forward };
        match Router::side(routes, &channel, upstream, interface) {
            Some(Side::Below) => {}
            Some(Side::Above) => return Verdict::Forward,
            None => return self.drop(DropReason::OffTree),
        }
        let expires = now + self.config.offer_lifetime;
        let (config, wake_at) = (&self.config, &mut self.wake_at);
        let by = (interface, from.ip());
        let Some(group) = self.groups.entry(now, &channel, by, config, wake_at) else {
            return self.drop(DropReason::OverLimit);
        };
        if !group.links.entry(interface, config).requests.take(now) {
            return self.drop(DropReason::Flood);
        }
        let gap = config.solicit_gap;
        group.expires = expires;
        group.offers.insert(interface, from, cost, expires);
        let is_checked = |check: &mut Check| check.replier.neighbour.ip() == from.ip();
        if group.check.take_if(is_checked).is_some() {
            group.checked_until = now + gap;
        }
        self.groups.renew(&channel);
        self.wake_by(expires);
        self.choose(now, &channel);
        Verdict::Take
    }

    /// Chooses the replier after a change of the offers, and tells the router above if its cost
    /// changed.
    fn choose(&mut self, now: Instant, channel: &Channel) {
        let RouterConfig { set_size, stickiness, advertise_gap, .. } = self.config;
        let Some(group) = self.groups.get_mut(channel) else { return };
        let is_other = group.offers.choose(set_size, stickiness);
        let cost = group.offers.first().map(|replier| replier.cost);
        if cost != group.advertised {
            let at = now.max(group.advertised_at + advertise_gap);
            group.advertise_at = Some(group.advertise_at.map_or(at, |before| before.min(at)));
            self.wake_by(at);
        }
        self.groups.count_change(is_other);
    }

    /// Advertises this router's replier to the router above.
    fn advertise(&mut self, now: Instant, routes: &mut dyn Routes, channel: &Channel) {
        let next = now + self.config.advertise_every;
        let Some(group) = self.groups.get_mut(channel) else { return };
        let before = group.advertised;
        group.advertised = group.offers.first().map(|replier| replier.cost);
        group.advertised_at = now;
        group.advertise_at = group.advertised.is_some().then_some(next);
        let cost = group.advertised;
        self.wake_by(next);
        let is_last = routes.upstream(channel) == Some(Upstream::Root)
            || channel.source.is_some_and(|source| routes.is_attached(source));
        if !is_last && (before.is_some() || cost.is_some()) {
            self.send_up(channel, &Message::Advertisement { channel: *channel, cost });
        }
    }

    /// Asks a replier that is said to have failed whether it is alive.
    fn check_replier(&mut self, now: Instant, channel: &Channel, replier: Replier) {
        let at = now + self.config.solicit_timeout;
        let Some(group) = self.groups.get_mut(channel) else { return };
        if group.check.is_some() || now < group.checked_until {
            return;
        }
        group.check = Some(Check { replier, asked: 1, at });
        self.send_down(replier, &Message::Solicit { channel: *channel });
        self.wake_by(at);
    }

    /// Handles the end of a check without an answer.
    fn on_no_answer(&mut self, now: Instant, channel: &Channel) {
        let (timeout, solicits) = (self.config.solicit_timeout, self.config.solicits);
        let Some(group) = self.groups.get_mut(channel) else { return };
        let Some(check) = group.check.take_if(|check| check.at <= now) else { return };
        let replier = check.replier;
        if !group.offers.is_chosen(&replier) {
            return;
        }
        if check.asked < solicits {
            let at = now + timeout;
            group.check = Some(Check { asked: check.asked + 1, at, ..check });
            self.send_down(replier, &Message::Solicit { channel: *channel });
            self.wake_by(at);
        } else {
            group.offers.remove(replier.interface, replier.neighbour.ip());
            self.stats.repliers_failed += 1;
            self.choose(now, channel);
        }
    }

    /// Answers a replier that asks whether a turning point is here.
    fn on_ping(&mut self, now: Instant, datagram: &PassingDatagram<'_>) -> Verdict {
        let message = Message::parse(datagram.payload);
        let Ok(Parsed::Message { message: Message::Ping { tsi, nonce }, .. }) = message else {
            return Verdict::Forward;
        };
        let from = datagram.from;
        if !self.pings.take(now, Origin::of(from.ip())) {
            return self.drop(DropReason::Flood);
        }
        self.send(RouterDestination::Host(from), false, &Message::Pong { tsi, nonce });
        Verdict::Take
    }

    fn on_solicit(&mut self, now: Instant, channel: &Channel) -> Verdict {
        let gap = self.config.advertise_gap;
        if let Some(group) = self.groups.get_mut(channel) {
            // The router above is told even if nothing changed, and even if there is no replier.
            group.advertised = group.advertised.or(Some(u32::MAX));
            let at = now.max(group.advertised_at + gap);
            group.advertise_at = Some(at);
            self.wake_by(at);
        }
        Verdict::Take
    }

    /// Does the work that is due for one channel.
    fn tend(&mut self, now: Instant, routes: &mut dyn Routes, channel: &Channel) {
        let Some(group) = self.groups.get_mut(channel) else { return };
        group.offers.expire(now, |interface| routes.is_downstream(channel, interface));
        self.choose(now, channel);
        self.on_no_answer(now, channel);
        let Some(group) = self.groups.get(channel) else { return };
        if group.advertise_at.is_some_and(|at| at <= now) {
            self.advertise(now, routes, channel);
        }
        let Some(group) = self.groups.get(channel) else { return };
        if group.offers.is_empty() && group.advertise_at.is_none() && group.expires <= now {
            self.groups.remove(channel);
            return;
        }
        let check = group.check.as_ref().map(|check| check.at);
        let expires = (group.expires > now).then_some(group.expires);
        let times = [group.offers.next_expiry(), group.advertise_at, check, expires];
        for at in times.into_iter().flatten() {
            self.wake_by(at);
        }
    }
}

impl RouterEngine for Router {
    fn handle_datagram(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict {
        if !Message::is_for_routers(datagram.payload) {
            return if self.is_for_me(&datagram) {
                self.on_ping(now, &datagram)
            } else {
                Verdict::Forward
            };
        }
        match Plain::parse(datagram.payload) {
            Some(Plain::Request(mut request)) => {
                return self.on_request(now, routes, &datagram, &mut request);
            }
            Some(Plain::Dmcast { channel, turning_point, repair }) if self.is_for_me(&datagram) => {
                return self.on_dmcast(now, routes, &datagram, (channel, turning_point), repair);
            }
            _ => {}
        }
        let message = match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message, .. }) => message,
            Ok(Parsed::UnknownType(_)) | Err(_) => return self.drop(DropReason::Malformed),
        };
        match message {
            Message::Request(request) => {
                let mut room = Vec::new();
                let mut request = PlainRequest::new(&request, &mut room);
                self.on_request(now, routes, &datagram, &mut request)
            }
            Message::Report { .. } => self.on_report(now, routes, &datagram, message),
            Message::Advertisement { channel, cost } => {
                self.on_advertisement(now, routes, &datagram, (channel, cost))
            }
            Message::Dmcast { channel, turning_point, repair } if self.is_for_me(&datagram) => {
                self.on_dmcast(now, routes, &datagram, (channel, turning_point), repair)
            }
            Message::Solicit { channel } if self.is_for_me(&datagram) => {
                self.on_solicit(now, &channel)
            }
            Message::AnycastAdvertisement { service, cost, hops } if self.is_for_me(&datagram) => {
                self.on_anycast_advertisement(now, routes, &datagram, (service, cost, hops))
            }
            Message::AnycastRequest { .. } if self.is_for_me(&datagram) => {
                self.on_anycast_request(now, &datagram, message)
            }
            _ => Verdict::Forward,
        }
    }

    fn handle_timeout(&mut self, now: Instant, routes: &mut dyn Routes) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.wake_at = None;
        let channels: Vec<Channel> = self.groups.channels().copied().collect();
        for channel in &channels {
            self.tend(now, routes, channel);
        }
        self.tend_services(now, routes);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<RouterTransmit> {
        self.outbox.pop()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }
}
