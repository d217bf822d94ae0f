//! `umbel send`, `umbel recv`, `umbel key`, `umbel groups` and `umbel tree`.

use serde_json::Value;
use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::everyone::MANY_SIZES;
use crate::support::feeds::{Feeds, list};
use crate::support::{MB, MINUTE, files, lab, number, star, subnets};

#[test]
fn a_directory_arrives_at_everyone_whatever_is_lost() {
    for family in [&[][..], &["--ipv6"]] {
        let Some(lab) = lab(&star(3, Impairment::none().loss(0.03))) else { return };
        let feeds = Feeds::new(&lab, MANY_SIZES);
        let options = [&["--rate", "30M", "--wait-for", "3"], family].concat();
        let mut sender = feeds.send(&options);
        let mut receivers = ["h2", "h3", "h4"].map(|host| feeds.recv(host, &[]));
        for receiver in &mut receivers {
            let summary = feeds.check(receiver, MINUTE);
            assert_eq!(summary["items"], MANY_SIZES.len());
        }
        let summary = sender.wait_done(SOON);
        assert_eq!((number(&summary, "done"), number(&summary, "without")), (3, 0));
    }
}

#[test]
fn what_is_on_the_air_is_listed_and_its_tree_drawn() {
    let Some(lab) = lab(&subnets(2, 2)) else { return };
    let feeds = Feeds::new(&lab, &[("large", 8 * MB)]);
    let _sender = feeds.send(&["--rate", "8M", "--wait-for", "4"]);
    let mut receivers = ["a1", "a2", "b1", "b2"].map(|host| feeds.recv(host, &[]));
    let output = feeds.umbel("b1").args(["groups", "--json"]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let listed: Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!((&listed["name"], &listed["content"]["items"]), (&"feed".into(), &1.into()));
    for receiver in &receivers {
        receiver.process.wait_for_event("joined", SOON);
    }
    let mut tree = feeds.umbel("a1");
    tree.args(["tree", "feed", "--once", "--json"]);
    let output = tree.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let tree: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(tree["receivers"], 4, "{tree}");
    let nodes = tree["nodes"].as_array().unwrap();
    let of_role = |role: &str| nodes.iter().filter(|node| node["role"] == role).count();
    // A source, and a manager and a member for each subnet.
    assert_eq!([of_role("source"), of_role("manager"), of_role("member")], [1, 2, 2], "{tree}");
    for manager in nodes.iter().filter(|node| node["role"] == "manager") {
        assert_eq!((&manager["members"], &manager["members_not_listed"]), (&1.into(), &0.into()));
        let subnet = &manager["name"].as_str().unwrap()[..1];
        let member = nodes.iter().find(|node| node["parent"] == manager["node"]).unwrap();
        assert!(member["name"].as_str().unwrap().starts_with(subnet), "{tree}");
        assert!(number(manager, "hops") >= 1, "{tree}");
    }
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
}

#[test]
fn a_pipe_is_for_those_on_the_list_and_for_nobody_else() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.02))) else { return };
    let feeds = Feeds::new(&lab, &[("one", 3 * MB), ("two/three", 70_000), ("empty", 0)]);
    list(&feeds, &["h2", "h3"]);
    let sender = feeds.shell(
        "h1",
        "tar -C in -c . | \"$UMBEL\" send - --name feed --rate 40M --wait-for 2 --admit list",
    );
    let recv =
        |host: &str| format!("\"$UMBEL\" recv feed --as {host} --key {host}.key --wait 20s -o -");
    let stranger = feeds.shell("h4", &recv("h4")).wait_with_output().unwrap();
    assert_eq!((stranger.status.code(), stranger.stdout), (Some(1), Vec::new()));
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(said.contains("not admitted to `feed`"), "{said}");
    let receivers = ["h2", "h3"].map(|host| {
        let line = format!("mkdir -p out/{host} && {} | tar -C out/{host} -x", recv(host));
        (host, feeds.shell(host, &line))
    });
    for (host, receiver) in receivers {
        let output = receiver.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        files::assert_same(&feeds.input(), &feeds.out(host), |_| true);
    }
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
