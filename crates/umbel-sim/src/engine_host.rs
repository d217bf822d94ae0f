//! A host that runs an engine.

use std::fmt;

use bytes::Bytes;
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, SessionId, Transmit,
    TransmitBuf,
};
use umbel_wire::Channel;

use crate::address::{PORT, address_of, channel, channel_parts, node_of};
use crate::app::{App, Context};
use crate::network::NodeId;
use crate::packet::{Destination, FlowId, GroupId, Kind, Packet};

/// How a host sends what its engine gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Rate at which data packets leave, counted over payloads; `None` keeps them back.
    pub rate: Option<Rate>,
    /// Bytes of headers that a datagram has on a link beyond its payload.
    pub overhead: u32,
    /// The hop limit of datagrams for which the engine gives none.
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

    /// Takes a message of a session before the engine does; gives whether it was for the
    /// application, so that the engine does not get it.
    fn message(
        &mut self,
        _engine: &mut E,
        _io: &mut Io<'_, '_>,
        _from: NodeId,
        _message: &Bytes,
    ) -> bool {
        false
    }

    /// What a datagram that the engine sends is for.
    fn kind(&self, _to: Address, _payload: &[u8]) -> Kind {
        Kind::Data
    }
}

/// What an [`Application`] can do to its host.
#[derive(Debug)]
pub struct Io<'a, 'b> {
    context: &'a mut Context<'b>,
    pacing: &'a mut Pacing,
    wake_at: &'a mut Option<Instant>,
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
    pub fn wake_at(&mut self, at: Option<Instant>) {
        *self.wake_at = at;
    }

    /// Changes the rate of data packets from now on.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.pacing.rate = rate;
        self.pacing.remainder = 0;
    }
}

/// Lets data packets leave one by one, at exactly the rate.
#[derive(Clone, Debug)]
struct Pacing {
    rate: Option<Rate>,
    /// When the next packet may leave.
    next: Instant,
    /// Part of a nanosecond by which `next` is too early, times the rate.
    remainder: u64,
}

