//! IGMP: membership over IPv4, all versions [RFC 1112, RFC 2236, RFC 3376].
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |     type      | max. response |           checksum            |
//! +---------------+---------------+-------------------------------+
//! |               group (older versions and queries)              |
//! +-------+-+-----+---------------+-------------------------------+
//! | resv  |S| QRV | query interval|       number of sources       |
//! +-------+-+-----+---------------+-------------------------------+
//! |  sources …
//! ```
//!
//! The last two lines are in queries of version 3. Reports of version 3 carry records instead
//! ([`membership`](crate::membership)).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::checksum::Sum;
use crate::codec::Reader;
use crate::membership::{
    Message, Query, V4, Version, eight_bit_code, eight_bit_value, put_query_rest, put_report,
    read_group, read_query_group, read_query_rest, read_report,
};
use crate::{ParseError, ip};

const QUERY: u8 = 0x11;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const V2_LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;
const WHAT: &str = "IGMP message";
/// Length of messages of older versions.
const OLD_LEN: usize = 8;
/// Least length of a query of version 3 [RFC 3376 §7.1].
const V3_QUERY_LEN: usize = 12;
/// Unit of the maximum response code.
const RESPONSE_UNIT: Duration = Duration::from_millis(100);
/// Time within which hosts of version 1 answer [RFC 3376 §7.2.1].
const V1_RESPONSE: Duration = Duration::from_secs(10);

/// Group to which version 3 reports are sent [RFC 3376 §4.2.14].
pub const REPORT_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// All hosts: where general queries go [RFC 3376 §4.1.12].
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All routers: where version 2 hosts say that they leave [RFC 2236 §3].
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// Returns whether an IPv4 packet, with its header, is a membership query of any version of IGMP.
pub fn is_igmp_query(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| packet.get(ip::v4_header_len(*first)) == Some(&QUERY))
}

/// Parses an IGMP message, without the IP header. Returns `None` for one of another type, such as
/// those of routing protocols. The checksum is verified.
///
/// # Errors
///
/// Returns an error if the message is malformed.
pub fn parse(message: &[u8]) -> Result<Option<Message>, ParseError> {
    let mut reader = Reader::new(WHAT, message);
    let [kind, code] = reader.array()?;
    if !matches!(kind, QUERY | V1_REPORT | V2_REPORT | V2_LEAVE | V3_REPORT) {
        return Ok(None);
    }
    if Sum::default().bytes(message).folded() != 0xFFFF {
        return Err(reader.bad("a wrong checksum"));
    }
    let _checksum = reader.array::<2>()?;
    Ok(Some(match kind {
        QUERY => Message::Query(read_query(&mut reader, code, message.len())?),
        V3_REPORT => Message::Report(read_report::<V4>(&mut reader)?),
        V1_REPORT | V2_REPORT => {
            let version = if kind == V1_REPORT { Version::Igmp1 } else { Version::Igmp2 };
            Message::OldReport { version, group: read_group::<V4>(&mut reader)? }
        }
        _ => Message::Leave { version: Version::Igmp2, group: read_group::<V4>(&mut reader)? },
    }))
}

fn read_query(reader: &mut Reader<'_>, code: u8, len: usize) -> Result<Query, ParseError> {
    let group = read_query_group::<V4>(reader)?;
    // The version is told by the length [RFC 3376 §7.1].
    let (version, max_response) = match (len, code) {
        (OLD_LEN, 0) => (Version::Igmp1, V1_RESPONSE),
        (OLD_LEN, _) => (Version::Igmp2, RESPONSE_UNIT * u32::from(code)),
        (V3_QUERY_LEN.., _) => {
            return read_query_rest::<V4>(reader, group, RESPONSE_UNIT * eight_bit_value(code));
        }
        _ => return Err(reader.bad("a query of a length that no version has")),
    };
    let (robustness, interval) = (0, Duration::ZERO);
    let (sources, suppress) = (Vec::new(), false);
    Ok(Query { version, group, sources, max_response, suppress, robustness, interval })
}

