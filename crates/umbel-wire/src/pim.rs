//! PIM version 2, as far as source-specific trees need it: Hello, Join/Prune, Assert
//! [RFC 7761 §4.9].
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! |  2    | type  |   reserved    |           checksum            |
//! +-------+-------+---------------+-------------------------------+
//! |  Hello: options of type, length, value …
//! |  Join/Prune: upstream neighbour, number of groups, holdtime, groups …
//! |  Assert: group, source, preference, metric
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::channel::put_address;
use crate::checksum::Sum;
use crate::codec::Reader;
use crate::{ParseError, ip};

const HELLO: u8 = 0;
const REGISTER: u8 = 1;
const JOIN_PRUNE: u8 = 3;
const ASSERT: u8 = 5;
const WHAT: &str = "PIM message";
const VERSION: u8 = 2;
/// Bytes of a Register that its checksum covers [RFC 7761 §4.9].
const REGISTER_COVERED: usize = 8;

const HOLDTIME: u16 = 1;
const LAN_PRUNE_DELAY: u16 = 2;
const DR_PRIORITY: u16 = 19;
const GENERATION: u16 = 20;
const ADDRESSES: u16 = 24;

const FAMILY_V4: u8 = 1;
const FAMILY_V6: u8 = 2;
const NATIVE: u8 = 0;
/// Flags of an encoded source [RFC 7761 §4.9.1].
const SPARSE: u8 = 4;
const WILDCARD: u8 = 2;
const RPT: u8 = 1;
/// Bit of an Assert's preference: it is about the shared tree.
const RPT_BIT: u32 = 1 << 31;
/// Bit of a propagation delay: the router can turn join suppression off.
const TRACKING_BIT: u16 = 1 << 15;

/// All PIM routers of a link, IPv4 [RFC 7761 §4.3.1].
pub const ALL_ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 13);
/// All PIM routers of a link, IPv6 [RFC 7761 §4.3.1].
pub const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0xD);
/// A holdtime that never ends [RFC 7761 §4.9.2].
pub const FOREVER: u16 = 0xFFFF;

/// Times for which prunes wait on a LAN [RFC 7761 §4.3.3].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanPruneDelay {
    /// Whether the router can turn join suppression off.
    pub tracking: bool,
    /// Expected delay of the link, in whole milliseconds below 32,768.
    pub propagation: Duration,
    /// Time within which others may object to a prune, in whole milliseconds below 65,536.
    pub override_interval: Duration,
}

/// Announcement of a router to a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Seconds for which the neighbour is there; 0 says goodbye, [`FOREVER`] has no end. `None`
    /// stands for the default of 105 s.
    pub holdtime_s: Option<u16>,
    /// Times for which prunes wait on this LAN.
    pub lan_prune_delay: Option<LanPruneDelay>,
    /// Priority for becoming the designated router.
    pub dr_priority: Option<u32>,
    /// Number that changes whenever the router restarts.
    pub generation: Option<u32>,
    /// Other addresses of the router on this link, of the same family.
    pub addresses: Vec<IpAddr>,
}

/// A source in a Join/Prune, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedSource {
    /// The source.
    pub source: IpAddr,
    /// Whether it is the source alone: no prefix, no shared tree. Only such are source-specific.
    pub is_specific: bool,
}

/// Joins and prunes of one group in a Join/Prune.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinPruneGroup {
    /// The group.
    pub group: IpAddr,
    /// Whether it is the group alone, and no range.
    pub is_specific: bool,
    /// Sources joined; at most 65,535.
    pub joins: Vec<JoinedSource>,
    /// Sources pruned; at most 65,535.
    pub prunes: Vec<JoinedSource>,
}

/// Asks the upstream neighbour to forward, or no longer [RFC 7761 §4.9.5].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinPrune {
    /// The neighbour that is asked; others on the link overhear.
    pub upstream: IpAddr,
    /// Seconds for which joins hold.
    pub holdtime_s: u16,
    /// Groups of the message; at most 255.
    pub groups: Vec<JoinPruneGroup>,
}

