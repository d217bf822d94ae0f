//! `umbel doctor`.

use serde_json::Value;
use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Topology};

use crate::support::doctor::{
    Case, Server, assert_ok, break_and_mend, doctor, emulated, h1, h2, patient_doctor,
};
use crate::support::{has_nft, lab, sh};

/// Faults of a host on a switch. Each is mended before the next; the last takes routes along.
const FAULTS: [Case<'static>; 13] = [
    Case {
        breaks: "ip link set dev eth0 multicast off",
        check: "interface",
        verdict: "problem",
        words: "eth0 does not do multicast",
        mend: "ip link set dev eth0 multicast on",
    },
    Case {
        breaks: "ip route del 224.0.0.0/4 dev eth0",
        check: "route",
        verdict: "warning",
        words: "no route leads to IPv4 groups",
        mend: "ip route add 224.0.0.0/4 dev eth0",
    },
    Case {
        breaks: "ip -6 route del multicast ff00::/8 dev eth0 table local",
        check: "route",
        verdict: "problem",
        words: "no route to [ff",
        mend: "ip -6 route add multicast ff00::/8 dev eth0 table local",
    },
    Case {
        breaks: "nft add table ip f; \
            nft add chain ip f in '{ type filter hook input priority 0; policy drop; }'; \
            nft add rule ip f in ct state established,related accept; \
            nft add rule ip f in ip protocol igmp accept; \
            nft add rule ip f in tcp dport 22 accept",
        check: "firewall",
        verdict: "problem",
        words: "the policy of chain `in` of table `ip f` drops IPv4 multicast to UDP port 7702",
        mend: "nft insert rule ip f in ip daddr 224.0.0.0/4 udp dport 7702 accept",
    },
    Case {
        breaks: "nft add table ip f; \
            nft add chain ip f out '{ type filter hook output priority 0; }'; \
            nft add rule ip f out ip daddr 232.0.0.0/8 drop",
        check: "firewall",
        verdict: "problem",
        words: "drops outgoing IPv4 multicast to UDP port 7702",
        mend: "nft insert rule ip f out ip daddr 224.0.0.0/4 udp dport 7702 accept",
    },
    Case {
        breaks: "nft add table inet f; \
            nft add chain inet f in '{ type filter hook input priority 0; }'; \
            nft add rule inet f in ip protocol igmp drop",
        check: "firewall",
        verdict: "problem",
        words: "drops IGMP queries",
        mend: "nft insert rule inet f in ip protocol igmp accept",
    },
    Case {
        breaks: "nft add table inet f; \
            nft add chain inet f in '{ type filter hook input priority 0; }'; \
            nft add rule inet f in icmpv6 type mld-listener-query drop",
        check: "firewall",
        verdict: "problem",
        words: "drops MLD queries",
        mend: "nft insert rule inet f in icmpv6 type { 130, 131, 132, 143 } accept",
    },
    Case {
        breaks: "nft add table inet f; \
            nft add chain inet f out '{ type filter hook output priority 0; }'; \
            nft add rule inet f out meta l4proto igmp reject",
        check: "firewall",
        verdict: "problem",
        words: "drops IGMP reports",
        mend: "nft insert rule inet f out ip protocol igmp accept",
    },
    Case {
        breaks: "sysctl -qw net.ipv4.conf.all.force_igmp_version=2",
        check: "igmp",
        verdict: "problem",
        words: "IGMPv2 is forced",
        mend: "sysctl -w net.ipv4.conf.all.force_igmp_version=0",
    },
    Case {
        breaks: "sysctl -qw net.ipv6.conf.eth0.force_mld_version=1",
        check: "mld",
        verdict: "problem",
        words: "MLDv1 is forced",
        mend: "sysctl -w net.ipv6.conf.eth0.force_mld_version=0",
    },
    Case {
        breaks: "sysctl -qw net.ipv4.igmp_max_memberships=0",
        check: "memberships",
        verdict: "problem",
        words: "a socket may join 0 groups",
        mend: "sysctl -w net.ipv4.igmp_max_memberships=20",
    },
    Case {
        breaks: "ip link set dev eth0 mtu 1300",
        check: "mtu",
        verdict: "problem",
        words: "eth0 carries 1300 bytes, but IPv4 packets have up to 1428",
        mend: "ip link set dev eth0 mtu 1500",
    },
    Case {
        breaks: "ip link set dev eth0 down",
        check: "interface",
        verdict: "problem",
        words: "eth0 is down",
        mend: "ip link set dev eth0 up",
    },
];

#[test]
fn a_sound_host_has_no_problem() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let report = patient_doctor(lab.host("h1").unwrap(), &[]);
    assert!(report.problems().is_empty(), "{report:#?}");
    assert_eq!(report.code, 0);
    let named = &report.findings[0];
    assert!(named.check == "interface" && named.what.contains("eth0 (10.1.0.1"), "{named:?}");
}

#[test]
fn each_fault_of_a_host_is_named_with_what_mends_it() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let host = lab.host("h1").unwrap();
    let has_nft = has_nft(host);
    for case in FAULTS.iter().filter(|case| has_nft || case.check != "firewall") {
        break_and_mend(host, case);
        if case.check == "firewall" {
            sh(host, "nft flush ruleset");
        }
    }
}

#[test]
fn routers_that_do_not_forward_the_group_are_named() {
    let Some(lab) = lab(&Topology::line(1)) else { return };
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    let found = doctor(h2(&lab), &[&server.url]).complaint("multicast", "problem", "none arrives");
    let mend = found.mend.unwrap();
    assert!(
        mend.contains(&format!("have the routers in between forward {}", server.group)),
        "{mend}"
    );
    lab.route_multicast("h1", server.group).unwrap();
    assert_ok(&doctor(h2(&lab), &[&server.url]), "multicast");
}

#[test]
fn get_names_the_cause_when_it_falls_back_to_unicast() {
    let Some(lab) = lab(&emulated()) else { return };
    if !has_nft(h2(&lab)) {
        return;
    }
    // Slow enough that the doctor finishes before the item is complete.
    let rate = Rate::from_bits_per_s(8_000_000);
    lab.set_link("h1", "sw", Impairment { rate, ..Impairment::none() }).unwrap();
    let server = Server::start_with(h1(&lab), &["--rate", "4M"], 3_000_000);
    sh(
        h2(&lab),
        "nft add table inet f; nft add chain inet f in '{ type filter hook input priority 0; }'; \
         nft add rule inet f in udp dport 7702 drop",
    );
    let out = tempfile::tempdir().unwrap();
    let mut command = h2(&lab).command(env!("CARGO_BIN_EXE_umbel"));
    command.args(["--json", "get", &server.url, "--fallback-after", "0.5", "-o"]).arg(out.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let causes: Vec<String> = events
        .filter(|event| event["event"] == "fallback")
        .filter_map(|event| event["cause"].as_str().map(str::to_owned))
        .collect();
    let named = causes.iter().any(|c| c.contains("drops IPv4 multicast to UDP port 7702"));
    assert!(named, "{text}");
}
