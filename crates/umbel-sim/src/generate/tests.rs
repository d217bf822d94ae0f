use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn generated(name: &str, settings: &[&str]) -> Topology {
    Generator::from_settings(name, settings).unwrap()
}

fn refusal(name: &str, settings: &[&str]) -> String {
    Generator::from_settings(name, settings).unwrap_err().to_string()
}

fn count(topology: &Topology, kind: impl Fn(&NodeSpec) -> bool) -> usize {
    topology.nodes.iter().filter(|node| kind(node)).count()
}

fn routers(topology: &Topology) -> usize {
    count(topology, |node| node.kind == NodeKind::Router)
}

fn receivers(topology: &Topology) -> usize {
    count(topology, |node| node.kind == NodeKind::Host && node.name.starts_with('h'))
}

fn links_of<'a>(topology: &'a Topology, name: &'a str) -> impl Iterator<Item = &'a LinkSpec> {
    topology.links.iter().filter(move |link| link.a == name || link.b == name)
}

/// Returns the routers of the hosts whose names begin with `prefix`.
fn places<'a>(topology: &'a Topology, prefix: &'a str) -> Vec<&'a str> {
    let hosts = topology.links.iter().filter(|link| link.b.starts_with(prefix));
    hosts.map(|link| link.a.as_str()).collect()
}

fn is_connected(topology: &Topology) -> bool {
    let names = topology.names();
    let ends: Vec<_> =
        topology.links.iter().map(|l| (names[l.a.as_str()], names[l.b.as_str()])).collect();
    plane::is_connected(topology.nodes.len(), &ends)
}

#[test]
fn a_star_has_all_hosts_at_its_hub() {
    let star = generated("star", &["receivers=5", "access.loss=5%", "source_link.up.loss=0.01"]);
    assert_eq!(star.nodes.len(), 7);
    assert_eq!(links_of(&star, "hub").count(), 6);
    let source = links_of(&star, SOURCE).next().unwrap();
    assert!((source.b_to_a.loss - 0.01).abs() < 1e-12 && source.a_to_b.is_none());
    let last = links_of(&star, "h5").next().unwrap();
    assert!((last.a_to_b.loss - 0.05).abs() < 1e-12 && last.a_to_b == last.b_to_a);
}

#[test]
fn groups_of_receivers_have_names_and_links_of_their_own() {
    let settings =
        "receivers=[{ count = 3 }, { count = 2, name = \"bad\", access = { loss = 0.5 } }]";
    let star = generated("star", &[settings, "access.delay=2ms"]);
    assert_eq!((receivers(&star), count(&star, |node| node.name.starts_with("bad"))), (3, 2));
    assert_eq!(links_of(&star, "h3").next().unwrap().a_to_b.delay, Duration::from_millis(2));
    let bad = links_of(&star, "bad2").next().unwrap();
    assert!((bad.a_to_b.loss - 0.5).abs() < 1e-12 && bad.a_to_b.delay.is_zero());
}

#[test]
fn a_line_has_its_ends_at_its_ends() {
    let line = generated("line", &["routers=4", "link.delay=1ms"]);
    assert_eq!((routers(&line), line.links.len()), (4, 5));
    assert_eq!((places(&line, SOURCE), places(&line, "h")), (vec!["r1"], vec!["r4"]));
    let spread = generated("line", &["routers=4", "receivers=6", "anywhere=true"]);
    assert_eq!(places(&spread, "h"), ["r1", "r2", "r3", "r4", "r1", "r2"]);
}

#[test]
fn a_tree_has_equally_many_children_everywhere() {
    for (depth, fanout) in [(1, 3_usize), (3, 2), (2, 5), (4, 1)] {
        let settings = [format!("depth={depth}"), format!("fanout={fanout}")];
        let tree = Generator::from_settings("tree", &settings).unwrap();
        assert_eq!(receivers(&tree), fanout.pow(depth));
        let expected: usize = (0..depth).map(|level| fanout.pow(level)).sum();
        assert_eq!(routers(&tree), expected);
        assert_eq!(tree.links.len(), tree.nodes.len() - 1);
        assert!(is_connected(&tree));
        for node in tree.nodes.iter().filter(|node| node.kind == NodeKind::Router) {
            assert_eq!(links_of(&tree, &node.name).count(), fanout + 1, "{}", node.name);
        }
    }
    let leaves = generated("tree", &["depth=7", "fanout=2"]);
    assert_eq!((leaves.links.len(), receivers(&leaves)), (255, 128));
}

