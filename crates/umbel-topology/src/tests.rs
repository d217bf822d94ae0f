use std::time::Duration;

use umbel_engine::units::Rate;

use super::*;

const EXAMPLE: &str = r#"
seed = 7
[[host]]
name = "server"
[[host]]
name = "client"
[[router]]
name = "r"
[[switch]]
name = "sw"
snooping = true
[[link]]
a = "server"
b = "r"
rate = "10M"
delay = "20ms"
loss = "5%"
queue = "64KiB"
b_to_a = { loss = 0, queue = 10 }
[[link]]
a = "r"
b = "sw"
mtu = 9000
[[link]]
a = "client"
b = "sw"
offload = false
a_addresses = ["10.9.0.2/24", "fd00:9::2/64"]
"#;

#[test]
fn a_file_is_read_with_its_overrides() {
    let topology = Topology::from_toml(EXAMPLE).unwrap();
    assert_eq!(topology.seed, 7);
    assert_eq!(topology.nodes.len(), 4);
    let first = &topology.links[0];
    assert_eq!(first.a_to_b.rate, Rate::from_bits_per_s(10_000_000));
    assert_eq!(first.a_to_b.delay, Duration::from_millis(20));
    assert!((first.a_to_b.loss - 0.05).abs() < 1e-12);
    assert_eq!(first.a_to_b.queue, Queue::Bytes(umbel_engine::units::ByteCount(65_536)));
    assert!(first.b_to_a.loss.abs() < 1e-12);
    assert_eq!(first.b_to_a.queue, Queue::Packets(10));
    assert_eq!(first.b_to_a.delay, Duration::from_millis(20));
    assert!(first.is_emulated() && !topology.has_offload(first));
    assert!(!topology.links[2].is_emulated() && !topology.has_offload(&topology.links[2]));
    assert_eq!(topology.links[2].a_addresses[1].prefix, 64);
}

#[test]
fn packets_are_cut_by_the_sender_where_something_is_routed() {
    let switched = Topology::star(2);
    assert!(switched.has_offload(&switched.links[0]));
    let routed = Topology::line(1);
    assert!(!routed.has_offload(&routed.links[0]));
    let forced = Topology::line(1).offload(true);
    assert!(!forced.has_offload(&forced.links[0]) && forced.has_offload(&forced.links[1]));
}

