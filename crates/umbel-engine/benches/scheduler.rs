//! Measures the scheduler's choices and its upkeep.
//!
//! A catalog of a million items, about a hundred thousand requests. Each chosen item is held while
//! the next ones are chosen. Then its clients have it, and clients that have all their items come
//! back with a new request. Run with `cargo bench -p umbel-engine --bench scheduler`; an argument
//! restricts the run to the kinds whose names contain it.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant as Clock};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use umbel_engine::chance::uniform;
use umbel_engine::repository::scheduler::{Scheduler, SchedulerKind};
use umbel_engine::{Instant, SessionId};
use umbel_wire::Toi;

const CATALOG: u32 = 1_000_000;
const CHOICES: usize = 1500;
const REPETITIONS: usize = 3;
/// Number of items that are held at a time.
const IN_FLIGHT: usize = 4;

#[derive(Clone, Copy)]
enum Popularity {
    Uniform,
    Zipf,
}

/// Clients that have an item once it was sent, and sizes of items.
#[derive(Clone, Copy)]
enum Churn {
    /// All clients; items of one symbol, so that ties abound.
    All,
    /// All but one in eight, which are missing a part; items of 1 to 64 symbols.
    Most,
}

/// A random stream and the popularity of items by rank.
struct Draw<'a> {
    rng: Xoshiro256PlusPlus,
    /// Cumulative shares under Zipf's law.
    zipf: &'a [f64],
}

fn zipf() -> Vec<f64> {
    let mut sum = 0.0;
    let cumulative = (1..=CATALOG).map(|rank| {
        sum += 1.0 / f64::from(rank);
        sum
    });
    cumulative.collect()
}

impl Draw<'_> {
    fn new(zipf: &[f64]) -> Draw<'_> {
        Draw { rng: Xoshiro256PlusPlus::seed_from_u64(1), zipf }
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.rng.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    fn item(&mut self, popularity: Popularity) -> Toi {
        let rank = match popularity {
            Popularity::Uniform => self.below(CATALOG),
            Popularity::Zipf => {
                let total = self.zipf[self.zipf.len() - 1];
                let at = uniform(&mut self.rng) * total;
                self.zipf.partition_point(|&sum| sum < at) as u32
            }
        };
        // Popularity is independent of the order of ids.
        Toi(rank.wrapping_mul(0x9E37_79B1) % CATALOG)
    }
}

/// Time spent in calls of one kind.
#[derive(Default)]
struct Tally {
    calls: u32,
    time: Duration,
}

impl Tally {
    fn measure(&mut self, calls: usize, call: impl FnOnce()) {
        let start = Clock::now();
        call();
        self.time += start.elapsed();
        self.calls += calls as u32;
    }

    fn ns(&self) -> u128 {
        self.time.as_nanos() / u128::from(self.calls.max(1))
    }
}

struct Run {
    scheduler: Scheduler,
    popularity: Popularity,
    churn: Churn,
    items_per_client: usize,
    now: Instant,
    add: Tally,
    remove: Tally,
    unhold_max: Duration,
}

impl Run {
    fn size(&self, item: Toi) -> u64 {
        match self.churn {
            Churn::All => 1,
            Churn::Most => 1 + u64::from(item.0.wrapping_mul(0x85EB_CA6B) >> 26),
        }
    }

    fn request(&mut self, draw: &mut Draw<'_>, client: SessionId) {
        let mut items = BTreeSet::new();
        while items.len() < self.items_per_client {
            items.insert(draw.item(self.popularity));
        }
        self.now += Duration::from_micros(1);
        let wanted: Vec<_> = items.into_iter().map(|item| (item, self.size(item))).collect();
        let (scheduler, now) = (&mut self.scheduler, self.now);
        self.add.measure(wanted.len(), || {
            for &(item, size) in &wanted {
                scheduler.add(now, client, item, size);
            }
        });
    }

    /// Delivers a sent item to its clients.
    fn deliver(&mut self, draw: &mut Draw<'_>, item: Toi) {
        let clients: Vec<SessionId> = self.scheduler.clients(item).collect();
        let partly = matches!(self.churn, Churn::Most);
        let lacking = |i: usize| partly && i % 8 == 7;
        let having: Vec<_> =
            clients.iter().enumerate().filter(|&(i, _)| !lacking(i)).map(|(_, &c)| c).collect();
        let scheduler = &mut self.scheduler;
        self.remove.measure(having.len(), || {
            for &client in &having {
                scheduler.remove(client, item);
            }
        });
        for (i, &client) in clients.iter().enumerate() {
            if lacking(i) {
                self.scheduler.resize(client, item, 1 + u64::from(draw.below(3)));
            } else if self.scheduler.outstanding(client) == 0 {
                self.request(draw, client);
            }
        }
        let start = Clock::now();
        self.scheduler.unhold(item);
        self.unhold_max = self.unhold_max.max(start.elapsed());
    }
}

/// Measurements of one scenario.
struct Measured {
    choices: Vec<Duration>,
    add_ns: u128,
    remove_ns: u128,
    unhold_max: Duration,
}

