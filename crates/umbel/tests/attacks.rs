//! What a stranger on the network does to real programs: a host that has no key and no token, and
//! sends about a thousand datagrams a second. Its address is its own unless a test says otherwise.
//!
//! Four honest receivers lose 5 % of all packets. Whatever the stranger does, each of them has every
//! byte in the end and exits with 0, and so does the sender. The numbers are those of
//! docs/security.md. What is not withstood yet is ignored with its number, so that the list is
//! honest: `cargo test -p umbel --test attacks -- --ignored` shows what happens.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::bench::{Bench, EVERYTHING, SOON};
use support::feeds::Feeds;
use support::files;
use support::forgeries::{self, Announced, Sniffed};
use support::process::Process;
use support::stranger::{Heard, Mark, Stranger, Voice};
use support::town::{Door, HONEST, SHAPE, STRANGER, keyed, list_of, sniff, town};
use umbel_wire::Tsi;

/// Patience with a program on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);
/// What is sent: several blocks, and one.
const PLAN: &files::Plan<'_> = &[("large", 600_000), ("small", 1_000)];
/// Fewest datagrams that make an attack.
const ATTACK: u64 = 20;

/// Sends files to the honest receivers while a stranger attacks them from the beginning.
#[track_caller]
fn withstands(
    options: &[&str],
    attack: impl FnMut(&mut Voice, &[Heard]) + Send + 'static,
) -> Option<Value> {
    let lab = town()?;
    let feeds = Feeds::new(&lab, PLAN);
    let mut sender = feeds.send(&[&["--rate", "10M", "--wait-for", "4"], options].concat());
    let mark = Mark::of(&sender.events("sending").remove(0));
    let stranger = Stranger::start(feeds.host(STRANGER), mark, attack);
    let mut receivers = HONEST.map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, PATIENCE);
    }
    let summary = sender.wait_done(PATIENCE);
    let sent = stranger.stop();
    assert!(sent > ATTACK, "only {sent} datagrams are no attack");
    assert_eq!(summary["done"], HONEST.len(), "{summary}");
    Some(summary)
}

/// Sends a pipe to the honest receivers while a stranger attacks them from the beginning.
#[track_caller]
fn withstands_in_a_pipe(attack: impl FnMut(&mut Voice, &[Heard]) + Send + 'static) {
    let Some(lab) = town() else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let line = "exec 3< <(sleep 2; cat in/large) && exec \"$UMBEL\" send - --json --name feed \
                --rate 10M --wait-for 4 <&3";
    let mut command = feeds.host("h1").command("bash");
    command.args(["-c", line]).current_dir(feeds.directory.path());
    command.env("UMBEL", env!("CARGO_BIN_EXE_umbel"));
    let mut sender = Process::start("sender", command, &feeds.logs);
    let mark = Mark::of(&sender.wait_for_event("sending", SOON));
    let stranger = Stranger::start(feeds.host(STRANGER), mark, attack);
    let receive = "\"$UMBEL\" recv feed --wait 20s --as $0 -o - > $0";
    let receivers = HONEST.map(|host| (host, feeds.shell(host, &receive.replace("$0", host))));
    for (host, receiver) in receivers {
        let output = receiver.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let whole = std::fs::read(feeds.input().join("large")).unwrap();
        let got = std::fs::read(feeds.directory.path().join(host)).unwrap();
        assert!(got == whole, "{host} has {} of {} bytes: {said}", got.len(), whole.len());
        assert!(output.status.success(), "{host}: {said}");
    }
    sender.wait_done(PATIENCE);
    assert!(stranger.stop() > ATTACK);
}

#[test]
fn c1_forged_heads_end_no_receiver() {
    withstands(&[], forgeries::false_heads());
}

#[test]
fn c1_blocks_of_a_false_shape_stall_nobody() {
    withstands(&[], forgeries::false_shapes());
}

#[test]
fn c1_wrong_symbols_cost_no_file() {
    withstands(&[], forgeries::false_symbols(SHAPE.0, SHAPE.1));
}