/// Claims to be the forwarder of a LAN [RFC 7761 §4.9.6].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assert {
    /// The group.
    pub group: IpAddr,
    /// The source; unspecified for the shared tree.
    pub source: IpAddr,
    /// Whether the metric is that of the shared tree.
    pub shared: bool,
    /// Preference of the unicast route, below 2³¹; lower is better.
    pub preference: u32,
    /// Metric of the unicast route; lower is better.
    pub metric: u32,
}

/// A message of PIM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Announces a router to a link.
    Hello(Hello),
    /// Asks the upstream neighbour to forward, or no longer.
    JoinPrune(JoinPrune),
    /// Claims to be the forwarder of a LAN.
    Assert(Assert),
}

/// Parses a PIM message from one address to another, without the IP header. Returns `None` for one
/// of another type, which source-specific multicast does not need. The checksum is verified.
///
/// # Errors
///
/// Returns an error if the message is malformed, or of another version.
pub fn parse(message: &[u8], from: IpAddr, to: IpAddr) -> Result<Option<Message>, ParseError> {
    let mut reader = Reader::new(WHAT, message);
    let [first, _reserved] = reader.array()?;
    if first >> 4 != VERSION {
        return Err(reader.bad("a version other than 2"));
    }
    let kind = first & 0x0F;
    let covered = match kind {
        REGISTER => message.len().min(REGISTER_COVERED),
        _ => message.len(),
    };
    if initial_sum(from, to, covered).bytes(&message[..covered]).folded() != 0xFFFF {
        return Err(reader.bad("a wrong checksum"));
    }
    let _checksum = reader.array::<2>()?;
    Ok(Some(match kind {
        HELLO => Message::Hello(read_hello(&mut reader)?),
        JOIN_PRUNE => Message::JoinPrune(read_join_prune(&mut reader)?),
        ASSERT => Message::Assert(read_assert(&mut reader)?),
        _ => return Ok(None),
    }))
}

/// Returns what the checksum begins with: over IPv6 the pseudo header [RFC 7761 §4.9].
fn initial_sum(from: IpAddr, to: IpAddr, len: usize) -> Sum {
    if from.is_ipv6() { Sum::pseudo_header(ip::PIM, from, to, len) } else { Sum::default() }
}

fn read_hello(reader: &mut Reader<'_>) -> Result<Hello, ParseError> {
    let mut hello = Hello::default();
    while !reader.is_empty() {
        let kind = u16::from_be_bytes(reader.array()?);
        let len = u16::from_be_bytes(reader.array()?);
        let mut value = Reader::new("PIM Hello option", reader.take(len.into())?);
        match kind {
            HOLDTIME => hello.holdtime_s = Some(u16::from_be_bytes(value.array()?)),
            LAN_PRUNE_DELAY => {
                let propagation = u16::from_be_bytes(value.array()?);
                let override_ms = u16::from_be_bytes(value.array()?);
                hello.lan_prune_delay = Some(LanPruneDelay {
                    tracking: propagation & TRACKING_BIT != 0,
                    propagation: Duration::from_millis((propagation & !TRACKING_BIT).into()),
                    override_interval: Duration::from_millis(override_ms.into()),
                });
            }
            DR_PRIORITY => hello.dr_priority = Some(u32::from_be_bytes(value.array()?)),
            GENERATION => hello.generation = Some(u32::from_be_bytes(value.array()?)),
            ADDRESSES => {
                while !value.is_empty() {
                    hello.addresses.push(read_unicast(&mut value)?);
                }
            }
            // Unknown options are ignored [RFC 7761 §4.9.2].
            _ => {
                value.rest();
            }
        }
        value.finish()?;
    }
    Ok(hello)
}

