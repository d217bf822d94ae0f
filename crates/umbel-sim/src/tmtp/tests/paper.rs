//! The paper's own error control, in which T_retrans alone finds the loss of the last packets.

use super::*;
use crate::{Kind, Kinds};

const T_ACK: Duration = Duration::from_millis(500);
const INTERVALS: u8 = 3;
const PAPER: Plan = Plan { paper: Some((T_ACK, INTERVALS)), ..PACKETS };

/// Loses these packets of the data, counted from 1, on the first link between routers.
fn without(packets: std::ops::RangeInclusive<u64>) -> impl Fn(usize, LinkSpec) -> LinkSpec {
    let flow = crate::FlowId(0);
    let losses: Vec<_> = packets.map(|nth| crate::ScriptedLoss { flow, nth }).collect();
    move |link, spec| {
        let loss = if link == 0 { Loss::Script(losses.clone()) } else { Loss::None };
        spec.loss(loss).loss_of(Kinds::NONE.with(Kind::Data))
    }
}

/// Runs until everyone has everything. Returns when the last one had it after the last packet left,
/// in T_retrans.
fn tail(world: &mut World) -> f64 {
    world.begin_all();
    let all = world.receivers.clone();
    world.run_until_complete(&all);
    world.check(&all, "the tail was lost");
    let last = all.iter().filter_map(|&node| world.receiver(node).host().completed()).max();
    let sent = after(at(START), 4_000);
    let t_retrans = T_ACK * u32::from(INTERVALS);
    last.unwrap().since(sent).as_secs_f64() / t_retrans.as_secs_f64()
}

#[test]
fn who_gets_the_last_packet_by_a_repair_acknowledges_it_and_repairs_it_for_its_children() {
    for lost in [200..=200, 198..=200] {
        let mut world = World::new(PAPER, 1, without(lost.clone()));
        let took = tail(&mut world);
        // The nodes beyond the link stand below each other. Each passes on what it was sent.
        assert!(took < 5.0, "{took} T_retrans for {lost:?}");
        let evicted = |node: &NodeId| world.receiver(*node).host().evicted();
        assert_eq!(world.receivers.iter().map(evicted).sum::<u32>(), 0);
        assert_eq!(world.source().engine().stats().evicted, 0);
        // A repair that is acknowledged is sent once in a domain.
        let repairs = |node: &NodeId| world.receiver(*node).engine().stats().repairs_sent;
        let most = world.receivers.iter().map(repairs).max().unwrap();
        assert!(most <= 2 * (lost.end() - lost.start() + 1), "{most} repairs of {lost:?}");
    }
}
