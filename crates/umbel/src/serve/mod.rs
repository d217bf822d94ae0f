//! A server: the repository's engine with its sockets, sessions and files.
//!
//! ```text
//! sessions' thread ──messages──▶ engine's thread ──data packets──▶ data channel
//!        ▲                         │       ▲
//!        └──messages───────────────┘       │ symbols
//! librarian: lists, requests, digests     block reader's threads
//! couriers: unicast, one thread a client that multicast does not reach
//! prober: bursts of probe packets
//! ```

pub(crate) mod channel;
pub(crate) mod control;
mod courier;
mod host;
mod librarian;
mod prober;
mod status;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use umbel_engine::repository::policy::Policy;
use umbel_engine::repository::scheduler::SchedulerKind;
use umbel_engine::repository::{Source, SourceCommand, SourceConfig};
use umbel_engine::units::Rate;
use umbel_net::clock::Clock;
use umbel_net::driver::{self, Driver, DriverError, Input, Io, Mailbox};
use umbel_net::interface::{Family, Interface};
use umbel_net::pacer::Pacer;
use umbel_net::session::{
    Host, Identity, ServerEndpoint, ServerOptions, SessionEvent, SessionServer, SessionUrl,
};
use umbel_net::udp::{Sender, SenderOptions};
use umbel_store::{BlockReader, ReaderOptions, Repository, RepositoryOptions};
use umbel_wire::alc::DataHeader;
use umbel_wire::{Channel, Scheme};

pub use self::control::ControlChoice;
use self::host::ServeHost;
pub use self::status::{ClientReport, Report};

/// Bytes of a link's MTU that are left for headers of any kind: IP, UDP, tunnels, authentication.
const MTU_RESERVE: u16 = 100;

/// Smaller packets would be little more than headers.
const MIN_MTU: u16 = 256;

/// What most networks carry.
const USUAL_MTU: u16 = 1500;

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// A directory, a WARC file or any other file.
    pub path: PathBuf,
    /// Address of the session endpoint. Default: port 7700 of all addresses.
    pub listen: SocketAddr,
    /// Name or address of the interface of the data channel. Default: that of the default route.
    pub interface: Option<String>,
    /// The data channel's family. Default: IPv4 where the interface has an IPv4 address.
    pub family: Option<Family>,
    /// The data channel's group. Default: a source-specific one that follows from the key.
    pub group: Option<IpAddr>,
    /// The data channel's port.
    pub port: u16,
    /// How many routers may forward data packets, plus one.
    pub hop_limit: u8,
    /// Rate of the data channel in bits of UDP payload per second. Default: 90 % of what the
    /// interface says of itself, at most 900 Mbit/s.
    pub rate: Option<Rate>,
    /// MTU of the path in bytes; data packets carry 100 bytes less. Default: the interface's, at
    /// most 1500.
    pub mtu: Option<u16>,
    /// The erasure code.
    pub scheme: Scheme,
    /// Most source symbols in a block.
    pub block_symbols: u16,
    /// The reliability policy.
    pub policy: Option<Policy>,
    /// The scheduler; the one that goes with the policy unless given.
    pub scheduler: Option<SchedulerKind>,
    /// Where the key is kept.
    pub state_dir: PathBuf,
    /// How clients hear of transmissions.
    pub control: ControlChoice,
    /// The control group's port.
    pub control_port: u16,
    /// The token that clients must show.
    pub token: Option<String>,
    /// How often the path is scanned for changes; zero: never.
    pub rescan: Duration,
}

