//! Host that runs an engine with its application.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use umbel_engine::host::{Host, Io, PortError, PortSpec};
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, Transmit,
};
use umbel_wire::Channel;

use crate::address::{PORT, address_of, channel, channel_parts, node_of};
use crate::app::{App, Context};
use crate::network::NodeId;
use crate::outside::{Alone, Outside};
use crate::packet::{Destination, FlowId, GroupId, Kind, Packet};
use crate::trace::Note;

/// Parameters by which a host sends the datagrams of its engine.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Pace of data packets, counted over payloads. `None` sends them without delay; links may have
    /// their own rates.
    pub rate: Option<Rate>,
    /// Bytes of headers that a datagram has on a link in addition to its payload.
    pub overhead: u32,
    /// Hop limit of datagrams for which the engine sets none.
    pub hop_limit: u8,
    /// Flow of datagrams.
    pub flow: FlowId,
    /// Purpose of the datagrams that the engine sends, for traces and loss models. Packets of a
    /// layer are [`Kind::Other`] with its number.
    pub kind: KindOf,
    /// Reads the sender's port from a unicast datagram. Default `None`: all hosts use one port.
    pub port_of: Option<PortFn>,
}

/// Reads the sender's port from a datagram.
type PortFn = fn(&[u8]) -> Option<u16>;

type KindFn = dyn Fn(&[u8]) -> Kind + Send + Sync;

/// Function that tells the purpose of a datagram.
#[derive(Clone)]
pub enum KindOf {
    /// From its bytes.
    Bytes(fn(&[u8]) -> Kind),
    /// From its bytes and the other facts that are known of it.
    Known(Arc<KindFn>),
}

impl KindOf {
    fn of(&self, payload: &[u8]) -> Kind {
        match self {
            KindOf::Bytes(kind) => kind(payload),
            KindOf::Known(kind) => kind(payload),
        }
    }
}

impl fmt::Debug for KindOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KindOf")
    }
}

impl Default for HostConfig {
    /// Returns no pace, UDP over IPv4, the largest hop limit, flow 0, and all datagrams as data.
    fn default() -> HostConfig {
        HostConfig {
            rate: None,
            overhead: Packet::UDP_OVERHEAD,
            hop_limit: Packet::ANYWHERE,
            flow: FlowId(0),
            kind: KindOf::Bytes(|_| Kind::Data),
            port_of: None,
        }
    }
}

/// Releases packets one by one, at exactly the rate.
#[derive(Clone, Debug)]
struct Pacing {
    rate: Option<Rate>,
    /// Time when the next packet may leave.
    next: Instant,
    /// Part of a nanosecond by which `next` is too early, times the rate.
    remainder: u64,
}

impl Pacing {
    fn allows(&self, now: Instant) -> bool {
        self.rate.is_none() || self.next <= now
    }

    fn sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate else { return };
        if self.next < now {
            (self.next, self.remainder) = (now, 0);
        }
        let rate = u128::from(rate.bits_per_s());
        let scaled = u128::from(bytes) * 8_000_000_000 + u128::from(self.remainder);
        let ns = u64::try_from(scaled / rate).unwrap_or(u64::MAX);
        self.next = Instant::from_nanos(self.next.as_nanos().saturating_add(ns));
        self.remainder = (scaled % rate) as u64;
    }
}

/// An [`App`] that runs a [`Host`] and its engine as the driver on sockets does. It drains the
/// engine's outputs in the order that [`Engine`] requires, paces its packets, and maps addresses to
/// nodes and groups. Everything outside network and engine is the host's [`Outside`].
///
/// Channels are those of [`channel`], hosts those of [`address_of`].
pub struct EngineHost<E: Engine, H, O = Alone> {
    engine: E,
    host: H,
    outside: O,
    state: State,
    /// Channel that was used last, and its number.
    channel: Option<(Channel, GroupId)>,
    /// Time when the host was woken last, and how often at that moment.
    woken: (Instant, u32),
}

/// State that a host can change through [`Io`].
#[derive(Debug)]
struct State {
    config: HostConfig,
    data: Pacing,
    /// By number. Higher layers have no pace.
    layers: Vec<Pacing>,
    /// Time when the host wants to be woken.
    wake_at: Option<Instant>,
    /// Time when the host falls silent without notice.
    crash_at: Option<Instant>,
    /// Whether the host wants to stop.
    stopped: bool,
}

/// Limit on how often a host may be woken at one moment. An engine whose timeout stays due after it
/// was handled would stop time otherwise.
const WAKES_AT_ONCE: u32 = 10_000;

impl<E: Engine, H: Host<E>, O: Outside<H::Input> + Default> EngineHost<E, H, O> {
    /// Creates a host of `engine` with the default surroundings.
    pub fn new(engine: E, host: H, config: HostConfig) -> EngineHost<E, H, O> {
        EngineHost::with_outside(engine, host, O::default(), config)
    }
}

