//! SAP: announcements of sessions to all listeners [RFC 2974].
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-----+-+-+-+-+-+---------------+-------------------------------+
//! | V=1 |A|R|T|E|C|   auth len    |         msg id hash           |
//! +-----+-+-+-+-+-+---------------+-------------------------------+
//! |          originating source (32 or, with A, 128 bits)         |
//! +---------------------------------------------------------------+
//! |  authentication data (auth len words) …
//! +---------------------------------------------------------------+
//! |  payload type (optional, ends with a zero) …
//! +---------------------------------------------------------------+
//! |  payload …
//! ```
//!
//! T marks a deletion. Encrypted (E) and compressed (C) payloads are refused: they are not in use,
//! and compressed content can be arbitrarily large.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::ParseError;
use crate::codec::Reader;

/// The UDP port of announcements [RFC 2974 §3].
pub const PORT: u16 = 9875;
/// Directory of sessions of global scope [RFC 2974 §3].
pub const GLOBAL_V4: Ipv4Addr = Ipv4Addr::new(224, 2, 127, 254);
/// Directory of sessions of the local scope 239.255.0.0/16: its highest address
/// [RFC 2365 §6.1, RFC 2974 §3].
pub const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 255);
/// Directory of sessions of the organization's scope 239.192.0.0/14: its highest address
/// [RFC 2365 §6.2, RFC 2974 §3].
pub const ORGANIZATION_V4: Ipv4Addr = Ipv4Addr::new(239, 195, 255, 255);
/// Maximum length of an accepted payload in bytes. An announcement should have at most 1,000
/// [RFC 2974 §6].
pub const PAYLOAD_LEN: usize = 8 << 10;

/// Shortest time between two announcements of a session [RFC 2974 §3.1].
const MIN_INTERVAL: Duration = Duration::from_mins(5);
/// Bits per second that all announcements of a scope may take together [RFC 2974 §3.1].
const BANDWIDTH: u64 = 4_000;
/// Payload type of session descriptions.
const SDP: &str = "application/sdp";

const VERSION: u8 = 1;
const IPV6: u8 = 1 << 4;
const DELETION: u8 = 1 << 2;
const ENCRYPTED: u8 = 1 << 1;
const COMPRESSED: u8 = 1;

/// A session announcement or deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SapPacket<'a> {
    /// The session is over; the payload may be its origin line alone.
    pub deletion: bool,
    /// Together with `origin`, distinguishes this announcement from others and from its earlier
    /// versions.
    pub hash: u16,
    /// Address of the announcer.
    pub origin: IpAddr,
    /// A session description [RFC 8866]; at most [`PAYLOAD_LEN`] bytes.
    pub payload: &'a [u8],
}

impl<'a> SapPacket<'a> {
    /// Creates an announcement or a deletion of a session.
    pub fn new(deletion: bool, origin: IpAddr, payload: &'a [u8]) -> SapPacket<'a> {
        SapPacket { deletion, hash: hash(payload), origin, payload }
    }

    /// Appends the packet to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let family = if self.origin.is_ipv6() { IPV6 } else { 0 };
        let kind = if self.deletion { DELETION } else { 0 };
        out.extend_from_slice(&[VERSION << 5 | family | kind, 0]);
        out.extend_from_slice(&self.hash.to_be_bytes());
        crate::channel::put_address(out, self.origin);
        out.extend_from_slice(SDP.as_bytes());
        out.push(0);
        out.extend_from_slice(self.payload);
    }

    /// Parses a packet and skips its authentication data.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are too few, are of another version, or are encrypted or
    /// compressed. The payload must be a session description of up to [`PAYLOAD_LEN`] bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<SapPacket<'a>, ParseError> {
        let mut reader = Reader::new("SAP packet", bytes);
        let flags = reader.byte()?;
        if flags >> 5 != VERSION {
            return Err(reader.bad("another version than 1"));
        }
        if flags & (ENCRYPTED | COMPRESSED) != 0 {
            return Err(reader.bad("an encrypted or compressed payload"));
        }
        let authentication_len = usize::from(reader.byte()?) * 4;
        let hash = u16::from_be_bytes(reader.array()?);
        let origin = match flags & IPV6 {
            0 => IpAddr::from(reader.array::<4>()?),
            _ => IpAddr::from(reader.array::<16>()?),
        };
        reader.take(authentication_len)?;
        let payload =
            payload(reader.rest()).ok_or_else(|| reader.bad("a payload that is no SDP"))?;
        if payload.len() > PAYLOAD_LEN {
            return Err(reader.bad("a payload that is too long"));
        }
        Ok(SapPacket { deletion: flags & DELETION != 0, hash, origin, payload })
    }
}

