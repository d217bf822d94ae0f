//! The join-experiments in progress, one's own and those that others announced.

use std::time::Duration;

use crate::{Instant, RateClass};

/// One's own experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) level: u8,
    pub(super) start: Instant,
}

/// Start times of experiments by level [RLM §3.4]. An experiment is in progress for a span that the
/// detection-time gives.
#[derive(Clone, Debug, Default)]
pub(super) struct Experiments {
    own: Option<Own>,
    heard: [Option<Instant>; RateClass::LAYERS as usize + 1],
}

impl Experiments {
    /// Notes that this receiver begins an experiment.
    pub(super) fn begin(&mut self, now: Instant, level: u8) {
        self.own = Some(Own { level, start: now });
    }

    /// Ends this receiver's experiment.
    pub(super) fn end(&mut self) {
        self.own = None;
    }

    /// Returns this receiver's experiment. It lasts until it is ended.
    pub(super) fn own(&self) -> Option<Own> {
        self.own
    }

    /// Notes that another receiver begins an experiment. Unknown levels are ignored.
    pub(super) fn hear(&mut self, now: Instant, level: u8) {
        if let Some(start) = self.heard.get_mut(usize::from(level)) {
            *start = Some(now);
        }
    }

    /// Returns the level of the highest experiment in progress that can be to blame for loss at
    /// `level`: one's own, or another's above this level.
    pub(super) fn highest(&self, now: Instant, span: Duration, level: u8) -> Option<u8> {
        let above = (level.saturating_add(1)..=RateClass::LAYERS).rev();
        let others = above.into_iter().find(|&above| self.is_heard(now, span, above));
        others.max(self.own.map(|own| own.level))
    }

    /// Returns whether another receiver's experiment below `level` is in progress.
    pub(super) fn any_below(&self, now: Instant, span: Duration, level: u8) -> bool {
        (1..level).any(|below| self.is_heard(now, span, below))
    }

    /// Forgets the experiment of others at a level, whose outcome is known.
    pub(super) fn forget(&mut self, level: u8) {
        if let Some(start) = self.heard.get_mut(usize::from(level)) {
            *start = None;
        }
    }

    fn is_heard(&self, now: Instant, span: Duration, level: u8) -> bool {
        let start = self.heard.get(usize::from(level)).copied().flatten();
        start.is_some_and(|start| now.since(start) < span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(2);

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn an_experiment_of_others_is_in_progress_for_the_span() {
        let mut experiments = Experiments::default();
        experiments.hear(at(10), 4);
        assert_eq!(experiments.highest(at(11), SPAN, 3), Some(4));
        assert_eq!(experiments.highest(at(12), SPAN, 3), None);
        assert_eq!(experiments.highest(at(11), SPAN, 4), None, "it is no news at this level");
        assert!(experiments.any_below(at(11), SPAN, 5));
        assert!(!experiments.any_below(at(11), SPAN, 4), "overlap is allowed at the same level");
        experiments.forget(4);
        assert_eq!(experiments.highest(at(11), SPAN, 3), None);
        experiments.hear(at(12), 200);
    }

    #[test]
    fn ones_own_counts_until_it_is_ended() {
        let mut experiments = Experiments::default();
        experiments.begin(at(10), 3);
        assert_eq!(experiments.highest(at(99), SPAN, 3), Some(3));
        experiments.hear(at(99), 2);
        assert_eq!(experiments.highest(at(99), SPAN, 3), Some(3));
        experiments.hear(at(99), 5);
        assert_eq!(experiments.highest(at(99), SPAN, 3), Some(5));
        experiments.end();
        assert_eq!(experiments.own(), None);
    }
}
