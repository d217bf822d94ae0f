//! The source of a stream whose packets are anyone's RTP.
//!
//! ```text
//! encoder ─ RTP ─▶ a port for each layer ─▶ RtpHost ─ Source ── driver ─┬▶ a channel for each layer (SSM)
//!           SDP ─▶ ports, formats, rates                                └◀ control group
//! directory::Announcer
//! ```
//!
//! The media of a session description are the layers, the base first. Each RTP packet is a unit of
//! its layer, and is carried as it is. Packets of RTCP are not. A stream has one medium, so there
//! is nothing to synchronise, and reports of receivers would end at their gateway.

pub(crate) mod host;
pub(crate) mod intake;
pub(crate) mod sockets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::rlm::{LayerConfig, Source, SourceConfig};
use umbel_engine::units::{Rate, counted};
use umbel_net::interface::Family;
use umbel_wire::rlm::SignedHeader;
use umbel_wire::sdp::{DESCRIPTION_LEN, Description};
use umbel_wire::signed::LINE_LEN;
use umbel_wire::stream::{LAYERS, LayerFec, LayerInfo, RtpFormat, StreamContent, StreamMode};

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
    let described = Described::read(&options.description)?;
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
    let sockets = Sockets::open(&described.addresses)?;
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
    observer.begun(&air.begun());
    let backlog = Arc::<Backlog>::default();
    let most = usize::from(symbol_len - LENGTH_LEN);
    let host = RtpHost::new(&lanes, most, backlog.clone(), observer);
    let receiving = sockets.start(wiring.mailbox(), &backlog).context("cannot start")?;
    let host = air.send(engine, host, wiring, lanes.iter().map(|lane| lane.pace))?;
    drop((announcer, receiving));
    Ok(host.summary())
}

impl Lane {
    /// Returns the layer as it is announced.
    fn info(&self) -> LayerInfo {
        LayerInfo { kbit_per_s: self.rate.bits_per_s().div_ceil(1_000), fec: self.fec }
    }
}

/// The layers, as a session description has them.
struct Described {
    addresses: Vec<SocketAddr>,
    formats: Vec<RtpFormat>,
    kbit_per_s: Vec<Option<u64>>,
}

impl Described {
    fn read(path: &Path) -> anyhow::Result<Described> {
        let name = path.display();
        let bytes = std::fs::read(path).with_context(|| {
            format!(
                "cannot read {name}: start the sender first, which writes it (ffmpeg: -sdp_file)"
            )
        })?;
        // Text that some programs write before the description itself.
        let bytes = bytes.strip_prefix(b"SDP:\n").unwrap_or(&bytes);
        let description = Description::parse(bytes).with_context(|| format!("{name}"))?;
        Described::of(&description).with_context(|| format!("{name}"))
    }

    fn of(description: &Description) -> anyhow::Result<Described> {
        let media = &description.media;
        if !(1..=LAYERS).contains(&media.len()) {
            bail!("{} media: a stream has 1 to {LAYERS} layers, each a medium", media.len());
        }
        let mut described =
            Described { addresses: Vec::new(), formats: Vec::new(), kbit_per_s: Vec::new() };
        for (number, media) in (1..).zip(media) {
            let address = description.connection_of(media).map(|connection| connection.address);
            let address = address.context("no address (`c=`) to receive at")?;
            if address.is_multicast() || media.port == 0 {
                bail!("medium {number} goes to {address}: let it be sent to a port of this host");
            }
            let address = SocketAddr::new(address, media.port);
            if described.addresses.contains(&address) {
                bail!("two media at {address}: each layer needs its own port");
            }
            described.addresses.push(address);
            let format = RtpFormat::of_medium(media);
            described.formats.push(format.with_context(|| format!("medium {number}"))?);
            described.kbit_per_s.push(media.bandwidth);
        }
        Ok(described)
    }

    /// Returns the rates of the layers on the wire.
    fn rates(&self, given: Option<Vec<Rate>>, headroom: f64) -> anyhow::Result<Vec<Rate>> {
        let count = self.formats.len();
        if let Some(given) = given {
            if given.len() != count {
                bail!(
                    "--layers has {}, and the session description {count} media",
                    counted(given.len(), "rate")
                );
            }
            return Ok(given);
        }
        let rate = |(number, told): (usize, &Option<u64>)| {
            let told = told.with_context(|| {
                format!("medium {number} has no rate (`b=AS`): give those of all media by --layers")
            })?;
            let bits_per_s = told as f64 * 1e3 * (1.0 + headroom);
            let rate = Rate::from_bits_per_s(bits_per_s as u64).filter(|_| bits_per_s < 1e11);
            rate.with_context(|| format!("medium {number}: b=AS:{told} is out of range"))
        };
        (1..).zip(&self.kbit_per_s).map(rate).collect()
    }

