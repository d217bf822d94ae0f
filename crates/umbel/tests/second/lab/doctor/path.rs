//! Problems of the path from a server.

use std::time::Duration;

use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Queue, Topology};

use crate::support::doctor::{Server, assert_ok, doctor, emulated, h1, h2, patient_doctor};
use crate::support::{has_nft, lab, sh};

#[test]
fn a_sound_path_has_no_problem() {
    for args in [&["--rate", "16M"][..], &["--rate", "16M", "--ipv6"]] {
        let Some(lab) = lab(&Topology::star(2)) else { return };
        let server = Server::start(h1(&lab), args);
        let report = patient_doctor(h2(&lab), &[&server.url]);
        for check in ["session", "interface", "firewall", "multicast", "path-mtu"] {
            assert_ok(&report, check);
        }
        let mtu = report.findings.iter().find(|f| f.check == "path-mtu").unwrap();
        assert!(mtu.what.contains("carries 1500 bytes"), "{mtu:?}");
        assert!(report.problems().is_empty(), "{report:#?}");
        assert_eq!(report.code, 0);
    }
}

#[test]
fn a_server_that_is_gone_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let mut server = Server::start(h1(&lab), &[]);
    server.stop();
    let report = doctor(h2(&lab), &[&server.url]);
    let found = report.complaint("session", "problem", "nothing answers at 10.1.0.1:7700");
    assert!(found.mend.unwrap().contains("umbel serve"));
    // The host is checked nevertheless.
    assert_ok(&report, "interface");
    assert_eq!(report.code, 1);
}

#[test]
fn a_server_with_another_key_is_named() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    let server = Server::start(h1(&lab), &[]);
    let (before, _) = server.url.split_once("pin=").unwrap();
    let url = format!("{before}pin={}", "A".repeat(43));
    let report = doctor(h2(&lab), &[&url]);
    let found = report.complaint("session", "problem", "as the URL says");
    assert!(found.mend.unwrap().contains("new URL"));
    assert_eq!(report.code, 1);
}

#[test]
fn a_server_behind_a_firewall_is_named_and_its_port_is_what_mends_it() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    if !has_nft(h1(&lab)) {
        return;
    }
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    sh(
        h1(&lab),
        "nft add table inet f; nft add chain inet f in '{ type filter hook input priority 0; }'; \
         nft add rule inet f in udp dport 7700 drop",
    );
    let found = doctor(h2(&lab), &[&server.url]).complaint("session", "problem", "nothing answers");
    assert!(found.mend.unwrap().contains("let UDP port 7700 in"));
    sh(h1(&lab), "nft insert rule inet f in udp dport 7700 accept");
    assert_ok(&doctor(h2(&lab), &[&server.url]), "session");
}

#[test]
fn a_rule_on_the_client_explains_why_nothing_arrives() {
    let Some(lab) = lab(&Topology::star(2)) else { return };
    if !has_nft(h2(&lab)) {
        return;
    }
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    sh(
        h2(&lab),
        &format!(
            "nft add table ip f; nft add chain ip f in '{{ type filter hook input priority 0; }}'; \
             nft add rule ip f in ip daddr {} drop",
            server.group
        ),
    );
    let report = doctor(h2(&lab), &[&server.url]);
    report.complaint("multicast", "problem", "none arrives on eth0");
    let mend = report.complaint("firewall", "problem", "drops IPv4 multicast").mend.unwrap();
    sh(h2(&lab), &mend);
    let report = doctor(h2(&lab), &[&server.url]);
    assert_ok(&report, "multicast");
    assert_ok(&report, "firewall");
}

#[test]
fn a_strict_reverse_path_filter_explains_why_nothing_arrives() {
    let topology = Topology::new().host("h1").host("h2").switch("s1").switch("s2");
    let topology = topology.link("h1", "s1").link("h2", "s1").link("h1", "s2").link("h2", "s2");
    let Some(lab) = lab(&topology) else { return };
    let server = Server::start(h1(&lab), &["--rate", "4M", "--interface", "eth0"]);
    let (data, other) = (h1(&lab).interfaces()[0].addr4, h1(&lab).interfaces()[1].addr4);
    sh(
        h2(&lab),
        &format!("ip route add {data}/32 dev eth1; sysctl -qw net.ipv4.conf.all.rp_filter=1"),
    );
    let url = server.url.replace(&data.to_string(), &other.to_string());
    let args = [&url, "--interface", "eth0"];
    let report = doctor(h2(&lab), &args);
    report.complaint("multicast", "problem", "none arrives on eth0");
    let found = report.complaint("rp_filter", "problem", "the way back to 10.1.0.1 is by eth1");
    sh(h2(&lab), &found.mend.unwrap());
    let report = doctor(h2(&lab), &args);
    assert_ok(&report, "multicast");
    assert_ok(&report, "rp_filter");
}

