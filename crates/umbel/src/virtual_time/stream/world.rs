//! A source, and receivers behind links of different rates.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::chance;
use umbel_engine::rlm::{LayerConfig, Receiver, ReceiverConfig, Source, SourceConfig, SourceStats};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, below, key};
use umbel_sim::{
    Context, EngineHost, HostConfig, LinkId, LinkSpec, Loss, Network, NodeId, Outside, Queue,
    Simulation, channel,
};
use umbel_video::clips::{Clip, Kind};
use umbel_video::{Encoder, EncoderConfig, Frame, FrameRate, Size, quality, y4m};
use umbel_wire::stream::LayerFec;
use umbel_wire::{Tsi, rlm};

use super::super::{Nobody, draws};
use crate::directory::News;
use crate::stream::host::{Input as SourceInput, Picture, StreamHost};
use crate::stream::ladder::Step;
use crate::stream::{StreamObserver, StreamSummary, codec_stream};
use crate::watch::host::{Bounds, Input as WatchInput, Screen, ScreenStats, WatchHost};
use crate::watch::playout::Playout;
use crate::watch::{DELAY, WatchObserver, WatchSummary};

impl<S> StreamObserver<S> for Nobody {}

impl WatchObserver for Nobody {}

const TSI: Tsi = Tsi(7);
/// Number of the base layer's group, and of the control group.
const BASE: u32 = 10;
const CONTROL: u32 = 1;
/// Number of layers. Each has twice the rate of the one below it.
const LAYERS: usize = 3;
/// Pictures a second.
const PICTURES: u32 = 10;
/// Bytes of a packet.
const PACKET_LEN: usize = 1_000;
/// Share of each layer's rate that is filled; the rest of the base is for repairs.
const FILL: [f64; LAYERS] = [0.4, 0.9, 0.9];
/// Pictures for which a film is remembered: what is shown is some pictures old.
const MEMORY: usize = 10;
/// One picture in this number is compared with those of the film.
const COMPARED: u64 = 4;
pub(super) const HEADER: fn() -> y4m::Header = || y4m::Header {
    size: Size::new(256, 144).unwrap(),
    rate: FrameRate::new(PICTURES, 1).unwrap(),
};

pub(super) fn at(seconds: f64) -> Instant {
    Instant::EPOCH + Duration::from_secs_f64(seconds)
}

/// Parameters of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// Rate of the base layer, in bits per second.
    pub(super) base: u64,
    /// Rate of each site's link, in bits per second.
    pub(super) sites: Vec<u64>,
    pub(super) receivers: u32,
    /// Share of packets that the sites' links lose.
    pub(super) loss: f64,
    /// Times between which the link of the first site is down.
    pub(super) outage: Option<(f64, f64)>,
    /// Times between which the camera shows nothing.
    pub(super) stall: Option<(f64, f64)>,
    /// Time at which the source ends, crashes, or is ended by its user.
    pub(super) ends: Option<f64>,
    pub(super) crashes: Option<f64>,
    pub(super) interrupted: Option<f64>,
    /// Event at the first receiver, and its time.
    pub(super) first: Option<(f64, WatchEnd)>,
    /// One packet in this number of the upper layers reaches no screen.
    pub(super) spoilt: Option<u64>,
    /// A layer that no screen gets.
    pub(super) missing: Option<u8>,
    /// Whether pictures are encoded and decoded. Otherwise packets are full of nothing.
    pub(super) encoded: bool,
}

/// Way in which a receiver ends before the stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEnd {
    Interrupted,
    Closed,
    Crash,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            base: 256_000,
            sites: vec![4_000_000, 1_200_000, 440_000],
            receivers: 2,
            loss: 0.0,
            outage: None,
            stall: None,
            ends: None,
            crashes: None,
            interrupted: None,
            first: None,
            spoilt: None,
            missing: None,
            encoded: false,
        }
    }
}

impl Scenario {
    fn rates(&self) -> [u64; LAYERS] {
        std::array::from_fn(|layer| self.base << layer)
    }

    /// Returns the bits per second that the camera has for a layer.
    fn filled(&self, layer: usize) -> f64 {
        self.rates()[layer] as f64 * FILL[layer]
    }
}

/// The latest pictures of a camera.
#[derive(Clone, Default)]
struct Film(Arc<Mutex<VecDeque<Frame>>>);

