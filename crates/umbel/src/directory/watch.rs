//! Watches the session that is being received: whether another takes its place, or it is over.
//!
//! A source that was killed and started again announces a new session of the old name. The old
//! source may be silent for other reasons, so the directory asks it: a live source answers.
//!
//! Whoever sends an earlier announcement again seems to answer, too. So while nothing is heard of
//! the session itself, a later one of the same sender takes its place in any case, and the directory
//! is asked for one.
//!
//! It is also seen whether this host still has the address at which a feed is received: a receiver
//! has one place in the feed's tree, and another address needs another place.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use umbel_net::wake::Waker;
use umbel_wire::session::{FindSessions, SessionKind};

use super::{Directory, SessionSelector, Station};
use crate::endpoint::interface::OwnAddress;

/// Interval at which the directory is inspected.
const LOOK: Duration = Duration::from_millis(500);
/// A source that leaves this number of questions unanswered, `ANSWER` apart, is gone.
const QUESTIONS: u32 = 6;
const ANSWER: Duration = Duration::from_millis(400);
/// Two live sessions of one name are asked again after this time at the earliest.
const ALIVE: Duration = Duration::from_secs(10);

/// Pause between questions while nothing is heard of the session, which doubles up to `ASK_MAX`.
const ASK: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_mins(1);

/// Time without a sign of the source after which it counts as silent.
const SILENT: Duration = Duration::from_secs(5);

/// Time for which this host's address may be gone.
const LOST: Duration = Duration::from_secs(3);

/// Whether nothing is heard of the session that is received, as its host says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence(Arc<AtomicBool>);

impl Silence {
    /// Says for how long nothing was heard.
    pub(crate) fn note(&self, quiet_for: Duration) {
        self.0.store(quiet_for >= SILENT, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Signs of the source that a host has counted, and the time since which there are no others.
#[derive(Debug, Default)]
pub(crate) struct Signs(Option<(u64, umbel_engine::Instant)>);

impl Signs {
    /// Returns for how long there have been so many.
    pub(crate) fn quiet_for(&mut self, signs: u64, now: umbel_engine::Instant) -> Duration {
        let same = self.0.filter(|(before, _)| *before == signs);
        let (_, since) = *self.0.insert(same.unwrap_or((signs, now)));
        now - since
    }
}

/// News of a session that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Another session takes its place.
    Replaced,
    /// This host has no longer the address at which it is received.
    Moved,
    /// Its source has announced its end.
    Over,
}

/// A session that is being received.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) session: SessionKind,
    pub(crate) silence: Silence,
    /// This host's address for it, if it matters.
    pub(crate) address: Option<IpAddr>,
}

/// Watches the directory while a session is received.
#[derive(Debug)]
pub(crate) struct Watch {
    thread: JoinHandle<(Station, Option<SessionKind>)>,
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl Watch {
    /// Watches a session, and tells the host when it is over, has a successor, or is not received at
    /// its address any more. The host says whether it is silent.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(crate) fn start(
        station: Station,
        selector: SessionSelector,
        watched: Watched,
        tell: impl Fn(News) + Send + 'static,
    ) -> io::Result<Watch> {
        let (waker, stopped) = (station.waker(), Arc::new(AtomicBool::new(false)));
        let Watched { session, silence, address } = watched;
        let (own, stopping) = (OwnAddress::new(address, LOST), stopped.clone());
        let mut watch = Watching { station, selector, session, silence, own, stopped: stopping };
        let run = move || {
            let successor = watch.run(&tell).unwrap_or_else(|error| {
                tracing::debug!("the directory is watched no more: {error:#}");
                None
            });
            if let Some(successor) = &successor {
                let moved = is_same(successor, &watch.session);
                tell(if moved { News::Moved } else { News::Replaced });
            }
            (watch.station, successor)
        };
        let thread = std::thread::Builder::new().name("umbel-watch".to_owned()).spawn(run)?;
        Ok(Watch { thread, stopped, waker })
    }

