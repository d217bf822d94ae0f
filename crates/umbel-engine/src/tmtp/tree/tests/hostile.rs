//! Liars and forgers: bounded and counted.

use umbel_wire::tmtp::{
    Beacon, Dismissal, Heartbeat, JoinConfirm, JoinRequest, Refusal, Search, Standing, Willing,
    limits,
};

use super::super::Parting;
use super::*;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Returns a beacon with a liar's claims.
fn beacon(path: Vec<NodeId>, epoch: u64) -> Beacon {
    Beacon {
        hop_limit: UNICAST_HOPS,
        port: PORT,
        role: Role::Manager,
        radius: 255,
        stamp_ns: 0,
        standing: Standing { epoch, depth: path.len().saturating_sub(1) as u16 },
        path,
        children: 0,
        timing: timing(),
        progress: Progress::default(),
        closing: false,
        watched: false,
    }
}

fn confirm(nonce: u64, beacon: Beacon) -> Body {
    let feed = outlook().feed.unwrap();
    Body::JoinConfirm(Box::new(JoinConfirm { nonce, token: 1, from: 0, feed, beacon }))
}

/// Returns an arrival by unicast from this node, through this number of routers.
fn arrival(from: usize, routers: u8) -> Arrival {
    let hops_left = Some(UNICAST_HOPS - routers);
    Arrival { from: address(from), multicast: false, hops_left }
}

/// Returns a node that searches a ring, and the nonce of its search.
fn searching() -> (World, usize, u64) {
    let mut world = World::row(4, TreeConfig::default());
    world.cut_off([0].into());
    let node = world.join(3);
    world.run_for(Duration::from_millis(450));
    let Stage::Ring { nonce, .. } = world.tree(node).stage else { panic!("no search") };
    (world, node, nonce)
}

use crate::tmtp::tree::search::Stage;

fn willing(nonce: u64, epoch: u64) -> Body {
    Body::Willing(Willing {
        nonce,
        hop_limit: UNICAST_HOPS,
        role: Role::Manager,
        children: 0,
        standing: Standing { epoch, depth: 1 },
    })
}

fn give(
    world: &mut World,
    node: usize,
    arrival: Arrival,
    message: &Message,
) -> Result<(), DropReason> {
    let now = world.now;
    let taken = world.tree_mut(node).handle(now, arrival, message);
    world.drain(node);
    taken
}

#[test]
fn a_join_confirm_that_nobody_asked_for_is_dropped() {
    let (mut world, node, _) = searching();
    let liar = world.add(NodeId(99), 1);
    let body = confirm(5, beacon(vec![SOURCE, NodeId(99)], 10));
    let message = from(&world, liar, body);
    assert_eq!(give(&mut world, node, arrival(liar, 2), &message), Err(DropReason::NotAsked));
    assert!(!world.tree(node).is_attached());
}

#[test]
fn a_join_confirm_from_another_than_the_node_asked_or_with_another_nonce_is_dropped() {
    let (mut world, node, nonce) = searching();
    let (asked, liar) = (world.add(NodeId(98), 1), world.add(NodeId(99), 1));
    for node in [asked, liar] {
        world.crash(node);
    }
    let answer = from(&world, asked, willing(nonce, 10));
    give(&mut world, node, arrival(asked, 1), &answer).unwrap();
    world.run_for(Duration::from_millis(250));
    let (_, nonce) = asks(&world, node);
    let honest = beacon(vec![SOURCE, NodeId(98)], 10);
    for (sender, by, nonce) in
        [(asked, liar, nonce), (liar, asked, nonce), (liar, liar, nonce), (asked, asked, nonce ^ 1)]
    {
        let mut beacon = honest.clone();
        beacon.path[1] = world.tree(sender).id;
        let message = from(&world, sender, confirm(nonce, beacon));
        let taken = give(&mut world, node, arrival(by, 1), &message);
        assert_eq!(taken, Err(DropReason::NotAsked));
    }
    let message = from(&world, asked, confirm(nonce, honest));
    give(&mut world, node, arrival(asked, 1), &message).unwrap();
    assert!(world.tree(node).is_attached());
}

