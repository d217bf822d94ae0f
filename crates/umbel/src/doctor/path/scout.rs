//! A client that wants only probes: the repository's engine and a session.
//!
//! [`Ear`] counts the packets beside the engine. The engine listens only from a request for a burst
//! to its answer. The answer may overtake packets, as it does on wireless links that hold multicast
//! back for a beacon.

use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{self, Duration};

use crossbeam_channel::{Receiver as Inbox, Sender as Outbox};
use umbel_engine::SessionId;
use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io, Mailbox};
use umbel_engine::repository::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent, Token};
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_engine::units::Rate;
use umbel_net::interface::Interface;
use umbel_net::port::SessionPort;
use umbel_net::session::{
    ClientError, ClientEvent, ClientSession, ConnectOptions, Credentials, SessionUrl,
};
use umbel_wire::Channel;

use super::burst::{Burst, Order};
use super::ear::{Ear, Heard};
use crate::endpoint::Wiring;

/// Time that the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Time after the server's report of a burst in which its packets may arrive, besides the session's
/// round trip.
const GRACE: Duration = Duration::from_millis(40);

/// Number of the only session.
const SESSION: SessionId = SessionId(0);

/// Knowledge of the scout once the server has admitted it.
#[derive(Clone, Debug)]
pub(super) struct Welcome {
    pub(super) agent: String,
    pub(super) channel: Channel,
    pub(super) rate: Option<Rate>,
    /// Round-trip time of the handshake.
    pub(super) rtt: Duration,
    pub(super) remote: SocketAddr,
    /// This host's address on the way to the server.
    pub(super) local: IpAddr,
}

/// Reason why the path cannot be checked, or not further.
#[derive(Debug)]
pub(super) enum ScoutError {
    /// There is no session, or no longer.
    Session(ClientError),
    /// The server does not admit this client.
    Refused(String),
    /// The server did not answer in time.
    Silent(&'static str),
    /// Something on this host failed.
    Here(String),
}

/// Events of the engine's thread.
enum Event {
    Connected { rtt: Duration, remote: SocketAddr, local: IpAddr },
    Welcome { agent: String, channel: Channel, rate: Option<Rate> },
    Refused(String),
    Page(Option<u16>),
    Packet(Heard),
    Probed { probe: u32, packets: u32 },
    Disconnected(ClientError),
}

/// A sink that keeps no symbols.
struct NoSink;

impl SymbolSink for NoSink {
    fn store(&mut self, _block: BlockId, _esi: u32, _symbol: &[u8]) -> bool {
        false
    }

    fn restore(&mut self, _block: BlockId) {}

    fn rest(&mut self, _block: BlockId) {}
}

type Client = Receiver<NoSink>;

/// Input of the engine's thread.
#[derive(Debug)]
enum Input {
    /// A message of the session.
    Message(bytes::Bytes),
    /// A command of the scout.
    Command(ReceiverCommand),
    /// Ends the loop.
    Stop,
}

/// A running client, which ends when it is dropped.
pub(super) struct Scout {
    mailbox: Mailbox<Input>,
    outbox: Outbox<Event>,
    events: Inbox<Event>,
    ear: Option<Ear>,
    thread: Option<JoinHandle<()>>,
    rtt: Duration,
    next_probe: u32,
}

impl Scout {
    /// Opens a session and waits until the server has admitted this client.
    pub(super) fn start(
        url: &SessionUrl,
        credentials: Credentials,
    ) -> Result<(Scout, Welcome), ScoutError> {
        let here = |error: std::io::Error| ScoutError::Here(error.to_string());
        let wiring = Wiring::new().map_err(|error| ScoutError::Here(format!("{error:#}")))?;
        let mailbox = wiring.mailbox().clone();
        let (outbox, events) = crossbeam_channel::unbounded();
        let options =
            ConnectOptions { timeout: PATIENCE, credentials, ..ConnectOptions::default() };
        let session = ClientSession::start(url, &options, {
            let (mailbox, outbox) = (mailbox.clone(), outbox.clone());
            move |event| forward(event, &mailbox, &outbox)
        })
        .map_err(ScoutError::Session)?;
        let host = ScoutHost { events: outbox.clone() };
        let config = ReceiverConfig {
            agent: concat!("umbel-doctor/", env!("CARGO_PKG_VERSION")).to_owned(),
            token: url.token.clone().map(Token::from),
            ..ReceiverConfig::default()
        };
        let engine = Receiver::new(config, generator(0), NoSink);
        let driver = wiring.driver(engine, host).port(SessionPort::new(SESSION, session));
        let thread = std::thread::Builder::new().name("umbel-doctor".to_owned()).spawn(move || {
            if let Err(error) = driver.run() {
                tracing::warn!("{error}");
            }
        });
        let thread = Some(thread.map_err(here)?);
        let mut scout = Scout {
            mailbox,
            outbox,
            events,
            ear: None,
            thread,
            rtt: Duration::ZERO,
            next_probe: any_probe(),
        };
        let welcome = scout.await_welcome()?;
        scout.rtt = welcome.rtt;
        Ok((scout, welcome))
    }

