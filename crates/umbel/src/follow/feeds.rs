//! A resident receiver of feeds.
//!
//! One station listens to announcements. Each name has its plan, and at most one reception at a
//! time, on a thread of its own, which is that of `umbel recv`: whose feed a name is, is decided
//! there, and remembered in `known_feeds`.
//!
//! `*` stands for the names of known senders: those from whose key a feed was received whole before,
//! or whose key stands in a URL on the command line. Anybody can announce a feed, also one that
//! demands a token, so nothing else is taken without being named. A name that is known keeps its key.
//! A name that `*` brings does not take the place of what the user has under it in the drop
//! directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, Sender, unbounded};
use umbel_net::session::Pin;
use umbel_net::wake::Waker;
use umbel_store::sink::RelativePath;
use umbel_wire::feed::{Feed, FeedContent};
use umbel_wire::session::{FindSessions, SessionName};

use super::found::{Found, Noting};
use super::hooks::{Completion, Hooks, Settle};
use super::policy::{OnAir, Plan};
use super::taken::{Entry, Taken, senders};
use super::{END, Ended, FollowObserver, Followed, Hook, Missed, Running};
use crate::directory::{Directory, KnownSenders, Noun, Session, SessionSelector, Station};
use crate::endpoint::Interrupt;
use crate::feed::recv::{RecvObserver, RecvOptions, RecvSummary, recv};

/// Longest wait for announcements before the plans are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// First and longest pause between questions what is on the air.
const ASK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Most feeds that are received at once: each takes 32 MiB of memory.
const AT_ONCE: usize = 8;
/// Most names that are followed at once.
const MOST: usize = 1_024;
/// Least time between two looks at the known senders.
const ACQUAINT: Duration = Duration::from_secs(5);

/// Makes the observer of a reception of a name.
pub type ObserverOf = Box<dyn Fn(&str) -> Arc<dyn RecvObserver>>;

/// What a resident receiver of feeds takes, and how.
pub struct FeedFollower {
    /// The feeds.
    pub feeds: Vec<SessionSelector>,
    /// Whether the feeds of all known senders are taken.
    pub all: bool,
    /// The drop directory: each name has a directory, or a link, in it.
    pub directory: PathBuf,
    /// Name or address of the interface. Default: all.
    pub interface: Option<String>,
    /// State directory. Default: the user's.
    pub state_dir: Option<PathBuf>,
    /// Attempts after which a version is given up. Default: none.
    pub attempts: Option<NonZeroU32>,
    /// Command after each completion.
    pub hook: Option<Hook>,
    /// Makes the options for a feed that goes to this path.
    pub reception: Box<dyn Fn(SessionSelector, PathBuf) -> RecvOptions>,
    /// Makes the observer of a reception of this name.
    pub observer_of: ObserverOf,
}

/// A name that is followed.
struct Name {
    selector: SessionSelector,
    plan: Plan,
    path: PathBuf,
    /// Whether its sender was met in this process, or its key is remembered.
    is_known: bool,
    /// Whether `*` brought it.
    is_met: bool,
}

/// End of a reception.
struct Received {
    name: String,
    /// The version that was asked for.
    version: u64,
    found: Option<Found>,
    result: anyhow::Result<RecvSummary>,
}

type Observer = dyn FollowObserver<RecvSummary>;

struct Follower {
    options: FeedFollower,
    observer: Arc<Observer>,
    known: KnownSenders,
    names: BTreeMap<String, Name>,
    taken: Arc<Mutex<Taken>>,
    running: Running,
    hooks: Hooks,
    /// Names that are being received.
    under_way: BTreeSet<String>,
    done: (Sender<Received>, Receiver<Received>),
    /// Keys of the senders that are known, as of this time.
    keys: (BTreeSet<Pin>, Option<Instant>),
    /// Names that are remembered as another sender's, and who called a feed so.
    others: BTreeSet<(String, Pin)>,
    /// What was said of feeds that are not taken.
    said: BTreeSet<String>,
    followed: Followed,
}

