//! Common parts of all announced sessions of Umbel: their names, the query for them, and the
//! attributes that every kind has.
//!
//! | kind | is announced as | by |
//! |---|---|---|
//! | [`Feed`] | files or a pipe, by TMTP | `umbel send` |
//! | [`Stream`] | layers of a live stream, by RLM | `umbel stream` |
//!
//! A session is announced about every five minutes, as [`sap`](crate::sap) demands. A receiver that
//! does not want to wait asks with [`FindSessions`], and sources answer with an announcement.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::control::{self, Field, Frame};
use crate::feed::Feed;
use crate::sdp::{Attribute, Connection, Description, Media};
use crate::stream::Stream;
use crate::{Channel, ParseError, Parsed, Tsi};

/// Maximum length of a session's name in bytes.
pub const NAME_LEN: usize = 100;
/// The UDP port of [`FindSessions`].
pub const QUERY_PORT: u16 = 7701;

pub(crate) const TSI: &str = "x-umbel-tsi";
pub(crate) const SOURCE: &str = "x-umbel-source";
pub(crate) const SCOPE: &str = "x-umbel-scope";
pub(crate) const CONTENT: &str = "x-umbel-content";
/// Transport protocol of media whose packets are ALC.
pub(crate) const DATA_PROTOCOL: &str = "ALC/UDP";
/// The source filter of a medium [RFC 4570].
const FILTER: &str = "source-filter";

/// A session that a receiver can join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A feed.
    Feed(Box<Feed>),
    /// A layered live stream.
    Stream(Box<Stream>),
}

impl SessionKind {
    /// Returns what people call a session of this kind: `feed` or `stream`.
    pub fn noun(&self) -> &'static str {
        match self {
            SessionKind::Feed(_) => "feed",
            SessionKind::Stream(_) => "stream",
        }
    }

    /// Returns the session's name.
    pub fn name(&self) -> &SessionName {
        match self {
            SessionKind::Feed(feed) => &feed.name,
            SessionKind::Stream(stream) => &stream.name,
        }
    }

    /// Returns the session's number.
    pub fn tsi(&self) -> Tsi {
        match self {
            SessionKind::Feed(feed) => feed.tsi,
            SessionKind::Stream(stream) => stream.tsi,
        }
    }

    /// Returns the source's unicast address, which distinguishes sessions of the same name.
    pub fn source(&self) -> SocketAddr {
        match self {
            SessionKind::Feed(feed) => feed.source,
            SessionKind::Stream(stream) => stream.source,
        }
    }

    /// Returns the maximum hop count of any packet of the session.
    pub fn scope(&self) -> u8 {
        match self {
            SessionKind::Feed(feed) => feed.scope,
            SessionKind::Stream(stream) => stream.scope,
        }
    }

    /// Returns the group whose scope tells in which directory the session is announced.
    pub fn announced_with(&self) -> IpAddr {
        match self {
            SessionKind::Feed(feed) => feed.domain.group,
            SessionKind::Stream(stream) => stream.announced_with(),
        }
    }

    /// Returns the description to announce; `tool` names the program.
    pub fn describe(&self, tool: &str) -> Description {
        match self {
            SessionKind::Feed(feed) => feed.describe(tool),
            SessionKind::Stream(stream) => stream.describe(tool),
        }
    }

    /// Returns the session of a description, or `None` if it is none of Umbel's.
    ///
    /// # Errors
    ///
    /// As [`Feed::from_description`] and [`Stream::from_description`].
    pub fn from_description(description: &Description) -> Result<Option<SessionKind>, ParseError> {
        if let Some(feed) = Feed::from_description(description)? {
            return Ok(Some(SessionKind::Feed(Box::new(feed))));
        }
        let stream = Stream::from_description(description)?;
        Ok(stream.map(|stream| SessionKind::Stream(Box::new(stream))))
    }
}

impl From<Feed> for SessionKind {
    fn from(feed: Feed) -> SessionKind {
        SessionKind::Feed(Box::new(feed))
    }
}

impl From<Stream> for SessionKind {
    fn from(stream: Stream) -> SessionKind {
        SessionKind::Stream(Box::new(stream))
    }
}

/// A session's name: 1 to [`NAME_LEN`] bytes without control characters and `@`. It is not `-`, and
/// neither begins nor ends with a space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(String);

impl SessionName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for SessionName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<SessionName, ParseError> {
        let problem = match text {
            "" => "it is empty",
            "-" => "`-` is no name",
            _ if text.len() > NAME_LEN => "more than 100 bytes",
            _ if text.trim() != text => "a space at its beginning or end",
            _ if text.contains('@') => "`@` stands before a source's address",
            _ if text.chars().any(char::is_control) => "a control character",
            _ => return Ok(SessionName(text.to_owned())),
        };
        Err(ParseError::Value { what: "name of a session", problem })
    }
}

/// Asks sources to announce their sessions now. Sent to the group of a directory, port
/// [`QUERY_PORT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindSessions {
    /// Name of the wanted session; `None` asks for all sessions.
    pub name: Option<SessionName>,
}

