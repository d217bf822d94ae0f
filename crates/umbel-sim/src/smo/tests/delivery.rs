//! Everybody receives the stream, byte by byte.

use super::*;

#[test]
fn a_clean_network_carries_the_stream_once() {
    let mut world = World::new(1, &[link(100, 5, 200), link(100, 20, 200)]);
    world.begin(1, Feed::bulk(400_000).wait_for(40), |_| {});
    for n in 0..2 {
        let crowd = Crowd::new(&world.session, world.session.receiver_config(), 20, 1 + n as u64);
        world.crowd(n, crowd);
    }
    world.run(20);
    world.assert_whole(400_000, "clean");
    let stats = world.stats();
    assert_eq!(stats.multicast.bytes, 400_000);
    assert_eq!(stats.unicast_again.bytes + stats.multicast_again.bytes, 0, "{stats:?}");
    assert_eq!(stats.unicast.bytes, 0, "{stats:?}");
    assert!(world.source().host().record().drained.is_some());
}

#[test]
fn runs_are_functions_of_their_seeds() {
    let run = |seed| {
        let mut world = World::new(seed, &[link(20, 5, 50)]);
        world.begin(seed, Feed::bulk(60_000).wait_for(5), |_| {});
        let noise = Noise { loss: 0.05, ..Noise::default() };
        let config = world.session.receiver_config();
        world.crowd(0, Crowd::new(&world.session, config, 5, seed).noise(noise));
        world.run(60);
        (world.stats(), world.members().map(|member| member.ended).collect::<Vec<_>>())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn whatever_happens_to_segments_everybody_has_the_stream_in_the_end() {
    for seed in umbel_seeds::seeds(300) {
        let mut random = stream(seed, Purpose::Workload, 1);
        let mut share = |most: f64| {
            if below(&mut random, 2) == 0 { 0.0 } else { most * uniform(&mut random) }
        };
        let noise = Noise {
            loss: share(0.1),
            duplicates: share(0.1),
            late: (share(0.1), Duration::from_millis(30)),
        };
        let on_link = share(0.03);
        let mut random = stream(seed, Purpose::Workload, 2);
        let mut delay = || 1 + below(&mut random, 40);
        let links: Vec<LinkSpec> =
            (0..2).map(|_| link(50, delay(), 100).loss(Loss::Bernoulli(on_link))).collect();
        let mut world = World::new(seed, &links);
        let len = 20_000 + below(&mut random, 60_000);
        world.begin(seed, Feed::bulk(len).wait_for(6), |config| {
            config.buffer = 32 << 10;
            config.mss = 1000;
        });
        for n in 0..2 {
            let mut config = world.session.receiver_config();
            config.sack = below(&mut random, 4) > 0;
            config.window_scale = Some(7).filter(|_| below(&mut random, 4) > 0);
            config.buffer = 8_000 + below(&mut random, 60_000) as u32;
            config.ack_every = 1 + below(&mut random, 4) as u8;
            // Some have no helper.
            config.channel = config.channel.filter(|_| below(&mut random, 6) > 0);
            let sends = below(&mut random, 2) as usize * 5000;
            let crowd = Crowd::new(&world.session, config, 3, seed * 2 + n as u64)
                .noise(noise)
                .behave(|_| Behaviour { sends, ..Behaviour::default() });
            world.crowd(n, crowd);
        }
        world.run(300);
        world.assert_whole(len, &format!("seed {seed}"));
    }
}
