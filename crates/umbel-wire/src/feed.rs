//! Description of a feed, from which a receiver can join it: a session description with attributes
//! of Umbel's own.
//!
//! ```text
//! v=0
//! o=- 3417 1 IN IP4 192.0.2.2
//! s=nightly
//! b=AS:50000
//! t=0 0
//! a=tool:umbel 0.1.0
//! a=x-umbel-tmtp:1                            version of the protocol
//! a=x-umbel-tsi:3417
//! a=x-umbel-node:83d1a7f0c2b45e96             the source's number in the tree
//! a=x-umbel-source:192.0.2.2 40123            where the source hears unicast
//! a=x-umbel-scope:32                          most hops of any packet
//! a=x-umbel-code:1376 16 fec                  bytes of a symbol, symbols of a block
//! a=x-umbel-content:files 3 1048576 212 9f…   items, bytes, the manifest's length and digest
//! a=x-umbel-recovery:lms                      how losses are recovered, unless by the tree
//! a=x-umbel-token                             only with a token
//! a=x-umbel-last-word:5d0c…                   only unsealed: digest of what the source says last
//! a=x-umbel-sealed:83d1…                      only if sealed: the key made for this feed
//! m=application 7702 ALC/UDP 0                the data channel
//! c=IN IP4 232.7.7.7/32
//! a=source-filter: incl IN IP4 232.7.7.7 192.0.2.2
//! m=application 7703 TMTP/UDP 0               the domain group
//! c=IN IP4 239.255.7.7/32
//! a=x-umbel-signed:…                          the sender's key and signature
//! ```
//!
//! Receivers take signed descriptions only; see [`signed`](crate::signed). The version in the
//! origin line is the time at which the feed began, in milliseconds since 1970. So it grows from
//! one feed of a sender to the next. Everything that a receiver can know before the first packet
//! stands here, and messages that contradict it are discarded.
//!
//! The source filter of the data channel is that of [RFC 4570]. A sealed feed begins with a
//! [head](SealedHead), whose length and digest replace the manifest's. The content of a sealed pipe
//! is `pipe 212 9f…`.

mod head;
mod recovery;

use std::net::SocketAddr;

use crate::sdp::{Attribute, Description, Media, Origin};
use crate::session::{self, CONTENT, DATA_PROTOCOL, SCOPE, SOURCE, SessionName, TSI};
use crate::session::{bad, channel, check_version, host, number, source_filter};
use crate::tmtp::NodeId;
use crate::{Channel, Digest, ParseError, Tsi, control};

pub use head::{HINT_LEN, SealedHead, WRAPPED_KEYS, WRAPPED_LEN, WrappedKey};
pub use recovery::{Recovery, UnknownRecovery};

/// Maximum length in bytes of a manifest's items: one million short names.
pub const MANIFEST_LEN: u64 = 64 << 20;
/// Maximum number of blocks of a feed of files, without those of its manifest.
pub const FILE_BLOCKS: u32 = 1 << 22;
/// Maximum length of a head in bytes: a manifest, and the digests of all blocks.
pub const HEAD_LEN: u64 = MANIFEST_LEN + 32 * FILE_BLOCKS as u64;
/// Maximum number of source symbols in a block.
pub const BLOCK_SYMBOLS: u16 = 255;

const TMTP: &str = "x-umbel-tmtp";
const NODE: &str = "x-umbel-node";
const CODE: &str = "x-umbel-code";
const TOKEN: &str = "x-umbel-token";
const SEALED: &str = "x-umbel-sealed";
const RECOVERY: &str = "x-umbel-recovery";
const LAST_WORD: &str = "x-umbel-last-word";
const DOMAIN_PROTOCOL: &str = "TMTP/UDP";

