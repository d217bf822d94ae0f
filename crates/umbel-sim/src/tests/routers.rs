use umbel_engine::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterTransmit, Routes, Upstream, Verdict,
};
use umbel_engine::{Address, RouterEngine};

use super::*;
use crate::TreeLinks;
use crate::network::LinkId;
use crate::router::{Forwarding, RouterHook, RouterHost};

/// Takes flow 1, turns flow 2 into a multicast on one link, and records the rest.
struct Steering {
    source: NodeId,
    on: LinkId,
    seen: Vec<(Instant, u32, u8, LinkId)>,
    place: Option<TreeLinks>,
    woken: Vec<Instant>,
}

impl RouterHook for Steering {
    fn start(&mut self, context: &mut Context<'_>) {
        context.wake_at(Some(ms(50)));
    }

    fn forward(
        &mut self,
        context: &mut Context<'_>,
        packet: &Packet,
        arrived_on: LinkId,
    ) -> Forwarding {
        self.seen.push((context.now(), packet.flow.0, packet.hop_limit, arrived_on));
        match packet.flow.0 {
            1 => Forwarding::Taken,
            2 => {
                let group = context.group(Some(self.source), GROUP);
                let destination = Destination::Group(group);
                context.send_on(
                    self.on,
                    Packet { source: self.source, destination, ..packet.clone() },
                );
                Forwarding::Taken
            }
            _ => Forwarding::Plain,
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.woken.push(context.now());
        let group = context.group(Some(self.source), GROUP);
        self.place = context.tree(group, self.source);
    }
}

#[test]
fn a_hook_takes_packets_and_sends_down_a_branch() {
    let mut network = Network::new();
    let [source, a, b, c] = ["source", "a", "b", "c"].map(|name| network.host(name));
    let [near, far] = ["near", "far"].map(|name| network.router(name));
    let up = network.link(source, near, delay_ms(1), delay_ms(1)).unwrap();
    let to_a = network.link(near, a, delay_ms(1), delay_ms(1)).unwrap();
    let to_far = network.link(near, far, delay_ms(1), delay_ms(1)).unwrap();
    network.link(far, b, delay_ms(1), delay_ms(1)).unwrap();
    network.link(far, c, delay_ms(1), delay_ms(1)).unwrap();
    let join = (ms(0), Do::Join(Some(source)));
    let sends: Vec<_> = (0..3).map(|flow| (ms(100), Do::Send(source, flow, 9))).collect();
    let sends: Vec<_> = sends.into_iter().chain([join]).collect();
    let cast = [(ms(200), Do::Cast(Some(source), 3))];
    let mut simulation =
        scripted(network, &[(a, &sends), (b, &[join]), (c, &[join]), (source, &cast)]);
    let hook = Steering { source, on: to_far, seen: Vec::new(), place: None, woken: Vec::new() };
    simulation.set_router_hook(near, hook).unwrap();
    simulation.run_until(ms(1_000));
    // Flow 0 passes, flow 1 ends, flow 2 goes down to b and c. The hook does not see flow 2 again.
    assert_eq!(got(&simulation, source), [(ms(102), 0)]);
    assert_eq!(got(&simulation, a), [(ms(202), 3)]);
    for leaf in [b, c] {
        assert_eq!(got(&simulation, leaf), [(ms(103), 2), (ms(203), 3)]);
    }
    let hook = simulation.router_hook::<Steering>(near).unwrap();
    let mut expected: Vec<_> = (0..3).map(|flow| (ms(101), flow, 9, to_a)).collect();
    expected.push((ms(201), 3, 255, up));
    assert_eq!(hook.seen, expected);
    assert_eq!(hook.woken, [ms(50)]);
    let place = hook.place.as_ref().unwrap();
    assert_eq!((place.upstream, place.downstream.len()), (Some(up), 2));
}

/// Counts the packets that are addressed to the router itself, and answers.
struct Answering(u32);

impl RouterHook for Answering {
    fn forward(
        &mut self,
        context: &mut Context<'_>,
        packet: &Packet,
        _arrived_on: LinkId,
    ) -> Forwarding {
        if packet.destination == Destination::Unicast(context.node()) {
            self.0 += 1;
            super::send(context, Destination::Unicast(packet.source), 8, 255);
        }
        Forwarding::Plain
    }
}

#[test]
fn a_router_can_be_spoken_to() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let router = network.router("r");
    network.link(a, router, delay_ms(1), delay_ms(1)).unwrap();
    network.link(b, router, delay_ms(1), delay_ms(1)).unwrap();
    let script = [(ms(0), Do::Send(router, 0, 1)), (ms(0), Do::Send(b, 1, 2))];
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.set_router_hook(router, Answering(0)).unwrap();
    simulation.run_until(ms(100));
    assert_eq!(got(&simulation, a), [(ms(2), 8)]);
    assert_eq!(got(&simulation, b), [(ms(2), 1)]);
    assert_eq!(simulation.router_hook::<Answering>(router).unwrap().0, 1);
    assert_eq!((simulation.counters().hop_limit, simulation.counters().no_route), (0, 0));
}

