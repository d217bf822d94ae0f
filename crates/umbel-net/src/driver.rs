//! The loop that drives an engine and its host: ports, input and the clock.
//!
//! ```text
//!             ┌────────────────────────── wait: input, ports, the next deadline ◀─┐
//!             ▼                                                                   │
//!  input ──▶ host ─▶ engine ──▶ membership, datagrams ──▶ ports ──▶ events ──▶ host
//! ```
//!
//! Host and engine stay on one thread, which waits in one place. Other threads reach the host
//! through its [`Mailbox`](umbel_engine::host::Mailbox).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollFlags;
use umbel_engine::host::{Host, Io, PortError, PortSpec, Trouble};
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf,
};

use crate::clock::Clock;
use crate::mailbox::Line;
use crate::pacer::Pacer;
use crate::port::{Port, Watch};
use crate::wake;

/// Number of inputs handled before the next look at ports and timers, so that a flood of input does
/// not keep data packets from leaving.
const INPUT_AT_ONCE: usize = 256;

/// Longest time for which packets are sent before the next look at ports and timers. A source whose
/// pace is higher than this machine can send would not hear its receivers otherwise.
const SENDING_AT_ONCE: Duration = Duration::from_micros(500);

/// A function that opens a port for a host.
pub type Opener = Box<dyn FnMut(&PortSpec) -> Result<Box<dyn Port>, PortError> + Send>;

