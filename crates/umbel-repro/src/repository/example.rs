//! The example of [Repository §2.2]: three clients, four items, no loss.

use umbel_engine::repository::scheduler::{Scheduler, SchedulerKind};
use umbel_engine::{Instant, SessionId};
use umbel_sim::repository::ClientHost;
use umbel_sim::{NetworkError, NodeId};
use umbel_wire::Toi;

use super::choices::Choices;
use super::point::{Arrival, ITEM_PACKETS, PACKET_TIME, Period, Point, Share};
use crate::output::Row;

/// Items that A, B and C want.
const WANTED: [&[u32]; 3] = [&[1, 2, 3], &[2, 4], &[2, 3]];

/// Returns the rows of the table about the example.
///
/// # Panics
///
/// If the network cannot be built, which does not depend on anything.
pub(super) fn rows() -> Vec<Row> {
    let exact = |what: String, reported: &str, measured: f64, value: f64| {
        Row::new("example", what, reported, (measured, ""), (value - 1e-9, value + 1e-9))
    };
    let mut scheduler = scheduler();
    let mut rows = Vec::new();
    let scores = [(1, "1/3", 1.0 / 3.0), (2, "3/2", 1.5), (3, "1", 1.0), (4, "1/2", 0.5)];
    for (item, reported, value) in scores {
        let score = scheduler.score(Instant::EPOCH, Toi(item));
        let score = score.map_or(f64::NAN, |s| s.numerator() as f64 / s.denominator() as f64);
        rows.push(exact(format!("R/Q score of item {item}"), reported, score, value));
    }
    let order = order(&mut scheduler);
    let what = "order of the items, as one number".to_owned();
    rows.push(exact(what, "2, 3, then 1 and 4 in any order", order, 2314.0));
    let delays = delays().unwrap_or_else(|error| panic!("{error}"));
    for ((client, delay), value) in ["A", "B", "C"].into_iter().zip(delays).zip([3.0, 4.0, 2.0]) {
        let what = format!("delay of client {client}");
        // The arrival of requests and the departure of the last packet shift this by less than a
        // packet's time.
        let bounds = (value - 0.02, value + 0.02);
        rows.push(Row::new("example", what, value.to_string(), (delay, "items"), bounds));
    }
    let mean = delays.iter().sum::<f64>() / 3.0;
    rows.push(Row::new("example", "mean delay", "3", (mean, "items"), (2.98, 3.02)));
    rows
}

fn scheduler() -> Scheduler {
    let mut scheduler = Scheduler::new(SchedulerKind::Rq);
    for (client, items) in (0..).map(SessionId).zip(WANTED) {
        for &item in items {
            scheduler.add(Instant::EPOCH, client, Toi(item), 1);
        }
    }
    scheduler
}

/// Returns the items in the order in which they are chosen, as decimal digits.
fn order(scheduler: &mut Scheduler) -> f64 {
    let mut digits = 0;
    while let Some(item) = scheduler.choose(Instant::EPOCH) {
        digits = 10 * digits + item.0;
        for client in (0..3).map(SessionId) {
            scheduler.remove(client, item);
        }
    }
    f64::from(digits)
}

/// Runs the example on the engines and returns the clients' delays, counted in items. The three
/// clients arrive while the channel is busy with something else; their time counts from its end.
fn delays() -> Result<[f64; 3], NetworkError> {
    let second = Instant::from_nanos(1_000_000_000);
    let arrival = |at, wanted: &[u32]| Arrival {
        at,
        loss: Share::default(),
        wanted: wanted.iter().copied().map(Toi).collect(),
    };
    let mut arrivals = vec![arrival(Instant::EPOCH, &[5])];
    arrivals.extend(WANTED.map(|wanted| arrival(second, wanted)));
    let point = Point {
        policy: "R(inf)".to_owned(),
        fill: false,
        known_loss: false,
        server_loss: Share::default(),
        client_loss: Share::default(),
        bad_clients: Share::default(),
        choices: Choices::default(),
        period: Period::default(),
    };
    let mut simulation = point.build(1, &arrivals)?;
    let item_time = PACKET_TIME * u32::from(ITEM_PACKETS);
    simulation.run_until(Instant::EPOCH + item_time * 10);
    let done = |client: u32| {
        let host = simulation.app::<ClientHost>(NodeId(client + 2))?;
        let (arrived, delay) = (host.host().arrived()?, host.host().delay()?);
        Some(arrived + delay)
    };
    let start = done(0);
    Ok([1, 2, 3].map(|client| match (start, done(client)) {
        (Some(start), Some(end)) => end.since(start).as_secs_f64() / item_time.as_secs_f64(),
        _ => f64::NAN,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Verdict;

    #[test]
    fn the_example_comes_out_exactly() {
        let rows = rows();
        assert_eq!(rows.len(), 9);
        for row in rows {
            assert_eq!(row.verdict(), Verdict::Ok, "{row:?}");
        }
    }
}
