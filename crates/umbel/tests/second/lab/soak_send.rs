//! A test that takes minutes: 36 receivers in 12 subnets behind 6 routers, with loss, killed
//! managers and cut links, while 200 MB are sent.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak_send:: -- --ignored --test-threads 1 --nocapture
//! ```

use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::ear::Ear;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::lab;
use crate::support::{MB, number};
use serde_json::Value;
use umbel_lab::{Impairment, Topology};

const MINUTES: Duration = Duration::from_mins(10);
/// Bytes that are sent.
const SIZE: u64 = 200 * MB;
/// Subnets, and receivers in each.
const SUBNETS: std::ops::Range<usize> = 0..12;
const RECEIVERS: std::ops::Range<usize> = 0..3;

fn switch(subnet: usize) -> String {
    format!("s{subnet}")
}

fn host(subnet: usize, receiver: usize) -> String {
    format!("n{subnet}x{receiver}")
}

/// Creates a topology with the source at the first of six routers, which form a tree of two levels.
/// Each router has two subnets. Each subnet has an ear besides its receivers.
fn network() -> Topology {
    let mut topology = Topology::new().host("h1").router("r0").link("h1", "r0");
    for (router, above) in ABOVE.iter().enumerate().skip(1) {
        let (router, above) = (format!("r{router}"), format!("r{above}"));
        topology = topology.router(&router).link(&above, &router).emulated();
    }
    for subnet in SUBNETS {
        let (switch, router) = (switch(subnet), format!("r{}", subnet / 2));
        topology = topology.switch(&switch).link(&router, &switch).emulated();
        for receiver in RECEIVERS {
            let host = host(subnet, receiver);
            topology = topology.host(&host).link(&switch, &host);
            // A third of the receivers lose packets on their own.
            if receiver == 2 {
                topology = topology.loss(0.02);
            }
        }
        let ear = format!("e{subnet}");
        topology = topology.host(&ear).link(&switch, &ear);
    }
    topology
}

/// The router above each router.
const ABOVE: [usize; 6] = [0, 0, 0, 1, 1, 2];

/// Returns the least hop limit with which a datagram from one subnet reaches another: one more than
/// the routers between them.
fn hops(from: usize, to: usize) -> u64 {
    let way = |subnet: usize| {
        let mut way = vec![subnet / 2];
        while let Some(&router) = way.last()
            && router > 0
        {
            way.push(ABOVE[router]);
        }
        way
    };
    if from == to {
        return 1;
    }
    let (a, b) = (way(from), way(to));
    let up = a.iter().position(|router| b.contains(router)).unwrap();
    let down = b.iter().position(|router| *router == a[up]).unwrap();
    (up + down) as u64 + 2
}

fn manages(receiver: &Receiver) -> bool {
    let said = receiver.process.events("managing");
    said.last().is_some_and(|event| event["manager"] == true)
}

