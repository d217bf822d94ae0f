use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use umbel_engine::Instant;

use super::*;
use crate::NodeId;

/// A scenario without mistakes; its lines are numbered in the tests.
const BASE: &str = r#"seed = 7
duration = "1min"

[topology]
generator = "star"
receivers = 6
access = { loss = "5%" }

[sessions]
min = "80ms"
mean = "100ms"

[repository]
rate = "1M"
items = 20
item_packets = 60

[[repository.clients]]
hosts = ["h1", "h2"]
want = 9
every = "4s"

[[repository.clients]]
name = "late"
hosts = ["h3", "h4", "h5", "h6"]
start = "10s"
items = ["item1*"]
arrivals = "poisson"
every = "500ms"

[[cut]]
link = ["hub", "h1"]
from = "5s"
until = "6s"

[output]
trace = ["out.pcapng"]
"#;

fn read(text: &str) -> Result<Scenario, Mistake> {
    Scenario::from_toml(text, Path::new(""))
}

fn repository(scenario: &Scenario) -> &Repository {
    scenario.section().unwrap()
}

#[test]
fn a_scenario_is_read_as_it_is_written() {
    let scenario = read(BASE).unwrap();
    assert_eq!((scenario.seed, scenario.duration), (7, Duration::from_mins(1)));
    assert_eq!(scenario.topology.nodes.len(), 8);
    let sessions = scenario.sessions.unwrap();
    assert_eq!(sessions.min, Duration::from_millis(80));
    assert_eq!(sessions.mean_extra, Duration::from_millis(20));
    assert_eq!(scenario.traces, [Path::new("out.pcapng")]);
    let server = repository(&scenario);
    assert_eq!(NodeId::named(&scenario.topology, "source"), Some(server.server));
    assert_eq!(server.items.len(), 20);
    // 1,500 - 100 of reserve - 32 of header, in eights.
    let oti = server.items[0].oti;
    assert_eq!((oti.symbol_len, oti.object_len), (1368, 60 * 1368));
    assert_eq!(server.config.packet_len, 1400);
    let [first, late] = &server.clients[..] else { panic!() };
    assert_eq!((first.name.as_str(), late.name.as_str()), ("clients 1", "late"));
    assert_eq!((first.want, first.items.len()), (Some(9), 20));
    assert_eq!((late.want, late.items.len()), (None, 11), "item1 and item10 to item19");
    assert_eq!(first.arrivals, Arrivals::Regular(Duration::from_secs(4)));
    assert_eq!(late.arrivals, Arrivals::Poisson(Duration::from_millis(500)));
    let [cut] = &scenario.cuts[..] else { panic!() };
    assert_eq!(scenario.topology.links[cut.links[0]].b, "h1");
    let at = |s| Instant::EPOCH + Duration::from_secs(s);
    assert_eq!(
        scenario.schedules(1).into_iter().collect::<Vec<_>>(),
        [(cut.links[0], vec![(at(5), false), (at(6), true)])]
    );
}

#[test]
fn what_is_not_said_has_a_default() {
    let scenario = read(
        "topology = { generator = \"star\", receivers = 2 }\n\
         repository = { rate = \"1M\", item = [{ name = \"x\", size = \"2kB\" }] }",
    )
    .unwrap();
    assert_eq!((scenario.seed, scenario.duration), (1, Duration::from_hours(24)));
    assert_eq!(scenario.sessions, None);
    let server = repository(&scenario);
    assert_eq!((server.items[0].name.as_str(), server.items[0].oti.object_len), ("x", 2_000));
    assert_eq!(server.clients.len(), 1);
    assert_eq!(server.clients[0].hosts.len(), 2, "all but the server");
    assert_eq!(server.config.policy.to_string(), "auto");
}

