//! Chooses the group and rate of the data channel if the user does not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::bail;
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_wire::Channel;

/// Highest rate where the interface tells no speed, in bits per second.
const MOST_BY_DEFAULT: u64 = 10_000_000_000;

/// Returns the family that is asked for or that the group has; else IPv4 where the interface has
/// it.
///
/// # Errors
///
/// If the group is not a multicast address, or of another family than the one that is asked for.
pub(crate) fn choose_family(
    interface: &Interface,
    wanted: Option<Family>,
    group: Option<IpAddr>,
) -> anyhow::Result<Family> {
    if let Some(group) = group.filter(|group| !group.is_multicast()) {
        bail!("{group} is no multicast address: take one of 232.0.0.0/8, 239.0.0.0/8 or ff30::/12");
    }
    let of_group = group.map(Family::of);
    if let (Some(wanted), Some(of_group)) = (wanted, of_group)
        && wanted != of_group
    {
        bail!("the group is an {of_group} address, but {wanted} is asked for");
    }
    let default = if interface.v4.is_empty() { Family::V6 } else { Family::V4 };
    Ok(wanted.or(of_group).unwrap_or(default))
}

/// Returns a source-specific group derived from a name, so that two sources hardly ever share one.
pub(crate) fn specific_group(family: Family, name: &str) -> IpAddr {
    let [a, b, c, d, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    match family {
        // 232.0.0.0/24 is reserved [RFC 4607 §9].
        Family::V4 => Ipv4Addr::new(232, a.max(1), b, c).into(),
        // Site-local scope; groups above 0x8000_0000 are for dynamic use [RFC 4607 §9].
        Family::V6 => dynamic_v6(0xff35, [a, b, c, d]),
    }
}

/// Returns an any-source group derived from a name. For IPv4 it is of site-local scope, in
/// 239.255.0.0/16 [RFC 2365 §6.1] without its highest addresses. Those have fixed meanings
/// [RFC 2365 §9]. For IPv6 it is of site-local scope and not permanent [RFC 4291 §2.7].
pub(crate) fn any_source_group(family: Family, name: &str) -> IpAddr {
    let [a, b, c, d, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    match family {
        Family::V4 => Ipv4Addr::new(239, 255, a % 255, b).into(),
        Family::V6 => dynamic_v6(0xff15, [a, b, c, d]),
    }
}

fn dynamic_v6(prefix: u16, [a, b, c, d]: [u8; 4]) -> IpAddr {
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Ipv6Addr::new(prefix, 0, 0, 0, 0, 0, 0x8000 | high, low).into()
}

/// Returns the channel of a source with this group. Receivers take what this source sends, in
/// groups of any source too: there the host filters, and the network need not [RFC 3376 §3].
pub(crate) fn data_channel(group: IpAddr, port: u16, source: IpAddr) -> Channel {
    Channel { source: Some(source), group, port }
}

/// Returns whether a group is for source-specific multicast [RFC 4607 §1].
pub(crate) fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 232,
        IpAddr::V6(group) => group.segments()[0] & 0xfff0 == 0xff30,
    }
}

/// Returns the speed that the interface reports, at least 1 Mbit/s; 10 Gbit/s if it reports none.
pub(crate) fn most_rate(interface: &Interface) -> Rate {
    let speed = std::path::Path::new("/sys/class/net").join(&interface.name).join("speed");
    let says = std::fs::read_to_string(speed);
    let mbit: Option<u64> = says.ok().and_then(|text| text.trim().parse().ok());
    let bits = mbit.map_or(MOST_BY_DEFAULT, |mbit| (mbit * 1_000_000).max(1_000_000));
    Rate::from_bits_per_s(bits).unwrap_or_else(|| unreachable!("it is not 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_their_kind_and_follow_from_the_name() {
        for family in [Family::V4, Family::V6] {
            for name in (0..1_000).map(|n: u32| n.to_string()) {
                let specific = specific_group(family, &name);
                let any = any_source_group(family, &name);
                assert!(specific.is_multicast() && is_source_specific(specific), "{specific}");
                assert!(any.is_multicast() && !is_source_specific(any), "{any}");
                assert_eq!(specific, specific_group(family, &name));
            }
            assert_ne!(specific_group(family, "1"), specific_group(family, "2"));
        }
    }

    #[test]
    fn only_a_multicast_group_is_taken() {
        let interface = Interface::resolve("lo").unwrap();
        let choose = |group: &str| choose_family(&interface, None, Some(group.parse().unwrap()));
        assert_eq!(choose("239.1.2.3").unwrap(), Family::V4);
        let error = choose("10.1.2.3").unwrap_err();
        assert!(error.to_string().contains("no multicast address"), "{error}");
    }
}
