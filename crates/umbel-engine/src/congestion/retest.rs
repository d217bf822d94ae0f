//! Limits that nothing tests, since another path holds the rate down.

use std::time::Duration;

use super::Controller;
use super::api::PaceTo;
use super::config::pace::{RETEST_FIRST, RETEST_MOST, UNTESTED};
use crate::Instant;

/// When limits are forgotten that nothing tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retest {
    at: Option<Instant>,
    wait: Duration,
}

impl Default for Retest {
    fn default() -> Retest {
        Retest { at: None, wait: RETEST_FIRST }
    }
}

impl<Who: Ord + Clone> Controller<Who> {
    /// Forgets now and then what paths carry that one path holds back. What the others carried while a
    /// burst filled their queues may have been little, and at a rate far below it nothing tells.
    pub(super) fn retest(&mut self, now: Instant) {
        let Some(limiting) = self.limiting.as_ref().filter(|_| self.config.pace_to != PaceTo::All)
        else {
            self.retest.at = None;
            return;
        };
        let at = *self.retest.at.get_or_insert(now + self.retest.wait);
        if now < at {
            return;
        }
        let tested = self.rate * UNTESTED;
        let mut any = false;
        for (who, path) in &mut self.paths {
            if who != limiting && path.bound.is_some() && path.carries > tested {
                path.forget_bound();
                any = true;
            }
        }
        if any {
            self.retest.wait = (self.retest.wait * 2).min(RETEST_MOST);
        }
        self.retest.at = Some(now + self.retest.wait);
    }
}
