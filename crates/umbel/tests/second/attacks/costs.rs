//! Delay of honest receivers because a stranger sends a thousand datagrams a second, for each
//! attack on its own.
//!
//! `cargo test -p umbel --test second attacks::costs -- --ignored --nocapture` prints the table of
//! docs/security.md. `ATTACK_PAIRS` is the number of pairs of transfers, with and without, by
//! turns; `ATTACK_ONLY` is a part of the names of those that are wanted. `ATTACK_BYTES` is the
//! length of the larger file, and `ATTACK_PER_S` the number of datagrams a second.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::forgeries::{self, Announced, Sniffed};
use super::greedy::Greedy;
use super::pipes::Pipe;
use super::stranger::{Heard, Mark, Stranger, Voice};
use super::town::{Door, HONEST, SHAPE, STRANGER, STRANGERS, sniff, town_with};
use crate::support::bench::{Bench, EVERYTHING};
use crate::support::feeds::Feeds;
use crate::support::{files, lab, star};
use umbel_lab::{Impairment, Lab};
use umbel_wire::Tsi;

const PATIENCE: Duration = Duration::from_mins(3);
/// Bytes of the larger of the files that are sent: about 4 s at 10 Mbit/s.
const BYTES: usize = 5_000_000;
/// Datagrams of an attack a second.
const PER_S: usize = 1_000;
/// Most calls of an attack in a turn, about a millisecond.
const CALLS: u32 = 40;
/// Most datagrams that wait for an attack's turn.
const WAITING: usize = 4_096;

type Attack = Box<dyn FnMut(&mut Voice, &[Heard]) + Send>;
type Make = fn(mpsc::Receiver<Sniffed>) -> Attack;

