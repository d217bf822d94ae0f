//! The loop that drives an engine: sockets, sessions and the clock on one side, the engine on
//! the other.
//!
//! The engine stays on one thread. Other threads reach it through its [`Mailbox`]; it reaches
//! sessions through [`Host::post`], which must not block.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver as Inbox, Sender as Outbox, TryRecvError};
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, SessionId, Transmit,
    TransmitBuf,
};

use crate::clock::Clock;
use crate::domain::Domain;
use crate::gather::Gather;
use crate::group::Group;
use crate::pacer::Pacer;
use crate::udp::{JoinError, Receiver, SendError, Sender};
use crate::wake::{self, Waker};

/// What reaches an engine from other threads.
#[derive(Debug)]
pub enum Input<C> {
    /// A command of the application.
    Command(C),
    /// A control message of a session.
    Message(SessionId, Bytes),
    /// A datagram that another thread received: how it came, and what is left of its hop limit.
    Datagram(Address, Option<u8>, Bytes),
    /// Nothing: the host wants its [`Host::woken`] called.
    Nudge,
    /// End the loop.
    Stop,
}

/// Hands input to an engine's thread. Clones lead to the same engine.
#[derive(Debug)]
pub struct Mailbox<C> {
    outbox: Outbox<Input<C>>,
    waker: Waker,
}

impl<C> Clone for Mailbox<C> {
    fn clone(&self) -> Mailbox<C> {
        Mailbox { outbox: self.outbox.clone(), waker: self.waker.clone() }
    }
}

impl<C> Mailbox<C> {
    /// Puts input into the line. It is lost if the loop has ended.
    pub fn put(&self, input: Input<C>) {
        if self.outbox.send(input).is_ok() {
            self.waker.wake();
        }
    }

    /// How much input waits in the line.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Puts a command into the line.
    pub fn command(&self, command: C) {
        self.put(Input::Command(command));
    }
}

/// The application side of an engine.
pub trait Host<E: Engine> {
    /// Sends a control message on a session. Must not block.
    fn post(&mut self, session: SessionId, message: Bytes);

    /// Does what the engine asks for or tells. Commands to the engine can be given at once.
    fn event(&mut self, now: Instant, engine: &mut E, io: &mut Io, event: E::Event);

    /// Called after input came from other threads.
    fn woken(&mut self, _now: Instant, _engine: &mut E, _io: &mut Io) {}

    /// Called about every [`Driver::TICK`] and with what the sockets have counted: a good time to
    /// publish a status.
    fn tick(&mut self, _now: Instant, _engine: &mut E, _io: &mut Io) {}

    /// Called when so many datagrams, by estimate, came faster than this machine took them, and
    /// were lost in it.
    fn overran(&mut self, _now: Instant, _engine: &mut E, _datagrams: u64) {}

    /// Called when a channel cannot be joined.
    ///
    /// # Errors
    ///
    /// The error, if the loop cannot go on without the channel; that is the default.
    fn join_failed(&mut self, error: JoinError) -> Result<(), JoinError> {
        Err(error)
    }

    /// Called when a command is refused.
    fn refused(&mut self, _error: E::CommandError) {}

    /// Whether the loop should go on.
    fn goes_on(&self) -> bool {
        true
    }
}

/// The sockets of a driver.
#[derive(Debug, Default)]
pub struct Io {
    /// Sends data packets, as the pacer lets them.
    pub sender: Option<(Sender, Pacer)>,
    /// Receives channels.
    pub receiver: Option<Receiver>,
    /// A group whose members all send: what the engine sends there is not paced.
    pub group: Option<Group>,
    /// A node's place in a control tree: what goes to its group or to a single host leaves by it.
    /// Data packets wait for the pacer of the sender or, without one, for its own.
    pub domain: Option<Domain>,
    /// The last error that passed by itself.
    pub transient_error: Option<SendError>,
}

impl Io {
    /// How many data packets may leave now.
    fn allow(&self, now: Instant, packet_len: usize) -> usize {
        match (&self.sender, &self.domain) {
            (Some((sender, pacer)), _) => pacer.allow(now).min(sender.max_batch(packet_len)),
            (None, Some(Domain { sender, pacer: Some(pacer), .. })) => {
                pacer.allow(now).min(sender.max_batch(packet_len))
            }
            _ => 0,
        }
    }

    /// What data packets wait for.
    fn pacer(&mut self) -> Option<&mut Pacer> {
        match (&mut self.sender, &mut self.domain) {
            (Some((_, pacer)), _) => Some(pacer),
            (None, Some(domain)) => domain.pacer.as_mut(),
            (None, None) => None,
        }
    }
}

/// Why a loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A data packet cannot be sent, and never will.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A channel cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The system refuses to wait or to receive.
    #[error("cannot receive: {0}")]
    Receive(#[from] std::io::Error),
}

/// Drives one engine.
#[derive(Debug)]
pub struct Driver<E: Engine, H> {
    engine: E,
    host: H,
    io: Io,
    clock: Clock,
    packet_len: usize,
    inbox: Inbox<Input<E::Command>>,
    waker: Waker,
    buf: TransmitBuf,
    next_tick: Instant,
    /// How dense the stream is that is received.
    gather: Gather,
    /// Messages that the receiver has lost for want of room, as far as the host knows.
    drops_told: u64,
    /// For how long the sockets are let alone, so that datagrams gather.
    pause: Duration,
    stopped: bool,
}

