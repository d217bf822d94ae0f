//! The server: files, a directory by HTTP, or a pipe, to ordinary TCP clients, by multicast where
//! many clients want the same.
//!
//! ```text
//!  clients ──▶ PacketPort ──▶ Source ──events──▶ ServeHost ──▶ Desk ──▶ Library (a thread)
//!     ▲            │            ▲                                │
//!     └─ (S,G) ────┴── segments ┘◀──────────── Write ────────────┘
//! ```
//!
//! | part | does |
//! |---|---|
//! | `host.rs` | connects engine and desk, reports, ends |
//! | `desk.rs` | answers requests: together by multicast, or alone |
//! | `clients.rs`, `http` | what a client has sent; heads of requests and responses |
//! | `deliveries.rs` | bytes on their way from the library to the engine, by the room there |
//! | `parted.rs` | addresses that held up others |
//! | `library.rs` | files and pipes, read on their own thread |
//! | `acks.rs` | drops acknowledgements that the engine does not want |

pub(crate) mod acks;
mod clients;
mod deliveries;
pub(crate) mod desk;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod library;
mod parted;

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use umbel_engine::RateClass;
use umbel_engine::smo::{Join, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_net::packet::{PacketOptions, PacketPort};
use umbel_wire::Channel;

use self::acks::Acks;
use self::desk::Rules;
pub use self::desk::Start;
use self::host::{Input, ServeHost};
pub use self::host::{ServeObserver, ServeSummary};
use self::library::{Clerk, Library};
use super::address::{self, Group, Listen};
use super::control;
use super::report::Report;
pub use crate::endpoint::Interrupt;
use crate::endpoint::{Wiring, generator};

/// Segments for whose room new data waits: 64 KB, the longest frame that cards cut.
pub(crate) const FRAME: u32 = 44;

/// Content to serve.
pub enum What {
    /// The files of a directory, by HTTP.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Time at which something is multicast, from the first request for it on.
        start: Start,
        /// Shorter bodies are answered alone and at once.
        smallest: u64,
    },
    /// A file, from its beginning to everyone.
    File {
        /// The file.
        path: PathBuf,
        /// Time at which it begins.
        start: Start,
        /// Whether to go on once everyone who came has it.
        keep: bool,
    },
    /// Bytes as they come, for each client from the time of its connection on.
    Pipe {
        /// Input of the bytes.
        input: Box<dyn Read + Send>,
        /// Time at which it begins.
        start: Start,
    },
}

impl What {
    /// Creates a pipe from a file descriptor.
    pub fn pipe(input: File, start: Start) -> What {
        What::Pipe { input: Box::new(input), start }
    }
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address at which clients connect.
    pub listen: Listen,
    /// Group to which the stream is multicast.
    pub channel: Group,
    /// Name or address of the interface. Default: that of the address.
    pub interface: Option<String>,
    /// Address of the server if no interface has it.
    pub address: Option<IpAddr>,
    /// Rules of the engine. Its port and channel are overwritten.
    pub config: SourceConfig,
    /// Highest rate of first transmissions.
    pub rate: Option<Rate>,
    /// Maximum number of hops of multicasts.
    pub hop_limit: u8,
    /// Whether acknowledgements that tell nothing new are dropped before they reach the program,
    /// where that is possible.
    pub ack_filter: bool,
}

impl ServeOptions {
    /// Creates options with the defaults.
    pub fn new(listen: Listen, channel: Group) -> ServeOptions {
        let Group(group) = channel;
        let any = Channel { source: None, group: group.ip(), port: group.port() };
        ServeOptions {
            listen,
            channel,
            interface: None,
            address: None,
            config: SourceConfig { frame: FRAME, ..SourceConfig::new(listen.port, any) },
            rate: None,
            hop_limit: PacketOptions::default().hop_limit,
            ack_filter: true,
        }
    }
}

impl ServeOptions {
    /// Returns the longest payload that segments have on a port.
    pub(crate) fn mss(&self, port: &PacketPort) -> u16 {
        let most = port.max_segment().saturating_sub(HEADER);
        self.config.mss.min(u16::try_from(most).unwrap_or(u16::MAX))
    }
}