    fn await_welcome(&self) -> Result<Welcome, ScoutError> {
        let deadline = time::Instant::now() + PATIENCE + Duration::from_millis(500);
        let mut connected = None;
        loop {
            match self.next(deadline)? {
                Some(Event::Connected { rtt, remote, local }) => {
                    connected = Some((rtt, remote, local));
                }
                Some(Event::Welcome { agent, channel, rate }) => {
                    let (rtt, remote, local) =
                        connected.ok_or(ScoutError::Silent("did not finish the handshake"))?;
                    return Ok(Welcome { agent, channel, rate, rtt, remote, local });
                }
                Some(Event::Refused(reason)) => return Err(ScoutError::Refused(reason)),
                Some(_) => {}
                None => return Err(ScoutError::Silent("answers, but does not admit clients")),
            }
        }
    }

    /// Returns the next event until `deadline`. The end of the session is an error.
    fn next(&self, deadline: time::Instant) -> Result<Option<Event>, ScoutError> {
        match self.events.recv_deadline(deadline) {
            Ok(Event::Disconnected(error)) => Err(ScoutError::Session(error)),
            Ok(event) => Ok(Some(event)),
            Err(_) => Ok(None),
        }
    }

    /// Returns the UDP payload of the server's full data packets in bytes, if it offers anything.
    pub(super) fn packet_len(&self) -> Option<u16> {
        self.mailbox.put(Input::Command(ReceiverCommand::List {
            query: 1,
            patterns: Vec::new(),
            cursor: 0,
            limit: 1,
        }));
        let deadline = time::Instant::now() + Duration::from_secs(1);
        loop {
            match self.next(deadline) {
                Ok(Some(Event::Page(len))) => return len,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Starts to receive the channel on this interface.
    pub(super) fn listen_on(
        &mut self,
        interface: &Interface,
        channel: Channel,
        rate: Option<Rate>,
    ) -> Result<(), ScoutError> {
        let outbox = self.outbox.clone();
        let ear = Ear::open(interface, channel, rate, move |heard| {
            // The scout outlives its ear.
            let _ = outbox.send(Event::Packet(heard));
        });
        self.ear = Some(ear.map_err(ScoutError::Here)?);
        Ok(())
    }

    /// Has the server send a burst, and waits for it.
    pub(super) fn burst(&mut self, order: Order) -> Result<Burst, ScoutError> {
        let bursts = self.bursts(&[order])?;
        bursts.into_iter().next().ok_or(ScoutError::Silent("does not send probe packets"))
    }

    /// Has the server send bursts one after the other, and waits for all.
    pub(super) fn bursts(&mut self, orders: &[Order]) -> Result<Vec<Burst>, ScoutError> {
        let first = self.next_probe;
        self.next_probe = first.wrapping_add(orders.len() as u32);
        let dropped_before = self.ear.as_ref().map_or(0, Ear::dropped);
        let time = self.ask(first, orders);
        let mut sent = vec![None; orders.len()];
        let mut arrivals = vec![Vec::new(); orders.len()];
        let mut deadline = time::Instant::now() + time;
        loop {
            let whole = |(sent, arrived): (&Option<u32>, &Vec<_>)| {
                sent.is_some_and(|packets| arrived.len() >= packets as usize)
            };
            if sent.iter().zip(&arrivals).all(whole) {
                break;
            }
            let Some(event) = self.next(deadline)? else { break };
            let place = |probe: u32| probe.wrapping_sub(first) as usize;
            match event {
                Event::Packet(Heard { probe, index, at }) => {
                    if let Some(list) = arrivals.get_mut(place(probe)) {
                        list.push((index, at));
                    }
                }
                Event::Probed { probe, packets } => {
                    if let Some(entry) = sent.get_mut(place(probe)) {
                        *entry = Some(packets);
                    }
                    if sent.iter().all(Option::is_some) {
                        deadline = time::Instant::now() + GRACE + self.rtt;
                    }
                }
                _ => {}
            }
        }
        let dropped = self.ear.as_ref().map_or(0, Ear::dropped).saturating_sub(dropped_before);
        let bursts = sent.into_iter().zip(&arrivals).map(|(sent, arrivals)| {
            let packets = sent.ok_or(ScoutError::Silent("does not send probe packets"))?;
            let burst = Burst::new(packets, arrivals, dropped);
            tracing::debug!("{burst:?}");
            Ok(burst)
        });
        bursts.collect()
    }

    /// Requests the bursts. Returns how long all may take.
    fn ask(&self, first: u32, orders: &[Order]) -> Duration {
        let mut time = PATIENCE + 2 * self.rtt;
        for (place, order) in (0..).zip(orders) {
            let Order { packets, packet_len, rate } = *order;
            time += order.time() + Duration::from_millis(30);
            self.mailbox.put(Input::Command(ReceiverCommand::Probe {
                probe: first.wrapping_add(place),
                packets,
                packet_len,
                rate_bits_per_s: rate.bits_per_s(),
            }));
        }
        time
    }
}

/// Returns a first probe number that no other client is likely to use at this time.
fn any_probe() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() as u32
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.mailbox.put(Input::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the doctor's thread panicked");
        }
    }
}

/// Passes events of the session to the engine and to the scout.
fn forward(event: ClientEvent, mailbox: &Mailbox<Input>, outbox: &Outbox<Event>) {
    let event = match event {
        ClientEvent::Connected { rtt, remote, local } => {
            Event::Connected { rtt, remote, local: local.ip() }
        }
        ClientEvent::Message(bytes) => return mailbox.put(Input::Message(bytes)),
        ClientEvent::Disconnected { reason, .. } => Event::Disconnected(reason),
        ClientEvent::Bulk { .. } | ClientEvent::BulkEnd { .. } => return,
    };
    // The scout may be gone.
    let _ = outbox.send(event);
}

/// The scout's side of the engine's thread.
struct ScoutHost {
    events: Outbox<Event>,
}

impl Host<Client> for ScoutHost {
    type Input = Input;

