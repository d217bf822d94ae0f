//! Watches for a feed that takes the place of the one being received.
//!
//! A source that was killed and started again announces a new feed of the old name. The old source
//! may be silent for other reasons, so the directory asks it: a live source answers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use umbel_engine::host::Mailbox;
use umbel_net::wake::Waker;
use umbel_wire::feed::{Feed, FindSessions};

use super::store::Input;
use crate::directory::{Directory, FeedSelector, Station};

/// Interval at which the directory is inspected.
const LOOK: Duration = Duration::from_millis(500);
/// A source that leaves this number of questions unanswered, `ANSWER` apart, is gone.
const QUESTIONS: u32 = 6;
const ANSWER: Duration = Duration::from_millis(400);
/// Two live feeds of one name are asked again after this time at the earliest.
const ALIVE: Duration = Duration::from_secs(10);

/// Watches the directory while a feed is received.
#[derive(Debug)]
pub(super) struct Watch {
    thread: JoinHandle<(Station, Option<Feed>)>,
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl Watch {
    /// Watches for a successor of `feed`, and tells the host when there is one.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(super) fn start(
        station: Station,
        selector: FeedSelector,
        feed: Feed,
        host: Mailbox<Input>,
    ) -> io::Result<Watch> {
        let (waker, stopped) = (station.waker(), Arc::new(AtomicBool::new(false)));
        let mut watch = Watching { station, selector, feed, stopped: stopped.clone() };
        let run = move || {
            let successor = watch.run().unwrap_or_else(|error| {
                tracing::debug!("the directory is watched no more: {error:#}");
                None
            });
            if successor.is_some() {
                host.put(Input::Replaced);
            }
            (watch.station, successor)
        };
        let thread = std::thread::Builder::new().name("umbel-watch".to_owned()).spawn(run)?;
        Ok(Watch { thread, stopped, waker })
    }

    /// Ends the watch. Returns the successor, if there is one.
    pub(super) fn stop(self) -> Option<(Station, Feed)> {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        let (station, successor) = self.thread.join().ok()?;
        successor.map(|feed| (station, feed))
    }
}

struct Watching {
    station: Station,
    selector: FeedSelector,
    feed: Feed,
    stopped: Arc<AtomicBool>,
}

impl Watching {
    fn run(&mut self) -> anyhow::Result<Option<Feed>> {
        while self.listen(LOOK)? {
            let directory = self.station.directory();
            if successor(directory, &self.selector, &self.feed, Instant::now()).is_none() {
                continue;
            }
            let asked = Instant::now();
            for _ in 0..QUESTIONS {
                self.station.ask(&FindSessions { name: Some(self.selector.name.clone()) });
                if !self.listen(ANSWER)? {
                    return Ok(None);
                }
            }
            let found = successor(self.station.directory(), &self.selector, &self.feed, asked);
            if found.is_some() || !self.listen(ALIVE)? {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Listens for this time. Returns whether to go on.
    fn listen(&mut self, wait: Duration) -> anyhow::Result<bool> {
        let until = Instant::now() + wait;
        while !self.stopped.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            // An interruption also wakes the station, though it is not meant for the watch.
            if !self.station.listen(left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the feed that takes the place of `old`. It has the same name and source address, and
/// `old` was not heard since.
fn successor(
    directory: &Directory,
    selector: &FeedSelector,
    old: &Feed,
    since: Instant,
) -> Option<Feed> {
    let sessions = directory.sessions();
    let is_old = |feed: &Feed| feed.tsi == old.tsi && feed.source == old.source;
    let alive = sessions
        .iter()
        .any(|session| session.heard >= since && session.feed.as_ref().is_some_and(is_old));
    let matching = sessions.iter().filter(|session| selector.matches(session));
    let mut others = matching
        .filter_map(|session| session.feed.as_ref())
        .filter(|feed| !is_old(feed) && feed.source.ip() == old.source.ip());
    others.next_back().filter(|_| !alive).cloned()
}

#[cfg(test)]
mod tests {
    use super::super::super::super::directory::tests::{feed, packet};
    use super::*;

    #[test]
    fn a_feed_takes_the_place_of_one_that_does_not_answer_any_more() {
        let (old, new) =
            (feed("a", 1), Feed { source: "10.0.0.1:50000".parse().unwrap(), ..feed("a", 2) });
        let selector: FeedSelector = "a".parse().unwrap();
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut directory = Directory::default();
        let from = [10, 0, 0, 1];
        let found = |directory: &Directory| successor(directory, &selector, &old, later);
        directory.hear(start, &packet(&old, false, from));
        assert_eq!(found(&directory), None);
        directory.hear(later, &packet(&new, false, from));
        assert_eq!(found(&directory), Some(new.clone()));
        // Both answer: two feeds of one name.
        directory.hear(later, &packet(&old, false, from));
        assert_eq!(found(&directory), None);
        // Feeds of another host, or of another name.
        let mut directory = Directory::default();
        let mut foreign = new.clone();
        foreign.source = "10.0.0.2:50000".parse().unwrap();
        foreign.data.source = Some(foreign.source.ip());
        directory.hear(later, &packet(&foreign, false, [10, 0, 0, 2]));
        directory.hear(later, &packet(&Feed { name: "b".parse().unwrap(), ..new }, false, from));
        assert_eq!(found(&directory), None);
    }
}
