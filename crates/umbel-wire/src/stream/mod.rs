//! Description of a layered live stream, from which a receiver can join it: a session description
//! with a medium for each layer.
//!
//! ```text
//! v=0
//! o=- 3417 1 IN IP4 192.0.2.2
//! s=lecture
//! b=AS:448                                    all layers
//! t=0 0
//! a=tool:umbel 0.1.0
//! a=x-umbel-rlm:1                             version of the protocol
//! a=x-umbel-tsi:3417
//! a=x-umbel-source:192.0.2.2 40123            where the source sends from
//! a=x-umbel-scope:32                          most hops of any packet
//! a=x-umbel-mode:cumulative                   or independent: receivers take one layer alone
//! a=x-umbel-symbol:1372                       most bytes of a symbol
//! a=x-umbel-content:video 1 640x360 30/1      version of the codec, size, frames per second
//! a=x-umbel-control:239.255.7.7 7705          only with a control group
//! a=x-umbel-repair:7706                       only with repair: the source's TCP port
//! a=source-filter: incl IN IP4 * 192.0.2.2
//! a=group:DDP 0 1
//! m=video 7704 ALC/UDP 129                    layer 0, the base
//! c=IN IP4 232.7.7.7/32
//! b=AS:128
//! a=mid:0
//! a=x-umbel-fec:8 4                           source and repair symbols of a block
//! m=video 7704 ALC/UDP 129                    layer 1
//! c=IN IP4 232.7.7.8/32
//! b=AS:320
//! a=mid:1
//! a=depend:129 lay 0:129
//! ```
//!
//! If the content is `rtp`, each layer has its format:
//!
//! ```text
//! a=x-umbel-rtp:video 96                      kind of medium, payload type
//! a=rtpmap:96 H264/90000
//! a=fmtp:96 packetization-mode=1
//! ```
//!
//! Each packet is signed with the key of the announcement ([`rlm::signed`]). Layers are on
//! consecutive groups. The dependencies between them are those of [RFC 5583], and the
//! source filter that of [RFC 4570]. Layers of an independent stream have neither `group` nor
//! `depend`.

mod content;
mod rtp_format;

use std::net::{IpAddr, SocketAddr};

use crate::sdp::{Attribute, Description, Media, Origin};
use crate::session::{self, CONTENT, DATA_PROTOCOL, SCOPE, SOURCE, SessionName, TSI};
use crate::session::{address_and_port, bad, channel, check_version, host, number, source_filter};
use crate::{Channel, ParseError, Tsi, control, rlm, sap};

pub use content::{FrameRate, MAX_SIDE, StreamContent};
pub use rtp_format::RtpFormat;

/// Maximum number of layers.
pub const LAYERS: usize = 16;
/// Maximum number of symbols in a block, source and repair: the code has no more.
pub const BLOCK_SYMBOLS: u16 = 255;

const RLM: &str = "x-umbel-rlm";
const MODE: &str = "x-umbel-mode";
const SYMBOL: &str = "x-umbel-symbol";
const CONTROL: &str = "x-umbel-control";
const REPAIR: &str = "x-umbel-repair";
const FEC: &str = "x-umbel-fec";
/// The FEC Encoding ID of the layers' packets [RFC 5445 §5], as the format of their media.
const FORMAT: &str = "129";

/// A live stream as its source announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Name for people.
    pub name: SessionName,
    /// Session number of the stream.
    pub tsi: Tsi,
    /// Address from which the source sends.
    pub source: SocketAddr,
    /// Channel of layer 0, which has a source. Layer l is on the l-th group after it.
    pub base: Channel,
    /// Group in which receivers tell each other about join-experiments; open to any source, on
    /// another port than the layers.
    pub control: Option<Channel>,
    /// Maximum hop count of any packet of the stream, at least 1.
    pub scope: u8,
    /// Dependence of layers on each other.
    pub mode: StreamMode,
    /// Maximum length of a symbol in bytes, at least 1.
    pub symbol_len: u16,
    /// The layers from the base up, 1 to [`LAYERS`].
    pub layers: Vec<LayerInfo>,
    /// Content of the stream.
    pub content: StreamContent,
    /// TCP port, not 0, at which the source serves objects by HTTP to those that lost parts of
    /// them.
    pub repair: Option<u16>,
    /// Version of the announcement; grows with each change.
    pub version: u64,
}

/// Dependence of the layers of a stream on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// A layer refines those below it.
    Cumulative,
    /// Each layer is of use alone.
    Independent,
}

