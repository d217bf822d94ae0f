//! UDP datagrams with their IP headers, as routers see them and make them: with the Router Alert
//! option [RFC 2113, RFC 2711], and under any source address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::Sum;
use crate::codec::Reader;
use crate::{ParseError, ip};

const WHAT: &str = "UDP datagram";
/// The Router Alert option of IPv4, value 0: every router looks [RFC 2113 §2.1].
pub const ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
/// Value of the Router Alert option of IPv6 that LMS routers look at: an experimental one
/// [RFC 5350 §4].
pub const ALERT_VALUE_V6: u16 = 65_503;
/// Types of options: end of the list, no operation.
const OPTIONS_END: u8 = 0;
const NO_OPERATION: u8 = 1;
/// Type of the hop-by-hop option of IPv6.
const ALERT_V6: u8 = 5;
const PAD_1: u8 = 0;
const HOP_BY_HOP: u8 = 0;
const HOP_BY_HOP_LEN: usize = 8;
const UDP_LEN: usize = 8;

/// A UDP datagram with its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpDatagram<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port, of the same family.
    pub destination: SocketAddr,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Value of the Router Alert option, if the packet carries one; 0 in IPv4.
    pub alert: Option<u16>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> IpDatagram<'a> {
    /// Parses a whole IP packet. The UDP checksum is not verified: a router does no more than pass
    /// it on.
    ///
    /// # Errors
    ///
    /// If it is cut off, a fragment, or no UDP.
    pub fn parse(packet: &'a [u8]) -> Result<IpDatagram<'a>, ParseError> {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => parse_v4(packet),
            6 => parse_v6(packet),
            _ => Err(bad("no IP")),
        }
    }

    /// Appends the packet to `out`, with checksums. IPv4 packets must not be fragmented on their
    /// way.
    ///
    /// # Errors
    ///
    /// If the addresses are of two families, or the payload is too long.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), ParseError> {
        let udp_len = u16::try_from(UDP_LEN + self.payload.len())
            .ok()
            .filter(|len| *len <= u16::MAX - 24)
            .ok_or_else(|| bad("too long"))?;
        let addresses = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.emit_v4(out, udp_len, source, destination);
                Sum::default().bytes(&source.octets()).bytes(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.emit_v6(out, udp_len, source, destination);
                Sum::default().bytes(&source.octets()).bytes(&destination.octets())
            }
            _ => return Err(bad("addresses of two families")),
        };
        let mut udp = [0; UDP_LEN];
        udp[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let sum = addresses.number(ip::UDP.into()).number(udp_len);
        let checksum = sum.bytes(&udp).bytes(self.payload).udp_checksum();
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(&udp);
        out.extend_from_slice(self.payload);
        Ok(())
    }

    fn emit_v4(&self, out: &mut Vec<u8>, udp_len: u16, source: Ipv4Addr, destination: Ipv4Addr) {
        let mut header = [0; 24];
        let len: u8 = if self.alert.is_some() { 24 } else { 20 };
        header[0] = 0x40 | (len / 4);
        header[2..4].copy_from_slice(&(udp_len + u16::from(len)).to_be_bytes());
        header[6] = ip::DONT_FRAGMENT;
        header[8] = self.hop_limit;
        header[9] = ip::UDP;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&destination.octets());
        header[20..].copy_from_slice(&ALERT_V4);
        let header = &mut header[..len.into()];
        let checksum = Sum::default().bytes(header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(header);
    }

    fn emit_v6(&self, out: &mut Vec<u8>, udp_len: u16, source: Ipv6Addr, destination: Ipv6Addr) {
        let options = if self.alert.is_some() { HOP_BY_HOP_LEN as u16 } else { 0 };
        out.extend_from_slice(&[0x60, 0, 0, 0]);
        out.extend_from_slice(&(udp_len + options).to_be_bytes());
        out.push(if self.alert.is_some() { HOP_BY_HOP } else { ip::UDP });
        out.push(self.hop_limit);
        out.extend_from_slice(&source.octets());
        out.extend_from_slice(&destination.octets());
        if let Some(value) = self.alert {
            out.extend_from_slice(&alert_header_v6(ip::UDP, value));
        }
    }
}

/// Returns a hop-by-hop header of IPv6 that holds a Router Alert option [RFC 2711 §2.1] and
/// padding. `next` is the number of the header after it.
pub const fn alert_header_v6(next: u8, value: u16) -> [u8; HOP_BY_HOP_LEN] {
    let [high, low] = value.to_be_bytes();
    [next, 0, ALERT_V6, 2, high, low, 1, 0]
}

