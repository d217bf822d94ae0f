use super::*;
use crate::link::Loss;

/// A source, then three routers in a row, each with a leaf; every link takes 10 ms.
struct Row {
    network: Network,
    source: NodeId,
    leaves: [NodeId; 3],
}

fn row() -> Row {
    let mut network = Network::new();
    let source = network.host("source");
    let mut above = source;
    let leaves = [0, 1, 2].map(|n| {
        let router = network.router(format!("r{n}"));
        let leaf = network.host(format!("leaf{n}"));
        network.link(above, router, delay_ms(10), delay_ms(10)).unwrap();
        network.link(router, leaf, delay_ms(10), delay_ms(10)).unwrap();
        above = router;
        leaf
    });
    Row { network, source, leaves }
}

#[test]
fn a_join_travels_up_hop_by_hop_until_it_meets_the_tree() {
    let Row { network, source, leaves: [near, _, far] } = row();
    let joins = Do::Join(Some(source));
    let packets = stream(source, 200);
    let mut simulation = scripted(
        network,
        &[(source, &packets), (far, &[(ms(0), joins)]), (near, &[(ms(60), joins)])],
    );
    simulation.run_until(ms(1_000));
    // Four links up, four down: the first packet is the one of 40 ms.
    assert_eq!(got(&simulation, far)[0], (ms(80), 40));
    assert_eq!(got(&simulation, far).len(), 160);
    // The first router is on the tree: it has the packet of 60 ms when the join comes at 70 ms.
    assert_eq!(got(&simulation, near)[0], (ms(80), 60));
}

#[test]
fn a_graft_latency_that_is_set_counts_for_every_hop() {
    let Row { mut network, source, leaves: [_, _, far] } = row();
    network.set_graft_latency(Duration::from_millis(1));
    let packets = stream(source, 50);
    let mut simulation =
        scripted(network, &[(source, &packets), (far, &[(ms(0), Do::Join(Some(source)))])]);
    simulation.run_until(ms(1_000));
    // The join reaches the source at 4 ms, after that moment's packet has left.
    assert_eq!(got(&simulation, far)[0], (ms(45), 5));
}

#[test]
fn after_a_leave_packets_come_for_the_prune_latency_and_are_not_delivered() {
    let Row { mut network, source, leaves: [near, _, far] } = row();
    network.set_graft_latency(Duration::ZERO);
    network.set_prune_latency(Duration::from_millis(7));
    let joins = (ms(0), Do::Join(Some(source)));
    let leaves = (ms(100), Do::Leave(Some(source)));
    let packets = stream(source, 300);
    let mut simulation =
        scripted(network, &[(source, &packets), (near, &[joins]), (far, &[joins, leaves])]);
    simulation.run_until(ms(1_000));
    let hops = |name: &str| {
        let network = simulation.network();
        let (link, ..) = network.links().find(|(_, _, b)| network.name(*b) == name).unwrap();
        simulation.link_counters(link).0.packets
    };
    // Nothing is delivered from the leave on. Up to 107, 114 and 121 ms packets continue to enter
    // the links, each 10 ms closer to the source. They stop when the link's router has received the
    // leave.
    assert_eq!(got(&simulation, far).last(), Some(&(ms(99), 59)));
    assert_eq!(hops("leaf2"), 107 - 30);
    assert_eq!(hops("r2"), 114 - 20);
    assert_eq!(hops("r1"), 121 - 10);
    // The first router has its own leaf. The first packet left before any join.
    assert_eq!((hops("r0"), hops("leaf0")), (299, 299));
    assert_eq!(hops("leaf1"), 0);
}

#[test]
fn a_member_that_comes_back_before_the_prune_misses_only_its_absence() {
    let Row { mut network, source, leaves: [near, ..] } = row();
    network.set_graft_latency(Duration::ZERO);
    network.set_prune_latency(Duration::from_millis(10));
    let script = [
        (ms(0), Do::Join(Some(source))),
        (ms(50), Do::Leave(Some(source))),
        (us(55_500), Do::Join(Some(source))),
    ];
    let packets = stream(source, 100);
    let mut simulation = scripted(network, &[(source, &packets), (near, &script)]);
    simulation.run_until(ms(1_000));
    let flows: Vec<u32> = got(&simulation, near).iter().map(|(_, flow)| *flow).collect();
    // On the links for 20 ms, and absent while those of 30 to 35 ms arrive.
    let expected: Vec<u32> = (1..100).filter(|flow| !(30..=35).contains(flow)).collect();
    assert_eq!(flows, expected);
}

