//! The clients: their admission, and the state kept for each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use umbel_wire::Toi;

use super::api::ClientStatus;
use super::loss::Loss;
use crate::{Instant, SessionId};

/// Whether a client may use the server. It is decided once, by its first `Hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has not said `Hello`.
    Awaited,
    Granted,
    /// Nothing more is heard of it.
    Refused,
}

/// A client's session.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) remote: IpAddr,
    pub(super) rtt: Duration,
    pub(super) admission: Admission,
    /// Loss on the data channel.
    loss: Loss,
    /// Items that it wants and does not have.
    pub(super) wanted: BTreeSet<Toi>,
    /// Items that it gets on the session.
    pub(super) unicast: BTreeSet<Toi>,
    /// Runs of missing blocks or symbols, beyond one for each item. They bound the client's memory.
    pub(super) charged: usize,
    first_request: Option<Instant>,
    /// Whether the client hears of transmissions in the control group.
    hears_control: bool,
    /// Time until which the client stays joined to the data channel.
    listening_until: Option<Instant>,
    /// Whether it reports how the packets of the channel arrive.
    pub(super) reports: bool,
}

impl Client {
    /// Returns whether it wants something from the channel.
    pub(super) fn is_on_channel(&self) -> bool {
        self.unicast.len() < self.wanted.len()
    }
}

/// All clients, by their sessions.
#[derive(Debug)]
pub(super) struct Clients {
    by_session: BTreeMap<SessionId, Client>,
    /// Sessions that may not have been admitted, each with the time until which they may be, in
    /// order.
    awaited: VecDeque<(Instant, SessionId)>,
    /// Loss of all clients together, assumed for new ones.
    usual_loss: Loss,
    /// Estimates above this are left out of [`worst_loss`](Clients::worst_loss).
    loss_cap: f64,
}

impl Clients {
    pub(super) fn new(loss_cap: f64) -> Clients {
        Clients {
            by_session: BTreeMap::new(),
            awaited: VecDeque::new(),
            usual_loss: Loss::supposed(0.0),
            loss_cap,
        }
    }

    /// Adds a client that has to be admitted until a time, and returns its assumed loss share.
    pub(super) fn open(
        &mut self,
        session: SessionId,
        remote: IpAddr,
        rtt: Duration,
        until: Instant,
    ) -> f64 {
        self.awaited.push_back((until, session));
        let loss = Loss::supposed(self.usual_loss.share());
        let client = Client {
            remote,
            rtt,
            admission: Admission::Awaited,
            loss,
            wanted: BTreeSet::new(),
            unicast: BTreeSet::new(),
            charged: 0,
            first_request: None,
            hears_control: false,
            listening_until: None,
            reports: false,
        };
        self.by_session.insert(session, client);
        loss.share()
    }

    /// Returns the time at which a client may have waited too long with its `Hello`.
    pub(super) fn next_awaited(&self) -> Option<Instant> {
        self.awaited.front().map(|&(until, _)| until)
    }

    /// Returns the clients that have not said `Hello` in time. Each is returned once.
    pub(super) fn take_silent(&mut self, now: Instant) -> Vec<SessionId> {
        let mut silent = Vec::new();
        while let Some((_, session)) = self.awaited.pop_front_if(|(until, _)| *until <= now) {
            if let Some(client) = self.by_session.get_mut(&session)
                && client.admission == Admission::Awaited
            {
                client.admission = Admission::Refused;
                silent.push(session);
            }
        }
        silent
    }

    pub(super) fn remove(&mut self, session: SessionId) -> Option<Client> {
        self.by_session.remove(&session)
    }

