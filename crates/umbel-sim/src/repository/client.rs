//! Application side of the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io, SessionNews};
use umbel_engine::repository::receiver::Held;
use umbel_engine::repository::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
use umbel_engine::{Address, Instant};
use umbel_fec::Partition;
use umbel_wire::Toi;
use umbel_wire::repository::limits;

use super::Catalog;
use super::symbols::CountingSink;
use crate::app::Context;
use crate::engine_host::{EngineHost, HostConfig};
use crate::network::NodeId;
use crate::outside::{NodeSessions, Outside, session_with};

/// Host that wants some items of a repository.
pub type ClientHost = EngineHost<Engine, Client, Around>;

type Engine = Receiver<CountingSink>;

/// Surroundings of a client: its session and its sink.
#[derive(Debug)]
pub struct Around {
    sessions: NodeSessions,
    sink: CountingSink,
}

/// Input to a client from its surroundings.
#[derive(Debug)]
pub enum Input {
    /// News of its session.
    News(SessionNews),
    /// Completion of an item: every block is there.
    Complete(Toi),
}

impl Outside<Input> for Around {
    fn close(&mut self, context: &mut Context<'_>, address: &Address) {
        self.sessions.close(context, address);
    }

    fn message(&mut self, context: &mut Context<'_>, from: NodeId, message: Bytes) {
        self.sessions.message(context, from, message);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Option<Input> {
        let news = self.sessions.poll(context).map(Input::News);
        news.or_else(|| self.sink.take_complete().map(Input::Complete))
    }
}

/// Requests items when it starts, records when it has them, and leaves.
#[derive(Clone, Debug)]
pub struct Client {
    server: NodeId,
    catalog: Arc<Catalog>,
    sink: CountingSink,
    wanted: Vec<Toi>,
    left: usize,
    leave_after: Option<Duration>,
    arrived: Option<Instant>,
    finished: Option<Instant>,
}

impl Client {
    /// Creates a host that wants these items. It has multicast only, so it does not fall back on
    /// unicast, whatever `config` says. Its delays are drawn from `seed`.
    pub fn host(
        config: ReceiverConfig,
        seed: u64,
        server: NodeId,
        catalog: Arc<Catalog>,
        wanted: Vec<Toi>,
    ) -> ClientHost {
        let config = ReceiverConfig { fallback_after: None, ..config };
        let client = Client {
            server,
            catalog,
            sink: CountingSink::default(),
            left: wanted.len(),
            wanted,
            leave_after: None,
            arrived: None,
            finished: None,
        };
        let sink = client.sink.clone();
        let around = Around { sessions: NodeSessions::default(), sink: sink.clone() };
        let receiver = Receiver::new(config, generator(seed), sink);
        EngineHost::with_outside(receiver, client, around, HostConfig::default())
    }

    /// Makes the client leave this long after it started, done or not.
    pub fn set_leave_after(&mut self, time: Duration) {
        self.leave_after = Some(time);
    }

    /// Returns the wanted items.
    pub fn wanted(&self) -> &[Toi] {
        &self.wanted
    }

    /// Returns the number of items that are still missing.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns the time when the client started.
    pub fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    /// Returns the time from its start until it had every item [Repository §2.1]; `None` until
    /// then.
    pub fn delay(&self) -> Option<Duration> {
        Some(self.finished? - self.arrived?)
    }

    fn has_one_more(&mut self, io: &mut dyn Io<Engine>) {
        self.left -= 1;
        self.say_left(io);
        if self.left == 0 {
            self.finish(io);
        }
    }

    /// Notes the number of missing items, which an animation shows beside the client.
    fn say_left(&self, io: &mut dyn Io<Engine>) {
        let values = [self.left as f64, 0.0, 0.0];
        io.note("outstanding", values);
    }

    fn finish(&mut self, io: &mut dyn Io<Engine>) {
        self.finished = Some(io.now());
        // The client leaves when the engine has told the server.
        io.wake_at(Some(io.now()));
    }
}

/// Passes a command to the engine. A refused command leaves the engine unchanged.
fn tell(io: &mut dyn Io<Engine>, command: ReceiverCommand) -> bool {
    io.command(command).is_ok()
}

impl Host<Engine> for Client {
    type Input = Input;

    fn start(&mut self, io: &mut dyn Io<Engine>) {
        self.arrived = Some(io.now());
        self.say_left(io);
        io.wake_at(self.leave_after.map(|time| io.now() + time));
        if self.left == 0 {
            return self.finish(io);
        }
        tell(io, ReceiverCommand::Connected { session: session_with(self.server) });
        let name = |&toi: &Toi| self.catalog.item(toi).map(|item| item.name.clone());
        let names: Vec<String> = self.wanted.iter().filter_map(name).collect();
        for (query, names) in (1..).zip(names.chunks(limits::PATTERNS)) {
            let patterns = names.to_vec();
            tell(io, ReceiverCommand::Request { query, patterns, hold: false });
        }
    }

    fn input(&mut self, io: &mut dyn Io<Engine>, input: Input) {
        match input {
            Input::News(SessionNews::Message { session, message }) => {
                io.message(session, &message);
            }
            Input::News(_) => {}
            Input::Complete(toi) => {
                tell(io, ReceiverCommand::Done { toi });
                self.has_one_more(io);
            }
        }
    }

    fn event(&mut self, io: &mut dyn Io<Engine>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Page { items, .. } => {
                for item in items {
                    let (toi, oti, held) = (item.toi, item.oti, Held::default());
                    self.sink.add(toi, Partition::new(&oti).map_or(0, |cut| cut.blocks()));
                    let accept = ReceiverCommand::Accept { toi, oti, held, requested: true };
                    tell(io, accept);
                }
            }
            ReceiverEvent::Welcome { control: Some(_), .. } => {
                tell(io, ReceiverCommand::JoinControl);
            }
            _ => {}
        }
    }

    fn wake(&mut self, io: &mut dyn Io<Engine>) {
        io.close(&Address::Session(session_with(self.server)));
        io.stop();
    }
}