#[test]
fn a_parent_that_lies_about_its_hops_is_found_out_and_barred() {
    let (mut world, node, nonce) = searching();
    // It says that it sent with a hop limit of 61 and sent with 64: it seems 3 hops nearer.
    let liar = world.add(NodeId(99), 1);
    world.crash(liar);
    let lie = Body::Willing(Willing {
        nonce,
        hop_limit: UNICAST_HOPS - 3,
        role: Role::Manager,
        children: 0,
        standing: Standing { epoch: 10, depth: 1 },
    });
    let message = from(&world, liar, lie);
    let near = Arrival { hops_left: Some(UNICAST_HOPS), ..arrival(liar, 0) };
    let taken = give(&mut world, node, near, &message);
    assert_eq!(taken, Err(DropReason::AbsurdHops), "nothing gains hops on its way");
    give(&mut world, node, arrival(liar, 3), &message).unwrap();
    world.run_for(Duration::from_millis(250));
    let (_, nonce) = asks(&world, node);
    let body = confirm(nonce, beacon(vec![SOURCE, NodeId(99)], 10));
    let message = from(&world, liar, body);
    give(&mut world, node, arrival(liar, 3), &message).unwrap();
    let parent = world.tree(node).parent().unwrap();
    assert_eq!((parent.hops, parent.radius), (1, 32), "a radius is at most the scope");
    // Its beacons do not reach the child, so that it serves no node.
    world.run_for(seconds(1));
    assert!(!world.tree(node).is_attached());
    assert!(world.tree(node).bars.is_barred(world.now, address(liar)));
    let Stage::Ring { nonce, .. } = world.tree(node).stage else { panic!("no search") };
    let message = from(&world, liar, willing(nonce, 20));
    assert_eq!(give(&mut world, node, arrival(liar, 1), &message), Err(DropReason::Barred));
}

#[test]
fn who_claims_to_be_farther_than_the_search_reached_is_not_believed() {
    let (mut world, node, nonce) = searching();
    let liar = world.add(NodeId(99), 1);
    let message = from(&world, liar, willing(nonce, 10));
    let taken = give(&mut world, node, arrival(liar, 40), &message);
    assert_eq!(taken, Err(DropReason::AbsurdHops));
}

/// Returns whom a node asks to be its parent, and the nonce of its request.
fn asks(world: &World, node: usize) -> (SocketAddr, u64) {
    let Stage::Joining { candidate, .. } = world.tree(node).stage else { panic!("asks nobody") };
    (candidate.address, candidate.asked.nonce.unwrap())
}

/// Returns a node that searches its subnet, and the nonce of its search.
fn searching_subnet(world: &mut World) -> (usize, u64) {
    let node = world.join(1);
    let Stage::Subnet { nonce, .. } = world.tree(node).stage else { panic!("no search") };
    (node, nonce)
}

#[test]
fn who_answers_a_search_first_and_then_is_silent_holds_nobody_up() {
    let mut world = World::row(2, TreeConfig::default());
    let manager = world.join(1);
    world.run_acknowledging(seconds(3));
    let liar = world.add(NodeId(99), 1);
    world.crash(liar);
    let (node, nonce) = searching_subnet(&mut world);
    let answer = from(&world, liar, willing(nonce, 10));
    give(&mut world, node, arrival(liar, 0), &answer).unwrap();
    assert_eq!(asks(&world, node).0, address(liar));
    world.run_for(Duration::from_millis(200));
    assert_eq!(world.parent(node), Some(manager));
}

#[test]
fn a_node_whose_request_is_not_answered_searches_for_others_again() {
    let mut world = World::row(2, TreeConfig::default());
    let manager = world.join(1);
    world.run_acknowledging(seconds(3));
    let liar = world.add(NodeId(99), 1);
    world.crash(liar);
    // The first search is lost.
    world.set_weather(1.0, 5);
    let (node, nonce) = searching_subnet(&mut world);
    world.set_weather(0.0, 5);
    let answer = from(&world, liar, willing(nonce, 10));
    give(&mut world, node, arrival(liar, 0), &answer).unwrap();
    world.run_for(Duration::from_millis(200));
    assert_eq!(world.parent(node), Some(manager));
}

