//! Data packets that come to a receiver.

use std::time::Duration;

use umbel_wire::small_block::{SmallBlockHeader, SmallBlockPacket};

use super::{Numbers, Receiver, Refusing};
use crate::symbols::{BlockId, SymbolSink};
use crate::tmtp::api::{FEED, Purpose};
use crate::tmtp::buffer::Buffer;
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::tmtp::reception::{Offered, Store, Symbol};
use crate::tmtp::tree::Arrival;
use crate::{Datagram, Instant};

/// After so many packets an acknowledgement may leave before T_ack is over.
const MUCH: u32 = 2048;
/// What the sink had no room for is not asked for again before this has passed.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// Blocks that are put to rest when the sink has no room.
const REST_AT_ONCE: usize = 16;
/// A gap in the numbers of packets that is greater was no loss: the source began anew, or this
/// receiver was away.
const GREATEST_LOSS: u32 = 1 << 20;

/// Where a receiver keeps the symbol that came.
struct Kept<'a, K> {
    sink: &'a mut K,
    /// A manager's, if children may need the block.
    buffer: Option<&'a mut Buffer>,
    bytes: &'a [u8],
}

impl<K: SymbolSink> Store for Kept<'_, K> {
    fn source_symbols(&self, block: u32) -> Option<u8> {
        self.sink.source_symbols(id_of(block))
    }

    fn forget(&mut self, block: u32) {
        self.sink.forget(id_of(block));
        if let Some(buffer) = &mut self.buffer {
            buffer.drop_block(block);
        }
    }

    fn store(&mut self, symbol: Symbol) -> bool {
        let Symbol { block, k, esi, .. } = symbol;
        if self.buffer.as_ref().is_some_and(|buffer| !buffer.has_room(block, k)) {
            return false;
        }
        let stored = self.sink.store(id_of(block), esi, self.bytes);
        let buffer = self.buffer.as_mut();
        stored && buffer.is_none_or(|buffer| buffer.store(block, k, esi, self.bytes))
    }
}

const fn id_of(block: u32) -> BlockId {
    BlockId { toi: FEED, sbn: block }
}

impl Numbers {
    /// Takes a packet's number. Gives how many before it are found to be lost; -1 if it comes late
    /// itself, and was counted as lost.
    fn note(&mut self, number: u32) -> i32 {
        let ahead = self.next.map_or(0, |next| number.wrapping_sub(next));
        if ahead > u32::MAX - GREATEST_LOSS {
            return -1;
        }
        self.next = Some(number.wrapping_add(1));
        if ahead < GREATEST_LOSS { ahead.cast_signed() } else { 0 }
    }
}

