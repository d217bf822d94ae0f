//! Ways by which clients hear of transmissions: in a multicast control group, also through a
//! router. Where that group does not reach them, they hear on their sessions.

use std::time::Duration;

use crate::support::bench::{Bench, EVERYTHING};
use crate::support::{MB, group, has_nft, lab, sh, star};
use umbel_lab::Impairment;

#[test]
fn clients_hear_of_transmissions_on_their_sessions_when_the_operator_wants_it_so() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.02))) else { return };
    let bench = Bench::new(&lab, &[("large", 2 * MB)]);
    let server = bench.serve(&["--rate", "20M", "--control", "unicast"]);
    assert_eq!(server.process.events("serving")[0]["control"], "unicast");
    for mut client in ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING)) {
        let summary = bench.check_all(&mut client, Duration::from_mins(1));
        assert_eq!(summary["control_group"], false, "{summary}");
    }
}

#[test]
fn a_client_that_any_source_multicast_does_not_reach_is_told_on_its_session() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    if !has_nft(lab.host("h2").unwrap()) {
        return;
    }
    let drop = "nft add table inet t; nft 'add chain inet t in { type filter hook input \
                priority 0; }'; nft add rule inet t in ip daddr 239.0.0.0/8 drop";
    sh(lab.host("h2").unwrap(), drop);
    let bench = Bench::new(&lab, &[("large", 6 * MB)]);
    let server = bench.serve(&["--rate", "10M"]);
    let control = &server.process.events("serving")[0]["control"];
    assert!(group(control).is_multicast(), "{control}");
    let mut clients = ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING));
    let heard = [false, true];
    for (client, heard) in clients.iter_mut().zip(heard) {
        let summary = bench.check_all(client, Duration::from_mins(1));
        assert_eq!(summary["control_group"], heard, "{summary}");
        assert_eq!(summary["unicast_blocks"], 0, "{summary}");
    }
}

#[test]
fn a_server_whose_own_multicast_does_not_come_back_announces_on_the_sessions() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    if !has_nft(lab.host("h1").unwrap()) {
        return;
    }
    let drop = "nft add table inet t; nft 'add chain inet t out { type filter hook output \
                priority 0; }'; nft add rule inet t out ip daddr 239.0.0.0/8 drop";
    sh(lab.host("h1").unwrap(), drop);
    let bench = Bench::new(&lab, &[("small", 100_000)]);
    let server = bench.serve(&["--rate", "20M"]);
    assert_eq!(server.process.events("serving")[0]["control"], "unicast");
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let summary = bench.check_all(&mut client, Duration::from_mins(1));
    assert_eq!(summary["control_group"], false, "{summary}");
}
