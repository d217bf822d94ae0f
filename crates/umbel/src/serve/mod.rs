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

mod allowance;
mod control;
mod courier;
pub(crate) mod host;
pub(crate) mod librarian;
pub(crate) mod prober;
mod questions;
mod staff;
pub(crate) mod status;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use umbel_engine::RateClass;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::policy::Policy;
use umbel_engine::repository::scheduler::SchedulerKind;
use umbel_engine::repository::{
    ControlConfig, SealConfig, Source, SourceCommand, SourceConfig, Token,
};
use umbel_engine::units::Rate;
use umbel_net::driver::DriverError;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::{SessionsPort, UdpPort};
use umbel_net::session::{
    Authorities, Host, Identity, Pin, ServerEndpoint, ServerOptions, SessionServer, SessionUrl,
};
use umbel_net::udp::SenderOptions;
use umbel_store::{BlockReader, Patterns, ReaderOptions, Repository, RepositoryOptions};
use umbel_wire::alc::DataHeader;
use umbel_wire::repository::GroupSecret;
use umbel_wire::sealed::SealedHeader;
use umbel_wire::{Channel, Scheme, Tsi};

pub use self::control::ControlChoice;
use self::host::{Input, ServeHost};
use self::prober::ProbeChannel;
use self::staff::Threads;
pub use self::status::{ClientReport, Report};
pub use crate::endpoint::pace::{LimitReport, PaceOptions};
use crate::endpoint::ports::DATA_PORT;
use crate::endpoint::{Wiring, channel, generator, interface, packet_len, random};

/// Options of a server: the items to serve, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// A directory, files of a crawl, or any files and directories.
    pub paths: Vec<PathBuf>,
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
    /// Most routers that may forward data packets, plus one.
    pub hop_limit: u8,
    /// Rate of the data channel, and of unicast beside it.
    pub pace: PaceOptions,
    /// MTU of the path in bytes; data packets carry 100 bytes less. Default: the interface's, at
    /// most 1500.
    pub mtu: Option<u16>,
    /// The erasure code.
    pub scheme: Scheme,
    /// Most source symbols in a block.
    pub block_symbols: u16,
    /// The reliability policy.
    pub policy: Option<Policy>,
    /// The scheduler. Default: the one that goes with the policy.
    pub scheduler: Option<SchedulerKind>,
    /// Directory of the key.
    pub state_dir: PathBuf,
    /// Way by which clients hear of transmissions.
    pub control: ControlChoice,
    /// The control group's port.
    pub control_port: u16,
    /// The token that clients must show. Multicasts are then sealed, and only such clients can read
    /// them.
    pub token: Option<String>,
    /// The server's certificate and key. Default: its own key in `state_dir`.
    pub identity: Option<Arc<Identity>>,
    /// Authorities of clients. Only clients with a certificate of one of them are admitted, and
    /// multicasts are sealed. Default: none.
    pub clients: Option<Arc<Authorities>>,
    /// Whether hidden files at the top of a directory are published. Default: no.
    pub hidden: bool,
    /// Whether symbolic links are served as the files that they lead to. Default: no, as links.
    pub follow_links: bool,
    /// Files of directories that are left out, beside those that `.umbelignore` says. Default:
    /// none.
    pub patterns: Patterns,
    /// Interval at which the path is scanned for changes; zero: never.
    pub rescan: Duration,
}

