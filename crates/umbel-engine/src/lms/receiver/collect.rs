//! The collect service: answers are merged on the way to the source [LMS §III-G].
//!
//! A report travels as a request does, so that the reports of a subtree meet at its replier. Each
//! member holds its answers for a random part of the spread, and sends all of them as one report.
//! Every answer is in one report at a time. A lost report loses its answers, and none is counted
//! twice.

use std::time::Duration;

use umbel_wire::lms::Summary;

use crate::Instant;

/// The latest round.
#[derive(Clone, Debug, Default)]
pub(super) struct Collecting {
    round: u32,
    spread: Duration,
    held: Option<Summary>,
    report_at: Option<Instant>,
}

impl Collecting {
    /// Begins a round. Returns whether it is a new one.
    pub(super) fn on_question(&mut self, round: u32, spread: Duration) -> bool {
        if round <= self.round {
            return false;
        }
        *self = Collecting { round, spread, held: None, report_at: None };
        true
    }

    /// Adds answers. Returns whether they belong to the latest round. `share`, from 0 to 1, is the
    /// part of the spread for which they are held.
    pub(super) fn add(&mut self, now: Instant, round: u32, answers: Summary, share: f64) -> bool {
        if round != self.round || round == 0 {
            return false;
        }
        self.held = Some(self.held.map_or(answers, |held| held.and(answers)));
        let wait = self.spread.mul_f64(share.clamp(0.0, 1.0));
        self.report_at.get_or_insert(now + wait);
        true
    }

    /// Takes the report that is due, with its round.
    pub(super) fn due(&mut self, now: Instant) -> Option<(u32, Summary)> {
        self.report_at.take_if(|at| *at <= now)?;
        Some((self.round, self.held.take()?))
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.report_at
    }
}
