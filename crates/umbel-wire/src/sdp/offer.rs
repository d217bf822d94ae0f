//! Session descriptions as encoders, cameras and audio devices write them.
//!
//! They are often wrong in lines that nobody needs who wants to receive the media: the origin, the
//! name, the time. So this reads what is needed, and looks at nothing else:
//!
//! | line | what is taken of it |
//! |---|---|
//! | `c=` | host or group of the session or of one medium, by address or name |
//! | `b=` | kbit/s of one medium (`AS`, or else `TIAS`); that of the session if there is one medium |
//! | `m=` | kind, port, protocol, formats |
//! | `a=` | attributes of one medium; `source-filter` of the session, too [RFC 4570] |

use std::net::IpAddr;

use super::{Attribute, Media};

/// Maximum number of media.
const MEDIA: usize = 64;
/// Maximum number of attributes of a medium.
const ATTRIBUTES: usize = 256;
/// Bytes of a line that an error quotes.
const QUOTED: usize = 60;

/// A medium that someone sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Line of its `m=`, from 1.
    pub line: usize,
    /// The medium. Its connection is left empty, since [`host`](Offer::host) may be a name.
    pub media: Media,
    /// Address or name of the host, or address of the group, that it is sent to.
    pub host: Option<String>,
    /// Sources of the group whose packets are wanted; empty for those of all.
    pub sources: Vec<IpAddr>,
}

/// Reason why nothing can be received by a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// It has no `m=` line.
    #[error("no line `m=`: a session description has one for each medium")]
    NoMedia,
    /// A line that is needed cannot be understood.
    #[error("line {line}, `{text}`: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line, cut off if it is long.
        text: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Reads the media of a description. Those of port 0 are among them: they are not sent.
///
/// # Errors
///
/// If there are none, or a line that is needed cannot be understood.
pub fn offers(bytes: &[u8]) -> Result<Vec<Offer>, OfferError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut session = Session::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let Some((kind, value)) = line.split_once('=') else { continue };
        let taken = session.take(number, kind.trim(), value.trim());
        taken.map_err(|problem| OfferError::Line { line: number, text: quoted(line), problem })?;
    }
    if session.offers.is_empty() { Err(OfferError::NoMedia) } else { Ok(session.finish()) }
}

fn quoted(line: &str) -> String {
    let end = (0..=QUOTED.min(line.len())).rev().find(|&end| line.is_char_boundary(end));
    let end = end.unwrap_or(0);
    format!("{}{}", &line[..end], if end < line.len() { "…" } else { "" })
}

/// Values of `b=`.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    /// `AS`, in kbit/s with headers.
    whole: Option<u64>,
    /// `TIAS`, in kbit/s without them.
    content: Option<u64>,
}

impl Rates {
    /// Takes a value, if it is a rate.
    fn take(&mut self, value: &str) {
        let Some((kind, number)) = value.split_once(':') else { return };
        let number = number.trim().parse::<f64>().ok();
        let Some(number) = number.filter(|rate| *rate > 0.0 && *rate < 1e15) else { return };
        match kind.trim() {
            "AS" => self.whole = Some(number.ceil() as u64),
            "TIAS" => self.content = Some((number / 1e3).ceil() as u64),
            _ => {}
        }
    }

    fn kbit_per_s(self) -> Option<u64> {
        self.whole.or(self.content)
    }
}

/// What was read so far.
#[derive(Debug, Default)]
struct Session {
    host: Option<String>,
    filters: Vec<Filter>,
    rates: Rates,
    offers: Vec<Offer>,
    /// Filters and rates of each medium.
    of_media: Vec<(Vec<Filter>, Rates)>,
}