impl ServeOptions {
    /// Creates options with the defaults for paths, with the key kept in `state_dir`.
    pub fn new(paths: Vec<PathBuf>, state_dir: PathBuf) -> ServeOptions {
        ServeOptions {
            paths,
            listen: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7700),
            interface: None,
            family: None,
            group: None,
            port: DATA_PORT,
            hop_limit: 32,
            pace: PaceOptions::default(),
            mtu: None,
            scheme: Scheme::ReedSolomon,
            block_symbols: 128,
            policy: None,
            scheduler: None,
            state_dir,
            control: ControlChoice::Auto,
            control_port: 7701,
            token: None,
            identity: None,
            clients: None,
            hidden: false,
            follow_links: false,
            patterns: Patterns::default(),
            rescan: Duration::from_secs(2),
        }
    }

    /// Reads the key, which is made if there is none, and looks at the paths: what is wrong with them
    /// is told before anything waits for the network.
    ///
    /// # Errors
    ///
    /// If the key cannot be read or made, or a path is not there.
    pub fn prepare(&mut self) -> anyhow::Result<Arc<Identity>> {
        for path in &self.paths {
            std::fs::metadata(path).with_context(|| format!("cannot serve {}", path.display()))?;
        }
        let identity = match self.identity.take() {
            Some(identity) => identity,
            None => Arc::new(Identity::load_or_create(&self.state_dir)?),
        };
        Ok(self.identity.insert(identity).clone())
    }

    /// Returns whether the channels are sealed: if a token or certificates say who may read them.
    pub fn seals(&self) -> bool {
        self.token.is_some() || self.clients.is_some()
    }

    fn repository(&self, packet_len: u16) -> RepositoryOptions {
        let seal = if self.seals() { SealedHeader::OVERHEAD } else { 0 };
        let header = (DataHeader::LEN + seal) as u16;
        let symbol_len = packet_len.saturating_sub(header) & !7;
        let exact = self.policy.as_ref().is_some_and(Policy::is_exact);
        RepositoryOptions {
            scheme: if exact { Scheme::NoCode } else { self.scheme },
            symbol_len,
            max_block_symbols: self.block_symbols,
            own: crate::state::own(Some(&self.state_dir)),
            hidden: self.hidden,
            follow_links: self.follow_links,
            patterns: self.patterns.clone(),
            ..RepositoryOptions::default()
        }
    }
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct Server {
    url: SessionUrl,
    channel: Channel,
    control: Option<Channel>,
    interface: Interface,
    rate: Rate,
    sealed: bool,
    repository: Repository,
    report: Arc<Mutex<Report>>,
    mailbox: Mailbox<Input>,
    sessions: Option<SessionServer>,
    engine: Option<JoinHandle<Result<(), DriverError>>>,
}

/// Interface, addresses and limits of the data channel.
struct Outlet {
    interface: Interface,
    address: IpAddr,
    channel: Channel,
    rate: Rate,
    packet_len: u16,
    options: SenderOptions,
}

impl Outlet {
    fn choose(options: &ServeOptions, pin: &Pin) -> anyhow::Result<Outlet> {
        let interface = interface::choose(options.interface.as_deref(), options.family)?;
        let family = channel::choose_family(&interface, options.family, options.group)?;
        let address = interface.address(family)?;
        if options.port == 0 {
            bail!(
                "--channel-port 0 is no port for a channel: clients must know it; the default is \
                 7702"
            );
        }
        // Two servers on one network do not share the default.
        let group =
            options.group.unwrap_or_else(|| channel::specific_group(family, &pin.to_string()));
        let rate = options.pace.rate.unwrap_or_else(|| channel::most_rate(&interface));
        let sender = SenderOptions {
            source: Some(address),
            hop_limit: options.hop_limit,
            rate: Some(rate),
            ..SenderOptions::new(family)
        };
        Ok(Outlet {
            packet_len: packet_len(options.mtu, &interface, family)?,
            channel: channel::data_channel(group, options.port, address),
            interface,
            address,
            rate,
            options: sender,
        })
    }

    /// Returns the host for the URL: the address where sessions are accepted, or the interface's.
    fn url_host(&self, listen: IpAddr) -> Host {
        match if listen.is_unspecified() { self.address } else { listen } {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                Host::Zoned(ip, self.interface.name.clone())
            }
            ip => Host::Ip(ip),
        }
    }
}