impl<E: Engine, H: Host<E>, O: Outside<H::Input>> EngineHost<E, H, O> {
    /// Creates a host of `engine` with these surroundings.
    pub fn with_outside(engine: E, host: H, outside: O, config: HostConfig) -> EngineHost<E, H, O> {
        let state = State {
            data: Pacing { rate: config.rate, next: Instant::EPOCH, remainder: 0 },
            config,
            layers: Vec::new(),
            wake_at: None,
            crash_at: None,
            stopped: false,
        };
        let woken = (Instant::EPOCH, 0);
        EngineHost { engine, host, outside, state, channel: None, woken }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns a mutable reference to the engine.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Returns the application.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Returns a mutable reference to the application.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Returns the surroundings.
    pub fn outside(&self) -> &O {
        &self.outside
    }

    /// Returns a mutable reference to the surroundings.
    pub fn outside_mut(&mut self) -> &mut O {
        &mut self.outside
    }

    /// Makes the host fall silent at this time, without notice.
    pub fn crash_at(&mut self, at: Instant) {
        self.state.crash_at = Some(at);
    }

    /// Calls the application with its [`Io`].
    fn with_host(&mut self, context: &mut Context<'_>, call: impl FnOnce(&mut H, &mut dyn Io<E>)) {
        let EngineHost { engine, host, outside, state, .. } = self;
        let open = |context: &mut Context<'_>, change: Change<'_>| match change {
            Change::Open(spec) => outside.open(context, spec),
            Change::Close(address) => {
                outside.close(context, address);
                Ok(())
            }
        };
        call(host, &mut Machine { engine, context, state, change: open });
    }

    /// Drains the engine until it has nothing more to do at this time, then sets the timer.
    fn drain(&mut self, context: &mut Context<'_>) {
        loop {
            let moved = self.engine.has_output() && self.drain_engine(context);
            if !(self.take_input(context) || moved) || context.is_stopped() {
                break;
            }
        }
        if context.is_stopped() {
            return;
        }
        if self.state.stopped {
            self.outside.stop(context);
            context.stop_node();
        } else {
            self.set_timer(context);
        }
    }

    /// Drains the outputs of the engine once. Returns whether there were any.
    fn drain_engine(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some(change) = self.engine.poll_membership() {
            self.change_membership(context, change);
            moved = true;
        }
        moved |= self.transmit(context);
        moved | self.drain_events(context)
    }

    fn drain_events(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.engine.poll_event() {
            self.with_host(context, |host, io| host.event(io, event));
            any = true;
        }
        any
    }

    /// Passes input that is due to the application.
    fn take_input(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        while !self.state.stopped
            && let Some(input) = self.outside.poll(context)
        {
            self.with_host(context, |host, io| host.input(io, input));
            self.drain_events(context);
            any = true;
        }
        any
    }

    fn change_membership(&mut self, context: &mut Context<'_>, change: Membership) {
        let (Membership::Join(channel) | Membership::Leave(channel)) = change;
        let Some(group) = self.group(context, &channel) else { return };
        match change {
            Membership::Join(_) => context.join(group),
            Membership::Leave(_) => context.leave(group),
        }
    }

    /// Sends the packets of the engine that may leave now. Returns whether there were any.
    fn transmit(&mut self, context: &mut Context<'_>) -> bool {
        let now = context.now();
        let mut buf = std::mem::take(context.scratch());
        let mut any = false;
        loop {
            buf.reset(self.state.allowance(now));
            let Some(transmit) = self.engine.poll_transmit(now, &mut buf) else { break };
            any = true;
            for payload in buf.messages() {
                self.send(context, transmit, payload);
            }
        }
        *context.scratch() = buf;
        any
    }

    fn send(&mut self, context: &mut Context<'_>, transmit: Transmit, payload: Bytes) {
        let destination = match transmit.to {
            Address::Session(session) => {
                return self.outside.send(context, session, payload);
            }
            Address::Channel(channel) => self.group(context, &channel).map(Destination::Group),
            Address::Host(address) => node_of(address.ip()).map(Destination::Unicast),
        };
        let Some(destination) = destination else { return };
        let pacing = match transmit.class {
            RateClass::Layer(layer) => self.state.layers.get_mut(usize::from(layer)),
            RateClass::Control | RateClass::Data => Some(&mut self.state.data),
            RateClass::SelfClocked => None,
        };
        if let Some(pacing) = pacing {
            pacing.sent(context.now(), payload.len() as u64);
        }
        let HostConfig { overhead, hop_limit, flow, kind, .. } = &self.state.config;
        context.send(Packet {
            source: context.node(),
            destination,
            hop_limit: transmit.hop_limit.unwrap_or(*hop_limit),
            kind: match transmit.class {
                RateClass::Layer(layer) => Kind::Other(layer),
                _ => kind.of(&payload),
            },
            flow: *flow,
            wire_len: payload.len() as u32 + overhead,
            payload,
        });
    }

    /// Returns the number of a channel.
    fn group(&mut self, context: &mut Context<'_>, wanted: &Channel) -> Option<GroupId> {
        if let Some((known, group)) = &self.channel
            && known == wanted
        {
            return Some(*group);
        }
        let (source, number) = channel_parts(wanted)?;
        let group = context.group(source, number);
        self.channel = Some((*wanted, group));
        Some(group)
    }

    fn set_timer(&mut self, context: &mut Context<'_>) {
        let State { data, layers, wake_at, crash_at, .. } = &self.state;
        let now = context.now();
        let paced = |class, pacing: &Pacing| {
            (pacing.rate.is_some() && self.engine.wants(class)).then(|| pacing.next.max(now))
        };
        let mut next = earlier(self.engine.poll_timeout(), paced(RateClass::Data, data));
        next = earlier(next, earlier(*wake_at, *crash_at));
        next = earlier(next, self.outside.next());
        for (layer, pacing) in (0..).zip(layers) {
            next = earlier(next, paced(RateClass::Layer(layer), pacing));
        }
        context.wake_at(next);
    }
}

/// Returns the earlier of two times, as far as they are set.
#[inline]
fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}