/// Who attacks.
#[derive(Clone, Copy)]
enum Who {
    One(Make),
    /// Each on a host of its own.
    Several(&'static [Make]),
    /// A client that asks for far more than its share, in this role.
    Greedy(&'static str),
    /// The same, of a server on its own host that nobody else asks: what the attack costs because
    /// all hosts of the lab have the same processors.
    Elsewhere(&'static str),
}

/// A way to transfer files to the honest receivers.
#[derive(Clone, Copy, Debug)]
enum Way {
    Feed(Door),
    /// The larger file as a pipe, sealed or not.
    Pipe(bool),
    /// A repository, with or without a token.
    Repository(bool),
}

/// Makes an attack send a number of datagrams a second: not more, and not less even where it says
/// something only now and then. Datagrams that it hears meanwhile wait for its next turn.
fn steadily(mut attack: Attack) -> Attack {
    let per_s = setting("ATTACK_PER_S", PER_S) as u64;
    let start = Instant::now();
    let mut waiting: Vec<Heard> = Vec::new();
    Box::new(move |voice, heard| {
        let copies = heard.iter().map(|Heard { from, bytes, to_me }| Heard {
            from: *from,
            bytes: bytes.clone(),
            to_me: *to_me,
        });
        waiting.extend(copies);
        let due = start.elapsed().as_millis() as u64 * per_s / 1_000;
        let mut new = std::mem::take(&mut waiting);
        for _ in 0..CALLS {
            if voice.sent() >= due {
                break;
            }
            attack(voice, &new);
            new.clear();
        }
        waiting = new;
        waiting.truncate(WAITING);
    })
}

/// Those who attack one transfer.
struct Strangers {
    strangers: Vec<Stranger>,
    greedy: Option<Greedy>,
}

impl Strangers {
    /// Starts them. One of them learns what was `told`.
    fn start(
        who: Option<Who>,
        lab: &Lab,
        mark: Mark,
        told: mpsc::Receiver<Sniffed>,
        url: &str,
    ) -> Strangers {
        let makes: &[Make] = match &who {
            Some(Who::One(make)) => std::slice::from_ref(make),
            Some(Who::Several(makes)) => makes,
            Some(Who::Greedy(_) | Who::Elsewhere(_)) | None => &[],
        };
        let mut told = Some(told);
        let strangers = STRANGERS.into_iter().zip(makes).map(|(host, make)| {
            let told = told.take().unwrap_or_else(|| mpsc::channel().1);
            Stranger::start(lab.host(host).unwrap(), mark, steadily(make(told)))
        });
        let strangers = strangers.collect();
        let greedy = match who {
            Some(Who::Greedy(role) | Who::Elsewhere(role)) => {
                Some(Greedy::start(lab.host(STRANGER).unwrap(), role, url))
            }
            _ => None,
        };
        Strangers { strangers, greedy }
    }

    /// Stops them. Returns the number of datagrams that they have sent.
    fn stop(self) -> u64 {
        if let Some(mut greedy) = self.greedy {
            assert!(greedy.is_at_it(), "it has given up");
        }
        self.strangers.into_iter().map(Stranger::stop).sum()
    }
}

/// Returns a number of the environment, or what holds without it.
fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Transfers once, while strangers are at it. Returns the time until the last honest receiver has
/// every byte, and the datagrams that strangers sent a second.
fn transfer(way: Way, who: Option<Who>) -> Option<(f64, f64)> {
    let lab = town_with(STRANGERS.len())?;
    let plan: &files::Plan<'_> =
        &[("large", setting("ATTACK_BYTES", BYTES) as u64), ("small", 1_000)];
    let (_, nothing) = mpsc::channel();
    let (start, strangers) = match way {
        Way::Feed(door) => {
            let feeds = Feeds::new(&lab, plan);
            let options = door.of_sender(&feeds);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let sender = feeds.send(&options);
            let mark = Mark::of(&sender.events("sending").remove(0));
            let (_tap, told) = sniff(&lab, feeds.host(STRANGER));
            let strangers = Strangers::start(who, &lab, mark, told, "");
            let start = Instant::now();
            for receiver in &mut door.receivers(&feeds) {
                feeds.check(receiver, PATIENCE);
            }
            (start, strangers)
        }
        Way::Pipe(sealed) => {
            let feeds = Feeds::new(&lab, plan);
            let pipe = Pipe::send(&feeds, sealed);
            let strangers = Strangers::start(who, &lab, pipe.mark, nothing, "");
            let start = Instant::now();
            for receiver in pipe.receive(&feeds) {
                Pipe::check(&feeds, receiver);
            }
            (start, strangers)
        }
        Way::Repository(token) => {
            let bench = Bench::new(&lab, plan);
            let mut options = vec!["--rate", "10M", "--group", "239.1.2.3"];
            options.extend(["--token", "sesame"].into_iter().filter(|_| token));
            let server = bench.serve(&options);
            let group = "239.1.2.3:7702".parse().unwrap();
            let source = (bench.host("h1").addr4(), 7702).into();
            let mark = Mark { tsi: Tsi(0), source, domain: group };
            let elsewhere = matches!(who, Some(Who::Elsewhere(_)))
                .then(|| bench.serve_as((STRANGER, "elsewhere"), &["--token", "sesame"]));
            let asked = elsewhere.as_ref().map_or(&server.url, |other| &other.url);
            let strangers = Strangers::start(who, &lab, mark, nothing, asked);
            let start = Instant::now();
            for client in &mut HONEST.map(|host| bench.get(host, &server.url, EVERYTHING)) {
                bench.check_all(client, PATIENCE);
            }
            (start, strangers)
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    Some((seconds, strangers.stop() as f64 / seconds))
}

fn reporter() -> Attack {
    Box::new(forgeries::reporter(HONEST.map(str::to_owned).to_vec()))
}

fn beggar() -> Attack {
    Box::new(forgeries::beggar(Arc::<AtomicU64>::default()))
}

/// Repeats what it hears on a channel, as it was and altered.
fn repeater() -> Attack {
    Box::new(|voice, heard| {
        let Mark { source, domain, .. } = voice.mark;
        for one in heard {
            voice.say_as(source, domain, &one.bytes);
            let mut altered = one.bytes.clone();
            if let Some(last) = altered.last_mut() {
                *last ^= 1;
            }
            voice.say_as(source, domain, &altered);
        }
    })
}

fn announced(how: Announced) -> Attack {
    Box::new(forgeries::false_announcements(how, "feed"))
}

/// Returns all attacks, with their numbers in the review.
fn attacks() -> Vec<(&'static str, Way, Who)> {
    let (open, token, list) = (Door::Open, Door::Token, Door::List);
    let feeds: [(&str, Door, Make); 28] = [
        ("C1 forged heads", open, |_| Box::new(forgeries::false_heads())),
        ("C1 false shapes", open, |_| Box::new(forgeries::false_shapes())),
        ("C1 wrong symbols", open, |_| Box::new(forgeries::false_symbols(SHAPE.0, SHAPE.1))),
        ("C1 wrong symbols", list, |_| Box::new(forgeries::false_symbols(SHAPE.0, SHAPE.1))),
        ("C3 deletions", open, |_| announced(Announced::Deleted)),
        ("C3 another source", open, |_| announced(Announced::Shadowed)),
        ("C3 changed announcements", open, |_| announced(Announced::Replaced)),
        ("C3 flood of announcements", open, |_| announced(Announced::Flooded)),
        ("H1 wavering child", open, |_| Box::new(forgeries::waverer())),
        ("H2 refusals", open, |_| Box::new(forgeries::refuser())),
        ("H3 forged end", open, |_| Box::new(forgeries::truncator())),
        ("H4 usurper", open, |_| Box::new(forgeries::usurper())),
        ("H5 beggar", open, |_| beggar()),
        ("H5 beggar", token, |_| beggar()),
        ("H5 beggar", list, |_| beggar()),
        ("H5 relay", token, |_| Box::new(forgeries::relay())),
        ("H5 relay", list, |_| Box::new(forgeries::relay())),
        ("H5 replay of what was sniffed", token, |told| Box::new(forgeries::sniffer(told))),
        ("H5 replay of what was sniffed", list, |told| Box::new(forgeries::sniffer(told))),
        ("H6 reports for others", open, |_| reporter()),
        ("H7 requests for others", open, |_| Box::new(forgeries::asker())),
        ("C1 wrong symbols of the source", open, |_| {
            Box::new(forgeries::false_repairs_of_source(SHAPE.0, SHAPE.1))
        }),
        ("H7 replay of what was sniffed", open, |told| Box::new(forgeries::sniffer(told))),
        ("H7 impostor", open, |told| Box::new(forgeries::impostor(told))),
        ("H7 impostor", token, |told| Box::new(forgeries::impostor(told))),
        ("H7 impostor", list, |told| Box::new(forgeries::impostor(told))),
        ("replay of what was heard", open, |_| Box::new(forgeries::echo())),
        ("nothing at all", open, |_| Box::new(|_, _| {})),
    ];
    let pipes: [(&str, bool, Make); 5] = [
        ("C1 wrong symbols", false, |_| Box::new(forgeries::false_symbols(SHAPE.0, SHAPE.1))),
        ("C1 wrong symbols", true, |_| Box::new(forgeries::false_symbols(SHAPE.0, SHAPE.1))),
        ("C2 blocks of another", false, |_| Box::new(forgeries::false_pipe(b"rm -rf evil\n"))),
        ("H3 forged end", false, |_| Box::new(forgeries::truncator())),
        ("H3 forged end", true, |_| Box::new(forgeries::truncator())),
    ];
    let several: [(&str, Way, Who); 7] = [
        (
            "three strangers: C1 wrong symbols, H2, H4",
            Way::Feed(open),
            Who::Several(&[
                |_| Box::new(forgeries::false_symbols(SHAPE.0, SHAPE.1)),
                |_| Box::new(forgeries::refuser()),
                |_| Box::new(forgeries::usurper()),
            ]),
        ),
        ("R2 demands for very much", Way::Repository(true), Who::Greedy("wants")),
        ("R3 questions without end", Way::Repository(true), Who::Greedy("questions")),
        ("R4 probes", Way::Repository(true), Who::Greedy("probes")),
        ("R5 sessions", Way::Repository(true), Who::Greedy("sessions")),
        ("R5 sessions of another server", Way::Repository(true), Who::Elsewhere("sessions")),
        ("R6 guesses of the token", Way::Repository(true), Who::Greedy("guesses")),
    ];
    let repositories: [(&str, bool, Make); 6] = [
        ("R1 replay and alteration", true, |_| repeater()),
        ("R7 wrong symbols", false, |_| Box::new(forgeries::false_items(false))),
        ("R7 wrong symbols under the server's address", false, |_| {
            Box::new(forgeries::false_items(true))
        }),
        ("R7 wrong symbols under the server's address", true, |_| {
            Box::new(forgeries::false_items(true))
        }),
        ("R7 repair symbols alone", false, |_| Box::new(forgeries::false_repairs(0))),
        ("R7 repair symbols alone, of later transmissions", false, |_| {
            Box::new(forgeries::false_repairs(1_000))
        }),
    ];
    let feeds = feeds.map(|(name, door, make)| (name, Way::Feed(door), Who::One(make)));
    let pipes = pipes.map(|(name, sealed, make)| (name, Way::Pipe(sealed), Who::One(make)));
    let repositories =
        repositories.map(|(name, token, make)| (name, Way::Repository(token), Who::One(make)));
    feeds.into_iter().chain(pipes).chain(repositories).chain(several).collect()
}

fn name_of(way: Way) -> &'static str {
    match way {
        Way::Feed(Door::Open) => "`send`",
        Way::Feed(Door::Token) => "`send --token`",
        Way::Feed(Door::List) => "`send --admit`",
        Way::Pipe(false) => "`send -`",
        Way::Pipe(true) => "`send - --admit`",
        Way::Repository(false) => "`serve`",
        Way::Repository(true) => "`serve --token`",
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[test]
#[ignore = "takes many minutes; measures"]
fn what_each_attack_costs() {
    if lab(&star(1, Impairment::none())).is_none() {
        return;
    }
    let pairs = setting("ATTACK_PAIRS", 5);
    let only = std::env::var("ATTACK_ONLY").unwrap_or_default();
    println!("| attack | on | datagrams a second | without, s | with, s | ratio | of the pairs |");
    println!("|---|---|---|---|---|---|---|");
    for (name, way, who) in attacks() {
        if !format!("{name} {}", name_of(way)).contains(&only) {
            continue;
        }
        let (mut without, mut with, mut rates, mut ratios) = (vec![], vec![], vec![], vec![]);
        for pair in 0..pairs {
            // Which comes first changes, so that a machine that gets busier favours neither.
            let first = if pair % 2 == 0 { None } else { Some(who) };
            let second = if pair % 2 == 0 { Some(who) } else { None };
            let mut times = [0.0; 2];
            for who in [first, second] {
                let (seconds, rate) = transfer(way, who).unwrap();
                times[usize::from(who.is_some())] = seconds;
                if who.is_some() {
                    rates.push(rate);
                }
            }
            let [calm, attacked] = times;
            without.push(calm);
            with.push(attacked);
            ratios.push(attacked / calm);
        }
        let (least, most) = ratios
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), &ratio| (least.min(ratio), most.max(ratio)));
        let (rate, way) = (median(rates), name_of(way));
        let (without, with) = (median(without), median(with));
        println!(
            "| {name} | {way} | {rate:.0} | {without:.2} | {with:.2} | {:.2} | {least:.2}–{most:.2} |",
            median(ratios)
        );
    }
}
