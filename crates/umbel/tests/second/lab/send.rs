//! `umbel send` and `umbel recv` between hosts: files, pipes, routers, loss, nodes that die.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::ear::Ear;
use crate::support::everyone::MANY_SIZES;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::{MB, MINUTE, behind_a_router, files, lab, number, star, subnets};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Queue};

/// Returns the link-local address of a host with its interface, such as `fe80::1%eth0`.
fn link_local(feeds: &Feeds<'_>, host: &str) -> String {
    let mut command = feeds.host(host).command("ip");
    let output = command.args(["-6", "-oneline", "address", "show", "scope", "link"]).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let words: Vec<&str> = output.split_whitespace().collect();
    let (address, _) = words[3].split_once('/').unwrap();
    format!("{address}%{}", words[1])
}

#[test]
fn hosts_that_have_only_link_local_addresses_make_a_tree() {
    let Some(lab) = lab(&star(4, Impairment::none().loss(0.03))) else { return };
    let feeds = Feeds::new(&lab, MANY_SIZES);
    let at = |host: &str| ["--interface".to_owned(), link_local(&feeds, host)];
    let [option, interface] = at("h1");
    let options = [&option, &interface, "--ipv6", "--rate", "30M", "--wait-for", "3"];
    let mut sender = feeds.send(&options);
    let source = sender.events("sending").remove(0)["source"].as_str().unwrap().to_owned();
    assert!(source.starts_with("[fe80::"), "{source}");
    let receive = |host: &str| {
        let [option, interface] = at(host);
        feeds.recv(host, &[&option, &interface])
    };
    let mut receivers = vec![receive("h2"), receive("h3")];
    for receiver in &receivers {
        receiver.process.wait_for_event("joined", SOON);
    }
    let [option, interface] = at("h5");
    let mut look = feeds.umbel("h5");
    look.args(["tree", "feed", "--json", "--once", "--settle", "1s", &option, &interface]);
    let tree = look.output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    receivers.push(receive("h4"));
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    assert_eq!(number(&sender.wait_done(SOON), "done"), 3);
}

#[test]
fn a_feed_passes_routers_and_its_losses_are_repaired_there() {
    for exact in [&[][..], &["--exact"]] {
        let Some(lab) = lab(&behind_a_router(0.05)) else { return };
        let feeds = Feeds::new(&lab, &[("large", 6 * MB), ("small", 1000)]);
        let options = [&["--rate", "20M", "--wait-for", "2"], exact].concat();
        let mut sender = feeds.send(&options);
        let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
        for receiver in &mut receivers {
            let summary = feeds.check(receiver, MINUTE);
            // Each is alone in its subnet, so it is the subnet's manager.
            assert_eq!(summary["managed"], true, "{summary}");
            assert!(number(&summary, "lost") > 0, "nothing was lost, so this tests little");
        }
        assert_eq!(number(&sender.wait_done(SOON), "done"), 2);
    }
}

#[test]
fn a_scope_of_one_hop_stays_in_the_subnet() {
    let Some(lab) = lab(&behind_a_router(0.0)) else { return };
    let feeds = Feeds::new(&lab, &[("small", 1000)]);
    let mut sender = feeds.send(&["--scope", "1", "--wait-for", "2s"]);
    let mut receiver = feeds.recv("h3", &["--wait", "3s"]);
    assert_eq!(receiver.process.wait_end(SOON).code(), Some(1));
    assert!(receiver.process.stderr().contains("no feed `feed` is on the air"));
    // There was no receiver.
    assert_eq!(sender.wait_end(SOON).code(), Some(1));
    assert!(sender.stderr().contains("nobody received it"));
}