impl Pacing {
    fn allows(&self, now: Instant) -> bool {
        self.rate.is_some() && self.next <= now
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

/// An [`App`] that runs an engine as the driver on sockets does: it drains the engine's outputs
/// in the order that [`Engine`] asks for, paces its data packets, and maps addresses to nodes
/// and groups.
///
/// The session with another host is the [`SessionId`] of that host's node number. Channels are
/// those of [`channel`], hosts those of [`address_of`].
pub struct EngineHost<E: Engine, A> {
    engine: E,
    application: A,
    config: HostConfig,
    pacing: Pacing,
    /// When the application wants to be woken.
    wake_at: Option<Instant>,
    /// The channel that was used last, and its number.
    channel: Option<(Channel, GroupId)>,
    /// When it was woken last, and how often at that moment.
    woken: (Instant, u32),
}

/// How often a host may be woken at one moment. An engine whose timeout stays due when it is handled
/// would hold the time still.
const WAKES_AT_ONCE: u32 = 10_000;

impl<E: Engine, A: Application<E>> EngineHost<E, A> {
    /// A host of `engine` with its application side.
    pub fn new(engine: E, application: A, config: HostConfig) -> EngineHost<E, A> {
        let pacing = Pacing { rate: config.rate, next: Instant::EPOCH, remainder: 0 };
        let woken = (Instant::EPOCH, 0);
        EngineHost { engine, application, config, pacing, wake_at: None, channel: None, woken }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// The application side.
    pub fn application(&self) -> &A {
        &self.application
    }

    /// The application side.
    pub fn application_mut(&mut self) -> &mut A {
        &mut self.application
    }

    /// Gives the application side a turn.
    fn with_application<T>(
        &mut self,
        context: &mut Context<'_>,
        call: impl FnOnce(&mut A, &mut E, &mut Io<'_, '_>) -> T,
    ) -> T {
        let EngineHost { engine, application, pacing, wake_at, .. } = self;
        call(application, engine, &mut Io { context, pacing, wake_at })
    }

    /// Does what the engine wants until it wants nothing more at this time, then sets the timer.
    fn drain(&mut self, context: &mut Context<'_>) {
        let mut buf = std::mem::take(context.scratch());
        loop {
            let mut moved = false;
            while let Some(change) = self.engine.poll_membership() {
                self.change_membership(context, change);
                moved = true;
            }
            moved |= self.transmit(context, &mut buf);
            while let Some(event) = self.engine.poll_event() {
                self.with_application(context, |application, engine, io| {
                    application.event(engine, io, event);
                });
                moved = true;
            }
            if !moved || context.is_stopped() {
                break;
            }
        }
        *context.scratch() = buf;
        if !context.is_stopped() {
            self.set_timer(context);
        }
    }

    fn change_membership(&mut self, context: &mut Context<'_>, change: Membership) {
        let (Membership::Join(channel) | Membership::Leave(channel)) = change;
        let Some(group) = self.group(context, &channel) else { return };
        match change {
            Membership::Join(_) => context.join(group),
            Membership::Leave(_) => context.leave(group),
        }
    }

    /// Sends what the engine has to send and may send now. Gives whether there was anything.
    fn transmit(&mut self, context: &mut Context<'_>, buf: &mut TransmitBuf) -> bool {
        let now = context.now();
        let mut any = false;
        loop {
            buf.reset(Allowance::data(usize::from(self.pacing.allows(now))));
            let Some(transmit) = self.engine.poll_transmit(now, buf) else { return any };
            any = true;
            for (head, body) in buf.iter() {
                let payload: Bytes =
                    if head.is_empty() { body.clone() } else { [head, body].concat().into() };
                self.send(context, transmit, payload);
            }
        }
    }

    fn send(&mut self, context: &mut Context<'_>, transmit: Transmit, payload: Bytes) {
        let Transmit { to, hop_limit, .. } = transmit;
        let destination = match to {
            Address::Session(SessionId(session)) => {
                if let Ok(node) = u32::try_from(session) {
                    context.send_message(NodeId(node), payload);
                }
                return;
            }
            Address::Channel(channel) => self.group(context, &channel).map(Destination::Group),
            Address::Host(address) => node_of(address.ip()).map(Destination::Unicast),
        };
        let Some(destination) = destination else { return };
        self.pacing.sent(context.now(), payload.len() as u64);
        let HostConfig { overhead, hop_limit: usual, flow, .. } = self.config;
        context.send(Packet {
            source: context.node(),
            destination,
            hop_limit: hop_limit.unwrap_or(usual),
            kind: self.application.kind(to, &payload),
            flow,
            wire_len: payload.len() as u32 + overhead,
            payload,
        });
    }

    /// The number of a channel.
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
        let data = (self.pacing.rate.is_some() && self.engine.wants(RateClass::Data))
            .then(|| self.pacing.next.max(context.now()));
        let at = [self.engine.poll_timeout(), self.wake_at, data].into_iter().flatten().min();
        context.wake_at(at);
    }
}

impl<E: Engine, A: fmt::Debug> fmt::Debug for EngineHost<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHost")
            .field("application", &self.application)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<E: Engine + Send + 'static, A: Application<E>> App for EngineHost<E, A> {
    fn start(&mut self, context: &mut Context<'_>) {
        self.with_application(context, A::start);
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
            Destination::Unicast(_) => Address::Host((address_of(packet.source), PORT).into()),
        };
        self.engine.handle_datagram(
            context.now(),
            Datagram { by, hop_limit: Some(packet.hop_limit), payload: &packet.payload },
        );
        self.drain(context);
    }

    fn message(&mut self, context: &mut Context<'_>, from: NodeId, message: Bytes) {
        let taken = self.with_application(context, |application, engine, io| {
            application.message(engine, io, from, &message)
        });
        if !taken {
            let by = Address::Session(SessionId(u64::from(from.0)));
            self.engine.handle_datagram(
                context.now(),
                Datagram { by, hop_limit: None, payload: &message },
            );
        }
        self.drain(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let times = if self.woken.0 == now { self.woken.1 + 1 } else { 1 };
        self.woken = (now, times);
        if times > WAKES_AT_ONCE {
            return context.give_up();
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        if self.wake_at.take_if(|at| *at <= now).is_some() {
            self.with_application(context, A::wake);
        }
        self.drain(context);
    }
}
