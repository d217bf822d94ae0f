//! The way by which clients hear of transmissions.
//!
//! The one place that knows it: announcements go to the sessions of those who take part. A
//! multicast control channel [Repository §2] tells everyone at once instead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_wire::repository::{Announcement, ServerMessage};

use super::Source;
use super::transmission::Transmission;
use crate::SessionId;
use crate::symbols::SymbolSource;

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
    pub(super) fn announce(&mut self, announcements: Announcements) {
        let Announcements { to, starts_in, nak_spread } = announcements;
        for (session, announcements) in to {
            self.say(session, ServerMessage::Announce { starts_in, nak_spread, announcements });
        }
    }

    /// Tells clients that a transmission is over.
    pub(super) fn announce_end(&mut self, transmission: u32, to: BTreeSet<SessionId>) {
        for session in to {
            self.say(session, ServerMessage::End { transmission });
        }
    }
}
