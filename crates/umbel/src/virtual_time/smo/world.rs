//! A server with a library that takes its time, and clients with and without a helper.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::host::{Host, Io};
use umbel_engine::smo::receiver::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
use umbel_engine::smo::{Join, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, chance};
use umbel_sim::random::{Purpose, below, key};
use umbel_sim::{
    Context, EngineHost, HostConfig, LinkSpec, Loss, Network, NodeId, Outside, Queue, Simulation,
    address_of, channel,
};

use super::super::later::Later;
use super::super::{Nobody, draws};
use crate::smo::report::Report;
use crate::smo::serve::desk::Rules;
use crate::smo::serve::host::{Input, ServeHost};
use crate::smo::serve::http::request::Status;
use crate::smo::serve::http::response::Document;
use crate::smo::serve::library::{Library, News, Reading};
use crate::smo::serve::{ServeObserver, ServeSummary};

impl ServeObserver for Nobody {}

/// The port of all hosts of a simulation.
const PORT: u16 = 7702;
/// Number of the channel's group.
const GROUP: u32 = 7;

pub(super) fn at(seconds: f64) -> Instant {
    Instant::EPOCH + Duration::from_secs_f64(seconds)
}

/// Documents of a server by their paths. A path that is not there is the pipe.
pub(super) type Shelf = BTreeMap<&'static str, Bytes>;

/// A library whose answers take a while.
#[derive(Clone)]
struct Books {
    shelf: Arc<Shelf>,
    answers: Later<News>,
    open: BTreeMap<Reading, Bytes>,
    random: Xoshiro256PlusPlus,
    /// Bytes after which documents end, whatever their length.
    breaks_at: Option<u64>,
    /// Time that each piece of the pipe takes.
    pause: Duration,
}

impl Books {
    fn answer(&mut self, news: News) {
        let delay = Duration::from_micros(below(&mut self.random, 20_000));
        self.answers.put(delay, news);
    }
}

impl Library for Books {
    fn find(&mut self, reading: Reading, path: &str) {
        let document = match self.shelf.get(path) {
            Some(body) => {
                self.open.insert(reading, body.clone());
                Ok(Document {
                    len: body.len() as u64,
                    media_type: "text/plain".to_owned(),
                    etag: String::new(),
                    modified: None,
                })
            }
            None => Err(Status::NotFound),
        };
        self.answer(News::Found { reading, document });
    }

    fn read(&mut self, reading: Reading, from: u64, len: usize) {
        let pipe = self.shelf.get("pipe");
        let piped = pipe.is_some();
        let Some(body) = self.open.get(&reading).or(pipe) else { return };
        let most = self.breaks_at.unwrap_or(u64::MAX).min(body.len() as u64);
        let len = if piped { len.min(20_000) } else { len };
        let end = most.min(from + len as u64).max(from.min(most));
        let bytes = body.slice(from.min(most) as usize..end as usize);
        if piped {
            self.answers.put(self.pause, News::Bytes { reading, bytes });
        } else {
            self.answer(News::Bytes { reading, bytes });
        }
    }

    fn close(&mut self, reading: Reading) {
        self.open.remove(&reading);
    }
}

/// The surroundings of the server: its library, and its user.
struct Desk {
    answers: Later<News>,
    interrupt: Option<Instant>,
}

impl Outside<Input> for Desk {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Input> {
        if self.interrupt.take_if(|at| *at <= context.now()).is_some() {
            return Some(Input::Interrupt);
        }
        self.answers.take(context.now()).map(Input::News)
    }

    fn next(&self) -> Option<Instant> {
        [self.answers.next(), self.interrupt].into_iter().flatten().min()
    }
}

/// A client: it connects, sends its requests, and keeps what comes.
#[derive(Clone, Debug, Default)]
pub(super) struct Browser {
    requests: Bytes,
    pub(super) got: Vec<u8>,
    /// Whether the server has ended the connection in order.
    pub(super) ended: bool,
    /// Whether it was reset.
    pub(super) reset: bool,
    /// When it connects, and when its helper starts and stops.
    connects: Option<Instant>,
    help: Vec<(Instant, bool)>,
}

impl Browser {
    fn set_alarm(&self, io: &mut dyn Io<Receiver>) {
        let next = self.help.first().map(|(at, _)| *at);
        io.wake_at([self.connects, next].into_iter().flatten().min());
    }
}

impl Host<Receiver> for Browser {
    type Input = std::convert::Infallible;

    fn start(&mut self, io: &mut dyn Io<Receiver>) {
        self.set_alarm(io);
    }

    fn wake(&mut self, io: &mut dyn Io<Receiver>) {
        let now = io.now();
        if self.connects.take_if(|at| *at <= now).is_some() {
            io.command(ReceiverCommand::Connect).unwrap();
        }
        while let Some((_, help)) = self.help.first().filter(|(at, _)| *at <= now).copied() {
            self.help.remove(0);
            let _ = io.command(ReceiverCommand::Help(help));
        }
        self.set_alarm(io);
    }

    fn event(&mut self, io: &mut dyn Io<Receiver>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Connected => {
                if !self.requests.is_empty() {
                    io.command(ReceiverCommand::Send(self.requests.clone())).unwrap();
                }
            }
            ReceiverEvent::Received(bytes) => {
                self.got.extend_from_slice(&bytes);
                io.command(ReceiverCommand::Consumed(bytes.len())).unwrap();
            }
            ReceiverEvent::Skipped(_) | ReceiverEvent::Closed => {}
            ReceiverEvent::ReceivedEnd => {
                self.ended = true;
                let _ = io.command(ReceiverCommand::Finish);
            }
            ReceiverEvent::Broken(_) => self.reset = true,
        }
    }
}

