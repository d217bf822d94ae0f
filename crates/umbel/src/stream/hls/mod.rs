//! The source of a ladder of HTTP Live Streaming.
//!
//! ```text
//! directory ─▶ reader ─▶ HlsHost ─ Source ── driver ─┬▶ a channel for each rendition (SSM)
//!                           │                        └◀ control group
//!                           └▶ Recent ◀── HTTP ◀── receivers that lost something
//! directory::Announcer
//! ```
//!
//! Each rendition is its own layer; a receiver takes one of them. Each segment is an object, sent
//! when the playlist names it, and followed by the playlist, which names the last segments only.
//! Files that receivers need before any segment (the master playlist, the init file) are sent again
//! every 2 s. Names are those of the files.

pub(crate) mod host;
pub(crate) mod ladder;
mod reader;
pub(crate) mod recent;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use umbel_engine::rlm::{LayerConfig, Source, SourceConfig};
use umbel_wire::rlm::SignedHeader;
use umbel_wire::stream::{LayerFec, StreamContent, StreamMode};

use self::host::{HlsHost, Input};
use self::reader::{Ladder, Stop};
use self::recent::Recent;
use super::way::{Said, Way};
use super::{AirSnapshot, StreamObserver};
pub use crate::endpoint::Interrupt;
use crate::endpoint::{Interrupted, Wiring};
use crate::http::{Names, Server};

/// Options of a source of HLS.
#[derive(Debug)]
pub struct HlsOptions {
    /// Directory of the master playlist.
    pub directory: PathBuf,
    /// Code of all layers.
    pub fec: Option<LayerFec>,
    /// Share of a layer's rate beyond what its rendition needs.
    pub headroom: f64,
    /// Address at which receivers may fetch what they lost. Default: none.
    pub repair: Option<SocketAddr>,
    /// The way of the stream.
    pub way: Way,
}

impl HlsOptions {
    /// Creates options with the defaults.
    pub fn new(directory: PathBuf, way: Way) -> HlsOptions {
        let fec = Some(LayerFec { source_symbols: 128, repair_symbols: 13 });
        HlsOptions { directory, fec, headroom: 0.25, repair: None, way }
    }
}

/// Progress of a source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HlsSnapshot {
    /// Reports that every source makes.
    #[serde(flatten)]
    pub air: AirSnapshot,
    /// Segments sent.
    pub segments: u64,
    /// Playlists and files that were not followed, or missing.
    pub refused: u64,
    /// Whether no segments come.
    pub stalled: bool,
}

/// Result of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HlsSummary {
    /// Seconds from the first segment to the last.
    pub seconds: f64,
    /// Segments sent.
    pub segments: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Playlists and files that were not followed, or missing.
    pub refused: u64,
    /// Packets sent, repairs included.
    pub packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Repair packets sent.
    pub repairs: u64,
    /// Join-experiments heard.
    pub experiments: u64,
    /// Reason why it broke off, if it did.
    pub failure: Option<String>,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// Sends a ladder. Returns when it is over, or the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be sent, and what to do. The [`HlsSummary`] says why it broke
/// off later.
pub fn stream_hls(
    options: HlsOptions,
    observer: Arc<dyn StreamObserver<HlsSnapshot>>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<HlsSummary> {
    let HlsOptions { directory, fec, headroom, repair, way } = options;
    let wiring = Wiring::new()?;
    let stop = Stop::new().context("cannot start")?;
    let interrupted = Interrupted::default();
    started(interrupted.with(wiring.interrupt({
        let stop = stop.clone();
        move || {
            stop.stop();
            Input::Interrupt
        }
    })));
    let Some(ground) = way.ground(|line| observer.note(line), &interrupted)? else {
        return Ok(HlsSummary { interrupted: true, ..HlsSummary::default() });
    };
    let opened = Ladder::open(&directory, stop.clone(), |line| observer.note(line))?;
    let Some(ladder) = opened else {
        return Ok(HlsSummary { interrupted: true, ..HlsSummary::default() });
    };
    let packet_len = ground.packet_len;
    let rungs = ladder::rungs(ladder.master(), fec, headroom, packet_len, ground.family)?;
    let recent = repair.map(|_| Arc::new(Recent::default()));
    let server = match (repair, &recent) {
        (Some(address), Some(recent)) => {
            Some(Server::start(address, Names::default(), recent.clone())?)
        }
        _ => None,
    };
    let symbol_len = (packet_len - SignedHeader::LEN as u16) & !7;
    let air = ground.open(Said {
        mode: StreamMode::Independent,
        symbol_len,
        layers: rungs.iter().map(ladder::Rung::info).collect(),
        content: StreamContent::Hls,
        repair: server.as_ref().map(|server| server.address().port()),
    })?;
    let mut config = SourceConfig::new(air.stream.tsi, air.stream.base, rungs.len() as u8);
    config.layers = rungs.iter().map(|rung| LayerConfig { fec: rung.fec }).collect();
    config.control = air.stream.control;
    config.symbol_len = symbol_len;
    let engine = Source::new(config)?;

    if let Some(recent) = &recent {
        let (signer, version) = air.signer();
        recent.sign(signer, version);
    }
    let announcer = air.announce()?;
    let address = air.watch_address({
        let observer = observer.clone();
        move |line| observer.note(line)
    })?;
    observer.begun(&air.begun());
    let host = HlsHost::new(rungs.clone(), ladder.master_item(), recent, observer);
    ladder.start(wiring.mailbox().clone()).context("cannot start")?;
    let host = air.send(engine, host, wiring, rungs.iter().map(|rung| rung.pace));
    stop.stop();
    drop((announcer, address, server));
    Ok(host?.summary())
}

#[cfg(test)]
mod tests;