/// Returns the session description after the payload type, which is optional [RFC 2974 §6].
fn payload(rest: &[u8]) -> Option<&[u8]> {
    // A deletion may consist of the origin line.
    if rest.starts_with(b"v=0") || rest.starts_with(b"o=") {
        return Some(rest);
    }
    let (kind, rest) = rest.split_at_checked(SDP.len())?;
    let described = kind.eq_ignore_ascii_case(SDP.as_bytes());
    rest.strip_prefix(&[0]).filter(|_| described)
}

/// Returns a hash of the payload (FNV-1a, folded), which is never 0. Two payloads almost always
/// have different hashes [RFC 2974 §6].
fn hash(payload: &[u8]) -> u16 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = payload.iter().fold(0x811C_9DC5, step);
    ((hash >> 16 ^ hash) as u16).max(1)
}

/// Returns the directory in which a session with groups like `group` is announced: that of its
/// scope [RFC 2974 §3].
pub fn directory_for(group: IpAddr) -> IpAddr {
    match group {
        IpAddr::V4(group) => match group.octets() {
            [239, 255, ..] => LOCAL_V4.into(),
            [239, 192..=195, ..] => ORGANIZATION_V4.into(),
            _ => GLOBAL_V4.into(),
        },
        IpAddr::V6(group) => directory_v6(group.octets()[1] & 0x0F).into(),
    }
}

/// Returns the directory of a scope of IPv6: `FF0X::2:7FFE` [RFC 2974 §3].
pub const fn directory_v6(scope: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xFF00 | (scope & 0x0F) as u16, 0, 0, 0, 0, 0, 2, 0x7FFE)
}

/// Returns the time from one announcement of a session to the next [RFC 2974 §3.1]: at least five
/// minutes less a third. It is longer if `announcements` of `len` bytes each would exceed 4,000
/// bits a second. `draw` is a random number in [0, 1).
pub fn interval(announcements: u64, len: u64, draw: f64) -> Duration {
    let bits = announcements.saturating_mul(len).saturating_mul(8);
    let base = MIN_INTERVAL.max(Duration::from_secs(bits / BANDWIDTH));
    base.mul_f64(2.0 / 3.0 + draw.clamp(0.0, 1.0) * 2.0 / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_five_minutes_give_or_take_a_third_until_the_bandwidth_is_used_up() {
        let seconds = |announcements, draw| interval(announcements, 500, draw).as_secs();
        assert_eq!(seconds(1, 0.0), 200);
        assert_eq!(seconds(1, 0.5), 300);
        assert_eq!(seconds(1, 1.0), 400);
        // 1,000 announcements of 500 bytes are 4 Mbit: 1,000 s at 4 kbit/s.
        assert_eq!(seconds(1_000, 0.5), 1_000);
        assert!(interval(u64::MAX, u64::MAX, 0.5) > MIN_INTERVAL);
    }

    #[test]
    fn each_scope_has_its_directory() {
        for (group, directory) in [
            ("239.255.7.7", "239.255.255.255"),
            ("239.193.1.1", "239.195.255.255"),
            ("224.2.130.1", "224.2.127.254"),
            ("232.1.1.1", "224.2.127.254"),
            ("ff15::1", "ff05::2:7ffe"),
            ("ff3e::8000:1", "ff0e::2:7ffe"),
        ] {
            let group: IpAddr = group.parse().unwrap();
            assert_eq!(directory_for(group).to_string(), directory);
        }
    }

    #[test]
    fn packets_of_others_with_authentication_or_without_a_type_are_read() {
        let mut packet = vec![0x20, 1, 0x12, 0x34, 192, 0, 2, 1, 9, 9, 9, 9];
        packet.extend_from_slice(b"v=0\r\n");
        let parsed = SapPacket::parse(&packet).unwrap();
        assert_eq!((parsed.hash, parsed.payload), (0x1234, &b"v=0\r\n"[..]));
        packet[1] = 0;
        assert!(SapPacket::parse(&packet).is_err(), "authentication data taken for a payload");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let mut packet = Vec::new();
        SapPacket::new(false, IpAddr::from([192, 0, 2, 1]), b"v=0\r\n").emit(&mut packet);
        assert!(SapPacket::parse(&packet).is_ok());
        for flags in [ENCRYPTED, COMPRESSED, 0x40, 0xE0] {
            let mut other = packet.clone();
            other[0] ^= flags;
            assert!(SapPacket::parse(&other).is_err(), "{flags:#x}");
        }
        let long = [&packet[..], &[b'x'; PAYLOAD_LEN]].concat();
        assert!(SapPacket::parse(&long).is_err());
        for len in 0..packet.len() - 5 {
            assert!(SapPacket::parse(&packet[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn the_hash_is_never_zero() {
        assert!((0..=u16::MAX).all(|n| hash(&n.to_be_bytes()) != 0));
        assert_ne!(hash(b"a"), hash(b"b"));
    }
}
