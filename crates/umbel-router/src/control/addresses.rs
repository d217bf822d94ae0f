//! Ranges of multicast addresses.

use std::net::IpAddr;

/// Returns whether routers forward a group beyond the link [RFC 5771 §4, RFC 4291 §2.7].
pub(super) fn is_routable_group(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group.octets()[..3] != [224, 0, 0],
        // Scope 2 is the link.
        IpAddr::V6(group) => group.is_multicast() && group.segments()[0] & 0x0F > 2,
    }
}

/// Returns whether a group is of the range for source-specific multicast alone [RFC 4607 §1].
pub(super) fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 232,
        IpAddr::V6(group) => {
            let [first, second, ..] = group.segments();
            first & 0xFFF0 == 0xFF30 && second == 0
        }
    }
}

/// Returns whether an address can be that of a source beyond the link.
pub(super) fn is_source(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_broadcast
        && !is_link_local(address)
}

/// Returns whether an address is of the link alone.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_rfcs() {
        let of = |text: &str| {
            let group = text.parse().unwrap();
            (is_routable_group(group), is_source_specific(group))
        };
        assert_eq!(of("224.0.0.22"), (false, false));
        assert_eq!((of("224.0.1.1"), of("239.1.1.1")), ((true, false), (true, false)));
        assert_eq!((of("232.1.1.1"), of("10.0.0.1")), ((true, true), (false, false)));
        assert_eq!((of("ff02::16"), of("ff32::1")), ((false, false), (false, true)));
        assert_eq!((of("ff3e::7"), of("ff3e:40::7")), ((true, true), (true, false)));
        assert_eq!((of("ff0e::1"), of("2001:db8::1")), ((true, false), (false, false)));
        assert!(is_link_local([169, 254, 0, 1].into()) && !is_link_local([10, 0, 0, 1].into()));
        assert!(is_link_local("fe80::1".parse().unwrap()));
    }
}