/// Changes a packet as a router does that forwards it. Returns whether it may still travel.
pub fn forward(packet: &mut [u8]) -> bool {
    let place = match packet.first().map_or(0, |first| first >> 4) {
        4 if packet.len() >= 20 => 8,
        6 if packet.len() >= 40 => 7,
        _ => return false,
    };
    let Some(left) = packet[place].checked_sub(1).filter(|left| *left > 0) else { return false };
    packet[place] = left;
    let header_len = ip::v4_header_len(packet[0]).max(20);
    if place == 8
        && let Some(header) = packet.get_mut(..header_len)
    {
        header[10..12].fill(0);
        let checksum = Sum::default().bytes(header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    true
}

fn bad(problem: &'static str) -> ParseError {
    ParseError::Value { what: WHAT, problem }
}

fn parse_v4(packet: &[u8]) -> Result<IpDatagram<'_>, ParseError> {
    let mut header = Reader::new(WHAT, packet);
    let [first, _, len_high, len_low] = header.array()?;
    let [_, _, fragment_high, fragment_low] = header.array()?;
    let [hop_limit, protocol, _, _] = header.array()?;
    let source = Ipv4Addr::from(header.array::<4>()?);
    let destination = Ipv4Addr::from(header.array::<4>()?);
    let header_len = ip::v4_header_len(first);
    let options_len = header_len.checked_sub(20).ok_or_else(|| bad("a short header"))?;
    let alert = alert_v4(header.take(options_len)?);
    if u16::from_be_bytes([fragment_high, fragment_low]) & ip::FRAGMENT != 0 {
        return Err(bad("a fragment"));
    }
    if protocol != ip::UDP {
        return Err(bad("no UDP"));
    }
    let end = usize::from(u16::from_be_bytes([len_high, len_low]));
    let segment = packet.get(header_len..end).ok_or_else(|| bad("cut off"))?;
    let (source_port, destination_port, payload) = parse_udp(segment)?;
    Ok(IpDatagram {
        source: (source, source_port).into(),
        destination: (destination, destination_port).into(),
        hop_limit,
        alert,
        payload,
    })
}

fn parse_v6(packet: &[u8]) -> Result<IpDatagram<'_>, ParseError> {
    let mut header = Reader::new(WHAT, packet);
    header.take(4)?;
    let len = usize::from(u16::from_be_bytes(header.array()?));
    let mut next = header.byte()?;
    let hop_limit = header.byte()?;
    let source = Ipv6Addr::from(header.array::<16>()?);
    let destination = Ipv6Addr::from(header.array::<16>()?);
    let mut rest = Reader::new(WHAT, header.take(len)?);
    let mut alert = None;
    if next == HOP_BY_HOP {
        next = rest.byte()?;
        let units = usize::from(rest.byte()?);
        alert = alert_v6(rest.take(units * 8 + 6)?);
    }
    if next != ip::UDP {
        return Err(bad("no UDP"));
    }
    let (source_port, destination_port, payload) = parse_udp(rest.rest())?;
    Ok(IpDatagram {
        source: (source, source_port).into(),
        destination: (destination, destination_port).into(),
        hop_limit,
        alert,
        payload,
    })
}

fn parse_udp(segment: &[u8]) -> Result<(u16, u16, &[u8]), ParseError> {
    let mut reader = Reader::new(WHAT, segment);
    let source = u16::from_be_bytes(reader.array()?);
    let destination = u16::from_be_bytes(reader.array()?);
    let len = usize::from(u16::from_be_bytes(reader.array()?));
    let payload = segment.get(UDP_LEN..len).ok_or_else(|| bad("cut off"))?;
    Ok((source, destination, payload))
}

/// Returns the value of the option, wherever it is in the list.
fn alert_v4(mut options: &[u8]) -> Option<u16> {
    loop {
        match *options {
            [] | [OPTIONS_END, ..] => return None,
            [NO_OPERATION, ref rest @ ..] => options = rest,
            [0x94, 4, high, low, ..] => return Some(u16::from_be_bytes([high, low])),
            [_, len, ..] => options = options.get(usize::from(len.max(2))..)?,
            [_] => return None,
        }
    }
}