#[test]
fn a_narrow_link_in_the_middle_is_measured() {
    let topology = Topology::new().host("h1").host("h2").router("r1").router("r2");
    let topology = topology.link("h1", "r1").link("r1", "r2").mtu(1280).link("r2", "h2");
    let Some(lab) = lab(&topology) else { return };
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    lab.route_multicast("h1", server.group).unwrap();
    let report = doctor(h2(&lab), &[&server.url]);
    let found = report.complaint(
        "path-mtu",
        "problem",
        "carries 1280 bytes, but the server's packets have up to 1428",
    );
    let mend = found.mend.unwrap();
    assert!(mend.starts_with("umbel serve --mtu 1280"), "{mend}");
    drop(server);
    let server = Server::start(h1(&lab), &["--rate", "4M", "--mtu", "1280"]);
    lab.route_multicast("h1", server.group).unwrap();
    assert_ok(&doctor(h2(&lab), &[&server.url]), "path-mtu");
}

#[test]
fn loss_on_the_link_is_measured() {
    let Some(lab) = lab(&emulated()) else { return };
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    lab.set_link_direction("sw", "h2", Impairment::none().loss(0.08)).unwrap();
    let report = doctor(h2(&lab), &[&server.url]);
    let found = report.complaint("loss", "warning", "of 400 packets");
    let percent: f64 =
        found.what.split_once('(').unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
    // Five standard deviations of 400 packets at 8 %.
    assert!((8.0 - percent).abs() < 6.8, "{found:?}");
    lab.set_link_direction("sw", "h2", Impairment::none().loss(0.5)).unwrap();
    doctor(h2(&lab), &[&server.url]).complaint("loss", "problem", "of 400 packets");
    lab.set_link_direction("sw", "h2", Impairment::none()).unwrap();
    assert_ok(&doctor(h2(&lab), &[&server.url]), "loss");
}

#[test]
fn duplicated_and_reordered_packets_are_counted() {
    let Some(lab) = lab(&emulated()) else { return };
    let server = Server::start(h1(&lab), &["--rate", "4M"]);
    let impairment = Impairment {
        duplicate: 0.2,
        reorder: 0.2,
        reorder_by: Some(Duration::from_millis(5)),
        ..Impairment::none()
    };
    lab.set_link_direction("sw", "h2", impairment).unwrap();
    let found = doctor(h2(&lab), &[&server.url]).complaint("loss", "warning", "duplicated");
    let number = |word: &str| -> u32 {
        let before = found.what.split_once(word).unwrap().0.trim_end();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    for word in ["duplicated", "reordered"] {
        assert!((20..200).contains(&number(word)), "{found:?}");
    }
}

#[test]
fn the_rate_at_which_loss_starts_is_that_of_the_link() {
    let Some(lab) = lab(&emulated()) else { return };
    let server = Server::start(h1(&lab), &["--rate", "100M"]);
    let rate = Rate::from_bits_per_s(10_000_000).unwrap();
    let narrow = Impairment::none().rate(rate).queue(Queue::Packets(50));
    lab.set_link_direction("sw", "h2", narrow).unwrap();
    let report = doctor(h2(&lab), &[&server.url]);
    let found = report.complaint("rate", "problem", "loss starts at about");
    let mend = found.mend.unwrap();
    let mut words = mend.split(' ');
    assert_eq!(
        (words.next(), words.next(), words.next()),
        (Some("umbel"), Some("serve"), Some("--rate"))
    );
    let advice = words.next().unwrap().to_owned();
    // 90 % of the link's rate minus headers, with a tolerance for a busy machine.
    let below: Rate = advice.parse().unwrap();
    assert!((6_000_000..9_500_000).contains(&below.bits_per_s()), "{mend}, {}", found.what);
    drop(server);
    // On a busy machine packets leave late and in bursts, which 60 ms of a queue may not take.
    let patient = Impairment::none().rate(rate).queue(Queue::Packets(200));
    lab.set_link_direction("sw", "h2", patient).unwrap();
    let server = Server::start(h1(&lab), &["--rate", &advice]);
    assert_ok(&doctor(h2(&lab), &[&server.url]), "rate");
}
