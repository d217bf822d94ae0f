//! Joining and leaving the data channel.

use std::collections::VecDeque;

use umbel_wire::Channel;

use crate::{Instant, Membership};

/// The client's membership of the data channel.
#[derive(Debug)]
pub(super) struct Tuner {
    channel: Option<Channel>,
    joined: bool,
    /// Time until which something of interest may come.
    interest_until: Instant,
    /// Whether a burst of probe packets was asked for.
    pub(super) probing: bool,
    changes: VecDeque<Membership>,
}

impl Tuner {
    pub(super) fn new() -> Tuner {
        Tuner {
            channel: None,
            joined: false,
            interest_until: Instant::EPOCH,
            probing: false,
            changes: VecDeque::new(),
        }
    }

    /// Tunes in to a channel, and joins it once there is something to receive.
    pub(super) fn tune(&mut self, channel: Channel) {
        if self.channel != Some(channel) {
            self.leave();
        }
        self.channel = Some(channel);
    }

    pub(super) fn is_joined(&self) -> bool {
        self.joined
    }

    pub(super) fn join(&mut self) {
        if let Some(channel) = self.channel.filter(|_| !self.joined) {
            self.joined = true;
            self.changes.push_back(Membership::Join(channel));
        }
    }

    pub(super) fn leave(&mut self) {
        if let Some(channel) = self.channel.filter(|_| self.joined) {
            self.joined = false;
            self.changes.push_back(Membership::Leave(channel));
        }
    }

    /// Leaves another channel as well.
    pub(super) fn leave_also(&mut self, channel: Channel) {
        self.changes.push_back(Membership::Leave(channel));
    }

    /// Sets the time until which something of interest may come.
    pub(super) fn set_interest(&mut self, until: Instant) {
        self.interest_until = until;
    }

    /// Extends the time in which something of interest may come.
    pub(super) fn extend_interest(&mut self, until: Instant) {
        self.interest_until = self.interest_until.max(until);
    }

    /// Returns the time until which something of interest may come.
    pub(super) fn interest_until(&self) -> Instant {
        self.interest_until
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.changes.pop_front()
    }
}
