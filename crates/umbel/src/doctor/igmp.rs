//! The kernel's reports of memberships: the version of IGMP or MLD, and the limit of memberships.

use umbel_net::interface::{Family, Interface};

use super::{Finding, system};

/// From this limit on, memberships are no concern. Umbel joins one channel per socket.
const FEW_MEMBERSHIPS: i64 = 5;

/// The kernel's default limit [`Documentation/networking/ip-sysctl.rst`].
const USUAL_MEMBERSHIPS: i64 = 20;

fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "igmp",
        Family::V6 => "mld",
    }
}

/// Checks whether the kernel can ask for one source of a group, which only IGMPv3 [RFC 3376] or
/// MLDv2 [RFC 3810] can do. `source_specific` is whether the channel needs it.
pub(super) fn check_version(
    interface: &Interface,
    family: Family,
    source_specific: bool,
) -> Option<Finding> {
    if !system::is_plain(&interface.name) {
        return None;
    }
    let (conf, parameter, needed) = match family {
        Family::V4 => ("net/ipv4/conf", "force_igmp_version", 3),
        Family::V6 => ("net/ipv6/conf", "force_mld_version", 2),
    };
    let path = |scope: &str| format!("{conf}/{scope}/{parameter}");
    let forced = ["all", &interface.name].into_iter().find_map(|scope| {
        let version = system::parameter(&path(scope))?;
        (1..needed).contains(&version).then(|| (path(scope), version))
    });
    let querier = match family {
        Family::V4 => std::fs::read_to_string("/proc/net/igmp")
            .ok()
            .and_then(|table| version_in_use(&table, &interface.name)),
        Family::V6 => None,
    };
    Some(judge_version(family, forced, querier, source_specific))
}

fn judge_version(
    family: Family,
    forced: Option<(String, i64)>,
    in_use: Option<u8>,
    source_specific: bool,
) -> Finding {
    let (check, newest) = (name(family), if family == Family::V4 { 3 } else { 2 });
    let protocol = check.to_uppercase();
    match (forced, in_use) {
        (Some((path, version)), _) => {
            let what = format!(
                "{protocol}v{version} is forced, which cannot ask for one source of a group: \
                 routers do not forward such channels"
            );
            let finding = if source_specific {
                Finding::problem(check, what)
            } else {
                Finding::warning(check, what)
            };
            finding.mend(system::set_parameter(&path, 0))
        }
        (None, Some(version)) if version < newest => Finding::warning(
            check,
            format!(
                "the querier on this link speaks {protocol}v{version}, so that nobody can ask for \
                 one source of a group: routers do not forward such channels"
            ),
        )
        .mend(format!("make the router or switch that queries speak {protocol}v{newest}")),
        _ => Finding::ok(check, format!("{protocol}v{newest} is in use")),
    }
}

/// Reads the version from `/proc/net/igmp`. It has lines such as `2  eth0 :  1  V3`, each with its
/// groups indented below.
fn version_in_use(table: &str, interface: &str) -> Option<u8> {
    let line = table.lines().skip(1).find(|line| {
        !line.starts_with(char::is_whitespace) && line.split_whitespace().nth(1) == Some(interface)
    })?;
    line.split_whitespace().last()?.strip_prefix('V')?.parse().ok()
}

pub(super) const MEMBERSHIPS_CHECK: &str = "memberships";

/// Checks whether a socket may join enough IPv4 groups.
pub(super) fn check_memberships() -> Option<Finding> {
    Some(judge_memberships(system::parameter("net/ipv4/igmp_max_memberships")?))
}

fn judge_memberships(limit: i64) -> Finding {
    let mend = system::set_parameter("net/ipv4/igmp_max_memberships", USUAL_MEMBERSHIPS);
    let what = format!("a socket may join {limit} groups");
    match limit {
        ..=0 => Finding::problem(MEMBERSHIPS_CHECK, what).mend(mend),
        1..FEW_MEMBERSHIPS => {
            Finding::warning(MEMBERSHIPS_CHECK, format!("{what}: few for layered streams"))
                .mend(mend)
        }
        _ => Finding::ok(MEMBERSHIPS_CHECK, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_forced_version_breaks_channels_of_one_source() {
        let path = "net/ipv4/conf/all/force_igmp_version".to_owned();
        let found = judge_version(Family::V4, Some((path.clone(), 2)), Some(3), true);
        assert_eq!(found.verdict, Verdict::Problem);
        assert_eq!(found.mend.unwrap(), "sysctl -w net.ipv4.conf.all.force_igmp_version=0");
        let found = judge_version(Family::V4, Some((path, 2)), Some(3), false);
        assert_eq!(found.verdict, Verdict::Warning);
        assert_eq!(judge_version(Family::V4, None, Some(3), true).verdict, Verdict::Ok);
        assert_eq!(judge_version(Family::V4, None, Some(2), true).verdict, Verdict::Warning);
        assert_eq!(judge_version(Family::V6, None, None, true).what, "MLDv2 is in use");
    }

    #[test]
    fn the_version_in_use_is_read_off_the_table() {
        let table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                     1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                     2\teth0      :     1      V2\n\t\t\t\t010000E0     1 0:00000000\t\t0\n";
        assert_eq!(version_in_use(table, "lo"), Some(3));
        assert_eq!(version_in_use(table, "eth0"), Some(2));
        assert_eq!(version_in_use(table, "eth1"), None);
        assert_eq!(version_in_use("", "eth1"), None);
    }

    #[test]
    fn no_memberships_are_a_problem_and_few_a_warning() {
        let verdicts = [0, 1, 20].map(|limit| judge_memberships(limit).verdict);
        assert_eq!(verdicts, [Verdict::Problem, Verdict::Warning, Verdict::Ok]);
    }
}