/// A layer of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    /// Maximum rate of the layer's channel in kilobits per second, headers included; at least 1.
    pub kbit_per_s: u64,
    /// The layer's erasure code, if it has one.
    pub fec: Option<LayerFec>,
}

/// The erasure code of a layer. Both numbers are at least 1, and their sum is at most
/// [`BLOCK_SYMBOLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerFec {
    /// Source symbols of a full block.
    pub source_symbols: u8,
    /// Repair symbols of a block.
    pub repair_symbols: u8,
}

impl Stream {
    /// Returns the channels of the layers. Returns none if there is no multicast group for each, as
    /// can be before the stream is announced.
    pub fn channels(&self) -> Vec<Channel> {
        rlm::channels(self.base, self.layers.len() as u8).unwrap_or_default()
    }

    /// Returns the rate of all layers together, in kilobits per second.
    pub fn kbit_per_s(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.kbit_per_s))
    }

    /// Returns the group whose scope tells in which directory the stream is announced.
    pub fn announced_with(&self) -> IpAddr {
        match (self.control, self.base.group) {
            (Some(control), _) => control.group,
            // Source-specific groups of IPv4 have no scope. Streams are for a site, like feeds.
            (None, IpAddr::V4(_)) => sap::LOCAL_V4.into(),
            (None, group) => group,
        }
    }

    /// Returns the description to announce; `tool` names the program.
    pub fn describe(&self, tool: &str) -> Description {
        let mode = match self.mode {
            StreamMode::Cumulative => "cumulative",
            StreamMode::Independent => "independent",
        };
        let mut attributes = vec![
            Attribute::new("tool", tool),
            Attribute::new(RLM, control::VERSION.to_string()),
            Attribute::new(TSI, self.tsi.0.to_string()),
            Attribute::new(SOURCE, format!("{} {}", self.source.ip(), self.source.port())),
            Attribute::new(SCOPE, self.scope.to_string()),
            Attribute::new(MODE, mode),
            Attribute::new(SYMBOL, self.symbol_len.to_string()),
            Attribute::new(CONTENT, self.content.to_string()),
        ];
        if let Some(control) = &self.control {
            attributes.push(Attribute::new(CONTROL, format!("{} {}", control.group, control.port)));
        }
        if let Some(port) = self.repair {
            attributes.push(Attribute::new(REPAIR, port.to_string()));
        }
        attributes.extend(self.base.source.map(|source| source_filter(None, source)));
        let numbers: Vec<String> = (0..self.layers.len()).map(|n| n.to_string()).collect();
        if self.depends() {
            attributes.push(Attribute::new("group", format!("DDP {}", numbers.join(" "))));
        }
        Description {
            origin: Origin {
                user: "-".to_owned(),
                session: self.tsi.0.into(),
                version: self.version,
                address: self.source.ip().to_string(),
            },
            name: self.name.as_str().to_owned(),
            bandwidth: Some(self.kbit_per_s()),
            attributes,
            media: self.channels().iter().enumerate().map(|(n, on)| self.media(n, on)).collect(),
            ..Description::default()
        }
    }

    /// Returns whether any layer depends on another.
    fn depends(&self) -> bool {
        self.mode == StreamMode::Cumulative && self.layers.len() > 1
    }

    fn media(&self, layer: usize, channel: &Channel) -> Media {
        let LayerInfo { kbit_per_s, fec } = self.layers[layer];
        let mut media = session::media(("video", DATA_PROTOCOL, FORMAT), channel, self.scope);
        media.bandwidth = Some(kbit_per_s);
        media.attributes.push(Attribute::new("mid", layer.to_string()));
        if let StreamContent::Rtp(formats) = &self.content {
            let format = formats.get(layer);
            media.attributes.extend(format.into_iter().flat_map(RtpFormat::announcement));
        }
        if layer > 0 && self.depends() {
            let below = format!("{FORMAT} lay {}:{FORMAT}", layer - 1);
            media.attributes.push(Attribute::new("depend", below));
        }
        if let Some(LayerFec { source_symbols, repair_symbols }) = fec {
            media
                .attributes
                .push(Attribute::new(FEC, format!("{source_symbols} {repair_symbols}")));
        }
        media
    }

    /// Returns the stream of a description, or `None` if the session is of another kind.
    ///
    /// # Errors
    ///
    /// Returns an error if the description claims to be a stream, but an attribute or a layer is
    /// missing or out of range. Another version of the protocol or of the codec is an error, too.
    pub fn from_description(description: &Description) -> Result<Option<Stream>, ParseError> {
        let Some(version) = description.attribute(RLM) else { return Ok(None) };
        check_version(RLM, version)?;
        let value = |name: &'static str| description.attribute(name).ok_or_else(|| bad(name));
        let mode = match value(MODE)? {
            "cumulative" => StreamMode::Cumulative,
            "independent" => StreamMode::Independent,
            _ => return Err(bad(MODE)),
        };
        let control = match description.attribute(CONTROL) {
            None => None,
            Some(value) => Some(control(value).ok_or_else(|| bad(CONTROL))?),
        };
        let (base, layers) = layers(description)?;
        let source = host(value(SOURCE)?).ok_or_else(|| bad(SOURCE))?;
        let ipv6 = source.is_ipv6();
        let other_family = control.is_some_and(|control| control.group.is_ipv6() != ipv6);
        let same_port = control.is_some_and(|control| control.port == base.port);
        if base.group.is_ipv6() != ipv6 || other_family || same_port {
            return Err(bad("stream"));
        }
        let above_0 = |name: &'static str| -> Result<u16, ParseError> {
            number(value(name)?).filter(|number| *number > 0).ok_or_else(|| bad(name))
        };
        let repair = match description.attribute(REPAIR) {
            None => None,
            Some(_) => Some(above_0(REPAIR)?),
        };
        let content = match value(CONTENT)? {
            content::RTP => {
                let formats: Result<_, _> =
                    layer_media(description).map(RtpFormat::announced).collect();
                StreamContent::Rtp(formats?)
            }
            text => text.parse()?,
        };
        Ok(Some(Stream {
            name: description.name.parse()?,
            tsi: Tsi(number(value(TSI)?).ok_or_else(|| bad(TSI))?),
            source,
            base,
            control,
            scope: u8::try_from(above_0(SCOPE)?).map_err(|_| bad(SCOPE))?,
            mode,
            symbol_len: above_0(SYMBOL)?,
            layers,
            content,
            repair,
            version: description.origin.version,
        }))
    }
}