const FIND_SESSIONS: u8 = 0xD1;
const NAME: Field = Field { number: 1, name: "name" };

impl FindSessions {
    /// Appends the message to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, FIND_SESSIONS);
        if let Some(name) = &self.name {
            frame.string(NAME, name.as_str());
        }
        frame.end();
    }

    /// Parses a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a control message of this version, or the name is
    /// invalid.
    pub fn parse(bytes: &[u8]) -> Result<Parsed<FindSessions>, ParseError> {
        control::parse(bytes, |fields| {
            if fields.message != FIND_SESSIONS {
                return Ok(None);
            }
            let name = fields.optional(NAME)?.map(|value| {
                std::str::from_utf8(value).map_err(|_| bad("name of a session"))?.parse()
            });
            Ok(Some(FindSessions { name: name.transpose()? }))
        })
    }
}

/// Returns the error for an attribute that cannot be read.
pub(crate) fn bad(what: &'static str) -> ParseError {
    ParseError::Value { what, problem: "missing, or not of the form that it must have" }
}

/// Checks the version of the protocol that an announced session has in this attribute. It is that
/// of the messages, so that who joins a session never hears of another.
pub(crate) fn check_version(name: &'static str, value: &str) -> Result<(), ParseError> {
    let theirs: u8 = number(value).ok_or_else(|| bad(name))?;
    let ours = control::VERSION;
    if theirs == ours { Ok(()) } else { Err(ParseError::Version { theirs, ours }) }
}

/// Parses an unsigned number of decimal digits and nothing else.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses the address and port of a host, separated by a space.
pub(crate) fn host(value: &str) -> Option<SocketAddr> {
    let host = address_and_port(value)?;
    let sound = !host.ip().is_multicast() && !host.ip().is_unspecified() && host.port() != 0;
    sound.then_some(host)
}

/// Parses an address and a port, separated by a space.
pub(crate) fn address_and_port(value: &str) -> Option<SocketAddr> {
    let (address, port) = value.split_once(' ')?;
    Some(SocketAddr::new(address.parse().ok()?, number(port)?))
}

/// Returns the medium of a channel of any source.
pub(crate) fn media(
    (kind, protocol, formats): (&str, &str, &str),
    channel: &Channel,
    scope: u8,
) -> Media {
    let ttl = channel.group.is_ipv4().then_some(scope);
    Media {
        kind: kind.to_owned(),
        port: channel.port,
        protocol: protocol.to_owned(),
        formats: formats.to_owned(),
        connection: Some(Connection { address: channel.group, ttl }),
        ..Media::default()
    }
}

/// Returns the filter that lets `source` alone send to `group`; without a group, to all groups that
/// it stands for.
pub(crate) fn source_filter(group: Option<IpAddr>, source: IpAddr) -> Attribute {
    let family = if source.is_ipv6() { "IP6" } else { "IP4" };
    let group = group.map_or("*".to_owned(), |group| group.to_string());
    Attribute::new(FILTER, format!(" incl IN {family} {group} {source}"))
}

/// Returns the channel of a medium, if it is a sound one.
pub(crate) fn channel(description: &Description, media: &Media) -> Option<Channel> {
    let group = description.connection_of(media)?.address;
    // The filter of a session is that of media without one.
    let mut filters = media.attributes.iter().chain(&description.attributes);
    let source = match filters.find(|attribute| attribute.name == FILTER) {
        None => None,
        Some(filter) => {
            let value = filter.value.as_deref()?.trim_start();
            let fields: Vec<&str> = value.split(' ').collect();
            let &["incl", "IN", _, filtered, source] = &fields[..] else { return None };
            let this_group = filtered == "*" || filtered.parse::<IpAddr>().ok()? == group;
            Some(source.parse::<IpAddr>().ok().filter(|_| this_group)?)
        }
    };
    let sound = group.is_multicast()
        && media.port != 0
        && source.is_none_or(|source| {
            source.is_ipv6() == group.is_ipv6()
                && !source.is_multicast()
                && !source.is_unspecified()
        });
    sound.then_some(Channel { source, group, port: media.port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_comes_back() {
        for name in [None, Some("nightly".parse().unwrap())] {
            let query = FindSessions { name };
            let mut bytes = Vec::new();
            query.emit(&mut bytes);
            assert_eq!(FindSessions::parse(&bytes).unwrap().message(), Some(query));
            bytes[3] ^= 1;
            assert_eq!(FindSessions::parse(&bytes).unwrap().message(), None);
        }
    }

    #[test]
    fn names_that_would_be_mistaken_for_something_else_are_refused() {
        for name in ["", "-", "a@b", " a", "a\n", "a\u{7}b", &"x".repeat(101)] {
            assert!(name.parse::<SessionName>().is_err(), "{name:?}");
        }
        for name in ["nightly", "Stade de l'été 1", "a-b", "日本"] {
            assert_eq!(name.parse::<SessionName>().unwrap().as_str(), name);
        }
    }
}
