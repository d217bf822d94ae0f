//! The client's application side.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::repository::receiver::Held;
use umbel_engine::repository::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
use umbel_engine::{Engine, Instant};
use umbel_wire::Toi;
use umbel_wire::repository::limits;

use super::Catalog;
use super::server::session;
use super::symbols::CountingSink;
use crate::engine_host::{Application, EngineHost, HostConfig, Io};
use crate::network::NodeId;
use crate::trace::Note;

/// A host that wants some of a repository.
pub type ClientHost = EngineHost<Receiver<CountingSink>, Client>;

/// Requests items when it starts, notes when it has them, and goes away.
#[derive(Clone, Debug)]
pub struct Client {
    server: NodeId,
    catalog: Arc<Catalog>,
    wanted: Vec<Toi>,
    left: usize,
    leave_after: Option<Duration>,
    arrived: Option<Instant>,
    finished: Option<Instant>,
}

impl Client {
    /// A host that wants these items. Multicast is all that it has: it does not fall back on
    /// unicast, whatever `config` says.
    pub fn host(
        config: ReceiverConfig,
        server: NodeId,
        catalog: Arc<Catalog>,
        wanted: Vec<Toi>,
    ) -> ClientHost {
        let config = ReceiverConfig { fallback_after: None, ..config };
        let client = Client {
            server,
            catalog,
            left: wanted.len(),
            wanted,
            leave_after: None,
            arrived: None,
            finished: None,
        };
        let receiver = Receiver::new(config, CountingSink::default());
        EngineHost::new(receiver, client, HostConfig::default())
    }

    /// Has it go away this long after it started, done or not.
    pub fn set_leave_after(&mut self, time: Duration) {
        self.leave_after = Some(time);
    }

    /// What it wants.
    pub fn wanted(&self) -> &[Toi] {
        &self.wanted
    }

    /// How many items it does not have yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// When it started.
    pub fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    /// From its start until it had every item [Repository §2.1]; `None` as long as it has not.
    pub fn delay(&self) -> Option<Duration> {
        Some(self.finished? - self.arrived?)
    }

    fn has_one_more(&mut self, io: &mut Io<'_, '_>) {
        self.left -= 1;
        self.say_left(io);
        if self.left == 0 {
            self.finish(io);
        }
    }

    /// Notes how many items it waits for, which an animation shows beside it.
    fn say_left(&self, io: &mut Io<'_, '_>) {
        let values = [self.left as f64, 0.0, 0.0];
        io.context().note(Note { name: "outstanding", values });
    }

    fn finish(&mut self, io: &mut Io<'_, '_>) {
        self.finished = Some(io.now());
        // It goes when the engine has told the server.
        io.wake_at(Some(io.now()));
    }
}

/// Gives the engine a command. One that it refuses leaves it as it is.
fn tell(engine: &mut Receiver<CountingSink>, io: &Io<'_, '_>, command: ReceiverCommand) -> bool {
    engine.handle_command(io.now(), command).is_ok()
}

impl Application<Receiver<CountingSink>> for Client {
    fn start(&mut self, engine: &mut Receiver<CountingSink>, io: &mut Io<'_, '_>) {
        self.arrived = Some(io.now());
        self.say_left(io);
        io.wake_at(self.leave_after.map(|time| io.now() + time));
        if self.left == 0 {
            return self.finish(io);
        }
        tell(engine, io, ReceiverCommand::Connected { session: session(self.server) });
        let name = |&toi: &Toi| self.catalog.item(toi).map(|item| item.name.clone());
        let names: Vec<String> = self.wanted.iter().filter_map(name).collect();
        for (query, names) in (1..).zip(names.chunks(limits::PATTERNS)) {
            let patterns = names.to_vec();
            tell(engine, io, ReceiverCommand::Request { query, patterns, hold: false });
        }
    }

    fn event(
        &mut self,
        engine: &mut Receiver<CountingSink>,
        io: &mut Io<'_, '_>,
        event: ReceiverEvent,
    ) {
        match event {
            ReceiverEvent::Page { items, .. } => {
                for item in items {
                    let (toi, oti, held) = (item.toi, item.oti, Held::default());
                    let accept = ReceiverCommand::Accept { toi, oti, held, requested: true };
                    tell(engine, io, accept);
                }
            }
            ReceiverEvent::Welcome { control: Some(_), .. } => {
                tell(engine, io, ReceiverCommand::JoinControl);
            }
            ReceiverEvent::Received { toi } => {
                tell(engine, io, ReceiverCommand::Done { toi });
                self.has_one_more(io);
            }
            _ => {}
        }
    }

    fn wake(&mut self, _engine: &mut Receiver<CountingSink>, io: &mut Io<'_, '_>) {
        let context = io.context();
        context.send_message(self.server, Bytes::new());
        context.stop_node();
    }
}
