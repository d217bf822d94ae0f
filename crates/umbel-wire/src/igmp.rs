//! What IGMP and MLD packets ask: queries of membership [RFC 3376 §4, RFC 3810 §5].

use crate::ip;

const IGMP_QUERY: u8 = 0x11;
const MLD_QUERY: u8 = 130;

/// Returns whether an IPv4 packet, with its header, is a membership query of any version of IGMP.
pub fn is_igmp_query(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| packet.get(ip::v4_header_len(*first)) == Some(&IGMP_QUERY))
}

/// Returns whether an `ICMPv6` message is a multicast listener query.
pub fn is_mld_query(message: &[u8]) -> bool {
    message.first() == Some(&MLD_QUERY)
}

#[cfg(test)]
mod tests {
    use super::*;

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