/// Takes packets that are addressed to the router, and sends them up, down a branch and to the
/// neighbours of that branch. Records the tree.
#[derive(Default)]
struct Relaying {
    wanted: Option<(umbel_wire::Channel, InterfaceId)>,
    due: Vec<RouterTransmit>,
    from: Vec<std::net::SocketAddr>,
    told: Vec<(Option<Upstream>, Vec<InterfaceId>, bool, bool)>,
}

impl RouterEngine for Relaying {
    fn handle_datagram(
        &mut self,
        _now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict {
        let Some((channel, interface)) = self.wanted else { return Verdict::Forward };
        if matches!(datagram.to, Address::Channel(_)) {
            return Verdict::Forward;
        }
        let source = channel.source.unwrap();
        let mut downstream = Vec::new();
        routes.downstream(&channel, &mut downstream);
        let is_downstream = routes.is_downstream(&channel, datagram.arrived_on);
        let attached = routes.is_attached(source);
        self.told.push((routes.upstream(&channel), downstream, is_downstream, attached));
        self.from.push(datagram.from);
        let port = channel.port;
        for to in [
            RouterDestination::Host((source, port).into()),
            RouterDestination::Branch { channel, interface },
            RouterDestination::Neighbours { interface, port },
        ] {
            let payload = Bytes::copy_from_slice(datagram.payload);
            self.due.push(RouterTransmit { to, alert: false, payload });
        }
        Verdict::Take
    }

    fn handle_timeout(&mut self, _now: Instant, _routes: &mut dyn Routes) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<RouterTransmit> {
        (!self.due.is_empty()).then(|| self.due.remove(0))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn a_router_engine_takes_a_datagram_and_sends_it_up_down_and_next_door() {
    let mut network = Network::new();
    let [source, a, b] = ["source", "a", "b"].map(|name| network.host(name));
    let [near, far] = ["near", "far"].map(|name| network.router(name));
    let up = network.link(source, near, delay_ms(1), delay_ms(1)).unwrap();
    let to_a = network.link(near, a, delay_ms(1), delay_ms(1)).unwrap();
    let to_far = network.link(near, far, delay_ms(1), delay_ms(1)).unwrap();
    network.link(far, b, delay_ms(1), delay_ms(1)).unwrap();
    let join = (ms(0), Do::Join(Some(source)));
    let sends = [join, (ms(100), Do::Send(source, 0, 255))];
    let mut simulation = scripted(network, &[(a, &sends), (b, &[join])]);
    let wanted = Some((crate::channel(Some(source), GROUP), InterfaceId(to_far.0)));
    let engine = Relaying { wanted, ..Relaying::default() };
    simulation.set_router_hook(near, RouterHost::new(engine, |_| Kind::Nak)).unwrap();
    let neighbour = Relaying::default();
    simulation.set_router_hook(far, RouterHost::new(neighbour, |_| Kind::Nak)).unwrap();
    simulation.run_until(ms(1_000));
    assert_eq!(got(&simulation, source), [(ms(102), 0)]);
    assert_eq!(got(&simulation, b), [(ms(103), 0)]);
    assert_eq!(got(&simulation, a), []);
    let engine = simulation.router_hook::<RouterHost<Relaying>>(near).unwrap().engine();
    let downstream = vec![InterfaceId(to_a.0), InterfaceId(to_far.0)];
    let upstream = Some(Upstream::Interface(InterfaceId(up.0)));
    assert_eq!(engine.told, [(upstream, downstream, true, true)]);
    assert_eq!(engine.from, [(crate::address_of(a), 7702).into()]);
}

/// Notes its links.
struct Surveyor(Vec<LinkId>);

impl RouterHook for Surveyor {
    fn start(&mut self, context: &mut Context<'_>) {
        self.0 = context.links().collect();
    }

    fn forward(&mut self, _: &mut Context<'_>, _: &Packet, _: LinkId) -> Forwarding {
        Forwarding::Plain
    }
}

#[test]
fn a_router_has_its_own_links_in_their_order() {
    let mut network = Network::new();
    let nodes: Vec<NodeId> = (0..5).map(|n| network.router(format!("r{n}"))).collect();
    // Two links join the same nodes, and one node has none.
    for (a, b) in [(0, 1), (2, 1), (1, 3), (3, 0), (0, 1)] {
        network.link(nodes[a], nodes[b], delay_ms(1), delay_ms(1)).unwrap();
    }
    let mut simulation = Simulation::new(network, 1);
    for node in &nodes {
        simulation.set_router_hook(*node, Surveyor(Vec::new())).unwrap();
    }
    simulation.run_until(ms(1));
    let links = |node: &NodeId| -> Vec<u32> {
        let Surveyor(links) = simulation.router_hook(*node).unwrap();
        links.iter().map(|link| link.0).collect()
    };
    let all: Vec<Vec<u32>> = nodes.iter().map(links).collect();
    assert_eq!(all, [vec![0, 3, 4], vec![0, 1, 2, 4], vec![1], vec![2, 3], vec![]]);
}