#[test]
fn a_dumbbell_has_one_link_between_its_sides() {
    let dumbbell = generated("dumbbell", &["sources=3", "receivers=2", "link.rate=1M"]);
    assert_eq!(dumbbell.links.len(), 6);
    assert_eq!(places(&dumbbell, SOURCE), ["left"; 3]);
    assert_eq!(places(&dumbbell, "h"), ["right"; 2]);
    assert_eq!(dumbbell.links[0].a_to_b.rate.unwrap().bits_per_s(), 1_000_000);
}

#[test]
fn a_random_graph_has_as_many_links_as_its_probability_says() {
    let (mut links, mut shortest, mut longest) = (0, Duration::MAX, Duration::ZERO);
    for seed in 0..20 {
        let graph =
            generated("gnp", &["routers=100", "p=0.1", "receivers=20", &format!("seed={seed}")]);
        assert!(is_connected(&graph));
        assert_eq!((routers(&graph), receivers(&graph)), (100, 20));
        let distinct: BTreeSet<&str> = places(&graph, "h").into_iter().collect();
        assert_eq!(distinct.len(), 20, "there are routers enough for all");
        let core: Vec<_> = graph.links.iter().filter(|link| link.b.starts_with('r')).collect();
        links += core.len();
        for link in core {
            shortest = shortest.min(link.a_to_b.delay);
            longest = longest.max(link.a_to_b.delay);
        }
    }
    // 4,950 pairs; the standard deviation of the mean of 20 is 4.7.
    let mean = links as f64 / 20.0;
    assert!((mean - 495.0).abs() < 20.0, "{mean}");
    // The plane is 20 ms wide, its diagonal 28.3 ms.
    assert!(shortest < Duration::from_millis(1) && longest > Duration::from_millis(24));
    assert!(longest < Duration::from_micros(28_285));
}

#[test]
fn delays_are_equal_if_one_is_given_and_else_go_with_the_distance() {
    let delays = |settings: &[&str]| -> Vec<Duration> {
        let graph = generated("gnp", &[&["routers=10", "p=0.5"], settings].concat());
        graph.links.iter().filter(|l| l.b.starts_with('r')).map(|l| l.a_to_b.delay).collect()
    };
    let equal = delays(&["link.delay=7ms"]);
    assert!(equal.iter().all(|delay| *delay == Duration::from_millis(7)));
    let (near, far) = (delays(&["delay_across=10ms"]), delays(&["delay_across=20ms"]));
    for ((near, far), plain) in near.iter().zip(&far).zip(delays(&[])) {
        assert!((far.as_secs_f64() / near.as_secs_f64() - 2.0).abs() < 1e-3);
        assert_eq!(*far, plain);
    }
    let both = delays(&["link.delay=1ms", "delay_across=10ms"]);
    assert!(both.iter().zip(&near).all(|(both, near)| *both == *near + Duration::from_millis(1)));
}

#[test]
fn near_routers_of_a_waxman_graph_are_joined_more_often() {
    let graph = generated("waxman", &["routers=200", "alpha=0.1", "beta=0.9", "delay_across=1s"]);
    assert!(is_connected(&graph));
    let lengths: Vec<f64> = graph
        .links
        .iter()
        .filter(|link| link.b.starts_with('r'))
        .map(|link| link.a_to_b.delay.as_secs_f64())
        .collect();
    let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
    // The mean distance of two places in a square is 0.521. With this alpha links are near 0.2.
    assert!((0.1..0.3).contains(&mean), "{mean}");
    let far = generated("waxman", &["routers=60", "alpha=100", "beta=0.3"]);
    let links = far.links.len() - 61;
    // Without the distance the graph is G(n, 0.3): 1,770 pairs, standard deviation 19.
    assert!((links as f64 - 0.3 * 1770.0).abs() < 80.0, "{links}");
}

