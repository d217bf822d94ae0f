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
//! tag: a keyed hash of channel, interface and time, SipHash-2-4, which programs in the kernel can
//! compute, too. A DMCAST from a host that no request was steered to is thus refused.
//!
//! A neighbour is the next router with LMS, or a receiver if there is none between. It sends its
//! advertisements and requests towards the source, and the first router with LMS takes them.
//! Requests from above are sent to the neighbour by unicast. Hence routers without LMS in between
//! do no harm.

mod anycast;
mod offers;
mod steering;
mod turning_point;

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::SocketAddr;

use bytes::Bytes;
use siphasher::sip::SipHasher24;
use umbel_wire::lms::{Message, Request, limits};
use umbel_wire::{Channel, Parsed};

use self::anycast::Services;
use self::offers::{Offers, Replier, Step};
pub use self::steering::{Direction, Steer, Steering};
use super::api::RouterStats;
use super::config::RouterConfig;
use super::drops::{DropReason, Drops};
use crate::bucket::Limiter;
use crate::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterEngine, RouterTransmit, Routes,
    Upstream, Verdict,
};
use crate::{Address, Instant};

/// LMS in a router.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    groups: BTreeMap<Channel, Group>,
    services: Services,
    due: VecDeque<RouterTransmit>,
    /// Makes the tags of turning points.
    tags: SipHasher24,
    /// Room in which messages are written.
    scratch: Vec<u8>,
    /// Bound on the next work, which is not before it.
    wake_at: Option<Instant>,
    /// Number of changes of channels and repliers.
    changes: u64,
    drops: Drops,
    stats: RouterStats,
}

/// State of one channel.
#[derive(Debug)]
struct Group {
    offers: Offers,
    /// Cost last told to the router above.
    advertised: Option<u32>,
    advertised_at: Instant,
    advertise_at: Option<Instant>,
    check: Option<Check>,
    /// Time until which the replier, having answered, is not asked again.
    checked_until: Instant,
    dmcasts: Limiter,
    requests: BTreeMap<InterfaceId, Limiter>,
    /// Time at which the state is forgotten if there are no offers.
    expires: Instant,
}

