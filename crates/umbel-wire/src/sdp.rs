//! SDP: session descriptions [RFC 8866], to the extent that a directory needs them.
//!
//! Text lines `<type>=<value>`. These are kept:
//!
//! | line | value |
//! |---|---|
//! | `v=` | version, always 0; comes first |
//! | `o=` | [`Origin`]: user, session, version of the description, address |
//! | `s=` | name |
//! | `i=` | information for people |
//! | `c=` | [`Connection`]: group and TTL, of the session or of one medium |
//! | `b=` | most kbit/s, of the session or of one medium (`AS`) |
//! | `t=` | start and stop, in seconds since 1900 (0: always) |
//! | `a=` | [`Attribute`], of the session or of one medium |
//! | `m=` | [`Media`]: kind, port, protocol, formats |
//!
//! Other lines are skipped, and lines may end with a line feed alone, as other tools write them.
//! The attributes of Umbel's sessions are in [`feed`](crate::feed) and [`stream`](crate::stream).
//!
//! Announcements come from strangers, so they are read strictly. A file that the user gives is read
//! by [`offers`].

mod offer;

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::ParseError;

pub use offer::{Offer, OfferError, offers};

/// Maximum length of a description in bytes.
pub const DESCRIPTION_LEN: usize = crate::sap::PAYLOAD_LEN;
/// Maximum number of media in a description.
const MEDIA: usize = 64;
/// Maximum number of attributes in a description, those of its media included.
const ATTRIBUTES: usize = 256;

/// A session description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Origin of the description; tells this session from any other.
    pub origin: Origin,
    /// The session's name.
    pub name: String,
    /// Information for people.
    pub information: Option<String>,
    /// Group or host of the session, unless its media have their own.
    pub connection: Option<Connection>,
    /// Maximum rate in kilobits per second, headers included: the `AS` bandwidth.
    pub bandwidth: Option<u64>,
    /// Start and stop in seconds since 1900; 0 means no limit.
    pub time: (u64, u64),
    /// Attributes of the whole session.
    pub attributes: Vec<Attribute>,
    /// Its media.
    pub media: Vec<Media>,
}

/// The origin line. All fields but `version` together identify a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// A user of the originating host, or `-`.
    pub user: String,
    /// Number of the session.
    pub session: u64,
    /// Version of the description; grows with each change.
    pub version: u64,
    /// The originating host, by address or name.
    pub address: String,
}

/// A connection line: a group, or a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address.
    pub address: IpAddr,
    /// TTL of an IPv4 group; IPv6 has none.
    pub ttl: Option<u8>,
}

/// An attribute: `a=name` or `a=name:value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}

/// A medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Media {
    /// `audio`, `video`, `application`, …
    pub kind: String,
    /// Its port.
    pub port: u16,
    /// Transport protocol, such as `RTP/AVP`.
    pub protocol: String,
    /// Formats of the medium, as the protocol defines them; not empty.
    pub formats: String,
    /// Group or host of the medium, if it differs from the session's.
    pub connection: Option<Connection>,
    /// Maximum rate in kilobits per second, headers included: the `AS` bandwidth.
    pub bandwidth: Option<u64>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

impl Attribute {
    /// Creates an attribute with a value.
    pub fn new(name: &str, value: impl Into<String>) -> Attribute {
        Attribute { name: name.to_owned(), value: Some(value.into()) }
    }

    /// Creates an attribute without a value.
    pub fn flag(name: &str) -> Attribute {
        Attribute { name: name.to_owned(), value: None }
    }
}