/// The error that ends a loop before its host stops it.
#[derive(Debug, thiserror::Error)]
#[error("the system does not let this program wait: {0}")]
pub struct DriverError(#[from] std::io::Error);

/// A host, its engine and the machine under them.
pub struct Driver<E: Engine, H: Host<E>> {
    host: H,
    machine: Machine<E>,
    line: Line<H::Input>,
    /// Whether the engine may have more output at this time.
    unfinished: bool,
}

/// The part of the driver that a host reaches as [`Io`].
struct Machine<E> {
    engine: E,
    clock: Clock,
    ports: Vec<Box<dyn Port>>,
    paces: Vec<Pace>,
    opener: Opener,
    buf: TransmitBuf,
    wake_at: Option<Instant>,
    stopped: bool,
}

/// The pace of a class of packets.
struct Pace {
    class: RateClass,
    pacer: Pacer,
    /// UDP payload of a full packet in bytes.
    packet_len: usize,
}

impl<E: Engine, H: Host<E>> Driver<E, H> {
    /// Creates a driver that takes its host's input from `line`. It has no ports. Control messages
    /// may leave, but no packets of any other class.
    pub fn new(engine: E, host: H, clock: Clock, line: Line<H::Input>) -> Driver<E, H> {
        let none = |spec: &PortSpec| Err(PortError(format!("there is no way to open {spec:?}")));
        let machine = Machine {
            engine,
            clock,
            ports: Vec::new(),
            paces: Vec::new(),
            opener: Box::new(none),
            buf: TransmitBuf::default(),
            wake_at: None,
            stopped: false,
        };
        Driver { host, machine, line, unfinished: false }
    }

    /// Adds a port.
    #[must_use]
    pub fn port(self, port: impl Port + 'static) -> Driver<E, H> {
        self.ports([port])
    }

    /// Adds ports.
    #[must_use]
    pub fn ports(mut self, ports: impl IntoIterator<Item = impl Port + 'static>) -> Driver<E, H> {
        self.machine.ports.extend(ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>));
        self
    }

    /// Sets the function that opens the ports for which the host asks.
    #[must_use]
    pub fn opener(mut self, opener: Opener) -> Driver<E, H> {
        self.machine.opener = opener;
        self
    }

    /// Sets the pace for a class of packets. Full packets have a UDP payload of `packet_len` bytes.
    /// If `rate` is `None`, the packets are not paced.
    #[must_use]
    pub fn pace(mut self, class: RateClass, rate: Option<Rate>, packet_len: usize) -> Driver<E, H> {
        let Machine { ports, paces, clock, .. } = &mut self.machine;
        let batches = ports.iter().filter_map(|port| port.max_batch(packet_len));
        let pacer = Pacer::new(rate, packet_len, batches.min().unwrap_or(1), clock.now());
        paces.push(Pace { class, pacer, packet_len });
        self
    }

    /// Runs until the host stops it, then returns the host.
    ///
    /// # Errors
    ///
    /// If the system does not let the program wait.
    pub fn run(mut self) -> Result<H, DriverError> {
        // Late wake-ups only make the pacing coarser.
        let _ = wake::wait_precisely();
        self.host.start(&mut self.machine);
        self.drain();
        while !self.machine.stopped {
            self.take_input();
            self.handle_due();
            self.drain();
            if !self.machine.stopped {
                self.wait()?;
            }
        }
        Ok(self.host)
    }

    fn take_input(&mut self) {
        for _ in 0..INPUT_AT_ONCE {
            if self.machine.stopped {
                return;
            }
            let Some(input) = self.line.take() else { return };
            self.host.input(&mut self.machine, input);
            // The next input may rely on what the host does about this one.
            self.drain_events();
        }
    }

    fn handle_due(&mut self) {
        let now = self.machine.clock.now();
        if self.machine.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.engine.handle_timeout(now);
        }
        if self.machine.wake_at.take_if(|at| *at <= now).is_some() {
            self.host.wake(&mut self.machine);
        }
    }

    /// Handles the engine's outputs until it has no more at this time. It may be interrupted
    /// between two batches of packets, and is unfinished then.
    fn drain(&mut self) {
        let until = self.machine.clock.now() + SENDING_AT_ONCE;
        loop {
            let mut moved = false;
            while let Some(change) = self.machine.engine.poll_membership() {
                if let Err(trouble) = self.machine.change_membership(change) {
                    self.host.trouble(&mut self.machine, trouble);
                }
                moved = true;
            }
            moved |= self.send_some(until);
            moved |= self.drain_events();
            self.unfinished = moved;
            if !moved || self.is_interrupted(until) {
                return;
            }
        }
    }

    /// Returns whether input waits, or ports and timers have not been looked at for long enough.
    fn is_interrupted(&self, until: Instant) -> bool {
        !self.line.is_empty() || self.machine.clock.now() >= until
    }

    /// Passes the engine's events to the host. Returns whether there were any.
    fn drain_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.machine.engine.poll_event() {
            self.host.event(&mut self.machine, event);
            any = true;
        }
        any
    }

    /// Sends control messages and as many packets as may leave before it is interrupted. Returns
    /// whether it sent any.
    fn send_some(&mut self, until: Instant) -> bool {
        let mut any = false;
        loop {
            let now = self.machine.clock.now();
            let Some(transmit) = self.machine.poll_transmit(now) else { return any };
            any = true;
            if let Err(trouble) = self.machine.send(now, transmit) {
                self.host.trouble(&mut self.machine, trouble);
            }
            if transmit.class != RateClass::Control && self.is_interrupted(until) {
                return any;
            }
        }
    }

    /// Waits for input, datagrams or the next deadline. Passes datagrams to the engine.
    fn wait(&mut self) -> Result<(), DriverError> {
        let ready = self.ready()?;
        let Driver { host, machine, .. } = self;
        let now = machine.clock.now();
        let mut troubles = Vec::new();
        let Machine { ports, engine, .. } = machine;
        for (port, ready) in ports.iter_mut().zip(ready) {
            let mut give = |datagram: Datagram<'_>| engine.handle_datagram(now, datagram);
            troubles.extend(port.turn(now, ready, &mut give).troubles);
        }
        for trouble in troubles {
            host.trouble(machine, trouble);
        }
        Ok(())
    }

    /// Waits. Returns which ports are ready.
    fn ready(&mut self) -> std::io::Result<Vec<bool>> {
        let now = self.machine.clock.now();
        let deadline = self.machine.next_deadline(now);
        let Driver { machine, line, unfinished, .. } = self;
        let mut watch = Watch::default();
        watch.descriptor(line.waker().as_fd(), PollFlags::POLLIN);
        if let Some(at) = deadline {
            watch.until(at);
        }
        let ends: Vec<usize> = machine
            .ports
            .iter()
            .map(|port| {
                port.watch(&mut watch);
                watch.len()
            })
            .collect();
        let (mut fds, until) = watch.into_parts();
        let busy = *unfinished || !line.is_empty();
        let timeout = if busy { Some(Duration::ZERO) } else { until.map(|at| at - now) };
        wake::wait_for_any(&mut fds, timeout)?;
        line.waker().take();
        let mut start = 1;
        let ready = ends.iter().map(|&end| {
            let own = &fds[std::mem::replace(&mut start, end)..end];
            own.iter().any(|fd| fd.any().unwrap_or(false))
        });
        Ok(ready.collect())
    }
}

