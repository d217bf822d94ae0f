//! The client's engine: asks for items, listens while wanted items are announced, and reports the
//! missing symbols at the end of each transmission.
//!
//! ```text
//!              Announce                 last packet, a later transmission,
//!            ┌──────────▶ listening ──── End, or silence ──────┐
//!            │                                                 ▼
//! item: wanted ◀──── NAK sent ◀──── random delay ◀──── blocks missing?
//!            │                                                 │ none
//!            └───────── every block complete ◀─────────────────┘
//!                               │
//!                               ▼
//!                           verifying ──digest matches──▶ done
//! ```
//!
//! Symbols of a wanted item are taken whenever they come, whether or not the transmission was
//! announced to this client. When announced transmissions bring no packet for
//! [`ReceiverConfig::fallback_after`], the client asks for its items on the session (*unicast*). It
//! goes back as soon as a packet of its own probe arrives.

mod api;
mod conformity;
mod control;
mod demands;
mod fallback;
mod guard;
mod item;
mod items;
mod listener;
mod opening;
mod outbox;
mod reception;
mod session;
mod suspicion;
mod tuner;

pub use self::api::{ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats};
pub use self::fallback::Brought;
pub use self::item::Held;

use std::collections::VecDeque;
use std::time::Duration;

use umbel_fec::Partition;
use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::repository::{Announcement, ClientMessage, ServerMessage};
use umbel_wire::sealed::SealedHeader;
use umbel_wire::{Channel, Oti, Toi};

use self::conformity::{Claim, Conformity};
use self::control::{ControlEnd, Early};
use self::fallback::Fallback;
use self::guard::Guard;
use self::item::Item;
use self::items::Items;
use self::listener::{Listener, Outlook};
use self::opening::open;
use self::outbox::Outbox;
use self::reception::Reception;
use self::session::Session;
use self::tuner::Tuner;
use super::config::ReceiverConfig;
use super::drops::{DropReason, Drops};
use crate::chance::Generator;
use crate::symbols::SymbolSink;
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

timers! {
    /// Timers of the client.
    enum Timer, Timers {
        /// When to do the work that is due in the control group.
        Control,
        /// When to assume that a transmission is over, because it fell silent.
        End,
        /// When to report the symbols that a transmission left missing.
        Nak,
        /// When to switch to unicast.
        Fallback,
        /// When to probe whether multicast works again.
        Probe,
        /// When to take symbols of suspect items as they come, since their digests do not.
        Guard,
        /// When to ask again for items of which nothing was heard.
        AskAgain,
        /// When to leave the channel.
        Leave,
        /// When to report how packets arrive.
        Report,
    }
}

/// Items asked for again at once, so that a client with many waiting items causes no flood.
const ASK_AGAIN_AT_ONCE: usize = 256;

/// The client's engine.
#[derive(Debug)]
pub struct Receiver<K> {
    config: ReceiverConfig,
    sink: K,
    session: Session,
    /// Room for the symbol that is opened.
    scratch: Vec<u8>,
    items: Items,
    guard: Guard,
    conformity: Conformity,
    listener: Listener,
    reception: Reception,
    tuner: Tuner,
    fallback: Fallback,
    /// Draws the numbers of probes.
    random: Generator,
    timers: Timers,
    control: ControlEnd,
    outbox: Outbox,
    events: VecDeque<ReceiverEvent>,
    drops: Drops,
    stats: ReceiverStats,
}