    /// Ends the watch. Returns the successor, if there is one: the session itself if this host has
    /// moved.
    pub(crate) fn stop(self) -> Option<(Station, SessionKind)> {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        let (station, successor) = self.thread.join().ok()?;
        successor.map(|session| (station, session))
    }
}

struct Watching {
    station: Station,
    selector: SessionSelector,
    session: SessionKind,
    silence: Silence,
    own: OwnAddress,
    stopped: Arc<AtomicBool>,
}

impl Watching {
    fn run(&mut self, tell: &impl Fn(News)) -> anyhow::Result<Option<SessionKind>> {
        let mut over = false;
        let (mut asked, mut pause) = (Instant::now(), ASK);
        while self.listen(LOOK)? {
            if self.own.is_lost() {
                return Ok(Some(self.session.clone()));
            }
            let directory = self.station.directory();
            if others(directory, &self.selector, &self.session).next().is_none() {
                if !over && !is_announced(directory, &self.session) {
                    over = true;
                    tell(News::Over);
                }
                if self.silence.is_set() && asked.elapsed() >= pause {
                    self.ask();
                    (asked, pause) = (Instant::now(), (pause * 2).min(ASK_MAX));
                }
                continue;
            }
            let asked = Instant::now();
            for _ in 0..QUESTIONS {
                self.ask();
                if !self.listen(ANSWER)? {
                    return Ok(None);
                }
            }
            let silent = self.silence.is_set();
            let old = (&self.session, silent);
            let found = successor(self.station.directory(), &self.selector, old, asked);
            if found.is_some() || !self.listen(ALIVE)? {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn ask(&mut self) {
        let query = FindSessions { name: Some(self.selector.name.clone()) };
        self.station.ask(&query, self.selector.address);
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

/// Returns whether both are the same session, in any versions.
pub(super) fn is_same(one: &SessionKind, other: &SessionKind) -> bool {
    (one.tsi(), one.source()) == (other.tsi(), other.source())
}

/// Returns the version of a session, which is greater than those before it of the same sender.
fn version_of(session: &SessionKind) -> u64 {
    match session {
        SessionKind::Feed(feed) => feed.version,
        SessionKind::Stream(stream) => stream.version,
    }
}

/// Returns whether both are feeds, or both streams.
fn is_alike(one: &SessionKind, other: &SessionKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn is_announced(directory: &Directory, session: &SessionKind) -> bool {
    let sessions = directory.sessions();
    sessions.iter().any(|heard| heard.kind.as_ref().is_some_and(|kind| is_same(kind, session)))
}

/// Returns the sessions of the same kind, name and source address as `old`, with the times at which
/// they were heard.
fn others<'a>(
    directory: &'a Directory,
    selector: &'a SessionSelector,
    old: &'a SessionKind,
) -> impl DoubleEndedIterator<Item = (Instant, &'a SessionKind)> {
    let sessions = directory.sessions().into_iter().filter(|session| selector.matches(session));
    sessions.filter_map(|session| Some((session.heard, session.kind.as_ref()?))).filter(
        move |(_, other)| {
            !is_same(other, old) && is_alike(other, old) && other.source().ip() == old.source().ip()
        },
    )
}

/// Returns the session that takes the place of `old`: it was heard since this time, and `old` was
/// not announced, or is silent and earlier.
fn successor(
    directory: &Directory,
    selector: &SessionSelector,
    (old, silent): (&SessionKind, bool),
    since: Instant,
) -> Option<SessionKind> {
    let is_old = |session: &SessionKind| is_same(session, old);
    let alive = directory
        .sessions()
        .iter()
        .any(|session| session.heard >= since && session.kind.as_ref().is_some_and(is_old));
    let mut live = others(directory, selector, old).filter(|(heard, _)| *heard >= since);
    let is_later = |other: &SessionKind| version_of(other) > version_of(old);
    let takes_place = |other: &SessionKind| !alive || silent && is_later(other);
    live.next_back().filter(|(_, other)| takes_place(other)).map(|(_, other)| other.clone())
}

#[cfg(test)]
mod tests {
    use umbel_wire::feed::Feed;
    use umbel_wire::stream::Stream;

    use super::super::tests::{feed, packet, signed_packet, signer, stream};
    use super::*;

    #[test]
    fn a_feed_takes_the_place_of_one_that_does_not_answer_any_more() {
        let (old, new) = (
            feed("a", 1),
            Feed { source: "10.0.0.1:50000".parse().unwrap(), version: 2, ..feed("a", 2) },
        );
        let selector: SessionSelector = "a".parse().unwrap();
        let (start, keys) = (Instant::now(), signer(1));
        let later = start + Duration::from_secs(1);
        let mut directory = Directory::default();
        let from = [10, 0, 0, 1];
        let old_session = SessionKind::from(old.clone());
        let found =
            |directory: &Directory| successor(directory, &selector, (&old_session, false), later);
        directory.hear(start, from.into(), &signed_packet(old.clone(), false, &keys));
        assert_eq!(found(&directory), None);
        directory.hear(later, from.into(), &signed_packet(new.clone(), false, &keys));
        assert_eq!(found(&directory), Some(new.clone().into()));
        // None that is gone as well takes its place.
        let much_later = later + Duration::from_secs(1);
        assert_eq!(successor(&directory, &selector, (&old_session, true), much_later), None);
        // Both answer: two feeds of one name.
        directory.hear(later, from.into(), &signed_packet(old.clone(), false, &keys));
        assert_eq!(found(&directory), None);
        // Of one that is silent somebody may have sent the announcement again.
        assert!(new.version > old.version);
        let silent = successor(&directory, &selector, (&old_session, true), later);
        assert_eq!(silent, Some(new.clone().into()));
        let new_session = SessionKind::from(new.clone());
        assert_eq!(successor(&directory, &selector, (&new_session, true), later), None);
        // Feeds of another host, or of another name.
        let mut directory = Directory::default();
        let mut foreign = new.clone();
        foreign.source = "10.0.0.2:50000".parse().unwrap();
        foreign.data.source = Some(foreign.source.ip());
        directory.hear(later, [10, 0, 0, 2].into(), &signed_packet(foreign, false, &keys));
        let other = Feed { name: "b".parse().unwrap(), ..new };
        directory.hear(later, from.into(), &signed_packet(other, false, &keys));
        assert_eq!(found(&directory), None);
    }

    #[test]
    fn a_stream_is_over_when_its_source_says_so_and_no_feed_takes_its_place() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let selector: SessionSelector = "a".parse().unwrap();
        let from = [10, 0, 0, 1];
        let old = SessionKind::from(stream("a", 1));
        let keys = signer(1);
        directory.hear(now, from.into(), &signed_packet(old.clone(), false, &keys));
        assert!(is_announced(&directory, &old));
        // Nobody else can end it.
        directory.hear(now, from.into(), &packet(old.clone(), true, from));
        directory.hear(now, from.into(), &signed_packet(old.clone(), true, &signer(2)));
        assert!(is_announced(&directory, &old));
        directory.hear(now, from.into(), &signed_packet(old.clone(), true, &keys));
        assert!(!is_announced(&directory, &old));
        directory.hear(now, from.into(), &signed_packet(feed("a", 2), false, &signer(1)));
        assert_eq!(successor(&directory, &selector, (&old, false), now), None);
        let new = SessionKind::from(stream("a", 3));
        // An unsigned session takes no place.
        directory.hear(now, from.into(), &packet(new.clone(), false, from));
        assert_eq!(successor(&directory, &selector, (&old, false), now), None);
        directory.hear(now, from.into(), &signed_packet(new.clone(), false, &keys));
        assert_eq!(successor(&directory, &selector, (&old, false), now), Some(new.clone()));
        // Of one that is silent somebody may have sent the announcement again.
        let later = SessionKind::from(Stream { version: 2, ..stream("a", 4) });
        directory.hear(now, from.into(), &signed_packet(later.clone(), false, &keys));
        assert_eq!(successor(&directory, &selector, (&new, false), now), None);
        assert_eq!(successor(&directory, &selector, (&new, true), now), Some(later));
    }
}
