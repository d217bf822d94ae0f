//! The way by which clients hear of transmissions.
//!
//! The one place that knows it: those who hear the multicast control channel are told there, all
//! at once [Repository §2]; the others on their sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_wire::repository::{Announcement, ControlGroup, ServerMessage};
use umbel_wire::srm::MemberId;

use super::Source;
use super::transmission::Transmission;
use crate::repository::control::{self, Control};
use crate::symbols::SymbolSource;
use crate::{Instant, SessionId};

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

impl<S: SymbolSource> Source<S> {
    /// Tells clients of transmissions to come.
    pub(super) fn announce(&mut self, now: Instant, announcements: Announcements) {
        let Announcements { mut to, starts_in, nak_spread } = announcements;
        let (mut first, mut heard_by_all) = (None, BTreeMap::new());
        if self.control.is_some() {
            to.retain(|session, announcements| {
                let hears = self.clients.get(session).is_some_and(|client| client.hears_control);
                if hears {
                    for announcement in announcements {
                        first.get_or_insert(announcement.transmission);
                        let order = announcement.transmission.wrapping_sub(first.unwrap_or(0));
                        heard_by_all.insert(order, *announcement);
                    }
                }
                !hears
            });
        }
        let heard_by_all: Vec<Announcement> = heard_by_all.into_values().collect();
        if let Some(control) = &mut self.control {
            for some in heard_by_all.chunks(AT_ONCE) {
                control.announce(now, starts_in, nak_spread, some.to_vec());
            }
        }
        for (session, announcements) in to {
            self.say(session, ServerMessage::Announce { starts_in, nak_spread, announcements });
        }
    }

    /// Tells one client of transmissions that others know of: on its session, so that it hears
    /// of the item first.
    pub(super) fn announce_late(&mut self, announcements: Announcements) {
        let Announcements { to, starts_in, nak_spread } = announcements;
        for (session, announcements) in to {
            self.say(session, ServerMessage::Announce { starts_in, nak_spread, announcements });
        }
    }

    /// Tells clients that a transmission is over.
    pub(super) fn announce_end(
        &mut self,
        now: Instant,
        transmission: u32,
        mut to: BTreeSet<SessionId>,
    ) {
        let end = ServerMessage::End { transmission };
        if let Some(control) = &mut self.control {
            let clients = &self.clients;
            let all = to.len();
            to.retain(|session| !clients.get(session).is_some_and(|client| client.hears_control));
            if to.len() < all {
                control.say(now, &end);
            }
        }
        for session in to {
            self.say(session, end.clone());
        }
    }

    /// Joins the control group if that is not done, and does what is due there.
    pub(super) fn drive_control(&mut self, now: Instant) {
        match (&mut self.control, self.config.control) {
            (Some(control), _) => control.handle_timeout(now),
            (None, Some(config)) => {
                let rate = self.config.rate.bits_per_s();
                let control = Control::server(now, config.channel, config.key, config.seed, rate);
                self.control = Some(control);
            }
            (None, None) => {}
        }
    }

    /// When something is due in the control group: at once as long as it was not joined.
    pub(super) fn control_due(&self) -> Option<Instant> {
        match &self.control {
            Some(control) => control.poll_timeout(),
            None => self.config.control.map(|_| Instant::EPOCH),
        }
    }

    /// What a client needs to know of the control group.
    pub(super) fn control_group(&self, session: SessionId) -> Option<ControlGroup> {
        let config = self.config.control?;
        let (server, client) = (control::SERVER, name_in_group(session));
        Some(ControlGroup { channel: config.channel, server, client, key: config.key })
    }

    /// A session's round trip tells how far its client is in the control group.
    pub(super) fn tell_distance(&mut self, now: Instant, session: SessionId, rtt: Duration) {
        if let Some(control) = &mut self.control {
            control.know_distance(now, name_in_group(session), rtt / 2);
        }
    }

    /// How many clients hear of transmissions in the control group.
    pub fn clients_on_control(&self) -> usize {
        self.clients.values().filter(|client| client.hears_control).count()
    }

    /// What the server has done and seen in the control group, and datagrams there that were
    /// none of its members'.
    pub fn control_stats(&self) -> Option<(crate::srm::Stats, u64)> {
        self.control.as_ref().map(Control::stats)
    }
}

/// A client's name in the control group.
fn name_in_group(session: SessionId) -> MemberId {
    MemberId(session.0.wrapping_add(1))
}