impl ServeOptions {
    /// The defaults for a path, with the key kept in `state_dir`.
    pub fn new(path: PathBuf, state_dir: PathBuf) -> ServeOptions {
        ServeOptions {
            path,
            listen: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7700),
            interface: None,
            family: None,
            group: None,
            port: 7702,
            hop_limit: 32,
            rate: None,
            mtu: None,
            scheme: Scheme::ReedSolomon,
            block_symbols: 128,
            policy: None,
            scheduler: None,
            state_dir,
            control: ControlChoice::Auto,
            control_port: 7701,
            token: None,
            rescan: Duration::from_secs(2),
        }
    }

    fn repository(&self, packet_len: u16) -> RepositoryOptions {
        let header = DataHeader::LEN as u16;
        let symbol_len = packet_len.saturating_sub(header) & !7;
        let exact = self.policy.as_ref().is_some_and(Policy::is_exact);
        RepositoryOptions {
            scheme: if exact { Scheme::NoCode } else { self.scheme },
            symbol_len,
            max_block_symbols: self.block_symbols,
            ..RepositoryOptions::default()
        }
    }
}

/// The UDP payload of a full data packet, in bytes, on a path of this MTU or, unless it is given, on
/// what the interface carries.
pub(crate) fn packet_len(mtu: Option<u16>, interface: &Interface) -> anyhow::Result<u16> {
    let carried = u16::try_from(interface.mtu).unwrap_or(u16::MAX);
    let mtu = mtu.unwrap_or_else(|| carried.min(USUAL_MTU));
    if mtu < MIN_MTU {
        anyhow::bail!("--mtu {mtu} is too small: give at least {MIN_MTU}");
    }
    Ok(mtu - MTU_RESERVE)
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct Server {
    url: SessionUrl,
    channel: Channel,
    control: Option<Channel>,
    interface: Interface,
    rate: Rate,
    repository: Repository,
    report: Arc<Mutex<Report>>,
    mailbox: Mailbox<SourceCommand>,
    sessions: Option<SessionServer>,
    engine: Option<JoinHandle<Result<(), DriverError>>>,
}

impl Server {
    /// Scans the path, takes the ports and serves from now on.
    ///
    /// # Errors
    ///
    /// One line that says what cannot be opened or taken, and what to do.
    pub fn start(options: &ServeOptions) -> anyhow::Result<Server> {
        let identity = Identity::load_or_create(&options.state_dir)?;
        let interface = channel::choose_interface(options.interface.as_deref())?;
        let family = channel::choose_family(&interface, options.family, options.group)?;
        let address = interface.address(family)?;
        let pin = identity.fingerprint();
        let channel = channel::choose(options.group, options.port, address, &pin)?;
        let rate = options.rate.unwrap_or_else(|| channel::default_rate(&interface));
        let packet_len = packet_len(options.mtu, &interface)?;
        let repository = Repository::open(&options.path, options.repository(packet_len))
            .with_context(|| format!("cannot serve {}", options.path.display()))?;
        repository.start_hashing();
        // A client that resumes says of each item what it lacks, in a message of its own.
        let limits = ServerOptions {
            messages_per_s: 20_000,
            message_burst: 200_000,
            ..ServerOptions::default()
        };
        let endpoint = ServerEndpoint::bind(options.listen, &identity, limits)?;
        let url = SessionUrl {
            host: channel::url_host(options.listen.ip(), address, &interface),
            port: endpoint.local_addr().port(),
            pin: Some(pin),
            token: options.token.clone(),
        };

        let packet_len = usize::from(packet_len);
        let sender_options = SenderOptions {
            source: Some(address),
            hop_limit: options.hop_limit,
            rate: Some(rate),
            ..SenderOptions::new(family)
        };
        let sender = Sender::open(&interface, &sender_options)?;
        if packet_len > sender.max_datagram() {
            return Err(anyhow!(
                "--mtu {} is more than interface {} carries: its MTU is {}",
                packet_len + usize::from(MTU_RESERVE),
                interface.name,
                interface.mtu
            ));
        }
        let clock = Clock::new();
        let batch = sender.max_batch(packet_len);
        let pacer = Pacer::new(Some(rate), packet_len, batch, clock.now());

        let (mailbox, line) = driver::line()?;
        let sessions = endpoint.start({
            let mailbox = mailbox.clone();
            move |event| forward(&mailbox, event)
        })?;
        let reader = BlockReader::new(repository.content(), &ReaderOptions::default(), {
            let mailbox = mailbox.clone();
            move || mailbox.command(SourceCommand::SymbolsReady)
        })?;
        let mut config = SourceConfig::new(channel::session_identifier(&pin), channel, rate);
        config.packet_len = packet_len;
        config.token.clone_from(&options.token);
        if let Some(policy) = options.policy {
            config.policy = policy;
        }
        config.scheduler = options.scheduler.unwrap_or(config.policy.usual_scheduler());
        let report = Arc::new(Mutex::new(Report::default()));
        let host = ServeHost::start(
            &repository,
            sessions.handle(),
            mailbox.clone(),
            report.clone(),
            prober::ProbeChannel {
                interface: interface.clone(),
                sender_options: sender_options.clone(),
                channel,
                tsi: config.tsi,
            },
            options.rescan,
        )?;
        let group = control::open(options, &interface, &sender_options, &pin, &mailbox)?;
        let control = group.as_ref().map(|(config, _)| config.channel);
        config.control = group.as_ref().map(|(config, _)| *config);
        let source = Source::new(config, reader);
        let group = group.map(|(_, group)| group);
        let io = Io { sender: Some((sender, pacer)), group, ..Io::default() };
        let engine =
            std::thread::Builder::new().name("umbel-engine".to_owned()).spawn(move || {
                Driver::new(source, host, io, clock, packet_len, line).run().map(drop)
            })?;
        Ok(Server {
            url,
            channel,
            control,
            interface,
            rate,
            repository,
            report,
            mailbox,
            sessions: Some(sessions),
            engine: Some(engine),
        })
    }

    /// What clients need to know.
    pub fn url(&self) -> &SessionUrl {
        &self.url
    }

    /// The data channel.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// The multicast control group; `None` if transmissions are announced on the sessions.
    pub fn control(&self) -> Option<Channel> {
        self.control
    }

    /// The interface of the data channel.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The rate of the data channel.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// What is served.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// How it is going.
    pub fn report(&self) -> Report {
        self.report
            .lock()
            .map_or_else(|broken| broken.into_inner().clone(), |report| report.clone())
    }

    /// Whether the engine still runs: it stops only on an error.
    pub fn is_running(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| !engine.is_finished())
    }

    /// Stops: tells the clients, and gives what is on its way to them a moment.
    ///
    /// # Errors
    ///
    /// Why the engine stopped, if it did so by itself.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.shut_down(Duration::from_millis(300))
    }

    fn shut_down(&mut self, drain: Duration) -> anyhow::Result<()> {
        if let Some(sessions) = self.sessions.take() {
            sessions.shutdown(drain);
        }
        self.mailbox.put(Input::Stop);
        match self.engine.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_)) => Err(anyhow!("the engine's thread panicked")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down(Duration::ZERO) {
            tracing::error!("{error:#}");
        }
    }
}

/// Hands what happens on the sessions to the engine.
fn forward(mailbox: &Mailbox<SourceCommand>, event: SessionEvent) {
    match event {
        SessionEvent::Opened { id, remote, rtt } => {
            tracing::info!("session {} of {remote} opened, round trip {rtt:?}", id.0);
            mailbox.command(SourceCommand::SessionOpened { session: id, rtt });
        }
        SessionEvent::Message { id, bytes } => mailbox.put(Input::Message(id, bytes)),
        SessionEvent::Closed { id, reason } => {
            tracing::info!("session {} closed: {reason}", id.0);
            mailbox.command(SourceCommand::SessionClosed { session: id });
        }
        SessionEvent::Rejected { remote, reason } => {
            tracing::debug!("no session for {remote}: {reason}");
        }
    }
}

/// The host part of a URL: names resolve to it, addresses are it.
pub(crate) type UrlHost = Host;