#[test]
fn a_join_that_is_taken_back_on_its_way_leaves_no_branch() {
    let Row { network, source, leaves: [_, _, far] } = row();
    let script = [(ms(0), Do::Join(Some(source))), (ms(5), Do::Leave(Some(source)))];
    let packets = stream(source, 100);
    let mut simulation = scripted(network, &[(source, &packets), (far, &script)]);
    simulation.run_until(ms(1_000));
    assert_eq!(simulation.counters().hops, 0);
}

#[test]
fn branches_that_came_and_went_are_found_again() {
    let mut network = Network::new();
    let source = network.host("source");
    let hub = network.router("hub");
    network.link(source, hub, delay_ms(0), delay_ms(0)).unwrap();
    network.set_prune_latency(Duration::ZERO);
    let leaves: Vec<NodeId> = (0..50).map(|n| network.host(format!("{n}"))).collect();
    // Leaves join in turn, each for 3 of 10 ms. All return four times.
    let mut scripts = vec![(source, stream(source, 60))];
    for (n, leaf) in leaves.iter().enumerate() {
        network.link(hub, *leaf, delay_ms(2), delay_ms(0)).unwrap();
        let visits = (0..5).flat_map(|round| {
            let come = ms(round * 10 + n as u64 % 10);
            let half = Duration::from_micros(500);
            [
                (come + half, Do::Join(Some(source))),
                (come + half + Duration::from_millis(3), Do::Leave(Some(source))),
            ]
        });
        scripts.push((*leaf, visits.collect()));
    }
    let scripts: Vec<_> = scripts.iter().map(|(node, script)| (*node, script.as_slice())).collect();
    let mut simulation = scripted(network, &scripts);
    simulation.run_until(ms(1_000));
    for (n, leaf) in leaves.iter().enumerate() {
        // The leaf is present when the packets sent at -1, 0 and 1 ms after `come` arrive. Its
        // branch exists only while the leaf is a member, so that in every round only the packet of
        // 1 ms is sent to it.
        let flows: Vec<u32> = got(&simulation, *leaf).iter().map(|(_, flow)| *flow).collect();
        let expected: Vec<u32> = (0..5).map(|round| round * 10 + n as u32 % 10 + 1).collect();
        assert_eq!(flows, expected, "leaf {n}");
    }
}

#[test]
fn loss_on_a_shared_link_hits_all_behind_it_and_on_a_leaf_only_that_one() {
    let mut network = Network::new();
    network.set_graft_latency(Duration::ZERO);
    let source = network.host("source");
    let hub = network.router("hub");
    let lossy = || LinkSpec::default().loss(Loss::Bernoulli(0.3));
    network.link(source, hub, lossy(), delay_ms(0)).unwrap();
    let leaves = ["a", "b", "c"].map(|name| network.host(name));
    network.link(hub, leaves[0], delay_ms(0), delay_ms(0)).unwrap();
    network.link(hub, leaves[1], delay_ms(0), delay_ms(0)).unwrap();
    network.link(hub, leaves[2], lossy(), delay_ms(0)).unwrap();
    let packets = stream(source, 2_000);
    let join: &[_] = &[(ms(0), Do::Join(Some(source)))];
    let mut scripts = vec![(source, packets.as_slice())];
    scripts.extend(leaves.map(|leaf| (leaf, join)));
    let mut simulation = scripted(network, &scripts);
    simulation.run_until(ms(10_000));
    let [a, b, c] = leaves.map(|leaf| got(&simulation, leaf));
    assert_eq!(a, b);
    assert!((1_320..1_480).contains(&a.len()), "{}", a.len());
    assert!((880..1_080).contains(&c.len()), "{}", c.len());
    assert!(c.iter().all(|packet| a.contains(packet)));
}

