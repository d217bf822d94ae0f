//! Finds the interface, and checks whether it exists, is up, is connected and supports multicast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use umbel_net::interface::{Family, Interface, InterfaceError};

use super::{Finding, system};
use crate::endpoint::interface as choice;

pub(super) const CHECK: &str = "interface";

/// Returns the interface that a user names, or that a receiver would choose. `peer` is the server,
/// if it is known. The interface may be unusable, which [`examine_host`](super::examine_host)
/// reports.
///
/// # Errors
///
/// A problem: there is no such interface, or none at all.
pub fn find(name: Option<&str>, peer: Option<IpAddr>) -> Result<Interface, Finding> {
    let all = Interface::list().map_err(|error| Finding::unknown(CHECK, error.to_string()))?;
    let found = match (name, peer) {
        (Some(text), _) => named(&all, text).or_else(|| by_resolver(text)),
        (None, Some(peer)) => return towards(all, peer),
        (None, None) => by_default(&all),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|interface| interface.name.as_str()).collect();
        match name {
            Some(text) => Finding::problem(CHECK, format!("there is no interface `{text}`"))
                .mend(format!("use `--interface` with one of {}", names.join(", "))),
            None => Finding::problem(CHECK, "there is no network interface but the loopback")
                .mend("plug in or switch on a network, or try `--interface lo` on this host alone"),
        }
    })
}

/// Returns the interfaces on which a receiver listens whose user names none: the one that
/// [`find`] returns, and the others that do multicast.
///
/// # Errors
///
/// As [`find`].
pub fn find_all() -> Result<Vec<Interface>, Finding> {
    let first = find(None, None)?;
    let mut others = choice::heard().unwrap_or_default();
    others.retain(|other| other.index != first.index);
    Ok([vec![first], others].concat())
}

fn named(all: &[Interface], text: &str) -> Option<Interface> {
    all.iter().find(|interface| interface.name == text.trim()).cloned()
}

/// Resolves an address, perhaps with its zone.
fn by_resolver(text: &str) -> Option<Interface> {
    match Interface::resolve(text) {
        Ok(interface) => Some(interface),
        Err(InterfaceError::Down(name) | InterfaceError::NoMulticast(name)) => {
            named(&Interface::list().ok()?, &name)
        }
        Err(_) => None,
    }
}

/// Returns the interface of the route to the server.
fn towards(all: Vec<Interface>, peer: IpAddr) -> Result<Interface, Finding> {
    match Interface::for_peer(peer) {
        Ok(interface) => Ok(interface),
        Err(InterfaceError::Down(name) | InterfaceError::NoMulticast(name)) => {
            let found = all.into_iter().find(|interface| interface.name == name);
            found.ok_or_else(|| Finding::problem(CHECK, format!("{name} went away")))
        }
        Err(error) => {
            // The route to the server may be missing because its interface is down.
            let down = all.iter().find(|interface| !interface.up && !interface.loopback);
            let finding = Finding::problem(CHECK, format!("no way leads to {peer}: {error}"));
            Err(match down {
                Some(down) => finding.mend(switch_on(down)),
                None => finding.mend(format!("ip route get {peer}")),
            })
        }
    }
}

/// Returns the interface to which the system routes groups, or else the first usable one.
fn by_default(all: &[Interface]) -> Option<Interface> {
    let groups = [
        IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1)),
        IpAddr::V6(Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 1)),
    ];
    let routed = groups.into_iter().find_map(|group| Interface::for_peer(group).ok());
    let mut others: Vec<_> = all.iter().filter(|interface| !interface.loopback).collect();
    others.sort_by_key(|interface| {
        let addresses = !interface.v4.is_empty() || !interface.v6.is_empty();
        (!(interface.up && interface.multicast && addresses), !addresses, !interface.up)
    });
    routed.filter(|interface| !interface.loopback).or_else(|| others.first().copied().cloned())
}

fn switch_on(interface: &Interface) -> String {
    format!("ip link set dev {} up", interface.name)
}

/// Checks whether the interface can carry multicast of `family`, or of either family for `None`.
pub(super) fn check(interface: &Interface, family: Option<Family>) -> Finding {
    let name = &interface.name;
    if !interface.up {
        return Finding::problem(CHECK, format!("{name} is down")).mend(switch_on(interface));
    }
    if !interface.multicast {
        return Finding::problem(CHECK, format!("{name} does not do multicast"))
            .mend(format!("ip link set dev {name} multicast on"));
    }
    if !is_connected(interface) {
        let what =
            format!("{name} has no carrier: the other end of its cable or radio link is off");
        return Finding::problem(CHECK, what)
            .mend(format!("plug {name} in, see `ip link show {name}`"));
    }
    let lacks = match family {
        Some(family) => interface.address(family).is_err(),
        None => interface.v4.is_empty() && interface.v6.is_empty(),
    };
    if lacks {
        let kind = family.map_or_else(|| "IP".to_owned(), |family| family.to_string());
        let example = if family == Some(Family::V6) { "fd00::2/64" } else { "192.0.2.2/24" };
        return Finding::problem(CHECK, format!("{name} has no {kind} address"))
            .mend(format!("ip addr add {example} dev {name}, with an address of your network"));
    }
    if let Some(tentative) = tentative(interface, family) {
        let what = format!("{tentative} of {name} cannot be used yet: `tentative` or `dadfailed`");
        return Finding::problem(CHECK, what)
            .mend(format!("wait two seconds, then see `ip -6 addr show dev {name}`"));
    }
    Finding::ok(CHECK, format!("{interface} is up and does multicast"))
}

