//! The source of a stream whose packets are anyone's RTP.
//!
//! ```text
//! encoder ─ RTP ─▶ a port for each layer ─▶ RtpHost ─ Source ── driver ─┬▶ a channel for each layer (SSM)
//!           SDP ─▶ ports, formats, rates                                └◀ control group
//! directory::Announcer
//! ```
//!
//! The media of a session description are the layers, the base first. Each RTP packet is a unit of
//! its layer, and is carried as it is; one that is too long for a packet of the stream is several
//! ([`parts`](umbel_wire::rtp::parts)). Packets of RTCP are not carried. A stream has one medium, so
//! there is nothing to synchronise, and reports of receivers would end at their gateway.

mod described;
pub(crate) mod host;
pub(crate) mod intake;
pub(crate) mod sockets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::rlm::{LayerConfig, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_wire::rlm::SignedHeader;
use umbel_wire::sdp::DESCRIPTION_LEN;
use umbel_wire::signed::LINE_LEN;
use umbel_wire::stream::{LayerFec, LayerInfo, StreamContent, StreamMode};

use self::described::Described;
use self::host::{Input, RtpHost};
use self::sockets::{Backlog, Sockets};
use super::ladder::LENGTH_LEN;
use super::way::{Said, Way};
use super::{AirSnapshot, BLOCK_TIME, StreamObserver};
pub use crate::endpoint::Interrupt;
use crate::endpoint::{Interrupted, Wiring};

/// Time for which a packet may wait for the pace of its layer. Chosen: a key frame of half a
/// second's rate passes.
const QUEUE_TIME: Duration = Duration::from_millis(500);

/// Options of a source of RTP.
#[derive(Debug)]
pub struct RtpOptions {
    /// File of the session description: addresses, ports, formats, and the rates if `layers` has
    /// none.
    pub description: PathBuf,
    /// Whether the layers are encodings of the same, of which a receiver takes one. Otherwise each
    /// adds to those below it.
    pub simulcast: bool,
    /// Rates of the layers on the wire. Default: those of the description and `headroom`.
    pub layers: Option<Vec<Rate>>,
    /// Share of a layer's rate beyond what the description tells.
    pub headroom: f64,
    /// Codes of the layers, the base first; further layers have none. Default: none.
    pub fec: Vec<Option<LayerFec>>,
    /// The way of the stream.
    pub way: Way,
}

impl RtpOptions {
    /// Creates options with the defaults.
    pub fn new(description: PathBuf, way: Way) -> RtpOptions {
        RtpOptions {
            description,
            simulcast: false,
            layers: None,
            headroom: 0.25,
            fec: Vec::new(),
            way,
        }
    }
}

/// Progress of a source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RtpSnapshot {
    /// Reports that every source makes.
    #[serde(flatten)]
    pub air: AirSnapshot,
    /// RTP packets taken.
    pub taken: u64,
    /// Datagrams that were no RTP of this stream.
    pub refused: u64,
    /// Packets that were not sent, since more came than the rates of the layers allow.
    pub dropped: u64,
    /// Whether no packets of a layer come.
    pub stalled: bool,
}

/// Result of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RtpSummary {
    /// Seconds from the first packet to the last.
    pub seconds: f64,
    /// RTP packets taken.
    pub taken: u64,
    /// Datagrams that were no RTP of this stream.
    pub refused: u64,
    /// Packets of RTCP, which are not carried.
    pub rtcp: u64,
    /// Packets that came twice, as by two interfaces on one network. Each is sent once.
    pub repeated: u64,
    /// Packets that were not sent, since more came than the rates of the layers allow.
    pub dropped: u64,
    /// Packets sent, repairs included.
    pub packets: u64,
    /// Bytes of UDP payload sent.
    pub bytes: u64,
    /// Repair packets sent.
    pub repairs: u64,
    /// Join-experiments heard.
    pub experiments: u64,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// A layer: what it takes on the wire, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lane {
    /// Rate on the wire with all headers, at packets of full length.
    pub(crate) rate: Rate,
    /// Rate of UDP payload, for the pacer.
    pub(crate) pace: Rate,
    /// The layer's code.
    pub(crate) fec: Option<LayerFec>,
    /// Payload type of its RTP packets.
    pub(crate) payload_type: u8,
}

/// Streams RTP until the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be received or sent, and what to do.
pub fn stream_rtp(
    options: RtpOptions,
    observer: Arc<dyn StreamObserver<RtpSnapshot>>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<RtpSummary> {
    let wiring = Wiring::new()?;
    let interrupted = Interrupted::default();
    started(interrupted.with(wiring.interrupt(|| Input::Interrupt)));
    let described = Described::read(&options.description, |line| observer.note(line))?;
    let rates = described.rates(options.layers, options.headroom)?;
    let mode = if options.simulcast {
        described.check_simulcast(&rates)?;
        StreamMode::Independent
    } else {
        StreamMode::Cumulative
    };
    let Some(ground) = options.way.ground(|line| observer.note(line), &interrupted)? else {
        return Ok(RtpSummary { interrupted: true, ..RtpSummary::default() });
    };
    let (packet_len, family) = (ground.packet_len, ground.family);
    let lanes = described.lanes(&rates, &options.fec, packet_len, family);
    let sockets = Sockets::open(&described.entrances, &ground.interface)?;
    let symbol_len = packet_len - SignedHeader::LEN as u16;
    let air = ground.open(Said {
        mode,
        symbol_len,
        layers: lanes.iter().map(Lane::info).collect(),
        content: StreamContent::Rtp(described.formats),
        repair: None,
    })?;
    if air.stream.describe("umbel").emit().len() + LINE_LEN + 64 > DESCRIPTION_LEN {
        bail!("the session description has formats that are too long to be announced");
    }
    let mut config = SourceConfig::new(air.stream.tsi, air.stream.base, lanes.len() as u8);
    config.layers = lanes.iter().map(|lane| LayerConfig { fec: lane.fec }).collect();
    config.control = air.stream.control;
    config.block_time = BLOCK_TIME;
    config.queue_time = QUEUE_TIME;
    let engine = Source::new(config)?;

    let announcer = air.announce()?;
    let address = air.watch_address({
        let observer = observer.clone();
        move |line| observer.note(line)
    })?;
    observer.begun(&air.begun());
    let backlog = Arc::<Backlog>::default();
    let most = usize::from(symbol_len - LENGTH_LEN);
    let host = RtpHost::new(&lanes, most, backlog.clone(), observer);
    let receiving = sockets.start(wiring.mailbox(), &backlog).context("cannot start")?;
    let host = air.send(engine, host, wiring, lanes.iter().map(|lane| lane.pace))?;
    drop((announcer, address, receiving));
    Ok(host.summary())
}

impl Lane {
    /// Returns the layer as it is announced.
    fn info(&self) -> LayerInfo {
        LayerInfo { kbit_per_s: self.rate.bits_per_s().div_ceil(1_000), fec: self.fec }
    }
}
