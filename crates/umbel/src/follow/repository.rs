//! A resident client of a repository.
//!
//! A server does not tell clients that its list has changed, so the list is asked for again and
//! again. Names, lengths and times in it say whether anything may have changed; if so, what changed
//! is brought up to date as `umbel get` does. What was brought is a version of its own if its names
//! or contents are others than those of the last.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use umbel_net::session::SessionUrl;
use umbel_wire::Digest;
use umbel_wire::repository::{ItemInfo, ItemKind};

use super::hooks::{Completion, Hooks, Settle};
use super::policy::{OnAir, Plan, pause_after};
use super::taken::{Entry, Taken};
use super::{Came, END, Ended, FollowObserver, Followed, Hook, Missed, Running};
use crate::endpoint::{Interrupt, random};
use crate::get::{GetOptions, Observer, Summary, get};
use crate::list::walk;

/// Time for which a reception goes on without the server. Then the list is asked for again, after
/// ever longer pauses.
const RETRY: Duration = Duration::from_mins(1);

/// What a resident client takes, and how.
pub struct RepositoryFollower {
    /// The items, and where they go: an absolute path.
    pub options: GetOptions,
    /// Pause between two looks at the list, of which up to a fifth is taken off or added.
    pub every: Duration,
    /// State directory. Default: the user's.
    pub state_dir: Option<PathBuf>,
    /// Attempts after which a version is given up. Default: none.
    pub attempts: Option<NonZeroU32>,
    /// Command after each completion.
    pub hook: Option<Hook>,
    /// Makes the observer of a reception.
    pub observer: Box<dyn Fn() -> Arc<dyn Observer>>,
}

/// Result of a look at the list.
enum Look {
    Listed(Digest),
    Failed(anyhow::Error),
    Interrupted,
}

struct Follower {
    options: RepositoryFollower,
    observer: Arc<dyn FollowObserver<Summary>>,
    taken: Arc<Mutex<Taken>>,
    running: Running,
    /// Hears that it is interrupted.
    called: (Sender<()>, Receiver<()>),
    hooks: Hooks,
    /// Address of the server, for people.
    name: String,
    /// Name under which its versions are remembered.
    remembered_as: String,
    followed: Followed,
}

