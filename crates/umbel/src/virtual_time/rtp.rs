//! Streams of RTP: a source whose encoder is a double, and receivers whose players are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::rlm::{Receiver, ReceiverConfig, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, key};
use umbel_sim::{
    Context, EngineHost, HostConfig, LinkSpec, Loss, Network, NodeId, Outside, Queue, Simulation,
    channel,
};
use umbel_wire::rtp::{Identity, RtpPacket, identify};
use umbel_wire::stream::{LayerInfo, RtpFormat, Stream, StreamContent, StreamMode};
use umbel_wire::{Tsi, rlm};

use super::{Nobody, for_seeds};
use crate::stream::StreamObserver;
use crate::stream::rtp::host::{Input as SourceInput, RtpHost};
use crate::stream::rtp::{Lane, RtpSnapshot, RtpSummary};
use crate::watch::host::{Bounds, Input as WatchInput, Screen, ScreenStats, WatchHost};
use crate::watch::rtp::Relay;

const TSI: Tsi = Tsi(7);
const BASE: u32 = 10;
const CONTROL: u32 = 1;
/// Rates of the layers on the wire. The encoder fills nine tenths.
const RATES: [u64; 2] = [200_000, 800_000];
/// Pictures a second, of which the first is a key frame.
const PICTURES: u32 = 25;
/// Most bytes of a unit.
const MOST: usize = 1_300;

fn at(seconds: f64) -> Instant {
    Instant::EPOCH + Duration::from_secs_f64(seconds)
}

/// Keeps what its user is told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl StreamObserver<RtpSnapshot> for Notes {
    fn note(&self, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}

/// Parameters of a scenario.
#[derive(Clone, Debug)]
struct Scenario {
    mode: StreamMode,
    /// Rate of each receiver's link, in bits per second.
    links: Vec<u64>,
    /// Share of packets that the links lose.
    loss: f64,
    /// Rate of the encoder in each layer, as a share of the layer's rate.
    filled: [f64; 2],
    /// Bytes of the longest packet that the encoders make.
    packet_len: usize,
    /// Time at which something is amiss with the encoder of the base layer.
    amiss: Option<(f64, Amiss)>,
}

/// Possible fault of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amiss {
    /// It sends packets besides that are no RTP, or not of the layer.
    Noise,
    /// Another encoder takes its place after a pause, with its own numbers and times.
    Restart,
    /// Its sequence numbers jump.
    Jump,
}

/// Encoders of both layers. A payload is H.264's first byte, and the number of its picture.
struct Encoders {
    scenario: Scenario,
    next: Instant,
    pictures: u32,
    sequences: [u16; 2],
    generation: u32,
    queue: VecDeque<SourceInput>,
}

impl Encoders {
    fn picture(&mut self, now: Instant) {
        let pictures = self.pictures;
        self.pictures += 1;
        for layer in 0..2_u8 {
            let amiss = self.scenario.amiss.filter(|(since, _)| layer == 0 && at(*since) <= now);
            match amiss {
                Some((since, Amiss::Restart)) if self.generation == 0 => {
                    // Its successor needs two seconds.
                    if now < at(since + 2.0) {
                        continue;
                    }
                    self.generation = 1;
                    self.sequences[0] = self.sequences[0].wrapping_add(20_000);
                }
                Some((_, Amiss::Noise)) => self.noise(pictures),
                Some((_, Amiss::Jump)) if self.generation == 0 => {
                    self.generation = 1;
                    self.sequences[0] = self.sequences[0].wrapping_add(30_000);
                }
                _ => {}
            }
            let number = usize::from(layer);
            let rate = RATES[number] as f64 * 0.9 * self.scenario.filled[number];
            let bytes = (rate / 8.0 / f64::from(PICTURES)) as usize;
            let count = bytes.div_ceil(self.scenario.packet_len);
            for n in 0..count {
                let key = pictures.is_multiple_of(PICTURES) && n == 0;
                let mut packet = vec![0; 12];
                packet[0] = 0x80;
                packet.push(if key { 0x65 } else { 0x41 });
                packet.extend(pictures.to_be_bytes());
                packet.resize(bytes / count, 0);
                let is_new = self.scenario.amiss.is_some_and(|(_, a)| a == Amiss::Restart);
                identify(
                    &mut packet,
                    Identity {
                        payload_type: 96,
                        sequence: self.sequences[number],
                        timestamp: u32::from(layer) * 1_000_000 + pictures * (90_000 / PICTURES),
                        ssrc: u32::from(layer)
                            + if is_new && layer == 0 { self.generation * 100 } else { 0 },
                    },
                );
                self.sequences[number] = self.sequences[number].wrapping_add(1);
                self.queue.push_back(SourceInput::Packet { layer, bytes: packet.into() });
            }
        }
    }

