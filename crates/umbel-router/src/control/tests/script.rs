//! One control plane and what a script says and hears.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::router::InterfaceId;
use umbel_wire::membership::{Message, Query, Record, RecordType, Report};
use umbel_wire::{igmp, pim};

use crate::control::{
    ControlConfig, ControlMessage, ControlPlane, ControlTransmit, CostHeard, Family,
    ForwardingChange, InterfaceAddress, InterfaceInfo, NextHop, Protocol, SourceGroup,
    UnicastRoutes,
};

/// Sources 10.1.x.x are behind 10.0.1.254 on interface 1; 10.0.N.x is the link of interface N.
/// Routes lead beyond each link but those of hosts alone.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    pub(super) gateway: Option<NextHop>,
    pub(super) of_hosts: Vec<u32>,
}

impl Default for Routes {
    fn default() -> Routes {
        let gateway = Some([10, 0, 1, 254].into());
        let gateway = Some(NextHop { interface: InterfaceId(1), gateway, metric: 5 });
        Routes { gateway, of_hosts: Vec::new() }
    }
}

impl UnicastRoutes for Routes {
    fn towards(&self, host: IpAddr) -> Option<NextHop> {
        match host {
            IpAddr::V4(host) if host.octets()[..2] == [10, 0] => Some(NextHop {
                interface: InterfaceId(host.octets()[2].into()),
                gateway: None,
                metric: 0,
            }),
            IpAddr::V4(host) if host.octets()[..2] == [10, 1] => self.gateway,
            _ => None,
        }
    }

    fn leads_beyond(&self, on: InterfaceId, _: Family, _: &[InterfaceAddress]) -> bool {
        !self.of_hosts.contains(&on.0)
    }

    /// Hosts 10.2.x.x are there by routes of their own.
    fn leads_to_link(&self, on: InterfaceId, host: IpAddr) -> bool {
        matches!(host, IpAddr::V4(host) if host.octets()[..2] == [10, 2] && on.0 == 3)
    }

    fn is_gateway(&self, on: InterfaceId, host: IpAddr) -> bool {
        self.gateway.is_some_and(|hop| (hop.interface, hop.gateway) == (on, Some(host)))
    }
}

/// A plane with interfaces 1 to 3, whose address on interface N is 10.0.N.100.
pub(super) struct Script {
    pub(super) plane: ControlPlane,
    pub(super) routes: Routes,
    pub(super) now: Instant,
    pub(super) sent: Vec<ControlTransmit>,
    pub(super) changes: Vec<ForwardingChange>,
    pub(super) costs: Vec<CostHeard>,
}

pub(super) const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
pub(super) const OTHER_SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
pub(super) const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1));
pub(super) const CHANNEL: SourceGroup = SourceGroup { group: GROUP, source: SOURCE };

pub(super) fn host(interface: u32, host: u8) -> IpAddr {
    [10, 0, interface as u8, host].into()
}

pub(super) fn info(interface: u32) -> InterfaceInfo {
    let address = InterfaceAddress { address: host(interface, 100), prefix_len: 24 };
    InterfaceInfo { name: format!("eth{interface}"), addresses: vec![address], mtu: 1500 }
}

pub(super) fn record(kind: RecordType, sources: &[IpAddr]) -> Record {
    Record { kind, group: GROUP, sources: sources.to_vec() }
}

impl Script {
    /// Starts a plane and lets the first queries and Hellos pass.
    pub(super) fn start(config: ControlConfig) -> Script {
        Script::start_with(config, Routes::default())
    }

    fn start_with(config: ControlConfig, routes: Routes) -> Script {
        let mut script = Script {
            plane: ControlPlane::new(config, chance::generator(7)),
            routes,
            now: Instant::from_nanos(1_000_000_000),
            sent: Vec::new(),
            changes: Vec::new(),
            costs: Vec::new(),
        };
        for interface in 1..=3 {
            let (now, id) = (script.now, InterfaceId(interface));
            script.plane.interface_up(now, &script.routes, id, info(interface));
        }
        script.drain();
        script
    }

    /// Starts a plane that has heard all hosts.
    pub(super) fn settled(config: ControlConfig) -> Script {
        let mut script = Script::start(config);
        script.wait(Duration::from_secs(40));
        script.forget();
        script
    }

    /// Starts a plane that has heard all hosts, of which those on interface 2 are behind no other
    /// router.
    pub(super) fn with_hosts(config: ControlConfig) -> Script {
        let routes = Routes { of_hosts: vec![2], ..Routes::default() };
        let mut script = Script::start_with(config, routes);
        script.wait(Duration::from_secs(40));
        script.forget();
        script
    }

