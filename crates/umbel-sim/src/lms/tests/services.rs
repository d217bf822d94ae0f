//! LANs, collect and anycast.

use umbel_engine::lms::anycast::{AnycastCommand, AnycastConfig, AnycastEvent, AnycastHost};
use umbel_engine::lms::config::LanConfig;
use umbel_wire::Channel;

use super::*;

/// Creates a LAN of four receivers, and another receiver elsewhere.
fn lan(loss: f64) -> Net {
    let mut network = Network::new();
    let source = network.host("source");
    let routers = vec![network.router("r0"), network.router("r1")];
    let switch = network.switch("switch");
    let receivers: Vec<NodeId> = (0..5).map(|n| network.host(format!("h{n}"))).collect();
    let mut ends = vec![(routers[0], source, 5), (routers[0], routers[1], 5)];
    ends.push((routers[1], switch, 1));
    for (number, &receiver) in receivers.iter().enumerate() {
        ends.push(if number < 4 { (switch, receiver, 1) } else { (routers[1], receiver, 4) });
    }
    for (a, b, delay) in ends {
        let spec =
            LinkSpec::default().delay(Duration::from_millis(delay)).loss(Loss::Bernoulli(loss));
        network.link(a, b, spec.clone(), spec).unwrap();
    }
    Net { network, source, routers, receivers }
}

fn on_lan(net: &Net, number: usize, config: &mut ReceiverConfig) {
    if number < 4 {
        let address = address_of(net.receivers[number]).into();
        config.lan = Some(LanConfig::new(channel(None, 99), address));
    }
}

fn lan_repliers(run: &Run, net: &Net) -> Vec<usize> {
    (0..4).filter(|n| run.engine(net.receivers[*n]).is_lan_replier()).collect()
}

#[test]
fn a_lan_elects_one_replier_and_another_when_it_crashes() {
    let net = lan(0.0);
    let change =
        |number, config: &mut ReceiverConfig, _: &mut Receiver| on_lan(&net, number, config);
    let mut run = Run::new(&net, 1, UNITS, |_| true, change);
    run.crash(net.receivers[0], ms(5_000));
    run.simulation.run_until(ms(4_900));
    // All have the same cost, so the lowest address wins. The router knows no other.
    assert_eq!(lan_repliers(&run, &net), [0]);
    let (_, replier) =
        run.router(net.routers[1]).replier(&channel(Some(net.source), GROUP)).unwrap();
    assert_eq!(replier, (address_of(net.receivers[0]), PORT).into());
    run.simulation.run_until(ms(12_000));
    let alive: Vec<usize> = lan_repliers(&run, &net).into_iter().filter(|n| *n != 0).collect();
    assert_eq!(alive, [1]);
}

#[test]
fn members_of_a_lan_recover_from_each_other() {
    for_seeds(30, |seed| {
        let net = lan(0.15);
        let change =
            |number, config: &mut ReceiverConfig, _: &mut Receiver| on_lan(&net, number, config);
        let mut run = Run::new(&net, seed, 60, |_| true, change);
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "LAN");
        let repairs: u64 =
            net.receivers.iter().map(|node| run.engine(*node).stats().lan_repairs).sum();
        assert!(repairs > 0, "no repair stayed on the LAN");
    });
}

#[test]
fn answers_are_merged_on_their_way_and_each_counts_once() {
    let nets = (0..).map(|seed| Net::random(seed, &Treatment::default()));
    let is_large = |net: &Net| net.receivers.len() == 8 && net.routers.len() >= 4;
    let net = nets.into_iter().find(is_large).unwrap();
    let mut run = Run::new(&net, 5, UNITS, |_| true, |_, _, _| {});
    let source = run.simulation.app_mut::<SourceHost>(net.source).unwrap();
    source.host_mut().ask_at(ms(90), 1_000, Duration::from_millis(200));
    run.simulation.run_until(ms(5_000));
    let source = run.simulation.app::<SourceHost>(net.source).unwrap().host();
    let reports = source.collected();
    let all = reports.iter().map(|(_, summary)| *summary).reduce(Summary::and).unwrap();
    let values = net.receivers.iter().map(|node| 1_000 + u64::from(node.0));
    let expected = values.map(Summary::of).reduce(Summary::and).unwrap();
    assert_eq!(all, expected);
    assert!(reports.len() < net.receivers.len(), "{} reports", reports.len());
}

