//! The session directory: the sessions on the air, by SAP and SDP [RFC 2974, RFC 8866].
//!
//! ```text
//! source ── announcement, about every five minutes ──▶ 239.255.255.255:9875 and its counterparts
//!        ◀── FindSessions ── receiver that does not wait ── the same group, port 7701
//!        ── announcement at once, at most every 200 ms ─▶
//!        ── deletion at the end ──▶
//! ```
//!
//! Standard tools see the announcements, and sessions of theirs are listed here. No announcement
//! can be trusted: any host in reach can announce anything.

mod announcer;
mod station;
mod watch;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use umbel_wire::feed::Feed;
use umbel_wire::sap::SapPacket;
use umbel_wire::sdp::{Description, Origin};
use umbel_wire::session::{SessionKind, SessionName};
use umbel_wire::stream::Stream;

pub use announcer::Announcer;
pub use station::Station;
pub(crate) use watch::{News, Watch};

/// Most sessions that are remembered; each takes up to 8 KiB.
const MOST: usize = 2048;
/// Most sessions that are remembered of one announcing address.
const MOST_OF_ONE: usize = 128;
/// Time without an announcement after which a session is over [RFC 2974 §4].
const EXPIRY: Duration = Duration::from_hours(1);

/// A session on the air.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's own description.
    pub description: Description,
    /// The feed or stream, if the session is one that can be received.
    pub kind: Option<SessionKind>,
    /// Why the session cannot be received, though it claims to be one of Umbel's.
    pub problem: Option<String>,
    /// Address of the announcer.
    pub announcer: IpAddr,
    /// Time of the last announcement.
    pub heard: Instant,
}

impl Session {
    /// Returns the source's unicast address, which distinguishes sessions of the same name.
    pub fn source(&self) -> Option<SocketAddr> {
        self.kind.as_ref().map(SessionKind::source)
    }

    /// Returns the feed, if the session is one.
    pub fn feed(&self) -> Option<&Feed> {
        match &self.kind {
            Some(SessionKind::Feed(feed)) => Some(feed),
            _ => None,
        }
    }

    /// Returns the stream, if the session is one.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.kind {
            Some(SessionKind::Stream(stream)) => Some(stream),
            _ => None,
        }
    }
}

/// The sessions that were heard, in bounded memory.
#[derive(Debug, Default)]
pub struct Directory {
    sessions: BTreeMap<(IpAddr, Origin), Session>,
    /// Number of packets that were not announcements, or that exceeded the limits.
    refused: u64,
}

impl Directory {
    /// Takes a packet that came at `now`. Returns whether it changed anything.
    pub fn hear(&mut self, now: Instant, packet: &[u8]) -> bool {
        let changed = self.try_hear(now, packet);
        self.refused += u64::from(changed.is_none());
        changed.unwrap_or(false)
    }

