//! A server that seals, and clients that come and go.

use std::time::Duration;

use proptest::prelude::*;
use umbel_wire::Toi;
use umbel_wire::alc::DataHeader;
use umbel_wire::repository::{GroupKey, GroupSecret};
use umbel_wire::sealed::SealedHeader;

use super::attacker::Attacker;
use super::content::SYMBOL;
use super::host::{World, channel, config};
use super::strangers::{client_of_one_item, packet_of};
use super::{MINUTE, add_clients, objects};
use crate::repository::config::{SealConfig, SourceConfig};
use crate::repository::drops::DropReason;
use crate::repository::source::SourceEvent;
use crate::seal::Keyring;
use crate::{Address, Datagram, Engine, Instant};

fn sealed() -> SourceConfig {
    let seal = SealConfig {
        change_every: Duration::from_millis(200),
        change_gap: Duration::from_millis(100),
        ..SealConfig::new(GroupSecret([255; 32]))
    };
    SourceConfig { seal: Some(seal), ..config() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The world fails for each packet that is dropped for a reason that is not named here, such as
    /// an unknown key.
    #[test]
    fn no_packet_is_lost_when_the_key_changes(
        seed: u64,
        clients in prop::collection::vec((0.0..0.4_f64, 1_u32..8, 0_u64..400), 1..6),
        duplicate in 0.0..0.3_f64,
        jitter_ms in 0_u64..30,
        latency_ms in 0_u64..60,
        leaves_ms in 0_u64..2_000,
    ) {
        let mut world = World::new(sealed(), objects(3, 130), seed);
        // Messages of a client that left are still on their way.
        for reason in [DropReason::Duplicate, DropReason::NotWanted, DropReason::NotAdmitted] {
            world.may_drop(reason);
        }
        if duplicate > 0.0 {
            world.may_drop(DropReason::Replayed);
        }
        world.network.weather.duplicates = duplicate;
        world.network.weather.jitter = Duration::from_millis(jitter_ms);
        world.network.weather.delay = Duration::from_millis(latency_ms);
        let wants = add_clients(&mut world, &clients);
        let leaver = world.add_client(&[1, 2, 3], 0.0);
        world.run_for(Duration::from_millis(leaves_ms));
        world.close(leaver);
        prop_assert!(world.run(MINUTE * 30));
        for (client, wanted) in wants.iter().enumerate() {
            world.assert_has(client, wanted);
        }
        world.run_for(Duration::from_secs(2));
        prop_assert!(world.source.key_changes() > Some(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// The server and its clients agree on each key all the time. No client takes anything but what
    /// the server has sealed, and that once, and in the end each has all.
    #[test]
    fn whoever_is_on_the_path_never_makes_two_ends_disagree_on_a_key(
        seed: u64,
        clients in prop::collection::vec((0.0..0.2_f64, 1_u32..8, 0_u64..400), 1..4),
        jitter_ms in 0_u64..30,
        latency_ms in 0_u64..60,
    ) {
        let mut world = World::new(sealed(), objects(3, 130), seed);
        let reasons = [
            DropReason::Duplicate,
            DropReason::NotWanted,
            DropReason::Forged,
            DropReason::Replayed,
            DropReason::UnknownKey,
        ];
        for reason in reasons {
            world.may_drop(reason);
        }
        world.network.weather.jitter = Duration::from_millis(jitter_ms);
        world.network.weather.delay = Duration::from_millis(latency_ms);
        world.attacker = Some(Attacker::new(seed));
        let wants = add_clients(&mut world, &clients);
        prop_assert!(world.run(MINUTE * 30));
        for (client, wanted) in wants.iter().enumerate() {
            world.assert_has(client, wanted);
            let taken = world.receivers[client].engine.stats().packets;
            prop_assert!(taken <= world.sent_packets, "{taken} of {}", world.sent_packets);
        }
        world.run_for(Duration::from_secs(2));
        prop_assert!(world.source.key_changes() > Some(1));
    }
}

#[test]
fn probes_are_as_long_as_sealed_packets() {
    let mut world = World::new(sealed(), objects(2, 400), 12);
    let deaf = world.add_client(&[1, 2], 0.0);
    world.set_deaf(deaf, true);
    world.run_for(Duration::from_secs(12));
    let probed = world.source_events.iter().find_map(|event| match event {
        SourceEvent::Probe { packet_len, .. } => Some(usize::from(*packet_len)),
        _ => None,
    });
    assert_eq!(probed, Some(usize::from(SYMBOL) + DataHeader::LEN + SealedHeader::OVERHEAD));
}

#[test]
fn a_client_of_a_sealed_server_takes_each_genuine_packet_once_and_no_other() {
    let key = GroupKey { id: 7, secret: GroupSecret([1; 32]) };
    let (mut client, toi) = client_of_one_item(vec![key.clone()]);
    let mut server = Keyring::new(key);
    let mut hear = |packet: &[u8]| {
        let by = Address::Channel(channel());
        client.handle_datagram(Instant::EPOCH, Datagram { by, hop_limit: None, payload: packet });
        DropReason::ALL.map(|reason| client.drops().of(reason)).iter().sum::<u64>()
    };
    let plain = packet_of((toi, 1), (0, 0));
    assert_eq!(hear(&plain), 1, "it is not sealed");
    let (head, symbol) = plain.split_at(DataHeader::LEN);
    let header = umbel_wire::alc::DataPacket::parse(head).unwrap().header;
    let mut sealed = Vec::new();
    server.seal_packet(header, symbol, &mut sealed);
    let mut altered = sealed.clone();
    altered[5] ^= 1;
    assert_eq!(hear(&altered), 2);
    assert_eq!(hear(&sealed), 2, "it is genuine");
    for replays in 1..=100 {
        assert_eq!(hear(&sealed), 2 + replays);
    }
    server.add(GroupKey { id: 8, secret: GroupSecret([2; 32]) });
    server.switch();
    let mut unknown = Vec::new();
    server.seal_packet(header, symbol, &mut unknown);
    assert_eq!(hear(&unknown), 103);
    assert_eq!(hear(&packet_of((Toi::PROBE, 1), (0, 0))), 103, "probes are not sealed");
    let of = [DropReason::Forged, DropReason::Replayed, DropReason::UnknownKey];
    assert_eq!(of.map(|reason| client.drops().of(reason)), [2, 100, 1]);
    let stats = client.stats();
    assert_eq!(stats.packets, 2, "only what is genuine counts as heard");
}
