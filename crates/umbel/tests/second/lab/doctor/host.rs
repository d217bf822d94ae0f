//! Problems of the host itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use umbel_lab::{NodeKind, Topology};

use crate::support::doctor::{Case, Report, break_and_mend, doctor, patient_doctor};
use crate::support::{has_nft, lab, sh, skip};

#[test]
fn an_interface_that_is_missing_or_has_no_carrier_or_address_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    let report = doctor(host, &["--interface", "eth7"]);
    report.complaint("interface", "problem", "there is no interface `eth7`");
    assert_eq!(report.code, 1);
    lab.set_link_up("h1", "sw", false).unwrap();
    doctor(host, &[]).complaint("interface", "problem", "eth0 has no carrier");
    lab.set_link_up("h1", "sw", true).unwrap();
    sh(host, "ip addr flush dev eth0");
    doctor(host, &["--interface", "eth0"]).complaint("interface", "problem", "no IP address");
}

#[test]
fn a_route_that_leads_groups_elsewhere_is_named() {
    let Some(lab) = lab(&two_switches()) else { return };
    let host = lab.host("h1").unwrap();
    sh(host, "ip route replace 224.0.0.0/4 dev eth1");
    let report = doctor(host, &["--interface", "eth0"]);
    report.complaint("route", "warning", "routed to eth1, not to eth0");
    // Without a name, the route decides.
    let report = doctor(host, &[]);
    assert!(report.findings[0].what.starts_with("eth1 "), "{report:#?}");
}

/// Creates a topology in which `h1` has `eth0` and `eth1`.
fn two_switches() -> Topology {
    let topology = Topology::new().host("h1").host("h2").switch("s1").switch("s2");
    topology.link("h1", "s1").link("h1", "s2").link("h2", "s1")
}

#[test]
fn a_firewall_rule_that_drops_the_data_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    if !has_nft(host) {
        return;
    }
    break_and_mend(
        host,
        &Case {
            breaks: "nft add table inet f; \
                nft add chain inet f in '{ type filter hook input priority 0; }'; \
                nft add rule inet f in udp dport 7702 counter drop",
            check: "firewall",
            verdict: "problem",
            words: "drop` in chain `in` of table `inet f` drops IPv4 multicast to UDP port 7702",
            mend: "nft insert rule inet f in ip daddr 224.0.0.0/4 udp dport 7702 accept",
        },
    );
    let v6 = doctor(host, &[]).complaint("firewall", "problem", "drops IPv6 multicast");
    sh(host, &v6.mend.unwrap());
    assert!(doctor(host, &[]).complaints("firewall").is_empty());
}

#[test]
fn what_a_bridge_on_the_host_does_before_ip_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    sh(
        host,
        "ip link add br0 type bridge mcast_snooping 0; ip link set br0 up; \
         ip link set eth0 master br0",
    );
    // The address is still that of the port, the classic mistake.
    let report = doctor(host, &["--interface", "eth0"]);
    let port = report.complaint("interface", "problem", "eth0 is a port of the bridge br0");
    assert!(port.mend.unwrap().contains("--interface br0"));
    sh(host, "ip addr flush dev eth0; ip addr add 10.99.0.1/24 dev br0");
    assert!(doctor(host, &["--interface", "br0"]).problems().is_empty());
    if !has_nft(host) {
        return;
    }
    sh(
        host,
        "nft add table bridge b; nft add chain bridge b in '{ type filter hook input priority 0; }'; \
         nft add rule bridge b in ip daddr 224.0.0.0/4 drop",
    );
    let report = doctor(host, &["--interface", "br0"]);
    let rule = report.complaint("firewall", "problem", "chain `in` of table `bridge b`");
    sh(host, &rule.mend.unwrap());
    assert!(doctor(host, &["--interface", "br0"]).problems().is_empty());
}

#[test]
fn a_firewall_that_drops_what_feeds_need_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    if !has_nft(host) {
        return;
    }
    sh(
        host,
        "nft add table ip f; \
         nft add chain ip f in '{ type filter hook input priority 0; policy drop; }'; \
         nft add rule ip f in ct state established,related accept; \
         nft add rule ip f in ip protocol igmp accept; \
         nft add rule ip f in ip daddr 224.0.0.0/4 udp dport 7702 accept",
    );
    for (verdict, words) in [
        ("problem", "IPv4 multicast to UDP port 9875 (announcements of feeds)"),
        ("problem", "IPv4 multicast to UDP port 7703 (trees of feeds)"),
        ("warning", "IPv4 multicast to UDP port 7701 (questions for feeds"),
        ("warning", "IPv4 multicast to UDP port 7704 (layers of streams)"),
        ("warning", "IPv4 multicast to UDP port 7705 (join-experiments of streams)"),
        ("warning", "unicast of other hosts to UDP ports"),
    ] {
        let before = doctor(host, &["--interface", "eth0"]);
        let found = before.complaint("firewall", verdict, words);
        sh(host, &found.mend.unwrap());
        let after = doctor(host, &["--interface", "eth0"]);
        let left = after.complaints("firewall");
        assert!(left.iter().all(|finding| !finding.what.contains(words)), "{left:?}");
    }
    assert!(doctor(host, &[]).complaints("firewall").is_empty());
    // A port that a program has for itself.
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7703);
    let _taken = host.udp_socket(any).unwrap();
    doctor(host, &[]).complaint("port", "problem", "UDP port 7703 is taken");
}

