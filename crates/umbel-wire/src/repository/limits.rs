//! Limits of messages. Parsing refuses a message that exceeds one. The code that builds messages
//! keeps to them, and to [`MAX_BODY`](crate::control::MAX_BODY).

use std::time::Duration;

/// Maximum length of a program's name and version in bytes.
pub const AGENT_LEN: usize = 256;
/// Maximum length of an admission token in bytes.
pub const TOKEN_LEN: usize = 4096;
/// Maximum length of a reason for the user in bytes.
pub const REASON_LEN: usize = 4096;
/// Maximum length of an item's name in bytes; the minimum is 1.
pub const NAME_LEN: usize = 4096;
/// Maximum length of the text of a symbolic link in bytes: what Linux takes.
pub const LINK_LEN: usize = 4095;
/// Maximum length of a media type in bytes: twice the 127 of [RFC 6838 §4.2] and the slash.
pub const MEDIA_TYPE_LEN: usize = 255;
/// Maximum number of runs of blocks of an item that are holes.
pub const HOLES: usize = 1 << 12;
/// Maximum length of a pattern in bytes.
pub const PATTERN_LEN: usize = 1024;
/// Maximum number of patterns in a query.
pub const PATTERNS: usize = 1024;
/// Maximum number of items in a page.
pub const PAGE_ITEMS: usize = 4096;
/// Maximum number of runs in a need. A client that needs more sends the rest later.
pub const RUNS: usize = 1 << 18;
/// Maximum number of items in a `Done` or `Cancel`.
pub const TOIS: usize = 1 << 16;
/// Maximum number of channels in a welcome: their index has 8 bits.
pub const CHANNELS: usize = 256;
/// Maximum number of group keys that are in use at a time.
pub const KEYS: usize = 2;
/// Maximum number of transmissions in an announcement.
pub const ANNOUNCEMENTS: usize = 4096;
/// Maximum number of block digests in a message.
pub const DIGESTS: usize = 1 << 16;
/// Maximum number of symbol digests in a message, and asked for at once.
pub const SYMBOL_DIGESTS: usize = 4096;
/// Maximum of any duration in a message.
pub const DURATION: Duration = Duration::from_hours(24);
/// Minimum UDP payload of a probe packet in bytes: the header of a data packet.
pub const PROBE_PACKET_MIN: u16 = crate::alc::DataHeader::LEN as u16;
/// Maximum UDP payload of a probe packet in bytes, as IPv4 limits it.
pub const PROBE_PACKET_MAX: u16 = 65_507;