impl<K: SymbolSink> Receiver<K> {
    /// Takes a data packet. Gives whether anything but its symbol has to be seen to.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        data_channel: bool,
    ) -> Result<bool, DropReason> {
        let packet =
            SmallBlockPacket::parse(datagram.payload).map_err(|_| DropReason::Malformed)?;
        let header = packet.header;
        if header.tsi != self.config.node.feed || header.toi != FEED {
            return Err(DropReason::OtherFeed);
        }
        let purpose = Purpose::of(header.transmission).ok_or(DropReason::Malformed)?;
        if packet.symbol.len() > usize::from(self.config.shape.symbol_len)
            || header.block_symbols > self.config.shape.block_symbols
        {
            return Err(DropReason::AbsurdBlock);
        }
        if !data_channel {
            self.check_origin(datagram, purpose, header.index)?;
        }
        match purpose {
            Purpose::First => {
                self.source_heard = Some(now);
                let lost = self.numbers.note(header.index);
                self.stats.data_received += 1;
                self.stats.data_lost = self.stats.data_lost.saturating_add_signed(lost.into());
                self.note_heard(now, lost);
            }
            // Nothing is kept of a block before it is known, so that it is known from which block on
            // children can be guaranteed all.
            _ if header.sbn > self.reception.known() => return Err(DropReason::FarAhead),
            Purpose::Fetched => {
                self.stats.fetched_received += 1;
                let wait = self.fetch_wait();
                self.fetching.on_symbol(now, wait);
            }
            Purpose::Repair if data_channel && self.is_child_of_source() => {
                let lost = self.repair_numbers.note(header.index);
                self.note_heard(now, lost);
            }
            Purpose::Repair => {}
        }
        let taken = self.take_symbol(now, &packet, purpose);
        if purpose == Purpose::Repair {
            match taken {
                Ok(_) => self.stats.repairs_received += 1,
                Err(_) => self.stats.repairs_unneeded += 1,
            }
        }
        let sent = purpose == Purpose::First && self.note_sent(now, &header);
        let beyond = self.reception.known().saturating_add(1);
        self.seen = self.seen.max(header.sbn.saturating_add(1).min(beyond));
        match taken {
            Ok(complete) => Ok(complete || sent),
            Err(reason) => {
                self.drops.count(reason);
                Ok(sent)
            }
        }
    }

    /// Whether a packet that did not come by the data channel is from someone who may send it: a
    /// repair from the parent, and what was fetched from the source.
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
            (Purpose::Fetched, false)
                if from == self.config.shape.source && self.fetching.is_answer(index) =>
            {
                Ok(())
            }
            (Purpose::Repair, true) | (Purpose::Fetched, false) => Err(DropReason::Unasked),
            _ => Err(DropReason::Unexpected),
        }
    }

    /// Counts a packet that came and those that are lost before it.
    fn note_heard(&mut self, now: Instant, lost: i32) {
        self.heard.received = self.heard.received.saturating_add(1);
        self.heard.lost = self.heard.lost.saturating_add_signed(lost);
        if self.heard.received.saturating_add(self.heard.lost) >= MUCH {
            self.ack_early(now);
        }
    }

    /// Others may be out of reach of the source's repairs.
    fn is_child_of_source(&self) -> bool {
        let source = self.feed.map(|feed| feed.source);
        self.tree.parent().is_some_and(|parent| Some(parent.id) == source)
    }

    /// Offers the symbol to the sink, and to the buffer if there are children. Gives whether its
    /// block is complete now.
    fn take_symbol(
        &mut self,
        now: Instant,
        packet: &SmallBlockPacket<'_>,
        purpose: Purpose,
    ) -> Result<bool, DropReason> {
        let SmallBlockHeader { sbn: block, block_symbols: k, esi, .. } = packet.header;
        // What all children hold is not kept for them.
        let keep = self.keeps_from.is_some_and(|from| block >= from.max(self.domain.acked_below()));
        let symbol = Symbol { block, k, esi: esi.into(), sure: purpose == Purpose::First };
        let buffer = keep.then_some(&mut self.buffer);
        let mut kept = Kept { sink: &mut self.sink, buffer, bytes: packet.symbol };
        let genuine = symbol.sure
            || self.reception.is_complete(block)
            || kept.sink.is_genuine(id_of(block), k, symbol.esi, packet.symbol);
        if !genuine {
            return Err(DropReason::ForgedSymbol);
        }
        let offered = self.reception.offer(symbol, &mut kept);
        match offered {
            Offered::Kept => {
                self.refused = None;
                self.stored_at = now;
                if self.asks.len() > 0 {
                    let soon = now + self.nack_span();
                    self.asks.hold(block, soon);
                }
                Ok(false)
            }
            Offered::Complete => {
                self.on_complete(now, block, k, keep);
                Ok(true)
            }
            Offered::Duplicate => Err(DropReason::Duplicate),
            Offered::Nonsense => Err(DropReason::AbsurdBlock),
            Offered::FarAhead => Err(DropReason::FarAhead),
            Offered::NoRoom => {
                self.on_no_room(now, block);
                Err(DropReason::NoRoom)
            }
        }
    }

    fn on_complete(&mut self, now: Instant, block: u32, k: u8, keep: bool) {
        self.sink.restore(id_of(block));
        self.stats.blocks = self.stats.blocks.saturating_add(1);
        self.asks.done(block);
        self.refused = None;
        self.stored_at = now;
        if keep && self.buffer.complete(block) {
            self.domain.on_held(block, k);
        }
        self.fetching.on_complete(now, block, &self.reception);
        self.check_complete(now);
    }

    /// Neither sink nor buffer loses anything by that: it is not acknowledged, and sent again.
    fn on_no_room(&mut self, now: Instant, block: u32) {
        self.stats.overrun += 1;
        self.heard.overrun = self.heard.overrun.saturating_add(1);
        if self.is_full() {
            return;
        }
        // A sink that takes something now and then gets everything in time; one that takes nothing
        // is not to be flooded.
        let t_ack = self.timing().t_ack;
        if now.since(self.stored_at) >= t_ack {
            self.refused.get_or_insert(Refusing { until: now + t_ack, tries: 0 });
        }
        self.asks.hold(block, now + REFUSED_PAUSE);
        let oldest: Vec<u32> =
            self.reception.oldest_parts().take_while(|&b| b < block).take(REST_AT_ONCE).collect();
        for sbn in oldest {
            self.sink.rest(id_of(sbn));
        }
    }

    /// A packet of the data channel shows how far the source is. Gives whether that is news.
    fn note_sent(&mut self, now: Instant, header: &SmallBlockHeader) -> bool {
        let last = header.esi + 1 >= header.block_symbols;
        let end = header.sbn.saturating_add(u32::from(last));
        if end <= self.reception.known() {
            return false;
        }
        self.learn_sent(now, end)
    }

    /// The source has sent all blocks before `end`, as someone says. Gives whether that is news.
    pub(super) fn learn_sent(&mut self, now: Instant, end: u32) -> bool {
        let before = self.reception.known();
        if end <= before || !self.reception.note_sent(end) {
            return false;
        }
        self.seen = self.seen.max(end);
        if self.keeps_from.is_some() {
            self.domain.extend(now, end);
        }
        self.find_gaps(now);
        true
    }
}