/// Returns whether there is a carrier. Returns true if the system does not say.
fn is_connected(interface: &Interface) -> bool {
    let Ok(mut entries) = getifaddrs() else { return true };
    entries
        .find(|entry| entry.interface_name == interface.name)
        .is_none_or(|entry| entry.flags.contains(InterfaceFlags::IFF_RUNNING))
}

/// Returns the address to send from, if another host may have it too.
fn tentative(interface: &Interface, family: Option<Family>) -> Option<Ipv6Addr> {
    if family != Some(Family::V6) {
        return None;
    }
    let first = *interface.v6.first()?;
    let table = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    is_tentative(&table, first, interface.index).then_some(first)
}

/// Parses `/proc/net/if_inet6`: address, number of the interface, prefix, scope, flags, name.
fn is_tentative(table: &str, address: Ipv6Addr, index: u32) -> bool {
    const DAD_FAILED: u32 = 0x08;
    const TENTATIVE: u32 = 0x40;
    const OPTIMISTIC: u32 = 0x04;
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        let bits = words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
        let number = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let flags = words.nth(2).and_then(|word| u32::from_str_radix(word, 16).ok()).unwrap_or(0);
        let waits = flags & DAD_FAILED != 0 || (flags & TENTATIVE != 0 && flags & OPTIMISTIC == 0);
        bits == Some(address.to_bits()) && number == Some(index) && waits
    })
}

pub(super) const MTU_CHECK: &str = "mtu";

/// Checks whether packets of `packet_len` bytes of UDP payload fit the interface.
pub(super) fn check_mtu(interface: &Interface, family: Family, packet_len: usize) -> Finding {
    let needed = packet_len + family.header_bytes();
    let (name, mtu) = (&interface.name, interface.mtu);
    if mtu >= needed {
        return Finding::ok(
            MTU_CHECK,
            format!("{name} carries {mtu} bytes, {family} packets have up to {needed}"),
        );
    }
    let what = format!(
        "{name} carries {mtu} bytes, but {family} packets have up to {needed}, unless the server is \
         started with `--mtu {mtu}`"
    );
    Finding::problem(MTU_CHECK, what)
        .mend(format!("ip link set dev {name} mtu {}", needed.max(1500)))
}

/// Returns the other interfaces that are up and have an IPv4 address.
pub(super) fn others(interface: &Interface) -> Vec<Interface> {
    let all = Interface::list().unwrap_or_default();
    let other = |other: &Interface| {
        other.index != interface.index && other.up && !other.loopback && !other.v4.is_empty()
    };
    all.into_iter().filter(other).filter(|other| system::is_plain(&other.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn interface() -> Interface {
        Interface {
            index: 7,
            name: "eth0".to_owned(),
            v4: vec![Ipv4Addr::new(192, 0, 2, 2)],
            v6: Vec::new(),
            mtu: 1500,
            multicast: true,
            up: true,
            loopback: false,
        }
    }

    #[test]
    fn each_thing_that_an_interface_lacks_has_its_command() {
        let mut down = interface();
        down.up = false;
        assert_eq!(check(&down, None).mend.unwrap(), "ip link set dev eth0 up");
        let mut deaf = interface();
        deaf.multicast = false;
        assert_eq!(check(&deaf, None).mend.unwrap(), "ip link set dev eth0 multicast on");
        let found = check(&interface(), Some(Family::V6));
        assert!(found.what.contains("no IPv6 address"), "{found}");
    }

    #[test]
    fn a_packet_that_does_not_fit_is_a_problem() {
        let mut narrow = interface();
        narrow.mtu = 1280;
        let found = check_mtu(&narrow, Family::V4, 1400);
        assert_eq!(found.verdict, Verdict::Problem);
        assert_eq!(found.mend.unwrap(), "ip link set dev eth0 mtu 1500");
        assert_eq!(check_mtu(&interface(), Family::V6, 1452).verdict, Verdict::Ok);
        assert_eq!(check_mtu(&interface(), Family::V6, 1453).verdict, Verdict::Problem);
    }

    #[test]
    fn a_tentative_address_is_read_off_the_table() {
        let table = "fd000000000000000000000000000001 07 40 00 40     eth0\n\
                     fd000000000000000000000000000002 07 40 00 80     eth0\n";
        assert!(is_tentative(table, "fd00::1".parse().unwrap(), 7));
        assert!(!is_tentative(table, "fd00::1".parse().unwrap(), 8));
        assert!(!is_tentative(table, "fd00::2".parse().unwrap(), 7));
        assert!(!is_tentative("rubbish", "fd00::2".parse().unwrap(), 7));
    }
}
