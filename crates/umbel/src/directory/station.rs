//! The sockets of a session directory.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use umbel_engine::TransmitBuf;
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::SendError;
use umbel_net::wake::Waker;
use umbel_wire::session::{FindSessions, QUERY_PORT, SessionKind, SessionName};

use super::ears::Ears;
use super::{Directory, Noun, Session, SessionSelector, SessionUrl, Sought};

/// Pause between queries, which doubles each time up to `QUERY_MAX`.
const QUERY: Duration = Duration::from_millis(250);
const QUERY_MAX: Duration = Duration::from_secs(4);
/// Time after which the user is told that the session is still awaited.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Interval between looks for a network.
const NETWORK: Duration = Duration::from_millis(100);
/// Time by which sources on the air have answered a query; each is allowed one answer every 200 ms.
const SETTLE: Duration = Duration::from_millis(300);

/// Listens to the directories of one interface or all, and queries them.
#[derive(Debug)]
pub struct Station {
    directory: Directory,
    ears: Ears,
    /// Whether an interface has come that was not asked yet.
    news: bool,
    waker: Waker,
}

impl Station {
    /// Starts to listen on the interface of this name or address, or on all that do multicast.
    /// Where there is none yet, it listens as soon as there is.
    ///
    /// # Errors
    ///
    /// If the interface cannot be used, or the system refuses.
    pub fn open(interface: Option<&str>) -> anyhow::Result<Station> {
        let waker = Waker::new().context("cannot listen to announcements")?;
        let ears = Ears::open(interface).context("cannot listen to announcements")?;
        Ok(Station { directory: Directory::default(), ears, news: false, waker })
    }