/// A replier said to have failed that was asked to advertise [LMS §III-C].
#[derive(Debug)]
struct Check {
    replier: Replier,
    /// Number of times that it was asked.
    asked: u32,
    /// Time to ask again, or to give it up.
    at: Instant,
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
        let mut key = [0; 16];
        key.copy_from_slice(&config.secret[..16]);
        Router {
            config,
            tags: SipHasher24::new_with_key(&key),
            scratch: Vec::new(),
            groups: BTreeMap::new(),
            services: Services::default(),
            due: VecDeque::new(),
            wake_at: None,
            changes: 0,
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
        let of_group = |group: &Group| 1 + group.offers.len() + group.requests.len();
        self.groups.values().map(of_group).sum::<usize>() + self.services.len()
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
        self.scratch.clear();
        message.emit(&mut self.scratch);
        let payload = Bytes::copy_from_slice(&self.scratch);
        self.due.push_back(RouterTransmit { to, alert, payload });
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

    /// Returns the state of a channel, and creates it if there is room.
    fn group(&mut self, now: Instant, channel: &Channel) -> Option<&mut Group> {
        let len = self.groups.len();
        match self.groups.entry(*channel) {
            Entry::Occupied(group) => Some(group.into_mut()),
            Entry::Vacant(_) if len >= self.config.channels => None,
            Entry::Vacant(place) => {
                let expires = now + self.config.offer_lifetime;
                self.changes += 1;
                self.wake_at = Some(self.wake_at.map_or(expires, |at| at.min(expires)));
                Some(place.insert(Group {
                    offers: Offers::default(),
                    advertised: None,
                    advertised_at: Instant::EPOCH,
                    advertise_at: None,
                    check: None,
                    checked_until: Instant::EPOCH,
                    dmcasts: Limiter::new(self.config.dmcasts),
                    requests: BTreeMap::new(),
                    expires,
                }))
            }
        }
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
        mut request: Request,
    ) -> Verdict {
        let channel = request.channel;
        let (arrived_on, from) = (datagram.arrived_on, datagram.from);
        let (side, upstream) = match self.admit(now, routes, datagram, &channel, request.hops) {
            Ok(admitted) => admitted,
            Err(verdict) => return verdict,
        };
        request.hops += 1;
        let Some(group) = self.groups.get(&channel) else { return Verdict::Take };
        if side == Side::Above {
            let Some(mut replier) = group.offers.first() else {
                return self.drop(DropReason::NoReplier);
            };
            if request.replier_failed {
                let backup = group.offers.backup(replier.neighbour.ip(), from.ip());
                self.check_replier(now, &channel, replier);
                replier = backup.unwrap_or(replier);
            }
            self.stats.sent_down += 1;
            self.send_down(replier, &Message::Request(request));
            return Verdict::Take;
        }
        request.requestor.get_or_insert(from);
        match self.step(group, routes, &channel, (arrived_on, Some(from.ip()))) {
            Step::Up => {
                if self.stamps_upwards(routes, &channel, upstream) {
                    self.stamp(now, &mut request, arrived_on);
                }
                self.stats.sent_up += 1;
                self.send_up(&channel, &Message::Request(request));
            }
            Step::Turn(replier) => {
                // A backup is only looked for if it is needed, since that searches all offers.
                let backup = (request.replier_failed)
                    .then(|| group.offers.backup(replier.neighbour.ip(), from.ip()))
                    .flatten();
                self.stamp(now, &mut request, arrived_on);
                self.stats.turned += 1;
                if !request.replier_failed {
                    self.send_down(replier, &Message::Request(request));
                    return Verdict::Take;
                }
                self.check_replier(now, &channel, replier);
                match backup {
                    Some(backup) => self.send_down(backup, &Message::Request(request)),
                    None => self.send_up(&channel, &Message::Request(request)),
                }
            }
        }
        Verdict::Take
    }

    /// Checks whether a request or report may pass, and returns the side it came from. Requests
    /// from above are addressed to this router; others are only passing through.
    fn admit(
        &mut self,
        now: Instant,
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
        let allowance = self.config.requests;
        let Some(group) = self.group(now, channel) else {
            return Err(self.drop(DropReason::OverLimit));
        };
        let bucket =
            group.requests.entry(datagram.arrived_on).or_insert_with(|| Limiter::new(allowance));
        if !bucket.take(now) {
            return Err(self.drop(DropReason::Flood));
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
        let (side, _) = match self.admit(now, routes, datagram, &channel, *hops) {
            Ok(admitted) => admitted,
            Err(verdict) => return verdict,
        };
        *hops += 1;
        let Some(group) = self.groups.get(&channel) else { return Verdict::Take };
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
        let (allowance, gap) = (self.config.requests, self.config.solicit_gap);
        let Some(group) = self.group(now, &channel) else {
            return self.drop(DropReason::OverLimit);
        };
        let bucket = group.requests.entry(interface).or_insert_with(|| Limiter::new(allowance));
        if !bucket.take(now) {
            return self.drop(DropReason::Flood);
        }
        group.expires = expires;
        group.offers.insert(interface, from, cost, expires);
        let is_checked = |check: &mut Check| check.replier.neighbour.ip() == from.ip();
        if group.check.take_if(is_checked).is_some() {
            group.checked_until = now + gap;
        }
        self.wake_by(expires);
        self.choose(now, &channel);
        Verdict::Take
    }

    /// Chooses the replier after a change of the offers, and tells the router above if its cost
    /// changed.
    fn choose(&mut self, now: Instant, channel: &Channel) {
        let RouterConfig { set_size, stickiness, advertise_gap, .. } = self.config;
        let Some(group) = self.groups.get_mut(channel) else { return };
        self.changes += u64::from(group.offers.choose(set_size, stickiness));
        let cost = group.offers.first().map(|replier| replier.cost);
        if cost != group.advertised {
            let at = now.max(group.advertised_at + advertise_gap);
            group.advertise_at = Some(group.advertise_at.map_or(at, |before| before.min(at)));
            self.wake_by(at);
        }
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
            self.changes += 1;
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
            return Verdict::Forward;
        }
        let message = match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message, .. }) => message,
            Ok(Parsed::UnknownType(_)) | Err(_) => return self.drop(DropReason::Malformed),
        };
        match message {
            Message::Request(request) => self.on_request(now, routes, &datagram, request),
            Message::Report { .. } => self.on_report(now, routes, &datagram, message),
            Message::Advertisement { channel, cost } => {
                self.on_advertisement(now, routes, &datagram, (channel, cost))
            }
            Message::Dmcast { channel, turning_point, repair } if self.is_for_me(&datagram) => {
                self.on_dmcast(now, routes, (channel, turning_point), repair)
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
        let channels: Vec<Channel> = self.groups.keys().copied().collect();
        for channel in &channels {
            self.tend(now, routes, channel);
        }
        self.tend_services(now, routes);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<RouterTransmit> {
        self.due.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }
}
