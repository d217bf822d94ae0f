//! A source and receivers in some subnets, and the events of a scenario.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::lms::RouterConfig;
use umbel_engine::symbols::SymbolSource;
use umbel_engine::tmtp::{
    self, Authentication, Draws, FetchCredit, HoldUp, List, NodeConfig, ReceiverConfig, Shape,
    SourceCommand, SourceConfig, Start,
};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, below, key};
use umbel_sim::tmtp::id_of;
use umbel_sim::{
    Context, EngineHost, HostConfig, Kind, KindOf, Kinds, LinkSpec, Loss, Network, NodeId, Outcome,
    Outside, Simulation, address_of, channel,
};
use umbel_store::feed::{FeedSink, FeedSource};
use umbel_wire::feed::{Feed, FeedContent, Recovery};
use umbel_wire::{Channel, Digest, SmallBlockHeader, Tsi};

use super::super::later::Later;
use super::super::{Nobody, draws};
use super::files::{Directory, Files, SHAPE};
use super::pipe::{self, Sink, Writer};
use crate::feed::admission::Receipts;
use crate::feed::recv::host::{About, RecvHost};
use crate::feed::recv::store::{FeedStore, Input};
use crate::feed::recv::{RecvObserver, RecvSummary};
use crate::feed::send::host::{Expected, Input as SendInput, SendHost, Terms};
use crate::feed::send::{SendObserver, SendSummary, WaitFor};

impl SendObserver for Nobody {}

impl RecvObserver for Nobody {}

const TSI: Tsi = Tsi(7);
const PORT: u16 = 7702;
/// Rate of the feed, bits per second.
const RATE: u64 = 2_000_000;
/// Key that follows from the token, or secret of the tree.
const TOKEN: [u8; 32] = [0x55; 32];
/// Number that the source tells when the feed is over.
const LAST_WORD: [u8; 32] = [0x77; 32];

/// Returns the seed of a node's keys.
fn seed_of(node: NodeId) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&node.0.to_be_bytes());
    seed
}

pub(super) fn ms(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

/// Who may take part, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody.
    Open,
    /// Who has the token.
    Token,
    /// Who is on the source's list.
    List,
}

/// Parameters of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) subnets: u32,
    pub(super) hosts: u32,
    /// Loss of the links between routers, and of those of hosts.
    pub(super) loss: f64,
    /// Number of subnets whose links are too narrow for full packets.
    pub(super) narrow: u32,
    /// Time within which receivers come.
    pub(super) within: Duration,
    pub(super) wait_for: WaitFor,
    pub(super) linger: Duration,
    /// Number of files, and whether a pipe is sent instead of them.
    pub(super) files: u32,
    pub(super) pipe: bool,
    /// Whether disks are full for a while, how many symbols they alter, and how slow they are.
    pub(super) full: bool,
    pub(super) alters: u32,
    pub(super) slow: Duration,
    /// Number of receivers that already have all files.
    pub(super) have_all: u32,
    /// Number of receivers that crash.
    pub(super) crashes: u32,
    /// Time at which the source crashes, or its user interrupts it.
    pub(super) source_crash: Option<Instant>,
    pub(super) source_interrupt: Option<Instant>,
    /// Number of receivers that their users interrupt.
    pub(super) interrupts: u32,
    pub(super) access: Access,
    pub(super) recovery: Recovery,
    /// Whether routers do LMS, and whether the one beside the source has it for a replier.
    pub(super) lms_routers: bool,
    pub(super) source_replier: bool,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            subnets: 3,
            hosts: 2,
            loss: 0.1,
            narrow: 0,
            within: Duration::from_secs(1),
            wait_for: WaitFor::Receivers(6),
            linger: Duration::ZERO,
            files: 6,
            pipe: false,
            full: false,
            alters: 0,
            slow: Duration::from_millis(20),
            have_all: 0,
            crashes: 0,
            source_crash: None,
            source_interrupt: None,
            interrupts: 0,
            access: Access::Token,
            recovery: Recovery::Tree,
            lms_routers: false,
            source_replier: false,
        }
    }
}