    fn noise(&mut self, number: u32) {
        let mut other_type = vec![0x80, 111];
        other_type.resize(100, 0);
        let mut other_source = vec![0x80, 96, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9];
        other_source.extend(number.to_be_bytes());
        let report = vec![0x80, 200, 0, 6, 0, 0, 0, 0];
        for bytes in [b"GET / HTTP/1.1".to_vec(), other_type, other_source, report] {
            self.queue.push_back(SourceInput::Packet { layer: 0, bytes: bytes.into() });
        }
    }
}

impl Outside<SourceInput> for Encoders {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<SourceInput> {
        let now = context.now();
        while self.next <= now {
            self.next += Duration::from_secs(1) / PICTURES;
            self.picture(now);
        }
        self.queue.pop_front()
    }

    fn next(&self) -> Option<Instant> {
        Some(self.next)
    }
}

/// Packets on their way from a host to its relay, and what the relay counted.
#[derive(Clone, Default)]
struct Panel(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    units: Vec<(u8, Bytes)>,
    stats: ScreenStats,
}

impl Panel {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen for Panel {
    fn unit(&mut self, layer: u8, body: Bytes) {
        self.held().units.push((layer, body));
    }

    fn stats(&self) -> ScreenStats {
        self.held().stats
    }
}

/// A player with its decoder, which looks at the first lane.
struct Player {
    panel: Panel,
    relay: Relay,
    look: Instant,
    last: Option<(u32, u16, u32)>,
    /// Whether all came since the last key frame.
    sound: bool,
    /// Pictures whose beginning could be decoded, and those that could not.
    pictures: [u64; 2],
    /// Changes of source, steps back, and sequence numbers left out.
    others: u64,
    back: u64,
    gaps: u64,
    /// Packets of each lane.
    lanes: [u64; 2],
}

impl Player {
    fn play(&mut self, lane: u8, bytes: &[u8]) {
        self.lanes[usize::from(lane)] += 1;
        if lane > 0 {
            return;
        }
        let packet = RtpPacket::parse(bytes).unwrap();
        let begins = self.last.is_none_or(|(_, _, timestamp)| packet.timestamp != timestamp);
        if let Some((ssrc, sequence, timestamp)) = self.last {
            let step = packet.sequence.wrapping_sub(sequence);
            self.others += u64::from(packet.ssrc != ssrc);
            let rises = (packet.timestamp.wrapping_sub(timestamp) as i32) >= 0 && step < 0x8000;
            self.back += u64::from(!rises && packet.ssrc == ssrc);
            self.gaps += u64::from(step > 1);
            self.sound &= step == 1;
        }
        self.last = Some((packet.ssrc, packet.sequence, packet.timestamp));
        self.sound |= packet.payload[0] == 0x65;
        self.pictures[usize::from(!self.sound)] += u64::from(begins);
    }
}

impl Outside<WatchInput> for Player {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<WatchInput> {
        let now = context.now();
        self.look = now + Duration::from_millis(10);
        let units = std::mem::take(&mut self.panel.held().units);
        for (layer, body) in units {
            self.relay.unit(now, layer, body);
        }
        while let Some((lane, bytes)) = self.relay.pop(now) {
            self.play(lane, &bytes);
        }
        self.panel.held().stats = self.relay.stats();
        None
    }

    fn next(&self) -> Option<Instant> {
        Some(self.look)
    }
}

type Sender = EngineHost<Source, RtpHost, Encoders>;
type Watcher = EngineHost<Receiver, WatchHost<Panel>, Player>;

struct World {
    simulation: Simulation,
    source: NodeId,
    receivers: Vec<NodeId>,
    notes: Notes,
}

impl World {
    fn new(scenario: &Scenario, seed: u64) -> World {
        let mut network = Network::new();
        network.set_prune_latency(Duration::from_millis(50));
        let lan = || LinkSpec::default().delay(Duration::from_millis(1));
        let (source, core) = (network.host("source"), network.router("core"));
        network.link(source, core, lan(), lan()).unwrap();
        let mut receivers = Vec::new();
        for (n, &rate) in scenario.links.iter().enumerate() {
            let node = network.host(format!("h{n}"));
            let wide = || LinkSpec::default().delay(Duration::from_millis(20));
            let narrow = wide()
                .rate(Rate::from_bits_per_s(rate).unwrap())
                .queue(Queue::DropTailPackets(20))
                .loss(Loss::Bernoulli(scenario.loss));
            network.link(core, node, narrow, wide()).unwrap();
            receivers.push(node);
        }
        let simulation = Simulation::new(network, seed);
        let notes = Notes::default();
        let mut world = World { simulation, source, receivers, notes };
        world.add_source(scenario);
        for number in 0..world.receivers.len() {
            world.add_receiver(number, scenario, seed);
        }
        world
    }

