//! The paper's own examples, request by request.

use super::*;
use crate::Kinds;
use crate::link::ScriptedLoss;
use crate::packet::FlowId;

/// The tree of Fig. 6. R1 has R2 and E8 below it, R2 has R3, R4, R5 and E7, and those routers have
/// two receivers each.
struct Figure6 {
    network: Network,
    source: NodeId,
    /// R1 to R5.
    routers: [NodeId; 5],
    /// E1 to E8.
    receivers: [NodeId; 8],
}

/// Place where the third unit is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    BelowR1,
    AtE2,
    AtE1,
}

impl Figure6 {
    fn new(lost: Lost) -> Figure6 {
        let mut network = Network::new();
        let source = network.host("source");
        let first = network.router("R0");
        let routers = ["R1", "R2", "R3", "R4", "R5"].map(|name| network.router(name));
        let receivers =
            ["E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8"].map(|name| network.host(name));
        let [r1, r2, r3, r4, r5] = routers;
        let [e1, e2, e3, e4, e5, e6, e7, e8] = receivers;
        let script = Loss::Script(vec![ScriptedLoss { flow: FlowId(0), nth: 3 }]);
        // The second of each pair, and E7 and E8, are nearest.
        let links = [
            (source, first, 5, false),
            (first, r1, 5, false),
            (r1, r2, 5, lost == Lost::BelowR1),
            (r1, e8, 2, false),
            (r2, r3, 5, false),
            (r2, r4, 5, false),
            (r2, r5, 5, false),
            (r2, e7, 3, false),
            (r3, e1, 3, lost == Lost::AtE1),
            (r3, e2, 2, lost == Lost::AtE2),
            (r4, e3, 3, false),
            (r4, e4, 2, false),
            (r5, e5, 3, false),
            (r5, e6, 2, false),
        ];
        for (a, b, delay, loses) in links {
            let spec = LinkSpec::default().delay(Duration::from_millis(delay));
            let down = if loses {
                spec.clone().loss(script.clone()).loss_of(Kinds::NONE.with(Kind::Data))
            } else {
                spec.clone()
            };
            network.link(a, b, down, spec).unwrap();
        }
        Figure6 { network, source, routers, receivers }
    }

    fn run(self, change: impl Fn(&mut ReceiverConfig)) -> Run {
        let Figure6 { network, source, routers, receivers } = self;
        let net = Net { network, source, routers: routers.into(), receivers: receivers.into() };
        let change = |_, config: &mut ReceiverConfig, _: &mut Receiver| change(config);
        let mut run = Run::new(&net, 1, 5, |_| true, change);
        // The round trips are measured and the repliers chosen before units are sent.
        run.simulation.run_until(ms(2_000));
        run.assert_complete(&net.receivers, "one loss");
        run
    }
}

#[test]
fn a_loss_that_all_below_a_link_share_makes_one_request_and_one_dmcast() {
    let figure = Figure6::new(Lost::BelowR1);
    let ([r1, r2, r3, ..], receivers) = (figure.routers, figure.receivers);
    let run = figure.run(|_| {});
    let stats = |node: NodeId| run.engine(node).stats();
    // E8 has the unit, and answers once.
    assert_eq!((stats(receivers[7]).requests_heard, stats(receivers[7]).dmcasts), (1, 1));
    assert_eq!(run.source().stats().requests, 0);
    // E7 has sent a request itself and ignores those of E2, E4 and E6.
    assert_eq!((stats(receivers[6]).requests_heard, stats(receivers[6]).dmcasts), (3, 0));
    // E1's request turns around at R3, those of R3, R4 and R5 at R2, that of R2 at R1.
    let turned = [r1, r2, r3].map(|router| run.router(router).stats().turned);
    assert_eq!(turned, [1, 3, 1]);
    assert_eq!(run.router(r1).stats().dmcasts, 1);
    for (number, &node) in receivers.iter().enumerate() {
        assert_eq!(stats(node).duplicates, 0, "E{}", number + 1);
        assert_eq!(stats(node).requests, u64::from(number < 7));
    }
}

#[test]
fn a_loss_at_one_receiver_stays_in_its_family() {
    let figure = Figure6::new(Lost::AtE1);
    let receivers = figure.receivers;
    let run = figure.run(|_| {});
    assert_eq!(run.engine(receivers[1]).stats().dmcasts, 1, "E2 answers");
    let duplicates: u64 = receivers.iter().map(|node| run.engine(*node).stats().duplicates).sum();
    assert_eq!(duplicates, 0);
    let [recovery] = run.receiver(receivers[0]).recoveries() else { panic!("one loss") };
    // To R3, to E2 and back to R3 and E1.
    let took = recovery.recovered - recovery.detected;
    assert_eq!(took, Duration::from_millis(3 + 2 + 2 + 3));
    assert_eq!(recovery.requests, 1);
}

#[test]
fn a_loss_at_a_replier_exposes_its_siblings_unless_recovery_has_two_steps() {
    // Fig. 7: the DMCAST is multicast on R2's link to R3, so E1 receives it too.
    let duplicates = |two_step| {
        let figure = Figure6::new(Lost::AtE2);
        let receivers = figure.receivers;
        let run = figure.run(|config| config.two_step = two_step);
        receivers.map(|node| run.engine(node).stats().duplicates)
    };
    assert_eq!(duplicates(false), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(duplicates(true), [0; 8]);
}

#[test]
fn with_the_loss_counted_a_lossy_receiver_is_not_made_replier() {
    // E2 is nearer to R3, but loses every tenth unit.
    let replier = |cost| {
        let figure = Figure6::new(Lost::AtE1);
        let (r3, e2, source) = (figure.routers[2], figure.receivers[1], figure.source);
        let Figure6 { network: before, .. } = &figure;
        let mut network = Network::new();
        for (node, kind) in before.nodes() {
            match kind {
                crate::NodeKind::Host => network.host(before.name(node)),
                _ => network.router(before.name(node)),
            };
        }
        for (link, a, b) in before.links() {
            let (down, up) = before.specs(link);
            let loss = if b == e2 { Loss::Bernoulli(0.1) } else { Loss::None };
            let down = down.clone().loss(loss).loss_of(Kinds::NONE.with(Kind::Data));
            network.link(a, b, down, up.clone()).unwrap();
        }
        let net = Net {
            network,
            source,
            routers: figure.routers.into(),
            receivers: figure.receivers.into(),
        };
        let change = |_, config: &mut ReceiverConfig, _: &mut Receiver| config.cost = cost;
        let mut run = Run::new(&net, 1, 500, |_| true, change);
        run.until_complete(&net.receivers, ms(60_000));
        run.assert_complete(&net.receivers, "a lossy replier");
        let (_, address) = run.router(r3).replier(&channel(Some(source), GROUP)).unwrap();
        let duplicates: u64 =
            net.receivers.iter().map(|node| run.engine(*node).stats().duplicates).sum();
        (address == (address_of(e2), PORT).into(), duplicates)
    };
    let (is_e2, exposed) = replier(lms::config::Cost::Latency);
    assert!(is_e2 && exposed > 30, "{exposed}");
    // Exposed only until the loss was noticed.
    let (is_e2, exposed_less) = replier(lms::config::Cost::LatencyAndLoss { weight: 50.0 });
    assert!(!is_e2 && exposed_less * 4 < exposed, "{exposed_less}, {exposed}");
}