#[test]
fn anyone_can_send_to_a_channel_of_any_source() {
    let Row { network, source, leaves: [near, middle, far] } = row();
    let join = (ms(0), Do::Join(None));
    let mut simulation = scripted(
        network,
        &[
            (source, &[join]),
            (near, &[join, (ms(200), Do::Cast(None, 2))]),
            // The tree of a new source has branches to all members.
            (middle, &[(ms(100), Do::Cast(None, 1))]),
            (far, &[join, (ms(150), Do::Leave(None)), (ms(201), join.1)]),
        ],
    );
    simulation.run_until(ms(1_000));
    assert_eq!(got(&simulation, source), [(ms(130), 1), (ms(220), 2)]);
    assert_eq!(got(&simulation, near), [(ms(130), 1)]);
    assert_eq!(got(&simulation, middle), []);
    assert_eq!(got(&simulation, far), [(ms(130), 1)]);
}

#[test]
fn only_its_source_can_send_to_a_channel_that_has_one() {
    let Row { network, source, leaves: [near, middle, _] } = row();
    let mut simulation = scripted(
        network,
        &[
            (near, &[(ms(0), Do::Join(Some(source)))]),
            (middle, &[(ms(100), Do::Cast(Some(source), 1))]),
            (source, &[(ms(100), Do::Cast(Some(source), 2))]),
        ],
    );
    simulation.run_until(ms(1_000));
    assert_eq!(got(&simulation, near), [(ms(120), 2)]);
    assert_eq!(simulation.counters().no_route, 1);
}

#[test]
fn a_flooded_channel_reaches_whom_its_tree_would_reach_and_no_farther() {
    // Two directions around a square of routers, each with a leaf; one of them has left.
    let mut network = Network::new();
    let routers = [0, 1, 2, 3].map(|n| network.router(format!("r{n}")));
    for (a, b, delay) in [(0, 1, 10), (1, 2, 10), (2, 3, 10), (3, 0, 50)] {
        network.link(routers[a], routers[b], delay_ms(delay), delay_ms(delay)).unwrap();
    }
    let leaves = routers.map(|router| {
        let leaf = network.host(format!("leaf{}", router.0));
        network.link(router, leaf, delay_ms(1), delay_ms(1)).unwrap();
        leaf
    });
    let run = |is_flooded: bool, hop_limit: u8| {
        let joins: Vec<(NodeId, Vec<(Instant, Do)>)> = leaves
            .iter()
            .map(|&leaf| {
                let mut script = vec![(ms(0), Do::Join(None))];
                if leaf == leaves[1] {
                    script.push((ms(50), Do::Leave(None)));
                }
                if leaf == leaves[0] {
                    script.push((ms(500), Do::CastNear(9, hop_limit)));
                }
                (leaf, script)
            })
            .collect();
        let scripts: Vec<(NodeId, &[(Instant, Do)])> =
            joins.iter().map(|(leaf, script)| (*leaf, script.as_slice())).collect();
        let mut simulation = scripted(network.clone(), &scripts);
        if is_flooded {
            let group = simulation.group(None, GROUP);
            simulation.flood(group);
        }
        simulation.run_until(ms(1_000));
        let arrivals = leaves.map(|leaf| got(&simulation, leaf).to_vec());
        (arrivals, simulation.counters().sent, simulation.counters().hops)
    };
    for hop_limit in [2, 3, 4, 5, 255] {
        let (tree, flood) = (run(false, hop_limit), run(true, hop_limit));
        assert_eq!(tree.0, flood.0, "hop limit {hop_limit}");
        assert_eq!(tree.1, flood.1);
    }
    let (arrivals, _, hops) = run(true, 255);
    // The long way has no members, and nothing comes back to the sender.
    let times = arrivals.map(|got| got.iter().map(|&(at, _)| at).collect::<Vec<_>>());
    assert_eq!(times, [vec![], vec![], vec![ms(522)], vec![ms(532)]]);
    assert_eq!(hops, 6);
}
