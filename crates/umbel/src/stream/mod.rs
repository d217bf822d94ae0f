//! The source of a layered live stream.
//!
//! ```text
//! input ─▶ reader ─▶ encoder ─▶ StreamHost ─ Source ── driver ─┬▶ a channel for each layer (SSM)
//!                                                              └◀ control group
//! directory::Announcer
//! ```
//!
//! The source takes no part in the adaptation: it sends all layers, and receivers join as many as
//! their paths carry [RLM §2]. In the control group it only counts them. Each packet is signed with
//! the key of the announcement.

mod encoder;
pub mod hls;
pub(crate) mod host;
pub mod input;
pub(crate) mod ladder;
mod on_air;
pub mod rtp;
mod way;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::rlm::{LayerConfig, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_net::session::Pin;
use umbel_video::{Encoder, EncoderConfig, y4m};
use umbel_wire::Tsi;
use umbel_wire::rlm::SignedHeader;
use umbel_wire::stream::{FrameRate, LayerFec, LayerInfo, Stream, StreamContent, StreamMode};

use self::encoder::Filming;
use self::host::{Input as ToHost, StreamHost};
use self::input::{Conversion, Converter, Input, Video};
use self::ladder::{LENGTH_LEN, Shape, Step};
pub use self::on_air::{AirSnapshot, LayerSnapshot};
pub use self::way::Way;
use self::way::{Ground, Said};
pub use crate::endpoint::Interrupt;
use crate::endpoint::{Interrupted, Wiring};

/// Time after which a block of a layer's code is closed. A restored packet comes later by this much
/// at most. In less, a slow base layer has so few packets that each would need its own repair.
pub(crate) const BLOCK_TIME: Duration = Duration::from_millis(500);

/// Options of a source of video.
#[derive(Debug)]
pub struct StreamOptions {
    /// Options of the input.
    pub conversion: Conversion,
    /// Its name, and its way to its receivers.
    pub way: Way,
    /// Rates of the layers on the wire, the base first. Each is what the layer adds. Default: six
    /// layers by the picture's size.
    pub layers: Option<Vec<Rate>>,
    /// Codes of the layers, the base first; further layers have none. Default: 8 + 3 symbols for
    /// the base, 16 + 2 for the next.
    pub fec: Option<Vec<Option<LayerFec>>>,
}

impl StreamOptions {
    /// Creates options with the defaults.
    pub fn new(way: Way) -> StreamOptions {
        StreamOptions { conversion: Conversion::default(), way, layers: None, fec: None }
    }
}

/// A stream that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The stream as it is announced.
    pub stream: Stream,
    /// Fingerprint of the key by which it is signed.
    pub pin: Pin,
    /// Name of the interface.
    pub interface: String,
}

/// Progress of a source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamSnapshot {
    /// Reports that every source makes.
    #[serde(flatten)]
    pub air: AirSnapshot,
    /// Pictures encoded.
    pub pictures: u64,
    /// Pictures for which the encoder had no time.
    pub left_out: u64,
    /// Mean time for which a picture was in the encoder, in milliseconds.
    pub encoding_ms: f64,
    /// Whether no pictures come.
    pub stalled: bool,
}

/// Result of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamSummary {
    /// Seconds from the first picture to the last.
    pub seconds: f64,
    /// Pictures encoded.
    pub pictures: u64,
    /// Pictures for which the encoder had no time.
    pub left_out: u64,
    /// Packets sent, repairs included.
    pub packets: u64,
    /// Bytes of UDP payload sent.
    pub bytes: u64,
    /// Repair packets sent.
    pub repairs: u64,
    /// Packets that waited too long, and were not sent.
    pub dropped: u64,
    /// Join-experiments heard.
    pub experiments: u64,
    /// Reason why the input broke off, if it did.
    pub failure: Option<String>,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// Receives news of a source whose progress is an `S`. It is called on the engine's thread and must
/// not block.
pub trait StreamObserver<S>: Send + Sync {
    /// Called when the stream is on the air.
    fn begun(&self, _begun: &Begun) {}

    /// Reports progress, about ten times a second.
    fn progress(&self, _snapshot: &S) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}
}

/// Time that the first line of an input is waited for before the user is told.
const PATIENCE: Duration = Duration::from_secs(3);