#[test]
fn a_pipe_leads_from_a_host_to_others_in_order() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.02))) else { return };
    let feeds = Feeds::new(&lab, &[("one", 3 * MB), ("two/three", 70_000), ("empty", 0)]);
    let sender =
        feeds.shell("h1", "tar -C in -c . | \"$UMBEL\" send - --name feed --rate 40M --wait-for 2");
    let receivers = ["h2", "h3"].map(|host| {
        let line = format!(
            "mkdir -p out/{host} && \"$UMBEL\" recv feed --wait 20s -o - | tar -C out/{host} -x"
        );
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

#[test]
fn receivers_of_a_pipe_are_told_when_its_sender_is_interrupted() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[]);
    let path = feeds.directory.path().join("pipe");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let sender = feeds.shell("h1", "exec \"$UMBEL\" send - --name feed --rate 40M <pipe");
    let mut pipe = std::fs::File::options().write(true).open(path).unwrap();
    pipe.write_all(b"begun\n").unwrap();
    let receiver = feeds.shell("h2", "\"$UMBEL\" recv feed --wait 20s -o - | tee came");
    let came = || std::fs::read(feeds.directory.path().join("came")).unwrap_or_default();
    let until = Instant::now() + SOON;
    while came() != b"begun\n" {
        assert!(Instant::now() < until, "nothing came");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(sender.id() as i32), Signal::SIGINT).unwrap();
    let output = receiver.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"begun\n");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the sender was interrupted"), "{said}");
    assert!(!sender.wait_with_output().unwrap().status.success());
}

#[test]
fn a_pipe_that_is_not_read_holds_its_source_up_and_loses_nothing() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[]);
    let mut sender = feeds.shell(
        "h1",
        "head -c 120000000 /dev/urandom | tee sent | \"$UMBEL\" send - --name feed --rate 400M \
         --wait-for 2",
    );
    let read = "\"$UMBEL\" recv feed --wait 20s -o - | ";
    let fast = feeds.shell("h2", &format!("{read} cat > fast"));
    let slow =
        feeds.shell("h3", &format!("{read} (until [ -e go ]; do sleep 0.1; done; cat > slow)"));
    // 120 MB take 3 s at the rate; buffers on the way hold about 100 MB.
    std::thread::sleep(Duration::from_secs(5));
    assert!(sender.try_wait().unwrap().is_none(), "the slow reader did not hold up the source");
    std::fs::write(feeds.directory.path().join("go"), "").unwrap();
    for reader in [fast, slow, sender] {
        let output = reader.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let digest = |name: &str| {
        let bytes = std::fs::read(feeds.directory.path().join(name)).unwrap();
        (bytes.len(), blake3::hash(&bytes))
    };
    assert_eq!(digest("fast"), digest("sent"));
    assert_eq!(digest("slow"), digest("sent"));
}

#[test]
fn who_comes_late_gets_everything_or_what_begins_after() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.01))) else { return };
    let plan = [("a", 4 * MB), ("b", 4 * MB), ("c", 4 * MB)];
    let feeds = Feeds::new(&lab, &plan);
    let mut sender = feeds.send(&["--rate", "20M"]);
    let mut first = feeds.recv("h2", &[]);
    // After a third of the time, within the first or the second file.
    let begun = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(MB);
    first.process.wait_for("a megabyte is there", SOON, begun);
    let mut late = feeds.recv("h3", &[]);
    let mut now = feeds.recv("h4", &["--from", "now"]);
    feeds.check(&mut first, MINUTE);
    let summary = feeds.check(&mut late, MINUTE);
    assert!(number(&summary, "fetched") > 0, "{summary}");
    let summary = now.process.wait_done(MINUTE);
    let there = files::digests(&now.out);
    assert!(!there.contains_key("a") && there.contains_key("c"), "{there:?}");
    assert_eq!(number(&summary, "items"), there.len() as u64);
    assert_eq!(number(&sender.wait_done(SOON), "done"), 3);
}

#[test]
fn a_receiver_that_is_killed_and_started_again_gets_only_what_it_lacks() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.01))) else { return };
    let size = 12 * MB;
    let feeds = Feeds::new(&lab, &[("large", size)]);
    let mut sender = feeds.send(&["--rate", "20M", "--wait-for", "2"]);
    let mut first = feeds.recv("h2", &[]);
    let mut second = feeds.recv("h3", &[]);
    let half = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(size / 2);
    first.process.wait_for("half of it is there", MINUTE, half);
    first.process.kill();
    let mut again = feeds.recv("h2", &[]);
    let summary = feeds.check(&mut again, MINUTE);
    assert!(number(&summary, "resumed_bytes") > size / 8, "{summary}");
    feeds.check(&mut second, MINUTE);
    // The receiver that was killed and the one that returned are the same.
    assert_eq!(number(&sender.wait_done(MINUTE), "done"), 2);
}