/// Returns a node whose search of the subnet two nodes have answered, which are silent since then.
fn answered_by_two() -> (World, usize, [usize; 2]) {
    let mut world = World::row(2, TreeConfig::default());
    let nodes = [world.add(NodeId(98), 1), world.add(NodeId(99), 1)];
    let (node, nonce) = searching_subnet(&mut world);
    for by in nodes {
        world.crash(by);
        let answer = from(&world, by, willing(nonce, 10));
        give(&mut world, node, arrival(by, 0), &answer).unwrap();
    }
    (world, node, nodes)
}

#[test]
fn who_did_not_answer_at_once_is_asked_again_after_others() {
    let (mut world, node, nodes) = answered_by_two();
    let mut asked = Vec::new();
    for wait in [150, 150, 200, 200, 400] {
        asked.push(asks(&world, node).0);
        world.run_for(Duration::from_millis(wait));
    }
    let [first, second] = nodes.map(address);
    assert_eq!(asked, [first, second, first, second, first]);
    let bars = &world.tree(node).bars;
    assert_eq!(nodes.map(|node| bars.times(address(node))), [1, 0]);
    let (by, nonce) = asks(&world, node);
    assert_eq!(by, second, "it has a last request");
    let body = confirm(nonce, beacon(vec![SOURCE, NodeId(99)], 10));
    let message = from(&world, nodes[1], body);
    give(&mut world, node, arrival(nodes[1], 0), &message).unwrap();
    assert!(world.tree(node).is_attached());
}

#[test]
fn who_confirms_after_others_had_their_turn_is_the_parent() {
    let (mut world, node, nodes) = answered_by_two();
    let (first, nonce) = asks(&world, node);
    world.run_for(Duration::from_millis(160));
    assert_ne!(asks(&world, node).0, first);
    let body = |nonce| confirm(nonce, beacon(vec![SOURCE, NodeId(98)], 10));
    let message = from(&world, nodes[0], body(nonce ^ 1));
    let taken = give(&mut world, node, arrival(nodes[0], 0), &message);
    assert_eq!(taken, Err(DropReason::NotAsked));
    let message = from(&world, nodes[0], body(nonce));
    give(&mut world, node, arrival(nodes[0], 0), &message).unwrap();
    assert_eq!(world.parent(node), Some(nodes[0]));
}

#[test]
fn a_node_that_does_not_answer_a_join_request_is_barred() {
    let (mut world, node, nonce) = searching();
    let mute = world.add(NodeId(99), 1);
    world.crash(mute);
    let message = from(&world, mute, willing(nonce, 10));
    give(&mut world, node, arrival(mute, 1), &message).unwrap();
    world.run_for(Duration::from_millis(4_500));
    assert!(world.tree(node).bars.is_barred(world.now, address(mute)));
}

#[test]
fn a_child_that_claims_to_be_far_does_not_widen_the_radius() {
    let mut world = World::row(2, TreeConfig::default());
    let liar = world.add(NodeId(99), 1);
    let request = JoinRequest {
        nonce: 1,
        hop_limit: UNICAST_HOPS,
        hops: 255,
        role: Role::Manager,
        standing: Standing::default(),
        name: String::new(),
        parent: None,
        by_unicast: false,
    };
    let message = from(&world, liar, Body::JoinRequest(request.clone()));
    give(&mut world, 0, arrival(liar, 1), &message).unwrap();
    assert_eq!(world.tree(0).radius(), 4, "2 as measured, and some slack");
    // As a member from another subnet it would not count.
    let member = JoinRequest { role: Role::Member, nonce: 2, ..request };
    let other = world.add(NodeId(98), 1);
    let message = from(&world, other, Body::JoinRequest(member));
    give(&mut world, 0, arrival(other, 1), &message).unwrap();
    assert!(world.tree(0).child(NodeId(98)).is_none());
}

