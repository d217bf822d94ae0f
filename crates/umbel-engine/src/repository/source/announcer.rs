//! The way by which clients hear of transmissions and of all else.
//!
//! The one place that knows it: those who hear the multicast control channel are told of
//! transmissions there, all at once [Repository §2]; the others on their sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::repository::{Announcement, ControlGroup, ServerMessage};
use umbel_wire::srm::MemberId;

use super::clients::Clients;
use super::transmission::Transmission;
use crate::repository::config::{ControlConfig, SourceConfig};
use crate::repository::control::{self, Control};
use crate::{Address, Instant, Membership, SessionId, Transmit, TransmitBuf};

/// Most announcements of one datagram, so that it fits any link.
const AT_ONCE: usize = 32;

/// Transmissions that were planned together, and who is to hear of them.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    to: BTreeMap<SessionId, Vec<Announcement>>,
    starts_in: Duration,
    nak_spread: Duration,
}

impl Announcements {
    /// Adds a transmission that starts after this time, for all who take part in it.
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

/// Messages on their way to clients.
#[derive(Debug)]
pub(super) struct Announcer {
    config: Option<ControlConfig>,
    /// Highest rate of the data channel.
    data_bits_per_s: u64,
    /// The server's end of the multicast control channel, once it has joined it.
    control: Option<Control>,
    outbox: VecDeque<(SessionId, ServerMessage)>,
    /// The last transmission that is over, and its listeners, until a packet of a later one
    /// leaves.
    unseen_end: Option<(u32, BTreeSet<SessionId>)>,
}

impl Announcer {
    pub(super) fn new(config: &SourceConfig) -> Announcer {
        Announcer {
            config: config.control,
            data_bits_per_s: config.rate.bits_per_s(),
            control: None,
            outbox: VecDeque::new(),
            unseen_end: None,
        }
    }

    /// Puts a message into the line to a session that exists.
    pub(super) fn say(&mut self, clients: &Clients, session: SessionId, message: ServerMessage) {
        if clients.get(session).is_some() {
            self.outbox.push_back((session, message));
        }
    }

    /// Drops what was to be said on a session.
    pub(super) fn hang_up(&mut self, session: SessionId) {
        self.outbox.retain(|(to, _)| *to != session);
    }

    /// Tells clients of transmissions to come.
    pub(super) fn announce(
        &mut self,
        now: Instant,
        clients: &Clients,
        announcements: Announcements,
    ) {
        let Announcements { mut to, starts_in, nak_spread } = announcements;
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
                control.announce(now, starts_in, nak_spread, some.to_vec());
            }
        }
        self.announce_on_sessions(clients, Announcements { to, starts_in, nak_spread });
    }

    /// Tells clients of transmissions on their sessions: a client that comes late hears of the item
    /// there first.
    pub(super) fn announce_on_sessions(&mut self, clients: &Clients, announcements: Announcements) {
        let Announcements { to, starts_in, nak_spread } = announcements;
        for (session, announcements) in to {
            let message = ServerMessage::Announce { starts_in, nak_spread, announcements };
            self.say(clients, session, message);
        }
    }

    /// Tells clients that a transmission is over.
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

    /// Remembers who has to be told that a transmission is over, unless a packet of a later one
    /// shows it.
    pub(super) fn note_end(&mut self, transmission: u32, listeners: BTreeSet<SessionId>) {
        self.unseen_end = Some((transmission, listeners));
    }

    /// Notes that a packet shows all that earlier transmissions are over.
    pub(super) fn end_is_seen(&mut self) {
        self.unseen_end = None;
    }

    /// Tells the listeners of the last transmission that it is over, since no packet of a later
    /// one shows it to them.
    pub(super) fn announce_unseen_end(&mut self, now: Instant, clients: &Clients) {
        if let Some(end) = self.unseen_end.take() {
            self.announce_end(now, clients, end);
        }
    }

    /// Joins the control group if that is not done, and does what is due there.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match (&mut self.control, self.config) {
            (Some(control), _) => control.handle_timeout(now),
            (None, Some(config)) => {
                let ControlConfig { channel, key, seed } = config;
                self.control = Some(Control::server(now, channel, key, seed, self.data_bits_per_s));
            }
            (None, None) => {}
        }
    }

    /// Returns when something is due in the control group: at once as long as it was not joined.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.control {
            Some(control) => control.poll_timeout(),
            None => self.config.map(|_| Instant::EPOCH),
        }
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.control.as_mut()?.poll_membership()
    }

    /// Takes a datagram of the control group. Returns false if it is of another channel.
    pub(super) fn handle_datagram(&mut self, now: Instant, by: Channel, payload: &[u8]) -> bool {
        let Some(control) = self.control.as_mut().filter(|control| control.owns(&by)) else {
            return false;
        };
        control.handle_datagram(now, by, payload);
        // Only the server has anything to tell.
        while control.poll_message().is_some() {}
        true
    }

    /// Returns the next message, in the group or on a session.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        if let Some(transmit) = self.control.as_mut().and_then(|c| c.poll_transmit(now, buf)) {
            return Some(transmit);
        }
        let (session, message) = self.outbox.pop_front()?;
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        buf.push_message(bytes);
        Some(Transmit::control(Address::Session(session)))
    }

    /// Returns whether the control group was joined.
    pub(super) fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Returns what a client needs to know of the control group.
    pub(super) fn control_group(&self, session: SessionId) -> Option<ControlGroup> {
        let ControlConfig { channel, key, .. } = self.config?;
        Some(ControlGroup { channel, server: control::SERVER, client: name_in_group(session), key })
    }

    /// Learns from a session's round trip how far its client is in the control group.
    pub(super) fn know_distance(&mut self, now: Instant, session: SessionId, rtt: Duration) {
        if let Some(control) = &mut self.control {
            control.know_distance(now, name_in_group(session), rtt / 2);
        }
    }

    /// Returns what the server has done and seen in the control group, and datagrams there that
    /// were none of its members'.
    pub(super) fn control_stats(&self) -> Option<(crate::srm::Stats, u64)> {
        self.control.as_ref().map(Control::stats)
    }
}

/// A client's name in the control group.
fn name_in_group(session: SessionId) -> MemberId {
    MemberId(session.0.wrapping_add(1))
}
