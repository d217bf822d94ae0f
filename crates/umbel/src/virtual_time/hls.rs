//! A ladder's source and gateways behind links of different rates. The writer of the ladder, the
//! players and the way of repairs are doubles.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::rlm::{
    LayerConfig, Receiver, ReceiverConfig, Signing, Source, SourceConfig, StreamKey,
};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, chance};
use umbel_net::interface::Family;
use umbel_sim::random::{Purpose, below, key};
use umbel_sim::{
    Context, EngineHost, HostConfig, LinkSpec, Loss, Network, NodeId, Outside, Queue, Simulation,
    channel,
};
use umbel_store::hls::{FileName, Media, Playlist, Segment};
use umbel_wire::stream::{LayerFec, StreamMode};
use umbel_wire::{Tsi, rlm};

use super::{Nobody, draws, for_seeds};
use crate::directory::tests::signer;
use crate::gateway::board::Board;
use crate::gateway::host::{Fetch, GatewayHost, Input as GatewayInput};
use crate::gateway::repairs::Key;
use crate::gateway::{GatewayObserver, GatewaySummary};
use crate::http::{Answer, Fetched, Site, Wanted};
use crate::stream::hls::host::{HlsHost, Input as SourceInput, Item, Step};
use crate::stream::hls::ladder::rungs;
use crate::stream::hls::recent::Recent;

impl GatewayObserver for Nobody {}

const TSI: Tsi = Tsi(9);
/// Version of the announcement. All that is sent is signed.
const VERSION: u64 = 7;
const BASE: u32 = 10;
const CONTROL: u32 = 1;
/// Rates of the renditions.
const RATES: [u64; 3] = [80_000, 240_000, 720_000];
/// Segments in a playlist of the writer.
const WINDOW: usize = 12;

fn name(text: &str) -> FileName {
    FileName::parse(text).unwrap()
}

/// Returns the content of a segment, which tells rendition and number.
fn content(layer: usize, number: u64) -> Bytes {
    let mut content = vec![0; RATES[layer] as usize / 8];
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{layer}:{number}").as_bytes()).finalize_xof().fill(&mut content);
    content.into()
}

/// Writes a segment of each rendition every second.
struct Writer {
    number: u64,
    lists: [Media; 3],
    queue: VecDeque<SourceInput>,
}

impl Writer {
    fn due(&self) -> Instant {
        Instant::EPOCH + Duration::from_secs(self.number + 1)
    }

    fn write(&mut self) {
        for (layer, list) in self.lists.iter_mut().enumerate() {
            let file = |file: String| name(&format!("v{layer}/{file}"));
            let segment = Segment {
                name: file(format!("{}.m4s", self.number)),
                duration: Duration::from_secs(1),
                init: Some(file("init.mp4".to_owned())),
                discontinuity: false,
                gap: false,
                date: None,
            };
            let body = content(layer, self.number);
            let item = Item { name: segment.name.clone(), body };
            list.push(self.number, segment, WINDOW);
            let playlist = file("i.m3u8".to_owned());
            let init = Item { name: file("init.mp4".to_owned()), body: format!("{layer}").into() };
            self.queue.push_back(SourceInput::Step(Step {
                layer: layer as u8,
                segment: Some(item),
                init: Some(init),
                playlist: Item { body: list.text(&playlist).into(), name: playlist },
            }));
        }
        self.number += 1;
    }
}

impl Outside<SourceInput> for Writer {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<SourceInput> {
        while self.due() <= context.now() {
            self.write();
        }
        self.queue.pop_front()
    }

    fn next(&self) -> Option<Instant> {
        Some(self.due())
    }
}

/// Files that a gateway asked for.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(Key, Wanted)>>>);

impl Fetch for Asked {
    fn fetch(&mut self, key: Key, wanted: Wanted) {
        self.0.lock().unwrap().push((key, wanted));
    }
}

/// The way of repairs: slow, and now and then it fails or brings other bytes.
struct Way {
    asked: Asked,
    recent: Arc<Recent>,
    random: Xoshiro256PlusPlus,
    fetching: Vec<(Instant, Key, Wanted)>,
    look: Instant,
    /// Per cent of the answers that fail, and as many that are damaged.
    bad: u64,
}

impl Way {
    fn answer(&mut self, key: &Key, wanted: &Wanted) -> Option<Fetched> {
        let fate = below(&mut self.random, 100);
        let Answer::Found { body, etag, signature, .. } =
            self.recent.answer(&format!("/{}", key.1))
        else {
            return None;
        };
        let whole = |body: Bytes| if fate < 2 * self.bad { body.slice(1..) } else { body };
        let bodies = match wanted {
            _ if fate < self.bad => return None,
            Wanted::All(_) => vec![whole(body)],
            Wanted::Parts { ranges, .. } => {
                let part = |range: &std::ops::Range<u64>| {
                    let part = body.slice(range.start as usize..range.end as usize);
                    if fate < 2 * self.bad { Bytes::from(vec![7; part.len()]) } else { part }
                };
                ranges.iter().map(part).collect()
            }
        };
        Some(Fetched { bodies, etag, signature })
    }
}

