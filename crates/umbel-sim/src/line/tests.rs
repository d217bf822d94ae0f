use std::time::Duration;

use proptest::prelude::*;
use umbel_engine::units::{ByteCount, Rate};

use super::*;
use crate::link::{RedConfig, ScriptedLoss};
use crate::packet::Kinds;
use crate::random::Purpose;

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

/// Returns a link on which 1,000 bytes take 1 ms.
fn slow() -> LinkSpec {
    LinkSpec::default().rate(Rate::from_bits_per_s(8_000_000).unwrap())
}

fn line(spec: LinkSpec) -> Line {
    let treatment = Arc::new(Treatment::new(spec).unwrap());
    Line::new(treatment, || random::stream(1, Purpose::Link, 0))
}

/// Returns which of `count` packets a line loses.
fn losses(spec: LinkSpec, count: usize) -> Vec<bool> {
    let mut line = line(spec);
    (0..count).map(|_| !line.passes(Kind::Data, FlowId(0))).collect()
}

fn share(losses: &[bool]) -> f64 {
    losses.iter().filter(|lost| **lost).count() as f64 / losses.len() as f64
}

#[test]
fn without_a_rate_only_the_delay_counts() {
    let mut line = line(LinkSpec::default().delay(Duration::from_micros(7)));
    assert_eq!(line.offer(at(1), 1_000), Ok(at(8)));
    assert_eq!(line.offer(at(1), 9_000), Ok(at(8)));
}

#[test]
fn packets_wait_for_the_rate_and_arrive_after_the_delay() {
    let mut line = line(slow().delay(Duration::from_micros(50)));
    assert_eq!(line.offer(at(0), 1_000), Ok(at(1_050)));
    assert_eq!(line.offer(at(0), 500), Ok(at(1_550)));
    // The line has been idle since 1,500.
    assert_eq!(line.offer(at(9_000), 1_000), Ok(at(10_050)));
}

#[test]
fn a_queue_with_preference_keeps_its_last_places_for_the_lower_layers() {
    let mut line = line(slow().queue(Queue::Preference { limit: 12, classes: 3 }));
    let mut offer = |kind| line.offer_of(kind, at(0), 1_000).is_ok();
    // 12, 10 and 8 places.
    assert_eq!((0..20).filter(|_| offer(Kind::Other(2))).count(), 8);
    assert_eq!((0..20).filter(|_| offer(Kind::Other(1))).count(), 2);
    assert_eq!((0..20).filter(|_| offer(Kind::Other(0))).count(), 2);
    assert!(!offer(Kind::Control) && !offer(Kind::Other(200)));
}

#[test]
fn a_full_queue_drops_the_newest_packet() {
    let mut line = line(slow().queue(Queue::DropTailPackets(2)));
    assert_eq!(line.offer(at(0), 1_000), Ok(at(1_000)));
    assert_eq!(line.offer(at(0), 1_000), Ok(at(2_000)));
    assert_eq!(line.offer(at(999), 1_000), Err(Refusal::Queue));
    // The first packet has been sent.
    assert_eq!(line.offer(at(1_000), 1_000), Ok(at(3_000)));
    assert_eq!(line.queue_drops(), 1);
}

#[test]
fn a_queue_of_bytes_counts_bytes_but_takes_any_packet_when_it_is_empty() {
    let mut line = line(slow().queue(Queue::DropTailBytes(ByteCount(1_500))));
    assert_eq!(line.offer(at(0), 9_000), Ok(at(9_000)));
    assert_eq!(line.offer(at(0), 100), Err(Refusal::Queue));
    assert_eq!(line.offer(at(9_000), 1_000), Ok(at(10_000)));
    assert_eq!(line.backlog_bytes(at(9_500)), 1_000);
    assert_eq!(line.offer(at(9_500), 500), Ok(at(10_500)));
    assert_eq!(line.offer(at(9_500), 1), Err(Refusal::Queue));
}

#[test]
fn a_line_that_is_down_takes_nothing() {
    let mut line = line(LinkSpec::default());
    line.set_up(false);
    assert_eq!(line.offer(at(0), 1), Err(Refusal::Down));
    line.set_up(true);
    assert_eq!(line.offer(at(0), 1), Ok(at(0)));
}