/// Waits until a receiver has this number of bytes.
fn wait_for_bytes(receiver: &Receiver, bytes: u64) {
    let there = |event: &Value| event["progress"]["bytes_done"].as_u64() >= Some(bytes);
    receiver.process.wait_for(&format!("{bytes} bytes are there"), MINUTES, there);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn thirty_six_receivers_get_200_mb_while_managers_die_and_links_are_cut() {
    let Some(lab) = lab(&network()) else { return };
    // Two subnets lose as a whole, as does a link between routers.
    for (from, to, loss) in [("r1", "s3", 0.02), ("r4", "s8", 0.05), ("r0", "r2", 0.01)] {
        lab.set_link_direction(from, to, Impairment::none().loss(loss)).unwrap();
    }
    let feeds = Feeds::new(&lab, &[("large", SIZE * 3 / 4), ("other", SIZE / 4)]);
    let mut sender = feeds.send(&["--rate", "20M", "--wait-for", "36"]);
    let sending = sender.events("sending").remove(0);
    let ears: Vec<Ear> =
        SUBNETS.map(|subnet| Ear::new(feeds.host(&format!("e{subnet}")), &sending)).collect();
    let started = Instant::now();
    let all = SUBNETS.flat_map(|subnet| RECEIVERS.map(move |receiver| host(subnet, receiver)));
    let names: Vec<String> = all.collect();
    let mut receivers: Vec<Receiver> =
        names.iter().map(|host| feeds.recv(host, &["--wait", "1min"])).collect();
    for receiver in &receivers {
        receiver.process.wait_for_event("joined", MINUTES);
    }
    println!("36 receivers are in the tree after {:.1} s", started.elapsed().as_secs_f64());

    let managers: Vec<usize> =
        (0..receivers.len()).filter(|place| manages(&receivers[*place])).collect();
    println!("managers: {:?}", managers.iter().map(|place| &names[*place]).collect::<Vec<_>>());
    assert_eq!(managers.len(), SUBNETS.len(), "one manager a subnet");
    // The first receiver of an undisturbed subnet shows the progress of the feed.
    let witness = (0..3).find(|place| !managers.contains(place)).unwrap();
    wait_for_bytes(&receivers[witness], SIZE / 5);
    let killed: Vec<usize> =
        managers.iter().copied().filter(|place| [1, 4, 5, 9].contains(&(place / 3))).collect();
    for place in &killed {
        receivers[*place].process.kill();
    }
    println!("{} managers killed after {:.1} s", killed.len(), started.elapsed().as_secs_f64());
    wait_for_bytes(&receivers[witness], SIZE * 2 / 5);
    // A subnet, and a whole branch, are cut off for a while.
    for (a, b) in [("r3", "s6"), ("r2", "r5")] {
        lab.set_link_up(a, b, false).unwrap();
    }
    println!("links cut after {:.1} s", started.elapsed().as_secs_f64());
    std::thread::sleep(Duration::from_secs(8));
    for (a, b) in [("r3", "s6"), ("r2", "r5")] {
        lab.set_link_up(a, b, true).unwrap();
    }
    println!("links mended after {:.1} s", started.elapsed().as_secs_f64());

    let (mut repairs, mut fetched, mut lost) = (0, 0, 0);
    let mut radii = vec![None; receivers.len()];
    for (place, receiver) in receivers.iter_mut().enumerate() {
        if killed.contains(&place) {
            continue;
        }
        let summary = feeds.check(receiver, MINUTES);
        radii[place] = Some(number(&summary, "radius"));
        repairs += number(&summary, "repairs_sent");
        fetched += number(&summary, "fetched");
        lost += number(&summary, "lost");
    }
    assert_eq!(sender.wait_end(SOON).code(), Some(1), "the killed ones do not have it");
    let summary = sender.events("done").pop().unwrap()["summary"].clone();
    println!("all there after {:.1} s", started.elapsed().as_secs_f64());
    println!("lost {lost}, repairs by managers {repairs}, fetched {fetched}");
    let without = number(&summary, "without");
    println!(
        "source: done {}, without {without}, packets {}, repairs {}, fetched {}, load {}, drops {}",
        summary["done"],
        summary["packets"],
        summary["repairs"],
        summary["fetched"],
        summary["load"],
        summary["drops"]
    );
    for receiver in summary["receivers"].as_array().unwrap() {
        if receiver["state"] != "done" {
            println!("without it: {receiver}");
        }
    }
    assert_eq!(number(&summary, "done"), 36 - killed.len() as u64);

    // Repairs of a manager are not heard farther away than its radius reaches.
    let mut farthest = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let said = receivers[place].process.events("progress");
        let told = said.last().map_or(0, |event| number(&event["progress"], "radius"));
        let radius = radii[place].unwrap_or(told);
        let heard: Vec<(usize, u64)> = SUBNETS
            .map(|subnet| (subnet, ears[subnet].repairs_of(feeds.host(name))))
            .filter(|(_, repairs)| *repairs > 0)
            .collect();
        for (subnet, repairs) in &heard {
            let hops = hops(place / 3, *subnet);
            assert!(hops <= radius, "{name}, radius {radius}: {repairs} repairs {hops} hops away");
        }
        if radius > 0 {
            farthest.push((name, radius, heard.iter().map(|(_, repairs)| *repairs).max()));
        }
    }
    println!("managers, their largest radius and repairs: {farthest:?}");
    assert!(farthest.iter().any(|(_, radius, repairs)| *radius == 1 && repairs.is_some()));
}
