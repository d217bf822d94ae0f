//! The Internet checksum of IP, UDP, TCP, ICMP, IGMP and PIM [RFC 1071].

use std::net::IpAddr;

/// Sum of 16-bit words in ones' complement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Creates the sum over the pseudo header of a message of this length in bytes
    /// [RFC 8200 §8.1, RFC 9293 §3.1]. Both addresses are of one family.
    pub fn pseudo_header(protocol: u8, from: IpAddr, to: IpAddr, len: usize) -> Sum {
        let add = |sum: Sum, address: IpAddr| match address {
            IpAddr::V4(v4) => sum.bytes(&v4.octets()),
            IpAddr::V6(v6) => sum.bytes(&v6.octets()),
        };
        let len = len as u32;
        add(add(Sum::default(), from), to)
            .number(protocol.into())
            .number((len >> 16) as u16)
            .number(len as u16)
    }

    /// Adds bytes. An odd last byte counts as the upper half of a word: only the last piece of a
    /// packet may have an odd length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let words = bytes.chunks_exact(2);
        let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
        let sum = words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>();
        Sum(self.0 + sum + odd)
    }

    /// Adds a number, such as a length in a pseudo header.
    #[must_use]
    pub fn number(self, number: u16) -> Sum {
        Sum(self.0 + u64::from(number))
    }

    /// Returns the folded sum: `0xFFFF` over what carries its own valid checksum.
    pub fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum as u16
    }

    /// Returns the checksum: the complement of the folded sum.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns the checksum as UDP writes it: zero would mean that there is none [RFC 768].
    pub fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xFFFF,
            checksum => checksum,
        }
    }
}

/// Returns the sum whose checksum is valid after one word changed from `before` to `after`
/// [RFC 1624 §3].
pub fn updated(checksum: u16, before: u16, after: u16) -> Sum {
    Sum::default().number(!checksum).number(!before).number(after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        // RFC 1071 §3.
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]);
        assert_eq!((sum.folded(), sum.checksum()), (0xDDF2, 0x220D));
        assert_eq!(Sum::default().bytes(&[0xFF, 0xFF]).udp_checksum(), 0xFFFF);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_sum_from_the_beginning(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..64), word: u16,
        ) {
            bytes.truncate(bytes.len() & !1);
            let before = u16::from_be_bytes([bytes[2], bytes[3]]);
            let checksum = Sum::default().bytes(&bytes).checksum();
            bytes[2..4].copy_from_slice(&word.to_be_bytes());
            let (updated, anew) = (updated(checksum, before, word), Sum::default().bytes(&bytes));
            // Zero has two forms in ones' complement.
            let same = updated.checksum() == anew.checksum();
            prop_assert!(same || [updated.folded(), anew.folded()].map(|sum| sum % 0xFFFF) == [0, 0]);
        }
    }
}