impl Film {
    fn pictures(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, picture: Frame) {
        let mut pictures = self.pictures();
        pictures.truncate(MEMORY - 1);
        pictures.push_front(picture);
    }

    /// Returns the quality of a picture in dB, against the one that it is most like.
    fn quality(&self, picture: &Frame) -> f64 {
        let pictures = self.pictures();
        let errors = pictures.iter().map(|other| quality::luma_mse(picture, other));
        quality::psnr(errors.fold(f64::INFINITY, f64::min))
    }
}

/// A camera with its encoder, and the source's user.
pub(super) struct Camera {
    scenario: Scenario,
    next: Option<Instant>,
    number: u64,
    clip: Option<(Clip, Encoder)>,
    film: Film,
    queue: VecDeque<SourceInput>,
    /// Part of a byte that layers have not sent yet, and packets so far.
    owed: [f64; LAYERS],
}

impl Camera {
    fn new(scenario: &Scenario, film: Film, seed: u64) -> Camera {
        let header = HEADER();
        let clip = scenario.encoded.then(|| {
            let config = EncoderConfig {
                layer_bits_per_s: (0..LAYERS).map(|n| scenario.filled(n) as u64).collect(),
                packet_len: PACKET_LEN,
                packet_overhead: 58,
                stream: codec_stream(TSI),
                ..EncoderConfig::default()
            };
            let encoder = Encoder::new(header.size, header.rate, config).unwrap();
            (Clip::new(Kind::Head, header.size, seed), encoder)
        });
        let (queue, next) = (VecDeque::new(), Some(Instant::EPOCH));
        let scenario = scenario.clone();
        Camera { scenario, next, number: 0, clip, film, queue, owed: [0.0; LAYERS] }
    }

    fn shoot(&mut self) {
        self.number += 1;
        let packets = match &mut self.clip {
            Some((clip, encoder)) => {
                let picture = clip.frame(self.number);
                let packets = encoder.encode(self.number, &picture).unwrap();
                self.film.add(picture);
                packets.into_iter().map(|p| (p.layer, Bytes::from(p.bytes))).collect()
            }
            None => self.fill(),
        };
        let encoding = Duration::from_millis(1);
        self.queue.push_back(SourceInput::Picture(Picture { packets, fresh: true, encoding }));
    }

    /// Returns packets that fill the layers.
    fn fill(&mut self) -> Vec<(u8, Bytes)> {
        let mut packets = Vec::new();
        for (layer, owed) in (0..).zip(&mut self.owed) {
            *owed += self.scenario.filled(layer.into()) / 8.0 / f64::from(PICTURES);
            while *owed >= PACKET_LEN as f64 {
                *owed -= PACKET_LEN as f64;
                packets.push((layer, Bytes::from(vec![0; PACKET_LEN])));
            }
        }
        packets
    }
}

impl Outside<SourceInput> for Camera {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<SourceInput> {
        let now = context.now();
        let passed = |time: &mut f64| at(*time) <= now;
        if self.scenario.interrupted.take_if(passed).is_some() {
            self.next = None;
            return Some(SourceInput::Interrupt);
        }
        if self.scenario.ends.take_if(passed).is_some() {
            self.next = None;
            self.queue.push_back(SourceInput::Ended { failed: None });
        }
        while let Some(due) = self.next.filter(|due| *due <= now) {
            self.next = Some(due + Duration::from_secs(1) / PICTURES);
            if !self.scenario.stall.is_some_and(|(from, to)| at(from) <= now && now < at(to)) {
                self.shoot();
            }
        }
        self.queue.pop_front()
    }

    fn next(&self) -> Option<Instant> {
        let Scenario { ends, interrupted, .. } = self.scenario;
        [self.next, ends.map(at), interrupted.map(at)].into_iter().flatten().min()
    }
}

/// Packets on their way from a host to its playout, and what the playout counted.
#[derive(Clone, Default)]
pub(super) struct Panel(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    packets: Vec<(u8, Bytes)>,
    /// Packets of the base layer, and of the others.
    counts: [u64; 2],
    spoilt: Option<u64>,
    missing: Option<u8>,
    stats: ScreenStats,
}