fn alert_v6(mut options: &[u8]) -> Option<u16> {
    loop {
        match *options {
            [] | [_] => return None,
            [PAD_1, ref rest @ ..] => options = rest,
            [ALERT_V6, 2, high, low, ..] => return Some(u16::from_be_bytes([high, low])),
            [_, len, ..] => options = options.get(usize::from(len) + 2..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::UdpV4;

    fn datagram(v6: bool, alert: Option<u16>, payload: &[u8]) -> IpDatagram<'_> {
        let address = |last: u8| -> IpAddr {
            if v6 {
                [0xFD00, 0, 0, 0, 0, 0, 0, last.into()].into()
            } else {
                [10, 0, 0, last].into()
            }
        };
        let source = SocketAddr::new(address(1), 7702);
        let destination = SocketAddr::new(address(2), 5000);
        IpDatagram { source, destination, hop_limit: 64, alert, payload }
    }

    fn emit(datagram: &IpDatagram<'_>) -> Vec<u8> {
        let mut packet = Vec::new();
        datagram.emit(&mut packet).unwrap();
        packet
    }

    #[test]
    fn without_options_it_is_what_other_programs_make() {
        let packet = emit(&datagram(false, None, b"abc"));
        let headers = UdpV4 {
            source: "10.0.0.1:7702".parse().unwrap(),
            destination: "10.0.0.2:5000".parse().unwrap(),
            ttl: 64,
            identification: 0,
        };
        assert_eq!(packet, [&headers.emit(b"abc")[..], b"abc"].concat());
    }

    #[test]
    fn the_option_is_found_behind_others() {
        assert_eq!(alert_v4(&[1, 0x94, 4, 0, 0, 0, 0, 0]), Some(0));
        assert_eq!(alert_v4(&[7, 3, 4, 1, 0x94, 4, 0, 5]), Some(5));
        assert_eq!(alert_v4(&[0, 0x94, 4, 0, 0]), None);
        assert_eq!(alert_v4(&[7, 0, 7, 0, 7]), None);
        assert_eq!(alert_v6(&[1, 0, 5, 2, 0xFF, 0xDF]), Some(ALERT_VALUE_V6));
        assert_eq!(alert_v6(&[0, 0, 5, 2, 0, 1]), Some(1));
        assert_eq!(alert_v6(&[1, 4, 5, 2, 0, 1]), None);
    }

    #[test]
    fn a_router_takes_one_hop_and_keeps_the_checksum_right() {
        for v6 in [false, true] {
            let mut packet = emit(&datagram(v6, Some(0), b"abc"));
            assert!(forward(&mut packet));
            assert_eq!(IpDatagram::parse(&packet).unwrap().hop_limit, 63);
            if !v6 {
                assert_eq!(Sum::default().bytes(&packet[..24]).folded(), 0xFFFF);
            }
            let mut last = emit(&IpDatagram { hop_limit: 1, ..datagram(v6, None, b"abc") });
            assert!(!forward(&mut last));
        }
        assert!(!forward(&mut []) && !forward(&mut [0x45; 19]));
        assert!(forward(&mut [0x45; 20]), "no more than its header");
    }

    #[test]
    fn addresses_of_two_families_and_endless_payloads_are_refused() {
        let mixed =
            IpDatagram { destination: "[::1]:9".parse().unwrap(), ..datagram(false, None, b"") };
        assert!(mixed.emit(&mut Vec::new()).is_err());
        assert!(datagram(true, None, &vec![0; 65_535]).emit(&mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed_again_and_its_checksums_hold(
            v6: bool, has_alert: bool, value: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let alert = has_alert.then_some(if v6 { value } else { 0 });
            let expected = datagram(v6, alert, &payload);
            let packet = emit(&expected);
            prop_assert_eq!(IpDatagram::parse(&packet).unwrap(), expected);
            let start = packet.len() - payload.len() - 8;
            let addresses = if v6 { &packet[8..40] } else { &packet[12..20] };
            let sum = Sum::default().bytes(addresses).number(17).number(payload.len() as u16 + 8);
            prop_assert_eq!(sum.bytes(&packet[start..]).folded(), 0xFFFF);
            for len in 0..start + 8 {
                prop_assert!(IpDatagram::parse(&packet[..len]).is_err());
            }
        }

        #[test]
        fn no_packet_makes_it_fail(
            mut packet in proptest::collection::vec(any::<u8>(), 0..120), v6: bool,
        ) {
            if let Some(first) = packet.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | (*first & 0x0F) };
            }
            let _ = IpDatagram::parse(&packet);
            let _ = forward(&mut packet);
        }
    }
}
