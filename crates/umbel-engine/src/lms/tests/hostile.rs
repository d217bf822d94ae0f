//! Arbitrary input from the network: no panic, bounded memory, bounded answers.

use crate::chance::generator;
use proptest::prelude::*;
use umbel_wire::lms::Summary;

use super::router::Tree;
use super::*;
use crate::lms::Router;
use crate::lms::config::{LanConfig, ReceiverConfig, RouterConfig, SourceConfig};
use crate::lms::{Receiver, ReceiverCommand};
use crate::lms::{Source, SourceCommand};
use crate::router::{InterfaceId, PassingDatagram, RouterEngine};

/// Generates a message of any kind, mostly about channels and units that the engines know.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let sequence = || prop_oneof![4 => 0_u64..40, 1 => any::<u64>().prop_map(|n| n % u64::MAX)];
    let tsi = || prop_oneof![9 => Just(TSI), 1 => any::<u32>().prop_map(Tsi)];
    let places = prop_oneof![
        Just(None),
        (any::<u32>(), any::<u64>()).prop_map(|(interface, tag)| {
            Some(TurningPoint { router: host(200), interface, tag })
        })
    ];
    let requests = (sequence(), 1..=u8::MAX, places, any::<[bool; 2]>(), 0..=64_u8, tsi())
        .prop_map(|(first, number, turning_point, [failed, unicast], hops, tsi)| {
            bytes(&Message::Request(Request {
                number,
                turning_point,
                replier_failed: failed,
                unicast_reply: unicast,
                hops,
                tsi,
                ..request(first)
            }))
        });
    let units = (tsi(), sequence(), any::<[bool; 2]>()).prop_map(|(tsi, sequence, kind)| {
        let payload = b"unit";
        bytes(&match kind {
            [true, _] => Message::Data { tsi, sequence, payload },
            [_, unicast] => Message::Repair { tsi, sequence, number: 1, unicast, payload },
        })
    });
    let heartbeats = (tsi(), sequence(), sequence()).prop_map(|(tsi, a, b)| {
        bytes(&Message::Heartbeat { tsi, lead: a.max(b), trail: a.min(b) })
    });
    let dmcasts = (any::<u32>(), any::<u64>()).prop_map(|(interface, tag)| {
        let turning_point = TurningPoint { router: host(200), interface, tag };
        bytes(&Message::Dmcast { channel: channel(), turning_point, repair: b"Um\x01\x63" })
    });
    let offers = (any::<Option<u32>>(), 0..5_u8).prop_map(|(cost, kind)| {
        let channel = channel();
        let service = Channel { source: None, ..channel };
        bytes(&match kind {
            0 => Message::Advertisement { channel, cost },
            1 => Message::Election { channel, cost },
            2 => Message::Solicit { channel },
            _ => Message::AnycastAdvertisement { service, cost, hops: kind },
        })
    });
    let rest = (tsi(), any::<u32>(), any::<u64>(), 0..4_u8).prop_map(|(tsi, round, n, kind)| {
        let channel = channel();
        let spread = Duration::from_millis(n % 100);
        bytes(&match kind {
            0 => Message::Ping { tsi, nonce: n },
            1 => Message::Pong { tsi, nonce: n },
            2 => Message::Collect { tsi, round, question: 1, spread },
            _ => Message::Report { channel, tsi, round, summary: Summary::of(n), hops: 0 },
        })
    });
    prop_oneof![
        3 => requests,
        3 => units,
        1 => heartbeats,
        1 => dmcasts,
        1 => offers,
        1 => rest,
        1 => any::<Vec<u8>>(),
    ]
}

/// Generates arrivals: time, sender, path, message.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u8, u8, Vec<u8>)>> {
    proptest::collection::vec((0..200_u64, 2..250_u8, 0..4_u8, messages()), 1..80)
}

/// Returns the path by which a datagram comes to a host.
fn way(from: u8, way: u8) -> Address {
    match way {
        0 => Address::Channel(channel()),
        1 => Address::Channel(Channel { source: Some(host(from).ip()), ..lan_channel() }),
        _ => Address::Host(host(from)),
    }
}

fn lan_channel() -> Channel {
    Channel { source: None, group: IpAddr::from([224, 0, 0, 99]), port: 7702 }
}

proptest! {
    #[test]
    fn a_receiver_answers_a_datagram_with_few_and_a_request_with_one(
        arrivals in arrivals(),
        on_lan: bool,
    ) {
        let mut config = ReceiverConfig::new(channel());
        config.lan = on_lan.then(|| LanConfig::new(lan_channel(), host(10).ip()));
        config.requests.burst = 20;
        let mut receiver = Receiver::new(config, generator(0));
        receiver.handle_command(ms(0), ReceiverCommand::Join).unwrap();
        let mut now = 0;
        for (wait, from, by, payload) in arrivals {
            now += wait;
            if receiver.poll_timeout().is_some_and(|at| at <= ms(now)) {
                receiver.handle_timeout(ms(now));
            }
            sent(&mut receiver, ms(now));
            testing::give(&mut receiver, ms(now), way(from, by), &payload);
            let answers = sent(&mut receiver, ms(now)).len();
            let is_request =
                matches!(Message::parse(&payload), Ok(Parsed::Message { message: Message::Request(_), .. }));
            // Its own requests, a ping and an advertisement may be due after any input.
            prop_assert!(answers <= if is_request { 1 } else { 25 }, "{}", answers);
            while receiver.poll_event().is_some() {}
            prop_assert!(receiver.missing() <= 1024);
        }
    }

    #[test]
    fn a_source_answers_a_datagram_with_one(arrivals in arrivals()) {
        let mut source = Source::new(SourceConfig::new(channel(), TSI));
        for _ in 0..20 {
            let unit = bytes::Bytes::from_static(b"unit");
            source.handle_command(ms(0), SourceCommand::Send(unit)).unwrap();
        }
        sent(&mut source, ms(0));
        let mut now = 0;
        for (wait, from, by, payload) in arrivals {
            now += wait;
            testing::give(&mut source, ms(now), way(from, by), &payload);
            prop_assert!(sent(&mut source, ms(now)).len() <= 1);
            while source.poll_event().is_some() {}
        }
    }

    #[test]
    fn a_router_sends_little_for_a_datagram_and_keeps_little(
        arrivals in arrivals(),
        attached: bool,
    ) {
        let mut router = Router::new(RouterConfig::new(host(200), [1; 32]));
        let attached = attached.then(|| host(1).ip());
        let mut tree = Tree { attached, ..Tree::default() };
        let mut now = 0;
        for (wait, from, interface, payload) in arrivals {
            now += wait;
            if router.poll_timeout().is_some_and(|at| at <= ms(now)) {
                router.handle_timeout(ms(now), &mut tree);
            }
            while router.poll_transmit(ms(now)).is_some() {}
            let to = if from % 2 == 0 { host(200) } else { host(1) };
            let datagram = PassingDatagram {
                arrived_on: InterfaceId(u32::from(interface)),
                from: host(from),
                to: Address::Host(to),
                payload: &payload,
            };
            router.handle_datagram(ms(now), &mut tree, datagram);
            let sent = std::iter::from_fn(|| router.poll_transmit(ms(now))).count();
            // An anycast advertisement goes to the four interfaces, a flagged request with a
            // question to the replier.
            prop_assert!(sent <= 4, "{}", sent);
            prop_assert!(router.state_len() <= 1 + 4 * 3 + 1 + 4 * 2, "{}", router.state_len());
        }
    }
}
