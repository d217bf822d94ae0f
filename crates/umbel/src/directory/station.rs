//! The sockets of a session directory.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use nix::poll::PollFlags;
use umbel_engine::TransmitBuf;
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{Receiver, ReceiverOptions, SendError, Sender, SenderOptions};
use umbel_net::wake::{self, Waker};
use umbel_wire::session::{FindSessions, QUERY_PORT};
use umbel_wire::{Channel, sap};

use super::{Directory, Noun, Session, SessionSelector, SessionUrl, Sought};

/// IPv6 scopes whose directories are listened to: link, site, organization, global.
const SCOPES_V6: [u8; 4] = [0x2, 0x5, 0x8, 0xE];
/// Pause between queries, which doubles each time up to `QUERY_MAX`.
const QUERY: Duration = Duration::from_millis(250);
const QUERY_MAX: Duration = Duration::from_secs(4);
/// Time after which the user is told that the session is still awaited.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Time by which sources on the air have answered a query; each is allowed one answer every 200 ms.
const SETTLE: Duration = Duration::from_millis(300);

/// Listens to the directories of one interface, and queries them.
#[derive(Debug)]
pub struct Station {
    directory: Directory,
    receivers: Vec<Receiver>,
    senders: Vec<(Sender, Vec<IpAddr>)>,
    waker: Waker,
}

/// Returns the groups of the directories of a family.
fn groups(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => {
            vec![sap::LOCAL_V4.into(), sap::ORGANIZATION_V4.into(), sap::GLOBAL_V4.into()]
        }
        Family::V6 => SCOPES_V6.map(|scope| sap::directory_v6(scope).into()).to_vec(),
    }
}

impl Station {
    /// Starts to listen, on IPv4 and IPv6 as far as the interface has them.
    ///
    /// # Errors
    ///
    /// If it can listen to neither.
    pub fn open(interface: &Interface) -> anyhow::Result<Station> {
        let mut station = Station {
            directory: Directory::default(),
            receivers: Vec::new(),
            senders: Vec::new(),
            waker: Waker::new().context("cannot listen to announcements")?,
        };
        let mut failed = None;
        for family in [Family::V4, Family::V6] {
            if interface.address(family).is_err() {
                continue;
            }
            if let Err(error) = station.add(family, interface) {
                tracing::debug!("no announcements by {family}: {error:#}");
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) if station.receivers.is_empty() => {
                Err(error.context("cannot listen to announcements"))
            }
            None if station.receivers.is_empty() => {
                bail!("interface {} has no address: use another by --interface", interface.name)
            }
            _ => Ok(station),
        }
    }

    fn add(&mut self, family: Family, interface: &Interface) -> anyhow::Result<()> {
        let options = ReceiverOptions { batch: 8, offload: false, ..ReceiverOptions::default() };
        let mut receiver = Receiver::open(sap::PORT, family, interface, &options)?;
        for group in groups(family) {
            receiver.join(&Channel { source: None, group, port: sap::PORT })?;
        }
        let sender = Sender::open(interface, &SenderOptions::new(family))?;
        self.receivers.push(receiver);
        self.receivers.push(Receiver::of_sender(&sender, &options)?);
        self.senders.push((sender, groups(family)));
        Ok(())
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
        for (sender, groups) in &mut self.senders {
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

    /// Listens for this time, or until the waker is called. Returns whether it was called.
    ///
    /// # Errors
    ///
    /// If the system refuses to receive.
    pub fn listen(&mut self, wait: Duration) -> anyhow::Result<bool> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let woken = match &self.receivers[..] {
                [a, b] => {
                    let fds = [a.as_fd(), b.as_fd(), self.waker.as_fd()];
                    wake::wait_for(fds, PollFlags::POLLIN, Some(left))?[2]
                }
                [a, b, c, d] => {
                    let fds = [a, b, c, d].map(AsFd::as_fd);
                    let [a, b, c, d] = fds;
                    let fds = [a, b, c, d, self.waker.as_fd()];
                    wake::wait_for(fds, PollFlags::POLLIN, Some(left))?[4]
                }
                _ => bail!("nothing is listened to"),
            };
            let now = Instant::now();
            let Station { directory, receivers, .. } = self;
            for receiver in receivers {
                receiver.receive(Some(Duration::ZERO), None, |received| {
                    directory.hear(now, received.from.ip(), received.payload);
                })?;
            }
            self.directory.expire(now);
            if woken && self.waker.take() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for the one session that is selected. Reports to `note` if that takes more than a
    /// moment. Returns it with its sender's key, or `None` if the waker is called meanwhile. Of
    /// several that one sender calls alike it is the latest.
    ///
    /// # Errors
    ///
    /// If within `wait` no such session is on the air, or if several senders have one. A session of
    /// another kind, or one that cannot be received, is an error, too.
    pub fn find<S: Sought>(
        &mut self,
        selector: &SessionSelector,
        wait: Duration,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<Option<(S, [u8; 32])>> {
        let Some(session) = self.wait_for(S::NOUN, selector, wait, note)? else { return Ok(None) };
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

    fn wait_for(
        &mut self,
        what: Noun,
        selector: &SessionSelector,
        wait: Duration,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<Option<Session>> {
        let mut note = Some(note);
        let query = FindSessions { name: Some(selector.name.clone()) };
        self.directory.look_for(&selector.name);
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