fn control(value: &str) -> Option<Channel> {
    let address = address_and_port(value)?;
    let sound = address.ip().is_multicast() && address.port() != 0;
    sound.then_some(Channel { source: None, group: address.ip(), port: address.port() })
}

/// Returns the media that are layers.
fn layer_media(description: &Description) -> impl Iterator<Item = &Media> {
    description.media.iter().filter(|media| media.protocol == DATA_PROTOCOL)
}

/// Returns the channel of the base layer, and the layers.
fn layers(description: &Description) -> Result<(Channel, Vec<LayerInfo>), ParseError> {
    let media = || layer_media(description);
    let count = media().count();
    if !(1..=LAYERS).contains(&count) {
        return Err(ParseError::Value { what: "stream", problem: "not 1 to 16 layers" });
    }
    let first = media().next().and_then(|media| channel(description, media));
    let base = first.filter(|base| base.source.is_some()).ok_or_else(|| bad(DATA_PROTOCOL))?;
    let misplaced = || {
        let problem = "layers that are not on consecutive groups of one port";
        ParseError::Value { what: "stream", problem }
    };
    let expected = rlm::channels(base, count as u8).ok_or_else(misplaced)?;
    let mut layers = Vec::with_capacity(count);
    for (media, expected) in media().zip(expected) {
        if channel(description, media) != Some(expected) {
            return Err(misplaced());
        }
        let kbit_per_s = media.bandwidth.filter(|rate| *rate > 0).ok_or_else(|| bad("b="))?;
        let fec = media.attributes.iter().find(|attribute| attribute.name == FEC);
        let fec = match fec {
            None => None,
            Some(fec) => {
                let value = fec.value.as_deref().unwrap_or_default();
                Some(layer_fec(value).ok_or_else(|| bad(FEC))?)
            }
        };
        layers.push(LayerInfo { kbit_per_s, fec });
    }
    Ok((base, layers))
}

fn layer_fec(value: &str) -> Option<LayerFec> {
    let (source, repair) = value.split_once(' ')?;
    let (source_symbols, repair_symbols): (u8, u8) = (number(source)?, number(repair)?);
    let sum = u16::from(source_symbols) + u16::from(repair_symbols);
    let sound = source_symbols > 0 && repair_symbols > 0 && sum <= BLOCK_SYMBOLS;
    sound.then_some(LayerFec { source_symbols, repair_symbols })
}

#[cfg(test)]
mod tests;