#[test]
fn a_leave_or_reply_without_the_childs_token_and_address_is_dropped() {
    let mut world = World::row(2, TreeConfig::default());
    let child = world.join(1);
    world.run_acknowledging(seconds(3));
    let (id, token) = (world.tree(child).id, world.tree(child).parent().unwrap().token);
    let liar = world.add(NodeId(99), 1);
    for (by, token) in [(child, token ^ 1), (liar, token)] {
        for body in
            [Body::LeaveTree { token, nonce: 1 }, Body::FindNewParentReply { token, nonce: 1 }]
        {
            let message = Message { feed: FEED, sender: id, body };
            let taken = give(&mut world, 0, arrival(by, 1), &message);
            assert_eq!(taken, Err(DropReason::ForgedChild));
        }
    }
    assert!(world.tree(0).child(id).is_some());
    // Nor does the child believe others about its parent.
    let parents = world.tree(child).parent().unwrap().token;
    for (by, token) in [(0, parents ^ 1), (liar, parents)] {
        for body in [
            Body::FindNewParent { token, nonce: 1 },
            Body::Dismiss { token, reason: Dismissal::Demoted },
        ] {
            let message = Message { feed: FEED, sender: SOURCE, body };
            let taken = give(&mut world, child, arrival(by, 1), &message);
            assert_eq!(taken, Err(DropReason::ForgedParent));
        }
    }
    assert!(world.tree(child).is_attached());
}

#[test]
fn an_epoch_from_the_future_does_not_lead_anyone_away() {
    let (mut world, node, nonce) = searching();
    let heartbeat = Heartbeat {
        feed: outlook().feed.unwrap(),
        beacon: Beacon { role: Role::Source, ..beacon(vec![SOURCE], 1000) },
        last_word: None,
    };
    let now = world.now;
    world.tree_mut(node).note_source(now, &heartbeat).unwrap();
    let liar = world.add(NodeId(99), 1);
    let message = from(&world, liar, willing(nonce, u64::MAX));
    let taken = give(&mut world, node, arrival(liar, 1), &message);
    assert_eq!(taken, Err(DropReason::AbsurdEpoch));
    let mut other = heartbeat;
    other.feed.source = NodeId(3);
    let taken = world.tree_mut(node).note_source(now, &other);
    assert_eq!(taken, Err(DropReason::ForgedSource));
}

#[test]
fn answers_to_made_up_addresses_are_bounded() {
    let mut world = World::row(1, TreeConfig::default());
    for sender in 0..100_000_u64 {
        let body = Body::Search(Search {
            nonce: sender,
            hop_limit: 9,
            port: 1,
            role: Role::Manager,
            less_deep_than: None,
        });
        let message = Message { feed: FEED, sender: NodeId(sender), body };
        let arrival = Arrival { from: address(9), multicast: true, hops_left: Some(3) };
        let _ = world.tree_mut(0).handle(ms(sender / 100), arrival, &message);
    }
    let answers = world.tree(0).due.len();
    assert!(answers <= 200, "{answers} answers in a second");
}

#[test]
fn a_parent_whose_path_holds_its_child_is_left() {
    let mut world = World::row(2, TreeConfig::default());
    let child = world.join(1);
    world.run_acknowledging(seconds(3));
    let id = world.tree(child).id;
    let epoch = world.tree(child).standing.epoch + 1;
    let lie = Beacon { hop_limit: 2, ..beacon(vec![id, SOURCE], epoch) };
    let message = Message { feed: FEED, sender: SOURCE, body: Body::Beacon(lie) };
    let mut by = Arrival { from: address(0), multicast: true, hops_left: Some(1) };
    by.from.set_port(0);
    assert_eq!(give(&mut world, child, by, &message), Err(DropReason::Loop));
    assert!(!world.tree(child).is_attached());
}