    fn add_source(&mut self, scenario: &Scenario) {
        let mut config = SourceConfig::new(TSI, channel(Some(self.source), BASE), 2);
        config.control = Some(channel(None, CONTROL));
        let rate = |bits| Rate::from_bits_per_s(bits).unwrap();
        let lane = |bits| Lane { rate: rate(bits), pace: rate(bits), fec: None, payload_type: 96 };
        let observer = Arc::new(self.notes.clone());
        let host = RtpHost::new(&RATES.map(lane), MOST, Arc::default(), observer);
        let encoders = Encoders {
            scenario: scenario.clone(),
            next: Instant::EPOCH,
            pictures: 0,
            sequences: [65_000, 7],
            generation: 0,
            queue: VecDeque::new(),
        };
        // Not signed, unlike what `hls.rs` sends: to sign and check so many packets takes most of the
        // time.
        let engine = Source::new(config).unwrap();
        let host: Sender = EngineHost::with_outside(engine, host, encoders, HostConfig::default());
        self.simulation.set_app(self.source, host, Instant::EPOCH).unwrap();
    }

    fn add_receiver(&mut self, number: usize, scenario: &Scenario, seed: u64) {
        let node = self.receivers[number];
        let base = channel(Some(self.source), BASE);
        let mut config = ReceiverConfig::new(TSI, node.0.into(), rlm::channels(base, 2).unwrap());
        config.control = Some(channel(None, CONTROL));
        config.mode = scenario.mode;
        let generator = chance::generator(key(seed, Purpose::Node, node.0.into()));
        let engine = Receiver::new(config, generator).unwrap();
        let panel = Panel::default();
        let bounds = Bounds { patience: Duration::from_secs(10), last: None };
        let host = WatchHost::new(2, bounds, panel.clone(), Arc::new(Nobody));
        let player = Player {
            relay: relay(scenario.mode),
            panel,
            look: Instant::EPOCH,
            last: None,
            sound: false,
            pictures: [0; 2],
            others: 0,
            back: 0,
            gaps: 0,
            lanes: [0; 2],
        };
        let host: Watcher = EngineHost::with_outside(engine, host, player, HostConfig::default());
        self.simulation.set_app(node, host, at(0.1 * number as f64)).unwrap();
    }

    fn run(&mut self, seconds: f64) {
        self.simulation.run_until(at(seconds));
    }

    fn watcher(&self, number: usize) -> &Watcher {
        self.simulation.app::<Watcher>(self.receivers[number]).unwrap()
    }

    fn player(&self, number: usize) -> &Player {
        self.watcher(number).outside()
    }

