//! The IP packet around a segment.

use std::net::IpAddr;

use crate::checksum::Sum;
use crate::ip::{self, TCP};

/// Length of an IPv4 header without options, and of an IPv6 header.
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;

/// A whole, unfragmented IP packet with a TCP segment, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its sender.
    pub source: IpAddr,
    /// Its receiver, or a group.
    pub destination: IpAddr,
    /// Remainder of its hop limit.
    pub hop_limit: u8,
    /// The packet, without what may follow it in a frame.
    pub bytes: &'a [u8],
    /// Length of the IP header.
    pub ip_len: usize,
}

impl<'a> Packet<'a> {
    /// Finds the packet at the beginning of `bytes`, an IPv4 packet or an IPv6 packet without
    /// extension headers. Returns `None` for anything else.
    pub fn find(bytes: &'a [u8]) -> Option<Packet<'a>> {
        fn octets<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
            bytes.get(at..)?.first_chunk().copied()
        }
        let found = ip::Segment::find(bytes).filter(|found| found.protocol == TCP)?;
        let (ip_len, bytes) = (found.place.start, bytes.get(..found.place.end)?);
        // Options that the packet does not have would begin within its header.
        bytes.get(ip_len..)?;
        let (source, destination, hop_limit) = match bytes.first()? >> 4 {
            4 if ip_len >= V4_LEN => {
                (octets::<4>(bytes, 12)?.into(), octets::<4>(bytes, 16)?.into(), *bytes.get(8)?)
            }
            6 => (octets::<16>(bytes, 8)?.into(), octets::<16>(bytes, 24)?.into(), *bytes.get(7)?),
            _ => return None,
        };
        Some(Packet { source, destination, hop_limit, bytes, ip_len })
    }

    /// Returns TCP header and payload.
    pub fn segment(&self) -> &'a [u8] {
        &self.bytes[self.ip_len..]
    }

    /// Returns whether the IP header has no options.
    pub fn is_plain(&self) -> bool {
        self.ip_len == ip_len(self.source)
    }

    /// Returns whether the checksum of the segment is right.
    pub fn is_sound(&self) -> bool {
        let segment = self.segment();
        let sum = pseudo_header(self.source, self.destination, segment.len());
        sum.bytes(segment).folded() == 0xFFFF
    }
}

/// Returns the length of the IP header of a packet from this address, without options.
pub const fn ip_len(source: IpAddr) -> usize {
    match source {
        IpAddr::V4(_) => V4_LEN,
        IpAddr::V6(_) => V6_LEN,
    }
}

/// Returns the sum over the pseudo header of a segment of this length [RFC 9293 §3.1]. Both
/// addresses are of one family.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> Sum {
    Sum::pseudo_header(TCP, source, destination, length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a packet of 10.0.0.1 to 10.0.0.2 with `options` words of options, and two bytes
    /// behind it.
    fn v4(options: u8) -> Vec<u8> {
        let length = 40 + 4 * options;
        let mut packet = vec![0x45 + options, 0, 0, length, 0, 0, 0x40, 0, 9, TCP, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(vec![1; 4 * usize::from(options)]);
        packet.extend([0x50; 22]);
        packet
    }

    #[test]
    fn a_packet_is_found_with_options_and_without_what_follows_it() {
        for options in [0, 3] {
            let bytes = v4(options);
            let packet = Packet::find(&bytes).unwrap();
            assert_eq!((packet.source, packet.hop_limit), ([10, 0, 0, 1].into(), 9));
            assert_eq!(packet.destination, IpAddr::from([10, 0, 0, 2]));
            assert_eq!((packet.segment(), packet.is_plain()), (&[0x50; 20][..], options == 0));
        }
        let mut short = v4(0);
        short[0] = 0x44;
        assert_eq!(Packet::find(&short), None);
        let mut udp = v4(0);
        udp[9] = 17;
        assert_eq!(Packet::find(&udp), None);
    }

    proptest! {
        #[test]
        fn a_checksum_over_everything_is_sound_and_a_changed_byte_is_not(
            v6: bool, mut segment in proptest::collection::vec(any::<u8>(), 20..100),
            at in 0..100_usize, bit in 0..8,
        ) {
            let (source, destination): (IpAddr, IpAddr) = if v6 {
                ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
            } else {
                ([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
            };
            segment[16..18].fill(0);
            let sum = pseudo_header(source, destination, segment.len()).bytes(&segment);
            segment[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
            let mut bytes = if v6 {
                let mut ip = vec![0x60, 0, 0, 0, 0, segment.len() as u8, TCP, 64];
                for address in ["fd00::1", "fd00::2"] {
                    ip.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
                }
                ip
            } else {
                let mut ip = v4(0)[..20].to_vec();
                ip[3] = 20 + segment.len() as u8;
                ip
            };
            let ip_len = bytes.len();
            bytes.extend(&segment);
            prop_assert!(Packet::find(&bytes).unwrap().is_sound());
            bytes[ip_len + at % segment.len()] ^= 1_u8 << bit;
            prop_assert!(!Packet::find(&bytes).unwrap().is_sound());
        }

        #[test]
        fn no_bytes_make_it_fail(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80), version in 4..7_u8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = *first & 15 | version << 4;
            }
            if let Some(packet) = Packet::find(&bytes) {
                prop_assert!(packet.segment().len() < bytes.len());
                let _ = packet.is_sound();
            }
        }
    }
}