impl Description {
    /// Returns the value of the session's first attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.name == name)?.value.as_deref()
    }

    /// Returns whether the session has an attribute of this name.
    pub fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|attribute| attribute.name == name)
    }

    /// Returns the group or host of a medium: its own, or else the session's.
    pub fn connection_of(&self, media: &Media) -> Option<Connection> {
        media.connection.or(self.connection)
    }

    /// Returns the description as text. Line breaks in names and values become spaces.
    pub fn emit(&self) -> String {
        let mut out = String::from("v=0\r\n");
        out += &self.origin.emit();
        line(&mut out, 's', name_or_dash(&self.name));
        if let Some(information) = &self.information {
            line(&mut out, 'i', information);
        }
        put_connection(&mut out, self.connection);
        put_bandwidth(&mut out, self.bandwidth);
        line(&mut out, 't', &format!("{} {}", self.time.0, self.time.1));
        put_attributes(&mut out, &self.attributes);
        for media in &self.media {
            let Media { kind, port, protocol, formats, .. } = media;
            line(&mut out, 'm', &format!("{kind} {port} {protocol} {formats}"));
            put_connection(&mut out, media.connection);
            put_bandwidth(&mut out, media.bandwidth);
            put_attributes(&mut out, &media.attributes);
        }
        out
    }

    /// Parses a description.
    ///
    /// # Errors
    ///
    /// Returns an error if the description is too long, is not UTF-8, has control characters, or
    /// does not begin with `v=0`. It also does if origin or name is missing or occurs twice, or if
    /// a line is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Description, ParseError> {
        if bytes.len() > DESCRIPTION_LEN {
            return Err(bad("too long"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| bad("not UTF-8"))?;
        if text.lines().any(|line| line.contains(is_refused)) {
            return Err(bad("control characters"));
        }
        let mut lines = text.lines().filter(|line| !line.is_empty());
        if lines.next() != Some("v=0") {
            return Err(bad("another version than 0"));
        }
        let mut reading = Reading::default();
        for line in lines {
            let (kind, value) = line.split_once('=').ok_or_else(|| bad("a line without `=`"))?;
            reading.take(kind, value)?;
        }
        reading.finish()
    }
}

fn bad(problem: &'static str) -> ParseError {
    ParseError::Value { what: "session description", problem }
}

/// Returns whether a character is refused in a line.
fn is_refused(character: char) -> bool {
    character.is_control() && character != '\t'
}

/// The lines that were parsed so far.
#[derive(Default)]
struct Reading {
    description: Description,
    origin: Option<Origin>,
    named: bool,
    attributes: usize,
}