impl Panel {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen for Panel {
    fn unit(&mut self, layer: u8, body: Bytes) {
        let mut held = self.held();
        let upper = usize::from(layer > 0);
        held.counts[upper] += 1;
        let count = held.counts[upper];
        let spoilt = held.spoilt.is_some_and(|spoilt| count.is_multiple_of(spoilt));
        if held.missing != Some(layer) && (upper == 0 || !spoilt) {
            held.packets.push((layer, body));
        }
    }

    fn stats(&self) -> ScreenStats {
        self.held().stats
    }
}

/// A viewer: looks at pictures, hears the news, closes the output.
pub(super) struct Viewer {
    panel: Panel,
    playout: Option<(Playout, Film)>,
    news: Option<(Instant, News)>,
    end: Option<(Instant, WatchEnd)>,
    /// Next look at the panel.
    look: Instant,
    /// Quality of some pictures in dB.
    pub(super) qualities: Vec<f64>,
}

impl Outside<WatchInput> for Viewer {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<WatchInput> {
        let now = context.now();
        if let Some((_, end)) = self.end.take_if(|(at, _)| *at <= now) {
            return Some(match end {
                WatchEnd::Closed => WatchInput::Closed { failed: None },
                _ => WatchInput::Interrupt,
            });
        }
        if let Some((_, news)) = self.news.take_if(|(at, _)| *at <= now) {
            return Some(WatchInput::News(news));
        }
        self.look = now + Duration::from_millis(20);
        let packets = std::mem::take(&mut self.panel.held().packets);
        let Some((playout, film)) = &mut self.playout else { return None };
        for (layer, body) in packets {
            playout.unit(now, layer, &body);
        }
        let compared = playout.stats().shown.is_multiple_of(COMPARED);
        if let Some(picture) = playout.show(now)
            && compared
        {
            self.qualities.push(film.quality(picture));
        }
        let stats = playout.stats();
        self.panel.held().stats = stats;
        None
    }

    fn next(&self) -> Option<Instant> {
        let news = self.news.map(|(at, _)| at);
        [Some(self.look), news, self.end.map(|(at, _)| at)].into_iter().flatten().min()
    }
}

type Sender = EngineHost<Source, StreamHost, Camera>;
type Watcher = EngineHost<Receiver, WatchHost<Panel>, Viewer>;

/// A receiver, with its site and its own link.
pub(super) struct Member {
    pub(super) node: NodeId,
    pub(super) site: usize,
}

pub(super) struct World {
    pub(super) simulation: Simulation,
    pub(super) source: NodeId,
    pub(super) members: Vec<Member>,
    /// The sites' links.
    pub(super) links: Vec<LinkId>,
}

impl World {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> World {
        let mut network = Network::new();
        network.set_prune_latency(Duration::from_millis(50));
        let lan = || LinkSpec::default().delay(Duration::from_millis(1));
        let source = network.host("source");
        let core = network.router("core");
        network.link(source, core, lan(), lan()).unwrap();
        let (mut links, mut members) = (Vec::new(), Vec::new());
        for (site, &rate) in scenario.sites.iter().enumerate() {
            let router = network.router(format!("r{site}"));
            let rate = Rate::from_bits_per_s(rate).unwrap();
            let schedule = match scenario.outage {
                Some((from, to)) if site == 0 => vec![(at(from), false), (at(to), true)],
                _ => Vec::new(),
            };
            let wide = || lan().delay(Duration::from_millis(20)).schedule(schedule.clone());
            let narrow = wide()
                .rate(rate)
                .queue(Queue::DropTailPackets(20))
                .loss(Loss::Bernoulli(scenario.loss));
            links.push(network.link(core, router, narrow, wide()).unwrap());
            for receiver in 0..scenario.receivers {
                let node = network.host(format!("h{site}.{receiver}"));
                network.link(router, node, lan(), lan()).unwrap();
                members.push(Member { node, site });
            }
        }
        let simulation = Simulation::new(network, seed);
        let mut world = World { simulation, source, members, links };
        let film = Film::default();
        world.add_source(scenario, &film, seed);
        for number in 0..world.members.len() {
            world.add_receiver(number, scenario, &film, seed);
        }
        world
    }