/// A feed as its source announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Name for people; see [`SessionName`].
    pub name: SessionName,
    /// Session number of the feed.
    pub tsi: Tsi,
    /// Address at which the source receives unicast.
    pub source: SocketAddr,
    /// Number of the source in the control tree.
    pub node: NodeId,
    /// Channel on which the source sends to all receivers.
    pub data: Channel,
    /// Domain group, in which domains form and repair losses; open to any source.
    pub domain: Channel,
    /// Maximum hop count of any packet of the feed, at least 1.
    pub scope: u8,
    /// Length of a full symbol in bytes, at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a block, 1 to [`BLOCK_SYMBOLS`].
    pub block_symbols: u16,
    /// Whether blocks have repair symbols.
    pub fec: bool,
    /// Recovery of losses.
    pub recovery: Recovery,
    /// Maximum rate of the data channel in kilobits per second, at least 1.
    pub kbit_per_s: u64,
    /// Content of the feed.
    pub content: FeedContent,
    /// Whether receivers need a token.
    pub token: bool,
    /// Sealing parameters, if only admitted receivers can read the feed.
    pub sealed: Option<Sealed>,
    /// BLAKE3 digest of the [last word](crate::tmtp::Heartbeat::last_word), without which nobody
    /// says in the source's name that the feed is over. Only sealed feeds have none, since their
    /// announcement is long enough.
    pub last_word: Option<Digest>,
    /// Version of the announcement; grows with each change.
    pub version: u64,
}

/// Parameters of a sealed feed that a receiver needs before its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The public key that the source made for this feed [RFC 7748].
    pub key: [u8; 32],
    /// Length of the head in bytes, at most [`HEAD_LEN`]; for files, equal to `manifest_len`.
    pub head_len: u64,
    /// Digest of the head; for files, equal to `digest`.
    pub head_digest: Digest,
}

/// Content of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedContent {
    /// Files, listed in a manifest that comes first.
    Files {
        /// Number of files.
        items: u64,
        /// Total size of the files in bytes.
        bytes: u64,
        /// Length of the manifest in bytes, at most [`HEAD_LEN`]; in a sealed feed, that of the
        /// head.
        manifest_len: u64,
        /// Digest of the manifest, or of the head in a sealed feed.
        digest: Digest,
    },
    /// Bytes sent as they are written, until the writer ends.
    Pipe,
}

impl Feed {
    /// Returns the description to announce; `tool` names the program.
    pub fn describe(&self, tool: &str) -> Description {
        let kind = if self.fec { "fec" } else { "exact" };
        let code = format!("{} {} {kind}", self.symbol_len, self.block_symbols);
        let mut attributes = vec![
            Attribute::new("tool", tool),
            Attribute::new(TMTP, control::VERSION.to_string()),
            Attribute::new(TSI, self.tsi.0.to_string()),
            Attribute::new(NODE, format!("{:016x}", self.node.0)),
            Attribute::new(SOURCE, format!("{} {}", self.source.ip(), self.source.port())),
            Attribute::new(SCOPE, self.scope.to_string()),
            Attribute::new(CODE, code),
            Attribute::new(CONTENT, self.content_value()),
        ];
        if let Some(sealed) = &self.sealed {
            attributes.push(Attribute::new(SEALED, Digest(sealed.key).to_string()));
        }
        if self.recovery != Recovery::Tree {
            attributes.push(Attribute::new(RECOVERY, self.recovery.to_string()));
        }
        if self.token {
            attributes.push(Attribute::flag(TOKEN));
        }
        if let Some(digest) = self.last_word {
            attributes.push(Attribute::new(LAST_WORD, digest.to_string()));
        }
        Description {
            origin: Origin {
                user: "-".to_owned(),
                session: self.tsi.0.into(),
                version: self.version,
                address: self.source.ip().to_string(),
            },
            name: self.name.as_str().to_owned(),
            bandwidth: Some(self.kbit_per_s),
            attributes,
            media: vec![
                self.media(DATA_PROTOCOL, &self.data),
                self.media(DOMAIN_PROTOCOL, &self.domain),
            ],
            ..Description::default()
        }
    }

    /// Returns whether everybody may take part, so that each node has
    /// [keys](crate::tmtp::NodeKeys) of its own.
    pub fn is_open(&self) -> bool {
        !self.token && self.sealed.is_none()
    }

    fn content_value(&self) -> String {
        match (self.content, self.sealed) {
            (FeedContent::Files { items, bytes, manifest_len, digest }, _) => {
                format!("files {items} {bytes} {manifest_len} {digest}")
            }
            (FeedContent::Pipe, None) => "pipe".to_owned(),
            (FeedContent::Pipe, Some(sealed)) => {
                format!("pipe {} {}", sealed.head_len, sealed.head_digest)
            }
        }
    }