#[test]
fn a_path_as_long_as_may_be_takes_no_more_below() {
    let (mut world, node, nonce) = searching();
    let deep = world.add(NodeId(99), 1);
    let depth = limits::PATH as u16 - 1;
    let body = Body::Willing(Willing {
        nonce,
        hop_limit: UNICAST_HOPS,
        role: Role::Manager,
        children: 0,
        standing: Standing { epoch: 10, depth },
    });
    let message = from(&world, deep, body);
    assert_eq!(give(&mut world, node, arrival(deep, 1), &message), Err(DropReason::Loop));
}

#[test]
fn a_second_source_in_the_same_groups_is_told_of_once() {
    let mut world = World::row(1, TreeConfig::default());
    let other = world.add(NodeId(99), 0);
    let rival = Beacon { role: Role::Source, hop_limit: 1, ..beacon(vec![NodeId(99)], 5) };
    let message = from(&world, other, Body::Beacon(rival));
    let mut by = Arrival { from: address(other), multicast: true, hops_left: Some(1) };
    by.from.set_port(0);
    for _ in 0..3 {
        assert_eq!(give(&mut world, 0, by, &message), Err(DropReason::ForgedSource));
    }
    assert_eq!(world.events(0), [TreeEvent::Rival(address(other))]);
}

/// Returns a request to become a member, from a node in the subnet.
fn request(nonce: u64) -> JoinRequest {
    JoinRequest {
        nonce,
        hop_limit: UNICAST_HOPS,
        hops: 1,
        role: Role::Member,
        standing: Standing::default(),
        name: String::new(),
        parent: None,
        by_unicast: false,
    }
}

#[test]
fn one_host_does_not_take_all_places() {
    let mut world = World::row(1, TreeConfig { max_per_host: 3, ..TreeConfig::default() });
    let here = arrival(9, 0);
    for sybil in 100..110 {
        let body = Body::JoinRequest(request(sybil));
        let message = Message { feed: FEED, sender: NodeId(sybil), body };
        let mut by = here;
        by.from.set_port(sybil as u16);
        give(&mut world, 0, by, &message).unwrap();
    }
    assert_eq!(world.tree(0).view().members, 3);
    let body = Body::JoinRequest(request(1));
    let message = Message { feed: FEED, sender: NodeId(5), body };
    give(&mut world, 0, arrival(8, 0), &message).unwrap();
    assert_eq!(world.tree(0).view().members, 4, "another host has its place");
}

#[test]
fn who_asks_at_another_address_takes_its_old_place_if_it_has_shown_who_it_is() {
    let mut world = World::row(2, TreeConfig::default());
    let child = world.join(1);
    world.run_acknowledging(seconds(3));
    let id = world.tree(child).id;
    let elsewhere = world.add(NodeId(99), 1);
    let body = Body::JoinRequest(JoinRequest { role: Role::Manager, ..request(1) });
    let message = Message { feed: FEED, sender: id, body };
    let taken = give(&mut world, 0, arrival(elsewhere, 1), &message);
    assert_eq!(taken, Err(DropReason::ForgedChild));
    assert_eq!(world.tree(0).child(id).unwrap().address, address(child));
    world.tree_mut(0).keyed = true;
    give(&mut world, 0, arrival(elsewhere, 1), &message).unwrap();
    assert_eq!(world.tree(0).child(id).unwrap().address, address(elsewhere));
    assert_eq!(world.tree(0).view().children, 1);
    let left = TreeEvent::ChildLeft { id, why: Parting::Left };
    world.drain(0);
    assert!(world.events(0).ends_with(&[left, TreeEvent::ChildJoined { id }]));
}

