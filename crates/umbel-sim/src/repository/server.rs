//! The server's application side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::repository::{Source, SourceCommand, SourceConfig, SourceEvent};
use umbel_engine::{Address, Engine, SessionId};
use umbel_wire::repository::limits;
use umbel_wire::{Scheme, alc};

use super::Catalog;
use super::symbols::CountingSource;
use crate::engine_host::{Application, EngineHost, HostConfig, Io};
use crate::network::NodeId;
use crate::packet::Kind;

/// A host that serves a repository.
pub type ServerHost = EngineHost<Source<CountingSource>, Server>;

/// Answers requests from a [`Catalog`], and opens and closes sessions.
#[derive(Clone, Debug)]
pub struct Server {
    catalog: Arc<Catalog>,
    /// What the engine is told of a session's round trip.
    rtt: Duration,
    /// Of the sessions of certain clients.
    rtt_of: BTreeMap<NodeId, Duration>,
    /// Loss of clients, where the engine is told.
    known_loss: BTreeMap<NodeId, f64>,
    /// Sessions that are open.
    sessions: BTreeSet<NodeId>,
}

impl Server {
    /// A host that serves `catalog` at the rate of `config`.
    pub fn host(config: SourceConfig, catalog: Arc<Catalog>) -> ServerHost {
        let symbols = CountingSource::new(catalog.clone());
        let host = HostConfig { rate: Some(config.rate), ..HostConfig::default() };
        let (rtt_of, known_loss, sessions) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let server = Server { catalog, rtt: Duration::ZERO, rtt_of, known_loss, sessions };
        EngineHost::new(Source::new(config, symbols), server, host)
    }

    /// Has the engine think that a round trip on a session takes this long; by default nothing.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// Has the engine think so of the session with one client.
    pub fn set_rtt_of(&mut self, client: NodeId, rtt: Duration) {
        self.rtt_of.insert(client, rtt);
    }

    /// Has the engine know what a client loses, for the ideal server of [Repository §6.3].
    pub fn set_known_loss(&mut self, client: NodeId, loss: f64) {
        self.known_loss.insert(client, loss);
    }

    /// Sessions that are open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// The number of a session with a host.
pub(super) fn session(node: NodeId) -> SessionId {
    SessionId(u64::from(node.0))
}

/// Gives the engine a command that it cannot refuse.
fn tell(engine: &mut Source<CountingSource>, io: &Io<'_, '_>, command: SourceCommand) {
    match engine.handle_command(io.now(), command) {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

impl Server {
    /// Answers a query with all items that have one of these names, or all if there is none.
    fn answer(
        &self,
        engine: &mut Source<CountingSource>,
        io: &Io<'_, '_>,
        (session, query): (SessionId, u32),
        names: &[String],
        wanted: bool,
    ) {
        let items: Vec<_> = if names.is_empty() {
            self.catalog.items().to_vec()
        } else {
            names.iter().filter_map(|name| self.catalog.find(name)).cloned().collect()
        };
        if items.is_empty() {
            let reason = "no item has such a name".to_owned();
            return tell(engine, io, SourceCommand::Failed { session, query, reason });
        }
        let total = items.len() as u64;
        for page in items.chunks(limits::PAGE_ITEMS) {
            let items = page.to_vec();
            let command = SourceCommand::Page { session, query, items, total, next: None, wanted };
            tell(engine, io, command);
        }
    }
}

impl Application<Source<CountingSource>> for Server {
    fn start(&mut self, _engine: &mut Source<CountingSource>, _io: &mut Io<'_, '_>) {}

    fn message(
        &mut self,
        engine: &mut Source<CountingSource>,
        io: &mut Io<'_, '_>,
        from: NodeId,
        message: &Bytes,
    ) -> bool {
        let session = session(from);
        if message.is_empty() {
            self.sessions.remove(&from);
            tell(engine, io, SourceCommand::SessionClosed { session });
            return true;
        }
        if self.sessions.insert(from) {
            let rtt = self.rtt_of.get(&from).copied().unwrap_or(self.rtt);
            tell(engine, io, SourceCommand::SessionOpened { session, rtt });
            if let Some(&loss) = self.known_loss.get(&from) {
                tell(engine, io, SourceCommand::LossKnown { session, loss });
            }
        }
        false
    }

    fn event(
        &mut self,
        engine: &mut Source<CountingSource>,
        io: &mut Io<'_, '_>,
        event: SourceEvent,
    ) {
        match event {
            SourceEvent::Request { session, query, patterns, hold } => {
                self.answer(engine, io, (session, query), &patterns, !hold);
            }
            SourceEvent::List { session, query, patterns, .. } => {
                self.answer(engine, io, (session, query), &patterns, false);
            }
            SourceEvent::Lookup { session, toi, need } => {
                let command = match self.catalog.item(toi) {
                    Some(item) => SourceCommand::Want { session, toi, oti: item.oti, need },
                    None => SourceCommand::NoSuchItem { session, toi },
                };
                tell(engine, io, command);
            }
            SourceEvent::Rate { rate } => io.set_rate(Some(rate)),
            _ => {}
        }
    }

    fn kind(&self, _to: Address, payload: &[u8]) -> Kind {
        let Ok(packet) = alc::DataPacket::parse(payload) else { return Kind::Data };
        let source_symbols =
            self.catalog.item(packet.toi).map_or(0, |item| match item.oti.scheme {
                Scheme::NoCode => u32::MAX,
                _ => u32::from(item.oti.max_block_symbols),
            });
        if packet.esi < source_symbols { Kind::Data } else { Kind::Repair }
    }
}
