//! IPv4, IPv6 and UDP headers, as far as programs see them that work below sockets
//! [RFC 791, RFC 8200, RFC 768].

use std::net::SocketAddrV4;
use std::ops::Range;

use crate::checksum::Sum;

/// Protocol number of IGMP.
pub const IGMP: u8 = 2;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of `ICMPv6`, in which MLD is.
pub const ICMPV6: u8 = 58;
/// Protocol number of PIM.
pub const PIM: u8 = 103;

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Offset of a fragment, and whether more of them follow.
pub(crate) const FRAGMENT: u16 = 0x3FFF;
pub(crate) const DONT_FRAGMENT: u8 = 0x40;

/// Headers of a UDP datagram over IPv4 without options.
#[derive(Clone, Copy, Debug)]
pub struct UdpV4 {
    /// Address and port of the sender.
    pub source: SocketAddrV4,
    /// Address and port of the receiver.
    pub destination: SocketAddrV4,
    /// Time to live.
    pub ttl: u8,
    /// Identification field: the same in all copies of a packet.
    pub identification: u16,
}

impl UdpV4 {
    /// Bytes of both headers.
    pub const LEN: usize = V4_LEN + UDP_LEN;
    /// Longest payload of a datagram in bytes.
    pub const MAX_PAYLOAD: usize = 0xFFFF - UdpV4::LEN;

    /// Returns the headers of a datagram with this payload. Bytes beyond
    /// [`MAX_PAYLOAD`](UdpV4::MAX_PAYLOAD) do not count.
    pub fn emit(&self, payload: &[u8]) -> [u8; UdpV4::LEN] {
        let payload = &payload[..payload.len().min(UdpV4::MAX_PAYLOAD)];
        let mut out = [0; UdpV4::LEN];
        let (ip, udp) = out.split_at_mut(V4_LEN);

        let udp_len = (payload.len() + UDP_LEN) as u16;
        udp[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());

        // Version 4, five words.
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(udp_len + V4_LEN as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
        ip[6] = DONT_FRAGMENT;
        ip[8] = self.ttl;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&self.source.ip().octets());
        ip[16..20].copy_from_slice(&self.destination.ip().octets());
        let checksum = Sum::default().bytes(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        // The UDP checksum also covers the addresses, the protocol and the length.
        let pseudo_header = Sum::default().bytes(&ip[12..20]).number(UDP.into()).number(udp_len);
        let checksum = pseudo_header.bytes(udp).bytes(payload).udp_checksum();
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

/// Transport segment in an IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Protocol number.
    pub protocol: u8,
    /// Place of the segment in the packet.
    pub place: Range<usize>,
}

impl Segment {
    /// Finds the segment of a whole, unfragmented IPv4 or IPv6 packet. Returns `None` for anything
    /// else. An IPv6 extension header counts as the segment.
    pub fn find(packet: &[u8]) -> Option<Segment> {
        let first = *packet.first()?;
        let (protocol, start, end) = match first >> 4 {
            4 if be16(packet, 6)? & FRAGMENT == 0 => {
                (*packet.get(9)?, v4_header_len(first), usize::from(be16(packet, 2)?))
            }
            6 => (*packet.get(6)?, V6_LEN, V6_LEN + usize::from(be16(packet, 4)?)),
            _ => return None,
        };
        (end <= packet.len()).then_some(Segment { protocol, place: start..end })
    }

    /// Returns where in the packet a UDP or TCP payload begins, and where the checksum is.
    /// Returns `None` for other protocols.
    pub fn payload_and_checksum(&self, packet: &[u8]) -> Option<(usize, usize)> {
        let start = self.place.start;
        match self.protocol {
            UDP => Some((start + UDP_LEN, start + 6)),
            TCP => {
                let words = packet.get(start + 12)? >> 4;
                Some((start + usize::from(words) * 4, start + 16))
            }
            _ => None,
        }
    }
}

/// Returns the length of an IPv4 header in bytes, options included, by its first byte.
pub fn v4_header_len(first: u8) -> usize {
    usize::from(first & 0x0F) * 4
}

/// Returns the 16-bit number at `at`.
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const HEADERS: UdpV4 = UdpV4 {
        source: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702),
        destination: SocketAddrV4::new(Ipv4Addr::new(232, 0, 0, 7), 7702),
        ttl: 64,
        identification: 0x0102,
    };

    #[test]
    fn headers_are_laid_out_as_the_rfcs_say() {
        let bytes = HEADERS.emit(b"abc");
        assert_eq!(bytes[..10], [0x45, 0, 0, 31, 1, 2, 0x40, 0, 64, 17]);
        assert_eq!(bytes[12..20], [10, 0, 0, 1, 232, 0, 0, 7]);
        assert_eq!(bytes[20..26], [0x1E, 0x16, 0x1E, 0x16, 0, 11]);
    }

    #[test]
    fn a_checksum_of_zero_is_written_as_all_ones() {
        let free = u16::from_be_bytes(HEADERS.emit(&[0, 0])[26..28].try_into().unwrap());
        let bytes = HEADERS.emit(&free.to_be_bytes());
        assert_eq!(bytes[26..28], [0xFF, 0xFF]);
    }

    #[test]
    fn what_does_not_fit_a_datagram_is_left_out() {
        let payload = vec![1; UdpV4::MAX_PAYLOAD + 1];
        let bytes = HEADERS.emit(&payload);
        assert_eq!((bytes[2], bytes[3]), (0xFF, 0xFF));
        assert_eq!(bytes, HEADERS.emit(&payload[1..]));
    }

    #[test]
    fn fragments_and_cut_packets_have_no_segment() {
        let mut packet = [&HEADERS.emit(b"abc")[..], b"abc"].concat();
        assert_eq!(Segment::find(&packet), Some(Segment { protocol: UDP, place: 20..31 }));
        assert_eq!(Segment::find(&packet[..30]), None);
        packet[7] = 1;
        assert_eq!(Segment::find(&packet), None);
    }

    proptest! {
        #[test]
        fn everything_that_a_checksum_covers_sums_to_all_ones(
            payload in proptest::collection::vec(any::<u8>(), 0..2_000),
            source: u32, destination: u32, port: u16, ttl: u8, identification: u16,
        ) {
            let headers = UdpV4 {
                source: SocketAddrV4::new(source.into(), port),
                destination: SocketAddrV4::new(destination.into(), port),
                ttl,
                identification,
            };
            let bytes = headers.emit(&payload);
            prop_assert_eq!(Sum::default().bytes(&bytes[..20]).folded(), 0xFFFF);
            let udp_len = payload.len() as u16 + 8;
            let covered = Sum::default().bytes(&bytes[12..]).bytes(&payload);
            prop_assert_eq!(covered.number(UDP.into()).number(udp_len).folded(), 0xFFFF);
            prop_assert!(bytes[26..28] != [0, 0]);
        }

        #[test]
        fn no_packet_makes_it_fail(mut packet in proptest::collection::vec(any::<u8>(), 0..80), v6: bool) {
            if let Some(first) = packet.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | (*first & 0x0F) };
            }
            if let Some(segment) = Segment::find(&packet) {
                prop_assert!(segment.place.end <= packet.len());
                let _ = segment.payload_and_checksum(&packet);
            }
        }
    }
}