    /// Returns the length and digest of the announced first part: the manifest, or the head of a
    /// sealed feed. Returns `None` for a pipe that is not sealed.
    pub fn head(&self) -> Option<(u64, Digest)> {
        match (self.sealed, self.content) {
            (Some(sealed), _) => Some((sealed.head_len, sealed.head_digest)),
            (None, FeedContent::Files { manifest_len, digest, .. }) => Some((manifest_len, digest)),
            (None, FeedContent::Pipe) => None,
        }
    }

    fn media(&self, protocol: &str, channel: &Channel) -> Media {
        let mut media = session::media(("application", protocol, "0"), channel, self.scope);
        let filter = channel.source.map(|source| source_filter(Some(channel.group), source));
        media.attributes.extend(filter);
        media
    }

    /// Returns the feed of a description, or `None` if the session is of another kind.
    ///
    /// # Errors
    ///
    /// Returns an error if the description claims to be a feed, but an attribute is missing or out
    /// of range, or the protocol version differs.
    pub fn from_description(description: &Description) -> Result<Option<Feed>, ParseError> {
        let Some(version) = description.attribute(TMTP) else { return Ok(None) };
        check_version(TMTP, version)?;
        let recovery = description.attribute(RECOVERY).map(str::parse::<Recovery>);
        let recovery = recovery.transpose().map_err(|_| bad(RECOVERY))?.unwrap_or_default();
        let value = |name: &'static str| description.attribute(name).ok_or_else(|| bad(name));
        let source = host(value(SOURCE)?).ok_or_else(|| bad(SOURCE))?;
        let (symbol_len, block_symbols, fec) = code(value(CODE)?).ok_or_else(|| bad(CODE))?;
        let scope: u8 = number(value(SCOPE)?).ok_or_else(|| bad(SCOPE))?;
        let channel = |protocol: &'static str| {
            let media = description.media.iter().find(|media| media.protocol == protocol);
            media.and_then(|media| channel(description, media)).ok_or_else(|| bad(protocol))
        };
        let (data, domain) = (channel(DATA_PROTOCOL)?, channel(DOMAIN_PROTOCOL)?);
        let families = [data.group, domain.group].map(|group| group.is_ipv6());
        if scope == 0 || domain.source.is_some() || families != [source.is_ipv6(); 2] {
            return Err(bad("feed"));
        }
        let (content, head) = content(value(CONTENT)?).ok_or_else(|| bad(CONTENT))?;
        let sealed = match (description.attribute(SEALED), head) {
            (None, _) if content == FeedContent::Pipe && head.is_some() => {
                return Err(bad(SEALED));
            }
            (None, _) => None,
            (Some(key), Some((head_len, head_digest))) => {
                let key = hexadecimal(key).ok_or_else(|| bad(SEALED))?;
                Some(Sealed { key, head_len, head_digest })
            }
            (Some(_), None) => return Err(bad(SEALED)),
        };
        let last_word = match description.attribute(LAST_WORD) {
            None if sealed.is_some() => None,
            Some(text) if sealed.is_none() => {
                Some(Digest(hexadecimal(text).ok_or_else(|| bad(LAST_WORD))?))
            }
            _ => return Err(bad(LAST_WORD)),
        };
        Ok(Some(Feed {
            name: description.name.parse()?,
            tsi: Tsi(number(value(TSI)?).ok_or_else(|| bad(TSI))?),
            source,
            node: node(value(NODE)?).ok_or_else(|| bad(NODE))?,
            data,
            domain,
            scope,
            symbol_len,
            block_symbols,
            fec,
            recovery,
            kbit_per_s: description.bandwidth.filter(|rate| *rate > 0).ok_or_else(|| bad("b="))?,
            content,
            token: description.has(TOKEN),
            sealed,
            last_word,
            version: description.origin.version,
        }))
    }
}

