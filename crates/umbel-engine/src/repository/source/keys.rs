//! The group key of a sealed server, and its changes.
//!
//! ```text
//!            left, worn, or old; the gap is over        a secret is drawn
//!   steady ─────────────────────────────────▶ asked ────────────────────▶ handing out
//!     ▲                                    (the host)    Key to every client   │
//!     └───────── every client has it, or has taken too long: switch ───────────┘
//! ```
//!
//! The next key is handed out on the sessions, and used when every client has confirmed it. So no
//! packet is lost at the change. A client that does not confirm it in time is not waited for; it
//! gets what it misses as after any loss. A client that leaves while a key is handed out may have
//! this key as well, and so another change follows.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel_wire::repository::{GroupKey, GroupSecret};

use crate::repository::config::SealConfig;
use crate::seal::Keyring;
use crate::{Instant, SessionId};

/// Time by which each client delays the change after the next, so that clients that come and go
/// cost a bounded number of messages.
const GAP_OF_ONE: Duration = Duration::from_millis(1);

/// A key is changed when it has sealed this number of packets, long before their numbers end.
const WORN: u32 = 1 << 31;

#[derive(Debug)]
enum State {
    Steady,
    /// The host draws a secret.
    Asked,
    /// The clients that have not confirmed the next key, and how long they are waited for.
    Handing {
        awaited: BTreeSet<SessionId>,
        until: Instant,
    },
}

/// The server's keys.
#[derive(Debug)]
pub(super) struct GroupKeys {
    config: SealConfig,
    pub(super) ring: Keyring,
    state: State,
    /// Number of the newest key.
    newest: u16,
    /// Whether a client has left that holds the newest key.
    left: bool,
    /// Time of the next change, whether or not a client leaves.
    due: Option<Instant>,
    /// The next change waits for this time.
    not_before: Instant,
    /// Pause after the change that is being made.
    gap: Duration,
    changes: u64,
}

impl GroupKeys {
    pub(super) fn new(mut config: SealConfig) -> GroupKeys {
        let newest = 1;
        // The ring alone has secrets, for as long as they are of use.
        let secret = std::mem::replace(&mut config.secret, GroupSecret([0; 32]));
        GroupKeys {
            ring: Keyring::new(GroupKey { id: newest, secret }),
            config,
            state: State::Steady,
            newest,
            left: false,
            due: None,
            not_before: Instant::EPOCH,
            gap: Duration::ZERO,
            changes: 0,
        }
    }

    /// Returns the number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the time of the next work.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Steady if self.left || self.is_worn() => Some(self.not_before),
            State::Steady => Some(self.due.unwrap_or(Instant::EPOCH)),
            State::Asked => None,
            State::Handing { until, .. } => Some(*until),
        }
    }

    fn is_worn(&self) -> bool {
        self.ring.packets_sealed() >= WORN
    }

    /// Does the work that is due. Returns whether the host has to draw a secret.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        match &self.state {
            State::Steady => {
                let due = *self.due.get_or_insert(now + self.config.change_every);
                let wanted = self.left || self.is_worn() || now >= due;
                let asks = wanted && now >= self.not_before;
                if asks {
                    self.state = State::Asked;
                }
                asks
            }
            State::Handing { until, .. } if now >= *until => {
                self.switch(now);
                false
            }
            State::Asked | State::Handing { .. } => false,
        }
    }

    /// Takes a secret that the host has drawn. Returns the key to be handed to these clients, which
    /// are all that are admitted.
    pub(super) fn hand_out(
        &mut self,
        now: Instant,
        secret: GroupSecret,
        clients: BTreeSet<SessionId>,
    ) -> Option<GroupKey> {
        if !matches!(self.state, State::Asked) {
            return None;
        }
        self.newest = self.newest.wrapping_add(1);
        let key = GroupKey { id: self.newest, secret };
        self.ring.add(key.clone());
        self.left = false;
        self.gap = self.config.change_gap + GAP_OF_ONE * clients.len() as u32;
        let until = now + self.config.confirm_wait;
        self.state = State::Handing { awaited: clients, until };
        self.switch_if_all_have_it(now);
        Some(key)
    }

    /// Notes that a client has a key.
    pub(super) fn on_confirmed(&mut self, now: Instant, session: SessionId, key: u16) {
        if key == self.newest {
            self.no_longer_await(now, session);
        }
    }

    /// Notes that an admitted client has left.
    pub(super) fn on_left(&mut self, now: Instant, session: SessionId) {
        self.left = true;
        self.no_longer_await(now, session);
    }

    fn no_longer_await(&mut self, now: Instant, session: SessionId) {
        if let State::Handing { awaited, .. } = &mut self.state {
            awaited.remove(&session);
        }
        self.switch_if_all_have_it(now);
    }

    fn switch_if_all_have_it(&mut self, now: Instant) {
        if let State::Handing { awaited, .. } = &self.state
            && awaited.is_empty()
        {
            self.switch(now);
        }
    }

    fn switch(&mut self, now: Instant) {
        self.ring.switch();
        self.state = State::Steady;
        self.changes += 1;
        self.due = Some(now + self.config.change_every);
        self.not_before = now + self.gap;
    }
}