type Sender<C, S> = EngineHost<tmtp::Source<S>, SendHost<C>, Upstream>;
pub(super) type FileSender = Sender<Files, Files>;
pub(super) type PipeSender = Sender<pipe::Source, FeedSource>;
pub(super) type FileReceiver =
    EngineHost<tmtp::Receiver<Directory>, RecvHost<Directory>, Downstream>;
pub(super) type PipeReceiver = EngineHost<tmtp::Receiver<FeedSink>, RecvHost<Sink>, Downstream>;

/// Surroundings of a source.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    writer: Option<Writer>,
    commands: VecDeque<SourceCommand>,
    interrupt_at: Option<Instant>,
}

impl Outside<SendInput> for Upstream {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<SendInput> {
        let now = context.now();
        if self.interrupt_at.take_if(|at| *at <= now).is_some() {
            return Some(SendInput::Interrupt);
        }
        if let Some(writer) = &mut self.writer {
            writer.write(now, &mut self.commands);
        }
        self.commands.pop_front().map(SendInput::Command)
    }

    fn next(&self) -> Option<Instant> {
        let writes = self.writer.as_ref().and_then(Writer::next);
        [writes, self.interrupt_at].into_iter().flatten().min()
    }
}

/// Store of a receiver.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Files(Directory),
    Pipe(Sink),
}

/// Surroundings of a receiver.
#[derive(Debug)]
pub(super) struct Downstream {
    place: Place,
    full: VecDeque<(Instant, bool)>,
    interrupt_at: Option<Instant>,
    /// Time at which the pipe is read next.
    read_at: Instant,
}

impl Downstream {
    fn events(&self) -> &Later<Input> {
        match &self.place {
            Place::Files(directory) => directory.events(),
            Place::Pipe(sink) => sink.events(),
        }
    }
}

impl Outside<Input> for Downstream {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Input> {
        let now = context.now();
        while let Some((_, full)) = self.full.pop_front_if(|(at, _)| *at <= now) {
            if let Place::Files(directory) = &self.place {
                directory.set_full(full);
            }
        }
        if self.interrupt_at.take_if(|at| *at <= now).is_some() {
            return Some(Input::Interrupt);
        }
        if let (Place::Pipe(sink), true) = (&self.place, self.read_at <= now) {
            sink.read();
            self.read_at = now + Duration::from_millis(30);
        }
        self.events().take(now)
    }

    fn next(&self) -> Option<Instant> {
        let reads = matches!(self.place, Place::Pipe(_)).then_some(self.read_at);
        let full = self.full.front().map(|(at, _)| *at);
        [self.events().next(), self.interrupt_at, full, reads].into_iter().flatten().min()
    }
}

/// A receiver and its fate.
pub(super) struct Member {
    pub(super) node: NodeId,
    pub(super) place: Place,
    pub(super) crashes: bool,
    pub(super) interrupted: bool,
}

pub(super) struct World {
    pub(super) simulation: Simulation,
    pub(super) source: NodeId,
    pub(super) members: Vec<Member>,
    pub(super) files: Files,
    pub(super) bytes: Vec<u8>,
    receivers: Vec<NodeId>,
    scenario: Scenario,
}

fn channels(source: NodeId) -> (Channel, Channel) {
    (channel(Some(source), 1), channel(None, 2))
}

fn address(node: NodeId) -> SocketAddr {
    (address_of(node), PORT).into()
}

