//! The session with the server, and what the client learns by it.

use umbel_wire::Tsi;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, GroupKey, ServerMessage};

use super::{Receiver, ReceiverEvent};
use crate::repository::drops::DropReason;
use crate::seal::Keyring;
use crate::symbols::{BlockId, SymbolSink};
use crate::{Instant, SessionId};

/// The client's knowledge of its session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The session; `None` while there is none.
    id: Option<SessionId>,
    /// The server's number in data packets, once it has said so.
    tsi: Option<Tsi>,
    /// Group keys, if the server seals.
    ring: Option<Keyring>,
}

impl Session {
    /// Returns the session, if there is one.
    pub(super) fn id(&self) -> Option<SessionId> {
        self.id
    }

    /// Returns whether a data packet with this number is the server's.
    pub(super) fn serves(&self, tsi: Tsi) -> bool {
        self.tsi == Some(tsi)
    }

    /// Returns whether the server seals.
    pub(super) fn is_sealed(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns the group keys, if the server seals.
    pub(super) fn ring(&mut self) -> Option<&mut Keyring> {
        self.ring.as_mut()
    }

    fn on_welcome(&mut self, tsi: Tsi, keys: impl IntoIterator<Item = GroupKey>) {
        self.tsi = Some(tsi);
        let mut keys = keys.into_iter();
        self.ring = keys.next().map(Keyring::new);
        keys.for_each(|key| self.add_key(key));
    }

    /// Takes the next group key of a server that seals.
    fn add_key(&mut self, key: GroupKey) {
        if let Some(ring) = &mut self.ring {
            ring.add(key);
        }
    }
}

impl<K: SymbolSink> Receiver<K> {
    pub(super) fn on_connected(&mut self, now: Instant, session: SessionId) {
        self.control.connected(now);
        self.session.id = Some(session);
        let agent = self.config.agent.clone();
        let token = self.config.token.as_ref().map(|token| token.text().to_owned());
        self.outbox.say(ClientMessage::Hello { agent, token });
    }

    pub(super) fn on_disconnected(&mut self) {
        self.tuner.leave();
        if let Some(channel) = self.control.close() {
            self.tuner.leave_also(channel);
        }
        self.session = Session::default();
        self.items.clear();
        self.guard.clear();
        self.listener.reset();
        self.conformity.reset();
        self.outbox.clear();
        self.fallback.reset();
        self.tuner.probing = false;
        self.reception.stop();
    }

    pub(super) fn on_server_message(&mut self, now: Instant, bytes: &[u8]) {
        let Some(message) = ServerMessage::parse(bytes).ok().and_then(Parsed::message) else {
            return self.drops.count(DropReason::Malformed);
        };
        match message {
            ServerMessage::Welcome { agent, tsi, channels, rate_bits_per_s, control, keys } => {
                let control = self.control.offer(now, control, rate_bits_per_s);
                let Some(&channel) = channels.first() else {
                    return self.drops.count(DropReason::Malformed);
                };
                self.session.on_welcome(tsi, keys);
                let sealed = self.session.is_sealed();
                self.tuner.tune(channel);
                self.listener.set_rate(rate_bits_per_s);
                let event =
                    ReceiverEvent::Welcome { agent, channel, rate_bits_per_s, control, sealed };
                self.events.push_back(event);
            }
            ServerMessage::Refused { reason } => {
                self.events.push_back(ReceiverEvent::Refused { reason });
            }
            ServerMessage::Page { query, items, total, next } => {
                self.events.push_back(ReceiverEvent::Page { query, items, total, next });
            }
            ServerMessage::Failed { query, reason } => {
                self.events.push_back(ReceiverEvent::Failed { query, reason });
            }
            ServerMessage::Announce { rate_bits_per_s, starts_in, nak_spread, announcements } => {
                self.listener.set_rate(rate_bits_per_s);
                self.on_announce(now, starts_in, nak_spread, &announcements);
            }
            ServerMessage::End { transmission } => self.listener.hear_end(now, transmission),
            ServerMessage::Gone { toi, reason } => {
                self.forget_item(toi);
                self.events.push_back(ReceiverEvent::Gone { toi, reason });
            }
            ServerMessage::Digests { toi, first_block, digests, more } => {
                self.events.push_back(ReceiverEvent::Digests { toi, first_block, digests, more });
            }
            ServerMessage::SymbolDigests { toi, block: sbn, first_esi, digests } => {
                self.take_digests(now, BlockId { toi, sbn }, first_esi, &digests);
            }
            ServerMessage::Key(key) => {
                let id = key.id;
                self.session.add_key(key);
                self.outbox.say(ClientMessage::HasKey { key: id });
            }
            ServerMessage::Reports(schedule) => self.reception.follow(schedule),
            ServerMessage::Aside { carries_bits_per_s, rate_bits_per_s } => {
                self.step_aside(now, carries_bits_per_s, rate_bits_per_s);
            }
            ServerMessage::Probed { probe, packets } => {
                self.tuner.probing = false;
                self.events.push_back(ReceiverEvent::Probed { probe, packets });
            }
        }
    }
}