/// Takes what a server offers, and what changes, until the user interrupts it, which takes at most
/// [`END`].
///
/// # Errors
///
/// One line that says why nothing can be taken at all: options that contradict each other, no place
/// for it, another process that does the same.
pub fn follow_repository(
    mut options: RepositoryFollower,
    observer: Arc<dyn FollowObserver<Summary>>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<Followed> {
    options.options.retry_for.get_or_insert(RETRY);
    options.options.check()?;
    let running = Running::default();
    let called = bounded(1);
    let call = called.0.clone();
    started(running.interrupt(move || {
        let _ = call.try_send(());
    }));
    let GetOptions { url, patterns, output, releases, .. } = &options.options;
    // A link is not there yet, and leads elsewhere later.
    let link = releases.and(output.parent().zip(output.file_name()));
    let (made, place) = match link {
        Some((parent, name)) => (parent, parent.join(name).join("of-a-link")),
        None => (output.as_path(), output.clone()),
    };
    std::fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
    let state = options.state_dir.clone().map_or_else(crate::state::default_dir, Ok);
    let taken = Taken::open(state, &place, |line| observer.note(line))?;
    let name = address_of(url);
    let asked = SessionUrl { token: None, ..url.clone() }.to_string() + &patterns.join("\n");
    let remembered_as = format!("repository {}", &blake3::hash(asked.as_bytes()).to_hex()[..16]);
    let taken = Arc::new(Mutex::new(taken));
    let settle = settle(observer.clone(), taken.clone(), remembered_as.clone());
    let hooks = Hooks::new(options.hook.clone(), running.stop.clone(), settle);
    let mut follower = Follower {
        options,
        observer,
        taken,
        running,
        called,
        hooks,
        name,
        remembered_as,
        followed: Followed::default(),
    };
    follower.run();
    let deadline = Instant::now() + END;
    follower.hooks.finish(deadline);
    Ok(follower.followed)
}

/// Returns the address in a URL.
pub(crate) fn address_of(url: &SessionUrl) -> String {
    let whole = SessionUrl { token: None, pin: None, ..url.clone() }.to_string();
    whole.trim_start_matches("umbel://").trim_end_matches('/').to_owned()
}

/// Returns what a command hears of what came: in the place of a key that no URL has, the address.
pub(crate) fn came(url: &SessionUrl, path: PathBuf, summary: &Summary) -> Came {
    let name = address_of(url);
    let sender = url.pin.map_or_else(|| name.clone(), |pin| pin.to_string());
    Came { name, path, sender, digest: summary.digest.clone() }
}

/// Returns what tells of commands that ended, and remembers what was taken.
fn settle(
    observer: Arc<dyn FollowObserver<Summary>>,
    taken: Arc<Mutex<Taken>>,
    remembered_as: String,
) -> Settle {
    Arc::new(move |completion: &Completion, ended: Option<&Ended>| {
        if let Some(ended) = ended {
            observer.hook_ended(&completion.came, ended);
        }
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = taken.remember(&remembered_as, completion.entry.clone()) {
            observer.note(&format!("{error:#}"));
        }
    })
}

impl Follower {
    fn run(&mut self) {
        let mut plan = Plan::new(None, self.options.attempts);
        // What was brought last, and what the list was then.
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = taken.last(&self.remembered_as).map(|entry| entry.digest.clone());
        drop(taken);
        let (mut list, mut version, mut absent) = (None, 0, 0);
        loop {
            let pause = match self.look() {
                Look::Interrupted => return,
                Look::Failed(error) => {
                    absent += 1;
                    let pause = pause_after(absent);
                    // Once: it may be away for days.
                    if absent == 1 {
                        self.miss(format!("{error:#}"), absent, Some(pause));
                    }
                    pause
                }
                Look::Listed(digest) => {
                    if std::mem::take(&mut absent) > 0 {
                        self.observer.note(&format!("{} answers again", self.name));
                    }
                    if list.replace(digest) != Some(digest) {
                        version += 1;
                    }
                    let now = Instant::now();
                    // What a command works on is not replaced.
                    let waits = self.hooks.is_full(&self.name);
                    let on_air = [OnAir { version, heard: now }];
                    match (!waits).then(|| plan.next(now, &on_air)).flatten() {
                        None => self.options.every,
                        Some(version) => match self.bring(&mut last) {
                            Ok(true) => {
                                plan.on_taken(version);
                                self.options.every
                            }
                            Ok(false) => return,
                            Err(reason) => {
                                let verdict = plan.on_failed(Instant::now(), version);
                                self.miss(reason, verdict.attempts, verdict.again_in);
                                verdict.again_in.unwrap_or(self.options.every)
                            }
                        },
                    }
                }
            };
            if !self.pause(pause) {
                return;
            }
        }
    }

    /// Brings what changed. Returns `false` if it is interrupted, or why not all of it came.
    fn bring(&mut self, last: &mut Option<String>) -> Result<bool, String> {
        let (running, name) = (self.running.clone(), self.name.clone());
        let observer = (self.options.observer)();
        let options = GetOptions { unless: last.clone(), ..self.options.options.clone() };
        let result = get(options, observer, |interrupt| {
            running.begin(&name, &interrupt);
        });
        self.running.end(&self.name);
        if self.running.stop.is_set() {
            return Ok(false);
        }
        let summary = result.map_err(|error| format!("{error:#}"))?;
        if !summary.is_whole() {
            return Err(why_not_whole(&summary));
        }
        if last.as_ref() == Some(&summary.digest) {
            tracing::info!("nothing has changed");
            return Ok(true);
        }
        *last = Some(summary.digest.clone());
        self.followed.taken += 1;
        let came = came(&self.options.options.url, self.options.options.output.clone(), &summary);
        self.observer.taken(&came, &summary);
        let entry = Entry { sender: came.sender.clone(), version: 0, digest: came.digest.clone() };
        self.hooks.push(Completion { came, entry });
        Ok(true)
    }

    fn miss(&mut self, reason: String, attempts: u32, again_in: Option<Duration>) {
        self.followed.failed += 1;
        let sender = self.options.options.url.pin.map(|pin| pin.to_string());
        self.observer.missed(&Missed {
            name: self.name.clone(),
            sender,
            reason,
            attempts,
            again_in,
        });
    }

    /// Asks for the list.
    fn look(&self) -> Look {
        let GetOptions { url, credentials, patterns, .. } = &self.options.options;
        let (url, credentials, patterns) = (url.clone(), credentials.clone(), patterns.clone());
        let (tell, told) = bounded(1);
        let run = move || {
            let mut list = blake3::Hasher::new();
            let missing = walk(&url, credentials, &patterns, |item| add(&mut list, item));
            let listed = missing.map(|_| Digest(*list.finalize().as_bytes()));
            // Nobody waits for it after an interruption.
            let _ = tell.send(listed);
        };
        let thread = std::thread::Builder::new().name("umbel-list".to_owned()).spawn(run);
        if let Err(error) = thread {
            return Look::Failed(
                anyhow::Error::from(error).context("no thread to ask for the list"),
            );
        }
        crossbeam_channel::select! {
            recv(told) -> listed => match listed {
                Ok(Ok(digest)) => Look::Listed(digest),
                Ok(Err(error)) => Look::Failed(error),
                Err(_) => Look::Failed(anyhow::anyhow!("the list was not read to its end")),
            },
            recv(self.called.1) -> _ => Look::Interrupted,
        }
    }

    /// Waits for about this time. Returns `false` if it is interrupted.
    fn pause(&self, time: Duration) -> bool {
        // Clients that were started at once do not ask at once for ever.
        let draw = random::<1>().map_or(0.5, |[byte]| f64::from(byte) / 255.0);
        let time = time.mul_f64(0.8 + 0.4 * draw);
        let called = self.called.1.recv_timeout(time);
        matches!(called, Err(RecvTimeoutError::Timeout)) && !self.running.stop.is_set()
    }
}

/// Adds what says of an item whether it may have changed. Its digest may not be known yet.
fn add(list: &mut blake3::Hasher, item: &ItemInfo) {
    let digest = if item.modified_ns.is_none() { item.digest.0 } else { [0; 32] };
    let leads = match &item.kind {
        ItemKind::Link(text) => text.as_str(),
        ItemKind::HardLink(name) => name.as_str(),
        ItemKind::File | ItemKind::Directory => "",
    };
    let numbers = [
        item.name.len() as u64,
        leads.len() as u64,
        u64::from(item.kind.is_directory()),
        item.oti.object_len,
        item.modified_ns.unwrap_or_default().cast_unsigned(),
        item.mode.map_or(0, |mode| u64::from(mode) + 1),
    ];
    for number in numbers {
        list.update(&number.to_le_bytes());
    }
    list.update(item.name.as_bytes()).update(leads.as_bytes()).update(&digest);
}

/// Returns in one line why not everything is there.
pub(crate) fn why_not_whole(summary: &Summary) -> String {
    match (summary.failures.as_slice(), summary.vanished.as_slice()) {
        ([], []) => "not everything came".to_owned(),
        ([one], _) => format!("{} was not received: {}", one.name, one.reason),
        ([first, ..], _) => format!(
            "{} items were not received; the first is {}: {}",
            summary.failures.len(),
            first.name,
            first.reason
        ),
        ([], [first, ..]) => {
            format!("{} items vanished at the server; the first is {first}", summary.vanished.len())
        }
    }
}
