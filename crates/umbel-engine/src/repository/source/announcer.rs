//! Announces transmissions to clients, and carries every other message to them.
//!
//! Clients on the multicast control channel hear of transmissions there, all at once [Repository
//! §2]. The others hear of them on their sessions. No other module knows which client is told
//! where.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::repository::{Announcement, ControlGroup, ServerMessage};
use umbel_wire::srm::MemberId;

use super::clients::Clients;
use super::transmission::Transmission;
use crate::chance::Generator;
use crate::repository::config::{ControlConfig, SourceConfig};
use crate::repository::control::{self, Control};
use crate::seal::Keyring;
use crate::units::Rate;
use crate::{Address, Instant, Membership, SessionId, Transmit, TransmitBuf};

/// Greatest number of announcements in one datagram, so that it fits any link.
const AT_ONCE: usize = 32;

/// Transmissions that were planned together, and the clients to be told.
#[derive(Debug)]
pub(super) struct Announcements {
    to: BTreeMap<SessionId, Vec<Announcement>>,
    rate: Rate,
    starts_in: Duration,
    nak_spread: Duration,
}

impl Announcements {
    /// Creates announcements of no transmissions, on a channel of this rate.
    pub(super) fn new(rate: Rate) -> Announcements {
        let to = BTreeMap::new();
        Announcements { to, rate, starts_in: Duration::ZERO, nak_spread: Duration::ZERO }
    }

    /// Adds a transmission that starts after this time, for all its participants.
    pub(super) fn add(&mut self, transmission: &Transmission, starts_in: Duration) {
        self.starts_in = self.starts_in.max(starts_in);
        for &session in &transmission.participants {
            self.add_for(session, transmission);
        }
    }

    /// Adds a transmission for one client only.
    pub(super) fn add_for(&mut self, session: SessionId, transmission: &Transmission) {
        self.nak_spread = self.nak_spread.max(transmission.nak_spread);
        self.to.entry(session).or_default().push(transmission.announcement());
    }
}

/// Messages queued for clients.
#[derive(Debug)]
pub(super) struct Announcer {
    config: Option<ControlConfig>,
    /// Whether the group is sealed.
    sealed: bool,
    /// Generator of the membership in the control group.
    random: Generator,
    /// Highest rate of the data channel.
    data_rate: Rate,
    /// The server's end of the multicast control channel, once it has joined it.
    control: Option<Control>,
    outbox: VecDeque<(SessionId, ServerMessage)>,
    /// The last finished transmission and its listeners, until a packet of a later transmission is
    /// sent.
    unseen_end: Option<(u32, BTreeSet<SessionId>)>,
}

impl Announcer {
    pub(super) fn new(config: &SourceConfig, random: Generator) -> Announcer {
        Announcer {
            config: config.control,
            sealed: config.seal.is_some(),
            random,
            data_rate: config.rate,
            control: None,
            outbox: VecDeque::new(),
            unseen_end: None,
        }
    }

    /// Queues a message for a session, if the session exists.
    pub(super) fn say(&mut self, clients: &Clients, session: SessionId, message: ServerMessage) {
        if clients.get(session).is_some() {
            self.outbox.push_back((session, message));
        }
    }

    /// Drops the messages queued for a session.
    pub(super) fn hang_up(&mut self, session: SessionId) {
        self.outbox.retain(|(to, _)| *to != session);
    }

    /// Announces planned transmissions to clients.
    pub(super) fn announce(
        &mut self,
        now: Instant,
        clients: &Clients,
        announcements: Announcements,
    ) {
        let Announcements { mut to, rate, starts_in, nak_spread } = announcements;
        let (mut first, mut heard_by_all) = (None, BTreeMap::new());
        if let Some(control) = &mut self.control {
            to.retain(|&session, announcements| {
                let hears = clients.hears_control(session);
                for announcement in announcements.iter().filter(|_| hears) {
                    let first = *first.get_or_insert(announcement.transmission);
                    heard_by_all
                        .insert(announcement.transmission.wrapping_sub(first), *announcement);
                }
                !hears
            });
            let heard_by_all: Vec<Announcement> = heard_by_all.into_values().collect();
            for some in heard_by_all.chunks(AT_ONCE) {
                control.announce(now, rate, starts_in, nak_spread, some.to_vec());
            }
        }
        self.announce_on_sessions(clients, Announcements { to, rate, starts_in, nak_spread });
    }

