//! IPv4 and UDP headers around a payload [RFC 791, RFC 768], with both checksums.

use std::net::SocketAddrV4;

/// Bytes of both headers.
pub(super) const HEADERS_LEN: usize = 28;
/// The longest payload of a datagram over IPv4.
pub(super) const MAX_PAYLOAD: usize = 0xFFFF - HEADERS_LEN;
/// IP protocol number of UDP.
const UDP: u8 = 17;

/// What the headers say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// Who sends it.
    pub(super) source: SocketAddrV4,
    /// Who is meant.
    pub(super) destination: SocketAddrV4,
    /// Time to live.
    pub(super) ttl: u8,
    /// The identification field: the same in all copies of a packet.
    pub(super) identification: u16,
}

impl Headers {
    /// The headers of a datagram with this payload, of which at most [`MAX_PAYLOAD`] bytes fit.
    pub(super) fn emit(&self, payload: &[u8]) -> [u8; HEADERS_LEN] {
        let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
        let mut out = [0; HEADERS_LEN];
        let (ip, udp) = out.split_at_mut(20);

        let udp_len = (payload.len() + 8) as u16;
        udp[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());

        // Version 4, five words; what comes after the length: identification, "don't fragment".
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
        ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
        ip[6] = 0x40;
        ip[8] = self.ttl;
        ip[9] = UDP;
        ip[12..16].copy_from_slice(&self.source.ip().octets());
        ip[16..20].copy_from_slice(&self.destination.ip().octets());
        let checksum = !fold(sum(ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        // The UDP checksum also covers the addresses, the protocol and the length.
        let pseudo_header = sum(&ip[12..20]) + u64::from(UDP) + u64::from(udp_len);
        let checksum = match !fold(pseudo_header + sum(udp) + sum(payload)) {
            // 0 would say that there is none.
            0 => 0xFFFF,
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

/// The sum of 16-bit words; an odd last byte counts as the upper half of one.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + odd
}

/// The sum in ones' complement.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const HEADERS: Headers = Headers {
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
        let payload = vec![1; MAX_PAYLOAD + 1];
        let bytes = HEADERS.emit(&payload);
        assert_eq!((bytes[2], bytes[3]), (0xFF, 0xFF));
        assert_eq!(bytes, HEADERS.emit(&payload[1..]));
    }

    proptest! {
        #[test]
        fn everything_that_a_checksum_covers_sums_to_all_ones(
            payload in proptest::collection::vec(any::<u8>(), 0..2_000),
            source: u32, destination: u32, port: u16, ttl: u8, identification: u16,
        ) {
            let headers = Headers {
                source: SocketAddrV4::new(source.into(), port),
                destination: SocketAddrV4::new(destination.into(), port),
                ttl,
                identification,
            };
            let bytes = headers.emit(&payload);
            prop_assert_eq!(fold(sum(&bytes[..20])), 0xFFFF);
            let udp_len = payload.len() as u64 + 8;
            let covered = sum(&bytes[12..]) + sum(&payload) + u64::from(UDP) + udp_len;
            prop_assert_eq!(fold(covered), 0xFFFF);
            prop_assert!(bytes[26..28] != [0, 0]);
        }
    }
}