    /// Has a packet of [`CHANNEL`] arrive on an interface that is not towards its source.
    pub(super) fn see(&mut self, interface: u32) {
        let on = InterfaceId(interface);
        self.plane.wrong_interface(self.now, &self.routes, CHANNEL, on);
        self.drain();
    }

    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.changes.clear();
        self.costs.clear();
    }

    pub(super) fn drain(&mut self) {
        self.sent.extend(std::iter::from_fn(|| self.plane.poll_transmit()));
        self.changes.extend(std::iter::from_fn(|| self.plane.poll_forwarding()));
        self.costs.extend(std::iter::from_fn(|| self.plane.poll_cost()));
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.plane.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.plane.handle_timeout(self.now, &self.routes);
            self.drain();
            assert!(self.plane.poll_timeout() > Some(self.now), "time stands still");
        }
        self.now = until;
    }

    pub(super) fn give(
        &mut self,
        interface: u32,
        from: IpAddr,
        protocol: Protocol,
        payload: &[u8],
    ) {
        let to = match protocol {
            Protocol::Pim => pim::ALL_ROUTERS_V4.into(),
            _ => igmp::REPORT_GROUP.into(),
        };
        self.give_to(interface, (from, to), protocol, payload);
    }

    pub(super) fn give_to(
        &mut self,
        interface: u32,
        (from, to): (IpAddr, IpAddr),
        protocol: Protocol,
        payload: &[u8],
    ) {
        let interface = InterfaceId(interface);
        let message = ControlMessage { interface, from, to, protocol, payload };
        self.plane.handle_message(self.now, &self.routes, message);
        self.drain();
    }

    pub(super) fn igmp(&mut self, interface: u32, from: IpAddr, message: &Message) {
        let mut payload = Vec::new();
        igmp::emit(message, &mut payload);
        let to = match message {
            Message::Query(query) => query.group.unwrap_or(igmp::ALL_HOSTS.into()),
            _ => igmp::REPORT_GROUP.into(),
        };
        self.give_to(interface, (from, to), Protocol::Igmp, &payload);
    }

    /// Reports records of [`GROUP`].
    pub(super) fn report(&mut self, interface: u32, from: IpAddr, records: Vec<Record>) {
        self.igmp(interface, from, &Message::Report(Report { records, offer: None }));
    }

    pub(super) fn pim(&mut self, interface: u32, from: IpAddr, message: &pim::Message) {
        let mut payload = Vec::new();
        pim::emit(message, from, pim::ALL_ROUTERS_V4.into(), &mut payload);
        self.give(interface, from, Protocol::Pim, &payload);
    }

    pub(super) fn hello(&mut self, interface: u32, from: IpAddr, generation: u32) {
        let hello = pim::Hello {
            holdtime_s: Some(105),
            dr_priority: Some(1),
            generation: Some(generation),
            ..pim::Hello::default()
        };
        self.pim(interface, from, &pim::Message::Hello(hello));
    }

    /// Joins or prunes [`CHANNEL`] at a router on an interface.
    pub(super) fn ask(&mut self, interface: u32, from: IpAddr, upstream: IpAddr, is_join: bool) {
        let source = vec![pim::JoinedSource { source: SOURCE, is_specific: true }];
        let (joins, prunes) = if is_join { (source, vec![]) } else { (vec![], source) };
        let group = pim::JoinPruneGroup { group: GROUP, is_specific: true, joins, prunes };
        let message = pim::JoinPrune { upstream, holdtime_s: 210, groups: vec![group] };
        self.pim(interface, from, &pim::Message::JoinPrune(message));
    }

    /// Returns the outputs of [`CHANNEL`] after all changes so far, `None` if it has no entry.
    pub(super) fn outputs(&self) -> Option<Vec<u32>> {
        match self.changes.last()? {
            ForwardingChange::Set { channel, outputs, .. } => {
                assert_eq!(*channel, CHANNEL);
                Some(outputs.iter().map(|output| output.0).collect())
            }
            ForwardingChange::Remove { .. } => None,
        }
    }

    /// Takes the queries that were sent, with their interfaces.
    pub(super) fn queries(&mut self) -> Vec<(u32, Query)> {
        let of = |transmit: &ControlTransmit| match igmp::parse(&transmit.payload) {
            Ok(Some(Message::Query(query))) if transmit.protocol == Protocol::Igmp => {
                assert!(transmit.router_alert);
                assert_eq!(transmit.from, host(transmit.interface.0, 100));
                Some((transmit.interface.0, query))
            }
            _ => None,
        };
        let queries = self.sent.iter().filter_map(of).collect();
        self.sent.retain(|transmit| transmit.protocol != Protocol::Igmp);
        queries
    }

    /// Takes the PIM messages that were sent, with their interfaces.
    pub(super) fn pim_sent(&mut self) -> Vec<(u32, pim::Message)> {
        let of = |transmit: &ControlTransmit| {
            assert_eq!(transmit.to, IpAddr::from(pim::ALL_ROUTERS_V4));
            assert!(!transmit.router_alert);
            let message = pim::parse(&transmit.payload, transmit.from, transmit.to);
            (transmit.interface.0, message.unwrap().unwrap())
        };
        let is_pim = |transmit: &&ControlTransmit| transmit.protocol == Protocol::Pim;
        let messages = self.sent.iter().filter(is_pim).map(of).collect();
        self.sent.retain(|transmit| transmit.protocol != Protocol::Pim);
        messages
    }

    /// Takes the joins and prunes of [`CHANNEL`] that were sent: interface, neighbour, join.
    pub(super) fn asked(&mut self) -> Vec<(u32, IpAddr, bool)> {
        let mut asked = Vec::new();
        for (interface, message) in self.pim_sent() {
            if let pim::Message::JoinPrune(message) = message {
                for group in &message.groups {
                    let has = |list: &[pim::JoinedSource]| {
                        list.iter().any(|joined| joined.source == SOURCE)
                    };
                    if has(&group.joins) || has(&group.prunes) {
                        asked.push((interface, message.upstream, has(&group.joins)));
                    }
                }
            }
        }
        asked
    }
}
