//! How much a message may hold. What exceeds a limit is refused when it is parsed; whoever builds
//! messages keeps to them, and to [`MAX_BODY`](crate::control::MAX_BODY).

use std::time::Duration;

/// Most bytes of a program's name and version.
pub const AGENT_LEN: usize = 256;
/// Most bytes of an admission token.
pub const TOKEN_LEN: usize = 4096;
/// Most bytes of a reason for the user.
pub const REASON_LEN: usize = 4096;
/// Most bytes of an item's name; at least 1.
pub const NAME_LEN: usize = 4096;
/// Most bytes of a media type; twice the 127 of [RFC 6838 §4.2] and the slash.
pub const MEDIA_TYPE_LEN: usize = 255;
/// Most bytes of a pattern.
pub const PATTERN_LEN: usize = 1024;
/// Most patterns of a query.
pub const PATTERNS: usize = 1024;
/// Most items of a page.
pub const PAGE_ITEMS: usize = 4096;
/// Most runs of a need. A client that needs more says the rest later.
pub const RUNS: usize = 1 << 18;
/// Most items of a `Done` or `Cancel`.
pub const TOIS: usize = 1 << 16;
/// Most channels of a welcome: their index has 8 bits.
pub const CHANNELS: usize = 256;
/// Most transmissions of an announcement.
pub const ANNOUNCEMENTS: usize = 4096;
/// Most block digests of a message.
pub const DIGESTS: usize = 1 << 16;
/// Longest time that a message may speak of.
pub const DURATION: Duration = Duration::from_hours(24);
/// Least UDP payload bytes of a probe packet: the header of a data packet.
pub const PROBE_PACKET_MIN: u16 = crate::alc::DataHeader::LEN as u16;
/// Most UDP payload bytes of a probe packet: what IPv4 carries.
pub const PROBE_PACKET_MAX: u16 = 65_507;
