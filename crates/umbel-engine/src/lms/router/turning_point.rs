//! Turning points: written into requests, and accepted in DMCASTs only if this router wrote them.

use std::net::IpAddr;

use bytes::Bytes;
use umbel_wire::Channel;
use umbel_wire::lms::{Message, Request, TurningPoint};

use super::Router;
use crate::Instant;
use crate::lms::drops::DropReason;
use crate::router::{InterfaceId, RouterDestination, RouterTransmit, Routes, Verdict};

impl Router {
    /// Writes the turning point, unless there is one [LMS §III-F].
    pub(super) fn stamp(&mut self, now: Instant, request: &mut Request, arrived_on: InterfaceId) {
        if request.turning_point.is_none() {
            let tag = self.tag(&request.channel, arrived_on, self.epoch(now));
            let router = self.config.address;
            request.turning_point = Some(TurningPoint { router, interface: arrived_on.0, tag });
        }
    }

    fn epoch(&self, now: Instant) -> u64 {
        let lifetime = self.config.tag_lifetime.as_nanos().max(1);
        (u128::from(now.as_nanos()) / lifetime) as u64
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
        self.tags.hash(&input)
    }

    pub(super) fn on_dmcast(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        (channel, turning_point): (Channel, TurningPoint),
        repair: &[u8],
    ) -> Verdict {
        let interface = InterfaceId(turning_point.interface);
        let epoch = self.epoch(now);
        let is_mine = turning_point.router.ip() == self.config.address.ip()
            && [epoch, epoch.saturating_sub(1)]
                .into_iter()
                .any(|epoch| self.tag(&channel, interface, epoch) == turning_point.tag);
        if !is_mine {
            return self.drop(DropReason::ForgedTurningPoint);
        }
        if !routes.is_downstream(&channel, interface) {
            return self.drop(DropReason::NoSuchInterface);
        }
        if !Message::is_repair(repair) {
            return self.drop(DropReason::NotARepair);
        }
        let Some(group) = self.group(now, &channel) else {
            return self.drop(DropReason::OverLimit);
        };
        if !group.dmcasts.take(now) {
            return self.drop(DropReason::Flood);
        }
        self.stats.dmcasts += 1;
        let to = RouterDestination::Branch { channel, interface };
        let payload = Bytes::copy_from_slice(repair);
        self.due.push_back(RouterTransmit { to, alert: false, payload });
        Verdict::Take
    }
}
