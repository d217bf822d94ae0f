//! A receiver that is the manager of its subnet, and whose repairs are all wrong.
//!
//! It is `umbel recv` as it is. Its children's hosts alter each repair as it arrives, so that it is
//! as if their manager had sent it so.

use std::net::Ipv4Addr;

use umbel_lab::testing::has_nft;
use umbel_lab::{Impairment, Lab, Node, Topology};
use umbel_wire::SmallBlockHeader;

use super::PATIENCE;
use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::lab;

const LIAR: &str = "a1";
const HONEST: [&str; 3] = ["a2", "a3", "a4"];
/// Bytes of a file that takes 6 s at the rate of the feed.
const SIZE: usize = 7_500_000;
/// First byte of a data packet of a feed.
const DATA: u8 = 0x14;
/// Length of the header of UDP, in bits.
const UDP: usize = 64;

/// Creates a lab with a subnet behind a router, where the honest lose a tenth.
fn subnet() -> Option<Lab> {
    let topology = Topology::new().host("h1").router("r0").link("h1", "r0");
    let mut topology = topology.switch("sa").link("r0", "sa");
    for host in [LIAR].iter().chain(&HONEST) {
        topology = topology.host(host).link("sa", host).emulated();
    }
    let lab = lab(&topology)?;
    for host in HONEST {
        lab.set_link_direction("sa", host, Impairment::none().loss(0.1)).unwrap();
    }
    Some(lab)
}

/// Alters a byte of the symbol in each data packet that comes to a host from an address.
fn alter_repairs(host: Node<'_>, from: Ipv4Addr) {
    let symbol = UDP + (SmallBlockHeader::LEN + 100) * 8;
    let line = format!(
        "nft add table ip lie; \
         nft add chain ip lie in '{{ type filter hook prerouting priority -300; }}'; \
         nft add rule ip lie in ip saddr {from} meta l4proto udp @th,{UDP},8 {DATA} \
             @th,{symbol},8 set 0x55 udp checksum set 0 counter"
    );
    let output = host.command("sh").args(["-e", "-c", &line]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn c1_a_manager_whose_repairs_are_wrong_is_left_and_costs_no_file() {
    let Some(lab) = subnet() else { return };
    let liar = lab.host(LIAR).unwrap();
    if !has_nft(liar) {
        return;
    }
    let feeds = Feeds::new(&lab, &[("large", SIZE as u64)]);
    let mut sender = feeds.send(&["--rate", "10M", "--wait-for", "4"]);
    let mut manager = feeds.recv(LIAR, &[]);
    manager.process.wait_for("it manages", SOON, |event| event["manager"] == true);
    for host in HONEST {
        alter_repairs(feeds.host(host), liar.addr4());
    }
    let mut receivers = HONEST.map(|host| feeds.recv(host, &[]));
    let summaries = receivers.each_mut().map(|receiver| feeds.check(receiver, PATIENCE));
    sender.wait_done(PATIENCE);
    manager.process.wait_done(PATIENCE);
    // Who finds another manager in time need not find the liar out.
    let left = summaries.each_ref().map(|summary| summary["wrong_parents"].as_u64().unwrap());
    assert!(left.iter().sum::<u64>() > 0, "{left:?}: {summaries:?}");
}