    fn sent(&self) -> RtpSummary {
        self.simulation.app::<Sender>(self.source).unwrap().host().summary()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn relay(mode: StreamMode) -> Relay {
    let format = RtpFormat {
        kind: "video".to_owned(),
        payload_type: 96,
        map: Some("H264/90000".to_owned()),
        parameters: None,
    };
    let formats = vec![format.clone(), format];
    let layer = |rate: u64| LayerInfo { kbit_per_s: rate / 1_000, fec: None };
    let stream = Stream {
        name: "x".parse().unwrap(),
        tsi: TSI,
        source: "192.0.2.2:40123".parse().unwrap(),
        base: channel(None, BASE),
        control: None,
        scope: 32,
        mode,
        symbol_len: 1372,
        layers: RATES.map(layer).to_vec(),
        content: StreamContent::Rtp(formats.clone()),
        repair: None,
        version: 1,
    };
    Relay::new(&stream, &formats)
}

fn scenario(mode: StreamMode) -> Scenario {
    Scenario {
        mode,
        links: vec![4_000_000, 500_000],
        loss: 0.0,
        filled: [1.0; 2],
        packet_len: 1_000,
        amiss: None,
    }
}

#[test]
fn each_receiver_plays_the_encoding_that_its_path_carries_as_one_stream() {
    for_seeds(3, |seed| {
        let mut world = World::new(&scenario(StreamMode::Independent), seed);
        world.run(120.0);
        let levels = [0, 1].map(|number| world.watcher(number).host().summary().at_level);
        assert!(levels[0][2] > 90.0 && levels[1][1] > 90.0, "{levels:?}");
        for number in 0..2 {
            let Player { pictures, others, back, lanes, gaps, .. } = world.player(number);
            println!("seed {seed}, {number}: {pictures:?} {gaps} gaps");
            assert_eq!((*others, *back, lanes[1]), (0, 0, 0), "seed {seed}, receiver {number}");
            // Of 3,000. Each failed experiment costs a second or two, until a key frame comes.
            let least = [2_900, 2_500][number];
            assert!(pictures[0] >= least, "seed {seed}, receiver {number}: {pictures:?}");
            assert!(
                pictures[1] <= [0, 150][number],
                "seed {seed}, receiver {number}: {pictures:?}"
            );
        }
        let (sent, notes) = (world.sent(), world.notes());
        assert_eq!((sent.dropped, sent.refused, notes), (0, 0, vec![]), "seed {seed}");
    });
}

#[test]
fn layers_reach_the_player_as_they_are_and_losses_stay_gaps() {
    for_seeds(3, |seed| {
        let scenario = Scenario { loss: 0.002, ..scenario(StreamMode::Cumulative) };
        let mut world = World::new(&scenario, seed);
        world.run(60.0);
        let Player { lanes, others, back, gaps, .. } = world.player(0);
        assert!(lanes[0] > 1_450 && lanes[1] > 0, "seed {seed}: {lanes:?}");
        assert!((*others, *back) == (0, 0) && *gaps > 0, "seed {seed}: {gaps} gaps");
        assert!(world.player(1).lanes[0] > 1_300, "seed {seed}: {:?}", world.player(1).lanes);
    });
}

#[test]
fn packets_that_are_too_long_for_a_unit_arrive_whole() {
    let scenario = Scenario { packet_len: 2_000, ..scenario(StreamMode::Cumulative) };
    let mut world = World::new(&scenario, 1);
    world.run(40.0);
    let (sent, notes) = (world.sent(), world.notes());
    assert_eq!((sent.dropped, sent.refused), (0, 0));
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("layer 2 has packets of 1800 bytes, which are sent in 2"), "{note}");
    let Player { others, back, gaps, lanes, .. } = world.player(0);
    assert_eq!((*others, *back, *gaps), (0, 0, 0));
    // Two of them a picture, as soon as the receiver has the layer.
    assert!(lanes[1] > 1_200, "{lanes:?}");
}

#[test]
fn a_layer_above_its_rate_is_cut_down_to_it_and_its_user_is_told_once() {
    let scenario = Scenario { filled: [1.0, 1.5], ..scenario(StreamMode::Cumulative) };
    let mut world = World::new(&scenario, 1);
    world.run(30.0);
    let (sent, notes) = (world.sent(), world.notes());
    assert!(sent.dropped > 100 && sent.refused == 0, "{sent:?}");
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("layer 2 sends more than its rate of 800"), "{note}");
}

#[test]
fn what_else_comes_to_the_port_is_dropped_and_told_once() {
    let amiss = Some((5.0, Amiss::Noise));
    let mut world = World::new(&Scenario { amiss, ..scenario(StreamMode::Cumulative) }, 1);
    world.run(20.0);
    let (sent, notes) = (world.sent(), world.notes());
    // No RTP, another type, another source; and reports.
    assert!(sent.rtcp >= 15 * u64::from(PICTURES));
    assert_eq!((sent.refused, sent.dropped), (3 * sent.rtcp, 0));
    assert_eq!(notes.len(), 3, "{notes:?}");
    let Player { others, back, gaps, .. } = world.player(0);
    assert_eq!((*others, *back, *gaps), (0, 0, 0));
}

#[test]
fn an_encoder_that_is_started_again_or_jumps_is_followed() {
    for amiss in [Amiss::Restart, Amiss::Jump] {
        for mode in [StreamMode::Cumulative, StreamMode::Independent] {
            let scenario =
                Scenario { amiss: Some((10.0, amiss)), links: vec![500_000], ..scenario(mode) };
            let mut world = World::new(&scenario, 1);
            world.run(40.0);
            let Player { others, pictures, .. } = world.player(0);
            assert!(pictures[0] > 700, "{amiss:?}, {mode:?}: {pictures:?}");
            // As one stream, a player sees no other source.
            let restarted = amiss == Amiss::Restart && mode == StreamMode::Cumulative;
            assert_eq!(*others, u64::from(restarted), "{amiss:?}, {mode:?}");
            let told = world.notes().iter().filter(|line| line.contains("another sender")).count();
            assert_eq!(told, usize::from(amiss == Amiss::Restart), "{:?}", world.notes());
        }
    }
}