impl Session {
    fn take(&mut self, line: usize, kind: &str, value: &str) -> Result<(), &'static str> {
        match kind {
            "m" if self.offers.len() == MEDIA => return Err("too many media"),
            "m" => {
                let media = media(value).ok_or("not `m=KIND PORT PROTOCOL FORMATS`")?;
                self.offers.push(Offer { line, media, host: None, sources: Vec::new() });
                self.of_media.push(<_>::default());
            }
            "c" => {
                let host = host(value).ok_or("not `c=IN IP4 ADDRESS` or `c=IN IP6 ADDRESS`")?;
                let place = self.offers.last_mut().map_or(&mut self.host, |offer| &mut offer.host);
                // A medium may be spread over several groups; the first has it.
                place.get_or_insert(host);
            }
            "b" => {
                let rates = self.of_media.last_mut().map_or(&mut self.rates, |(_, rates)| rates);
                rates.take(value);
            }
            "a" => self.attribute(value)?,
            _ => {}
        }
        Ok(())
    }

    fn attribute(&mut self, value: &str) -> Result<(), &'static str> {
        let (name, value) = match value.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (value, None),
        };
        if name == "source-filter" {
            let filters = self.of_media.last_mut().map_or(&mut self.filters, |(own, _)| own);
            filters.extend(value.and_then(Filter::parse));
            return Ok(());
        }
        let Some(Offer { media, .. }) = self.offers.last_mut() else { return Ok(()) };
        if media.attributes.len() == ATTRIBUTES {
            return Err("too many attributes");
        }
        media.attributes.push(match value {
            Some(value) => Attribute::new(name, value),
            None => Attribute::flag(name),
        });
        Ok(())
    }

    fn finish(self) -> Vec<Offer> {
        let Session { host, filters, rates, mut offers, of_media } = self;
        let sent = offers.iter().filter(|offer| offer.media.port != 0).count();
        // The session's rate is that of all media together.
        let of_only = rates.kbit_per_s().filter(|_| sent == 1);
        for (offer, (own, rates)) in offers.iter_mut().zip(of_media) {
            offer.media.bandwidth = rates.kbit_per_s().or(of_only);
            if offer.host.is_none() {
                offer.host.clone_from(&host);
            }
            let to: Option<IpAddr> = offer.host.as_deref().and_then(|host| host.parse().ok());
            let filters = own.iter().chain(&filters);
            let mut wanted = filters.filter(|filter| filter.group.is_none() || filter.group == to);
            offer.sources = wanted.next().map(|filter| filter.sources.clone()).unwrap_or_default();
        }
        offers
    }
}

/// Sources of a group that are wanted.
#[derive(Debug)]
struct Filter {
    /// The group; `None` for all.
    group: Option<IpAddr>,
    sources: Vec<IpAddr>,
}

impl Filter {
    /// Parses `incl IN IP4 GROUP SOURCE…`. What excludes sources, or names them otherwise than by
    /// address, is no filter here: then the sender is told from others by its packets.
    fn parse(value: &str) -> Option<Filter> {
        let mut fields = value.split_whitespace();
        let (Some("incl"), Some("IN"), Some(_)) = (fields.next(), fields.next(), fields.next())
        else {
            return None;
        };
        let group = match fields.next()? {
            "*" => None,
            group => Some(group.parse().ok()?),
        };
        let sources: Vec<IpAddr> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        (!sources.is_empty()).then_some(Filter { group, sources })
    }
}

fn media(value: &str) -> Option<Media> {
    let mut fields = value.split_whitespace();
    let (kind, port, protocol) = (fields.next()?, fields.next()?, fields.next()?);
    let formats: Vec<&str> = fields.collect();
    if formats.is_empty() {
        return None;
    }
    Some(Media {
        kind: kind.to_ascii_lowercase(),
        // `port/number of ports`.
        port: port.split('/').next()?.parse().ok()?,
        protocol: protocol.to_owned(),
        formats: formats.join(" "),
        ..Media::default()
    })
}