impl<K: SymbolSink> Receiver<K> {
    /// Creates a client that keeps symbols in `sink`. Its delays are drawn from `random`.
    pub fn new(config: ReceiverConfig, random: Generator, sink: K) -> Receiver<K> {
        Receiver {
            sink,
            session: Session::default(),
            scratch: Vec::new(),
            items: Items::new(),
            guard: Guard::new(config.symbol_key),
            conformity: Conformity::default(),
            listener: Listener::new(&config, random.clone()),
            reception: Reception::new(random.clone()),
            tuner: Tuner::new(),
            fallback: Fallback::new(&config),
            timers: Timers::default(),
            control: ControlEnd::new(random.clone()),
            random,
            outbox: Outbox::default(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns counters of the data channel.
    pub fn stats(&self) -> ReceiverStats {
        let ReceiverStats { packets, bytes, unicast_blocks, damaged_blocks, .. } = self.stats;
        ReceiverStats { packets, bytes, unicast_blocks, damaged_blocks, ..self.listener.stats() }
    }

    /// Returns the sink that keeps the symbols.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// Returns the number of items that are wanted and not verified yet.
    pub fn outstanding(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of complete blocks, and of all blocks, of an item that is being received.
    pub fn progress(&self, toi: Toi) -> Option<(u32, u32)> {
        self.items.progress(toi)
    }

    /// Returns whether the client hears of transmissions in the control group.
    pub fn hears_control(&self) -> bool {
        self.control.hears()
    }

    fn on_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        match command {
            ReceiverCommand::Connected { session } => self.on_connected(now, session),
            ReceiverCommand::JoinControl => self.control.join(now),
            ReceiverCommand::Disconnected => self.on_disconnected(),
            ReceiverCommand::List { query, patterns, cursor, limit } => {
                self.say(ClientMessage::List { query, patterns, cursor, limit })?;
            }
            ReceiverCommand::Request { query, patterns, hold } => {
                self.say(ClientMessage::Request { query, patterns, hold })?;
            }
            ReceiverCommand::Accept { toi, oti, held, requested } => {
                self.accept(now, (toi, oti), &held, requested)?;
            }
            ReceiverCommand::Done { toi } => {
                self.forget_item(toi);
                self.outbox.done(toi);
                self.leave_if_idle(now);
            }
            ReceiverCommand::Cancel { toi } => {
                self.forget_item(toi);
                self.say(ClientMessage::Cancel { tois: vec![toi] })?;
            }
            ReceiverCommand::RestoreFailed { block } => {
                self.receive_again(now, block.toi, |item| item.restore_failed(block.sbn))?;
            }
            ReceiverCommand::BadBlocks { toi, blocks } => {
                self.stats.damaged_blocks += blocks.len() as u64;
                let most = self.config.most_damages;
                self.receive_again(now, toi, |item| item.on_damaged(&blocks, most))?;
                self.suspect(now, toi);
            }
            ReceiverCommand::AskDigests { toi } => self.say(ClientMessage::Digests { toi })?,
            ReceiverCommand::Overrun { packets } => {
                self.listener.overrun.note_before(packets);
                self.reception.on_overrun(packets);
            }
            ReceiverCommand::UnicastBlock { block, content } => {
                match self.items.take_block(now, block, &content, &mut self.sink) {
                    Ok(last) => {
                        self.stats.unicast_blocks += 1;
                        self.guard.forget_block(block);
                        if last {
                            self.demand_rest(block.toi);
                        }
                    }
                    Err(DropReason::NoRoom) => {
                        return Err(ReceiverCommandError::NoRoom(block.toi));
                    }
                    Err(reason) => self.drops.count(reason),
                }
            }
            ReceiverCommand::Probe { probe, packets, packet_len, rate_bits_per_s } => {
                self.tuner.probing = true;
                self.tuner.join();
                self.say(ClientMessage::Probe {
                    probe,
                    channel: 0,
                    packets,
                    packet_len,
                    rate_bits_per_s,
                })?;
            }
        }
        Ok(())
    }

    fn say(&mut self, message: ClientMessage) -> Result<(), ReceiverCommandError> {
        if self.session.id().is_none() {
            return Err(ReceiverCommandError::NotConnected);
        }
        self.outbox.say(message);
        Ok(())
    }

    fn accept(
        &mut self,
        now: Instant,
        (toi, oti): (Toi, Oti),
        held: &Held,
        requested: bool,
    ) -> Result<(), ReceiverCommandError> {
        let partition = Partition::new(&oti)
            .map_err(|error| ReceiverCommandError::BadItem(toi, error.to_string()))?;
        // What the server sends whom it owes everything.
        let is_asked_for = requested && held.is_nothing_sent();
        let item = Box::new(Item::new(oti, partition, held, now));
        let need = item.whole_need();
        self.items.insert(toi, item);
        // Announcements of it may have arrived before its page.
        for Early { starts, nak_spread, announcement } in self.control.take_early(now, toi) {
            self.on_announce(now, starts - now, nak_spread, &[announcement]);
        }
        if !self.timers.is_set(Timer::AskAgain) {
            self.timers.set(Timer::AskAgain, now + self.config.ask_again_after);
        }
        if self.items.verify_if_complete(toi) {
            return Ok(());
        }
        if !self.fallback.is_multicast() {
            return self.say(ClientMessage::Unicast { toi, need });
        }
        if !is_asked_for {
            self.say(ClientMessage::Want { toi, need })?;
        }
        Ok(())
    }

    fn forget_item(&mut self, toi: Toi) {
        self.items.remove(toi);
        self.guard.forget(toi);
    }

    fn on_announce(
        &mut self,
        now: Instant,
        starts_in: Duration,
        nak_spread: Duration,
        announcements: &[Announcement],
    ) {
        let starts = now + starts_in;
        let outlook = Outlook { nak_spread, joined: self.tuner.is_joined() };
        let mut expected_end = self.listener.busy_until(starts);
        let mut wanted = false;
        for &announcement in announcements {
            self.listener.note_announced(announcement.transmission);
            let Some(item) = self.items.get_mut(announcement.toi) else {
                if !self.control.remember(Early { starts, nak_spread, announcement }) {
                    self.drops.count(DropReason::NotWanted);
                }
                continue;
            };
            wanted = true;
            self.conformity.announce(&announcement);
            item.last_heard = now;
            let blocks = item.partition.blocks();
            expected_end = self.listener.listen(&announcement, &outlook, expected_end, blocks);
            let first = announcement.first_block;
            let coming = first..first.saturating_add(announcement.blocks).min(blocks).max(first);
            let asked = self.guard.watch_coming(now, (announcement.toi, item), coming);
            for message in asked {
                self.outbox.say(message);
            }
        }
        if wanted && self.fallback.is_multicast() {
            self.tuner.set_interest(expected_end.max(now) + self.config.linger);
            self.fallback.expect(starts);
            self.tuner.join();
        }
    }

    /// Handles a datagram of the control group.
    fn on_control(&mut self, now: Instant, by: Channel, payload: &[u8]) {
        if self.control.handle_datagram(now, by, payload, self.session.ring()) {
            self.outbox.say(ClientMessage::Control { hears: true });
        }
        while let Some(message) = self.control.poll_message() {
            match message {
                ServerMessage::Announce {
                    rate_bits_per_s,
                    starts_in,
                    nak_spread,
                    announcements,
                } => {
                    self.listener.set_rate(rate_bits_per_s);
                    self.on_announce(now, starts_in, nak_spread, &announcements);
                }
                ServerMessage::End { transmission } => {
                    self.listener.hear_end(now, transmission);
                }
                // No other message is meant for the whole group.
                _ => {}
            }
        }
    }

    /// Handles a packet of the data channel.
    fn on_packet(&mut self, now: Instant, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        match open(self.session.ring(), bytes, &mut scratch) {
            Ok(packet) => self.on_opened(now, &packet, bytes.len()),
            Err(reason) => self.drops.count(reason),
        }
        self.scratch = scratch;
    }

    /// Handles a packet of the data channel, of `len` bytes, whose seal was opened if it has one.
    fn on_opened(&mut self, now: Instant, packet: &DataPacket<'_>, len: usize) {
        let DataHeader { tsi, toi, transmission, index, .. } = packet.header;
        if !self.session.serves(tsi) {
            return self.drops.count(DropReason::OtherSession);
        }
        self.stats.packets += 1;
        self.stats.bytes += len as u64;
        self.listener.note_packet(now);
        if toi == Toi::PROBE {
            if self.fallback.hear_probe(now, transmission) {
                self.go_back_to_multicast(now);
            }
            let event = ReceiverEvent::ProbePacket { probe: transmission, index, at: now, len };
            return self.events.push_back(event);
        }
        self.reception.on_packet(now, packet.header.stamp, len);
        self.fallback.count(now, packet.header.stamp.number, len);
        let may_be_genuine = self.take_symbol(now, packet);
        if may_be_genuine && self.listener.hear(now, &self.items, (toi, transmission, index)) {
            self.tuner.extend_interest(now + self.config.linger);
        }
    }

    /// Takes the symbol of a packet. Returns false if it cannot be the server's.
    fn take_symbol(&mut self, now: Instant, packet: &DataPacket<'_>) -> bool {
        let DataHeader { toi, sbn, esi, .. } = packet.header;
        let claim = self.claim_of(&packet.header);
        match self.items.take_symbol(now, packet, &mut self.guard, &mut self.sink) {
            Ok(()) => {
                self.fallback.hear();
                let fits = claim.is_none_or(|claim| self.conformity.fits(now, claim));
                if !fits && !self.guard.watches(toi) {
                    self.suspect(now, toi);
                }
                true
            }
            Err(reason) => {
                // Symbols that are held already, or find no room, have arrived all the same.
                if matches!(reason, DropReason::Duplicate | DropReason::NoRoom) {
                    self.fallback.hear();
                }
                match reason {
                    DropReason::Duplicate => {
                        claim.map(|claim| self.conformity.fits(now, claim));
                    }
                    DropReason::NoRoom => {
                        self.listener.overrun.note_no_room();
                        self.reception.on_no_room();
                    }
                    DropReason::Contradicting => self.suspect(now, toi),
                    DropReason::Unverified => self.ask_further(now, toi, (sbn, esi)),
                    _ => {}
                }
                self.drops.count(reason);
                let wrong = [DropReason::WrongSymbol, DropReason::OutsideItem];
                !wrong.contains(&reason)
            }
        }
    }

    /// Returns the place that a packet of an item claims. `None` if seals tell what is genuine.
    fn claim_of(&self, header: &DataHeader) -> Option<Claim> {
        let DataHeader { toi, transmission, index, sbn, esi, .. } = *header;
        let item = self.items.get(toi).filter(|_| !self.session.is_sealed())?;
        let is_repair = sbn < item.partition.blocks() && esi >= item.partition.block_symbols(sbn);
        Some(Claim { toi, sbn, transmission, index, is_repair })
    }

    /// Does the work that is due in the control group. Asks for announcements on the session when
    /// the server has fallen silent there.
    fn drive_control(&mut self, now: Instant) {
        if self.control.handle_timeout(now) {
            self.outbox.say(ClientMessage::Control { hears: false });
            // Announcements made meanwhile were missed, so the items are asked for again.
            self.demand_all(ASK_AGAIN_AT_ONCE);
        }
    }

    fn set_timers(&mut self) {
        let timers = &mut self.timers;
        timers.put(Timer::Control, self.control.poll_timeout());
        timers.put(Timer::End, self.listener.next_silent_end());
        timers.put(Timer::Nak, self.listener.next_nak_due());
        let silence = self.fallback.next_judgement().filter(|_| !self.items.is_idle());
        timers.put(Timer::Fallback, silence);
        timers.put(Timer::Probe, self.fallback.next_probe());
        timers.put(Timer::Guard, self.guard.poll_timeout());
        timers.put(Timer::Report, self.reception.next());
        let leaves = self.tuner.is_joined() && self.is_idle();
        self.timers.put(Timer::Leave, leaves.then(|| self.interest_until()));
    }

    /// Returns the time until which something of interest may come on the channel.
    fn interest_until(&self) -> Instant {
        let until = self.tuner.interest_until();
        self.fallback.listens_until().map_or(until, |answer| answer.max(until))
    }

    fn send_due_naks(&mut self, now: Instant) {
        let may = self.fallback.is_multicast();
        while let Some(nak) = self.listener.next_nak(now, &mut self.items, may) {
            self.tuner.extend_interest(now + self.config.linger);
            self.fallback.expect_answer(now);
            self.outbox.say(ClientMessage::Nak(nak));
        }
    }

    /// Switches to unicast if announced transmissions bring nothing, or next to nothing.
    fn judge_multicast(&mut self, now: Instant) {
        if let Some(brought) = self.fallback.judge(now) {
            self.listener.stop();
            self.demand_all(usize::MAX);
            let packet_len = self.items.packet_len();
            self.events.push_back(ReceiverEvent::Fallback { brought, packet_len });
        }
    }

    /// Leaves the channel, because the path carries less than its rate, and takes the items on the
    /// session.
    fn step_aside(&mut self, now: Instant, carries_bits_per_s: u64, rate_bits_per_s: u64) {
        if !self.fallback.is_multicast() {
            return;
        }
        self.fallback.step_aside(now);
        self.listener.stop();
        self.tuner.leave();
        self.reception.stop();
        self.demand_all(usize::MAX);
        self.events.push_back(ReceiverEvent::Aside { carries_bits_per_s, rate_bits_per_s });
    }

    /// Asks for a probe burst that would show that multicast works. Goes back to multicast without
    /// one if only the path was too slow.
    fn probe(&mut self, now: Instant) {
        if self.fallback.end_aside(now) {
            return self.go_back_to_multicast(now);
        }
        self.fallback.probe_later(now);
        if let Some(packet_len) = self.items.packet_len() {
            self.tuner.join();
            let probe = self.fallback.number_probe(&mut self.random);
            // Probes are as long as what does not come, though they are not sealed.
            let seal = if self.session.is_sealed() { SealedHeader::OVERHEAD as u16 } else { 0 };
            self.outbox.say(fallback::probe(probe, packet_len + seal));
        }
    }

    /// Returns to multicast, because a packet of the probe has come.
    fn go_back_to_multicast(&mut self, now: Instant) {
        self.tuner.set_interest(now + self.config.linger);
        self.demand_all(usize::MAX);
        self.events.push_back(ReceiverEvent::MulticastBack);
    }

    /// Returns whether the client listens to nothing, answers nothing and probes nothing by
    /// multicast.
    fn is_idle(&self) -> bool {
        self.listener.is_idle() && !self.tuner.probing && self.fallback.is_multicast()
    }

    /// Leaves the channel when nothing of interest was announced for a while.
    fn leave_if_idle(&mut self, now: Instant) {
        let uninterested = self.items.is_idle() || now >= self.interest_until();
        if self.is_idle() && uninterested {
            self.tuner.leave();
            self.reception.stop();
        }
    }
}

impl<K: SymbolSink> Engine for Receiver<K> {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        match datagram.by {
            Address::Channel(by) if self.control.owns(&by) => {
                self.on_control(now, by, datagram.payload);
            }
            Address::Channel(_) => self.on_packet(now, datagram.payload),
            Address::Session(session) if Some(session) == self.session.id() => {
                self.on_server_message(now, datagram.payload);
            }
            Address::Session(_) | Address::Host(_) => self.drops.count(DropReason::Unexpected),
        }
        self.set_timers();
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        let result = self.on_command(now, command);
        self.set_timers();
        result
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Control => self.drive_control(now),
                Timer::End if self.listener.end_silent(now, &self.items) => {
                    self.tuner.extend_interest(now + self.config.linger);
                }
                Timer::Nak => self.send_due_naks(now),
                Timer::Fallback => self.judge_multicast(now),
                Timer::Probe => self.probe(now),
                Timer::AskAgain => self.ask_again(now),
                Timer::Guard => self.guard.handle_timeout(now),
                Timer::Report => {
                    let report = self.reception.poll(now).map(ClientMessage::Reception);
                    if let Some(report) = report {
                        self.outbox.say(report);
                    }
                }
                Timer::End | Timer::Leave => {}
            }
        }
        self.leave_if_idle(now);
        self.set_timers();
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.tuner.poll_membership().or_else(|| self.control.poll_membership())
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let session = self.session.id()?;
        if let Some(transmit) = self.control.poll_transmit(now, buf, self.session.ring()) {
            self.timers.put(Timer::Control, self.control.poll_timeout());
            return Some(transmit);
        }
        let message = self.outbox.next(&mut self.listener, &self.items)?;
        buf.write_message(|out| message.emit(out));
        Some(Transmit::control(Address::Session(session)))
    }

    fn has_output(&self) -> bool {
        self.control.is_active()
            || self.tuner.has_changes()
            || !self.outbox.is_empty()
            || !self.events.is_empty()
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}
