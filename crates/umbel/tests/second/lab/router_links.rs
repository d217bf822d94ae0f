//! `umbel router` on links without a subnet: from point to point, unnumbered, by routes that name no
//! gateway or one of the other family.

use std::net::Ipv4Addr;

use umbel_lab::{Lab, Topology};

use crate::support::bench::SOON;
use crate::support::routers::Routers;
use crate::support::ssm::{Member, Sender};
use crate::support::{lab, sh};

/// Two routers between a source and a receiver.
fn two() -> Topology {
    let nodes = Topology::new().host("source").router("r1").router("r2").host("far");
    nodes.link("source", "r1").link("r1", "r2").link("r2", "far")
}

/// Returns the name of the interface that leads to a neighbour.
fn towards(lab: &Lab, node: &str, peer: &str) -> String {
    let interfaces = lab.host(node).unwrap().interfaces();
    interfaces.iter().find(|interface| interface.peer == peer).unwrap().name.clone()
}

fn network(lab: &Lab, host: &str) -> String {
    let [a, b, c, _] = lab.host(host).unwrap().addr4().octets();
    format!("{}/24", Ipv4Addr::new(a, b, c, 0))
}

fn link_local(lab: &Lab, node: &str, interface: &str) -> String {
    let mut command = lab.host(node).unwrap().command("ip");
    command.args(["-6", "-o", "addr", "show", "dev", interface, "scope", "link"]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let address = text.split_whitespace().find(|word| word.starts_with("fe80")).unwrap();
    address.split_once('/').unwrap().0.to_owned()
}

/// Gives the link between the routers another IPv4, by these lines on each. In them `DEV` is its
/// interface, `ME` and `PEER` end the addresses, `NET` is the network behind the other, and `LL` the
/// other's link-local address.
fn readdress(lab: &Lab, lines: &str) {
    for (node, peer, me, other, behind) in
        [("r1", "r2", "1", "2", "far"), ("r2", "r1", "2", "1", "source")]
    {
        let (interface, theirs) = (towards(lab, node, peer), towards(lab, peer, node));
        let line = lines
            .replace("DEV", &interface)
            .replace("ME", me)
            .replace("PEER", other)
            .replace("NET", &network(lab, behind))
            .replace("LL", &link_local(lab, peer, &theirs));
        sh(lab.host(node).unwrap(), &format!("ip -4 addr flush dev {interface}; {line}"));
    }
}

#[track_caller]
fn assert_a_channel_passes(lab: &Lab) {
    let routers = Routers::start(lab);
    let far = Member::new(lab, "far", false);
    let _sender = Sender::start(lab.host("source").unwrap(), false);
    far.join();
    assert!(far.hears(SOON), "{:#}\n{}", routers.status("r2"), routers.logs.dump());
}

#[test]
fn a_channel_passes_where_the_route_names_no_gateway_or_one_of_ipv6() {
    for lines in [
        "ip addr add 10.99.0.ME/24 dev DEV; ip route add NET dev DEV",
        "ip addr add 10.99.0.ME/24 dev DEV; ip route add NET via inet6 LL dev DEV",
        "ip addr add 10.99.0.ME/24 dev DEV; \
         ip route add NET nexthop via 10.99.0.PEER nexthop via 10.99.0.9",
    ] {
        let Some(lab) = lab(&two()) else { return };
        readdress(&lab, lines);
        assert_a_channel_passes(&lab);
    }
}

#[test]
fn a_channel_passes_links_from_point_to_point_and_unnumbered_ones() {
    let Some(lab) = lab(&two()) else { return };
    readdress(
        &lab,
        "ip addr add 10.99.0.ME peer 10.99.0.PEER dev DEV; ip route add NET via 10.99.0.PEER",
    );
    assert_a_channel_passes(&lab);
    readdress(
        &lab,
        "ip addr add 192.0.2.ME/32 dev DEV; ip route add 192.0.2.PEER dev DEV; \
         ip route add NET via 192.0.2.PEER dev DEV onlink",
    );
    // The receiver, too, is there by a route of its own.
    let (interface, far) = (towards(&lab, "r2", "far"), lab.host("far").unwrap().addr4());
    let line = format!(
        "ip -4 addr flush dev {interface}; ip addr add 192.0.2.2/32 dev {interface}; \
         ip route add {far} dev {interface}"
    );
    sh(lab.host("r2").unwrap(), &line);
    assert_a_channel_passes(&lab);
}
