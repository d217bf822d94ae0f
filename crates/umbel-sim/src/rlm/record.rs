//! Record of a receiver.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::rlm::{ReceiverEvent, ReceiverStats};

/// Time between two samples of a receiver's counters.
pub const SAMPLE: Duration = Duration::from_millis(100);

/// Packets that came and were lost within one [`SAMPLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Packets received.
    pub packets: u16,
    /// Packets lost.
    pub lost: u16,
}

/// A join-experiment of the receiver's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Its start.
    pub start: Instant,
    /// The level that was tried.
    pub level: u8,
    /// Its end, and whether the level stayed.
    pub end: Option<(Instant, bool)>,
}

/// Levels, losses and experiments of a receiver over time.
#[derive(Clone, Debug, Default)]
pub struct Record {
    start: Option<Instant>,
    levels: Vec<(Instant, u8)>,
    samples: Vec<Sample>,
    experiments: Vec<Experiment>,
    /// Packets received and lost at the last sample.
    before: (u64, u64),
}

impl Record {
    pub(super) fn begin(&mut self, now: Instant) {
        self.start = Some(now);
    }

    pub(super) fn note(&mut self, now: Instant, event: &ReceiverEvent) {
        match *event {
            ReceiverEvent::Level { level, .. } => self.levels.push((now, level)),
            ReceiverEvent::ExperimentStarted { level } => {
                self.experiments.push(Experiment { start: now, level, end: None });
            }
            ReceiverEvent::ExperimentFailed { .. } => self.end_experiment(now, false),
            ReceiverEvent::ExperimentSucceeded { .. } => self.end_experiment(now, true),
            ReceiverEvent::Unit { .. }
            | ReceiverEvent::Object { .. }
            | ReceiverEvent::ObjectMissing { .. } => {}
        }
    }

    fn end_experiment(&mut self, now: Instant, stays: bool) {
        if let Some(last) = self.experiments.last_mut() {
            last.end.get_or_insert((now, stays));
        }
    }

    pub(super) fn sample(&mut self, stats: &ReceiverStats) {
        let (packets, lost) = self.before;
        let narrow = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        let (packets, lost) = (stats.packets - packets, stats.lost - lost);
        self.samples.push(Sample { packets: narrow(packets), lost: narrow(lost) });
        self.before = (stats.packets, stats.lost);
    }

    /// Returns the time at which the receiver joined.
    pub fn start(&self) -> Option<Instant> {
        self.start
    }

    /// Returns each change of the level: its time, and the new level.
    pub fn levels(&self) -> &[(Instant, u8)] {
        &self.levels
    }

    /// Returns the level at a time; 0 before the first.
    pub fn level_at(&self, time: Instant) -> u8 {
        let after = self.levels.partition_point(|&(at, _)| at <= time);
        after.checked_sub(1).map_or(0, |last| self.levels[last].1)
    }

    /// Returns the mean level over this span before `end`.
    pub fn mean_level(&self, end: Instant, span: Duration) -> f64 {
        let begin = Instant::from_nanos(end.as_nanos().saturating_sub(span.as_nanos() as u64));
        let first = self.levels.partition_point(|&(at, _)| at <= begin);
        let (mut sum, mut since, mut level) = (0.0, begin, self.level_at(begin));
        for &(at, next) in self.levels[first..].iter().take_while(|(at, _)| *at < end) {
            sum += at.since(since).as_secs_f64() * f64::from(level);
            (since, level) = (at, next);
        }
        sum += end.since(since).as_secs_f64() * f64::from(level);
        sum / span.as_secs_f64()
    }

    /// Returns the samples from the start on, one for each [`SAMPLE`].
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the receiver's own join-experiments.
    pub fn experiments(&self) -> &[Experiment] {
        &self.experiments
    }

    /// Returns the greatest share of lost packets in any window of this length, slid over the
    /// samples. A window that is longer than the record is the whole record. 0 without packets.
    pub fn worst_loss(&self, window: Duration) -> f64 {
        let len = (window.as_nanos() / SAMPLE.as_nanos()).max(1) as usize;
        let (mut packets, mut lost, mut worst) = (0_u64, 0_u64, 0.0_f64);
        for (n, sample) in self.samples.iter().enumerate() {
            packets += u64::from(sample.packets);
            lost += u64::from(sample.lost);
            if let Some(out) = n.checked_sub(len).map(|first| self.samples[first]) {
                packets -= u64::from(out.packets);
                lost -= u64::from(out.lost);
            }
            if (n + 1 >= len || n + 1 == self.samples.len()) && lost > 0 {
                worst = worst.max(lost as f64 / (packets + lost) as f64);
            }
        }
        worst
    }

    /// Returns the share of all packets that was lost.
    pub fn loss(&self) -> f64 {
        let sum = |count: fn(&Sample) -> u16| {
            self.samples.iter().map(|sample| f64::from(count(sample))).sum::<f64>()
        };
        let (packets, lost) = (sum(|sample| sample.packets), sum(|sample| sample.lost));
        if lost == 0.0 { 0.0 } else { lost / (packets + lost) }
    }

    /// Returns the time from the start until the receiver reached `level` and kept it until `end`.
    /// It may be one above during an experiment, or one below for less than `lapse`. `None` if it
    /// did not.
    pub fn convergence(&self, level: u8, end: Instant, lapse: Duration) -> Option<Duration> {
        let start = self.start?;
        let mut since: Option<Instant> = None;
        let mut below: Option<Instant> = None;
        for &(at, now) in &self.levels {
            if below.is_some_and(|below| at.since(below) >= lapse) {
                since = None;
            }
            if now < level {
                below = below.or(Some(at));
            } else {
                since = since.or(Some(at));
                below = None;
            }
        }
        let fell = below.is_some_and(|below| end.since(below) >= lapse);
        since.filter(|_| !fell).map(|since| since.since(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn the_worst_window_is_found() {
        let sample = |packets, lost| Sample { packets, lost };
        let mut samples = vec![sample(10, 0); 40];
        samples[12] = sample(5, 5);
        samples[13] = sample(5, 5);
        let record = Record { samples, ..Record::default() };
        let worst = |ms| record.worst_loss(Duration::from_millis(ms));
        let thousandths = |ms| (worst(ms) * 1000.0).round() as u32;
        assert_eq!([100, 200, 1000, 4000, 60_000].map(thousandths), [500, 500, 100, 25, 25]);
        assert!((record.loss() - 0.025).abs() < 1e-12);
        assert_eq!(Record::default().worst_loss(seconds(1)).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn convergence_forgives_experiments_and_short_lapses() {
        let levels =
            [(10, 1), (15, 2), (20, 3), (21, 2), (30, 3), (40, 4), (41, 3), (50, 2), (52, 3)];
        let levels = levels.map(|(s, level)| (at(s), level)).to_vec();
        let record = Record { start: Some(at(10)), levels, ..Record::default() };
        let converged = |level, lapse| record.convergence(level, at(100), seconds(lapse));
        assert_eq!(converged(3, 5), Some(seconds(20)));
        assert_eq!(converged(3, 10), Some(seconds(10)));
        assert_eq!(converged(3, 1), Some(seconds(42)));
        assert_eq!((converged(2, 5), converged(4, 5)), (Some(seconds(5)), None));
        assert_eq!([at(5), at(15), at(99)].map(|time| record.level_at(time)), [0, 2, 3]);
        let mean = |end, span| (record.mean_level(at(end), seconds(span)) * 100.0).round() as u32;
        assert_eq!([mean(20, 10), mean(62, 10), mean(42, 4), mean(5, 4)], [150, 300, 325, 0]);
    }
}