#[test]
fn a_transit_stub_graph_has_its_domains() {
    let settings = ["domains=1", "transit=4", "stubs=3", "stub_nodes=8", "receivers=20"];
    for seed in 0..10 {
        let graph =
            generated("transit-stub", &[&settings[..], &[&format!("seed={seed}")]].concat());
        assert_eq!((routers(&graph), receivers(&graph)), (100, 20));
        assert!(is_connected(&graph));
        assert!(places(&graph, "h").iter().all(|place| place.starts_with('s')));
        assert!(places(&graph, SOURCE)[0].starts_with('s'));
        // A stub domain hangs on one link: `s1.2.3.4` is router 4 of stub domain 3 at `t1.2`.
        let up =
            graph.links.iter().filter(|link| link.a.starts_with('t') && link.b.starts_with('s'));
        let mut stubs: Vec<&str> = up.map(|link| link.b.rsplit_once('.').unwrap().0).collect();
        stubs.sort_unstable();
        stubs.dedup();
        assert_eq!(stubs.len(), 12);
        let domain = |name: &str| name.rsplit_once('.').map(|(domain, _)| domain.to_owned());
        let between = |link: &&LinkSpec| {
            let stubs = link.a.starts_with('s') && link.b.starts_with('s') && link.b != SOURCE;
            stubs && domain(&link.a) != domain(&link.b)
        };
        assert_eq!(graph.links.iter().filter(between).count(), 0);
    }
}

#[test]
fn a_transit_stub_graph_can_have_several_domains_and_extra_links() {
    let settings = [
        "domains=3",
        "transit=2",
        "stubs=2",
        "stub_nodes=3",
        "transit_p=1",
        "stub_p=1",
        "domain_p=1",
    ];
    let plain = generated("transit-stub", &settings);
    assert_eq!(routers(&plain), 3 * 2 * (1 + 2 * 3));
    // Links in domains 3·1 + 12·3, to stubs 12, between domains 3, of hosts 1 + 36.
    assert_eq!(plain.links.len(), 39 + 12 + 3 + 37);
    let extra = ["extra_transit_stub=4", "extra_stub_stub=5"];
    let more = generated("transit-stub", &[&settings[..], &extra].concat());
    assert_eq!(more.links.len(), plain.links.len() + 9);
    let pairs: BTreeSet<_> = more
        .links
        .iter()
        .map(|l| (l.a.clone().min(l.b.clone()), l.a.clone().max(l.b.clone())))
        .collect();
    assert_eq!(pairs.len(), more.links.len(), "no two links join the same routers");
    let small = ["domains=1", "transit=2", "stubs=1", "stub_nodes=1", "transit_p=1"];
    assert_eq!(
        refusal("transit-stub", &[&small[..], &["extra_stub_stub=2"]].concat()),
        "extra_stub_stub = 2: there is no room for so many"
    );
}