/// Takes feeds until the user interrupts it, which takes at most [`END`].
///
/// # Errors
///
/// One line that says why nothing can be taken at all: no place for it, no interface, another
/// process that does the same.
pub fn follow_feeds(
    options: FeedFollower,
    observer: Arc<Observer>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<Followed> {
    let directory = &options.directory;
    let cannot = || format!("cannot make {}", directory.display());
    std::fs::create_dir_all(directory).with_context(cannot)?;
    let state = || options.state_dir.clone().map_or_else(crate::state::default_dir, Ok);
    let known = match state() {
        Ok(state) => KnownSenders::in_dir(Noun::Feed, &state),
        Err(error) => KnownSenders::nowhere(Noun::Feed, error.to_string()),
    };
    if options.all && state().is_err() && options.feeds.iter().all(|feed| feed.pin.is_none()) {
        bail!(
            "`*` takes the feeds of known senders, and without a state directory none is known: \
             name one with --state-dir, or give the line that a sender printed, too"
        );
    }
    let taken = Taken::open(state(), directory, |line| observer.note(line))?;
    let mut station = Station::open(options.interface.as_deref())?;
    let running = Running::default();
    let waker = station.waker();
    started(running.interrupt(move || waker.wake()));
    let mut follower = Follower::new(options, observer, known, taken, running);
    follower.name_feeds()?;
    if !follower.options.all {
        station.look_for(follower.names.values().map(|name| &name.selector.name));
    }
    let result = follower.run(&mut station);
    if result.is_err() {
        follower.running.interrupt(|| ()).interrupt();
    }
    let followed = follower.finish();
    result.map(|()| followed)
}

/// Returns what tells of commands that ended, and remembers what was taken.
fn settle(observer: Arc<Observer>, taken: Arc<Mutex<Taken>>) -> Settle {
    let failures = AtomicU64::new(0);
    Arc::new(move |completion: &Completion, ended: Option<&Ended>| {
        let Completion { came, entry } = completion;
        if let Some(ended) = ended {
            observer.hook_ended(came, ended);
        }
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = taken.remember(&came.name, entry.clone()) {
            // Once: a disk that is full stays full.
            if failures.fetch_add(1, Ordering::Relaxed) == 0 {
                observer.note(&format!("{error:#}"));
            }
        }
    })
}

impl Follower {
    fn new(
        options: FeedFollower,
        observer: Arc<Observer>,
        known: KnownSenders,
        taken: Taken,
        running: Running,
    ) -> Follower {
        let taken = Arc::new(Mutex::new(taken));
        let settle = settle(observer.clone(), taken.clone());
        let hooks = Hooks::new(options.hook.clone(), running.stop.clone(), settle);
        Follower {
            options,
            observer,
            known,
            names: BTreeMap::new(),
            taken,
            running,
            hooks,
            under_way: BTreeSet::new(),
            done: unbounded(),
            keys: (BTreeSet::new(), None),
            others: BTreeSet::new(),
            said: BTreeSet::new(),
            followed: Followed::default(),
        }
    }

    /// Enters the names that the user gives.
    fn name_feeds(&mut self) -> anyhow::Result<()> {
        for mut selector in std::mem::take(&mut self.options.feeds) {
            let name = selector.name.as_str().to_owned();
            // Before those that are only remembered.
            self.keys.0.extend(selector.pin);
            if let Some(noun) = selector.noun.filter(|&noun| noun != Noun::Feed) {
                bail!("that is the URL of a {noun}: `{}` takes it", noun.receiver());
            }
            let Some(path) = place_of(&self.options.directory, &name) else {
                bail!("`{name}` is no name for a directory, which --follow gives each feed");
            };
            if self.names.contains_key(&name) {
                bail!("`{name}` is named twice");
            }
            self.known.clone().look_up(&mut selector, |line| self.observer.note(line))?;
            self.enter(selector, path, false);
        }
        Ok(())
    }

    fn enter(&mut self, selector: SessionSelector, path: PathBuf, is_met: bool) {
        let name = selector.name.as_str().to_owned();
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Versions of another sender say nothing of this one's.
        let of_sender = |sender: &str| selector.pin.is_none_or(|pin| pin.to_string() == sender);
        let last = taken.last(&name).filter(|entry| entry.is_taken() && of_sender(&entry.sender));
        let plan = Plan::new(last.map(|entry| entry.version), self.options.attempts);
        drop(taken);
        let is_known = selector.pin.is_some();
        self.names.insert(name, Name { selector, plan, path, is_known, is_met });
    }

    fn run(&mut self, station: &mut Station) -> anyhow::Result<()> {
        let (mut ask_at, mut pause) = (Instant::now(), ASK.0);
        while !self.running.stop.is_set() {
            station.listen(LOOK)?;
            let ends: Vec<Received> = self.done.1.try_iter().collect();
            for end in ends {
                self.on_received(end);
            }
            let now = Instant::now();
            // All of them are asked at once.
            let wanting = self.names.values_mut().filter_map(|name| {
                let wants_sign = name.plan.wants_sign(now);
                wants_sign.then_some(())
            });
            let wants_sign = wanting.count() > 0;
            if station.takes_news() || wants_sign {
                (ask_at, pause) = (now, ASK.0);
            }
            if now >= ask_at {
                self.ask(station);
                ask_at = now + pause;
                pause = (pause * 2).min(ASK.1);
            }
            for (name, version) in self.look(station.directory(), now) {
                self.receive(&name, version, station.waker());
            }
        }
        Ok(())
    }

    fn ask(&self, station: &mut Station) {
        if self.options.all {
            station.ask(&FindSessions { name: None }, None);
        }
        for Name { selector, .. } in self.names.values() {
            let query = FindSessions { name: Some(selector.name.clone()) };
            station.ask(&query, selector.address);
        }
    }

    /// Returns the names and versions that are to be received now, which count as begun.
    fn look(&mut self, directory: &Directory, now: Instant) -> Vec<(String, u64)> {
        if self.names.len() >= MOST {
            self.make_room(directory);
        }
        let mut on_air: BTreeMap<String, Vec<OnAir>> = BTreeMap::new();
        for session in directory.sessions() {
            let Some((feed, pin)) = session.feed().zip(session.signer) else { continue };
            if self.is_wanted(session, feed, pin) {
                let heard = OnAir { version: feed.version, heard: session.heard };
                on_air.entry(feed.name.as_str().to_owned()).or_default().push(heard);
            }
        }
        let mut due = Vec::new();
        for (name, versions) in on_air {
            if self.under_way.len() >= AT_ONCE || self.hooks.is_full(&name) {
                continue;
            }
            let next = self.names.get_mut(&name).and_then(|name| name.plan.next(now, &versions));
            if let Some(version) = next {
                self.under_way.insert(name.clone());
                due.push((name, version));
            }
        }
        due
    }

    /// Returns whether a feed is one that is followed. Enters its name if `*` stands for it.
    fn is_wanted(&mut self, session: &Session, feed: &Feed, pin: Pin) -> bool {
        let name = feed.name.as_str();
        let has_files = matches!(feed.content, FeedContent::Files { .. });
        if !self.names.contains_key(name) && self.options.all && self.is_known(pin) {
            if has_files {
                self.meet(&feed.name, pin);
            } else {
                self.say_pipe(name);
            }
        }
        let Some(Name { selector, .. }) = self.names.get(name) else { return false };
        if !selector.matches(session) {
            if selector.pin.is_some_and(|own| own != pin) {
                self.say_other(name, pin);
            }
            return false;
        }
        if !has_files {
            self.say_pipe(name);
        }
        has_files
    }

    /// Enters a name of a known sender, if it is neither another's nor that of something the user has.
    fn meet(&mut self, name: &SessionName, pin: Pin) {
        let claimed = (name.to_string(), pin);
        if self.others.contains(&claimed) {
            return;
        }
        let Some(path) = place_of(&self.options.directory, name.as_str()) else {
            return self.say(&format!("`{name}` is no name for a directory: it is not taken"));
        };
        if self.names.len() >= MOST {
            return self.say(&format!(
                "{MOST} names are followed, which is the most: others have to wait until one of them \
                 is off the air"
            ));
        }
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = pin.to_string();
        let is_own = taken.last(name.as_str()).is_some_and(|entry| entry.sender == sender);
        drop(taken);
        if !is_own && is_there(&path) {
            return self.say(&format!(
                "`{name}` is not taken, since {} is there and nothing of this sender came to it: move \
                 it away, or name the feed beside `*`",
                path.display()
            ));
        }
        let mut selector = SessionSelector::of_name(name.clone());
        if let Err(error) = self.known.clone().look_up(&mut selector, |_| ()) {
            return self.say(&format!("{error:#}"));
        }
        if *selector.pin.get_or_insert(pin) != pin {
            if self.others.len() >= MOST {
                self.others.clear();
            }
            self.others.insert(claimed);
            return self.say_other(name.as_str(), pin);
        }
        if !is_own {
            // From now on what is there is this sender's, also after an interruption.
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let remembered = taken.remember(name.as_str(), Entry::begun(pin));
            drop(taken);
            if let Err(error) = remembered {
                self.say(&format!("{error:#}"));
            }
        }
        self.enter(selector, path, true);
    }

    /// Forgets the names that `*` brought and that are off the air, unless something is still done
    /// for them. They are met again when they come back.
    fn make_room(&mut self, directory: &Directory) {
        let on_air = directory.sessions().into_iter().filter_map(|session| {
            let (feed, pin) = session.feed().zip(session.signer)?;
            Some((feed.name.as_str(), pin))
        });
        let on_air: BTreeSet<(&str, Pin)> = on_air.collect();
        let (under_way, hooks) = (&self.under_way, &self.hooks);
        let is_idle = |name: &str, own: &Name| {
            let is_on_air = own.selector.pin.is_some_and(|pin| on_air.contains(&(name, pin)));
            own.is_met && !is_on_air && !under_way.contains(name) && !hooks.is_full(name)
        };
        let idle = self.names.iter().filter(|(name, own)| is_idle(name, own));
        let idle: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        for name in idle {
            self.names.remove(&name);
            self.hooks.forget(&name);
        }
    }

    /// Returns whether a key is that of a known sender.
    fn is_known(&mut self, pin: Pin) -> bool {
        let (keys, read) = &mut self.keys;
        if !keys.contains(&pin) && read.is_none_or(|read| read.elapsed() >= ACQUAINT) {
            *read = Some(Instant::now());
            let state = self.options.state_dir.clone().map_or_else(crate::state::default_dir, Ok);
            match state.map(|state| senders(&state)) {
                Ok(Ok(pins)) => keys.extend(pins),
                Ok(Err(error)) => self.say(&format!("{error:#}")),
                // Those on the command line are known all the same.
                Err(_) => {}
            }
        }
        self.keys.0.contains(&pin)
    }

    /// Tells a line once.
    fn say(&mut self, line: &str) {
        if self.said.len() < MOST && self.said.insert(line.to_owned()) {
            self.observer.note(line);
        }
    }

    fn say_other(&mut self, name: &str, pin: Pin) {
        self.say(&format!(
            "another sender calls its feed `{name}`, with the key {pin}: it is not taken"
        ));
    }

    fn say_pipe(&mut self, name: &str) {
        self.say(&format!("`{name}` is a pipe, which --follow does not take"));
    }

    fn receive(&self, name: &str, version: u64, waker: Waker) {
        let Some(Name { selector, path, is_known, .. }) = self.names.get(name) else { return };
        let selector = SessionSelector { since: version, ..selector.clone() };
        let options = (self.options.reception)(selector, path.clone());
        let noting = Arc::new(Noting::new((self.options.observer_of)(name), *is_known));
        let (running, done) = (self.running.clone(), self.done.0.clone());
        let own = name.to_owned();
        let run = move || {
            let observer: Arc<dyn RecvObserver> = noting.clone();
            let result = recv(options, observer, |interrupt| running.begin(&own, &interrupt));
            running.end(&own);
            // Nobody hears it any more if the end takes too long.
            let _ = done.send(Received { name: own, version, found: noting.found(), result });
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("umbel-follow".to_owned()).spawn(run);
        if let Err(error) = thread {
            let result = Err(error).context("no thread to receive it");
            let name = name.to_owned();
            let _ = self.done.0.send(Received { name, version, found: None, result });
        }
    }

    fn on_received(&mut self, received: Received) {
        let Received { name, version, found, result } = received;
        self.under_way.remove(&name);
        let now = Instant::now();
        let Some(own) = self.names.get_mut(&name) else { return };
        if let Some(found) = &found {
            own.is_known = true;
            if result.as_ref().is_ok_and(RecvSummary::is_whole) {
                // Whoever was believed first is the only one from now on.
                own.selector.pin.get_or_insert(found.sender);
                self.keys.0.insert(found.sender);
            } else if own.selector.pin.is_none() {
                // The next reception takes nothing but what is from this one, if it is remembered.
                let known = self.known.last_of(&own.selector.name).ok().flatten();
                own.selector.pin = known.map(|known| known.pin);
            }
        }
        let reason = match (&result, &found) {
            (Ok(summary), _) if summary.interrupted => "it was interrupted".to_owned(),
            (Ok(summary), Some(found)) if summary.is_whole() => {
                own.plan.on_taken(found.version);
                self.followed.taken += 1;
                let came = found.came(own.path.clone());
                self.observer.taken(&came, summary);
                return self.hooks.push(Completion { came, entry: found.entry() });
            }
            (Ok(summary), _) => summary.why_not_whole(),
            (Err(error), _) => format!("{error:#}"),
        };
        let failed = found.as_ref().map_or(version, |found| found.version.max(version));
        let verdict = own.plan.on_failed(now, failed);
        self.followed.failed += 1;
        self.observer.missed(&Missed {
            name,
            sender: own.selector.pin.map(|pin| pin.to_string()),
            reason,
            attempts: verdict.attempts,
            again_in: verdict.again_in,
        });
    }

    /// Ends what is running, which is interrupted by now. What is complete just then is taken if no
    /// command has to follow.
    fn finish(mut self) -> Followed {
        let deadline = Instant::now() + END;
        while !self.under_way.is_empty()
            && let Ok(received) = self.done.1.recv_deadline(deadline)
        {
            let is_whole = received.result.as_ref().is_ok_and(RecvSummary::is_whole);
            if is_whole && self.options.hook.is_none() {
                self.on_received(received);
            } else {
                self.under_way.remove(&received.name);
            }
        }
        self.hooks.finish(deadline);
        self.followed
    }
}

/// Returns whether something has this path, or may have it.
fn is_there(path: &Path) -> bool {
    let error = std::fs::symlink_metadata(path).err();
    error.is_none_or(|error| error.kind() != ErrorKind::NotFound)
}

/// Returns where the feeds of a name go in the drop directory. None has a place in that of another.
fn place_of(directory: &Path, name: &str) -> Option<PathBuf> {
    let path = RelativePath::of_item(name).ok().filter(|path| !path.is_hidden())?;
    (path.joined() == name && !name.contains('/')).then(|| directory.join(name))
}

#[cfg(test)]
mod tests;
