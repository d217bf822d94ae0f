//! An interface, as far as one address family goes.

use std::net::{IpAddr, Ipv6Addr};

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_wire::membership::{Message, Query};
use umbel_wire::pim::Assert;
use umbel_wire::{igmp, mld, pim};

use super::addresses;
use super::api::{
    ControlTransmit, Family, InterfaceAddress, InterfaceInfo, Protocol, UnicastRoutes,
};
use super::config::{ControlConfig, PimConfig};
use super::membership::Membership;
use super::pim::Neighbours;
use super::work::{LinkId, Work};

/// An interface, as far as one address family goes.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) family: Family,
    /// The address with which the router speaks here.
    pub(super) me: IpAddr,
    pub(super) networks: Vec<InterfaceAddress>,
    pub(super) mtu: u32,
    pub(super) membership: Membership,
    pub(super) neighbours: Neighbours,
}

impl Link {
    /// Returns the address with which a router speaks on an interface: the first of IPv4, the first
    /// link-local one of IPv6 [RFC 3810 §5, RFC 7761 §4.3.1].
    pub(super) fn address_of(info: &InterfaceInfo, family: Family) -> Option<IpAddr> {
        let speaks = |address: &IpAddr| match family {
            Family::Ipv4 => address.is_ipv4(),
            Family::Ipv6 => address.is_ipv6() && addresses::is_link_local(*address),
        };
        info.addresses.iter().map(|of| of.address).find(speaks)
    }

    /// Returns the group of all hosts of a link.
    pub(super) fn all_hosts(family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => igmp::ALL_HOSTS.into(),
            Family::Ipv6 => mld::ALL_NODES.into(),
        }
    }

    pub(super) fn start(
        now: Instant,
        id: LinkId,
        me: IpAddr,
        config: &ControlConfig,
        work: &mut Work,
    ) -> Link {
        Link {
            id,
            family: id.family,
            me,
            networks: Vec::new(),
            mtu: 0,
            membership: Membership::start(now, id, me, config, work),
            neighbours: Neighbours::new(id, me, config),
        }
    }

    /// Takes over what may change while the link stays up.
    pub(super) fn describe(
        &mut self,
        now: Instant,
        info: &InterfaceInfo,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let is_ours = |of: &&InterfaceAddress| Family::of(of.address) == self.family;
        self.networks = info.addresses.iter().filter(is_ours).copied().collect();
        let others = self.networks.iter().map(|of| of.address).filter(|other| *other != self.me);
        self.neighbours.set_others(now, others.collect(), &config.pim, work);
        self.mtu = info.mtu;
    }

    /// Returns whether a host or router is on this link. A link need not have a subnet: then unicast
    /// routing knows who is there.
    pub(super) fn is_on_link(&self, address: IpAddr, routes: &dyn UnicastRoutes) -> bool {
        match self.family {
            Family::Ipv4 => {
                self.has_in_subnet(address) || routes.leads_to_link(self.id.interface, address)
            }
            Family::Ipv6 => addresses::is_link_local(address),
        }
    }

    /// Returns whether an address is in a network that the router has on this link.
    pub(super) fn has_in_subnet(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.covers(address))
    }

    /// Returns the neighbour by which unicast routing leads to a source. A route without a gateway,
    /// or with one of the other family, leads to the only neighbour that there is.
    pub(super) fn towards(&self, source: IpAddr, gateway: Option<IpAddr>) -> Option<IpAddr> {
        match gateway {
            Some(gateway) if Family::of(gateway) == self.family => self.neighbours.find(gateway),
            None if self.has_in_subnet(source) => None,
            Some(_) | None => self.neighbours.only(),
        }
    }

    /// Returns the router that forwards for the hosts here: the designated one [RFC 7761 §4.3.2], or
    /// the querier where PIM is not spoken.
    pub(super) fn forwarder(&self, config: &PimConfig) -> IpAddr {
        if self.neighbours.is_spoken() {
            self.neighbours.designated(config)
        } else {
            self.membership.querier()
        }
    }

    fn transmit(&self, protocol: Protocol, to: IpAddr, payload: Vec<u8>) -> ControlTransmit {
        // PIM is for neighbours alone and carries no option; IGMP and MLD must [RFC 3376 §4].
        let router_alert = protocol != Protocol::Pim;
        let (interface, from, payload) = (self.id.interface, self.me, Bytes::from(payload));
        ControlTransmit { interface, from, to, protocol, router_alert, payload }
    }

    pub(super) fn query(&self, query: Query) -> ControlTransmit {
        let mut payload = Vec::new();
        let to = query.group.unwrap_or(Link::all_hosts(self.family));
        let message = Message::Query(query);
        let v6 = |address| match address {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
        };
        if self.family == Family::Ipv4 {
            igmp::emit(&message, &mut payload);
            self.transmit(Protocol::Igmp, to, payload)
        } else {
            mld::emit(&message, v6(self.me), v6(to), &mut payload);
            self.transmit(Protocol::Icmpv6, to, payload)
        }
    }

    fn pim(&self, message: &pim::Message) -> ControlTransmit {
        let to: IpAddr = match self.family {
            Family::Ipv4 => pim::ALL_ROUTERS_V4.into(),
            Family::Ipv6 => pim::ALL_ROUTERS_V6.into(),
        };
        let mut payload = Vec::new();
        pim::emit(message, self.me, to, &mut payload);
        self.transmit(Protocol::Pim, to, payload)
    }

    pub(super) fn hello(&self, holdtime_s: u16, config: &ControlConfig) -> ControlTransmit {
        self.pim(&pim::Message::Hello(self.neighbours.hello(holdtime_s, &config.pim)))
    }

    pub(super) fn join_prune(&self, message: pim::JoinPrune) -> ControlTransmit {
        self.pim(&pim::Message::JoinPrune(message))
    }

    pub(super) fn assert(&self, assert: Assert) -> ControlTransmit {
        self.pim(&pim::Message::Assert(assert))
    }
}