#[test]
fn a_graph_from_a_file_gets_hosts_unless_it_has_some() {
    let folder = std::env::temp_dir().join(format!("umbel-graphml-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ring.graphml");
    let nodes = "<node id=\"a\"/><node id=\"b\"/><node id=\"c\"/>";
    let edges = "<edge source=\"a\" target=\"b\"/><edge source=\"b\" target=\"c\"/><edge source=\"c\" target=\"a\"/>";
    let write = |nodes: &str| {
        std::fs::write(&file, format!("<graphml><graph>{nodes}{edges}</graph></graphml>")).unwrap();
    };
    let setting = format!("file={}", file.display());
    write(nodes);
    let ring = generated("graphml", &[&setting, "receivers=3", "link.loss=0.1"]);
    assert_eq!((routers(&ring), receivers(&ring), ring.links.len()), (3, 3, 7));
    assert!((ring.links[0].a_to_b.loss - 0.1).abs() < 1e-12);
    write(
        &nodes.replace("<node id=\"a\"/>", "<node id=\"a\"><data key=\"kind\">host</data></node>"),
    );
    let own = generated("graphml", &[&setting]);
    assert_eq!((own.nodes.len(), own.links.len()), (3, 3));
    write("<node id=\"a\"/>");
    assert_eq!(
        refusal("graphml", &[&setting]),
        format!("{}:1: no node has the id `b`", file.display())
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_mistake_names_what_is_wrong() {
    for (name, settings, expected) in [
        (
            "ring",
            &["receivers=3"][..],
            "`ring` is not a generator: expected one of star, line, tree, dumbbell, gnp, waxman, \
             transit-stub, graphml, gt-itm, ns2",
        ),
        ("tree", &["fanout=2"], "this generator needs `depth`"),
        (
            "tree",
            &["depth=2", "fanout=2", "p=0.5"],
            "`p=0.5`: the generator `tree` takes no `p`, but depth, fanout, link, seed, sources, \
             source_link, receivers, access, anywhere, placement",
        ),
        (
            "star",
            &["link.delay=3ms"],
            "`link.delay=3ms`: the generator `star` takes no `link`, but seed, sources, \
             source_link, receivers, access, anywhere, placement",
        ),
        ("line", &["routers=0"], "`routers=0`: routers = 0: there is at least 1"),
        ("line", &["routers=-2"], "`routers=-2`: invalid value: integer `-2`, expected usize"),
        (
            "line",
            &["routers=many"],
            "`routers=many`: invalid type: string \"many\", expected usize",
        ),
        ("gnp", &["routers=5", "p=1.5"], "`p=1.5`: p = 1.5 is not a probability between 0 and 1"),
        (
            "gnp",
            &["routers=100", "p=0.001"],
            "no connected graph of 100 routers with p = 0.001 came up: it takes about \
             ln(n) / n = 0.046 or more",
        ),
        (
            "waxman",
            &["routers=50", "alpha=0.01", "beta=0.01"],
            "no connected graph of 50 routers with alpha = 0.01 and beta = 0.01 came up: higher \
             values give more links",
        ),
        (
            "waxman",
            &["routers=50", "alpha=-1", "beta=0.01"],
            "`alpha=-1`: alpha = -1 is not above 0",
        ),
        (
            "transit-stub",
            &["domains=1", "transit=20", "stubs=1", "stub_nodes=3", "transit_p=0.01"],
            "no connected graph of 20 transit routers with transit_p = 0.01 came up",
        ),
        ("tree", &["depth=60", "fanout=2"], "`depth=60`: 1.2e18 routers: at most 5000000 fit"),
        (
            "star",
            &["receivers=3", "access.loss=2"],
            "`access.loss=2`: loss = 2 is not a probability between 0 and 1",
        ),
        (
            "star",
            &["receivers=3", "access.up.los=0.1"],
            "`access.up.los=0.1`: unknown field `los`, expected one of `rate`, `delay`, `jitter`, \
             `loss`, `loss_burst`, `loss_good`, `loss_bad`, `reorder`, `reorder_by`, `duplicate`, \
             `corrupt`, `corrupt_silently`, `queue`",
        ),
        (
            "star",
            &["receivers=3", "placement=odd"],
            "`placement=odd`: unknown variant `odd`, expected `even` or `random`",
        ),
        (
            "star",
            &["receivers=[{ count = 2, access = { loss = 7 } }]"],
            "`receivers=[{ count = 2, access = { loss = 7 } }]`: loss = 7 is not a probability \
             between 0 and 1",
        ),
        (
            "star",
            &["receivers=99999999999"],
            "`receivers=99999999999`: 99999999999 receivers: at most 5000000 fit",
        ),
        (
            "star",
            &["receivers=[{ count = 9000000000000000000 }, { count = 9000000000000000000 }]"],
            "`receivers=[{ count = 9000000000000000000 }, { count = 9000000000000000000 }]`: \
             1.8e19 receivers: at most 5000000 fit",
        ),
        (
            "star",
            &["sources=9000000000"],
            "`sources=9000000000`: 9000000000 sources: at most 5000000 fit",
        ),
        (
            "tree",
            &["depth=4294967295", "fanout=1"],
            "`depth=4294967295`: 4294967295 routers: at most 5000000 fit",
        ),
        ("tree", &["depth=2", "fanout=4000000"], "1.6e13 receivers: at most 5000000 fit"),
        (
            "line",
            &["routers=9000000000000000000"],
            "`routers=9000000000000000000`: 9.0e18 routers: at most 5000000 fit",
        ),
        (
            "gnp",
            &["routers=1000000", "p=0.5"],
            "`routers=1000000`: about 249999750000 links: at most 10000000 fit",
        ),
        (
            "waxman",
            &["routers=1000000", "alpha=1", "beta=0.00001"],
            "`routers=1000000`: 1000000 routers: at most 44721, as each two of them are looked at",
        ),
        (
            "transit-stub",
            &[
                "domains=9000000000000000000",
                "transit=9000000000000000000",
                "stubs=2",
                "stub_nodes=1",
            ],
            "2.4e38 routers: at most 5000000 fit",
        ),
        (
            "transit-stub",
            &["domains=2", "transit=2", "stubs=2", "stub_nodes=2", "extra_stub_stub=9000000000"],
            "about 9000000014 links: at most 10000000 fit",
        ),
        ("star", &["receivers"], "`receivers` is not a setting: write it like receivers=8"),
        ("star", &["receivers=[{ count = 2 }, {count = 2}]"], "two nodes are called `h1`"),
    ] {
        assert_eq!(refusal(name, settings), expected, "{name} {settings:?}");
    }
}

#[test]
fn in_a_file_a_mistake_has_its_line() {
    for (text, expected) in [
        ("generator = \"tree\"\ndepth = 2\nfanout = 2\nqeue = 7\n", "line 4: "),
        ("generator = \"line\"\nrouters = 2\n[link]\nrate = \"1M\"\nloss = 3\n", "line 5: "),
        (
            "generator = \"line\"\nrouters = 2\n[access]\nloss = 3\n[access.up]\nrate=5\n",
            "line 4: ",
        ),
        (
            "generator = \"line\"\nrouters = 2\n[access]\nloss = 0\n[access.up]\nloss=5\n",
            "line 6: ",
        ),
        (
            "generator = \"star\"\n[[receivers]]\ncount = 2\n[[receivers]]\nname = \"x\"\naccess = { loss = 3 }\n",
            "line 6: ",
        ),
        ("generator = \"star\"\n[[receivers]]\nnaem = \"x\"\n", "line 3: "),
        ("\ngenerator = \"gnp\"\nrouters = 100\np = 0\n", "line 2: "),
        ("depth = 2\n", "line 1: "),
    ] {
        let table = toml::de::DeTable::parse(text).unwrap();
        let mistake =
            Generator::topology_from_table(text, table, Path::new(""), 0).unwrap_err().to_string();
        assert!(mistake.starts_with(expected), "{mistake}\n{text}");
    }
}

#[test]
fn receivers_leave_the_graph_and_the_source_where_they_are() {
    let graph = |receivers: &str| {
        generated("transit-stub", &["domains=2", "transit=3", "stubs=2", "stub_nodes=4", receivers])
    };
    let (few, many) = (graph("receivers=3"), graph("receivers=40"));
    let core = |topology: &Topology| -> Vec<LinkSpec> {
        topology.links.iter().filter(|link| !link.b.starts_with('h')).cloned().collect()
    };
    assert_eq!(core(&few), core(&many));
    assert_eq!(places(&few, "h"), places(&many, "h")[..3]);
}

fn shapes() -> impl Strategy<Value = Generator> {
    let shape = prop_oneof![
        Just(Shape::Star),
        Just(Shape::Dumbbell),
        (1_usize..9).prop_map(|routers| Shape::Line { routers }),
        (1_u32..5, 1_usize..4).prop_map(|(depth, fanout)| Shape::Tree { depth, fanout }),
        (1_usize..30, 0.3..=1.0).prop_map(|(routers, p)| Shape::Gnp { routers, p }),
        (1_usize..30, 0.5..5.0, 0.5..=1.0).prop_map(|(routers, alpha, beta)| Shape::Waxman {
            routers,
            alpha,
            beta
        }),
        (1_usize..4, 1_usize..5, 0_usize..3, 1_usize..6)
            .prop_map(|(d, t, s, n)| Shape::TransitStub(TransitStub::new(d, t, s, n))),
    ];
    (shape, 1_usize..3, proptest::option::of(0_usize..20), any::<bool>()).prop_map(
        |(shape, sources, receivers, anywhere)| Generator {
            sources,
            receivers: vec![Receivers::new(receivers)],
            anywhere,
            ..Generator::new(shape)
        },
    )
}

proptest! {
    #[test]
    fn every_shape_is_connected_repeatable_and_a_topology_file(generator in shapes(), seed in 0..1000_u64) {
        let topology = generator.generate(seed).unwrap();
        prop_assert!(is_connected(&topology));
        prop_assert_eq!(&generator.generate(seed).unwrap(), &topology);
        prop_assert_eq!(&Topology::from_toml(&topology.to_toml()).unwrap(), &topology);
        let hosts = count(&topology, |node| node.kind == NodeKind::Host);
        if let Some(wanted) = generator.receivers[0].count {
            prop_assert_eq!(hosts, wanted + generator.sources);
        }
        for node in topology.nodes.iter().filter(|node| node.kind == NodeKind::Host) {
            prop_assert_eq!(links_of(&topology, &node.name).count(), 1);
        }
    }
}

#[test]
fn another_seed_gives_another_graph() {
    for shape in [
        Shape::Gnp { routers: 30, p: 0.2 },
        Shape::Waxman { routers: 30, alpha: 0.5, beta: 0.8 },
        Shape::TransitStub(TransitStub::new(2, 3, 2, 4)),
    ] {
        let generator = Generator::new(shape);
        assert_ne!(generator.generate(1).unwrap().links, generator.generate(2).unwrap().links);
    }
}