    /// Checks that a receiver can change from any layer to the next.
    fn check_simulcast(&self, rates: &[Rate]) -> anyhow::Result<()> {
        if !rates.is_sorted() {
            bail!("--simulcast: encodings go from the least rate to the greatest");
        }
        let map = &self.formats[0].map;
        if let Some(other) = self.formats.iter().find(|format| format.map != *map) {
            bail!(
                "--simulcast: {} and {other}: all encodings must have one format, since players \
                 see them as one stream",
                self.formats[0]
            );
        }
        Ok(())
    }

    fn lanes(
        &self,
        rates: &[Rate],
        codes: &[Option<LayerFec>],
        packet_len: u16,
        family: Family,
    ) -> Vec<Lane> {
        let codes = codes.iter().copied().chain(std::iter::repeat(None));
        let len = f64::from(packet_len);
        let share = len / (len + family.header_bytes() as f64);
        let layers = rates.iter().zip(codes).zip(&self.formats);
        let lane = |((&rate, fec), format): ((&Rate, _), &RtpFormat)| Lane {
            rate,
            pace: Rate::from_bits_per_s((rate.bits_per_s() as f64 * share) as u64).unwrap_or(rate),
            fec,
            payload_type: format.payload_type,
        };
        layers.map(lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ffmpeg -sdp_file` writes it of two outputs.
    const TWO: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nt=0 0\r\n\
        a=tool:libavformat 59.27.100\r\n\
        m=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\nb=AS:200\r\n\
        a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n\
        m=video 5006 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\nb=AS:600\r\n\
        a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n";

    fn described(text: &str) -> anyhow::Result<Described> {
        Described::of(&Description::parse(text.as_bytes()).unwrap())
    }

    fn rate(kbit_per_s: u64) -> Rate {
        Rate::from_bits_per_s(kbit_per_s * 1_000).unwrap()
    }

    #[test]
    fn a_description_gives_ports_formats_and_rates() {
        let two = described(TWO).unwrap();
        let ports: Vec<u16> = two.addresses.iter().map(SocketAddr::port).collect();
        assert_eq!((ports, two.formats[1].encoding()), (vec![5004, 5006], Some("H264")));
        assert_eq!(two.rates(None, 0.25).unwrap(), [rate(250), rate(750)]);
        let rates = two.rates(Some(vec![rate(100), rate(300)]), 0.25).unwrap();
        let lanes = two.lanes(&rates, &[], 1400, Family::V4);
        let pace = Rate::from_bits_per_s((100_000.0 * 1400.0 / 1428.0) as u64).unwrap();
        assert_eq!((lanes[0].rate, lanes[0].pace, lanes[1].fec), (rate(100), pace, None));
        two.check_simulcast(&rates).unwrap();
    }

    #[test]
    fn a_description_that_cannot_be_streamed_is_refused_with_a_reason() {
        for (good, broken, reason) in [
            ("5006", "5004", "two media at 127.0.0.1:5004"),
            ("IP4 127.0.0.1\r\nb", "IP4 239.1.1.1/1\r\nb", "a port of this host"),
            ("RTP/AVP", "RTP/SAVP", "medium 1"),
            ("c=IN IP4 127.0.0.1\r\n", "", "no address"),
            ("m=video", "i=video", "0 media"),
        ] {
            let text = TWO.replace(good, broken);
            let error = described(&text).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|line| line.contains(reason)), "{error:?}");
        }
        let two = described(&TWO.replace("b=AS:600\r\n", "")).unwrap();
        assert!(two.rates(None, 0.0).unwrap_err().to_string().contains("--layers"));
        assert!(two.rates(Some(vec![rate(1)]), 0.0).is_err());
        let two = described(&TWO.replacen("H264", "H265", 1)).unwrap();
        assert!(two.check_simulcast(&[rate(1), rate(2)]).is_err());
        assert!(described(TWO).unwrap().check_simulcast(&[rate(2), rate(1)]).is_err());
    }
}