fn read_join_prune(reader: &mut Reader<'_>) -> Result<JoinPrune, ParseError> {
    let upstream = read_unicast(reader)?;
    let [_reserved, count] = reader.array()?;
    let holdtime_s = u16::from_be_bytes(reader.array()?);
    let mut groups = Vec::new();
    for _ in 0..count {
        let (group, is_specific) = read_group(reader)?;
        let joins = u16::from_be_bytes(reader.array()?);
        let prunes = u16::from_be_bytes(reader.array()?);
        let joins = read_sources(reader, joins)?;
        let prunes = read_sources(reader, prunes)?;
        groups.push(JoinPruneGroup { group, is_specific, joins, prunes });
    }
    Ok(JoinPrune { upstream, holdtime_s, groups })
}

fn read_assert(reader: &mut Reader<'_>) -> Result<Assert, ParseError> {
    let (group, _) = read_group(reader)?;
    let source = read_unicast(reader)?;
    let preference = u32::from_be_bytes(reader.array()?);
    let metric = u32::from_be_bytes(reader.array()?);
    let (shared, preference) = (preference & RPT_BIT != 0, preference & !RPT_BIT);
    Ok(Assert { group, source, shared, preference, metric })
}

/// Reads an encoded unicast address [RFC 7761 §4.9.1].
fn read_unicast(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
    let [family, encoding] = reader.array()?;
    read_address(reader, family, encoding)
}

fn read_address(reader: &mut Reader<'_>, family: u8, encoding: u8) -> Result<IpAddr, ParseError> {
    match (family, encoding) {
        (FAMILY_V4, NATIVE) => Ok(IpAddr::from(reader.array::<4>()?)),
        (FAMILY_V6, NATIVE) => Ok(IpAddr::from(reader.array::<16>()?)),
        _ => Err(reader.bad("an address of an unknown family or encoding")),
    }
}

/// Returns whether a mask length covers the whole address.
fn is_whole(address: IpAddr, mask_len: u8) -> bool {
    mask_len == if address.is_ipv4() { 32 } else { 128 }
}

fn read_group(reader: &mut Reader<'_>) -> Result<(IpAddr, bool), ParseError> {
    let [family, encoding, _flags, mask_len] = reader.array()?;
    let group = read_address(reader, family, encoding)?;
    if !group.is_multicast() {
        return Err(reader.bad("a group that is not multicast"));
    }
    Ok((group, is_whole(group, mask_len)))
}

fn read_sources(reader: &mut Reader<'_>, count: u16) -> Result<Vec<JoinedSource>, ParseError> {
    let mut sources = Vec::new();
    for _ in 0..count {
        let [family, encoding, flags, mask_len] = reader.array()?;
        let source = read_address(reader, family, encoding)?;
        let is_host = !source.is_multicast() && !source.is_unspecified();
        let is_specific = is_host && flags & (WILDCARD | RPT) == 0 && is_whole(source, mask_len);
        sources.push(JoinedSource { source, is_specific });
    }
    Ok(sources)
}

/// Appends a message from one address to another.
pub fn emit(message: &Message, from: IpAddr, to: IpAddr, out: &mut Vec<u8>) {
    let start = out.len();
    let kind = match message {
        Message::Hello(_) => HELLO,
        Message::JoinPrune(_) => JOIN_PRUNE,
        Message::Assert(_) => ASSERT,
    };
    out.extend([VERSION << 4 | kind, 0, 0, 0]);
    match message {
        Message::Hello(hello) => put_hello(out, hello),
        Message::JoinPrune(join_prune) => put_join_prune(out, join_prune),
        Message::Assert(assert) => {
            put_group(out, assert.group, true);
            put_unicast(out, assert.source);
            let shared = if assert.shared { RPT_BIT } else { 0 };
            out.extend_from_slice(&(assert.preference & !RPT_BIT | shared).to_be_bytes());
            out.extend_from_slice(&assert.metric.to_be_bytes());
        }
    }
    let message = &out[start..];
    let checksum = initial_sum(from, to, message.len()).bytes(message).checksum();
    out[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
}

fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    let mut option = |kind: u16, value: &[u8]| {
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        out.extend_from_slice(value);
    };
    if let Some(holdtime_s) = hello.holdtime_s {
        option(HOLDTIME, &holdtime_s.to_be_bytes());
    }
    if let Some(delay) = &hello.lan_prune_delay {
        let propagation_ms = delay.propagation.as_millis().min(0x7FFF) as u16;
        let tracking = if delay.tracking { TRACKING_BIT } else { 0 };
        let override_ms = delay.override_interval.as_millis().min(0xFFFF) as u16;
        let [a, b] = (propagation_ms | tracking).to_be_bytes();
        let [c, d] = override_ms.to_be_bytes();
        option(LAN_PRUNE_DELAY, &[a, b, c, d]);
    }
    if let Some(priority) = hello.dr_priority {
        option(DR_PRIORITY, &priority.to_be_bytes());
    }
    if let Some(generation) = hello.generation {
        option(GENERATION, &generation.to_be_bytes());
    }
    if !hello.addresses.is_empty() {
        let mut list = Vec::new();
        // As many as the length field can say.
        hello.addresses.iter().take(0xFFFF / 18).for_each(|&other| put_unicast(&mut list, other));
        option(ADDRESSES, &list);
    }
}