#[test]
fn c1_wrong_symbols_stop_no_sealed_feed() {
    let Some(lab) = town() else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let admit = list_of(&feeds, &HONEST);
    let mut sender = feeds.send(&["--rate", "10M", "--wait-for", "4", "--admit", &admit]);
    let mark = Mark::of(&sender.events("sending").remove(0));
    let attack = forgeries::false_symbols(SHAPE.0, SHAPE.1);
    let stranger = Stranger::start(feeds.host(STRANGER), mark, attack);
    for receiver in &mut keyed(&feeds) {
        feeds.check(receiver, PATIENCE);
    }
    sender.wait_done(PATIENCE);
    assert!(stranger.stop() > ATTACK);
}

#[test]
fn c2_nothing_gets_into_a_pipe() {
    withstands_in_a_pipe(forgeries::false_pipe(b"rm -rf evil\n"));
}

#[test]
fn c3_a_deletion_by_a_stranger_deletes_nothing() {
    withstands(&[], forgeries::false_announcements(Announced::Deleted, "feed"));
}

#[test]
fn c3_another_source_of_the_name_is_not_taken() {
    withstands(&[], forgeries::false_announcements(Announced::Shadowed, "feed"));
}

#[test]
fn c3_an_announcement_changed_by_a_stranger_is_not_believed() {
    withstands(&[], forgeries::false_announcements(Announced::Replaced, "feed"));
}

#[test]
fn c3_a_flood_of_announcements_hides_nothing() {
    withstands(&[], forgeries::false_announcements(Announced::Flooded, "feed"));
}

#[test]
fn h1_a_child_that_wavers_stalls_nobody() {
    let Some(lab) = town() else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let mut sender = feeds.send(&["--rate", "10M", "--wait-for", "4"]);
    let mark = Mark::of(&sender.events("sending").remove(0));
    let stranger = Stranger::start(feeds.host(STRANGER), mark, forgeries::waverer());
    let mut receivers = HONEST.map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, PATIENCE);
    }
    stranger.stop();
    // The sender says truly that one who joined does not have it.
    sender.wait_end(PATIENCE);
    let summary = sender.events("done").pop().unwrap()["summary"].clone();
    assert_eq!(summary["done"], HONEST.len(), "{summary}");
}

#[test]
fn h2_refusals_by_a_stranger_end_nobody() {
    withstands(&[], forgeries::refuser());
}

#[test]
fn h3_a_strangers_end_cuts_no_files_short() {
    withstands(&[], forgeries::truncator());
}

#[test]
fn h3_a_strangers_end_cuts_no_pipe_short() {
    withstands_in_a_pipe(forgeries::truncator());
}

#[test]
fn h4_a_usurper_of_the_subnet_stops_nobody() {
    withstands(&[], forgeries::usurper());
}

/// What the honest receivers of a feed that not all may join have told in the end.
struct Told {
    /// Addresses of the parents that each of them had.
    parents: Vec<Vec<String>>,
}

/// Sends files to the honest receivers, who are let in. A stranger, who is not, attacks from the
/// beginning, and sees all that passes on the links.
#[track_caller]
fn withstands_a_sniffer<A>(
    door: Door,
    attack: impl FnOnce(mpsc::Receiver<Sniffed>) -> A,
) -> Option<Told>
where
    A: FnMut(&mut Voice, &[Heard]) + Send + 'static,
{
    let lab = town()?;
    let feeds = Feeds::new(&lab, PLAN);
    let options = door.of_sender(&feeds);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut sender = feeds.send(&options);
    let mark = Mark::of(&sender.events("sending").remove(0));
    let (_tap, told) = sniff(&lab, feeds.host(STRANGER));
    let stranger = Stranger::start(feeds.host(STRANGER), mark, attack(told));
    let mut receivers = door.receivers(&feeds);
    for receiver in &mut receivers {
        feeds.check(receiver, PATIENCE);
    }
    let summary = sender.wait_done(PATIENCE);
    let sent = stranger.stop();
    assert!(sent > ATTACK, "only {sent} datagrams are no attack");
    assert_eq!(summary["done"], HONEST.len(), "{summary}");
    let parents = receivers.iter().map(|receiver| {
        let joined = receiver.process.events("joined");
        joined.iter().map(|joined| joined["parent"].as_str().unwrap().to_owned()).collect()
    });
    Some(Told { parents: parents.collect() })
}