    fn start(&mut self, io: &mut dyn Io<Client>) {
        tell(io, ReceiverCommand::Connected { session: SESSION });
    }

    fn input(&mut self, io: &mut dyn Io<Client>, input: Input) {
        match input {
            Input::Message(message) => io.message(SESSION, &message),
            Input::Command(command) => tell(io, command),
            Input::Stop => io.stop(),
        }
    }

    fn event(&mut self, _io: &mut dyn Io<Client>, event: ReceiverEvent) {
        let event = match event {
            ReceiverEvent::Welcome { agent, channel, rate_bits_per_s, .. } => {
                Event::Welcome { agent, channel, rate: Rate::from_bits_per_s(rate_bits_per_s) }
            }
            ReceiverEvent::Refused { reason } => Event::Refused(reason),
            ReceiverEvent::Page { items, .. } => {
                let header = umbel_wire::DataHeader::LEN as u16;
                let symbol = items.first().map(|item| item.oti.symbol_len);
                Event::Page(symbol.map(|symbol| symbol.saturating_add(header)))
            }
            ReceiverEvent::Failed { .. } => Event::Page(None),
            ReceiverEvent::Probed { probe, packets } => Event::Probed { probe, packets },
            _ => return,
        };
        // The scout may be gone.
        let _ = self.events.send(event);
    }
}

/// Sends a command; a refusal of it changes nothing.
fn tell(io: &mut dyn Io<Client>, command: ReceiverCommand) {
    if let Err(error) = io.command(command) {
        tracing::debug!("{error}");
    }
}
