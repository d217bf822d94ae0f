//! A gateway from a ladder on multicast to players on this machine.
//!
//! ```text
//! directory::Station ─▶ which stream
//! a channel for each rendition, control group ─▶ driver ─ Receiver ─ GatewayHost ─▶ Board ◀─ HTTP ◀─ player
//!                                                               ▲          │
//!                                              source ─ HTTP ─▶ Fetcher ◀──┘ what was lost
//! ```
//!
//! The receiver takes the one rendition that its path carries [RLM §2, independent layers]. Parts
//! that multicast did not bring whole are fetched from the source, if it repairs.

pub(crate) mod board;
mod fetcher;
pub(crate) mod host;
pub(crate) mod repairs;
pub(crate) mod shelf;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::rlm::ControllerKind;
use umbel_net::interface::Interface;
use umbel_wire::stream::{Stream, StreamContent};

use self::board::Board;
use self::fetcher::Fetcher;
use self::host::{GatewayHost, Input};
use crate::directory::{SessionSelector, Silence, Succession};
pub use crate::endpoint::Interrupt;
use crate::endpoint::{Wiring, generator};
use crate::http::{Names, Server};
pub use crate::watch::Experiment;
use crate::watch::reception;

/// Options of a gateway: the stream, and how to serve it.
#[derive(Debug)]
pub struct GatewayOptions {
    /// The stream.
    pub stream: SessionSelector,
    /// Address at which players find it. Default 127.0.0.1:8081.
    pub listen: SocketAddr,
    /// Names of this machine under which players ask, besides its addresses and those that it has
    /// itself.
    pub host_names: Vec<String>,
    /// Rule by which the level is chosen.
    pub controller: ControllerKind,
    /// Best rendition that is received, from 1. Default: all.
    pub max_level: Option<u8>,
    /// Name or address of the interface. Default: that of the default route.
    pub interface: Option<String>,
    /// Time to wait for a stream of this name to be on the air.
    pub wait: Duration,
    /// Whether lost parts are fetched from the source.
    pub repair: bool,
    /// Directory of the senders that are known. Default: that of the user.
    pub state_dir: Option<PathBuf>,
}

impl GatewayOptions {
    /// Creates options with the defaults.
    pub fn new(stream: SessionSelector) -> GatewayOptions {
        GatewayOptions {
            stream,
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            host_names: Vec::new(),
            controller: ControllerKind::default(),
            max_level: None,
            interface: None,
            wait: Duration::from_secs(10),
            repair: true,
            state_dir: None,
        }
    }
}

/// A second of a gateway.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GatewaySnapshot {
    /// Seconds since the start.
    pub seconds: f64,
    /// Rendition that is received, from 1; 0 for none.
    pub level: u8,
    /// Number of renditions that there are.
    pub layers: u8,
    /// State of the receiver [RLM Fig. 6]: `steady`, `hysteresis`, `measurement`, `drop`; `left`
    /// outside.
    pub state: &'static str,
    /// UDP payload received, in bits per second.
    pub rate_bits_per_s: u64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Packets lost so far.
    pub lost: u64,
    /// Packets so far that were dropped since the source had not signed them.
    pub forged: u64,
    /// Packets so far that were dropped without a look, since more wrong signatures came than are
    /// verified.
    pub unchecked: u64,
    /// Estimated number of receivers.
    pub receivers: u64,
    /// Join-experiments so far.
    pub experiments: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Segments in the playlist.
    pub held: usize,
    /// Seconds that they last.
    pub held_s: f64,
    /// Bytes of the segments that are served.
    pub held_bytes: u64,
    /// Width and height of the newest segment's rendition.
    pub resolution: Option<String>,
    /// Name of the newest segment at the source.
    pub newest: Option<String>,
    /// Segments put into the playlist so far.
    pub segments: u64,
    /// Segments left out, since they were nowhere in time.
    pub skipped: u64,
    /// Changes of the rendition.
    pub switches: u64,
    /// Files that are no part of a ladder.
    pub refused: u64,
    /// Files completed from the source.
    pub repaired: u64,
    /// Bytes fetched for these.
    pub repaired_bytes: u64,
    /// Files that were lost, but not needed any more when they would have been fetched.
    pub suppressed: u64,
    /// Files that could not be completed.
    pub unrepaired: u64,
    /// Whether the stream is over.
    pub over: bool,
}

