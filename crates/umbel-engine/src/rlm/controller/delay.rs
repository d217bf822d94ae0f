//! Join-experiments that end when a queue grows, before it overflows.

use std::time::Duration;

use super::machine::Machine;
use super::queueing::{Queueing, Usual};
use super::{Action, Controller, Packet, Status};
use crate::Instant;
use crate::chance::Generator;
use crate::rlm::config::{DelayConfig, ReceiverConfig, RlmConfig};

/// The state machine of RLM with another sign of congestion. During an experiment the sign is a
/// rise of the queueing delay over what it was before. A share of lost packets that is not by
/// chance is a sign, too. A single loss does not end an experiment, as it does on a path with radio
/// links.
#[derive(Debug)]
pub(in crate::rlm) struct Delay {
    config: DelayConfig,
    machine: Machine,
    queueing: Queueing,
    /// Queueing delay lately while nothing was tried: the queues of others.
    usual: Usual,
    /// Greatest queueing delay so far.
    greatest: Duration,
    /// Packets that came and were lost since the experiment began.
    came: u64,
    lost: u64,
}

impl Delay {
    /// Creates a controller that does nothing before it joins.
    pub(in crate::rlm) fn new(config: &ReceiverConfig, random: Generator) -> Delay {
        let delay = config.delay;
        // Experiments that do no harm may come sooner.
        let rlm = RlmConfig {
            k1: delay.k1,
            detection_time: delay.detection_time,
            detection_deviation: delay.detection_deviation,
            join_timer_min: delay.join_timer_min,
            ..config.rlm
        };
        let config = ReceiverConfig { rlm, ..config.clone() };
        Delay {
            config: delay,
            machine: Machine::new(&config, random),
            queueing: Queueing::default(),
            usual: Usual::default(),
            greatest: Duration::ZERO,
            came: 0,
            lost: 0,
        }
    }

    /// Returns the queueing delay above which an experiment has failed. Where others keep the queue
    /// filled, as TCP does, the delay rises and falls without any experiment. Then only what is
    /// above its peaks is a rise. If there is no room above them, loss alone ends an experiment.
    fn limit_of_queueing(&self) -> Duration {
        let DelayConfig { threshold, share_of_greatest, .. } = self.config;
        let mean = self.usual.mean();
        let usual = if mean > threshold { self.usual.greatest() } else { mean };
        usual + threshold.max(self.greatest.mul_f64(share_of_greatest))
    }

    fn on_queueing(&mut self, now: Instant, queueing: Duration) {
        self.greatest = self.greatest.max(queueing);
        if !self.machine.is_probed(now) {
            (self.came, self.lost) = (0, 0);
            // In other states the queue of a failed experiment may still drain.
            if self.machine.is_steady() {
                self.usual.note(now, queueing);
            }
            return;
        }
        if queueing > self.limit_of_queueing() {
            self.machine.on_congestion(now);
        }
    }
}

impl Controller for Delay {
    fn on_join(&mut self, now: Instant) {
        self.machine.on_join(now);
    }

    fn on_leave(&mut self) {
        self.machine.on_leave();
    }

    fn on_packet(&mut self, now: Instant, packet: Packet) {
        self.came += 1;
        self.machine.on_packet(now, packet);
        if let Some(queueing) = self.queueing.on_packet(now, packet.sent_us) {
            self.on_queueing(now, queueing);
        }
    }

    fn on_lost(&mut self, now: Instant, packets: u64) {
        self.lost += packets;
        let by_chance = self.lost < self.config.losses
            || (self.lost as f64) < self.config.loss_share * (self.came + self.lost) as f64;
        if !(self.machine.is_probed(now) && by_chance) {
            self.machine.on_lost(now, packets);
        }
    }

    fn on_experiment(&mut self, now: Instant, level: u8) {
        self.machine.on_experiment(now, level);
    }

    fn on_object(&mut self, now: Instant, in_object: bool) {
        self.machine.on_object(now, in_object);
    }

    fn on_receivers(&mut self, receivers: u64) {
        self.machine.on_receivers(receivers);
    }

