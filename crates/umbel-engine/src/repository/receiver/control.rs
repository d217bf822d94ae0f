//! The client's end of the multicast control channel.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::repository::{Announcement, ControlGroup, ServerMessage};
use umbel_wire::{Channel, Toi};

use crate::chance::Generator;
use crate::repository::control::{Control, SILENCE};
use crate::seal::Keyring;
use crate::{Instant, Membership, Transmit, TransmitBuf};

/// Time by which announcements in the group may precede the page that names their item.
const EARLY: Duration = Duration::from_secs(2);
/// Greatest number of such early announcements.
const MOST_EARLY: usize = 1024;

/// An announcement of an item that the client does not know or want yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    pub(super) starts: Instant,
    pub(super) nak_spread: Duration,
    pub(super) announcement: Announcement,
}

/// The client's state of the control channel.
#[derive(Debug)]
pub(super) struct ControlEnd {
    /// Generator of each membership, from its beginning.
    random: Generator,
    offer: Option<ControlGroup>,
    /// The data channel's rate, in bits per second.
    data_bits_per_s: u64,
    /// Apart, since it is large, and most clients hear of transmissions on their sessions.
    control: Option<Box<Control>>,
    /// Time at which the session was opened, and the delay from there until the welcome.
    asked: Instant,
    welcomed_after: Duration,
    /// Whether the server was told that it is heard.
    hears: bool,
    early: VecDeque<Early>,
}

impl ControlEnd {
    /// Creates the state before any session.
    pub(super) fn new(random: Generator) -> ControlEnd {
        ControlEnd {
            random,
            offer: None,
            data_bits_per_s: 0,
            control: None,
            asked: Instant::EPOCH,
            welcomed_after: Duration::ZERO,
            hears: false,
            early: VecDeque::new(),
        }
    }

    /// Notes that the session is open.
    pub(super) fn connected(&mut self, now: Instant) {
        self.asked = now;
    }

    /// Notes the server's group, if it has one, and the data channel's rate. Returns the group.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        group: Option<ControlGroup>,
        data_bits_per_s: u64,
    ) -> Option<Channel> {
        self.welcomed_after = now - self.asked;
        self.data_bits_per_s = data_bits_per_s;
        self.offer = group;
        group.map(|group| group.channel)
    }

    /// Joins the offered group.
    pub(super) fn join(&mut self, now: Instant) {
        let Some(group) = &self.offer else { return };
        let (distance, random) = (self.welcomed_after / 2, self.random.clone());
        let control = Control::client(now, group, random, distance, self.data_bits_per_s);
        self.control = Some(Box::new(control));
    }

    /// Returns whether a datagram came on the group's channel.
    #[inline]
    pub(super) fn owns(&self, channel: &Channel) -> bool {
        self.control.as_ref().is_some_and(|control| control.owns(channel))
    }

    /// Ends the membership with the session. Returns the channel to leave.
    pub(super) fn close(&mut self) -> Option<Channel> {
        let fresh = ControlEnd::new(self.random.clone());
        let control = std::mem::replace(self, fresh).control?;
        Some(control.channel())
    }

    /// Returns whether the client has joined the group, so that its member may want to send.
    pub(super) fn is_active(&self) -> bool {
        self.control.is_some()
    }

    /// Returns whether the client hears of transmissions in the group.
    pub(super) fn hears(&self) -> bool {
        self.hears
    }

    /// Handles a datagram of the group. Returns whether the server is heard there from now on.
    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        by: Channel,
        payload: &[u8],
        ring: Option<&mut Keyring>,
    ) -> bool {
        let Some(control) = &mut self.control else { return false };
        control.handle_datagram(now, by, payload, ring);
        let heard = !self.hears && control.server_heard() == Some(now);
        self.hears |= heard;
        heard
    }

    /// Returns the next message of the server.
    pub(super) fn poll_message(&mut self) -> Option<ServerMessage> {
        self.control.as_mut()?.poll_message()
    }

    /// Does the work that is due in the group. Returns whether the server has fallen silent there.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let Some(control) = &mut self.control else { return false };
        control.handle_timeout(now);
        let silent = self.hears && control.server_heard().is_none_or(|at| at + SILENCE <= now);
        self.hears &= !silent;
        silent
    }

    /// Keeps an announcement of an unknown item, in case its page is on the way. Returns whether
    /// that is possible. On the session, pages come first.
    pub(super) fn remember(&mut self, early: Early) -> bool {
        if self.control.is_none() {
            return false;
        }
        if self.early.len() == MOST_EARLY {
            self.early.pop_front();
        }
        self.early.push_back(early);
        true
    }

    /// Takes out announcements of an item that arrived before its page.
    pub(super) fn take_early(&mut self, now: Instant, toi: Toi) -> VecDeque<Early> {
        while self.early.pop_front_if(|early| early.starts + EARLY <= now).is_some() {}
        let (of_item, others) = std::mem::take(&mut self.early)
            .into_iter()
            .partition(|early| early.announcement.toi == toi);
        self.early = others;
        of_item
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.control.as_mut()?.poll_membership()
    }

    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut TransmitBuf,
        ring: Option<&mut Keyring>,
    ) -> Option<Transmit> {
        self.control.as_mut()?.poll_transmit(now, buf, ring)
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let control = self.control.as_ref()?;
        let silent = control.server_heard().filter(|_| self.hears).map(|at| at + SILENCE);
        [control.poll_timeout(), silent].into_iter().flatten().min()
    }
}