impl World {
    pub(super) fn new(scenario: Scenario, seed: u64) -> World {
        let mut network = Network::new();
        let lan = |loss| {
            LinkSpec::default().delay(Duration::from_micros(200)).loss(Loss::Bernoulli(loss))
        };
        let wide = || LinkSpec::default().delay(Duration::from_millis(10));
        let full = Kinds::NONE.with(Kind::Data);
        let narrow = || LinkSpec { loss_of: full, ..wide().loss(Loss::Bernoulli(1.0)) };
        let source = network.host("source");
        let core = network.router("core");
        network.link(source, core, lan(0.0), lan(0.0)).unwrap();
        let (mut nodes, mut routers) = (Vec::new(), vec![core]);
        for subnet in 0..scenario.subnets {
            let router = network.router(format!("r{subnet}"));
            routers.push(router);
            let lossy = || wide().loss(Loss::Bernoulli(scenario.loss));
            let down = if subnet < scenario.narrow { narrow() } else { lossy() };
            network.link(core, router, down, lossy()).unwrap();
            let switch = network.switch(format!("n{subnet}"));
            network.link(router, switch, lan(0.0), lan(0.0)).unwrap();
            for host in 0..scenario.hosts {
                let node = network.host(format!("h{subnet}.{host}"));
                network.link(switch, node, lan(scenario.loss), lan(scenario.loss)).unwrap();
                nodes.push(node);
            }
        }
        let mut simulation = Simulation::new(network, seed);
        let change = |config: &mut RouterConfig| config.source_as_replier = scenario.source_replier;
        for router in routers.into_iter().filter(|_| scenario.lms_routers) {
            simulation
                .set_router_hook(router, umbel_sim::lms::router(router, seed, change))
                .unwrap();
        }
        let files = Files::new(scenario.files, &mut draws(seed, 1));
        let mut world = World {
            simulation,
            source,
            members: Vec::new(),
            files,
            bytes: Vec::new(),
            receivers: nodes.clone(),
            scenario,
        };
        world.add_source(seed);
        for (number, node) in (0..).zip(nodes) {
            world.add_receiver(number, node, seed);
        }
        world
    }

    fn feed(&self) -> Feed {
        let (data, domain) = channels(self.source);
        let (manifest_len, digest, _) = self.files.manifest();
        let (items, bytes) = (self.files.infos.len() as u64, 0);
        let files = FeedContent::Files { items, bytes, manifest_len, digest };
        Feed {
            name: "feed".parse().unwrap(),
            tsi: TSI,
            source: address(self.source),
            node: self.id_of(self.source),
            data,
            domain,
            scope: 32,
            symbol_len: SHAPE.symbol_len,
            block_symbols: SHAPE.block_symbols.into(),
            fec: true,
            recovery: self.scenario.recovery,
            kbit_per_s: RATE / 1_000,
            content: if self.scenario.pipe { FeedContent::Pipe } else { files },
            token: self.scenario.access == Access::Token,
            sealed: None,
            last_word: Some(Digest(*blake3::hash(&LAST_WORD).as_bytes())),
            version: 1,
        }
    }

    fn id_of(&self, node: NodeId) -> tmtp::NodeId {
        if self.scenario.access == Access::Open {
            return tmtp::node_id(TSI, &seed_of(node));
        }
        id_of(node)
    }

    fn node_config(&self, node: NodeId) -> NodeConfig {
        let authentication = match self.scenario.access {
            Access::Open => Authentication::Keys(seed_of(node)),
            Access::Token => Authentication::Token(TOKEN),
            Access::List => {
                let receivers = self.receivers.iter().map(|&node| seed_of(node));
                let has = || List::Has { tree: TOKEN, receivers: receivers.collect() };
                let list = if node == self.source { has() } else { List::On(seed_of(node)) };
                Authentication::List { list, token: None }
            }
        };
        let (id, channels) = (self.id_of(node), channels(self.source));
        let mut config = NodeConfig::new(id, TSI, channels, address(node), authentication);
        config.name = format!("h{}", node.0);
        config.recovery = self.scenario.recovery;
        config
    }

    fn shape(&self) -> Shape {
        let (len, digest, blocks) = self.files.manifest();
        let manifest = umbel_wire::tmtp::Manifest { blocks, len, digest };
        Shape {
            id: self.id_of(self.source),
            source: address(self.source),
            symbol_len: SHAPE.symbol_len,
            block_symbols: SHAPE.block_symbols,
            fec: true,
            manifest: (!self.scenario.pipe).then_some(manifest),
        }
    }

    /// Returns the time for which children may hold up a feed of files. Here it has the bounds of one
    /// that is open to all, whoever may take part: stamps of a token cost a test little, signatures
    /// more than everything else.
    fn hold_up(&self) -> Option<HoldUp> {
        (!self.scenario.pipe).then(HoldUp::default)
    }

