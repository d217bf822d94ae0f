//! What the server says and the application asks.

use std::time::Duration;

use umbel_fec::Partition;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, Need, ServerMessage};
use umbel_wire::{Channel, Oti, Toi, Tsi};

use super::item::{Held, Item};
use super::listening::Reception;
use super::{Receiver, ReceiverCommand, ReceiverCommandError, ReceiverEvent, Way};
use crate::repository::drops::DropReason;
use crate::symbols::SymbolSink;
use crate::units::Rate;
use crate::{Instant, Membership, SessionId};

/// UDP payload that announced durations are reckoned with.
const NOMINAL_PACKET: u64 = 1_400;

impl<K: SymbolSink> Receiver<K> {
    pub(super) fn on_server_message(&mut self, now: Instant, bytes: &[u8]) {
        let Some(message) = ServerMessage::parse(bytes).ok().and_then(Parsed::message) else {
            return self.drops.count(DropReason::Malformed);
        };
        match message {
            ServerMessage::Welcome { agent, tsi, channels, rate_bits_per_s, control } => {
                self.control.offer(now, control, rate_bits_per_s);
                self.on_welcome(agent, tsi, &channels, rate_bits_per_s);
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
            ServerMessage::Announce { starts_in, nak_spread, announcements } => {
                self.on_announce(now, starts_in, nak_spread, &announcements);
            }
            ServerMessage::End { transmission } => self.on_end(now, transmission),
            ServerMessage::Gone { toi, reason } => {
                self.items.remove(&toi);
                self.verifying.remove(&toi);
                self.events.push_back(ReceiverEvent::Gone { toi, reason });
            }
            ServerMessage::Digests { toi, first_block, digests, more } => {
                self.events.push_back(ReceiverEvent::Digests { toi, first_block, digests, more });
            }
            ServerMessage::Probed { probe, packets } => {
                self.probing = false;
                self.events.push_back(ReceiverEvent::Probed { probe, packets });
            }
        }
    }

    fn on_welcome(&mut self, agent: String, tsi: Tsi, channels: &[Channel], rate: u64) {
        let Some(&channel) = channels.first() else {
            return self.drops.count(DropReason::Malformed);
        };
        if self.channel != Some(channel) {
            self.leave();
        }
        self.tsi = Some(tsi);
        self.channel = Some(channel);
        self.packet_time = Rate::from_bits_per_s(rate)
            .map_or(Duration::ZERO, |rate| rate.time_for(NOMINAL_PACKET));
        let control = self.control.offered();
        let welcome = ReceiverEvent::Welcome { agent, channel, rate_bits_per_s: rate, control };
        self.events.push_back(welcome);
    }

    pub(super) fn on_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        match command {
            ReceiverCommand::Connected { session } => self.on_connected(now, session),
            ReceiverCommand::JoinControl => self.join_control(now),
            ReceiverCommand::Disconnected => self.on_disconnected(),
            ReceiverCommand::List { query, patterns, cursor, limit } => {
                self.say(ClientMessage::List { query, patterns, cursor, limit })?;
            }
            ReceiverCommand::Request { query, patterns, hold } => {
                self.say(ClientMessage::Request { query, patterns, hold })?;
            }
            ReceiverCommand::Accept { toi, oti, held, requested } => {
                self.accept(now, toi, oti, &held, requested)?;
            }
            ReceiverCommand::Done { toi } => {
                self.items.remove(&toi);
                self.verifying.remove(&toi);
                self.done.push(toi);
                self.leave_if_bored(now);
            }
            ReceiverCommand::Cancel { toi } => {
                self.items.remove(&toi);
                self.verifying.remove(&toi);
                self.say(ClientMessage::Cancel { tois: vec![toi] })?;
            }
            ReceiverCommand::RestoreFailed { block } => {
                self.receive_again(now, block.toi, |item| item.restore_failed(block.sbn))?;
            }
            ReceiverCommand::BadBlocks { toi, blocks } => {
                self.receive_again(now, toi, |item| {
                    for &block in &blocks {
                        item.forget_block(block);
                    }
                })?;
            }
            ReceiverCommand::AskDigests { toi } => self.say(ClientMessage::Digests { toi })?,
            ReceiverCommand::Overrun { packets } => {
                self.overrun.before = self.overrun.before.saturating_add(packets);
            }
            ReceiverCommand::UnicastBlock { block, content } => {
                self.take_block(now, block, &content)?;
            }
            ReceiverCommand::Probe { probe, packets, packet_len, rate_bits_per_s } => {
                self.probing = true;
                self.join();
                let channel = 0;
                self.say(ClientMessage::Probe {
                    probe,
                    channel,
                    packets,
                    packet_len,
                    rate_bits_per_s,
                })?;
            }
        }
        Ok(())
    }

    fn say(&mut self, message: ClientMessage) -> Result<(), ReceiverCommandError> {
        if self.session.is_none() {
            return Err(ReceiverCommandError::NotConnected);
        }
        self.outbox.push_back(message);
        Ok(())
    }

    fn on_connected(&mut self, now: Instant, session: SessionId) {
        self.control.connected(now);
        self.session = Some(session);
        let agent = self.config.agent.clone();
        let token = self.config.token.clone();
        self.outbox.push_back(ClientMessage::Hello { agent, token });
    }

    fn on_disconnected(&mut self) {
        self.leave();
        if let Some(channel) = self.control.close() {
            self.memberships.push_back(Membership::Leave(channel));
        }
        self.session = None;
        self.tsi = None;
        self.items.clear();
        self.verifying.clear();
        self.listening.clear();
        self.naks.clear();
        self.outbox.clear();
        self.done.clear();
        self.untold = Reception::default();
        self.way = Way::Multicast;
        self.silent_since = None;
        self.probing = false;
        self.highest_transmission = 1 << 32;
    }

    fn accept(
        &mut self,
        now: Instant,
        toi: Toi,
        oti: Oti,
        held: &Held,
        requested: bool,
    ) -> Result<(), ReceiverCommandError> {
        let partition = Partition::new(&oti)
            .map_err(|error| ReceiverCommandError::BadItem(toi, error.to_string()))?;
        let item = Item::new(oti, partition, held, now);
        let need = item.whole_need();
        self.items.insert(toi, item);
        self.hear_again(now, toi);
        self.next_ask_again.get_or_insert(now + self.config.ask_again_after);
        if self.items.get(&toi).is_some_and(Item::is_complete) {
            self.check_complete(toi);
            return Ok(());
        }
        if matches!(self.way, Way::Unicast { .. }) {
            return self.say(ClientMessage::Unicast { toi, need });
        }
        if !requested || need != Need::Whole {
            self.say(ClientMessage::Want { toi, need })?;
        }
        Ok(())
    }

    /// Something that was complete is not: the item is received on.
    fn receive_again(
        &mut self,
        now: Instant,
        toi: Toi,
        change: impl FnOnce(&mut Item),
    ) -> Result<(), ReceiverCommandError> {
        let item = self.verifying.remove(&toi).or_else(|| self.items.remove(&toi));
        let mut item = item.ok_or(ReceiverCommandError::UnknownItem(toi))?;
        change(&mut item);
        item.last_heard = now;
        let need = item.whole_need();
        self.items.insert(toi, item);
        match self.way {
            Way::Multicast => self.say(ClientMessage::Want { toi, need }),
            Way::Unicast { .. } => self.say(ClientMessage::Unicast { toi, need }),
        }
    }
}
