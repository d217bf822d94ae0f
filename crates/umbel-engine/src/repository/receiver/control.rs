//! The client's end of the multicast control channel.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::repository::{Announcement, ClientMessage, ControlGroup, ServerMessage};
use umbel_wire::{Channel, Toi};

use super::Receiver;
use super::fallback::ASK_AGAIN_AT_ONCE;
use crate::repository::control::{Control, SILENCE};
use crate::symbols::SymbolSink;
use crate::{Instant, Membership, Transmit, TransmitBuf};

/// Announcements in the group may overtake the page that names their item by so much.
const EARLY: Duration = Duration::from_secs(2);
/// Most of these.
const MOST_EARLY: usize = 1024;

/// What the client has of the control channel.
#[derive(Debug, Default)]
pub(super) struct ControlEnd {
    offer: Option<ControlGroup>,
    /// The data channel's rate, in bits per second.
    data_bits_per_s: u64,
    control: Option<Control>,
    /// When the session was asked for, and from there until the welcome.
    asked: Instant,
    welcomed_after: Duration,
    /// The server was told that it is heard.
    hears: bool,
    /// Announcements of items that the client does not know or want yet: when they start, the
    /// spread of NAKs, what is announced.
    early: VecDeque<(Instant, Duration, Announcement)>,
}

impl ControlEnd {
    pub(super) fn connected(&mut self, now: Instant) {
        self.asked = now;
    }

    /// The server names its group, if it has one, and the data channel's rate.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        group: Option<ControlGroup>,
        data_bits_per_s: u64,
    ) {
        self.welcomed_after = now - self.asked;
        self.data_bits_per_s = data_bits_per_s;
        self.offer = group;
    }

    pub(super) fn offered(&self) -> Option<Channel> {
        self.offer.map(|group| group.channel)
    }

    pub(super) fn owns(&self, channel: &Channel) -> bool {
        self.control.as_ref().is_some_and(|control| control.owns(channel))
    }

    /// The session is over, and with it the membership. Gives what to leave.
    pub(super) fn close(&mut self) -> Option<Channel> {
        let control = std::mem::take(self).control?;
        Some(control.channel())
    }

    /// Keeps an announcement of an item that is not known, in case its page is on the way. Gives
    /// whether it may be: on the session pages come first.
    pub(super) fn remember(
        &mut self,
        starts: Instant,
        nak_spread: Duration,
        announcement: &Announcement,
    ) -> bool {
        if self.control.is_none() {
            return false;
        }
        if self.early.len() == MOST_EARLY {
            self.early.pop_front();
        }
        self.early.push_back((starts, nak_spread, *announcement));
        true
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.control.as_mut()?.poll_membership()
    }

    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        self.control.as_mut()?.poll_transmit(now, buf)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let control = self.control.as_ref()?;
        let silent = control.server_heard().filter(|_| self.hears).map(|at| at + SILENCE);
        [control.poll_timeout(), silent].into_iter().flatten().min()
    }
}

impl<K: SymbolSink> Receiver<K> {
    pub(super) fn join_control(&mut self, now: Instant) {
        let Some(group) = &self.control.offer else { return };
        let distance = self.control.welcomed_after / 2;
        let rate = self.control.data_bits_per_s;
        let control = Control::client(now, group, self.config.seed, distance, rate);
        self.control.control = Some(control);
    }

    /// Takes a datagram of the control group.
    pub(super) fn on_control(&mut self, now: Instant, by: Channel, payload: &[u8]) {
        let Some(control) = &mut self.control.control else { return };
        control.handle_datagram(now, by, payload);
        if !self.control.hears && control.server_heard() == Some(now) {
            self.control.hears = true;
            self.outbox.push_back(ClientMessage::Control { hears: true });
        }
        while let Some(message) = self.control.control.as_mut().and_then(Control::poll_message) {
            match message {
                ServerMessage::Announce { starts_in, nak_spread, announcements } => {
                    self.on_announce(now, starts_in, nak_spread, &announcements);
                }
                ServerMessage::End { transmission } => self.on_end(now, transmission),
                // Nothing else is for everyone.
                _ => {}
            }
        }
    }

    /// Does what is due in the group, and wants announcements on the session when the server has
    /// fallen silent there.
    pub(super) fn drive_control(&mut self, now: Instant) {
        let Some(control) = &mut self.control.control else { return };
        control.handle_timeout(now);
        if self.control.hears && control.server_heard().is_none_or(|at| at + SILENCE <= now) {
            self.control.hears = false;
            self.outbox.push_back(ClientMessage::Control { hears: false });
            // What was announced meanwhile was missed, and is asked for again.
            for (&toi, item) in self.items.iter().take(ASK_AGAIN_AT_ONCE) {
                let need = item.whole_need();
                self.outbox.push_back(ClientMessage::Want { toi, need });
            }
        }
    }

    /// Announcements of an item may have come before its page did.
    pub(super) fn hear_again(&mut self, now: Instant, toi: Toi) {
        while self.control.early.pop_front_if(|(starts, ..)| *starts + EARLY <= now).is_some() {}
        let (of_item, others): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.control.early)
            .into_iter()
            .partition(|(_, _, announcement)| announcement.toi == toi);
        self.control.early = others;
        for (starts, nak_spread, announcement) in of_item {
            self.on_announce(now, starts - now, nak_spread, &[announcement]);
        }
    }

    /// Whether the client hears of transmissions in the control group.
    pub fn hears_control(&self) -> bool {
        self.control.hears
    }
}