#[test]
fn jitter_spreads_arrivals_and_keeps_their_order() {
    let (delay, jitter) = (Duration::from_micros(100), Duration::from_micros(50));
    let mut line = line(LinkSpec { jitter, ..LinkSpec::default().delay(delay) });
    let mut last = Instant::EPOCH;
    let mut delays = Vec::new();
    for n in 0..1_000 {
        // Far enough apart that no packet has to wait for its predecessor.
        let sent = at(n * 200);
        let arrival = line.offer(sent, 100).unwrap();
        assert!(arrival >= last);
        delays.push((arrival - sent).as_nanos() as f64);
        last = arrival;
    }
    assert!(delays.iter().all(|delay| (50_000.0..=150_000.0).contains(delay)));
    let mean = delays.iter().sum::<f64>() / 1_000.0;
    assert!((mean - 100_000.0).abs() < 3_000.0, "{mean}");
    let crowd: Vec<_> = (0..50).map(|_| line.offer(at(1_000_000), 100).unwrap()).collect();
    assert!(crowd.is_sorted());
}

#[test]
fn independent_loss_hits_its_share() {
    let losses = losses(LinkSpec::default().loss(Loss::Bernoulli(0.1)), 50_000);
    assert!((share(&losses) - 0.1).abs() < 0.005);
    let after_loss: Vec<bool> = losses.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
    assert!((share(&after_loss) - 0.1).abs() < 0.02);
}

#[test]
fn bursts_keep_their_share_and_their_length() {
    let losses = losses(LinkSpec::default().loss(Loss::bursts(0.1, 5.0)), 200_000);
    assert!((share(&losses) - 0.1).abs() < 0.01);
    let runs = losses.windows(2).filter(|w| !w[0] && w[1]).count();
    let mean = losses.iter().filter(|lost| **lost).count() as f64 / runs as f64;
    assert!((mean - 5.0).abs() < 0.3, "{mean}");
}

#[test]
fn both_states_of_the_chain_have_their_own_loss() {
    // In the bad state one packet in three is lost, and the chain is in it for 1 of 5.
    let loss = Loss::GilbertElliott {
        good_to_bad: 0.05,
        bad_to_good: 0.2,
        loss_good: 0.01,
        loss_bad: 0.5,
    };
    let expected = 0.8 * 0.01 + 0.2 * 0.5;
    let measured = share(&losses(LinkSpec::default().loss(loss), 200_000));
    assert!((measured - expected).abs() < 0.005, "{measured}");
}

#[test]
fn a_script_loses_exactly_what_it_says() {
    let script = [(1, 3), (0, 2), (1, 1), (0, 2), (0, 5)]
        .map(|(flow, nth)| ScriptedLoss { flow: FlowId(flow), nth });
    let mut line = line(LinkSpec::default().loss(Loss::Script(script.to_vec())));
    let mut lost = Vec::new();
    for n in 1..=6 {
        for flow in [0, 1, 2] {
            if !line.passes(Kind::Data, FlowId(flow)) {
                lost.push((flow, n));
            }
        }
    }
    assert_eq!(lost, [(1, 1), (0, 2), (1, 3), (0, 5)]);
    assert_eq!(line.lost(), 4);
}

#[test]
fn loss_spares_the_kinds_that_it_is_not_for() {
    let kinds = Kinds::NONE.with(Kind::Data).with(Kind::Repair);
    let mut line = line(LinkSpec::default().loss(Loss::Bernoulli(1.0)).loss_of(kinds));
    let passes = [Kind::Data, Kind::Repair, Kind::Nak, Kind::Control, Kind::Other(3)]
        .map(|kind| line.passes(kind, FlowId(0)));
    assert_eq!(passes, [false, false, true, true, true]);
}

#[test]
fn certain_and_impossible_loss_draw_nothing() {
    let losses = |p| losses(LinkSpec::default().loss(Loss::Bernoulli(p)), 100);
    assert_eq!(losses(1.0), [true; 100]);
    assert_eq!(losses(0.0), [false; 100]);
}

/// Offers packets of 1,000 bytes at `load` times the rate. Returns the share of drops in the second
/// half of `count`.
fn red_drops(config: RedConfig, load: f64, count: u32) -> f64 {
    let mut line = line(slow().queue(Queue::Red(config)));
    let dropped: Vec<bool> = (0..count)
        .map(|n| line.offer(at((f64::from(n) * 1_000.0 / load) as u64), 1_000).is_err())
        .collect();
    share(&dropped[count as usize / 2..])
}

#[test]
fn red_drops_nothing_below_its_lower_threshold_and_the_excess_above() {
    let config = RedConfig::new(5.0, 15.0);
    assert!(red_drops(config, 0.95, 20_000) == 0.0);
    // In the long run, packets beyond the rate are dropped, whatever the settings.
    for load in [1.05, 1.5, 3.0] {
        let drops = red_drops(config, load, 20_000);
        assert!((drops - (1.0 - 1.0 / load)).abs() < 0.02, "load {load}: {drops}");
    }
}