impl<E: Engine> Machine<E> {
    /// Returns the port that covers an address.
    fn port(&mut self, address: &Address) -> Option<&mut Box<dyn Port>> {
        self.ports.iter_mut().find(|port| port.covers(address))
    }

    fn change_membership(&mut self, change: Membership) -> Result<(), Trouble> {
        let (Membership::Join(channel) | Membership::Leave(channel)) = change;
        let Some(port) = self.port(&Address::Channel(channel)) else { return Ok(()) };
        let changed = match change {
            Membership::Join(channel) => port.join(&channel),
            Membership::Leave(channel) => port.leave(&channel),
        };
        changed.map_err(|error| Trouble::NotJoined { channel, reason: error.to_string() })
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let mut allowance = Allowance::default();
        // Paced packets would only wait behind those for which there is no room.
        if !self.ports.iter().any(|port| port.is_full()) {
            for Pace { class, pacer, packet_len } in &self.paces {
                let batches = self.ports.iter().filter_map(|port| port.max_batch(*packet_len));
                let batch = batches.min().unwrap_or(0);
                allowance.set(*class, pacer.allow(now).min(batch));
            }
        }
        self.buf.reset(allowance);
        self.engine.poll_transmit(now, &mut self.buf)
    }

    fn send(&mut self, now: Instant, transmit: Transmit) -> Result<(), Trouble> {
        let bytes = self.buf.bytes() as u64;
        // Datagrams that do not leave count as sent, and as lost on the way. The engine repairs
        // them, and the pacer does not hurry after them.
        if !matches!(transmit.to, Address::Session(_)) {
            let class = match transmit.class {
                RateClass::Control => RateClass::Data,
                class => class,
            };
            if let Some(pace) = self.paces.iter_mut().find(|pace| pace.class == class) {
                pace.pacer.sent(now, bytes);
            }
        }
        let Machine { ports, buf, .. } = self;
        let Some(port) = ports.iter_mut().find(|port| port.covers(&transmit.to)) else {
            return Ok(());
        };
        port.send(now, &transmit, buf)
            .map_err(|error| Trouble::NotSent { reason: error.to_string() })
    }

    /// Returns the next deadline, apart from those of the ports.
    fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let full = self.ports.iter().any(|port| port.is_full());
        let mut deadline = [self.engine.poll_timeout(), self.wake_at].into_iter().flatten().min();
        for pace in &mut self.paces {
            if !self.engine.wants(pace.class) {
                pace.pacer.idle(now);
            } else if !full {
                let next = pace.pacer.next(now);
                deadline = Some(deadline.map_or(next, |at| at.min(next)));
            }
        }
        deadline
    }
}

impl<E: Engine> Io<E> for Machine<E> {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    fn wake_at(&mut self, at: Option<Instant>) {
        self.wake_at = at;
    }

    fn set_pace(&mut self, class: RateClass, rate: Option<Rate>) {
        let now = self.clock.now();
        if let Some(pace) = self.paces.iter_mut().find(|pace| pace.class == class) {
            pace.pacer.set_rate(rate, now);
        }
    }

    fn set_burst(&mut self, class: RateClass, burst: Duration) {
        if let Some(pace) = self.paces.iter_mut().find(|pace| pace.class == class) {
            pace.pacer.set_burst(burst);
        }
    }

    fn open(&mut self, spec: PortSpec) -> Result<(), PortError> {
        let port = (self.opener)(&spec)?;
        self.ports.push(port);
        Ok(())
    }

    fn close(&mut self, address: &Address) {
        self.ports.retain(|port| !port.covers(address));
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}
