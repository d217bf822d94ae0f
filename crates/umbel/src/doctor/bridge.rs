//! Linux bridges on this host that snoop IGMP and MLD.

use umbel_net::interface::Interface;

use super::{Finding, querier, system};

/// A bridge's treatment of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bridge {
    /// Name of the bridge.
    pub(super) name: String,
    /// Whether it forwards groups only to ports with members.
    snoops: bool,
    /// Whether it sends queries itself.
    queries: bool,
}

/// Returns the bridge that the interface is, or is a port of.
pub(super) fn of(interface: &Interface) -> Option<Bridge> {
    if !system::is_plain(&interface.name) {
        return None;
    }
    let class = format!("/sys/class/net/{}", interface.name);
    // A mounted `/sys` shows one network namespace, which may be another than this process's.
    if system::read_number(&format!("{class}/ifindex")) == Some(i64::from(interface.index)) {
        return from_sysfs(&class, &interface.name);
    }
    from_ip(&interface.name)
}

fn from_sysfs(class: &str, name: &str) -> Option<Bridge> {
    let flag = |directory: &str, file: &str| system::read_number(&format!("{directory}/{file}"));
    let own = format!("{class}/bridge");
    let (name, directory) = if std::path::Path::new(&own).is_dir() {
        (name.to_owned(), own)
    } else {
        let port = std::fs::read_link(format!("{class}/brport/bridge")).ok()?;
        let name = port.file_name()?.to_str()?.to_owned();
        (name.clone(), format!("/sys/class/net/{name}/bridge"))
    };
    let snoops = flag(&directory, "multicast_snooping")? != 0;
    let queries = flag(&directory, "multicast_querier")? != 0;
    Some(Bridge { name, snoops, queries })
}

fn from_ip(name: &str) -> Option<Bridge> {
    let show = |name: &str| system::run("ip", &["-d", "-j", "link", "show", "dev", name]).ok();
    let text = show(name)?;
    from_listing(&text).or_else(|| {
        let links: serde_json::Value = serde_json::from_str(&text).ok()?;
        from_listing(&show(links.get(0)?.get("master")?.as_str()?)?)
    })
}

/// Parses what `ip -d -j link show` prints about a bridge.
fn from_listing(text: &str) -> Option<Bridge> {
    let links: serde_json::Value = serde_json::from_str(text).ok()?;
    let link = links.get(0)?;
    let data = link.get("linkinfo")?.get("info_data")?;
    let flag = |name: &str| data.get(name)?.as_i64().map(|value| value != 0);
    Some(Bridge {
        name: link.get("ifname")?.as_str()?.to_owned(),
        snoops: flag("mcast_snooping")?,
        queries: flag("mcast_querier")?,
    })
}

/// An interface that this one is a port of, so that what arrives belongs to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    name: String,
    /// `bridge`, `bond` or `team`.
    kind: String,
}

impl Master {
    /// Returns the master of an interface, if it takes all that arrives there.
    pub(super) fn of(interface: &Interface) -> Option<Master> {
        if !system::is_plain(&interface.name) {
            return None;
        }
        let text = system::run("ip", &["-d", "-j", "link", "show", "dev", &interface.name]).ok()?;
        Master::from_listing(&text)
    }

    /// Parses what `ip -d -j link show` prints about a port.
    fn from_listing(text: &str) -> Option<Master> {
        let links: serde_json::Value = serde_json::from_str(text).ok()?;
        let link = links.get(0)?;
        let kind = link.get("linkinfo")?.get("info_slave_kind")?.as_str()?;
        // A VRF leaves packets to its ports.
        ["bridge", "bond", "team"].contains(&kind).then_some(Master {
            name: link.get("master")?.as_str()?.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Returns what that means for an interface of this name.
    pub(super) fn finding(&self, name: &str) -> Finding {
        let Master { name: master, kind } = self;
        let what = format!(
            "{name} is a port of the {kind} {master}: what arrives on it goes to {master}, and \
             nothing reaches addresses that {name} itself has"
        );
        Finding::problem(super::interface::CHECK, what).mend(format!(
            "use `--interface {master}`, and give {master} the addresses and routes of {name}: ip \
             addr flush dev {name}; ip addr add ADDRESS dev {master}"
        ))
    }
}

impl Bridge {
    /// Returns whether the bridge relies on queries that it does not send.
    pub(super) fn lacks_querier(&self) -> bool {
        self.snoops && !self.queries
    }

    /// Returns the command that makes it send queries.
    pub(super) fn mend(&self) -> String {
        format!("ip link set dev {} type bridge mcast_querier 1", self.name)
    }

    /// Returns what is wrong with the bridge if nothing is known about other queriers.
    pub(super) fn finding(&self) -> Option<Finding> {
        if !self.lacks_querier() {
            return None;
        }
        let what = format!(
            "bridge {} snoops IGMP and MLD but does not query: unless a router does, members are \
             forgotten after some minutes",
            self.name
        );
        Some(Finding::warning(querier::CHECK, what).mend(self.mend()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_told_from_an_interface_of_its_own() {
        let port = |kind: &str| {
            format!(
                "[{{\"ifname\":\"e0\",\"master\":\"m0\",\"linkinfo\":{{\"info_kind\":\"veth\",\
                 \"info_slave_kind\":\"{kind}\"}}}}]"
            )
        };
        for kind in ["bridge", "bond", "team"] {
            let found = Master::from_listing(&port(kind)).unwrap().finding("e0");
            assert!(found.what.starts_with(&format!("e0 is a port of the {kind} m0: ")), "{found}");
            assert!(found.mend.unwrap().contains("--interface m0"));
        }
        assert_eq!(Master::from_listing(&port("vrf")), None);
        assert_eq!(Master::from_listing("[{\"ifname\":\"e0\"}]"), None);
    }

    #[test]
    fn a_bridge_that_snoops_and_does_not_query_is_read_off_the_listing() {
        let text = r#"[{"ifname":"br0","linkinfo":{"info_kind":"bridge","info_data":
            {"mcast_snooping":1,"mcast_querier":0}}}]"#;
        let bridge = from_listing(text).unwrap();
        assert!(bridge.lacks_querier());
        let finding = bridge.finding().unwrap();
        assert_eq!(finding.mend.unwrap(), "ip link set dev br0 type bridge mcast_querier 1");
        let text = text.replace("querier\":0", "querier\":1");
        assert_eq!(from_listing(&text).unwrap().finding(), None);
        assert_eq!(from_listing("[{\"ifname\":\"eth0\"}]"), None);
        assert_eq!(from_listing("rubbish"), None);
    }
}
