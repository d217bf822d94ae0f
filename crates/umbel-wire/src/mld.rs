//! MLD: membership over IPv6, both versions [RFC 2710, RFC 3810].
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |     type      |     code      |           checksum            |
//! +---------------+---------------+-------------------------------+
//! |     maximum response code     |           reserved            |
//! +-------------------------------+-------------------------------+
//! |               group, 16 bytes (version 1 and queries)         |
//! +-------+-+-----+---------------+-------------------------------+
//! | resv  |S| QRV | query interval|       number of sources       |
//! +-------+-+-----+---------------+-------------------------------+
//! |  sources …
//! ```
//!
//! The last two lines are in queries of version 2. Reports of version 2 carry records instead
//! ([`membership`](crate::membership)).

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::checksum::Sum;
use crate::codec::Reader;
use crate::membership::{
    Message, Query, V6, Version, put_query_rest, put_report, read_group, read_query_group,
    read_query_rest, read_report, sixteen_bit_code, sixteen_bit_value,
};
use crate::{ParseError, ip};

const QUERY: u8 = 130;
const V1_REPORT: u8 = 131;
const V1_DONE: u8 = 132;
const V2_REPORT: u8 = 143;
const WHAT: &str = "MLD message";
/// Length of a message of version 1.
const OLD_LEN: usize = 24;
/// Least length of a query of version 2 [RFC 3810 §8.1].
const V2_QUERY_LEN: usize = 28;

/// Group to which version 2 reports are sent [RFC 3810 §5.2.14].
pub const REPORT_GROUP: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16);
/// All nodes of a link: where general queries go [RFC 3810 §5.1.15].
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of a link: where version 1 hosts say that they leave [RFC 2710 §8].
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 2);

/// Returns whether an `ICMPv6` message is a multicast listener query.
pub fn is_mld_query(message: &[u8]) -> bool {
    message.first() == Some(&QUERY)
}

/// Parses an `ICMPv6` message from one address to another. Returns `None` for one that is not of
/// MLD. The checksum is verified.
///
/// # Errors
///
/// Returns an error if the message is malformed.
pub fn parse(message: &[u8], from: Ipv6Addr, to: Ipv6Addr) -> Result<Option<Message>, ParseError> {
    let mut reader = Reader::new(WHAT, message);
    let [kind, _code] = reader.array()?;
    if !matches!(kind, QUERY | V1_REPORT | V1_DONE | V2_REPORT) {
        return Ok(None);
    }
    let sum = Sum::pseudo_header(ip::ICMPV6, from.into(), to.into(), message.len());
    if sum.bytes(message).folded() != 0xFFFF {
        return Err(reader.bad("a wrong checksum"));
    }
    let _checksum = reader.array::<2>()?;
    if kind == V2_REPORT {
        return read_report::<V6>(&mut reader).map(|report| Some(Message::Report(report)));
    }
    let code = u16::from_be_bytes(reader.array()?);
    let _reserved = reader.array::<2>()?;
    let version = Version::Mld1;
    Ok(Some(match kind {
        QUERY => Message::Query(read_query(&mut reader, code, message.len())?),
        V1_REPORT => Message::OldReport { version, group: read_group::<V6>(&mut reader)? },
        _ => Message::Leave { version, group: read_group::<V6>(&mut reader)? },
    }))
}

fn read_query(reader: &mut Reader<'_>, code: u16, len: usize) -> Result<Query, ParseError> {
    let group = read_query_group::<V6>(reader)?;
    // The version is told by the length [RFC 3810 §8.1].
    match len {
        OLD_LEN => Ok(Query {
            version: Version::Mld1,
            group,
            sources: Vec::new(),
            max_response: Duration::from_millis(code.into()),
            suppress: false,
            robustness: 0,
            interval: Duration::ZERO,
        }),
        V2_QUERY_LEN.. => {
            let max_response = Duration::from_millis(sixteen_bit_value(code).into());
            read_query_rest::<V6>(reader, group, max_response)
        }
        _ => Err(reader.bad("a query of a length that no version has")),
    }
}