#[test]
fn a_bridge_that_snoops_without_a_querier_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    sh(
        host,
        "ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 1 \
            mcast_query_response_interval 100 mcast_startup_query_interval 100; \
         ip addr flush dev eth0; ip link set dev eth0 master br0; \
         ip link set dev br0 up; ip addr add 10.1.0.1/16 dev br0; \
         ip route replace 224.0.0.0/4 dev br0",
    );
    let report = patient_doctor(host, &["--interface", "br0"]);
    let found =
        report.complaint("querier", "warning", "bridge br0 snoops IGMP, and nobody queries");
    let mend = found.mend.unwrap();
    assert_eq!(mend, "ip link set dev br0 type bridge mcast_querier 1");
    sh(host, &mend);
    let report = patient_doctor(host, &["--interface", "br0"]);
    assert!(report.complaints("querier").is_empty(), "{report:#?}");
}

#[test]
fn a_switch_that_queries_is_heard_and_one_that_does_not_is_missed() {
    for (querier, verdict) in [(true, "ok"), (false, "warning")] {
        let topology = Topology::new()
            .node("sw", NodeKind::Switch { snooping: true, querier })
            .host("h1")
            .link("h1", "sw");
        let Some(lab) = lab(&topology) else { return };
        let report = patient_doctor(lab.host("h1").unwrap(), &[]);
        let found = report.findings.iter().filter(|f| f.check == "querier").collect::<Vec<_>>();
        assert_eq!(found.len(), 2, "{report:#?}");
        assert!(found.iter().all(|f| f.verdict == verdict), "{found:#?}");
    }
}

#[test]
fn a_querier_of_an_old_version_is_named() {
    let topology = Topology::new()
        .node("sw", NodeKind::Switch { snooping: true, querier: true })
        .host("h1")
        .link("h1", "sw");
    let Some(lab) = lab(&topology) else { return };
    let host = lab.host("h1").unwrap();
    // Bridges speak IGMPv2 by default, which the first run hears.
    patient_doctor(host, &[]);
    patient_doctor(host, &[]).complaint(
        "igmp",
        "warning",
        "the querier on this link speaks IGMPv2",
    );
}

#[test]
fn a_strict_reverse_path_filter_is_named_where_another_way_back_exists() {
    let Some(lab) = lab(&two_switches()) else { return };
    break_and_mend(
        lab.host("h1").unwrap(),
        &Case {
            breaks: "sysctl -qw net.ipv4.conf.all.rp_filter=1",
            check: "rp_filter",
            verdict: "warning",
            words: "strict on eth0",
            mend: "sysctl -w net.ipv4.conf.eth0.rp_filter=2",
        },
    );
}

#[test]
fn a_program_that_does_not_share_the_port_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 7702);
    let taken = host.udp_socket(any).unwrap();
    let found = doctor(host, &[]).complaint("port", "problem", "UDP port 7702 is taken");
    assert!(found.mend.unwrap().starts_with("ss -ulpn"));
    drop(taken);
    assert!(doctor(host, &[]).complaints("port").is_empty());
}

#[test]
fn what_needs_privileges_is_said_to_be_unknown() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    let mut command = host.command("setpriv");
    let caps = ["--bounding-set=-net_raw,-net_admin", "--inh-caps=-net_raw,-net_admin"];
    let output =
        command.args(caps).arg(env!("CARGO_BIN_EXE_umbel")).args(["--json", "doctor"]).output();
    let Ok(output) = output else { return skip("no `setpriv` here") };
    let report = Report::read(&output);
    report.complaint("querier", "unknown", "CAP_NET_RAW");
    report.complaint("firewall", "unknown", "whether they drop IGMP is not known");
    assert_eq!(report.code, 0, "{report:#?}");
}

#[test]
fn people_get_a_line_for_each_finding_and_one_for_what_mends_it() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    sh(host, "ip link set dev eth0 down");
    let mut command = host.command(env!("CARGO_BIN_EXE_umbel"));
    let output = command.args(["doctor", "--interface", "eth0"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "✗ interface: eth0 is down\n    → ip link set dev eth0 up\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "1 problem, 0 warnings\n");
    assert_eq!(output.status.code(), Some(1));
}