/// Appends a message. Addresses of the other family must not be in it.
pub fn emit(message: &Message, out: &mut Vec<u8>) {
    let start = out.len();
    let put_group = |out: &mut Vec<u8>, group: Option<IpAddr>| {
        let group = match group {
            Some(IpAddr::V4(group)) => group,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        out.extend_from_slice(&group.octets());
    };
    match message {
        Message::Query(query) => {
            let tenths = (query.max_response.as_millis() / RESPONSE_UNIT.as_millis()) as u64;
            out.push(QUERY);
            out.push(match query.version {
                Version::Igmp1 => 0,
                Version::Igmp2 => tenths.clamp(1, 0xFF) as u8,
                _ => eight_bit_code(tenths),
            });
            out.extend([0, 0]);
            put_group(out, query.group);
            if query.version.has_sources() {
                put_query_rest(out, query);
            }
        }
        Message::Report(report) => {
            out.extend([V3_REPORT, 0, 0, 0]);
            put_report(out, report);
        }
        Message::OldReport { version, group } => {
            let kind = if *version == Version::Igmp1 { V1_REPORT } else { V2_REPORT };
            out.extend([kind, 0, 0, 0]);
            put_group(out, Some(*group));
        }
        Message::Leave { group, .. } => {
            out.extend([V2_LEAVE, 0, 0, 0]);
            put_group(out, Some(*group));
        }
    }
    let checksum = Sum::default().bytes(&out[start..]).checksum();
    out[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Offer, Record, RecordType, Report};

    fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let checksum = Sum::default().bytes(&message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    /// Returns a report: 232.1.1.1 from 10.0.0.1 is wanted, and nothing of 232.1.1.2.
    fn report() -> Vec<u8> {
        let mut message = vec![V3_REPORT, 0, 0, 0, 0, 0, 0, 3];
        message.extend([5, 0, 0, 1, 232, 1, 1, 1, 10, 0, 0, 1]);
        // A record of no known type, with auxiliary data.
        message.extend([9, 1, 0, 0, 232, 1, 1, 3, 1, 2, 3, 4]);
        message.extend([3, 0, 0, 0, 232, 1, 1, 2]);
        with_checksum(message)
    }

    fn records() -> Vec<Record> {
        let record = |kind, group, sources| Record { kind, group, sources };
        vec![
            record(RecordType::Allow, [232, 1, 1, 1].into(), vec![[10, 0, 0, 1].into()]),
            record(RecordType::ToInclude, [232, 1, 1, 2].into(), Vec::new()),
        ]
    }

    #[test]
    fn a_report_says_what_is_wanted_and_a_cut_one_is_refused() {
        let expected = Message::Report(Report { records: records(), offer: None });
        assert_eq!(parse(&report()), Ok(Some(expected)));
        for len in 0..report().len() {
            assert!(parse(&report()[..len]).is_err(), "{len}");
            assert!(parse(&with_checksum(report()[..len.max(4)].to_vec())).is_err(), "{len}");
        }
    }

    #[test]
    fn an_offer_follows_the_records_among_other_extensions() {
        let mut message = report();
        message[4] = 0x80;
        let end = message.len();
        message.extend([0, 7, 0, 3, 1, 2, 3]);
        message.extend([0xFF, 0xFE, 0, 8, 0, 0, 0, 9, 0x1E, 0x16, 0x1E, 0x17]);
        let offer = Some(Offer { cost: Some(9), channel_port: 7702, host_port: 7703 });
        let expected = Message::Report(Report { records: records(), offer });
        assert_eq!(parse(&with_checksum(message.clone())), Ok(Some(expected)));
        // Without the flag these bytes say nothing [RFC 3376 §4.2.11].
        message[4] = 0;
        let expected = Message::Report(Report { records: records(), offer: None });
        assert_eq!(parse(&with_checksum(message.clone())), Ok(Some(expected)));
        message[4] = 0x80;
        message.truncate(end + 5);
        assert!(parse(&with_checksum(message)).is_err());
    }

    #[test]
    fn queries_of_each_version_are_told_apart() {
        let query = |bytes: &[u8]| match parse(&with_checksum(bytes.to_vec())) {
            Ok(Some(Message::Query(query))) => query,
            other => panic!("{other:?}"),
        };
        let one = query(&[QUERY, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((one.version, one.max_response), (Version::Igmp1, Duration::from_secs(10)));
        let two = query(&[QUERY, 20, 0, 0, 232, 1, 1, 1]);
        assert_eq!((two.version, two.max_response), (Version::Igmp2, Duration::from_secs(2)));
        assert_eq!(two.group, Some([232, 1, 1, 1].into()));
        let three = query(&[QUERY, 0x80, 0, 0, 232, 1, 1, 1, 0x0A, 125, 0, 1, 10, 0, 0, 1]);
        let expected = Query {
            version: Version::Igmp3,
            group: Some([232, 1, 1, 1].into()),
            sources: vec![[10, 0, 0, 1].into()],
            max_response: Duration::from_millis(12_800),
            suppress: true,
            robustness: 2,
            interval: Duration::from_secs(125),
        };
        assert_eq!(three, expected);
        for len in [9, 10, 11] {
            assert!(
                parse(&with_checksum(vec![QUERY, 1, 0, 0, 0, 0, 0, 0, 2, 125, 0][..len].into()))
                    .is_err()
            );
        }
    }

    #[test]
    fn messages_of_older_versions_are_known_and_others_are_left_alone() {
        let group = IpAddr::from([239, 1, 1, 1]);
        for (kind, expected) in [
            (V1_REPORT, Message::OldReport { version: Version::Igmp1, group }),
            (V2_REPORT, Message::OldReport { version: Version::Igmp2, group }),
            (V2_LEAVE, Message::Leave { version: Version::Igmp2, group }),
        ] {
            let message = with_checksum(vec![kind, 0, 0, 0, 239, 1, 1, 1]);
            assert_eq!(parse(&message), Ok(Some(expected)));
        }
        // DVMRP and the first PIM have their own numbers.
        assert_eq!(parse(&[0x13, 1, 2, 3]), Ok(None));
        assert!(parse(&with_checksum(vec![V2_REPORT, 0, 0, 0, 10, 0, 0, 1])).is_err());
        assert!(parse(&[V2_REPORT, 0, 0, 1, 239, 1, 1, 1]).is_err());
    }

    #[test]
    fn a_query_is_told_from_other_packets() {
        let mut packet = [0; 32];
        // A header with router alert: six words.
        packet[0] = 0x46;
        packet[24] = QUERY;
        assert!(is_igmp_query(&packet));
        packet[24] = 0x22;
        assert!(!is_igmp_query(&packet));
        assert!(!is_igmp_query(&[]) && !is_igmp_query(&[0x4F]));
    }
}
