//! The places where symbols are kept: the application's sink and, for children, the manager's
//! buffer.

use std::cell::{Cell, RefCell};

use umbel_wire::tmtp::EsiSet;

use super::room::Room;
use crate::Instant;
use crate::recovery::buffer::Buffer;
use crate::recovery::reception::{Offered, Reception, Store, Symbol};
use crate::symbols::{BlockId, SymbolSink};
use crate::tmtp::api::FEED;

/// Incomplete blocks that are put to rest when the sink has no room.
const REST_AT_ONCE: usize = 16;

/// Blocks of the feed as the application's sink has them.
#[derive(Debug)]
pub(super) struct Delivery<K> {
    sink: K,
    reception: Reception,
    /// One beyond the highest block of which a symbol came.
    seen: u32,
    /// Room in the sink.
    pub(super) room: Room,
}

/// The stores for one symbol.
struct Kept<'a, K> {
    sink: &'a mut K,
    /// The manager's, if children may need the block.
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

impl<K: SymbolSink> Delivery<K> {
    /// Creates a delivery to an empty sink that tracks blocks up to `far_ahead` beyond the first
    /// incomplete one.
    pub(super) fn new(sink: K, far_ahead: u32) -> Delivery<K> {
        Delivery {
            sink,
            reception: Reception::new(far_ahead.max(1), far_ahead as usize),
            seen: 0,
            room: Room::new(),
        }
    }

    /// Returns where symbols are kept.
    pub(super) fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// Returns which blocks are complete.
    pub(super) fn reception(&self) -> &Reception {
        &self.reception
    }

    /// Returns one beyond the last block that is known to have been sent to its end.
    pub(super) fn known(&self) -> u32 {
        self.reception.known()
    }

    /// Returns the number of complete blocks among those known.
    pub(super) fn complete(&self) -> u32 {
        self.reception.count(0..self.reception.known())
    }

    /// Returns the first block that a new child can be guaranteed. No symbol of it has come yet, so
    /// all of them will be kept.
    pub(super) fn guarantee(&self) -> u32 {
        self.reception.known().max(self.seen)
    }

    /// Returns whether a symbol is its source's, as far as that matters and can be told.
    pub(super) fn is_genuine(&self, symbol: Symbol, bytes: &[u8]) -> bool {
        let Symbol { block, k, esi, sure } = symbol;
        sure || self.reception.is_complete(block)
            || self.sink.is_genuine(id_of(block), k, esi, bytes)
    }

    /// Offers a symbol to the sink, and to the buffer if children need it. A block that is complete
    /// by it is restored.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        symbol: Symbol,
        bytes: &[u8],
        buffer: Option<&mut Buffer>,
    ) -> Offered {
        let mut kept = Kept { sink: &mut self.sink, buffer, bytes };
        let offered = self.reception.offer(symbol, &mut kept);
        if matches!(offered, Offered::Kept | Offered::Complete) {
            self.room.on_stored(now);
        }
        if offered == Offered::Complete {
            self.sink.restore(id_of(symbol.block));
        }
        offered
    }

    /// Puts the oldest incomplete blocks before `block` to rest, so that the sink has room.
    pub(super) fn rest_before(&mut self, block: u32) {
        let oldest = self.reception.oldest_parts().take_while(|&b| b < block).take(REST_AT_ONCE);
        for sbn in oldest {
            self.sink.rest(id_of(sbn));
        }
    }

    /// Notes that a symbol of the block came.
    pub(super) fn note_seen(&mut self, block: u32) {
        let beyond = self.reception.known().saturating_add(1);
        self.seen = self.seen.max(block.saturating_add(1).min(beyond));
    }

    /// Learns from anyone that all blocks before `end` were sent. Returns whether that is news and
    /// can be true.
    pub(super) fn learn_sent(&mut self, end: u32) -> bool {
        if end <= self.reception.known() || !self.reception.note_sent(end) {
            return false;
        }
        self.seen = self.seen.max(end);
        true
    }

    /// Learns from the parent that all blocks before `end` were sent.
    pub(super) fn trust_sent(&mut self, end: u32) {
        self.reception.trust_sent(end);
    }

    /// Counts blocks as complete: they are held elsewhere, or not wanted.
    pub(super) fn skip(&mut self, blocks: std::ops::Range<u32>) {
        self.reception.skip(blocks);
    }

    /// Returns the source symbols of a block, if the sink knows them.
    pub(super) fn source_symbols(&self, block: u32) -> Option<u8> {
        self.sink.source_symbols(id_of(block))
    }

    /// Drops what is held of a block that is not restored.
    pub(super) fn forget(&mut self, block: u32) {
        self.sink.forget(id_of(block));
        self.reception.reopen(block);
    }

    /// Drops symbols of a block that was wrong, and keeps those that `is_right`, for children as
    /// well if there is a `buffer`. Keeps none if all of them are right, since then they are not
    /// to blame.
    pub(super) fn keep_right(
        &mut self,
        (block, k): (u32, u8),
        is_right: impl Fn(u32, &[u8]) -> bool,
        buffer: Option<&mut Buffer>,
    ) {
        let held = Cell::new(EsiSet::default());
        let buffer = buffer.map(RefCell::new);
        if let Some(buffer) = &buffer {
            buffer.borrow_mut().drop_block(block);
        }
        let keep = |esi: u32, symbol: &[u8]| {
            let keeps = is_right(esi, symbol)
                && buffer.as_ref().is_none_or(|buffer| {
                    let mut buffer = buffer.borrow_mut();
                    buffer.has_room(block, k) && buffer.store(block, k, esi, symbol)
                });
            if keeps {
                held.set(held.get().union(std::iter::once(esi).collect()));
            }
            keeps
        };
        let kept = self.sink.retain(id_of(block), &keep).is_some();
        let held = held.get();
        if kept && held.len() < k.into() {
            return self.reception.resume(block, k, held);
        }
        self.forget(block);
        if let Some(buffer) = &buffer {
            buffer.borrow_mut().drop_block(block);
        }
    }

    /// Counts a block as missing again.
    pub(super) fn reopen(&mut self, block: u32) {
        self.reception.reopen(block);
    }
}