    fn try_hear(&mut self, now: Instant, bytes: &[u8]) -> Option<bool> {
        let packet = SapPacket::parse(bytes).ok()?;
        let origin = Origin::find(packet.payload).ok()?;
        // A later version of the description replaces an earlier one.
        let key = (packet.origin, Origin { version: 0, ..origin });
        if packet.deletion {
            return Some(self.sessions.remove(&key).is_some());
        }
        let description = Description::parse(packet.payload).ok()?;
        if let Some(session) = self.sessions.get_mut(&key)
            && session.description == description
        {
            session.heard = now;
            return Some(false);
        }
        if !self.sessions.contains_key(&key) && !self.has_room(packet.origin) {
            return None;
        }
        let (kind, problem) = match SessionKind::from_description(&description) {
            Ok(kind) => (kind, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let session = Session { description, kind, problem, announcer: packet.origin, heard: now };
        self.sessions.insert(key, session);
        Some(true)
    }

    fn has_room(&self, announcer: IpAddr) -> bool {
        // The smallest origin stands first.
        let from = self.sessions.range((announcer, Origin::default())..);
        let of_one = from.take_while(|((other, _), _)| *other == announcer).count();
        self.sessions.len() < MOST && of_one < MOST_OF_ONE
    }

    /// Drops sessions that have not been announced for an hour.
    pub fn expire(&mut self, now: Instant) {
        self.sessions.retain(|_, session| now.duration_since(session.heard) < EXPIRY);
    }

    /// Returns the sessions on the air, by name.
    pub fn sessions(&self) -> Vec<&Session> {
        let mut all: Vec<_> = self.sessions.values().collect();
        all.sort_by_key(|session| (&session.description.name, session.source()));
        all
    }

    /// Returns the number of packets that were not announcements, or that exceeded the limits.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// A session as its user names it: `NAME`. `NAME@ADDRESS` or `NAME@ADDRESS:PORT` selects among
/// several sources with sessions of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSelector {
    /// Name of the session.
    pub name: SessionName,
    /// Address of the source.
    pub address: Option<IpAddr>,
    /// Port of the source.
    pub port: Option<u16>,
}

impl std::str::FromStr for SessionSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<SessionSelector, String> {
        let (name, at) = match text.rsplit_once('@') {
            Some((name, at)) => (name, Some(at)),
            None => (text, None),
        };
        let name = name.parse().map_err(|error: umbel_wire::ParseError| error.to_string())?;
        let Some(at) = at else { return Ok(SessionSelector { name, address: None, port: None }) };
        if let Ok(address) = at.parse::<SocketAddr>() {
            let (address, port) = (address.ip(), Some(address.port()));
            return Ok(SessionSelector { name, address: Some(address), port });
        }
        let bare = at.strip_prefix('[').and_then(|at| at.strip_suffix(']')).unwrap_or(at);
        let address = bare.parse().map_err(|_| {
            format!("`{at}` is no address: after `@` stands the source's, as in nightly@192.0.2.2")
        })?;
        Ok(SessionSelector { name, address: Some(address), port: None })
    }
}

impl SessionSelector {
    /// Returns whether a session is the selected one.
    pub fn matches(&self, session: &Session) -> bool {
        let source = session.source();
        session.description.name == self.name.as_str()
            && self.address.is_none_or(|address| source.is_some_and(|s| s.ip() == address))
            && self.port.is_none_or(|port| source.is_some_and(|s| s.port() == port))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use umbel_wire::feed::FeedContent;
    use umbel_wire::stream::{LayerInfo, StreamMode};
    use umbel_wire::{Channel, Tsi};

    pub(crate) fn feed(name: &str, tsi: u32) -> Feed {
        let source: SocketAddr = "10.0.0.1:40000".parse().unwrap();
        Feed {
            name: name.parse().unwrap(),
            tsi: Tsi(tsi),
            source,
            data: Channel { source: Some(source.ip()), group: [232, 1, 1, 1].into(), port: 7702 },
            domain: Channel { source: None, group: [239, 255, 1, 1].into(), port: 7703 },
            scope: 32,
            symbol_len: 1368,
            block_symbols: 64,
            fec: true,
            kbit_per_s: 1000,
            content: FeedContent::Pipe,
            token: false,
            sealed: None,
            version: 1,
        }
    }

    pub(crate) fn stream(name: &str, tsi: u32) -> Stream {
        let source: SocketAddr = "10.0.0.1:40000".parse().unwrap();
        let layer = LayerInfo { kbit_per_s: 128, fec: None };
        Stream {
            name: name.parse().unwrap(),
            tsi: Tsi(tsi),
            source,
            base: Channel { source: Some(source.ip()), group: [232, 1, 1, 1].into(), port: 7704 },
            control: None,
            scope: 32,
            mode: StreamMode::Cumulative,
            symbol_len: 1372,
            layers: vec![layer; 3],
            content: "video 1 640x360 30/1".parse().unwrap(),
            repair: None,
            version: 1,
        }
    }

    pub(crate) fn packet(
        session: impl Into<SessionKind>,
        deletion: bool,
        origin: [u8; 4],
    ) -> Vec<u8> {
        let description = session.into().describe("umbel");
        let text = if deletion { description.origin.emit() } else { description.emit() };
        let mut out = Vec::new();
        SapPacket::new(deletion, origin.into(), text.as_bytes()).emit(&mut out);
        out
    }

    fn names(directory: &Directory) -> Vec<&str> {
        directory.sessions().iter().map(|session| &session.description.name[..]).collect()
    }

    #[test]
    fn announcements_come_change_and_go() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let (mut a, b) = (feed("a", 1), feed("b", 2));
        let from = [10, 0, 0, 1];
        assert!(directory.hear(now, &packet(b.clone(), false, from)));
        assert!(directory.hear(now, &packet(a.clone(), false, from)));
        assert!(!directory.hear(now, &packet(a.clone(), false, from)));
        assert_eq!(names(&directory), ["a", "b"]);
        a.name = "c".parse().unwrap();
        a.version = 2;
        assert!(directory.hear(now, &packet(a.clone(), false, from)));
        assert_eq!(names(&directory), ["b", "c"]);
        assert!(directory.hear(now, &packet(b.clone(), true, from)));
        assert!(!directory.hear(now, &packet(b.clone(), true, from)));
        assert_eq!(names(&directory), ["c"]);
        directory.expire(now + EXPIRY);
        assert_eq!(names(&directory), [""; 0]);
        assert_eq!(directory.refused(), 0);
    }

