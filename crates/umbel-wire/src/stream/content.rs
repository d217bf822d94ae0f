//! Content of a stream.

use std::fmt;
use std::str::FromStr;

use super::RtpFormat;
use crate::ParseError;
use crate::session::{bad, number};

/// Maximum width and height of a picture. Together they bound what a receiver allocates.
pub const MAX_SIDE: u16 = 8192;

const WHAT: &str = "x-umbel-content";
const HLS: &str = "hls";
/// Word for content whose formats are in its layers.
pub(super) const RTP: &str = "rtp";

/// Content of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamContent {
    /// Pictures, by a layered codec: `video VERSION WIDTHxHEIGHT RATE/SCALE`.
    Video {
        /// Version of the codec.
        codec: u8,
        /// Width of a picture, 1 to [`MAX_SIDE`].
        width: u16,
        /// Height of a picture, 1 to [`MAX_SIDE`].
        height: u16,
        /// Pictures per second.
        rate: FrameRate,
    },
    /// A ladder of HTTP Live Streaming, each rendition on its own layer: `hls`.
    Hls,
    /// RTP packets of anyone's codec, whose format each layer tells: `rtp`.
    Rtp(Vec<RtpFormat>),
}

/// Pictures per second, as a fraction. At most 1,000, at least one in 1,000 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate {
    /// Pictures in `seconds` seconds.
    pub pictures: u32,
    /// Seconds.
    pub seconds: u32,
}

impl FrameRate {
    /// Returns the rate, or `None` if it is out of range.
    pub fn new(pictures: u32, seconds: u32) -> Option<FrameRate> {
        let (p, s) = (u64::from(pictures), u64::from(seconds));
        let sound = p > 0 && s > 0 && p <= 1_000 * s && s <= 1_000 * p;
        sound.then_some(FrameRate { pictures, seconds })
    }
}

impl fmt::Display for StreamContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamContent::Video { codec, width, height, rate } => {
                write!(f, "video {codec} {width}x{height} {}/{}", rate.pictures, rate.seconds)
            }
            StreamContent::Hls => f.write_str(HLS),
            StreamContent::Rtp(_) => f.write_str(RTP),
        }
    }
}

impl FromStr for StreamContent {
    type Err = ParseError;

    /// Parses any content but RTP, whose formats are told elsewhere.
    fn from_str(text: &str) -> Result<StreamContent, ParseError> {
        if text == HLS {
            return Ok(StreamContent::Hls);
        }
        video(text).ok_or_else(|| bad(WHAT))
    }
}

fn video(text: &str) -> Option<StreamContent> {
    let fields: Vec<&str> = text.split(' ').collect();
    let &["video", codec, size, rate] = &fields[..] else { return None };
    let side = |text: &str| number(text).filter(|side| (1..=MAX_SIDE).contains(side));
    let (width, height) = size.split_once('x')?;
    let (pictures, seconds) = rate.split_once('/')?;
    Some(StreamContent::Video {
        codec: number(codec)?,
        width: side(width)?,
        height: side(height)?,
        rate: FrameRate::new(number(pictures)?, number(seconds)?)?,
    })
}