    fn add_source(&mut self, scenario: &Scenario, film: &Film, seed: u64) {
        let base = channel(Some(self.source), BASE);
        let mut config = SourceConfig::new(TSI, base, LAYERS as u8);
        config.layers[0] =
            LayerConfig { fec: Some(LayerFec { source_symbols: 8, repair_symbols: 3 }) };
        config.control = Some(channel(None, CONTROL));
        let pace = |bits| Rate::from_bits_per_s(bits).unwrap();
        let step = |rate: u64| Step {
            rate: pace(rate),
            pace: pace(rate * 95 / 100),
            encoder_bits_per_s: rate,
            fec: None,
        };
        let host = StreamHost::new(&scenario.rates().map(step), Arc::new(Nobody));
        // Not signed, unlike what `hls.rs` sends: to sign and check so many packets takes most of the
        // time.
        let engine = Source::new(config).unwrap();
        let camera = Camera::new(scenario, film.clone(), seed);
        let mut host: Sender =
            EngineHost::with_outside(engine, host, camera, HostConfig::default());
        if let Some(crash) = scenario.crashes {
            host.crash_at(at(crash));
        }
        self.simulation.set_app(self.source, host, Instant::EPOCH).unwrap();
    }

    fn add_receiver(&mut self, number: usize, scenario: &Scenario, film: &Film, seed: u64) {
        let mut random = draws(seed, 100 + number as u64);
        let node = self.members[number].node;
        let base = channel(Some(self.source), BASE);
        let channels = rlm::channels(base, LAYERS as u8).unwrap();
        let mut config = ReceiverConfig::new(TSI, node.0.into(), channels);
        config.control = Some(channel(None, CONTROL));
        let generator = chance::generator(key(seed, Purpose::Node, node.0.into()));
        let engine = Receiver::new(config, generator).unwrap();
        let panel = Panel::default();
        (panel.held().spoilt, panel.held().missing) = (scenario.spoilt, scenario.missing);
        let bounds = Bounds { patience: Duration::from_secs(10), last: None };
        let host = WatchHost::new(LAYERS as u8, bounds, panel.clone(), Arc::new(Nobody));
        let playout = scenario
            .encoded
            .then(|| (Playout::new(HEADER(), codec_stream(TSI), DELAY), film.clone()));
        let over = scenario.ends.or(scenario.interrupted);
        let first = scenario.first.filter(|_| number == 0);
        let end = first.filter(|(_, end)| *end != WatchEnd::Crash);
        let viewer = Viewer {
            panel,
            playout,
            // The announcement is deleted a little later.
            news: over.map(|time| (at(time + 0.5), News::Over)),
            end: end.map(|(time, end)| (at(time), end)),
            look: Instant::EPOCH,
            qualities: Vec::new(),
        };
        let mut host: Watcher =
            EngineHost::with_outside(engine, host, viewer, HostConfig::default());
        if let Some((crash, WatchEnd::Crash)) = first {
            host.crash_at(at(crash));
        }
        let start = Instant::EPOCH + Duration::from_millis(below(&mut random, 3_000));
        self.simulation.set_app(node, host, start).unwrap();
    }

    pub(super) fn run_until(&mut self, seconds: f64) {
        self.simulation.run_until(at(seconds));
    }

    pub(super) fn watched(&self, number: usize) -> WatchSummary {
        self.watcher(number).host().summary()
    }

    pub(super) fn watcher(&self, number: usize) -> &Watcher {
        self.simulation.app::<Watcher>(self.members[number].node).unwrap()
    }

    pub(super) fn sent(&self) -> (StreamSummary, SourceStats) {
        let host = self.simulation.app::<Sender>(self.source).unwrap();
        (host.host().summary(), host.engine().stats())
    }

    /// Returns the number of packets of the base layer that a receiver got, restored ones included,
    /// and of those that the source has sent.
    pub(super) fn base(&self, number: usize) -> (u64, u64) {
        let sent = self.sent().1.layers[0];
        (self.watcher(number).outside().panel.held().counts[0], sent.packets - sent.repairs)
    }

    /// Returns the bytes that the source's side has sent over a site's link.
    pub(super) fn carried(&self, site: usize) -> u64 {
        self.simulation.link_counters(self.links[site]).0.bytes
    }

    /// Returns the number of packets that entered a site's link, and of those that its queue
    /// dropped.
    pub(super) fn dropped(&self, site: usize) -> (u64, u64) {
        let counters = self.simulation.link_counters(self.links[site]).0;
        (counters.packets, counters.queue_drops)
    }
}