impl Server {
    /// Scans the path, opens the ports and starts to serve.
    ///
    /// # Errors
    ///
    /// One line that says what cannot be opened or taken, and what to do.
    pub fn start(mut options: ServeOptions) -> anyhow::Result<Server> {
        let identity = options.prepare()?;
        let options = &options;
        let pin = identity.fingerprint();
        let outlet = Outlet::choose(options, &pin)?;
        let repository =
            Repository::open_all(&options.paths, options.repository(outlet.packet_len))
                .context("cannot serve")?;
        repository.start_hashing();
        // For each item, a client that resumes sends a message with the symbols that it needs.
        let limits = ServerOptions {
            clients: options.clients.clone(),
            messages_per_s: 20_000,
            message_burst: 200_000,
            ..ServerOptions::default()
        };
        let endpoint = ServerEndpoint::bind(options.listen, &identity, limits)?;
        let url = SessionUrl {
            host: outlet.url_host(options.listen.ip()),
            port: endpoint.local_addr().port(),
            pin: Some(pin),
            token: options.token.clone(),
        };
        let data = UdpPort::source(outlet.channel, &outlet.interface, &outlet.options)?;
        let group = control::open(options, &outlet.interface, &outlet.options, &pin)?;
        let (control, group) = group.unzip();

        let wiring = Wiring::new()?;
        let mailbox = wiring.mailbox().clone();
        let news = mailbox.map(Input::Session);
        let sessions = endpoint.start(move |event| event.post(&news))?;
        let answers = mailbox.map(Input::Answer);
        let config = source_config(options, &outlet, control)?;
        let probes = ProbeChannel {
            interface: outlet.interface.clone(),
            sender_options: outlet.options.clone(),
            channel: outlet.channel,
            tsi: config.tsi,
            rate: outlet.rate,
        };
        let (rescan, rate) = (options.rescan, outlet.rate);
        let threads =
            Threads::start(&repository, sessions.handle(), &answers, probes, rescan, rate)?;
        let reader =
            BlockReader::new(repository.content(), &ReaderOptions::default(), move || {
                answers.put(SourceCommand::SymbolsReady);
            })?;
        let report = Arc::new(Mutex::new(Report::default()));
        let host = ServeHost::new(threads, report.clone());
        let driver = wiring
            .driver(Source::new(config, generator()?, reader), host)
            .port(SessionsPort(sessions.handle()))
            .port(data)
            .ports(group)
            .pace(RateClass::Data, Some(outlet.rate), outlet.packet_len.into());
        let engine = std::thread::Builder::new()
            .name("umbel-engine".to_owned())
            .spawn(move || driver.run().map(drop))?;
        Ok(Server {
            url,
            channel: outlet.channel,
            control: control.map(|control| control.channel),
            interface: outlet.interface,
            rate: outlet.rate,
            sealed: options.seals(),
            repository,
            report,
            mailbox,
            sessions: Some(sessions),
            engine: Some(engine),
        })
    }

    /// Returns the URL that clients need.
    pub fn url(&self) -> &SessionUrl {
        &self.url
    }

    /// Returns the data channel.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Returns the multicast control group; `None` if transmissions are announced on the sessions.
    pub fn control(&self) -> Option<Channel> {
        self.control
    }

    /// Returns the interface of the data channel.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the rate of the data channel.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns whether only admitted clients can read what is sent by multicast.
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Returns the repository that is served.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the server's current status.
    pub fn report(&self) -> Report {
        self.report
            .lock()
            .map_or_else(|broken| broken.into_inner().clone(), |report| report.clone())
    }

    /// Returns whether the engine is still running. It stops only on an error.
    pub fn is_running(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| !engine.is_finished())
    }

    /// Stops the server. Tells the clients, and waits a moment for data on its way to them.
    ///
    /// # Errors
    ///
    /// The reason why the engine stopped, if it did so by itself.
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

fn source_config(
    options: &ServeOptions,
    outlet: &Outlet,
    control: Option<ControlConfig>,
) -> anyhow::Result<SourceConfig> {
    // Another run of this server, or another server, hardly ever has the same number, so packets of
    // the two are not mixed up.
    let tsi = Tsi(u32::from_be_bytes(random()?));
    let mut config = SourceConfig::new(tsi, outlet.channel, outlet.rate);
    config.packet_len = outlet.packet_len.into();
    config.congestion = Some(options.pace.congestion(outlet.rate, outlet.packet_len)?);
    config.token = options.token.clone().map(Token::from);
    if let Some(policy) = options.policy {
        config.policy = policy;
    }
    config.scheduler = options.scheduler.unwrap_or(config.policy.usual_scheduler());
    config.control = control;
    if options.seals() {
        config.seal = Some(SealConfig::new(GroupSecret(random()?)));
    }
    Ok(config)
}