#[test]
fn every_mistake_is_one_line_with_its_place() {
    let hosts = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[switch]]\nname = \"sw\"\n";
    let link = |text: &str| format!("{hosts}[[link]]\na = \"a\"\nb = \"b\"\n{text}");
    let node = |text: &str| format!("{hosts}{text}");
    for (text, expected) in [
        (
            node("[[link]]\na = \"a\"\nb = \"x\""),
            "line 9: link a–x: no host, router or switch is called `x`",
        ),
        (node("[[router]]\nname = \"a\""), "line 8: two nodes are called `a`"),
        (
            node("[[switch]]\nname = \"a b\""),
            "line 8: `a b` is not a name: use 1 to 32 letters, digits, `-`, `_` or `.`",
        ),
        (node("[[link]]\na = \"a\""), "line 7: missing field `b`"),
        (
            node("[[hots]]\nname = \"c\""),
            "line 7: unknown field `hots`, expected one of `seed`, `host`, `router`, `switch`, `link`",
        ),
        (link("loss = 1.5"), "line 10: link a–b: loss = 1.5 is not a probability between 0 and 1"),
        (
            link("\nb_to_a = { delay = \"1ms\", loss = 2 }"),
            "line 11: link a–b: loss = 2 is not a probability between 0 and 1",
        ),
        (link("loss = \"lots\""), "line 10: `lots` is not a probability: write it like 0.05 or 5%"),
        (
            link("rate = 0"),
            "line 10: `0` is out of range: a rate is at least 1 bit/s and below 2^63",
        ),
        (
            link("rate = -5"),
            "line 10: `-5` is not a rate: write it like 100M or 1.5Mbit (bits per second)",
        ),
        (link("delay = 20"), "line 10: `20` is not a time: write it like 20ms, 250us, 1.5s or 2h"),
        (link("delay = \"2h\""), "line 10: `2h` is more than an hour"),
        (link("queue = 0"), "line 10: link a–b: queue = 0 would drop every frame"),
        (link("queue = \"some\""), "line 10: `some` is not a queue: write 100 (packets) or 64KiB"),
        (
            link("loss_burst = 0.5"),
            "line 10: link a–b: loss_burst = 0.5 is not a mean run length of at least 1",
        ),
        (
            link("loss = 0.1\nloss_bad = 0.5"),
            "line 11: link a–b: loss_bad is of a link with two states: expected `loss_burst`, the \
             mean stay in the bad one, beside it",
        ),
        (
            link("loss = 0.1\nloss_burst = 4\nloss_good = \"20%\""),
            "line 12: link a–b: loss_good = 0.2: expected at most the loss in all, loss = 0.1",
        ),
        (
            link("loss = 0.1\nloss_burst = 4\nloss_bad = 0.05"),
            "line 12: link a–b: loss_bad = 0.05: expected at least the loss in all, loss = 0.1",
        ),
        (
            link("loss = 0.1\nloss_burst = 4\nloss_bad = 1.5"),
            "line 12: link a–b: loss_bad = 1.5 is not a probability between 0 and 1",
        ),
        (
            link("loss = 0.1\nloss_burst = 4\nloss_good = 0.1\nloss_bad = 0.1"),
            "line 12: link a–b: loss_good = 0.1: expected less than in the bad state",
        ),
        (
            link("loss = 0.4\nloss_burst = 2\nloss_bad = 0.5"),
            "line 11: link a–b: loss_burst = 2: with so much loss expected at least 4.00",
        ),
        (link("mtu = 10"), "line 10: link a–b: mtu = 10 is not between 1280 and 65535"),
        (
            node("[[link]]\na = \"a\"\nb = \"a\""),
            "line 9: link a–a: a link joins two different nodes",
        ),
        (
            link("los = 0.1"),
            "line 10: unknown field `los`, expected one of `a`, `b`, `a_to_b`, `b_to_a`, `mtu`, \
             `offload`, `emulated`, `a_addresses`, `b_addresses`, `rate`, `delay`, `jitter`, \
             `loss`, `loss_burst`, `loss_good`, `loss_bad`, `reorder`, `reorder_by`, \
             `duplicate`, `corrupt`, \
             `corrupt_silently`, `queue`",
        ),
        (
            link("a_addresses = [\"10.0.0.1\"]"),
            "line 10: `10.0.0.1` is not an address: write it like 10.1.0.1/24",
        ),
        (
            node("[[link]]\na = \"sw\"\nb = \"a\"\na_addresses = [\"10.0.0.1/8\"]"),
            "line 10: link sw–a: `sw` is a switch and takes no addresses",
        ),
        (
            link("loss = 0.1\noffload = true"),
            "line 11: link a–b: an emulated link judges packets singly, so `offload` is off",
        ),
        (
            link("emulated = false\nloss = 0.1"),
            "line 10: link a–b: it is impaired, so `emulated = false` cannot hold",
        ),
        (link("loss = = 3"), "line 10: extra `=`, expected nothing"),
    ] {
        let mistake = Topology::from_toml(&text).unwrap_err();
        assert_eq!(mistake.to_string(), expected, "{text}");
    }
    let missing = Topology::from_file(std::path::Path::new("/none.toml")).unwrap_err();
    assert_eq!(missing.to_string(), "/none.toml: No such file or directory (os error 2)");
}

#[test]
fn the_builder_changes_the_link_added_last() {
    let topology = Topology::star(2).loss(0.1).delay(Duration::from_millis(3));
    assert!(topology.links[0].a_to_b.is_none());
    assert!((topology.links[1].b_to_a.loss - 0.1).abs() < 1e-12);
    assert_eq!(Topology::line(2).links.len(), 3);
    let tree = Topology::tree(2, 2);
    tree.validate().unwrap();
    assert_eq!(tree.nodes.iter().filter(|n| n.kind == NodeKind::Host).count(), 5);
    assert_eq!(tree.nodes.iter().filter(|n| n.kind == NodeKind::Router).count(), 3);
}

#[test]
fn settings_change_only_what_they_name() {
    let base = Impairment::none().delay(Duration::from_millis(5));
    let changed = base.with_settings(&["loss=5%", "rate=10M"]).unwrap();
    assert!((changed.loss - 0.05).abs() < 1e-12);
    assert_eq!(changed.delay, Duration::from_millis(5));
    assert!(base.with_settings(&["loss=2"]).is_err());
    assert!(base.with_settings(&["loss"]).is_err());
    assert!(base.with_settings(&["colour=red"]).is_err());
}

#[test]
fn the_examples_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let topology = Topology::from_file(&path).unwrap();
        topology.validate().unwrap();
        count += 1;
    }
    assert!(count >= 3);
}