fn put_join_prune(out: &mut Vec<u8>, join_prune: &JoinPrune) {
    let groups = &join_prune.groups[..join_prune.groups.len().min(0xFF)];
    put_unicast(out, join_prune.upstream);
    out.extend([0, groups.len() as u8]);
    out.extend_from_slice(&join_prune.holdtime_s.to_be_bytes());
    for JoinPruneGroup { group, is_specific, joins, prunes } in groups {
        put_group(out, *group, *is_specific);
        let lists = [joins, prunes].map(|list| &list[..list.len().min(0xFFFF)]);
        for list in lists {
            out.extend_from_slice(&(list.len() as u16).to_be_bytes());
        }
        for JoinedSource { source, is_specific } in lists.into_iter().flatten() {
            let flags = if *is_specific { SPARSE } else { SPARSE | WILDCARD | RPT };
            let (family, mask_len) = family_and_len(*source);
            out.extend([family, NATIVE, flags, mask_len]);
            put_address(out, *source);
        }
    }
}

fn family_and_len(address: IpAddr) -> (u8, u8) {
    if address.is_ipv4() { (FAMILY_V4, 32) } else { (FAMILY_V6, 128) }
}

fn put_unicast(out: &mut Vec<u8>, address: IpAddr) {
    out.extend([family_and_len(address).0, NATIVE]);
    put_address(out, address);
}