impl Reading {
    fn take(&mut self, kind: &str, value: &str) -> Result<(), ParseError> {
        let description = &mut self.description;
        match kind {
            "o" if self.origin.is_some() => return Err(bad("two origins")),
            "o" => self.origin = Some(Origin::parse(value)?),
            "s" if self.named => return Err(bad("two names")),
            "s" => {
                self.named = true;
                name_or_dash(value).clone_into(&mut description.name);
            }
            "i" if description.media.is_empty() => description.information = Some(value.into()),
            "b" => {
                if let Some(kbit_per_s) = value.strip_prefix("AS:") {
                    let number = kbit_per_s.parse().map_err(|_| bad("a bandwidth that is none"))?;
                    let place = match description.media.last_mut() {
                        Some(media) => &mut media.bandwidth,
                        None => &mut description.bandwidth,
                    };
                    *place = Some(number);
                }
            }
            "t" => description.time = time(value).ok_or_else(|| bad("a time that is none"))?,
            "c" => {
                // A medium may be spread over several groups; the first is enough to find it.
                let connection = connection(value).ok_or_else(|| bad("a connection"))?;
                let place = match description.media.last_mut() {
                    Some(media) => &mut media.connection,
                    None => &mut description.connection,
                };
                place.get_or_insert(connection);
            }
            "a" => {
                self.attributes += 1;
                if self.attributes > ATTRIBUTES {
                    return Err(bad("too many attributes"));
                }
                let attributes = match description.media.last_mut() {
                    Some(media) => &mut media.attributes,
                    None => &mut description.attributes,
                };
                attributes.push(match value.split_once(':') {
                    Some((name, value)) => Attribute::new(name, value),
                    None => Attribute::flag(value),
                });
            }
            "m" if description.media.len() == MEDIA => return Err(bad("too many media")),
            "m" => description.media.push(media(value).ok_or_else(|| bad("a medium"))?),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Description, ParseError> {
        let origin = self.origin.ok_or_else(|| bad("no origin"))?;
        if !self.named {
            return Err(bad("no name"));
        }
        Ok(Description { origin, ..self.description })
    }
}

impl Origin {
    /// Returns whether both identify the same session, in any versions.
    pub fn is_same_session(&self, other: &Origin) -> bool {
        (&self.user, self.session, &self.address) == (&other.user, other.session, &other.address)
    }

    /// Returns the origin line with its line break, which is all that a deletion needs to carry.
    pub fn emit(&self) -> String {
        let family = if self.address.contains(':') { "IP6" } else { "IP4" };
        let Origin { user, session, version, address } = self;
        let mut out = String::new();
        line(&mut out, 'o', &format!("{user} {session} {version} IN {family} {address}"));
        out
    }

    /// Parses the origin in a deletion, which may be a whole description or its origin line alone.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no origin line, or it is malformed.
    pub fn find(bytes: &[u8]) -> Result<Origin, ParseError> {
        let text = std::str::from_utf8(bytes).map_err(|_| bad("not UTF-8"))?;
        let value = text.lines().find_map(|line| line.strip_prefix("o="));
        Origin::parse(value.ok_or_else(|| bad("no origin"))?)
    }

    fn parse(value: &str) -> Result<Origin, ParseError> {
        let fields: Vec<&str> = value.split(' ').collect();
        let &[user, session, version, "IN", _, address] = &fields[..] else {
            return Err(bad("an origin that is none"));
        };
        let number = |text: &str| text.parse().map_err(|_| bad("a number that is none"));
        Ok(Origin {
            user: user.to_owned(),
            session: number(session)?,
            version: number(version)?,
            address: address.to_owned(),
        })
    }
}

/// Returns the name, or the placeholder for no name [RFC 8866 §5.3].
fn name_or_dash(name: &str) -> &str {
    if name.trim().is_empty() { "-" } else { name }
}

fn line(out: &mut String, kind: char, value: &str) {
    out.push(kind);
    out.push('=');
    out.extend(value.chars().map(|c| if is_refused(c) { ' ' } else { c }));
    out.push_str("\r\n");
}

fn put_connection(out: &mut String, connection: Option<Connection>) {
    let Some(Connection { address, ttl }) = connection else { return };
    let family = if address.is_ipv6() { "IP6" } else { "IP4" };
    let _ = write!(out, "c=IN {family} {address}");
    if let Some(ttl) = ttl.filter(|_| address.is_ipv4()) {
        let _ = write!(out, "/{ttl}");
    }
    out.push_str("\r\n");
}

fn put_bandwidth(out: &mut String, kbit_per_s: Option<u64>) {
    if let Some(kbit_per_s) = kbit_per_s {
        line(out, 'b', &format!("AS:{kbit_per_s}"));
    }
}

fn put_attributes(out: &mut String, attributes: &[Attribute]) {
    for Attribute { name, value } in attributes {
        match value {
            Some(value) => line(out, 'a', &format!("{name}:{value}")),
            None => line(out, 'a', name),
        }
    }
}

fn connection(value: &str) -> Option<Connection> {
    let (family, address) = value.strip_prefix("IN ")?.split_once(' ')?;
    let mut parts = address.split('/');
    let address: IpAddr = parts.next()?.parse().ok()?;
    let expected = if address.is_ipv6() { "IP6" } else { "IP4" };
    if family != expected {
        return None;
    }
    let ttl = match parts.next() {
        Some(ttl) if address.is_ipv4() => Some(ttl.parse().ok()?),
        // The number of an IPv6 medium's groups.
        _ => None,
    };
    Some(Connection { address, ttl })
}

fn time(value: &str) -> Option<(u64, u64)> {
    let (start, stop) = value.split_once(' ')?;
    Some((start.parse().ok()?, stop.parse().ok()?))
}

fn media(value: &str) -> Option<Media> {
    let mut fields = value.splitn(4, ' ');
    let (kind, port, protocol) = (fields.next()?, fields.next()?, fields.next()?);
    let formats = fields.next().filter(|formats| !formats.is_empty())?;
    // `port/number of ports`.
    let port = port.split('/').next()?.parse().ok()?;
    Some(Media {
        kind: kind.to_owned(),
        port,
        protocol: protocol.to_owned(),
        formats: formats.to_owned(),
        ..Media::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of [RFC 8866 §5].
    const EXAMPLE: &str = "v=0\no=jdoe 3724394400 3724394405 IN IP4 198.51.100.1\n\
        s=Call to John Smith\ni=SDP Offer #1\nu=http://www.jdoe.example.com/home.html\n\
        e=Jane Doe <jane@jdoe.example.com>\np=+1 617 555-6011\nc=IN IP4 233.252.0.1/127\n\
        t=0 0\nm=audio 49170 RTP/AVP 0\nm=audio 49180 RTP/AVP 0\n\
        m=video 51372 RTP/AVP 99\nc=IN IP6 2001:db8::2\na=rtpmap:99 h263-1998/90000\n";

    #[test]
    fn the_example_of_the_standard_is_read() {
        let description = Description::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(description.name, "Call to John Smith");
        assert_eq!(description.origin.session, 3_724_394_400);
        assert_eq!(description.connection.unwrap().ttl, Some(127));
        let [audio, _, video] = &description.media[..] else { panic!("{description:?}") };
        assert_eq!(description.connection_of(audio), description.connection);
        assert_eq!((video.port, &video.protocol[..]), (51372, "RTP/AVP"));
        assert_eq!(video.connection.unwrap().address.to_string(), "2001:db8::2");
        assert_eq!(video.attributes, [Attribute::new("rtpmap", "99 h263-1998/90000")]);
        let again = Description::parse(description.emit().as_bytes()).unwrap();
        assert_eq!(again, description);
    }

    #[test]
    fn what_does_not_keep_to_the_form_is_refused() {
        assert!(Description::parse(b"").is_err());
        for (good, broken) in [
            ("v=0", "v=1"),
            ("o=jdoe 3724394400", "o=jdoe"),
            ("3724394405 IN", "-1 IN"),
            ("s=Call", "x=Call"),
            ("i=SDP Offer #1", "s=another name"),
            ("u=http", "o=jdoe 1 1 IN IP4 198.51.100.1\nu=http"),
            ("p=+1 617", "p+1 617"),
            ("Call to", "Call\u{0}to"),
            ("t=0 0", "t=0"),
            ("t=0 0", "b=AS:x\nt=0 0"),
            ("IP4 233.252.0.1/127", "IP4 233.252.0.1/256"),
            ("IP4 233.252.0.1/127", "IP6 233.252.0.1/127"),
            ("audio 49170 RTP/AVP 0", "audio 99170 RTP/AVP 0"),
            ("audio 49170 RTP/AVP 0", "audio 49170 RTP/AVP"),
        ] {
            let text = EXAMPLE.replacen(good, broken, 1);
            assert_ne!(text, EXAMPLE, "{good}");
            assert!(Description::parse(text.as_bytes()).is_err(), "{broken}");
        }
        let long = format!("{EXAMPLE}{}", "a=x\n".repeat(ATTRIBUTES));
        assert!(Description::parse(long.as_bytes()).is_err());
    }

    #[test]
    fn a_name_cannot_add_lines() {
        let description =
            Description { name: "x\r\nm=audio 1 RTP/AVP 0".to_owned(), ..Description::default() };
        let origin = Origin { user: "-".into(), address: "192.0.2.1".into(), ..Origin::default() };
        let text = Description { origin, ..description }.emit();
        let parsed = Description::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.media, []);
        assert_eq!(parsed.name, "x  m=audio 1 RTP/AVP 0");
    }

    #[test]
    fn a_deletion_names_the_session_by_its_origin() {
        let whole = Origin::find(EXAMPLE.as_bytes()).unwrap();
        let alone = Origin::find(whole.emit().as_bytes()).unwrap();
        assert_eq!(whole, alone);
        assert!(whole.is_same_session(&Origin { version: 1, ..alone.clone() }));
        assert!(!whole.is_same_session(&Origin { session: 1, ..alone }));
        assert!(Origin::find(b"v=0\r\n").is_err());
    }
}