#[test]
fn popular_items_are_wanted_as_zipf_has_it() {
    let text = |zipf: &str| {
        format!(
            "topology = {{ generator = \"star\", receivers = 4000 }}\n[repository]\nrate = \"1M\"\n\
             items = 10\nitem_packets = 1\n[[repository.clients]]\nwant = 1\n{zipf}\n"
        )
    };
    let shares = |zipf: &str| {
        let scenario = read(&text(zipf)).unwrap();
        let mut wanted = [0.0; 10];
        for arrival in repository(&scenario).arrivals(3) {
            let [item] = arrival.items[..] else { panic!("{arrival:?}") };
            wanted[item as usize] += 1.0 / 4000.0;
        }
        wanted
    };
    let sum: f64 = (1..=10).map(|rank| 1.0 / f64::from(rank)).sum();
    for (rank, share) in (1..=10).zip(shares("zipf = 1")) {
        let expected = 1.0 / f64::from(rank) / sum;
        assert!((share - expected).abs() < 0.025, "rank {rank}: {share}, not {expected}");
    }
    assert!(shares("zipf = 0").iter().all(|share| (share - 0.1).abs() < 0.025));
    let several = read(&text("zipf = 1").replace("want = 1\n", "want = 9\n")).unwrap();
    for arrival in repository(&several).arrivals(3) {
        assert!(arrival.items.len() == 9 && arrival.items.is_sorted(), "{arrival:?}");
    }
}

#[test]
fn keys_of_the_server_change_what_they_name() {
    let text = BASE.replace(
        "item_packets = 60",
        "item_packets = 60\nmtu = 1000\npolicy = \"FEC(0.1)+R(10)\"\nscheduler = \"rq-fill\"\n\
         code = \"raptorq\"\nblock = 32\nwhole_items = true\nlookahead = \"0s\"\n\
         cut_short = false\ngather_fraction = 0\njoin_lead = \"0s\"\nnak_margin = \"1ms\"\n\
         nak_spread = [\"30ms\", \"210ms\"]\nreschedule_whole = true\nloss_cap = \"40%\"\n\
         wait_for_naks = true\njoin_repairs = false",
    );
    let scenario = read(&text).unwrap();
    let server = repository(&scenario);
    let config = &server.config;
    let oti = server.items[0].oti;
    assert_eq!((config.packet_len, oti.max_block_symbols), (900, 32));
    assert_eq!(oti.scheme, umbel_wire::Scheme::RaptorQ);
    assert_eq!(config.policy.to_string(), "FEC(0.1)+R(10)");
    assert_eq!(config.scheduler, umbel_engine::repository::scheduler::SchedulerKind::RqFill);
    assert_eq!(config.segment.time, Duration::MAX);
    assert!(config.lookahead.is_zero() && config.start.join_lead.is_zero());
    let reading = &config.reading;
    assert!(!reading.cut_short && reading.reschedule_whole);
    assert!(reading.wait_for_naks && !reading.join_repairs && reading.expand_repairs);
    assert_eq!(config.naks.spread, (Duration::from_millis(30), Duration::from_millis(210)));
    assert!((config.loss_cap - 0.4).abs() < 1e-12);
}

#[test]
fn clients_come_in_their_order_and_want_what_they_should() {
    let scenario = read(BASE).unwrap();
    let arrivals = repository(&scenario).arrivals(7);
    assert_eq!(arrivals.len(), 6);
    let seconds = |n: usize| arrivals[n].at.as_nanos() as f64 / 1e9;
    assert_eq!((arrivals[0].at, seconds(1)), (Instant::EPOCH, 4.0));
    assert!(arrivals[..2].iter().all(|arrival| arrival.items.len() == 9 && arrival.group == 0));
    assert_ne!(arrivals[0].items, arrivals[1].items);
    assert!((seconds(2) - 10.0).abs() < 1e-9);
    assert!(arrivals[2..].is_sorted_by_key(|arrival| arrival.at));
    assert!(arrivals[2..].iter().all(|arrival| arrival.items.len() == 11));
    assert_eq!(arrivals, repository(&scenario).arrivals(7));
    assert_ne!(arrivals, repository(&scenario).arrivals(8));
}