/// A line to an engine that does not run yet.
#[derive(Debug)]
pub struct Line<C> {
    inbox: Inbox<Input<C>>,
    waker: Waker,
}

/// A mailbox and the end of its line, for [`Driver::new`].
///
/// # Errors
///
/// When the process has no file descriptor left.
pub fn line<C>() -> std::io::Result<(Mailbox<C>, Line<C>)> {
    let (outbox, inbox) = crossbeam_channel::unbounded();
    let waker = Waker::new()?;
    Ok((Mailbox { outbox, waker: waker.clone() }, Line { inbox, waker }))
}

impl<E: Engine, H: Host<E>> Driver<E, H> {
    /// How often [`Host::tick`] is called.
    pub const TICK: Duration = Duration::from_millis(100);

    /// A driver that takes its input from `line`. `packet_len` is the UDP payload of a full data
    /// packet.
    pub fn new(
        engine: E,
        host: H,
        io: Io,
        clock: Clock,
        packet_len: usize,
        line: Line<E::Command>,
    ) -> Driver<E, H> {
        Driver {
            engine,
            host,
            io,
            clock,
            packet_len,
            inbox: line.inbox,
            waker: line.waker,
            buf: TransmitBuf::default(),
            next_tick: Instant::EPOCH,
            gather: Gather::default(),
            drops_told: 0,
            pause: Duration::ZERO,
            stopped: false,
        }
    }

    /// Runs until [`Input::Stop`] comes or the host does not go on; gives the host back.
    ///
    /// # Errors
    ///
    /// When a socket fails for good.
    pub fn run(mut self) -> Result<H, DriverError> {
        // Late wake-ups only make the pacing coarser.
        let _ = wake::wait_precisely();
        while !self.stopped && self.host.goes_on() {
            self.take_input();
            let now = self.clock.now();
            if self.engine.poll_timeout().is_some_and(|at| at <= now) {
                self.engine.handle_timeout(now);
            }
            self.tick_if_due();
            self.drain()?;
            if !self.stopped && self.host.goes_on() {
                self.wait()?;
            }
        }
        Ok(self.host)
    }

    fn take_input(&mut self) {
        let mut any = false;
        // Bounded, so that a flood of messages does not keep data packets from leaving.
        for _ in 0..256 {
            let now = self.clock.now();
            match self.inbox.try_recv() {
                Ok(Input::Command(command)) => {
                    if let Err(error) = self.engine.handle_command(now, command) {
                        self.host.refused(error);
                    }
                }
                Ok(Input::Message(session, message)) => {
                    let by = Address::Session(session);
                    self.engine
                        .handle_datagram(now, Datagram { by, hop_limit: None, payload: &message });
                }
                Ok(Input::Datagram(by, hop_limit, payload)) => {
                    let datagram = Datagram { by, hop_limit, payload: &payload };
                    self.engine.handle_datagram(now, datagram);
                }
                Ok(Input::Nudge) => {}
                Ok(Input::Stop) | Err(TryRecvError::Disconnected) => self.stopped = true,
                Err(TryRecvError::Empty) => break,
            }
            any = true;
            // The next message may rely on what the application does about this one.
            self.drain_events();
        }
        if any {
            self.host.woken(self.clock.now(), &mut self.engine, &mut self.io);
        }
    }

    /// Does what the engine wants until it wants nothing more at this time.
    fn drain(&mut self) -> Result<(), DriverError> {
        loop {
            let mut moved = false;
            while let Some(change) = self.engine.poll_membership() {
                self.change_membership(change)?;
                moved = true;
            }
            moved |= self.send_some()?;
            moved |= self.drain_events();
            if !moved || !self.inbox.is_empty() {
                return Ok(());
            }
        }
    }

