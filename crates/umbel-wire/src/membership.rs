//! Membership between hosts and routers: the messages that IGMP and MLD share.
//!
//! [`igmp`](crate::igmp) and [`mld`](crate::mld) put them on the wire.

use std::net::IpAddr;
use std::time::Duration;

use crate::ParseError;
use crate::channel::put_address;
use crate::codec::Reader;

/// Protocol and version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// [RFC 1112].
    Igmp1,
    /// [RFC 2236].
    Igmp2,
    /// [RFC 3376].
    Igmp3,
    /// [RFC 2710].
    Mld1,
    /// [RFC 3810].
    Mld2,
}

impl Version {
    /// Returns whether hosts of this version name the sources that they want.
    pub const fn has_sources(self) -> bool {
        matches!(self, Version::Igmp3 | Version::Mld2)
    }

    /// Returns the name that administrators know.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Igmp1 => "IGMPv1",
            Version::Igmp2 => "IGMPv2",
            Version::Igmp3 => "IGMPv3",
            Version::Mld1 => "MLDv1",
            Version::Mld2 => "MLDv2",
        }
    }
}

/// Meaning of a record of a report for its group [RFC 3376 §4.2.12, RFC 3810 §5.2.12].
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

impl RecordType {
    /// Every type, in the order of their numbers from 1.
    const ALL: [RecordType; 6] = [
        RecordType::IsInclude,
        RecordType::IsExclude,
        RecordType::ToInclude,
        RecordType::ToExclude,
        RecordType::Allow,
        RecordType::Block,
    ];

    fn of(number: u8) -> Option<RecordType> {
        RecordType::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// Report of a host on a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Meaning of the record.
    pub kind: RecordType,
    /// The group.
    pub group: IpAddr,
    /// The sources it is said about; at most 65,535.
    pub sources: Vec<IpAddr>,
}

/// A host's offer to be a replier of LMS for the channels that its report includes.
///
/// It is an extension of the report [RFC 9279] of the experimental type 65534:
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------------------------------+-------------------------------+
/// |         type = 65534          |          length = 8           |
/// +-------------------------------+-------------------------------+
/// |                             cost                              |
/// +-------------------------------+-------------------------------+
/// |       port of the channel     |       port of the host        |
/// +-------------------------------+-------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Cost of the replier, of which lower is better; `None` withdraws the offer, and is 2³² - 1 on
    /// the wire.
    pub cost: Option<u32>,
    /// UDP destination port of the channel; not 0.
    pub channel_port: u16,
    /// UDP port at which the host takes requests; not 0.
    pub host_port: u16,
}

/// Type of the extension with an [`Offer`]: experimental [RFC 9279 §5].
const OFFER_TYPE: u16 = 65_534;
const OFFER_LEN: u16 = 8;
/// Cost that withdraws an offer.
const WITHDRAWN: u32 = u32::MAX;
/// Flag in a report and in a query that extensions follow [RFC 9279 §3].
const EXTENSIONS_REPORT: u8 = 0x80;
const EXTENSIONS_QUERY: u8 = 0x80;

/// A report of a host that names sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records of the host; at most 65,535.
    pub records: Vec<Record>,
    /// The host's offer, if it makes one.
    pub offer: Option<Offer>,
}

/// A router's question who wants what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Version that the querier speaks.
    pub version: Version,
    /// The group in question; `None` asks about all.
    pub group: Option<IpAddr>,
    /// The sources in question; none asks about the group as a whole. At most 65,535.
    pub sources: Vec<IpAddr>,
    /// Time within which hosts answer. It is rounded down to what the code can say
    /// [RFC 3376 §4.1.1, RFC 3810 §5.1.3].
    pub max_response: Duration,
    /// Whether other routers must not lower their timers [RFC 3376 §4.1.5].
    pub suppress: bool,
    /// The querier's robustness variable; 0 says nothing of it, or that it is above 7
    /// [RFC 3376 §4.1.6].
    pub robustness: u8,
    /// The querier's interval between general queries, rounded down to what the code can say; zero
    /// says nothing of it [RFC 3376 §4.1.7].
    pub interval: Duration,
}

/// A message of IGMP or MLD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router asks.
    Query(Query),
    /// A host that names sources answers, or says what changed.
    Report(Report),
    /// A host of an older version is a member of a group, whatever the source.
    OldReport {
        /// Version that the host speaks.
        version: Version,
        /// The group.
        group: IpAddr,
    },
    /// A host of an older version leaves a group: IGMPv2's Leave Group, `MLDv1`'s Done.
    Leave {
        /// Version that the host speaks.
        version: Version,
        /// The group.
        group: IpAddr,
    },
}

