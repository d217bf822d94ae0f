//! One direction of a link as a function of time and a seeded generator; no I/O, no clock.
//!
//! The order of effects on a frame is the bounded queue and the rate, loss, and duplication. Then
//! for each copy propagation delay with jitter, reordering and corruption follow. A frame that is
//! lost has used its time on the link, as in the simulator.

use std::collections::VecDeque;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::Instant;
use umbel_engine::chance::uniform;

use crate::impairment::TwoStates;
use crate::{Impairment, Queue};

/// Reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDrop {
    /// Random loss.
    Loss,
    /// The queue in front of the rate was full.
    QueueFull,
    /// The link is down.
    Down,
}

/// Bit to flip in a frame that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Uniform draw that selects the bit.
    pub draw: u64,
    /// Whether the transport checksum is repaired, so that only an end-to-end check notices.
    pub repair_checksum: bool,
}

/// Arrival of a frame at the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Instant,
    /// Corruption on the way, if any.
    pub corruption: Option<Corruption>,
    /// Whether the frame was held back so that later frames overtake it.
    pub reordered: bool,
}

/// Fate of a frame: dropped, or one or two arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame never arrives.
    Drop(LinkDrop),
    /// The frame arrives once.
    Deliver(Arrival),
    /// The frame arrives twice.
    DeliverTwice([Arrival; 2]),
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkModel {
    impairment: Impairment,
    up: bool,
    generator: Xoshiro256PlusPlus,
    /// Time when the last admitted frame will have been sent.
    sent_at: Instant,
    /// Send times and lengths of the frames that have not been sent yet, oldest first.
    waiting: VecDeque<(Instant, u32)>,
    waiting_bytes: u64,
    /// Latest arrival so far of a frame that keeps its order.
    last_arrival: Instant,
    /// Whether the link is in the bad state of the Gilbert–Elliott model.
    in_burst: bool,
}

impl LinkModel {
    /// Creates a link that is up and idle. Equal seeds and inputs produce equal outputs on any
    /// machine.
    pub fn new(impairment: Impairment, seed: u64) -> LinkModel {
        LinkModel {
            impairment,
            up: true,
            generator: Xoshiro256PlusPlus::seed_from_u64(seed),
            sent_at: Instant::EPOCH,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_arrival: Instant::EPOCH,
            in_burst: false,
        }
    }

    /// Returns the present impairment.
    pub fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Sets the impairment. Frames that were already offered keep their arrival times.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.impairment = impairment;
    }

    /// Cuts or restores the link. A cut link drops every frame.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Returns the bytes of frames that wait for the rate, including the one being sent.
    pub fn backlog_bytes(&mut self, now: Instant) -> u64 {
        self.forget_sent(now);
        self.waiting_bytes
    }

    /// Accepts a frame of `length` bytes that enters the link at `now`, which never decreases.
    pub fn offer(&mut self, now: Instant, length: usize) -> Verdict {
        if !self.up {
            return Verdict::Drop(LinkDrop::Down);
        }
        let Some(sent) = self.serialise(now, length) else {
            return Verdict::Drop(LinkDrop::QueueFull);
        };
        if self.is_lost() {
            return Verdict::Drop(LinkDrop::Loss);
        }
        let first = self.propagate(sent);
        if self.happens(self.impairment.duplicate) {
            Verdict::DeliverTwice([first, self.propagate(sent)])
        } else {
            Verdict::Deliver(first)
        }
    }

    fn is_lost(&mut self) -> bool {
        let Some(TwoStates { change, loss }) = self.impairment.two_states() else {
            return self.happens(self.impairment.loss);
        };
        if self.happens(change[usize::from(self.in_burst)]) {
            self.in_burst = !self.in_burst;
        }
        self.happens(loss[usize::from(self.in_burst)])
    }

    /// Returns the time when the frame has been sent; `None` if the queue has no room for it.
    fn serialise(&mut self, now: Instant, length: usize) -> Option<Instant> {
        let Some(rate) = self.impairment.rate else { return Some(now) };
        self.forget_sent(now);
        let full = match self.impairment.queue {
            // An empty queue accepts a frame of any length; otherwise a large one could never pass.
            Queue::Bytes(limit) => {
                !self.waiting.is_empty() && self.waiting_bytes + length as u64 > limit.0
            }
            Queue::Packets(limit) => self.waiting.len() >= limit as usize,
        };
        if full {
            return None;
        }
        self.sent_at = self.sent_at.max(now) + rate.time_for(length as u64);
        self.waiting.push_back((self.sent_at, length as u32));
        self.waiting_bytes += length as u64;
        Some(self.sent_at)
    }

    fn forget_sent(&mut self, now: Instant) {
        while let Some(&(sent, length)) = self.waiting.front()
            && sent <= now
        {
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(length);
        }
    }

    fn propagate(&mut self, sent: Instant) -> Arrival {
        let Impairment { delay, jitter, .. } = self.impairment;
        let spread = if jitter.is_zero() {
            delay
        } else {
            (delay + jitter.mul_f64(2.0 * uniform(&mut self.generator))).saturating_sub(jitter)
        };
        let in_order = (sent + spread).max(self.last_arrival);
        let reordered = self.happens(self.impairment.reorder);
        let at = if reordered {
            let hold = self.impairment.reorder_by.unwrap_or_else(|| default_hold(delay));
            in_order + hold
        } else {
            self.last_arrival = in_order;
            in_order
        };
        Arrival { at, corruption: self.corruption(), reordered }
    }

    fn corruption(&mut self) -> Option<Corruption> {
        let silent = self.happens(self.impairment.corrupt_silently);
        let loud = self.happens(self.impairment.corrupt);
        (silent || loud)
            .then(|| Corruption { draw: self.generator.next_u64(), repair_checksum: silent })
    }

    /// Returns whether an event with this probability happens. Draws only if the outcome is open,
    /// so that an impairment that is off costs nothing.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && (probability >= 1.0 || uniform(&mut self.generator) < probability)
    }
}