fn play(
    kind: SchedulerKind,
    zipf: &[f64],
    shape: (u64, usize),
    how: (Popularity, Churn),
) -> Measured {
    let draw = &mut Draw::new(zipf);
    let mut run = Run {
        scheduler: Scheduler::new(kind),
        popularity: how.0,
        churn: how.1,
        items_per_client: shape.1,
        now: Instant::EPOCH,
        add: Tally::default(),
        remove: Tally::default(),
        unhold_max: Duration::ZERO,
    };
    for client in 0..shape.0 {
        run.scheduler.set_fill(SessionId(client), 1.0 - f64::from(draw.below(20)) / 100.0);
        run.request(draw, SessionId(client));
    }
    let mut choices = Vec::with_capacity(CHOICES);
    let mut in_flight = VecDeque::new();
    while choices.len() < CHOICES {
        run.now += Duration::from_micros(100);
        let before = Clock::now();
        let chosen = run.scheduler.choose(run.now);
        choices.push(before.elapsed());
        let Some(item) = chosen else { break };
        run.scheduler.hold(item);
        in_flight.push_back(item);
        if in_flight.len() > IN_FLIGHT
            && let Some(item) = in_flight.pop_front()
        {
            run.deliver(draw, item);
        }
    }
    let (add_ns, remove_ns) = (run.add.ns(), run.remove.ns());
    Measured { choices, add_ns, remove_ns, unhold_max: run.unhold_max }
}

/// Plays a scenario several times and takes the least of each measurement. The runs are equal, so
/// the rest of the machine causes their differences.
fn scenario(kind: SchedulerKind, zipf: &[f64], shape: (u64, usize), how: (Popularity, Churn)) {
    let mut least = play(kind, zipf, shape, how);
    for _ in 1..REPETITIONS {
        let again = play(kind, zipf, shape, how);
        for (least, again) in least.choices.iter_mut().zip(again.choices) {
            *least = again.min(*least);
        }
        least.add_ns = least.add_ns.min(again.add_ns);
        least.remove_ns = least.remove_ns.min(again.remove_ns);
        least.unhold_max = least.unhold_max.min(again.unhold_max);
    }
    least.choices.sort_unstable();
    let us = |share: f64| {
        let at = ((least.choices.len() - 1) as f64 * share) as usize;
        least.choices[at].as_nanos() as f64 / 1000.0
    };
    println!(
        "{:<8} {:>6} × {:<6} {:<8} {:<5} {:>8.2} {:>8.2} {:>8.2} {:>7} {:>7} {:>9.1}",
        kind.name(),
        shape.0,
        shape.1,
        if matches!(how.0, Popularity::Zipf) { "zipf" } else { "uniform" },
        if matches!(how.1, Churn::All) { "all" } else { "most" },
        us(0.5),
        us(0.99),
        us(1.0),
        least.add_ns,
        least.remove_ns,
        least.unhold_max.as_nanos() as f64 / 1000.0,
    );
}

/// Measures entering and serving the requests of clients that all want the same items.
fn crowd(clients: u64, items: u32) {
    let before = resident_bytes();
    let mut scheduler = Scheduler::new(SchedulerKind::Rq);
    let start = Clock::now();
    for client in 0..clients {
        for item in 0..items {
            scheduler.add(Instant::EPOCH, SessionId(client), Toi(item), 1);
        }
    }
    let entered = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) as f64 / scheduler.len().max(1) as f64;
    let mut slowest = Duration::ZERO;
    let start = Clock::now();
    loop {
        let before = Clock::now();
        let Some(item) = scheduler.choose(Instant::EPOCH) else { break };
        slowest = slowest.max(before.elapsed());
        let wanting: Vec<SessionId> = scheduler.clients(item).collect();
        for client in wanting {
            scheduler.remove(client, item);
        }
    }
    println!(
        "rq, {clients} clients × the same {items} items: entered in {:.2} s, {bytes:.0} bytes a \
         request, served in {:.2} s, slowest choice {:.1} µs",
        entered.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        slowest.as_nanos() as f64 / 1000.0,
    );
}

/// Returns the resident memory of this process; 0 if the system does not report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |kind: &SchedulerKind| only.as_deref().is_none_or(|o| kind.name().contains(o));
    if only.as_deref().is_none_or(|only| only == "crowd") {
        crowd(200, 10_000);
        crowd(1, 20_000);
    }
    println!(
        "{:<8} {:>15} {:<8} {:<5} {:>8} {:>8} {:>8} {:>7} {:>7} {:>9}",
        "",
        "clients × items",
        "",
        "churn",
        "median",
        "p99",
        "max µs",
        "add ns",
        "rem ns",
        "unhold µs"
    );
    let zipf = zipf();
    for kind in SchedulerKind::ALL.into_iter().filter(wanted) {
        for popularity in [Popularity::Uniform, Popularity::Zipf] {
            for churn in [Churn::All, Churn::Most] {
                for shape in [(10_000, 10), (1000, 100), (100, 1000), (5, 20_000)] {
                    scenario(kind, &zipf, shape, (popularity, churn));
                }
            }
        }
    }
}
