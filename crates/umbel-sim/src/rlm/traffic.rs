//! The times of a layer's packets.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::Instant;

use crate::random::uniform;

/// Law of the times between a layer's packets; Δ is the time that gives its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// T_k = T_{k−1} + Δ + N_k, where N_k is uniform on [−Δ/2, Δ/2] [RLM §4].
    Cbr,
    /// Bursts: a layer of A packets a second has 1 packet in a second with probability 1 − 1/P.
    /// With probability 1/P it has P·A + 1 − P packets, at even distances. The mean is A.
    Bursts {
        /// P: how much the greatest rate is above the mean; at least 1.
        peak: f64,
    },
}

/// Draws the times of one layer's packets.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    traffic: Traffic,
    delta: Duration,
    random: Xoshiro256PlusPlus,
    next: Instant,
    /// Of bursts: packets that remain of this second, the distance between them, and its end.
    rest: u32,
    step: Duration,
    second: Instant,
}

const SECOND: Duration = Duration::from_secs(1);

impl Layer {
    pub(super) fn new(traffic: Traffic, delta: Duration, random: Xoshiro256PlusPlus) -> Layer {
        let (next, second) = (Instant::EPOCH, Instant::EPOCH);
        Layer { traffic, delta, random, next, rest: 0, step: SECOND, second }
    }

    /// Begins. T_0 is 0 [RLM §4]; layers begin at different times within their Δ, so that they do
    /// not stay in step.
    pub(super) fn start(&mut self, now: Instant) {
        let phase = uniform(&mut self.random);
        self.next = now + self.delta.mul_f64(phase);
        self.second = now + SECOND.mul_f64(phase);
    }

    /// Returns the time of the next packet.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Takes the next packet.
    pub(super) fn advance(&mut self) {
        match self.traffic {
            Traffic::Cbr => {
                self.next += self.delta.mul_f64(0.5 + uniform(&mut self.random));
            }
            Traffic::Bursts { peak } => {
                if self.rest == 0 {
                    self.next_second(peak);
                }
                self.rest -= 1;
                self.next += self.step;
            }
        }
    }

    fn next_second(&mut self, peak: f64) {
        let mean = 1.0 / self.delta.as_secs_f64();
        let bursts = uniform(&mut self.random) < 1.0 / peak;
        let packets = if bursts { peak * mean + 1.0 - peak } else { 1.0 };
        self.rest = packets.round().max(1.0) as u32;
        self.step = SECOND / self.rest;
        self.next = self.next.max(self.second);
        self.second += SECOND;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    fn count(traffic: Traffic, per_s: f64, seconds: u64) -> Vec<u32> {
        let delta = Duration::from_secs_f64(1.0 / per_s);
        let mut layer = Layer::new(traffic, delta, stream(1, Purpose::Workload, 1));
        layer.start(Instant::EPOCH);
        let mut counts = vec![0; seconds as usize];
        loop {
            let second = layer.next().as_nanos() / 1_000_000_000;
            let Some(count) = counts.get_mut(second as usize) else { return counts };
            *count += 1;
            layer.advance();
        }
    }

    #[test]
    fn both_laws_have_the_mean_rate() {
        for (traffic, least) in [(Traffic::Cbr, 110), (Traffic::Bursts { peak: 3.0 }, 0)] {
            let counts = count(traffic, 128.0, 3000);
            let mean = f64::from(counts.iter().sum::<u32>()) / 3000.0;
            assert!((mean / 128.0 - 1.0).abs() < 0.05, "{traffic:?}: {mean}");
            assert!(*counts.iter().min().unwrap() >= least);
        }
    }
}
