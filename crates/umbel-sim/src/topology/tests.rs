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
fn every_contradiction_is_one_line_that_names_it() {
    let hosts = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";
    for (text, expected) in [
        ("[[link]]\na = \"a\"\nb = \"x\"", "no host, router or switch is called `x`"),
        ("[[host]]\nname = \"a\"", "two nodes are called `a`"),
        ("[[host]]\nname = \"a b\"", "not a name"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nloss = 1.5", "loss = 1.5"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nloss = \"lots\"", "line 8: `lots` is not a probability"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nrate = 0", "out of range"),
        ("[[link]]\na = \"a\"\nb = \"b\"\ndelay = 20", "not a time"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nqueue = 0", "queue = 0"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nmtu = 10", "mtu = 10"),
        ("[[link]]\na = \"a\"\nb = \"a\"", "two different nodes"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nlos = 0.1", "unknown field `los`"),
        ("[[link]]\na = \"a\"\nb = \"b\"\na_addresses = [\"10.0.0.1\"]", "not an address"),
        ("[[link]]\na = \"a\"\nb = \"b\"\nloss = 0.1\noffload = true", "judges packets singly"),
    ] {
        let error = Topology::from_toml(&format!("{hosts}{text}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
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