/// Checks that a beggar gets no answer.
#[track_caller]
fn a_beggar_gets_nothing(door: Door) {
    let answers = Arc::<AtomicU64>::default();
    let count = answers.clone();
    if withstands_a_sniffer(door, |_| forgeries::beggar(count)).is_some() {
        assert_eq!(answers.load(Ordering::Relaxed), 0, "datagrams came back");
    }
}

#[test]
fn h5_who_has_no_token_gets_neither_a_place_nor_a_block() {
    a_beggar_gets_nothing(Door::Token);
}

#[test]
fn h5_who_is_not_on_the_list_gets_neither_a_place_nor_a_block() {
    a_beggar_gets_nothing(Door::List);
}

#[test]
fn h5_without_a_token_everybody_is_served() {
    let Some(lab) = town() else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let sender = feeds.send(&["--rate", "10M", "--wait-for", "1s"]);
    let mark = Mark::of(&sender.events("sending").remove(0));
    let answers = Arc::<AtomicU64>::default();
    let attack = forgeries::beggar(answers.clone());
    let stranger = Stranger::start(feeds.host(STRANGER), mark, attack);
    let until = Instant::now() + PATIENCE;
    while answers.load(Ordering::Relaxed) < 100 {
        assert!(Instant::now() < until, "so the test above would see it");
        std::thread::sleep(Duration::from_millis(50));
    }
    stranger.stop();
}

#[test]
fn h5_a_relay_between_a_receiver_and_its_parent_is_nobodys_parent() {
    for door in [Door::Token, Door::List] {
        let Some(told) = withstands_a_sniffer(door, |_| forgeries::relay()) else { return };
        let all = told.parents.concat();
        assert!(all.len() >= HONEST.len(), "{all:?}");
        // The stranger is h6, the last of the hosts.
        let town = town().unwrap();
        let here = town.host(STRANGER).unwrap().addr4().to_string();
        let is_here = |parent: &String| parent.starts_with(&format!("{here}:"));
        assert!(!all.iter().any(is_here), "{door:?}: {all:?}");
    }
}

#[test]
fn h5_what_was_sniffed_is_worth_nothing_when_it_is_said_again() {
    withstands_a_sniffer(Door::Token, forgeries::sniffer);
}

#[test]
fn h5_what_was_sniffed_of_those_on_a_list_is_worth_nothing_either() {
    withstands_a_sniffer(Door::List, forgeries::sniffer);
}

/// Checks that nobody loses its parent because of who speaks in its name.
#[track_caller]
fn nobody_speaks_in_anothers_name(door: Door) {
    let Some(told) = withstands_a_sniffer(door, forgeries::impostor) else { return };
    for parents in told.parents {
        assert!(parents.len() <= 3, "{parents:?}: it was parted again and again");
    }
}

#[test]
fn h7_with_a_token_nobody_speaks_in_anothers_name() {
    nobody_speaks_in_anothers_name(Door::Token);
}

#[test]
fn h7_with_a_list_nobody_speaks_in_anothers_name() {
    nobody_speaks_in_anothers_name(Door::List);
}

#[test]
#[ignore = "not withstood: in an open feed a message is as authentic as its address"]
fn h7_in_an_open_feed_nobody_speaks_in_anothers_name() {
    nobody_speaks_in_anothers_name(Door::Open);
}

#[test]
fn h5_a_feed_with_a_token_withstands_what_an_open_one_does() {
    type Attack = Box<dyn FnMut(&mut Voice, &[Heard]) + Send>;
    let mut attacks: Vec<Attack> = vec![
        Box::new(forgeries::refuser()),
        Box::new(forgeries::truncator()),
        Box::new(forgeries::usurper()),
        Box::new(forgeries::asker()),
        Box::new(forgeries::waverer()),
        Box::new(forgeries::reporter(HONEST.map(str::to_owned).to_vec())),
    ];
    let all = move |voice: &mut Voice, heard: &[Heard]| {
        for attack in &mut attacks {
            attack(voice, heard);
        }
    };
    withstands_a_sniffer(Door::Token, |_| all);
}

/// Stops a stranger. Returns nothing, in its place.
fn stop(stranger: Stranger) -> Option<Stranger> {
    let sent = stranger.stop();
    assert!(sent > ATTACK, "only {sent} datagrams are no attack");
    None
}