/// Behaviour of a client.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) requests: String,
    pub(super) connects: f64,
    /// Whether its host has a helper, and until when.
    pub(super) helper: Option<f64>,
    pub(super) loss: f64,
    /// Time at which its host falls silent.
    pub(super) crashes: Option<f64>,
}

impl Plan {
    /// Returns the plan of a client with a helper that asks for a path, on one connection.
    pub(super) fn get(path: &str, connects: f64) -> Plan {
        let requests = format!("GET {path} HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n");
        Plan { requests, connects, helper: Some(f64::MAX), loss: 0.0, crashes: None }
    }
}

type Server = EngineHost<Source, ServeHost<Books>, Desk>;
type Client = EngineHost<Receiver, Browser>;

pub(super) struct World {
    simulation: Simulation,
    server: NodeId,
    clients: Vec<NodeId>,
}

impl World {
    pub(super) fn new(
        seed: u64,
        rules: Rules,
        shelf: Shelf,
        breaks_at: Option<u64>,
        change: impl FnOnce(&mut SourceConfig),
        plans: &[Plan],
    ) -> World {
        let mut network = Network::new();
        let server = network.host("server");
        let switch = network.router("switch");
        let rate = Rate::from_bits_per_s(100_000_000).unwrap();
        let lan = || {
            let link = LinkSpec::default().rate(rate).queue(Queue::DropTailPackets(500));
            link.delay(Duration::from_millis(1))
        };
        network.link(server, switch, lan(), lan()).unwrap();
        let clients: Vec<NodeId> = (0..plans.len())
            .map(|number| {
                let node = network.host(format!("c{number}"));
                let lossy = lan().loss(Loss::Bernoulli(plans[number].loss));
                network.link(switch, node, lossy, lan()).unwrap();
                node
            })
            .collect();
        let mut world = World { simulation: Simulation::new(network, seed), server, clients };
        world.add_server(seed, rules, shelf, breaks_at, change);
        for (number, plan) in plans.iter().enumerate() {
            world.add_client(seed, number, plan);
        }
        world
    }

    fn add_server(
        &mut self,
        seed: u64,
        rules: Rules,
        shelf: Shelf,
        breaks_at: Option<u64>,
        change: impl FnOnce(&mut SourceConfig),
    ) {
        let mut config = SourceConfig::new(PORT, channel(Some(self.server), GROUP));
        config.frame = crate::smo::serve::FRAME;
        config.join = if matches!(rules, Rules::Live(_)) { Join::AtOnce } else { Join::Asked };
        change(&mut config);
        let answers = Later::default();
        let books = Books {
            shelf: Arc::new(shelf),
            answers: answers.clone(),
            open: BTreeMap::new(),
            random: draws(seed, 1),
            breaks_at,
            pause: Duration::from_millis(20),
        };
        let host = ServeHost::new(books, rules, &config, Report::default(), Arc::new(Nobody));
        let generator = chance::generator(key(seed, Purpose::Node, self.server.0.into()));
        let engine = Source::new(config, generator);
        let desk = Desk { answers, interrupt: None };
        let host: Server = EngineHost::with_outside(engine, host, desk, HostConfig::default());
        self.simulation.set_app(self.server, host, Instant::EPOCH).unwrap();
    }

    fn add_client(&mut self, seed: u64, number: usize, plan: &Plan) {
        let node = self.clients[number];
        let source = SocketAddr::new(address_of(self.server).into(), PORT);
        let joined = channel(Some(self.server), GROUP);
        let channel = plan.helper.map(|_| joined);
        let config = ReceiverConfig { channel, ..ReceiverConfig::new(source) };
        let browser = Browser {
            requests: Bytes::from(plan.requests.clone()),
            connects: Some(at(plan.connects)),
            help: plan
                .helper
                .filter(|end| *end < 1e6)
                .map(|end| (at(end), false))
                .into_iter()
                .collect(),
            ..Browser::default()
        };
        let mut random = draws(seed, 100 + number as u64);
        let engine = Receiver::new(Arc::new(config), PORT, &mut random);
        let mut host: Client = EngineHost::new(engine, browser, HostConfig::default());
        if let Some(crash) = plan.crashes {
            host.crash_at(at(crash));
        }
        self.simulation.set_app(node, host, Instant::EPOCH).unwrap();
    }

    pub(super) fn run_until(&mut self, seconds: f64) {
        self.simulation.run_until(at(seconds));
    }

    pub(super) fn client(&self, number: usize) -> &Browser {
        self.simulation.app::<Client>(self.clients[number]).unwrap().host()
    }

    /// Returns the body of the one response that a client got, if it is whole.
    pub(super) fn body(&self, number: usize) -> Option<&[u8]> {
        let Browser { got, ended, .. } = self.client(number);
        let head = got.windows(4).position(|window| window == b"\r\n\r\n")?;
        ended.then(|| &got[head + 4..])
    }

    fn server(&self) -> &Server {
        self.simulation.app::<Server>(self.server).unwrap()
    }

    /// Returns the number of connections that the server holds.
    pub(super) fn connections(&self) -> usize {
        self.server().engine().children().count()
    }

    pub(super) fn summary(&self) -> ServeSummary {
        self.server().host().summary()
    }
}
