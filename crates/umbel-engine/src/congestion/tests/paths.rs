//! Paths to one receiver.

use std::time::Duration;

use super::link::LinkSpec;
use super::world::*;

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// A path and how long it is used.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    spec: Spec,
    time: f64,
}

/// What came out.
struct Outcome {
    /// Share of the capacity that was delivered, of what random loss leaves.
    used: f64,
    /// Packets sent for each that random loss would need.
    sent: f64,
    /// Time after which half of the capacity is used for the first time, in seconds.
    start: f64,
    /// Median and greatest queueing delay after the start, in milliseconds.
    queue_ms: f64,
    peak_ms: f64,
    /// Bytes lost in queues while starting.
    lost_start: f64,
}

impl Case {
    fn run(&self) -> Outcome {
        let mut spec = self.spec.clone();
        if std::env::var("FULL").is_ok() {
            spec.config.share = crate::congestion::Share::Full;
        }
        let mut world = World::new(spec);
        world.trace = std::env::var("TRACE").is_ok();
        world.run(secs(self.time));
        let link = &world.links[0].spec;
        let loss = self.spec.receivers[0].loss;
        let packets = link.bits(0.0, self.time) / 8.0 / f64::from(PACKET);
        let received = world.receivers[0].received as f64;
        let start = (self.spec.receivers[0].rtt.as_secs_f64() * 20.0).max(1.0).min(self.time / 2.0);
        let capacity = link.rates[0].1;
        let half = world.samples.iter().find(|sample| sample.rate > capacity * 0.5);
        let after: Vec<_> = world.samples.iter().filter(|sample| sample.at > start).collect();
        let mut queues: Vec<_> = after.iter().map(|sample| sample.queue.min(99.0)).collect();
        queues.sort_by(f64::total_cmp);
        let before = world.samples.iter().take_while(|sample| sample.at <= start).last();
        Outcome {
            used: received / packets / (1.0 - loss),
            sent: world.sent as f64 * (1.0 - loss) / received.max(1.0),
            start: half.map_or(99.0, |sample| sample.at),
            queue_ms: queues[queues.len() / 2] * 1e3,
            peak_ms: queues[queues.len() - 1] * 1e3,
            lost_start: before.map_or(0, |sample| sample.dropped) as f64 * f64::from(PACKET),
        }
    }
}

fn duration(rate: f64, rtt: f64) -> f64 {
    let work = (8e8 / rate).min(10.0).min(100.0 * rtt);
    work.max(50.0 * rtt).max(3.0)
}

fn path(rate: f64, rtt_ms: f64, bdp: f64) -> Spec {
    let rtt = rtt_ms / 1e3;
    let queue = (rate / 8.0 * rtt * bdp).max(10.0 * f64::from(PACKET));
    Spec::one(LinkSpec::new(rate, queue), ReceiverSpec::new(0, secs(rtt)))
}

/// All paths.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |what: String, rate: f64, rtt: f64, time: f64, spec: Spec| {
        let name = format!("{} Mbit/s {rtt} ms {what}", rate / 1e6);
        let time = time.max(duration(rate, rtt / 1e3));
        cases.push(Case { name, spec, time });
    };
    // Rates, round trips, queues, and loss one by one.
    for (rate, rtts) in [
        (1e6, &[0.2, 20.0, 300.0][..]),
        (1e7, &[0.2, 2.0, 20.0, 100.0, 300.0]),
        (1e8, &[0.2, 2.0, 20.0, 100.0, 300.0]),
        (1e9, &[0.2, 2.0, 20.0, 100.0]),
        (1e10, &[0.2, 2.0, 20.0]),
    ] {
        for &rtt in rtts {
            for bdp in [0.1, 1.0, 10.0] {
                let losses = if rate > 1e9 { &[0.0, 0.05][..] } else { &[0.0, 0.02, 0.2] };
                for &loss in losses {
                    if (0.01..0.1).contains(&loss) && bdp > 5.0 && rate < 2e9 {
                        continue;
                    }
                    let mut spec = path(rate, rtt, bdp);
                    spec.receivers[0].loss = loss;
                    add(format!("{bdp} BDP, loss {loss}"), rate, rtt, 0.0, spec);
                }
            }
        }
    }
    for (rate, rtt) in [
        (1e6, 20.0),
        (1e7, 2.0),
        (1e7, 40.0),
        (1e8, 1.0),
        (1e8, 20.0),
        (1e8, 100.0),
        (1e9, 0.5),
        (1e9, 10.0),
    ] {
        let base = path(rate, rtt, 1.0);
        let mut with = |what: &str, time: f64, change: &dyn Fn(&mut Spec)| {
            let mut spec = base.clone();
            change(&mut spec);
            add(what.to_string(), rate, rtt, time, spec);
        };
        with("bursts of 10, loss 0.05", 0.0, &|spec| {
            (spec.receivers[0].loss, spec.receivers[0].burst) = (0.05, 10.0);
        });
        with("bursts of 20, loss 0.2", 0.0, &|spec| {
            (spec.receivers[0].loss, spec.receivers[0].burst) = (0.2, 20.0);
        });
        with("policer of 10 packets", 0.0, &|spec| {
            spec.links[0].policer = Some(10.0 * f64::from(PACKET));
        });
        with("policer of 50 ms", 0.0, &|spec| {
            spec.links[0].policer = Some((rate / 8.0 * 0.05).max(2.0 * f64::from(PACKET)));
        });
        with("policer of 500 ms", 10.0, &|spec| {
            spec.links[0].policer = Some(rate / 8.0 * 0.5);
        });
        with("policer of 50 ms, loss 0.05", 0.0, &|spec| {
            spec.links[0].policer = Some((rate / 8.0 * 0.05).max(2.0 * f64::from(PACKET)));
            spec.receivers[0].loss = 0.05;
        });
        with("halves", 10.0, &|spec| spec.links[0].rates = vec![(0.0, rate), (5.0, rate / 2.0)]);
        with("doubles", 10.0, &|spec| spec.links[0].rates = vec![(0.0, rate / 2.0), (5.0, rate)]);
        with("falls to a tenth", 20.0, &|spec| {
            spec.links[0].rates = vec![(0.0, rate), (5.0, rate / 10.0)];
        });
        with("vanishes for 2 s", 10.0, &|spec| {
            spec.links[0].rates = vec![(0.0, rate), (5.0, 0.0), (7.0, rate)];
        });
        with("marks", 0.0, &|spec| {
            let packets = f64::from(PACKET);
            spec.links[0].queue = spec.links[0].queue.max(100.0 * packets);
            spec.links[0].marks = Some((spec.links[0].queue * 0.2).max(20.0 * packets));
        });
        with("jitter 2 ms", 0.0, &|spec| spec.receivers[0].jitter = secs(0.002));
        with("stalls", 0.0, &|spec| spec.receivers[0].stalls = 50.0);
        with("stalls, 0.1 BDP, loss 0.05", 0.0, &|spec| {
            *spec = path(rate, rtt, 0.1);
            (spec.receivers[0].stalls, spec.receivers[0].loss) = (50.0, 0.05);
        });
    }
    cases
}