fn put_group(out: &mut Vec<u8>, group: IpAddr, is_specific: bool) {
    let (family, mask_len) = family_and_len(group);
    // All groups of the family stand for any range.
    out.extend([family, NATIVE, 0, if is_specific { mask_len } else { 4 }]);
    put_address(out, group);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const ALL: IpAddr = IpAddr::V4(ALL_ROUTERS_V4);

    fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let checksum = Sum::default().bytes(&message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// Returns a Join as pimd and FRR send it: (10.10.0.1, 232.1.1.1) is joined.
    fn join() -> Vec<u8> {
        let mut message = vec![0x23, 0, 0, 0, 1, 0, 10, 0, 0, 1, 0, 1, 0, 210];
        message.extend([1, 0, 0, 32, 232, 1, 1, 1, 0, 1, 0, 0]);
        message.extend([1, 0, 4, 32, 10, 10, 0, 1]);
        with_checksum(message)
    }

    #[test]
    fn a_join_is_laid_out_as_the_rfc_says() {
        let source = JoinedSource { source: [10, 10, 0, 1].into(), is_specific: true };
        let group = JoinPruneGroup {
            group: [232, 1, 1, 1].into(),
            is_specific: true,
            joins: vec![source],
            prunes: Vec::new(),
        };
        let upstream = [10, 0, 0, 1].into();
        let expected = JoinPrune { upstream, holdtime_s: 210, groups: vec![group] };
        let expected = Message::JoinPrune(expected);
        assert_eq!(join().len(), 34);
        assert_eq!(parse(&join(), ME, ALL), Ok(Some(expected.clone())));
        let mut out = Vec::new();
        emit(&expected, ME, ALL, &mut out);
        assert_eq!(out, join());
        for len in 0..join().len() {
            assert!(parse(&join()[..len], ME, ALL).is_err(), "{len}");
            let cut = with_checksum(join()[..len.max(4)].to_vec());
            assert!(parse(&cut, ME, ALL).is_err(), "{len}");
        }
    }

    #[test]
    fn what_is_about_shared_trees_or_prefixes_is_not_specific() {
        let with = |at: usize, byte| {
            let mut message = join();
            message[at] = byte;
            match parse(&with_checksum(message), ME, ALL) {
                Ok(Some(Message::JoinPrune(mut join_prune))) => join_prune.groups.remove(0),
                other => panic!("{other:?}"),
            }
        };
        assert!(with(28, 4).joins[0].is_specific && with(28, 0).joins[0].is_specific);
        assert!(!with(28, 7).joins[0].is_specific && !with(28, 5).joins[0].is_specific);
        assert!(!with(29, 24).joins[0].is_specific);
        assert!(!with(17, 8).is_specific);
    }

    #[test]
    fn a_hello_has_options_and_unknown_ones_are_skipped() {
        let mut message = vec![0x20, 0, 0, 0, 0, 1, 0, 2, 0, 105, 0, 19, 0, 4, 0, 0, 0, 1];
        // State refresh.
        message.extend([0, 21, 0, 4, 1, 0, 0, 0]);
        message.extend([0, 20, 0, 4, 1, 2, 3, 4, 0, 2, 0, 4, 0x81, 0xF4, 9, 0xC4]);
        message.extend([0, 24, 0, 6, 1, 0, 10, 9, 0, 1]);
        let expected = Hello {
            holdtime_s: Some(105),
            lan_prune_delay: Some(LanPruneDelay {
                tracking: true,
                propagation: Duration::from_millis(500),
                override_interval: Duration::from_millis(2500),
            }),
            dr_priority: Some(1),
            generation: Some(0x0102_0304),
            addresses: vec![[10, 9, 0, 1].into()],
        };
        let parsed = parse(&with_checksum(message.clone()), ME, ALL);
        assert_eq!(parsed, Ok(Some(Message::Hello(expected.clone()))));
        let mut out = Vec::new();
        emit(&Message::Hello(expected.clone()), ME, ALL, &mut out);
        assert_eq!(parse(&out, ME, ALL), Ok(Some(Message::Hello(expected))));
        // A holdtime of three bytes.
        message.extend([0, 1, 0, 3, 0, 105, 0]);
        assert!(parse(&with_checksum(message), ME, ALL).is_err());
    }

    #[test]
    fn over_ipv6_the_checksum_covers_the_addresses() {
        let from = IpAddr::from(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1));
        let message = Message::Assert(Assert {
            group: Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0, 7).into(),
            source: Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1).into(),
            shared: false,
            preference: 110,
            metric: 20,
        });
        let mut out = Vec::new();
        emit(&message, from, ALL_ROUTERS_V6.into(), &mut out);
        assert_eq!(parse(&out, from, ALL_ROUTERS_V6.into()), Ok(Some(message)));
        assert!(parse(&out, from, Ipv6Addr::LOCALHOST.into()).is_err());
    }

    #[test]
    fn other_types_are_left_alone_and_other_versions_refused() {
        // A null Register, whose checksum covers 8 bytes.
        let mut message = with_checksum(vec![0x21, 0, 0, 0, 0x40, 0, 0, 0]);
        message.extend([0x45, 1, 2, 3]);
        assert_eq!(parse(&message, ME, ALL), Ok(None));
        assert!(parse(&with_checksum(vec![0x13, 0, 0, 0]), ME, ALL).is_err());
        assert!(parse(&[0x23, 0], ME, ALL).is_err());
    }
}
