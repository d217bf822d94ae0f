//! The format of a layer that is RTP, as a player needs it.

use std::fmt;

use crate::ParseError;
use crate::sdp::{Attribute, Media};
use crate::session::{bad, number};

/// Kind and payload type of a layer, in announcements: `video 96`.
const FORMAT: &str = "x-umbel-rtp";
const MAP: &str = "rtpmap";
const PARAMETERS: &str = "fmtp";
/// Maximum length of each text in bytes.
const TEXT_LEN: usize = 1024;

/// The format of RTP packets: what a session description says of it [RFC 8866 §6.6, §6.15].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtpFormat {
    /// `video`, `audio`, …: lower-case letters.
    pub kind: String,
    /// Payload type, 0 to 63 or 96 to 127.
    pub payload_type: u8,
    /// Encoding and clock rate, such as `H264/90000`. Types below 96 may go without.
    pub map: Option<String>,
    /// Parameters of the format, such as `packetization-mode=1`.
    pub parameters: Option<String>,
}

impl RtpFormat {
    /// Returns the first format of a medium.
    ///
    /// # Errors
    ///
    /// Returns an error if the medium is not plain RTP, or if its payload type is out of range. A
    /// dynamic type without an `rtpmap` is an error, too.
    pub fn of_medium(media: &Media) -> Result<RtpFormat, ParseError> {
        if !matches!(&media.protocol[..], "RTP/AVP" | "RTP/AVPF") {
            let problem = "not RTP/AVP: what is encrypted or framed otherwise is not relayed";
            return Err(ParseError::Value { what: "medium", problem });
        }
        let payload_type = media.formats.split(' ').next().unwrap_or_default();
        RtpFormat::new(&media.kind, payload_type, &media.attributes)
    }

    /// Returns the format that a layer of an announcement tells of.
    pub(super) fn announced(media: &Media) -> Result<RtpFormat, ParseError> {
        let told = media.attributes.iter().find(|attribute| attribute.name == FORMAT);
        let told = told.and_then(|told| told.value.as_deref()?.split_once(' '));
        let (kind, payload_type) = told.ok_or_else(|| bad(FORMAT))?;
        RtpFormat::new(kind, payload_type, &media.attributes)
    }

    fn new(
        kind: &str,
        payload_type: &str,
        attributes: &[Attribute],
    ) -> Result<RtpFormat, ParseError> {
        // Between them, packets with the marker look like RTCP [RFC 5761 §4].
        let number = number(payload_type).filter(|number| matches!(number, 0..=63 | 96..=127));
        let number: u8 = number.ok_or_else(|| bad(FORMAT))?;
        if kind.is_empty() || kind.len() > 16 || !kind.bytes().all(|b| b.is_ascii_lowercase()) {
            return Err(bad(FORMAT));
        }
        // `96 H264/90000`: of which payload type, and what.
        let text = |name: &'static str| {
            let values = attributes.iter().filter(|attribute| attribute.name == name);
            let values = values.filter_map(|attribute| attribute.value.as_deref()?.split_once(' '));
            let mut values = values.filter(|(of, _)| *of == payload_type);
            let value = values.next().map(|(_, value)| value.trim().to_owned());
            match value {
                Some(value) if value.len() > TEXT_LEN => Err(bad(name)),
                value => Ok(value),
            }
        };
        let map = text(MAP)?;
        if map.as_deref().map_or(number >= 96, |map| clock(map).is_none()) {
            return Err(bad(MAP));
        }
        let (kind, parameters) = (kind.to_owned(), text(PARAMETERS)?);
        Ok(RtpFormat { kind, payload_type: number, map, parameters })
    }

    /// Returns the name of the encoding, such as `H264`, if it is told.
    pub fn encoding(&self) -> Option<&str> {
        self.map.as_deref()?.split('/').next()
    }

    /// Returns the rate of the timestamps in ticks per second, above 0.
    pub fn clock_rate(&self) -> u32 {
        let usual = if self.kind == "audio" { 8_000 } else { 90_000 };
        self.map.as_deref().and_then(clock).unwrap_or(usual)
    }

    /// Returns the attributes that tell a player of it.
    pub fn attributes(&self) -> Vec<Attribute> {
        let attribute = |name: &str, value: &Option<String>| {
            let value = value.as_ref()?;
            Some(Attribute::new(name, format!("{} {value}", self.payload_type)))
        };
        let (map, parameters) =
            (attribute(MAP, &self.map), attribute(PARAMETERS, &self.parameters));
        map.into_iter().chain(parameters).collect()
    }

    /// Returns the attributes of a layer in an announcement.
    pub(super) fn announcement(&self) -> Vec<Attribute> {
        let mut attributes =
            vec![Attribute::new(FORMAT, format!("{} {}", self.kind, self.payload_type))];
        attributes.extend(self.attributes());
        attributes
    }
}

impl fmt::Display for RtpFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.map {
            Some(map) => write!(f, "{} {map}", self.kind),
            None => write!(f, "{} of type {}", self.kind, self.payload_type),
        }
    }
}

/// Returns the clock rate in `H264/90000` or `opus/48000/2`.
fn clock(map: &str) -> Option<u32> {
    let (encoding, rest) = map.split_once('/')?;
    let rate = number(rest.split('/').next()?)?;
    (!encoding.is_empty() && rate > 0).then_some(rate)
}