#[test]
fn red_keeps_the_average_where_its_slope_gives_the_drops_that_are_needed() {
    // 5 % too many packets, which is half of the 10 % at the upper threshold. So the average
    // settles half-way.
    let config = RedConfig { weight: 0.01, ..RedConfig::new(10.0, 30.0) };
    let mut line = line(slow().queue(Queue::Red(config)));
    let mut sum = 0.0;
    for n in 0..40_000 {
        let _ = line.offer(at((f64::from(n) * 1_000.0 / 1.05) as u64), 1_000);
        if n >= 20_000 {
            sum += line.extra.as_ref().unwrap().red.as_ref().unwrap().average();
        }
    }
    let mean = sum / 20_000.0;
    // Spreading the drops evenly about doubles their share, so a quarter of the way is enough.
    assert!((13.0..22.0).contains(&mean), "{mean}");
}

#[test]
fn red_forgets_the_average_while_the_line_is_idle() {
    let config = RedConfig { weight: 0.5, ..RedConfig::new(5.0, 15.0) };
    let mut line = line(slow().queue(Queue::Red(config)));
    let average = |line: &Line| line.extra.as_ref().unwrap().red.as_ref().unwrap().average();
    for _ in 0..8 {
        let _ = line.offer(at(0), 1_000);
    }
    let before = average(&line);
    assert!(before > 4.0);
    let idle_since = line.sent_at / 1_000;
    // Idle for the duration of three packets.
    line.offer(at(idle_since + 3_000), 1_000).unwrap();
    assert!((average(&line) - before / 8.0).abs() < 1e-12);
}

#[test]
fn a_gentle_queue_admits_some_above_the_upper_threshold() {
    let gentle = RedConfig { weight: 1.0, max_probability: 0.0, ..RedConfig::new(2.0, 10.0) };
    let admitted = |config| {
        let mut line = line(slow().queue(Queue::Red(config)));
        (0..200).filter(|_| line.offer(at(0), 1_000).is_ok()).count()
    };
    // With weight 1 the average is the present length. All packets are dropped from 10, or from 20
    // on.
    assert_eq!(admitted(RedConfig { gentle: false, ..gentle }), 10);
    assert!((12..=20).contains(&admitted(gentle)));
}

#[test]
fn what_is_out_of_range_is_named() {
    let error = |spec: LinkSpec| Treatment::new(spec).unwrap_err().to_string();
    let plain = LinkSpec::default();
    for (spec, message) in [
        (plain.clone().loss(Loss::Bernoulli(1.5)), "loss = 1.5 is not a probability"),
        (plain.clone().loss(Loss::bursts(0.9, 2.0)), "good_to_bad = 4.5"),
        (plain.clone().loss(Loss::Bernoulli(f64::NAN)), "loss = NaN"),
        (plain.clone().queue(Queue::DropTailPackets(0)), "a queue of 0"),
        (plain.clone().queue(Queue::Red(RedConfig::new(5.0, 5.0))), "thresholds 5 and 5"),
        (plain.clone().schedule(vec![(at(2), false), (at(1), true)]), "have to increase"),
        (
            plain.loss(Loss::Script(vec![ScriptedLoss { flow: FlowId(0), nth: 0 }])),
            "from 1, not from 0",
        ),
    ] {
        let error = error(spec);
        assert!(error.contains(message), "{error}");
    }
}

proptest! {
    #[test]
    fn the_rate_is_held_and_order_is_kept(
        bits in 10_000_u64..1_000_000_000, delay in 0_u64..1_000, jitter in 0_u64..2_000,
        limit in proptest::option::of(1_u32..20),
        steps in proptest::collection::vec((0_u64..5_000, 14_u32..9_000), 1..200),
    ) {
        let rate = Rate::from_bits_per_s(bits).unwrap();
        let queue = limit.map_or(Queue::Unbounded, Queue::DropTailPackets);
        let mut line = line(LinkSpec {
            rate: Some(rate),
            delay: Duration::from_micros(delay),
            jitter: Duration::from_micros(jitter),
            queue,
            ..LinkSpec::default()
        });
        let (mut now, mut last, mut busy_until) = (at(0), at(0), at(0));
        for (step, length) in steps {
            now += Duration::from_micros(step);
            let Ok(arrival) = line.offer(now, length) else { continue };
            busy_until = busy_until.max(now) + rate.time_for(u64::from(length));
            let least = Duration::from_micros(delay.saturating_sub(jitter));
            prop_assert!(arrival >= busy_until + least);
            prop_assert!(arrival >= last);
            last = arrival;
        }
    }
}
