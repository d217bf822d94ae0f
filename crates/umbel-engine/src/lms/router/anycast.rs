//! Anycast: servers register as repliers of a service, and routers tell each other of the
//! nearest on all links, not just upstream [LMS §III-G].
//!
//! A router keeps the best server by each of its interfaces, and tells the routers on an interface
//! of the best by any other one. News is told at once, and entries that are not renewed are
//! forgotten. The cost grows at every router, and an advertisement passed on too often is refused.
//! A server that is gone is thus forgotten even where routers form a ring.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use umbel_wire::Channel;
use umbel_wire::lms::{Message, limits};

use super::{Router, Verdict};
use crate::Instant;
use crate::lms::drops::DropReason;
use crate::router::{InterfaceId, PassingDatagram, RouterDestination, Routes};
use crate::shares::{Origin, Places};

/// All services that a router knows of. Hosts have shares of them, as of
/// [channels](super::groups::Groups).
#[derive(Debug)]
pub(super) struct Services {
    all: BTreeMap<Channel, Service>,
    places: Places<InterfaceId, Channel>,
}

#[derive(Debug, Default)]
struct Service {
    /// The best server by each interface.
    servers: BTreeMap<InterfaceId, Server>,
    /// Last server told on each interface.
    told: BTreeMap<InterfaceId, Told>,
    tell_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    neighbour: SocketAddr,
    cost: u32,
    hops: u8,
    expires: Instant,
}

type Told = (u32, u8);

impl Services {
    /// Creates room for so many services.
    pub(super) fn new(services: usize) -> Services {
        Services { all: BTreeMap::new(), places: Places::new(services, services) }
    }

    /// Returns a service, and creates it if there is a place for the host `by` that names it.
    fn entry(&mut self, by: (InterfaceId, IpAddr), channel: &Channel) -> Option<&mut Service> {
        if let Some(lost) = self.places.enter(by.0, Origin::alone(by.1), *channel).ok()? {
            self.all.remove(&lost);
        }
        self.places.renew(*channel);
        Some(self.all.entry(*channel).or_default())
    }

    fn remove(&mut self, channel: &Channel) {
        self.all.remove(channel);
        self.places.leave(*channel);
    }

    /// Returns the number of entries of all tables.
    pub(super) fn len(&self) -> usize {
        self.all.values().map(|service| 1 + service.servers.len() + service.told.len()).sum()
    }
}

impl Service {
    /// Returns the best server by any interface but one.
    fn best(&self, but: InterfaceId) -> Option<&Server> {
        self.servers
            .iter()
            .filter(|(interface, _)| **interface != but)
            .min_by_key(|(interface, server)| (server.cost, **interface))
            .map(|(_, server)| server)
    }
}

impl Router {
    /// Handles an advertisement from a neighbour, which is the server itself or the next router.
    pub(super) fn on_anycast_advertisement(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        (channel, cost, hops): (Channel, Option<u32>, u8),
    ) -> Verdict {
        let (interface, from) = (datagram.arrived_on, datagram.from);
        if cost.is_none() && !self.services.all.contains_key(&channel) {
            return self.drop(DropReason::Unexpected);
        }
        let Some(service) = self.services.entry((interface, from.ip()), &channel) else {
            return self.drop(DropReason::OverLimit);
        };
        if let Some(cost) = cost.filter(|_| hops < limits::HOPS) {
            let expires = now + self.config.offer_lifetime;
            let cost = cost.saturating_add(self.config.anycast_hop_cost);
            let server = Server { neighbour: from, cost, hops, expires };
            let known = service.servers.entry(interface).or_insert(server);
            if known.neighbour == from || cost < known.cost {
                *known = server;
            }
        } else if service.servers.get(&interface).is_some_and(|known| known.neighbour == from) {
            service.servers.remove(&interface);
        }
        self.tell_service(now, routes, channel, false);
        Verdict::Take
    }

    /// Announces the best server to the routers on all interfaces, where that is news or `all` are
    /// to hear it again.
    fn tell_service(&mut self, now: Instant, routes: &mut dyn Routes, channel: Channel, all: bool) {
        let Some(service) = self.services.all.get_mut(&channel) else { return };
        let mut interfaces = Vec::new();
        routes.interfaces(&mut interfaces);
        let mut due = Vec::new();
        for interface in interfaces {
            let best = service.best(interface).map(|server| (server.cost, server.hops + 1));
            let before = match best {
                Some(best) => service.told.insert(interface, best),
                None => service.told.remove(&interface),
            };
            if best != before || all && best.is_some() {
                due.push((interface, best));
            }
        }
        let at = now + self.config.advertise_every;
        if service.tell_at.is_none() || all {
            service.tell_at = Some(at);
        }
        let next = service.servers.values().map(|server| server.expires).fold(at, Instant::min);
        if service.servers.is_empty() {
            self.services.remove(&channel);
        }
        self.wake_by(next);
        for (interface, best) in due {
            let (cost, hops) = (best.map(|(cost, _)| cost), best.map_or(0, |(_, hops)| hops));
            let message = Message::AnycastAdvertisement { service: channel, cost, hops };
            let to = RouterDestination::Neighbours { interface, port: channel.port };
            self.send(to, false, &message);
        }
    }

    /// Sends a query on towards the nearest server.
    pub(super) fn on_anycast_request(
        &mut self,
        now: Instant,
        datagram: &PassingDatagram<'_>,
        mut message: Message<'_>,
    ) -> Verdict {
        let Message::AnycastRequest { service, ref mut requestor, ref mut hops, .. } = message
        else {
            return Verdict::Take;
        };
        if *hops >= limits::HOPS {
            return self.drop(DropReason::Hops);
        }
        *hops += 1;
        requestor.get_or_insert(datagram.from);
        let best = self.services.all.get(&service).and_then(|known| {
            known.best(datagram.arrived_on).or_else(|| known.servers.values().next())
        });
        let Some(server) = best.filter(|server| server.expires > now).copied() else {
            return self.drop(DropReason::NoReplier);
        };
        self.stats.anycasts += 1;
        self.send(RouterDestination::Host(server.neighbour), false, &message);
        Verdict::Take
    }

    /// Forgets servers that were not renewed, and renews the advertisements to the neighbours.
    pub(super) fn tend_services(&mut self, now: Instant, routes: &mut dyn Routes) {
        let channels: Vec<Channel> = self.services.all.keys().copied().collect();
        for channel in channels {
            let Some(service) = self.services.all.get_mut(&channel) else { continue };
            service.servers.retain(|_, server| server.expires > now);
            let is_due = service.tell_at.is_some_and(|at| at <= now);
            self.tell_service(now, routes, channel, is_due);
        }
    }
}
