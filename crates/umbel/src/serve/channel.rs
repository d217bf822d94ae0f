//! Which interface, group and rate the data channel takes when nobody says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface, InterfaceError};
use umbel_net::session::Pin;
use umbel_wire::{Channel, Tsi};

use super::UrlHost;

/// An address that is nobody's [RFC 5737 §3]: its route is the default route.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Most of a rate that nobody has chosen, in bits per second.
const MOST_BY_DEFAULT: u64 = 900_000_000;

/// Multicast over Wi-Fi leaves at the slowest rate that every station understands.
const WIFI_BY_DEFAULT: u64 = 5_000_000;

/// The interface that is asked for, that of the default route, or else any that does multicast.
pub(crate) fn choose_interface(wanted: Option<&str>) -> Result<Interface, InterfaceError> {
    if let Some(wanted) = wanted {
        return Interface::resolve(wanted);
    }
    if let Ok(interface) = Interface::for_peer(ELSEWHERE)
        && interface.multicast
    {
        return Ok(interface);
    }
    let usable = |interface: &Interface| {
        interface.up && interface.multicast && !(interface.v4.is_empty() && interface.v6.is_empty())
    };
    let all = Interface::list()?;
    let outward = all.iter().find(|interface| usable(interface) && !interface.loopback);
    match outward.or_else(|| all.iter().find(|interface| usable(interface))) {
        Some(interface) => Ok(interface.clone()),
        None => Interface::resolve("lo"),
    }
}

/// The family that is asked for or that the group has; else IPv4 where the interface has it.
pub(crate) fn choose_family(
    interface: &Interface,
    wanted: Option<Family>,
    group: Option<IpAddr>,
) -> anyhow::Result<Family> {
    let of_group = group.map(Family::of);
    if let (Some(wanted), Some(of_group)) = (wanted, of_group)
        && wanted != of_group
    {
        bail!("the group is an {of_group} address, but {wanted} is asked for");
    }
    let default = if interface.v4.is_empty() { Family::V6 } else { Family::V4 };
    Ok(wanted.or(of_group).unwrap_or(default))
}

/// The channel: the group that is asked for, or one that follows from the server's key, so that
/// two servers on one network do not share it.
pub(super) fn choose(
    group: Option<IpAddr>,
    port: u16,
    source: IpAddr,
    pin: &Pin,
) -> anyhow::Result<Channel> {
    if port == 0 {
        bail!(
            "--channel-port 0 is no port for a channel: clients must know it; the default is 7702"
        );
    }
    if let Some(group) = group {
        if !group.is_multicast() {
            bail!(
                "{group} is no multicast address: take one of 232.0.0.0/8, 239.0.0.0/8 or ff30::/12"
            );
        }
        return Ok(Channel { source: is_source_specific(group).then_some(source), group, port });
    }
    let hash = blake3::hash(pin.to_string().as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    let group = match source {
        // 232.0.0.0/24 is reserved [RFC 4607 §9].
        IpAddr::V4(_) => Ipv4Addr::new(232, a.max(1), b, c).into(),
        // Site-local scope; groups above 0x8000_0000 are for dynamic use [RFC 4607 §9].
        IpAddr::V6(_) => Ipv6Addr::new(
            0xff35,
            0,
            0,
            0,
            0,
            0,
            0x8000 | u16::from_be_bytes([a, b]),
            u16::from_be_bytes([c, d]),
        )
        .into(),
    };
    Ok(Channel { source: Some(source), group, port })
}

/// Whether a group is for source-specific multicast [RFC 4607 §1].
pub(crate) fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 232,
        IpAddr::V6(group) => group.segments()[0] & 0xfff0 == 0xff30,
    }
}

/// 90 % of what the interface says of itself.
pub(crate) fn default_rate(interface: &Interface) -> Rate {
    let device = std::path::Path::new("/sys/class/net").join(&interface.name);
    let says = std::fs::read_to_string(device.join("speed"));
    let mbit: Option<u64> = says.ok().and_then(|text| text.trim().parse().ok());
    let bits = if device.join("wireless").exists() {
        WIFI_BY_DEFAULT
    } else {
        mbit.map_or(MOST_BY_DEFAULT, |mbit| (mbit * 900_000).clamp(1_000_000, MOST_BY_DEFAULT))
    };
    Rate::from_bits_per_s(bits).unwrap_or_else(|| unreachable!("none of the defaults is 0"))
}

/// The host for the URL: where sessions are listened for, or the interface's address.
pub(super) fn url_host(listen: IpAddr, address: IpAddr, interface: &Interface) -> UrlHost {
    match if listen.is_unspecified() { address } else { listen } {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => UrlHost::Zoned(ip, interface.name.clone()),
        ip => UrlHost::Ip(ip),
    }
}

/// A TSI that another run of this or another server hardly has, so that packets of the two are
/// not mixed up.
pub(super) fn session_identifier(pin: &Pin) -> Tsi {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut hash = blake3::Hasher::new();
    hash.update(pin.to_string().as_bytes());
    hash.update(&now.as_nanos().to_be_bytes());
    hash.update(&std::process::id().to_be_bytes());
    let hash = hash.finalize();
    let [a, b, c, d, ..] = *hash.as_bytes();
    Tsi(u32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin() -> Pin {
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".parse().unwrap()
    }

    #[test]
    fn the_default_channel_is_source_specific_and_stable() {
        for source in ["10.0.0.1".parse().unwrap(), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let channel = choose(None, 7702, source, &pin()).unwrap();
            assert!(channel.group.is_multicast() && is_source_specific(channel.group));
            assert_eq!(channel.source, Some(source));
            assert_eq!(channel, choose(None, 7702, source, &pin()).unwrap());
        }
    }

    #[test]
    fn a_group_of_any_source_has_no_source() {
        let source = "10.0.0.1".parse().unwrap();
        let any = choose(Some("239.1.2.3".parse().unwrap()), 7702, source, &pin()).unwrap();
        assert_eq!(any.source, None);
        let error = choose(Some("10.1.2.3".parse().unwrap()), 7702, source, &pin()).unwrap_err();
        assert!(error.to_string().contains("no multicast address"), "{error}");
    }
}
