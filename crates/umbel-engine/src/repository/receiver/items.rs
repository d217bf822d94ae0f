//! The items that a client wants.

use std::collections::BTreeMap;

use umbel_wire::Toi;
use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::repository::Need;

use super::guard::{Guard, Verdict};
use super::item::{Item, Taken};
use crate::Instant;
use crate::repository::drops::DropReason;
use crate::symbols::{BlockId, SymbolSink};

/// Number of blocks that are put to rest when the sink has no room.
const REST_AT_ONCE: usize = 16;

/// Items being received, and items whose blocks are all complete and whose digest is being checked.
/// Items are boxed, since a node of a map has room for eleven and most clients want a few.
#[derive(Debug)]
pub(super) struct Items {
    received: BTreeMap<Toi, Box<Item>>,
    verifying: BTreeMap<Toi, Box<Item>>,
}

impl Items {
    pub(super) fn new() -> Items {
        Items { received: BTreeMap::new(), verifying: BTreeMap::new() }
    }

    /// Returns the number of items that are not verified yet.
    pub(super) fn len(&self) -> usize {
        self.received.len() + self.verifying.len()
    }

    /// Returns whether no item is being received.
    pub(super) fn is_idle(&self) -> bool {
        self.received.is_empty()
    }

    /// Returns the UDP payload of the longest packets of the items that are being received. `None`
    /// without any.
    pub(super) fn packet_len(&self) -> Option<u16> {
        let longest = self.received.values().map(|item| item.oti.symbol_len).max()?;
        Some(longest.saturating_add(DataHeader::LEN as u16))
    }

    /// Returns an item that is being received.
    #[inline]
    pub(super) fn get(&self, toi: Toi) -> Option<&Item> {
        self.received.get(&toi).map(Box::as_ref)
    }

    /// Returns an item that is being received.
    #[inline]
    pub(super) fn get_mut(&mut self, toi: Toi) -> Option<&mut Item> {
        self.received.get_mut(&toi).map(Box::as_mut)
    }

    pub(super) fn insert(&mut self, toi: Toi, item: Box<Item>) {
        self.received.insert(toi, item);
    }

    /// Removes an item, whether it is being received or verified, and returns it.
    pub(super) fn remove(&mut self, toi: Toi) -> Option<Box<Item>> {
        let received = self.received.remove(&toi);
        self.verifying.remove(&toi).or(received)
    }

    pub(super) fn clear(&mut self) {
        self.received.clear();
        self.verifying.clear();
    }

    /// Stores a symbol of an item that is being received.
    pub(super) fn take_symbol(
        &mut self,
        now: Instant,
        packet: &DataPacket<'_>,
        guard: &mut Guard,
        sink: &mut impl SymbolSink,
    ) -> Result<(), DropReason> {
        let DataPacket { header: DataHeader { toi, scheme, sbn, esi, .. }, symbol } = *packet;
        let item = self.received.get_mut(&toi).ok_or(DropReason::NotWanted)?;
        item.last_heard = now;
        if scheme != item.oti.scheme || !item.admits(sbn, esi, symbol.len()) {
            return Err(DropReason::OutsideItem);
        }
        let block = BlockId { toi, sbn };
        if !item.lacks(sbn, esi) {
            let contradicts = !guard.watches(toi) && sink.differs(block, esi, symbol);
            let contradicting = Err(DropReason::Contradicting);
            return if contradicts { contradicting } else { Err(DropReason::Duplicate) };
        }
        if item.is_by_session(sbn) {
            return Err(DropReason::Damaging);
        }
        match guard.judge(now, block, esi, symbol) {
            Verdict::Taken => {}
            Verdict::Wrong => return Err(DropReason::WrongSymbol),
            Verdict::Unknown => return Err(DropReason::Unverified),
        }
        if !sink.store(block, esi, symbol) {
            // The oldest blocks wait for repairs. The disk can hold them meanwhile.
            for sbn in item.partial_blocks(0..sbn).take(REST_AT_ONCE) {
                sink.rest(BlockId { toi, sbn });
            }
            return Err(DropReason::NoRoom);
        }
        if item.take(sbn, esi) == Taken::BlockComplete {
            sink.restore(block);
            guard.forget_block(block);
            self.verify_if_complete(toi);
        }
        Ok(())
    }

    /// Drops what is wrong of the symbols of a block that were held when its item became suspect,
    /// now that their digests are known. All of them go if the sink cannot tell at once.
    pub(super) fn verify_held(
        &mut self,
        block: BlockId,
        guard: &Guard,
        sink: &mut impl SymbolSink,
    ) {
        let Some(item) = self.received.get_mut(&block.toi) else { return };
        if !item.take_unverified(block.sbn) || !item.lacks_block(block.sbn) {
            return;
        }
        match sink.retain(block, &|esi, symbol| guard.holds(block, esi, symbol)) {
            Some(wrong) => item.forget_symbols(block.sbn, &wrong),
            None => item.forget_block(block.sbn),
        }
    }

    /// Stores a block from the session, as if its source symbols had come one by one. Returns
    /// whether it was the last that was to come on the session alone.
    pub(super) fn take_block(
        &mut self,
        now: Instant,
        block: BlockId,
        content: &[u8],
        sink: &mut impl SymbolSink,
    ) -> Result<bool, DropReason> {
        let item = self.received.get_mut(&block.toi).ok_or(DropReason::NotWanted)?;
        item.last_heard = now;
        if !item.is_block(block.sbn, content.len()) {
            return Err(DropReason::OutsideItem);
        }
        for (esi, symbol) in (0..).zip(content.chunks(item.oti.symbol_len.into())) {
            if !item.lacks(block.sbn, esi) {
                continue;
            }
            if !sink.store(block, esi, symbol) {
                return Err(DropReason::NoRoom);
            }
            if item.take(block.sbn, esi) == Taken::BlockComplete {
                sink.restore(block);
            }
        }
        let last = item.on_session_block(block.sbn);
        Ok(!self.verify_if_complete(block.toi) && last)
    }

    /// Stops asking for an item once its blocks are all complete, while the sink verifies it.
    /// Returns whether they are complete.
    pub(super) fn verify_if_complete(&mut self, toi: Toi) -> bool {
        let complete = self.get(toi).is_some_and(Item::is_complete);
        if complete && let Some(item) = self.received.remove(&toi) {
            self.verifying.insert(toi, item);
        }
        complete
    }

    /// Returns the number of complete blocks, and of all blocks of an item.
    pub(super) fn progress(&self, toi: Toi) -> Option<(u32, u32)> {
        let verified = || self.verifying.get(&toi).map(Box::as_ref);
        self.get(toi).or_else(verified).map(Item::progress)
    }

    /// Returns the needs of each item that is being received.
    pub(super) fn needs(&self) -> impl Iterator<Item = (Toi, Need)> {
        self.received.iter().map(|(&toi, item)| (toi, item.whole_need()))
    }

    /// Returns the needs of the items for which `since` holds of the time they were last heard of.
    /// Notes that these items are asked for now.
    pub(super) fn forgotten(
        &mut self,
        now: Instant,
        since: impl Fn(Instant) -> bool,
    ) -> impl Iterator<Item = (Toi, Need)> {
        let forgotten = self.received.iter_mut().filter(move |(_, item)| since(item.last_heard));
        forgotten.map(move |(&toi, item)| {
            item.last_heard = now;
            (toi, item.whole_need())
        })
    }
}