    fn add_source(&mut self, seed: u64) {
        let rate = Rate::from_bits_per_s(RATE).unwrap();
        let mut config = SourceConfig::new(self.node_config(self.source), self.shape(), rate);
        config.repair.hold_up = self.hold_up();
        config.fetch_credit = Some(FetchCredit::default());
        config.last_word = Some(LAST_WORD);
        let Scenario { wait_for, linger, source_crash, source_interrupt, .. } = self.scenario;
        let expected = Expected { names: [].into(), alone: false, receipts: Receipts::None };
        let terms = Terms { wait_for, linger, expected };
        let mut upstream = Upstream { interrupt_at: source_interrupt, ..Upstream::default() };
        let host_config = host_config();
        if self.scenario.pipe {
            let (content, symbols, writer, bytes) = pipe::source(TSI, seed);
            (self.bytes, upstream.writer) = (bytes, Some(writer));
            let host = SendHost::new(content, Arc::new(Nobody), terms, rate);
            let engine = tmtp::Source::new(config, node_draws(self.source, seed), symbols);
            let mut host: PipeSender =
                EngineHost::with_outside(engine, host, upstream, host_config);
            if let Some(at) = source_crash {
                host.crash_at(at);
            }
            self.simulation.set_app(self.source, host, Instant::EPOCH).unwrap();
        } else {
            let host = SendHost::new(self.files.clone(), Arc::new(Nobody), terms, rate);
            let engine =
                tmtp::Source::new(config, node_draws(self.source, seed), self.files.clone());
            let mut host: FileSender =
                EngineHost::with_outside(engine, host, upstream, host_config);
            if let Some(at) = source_crash {
                host.crash_at(at);
            }
            self.simulation.set_app(self.source, host, Instant::EPOCH).unwrap();
        }
    }

    fn add_receiver(&mut self, number: u32, node: NodeId, seed: u64) {
        let scenario = self.scenario;
        let mut random = draws(seed, 100 + u64::from(number));
        let mut config = ReceiverConfig::new(self.node_config(node), self.shape());
        config.repair.hold_up = self.hold_up();
        config.last_word = Some(*blake3::hash(&LAST_WORD).as_bytes());
        let start = ms(below(&mut random, scenario.within.as_millis() as u64 + 1));
        let crashes = number < scenario.crashes;
        let interrupted =
            number >= scenario.crashes && number < scenario.crashes + scenario.interrupts;
        let crash_at = ms(2_000 + below(&mut random, 4_000));
        let full_from = below(&mut random, 4_000);
        let until = full_from + below(&mut random, 5_000);
        let place = if scenario.pipe {
            Place::Pipe(Sink::new(TSI))
        } else {
            let how = (scenario.alters, scenario.slow);
            let (len, ..) = self.files.manifest();
            let directory = Directory::new(len, how, draws(seed, 200 + u64::from(number)));
            if number < scenario.have_all {
                directory.fill(&self.files);
            }
            Place::Files(directory)
        };
        let downstream = Downstream {
            place: place.clone(),
            full: if scenario.full {
                [(ms(full_from), true), (ms(until), false)].into()
            } else {
                VecDeque::new()
            },
            interrupt_at: interrupted.then_some(crash_at),
            read_at: Instant::EPOCH,
        };
        let about = About { feed: self.feed(), start: Start::Everything, line: None };
        let host_config = host_config();
        match &place {
            Place::Files(directory) => {
                let host = RecvHost::new(about, Arc::new(Nobody), directory.clone());
                let engine = tmtp::Receiver::new(config, node_draws(node, seed), directory.clone());
                let mut host: FileReceiver =
                    EngineHost::with_outside(engine, host, downstream, host_config);
                if crashes {
                    host.crash_at(crash_at);
                }
                self.simulation.set_app(node, host, start).unwrap();
            }
            Place::Pipe(sink) => {
                let host = RecvHost::new(about, Arc::new(Nobody), sink.clone());
                let engine = tmtp::Receiver::new(config, node_draws(node, seed), sink.engine());
                let mut host: PipeReceiver =
                    EngineHost::with_outside(engine, host, downstream, host_config);
                if crashes {
                    host.crash_at(crash_at);
                }
                self.simulation.set_app(node, host, start).unwrap();
            }
        }
        self.members.push(Member { node, place, crashes, interrupted });
    }