impl State {
    fn allowance(&self, now: Instant) -> Allowance {
        let mut allowance = Allowance::of_each(1);
        allowance.set(RateClass::Data, usize::from(self.data.allows(now)));
        for (layer, pacing) in (0..).zip(&self.layers) {
            allowance.set(RateClass::Layer(layer), usize::from(pacing.allows(now)));
        }
        allowance
    }

    fn set_pace(&mut self, class: RateClass, rate: Option<Rate>) {
        let pacing = match class {
            RateClass::Control | RateClass::SelfClocked => return,
            RateClass::Data => &mut self.data,
            RateClass::Layer(layer) => {
                let unpaced = Pacing { rate: None, next: Instant::EPOCH, remainder: 0 };
                let count = self.layers.len().max(usize::from(layer) + 1);
                self.layers.resize(count, unpaced);
                &mut self.layers[usize::from(layer)]
            }
        };
        (pacing.rate, pacing.remainder) = (rate, 0);
    }
}

/// Changes to the surroundings that a host asks for.
enum Change<'a> {
    Open(&'a PortSpec),
    Close(&'a Address),
}

/// Implementation of [`Io`] for a host.
struct Machine<'a, 'b, E, F> {
    engine: &'a mut E,
    context: &'a mut Context<'b>,
    state: &'a mut State,
    change: F,
}

impl<E, F> Io<E> for Machine<'_, '_, E, F>
where
    E: Engine,
    F: FnMut(&mut Context<'_>, Change<'_>) -> Result<(), PortError>,
{
    fn now(&self) -> Instant {
        self.context.now()
    }

    fn engine(&mut self) -> &mut E {
        self.engine
    }

    fn wake_at(&mut self, at: Option<Instant>) {
        self.state.wake_at = at;
    }

    fn set_pace(&mut self, class: RateClass, rate: Option<Rate>) {
        self.state.set_pace(class, rate);
    }

    fn open(&mut self, spec: PortSpec) -> Result<(), PortError> {
        (self.change)(self.context, Change::Open(&spec))
    }

    fn close(&mut self, address: &Address) {
        // Closing never fails.
        let _ = (self.change)(self.context, Change::Close(address));
    }

    fn stop(&mut self) {
        self.state.stopped = true;
    }

    fn note(&mut self, name: &'static str, values: [f64; 3]) {
        self.context.note(Note { name, values });
    }
}

impl<E: Engine, H: fmt::Debug, O> fmt::Debug for EngineHost<E, H, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHost")
            .field("host", &self.host)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<E, H, O> App for EngineHost<E, H, O>
where
    E: Engine + Send + 'static,
    H: Host<E> + Send + 'static,
    O: Outside<H::Input>,
{
    fn start(&mut self, context: &mut Context<'_>) {
        self.with_host(context, H::start);
        self.drain(context);
    }

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        let by = match packet.destination {
            Destination::Group(group) => {
                let Some(parts) = context.channel_parts(group) else { return };
                let mut channel = channel(parts.source, parts.group);
                channel.source = Some(address_of(packet.source).into());
                Address::Channel(channel)
            }
            Destination::Unicast(_) => {
                let port = self.state.config.port_of.and_then(|port| port(&packet.payload));
                Address::Host((address_of(packet.source), port.unwrap_or(PORT)).into())
            }
        };
        self.engine.handle_datagram(
            context.now(),
            Datagram { by, hop_limit: Some(packet.hop_limit), payload: &packet.payload },
        );
        self.drain(context);
    }

    fn message(&mut self, context: &mut Context<'_>, from: NodeId, message: Bytes) {
        self.outside.message(context, from, message);
        self.take_input(context);
        self.drain(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let times = if self.woken.0 == now { self.woken.1 + 1 } else { 1 };
        self.woken = (now, times);
        if times > WAKES_AT_ONCE {
            return context.give_up();
        }
        if self.state.crash_at.is_some_and(|at| at <= now) {
            return context.stop_node();
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        if self.state.wake_at.take_if(|at| *at <= now).is_some() {
            self.with_host(context, H::wake);
        }
        self.drain(context);
    }
}
