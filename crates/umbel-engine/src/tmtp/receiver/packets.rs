//! Data packets that come to a receiver.
//!
//! Here is the order in which the parts learn of a packet. It is checked for its sender and
//! counted, its symbol is handled, and the source's state follows from it. The parts have the
//! state.

use umbel_wire::feed::Recovery;
use umbel_wire::small_block::{Piece, SmallBlockHeader, SmallBlockPacket};

use super::Receiver;
use super::manager::Manager;
use crate::recovery::reception::{Offered, Symbol};
use crate::symbols::SymbolSink;
use crate::tmtp::api::{FEED, Purpose, ReceiverEvent};
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::tmtp::tree::Arrival;
use crate::{Datagram, Instant};

impl<K: SymbolSink> Receiver<K> {
    /// Handles a data packet. [Settles](Receiver::settle) only if its block is complete or shows
    /// how far the source is, so that other symbols cost little.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        data_channel: bool,
    ) -> Result<(), DropReason> {
        let packet =
            SmallBlockPacket::parse(datagram.payload).map_err(|_| DropReason::Malformed)?;
        let header = packet.header;
        self.check_shape(&packet)?;
        let purpose = Purpose::of(header.transmission).ok_or(DropReason::Malformed)?;
        if data_channel && purpose == Purpose::Piece {
            return Err(DropReason::Unexpected);
        }
        if !data_channel {
            self.check_origin(datagram, purpose, header.index)?;
        }
        let is_alone = matches!(purpose, Purpose::Fetched | Purpose::Piece) && !data_channel;
        if let Some(stamp) = header.stamp {
            if data_channel {
                self.measure.on_packet(now, stamp, datagram.payload.len());
                let rate = self.tempo.on_packet(now, stamp, datagram.payload.len());
                self.events.extend(rate.map(ReceiverEvent::SourceRate));
            } else if is_alone {
                self.unicast.measure.on_packet(now, stamp, datagram.payload.len());
            }
        }
        if is_alone {
            // The rest of a symbol in pieces may pass where its beginning does not.
            if purpose == Purpose::Fetched
                || Piece::parse(packet.symbol).is_ok_and(|it| it.offset == 0)
            {
                self.unicast.on_fetched();
            }
            if self.unicast.is_on() {
                self.tree.note_parent_lives(now);
            }
        }
        let full = packet.symbol.len() == usize::from(self.config.shape.symbol_len);
        self.stats.full_received += u64::from(full);
        // In SRM's scheme anyone may repair, also what the source has never sent.
        let shows_sent = purpose == Purpose::Repair
            && (data_channel || self.config.node.recovery != Recovery::Srm);
        if shows_sent && !self.config.repair.hearsay {
            // Nothing else may ever tell of the blocks before this one. With beacons it is better
            // to wait for these, since repairs can overtake other packets.
            self.learn_sent(now, header.sbn);
        }
        self.count_packet(now, &header, purpose, data_channel)?;
        let sure = purpose == Purpose::Fetched && !data_channel;
        let taken = if purpose == Purpose::Piece {
            self.on_piece(now, &packet)
        } else if self.recovery.is_suspect(header.sbn, purpose, data_channel) {
            Err(DropReason::Suspect)
        } else if sure {
            self.take_symbol(now, &packet, purpose)
        } else {
            let judged = self.suspects.judge(header.sbn, header.esi.into(), packet.symbol);
            if purpose == Purpose::Repair && !data_channel {
                self.try_parent(judged);
            }
            judged.and_then(|_| self.take_symbol(now, &packet, purpose))
        };
        if !is_alone {
            self.unicast.on_data(now, taken.is_ok());
        }
        if purpose == Purpose::Repair {
            match taken {
                Ok(_) => self.stats.repairs_received += 1,
                Err(_) => self.stats.repairs_unneeded += 1,
            }
        }
        let news = match purpose {
            Purpose::First => self.note_sent(now, &header),
            // A node that learns it from nothing else has to acknowledge the block, and to
            // guarantee it to its own children.
            _ if shows_sent && self.delivery.reception().is_complete(header.sbn) => {
                self.learn_sent(now, header.sbn.saturating_add(1))
            }
            _ => false,
        };
        self.delivery.note_seen(header.sbn);
        let complete = taken.unwrap_or_else(|reason| {
            self.drops.count(reason);
            false
        });
        if complete || news {
            self.settle(now);
        }
        Ok(())
    }

    /// Handles the data packet in a repair of a helper, which a turning point has multicast.
    pub(super) fn on_helpers_repair(
        &mut self,
        now: Instant,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let packet = SmallBlockPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
        self.check_shape(&packet)?;
        let SmallBlockHeader { sbn, transmission, .. } = packet.header;
        if Purpose::of(transmission) != Some(Purpose::Repair) {
            return Err(DropReason::Malformed);
        }
        if sbn > self.delivery.known() {
            return Err(DropReason::FarAhead);
        }
        if self.recovery.is_suspect(sbn, Purpose::Repair, false) {
            return Err(DropReason::Suspect);
        }
        let judged = self.suspects.judge(sbn, packet.header.esi.into(), packet.symbol);
        match judged.and_then(|_| self.take_symbol(now, &packet, Purpose::Repair)) {
            Ok(_) => {
                self.stats.repairs_received += 1;
                self.stats.helped += 1;
                self.delivery.note_seen(sbn);
                Ok(())
            }
            Err(reason) => {
                self.stats.repairs_unneeded += 1;
                Err(reason)
            }
        }
    }

    /// Checks that a packet is of this feed, and fits it.
    fn check_shape(&self, packet: &SmallBlockPacket<'_>) -> Result<(), DropReason> {
        let header = packet.header;
        if header.tsi != self.config.node.feed || header.toi != FEED {
            return Err(DropReason::OtherSession);
        }
        if packet.symbol.len() > usize::from(self.config.shape.symbol_len)
            || header.block_symbols > self.config.shape.block_symbols
        {
            return Err(DropReason::AbsurdBlock);
        }
        Ok(())
    }

    /// Returns an error if a packet that did not come by the data channel is from a node that must
    /// not send it. A repair comes from the parent, and a fetched symbol from the source.
    fn check_origin(
        &self,
        datagram: &Datagram<'_>,
        purpose: Purpose,
        index: u32,
    ) -> Result<(), DropReason> {
        let Arrival { from, multicast, .. } = incoming::arrival(datagram, &self.config.node)?;
        let parent = self.tree.parent().map(|parent| parent.address.ip());
        match (purpose, multicast) {
            (Purpose::Repair, true) if parent == Some(from.ip()) => Ok(()),
            (Purpose::Repair, true) if self.config.node.recovery == Recovery::Srm => Ok(()),
            (Purpose::Fetched | Purpose::Piece, false)
                if from == self.config.shape.source && self.recovery.is_answer(index) =>
            {
                Ok(())
            }
            (Purpose::Repair, true) | (Purpose::Fetched | Purpose::Piece, false) => {
                Err(DropReason::NotAsked)
            }
            _ => Err(DropReason::Unexpected),
        }
    }

    /// Counts a packet by its purpose.
    fn count_packet(
        &mut self,
        now: Instant,
        header: &SmallBlockHeader,
        purpose: Purpose,
        data_channel: bool,
    ) -> Result<(), DropReason> {
        match purpose {
            Purpose::First => {
                self.source.on_heard(now);
                let lost = self.acks.on_first(header.index);
                self.stats.data_received += 1;
                self.stats.data_lost = self.stats.data_lost.saturating_add_signed(lost.into());
            }
            // Nothing is kept of a block before it is known. So the first block is known of which
            // children can be guaranteed every symbol.
            _ if header.sbn > self.delivery.known() => return Err(DropReason::FarAhead),
            Purpose::Repair if self.is_early(header.sbn) => return Err(DropReason::FarAhead),
            Purpose::Repair
                if header.sbn == self.delivery.known() && self.wariness.is_wary(now) =>
            {
                return Err(DropReason::Suspect);
            }
            Purpose::Fetched | Purpose::Piece => {
                self.stats.fetched_received += 1;
                let timing = self.timing();
                self.recovery.on_fetched_symbol(now, timing);
                return Ok(());
            }
            Purpose::Repair if data_channel && self.is_child_of_source() => {
                self.acks.on_repair(header.index);
            }
            Purpose::Repair => return Ok(()),
        }
        if self.acks.is_much() {
            self.ack_early(now);
        }
        Ok(())
    }

    /// Returns whether nothing has come of a block that is known to be next, in an open feed. Nobody
    /// can have asked for its repair, and a stranger could fill the block before it is sent.
    fn is_early(&self, block: u32) -> bool {
        self.authentic.is_open()
            && block == self.delivery.known()
            && !self.delivery.reception().is_part(block)
    }

    /// Returns whether the source is the parent. Other nodes may be out of reach of its repairs.
    pub(super) fn is_child_of_source(&self) -> bool {
        let source = self.source.feed().map(|feed| feed.source);
        self.tree.parent().is_some_and(|parent| Some(parent.id) == source)
    }

    /// Offers the symbol to the sink, and to the buffer if children need it. Returns whether its
    /// block is complete now.
    pub(super) fn take_symbol(
        &mut self,
        now: Instant,
        packet: &SmallBlockPacket<'_>,
        purpose: Purpose,
    ) -> Result<bool, DropReason> {
        let SmallBlockHeader { sbn: block, block_symbols: k, esi, .. } = packet.header;
        let symbol = Symbol { block, k, esi: esi.into(), sure: purpose == Purpose::First };
        if !self.delivery.is_genuine(symbol, packet.symbol) {
            return Err(DropReason::ForgedSymbol);
        }
        if purpose == Purpose::Repair
            && let Some(help) = &mut self.help
        {
            help.on_repair(now, block, esi.into());
        }
        let manager = self.duty.manager_mut().filter(|manager| manager.keeps(block));
        let keeps = manager.is_some();
        let buffer = manager.map(Manager::buffer_mut);
        let buffer = buffer.or_else(|| self.help.as_mut()?.keeps(block, k));
        match self.delivery.offer(now, symbol, packet.symbol, buffer) {
            Offered::Kept => {
                let timing = self.timing();
                self.recovery.on_symbol_kept(now, block, timing);
                Ok(false)
            }
            Offered::Complete => {
                self.stats.blocks = self.stats.blocks.saturating_add(1);
                if let Some(manager) = self.duty.manager_mut().filter(|_| keeps) {
                    manager.on_complete(block, k);
                }
                if let Some(help) = &mut self.help {
                    help.on_complete(block, k);
                }
                self.recovery.on_complete(now, block, self.delivery.reception());
                let t_ack = self.timing().t_ack;
                self.wariness.on_complete(now, block, t_ack);
                self.suspects.forget(block);
                self.check_complete(now);
                Ok(true)
            }
            Offered::Duplicate => Err(DropReason::Duplicate),
            Offered::Invalid => Err(DropReason::AbsurdBlock),
            Offered::FarAhead => Err(DropReason::FarAhead),
            Offered::NoRoom => {
                if purpose == Purpose::First {
                    self.measure.on_no_room();
                }
                self.on_no_room(now, block);
                Err(DropReason::NoRoom)
            }
        }
    }

    /// Notes that sink or buffer had no room. Nothing is lost by that: the block is not
    /// acknowledged, and sent again.
    fn on_no_room(&mut self, now: Instant, block: u32) {
        self.stats.overrun += 1;
        if self.is_buffer_full() {
            return;
        }
        let t_ack = self.timing().t_ack;
        self.delivery.room.on_refused(now, t_ack);
        self.recovery.on_refused(now, block);
        self.delivery.rest_before(block);
    }

    /// Learns from a packet of the data channel how far the source is. Returns whether that is
    /// news.
    fn note_sent(&mut self, now: Instant, header: &SmallBlockHeader) -> bool {
        let last = header.esi + 1 >= header.block_symbols;
        let end = header.sbn.saturating_add(u32::from(last));
        self.learn_sent(now, end)
    }
}
