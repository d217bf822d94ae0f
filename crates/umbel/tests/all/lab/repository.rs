//! `umbel serve` and `umbel get`.

use serde_json::Value;
use umbel_engine::units::Rate;
use umbel_lab::Impairment;

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::everyone::everyone_gets_everything;
use crate::support::{MB, MINUTE, behind_a_router, group, has_nft, lab, number, sh, star};

#[test]
fn four_clients_that_lose_a_fifth_get_everything() {
    everyone_gets_everything(4, 0.2, &[]);
}

#[test]
fn clients_behind_a_router_hear_of_transmissions_in_the_control_group() {
    for family in [&[][..], &["--ipv6"]] {
        let Some(lab) = lab(&behind_a_router(0.1)) else { return };
        let bench = Bench::new(&lab, &[("large", 6 * MB), ("small", 1000)]);
        let options = ["--rate", "10M", "--control", "srm"];
        let mut server = bench.serve(&[&options, family].concat());
        let serving = server.process.events("serving")[0].clone();
        lab.route_multicast("h1", group(&serving["channel"])).unwrap();
        // All hosts send in the control group.
        for host in ["h1", "h2", "h3"] {
            lab.route_multicast(host, group(&serving["control"])).unwrap();
        }
        for mut client in ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING)) {
            let summary = bench.check_all(&mut client, MINUTE);
            assert_eq!(summary["control_group"], true, "{summary}");
            assert_eq!(summary["unicast_blocks"], 0, "{summary}");
        }
        let report = server.stop();
        assert_eq!(report["control_forged"], 0, "{report}");
    }
}

#[test]
fn a_client_that_is_killed_and_started_again_gets_only_what_it_lacks() {
    let Some(lab) = lab(&star(1, Impairment::none().loss(0.01))) else { return };
    let size = 8 * MB;
    let bench = Bench::new(&lab, &[("a small", 1000), ("large", size)]);
    // The default policy may send the small item at any time; here it has to come first.
    let policy = "FEC(1loss)+R(inf)+notify";
    let server = bench.serve(&["--rate", "20M", "--policy", policy, "--scheduler", "mrf"]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    client.process.wait_for("small is done", SOON, |event| event["name"] == "a small");
    bench.wait_until_stored(&client, size / 2);
    client.process.kill();
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let summary = bench.check_all(&mut client, MINUTE);
    assert_eq!((number(&summary, "items"), number(&summary, "already_there")), (1, 1));
    // Half was written; the journal vouches only for synced data, and a busy disk takes its time.
    let resumed = number(&summary, "resumed_bytes");
    assert!(resumed > 0, "{summary}");
    let (again, lacked) = (number(&summary, "packets"), (size - resumed) / 1368);
    // Some stored packets are sent again, while the server still sends to the client that is gone.
    assert!(again < lacked * 5 / 4, "{lacked} packets were lacking, but {again} came");
}

#[test]
fn a_firewall_makes_a_client_go_on_by_unicast_and_its_end_brings_multicast_back() {
    // So slow that unicast does not finish the file before multicast is probed again.
    let slow = Impairment::none().rate(Rate::from_bits_per_s(8_000_000).unwrap());
    let Some(lab) = lab(&star(1, slow)) else { return };
    let host = lab.host("h2").unwrap();
    if !has_nft(host) {
        return;
    }
    let bench = Bench::new(&lab, &[("large", 8 * MB)]);
    let server = bench.serve(&["--rate", "6M"]);
    sh(
        host,
        "nft add table inet block
         nft add chain inet block in '{ type filter hook input priority 0; }'
         nft add rule inet block in udp dport 7702 drop",
    );
    let mut client = bench.get("h2", &server.url, &["--fallback-after", "1"]);
    let fallback = client.process.wait_for_event("fallback", SOON);
    assert!(fallback["within_s"].as_f64() >= Some(1.0), "{fallback}");
    // The doctor finds the rule, while it exists.
    let found = |event: &Value| event["event"] == "fallback" && event["cause"].is_string();
    let cause = client.process.wait_for("why multicast does not arrive", SOON, found);
    assert!(cause["cause"].as_str().unwrap().contains("firewall"), "{cause}");
    sh(host, "nft delete table inet block");
    let back = |event: &Value| event["message"] == "multicast works again";
    client.process.wait_for("multicast works again", SOON, back);
    let summary = bench.check_all(&mut client, MINUTE);
    assert!(number(&summary, "unicast_blocks") > 0 && number(&summary, "packets") > 0, "{summary}");
}
