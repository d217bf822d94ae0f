//! Limits that are forgotten: those that nothing tests, since another path holds the rate down, and
//! those far below what a path has carried.

use std::time::Duration;

use super::Controller;
use super::api::PaceTo;
use super::config::pace::{FAR_BELOW, RETEST_FIRST, RETEST_MOST, UNTESTED};
use super::phases::Phase;
use crate::Instant;

/// When a limit is forgotten next, and how long after that again.
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

impl Retest {
    /// Returns whether it is time, and waits for the next time, if so.
    fn is_due(&mut self, now: Instant) -> bool {
        let at = *self.at.get_or_insert(now + self.wait);
        let due = now >= at;
        if due {
            self.at = None;
        }
        due
    }

    /// Waits twice as long from now on.
    fn wait_longer(&mut self) {
        self.wait = (self.wait * 2).min(RETEST_MOST);
    }
}

impl<Who: Ord + Clone> Controller<Who> {
    /// Forgets now and then a limit that is far below what the path has carried: others may have
    /// filled it, who are gone. To find out by probes would take minutes, since at so low a rate
    /// packets are few, and those of before seem to prove the limit.
    pub(super) fn retest_low_limit(&mut self, now: Instant) {
        let is_calm = matches!(self.phase, Phase::Cruise | Phase::Probe);
        let Some(path) = self.limiting.as_ref().and_then(|who| self.paths.get_mut(who)) else {
            return;
        };
        if path.bound.is_none() || path.competition.is_some() {
            return;
        }
        if path.carries >= path.carried_most * FAR_BELOW {
            path.retest = Retest::default();
        } else if is_calm && path.retest.is_due(now) {
            path.retest.wait_longer();
            path.begin_anew(&self.config);
        }
    }

    /// Forgets now and then what paths carry that one path holds back. What the others carried while a
    /// burst filled their queues may have been little, and at a rate far below it nothing tells.
    pub(super) fn retest(&mut self, now: Instant) {
        let Some(limiting) = self.limiting.as_ref().filter(|_| self.config.pace_to != PaceTo::All)
        else {
            self.retest.at = None;
            return;
        };
        if !self.retest.is_due(now) {
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
            self.retest.wait_longer();
        }
    }
}