#[test]
fn one_more_client_changes_nothing_for_the_others() {
    let scenario = read(BASE).unwrap();
    let few = repository(&scenario);
    let mut more = few.clone();
    more.clients[1].hosts.push(NodeId(7));
    let (few, more) = (few.arrivals(1), more.arrivals(1));
    assert_eq!(few, more[..6]);
}

#[test]
fn arrivals_and_choices_have_the_distribution_that_they_should() {
    let text = BASE
        .replace("receivers = 6", "receivers = 3000")
        .replace("\"h3\", \"h4\", \"h5\", \"h6\"", "\"h3*\"");
    let text =
        text.replace("hosts = [\"h1\", \"h2\"]", "hosts = [\"h1*\", \"h2*\"]\nshuffled = true");
    let scenario = read(&text).unwrap();
    let arrivals = repository(&scenario).arrivals(1);
    let (first, late): (Vec<_>, Vec<_>) = arrivals.iter().partition(|arrival| arrival.group == 0);
    let span = late.last().unwrap().at.since(late[0].at).as_secs_f64();
    let mean = span / (late.len() - 1) as f64;
    // Of 111 exponential times; the standard deviation of the mean is about 0.05 s.
    assert!((mean - 0.5).abs() < 0.2, "{mean}");
    let mut counts = vec![0_u32; 20];
    for arrival in &first {
        assert_eq!(arrival.items.iter().collect::<BTreeSet<_>>().len(), 9);
        for &item in arrival.items.iter() {
            counts[item as usize] += 1;
        }
    }
    let expected = first.len() as f64 * 9.0 / 20.0;
    for count in counts {
        assert!((f64::from(count) / expected - 1.0).abs() < 0.12, "{count} instead of {expected}");
    }
    let order: Vec<_> = first.iter().map(|arrival| arrival.node).collect();
    assert!(!order.is_sorted());
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len());
}

/// Returns the mistake in the base when `what` is replaced by `with`.
fn mistake(what: &str, with: &str) -> String {
    assert!(BASE.contains(what), "{what}");
    match read(&BASE.replacen(what, with, 1)) {
        Ok(_) => panic!("{with} was accepted"),
        Err(mistake) => mistake.to_string(),
    }
}