fn default_hold(delay: Duration) -> Duration {
    (delay / 2).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_engine::units::{ByteCount, Rate};

    use super::*;

    const FRAMES: usize = 20_000;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    fn verdicts(impairment: Impairment, seed: u64) -> Vec<Verdict> {
        let mut link = LinkModel::new(impairment, seed);
        (0..FRAMES as u64).map(|n| link.offer(at(n * 10), 1000)).collect()
    }

    fn arrivals(verdicts: &[Verdict]) -> Vec<Arrival> {
        let copies = verdicts.iter().map(|verdict| match verdict {
            Verdict::Drop(_) => vec![],
            Verdict::Deliver(arrival) => vec![*arrival],
            Verdict::DeliverTwice(arrivals) => arrivals.to_vec(),
        });
        copies.flatten().collect()
    }

    fn share(count: usize) -> f64 {
        count as f64 / FRAMES as f64
    }

    #[test]
    fn an_unimpaired_link_delivers_at_once() {
        for (n, verdict) in verdicts(Impairment::none(), 1).into_iter().enumerate() {
            let expected = Arrival { at: at(n as u64 * 10), corruption: None, reordered: false };
            assert_eq!(verdict, Verdict::Deliver(expected));
        }
    }

    #[test]
    fn loss_duplication_reordering_and_corruption_hit_their_shares() {
        let impairment = Impairment {
            loss: 0.1,
            duplicate: 0.2,
            reorder: 0.05,
            corrupt: 0.03,
            corrupt_silently: 0.02,
            ..Impairment::none()
        };
        let verdicts = verdicts(impairment, 7);
        let lost = verdicts.iter().filter(|v| **v == Verdict::Drop(LinkDrop::Loss)).count();
        assert!((share(lost) - 0.1).abs() < 0.01, "{lost}");
        let arrivals = arrivals(&verdicts);
        assert!((share(arrivals.len()) - 0.9 * 1.2).abs() < 0.02);
        let of = |f: fn(&Arrival) -> bool| {
            arrivals.iter().filter(|a| f(a)).count() as f64 / arrivals.len() as f64
        };
        assert!((of(|a| a.reordered) - 0.05).abs() < 0.01);
        assert!((of(|a| a.corruption.is_some_and(|c| c.repair_checksum)) - 0.02).abs() < 0.006);
        assert!((of(|a| a.corruption.is_some_and(|c| !c.repair_checksum)) - 0.03).abs() < 0.006);
    }

    #[test]
    fn bursty_loss_keeps_its_share_and_its_run_length() {
        let impairment = Impairment { loss_burst: Some(5.0), ..Impairment::none().loss(0.1) };
        let lost: Vec<bool> =
            verdicts(impairment, 3).iter().map(|v| matches!(v, Verdict::Drop(_))).collect();
        let count = lost.iter().filter(|l| **l).count();
        let runs = lost.windows(2).filter(|w| !w[0] && w[1]).count();
        assert!((share(count) - 0.1).abs() < 0.025, "{count}");
        let mean = count as f64 / runs as f64;
        assert!((4.0..6.0).contains(&mean), "{mean}");
    }

    #[test]
    fn the_rate_spaces_frames_and_the_queue_drops_the_newest() {
        let rate = Rate::from_bits_per_s(8_000_000).unwrap();
        let mut link = LinkModel::new(Impairment::none().rate(rate).queue(Queue::Packets(3)), 1);
        let times: Vec<Verdict> = (0..5).map(|_| link.offer(at(0), 1000)).collect();
        for (n, verdict) in times.iter().take(3).enumerate() {
            assert_eq!(arrivals(&[*verdict])[0].at, at(1000 * (n as u64 + 1)));
        }
        assert_eq!(times[3..], [Verdict::Drop(LinkDrop::QueueFull); 2]);
        assert_eq!(link.backlog_bytes(at(1000)), 2000);
        assert!(matches!(link.offer(at(1000), 1000), Verdict::Deliver(_)));
    }

    #[test]
    fn a_byte_queue_counts_bytes_but_never_refuses_a_lone_frame() {
        let rate = Rate::from_bits_per_s(8_000_000).unwrap();
        let queue = Queue::Bytes(ByteCount(1500));
        let mut link = LinkModel::new(Impairment::none().rate(rate).queue(queue), 1);
        assert!(matches!(link.offer(at(0), 9000), Verdict::Deliver(_)));
        assert_eq!(link.offer(at(0), 100), Verdict::Drop(LinkDrop::QueueFull));
        assert!(matches!(link.offer(at(9000), 1000), Verdict::Deliver(_)));
        assert!(matches!(link.offer(at(9000), 500), Verdict::Deliver(_)));
        assert_eq!(link.offer(at(9000), 1), Verdict::Drop(LinkDrop::QueueFull));
    }

    #[test]
    fn a_cut_link_drops_all_and_a_mended_one_none() {
        let mut link = LinkModel::new(Impairment::none(), 1);
        link.set_up(false);
        assert_eq!(link.offer(at(0), 10), Verdict::Drop(LinkDrop::Down));
        link.set_up(true);
        assert!(matches!(link.offer(at(0), 10), Verdict::Deliver(_)));
    }

    #[test]
    fn equal_seeds_give_equal_links_and_other_seeds_others() {
        let impairment = Impairment::none().loss(0.5);
        assert_eq!(verdicts(impairment, 1), verdicts(impairment, 1));
        assert_ne!(verdicts(impairment, 1), verdicts(impairment, 2));
    }

    prop_compose! {
        fn impairments()(
            rate in proptest::option::of(10_000_u64..10_000_000_000),
            delay in 0_u64..100_000, jitter in 0_u64..200_000,
            loss in 0.0..=1.0_f64, burst in proptest::option::of(1.0..20.0_f64),
            duplicate in 0.0..=1.0_f64, queue in 1_u32..50,
        ) -> Impairment {
            Impairment {
                rate: rate.and_then(Rate::from_bits_per_s),
                delay: Duration::from_micros(delay),
                jitter: Duration::from_micros(jitter),
                loss, loss_burst: burst, duplicate,
                queue: Queue::Packets(queue),
                ..Impairment::none()
            }
        }
    }

    proptest! {
        #[test]
        fn without_reordering_frames_arrive_in_order_and_never_before_they_could(
            impairment in impairments(), seed: u64,
            steps in proptest::collection::vec((0_u64..5_000, 14_usize..9_000), 1..200),
        ) {
            let mut link = LinkModel::new(impairment, seed);
            let (mut now, mut last) = (0, Instant::EPOCH);
            for (step, length) in steps {
                now += step;
                let verdict = link.offer(at(now), length);
                for arrival in arrivals(&[verdict]) {
                    let serialisation =
                        impairment.rate.map_or(Duration::ZERO, |r| r.time_for(length as u64));
                    let least = serialisation + impairment.delay.saturating_sub(impairment.jitter);
                    prop_assert!(arrival.at >= at(now) + least);
                    prop_assert!(arrival.at >= last);
                    last = arrival.at;
                }
            }
        }

        #[test]
        fn a_rate_is_never_exceeded_over_a_busy_period(
            bits in 10_000_u64..1_000_000_000, lengths in proptest::collection::vec(14_usize..9_000, 1..100),
        ) {
            let rate = Rate::from_bits_per_s(bits).unwrap();
            let mut link =
                LinkModel::new(Impairment::none().rate(rate).queue(Queue::Packets(1_000)), 1);
            let mut last = Instant::EPOCH;
            for &length in &lengths {
                last = arrivals(&[link.offer(Instant::EPOCH, length)])[0].at;
            }
            let total: usize = lengths.iter().sum();
            let ideal = rate.time_for(total as u64);
            // Each frame's time is rounded down to a nanosecond.
            prop_assert!(last.since(Instant::EPOCH) <= ideal);
            prop_assert!(last.since(Instant::EPOCH) + Duration::from_nanos(lengths.len() as u64) >= ideal);
        }
    }
}