/// Addresses of one family, as a message carries them.
pub(crate) trait Family: Copy {
    /// Length of an address in bytes.
    const LEN: usize;
    /// Version that names sources.
    const VERSION: Version;

    /// Reads an address of `LEN` bytes.
    fn read(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError>;
}

/// IPv4.
#[derive(Clone, Copy)]
pub(crate) struct V4;
/// IPv6.
#[derive(Clone, Copy)]
pub(crate) struct V6;

impl Family for V4 {
    const LEN: usize = 4;
    const VERSION: Version = Version::Igmp3;

    fn read(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
        Ok(IpAddr::from(reader.array::<4>()?))
    }
}

impl Family for V6 {
    const LEN: usize = 16;
    const VERSION: Version = Version::Mld2;

    fn read(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
        Ok(IpAddr::from(reader.array::<16>()?))
    }
}

/// Reads a group, which must be multicast.
pub(crate) fn read_group<F: Family>(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
    let group = F::read(reader)?;
    if group.is_multicast() { Ok(group) } else { Err(reader.bad("a group that is not multicast")) }
}

/// Reads the group of a query, where zero stands for all groups.
pub(crate) fn read_query_group<F: Family>(
    reader: &mut Reader<'_>,
) -> Result<Option<IpAddr>, ParseError> {
    let group = F::read(reader)?;
    match group {
        group if group.is_unspecified() => Ok(None),
        group if group.is_multicast() => Ok(Some(group)),
        _ => Err(reader.bad("a group that is not multicast")),
    }
}

fn read_sources<F: Family>(reader: &mut Reader<'_>, count: u16) -> Result<Vec<IpAddr>, ParseError> {
    let mut addresses = Reader::new("sources", reader.take(usize::from(count) * F::LEN)?);
    let mut sources = Vec::with_capacity(count.into());
    while !addresses.is_empty() {
        let source = F::read(&mut addresses)?;
        if source.is_multicast() || source.is_unspecified() {
            return Err(reader.bad("a source that is no host"));
        }
        sources.push(source);
    }
    Ok(sources)
}

/// Reads what follows the group in a query of the newest version.
pub(crate) fn read_query_rest<F: Family>(
    reader: &mut Reader<'_>,
    group: Option<IpAddr>,
    max_response: Duration,
) -> Result<Query, ParseError> {
    let flags = reader.byte()?;
    let interval = Duration::from_secs(eight_bit_value(reader.byte()?).into());
    let count = u16::from_be_bytes(reader.array()?);
    if group.is_none() && count > 0 {
        return Err(reader.bad("sources without a group"));
    }
    let sources = read_sources::<F>(reader, count)?;
    if flags & EXTENSIONS_QUERY != 0 {
        read_extensions(reader)?;
    }
    let (suppress, robustness) = (flags & 8 != 0, flags & 7);
    let version = F::VERSION;
    Ok(Query { version, group, sources, max_response, suppress, robustness, interval })
}

/// Appends what [`read_query_rest`] reads.
pub(crate) fn put_query_rest(out: &mut Vec<u8>, query: &Query) {
    let robustness = if query.robustness > 7 { 0 } else { query.robustness };
    out.push(if query.suppress { 8 } else { 0 } | robustness);
    out.push(eight_bit_code(query.interval.as_secs()));
    let sources = &query.sources[..query.sources.len().min(0xFFFF)];
    out.extend_from_slice(&(sources.len() as u16).to_be_bytes());
    for source in sources {
        put_address(out, *source);
    }
}

/// Reads a report from its flags on: the two reserved bytes, the count, the records, extensions.
/// Records of unknown types are skipped [RFC 3376 §4.2.12].
pub(crate) fn read_report<F: Family>(reader: &mut Reader<'_>) -> Result<Report, ParseError> {
    let [flags, _] = reader.array()?;
    let count = u16::from_be_bytes(reader.array()?);
    let mut report = Report::default();
    for _ in 0..count {
        let kind = RecordType::of(reader.byte()?);
        let auxiliary_len = usize::from(reader.byte()?) * 4;
        let sources = u16::from_be_bytes(reader.array()?);
        let group = read_group::<F>(reader)?;
        let sources = read_sources::<F>(reader, sources)?;
        reader.take(auxiliary_len)?;
        report.records.extend(kind.map(|kind| Record { kind, group, sources }));
    }
    if flags & EXTENSIONS_REPORT != 0 {
        report.offer = read_extensions(reader)?;
    }
    Ok(report)
}

/// Appends what [`read_report`] reads.
pub(crate) fn put_report(out: &mut Vec<u8>, report: &Report) {
    out.extend([if report.offer.is_some() { EXTENSIONS_REPORT } else { 0 }, 0]);
    let records = &report.records[..report.records.len().min(0xFFFF)];
    out.extend_from_slice(&(records.len() as u16).to_be_bytes());
    for Record { kind, group, sources } in records {
        let sources = &sources[..sources.len().min(0xFFFF)];
        out.extend([kind.number(), 0]);
        out.extend_from_slice(&(sources.len() as u16).to_be_bytes());
        put_address(out, *group);
        for source in sources {
            put_address(out, *source);
        }
    }
    if let Some(offer) = &report.offer {
        out.extend_from_slice(&OFFER_TYPE.to_be_bytes());
        out.extend_from_slice(&OFFER_LEN.to_be_bytes());
        out.extend_from_slice(&offer.cost.unwrap_or(WITHDRAWN).to_be_bytes());
        out.extend_from_slice(&offer.channel_port.to_be_bytes());
        out.extend_from_slice(&offer.host_port.to_be_bytes());
    }
}

/// Reads type, length and value until the end. Unknown types are skipped [RFC 9279 §4].
fn read_extensions(reader: &mut Reader<'_>) -> Result<Option<Offer>, ParseError> {
    let mut offer = None;
    while !reader.is_empty() {
        let kind = u16::from_be_bytes(reader.array()?);
        let len = u16::from_be_bytes(reader.array()?);
        let value = reader.take(len.into())?;
        if kind == OFFER_TYPE && len == OFFER_LEN {
            let mut value = Reader::new("offer", value);
            let cost = Some(u32::from_be_bytes(value.array()?)).filter(|cost| *cost != WITHDRAWN);
            let channel_port = u16::from_be_bytes(value.array()?);
            let host_port = u16::from_be_bytes(value.array()?);
            if channel_port == 0 || host_port == 0 {
                return Err(value.bad("port 0"));
            }
            offer = offer.or(Some(Offer { cost, channel_port, host_port }));
        }
    }
    Ok(offer)
}

/// Returns the value of a code of 8 bits: itself, or 4 bits of mantissa and 3 of exponent
/// [RFC 3376 §4.1.1].
pub(crate) fn eight_bit_value(code: u8) -> u32 {
    if code < 0x80 {
        return code.into();
    }
    let (mantissa, exponent) = (u32::from(code & 0x0F), code >> 4 & 7);
    (mantissa | 0x10) << (exponent + 3)
}

/// Returns the code of the greatest value that is not above this one.
pub(crate) fn eight_bit_code(value: u64) -> u8 {
    // The greatest exponent and mantissa.
    let value = value.min(u64::from(eight_bit_value(0xFF))) as u32;
    if value < 0x80 {
        return value as u8;
    }
    let exponent = value.ilog2() - 7;
    0x80 | (exponent as u8) << 4 | (value >> (exponent + 3) & 0x0F) as u8
}

/// Returns the value of a code of 16 bits: itself, or 12 bits of mantissa and 3 of exponent
/// [RFC 3810 §5.1.3].
pub(crate) fn sixteen_bit_value(code: u16) -> u32 {
    if code < 0x8000 {
        return code.into();
    }
    let (mantissa, exponent) = (u32::from(code & 0x0FFF), code >> 12 & 7);
    (mantissa | 0x1000) << (exponent + 3)
}

/// Returns the code of the greatest value that is not above this one.
pub(crate) fn sixteen_bit_code(value: u128) -> u16 {
    let value = value.min(u128::from(sixteen_bit_value(0xFFFF))) as u32;
    if value < 0x8000 {
        return value as u16;
    }
    let exponent = value.ilog2() - 15;
    0x8000 | (exponent as u16) << 12 | (value >> (exponent + 3) & 0x0FFF) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_8_bits_say_the_greatest_value_that_is_not_above() {
        for code in 0..=u8::MAX {
            assert_eq!(eight_bit_code(eight_bit_value(code).into()), code);
            let next = code.checked_add(1).map_or(u32::MAX, eight_bit_value);
            assert_eq!(eight_bit_code(u64::from(next) - 1), code);
        }
        assert_eq!((eight_bit_value(0x7F), eight_bit_value(0x80)), (127, 128));
        assert_eq!(eight_bit_value(0xFF), 31_744);
        assert_eq!(eight_bit_code(u64::MAX), 0xFF);
    }

    #[test]
    fn codes_of_16_bits_say_the_greatest_value_that_is_not_above() {
        for code in 0..=u16::MAX {
            assert_eq!(sixteen_bit_code(sixteen_bit_value(code).into()), code);
        }
        assert_eq!((sixteen_bit_value(0x7FFF), sixteen_bit_value(0x8000)), (32_767, 32_768));
        assert_eq!(sixteen_bit_value(0xFFFF), 8_387_584);
        assert_eq!(sixteen_bit_code(32_775), 0x8000);
        assert_eq!(sixteen_bit_code(u128::MAX), 0xFFFF);
    }
}