#[test]
fn a_token_admits_and_the_report_names_who_is_missing() {
    let Some(lab) = lab(&star(3, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("small", 100_000)]);
    let names = feeds.directory.path().join("names");
    std::fs::write(&names, "h2\nh9\n").unwrap();
    let options = ["--token", "secret", "--admit", names.to_str().unwrap()];
    let mut sender = feeds.send(&options);
    let mut without = feeds.recv("h3", &[]);
    assert_eq!(without.process.wait_end(SOON).code(), Some(1));
    assert!(without.process.stderr().contains("needs a token"), "{}", without.process.stderr());
    // It has to hear the source, which ends once the other one has everything.
    let mut wrong = feeds.recv("h4", &["--token", "guess"]);
    assert_eq!(wrong.process.wait_end(SOON).code(), Some(1));
    assert!(wrong.process.stderr().contains("does not admit"), "{}", wrong.process.stderr());
    let mut admitted = feeds.recv("h2", &["--token", "secret"]);
    feeds.check(&mut admitted, MINUTE);
    assert_eq!(sender.wait_end(SOON).code(), Some(1));
    let done = sender.events("done").pop().unwrap();
    let missing: Vec<_> = done["summary"]["receivers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|receiver| receiver["state"] != "done")
        .map(|receiver| (receiver["name"].clone(), receiver["state"].clone()))
        .collect();
    assert_eq!(missing, [("h9".into(), "missing".into())], "{done}");
    assert!(sender.stderr().contains("h9"), "{}", sender.stderr());
}

#[test]
fn subnets_whose_managers_are_killed_get_everything() {
    let Some(lab) = lab(&subnets(2, 3)) else { return };
    let size = 12 * MB;
    let feeds = Feeds::new(&lab, &[("large", size)]);
    for host in ["a1", "a2", "a3", "b1", "b2", "b3"] {
        let switch = format!("s{}", &host[..1]);
        lab.set_link(&switch, host, Impairment::none().loss(0.02)).unwrap();
    }
    let mut sender = feeds.send(&["--rate", "16M", "--wait-for", "6"]);
    let hosts = ["a1", "a2", "a3", "b1", "b2", "b3"];
    let mut receivers = hosts.map(|host| feeds.recv(host, &[]));
    let third = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(size / 3);
    receivers[0].process.wait_for("a third is there", MINUTE, third);
    // The manager of each subnet, by its own report.
    let manages = |receiver: &crate::support::feeds::Receiver| {
        let said = receiver.process.events("managing");
        said.last().is_some_and(|event| event["manager"] == true)
    };
    let managers: Vec<usize> = (0..6).filter(|place| manages(&receivers[*place])).collect();
    assert_eq!(managers.len(), 2, "one manager a subnet: {managers:?}");
    for place in &managers {
        receivers[*place].process.kill();
    }
    for (place, receiver) in receivers.iter_mut().enumerate() {
        if !managers.contains(&place) {
            feeds.check(receiver, MINUTE * 2);
        }
    }
    assert_eq!(sender.wait_end(MINUTE).code(), Some(1));
    let summary = sender.events("done").pop().unwrap()["summary"].clone();
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (4, 2), "{summary}");
}

#[test]
fn a_slow_subnet_gets_everything() {
    let Some(lab) = lab(&subnets(2, 1)) else { return };
    let slow = Impairment::none().rate(Rate::from_bits_per_s(6_000_000).unwrap());
    lab.set_link_direction("r1", "sb", slow).unwrap();
    let feeds = Feeds::new(&lab, &[("large", 5 * MB)]);
    let mut sender = feeds.send(&["--rate", "40M", "--wait-for", "2"]);
    let mut receivers = ["a1", "b1"].map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE * 2);
    }
    let summary = sender.wait_done(SOON);
    // One of two is half of them, so the source may go at the pace of either. The other is given up
    // as a child then, and fetches what it lacks.
    assert_eq!(number(&summary, "done"), 2, "{summary}");
    assert!(number(&summary, "evicted") <= 1, "{summary}");
    // 5 MB take 1 s at the rate, and 6.7 s over the slow link.
    assert!(summary["seconds"].as_f64() > Some(6.0), "{summary}");
}

#[test]
fn a_slow_subnet_sets_the_pace_of_all() {
    let Some(lab) = lab(&subnets(2, 1)) else { return };
    let slow = Impairment::none().rate(Rate::from_bits_per_s(6_000_000).unwrap());
    lab.set_link_direction("r1", "sb", slow).unwrap();
    let feeds = Feeds::new(&lab, &[("large", 5 * MB)]);
    let mut sender = feeds.send(&["--rate", "40M", "--wait-for", "2", "--pace-to", "all"]);
    let mut receivers = ["a1", "b1"].map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "evicted")), (2, 0), "{summary}");
}