/// Answers every query with its own number, and asks at set times.
#[derive(Default)]
struct Oracle {
    own: u32,
    asks: VecDeque<Instant>,
    stop_at: Option<Instant>,
    answers: Vec<(Instant, Bytes)>,
}

impl Oracle {
    fn set_timer(&self, io: &mut dyn Io<AnycastHost>) {
        io.wake_at([self.asks.front().copied(), self.stop_at].into_iter().flatten().min());
    }
}

impl Host<AnycastHost> for Oracle {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<AnycastHost>) {
        io.command(AnycastCommand::Start).unwrap();
        self.set_timer(io);
    }

    fn event(&mut self, io: &mut dyn Io<AnycastHost>, event: AnycastEvent) {
        match event {
            AnycastEvent::Query { id: query, .. } => {
                let answer = Bytes::from(self.own.to_string());
                io.command(AnycastCommand::Answer { query, answer }).unwrap();
            }
            AnycastEvent::Answer { answer, .. } => self.answers.push((io.now(), answer)),
        }
    }

    fn wake(&mut self, io: &mut dyn Io<AnycastHost>) {
        let now = io.now();
        if self.asks.pop_front_if(|at| *at <= now).is_some() {
            let ask = AnycastCommand::Ask { nonce: 1, query: Bytes::from_static(b"who?") };
            io.command(ask).unwrap();
        }
        if self.stop_at.take_if(|at| *at <= now).is_some() {
            io.command(AnycastCommand::Stop).unwrap();
        }
        self.set_timer(io);
    }
}

#[test]
fn queries_reach_the_nearest_server_and_the_other_one_when_it_stops() {
    // A ring of five routers, with the client at the first and servers at the second and the
    // fourth.
    let mut network = Network::new();
    let routers: Vec<NodeId> = (0..5).map(|n| network.router(format!("r{n}"))).collect();
    let [client, near, far] = ["client", "near", "far"].map(|name| network.host(name));
    let spec = || LinkSpec::default().delay(Duration::from_millis(1));
    for n in 0..5 {
        network.link(routers[n], routers[(n + 1) % 5], spec(), spec()).unwrap();
    }
    let homes = [(client, routers[0]), (near, routers[1]), (far, routers[3])];
    for (host, router) in homes {
        network.link(host, router, spec(), spec()).unwrap();
    }
    let mut simulation = Simulation::new(network, 1);
    for &node in &routers {
        simulation.set_router_hook(node, router(node, 1, |_| {})).unwrap();
    }
    let service: Channel = channel(None, 50);
    for (node, home) in homes {
        let gateway = (address_of(home), PORT).into();
        let (config, oracle) = if node == client {
            let asks = [ms(1_000), ms(2_000), ms(30_000)].into();
            (AnycastConfig::client(service, gateway), Oracle { asks, ..Oracle::default() })
        } else {
            let stop_at = (node == near).then(|| ms(1_500));
            (
                AnycastConfig::server(service, gateway, 1),
                Oracle { own: node.0, stop_at, ..Oracle::default() },
            )
        };
        let host: EngineHost<_, _> =
            EngineHost::new(AnycastHost::new(config), oracle, HostConfig::default());
        simulation.set_app(node, host, ms(0)).unwrap();
    }
    simulation.run_until(ms(40_000));
    let answers =
        &simulation.app::<EngineHost<AnycastHost, Oracle>>(client).unwrap().host().answers;
    let name = |node: NodeId| Bytes::from(node.0.to_string());
    // Three links there and three back; then four, by the other direction around.
    let expected = [(ms(1_006), name(near)), (ms(2_008), name(far)), (ms(30_008), name(far))];
    assert_eq!(answers[..], expected);
}