impl Outside<GatewayInput> for Way {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<GatewayInput> {
        let now = context.now();
        self.look = now + Duration::from_millis(20);
        for (key, wanted) in std::mem::take(&mut *self.asked.0.lock().unwrap()) {
            let time = Duration::from_millis(50 + below(&mut self.random, 400));
            self.fetching.push((now + time, key, wanted));
        }
        let due = self.fetching.iter().position(|(due, ..)| *due <= now)?;
        let (_, key, wanted) = self.fetching.swap_remove(due);
        let answer = self.answer(&key, &wanted);
        Some(GatewayInput::Fetched { key, answer })
    }

    fn next(&self) -> Option<Instant> {
        Some(self.look)
    }
}

type Sender = EngineHost<Source, HlsHost, Writer>;
type Gateway = EngineHost<Receiver, GatewayHost<Asked>, Way>;

/// A gateway behind a link.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate: u64,
    loss: f64,
    /// Whether the source repairs, and per cent of repairs that fail.
    repair: Option<u64>,
}

struct World {
    simulation: Simulation,
    gateways: Vec<(NodeId, Arc<Board>)>,
}

impl World {
    fn new(links: &[Link], seed: u64) -> World {
        let mut network = Network::new();
        network.set_prune_latency(Duration::from_millis(50));
        let lan = || LinkSpec::default().delay(Duration::from_millis(10));
        let (source, core) = (network.host("source"), network.router("core"));
        network.link(source, core, lan(), lan()).unwrap();
        let nodes: Vec<NodeId> = links
            .iter()
            .enumerate()
            .map(|(number, link)| {
                let node = network.host(format!("gateway {number}"));
                let narrow = lan()
                    .rate(Rate::from_bits_per_s(link.rate).unwrap())
                    .queue(Queue::DropTailPackets(20))
                    .loss(Loss::Bernoulli(link.loss));
                network.link(core, node, narrow, lan()).unwrap();
                node
            })
            .collect();
        let simulation = Simulation::new(network, seed);
        let mut world = World { simulation, gateways: Vec::new() };
        let recent = Arc::new(Recent::default());
        world.add_source(source, recent.clone());
        for (node, link) in nodes.into_iter().zip(links) {
            world.add_gateway(source, node, *link, recent.clone(), seed);
        }
        world
    }

    fn add_source(&mut self, source: NodeId, recent: Arc<Recent>) {
        recent.sign(signer(1), VERSION);
        let lines = RATES.iter().enumerate();
        let lines = lines.map(|(n, r)| format!("#EXT-X-STREAM-INF:BANDWIDTH={r}\nv{n}/i.m3u8\n"));
        let text = format!("#EXTM3U\n{}", lines.collect::<String>());
        let master = Playlist::parse_master(&name("m.m3u8"), text.as_bytes()).unwrap();
        let fec = Some(LayerFec { source_symbols: 64, repair_symbols: 7 });
        let rungs = rungs(&master, fec, 0.25, 1_000, Family::V4).unwrap();
        let mut config = SourceConfig::new(TSI, channel(Some(source), BASE), RATES.len() as u8);
        config.layers = vec![LayerConfig { fec }; RATES.len()];
        config.control = Some(channel(None, CONTROL));
        config.symbol_len = 904;
        let master = Item { name: name("m.m3u8"), body: text.into() };
        let host = HlsHost::new(rungs, master, Some(recent), Arc::new(Nobody));
        let lists = std::array::from_fn(|_| Media { target_s: 1, ..Media::default() });
        let writer = Writer { number: 0, lists, queue: VecDeque::new() };
        let keys = signer(1);
        let sign = Box::new(move |message: &[u8]| keys.sign(message));
        let engine = Source::new(config).unwrap().signed(Signing::new(sign, VERSION));
        let host: Sender = EngineHost::with_outside(engine, host, writer, HostConfig::default());
        self.simulation.set_app(source, host, Instant::EPOCH).unwrap();
    }

