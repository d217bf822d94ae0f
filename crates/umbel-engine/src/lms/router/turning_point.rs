//! Turning points: written into requests, and accepted in DMCASTs only if this router wrote them.

use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use umbel_wire::Channel;
use umbel_wire::lms::{Message, TurningPoint};

use super::Router;
use super::groups::Link;
use crate::Instant;
use crate::lms::config::RouterConfig;
use crate::lms::drops::DropReason;
use crate::router::{InterfaceId, PassingDatagram, RouterDestination, Routes, Verdict};

/// Makes the tags of turning points.
#[derive(Debug)]
pub(super) struct Tags {
    /// The router's own address.
    router: SocketAddr,
    hasher: SipHasher24,
    /// Time in nanoseconds after which tags are others.
    lifetime: u64,
}

impl Tags {
    pub(super) fn new(config: &RouterConfig) -> Tags {
        let mut key = [0; 16];
        key.copy_from_slice(&config.secret[..16]);
        Tags {
            router: config.address,
            hasher: SipHasher24::new_with_key(&key),
            lifetime: u64::try_from(config.tag_lifetime.as_nanos()).unwrap_or(u64::MAX).max(1),
        }
    }

    fn epoch(&self, now: Instant) -> u64 {
        now.as_nanos() / self.lifetime
    }

    /// Returns the tag of turning points on an interface.
    fn tag(&self, channel: &Channel, interface: InterfaceId, epoch: u64) -> u64 {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let mut input = [0; 46];
        if let Some(source) = channel.source {
            input[..16].copy_from_slice(&octets(source));
        }
        input[16..32].copy_from_slice(&octets(channel.group));
        input[32..34].copy_from_slice(&channel.port.to_be_bytes());
        input[34..38].copy_from_slice(&interface.0.to_be_bytes());
        input[38..].copy_from_slice(&epoch.to_be_bytes());
        self.hasher.hash(&input)
    }

    /// Returns whether the router wrote a turning point, in this epoch or the one before. `link` is
    /// the state of its interface, if there is some.
    fn wrote(
        &self,
        now: Instant,
        channel: &Channel,
        point: &TurningPoint,
        link: Option<&mut Link>,
    ) -> bool {
        if point.router.ip() != self.router.ip() {
            return false;
        }
        let (epoch, interface) = (self.epoch(now), InterfaceId(point.interface));
        let tag = match link {
            Some(link) => link.tag(self, channel, interface, epoch),
            None => self.tag(channel, interface, epoch),
        };
        tag == point.tag || epoch > 0 && self.tag(channel, interface, epoch - 1) == point.tag
    }
}

impl Link {
    /// Returns the turning point of requests that come now [LMS §III-F].
    pub(super) fn turning_point(
        &mut self,
        now: Instant,
        tags: &Tags,
        channel: &Channel,
        interface: InterfaceId,
    ) -> TurningPoint {
        let tag = self.tag(tags, channel, interface, tags.epoch(now));
        TurningPoint { router: tags.router, interface: interface.0, tag }
    }

    fn tag(&mut self, tags: &Tags, channel: &Channel, interface: InterfaceId, epoch: u64) -> u64 {
        match self.tag {
            Some((of, tag)) if of == epoch => tag,
            _ => {
                let tag = tags.tag(channel, interface, epoch);
                self.tag = Some((epoch, tag));
                tag
            }
        }
    }
}

impl Router {
    pub(super) fn on_dmcast(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
        (channel, turning_point): (Channel, TurningPoint),
        repair: &[u8],
    ) -> Verdict {
        let interface = InterfaceId(turning_point.interface);
        let mut known = self.groups.get_mut(&channel);
        let link = known.as_mut().and_then(|group| group.links.get_mut(interface));
        if !self.tags.wrote(now, &channel, &turning_point, link) {
            return self.drop(DropReason::ForgedTurningPoint);
        }
        if !routes.is_downstream(&channel, interface) {
            return self.drop(DropReason::NoSuchInterface);
        }
        if !Message::is_repair(repair) {
            return self.drop(DropReason::NotARepair);
        }
        let group = if let Some(group) = known {
            group
        } else {
            let (config, wake_at) = (&self.config, &mut self.wake_at);
            let by = (datagram.arrived_on, datagram.from.ip());
            let Some(group) = self.groups.entry(now, &channel, by, config, wake_at) else {
                return self.drop(DropReason::OverLimit);
            };
            group
        };
        if !group.dmcasts.take(now) {
            return self.drop(DropReason::Flood);
        }
        self.stats.dmcasts += 1;
        self.outbox.send_bytes(RouterDestination::Branch { channel, interface }, repair);
        Verdict::Take
    }
}