    fn limit(&mut self, now: Instant, level: u8) {
        self.machine.limit(now, level);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.machine.on_timeout(now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.machine.next_timeout()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.machine.poll_action()
    }

    fn status(&self) -> Status {
        self.machine.status()
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::{Channel, Tsi};

    use super::*;
    use crate::chance::generator;
    use crate::rlm::api::LevelReason;

    const LAYERS: u8 = 4;

    /// A receiver of 100 packets a second, on whose path packets take this long. Others fill a
    /// queue there to `saw` and empty it, within each 2 s.
    struct Run {
        delay: Delay,
        now: Instant,
        way: Duration,
        saw: Duration,
        falls: Vec<LevelReason>,
    }

    fn run() -> Run {
        let channel = |layer| Channel {
            source: Some([192, 0, 2, 1].into()),
            group: [232, 0, 0, layer].into(),
            port: 7704,
        };
        let config = ReceiverConfig::new(Tsi(1), 1, (0..LAYERS).map(channel).collect());
        let mut delay = Delay::new(&config, generator(3));
        let now = Instant::EPOCH + Duration::from_secs(1);
        delay.on_join(now);
        let way = Duration::from_millis(30);
        Run { delay, now, way, saw: Duration::ZERO, falls: Vec::new() }
    }

    impl Run {
        /// Lets packets come until `done`.
        fn until(&mut self, mut done: impl FnMut(&Delay) -> bool) -> Duration {
            let begin = self.now;
            while !done(&self.delay) {
                assert!(self.now.since(begin) < Duration::from_mins(5));
                self.now += Duration::from_millis(10);
                self.delay.on_timeout(self.now);
                let layer = self.delay.status().level - 1;
                let since = self.now.since(Instant::EPOCH);
                let phase = since.as_secs_f64() % 2.0 / 2.0;
                let sent_us = since.saturating_sub(self.way + self.saw.mul_f64(phase)).as_micros();
                self.delay.on_packet(self.now, Packet { layer, sent_us: sent_us as u32 });
                while let Some(action) = self.delay.poll_action() {
                    if let Action::Fall { reason, .. } = action {
                        self.falls.push(reason);
                    }
                }
            }
            self.now.since(begin)
        }

        fn level(&self) -> u8 {
            self.delay.status().level
        }
    }

    #[test]
    fn an_experiment_ends_when_the_queue_grows_and_nothing_is_lost() {
        let mut run = run();
        run.until(|delay| delay.status().level == 3);
        run.way += Duration::from_millis(30);
        let took = run.until(|delay| delay.status().level == 2);
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!((&run.falls[..], run.delay.status().failed), (&[LevelReason::Failed][..], 1));
    }

    #[test]
    fn a_queue_of_others_is_no_failure_without_an_experiment() {
        let mut run = run();
        run.until(|delay| delay.status().level == LAYERS);
        run.until(|delay| !delay.machine.is_probed(Instant::EPOCH));
        run.way += Duration::from_millis(200);
        let end = run.now + Duration::from_secs(20);
        let mut left = 2002;
        run.until(|_| {
            left -= 1;
            left == 0
        });
        assert!(run.now >= end && run.level() == LAYERS && run.falls.is_empty());
    }

    #[test]
    fn a_queue_that_others_fill_and_empty_ends_no_experiment_and_more_than_that_does() {
        let mut run = run();
        run.saw = Duration::from_millis(100);
        run.delay.limit(run.now, 2);
        let mut left = 2_000;
        run.until(|_| {
            left -= 1;
            left == 0
        });
        // The behaviour of others is known by now.
        run.falls.clear();
        run.delay.limit(run.now, LAYERS);
        run.until(|delay| delay.status().level == LAYERS);
        assert_eq!(run.falls, []);
        run.saw = Duration::ZERO;
        run.way += Duration::from_millis(150);
        run.until(|delay| delay.status().level < LAYERS);
        assert_eq!(run.falls, [LevelReason::Failed]);
    }

    #[test]
    fn losses_by_chance_do_not_end_an_experiment_and_many_do() {
        for (losses, level) in [(1, LAYERS), (40, 1)] {
            let mut run = run();
            run.until(|delay| delay.status().level == 2);
            let now = run.now;
            run.delay.on_lost(now, losses);
            let mut left = 2500;
            if losses == 1 {
                run.until(|_| {
                    left -= 1;
                    left == 0
                });
            }
            assert_eq!(run.level(), level, "{losses}");
        }
    }
}
