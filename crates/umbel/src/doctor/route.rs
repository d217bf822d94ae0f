//! Routes: where the system sends groups, and whether it accepts packets from a source on this
//! interface.

use std::net::{IpAddr, Ipv4Addr};

use umbel_net::interface::{Family, Interface, InterfaceError};

use super::{Finding, interface, system};

pub(super) const CHECK: &str = "route";

/// Checks where groups are routed to. Umbel names the interface when it sends, so a missing IPv4
/// route is only a warning. For IPv6, [`delivery`](super::delivery) tries it.
pub(super) fn check_v4(interface: &Interface) -> Finding {
    let name = &interface.name;
    let mend = format!("ip route add 224.0.0.0/4 dev {name}");
    match Interface::for_peer(IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1))) {
        Ok(routed) if routed.index == interface.index => {
            Finding::ok(CHECK, format!("IPv4 groups are routed to {name}"))
        }
        Ok(routed) => Finding::warning(
            CHECK,
            format!(
                "IPv4 groups are routed to {}, not to {name}: programs that name no interface use \
                 that one",
                routed.name
            ),
        )
        .mend(mend),
        Err(InterfaceError::NoRoute { .. }) => Finding::warning(
            CHECK,
            format!("no route leads to IPv4 groups: programs that name no interface cannot send, name {name}"),
        )
        .mend(mend),
        Err(error) => Finding::warning(CHECK, format!("IPv4 groups are routed elsewhere: {error}")).mend(mend),
    }
}

pub(super) const FILTER_CHECK: &str = "rp_filter";

/// The system's check of the source of a packet [`Documentation/networking/ip-sysctl.rst`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Off,
    /// The route back to the source must lead through the interface of the packet.
    Strict,
    /// There must be a route back to the source.
    Loose,
}

/// Checks whether the reverse path filter would drop packets of `source`, or of a source anywhere.
/// IPv6 has no such parameter.
pub(super) fn check_filter(interface: &Interface, source: Option<IpAddr>) -> Option<Finding> {
    let name = &interface.name;
    if !system::is_plain(name) || matches!(source, Some(IpAddr::V6(_))) {
        return None;
    }
    let all = system::parameter("net/ipv4/conf/all/rp_filter")?;
    let own = system::parameter(&format!("net/ipv4/conf/{name}/rp_filter"))?;
    let filter = match all.max(own) {
        i64::MIN..=0 => Filter::Off,
        1 => Filter::Strict,
        _ => Filter::Loose,
    };
    let back = source.map(|source| (source, Interface::for_peer(source)));
    Some(judge(interface, filter, back, &interface::others(interface)))
}

fn judge(
    interface: &Interface,
    filter: Filter,
    back: Option<(IpAddr, Result<Interface, InterfaceError>)>,
    others: &[Interface],
) -> Finding {
    let name = &interface.name;
    let loosen = system::set_parameter(&format!("net/ipv4/conf/{name}/rp_filter"), 2);
    match (filter, back) {
        (Filter::Off, _) => Finding::ok(FILTER_CHECK, format!("off on {name}")),
        (_, Some((source, Err(InterfaceError::NoRoute { .. })))) => Finding::problem(
            FILTER_CHECK,
            format!("no route leads back to {source}, so the kernel drops what it multicasts"),
        )
        .mend(format!("ip route add {source} dev {name}")),
        (Filter::Strict, Some((source, Ok(back)))) if back.index != interface.index => {
            Finding::problem(
                FILTER_CHECK,
                format!(
                    "strict on {name}, but the way back to {source} is by {}: the kernel drops \
                     what it multicasts",
                    back.name
                ),
            )
            .mend(loosen)
        }
        (Filter::Strict, None) if !others.is_empty() => {
            let names: Vec<_> = others.iter().map(|other| other.name.as_str()).collect();
            Finding::warning(
                FILTER_CHECK,
                format!(
                    "strict on {name}: multicast from a source whose way back is by {} is dropped",
                    names.join(" or ")
                ),
            )
            .mend(loosen)
        }
        (filter, _) => {
            let kind = if filter == Filter::Strict { "strict" } else { "loose" };
            Finding::ok(FILTER_CHECK, format!("{kind} on {name}, and the way back is by it"))
        }
    }
}

/// Returns whether a family has reverse path filters.
pub(super) fn has_filter(family: Family) -> bool {
    family == Family::V4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn interface(index: u32, name: &str) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            v4: Vec::new(),
            v6: Vec::new(),
            mtu: 1500,
            multicast: true,
            up: true,
            loopback: false,
        }
    }

    #[test]
    fn a_strict_filter_matters_where_the_way_back_is_another() {
        let (here, there) = (interface(1, "eth0"), interface(2, "eth1"));
        let source = IpAddr::from([192, 0, 2, 1]);
        let back = |interface: &Interface| Some((source, Ok(interface.clone())));
        let found = judge(&here, Filter::Strict, back(&there), &[]);
        assert_eq!(found.verdict, Verdict::Problem);
        assert_eq!(found.mend.unwrap(), "sysctl -w net.ipv4.conf.eth0.rp_filter=2");
        assert_eq!(judge(&here, Filter::Strict, back(&here), &[]).verdict, Verdict::Ok);
        assert_eq!(judge(&here, Filter::Loose, back(&there), &[]).verdict, Verdict::Ok);
        assert_eq!(judge(&here, Filter::Off, back(&there), &[]).verdict, Verdict::Ok);
        let several = std::slice::from_ref(&there);
        assert_eq!(judge(&here, Filter::Strict, None, several).verdict, Verdict::Warning);
        assert_eq!(judge(&here, Filter::Strict, None, &[]).verdict, Verdict::Ok);
    }

    #[test]
    fn a_source_without_a_way_back_is_dropped_by_every_filter() {
        let here = interface(1, "eth0");
        let source = IpAddr::from([192, 0, 2, 1]);
        for filter in [Filter::Strict, Filter::Loose] {
            let none =
                InterfaceError::NoRoute { peer: source, source: std::io::Error::other("none") };
            let found = judge(&here, filter, Some((source, Err(none))), &[]);
            assert_eq!(found.mend.unwrap(), "ip route add 192.0.2.1 dev eth0");
        }
    }
}