#[test]
fn a_child_that_held_up_the_feed_is_told_so_whatever_it_hears_first_and_comes_back_later() {
    let mut world = World::row(2, TreeConfig::default());
    let child = world.join(1);
    world.run_acknowledging(seconds(3));
    let (id, token) = (world.tree(child).id, world.tree(child).parent().unwrap().token);
    let now = world.now;
    world.tree_mut(0).evict(now, id);
    // The dismissal is lost; an acknowledgement comes.
    while world.tree_mut(0).poll_message(now, &outlook()).is_some() {}
    let taken = world.tree_mut(0).check_child(now, id, address(child), token);
    assert_eq!(taken, Err(DropReason::ForgedChild));
    world.drain(0);
    world.run_for(Duration::from_millis(20));
    assert!(world.events(child).contains(&TreeEvent::Dismissed(Dismissal::Slow)));
    // It asks to be taken back: not at once, and next time not for twice as long.
    world.may_drop(DropReason::Barred);
    for pause in [1, 2] {
        let now = world.now;
        world.tree_mut(child).join(now);
        world.drain(child);
        world.run_acknowledging(Duration::from_millis(pause * 1000 - 100));
        assert!(!world.tree(child).is_attached(), "within {pause} s");
        world.run_acknowledging(seconds(5));
        assert!(world.tree(child).is_attached(), "after {pause} s");
        let now = world.now;
        world.tree_mut(0).evict(now, id);
        world.drain(0);
        world.run_for(Duration::from_millis(20));
    }
}

#[test]
fn a_refusal_that_is_the_sources_to_say_is_not_believed_of_others() {
    for reason in [Refusal::NotAdmitted, Refusal::Leaving] {
        let (mut world, node, nonce) = searching();
        world.cut_off([].into());
        let liar = world.add(NodeId(99), 1);
        world.crash(liar);
        let answer = from(&world, liar, willing(nonce, 10));
        give(&mut world, node, arrival(liar, 0), &answer).unwrap();
        world.run_for(Duration::from_millis(250));
        let (_, nonce) = asks(&world, node);
        let refused = from(&world, liar, Body::JoinRefused { nonce, reason });
        give(&mut world, node, arrival(liar, 0), &refused).unwrap();
        world.run_acknowledging(seconds(1));
        assert_eq!(world.parent(node), Some(0), "{reason:?}");
        let told = world.events(node).into_iter().any(|e| matches!(e, TreeEvent::Refused(_)));
        assert!(!told, "{reason:?}");
    }
}

/// Makes a node hear a beacon of a node in the same subnet.
fn hear(world: &mut World, node: usize, by: usize, beacon: Beacon) -> Result<(), DropReason> {
    let message = from(world, by, Body::Beacon(Beacon { hop_limit: 1, ..beacon }));
    let mut arrival = Arrival { from: address(by), multicast: true, hops_left: Some(1) };
    arrival.from.set_port(0);
    give(world, node, arrival, &message)
}

#[test]
fn nobody_manages_a_subnet_as_the_source_but_from_its_address() {
    let mut world = World::row(2, TreeConfig::default());
    let manager = world.join(1);
    world.run_acknowledging(seconds(3));
    let liar = world.add(NodeId(0), 1);
    let lie = Beacon { role: Role::Source, ..beacon(vec![SOURCE], 10) };
    assert_eq!(hear(&mut world, manager, liar, lie), Err(DropReason::ForgedSource));
    assert_eq!(world.tree(manager).role(), Role::Manager);
}

#[test]
fn a_manager_with_children_gives_way_only_to_one_that_stays() {
    let mut world = World::row(2, TreeConfig::default());
    let manager = world.join(1);
    world.run_acknowledging(seconds(3));
    let member = world.join(1);
    world.run_acknowledging(seconds(1));
    assert_eq!(world.parent(member), Some(manager));
    let rival = world.add(NodeId(0), 1);
    let claim = |world: &mut World| {
        let epoch = world.tree(manager).standing.epoch;
        hear(world, manager, rival, beacon(vec![SOURCE, NodeId(0)], epoch)).unwrap();
        world.tree(manager).role() == Role::Manager
    };
    assert!(claim(&mut world), "one packet takes no subnet over");
    world.run_acknowledging(seconds(9));
    assert!(claim(&mut world), "nor do two that are far apart");
    for _ in 0..4 {
        world.run_acknowledging(Duration::from_millis(200));
        assert!(claim(&mut world), "nor do some within a second");
    }
    world.run_acknowledging(Duration::from_millis(200));
    assert!(!claim(&mut world), "another one that stays is the manager");
}
