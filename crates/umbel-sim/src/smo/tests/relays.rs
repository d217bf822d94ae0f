//! Two levels.

use super::*;

#[test]
fn relays_pass_the_stream_on_at_the_pace_of_their_slowest_receiver() {
    for seed in 0..5 {
        let mut network = Network::new();
        let (source, switch) = (network.host("source"), network.switch("switch"));
        let lan = link(100, 1, 200);
        network.link(source, switch, lan.clone(), lan.clone()).unwrap();
        let mut pairs = Vec::new();
        for n in 0..3 {
            let receiver = network.host(format!("relay {n}, receiver"));
            let sender = network.host(format!("relay {n}, sender"));
            let host = network.host(format!("host {n}"));
            let slow = link(2 + 4 * n, 10, 60);
            network.link(switch, receiver, lan.clone(), lan.clone()).unwrap();
            network.link(sender, host, slow.clone(), slow).unwrap();
            pairs.push((receiver, sender, host));
        }
        let mut simulation = Simulation::new(network, seed);
        let root = Session::new(source);
        let feed = Feed::bulk(300_000).wait_for(3);
        let host = root.source_host(root.source_config(), feed, seed);
        simulation.set_app(source, host, Instant::EPOCH).unwrap();
        for &(receiver, sender, host) in &pairs {
            let config = ReceiverConfig { buffer: 32 << 10, ..root.receiver_config() };
            let upper = Crowd::new(&root, config, 1, seed).pass_on(sender);
            simulation.set_app(receiver, upper, Instant::EPOCH).unwrap();
            let session = Session::new(sender);
            let feed = Feed::relayed().wait_for(5);
            let relay = session.source_host(session.source_config(), feed, seed);
            let relay = Relay::new(relay, receiver);
            simulation.set_app(sender, relay, Instant::EPOCH).unwrap();
            let lower = Crowd::new(&session, session.receiver_config(), 5, seed)
                .noise(Noise { loss: 0.02, ..Noise::default() });
            simulation.set_app(host, lower, Instant::EPOCH).unwrap();
        }
        simulation.run_until(at(60_000));
        for &(.., host) in &pairs {
            let crowd: &Crowd = simulation.app(host).unwrap();
            assert!(crowd.members().all(|member| member.is_whole(300_000)), "seed {seed}");
        }
    }
}