/// Appends a message from one address to another. Addresses of the other family must not be in it.
pub fn emit(message: &Message, from: Ipv6Addr, to: Ipv6Addr, out: &mut Vec<u8>) {
    let start = out.len();
    let put_old = |out: &mut Vec<u8>, kind, code: u16, group: Option<IpAddr>| {
        out.extend([kind, 0, 0, 0]);
        out.extend_from_slice(&code.to_be_bytes());
        out.extend([0, 0]);
        let group = match group {
            Some(IpAddr::V6(group)) => group,
            _ => Ipv6Addr::UNSPECIFIED,
        };
        out.extend_from_slice(&group.octets());
    };
    match message {
        Message::Query(query) => {
            let ms = query.max_response.as_millis();
            if query.version.has_sources() {
                put_old(out, QUERY, sixteen_bit_code(ms), query.group);
                put_query_rest(out, query);
            } else {
                put_old(out, QUERY, ms.min(0xFFFF) as u16, query.group);
            }
        }
        Message::Report(report) => {
            out.extend([V2_REPORT, 0, 0, 0]);
            put_report(out, report);
        }
        Message::OldReport { group, .. } => put_old(out, V1_REPORT, 0, Some(*group)),
        Message::Leave { group, .. } => put_old(out, V1_DONE, 0, Some(*group)),
    }
    let message = &out[start..];
    let sum = Sum::pseudo_header(ip::ICMPV6, from.into(), to.into(), message.len());
    let checksum = sum.bytes(message).checksum();
    out[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Offer, Record, RecordType, Report};

    const HOST: Ipv6Addr = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 5);
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0, 7);
    const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1);

    fn emitted(message: &Message, to: Ipv6Addr) -> Vec<u8> {
        let mut out = Vec::new();
        emit(message, HOST, to, &mut out);
        out
    }

    #[test]
    fn a_report_with_an_offer_is_laid_out_as_the_rfcs_say() {
        let (group, sources) = (GROUP.into(), vec![SOURCE.into()]);
        let record = Record { kind: RecordType::IsInclude, group, sources };
        let offer = Some(Offer { cost: Some(9), channel_port: 7702, host_port: 7703 });
        let report = Message::Report(Report { records: vec![record], offer });
        let bytes = emitted(&report, REPORT_GROUP);
        assert_eq!(bytes.len(), 8 + 4 + 16 + 16 + 12);
        assert_eq!(bytes[..2], [143, 0]);
        assert_eq!(bytes[4..12], [0x80, 0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(bytes[12..28], GROUP.octets());
        assert_eq!(bytes[44..], [0xFF, 0xFE, 0, 8, 0, 0, 0, 9, 0x1E, 0x16, 0x1E, 0x17]);
        assert_eq!(parse(&bytes, HOST, REPORT_GROUP), Ok(Some(report)));
        // The checksum covers the addresses.
        assert!(parse(&bytes, HOST, ALL_NODES).is_err());
    }

    #[test]
    fn queries_of_each_version_are_told_apart() {
        for version in [Version::Mld1, Version::Mld2] {
            let query = Message::Query(Query {
                version,
                group: Some(GROUP.into()),
                sources: Vec::new(),
                max_response: Duration::from_secs(10),
                suppress: false,
                robustness: if version == Version::Mld2 { 2 } else { 0 },
                interval: Duration::ZERO,
            });
            let bytes = emitted(&query, GROUP);
            assert_eq!(bytes.len(), if version == Version::Mld2 { 28 } else { 24 });
            assert!(is_mld_query(&bytes));
            assert_eq!(parse(&bytes, HOST, GROUP), Ok(Some(query)));
        }
    }

    #[test]
    fn messages_of_version_1_are_known_and_others_are_left_alone() {
        let (version, group) = (Version::Mld1, GROUP.into());
        for message in [Message::OldReport { version, group }, Message::Leave { version, group }] {
            let bytes = emitted(&message, GROUP);
            assert_eq!(parse(&bytes, HOST, GROUP), Ok(Some(message)));
            for len in 0..bytes.len() {
                assert!(parse(&bytes[..len], HOST, GROUP).is_err(), "{len}");
            }
        }
        // An echo request.
        assert_eq!(parse(&[128, 0, 1, 2], HOST, GROUP), Ok(None));
    }
}