    /// Announces transmissions on the clients' sessions. A late client learns of the item there
    /// first.
    pub(super) fn announce_on_sessions(&mut self, clients: &Clients, announcements: Announcements) {
        let Announcements { to, rate, starts_in, nak_spread } = announcements;
        let rate_bits_per_s = rate.bits_per_s();
        for (session, announcements) in to {
            let message =
                ServerMessage::Announce { rate_bits_per_s, starts_in, nak_spread, announcements };
            self.say(clients, session, message);
        }
    }

    /// Announces to clients that a transmission is over.
    pub(super) fn announce_end(
        &mut self,
        now: Instant,
        clients: &Clients,
        (transmission, mut to): (u32, BTreeSet<SessionId>),
    ) {
        let end = ServerMessage::End { transmission };
        if let Some(control) = &mut self.control {
            let all = to.len();
            to.retain(|&session| !clients.hears_control(session));
            if to.len() < all {
                control.say(now, &end);
            }
        }
        for session in to {
            self.say(clients, session, end.clone());
        }
    }

    /// Remembers the clients to be told that a transmission is over, unless a packet of a later one
    /// shows it.
    pub(super) fn note_end(&mut self, transmission: u32, listeners: BTreeSet<SessionId>) {
        self.unseen_end = Some((transmission, listeners));
    }

    /// Notes that a packet tells every listener that earlier transmissions are over.
    pub(super) fn end_is_seen(&mut self) {
        self.unseen_end = None;
    }

    /// Announces to the listeners of the last transmission that it is over, because no packet of a
    /// later one will show it.
    pub(super) fn announce_unseen_end(&mut self, now: Instant, clients: &Clients) {
        if let Some(end) = self.unseen_end.take() {
            self.announce_end(now, clients, end);
        }
    }

    /// Joins the control group if it has not joined yet, and does the work that is due there.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match (&mut self.control, self.config) {
            (Some(control), _) => control.handle_timeout(now),
            (None, Some(ControlConfig { channel, key })) => {
                let (random, rate) = (self.random.clone(), self.data_rate);
                let key = (!self.sealed).then_some(key);
                self.control = Some(Control::server(now, channel, key, random, rate));
            }
            (None, None) => {}
        }
    }

    /// Returns the time of the next work in the control group: at once while it has not joined.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.control {
            Some(control) => control.poll_timeout(),
            None => self.config.map(|_| Instant::EPOCH),
        }
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.control.as_mut()?.poll_membership()
    }

    /// Handles a datagram of the control group. Returns false if it is of another channel.
    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        by: Channel,
        payload: &[u8],
        ring: Option<&mut Keyring>,
    ) -> bool {
        let Some(control) = self.control.as_mut().filter(|control| control.owns(&by)) else {
            return false;
        };
        control.handle_datagram(now, by, payload, ring);
        // Clients have nothing to tell the server there.
        while control.poll_message().is_some() {}
        true
    }

    /// Returns whether a message waits, or the control group may have one.
    pub(super) fn has_output(&self) -> bool {
        self.control.is_some() || !self.outbox.is_empty()
    }

    /// Returns the next message, in the group or on a session.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut TransmitBuf,
        ring: Option<&mut Keyring>,
    ) -> Option<Transmit> {
        let control = self.control.as_mut();
        if let Some(transmit) = control.and_then(|control| control.poll_transmit(now, buf, ring)) {
            return Some(transmit);
        }
        let (session, message) = self.outbox.pop_front()?;
        buf.write_message(|out| message.emit(out));
        Some(Transmit::control(Address::Session(session)))
    }

    /// Returns whether the control group was joined.
    pub(super) fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Returns the control group's parameters for a client.
    pub(super) fn control_group(&self, session: SessionId) -> Option<ControlGroup> {
        let ControlConfig { channel, key, .. } = self.config?;
        let (server, client) = (control::SERVER, name_in_group(session));
        Some(ControlGroup { channel, server, client, key: (!self.sealed).then_some(key) })
    }

    /// Derives the client's distance in the control group from its session's round trip time.
    pub(super) fn know_distance(&mut self, now: Instant, session: SessionId, rtt: Duration) {
        if let Some(control) = &mut self.control {
            control.know_distance(now, name_in_group(session), rtt / 2);
        }
    }

    /// Returns the server's counters in the control group, and the number of datagrams there
    /// without a valid tag.
    pub(super) fn control_stats(&self) -> Option<(crate::srm::Stats, u64)> {
        self.control.as_ref().map(Control::stats)
    }
}

/// Returns a client's name in the control group.
fn name_in_group(session: SessionId) -> MemberId {
    MemberId(session.0.wrapping_add(1))
}
