//! Trial of a parent: whether its repairs repair.
//!
//! A repair has no code of its sender, so a wrong one proves nothing against the parent: anybody
//! may have forged its address. But that keeps no honest parent's repairs from coming, and the
//! digests of a watched block show which symbols are right. So a parent is judged by what it
//! brings:
//!
//! ```text
//!   asked for a watched block ──wrong repairs came, no right one──▶ asked again: a strike
//!              ▲                                                       │ STRIKES in a row
//!              └──────────────── a right repair: innocent ◀────────────┤
//!                                                                      ▼
//!                                                            guilty: it is left, and barred
//! ```
//!
//! A parent that sends nothing is none of this: what it does not repair comes from the source.

use std::time::Duration;

use crate::Instant;

/// Strikes in a row after which a parent is guilty.
const STRIKES: u8 = 8;
/// Least time between two questions of which the second may be a strike.
const LEAST_WINDOW: Duration = Duration::from_millis(200);

/// What the repairs of the present parent were worth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    /// Time of the question that waits for an answer.
    asked: Option<Instant>,
    /// A wrong repair came since, and no right one.
    wrong: bool,
    strikes: u8,
}

impl Trial {
    /// Notes that the parent was asked for a watched block, by this node or a sibling. It has
    /// `window` to answer, and at least 200 ms.
    pub(super) fn on_asked(&mut self, now: Instant, window: Duration) {
        let window = window.max(LEAST_WINDOW);
        if self.asked.is_some_and(|asked| now.since(asked) < window) {
            return;
        }
        self.strikes += u8::from(self.wrong && self.strikes < STRIKES);
        (self.asked, self.wrong) = (Some(now), false);
    }

    /// Notes a repair of a watched block.
    pub(super) fn on_repair(&mut self, is_right: bool) {
        if is_right {
            *self = Trial::default();
        } else {
            self.wrong = self.asked.is_some();
        }
    }

    /// Returns whether the parent is guilty.
    pub(super) fn is_guilty(&self) -> bool {
        self.strikes >= STRIKES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    const WINDOW: Duration = Duration::from_millis(300);

    /// Asks every 100 ms for `turns` times; `answer` says what comes in between.
    fn ask(trial: &mut Trial, turns: u64, answer: impl Fn(u64) -> Option<bool>) {
        for turn in 0..turns {
            trial.on_asked(ms(turn * 100), WINDOW);
            if let Some(is_right) = answer(turn) {
                trial.on_repair(is_right);
            }
        }
    }

    #[test]
    fn a_parent_that_brings_only_wrong_repairs_is_guilty_after_eight_windows() {
        let mut trial = Trial::default();
        ask(&mut trial, 24, |_| Some(false));
        assert!(!trial.is_guilty());
        trial.on_asked(ms(2_400), WINDOW);
        assert!(trial.is_guilty());
    }

    #[test]
    fn forged_repairs_do_not_convict_a_parent_of_which_one_in_twenty_is_right() {
        let mut trial = Trial::default();
        ask(&mut trial, 1_000, |turn| Some(turn % 20 == 0));
        assert!(!trial.is_guilty());
    }

    #[test]
    fn a_parent_that_brings_nothing_is_not_guilty_nor_is_one_that_was_not_asked() {
        let mut trial = Trial::default();
        ask(&mut trial, 1_000, |_| None);
        assert!(!trial.is_guilty());
        for _ in 0..1_000 {
            trial.on_repair(false);
        }
        let mut trial = Trial::default();
        for _ in 0..1_000 {
            trial.on_repair(false);
        }
        trial.on_asked(ms(0), WINDOW);
        assert_eq!(trial.strikes, 0);
    }
}