/// Sends to the honest receivers, and to others that never come. A stranger reports for all.
fn reported(absent: &[&str]) -> Option<(Option<i32>, Value)> {
    let lab = town()?;
    let feeds = Feeds::new(&lab, PLAN);
    let admit = list_of(&feeds, &[&HONEST, absent].concat());
    let options = ["--rate", "10M", "--wait-for", "4", "--admit", &admit];
    let mut sender = feeds.send(&options);
    let mark = Mark::of(&sender.events("sending").remove(0));
    let names = [&HONEST, absent].concat().iter().map(|&name| name.to_owned()).collect();
    let stranger = Stranger::start(feeds.host(STRANGER), mark, forgeries::reporter(names));
    for receiver in &mut keyed(&feeds) {
        feeds.check(receiver, PATIENCE);
    }
    // The sender waits for one who is in the tree and on the list that is not done.
    let stranger = if absent.is_empty() { Some(stranger) } else { stop(stranger) };
    let status = sender.wait_end(PATIENCE);
    stranger.map(stop);
    let summary = sender.events("done").pop().unwrap()["summary"].clone();
    assert_eq!(summary["done"], HONEST.len(), "{summary}");
    Some((status.code(), summary))
}

#[test]
fn h6_a_stranger_in_another_name_does_not_make_the_sender_content() {
    let Some((status, summary)) = reported(&["alice"]) else { return };
    let receivers = summary["receivers"].as_array().unwrap();
    let alices: Vec<_> = receivers.iter().filter(|one| one["name"] == "alice").collect();
    assert!(!alices.is_empty() && alices.iter().all(|one| one["state"] != "done"), "{summary}");
    assert_eq!(status, Some(1), "alice was never there: {summary}");
}

#[test]
fn h6_a_stranger_takes_no_report_of_the_honest_away() {
    let Some((status, summary)) = reported(&[]) else { return };
    assert_eq!(status, Some(0), "{summary}");
}

#[test]
fn h6_names_that_anybody_could_report_by_are_refused() {
    let Some(lab) = town() else { return };
    let feeds = Feeds::new(&lab, PLAN);
    let admit = feeds.directory.path().join("receivers");
    std::fs::write(&admit, "alice\n").unwrap();
    let mut command = feeds.umbel("h1");
    command.args(["send", "in", "--name", "feed", "--admit"]).arg(admit);
    let output = command.current_dir(feeds.directory.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("umbel key") && said.contains("--token"), "{said}");
}

#[test]
fn h7_requests_in_others_names_starve_nobody() {
    withstands(&[], forgeries::asker());
}

#[test]
fn what_was_said_before_can_be_said_again() {
    withstands(&[], forgeries::echo());
}

/// What a stranger heard, what is in the item, and what the receivers report.
type Overheard = (Vec<Vec<u8>>, Vec<u8>, Vec<Value>);

/// Serves to the honest receivers while a stranger, who has no token, hears the data channel, and
/// does something with each datagram.
fn overheard(
    options: &[&str],
    mut attack: impl FnMut(&mut Voice, &[u8]) + Send + 'static,
) -> Option<Overheard> {
    let lab = town()?;
    let bench = Bench::new(&lab, PLAN);
    let options = [&["--rate", "10M", "--group", "239.1.2.3"], options].concat();
    let mut server = bench.serve(&options);
    let group = "239.1.2.3:7702".parse().unwrap();
    let mark = Mark { tsi: Tsi(0), source: (bench.host("h1").addr4(), 7702).into(), domain: group };
    let (tell, told) = std::sync::mpsc::channel();
    let stranger = Stranger::start(bench.host(STRANGER), mark, move |voice, heard| {
        for one in heard {
            attack(voice, &one.bytes);
            // The test may be over.
            let _ = tell.send(one.bytes.clone());
        }
    });
    let mut honest = HONEST.map(|host| bench.get(host, &server.url, EVERYTHING));
    let summaries = honest.iter_mut().map(|client| bench.check_all(client, PATIENCE)).collect();
    stranger.stop();
    server.stop();
    let item = std::fs::read(bench.repo().join("large")).unwrap();
    Some((told.iter().collect(), item, summaries))
}