    #[test]
    fn two_feeds_of_one_name_are_both_there_and_can_be_told_apart() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let mut other = feed("a", 2);
        other.source = "10.0.0.2:40001".parse().unwrap();
        other.data.source = Some(other.source.ip());
        directory.hear(now, &packet(feed("a", 1), false, [10, 0, 0, 1]));
        directory.hear(now, &packet(other, false, [10, 0, 0, 2]));
        let matching = |text: &str| {
            let selector: SessionSelector = text.parse().unwrap();
            directory.sessions().into_iter().filter(|session| selector.matches(session)).count()
        };
        assert_eq!(matching("a"), 2);
        for (text, count) in
            [("a@10.0.0.2", 1), ("a@10.0.0.2:40001", 1), ("a@10.0.0.2:1", 0), ("b", 0)]
        {
            assert_eq!(matching(text), count, "{text}");
        }
        assert!("a@nowhere".parse::<SessionSelector>().is_err());
        assert!("@10.0.0.2".parse::<SessionSelector>().is_err());
        assert!("a@[2001:db8::2]".parse::<SessionSelector>().is_ok());
    }

    #[test]
    fn feeds_and_streams_are_found_alike_and_told_apart() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        directory.hear(now, &packet(feed("a", 1), false, [10, 0, 0, 1]));
        directory.hear(now, &packet(stream("b", 2), false, [10, 0, 0, 1]));
        let sessions = directory.sessions();
        assert_eq!(sessions[0].feed(), Some(&feed("a", 1)));
        assert_eq!(sessions[1].stream(), Some(&stream("b", 2)));
        assert!(sessions[0].stream().is_none() && sessions[1].feed().is_none());
        let selector: SessionSelector = "b@10.0.0.1:40000".parse().unwrap();
        assert!(selector.matches(sessions[1]) && !selector.matches(sessions[0]));
    }

    #[test]
    fn memory_is_bounded_and_one_host_cannot_take_all_of_it() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        for tsi in 0..1000 {
            directory.hear(now, &packet(feed("x", tsi), false, [10, 0, 0, 1]));
        }
        assert_eq!(directory.sessions().len(), MOST_OF_ONE);
        assert!(directory.hear(now, &packet(feed("y", 1), false, [10, 0, 0, 2])));
        for host in 3..=255 {
            for tsi in 0..200 {
                directory.hear(now, &packet(feed("x", tsi), false, [10, 0, 0, host]));
            }
        }
        assert_eq!(directory.sessions().len(), MOST);
        assert!(directory.refused() > 0);
        directory.hear(now, b"garbage");
    }

    #[test]
    fn a_feed_that_cannot_be_received_says_why() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let text = feed("a", 1).describe("umbel").emit().replace("tmtp:1", "tmtp:2");
        let mut packet = Vec::new();
        SapPacket::new(false, [10, 0, 0, 1].into(), text.as_bytes()).emit(&mut packet);
        assert!(directory.hear(now, &packet));
        let sessions = directory.sessions();
        assert!(sessions[0].kind.is_none());
        assert!(sessions[0].problem.as_ref().unwrap().contains("version 2"));
    }
}
