//! Reach of repairs and NACKs.

use std::any::Any;
use std::collections::BTreeSet;

use super::*;
use crate::trace::{Hop, NoteRecord, PacketRecord, Tracer};

/// Links that repairs and NACKs crossed.
#[derive(Debug, Default)]
struct Crossed(BTreeSet<LinkId>, u32);

impl Tracer for Crossed {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        if record.what == Hop::Sent && matches!(record.packet.kind, Kind::Repair | Kind::Nak) {
            self.0.extend(record.link);
            self.1 += 1;
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

/// Runs a feed that loses original packets where `loses` returns true. Returns the names of the
/// nodes at the ends of the links that repairs and NACKs crossed.
fn reached(loses: impl Fn(&str) -> bool) -> (BTreeSet<String>, u32) {
    let mut world = World::new(PACKETS, 7, |_, spec| spec);
    // The same network, with loss only at the selected places.
    let (plain, ..) = network(&PACKETS, |_, spec| spec);
    let mut network = Network::new();
    for (node, kind) in plain.nodes() {
        match kind {
            crate::NodeKind::Host => network.host(plain.name(node)),
            crate::NodeKind::Router => network.router(plain.name(node)),
            crate::NodeKind::Switch => network.switch(plain.name(node)),
        };
    }
    for (link, a, b) in plain.links() {
        let (forth, back) = plain.specs(link);
        let mut forth = forth.clone();
        if loses(plain.name(b)) {
            forth.loss = Loss::Bernoulli(0.1);
            forth.loss_of = crate::Kinds::NONE.with(Kind::Data);
        }
        network.link(a, b, forth, back.clone()).unwrap();
    }
    let rate = Rate::from_bits_per_s(PACKETS.kbit_per_s * 1_000).unwrap();
    let run = BlockCount { count: PACKETS.blocks, symbols: 1 };
    let mut config = world.feed.source_config(rate);
    config.tree.max_children = PACKETS.max_children;
    world.simulation = Simulation::new(network, 7);
    let host = Source::host(&world.feed, config, [(at(START), run)]);
    world.simulation.set_app(world.source, host, Instant::EPOCH).unwrap();
    // One subnet after the other, so that each finds its neighbour.
    world.begin_each(400);
    world.simulation.run_until(at(START));
    world.simulation.set_tracer(Box::new(Crossed::default()));
    let all = world.receivers.clone();
    world.run_until_complete(&all);
    world.check(&all, "loss in one place");
    let tracer: Box<dyn Any> = world.simulation.take_tracer().unwrap();
    let crossed = tracer.downcast::<Crossed>().unwrap();
    let network = world.simulation.network();
    let ends = crossed.0.iter().flat_map(|link| <[NodeId; 2]>::from(network.ends(*link)));
    (ends.map(|node| network.name(node).to_owned()).collect(), crossed.1)
}

#[test]
fn what_a_member_lost_is_repaired_in_its_subnet() {
    // Neither is a manager, because those started first.
    let (reached, crossings) = reached(|to| to == "h5.1" || to == "h5.2");
    let subnet = ["n5", "h5.0", "h5.1", "h5.2", "r2"].map(str::to_owned);
    assert!(crossings > 20);
    // The router is on the subnet's link, and forwards nothing.
    assert_eq!(reached, subnet.into());
}

#[test]
fn what_a_subnet_lost_is_repaired_from_next_door() {
    let (reached, crossings) = reached(|to| to == "n5");
    assert!(crossings > 20);
    // The parent of the subnet's manager is at the same router or at the next. Nothing comes near
    // the source.
    assert!(!reached.contains("source") && !reached.contains("r0"), "{reached:?}");
}
