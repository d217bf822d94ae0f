//! IGMP and MLD: queries of membership, and the reports of IGMPv3 [RFC 3376 §4, RFC 3810 §5].

use std::net::Ipv4Addr;

use crate::codec::Reader;
use crate::{ParseError, ip};

const IGMP_QUERY: u8 = 0x11;
const V3_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;

/// Returns whether an IPv4 packet, with its header, is a membership query of any version of IGMP.
pub fn is_igmp_query(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| packet.get(ip::v4_header_len(*first)) == Some(&IGMP_QUERY))
}

/// Returns whether an `ICMPv6` message is a multicast listener query.
pub fn is_mld_query(message: &[u8]) -> bool {
    message.first() == Some(&MLD_QUERY)
}

/// What a record of a report says about its group [RFC 3376 §4.2.12].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// The host wants these sources and no others, as before.
    IsInclude,
    /// The host wants all sources but these, as before.
    IsExclude,
    /// The host wants these sources and no others from now on.
    ToInclude,
    /// The host wants all sources but these from now on.
    ToExclude,
    /// The host wants these sources, too.
    Allow,
    /// The host no longer wants these sources.
    Block,
}

/// What a host reports of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What is said.
    pub kind: RecordType,
    /// The group.
    pub group: Ipv4Addr,
    /// The sources it is said about.
    pub sources: Vec<Ipv4Addr>,
}

/// Parses an IPv4 packet, with its header, as an `IGMPv3` report. Returns the reporter and its
/// records. Returns `None` for any other message of IGMP. Records of unknown types are skipped.
///
/// # Errors
///
/// Returns an error if the packet is cut off or no IGMP.
pub fn parse_report(packet: &[u8]) -> Result<Option<(Ipv4Addr, Vec<Record>)>, ParseError> {
    const WHAT: &str = "IGMP report";
    let bad = |problem| ParseError::Value { what: WHAT, problem };
    let first = *packet.first().ok_or_else(|| bad("empty"))?;
    let header_len = ip::v4_header_len(first);
    if first >> 4 != 4 || header_len < 20 || packet.get(9) != Some(&ip::IGMP) {
        return Err(bad("no IGMP over IPv4"));
    }
    let mut header = Reader::new(WHAT, packet);
    header.take(12)?;
    let reporter = Ipv4Addr::from(header.array::<4>()?);
    let mut reader = Reader::new(WHAT, packet.get(header_len..).unwrap_or_default());
    if reader.byte()? != V3_REPORT {
        return Ok(None);
    }
    reader.take(5)?;
    let count = u16::from_be_bytes(reader.array()?);
    let mut records = Vec::new();
    for _ in 0..count {
        let kind = reader.byte()?;
        let auxiliary_len = usize::from(reader.byte()?) * 4;
        let sources = u16::from_be_bytes(reader.array()?);
        let group = Ipv4Addr::from(reader.array::<4>()?);
        let addresses = reader.take(usize::from(sources) * 4)?.chunks_exact(4);
        let sources = addresses.map(|a| Ipv4Addr::new(a[0], a[1], a[2], a[3])).collect();
        reader.take(auxiliary_len)?;
        let kind = match kind {
            1 => RecordType::IsInclude,
            2 => RecordType::IsExclude,
            3 => RecordType::ToInclude,
            4 => RecordType::ToExclude,
            5 => RecordType::Allow,
            6 => RecordType::Block,
            _ => continue,
        };
        records.push(Record { kind, group, sources });
    }
    Ok(Some((reporter, records)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of 10.0.0.5: it wants 232.1.1.1 from 10.0.0.1, and nothing of 232.1.1.2.
    fn report() -> Vec<u8> {
        let mut packet = vec![0x46, 0xC0, 0, 0, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 5];
        packet.extend([224, 0, 0, 22, 0x94, 4, 0, 0]);
        packet.extend([V3_REPORT, 0, 0, 0, 0, 0, 0, 3]);
        packet.extend([5, 0, 0, 1, 232, 1, 1, 1, 10, 0, 0, 1]);
        // A record of no known type, with auxiliary data.
        packet.extend([9, 1, 0, 0, 232, 1, 1, 3, 1, 2, 3, 4]);
        packet.extend([3, 0, 0, 0, 232, 1, 1, 2]);
        packet
    }

    #[test]
    fn a_report_says_who_wants_what_and_a_cut_one_is_refused() {
        let record = |kind, group, sources| Record { kind, group, sources };
        let wanted = vec![Ipv4Addr::new(10, 0, 0, 1)];
        let expected = vec![
            record(RecordType::Allow, Ipv4Addr::new(232, 1, 1, 1), wanted),
            record(RecordType::ToInclude, Ipv4Addr::new(232, 1, 1, 2), Vec::new()),
        ];
        let reporter = Ipv4Addr::new(10, 0, 0, 5);
        assert_eq!(parse_report(&report()), Ok(Some((reporter, expected))));
        for len in 0..report().len() {
            assert!(parse_report(&report()[..len]).is_err(), "{len}");
        }
        let mut query = report();
        query[24] = IGMP_QUERY;
        assert_eq!(parse_report(&query), Ok(None));
        let mut udp = report();
        udp[9] = ip::UDP;
        assert!(parse_report(&udp).is_err());
    }

    #[test]
    fn a_query_is_told_from_other_packets() {
        let mut igmp = [0; 32];
        // A header with router alert: six words.
        igmp[0] = 0x46;
        igmp[24] = IGMP_QUERY;
        assert!(is_igmp_query(&igmp));
        igmp[24] = 0x22;
        assert!(!is_igmp_query(&igmp));
        assert!(!is_igmp_query(&[]) && !is_igmp_query(&[0x4F]));
        assert!(is_mld_query(&[MLD_QUERY, 0]) && !is_mld_query(&[143, 0]));
    }
}