    /// Returns the clients that are admitted.
    pub(super) fn admitted(&self) -> BTreeSet<SessionId> {
        let admitted = self.by_session.iter();
        let admitted = admitted.filter(|(_, client)| client.admission == Admission::Granted);
        admitted.map(|(&session, _)| session).collect()
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&Client> {
        self.by_session.get(&session)
    }

    pub(super) fn get_mut(&mut self, session: SessionId) -> Option<&mut Client> {
        self.by_session.get_mut(&session)
    }

    /// Returns whether the client hears of transmissions in the control group.
    pub(super) fn hears_control(&self, session: SessionId) -> bool {
        self.get(session).is_some_and(|client| client.hears_control)
    }

    /// Returns the number of clients that hear of transmissions in the control group.
    pub(super) fn on_control(&self) -> usize {
        self.by_session.values().filter(|client| client.hears_control).count()
    }

    /// Returns the clients that report how the packets of the channel arrive.
    pub(super) fn reporting(&self) -> Vec<SessionId> {
        let reporting = self.by_session.iter().filter(|(_, client)| client.reports);
        reporting.map(|(&session, _)| session).collect()
    }

    /// Returns the clients that want an item.
    pub(super) fn wanting(&self, toi: Toi) -> Vec<SessionId> {
        let wanting = self.by_session.iter().filter(|(_, client)| client.wanted.contains(&toi));
        wanting.map(|(&session, _)| session).collect()
    }

    /// Returns the operator's view of each client.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (SessionId, ClientStatus)> {
        self.by_session.iter().map(|(&session, client)| {
            let status = ClientStatus {
                wanted: client.wanted.len(),
                by_unicast: client.unicast.len(),
                loss: client.loss.share(),
                rtt: client.rtt,
                path: None,
            };
            (session, status)
        })
    }

    /// Returns the longest round trip of these clients.
    pub(super) fn slowest(&self, sessions: &BTreeSet<SessionId>) -> Duration {
        let rtts = sessions.iter().filter_map(|&session| self.get(session)).map(|c| c.rtt);
        rtts.max().unwrap_or_default()
    }

    /// Returns the longest round trip of those of these clients that have not joined the channel.
    pub(super) fn slowest_to_join(
        &self,
        now: Instant,
        sessions: &BTreeSet<SessionId>,
    ) -> Option<Duration> {
        let clients = sessions.iter().filter_map(|&session| self.get(session));
        let absent = |until: Instant| until < now;
        clients
            .filter(|client| client.listening_until.is_none_or(absent))
            .map(|client| client.rtt)
            .max()
    }

    /// Notes that these clients listen until this time, or longer.
    pub(super) fn listen(&mut self, sessions: &BTreeSet<SessionId>, until: Instant) {
        for &session in sessions {
            if let Some(client) = self.get_mut(session) {
                client.listening_until = client.listening_until.max(Some(until));
            }
        }
    }

    /// Returns the greatest loss estimate of these clients that is not above the cap.
    pub(super) fn worst_loss<'a>(&self, sessions: impl Iterator<Item = &'a SessionId>) -> f64 {
        sessions
            .filter_map(|&session| self.get(session))
            .map(|client| client.loss.share())
            .filter(|&loss| loss <= self.loss_cap)
            .fold(0.0, f64::max)
    }

    /// Notes a client's request. It counts as the first if the client was satisfied before.
    pub(super) fn note_request(&mut self, session: SessionId, now: Instant) {
        if let Some(client) = self.get_mut(session) {
            client.first_request.get_or_insert(now);
        }
    }

    /// Returns the waiting time of a client that now has everything it wanted. Each wait is
    /// returned once.
    pub(super) fn take_satisfied(&mut self, session: SessionId, now: Instant) -> Option<Duration> {
        let client = self.get_mut(session).filter(|client| client.wanted.is_empty())?;
        client.first_request.take().map(|first| now - first)
    }

    /// Notes that a client gets an item on its session. Returns whether the client wants the item.
    pub(super) fn begin_unicast(&mut self, session: SessionId, toi: Toi) -> bool {
        let client = self.get_mut(session).filter(|client| client.wanted.contains(&toi));
        client.is_some_and(|client| {
            client.unicast.insert(toi);
            true
        })
    }

    /// Sets whether a client hears of transmissions in the control group.
    pub(super) fn set_hears_control(&mut self, session: SessionId, hears: bool) {
        if let Some(client) = self.get_mut(session) {
            client.hears_control = hears;
        }
    }

    /// Updates the loss of all clients together with any client's counts [Repository §3.1].
    pub(super) fn hear_usual_loss(&mut self, received: u32, lost: u32) {
        self.usual_loss.hear(received, lost);
    }

    /// Changes the estimate of a client's loss. Returns the new share if it has changed.
    pub(super) fn change_loss(
        &mut self,
        session: SessionId,
        change: impl FnOnce(&mut Loss),
    ) -> Option<f64> {
        let client = self.by_session.get_mut(&session)?;
        let before = client.loss;
        change(&mut client.loss);
        (client.loss != before).then_some(client.loss.share())
    }
}