#[test]
fn repairs_of_a_subnet_stay_in_it() {
    // Ears listen in both subnets, and between the two routers.
    let topology = subnets(2, 3).host("ae").link("sa", "ae").host("be").link("sb", "be");
    let topology = topology.host("re").link("r0", "re");
    let Some(lab) = lab(&topology) else { return };
    let feeds = Feeds::new(&lab, &[("large", 8 * MB)]);
    let mut sender = feeds.send(&["--rate", "16M", "--wait-for", "6"]);
    let sending = sender.events("sending").remove(0);
    let [in_a, in_b, outside] = ["ae", "be", "re"].map(|host| Ear::new(feeds.host(host), &sending));
    let hosts = ["a1", "a2", "a3", "b1", "b2", "b3"];
    let mut receivers = hosts.map(|host| feeds.recv(host, &[]));
    for receiver in &receivers {
        receiver.process.wait_for_event("joined", SOON);
    }
    let manages = |place: &usize| {
        let said = receivers[*place].process.events("managing");
        said.last().is_some_and(|event| event["manager"] == true)
    };
    let address = |place: usize| feeds.host(hosts[place]).addr4().to_string();
    // The first to answer is the parent: on a busy machine also the manager of the other subnet.
    let serves = |place: usize, child: &Receiver| {
        let parents = child.process.events("joined");
        let of_parent = |event: &Value| event["parent"].as_str().unwrap().to_owned();
        parents.iter().any(|event| of_parent(event).starts_with(&format!("{}:", address(place))))
    };
    let serves_others = |place: usize, receivers: &[Receiver; 6]| {
        let others = (0..6).filter(|child| child / 3 != place / 3);
        others.into_iter().any(|child| serves(place, &receivers[child]))
    };
    let manager = (0..6).filter(manages).find(|place| !serves_others(*place, &receivers));
    let manager = manager.expect("the manager of a subnet that serves no other one");
    let site = manager / 3;
    assert!((site * 3..site * 3 + 3).any(|child| serves(manager, &receivers[child])));
    // Its members lose packets independently. The manager and the other subnet lose nothing.
    for member in (site * 3..site * 3 + 3).filter(|place| *place != manager) {
        let loss = Impairment::none().loss(0.05);
        lab.set_link_direction(["sa", "sb"][site], hosts[member], loss).unwrap();
    }
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    assert_eq!(number(&sender.wait_done(SOON), "done"), 6);
    assert!(!serves_others(manager, &receivers), "it has got children of the other subnet");
    let of_manager = |ear: &Ear| ear.repairs_of(feeds.host(hosts[manager]));
    let (inside, elsewhere) = if site == 0 { (in_a, in_b) } else { (in_b, in_a) };
    assert!(of_manager(&inside) > 100, "{:?}", inside.heard());
    assert_eq!(of_manager(&elsewhere), 0, "{:?}", elsewhere.heard());
    assert_eq!(of_manager(&outside), 0, "{:?}", outside.heard());
    // The source repairs the manager's losses, which are few.
    assert!(outside.repairs_of(feeds.host("h1")) < 20, "{:?}", outside.heard());
}

#[test]
fn the_rate_finds_a_bottleneck_behind_the_source() {
    const BOTTLENECK: u64 = 30_000_000;
    let queue = Queue::Packets(200);
    let narrow = Impairment::none().rate(Rate::from_bits_per_s(BOTTLENECK).unwrap()).queue(queue);
    let mut topology = star(3, Impairment::none());
    let first = topology.links.iter_mut().find(|link| link.a == "h1").unwrap();
    first.emulated = Some(true);
    first.a_to_b = narrow;
    let Some(lab) = lab(&topology) else { return };
    let feeds = Feeds::new(&lab, &[("large", 15 * MB)]);
    let mut sender = feeds.send(&["--rate", "300M", "--wait-for", "3"]);
    let mut receivers = ["h2", "h3", "h4"].map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    let summary = sender.wait_done(SOON);
    let sent = ["packets", "repairs", "fetched"].map(|field| number(&summary, field));
    // At a constant 300 Mbit/s it would be ten times the file. It is half of it on a quiet machine.
    // Where the link's emulator waits for a core, the link loses packets at any rate.
    let [packets, repairs, fetched] = sent;
    assert!(repairs + fetched < packets * 4, "{summary}");
}
