//! A host that runs an engine.

use std::fmt;

use umbel_engine::units::Rate;
use umbel_engine::{Address, Engine, Instant};

use crate::app::{App, Context};
use crate::network::NodeId;
use crate::packet::{FlowId, Kind, Packet};

/// How a host sends what its engine gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Rate at which data packets leave, counted over payloads; `None` keeps them back.
    pub rate: Option<Rate>,
    /// Bytes of headers that a datagram has on a link beyond its payload.
    pub overhead: u32,
    /// The hop limit of datagrams.
    pub hop_limit: u8,
    /// The flow of datagrams.
    pub flow: FlowId,
}

impl Default for HostConfig {
    /// No data packets; UDP over IPv4; anywhere; flow 0.
    fn default() -> HostConfig {
        HostConfig {
            rate: None,
            overhead: Packet::UDP_OVERHEAD,
            hop_limit: Packet::ANYWHERE,
            flow: FlowId(0),
        }
    }
}

/// The application side of an engine, as `Host` is on the network.
///
/// What it does to the engine in any of these calls is followed by the engine's outputs.
pub trait Application<E: Engine>: Send + 'static {
    /// Called once, when the host starts.
    fn start(&mut self, engine: &mut E, io: &mut Io<'_, '_>);

    /// Does what the engine asks for or tells. Commands to the engine can be given at once.
    fn event(&mut self, engine: &mut E, io: &mut Io<'_, '_>, event: E::Event);

    /// Called when the time of [`Io::wake_at`] has come.
    fn wake(&mut self, _engine: &mut E, _io: &mut Io<'_, '_>) {}

    /// What a datagram that the engine sends is for.
    fn kind(&self, _to: Address, _payload: &[u8]) -> Kind {
        Kind::Data
    }
}

/// What an [`Application`] can do to its host.
#[derive(Debug)]
pub struct Io<'a, 'b> {
    context: &'a mut Context<'b>,
}

impl<'b> Io<'_, 'b> {
    /// The host's access to the network. Its timer belongs to the host: use
    /// [`wake_at`](Io::wake_at) instead.
    pub fn context(&mut self) -> &mut Context<'b> {
        self.context
    }

    /// The simulated time.
    pub fn now(&self) -> Instant {
        self.context.now()
    }

    /// The node that this runs on. Its session number is its node number.
    pub fn node(&self) -> NodeId {
        self.context.node()
    }

    /// Sets, moves or clears the application's own timer.
    pub fn wake_at(&mut self, _at: Option<Instant>) {
        todo!()
    }

    /// Changes the rate of data packets from now on.
    pub fn set_rate(&mut self, _rate: Option<Rate>) {
        todo!()
    }
}

/// An [`App`] that runs an engine: it drains the engine's outputs in the order that
/// [`Engine`] asks for, paces its data packets, and maps addresses to nodes and groups.
///
/// The session with another host is `SessionId` of that host's node number. Channels are
/// those of [`channel`](crate::channel).
pub struct EngineHost<E: Engine, A> {
    engine: E,
    application: A,
    config: HostConfig,
}

impl<E: Engine, A> EngineHost<E, A> {
    /// A host of `engine` with its application side.
    pub fn new(engine: E, application: A, config: HostConfig) -> EngineHost<E, A> {
        EngineHost { engine, application, config }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The application side.
    pub fn application(&self) -> &A {
        &self.application
    }
}

impl<E: Engine, A: fmt::Debug> fmt::Debug for EngineHost<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineHost { application, config, .. } = self;
        f.debug_struct("EngineHost")
            .field("application", application)
            .field("config", config)
            .finish_non_exhaustive()
    }
}

impl<E: Engine + Send + 'static, A: Application<E>> App for EngineHost<E, A> {
    fn start(&mut self, _context: &mut Context<'_>) {
        todo!()
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {
        todo!()
    }
}