/// Behaviour of a server with its library.
#[derive(Clone, Copy)]
pub(crate) struct Conduct {
    /// Form of requests.
    pub(crate) rules: Rules,
    /// Whether it goes on after everyone is served.
    pub(crate) keep: bool,
}

/// A server that listens.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Address at which clients connect.
    pub listen: SocketAddr,
    /// Group and port to which the stream is multicast.
    pub channel: SocketAddr,
    /// Name of the interface.
    pub interface: String,
}

/// The place of a server: address, interface and port.
pub(crate) struct Place {
    pub(crate) listen: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) interface: Interface,
    pub(crate) port: PacketPort,
    pub(crate) acks: Acks,
}

impl Place {
    /// Opens the place of a server.
    pub(crate) fn open(options: &ServeOptions) -> anyhow::Result<Place> {
        let Group(group) = options.channel;
        let family = Family::of(group.ip());
        let wanted = options.interface.as_deref();
        let (interface, listen) = address::local(options.listen, options.address, wanted, family)?;
        let channel = Channel { source: Some(listen.ip()), group: group.ip(), port: group.port() };
        let packet = PacketOptions { hop_limit: options.hop_limit, ..PacketOptions::default() };
        let port = PacketPort::open(listen, channel.group, &interface, &packet)?;
        let acks = Acks::open(options, listen, &interface);
        Ok(Place { listen, channel, interface, port, acks })
    }
}

/// Serves. Returns when everything is sent, or the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be served, and what to do.
pub fn serve(
    what: What,
    options: &ServeOptions,
    observer: &Arc<dyn ServeObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<ServeSummary> {
    let wiring = Wiring::new()?;
    started(wiring.interrupt(|| Input::Interrupt));
    let news = wiring.mailbox().map(Input::News);
    let (library, rules, keep) = match what {
        What::Directory { path, start, smallest } => {
            (Clerk::directory(&path, news)?, Rules::Web { start, smallest }, true)
        }
        What::File { path, start, keep } => (Clerk::file(&path, news)?, Rules::File(start), keep),
        What::Pipe { input, start } => (Clerk::pipe(input, news)?, Rules::Live(start), false),
    };
    let conduct = Conduct { rules, keep };
    let place = Place::open(options)?;
    run(library, conduct, place, options, observer, wiring)
}

/// Runs a server on its place.
pub(crate) fn run(
    library: impl Library,
    conduct: Conduct,
    place: Place,
    options: &ServeOptions,
    observer: &Arc<dyn ServeObserver>,
    wiring: Wiring<Input>,
) -> anyhow::Result<ServeSummary> {
    let Place { listen, channel, interface, port, acks } = place;
    let Conduct { rules, keep } = conduct;
    let join = if matches!(rules, Rules::Live(_)) { Join::AtOnce } else { Join::Asked };
    let mss = options.mss(&port);
    let acks_per_window = acks.per_window();
    let config = SourceConfig {
        port: listen.port(),
        channel,
        join,
        mss,
        acks_per_window,
        ..options.config.clone()
    };
    let engine = Source::new(config.clone(), generator()?);
    let group = SocketAddr::new(channel.group, channel.port);
    if let Err(error) = control::answer(listen, wiring.mailbox().clone()) {
        tracing::warn!("`umbel smo status` will not be answered: {error}");
    }
    observer.serving(&Serving { listen, channel: group, interface: interface.name });
    let report =
        Report { listen: listen.to_string(), channel: group.to_string(), ..Report::default() };
    let host = ServeHost::new(library, rules, &config, report, observer.clone());
    let host = host.rate(options.rate).keep(keep).acks(acks);
    let driver = wiring.driver(engine, host).port(port);
    let packet_len = usize::from(mss) + HEADER;
    Ok(driver.pace(RateClass::Data, options.rate, packet_len).run()?.summary())
}

/// Bytes of a TCP header with the membership option.
pub(crate) const HEADER: usize = 28;