/// Returns the address or name in `IN IP4 ADDRESS/TTL`.
fn host(value: &str) -> Option<String> {
    let mut fields = value.split_whitespace();
    let (_network, _family, host) = (fields.next()?, fields.next()?, fields.next()?);
    let host = host.split('/').next().filter(|host| !host.is_empty())?;
    Some(host.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        m=video 5004 RTP/AVP 96\r\nb=AS:500\r\na=rtpmap:96 H264/90000\r\n";

    fn only(bytes: &[u8]) -> Offer {
        let mut offers = offers(bytes).unwrap();
        assert_eq!(offers.len(), 1);
        offers.remove(0)
    }

    #[test]
    fn lines_that_nobody_needs_may_be_wrong_or_missing() {
        let good = only(GOOD.as_bytes());
        assert_eq!((good.line, good.media.port, good.media.bandwidth), (6, 5004, Some(500)));
        assert_eq!(good.host.as_deref(), Some("127.0.0.1"));
        assert_eq!(good.media.attributes, [Attribute::new("rtpmap", "96 H264/90000")]);
        for (line, instead) in [
            ("o=- 1 1 IN IP4 127.0.0.1\r\n", "o=- 1700166548 1700166549 IN IP4\r\n"),
            ("o=- 1 1 IN IP4 127.0.0.1\r\n", "o=- 1001 1 IN \r\n"),
            ("o=- 1 1 IN IP4 127.0.0.1\r\n", "o=- 99999999999999999999999 a1b2 IN\r\n"),
            ("o=- 1 1 IN IP4 127.0.0.1\r\n", "\r\n"),
            ("s=x\r\n", "\r\n"),
            ("s=x\r\n", "s=x\ts=y\r\n"),
            ("t=0 0\r\n", "t=0 0 \r\n"),
            ("t=0 0\r\n", "t=\r\n"),
            ("v=0", "\u{feff}v=0"),
            ("127.0.0.1\r\nt", "127.0.0.1/127\r\nt"),
            ("AS:500", "AS:499.5"),
            ("AS:500", "TIAS:499001"),
            ("AS:500", "TIAS:9000000\r\nb=AS:500"),
            ("H264/90000\r\n", "H264/90000\r\n\0"),
            ("rtpmap:96", "rtpmap: 96"),
            ("video 5004 RTP", "Video 5004/2\tRTP"),
        ] {
            let text = GOOD.replacen(line, instead, 1);
            assert_ne!(text, GOOD, "{line:?}");
            assert_eq!(only(text.as_bytes()), good, "{instead:?}");
        }
        let latin_1 = GOOD.as_bytes().iter().map(|&byte| if byte == b'x' { 0xFC } else { byte });
        assert_eq!(only(&latin_1.collect::<Vec<u8>>()), good);
    }

    #[test]
    fn a_rate_of_the_session_is_that_of_its_only_medium() {
        let text = GOOD.replace("b=AS:500\r\n", "").replace("t=0 0", "b=AS:500\r\nt=0 0");
        assert_eq!(only(text.as_bytes()).media.bandwidth, Some(500));
        let unused = format!("{text}m=application 0 RTP/AVP 107\r\n");
        assert_eq!(offers(unused.as_bytes()).unwrap()[0].media.bandwidth, Some(500));
        let two = format!("{text}m=audio 5006 RTP/AVP 0\r\n");
        assert_eq!(offers(two.as_bytes()).unwrap()[0].media.bandwidth, None);
    }

    #[test]
    fn a_filter_names_the_sources_of_its_group() {
        let sources = |filter: &str| {
            let group = GOOD.replace("c=IN IP4 127.0.0.1", "c=IN IP4 239.69.1.2/32");
            let text = format!("{group}a=source-filter:{filter}\r\n");
            let sources = only(text.as_bytes()).sources.into_iter();
            sources.map(|source| source.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sources(" incl IN IP4 239.69.1.2 10.0.0.1 10.0.0.2"), "10.0.0.1 10.0.0.2");
        assert_eq!(sources("incl IN IP4 * 10.0.0.1"), "10.0.0.1");
        for other in ["incl IN IP4 239.9.9.9 10.0.0.1", "excl IN IP4 * 10.0.0.1", "incl", ""] {
            assert_eq!(sources(other), "", "{other}");
        }
    }

    #[test]
    fn a_line_that_is_needed_is_told_with_its_number() {
        assert_eq!(offers(b"GIF89a"), Err(OfferError::NoMedia));
        for (good, broken, told) in [
            ("m=video 5004", "m=video port", "line 6, `m=video port RTP/AVP 96`: not `m=KIND"),
            ("RTP/AVP 96", "RTP/AVP", "line 6, "),
            ("m=video 5004", "m=video 65536", "line 6, "),
            ("c=IN IP4 127.0.0.1", "c=127.0.0.1", "line 4, `c=127.0.0.1`: not `c=IN IP4 ADDRESS`"),
        ] {
            let error = offers(GOOD.replacen(good, broken, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
        let long = GOOD.replacen("m=video", &format!("m={}", "ä".repeat(500)), 1);
        let error = offers(long.replace("5004", "x").as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 150, "{error}");
        let many = format!("{GOOD}{}", "a=x\n".repeat(ATTRIBUTES));
        assert!(offers(many.as_bytes()).is_err());
        assert!(offers("m=video 1 RTP/AVP 0\n".repeat(MEDIA + 1).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(lines in prop::collection::vec("[mcba]=\\PC{0,40}", 0..20)) {
            let _ = offers(lines.join("\n").as_bytes());
        }
    }
}
