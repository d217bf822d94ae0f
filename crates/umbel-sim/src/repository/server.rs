//! Application side of the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io, SessionNews};
use umbel_engine::repository::{Source, SourceCommand, SourceConfig, SourceEvent};
use umbel_engine::{RateClass, SessionId};
use umbel_wire::repository::limits;
use umbel_wire::{DataPacket, Scheme};

use super::Catalog;
use super::symbols::CountingSource;
use crate::engine_host::{EngineHost, HostConfig, KindOf};
use crate::network::NodeId;
use crate::outside::{NodeSessions, session_with};
use crate::packet::Kind;

/// Host that serves a repository.
pub type ServerHost = EngineHost<Engine, Server, NodeSessions>;

type Engine = Source<CountingSource>;

/// Answers requests from a [`Catalog`], and opens and closes sessions.
#[derive(Clone, Debug)]
pub struct Server {
    catalog: Arc<Catalog>,
    /// Round-trip time of sessions as reported to the engine.
    rtt: Duration,
    /// Round-trip times of the sessions of certain clients.
    rtt_of: BTreeMap<SessionId, Duration>,
    /// Loss of the clients for which it is reported to the engine.
    known_loss: BTreeMap<SessionId, f64>,
}

impl Server {
    /// Creates a host that serves `catalog` at the rate of `config`. Its delays are drawn from
    /// `seed`.
    pub fn host(config: SourceConfig, seed: u64, catalog: Arc<Catalog>) -> ServerHost {
        let symbols = CountingSource::new(catalog.clone());
        let known = catalog.clone();
        let kind = KindOf::Known(Arc::new(move |payload| kind(&known, payload)));
        let host = HostConfig { rate: Some(config.rate), kind, ..HostConfig::default() };
        let (rtt_of, known_loss) = (BTreeMap::new(), BTreeMap::new());
        let server = Server { catalog, rtt: Duration::ZERO, rtt_of, known_loss };
        EngineHost::new(Source::new(config, generator(seed), symbols), server, host)
    }

    /// Sets the round-trip time of sessions as reported to the engine. Default 0.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// Sets the round-trip time of the session with one client as reported to the engine.
    pub fn set_rtt_of(&mut self, client: NodeId, rtt: Duration) {
        self.rtt_of.insert(session_with(client), rtt);
    }

    /// Sets a client's loss in the engine, for the ideal server of [Repository §6.3].
    pub fn set_known_loss(&mut self, client: NodeId, loss: f64) {
        self.known_loss.insert(session_with(client), loss);
    }
}

/// Returns the purpose of a datagram of the server.
fn kind(catalog: &Catalog, payload: &[u8]) -> Kind {
    let Ok(DataPacket { header, .. }) = DataPacket::parse(payload) else { return Kind::Data };
    let source_symbols = catalog.item(header.toi).map_or(0, |item| match item.oti.scheme {
        Scheme::NoCode => u32::MAX,
        _ => u32::from(item.oti.max_block_symbols),
    });
    if header.esi < source_symbols { Kind::Data } else { Kind::Repair }
}

/// Passes a command to the engine, which cannot refuse it.
fn tell(io: &mut dyn Io<Engine>, command: SourceCommand) {
    match io.command(command) {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

impl Server {
    /// Answers a query with all items that have one of these names, or with all items if there are
    /// no names.
    fn answer(
        &self,
        io: &mut dyn Io<Engine>,
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
            return tell(io, SourceCommand::Failed { session, query, reason });
        }
        let total = items.len() as u64;
        for page in items.chunks(limits::PAGE_ITEMS) {
            let items = page.to_vec();
            let command = SourceCommand::Page { session, query, items, total, next: None, wanted };
            tell(io, command);
        }
    }
}

impl Host<Engine> for Server {
    type Input = SessionNews;

    fn start(&mut self, _io: &mut dyn Io<Engine>) {}

    fn input(&mut self, io: &mut dyn Io<Engine>, news: SessionNews) {
        match news {
            SessionNews::Opened { session, remote, .. } => {
                let rtt = self.rtt_of.get(&session).copied().unwrap_or(self.rtt);
                tell(io, SourceCommand::SessionOpened { session, remote, rtt });
                if let Some(&loss) = self.known_loss.get(&session) {
                    tell(io, SourceCommand::LossKnown { session, loss });
                }
            }
            SessionNews::Message { session, message } => io.message(session, &message),
            SessionNews::Closed { session, .. } => {
                tell(io, SourceCommand::SessionClosed { session });
            }
            SessionNews::Bulk { .. } => {}
        }
    }

    fn event(&mut self, io: &mut dyn Io<Engine>, event: SourceEvent) {
        match event {
            SourceEvent::Request { session, query, patterns, hold } => {
                self.answer(io, (session, query), &patterns, !hold);
            }
            SourceEvent::List { session, query, patterns, .. } => {
                self.answer(io, (session, query), &patterns, false);
            }
            SourceEvent::Lookup { session, toi, need } => {
                let command = match self.catalog.item(toi) {
                    Some(item) => SourceCommand::Want { session, toi, oti: item.oti, need },
                    None => SourceCommand::NoSuchItem { session, toi },
                };
                tell(io, command);
            }
            SourceEvent::Rate { rate } => io.set_pace(RateClass::Data, Some(rate)),
            _ => {}
        }
    }
}