    /// Hands the engine's events to the host. Gives whether there was any.
    fn drain_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.engine.poll_event() {
            self.host.event(self.clock.now(), &mut self.engine, &mut self.io, event);
            any = true;
        }
        any
    }

    fn change_membership(&mut self, change: Membership) -> Result<(), DriverError> {
        let (Membership::Join(channel) | Membership::Leave(channel)) = change;
        if self.io.domain.as_ref().is_some_and(|domain| domain.channel() == channel) {
            // As with a group below.
            if matches!(change, Membership::Leave(_)) {
                self.io.domain = None;
            }
            return Ok(());
        }
        if self.io.group.as_ref().is_some_and(|group| group.channel() == channel) {
            // The host has joined it when it opened it.
            if matches!(change, Membership::Leave(_)) {
                self.io.group = None;
            }
            return Ok(());
        }
        let Some(receiver) = &mut self.io.receiver else { return Ok(()) };
        let changed = match change {
            Membership::Join(channel) => receiver.join(&channel),
            Membership::Leave(channel) => receiver.leave(&channel),
        };
        if let Err(error) = changed {
            self.host.join_failed(error)?;
        }
        Ok(())
    }

    /// Sends control messages and as many data packets as may leave. Gives whether it sent any.
    fn send_some(&mut self) -> Result<bool, DriverError> {
        let mut any = false;
        loop {
            let now = self.clock.now();
            self.buf.reset(Allowance::data(self.io.allow(now, self.packet_len)));
            let Some(transmit) = self.engine.poll_transmit(now, &mut self.buf) else {
                return Ok(any);
            };
            any = true;
            let data = matches!(transmit.to, Address::Channel(_));
            self.send(now, transmit)?;
            // Others may have something to say between two batches.
            if data && !self.inbox.is_empty() {
                return Ok(any);
            }
        }
    }

    fn send(&mut self, now: Instant, transmit: Transmit) -> Result<(), DriverError> {
        let to = match transmit.to {
            Address::Session(session) => {
                for (head, body) in self.buf.iter() {
                    let message =
                        if head.is_empty() { body.clone() } else { [head, body].concat().into() };
                    self.host.post(session, message);
                }
                return Ok(());
            }
            Address::Channel(channel) => {
                if self.io.domain.as_ref().is_some_and(|domain| domain.channel() == channel) {
                    self.send_in_domain(now, channel.destination(), transmit.hop_limit);
                    return Ok(());
                }
                if let Some(group) = self.io.group.as_mut().filter(|g| g.channel() == channel) {
                    // It is repaired as if it were lost on the way.
                    if let Err(error) = group.sender.send(channel.destination(), &self.buf) {
                        self.io.transient_error = Some(error);
                    }
                    return Ok(());
                }
                channel.destination()
            }
            Address::Host(address) => {
                if self.io.domain.is_some() {
                    self.send_in_domain(now, address, transmit.hop_limit);
                    return Ok(());
                }
                address
            }
        };
        let Some((sender, pacer)) = &mut self.io.sender else { return Ok(()) };
        let bytes: usize = self.buf.iter().map(|(head, body)| head.len() + body.len()).sum();
        // What an error keeps from leaving counts as sent, and as lost on the way: the engine
        // repairs it, and the pacer does not hurry after it.
        match sender.send_within(to, transmit.hop_limit, &self.buf) {
            Ok(_) => {}
            Err(error) if error.is_transient() => self.io.transient_error = Some(error),
            Err(error) => return Err(error.into()),
        }
        pacer.sent(now, bytes as u64);
        Ok(())
    }

    /// Sends by the sockets of the control tree. Control messages count for the pacer as data
    /// packets do, but do not wait for it.
    fn send_in_domain(&mut self, now: Instant, to: SocketAddr, hop_limit: Option<u8>) {
        let Some(domain) = &mut self.io.domain else { return };
        // It is repaired as if it were lost on the way.
        if let Err(error) = domain.send(to, hop_limit, &self.buf) {
            self.io.transient_error = Some(error);
        }
        let bytes: usize = self.buf.iter().map(|(head, body)| head.len() + body.len()).sum();
        if let Some(pacer) = self.io.pacer() {
            pacer.sent(now, bytes as u64);
        }
    }

    fn tick_if_due(&mut self) {
        let now = self.clock.now();
        if now >= self.next_tick {
            self.next_tick = now + Self::TICK;
            self.host.tick(now, &mut self.engine, &mut self.io);
        }
    }

    /// Waits for input, datagrams or the next deadline.
    fn wait(&mut self) -> Result<(), DriverError> {
        let now = self.clock.now();
        let mut wake_at = self.next_tick;
        if let Some(at) = self.engine.poll_timeout() {
            wake_at = wake_at.min(at);
        }
        if let Some(pacer) = self.io.pacer() {
            if self.engine.wants(RateClass::Data) {
                wake_at = wake_at.min(pacer.next(now));
            } else {
                pacer.idle(now);
            }
        }
        let timeout = if self.inbox.is_empty() { wake_at - now } else { Duration::ZERO };
        let Some(receiver) = &mut self.io.receiver else {
            if !timeout.is_zero() {
                self.waker.wait(Some(timeout))?;
            }
            return Ok(());
        };
        let pause = std::mem::take(&mut self.pause).min(timeout);
        if !pause.is_zero() {
            self.waker.wait(Some(pause))?;
            return Ok(());
        }
        let (engine, clock) = (&mut self.engine, &self.clock);
        let mut at = None;
        let reception = receiver.receive(Some(timeout), Some(&self.waker), |received| {
            // One reading of the clock for all that one system call brought.
            let at = *at.get_or_insert_with(|| clock.now());
            engine.handle_datagram(at, received.datagram());
        })?;
        if let Some(at) = at {
            let dropped = receiver.kernel_drops().saturating_sub(self.drops_told);
            self.drops_told = receiver.kernel_drops();
            if dropped > 0 {
                let coalesced = reception.datagrams.div_ceil(reception.messages.max(1));
                self.host.overran(at, engine, dropped * coalesced as u64);
            }
            let pause = self.gather.heard(at, reception.datagrams, receiver.room());
            self.pause = if reception.full { Duration::ZERO } else { pause };
        }
        Ok(())
    }
}