/// Those that need few packets, and still show each kind of trouble.
fn is_quick(case: &Case) -> bool {
    case.spec.links[0].rates[0].1 < 2e7 && case.spec.receivers[0].rtt < secs(0.05)
}

#[test]
fn paths_are_used_well() {
    let (mut all, mut slow, mut wasteful) = (0, 0, 0);
    for case in cases().iter().filter(|case| is_quick(case)) {
        let out = case.run();
        assert!(out.used > 0.45, "{}: used {}", case.name, out.used);
        assert!(out.sent < 1.7, "{}: sent {}", case.name, out.sent);
        all += 1;
        slow += u32::from(out.used < 0.9);
        wasteful += u32::from(out.sent > 1.15);
    }
    println!("{all} paths: {slow} slow, {wasteful} wasteful");
    assert!(slow * 10 <= all, "{slow} of {all} are slow");
    assert!(wasteful * 10 <= all, "{wasteful} of {all} are wasteful");
}

/// A path that carries a sixtieth for some seconds, and then what it did before.
#[test]
fn what_a_path_carries_again_is_found_again() {
    for (rate, rtt_ms, bdp, loss, policed) in [
        (6e6, 0.2, 1.0, 0.0, false),
        (6e6, 2.0, 10.0, 0.0, false),
        (6e6, 20.0, 1.0, 0.0, false),
        (6e6, 20.0, 1.0, 0.05, false),
        (6e6, 20.0, 1.0, 0.0, true),
        (1e8, 2.0, 1.0, 0.0, false),
    ] {
        for lasts in [0.5, 2.0, 5.0] {
            let mut spec = path(rate, rtt_ms, bdp);
            let link = &mut spec.links[0];
            link.policer = policed.then_some(rate / 8.0 * 0.05);
            link.rates = vec![(0.0, rate), (4.0, rate / 60.0), (4.0 + lasts, rate)];
            spec.receivers[0].loss = loss;
            let mut world = World::new(spec);
            world.run(secs(4.0 + lasts + 5.0));
            let before = world.receivers[0].received;
            world.run(secs(4.0 + lasts + 8.0));
            let carried = (world.receivers[0].received - before) as f64 * f64::from(PACKET) * 8.0;
            let used = carried / (3.0 * rate * (1.0 - loss));
            let what =
                format!("{rtt_ms} ms, {bdp} BDP, loss {loss}, policer: {policed}, {lasts} s");
            assert!(used > 0.9, "{rate} bit/s, {what}: {used}");
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn table() {
    let only = std::env::var("ONLY").unwrap_or_default();
    println!(
        "{:<46} {:>6} {:>6} {:>6} {:>7} {:>7} {:>9}",
        "path", "used", "sent", "start", "queue", "peak", "lost"
    );
    let (mut all, mut slow, mut waste) = (0, 0, 0);
    for case in cases() {
        if !only.split(';').all(|part| case.name.contains(part)) {
            continue;
        }
        let out = case.run();
        let bad = out.used < 0.91 || out.sent > 1.15 || out.queue_ms > 50.0 || out.lost_start > 2e6;
        all += 1;
        slow += u32::from(out.used < 0.91);
        waste += u32::from(out.sent > 1.15);
        println!(
            "{:<46} {:6.3} {:6.3} {:6.2} {:7.1} {:7.1} {:9.0}{}",
            case.name,
            out.used,
            out.sent,
            out.start,
            out.queue_ms,
            out.peak_ms,
            out.lost_start,
            if bad { " !" } else { "" }
        );
    }
    println!("{all} paths: {slow} slow, {waste} wasteful");
}