    /// Returns the result of a receiver, if it has ended.
    pub(super) fn received(&self, node: NodeId) -> Option<RecvSummary> {
        let files = self.simulation.app::<FileReceiver>(node).map(EngineHost::host);
        let pipe = self.simulation.app::<PipeReceiver>(node).map(EngineHost::host);
        files.and_then(RecvHost::outcome).or_else(|| pipe.and_then(RecvHost::outcome))
    }

    /// Describes a receiver for the message of a failure.
    fn so_far(&self, node: NodeId) -> String {
        fn told<S: FeedStore>(
            app: &EngineHost<tmtp::Receiver<S::Sink>, RecvHost<S>, Downstream>,
        ) -> String {
            format!("{:?}, {:?}", app.host().summary(), app.engine().tree())
        }
        let files = self.simulation.app::<FileReceiver>(node).map(told);
        files.or_else(|| self.simulation.app::<PipeReceiver>(node).map(told)).unwrap_or_default()
    }

    /// Returns the result of the feed, if it has ended.
    pub(super) fn sent(&self) -> Option<SendSummary> {
        let files = self.simulation.app::<FileSender>(self.source).map(EngineHost::host);
        let pipe = self.simulation.app::<PipeSender>(self.source).map(EngineHost::host);
        files.and_then(SendHost::outcome).or_else(|| pipe.and_then(SendHost::outcome))
    }

    /// Returns whether every host that does not crash has ended.
    fn is_over(&self) -> bool {
        let living = self.members.iter().filter(|member| !member.crashes);
        let source = self.scenario.source_crash.is_some() || self.sent().is_some();
        source && living.into_iter().all(|member| self.received(member.node).is_some())
    }

    /// Runs until every host has ended.
    pub(super) fn run(&mut self, limit: Duration) {
        while !self.is_over() {
            let now = self.simulation.now();
            let outcome = self.simulation.run_until(now + Duration::from_secs(1));
            let goes_on = outcome == Outcome::Reached && now < Instant::EPOCH + limit;
            let what = || format!("{:?}, {outcome:?}: {}", self.scenario, self.state());
            assert!(goes_on || self.is_over(), "not done: {}", what());
        }
    }

    /// Returns whether a receiver has everything that was sent.
    pub(super) fn has_everything(&self, member: &Member) -> bool {
        match &member.place {
            Place::Files(directory) => self.files.infos.iter().all(|info| {
                directory.verified(&info.name).as_deref() == Some(self.files.content(info.toi))
            }),
            Place::Pipe(sink) => sink.bytes() == self.bytes,
        }
    }

    /// Describes the source for the message of a failure.
    fn sent_so_far(&self) -> String {
        fn told<S: SymbolSource>(engine: &tmtp::Source<S>) -> String {
            let drops: Vec<_> = engine.drops().iter().collect();
            format!("{:?}, {drops:?}", engine.stats())
        }
        let files = self.simulation.app::<FileSender>(self.source).map(|app| told(app.engine()));
        let pipe = || self.simulation.app::<PipeSender>(self.source).map(|app| told(app.engine()));
        files.or_else(pipe).unwrap_or_default()
    }

    pub(super) fn state(&self) -> String {
        let sent = (self.sent(), self.sent_so_far());
        let members = self.members.iter().map(|member| {
            let ended = self.received(member.node).is_some();
            let (received, all) = (self.so_far(member.node), self.has_everything(member));
            let Member { node, crashes, .. } = member;
            format!("\n{node:?}: all: {all}, crashes: {crashes}, ended: {ended}, {received}")
        });
        format!("{sent:?}{}", members.collect::<String>())
    }
}

fn host_config() -> HostConfig {
    let rate = Rate::from_bits_per_s(RATE);
    HostConfig { rate, kind: KindOf::Bytes(kind), ..HostConfig::default() }
}

/// Returns the kind of a datagram: full packets are data. Signed messages may be longer.
fn kind(payload: &[u8]) -> Kind {
    let full = payload.len() == usize::from(SHAPE.symbol_len) + SmallBlockHeader::LEN;
    if full { Kind::Data } else { Kind::Control }
}

/// Returns the generators of a node.
fn node_draws(node: NodeId, seed: u64) -> Draws {
    Draws::from_seed(key(seed, Purpose::Node, u64::from(node.0)))
}