#[test]
fn every_mistake_in_the_frame_has_its_line_and_says_what_was_expected() {
    let mut wrong = Vec::new();
    for (what, with, expected) in [
        (
            "seed = 7",
            "sede = 7",
            "line 1: unknown field `sede`, expected one of `name`, `seed`, `duration`, `topology`, `sessions`, `multicast`, `cut`, `drop`, `queue`, `churn`, `traffic`, `loss_of`, `output`, `repository`, `lms`, `srm`, `pgm`, `tmtp`, `basep`, `rlm`, `smo`",
        ),
        ("seed = 7", "seed = -7", "line 1: invalid value: integer `-7`, expected u64"),
        ("seed = 7", "seed 7", "line 1: key with no value, expected `=`"),
        (
            "duration = \"1min\"",
            "duration = 60",
            "line 2: `60` is not a time: write it like 20ms, 250us, 1.5s or 2h",
        ),
        ("duration = \"1min\"", "duration = \"0s\"", "line 2: duration = 0: nothing would happen"),
        (
            "generator = \"star\"",
            "generator = \"sun\"",
            "line 5: `sun` is not a generator: expected one of star, line, tree, dumbbell, gnp, waxman, transit-stub, graphml, gt-itm, ns2",
        ),
        (
            "receivers = 6",
            "recievers = 6",
            "line 6: the generator `star` takes no `recievers`, but seed, sources, source_link, receivers, access, anywhere, placement",
        ),
        (
            "receivers = 6",
            "receivers = 99999999999",
            "line 6: 99999999999 receivers: at most 5000000 fit",
        ),
        (
            "loss = \"5%\"",
            "loss = \"105%\"",
            "line 7: loss = 1.05 is not a probability between 0 and 1",
        ),
        (
            "loss = \"5%\"",
            "rate = \"-3M\"",
            "line 7: `-3M` is not a rate: write it like 100M or 1.5Mbit (bits per second)",
        ),
        (
            "[topology]\ngenerator = \"star\"\nreceivers = 6\naccess = { loss = \"5%\" }",
            "topology = 5",
            "line 4: expected a table: a generator, a file, or hosts, routers and links",
        ),
        (
            "[topology]\ngenerator = \"star\"\nreceivers = 6\naccess = { loss = \"5%\" }",
            "",
            "line 1: missing field `topology`",
        ),
        (
            "generator = \"star\"\nreceivers = 6\naccess = { loss = \"5%\" }",
            "host = [{ name = \"source\" }]\nlink = [\n{ a = \"source\", b = \"x\" }]",
            "line 7: link source–x: no host, router or switch is called `x`",
        ),
        (
            "generator = \"star\"\nreceivers = 6\naccess = { loss = \"5%\" }",
            "file = \"/none.toml\"",
            "line 5: /none.toml: No such file or directory (os error 2)",
        ),
        (
            "generator = \"star\"\nreceivers = 6\naccess = { loss = \"5%\" }",
            "file = \"x\"\nseed = 4",
            "line 6: unknown field `seed`, expected `file`",
        ),
        ("mean = \"100ms\"", "mean = \"50ms\"", "line 11: the mean, 50ms, is below `min` = 80ms"),
        (
            "link = [\"hub\", \"h1\"]",
            "link = [\"hub\", \"h9\"]",
            "line 32: no node is called `h9`: there are source, h1, h2, h3, h4, h5, h6, hub",
        ),
        (
            "link = [\"hub\", \"h1\"]",
            "link = [\"h1\", \"h2\"]",
            "line 32: no link joins `h1` and `h2`: `h1` has links to hub",
        ),
        (
            "link = [\"hub\", \"h1\"]",
            "link = [\"h1\"]",
            "line 32: a link is two nodes, as in [\"r1\", \"r2\"]",
        ),
        ("until = \"6s\"", "until = \"4s\"", "line 34: 4s is not after `from` = 5s"),
        (
            "until = \"6s\"",
            "until = \"6s\"\n[[cut]]\nlink = [\"h1\", \"hub\"]\nfrom = \"6s\"",
            "line 36: this link is cut from 5s to 6s already",
        ),
        (
            "from = \"5s\"",
            "form = \"5s\"",
            "line 33: unknown field `form`, expected one of `link`, `from`, `until`",
        ),
        (
            "\"out.pcapng\"",
            "\"out.txt\"",
            "line 37: out.txt: no trace has this extension: use .pcapng, .pcap, .csv or .html",
        ),
        (
            "[repository]",
            "[repo]",
            "line 13: unknown field `repo`, expected one of `name`, `seed`, `duration`, `topology`, `sessions`, `multicast`, `cut`, `drop`, `queue`, `churn`, `traffic`, `loss_of`, `output`, `repository`, `lms`, `srm`, `pgm`, `tmtp`, `basep`, `rlm`, `smo`",
        ),
    ] {
        let found = mistake(what, with);
        if found != expected {
            wrong.push(format!("{with}:\n  {found}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let none = read("topology = { generator = \"star\", receivers = 1 }").unwrap_err();
    assert_eq!(
        none.to_string(),
        "line 1: there is no protocol: expected a section [repository], [lms], [srm], [pgm], [tmtp], [basep], [rlm] or [smo]"
    );
    let missing = Scenario::from_file(Path::new("/none.toml")).unwrap_err();
    assert_eq!(missing.to_string(), "/none.toml: No such file or directory (os error 2)");
}

#[test]
fn every_mistake_of_the_repository_has_its_line_and_says_what_was_expected() {
    let mut wrong = Vec::new();
    for (what, with, expected) in [
        (
            "rate = \"1M\"",
            "rate = \"fast\"",
            "line 14: `fast` is not a rate: write it like 100M or 1.5Mbit (bits per second), or \"auto\"",
        ),
        (
            "rate = \"1M\"",
            "rate = -1",
            "line 14: `-1` is not a rate: write it like 100M or 1.5Mbit (bits per second), or \"auto\"",
        ),
        (
            "rate = \"1M\"",
            "rate = \"1M\"\npace_to = \"all\"",
            "line 13: `pace_to` goes with rate = \"auto\"",
        ),
        (
            "rate = \"1M\"",
            "rate = \"auto\"\npace_to = \"few\"",
            "line 15: it is most, all or a percentage from 1 to 100",
        ),
        ("rate = \"1M\"\n", "", "line 13: missing field `rate`"),
        ("items = 20", "items = 0", "line 15: items = 0: expected at least 1"),
        (
            "items = 20",
            "items = 9000000000000",
            "line 15: items = 9000000000000: at most 5000000 fit",
        ),
        ("items = 20\n", "", "line 15: the number of such items, `items`, is missing"),
        ("item_packets = 60", "", "line 15: items: their `item_size` or `item_packets` is missing"),
        (
            "items = 20\nitem_packets = 60",
            "",
            "line 13: there is nothing to serve: expected `items` and `item_size`, or a list of [[repository.item]]",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nitem_size = \"1kB\"",
            "line 16: item_packets and item_size both say how long an item is",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nitem = [\n{ name = \"x\", size = 5 }]",
            "line 18: expected either `items` or a list of [[repository.item]]",
        ),
        (
            "items = 20\nitem_packets = 60",
            "item = [{ name = \"x\", size = 5 },\n{ name = \"x\", size = 6 }]",
            "line 16: two items are called `x`",
        ),
        (
            "item_packets = 60",
            "item_size = \"lots\"",
            "line 16: `lots` is not a size: write it like 64KiB or 10MB",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\npolicy = \"FEC(lots)\"",
            "line 17: `lots` is no expansion: write 0.1, 0.01R, 0.5/R or 1loss, joined by +",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nscheduler = \"best\"",
            "line 17: `best` is no scheduler: choose gain, rq, rq-fill, rxw, mrf or fcfs",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\ncode = \"xor\"",
            "line 17: unknown variant `xor`, expected one of `rs`, `raptorq`, `none`",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nmtu = 100",
            "line 17: mtu = 100 is too small: expected at least 576",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nmtu = 70000",
            "line 17: invalid value: integer `70000`, expected u16",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nblock = 0",
            "line 17: source blocks of up to 0 symbols; ReedSolomon has 1 to 255",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nloss_cap = 2",
            "line 17: loss_cap = 2: expected 0 to below 1",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nnak_spread = [\"2s\", \"1s\"]",
            "line 17: nak_spread: expected the least time before the greatest",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nserver = \"h9\"",
            "line 17: no host is called `h9`: there are source, h1, h2, h3, h4, h5, h6",
        ),
        (
            "item_packets = 60",
            "item_packets = 60\nserver = \"hub\"",
            "line 17: `hub` is a switch: expected a host",
        ),
        (
            "hosts = [\"h1\", \"h2\"]",
            "hosts = [\"h1\", \"h9\"]",
            "line 19: no host is called `h9`: there are source, h1, h2, h3, h4, h5, h6",
        ),
        (
            "hosts = [\"h1\", \"h2\"]",
            "hosts = [\"h1\", \"x*\"]",
            "line 19: no client's host matches `x*`: there are h1, h2, h3, h4, h5, h6",
        ),
        (
            "hosts = [\"h1\", \"h2\"]",
            "hosts = [\"h1\", \"hub\"]",
            "line 19: `hub` is a switch: expected a host",
        ),
        (
            "hosts = [\"h1\", \"h2\"]",
            "hosts = [\"source\"]",
            "line 19: `source` is the server and cannot be a client",
        ),
        ("hosts = [\"h1\", \"h2\"]", "hosts = []", "line 19: expected at least one host"),
        (
            "hosts = [\"h1\", \"h2\"]",
            "hosts = [\"*\"]",
            "line 25: `h3` is in another group of clients already",
        ),
        ("want = 9", "want = 21", "line 20: want = 21: expected 1 to 20, the items there are"),
        ("want = 9", "want = 0", "line 20: want = 0: expected 1 to 20, the items there are"),
        (
            "want = 9",
            "want = 9\nzipf = -1",
            "line 21: zipf = -1: expected an exponent from 0 to 10",
        ),
        (
            "want = 9",
            "zipf = 0.8",
            "line 20: zipf says which items are wanted more: expected `want`, their number, beside it",
        ),
        (
            "want = 9",
            "want = 9\nzipf = \"much\"",
            "line 21: invalid type: string \"much\", expected f64",
        ),
        (
            "want = 9",
            "watn = 9",
            "line 20: unknown field `watn`, expected one of `name`, `hosts`, `shuffled`, `start`, `every`, `arrivals`, `items`, `want`, `zipf`, `leave_after`, `linger`, `nak_delay_min`",
        ),
        (
            "items = [\"item1*\"]",
            "items = [\"itme*\"]",
            "line 27: no item matches `itme*`: there are item1, item2, item3, item4, item5, item6, item7, item8 and 12 more",
        ),
        ("start = \"10s\"", "start = \"2min\"", "line 26: 120s is after the end, `duration` = 60s"),
        (
            "arrivals = \"poisson\"",
            "arrivals = \"bursty\"",
            "line 28: unknown variant `bursty`, expected one of `together`, `regular`, `poisson`",
        ),
        (
            "arrivals = \"poisson\"",
            "arrivals = \"together\"",
            "line 29: clients that arrive together take no `every`",
        ),
        ("every = \"500ms\"", "", "line 28: `every`, the time between two clients, is missing"),
        (
            "every = \"500ms\"",
            "every = \"-1s\"",
            "line 29: `-1s` is not a time: write it like 20ms, 250us, 1.5s or 2h",
        ),
    ] {
        let found = mistake(what, with);
        if found != expected {
            wrong.push(format!("{with}:\n  {found}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_host_that_the_server_does_not_reach_is_a_mistake() {
    let network = |link: &str| {
        format!(
            "[topology]\nhost = [{{ name = \"s\" }}, {{ name = \"near\" }}, {{ name = \"far\" }}]\n\
             router = [{{ name = \"r\" }}]\nlink = [{{ a = \"s\", b = \"r\" }}, {{ a = \"r\", b = \"near\" }}, {link}]\n\
             [repository]\nrate = \"1M\"\nitems = 1\nitem_size = 9\nserver = \"s\"\n\
             [[repository.clients]]\nhosts = [\"far\"]"
        )
    };
    let expected = "line 11: `far` cannot be reached from `s`: expected links, routers and switches between them";
    // A host forwards nothing.
    for link in ["", "{ a = \"near\", b = \"far\" }"] {
        assert_eq!(read(&network(link)).unwrap_err().to_string(), expected);
    }
    read(&network("{ a = \"r\", b = \"far\" }")).unwrap();
    let no_server = network("{ a = \"r\", b = \"far\" }").replace("server = \"s\"\n", "");
    assert_eq!(
        read(&no_server).unwrap_err().to_string(),
        "line 5: `server` is missing: there is no host `source` to be it"
    );
}