    fn add_gateway(
        &mut self,
        source: NodeId,
        node: NodeId,
        link: Link,
        recent: Arc<Recent>,
        seed: u64,
    ) {
        let mut random = draws(seed, node.0.into());
        let channels = rlm::channels(channel(Some(source), BASE), RATES.len() as u8).unwrap();
        let mut config = ReceiverConfig::new(TSI, node.0.into(), channels);
        config.control = Some(channel(None, CONTROL));
        config.mode = StreamMode::Independent;
        let generator = |purpose| chance::generator(key(seed, purpose, node.0.into()));
        let key_of_source = StreamKey { public: signer(1).public(), version: VERSION };
        config.key = Some(key_of_source);
        let engine = Receiver::new(config, generator(Purpose::Node)).unwrap();
        let board = Arc::new(Board::new("film".parse().unwrap()));
        board.shelf().restart(RATES.len());
        let asked = Asked::default();
        let repairs = link.repair.map(|_| asked.clone());
        let layers = RATES.len() as u8;
        let host = GatewayHost::new(
            (layers, key_of_source),
            board.clone(),
            repairs,
            generator(Purpose::Workload),
            Arc::new(Nobody),
        );
        let start = Instant::EPOCH + Duration::from_millis(below(&mut random, 3_000));
        let (fetching, bad) = (Vec::new(), link.repair.unwrap_or(0));
        let way = Way { asked, recent, random, fetching, look: start, bad };
        let host: Gateway = EngineHost::with_outside(engine, host, way, HostConfig::default());
        self.simulation.set_app(node, host, start).unwrap();
        self.gateways.push((node, board));
    }

    fn run_until(&mut self, seconds: u64) {
        self.simulation.run_until(Instant::EPOCH + Duration::from_secs(seconds));
    }

    fn summary(&self, number: usize) -> GatewaySummary {
        self.simulation.app::<Gateway>(self.gateways[number].0).unwrap().host().summary()
    }

    /// Returns the renditions and numbers of the segments that a player sees now.
    #[track_caller]
    fn played(&self, number: usize) -> Vec<(usize, u64)> {
        let board = &self.gateways[number].1;
        let get = |path: &str| match board.answer(&format!("/film/{path}")) {
            Answer::Found { body, .. } => body,
            other => panic!("{path}: {other:?}"),
        };
        let live = Playlist::parse_media(&name("live.m3u8"), &get("live.m3u8")).unwrap();
        let newest = live.end() + 200;
        let found = live.segments.iter().map(|segment| {
            let body = get(segment.name.as_str());
            let layer = RATES.iter().position(|rate| rate / 8 == body.len() as u64).unwrap();
            assert_eq!(get(segment.init.as_ref().unwrap().as_str()), format!("{layer}"));
            let number = (0..newest).find(|&number| content(layer, number) == body);
            (layer, number.expect("a segment as it was written"))
        });
        found.collect()
    }
}

#[test]
fn each_gateway_plays_what_its_link_carries_without_a_gap() {
    let (runs, repaired_bytes) = (Cell::new(0), Cell::new(0));
    for_seeds(3, |seed| {
        let wide = Link { rate: 8_000_000, loss: 0.0, repair: Some(0) };
        let narrow = Link { rate: 200_000, ..wide };
        let mut world = World::new(&[wide, narrow], seed);
        world.run_until(60);
        for (gateway, layer) in [(0, 2), (1, 0)] {
            let (summary, played) = (world.summary(gateway), world.played(gateway));
            let what = format!("seed {seed}: {played:?} {summary:?}");
            assert_eq!(summary.skipped, 0, "{what}");
            assert!(played.windows(2).all(|pair| pair[1].1 == pair[0].1 + 1), "{what}");
            assert!(played.iter().filter(|(l, _)| *l == layer).count() >= 6, "{what}");
            assert!(summary.segments >= 50, "{what}");
        }
        assert!(world.summary(1).failed > 0, "seed {seed}: {:?}", world.summary(1));
        runs.set(runs.get() + 1);
        repaired_bytes.set(repaired_bytes.get() + world.summary(0).repaired_bytes);
    });
    // Experiments begin between segments. The repairs are mostly of the first segment.
    let mean = repaired_bytes.get() / runs.get();
    assert!(mean < 20_000, "{mean} bytes");
}

#[test]
fn repairs_that_fail_or_are_damaged_never_reach_a_player() {
    for_seeds(3, |seed| {
        let link = Link { rate: 8_000_000, loss: 0.2, repair: Some(20) };
        let mut world = World::new(&[link], seed);
        for seconds in [20, 40, 60] {
            world.run_until(seconds);
            let numbers: Vec<u64> = world.played(0).iter().map(|(_, number)| *number).collect();
            assert!(numbers.is_sorted(), "seed {seed}: {numbers:?}");
        }
        let summary = world.summary(0);
        assert!(summary.repaired >= 10 && summary.segments >= 40, "seed {seed}: {summary:?}");
    });
}

#[test]
fn without_repair_a_gateway_goes_on_with_what_comes_whole() {
    for_seeds(3, |seed| {
        let link = Link { rate: 8_000_000, loss: 0.02, repair: None };
        let mut world = World::new(&[link], seed);
        world.run_until(60);
        let (summary, played) = (world.summary(0), world.played(0));
        assert!(played.len() == 12 && summary.segments >= 40, "seed {seed}: {summary:?}");
        assert!(summary.skipped <= 2 + summary.experiments, "seed {seed}: {summary:?}");
        assert_eq!(summary.repaired, 0);
    });
}
