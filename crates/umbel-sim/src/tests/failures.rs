use super::*;

/// A ring of four routers with a host on the first and one on the third. One direction around takes
/// 2 ms, the other 6 ms. `schedule` is that of the faster one.
struct Ring {
    network: Network,
    a: NodeId,
    c: NodeId,
}

fn ring(schedule: &[(Instant, bool)], other: &[(Instant, bool)]) -> Ring {
    let mut network = Network::new();
    let routers = ["ra", "rb", "rc", "rd"].map(|name| network.router(name));
    let (a, c) = (network.host("a"), network.host("c"));
    let [ra, rb, rc, rd] = routers;
    let around = delay_ms(1).schedule(schedule.to_vec());
    network.link(ra, rb, around, delay_ms(1)).unwrap();
    network.link(rb, rc, delay_ms(1), delay_ms(1)).unwrap();
    let other = delay_ms(3).schedule(other.to_vec());
    network.link(ra, rd, other, delay_ms(3)).unwrap();
    network.link(rd, rc, delay_ms(3), delay_ms(3)).unwrap();
    network.link(a, ra, delay_ms(1), delay_ms(1)).unwrap();
    network.link(c, rc, delay_ms(1), delay_ms(1)).unwrap();
    Ring { network, a, c }
}

/// Returns the delays in milliseconds of flows that are numbered by the millisecond of sending.
fn delays(simulation: &Simulation, host: NodeId) -> Vec<(u32, u64)> {
    let delay = |at: Instant, flow: u32| (at - ms(u64::from(flow))).as_millis() as u64;
    got(simulation, host).iter().map(|&(at, flow)| (flow, delay(at, flow))).collect()
}

#[test]
fn unicast_takes_the_other_way_while_a_link_is_down() {
    let Ring { network, a, c } = ring(&[(ms(10), false), (ms(20), true)], &[]);
    let script: Vec<_> = (0..30).map(|n| (ms(u64::from(n)), Do::Send(c, n, 255))).collect();
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.run_until(ms(100));
    let mut expected = Vec::new();
    for flow in 0..30 {
        match flow {
            // On the link when it went down: sent at 8, it entered at 9 and would have left at 10.
            8 => {}
            // The route is chosen 1 ms after sending.
            9..19 => expected.push((flow, 8)),
            _ => expected.push((flow, 4)),
        }
    }
    let mut measured = delays(&simulation, c);
    measured.sort_unstable();
    assert_eq!(measured, expected);
    assert_eq!(simulation.counters().down, 1);
}

#[test]
fn multicast_grafts_onto_the_other_way() {
    let Ring { network, a, c } = ring(&[(ms(100), false)], &[]);
    let packets = stream(a, 200);
    let mut simulation = scripted(network, &[(a, &packets), (c, &[(ms(0), Do::Join(Some(a)))])]);
    simulation.run_until(ms(1_000));
    let delays = delays(&simulation, c);
    // The join takes 4 ms, and the packet of that moment was scheduled earlier than its last hop.
    assert_eq!(delays[0], (5, 4));
    let (before, after): (Vec<_>, Vec<_>) =
        delays.iter().copied().partition(|(_, delay): &(u32, u64)| *delay == 4);
    // The packet of 98 is on the link at 100. The old route is left at once. So the join on the new
    // one has to travel to the source: 3 + 3 + 1 ms.
    assert_eq!(before.last().unwrap().0, 97);
    assert_eq!(after.first(), Some(&(107, 8)));
    assert_eq!(after.len(), 93);
}

#[test]
fn a_partition_heals_and_the_tree_goes_on() {
    let cut = [(ms(50), false), (ms(100), true)];
    let Ring { network, a, c } = ring(&cut, &[(ms(0), false)]);
    let packets = stream(a, 200);
    let mut simulation = scripted(network, &[(a, &packets), (c, &[(ms(0), Do::Join(Some(a)))])]);
    simulation.run_until(ms(1_000));
    let flows: Vec<u32> = got(&simulation, c).iter().map(|(_, flow)| *flow).collect();
    // Packets enter the link 1 ms after they were sent, and leave it 1 ms later.
    assert_eq!(flows, (5..48).chain(99..200).collect::<Vec<_>>());
    assert_eq!(simulation.counters().down, 51);
}

#[test]
fn a_join_that_meets_a_cut_link_waits_for_it() {
    let mut network = Network::new();
    let (source, leaf) = (network.host("source"), network.host("leaf"));
    let [x, y] = ["x", "y"].map(|name| network.router(name));
    network.link(source, x, delay_ms(1), delay_ms(1)).unwrap();
    let cut = delay_ms(1).schedule(vec![(ms(0), false), (ms(30), true)]);
    network.link(x, y, cut, delay_ms(1)).unwrap();
    network.link(y, leaf, delay_ms(1), delay_ms(1)).unwrap();
    let packets = stream(source, 100);
    let mut simulation =
        scripted(network, &[(source, &packets), (leaf, &[(ms(5), Do::Join(Some(source)))])]);
    simulation.run_until(ms(1_000));
    // The join continues at 30 from the second router and reaches the source at 32.
    assert_eq!(got(&simulation, leaf)[0], (ms(35), 32));
}

#[test]
fn a_source_below_the_cut_is_waited_for_too() {
    // As above, but the link is above the joining side in the routers' own tree.
    let mut network = Network::new();
    let (leaf, source) = (network.host("leaf"), network.host("source"));
    let x = network.router("x");
    network.link(leaf, x, delay_ms(1), delay_ms(1)).unwrap();
    let cut = delay_ms(1).schedule(vec![(ms(0), false), (ms(30), true)]);
    network.link(x, source, cut, delay_ms(1)).unwrap();
    let packets = stream(source, 100);
    let mut simulation =
        scripted(network, &[(source, &packets), (leaf, &[(ms(5), Do::Join(Some(source)))])]);
    simulation.run_until(ms(1_000));
    assert_eq!(got(&simulation, leaf)[0], (ms(33), 31));
}

#[test]
fn a_packet_without_a_way_does_not_set_out() {
    let mut network = Network::new();
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let routers = ["ra", "rb", "rc"].map(|name| network.router(name));
    for (host, router) in hosts.into_iter().zip(routers) {
        network.link(host, router, delay_ms(1), delay_ms(1)).unwrap();
    }
    // The third router is another network.
    network.link(routers[0], routers[1], delay_ms(1), delay_ms(1)).unwrap();
    let [a, b, c] = hosts;
    let script = [(ms(1), Do::Send(c, 1, 255)), (ms(2), Do::Send(b, 2, 255))];
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.run_until(ms(1_000));
    assert_eq!(got(&simulation, b), [(ms(5), 2)]);
    let counters = simulation.counters();
    assert_eq!((counters.no_route, counters.hops), (1, 3));
}

#[test]
fn a_packet_does_not_set_out_while_every_way_around_is_cut() {
    let Ring { network, a, c } = ring(&[(ms(10), false)], &[(ms(10), false)]);
    let mut simulation = scripted(network, &[(a, &[(ms(20), Do::Send(c, 1, 255))])]);
    simulation.run_until(ms(1_000));
    let counters = simulation.counters();
    assert_eq!((counters.no_route, counters.hops), (1, 0));
}
