//! A network of control planes and hosts in virtual time.
//!
//! LANs join routers and hosts. Messages take 1 ms to each that is on the LAN, and are lost one by
//! one. Unicast routing is always right: the least number of LANs that are up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::chance::{self, Generator};
use umbel_engine::router::InterfaceId;
use umbel_wire::membership::{Message, Query, Record, RecordType, Report};
use umbel_wire::{igmp, mld};

use crate::control::{
    ControlConfig, ControlMessage, ControlPlane, ControlTransmit, Family, ForwardingChange,
    InterfaceAddress, InterfaceInfo, NextHop, Protocol, SourceGroup, UnicastRoutes,
};

const DELAY: Duration = Duration::from_millis(1);

/// A router by its number, and a LAN by its number. A router's interface has the LAN's number.
pub(super) type Router = usize;
pub(super) type Lan = usize;

/// The ways from one router: by LAN of the destination.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    by_lan: BTreeMap<Lan, NextHop>,
    with_routers: BTreeSet<InterfaceId>,
}

impl UnicastRoutes for Table {
    fn towards(&self, host: IpAddr) -> Option<NextHop> {
        let lan = match host {
            IpAddr::V4(host) => host.octets()[1].into(),
            IpAddr::V6(host) => host.segments()[2].into(),
        };
        self.by_lan.get(&lan).copied()
    }

    /// Routes lead beyond all links where other routers are, whether or not they are used now.
    fn leads_beyond(&self, on: InterfaceId, _: Family, _: &[InterfaceAddress]) -> bool {
        self.with_routers.contains(&on)
    }

    fn leads_to_link(&self, _: InterfaceId, _: IpAddr) -> bool {
        false
    }

    fn is_gateway(&self, _: InterfaceId, _: IpAddr) -> bool {
        false
    }
}

struct Node {
    plane: ControlPlane,
    table: Table,
    lans: Vec<Lan>,
    is_up: bool,
    forwarding: BTreeMap<SourceGroup, (InterfaceId, Vec<InterfaceId>)>,
}

/// A host, by its LAN and its number there.
type HostId = (Lan, u8);

enum Event {
    /// A message reaches a router.
    Router(Router, Lan, ControlTransmit),
    /// A query reaches a host.
    Host(HostId, Query),
    /// A host says something.
    Say(HostId, Record),
}

pub(super) struct World {
    pub(super) family: Family,
    pub(super) now: Instant,
    pub(super) loss: f64,
    pub(super) random: Generator,
    config: ControlConfig,
    nodes: Vec<Node>,
    /// Routers of each LAN.
    lans: Vec<Vec<Router>>,
    is_lan_up: Vec<bool>,
    hosts: BTreeMap<HostId, BTreeSet<SourceGroup>>,
    events: BTreeMap<(Instant, u64), Event>,
    number: u64,
    /// Messages that routers have sent.
    pub(super) sent: u64,
}

fn id(lan: Lan) -> InterfaceId {
    InterfaceId(lan as u32)
}

impl World {
    /// Starts the routers of these LANs.
    pub(super) fn start(
        family: Family,
        seed: u64,
        config: ControlConfig,
        lans: &[&[Router]],
    ) -> World {
        let routers = lans.iter().flat_map(|lan| lan.iter()).max().map_or(0, |last| last + 1);
        let mut random = chance::generator(seed);
        let nodes = (0..routers)
            .map(|router| Node {
                plane: ControlPlane::new(config.clone(), chance::generator(rand(&mut random))),
                table: Table::default(),
                lans: (0..lans.len()).filter(|lan| lans[*lan].contains(&router)).collect(),
                is_up: true,
                forwarding: BTreeMap::new(),
            })
            .collect();
        let mut world = World {
            family,
            now: Instant::from_nanos(1_000_000_000),
            loss: 0.0,
            random,
            config,
            nodes,
            lans: lans.iter().map(|lan| lan.to_vec()).collect(),
            is_lan_up: vec![true; lans.len()],
            hosts: BTreeMap::new(),
            events: BTreeMap::new(),
            number: 0,
            sent: 0,
        };
        for router in 0..routers {
            for lan in world.nodes[router].lans.clone() {
                world.interface_up(router, lan);
            }
        }
        world.find_routes();
        world
    }

    pub(super) fn lan_count(&self) -> usize {
        self.lans.len()
    }

