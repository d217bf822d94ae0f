//! When a feed is complete: whom the source waits for at the end.

use std::time::Duration;

use crate::Instant;

/// Time for which the source waits at the end for a receiver that has left the tree without a
/// word.
const ABSENT: Duration = Duration::from_secs(10);

/// The end of a feed. A receiver that said that it receives, or was counted and never spoke, may be
/// about to come back. It is waited for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Completion {
    /// Most receivers that were in the tree at a time.
    most: usize,
    /// Time since which all that are in the tree have everything.
    settled: Option<Instant>,
    complete: bool,
    /// Time at which something of a receiver came last.
    heard: Option<Instant>,
}

impl Completion {
    /// Notes how many receivers are in the tree.
    pub(super) fn count(&mut self, members: usize) {
        self.most = self.most.max(members);
    }

    /// Notes that something of a receiver came.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Returns when something of a receiver came last.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// Notes that somebody in the tree lacks something.
    pub(super) fn unsettle(&mut self) {
        self.settled = None;
    }

    /// Notes that all that are in the tree have everything, or gave up. `reported` receivers have
    /// spoken, and `receiving` of them said last that they receive. Returns whether that completes
    /// the feed, which it does once.
    pub(super) fn on_settled(&mut self, now: Instant, receiving: usize, reported: usize) -> bool {
        let since = *self.settled.get_or_insert(now);
        let spoken = receiving == 0 && reported >= self.most;
        let complete = spoken || now.since(since) >= ABSENT;
        complete && !std::mem::replace(&mut self.complete, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_is_complete_once_when_all_have_spoken_or_were_waited_for() {
        let at = |s| Instant::EPOCH + Duration::from_secs(s);
        let mut completion = Completion::default();
        completion.count(2);
        completion.count(1);
        assert!(!completion.on_settled(at(0), 0, 1), "one never spoke");
        completion.unsettle();
        assert!(!completion.on_settled(at(8), 0, 1) && !completion.on_settled(at(17), 0, 1));
        assert!(completion.on_settled(at(18), 0, 1), "it was waited for");
        assert!(!completion.on_settled(at(19), 0, 2), "that is no news");
        let mut completion = Completion::default();
        completion.count(1);
        assert!(!completion.on_settled(at(0), 1, 1), "it said that it receives");
        assert!(completion.on_settled(at(1), 0, 1));
    }
}
