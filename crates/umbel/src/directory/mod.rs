//! The session directory: the sessions on the air, by SAP and SDP [RFC 2974, RFC 8866].
//!
//! ```text
//! source ── announcement, about every five minutes ──▶ 239.255.255.255:9875 and its counterparts
//!        ◀── FindSessions ── receiver that does not wait ── the same group, port 7701
//!        ── announcement at once, at most every 200 ms ─▶
//!        ── deletion at the end; that of a stream four times in a second ──▶
//! ```
//!
//! A receiver that names the source's address asks it by unicast as well, at port 7701, and is
//! answered by unicast. So it finds a session where routers carry source-specific channels only.
//! Of several sessions of a host, the one that was started first is found so.
//!
//! Standard tools see the announcements, and sessions of theirs are listed here.
//!
//! Any host in reach can announce anything. So an announcement is [signed] by its sender, with the
//! key by which `umbel serve` is known. A session without a signature is not received. A receiver
//! has the key because its user gives the pin, or because it [remembers](KnownSenders) the key from
//! the first time.
//!
//! [signed]: umbel_wire::signed

mod announcer;
mod ears;
mod known;
mod selector;
mod sought;
mod station;
mod succession;
mod table;
mod watch;

use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use umbel_net::session::Pin;
use umbel_wire::ParseError;
use umbel_wire::feed::Feed;
use umbel_wire::sdp::Description;
use umbel_wire::session::SessionKind;
use umbel_wire::stream::Stream;

pub use announcer::Announcer;
pub(crate) use known::FILE_NAMES as KNOWN_SENDERS;
pub use known::{Acquaintance, Known, KnownSenders};
pub use selector::{Noun, SessionSelector, SessionUrl};
pub use sought::Sought;
pub use station::Station;
pub(crate) use succession::Succession;
pub use table::Directory;
pub(crate) use watch::{News, Signs, Silence, Watch};

/// Returns the version of a session that begins now: milliseconds since 1970. Of the sessions of
/// one sender under one name the latest counts, since anyone can announce an earlier one again.
pub(crate) fn version_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A session on the air.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's own description.
    pub description: Description,
    /// The feed or stream, if the session is one that can be received.
    pub kind: Option<SessionKind>,
    /// Reason why the session cannot be received, though it claims to be one of Umbel's.
    pub problem: Option<String>,
    /// Address of the announcer, as it says itself.
    pub announcer: IpAddr,
    /// Fingerprint of the key that signed the announcement.
    pub signer: Option<Pin>,
    /// That key.
    pub key: Option<[u8; 32]>,
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
        self.kind.as_ref().and_then(Sought::of)
    }

    /// Returns what it is, if it can be received.
    pub fn noun(&self) -> Option<Noun> {
        self.kind.as_ref().map(|kind| match kind {
            SessionKind::Feed(_) => Noun::Feed,
            SessionKind::Stream(_) => Noun::Stream,
        })
    }

    /// Returns the stream, if the session is one.
    pub fn stream(&self) -> Option<&Stream> {
        self.kind.as_ref().and_then(Sought::of)
    }
}

/// Returns why a session cannot be received, and what to do.
fn problem(error: &ParseError) -> String {
    match error {
        ParseError::Version { theirs, ours } => format!(
            "its sender speaks version {theirs} of the protocol, this program version {ours}: use \
             the same release of umbel on both sides"
        ),
        error => error.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::OnceLock;

    use super::*;
    use umbel_net::session::{Identity, Signer};
    use umbel_wire::feed::FeedContent;
    use umbel_wire::sap::SapPacket;
    use umbel_wire::stream::{LayerInfo, StreamMode};
    use umbel_wire::{Channel, Tsi};

    pub(crate) fn feed(name: &str, tsi: u32) -> Feed {
        let source: SocketAddr = "10.0.0.1:40000".parse().unwrap();
        Feed {
            name: name.parse().unwrap(),
            tsi: Tsi(tsi),
            source,
            node: umbel_wire::tmtp::NodeId(1),
            data: Channel { source: Some(source.ip()), group: [232, 1, 1, 1].into(), port: 7702 },
            domain: Channel { source: None, group: [239, 255, 1, 1].into(), port: 7703 },
            scope: 32,
            symbol_len: 1368,
            block_symbols: 64,
            fec: true,
            recovery: umbel_wire::feed::Recovery::Tree,
            kbit_per_s: 1000,
            content: FeedContent::Pipe,
            token: false,
            sealed: None,
            last_word: Some(umbel_wire::Digest([1; 32])),
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

    /// Returns the key of this number, the same in one test.
    pub(crate) fn signer(number: u8) -> Signer {
        static KEYS: OnceLock<[Signer; 3]> = OnceLock::new();
        let make = || {
            let directory = tempfile::tempdir().unwrap();
            Identity::load_or_create(directory.path()).unwrap().signer().unwrap()
        };
        KEYS.get_or_init(|| [make(), make(), make()])[usize::from(number)].clone()
    }

    pub(crate) fn signed_packet(
        session: impl Into<SessionKind>,
        deletion: bool,
        keys: &Signer,
    ) -> Vec<u8> {
        let session = session.into();
        let origin = session.source().ip();
        let payload = announcer::payload(&session, keys, deletion);
        let mut out = Vec::new();
        SapPacket::new(deletion, origin, &payload).emit(&mut out);
        out
    }

    #[test]
    fn two_feeds_of_one_name_are_both_there_and_can_be_told_apart() {
        let (mut directory, now, keys) = (Directory::default(), Instant::now(), signer(1));
        let mut other = feed("a", 2);
        other.source = "10.0.0.2:40001".parse().unwrap();
        other.data.source = Some(other.source.ip());
        directory.hear(now, [10, 0, 0, 1].into(), &signed_packet(feed("a", 1), false, &keys));
        directory.hear(now, [10, 0, 0, 2].into(), &signed_packet(other, false, &signer(2)));
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
        let name = "a".parse().unwrap();
        let url = |pin| SessionUrl { noun: Noun::Feed, name: &name, pin }.to_string();
        for (keys, count) in [(signer(1), 1), (signer(2), 1), (signer(0), 0)] {
            assert_eq!(matching(&url(keys.pin())), count);
        }
    }

    #[test]
    fn feeds_and_streams_are_found_alike_and_told_apart() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let from = [10, 0, 0, 1];
        directory.hear(now, from.into(), &signed_packet(feed("a", 1), false, &signer(1)));
        directory.hear(now, from.into(), &signed_packet(stream("b", 2), false, &signer(2)));
        let sessions = directory.sessions();
        assert_eq!(sessions[0].feed(), Some(&feed("a", 1)));
        assert_eq!(sessions[1].stream(), Some(&stream("b", 2)));
        assert!(sessions[0].stream().is_none() && sessions[1].feed().is_none());
        let selector: SessionSelector = "b@10.0.0.1:40000".parse().unwrap();
        assert!(selector.matches(sessions[1]) && !selector.matches(sessions[0]));
    }
}