    pub(super) fn router_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the channel of a group and of the source that is on a LAN.
    pub(super) fn channel(&self, lan: Lan, group: u8) -> SourceGroup {
        let group = match self.family {
            Family::Ipv4 => [232, 1, 1, group].into(),
            Family::Ipv6 => Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0, group.into()).into(),
        };
        let source = match self.family {
            Family::Ipv4 => [10, lan as u8, 0, 1].into(),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 0xDB8, lan as u16, 0, 0, 0, 0, 1).into(),
        };
        SourceGroup { group, source }
    }

    fn host_address(&self, (lan, host): HostId) -> IpAddr {
        match self.family {
            Family::Ipv4 => [10, lan as u8, 0, host].into(),
            Family::Ipv6 => {
                Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, lan as u16, u16::from(host)).into()
            }
        }
    }

    fn router_address(&self, router: Router, lan: Lan) -> IpAddr {
        match self.family {
            Family::Ipv4 => [10, lan as u8, 1, router as u8 + 1].into(),
            Family::Ipv6 => {
                Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 1, lan as u16, router as u16 + 1).into()
            }
        }
    }

    fn info(&self, router: Router, lan: Lan) -> InterfaceInfo {
        let address = self.router_address(router, lan);
        let prefix_len = if self.family == Family::Ipv4 { 16 } else { 64 };
        let addresses = vec![InterfaceAddress { address, prefix_len }];
        InterfaceInfo { name: format!("lan{lan}"), addresses, mtu: 1500 }
    }

    fn interface_up(&mut self, router: Router, lan: Lan) {
        let info = self.info(router, lan);
        let (now, node) = (self.now, &mut self.nodes[router]);
        node.plane.interface_up(now, &node.table, id(lan), info);
        self.drain(router);
    }

    /// Lets unicast routing find new routes.
    fn find_routes(&mut self) {
        for router in 0..self.nodes.len() {
            let table = self.table(router);
            let (now, node) = (self.now, &mut self.nodes[router]);
            if table != node.table && node.is_up {
                node.table = table;
                node.plane.routes_changed(now, &node.table);
                self.drain(router);
            }
        }
    }

    fn live(&self, lan: Lan) -> impl Iterator<Item = Router> + '_ {
        self.lans[lan]
            .iter()
            .copied()
            .filter(move |&router| self.is_lan_up[lan] && self.nodes[router].is_up)
    }

    fn table(&self, from: Router) -> Table {
        let mut by_lan = BTreeMap::new();
        let mut queue = VecDeque::new();
        let mut seen = BTreeSet::from([from]);
        for &lan in self.nodes[from].lans.iter().filter(|lan| self.is_lan_up[**lan]) {
            by_lan.insert(lan, NextHop { interface: id(lan), gateway: None, metric: 0 });
            let mut others: Vec<Router> = self.live(lan).filter(|next| *next != from).collect();
            // Routers choose differently among equals.
            if from % 2 == 1 {
                others.reverse();
            }
            for next in others {
                let gateway = Some(self.router_address(next, lan));
                if seen.insert(next) {
                    queue.push_back((next, NextHop { interface: id(lan), gateway, metric: 1 }));
                }
            }
        }
        while let Some((router, hop)) = queue.pop_front() {
            for &lan in self.nodes[router].lans.iter().filter(|lan| self.is_lan_up[**lan]) {
                by_lan.entry(lan).or_insert(hop);
                for next in self.live(lan) {
                    if seen.insert(next) {
                        queue.push_back((next, NextHop { metric: hop.metric + 1, ..hop }));
                    }
                }
            }
        }
        let lans = self.nodes[from].lans.iter().copied();
        let with_routers = lans.filter(|lan| self.lans[*lan].len() > 1).map(id).collect();
        Table { by_lan, with_routers }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn is_lost(&mut self) -> bool {
        self.loss > 0.0 && chance::uniform(&mut self.random) < self.loss
    }

    /// Passes on what a router has to say.
    fn drain(&mut self, router: Router) {
        while let Some(transmit) = self.nodes[router].plane.poll_transmit() {
            let lan = transmit.interface.0 as usize;
            assert_eq!(transmit.from, self.router_address(router, lan));
            self.sent += 1;
            self.broadcast(lan, Some(router), &transmit);
        }
        let node = &mut self.nodes[router];
        while let Some(change) = node.plane.poll_forwarding() {
            match change {
                ForwardingChange::Set { channel, input, outputs } => {
                    assert!(!outputs.contains(&input) && outputs.is_sorted());
                    node.forwarding.insert(channel, (input, outputs));
                }
                ForwardingChange::Remove { channel } => {
                    assert!(node.forwarding.remove(&channel).is_some());
                }
            }
        }
        while node.plane.poll_cost().is_some() {}
    }

    fn broadcast(&mut self, lan: Lan, sender: Option<Router>, transmit: &ControlTransmit) {
        if !self.is_lan_up[lan] {
            return;
        }
        let at = self.now + DELAY;
        for router in self.lans[lan].clone() {
            if Some(router) != sender && !self.is_lost() {
                self.schedule(at, Event::Router(router, lan, transmit.clone()));
            }
        }
        let query = match (transmit.protocol, transmit.from, transmit.to) {
            (Protocol::Igmp, _, _) => igmp::parse(&transmit.payload),
            (Protocol::Icmpv6, IpAddr::V6(from), IpAddr::V6(to)) => {
                mld::parse(&transmit.payload, from, to)
            }
            _ => return,
        };
        let Ok(Some(Message::Query(query))) = query else { return };
        let on_lan = self.hosts.keys().copied().filter(|(on, _)| *on == lan);
        for host in on_lan.collect::<Vec<_>>() {
            if !self.is_lost() {
                self.schedule(at, Event::Host(host, query.clone()));
            }
        }
    }

    /// Answers a query of a host's wishes.
    fn answer(&mut self, host: HostId, query: &Query) {
        let Some(wants) = self.hosts.get(&host) else { return };
        let mut by_group: BTreeMap<IpAddr, Vec<IpAddr>> = BTreeMap::new();
        for channel in wants {
            let asked = query.group.is_none_or(|group| group == channel.group)
                && (query.sources.is_empty() || query.sources.contains(&channel.source));
            if asked {
                by_group.entry(channel.group).or_default().push(channel.source);
            }
        }
        for (group, sources) in by_group {
            let wait = query.max_response.mul_f64(chance::uniform(&mut self.random));
            let record = Record { kind: RecordType::IsInclude, group, sources };
            self.schedule(self.now + wait, Event::Say(host, record));
        }
    }

    fn say(&mut self, host: HostId, record: &Record) {
        if !self.hosts.contains_key(&host) {
            return;
        }
        // By then it may want something else.
        let is_wanted = |source: &IpAddr| {
            self.hosts[&host].contains(&SourceGroup { group: record.group, source: *source })
        };
        let wanted = record.kind != RecordType::Block;
        let mut record = record.clone();
        record.sources.retain(|source| is_wanted(source) == wanted);
        let (from, mut payload) = (self.host_address(host), Vec::new());
        let message = Message::Report(Report { records: vec![record], offer: None });
        let (protocol, to) = match from {
            IpAddr::V4(_) => {
                igmp::emit(&message, &mut payload);
                (Protocol::Igmp, igmp::REPORT_GROUP.into())
            }
            IpAddr::V6(from) => {
                mld::emit(&message, from, mld::REPORT_GROUP, &mut payload);
                (Protocol::Icmpv6, mld::REPORT_GROUP.into())
            }
        };
        let (interface, payload) = (id(host.0), payload.into());
        let router_alert = true;
        let transmit = ControlTransmit { interface, from, to, protocol, router_alert, payload };
        self.broadcast(host.0, None, &transmit);
    }

    /// Makes a host join or leave a channel, and report that twice.
    pub(super) fn want(&mut self, host: HostId, channel: SourceGroup, is_join: bool) {
        let wants = self.hosts.entry(host).or_default();
        let changed = if is_join { wants.insert(channel) } else { wants.remove(&channel) };
        if !changed {
            return;
        }
        let kind = if is_join { RecordType::Allow } else { RecordType::Block };
        let record = Record { kind, group: channel.group, sources: vec![channel.source] };
        let again = Duration::from_secs(1).mul_f64(chance::uniform(&mut self.random));
        self.schedule(self.now, Event::Say(host, record.clone()));
        self.schedule(self.now + again, Event::Say(host, record));
    }

    pub(super) fn wanted(&self) -> BTreeSet<(Lan, SourceGroup)> {
        let wants = |(host, channels): (&HostId, &BTreeSet<SourceGroup>)| {
            channels.iter().map(|channel| (host.0, *channel)).collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(wants).collect()
    }

    /// Sets a LAN down or up, with the interfaces of its routers.
    pub(super) fn set_lan(&mut self, lan: Lan, is_up: bool) {
        if self.is_lan_up[lan] == is_up {
            return;
        }
        self.is_lan_up[lan] = is_up;
        for router in self.lans[lan].clone() {
            if !self.nodes[router].is_up {
                continue;
            }
            if is_up {
                self.interface_up(router, lan);
            } else {
                let (now, node) = (self.now, &mut self.nodes[router]);
                node.plane.interface_down(now, &node.table, id(lan));
                self.drain(router);
            }
        }
        self.find_routes();
    }

    /// Stops a router without a word.
    pub(super) fn stop(&mut self, router: Router) {
        self.nodes[router].is_up = false;
        self.nodes[router].forwarding.clear();
        self.find_routes();
    }

    /// Starts a router that knows nothing.
    pub(super) fn restart(&mut self, router: Router) {
        let random = chance::generator(rand(&mut self.random));
        let table = self.table(router);
        let node = &mut self.nodes[router];
        node.plane = ControlPlane::new(self.config.clone(), random);
        (node.table, node.is_up) = (table, true);
        node.forwarding.clear();
        for lan in self.nodes[router].lans.clone() {
            if self.is_lan_up[lan] {
                self.interface_up(router, lan);
            }
        }
        self.find_routes();
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up);
            let timer = timers.filter_map(|(n, node)| Some((node.plane.poll_timeout()?, n))).min();
            let next = event.into_iter().chain(timer.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if let Some((_, router)) = timer.filter(|(at, _)| *at <= self.now) {
                let (now, node) = (self.now, &mut self.nodes[router]);
                node.plane.handle_timeout(now, &node.table);
                self.drain(router);
            } else if let Some((_, event)) = self.events.pop_first() {
                self.happen(event);
            }
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Router(router, lan, transmit) => {
                if !self.is_lan_up[lan] || !self.nodes[router].is_up {
                    return;
                }
                let ControlTransmit { from, to, protocol, ref payload, .. } = transmit;
                let interface = id(lan);
                let message = ControlMessage { interface, from, to, protocol, payload };
                let (now, node) = (self.now, &mut self.nodes[router]);
                node.plane.handle_message(now, &node.table, message);
                self.drain(router);
            }
            Event::Host(host, query) => self.answer(host, &query),
            Event::Say(host, record) => self.say(host, &record),
        }
    }

    /// Sends a packet of a channel from a LAN. Returns how many copies each LAN gets, the first one
    /// included. Routers are told of packets that they have no entry for, or do not expect there.
    pub(super) fn send(&mut self, from: Lan, channel: SourceGroup) -> BTreeMap<Lan, u32> {
        let mut copies = BTreeMap::new();
        let mut queue = VecDeque::from([(from, None, 64)]);
        while let Some((lan, sender, ttl)) = queue.pop_front() {
            if !self.is_lan_up[lan] || ttl == 0 {
                continue;
            }
            *copies.entry(lan).or_default() += 1;
            for router in self.lans[lan].clone() {
                if Some(router) == sender || !self.nodes[router].is_up {
                    continue;
                }
                let (now, node) = (self.now, &mut self.nodes[router]);
                match node.forwarding.get(&channel) {
                    Some((input, outputs)) if *input == id(lan) => {
                        let to = outputs.iter().map(|to| to.0 as usize);
                        queue.extend(to.map(|to| (to, Some(router), ttl - 1)));
                    }
                    Some(_) => node.plane.wrong_interface(now, &node.table, channel, id(lan)),
                    None => node.plane.unresolved(now, &node.table, channel, id(lan)),
                }
                self.drain(router);
            }
        }
        copies
    }

    /// Returns the LANs that can be reached from a LAN.
    pub(super) fn reachable(&self, from: Lan) -> BTreeSet<Lan> {
        let Some(router) = self.live(from).next() else { return BTreeSet::new() };
        self.table(router).by_lan.into_keys().collect()
    }

    /// Returns how many trees and members all routers know.
    pub(super) fn state(&self) -> (usize, usize) {
        let mut state = (0, 0);
        for node in self.nodes.iter().filter(|node| node.is_up) {
            let status = node.plane.status(self.now);
            state.0 += status.trees.len();
            let links = status.interfaces.iter().flat_map(|interface| &interface.links);
            state.1 += links.map(|link| link.members.len()).sum::<usize>();
        }
        state
    }

    /// Returns all that routers have dropped, by reason.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for node in &self.nodes {
            for (reason, count) in node.plane.status(self.now).drops {
                *drops.entry(reason).or_default() += count;
            }
        }
        drops
    }
}

pub(super) fn rand(random: &mut Generator) -> u64 {
    rand_core::Rng::next_u64(random)
}