/// Streams a video. Returns when the input is over, or the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be sent, and what to do. The [`StreamSummary`] says why an
/// input broke off later.
pub fn stream(
    video: Video,
    options: StreamOptions,
    observer: Arc<dyn StreamObserver<StreamSnapshot>>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<StreamSummary> {
    let wiring = Wiring::new()?;
    let interrupted = Interrupted::default();
    let (interrupt, interrupts) = crossbeam_channel::bounded(1);
    started(interrupted.with(wiring.interrupt(move || {
        let _ = interrupt.try_send(());
        ToHost::Interrupt
    })));
    let StreamOptions { conversion, layers, fec, way } = options;
    let Some(ground) = way.ground(|line| observer.note(line), &interrupted)? else {
        return Ok(StreamSummary { interrupted: true, ..StreamSummary::default() });
    };
    let filming = Filming::default();
    let opened = open(video, conversion, filming.converter.clone())?;
    let mut told = false;
    let input = loop {
        crossbeam_channel::select! {
            recv(opened) -> input => break input.context("the input cannot be read")??,
            recv(interrupts) -> _ => {
                return Ok(StreamSummary { interrupted: true, ..StreamSummary::default() });
            }
            default(PATIENCE) => if !std::mem::replace(&mut told, true) {
                observer.note("waiting for the first picture");
            },
        }
    };

    if filming.converter.has_sound() {
        observer.note("the sound of the input is not sent: `umbel stream --hls` sends both");
    }
    let header = *input.header();
    let (tsi, packet_len) = (ground.tsi, ground.packet_len);
    let plan = Plan::new(layers, fec, &header, &ground)?;
    let encoder = Encoder::new(header.size, header.rate, plan.encoder(&ground))?;
    let air = ground.open(Said {
        mode: StreamMode::Cumulative,
        symbol_len: packet_len - SignedHeader::LEN as u16,
        layers: plan.ladder.iter().map(layer_info).collect(),
        content: plan.content,
        repair: None,
    })?;
    let mut config = SourceConfig::new(tsi, air.stream.base, plan.ladder.len() as u8);
    config.layers = plan.ladder.iter().map(|step| LayerConfig { fec: step.fec }).collect();
    config.control = air.stream.control;
    config.block_time = BLOCK_TIME;
    let engine = Source::new(config)?;

    let announcer = air.announce()?;
    let address = air.watch_address({
        let observer = observer.clone();
        move |line| observer.note(line)
    })?;
    observer.begun(&air.begun());
    let host = StreamHost::new(&plan.ladder, observer);
    encoder::start(input, encoder, wiring.mailbox(), &filming).context("cannot start")?;
    let host = air.send(engine, host, wiring, plan.ladder.iter().map(|step| step.pace))?;
    drop((announcer, address, filming));
    Ok(host.summary())
}

/// Opens an input on its own thread, since it may wait forever for its first line.
fn open(
    video: Video,
    conversion: Conversion,
    converter: Converter,
) -> anyhow::Result<crossbeam_channel::Receiver<anyhow::Result<Input>>> {
    let (give, take) = crossbeam_channel::bounded(1);
    let open = move || {
        let _ = give.send(Input::open(video, &conversion, converter));
    };
    std::thread::Builder::new().name("umbel-open".to_owned()).spawn(open)?;
    Ok(take)
}

/// The content.
struct Plan {
    ladder: Vec<Step>,
    content: StreamContent,
}

impl Plan {
    fn new(
        rates: Option<Vec<Rate>>,
        codes: Option<Vec<Option<LayerFec>>>,
        header: &y4m::Header,
        ground: &Ground,
    ) -> anyhow::Result<Plan> {
        let y4m::Header { size, rate } = *header;
        let pictures = FrameRate::new(rate.numerator(), rate.denominator());
        let pictures = pictures.context("the frame rate of the input is out of range")?;
        let default = || ladder::default_rates(size.width(), size.height(), pictures);
        let rates = rates.unwrap_or_else(default);
        if !(1..=umbel_video::MAX_LAYERS).contains(&rates.len()) {
            bail!("{} layers: a stream has 1 to {}", rates.len(), umbel_video::MAX_LAYERS);
        }
        let codes = codes.unwrap_or_else(ladder::default_fec);
        let Ground { family, packet_len, .. } = *ground;
        let shape = Shape { family, packet_len, pictures, block_time: BLOCK_TIME };
        let content = StreamContent::Video {
            codec: umbel_video::FORMAT,
            width: u16::try_from(size.width()).context("too wide")?,
            height: u16::try_from(size.height()).context("too high")?,
            rate: pictures,
        };
        Ok(Plan { ladder: ladder::steps(&rates, &codes, &shape)?, content })
    }

    fn encoder(&self, ground: &Ground) -> EncoderConfig {
        let alc = SignedHeader::LEN + usize::from(LENGTH_LEN);
        EncoderConfig {
            layer_bits_per_s: self.ladder.iter().map(|step| step.encoder_bits_per_s).collect(),
            packet_len: usize::from(ground.packet_len) - alc,
            packet_overhead: alc + ground.family.header_bytes(),
            stream: codec_stream(ground.tsi),
            ..EncoderConfig::default()
        }
    }
}

/// Returns the number by which the codec tells a stream from others.
pub(crate) fn codec_stream(tsi: Tsi) -> u16 {
    tsi.0 as u16
}

fn layer_info(step: &Step) -> LayerInfo {
    LayerInfo { kbit_per_s: step.rate.bits_per_s().div_ceil(1_000), fec: step.fec }
}