fn code(value: &str) -> Option<(u16, u16, bool)> {
    let fields: Vec<&str> = value.split(' ').collect();
    let &[symbol_len, block_symbols, kind] = &fields[..] else { return None };
    let symbol_len = number(symbol_len).filter(|len| *len > 0)?;
    let block_symbols = number(block_symbols).filter(|k| (1..=BLOCK_SYMBOLS).contains(k))?;
    match kind {
        "fec" => Some((symbol_len, block_symbols, true)),
        "exact" => Some((symbol_len, block_symbols, false)),
        _ => None,
    }
}

/// Parses the content of a feed, with the length and digest of its manifest or head.
fn content(value: &str) -> Option<(FeedContent, Option<(u64, Digest)>)> {
    let head = |len: &str, digest: &str| {
        let len = number(len).filter(|len| *len <= HEAD_LEN)?;
        Some((len, Digest(hexadecimal(digest)?)))
    };
    let fields: Vec<&str> = value.split(' ').collect();
    match fields[..] {
        ["pipe"] => Some((FeedContent::Pipe, None)),
        ["pipe", len, digest] => Some((FeedContent::Pipe, Some(head(len, digest)?))),
        ["files", items, bytes, len, digest] => {
            let (manifest_len, digest) = head(len, digest)?;
            let (items, bytes) = (number(items)?, number(bytes)?);
            let files = FeedContent::Files { items, bytes, manifest_len, digest };
            Some((files, Some((manifest_len, digest))))
        }
        _ => None,
    }
}

/// Parses the number of a node, 16 hexadecimal digits.
fn node(text: &str) -> Option<NodeId> {
    let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok().map(NodeId))?
}

fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::NAME_LEN;

    fn feed() -> Feed {
        Feed {
            name: "nightly".parse().unwrap(),
            tsi: Tsi(3417),
            source: "192.0.2.2:40123".parse().unwrap(),
            node: NodeId(0x83D1),
            data: Channel {
                source: Some([192, 0, 2, 2].into()),
                group: [232, 7, 7, 7].into(),
                port: 7702,
            },
            domain: Channel { source: None, group: [239, 255, 7, 7].into(), port: 7703 },
            scope: 32,
            symbol_len: 1376,
            block_symbols: 16,
            fec: true,
            recovery: Recovery::Tree,
            kbit_per_s: 50_000,
            content: FeedContent::Files {
                items: 3,
                bytes: 1 << 20,
                manifest_len: 212,
                digest: Digest([0x9F; 32]),
            },
            token: true,
            sealed: None,
            last_word: Some(Digest([0x5D; 32])),
            version: 1,
        }
    }

    /// Returns the example feed, sealed.
    fn sealed() -> Feed {
        let (head_len, head_digest) = feed().head().unwrap();
        let sealed = Some(Sealed { key: [0xA5; 32], head_len, head_digest });
        Feed { sealed, last_word: None, ..feed() }
    }

    #[test]
    fn an_announcement_is_short_enough_for_every_directory() {
        let longest = Feed {
            name: "x".repeat(NAME_LEN).parse().unwrap(),
            source: "[2001:db8:1111:2222:3333:4444:5555:6666]:40123".parse().unwrap(),
            data: Channel {
                source: Some("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap()),
                group: "ff35::8111:2222".parse().unwrap(),
                port: 65535,
            },
            domain: Channel { source: None, group: "ff15::8111:2222".parse().unwrap(), port: 1 },
            recovery: Recovery::Source,
            ..sealed()
        };
        let text = longest.describe("umbel 0.1.0").emit();
        let len = text.len() + crate::signed::LINE_LEN;
        assert!(len <= 1_000, "{len} bytes:\n{text}");
        let parsed = Description::parse(text.as_bytes()).unwrap();
        assert_eq!(Feed::from_description(&parsed), Ok(Some(longest)));
    }

    #[test]
    fn a_sealed_pipe_has_a_head_and_a_plain_one_has_none() {
        let pipe = Feed { content: FeedContent::Pipe, ..sealed() };
        let text = pipe.describe("umbel").emit();
        let parse =
            |text: &str| Feed::from_description(&Description::parse(text.as_bytes()).unwrap());
        assert_eq!(parse(&text), Ok(Some(pipe.clone())));
        let key = format!("a=x-umbel-sealed:{}\r\n", "a5".repeat(32));
        assert!(parse(&text.replace(&key, "")).is_err(), "a head, and no key");
        let plain = Feed { sealed: None, ..pipe };
        assert_eq!((plain.head(), sealed().head().is_some()), (None, true));
    }

    #[test]
    fn a_recovery_without_a_tree_is_said() {
        assert!(!feed().describe("umbel").emit().contains("x-umbel-recovery"));
        for recovery in [Recovery::Lms, Recovery::Srm, Recovery::Source] {
            let feed = Feed { recovery, ..feed() };
            let text = feed.describe("umbel").emit();
            let description = Description::parse(text.as_bytes()).unwrap();
            assert_eq!(Feed::from_description(&description), Ok(Some(feed)));
        }
    }

    #[test]
    fn a_feed_of_another_version_is_known_by_it() {
        let ours = control::VERSION;
        for feed in [Feed { token: false, ..feed() }, feed(), sealed()] {
            let text = feed.describe("umbel").emit();
            let with = |version: &str| {
                let line = format!("x-umbel-tmtp:{version}\r\n");
                let text = text.replace(&format!("x-umbel-tmtp:{ours}\r\n"), &line);
                Feed::from_description(&Description::parse(text.as_bytes()).unwrap())
            };
            assert_eq!(with("1"), Ok(Some(feed)));
            for theirs in [0, 2, 255] {
                let other = Err(ParseError::Version { theirs, ours });
                assert_eq!(with(&theirs.to_string()), other);
            }
            for none in ["", "256", "-1", "x"] {
                assert_eq!(with(none), Err(bad(TMTP)), "{none}");
            }
        }
    }

    #[test]
    fn only_an_unsealed_feed_has_a_last_word_and_it_has_one() {
        for feed in
            [Feed { last_word: None, ..feed() }, Feed { last_word: feed().last_word, ..sealed() }]
        {
            let text = feed.describe("umbel").emit();
            let description = Description::parse(text.as_bytes()).unwrap();
            assert_eq!(Feed::from_description(&description), Err(bad(LAST_WORD)));
        }
    }

    #[test]
    fn a_session_of_another_kind_is_no_feed() {
        let mut description = feed().describe("umbel");
        description.attributes.retain(|attribute| attribute.name != TMTP);
        assert_eq!(Feed::from_description(&description), Ok(None));
    }

    #[test]
    fn what_is_missing_or_out_of_range_is_refused() {
        let text = sealed().describe("umbel").emit();
        for (good, broken) in [
            ("sealed:a5", "sealed:x5"),
            ("sealed:a5", "sealed:"),
            ("files 3 1048576 212", "pipe"),
            ("files 3 1048576 212", "pipe 201326593"),
            ("x-umbel-tmtp:1", "x-umbel-tmtp:9"),
            ("00000083d1", "0000083d1"),
            ("00000083d1", "+0000083d1"),
            ("x-umbel-token", "x-umbel-recovery:magic"),
            ("x-umbel-tsi:3417", "x-umbel-tsi:-1"),
            ("x-umbel-tsi:3417", "x-umbel-tsj:3417"),
            ("192.0.2.2 40123", "192.0.2.2 0"),
            ("192.0.2.2 40123", "239.0.2.2 40123"),
            ("192.0.2.2 40123", "::1 40123"),
            ("scope:32", "scope:0"),
            ("code:1376 16", "code:0 16"),
            ("code:1376 16", "code:1376 0"),
            ("code:1376 16", "code:1376 256"),
            ("16 fec", "16 magic"),
            ("b=AS:50000", "b=AS:0"),
            ("b=AS:", "b=CT:"),
            ("files 3", "files"),
            ("files 3", "files +3"),
            (" 212 ", " 99999999999 "),
            ("9f9f", "9f9x"),
            ("ALC/UDP", "RTP/AVP"),
            ("232.7.7.7/32", "10.7.7.7/32"),
            ("incl IN", "excl IN"),
            ("232.7.7.7 192.0.2.2", "232.7.7.8 192.0.2.2"),
            ("application 7703", "application 0"),
            ("s=nightly", "s=a@b"),
        ] {
            let text = text.replacen(good, broken, 1);
            let description = Description::parse(text.as_bytes()).unwrap();
            assert!(Feed::from_description(&description).is_err(), "{broken}");
        }
    }
}