    /// Returns the interfaces that are listened to.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.ears.interfaces()
    }

    /// Returns whether there is no interface to listen to yet.
    pub fn is_deaf(&self) -> bool {
        self.ears.is_deaf()
    }

    /// Returns the interface on which to receive a session.
    ///
    /// # Errors
    ///
    /// If there is none any more.
    pub fn interface_of(&self, session: &SessionKind) -> anyhow::Result<Interface> {
        let source = session.source().ip();
        let found = self.ears.towards(source).or_else(|| self.interfaces().next());
        found.cloned().with_context(|| format!("no interface leads to {source} any more"))
    }

    /// Returns the sessions heard so far.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns a waker that ends a wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Asks all sources, or those of one name, to announce themselves. Asks also the host at this
    /// address alone, since no multicast but that of the session may come from there.
    pub fn ask(&mut self, query: &FindSessions, host: Option<IpAddr>) {
        let mut bytes = Vec::new();
        query.emit(&mut bytes);
        let mut buf = TransmitBuf::default();
        buf.push(&bytes, Bytes::new());
        for (sender, groups) in self.ears.senders() {
            let family = Family::of(sender.source().ip());
            let host = host.filter(|&host| Family::of(host) == family);
            for to in groups.iter().copied().chain(host) {
                // A source that misses the query will announce itself eventually.
                let to = sender.interface().on_link(SocketAddr::new(to, QUERY_PORT));
                let sent: Result<_, SendError> = sender.send(to, &buf);
                if let Err(error) = sent {
                    tracing::debug!("{error}");
                }
            }
        }
    }

    /// Hears sessions of these names only from now on.
    pub(crate) fn look_for<'a>(&mut self, names: impl IntoIterator<Item = &'a SessionName>) {
        self.directory.look_for(names);
    }

    /// Returns whether an interface has come that was not asked yet. It counts as asked from now on.
    pub(crate) fn takes_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Listens for this time, or until the waker is called. Returns whether it was called.
    ///
    /// # Errors
    ///
    /// If the system refuses to receive.
    pub fn listen(&mut self, wait: Duration) -> anyhow::Result<bool> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.ears.wait(&self.waker, left)?;
            let now = Instant::now();
            let Station { directory, ears, news, .. } = self;
            *news |= ears.take(now, |from, payload| {
                directory.hear(now, from, payload);
            });
            self.directory.expire(now);
            if self.waker.take() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for the one session that is selected. Reports to `lonely` if that takes more than a
    /// moment, and to `note` if no interface has an address yet; `wait` begins when one has. Returns
    /// it with its sender's key, or `None` if the waker is called meanwhile. Of several that one
    /// sender calls alike it is the latest.
    ///
    /// # Errors
    ///
    /// If within `wait` no such session is on the air, or if several senders have one. A session of
    /// another kind, or one that cannot be received, is an error, too.
    pub fn find<S: Sought>(
        &mut self,
        selector: &SessionSelector,
        wait: Duration,
        (lonely, note): (impl FnOnce(&str), impl FnOnce(&str)),
    ) -> anyhow::Result<Option<(S, [u8; 32])>> {
        if let Some(noun) = selector.noun.filter(|&noun| noun != S::NOUN) {
            bail!("that is the URL of a {noun}: `{}` takes it", noun.receiver());
        }
        if self.wait_for_network(note)? {
            return Ok(None);
        }
        let Some(session) = self.wait_for(S::NOUN, selector, wait, lonely)? else {
            return Ok(None);
        };
        let name = &selector.name;
        let Some(found) = session.kind.as_ref().and_then(S::of) else {
            match S::NOUN {
                Noun::Feed => bail!(
                    "`{name}` is a live stream: see it with `umbel watch '{name}' -o - | ffplay -`"
                ),
                Noun::Stream => {
                    bail!("`{name}` is a feed and no stream: receive it with `umbel recv '{name}'`")
                }
            }
        };
        let key = session.key.with_context(|| format!("`{name}` is not signed"))?;
        Ok(Some((found.clone(), key)))
    }

    /// Waits until an interface has an address. Returns whether the waker was called meanwhile.
    ///
    /// # Errors
    ///
    /// If the system refuses to wait.
    pub fn wait_for_network(&mut self, note: impl FnOnce(&str)) -> anyhow::Result<bool> {
        if self.ears.is_deaf() {
            note("no interface has an address yet; waiting for one");
        }
        while self.ears.is_deaf() {
            if self.listen(NETWORK)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn wait_for(
        &mut self,
        what: Noun,
        selector: &SessionSelector,
        wait: Duration,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<Option<Session>> {
        let mut note = Some(note);
        let query = FindSessions { name: Some(selector.name.clone()) };
        self.directory.look_for([&selector.name]);
        let start = Instant::now();
        let mut pause = QUERY;
        loop {
            let left = wait.saturating_sub(start.elapsed());
            self.ask(&query, selector.address);
            let until = Instant::now() + pause.min(left);
            pause = (pause * 2).min(QUERY_MAX);
            while !self.is_there(selector) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                // Waits are short, as an answer does not end them.
                if self.listen(left.min(Duration::from_millis(20)))? {
                    return Ok(None);
                }
                if self.takes_news() {
                    pause = QUERY;
                    break;
                }
            }
            if self.is_there(selector) {
                let settle = SETTLE.saturating_sub(start.elapsed());
                if selector.port.is_none() && self.listen(settle)? {
                    return Ok(None);
                }
                // It may just have ended.
                if self.is_there(selector) {
                    return self.choose(what, selector).map(Some);
                }
            }
            if start.elapsed() >= PATIENCE
                && start.elapsed() < wait
                && let Some(note) = note.take()
            {
                let seconds = wait.as_secs_f64();
                let of = if self.other_key(selector).is_some() { " of the known key" } else { "" };
                note(&format!(
                    "no {what} `{}`{of} is on the air yet; waiting for up to {seconds:.0} s",
                    selector.name
                ));
            }
            if start.elapsed() >= wait && self.matching(selector).next().is_some() {
                return self.choose(what, selector).map(Some);
            }
            if start.elapsed() >= wait && self.is_earlier(selector) {
                bail!(
                    "an earlier `{0}` is on the air than was received from its sender last: \
                     somebody sends it again, or the sender has lost its state directory and its \
                     clock; to receive it, remove the line of `{0}` from known_feeds",
                    selector.name
                );
            }
            if start.elapsed() >= wait
                && let Some((pin, other)) = selector.pin.zip(self.other_key(selector))
            {
                let name = &selector.name;
                let now = other.signer.map_or_else(String::new, |pin| format!(", but {pin}"));
                let url = other.signer.map(|pin| SessionUrl { noun: what, name, pin }.to_string());
                let url = url.unwrap_or_else(|| name.to_string());
                let (sender, receiver) = (what.sender(), what.receiver());
                bail!(
                    "`{name}` no longer has the key {pin}{now}: if that is what its sender's \
                     `{sender}` prints now, run `{receiver} '{url}'`; otherwise somebody else uses \
                     its name"
                );
            }
            if start.elapsed() >= wait {
                bail!(
                    "no {what} `{}` is on the air after {:.0} s: `umbel groups` lists what is, \
                     --wait waits longer, and `umbel doctor` looks at firewalls, which must let \
                     multicast to UDP ports 9875 and 7701 to 7705 in",
                    selector.name,
                    wait.as_secs_f64()
                );
            }
        }
    }

    /// Returns whether the selected session is on the air and can be received. One that cannot may
    /// be there to keep others from waiting for the genuine one.
    fn is_there(&self, selector: &SessionSelector) -> bool {
        self.matching(selector).any(|session| session.kind.is_some())
    }

    fn matching<'a>(&'a self, selector: &'a SessionSelector) -> impl Iterator<Item = &'a Session> {
        self.directory.sessions().into_iter().filter(|session| selector.matches(session))
    }

    /// Returns whether only earlier sessions of the selected one's sender are on the air.
    fn is_earlier(&self, selector: &SessionSelector) -> bool {
        let sessions = self.directory.sessions();
        sessions.into_iter().any(|session| selector.matches_but_for_version(session))
    }

    /// Returns the latest session that is selected but for its key, which is another one.
    fn other_key(&self, selector: &SessionSelector) -> Option<&Session> {
        let sessions = self.directory.sessions().into_iter();
        let mut others = sessions.filter(|session| selector.matches_but_for_key(session));
        others.rfind(|it| !selector.matches_but_for_version(it) && it.signer.is_some())
    }

    fn choose(&self, what: Noun, selector: &SessionSelector) -> anyhow::Result<Session> {
        let mut found: Vec<&Session> = self.matching(selector).collect();
        let alike = |session: &&Session| session.noun() == Some(what);
        if found.iter().any(alike) {
            found.retain(alike);
        }
        // A sender without a proof does not stand beside one with a proof.
        if found.iter().any(|session| session.signer.is_some()) {
            found.retain(|session| session.signer.is_some());
        }
        if found.iter().any(|session| session.kind.is_some()) {
            found.retain(|session| session.kind.is_some());
        }
        // Of one sender the latest counts: others may be repeated by anyone.
        let signer = found.first().and_then(|session| session.signer);
        if signer.is_some() && found.iter().all(|session| session.signer == signer) {
            found.drain(..found.len() - 1);
        }
        if let [session] = &found[..] {
            return match (&session.kind, &session.problem) {
                (Some(_), _) => Ok((*session).clone()),
                (None, Some(problem)) => {
                    Err(anyhow!("`{}` cannot be received: {problem}", selector.name))
                }
                (None, None) => Err(anyhow!(
                    "`{}` is no session of umbel, but one that {} announces",
                    selector.name,
                    session.announcer
                )),
            };
        }
        let choice: BTreeSet<String> =
            found.iter().filter_map(|session| url_of(what, session, selector)).collect();
        Err(anyhow!(
            "{} sources call their session `{}`: choose one as {}",
            choice.len(),
            selector.name,
            choice.into_iter().collect::<Vec<_>>().join(" or ")
        ))
    }
}

/// Returns what selects this session alone.
fn url_of(
    noun: Noun,
    session: &Session,
    SessionSelector { name, .. }: &SessionSelector,
) -> Option<String> {
    match session.signer {
        Some(pin) => Some(format!("'{}'", SessionUrl { noun, name, pin })),
        None => session.source().map(|source| format!("'{name}@{source}'")),
    }
}
