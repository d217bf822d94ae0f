//! Shapes without randomness.

use super::{Core, CoreLink, NodeKind, NodeSpec, router};

pub(super) fn star() -> Core {
    // With snooping and a querier, the switch of a lab forwards groups to their members only, as a
    // simulated one does.
    let kind = NodeKind::Switch { snooping: true, querier: true };
    Core {
        nodes: vec![NodeSpec { name: "hub".to_owned(), kind }],
        edge: vec![0],
        source: Some(0),
        receivers_each: 1,
        ..Core::default()
    }
}

pub(super) fn line(routers: usize) -> Core {
    Core {
        nodes: (1..=routers).map(|n| router(format!("r{n}"))).collect(),
        links: (1..routers).map(|n| CoreLink::plain(n - 1, n)).collect(),
        edge: vec![routers - 1],
        source: Some(0),
        receivers_each: 1,
        ..Core::default()
    }
}

pub(super) fn tree(depth: u32, fanout: usize) -> Core {
    let mut core = Core {
        nodes: vec![router("r1".to_owned())],
        source: Some(0),
        receivers_each: fanout,
        ..Core::default()
    };
    let mut level = 0..1;
    for _ in 1..depth {
        let below = level.end..level.end + level.len() * fanout;
        for (n, child) in below.clone().enumerate() {
            core.nodes.push(router(format!("r{}", child + 1)));
            core.links.push(CoreLink::plain(level.start + n / fanout, child));
        }
        level = below;
    }
    core.edge = level.collect();
    core
}

pub(super) fn dumbbell() -> Core {
    Core {
        nodes: vec![router("left".to_owned()), router("right".to_owned())],
        links: vec![CoreLink::plain(0, 1)],
        edge: vec![1],
        source: Some(0),
        receivers_each: 1,
        ..Core::default()
    }
}