/// Returns the number of datagrams in which a part of the item is in clear.
fn readable(heard: &[Vec<u8>], item: &[u8]) -> usize {
    let parts: BTreeSet<&[u8]> = item.windows(8).collect();
    let clear = |datagram: &&Vec<u8>| {
        // Within the symbol, with a seal and without.
        let parts_of = [40, 48, 56].map(|at| datagram.get(at..at + 8));
        parts_of.iter().all(|part| part.is_some_and(|part| parts.contains(part)))
    };
    heard.iter().filter(clear).count()
}

#[test]
fn r1_a_stranger_who_joins_the_group_reads_nothing() {
    let options = ["--token", "sesame"];
    let Some((heard, item, summaries)) = overheard(&options, |_, _| {}) else { return };
    let long = heard.iter().filter(|datagram| datagram.len() > 1_000).count();
    assert!(long > 100, "only {long} datagrams were heard");
    assert_eq!(readable(&heard, &item), 0, "of {long}");
    assert!(summaries.iter().all(|summary| summary["sealed"] == true), "{summaries:?}");
}

#[test]
fn r1_an_open_server_is_read_by_all() {
    let Some((heard, item, _)) = overheard(&[], |_, _| {}) else { return };
    assert!(readable(&heard, &item) > 100, "so the test above would see it");
}

#[test]
fn r1_what_a_stranger_sends_again_or_alters_in_a_sealed_channel_harms_nobody() {
    let attack = |voice: &mut Voice, datagram: &[u8]| {
        let Mark { source, domain, .. } = voice.mark;
        voice.say_as(source, domain, datagram);
        let mut altered = datagram.to_vec();
        if let Some(last) = altered.last_mut() {
            *last ^= 1;
        }
        voice.say_as(source, domain, &altered);
    };
    // Each receiver has ended with every byte.
    let Some((heard, ..)) = overheard(&["--token", "sesame"], attack) else { return };
    assert!(heard.len() > 100, "only {} datagrams were heard", heard.len());
}

#[test]
fn r6_guesses_of_the_token_keep_nobody_else_out() {
    let Some(lab) = town() else { return };
    let bench = Bench::new(&lab, &[("item", 100_000)]);
    let mut server = bench.serve(&["--rate", "20M", "--token", "sesame"]);
    let url = server.url.replace("&token=sesame", "");
    for guess in 0..10 {
        let mut command = bench.host(STRANGER).command(env!("CARGO_BIN_EXE_umbel"));
        command.args(["ls", &url, "--token", &format!("guess{guess}")]);
        assert!(!command.output().unwrap().status.success(), "guess {guess}");
    }
    let mut honest = HONEST.map(|host| bench.get(host, &server.url, EVERYTHING));
    for client in &mut honest {
        bench.check_all(client, PATIENCE);
    }
    server.stop();
}

/// Sends wrong symbols of a repository's items, under the server's address or the stranger's own.
/// Returns what the clients say, who have every byte.
fn wrong_symbols(forged: bool) -> Option<Vec<Value>> {
    let lab = town()?;
    let bench = Bench::new(&lab, PLAN);
    let mut server = bench.serve(&["--rate", "10M", "--group", "239.1.2.3"]);
    let group = "239.1.2.3:7702".parse().unwrap();
    let source = (bench.host("h1").addr4(), 7702).into();
    let mark = Mark { tsi: Tsi(0), source, domain: group };
    let attack = forgeries::false_items(forged);
    let stranger = Stranger::start(bench.host(STRANGER), mark, attack);
    let mut honest = HONEST.map(|host| bench.get(host, &server.url, EVERYTHING));
    let summaries = honest.iter_mut().map(|client| bench.check_all(client, PATIENCE)).collect();
    assert!(stranger.stop() > ATTACK);
    server.stop();
    Some(summaries)
}

#[test]
fn r7_wrong_symbols_keep_no_item_from_ending() {
    let Some(summaries) = wrong_symbols(true) else { return };
    assert!(summaries.iter().any(|summary| summary["damaged_blocks"] != 0), "{summaries:?}");
}

#[test]
fn r7_a_group_of_any_source_is_deaf_to_strangers() {
    let Some(summaries) = wrong_symbols(false) else { return };
    assert!(summaries.iter().all(|summary| summary["damaged_blocks"] == 0), "{summaries:?}");
}