/// Result of a gateway.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GatewaySummary {
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// Level at the end.
    pub level: u8,
    /// Segments put into the playlist.
    pub segments: u64,
    /// Segments left out, since they were nowhere in time.
    pub skipped: u64,
    /// Changes of the rendition.
    pub switches: u64,
    /// Files completed from the source.
    pub repaired: u64,
    /// Bytes fetched for these.
    pub repaired_bytes: u64,
    /// Packets received.
    pub packets: u64,
    /// Bytes of UDP payload received.
    pub bytes: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets dropped since the source had not signed them.
    pub forged: u64,
    /// Packets dropped without a look, since more wrong signatures came than are verified.
    pub unchecked: u64,
    /// Join-experiments.
    pub experiments: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Datagrams that this host's kernel dropped because the program was too slow.
    pub dropped_here: u64,
    /// Whether the source announced the end.
    pub over: bool,
    /// Whether the user interrupted it.
    pub interrupted: bool,
    /// Whether the source was started again, and another stream took the place of this one.
    #[serde(skip)]
    replaced: bool,
}

/// Receives news of a gateway. It is called on the engine's thread and must not block.
pub trait GatewayObserver: Send + Sync {
    /// Players are served at this address.
    fn listening(&self, _address: SocketAddr) {}

    /// Called when the stream was found.
    fn found(&self, _stream: &Stream, _interface: &str) {}

    /// Called when the level changed.
    fn level(&self, _level: u8, _layers: u8, _reason: &'static str) {}

    /// News of a join-experiment.
    fn experiment(&self, _experiment: &Experiment) {}

    /// Reports on a second.
    fn second(&self, _snapshot: &GatewaySnapshot) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}
}

/// Serves a stream to players until it is over, or the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be received or served, and what to do.
pub fn gateway(
    mut options: GatewayOptions,
    observer: &Arc<dyn GatewayObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<GatewaySummary> {
    let mut succession = Succession::open(options.interface.as_deref())?;
    started(succession.interrupt(|| Input::Interrupt));
    let board = Arc::new(Board::new(options.stream.name.clone()));
    // Before the stream is there, so that a player may be started first.
    let names = Names::of_machine(&options.host_names);
    let server = Server::start(options.listen, names, board.clone())
        .context("players cannot be served: choose another --listen")?;
    observer.listening(server.address());
    let note = |line: &str| observer.note(line);
    let (state_dir, wait) = (options.state_dir.take(), options.wait);
    let found = succession.find(&mut options.stream, state_dir, wait, (note, note))?;
    let Some((stream, key)) = found else {
        return Ok(GatewaySummary { interrupted: true, ..GatewaySummary::default() });
    };
    let mut summary = GatewaySummary::default();
    let news = |news| Some(Input::News(news));
    succession.run(
        (&options.stream, stream),
        news,
        note,
        |stream: Stream, interface, wiring, silence| {
            if stream.content != StreamContent::Hls {
                let name = &stream.name;
                bail!("`{name}` is no HLS: see it with `umbel watch '{name}' -o - | ffplay -`");
            }
            board.shelf().restart(stream.layers.len());
            // A successor has the same key.
            let heard = (wiring, silence);
            summary = receive((&stream, key), &options, &board, interface, observer, heard)?;
            Ok(summary.replaced)
        },
    )?;
    drop(server);
    Ok(summary)
}

/// Receives one stream, until it is over or replaced, or the user ends it.
fn receive(
    (stream, key): (&Stream, [u8; 32]),
    options: &GatewayOptions,
    board: &Arc<Board>,
    interface: &Interface,
    observer: &Arc<dyn GatewayObserver>,
    (wiring, silence): (Wiring<Input>, Silence),
) -> anyhow::Result<GatewaySummary> {
    observer.found(stream, &interface.name);
    let repair = stream.repair.filter(|_| options.repair);
    let source = repair.map(|port| SocketAddr::new(stream.source.ip(), port));
    let source = source.map(|source| Fetcher::start(source, wiring.mailbox().clone())).transpose();
    let source = source.context("cannot start")?;
    let layers = stream.layers.len() as u8;
    let signed_by = reception::key_of(stream, key);
    let host = GatewayHost::new(
        (layers, signed_by),
        board.clone(),
        source,
        generator()?,
        observer.clone(),
    )
    .with_silence(silence);
    let levels = (options.controller, options.max_level);
    Ok(reception::run((stream, key), interface, levels, host, wiring)?.summary())
}
