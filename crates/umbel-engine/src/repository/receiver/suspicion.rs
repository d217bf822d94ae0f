//! The client's treatment of wrong symbols, which the [`guard`](super::guard) finds.
//!
//! The guard has the state. This tells items and server, of which the guard knows nothing.

use umbel_wire::Toi;
use umbel_wire::repository::{ClientMessage, SymbolDigest};

use super::Receiver;
use crate::Instant;
use crate::repository::drops::DropReason;
use crate::symbols::{BlockId, SymbolSink};

impl<K: SymbolSink> Receiver<K> {
    /// Compares the symbols of an item with their digests from now on, since something wrong came.
    pub(super) fn suspect(&mut self, now: Instant, toi: Toi) {
        if !self.guard.suspect(now, toi) {
            return;
        }
        let Some(item) = self.items.get_mut(toi) else { return self.guard.forget(toi) };
        self.outbox.say(ClientMessage::Digests { toi });
        let mut asked = Vec::new();
        let doubted: Vec<u32> = item.doubt().collect();
        let doubted = doubted.into_iter().map(|block| block..block + 1);
        for blocks in doubted {
            asked.extend(self.guard.watch(now, (toi, item), blocks));
        }
        for blocks in self.listener.coming(toi) {
            asked.extend(self.guard.watch_coming(now, (toi, item), blocks));
        }
        for message in asked {
            self.outbox.say(message);
        }
    }

    /// Takes digests of symbols, and drops what is held and differs.
    pub(super) fn take_digests(
        &mut self,
        now: Instant,
        block: BlockId,
        first: u32,
        digests: &[SymbolDigest],
    ) {
        let BlockId { toi, sbn } = block;
        let Some(item) = self.items.get(toi) else { return };
        let Ok(more) = self.guard.take(now, (toi, item), (sbn, first), digests) else {
            return self.drops.count(DropReason::Unexpected);
        };
        match more {
            Some(message) => self.outbox.say(message),
            None => self.items.verify_held(block, &self.guard, &mut self.sink),
        }
    }

    /// Asks for digests of further symbols of a block, since one came.
    pub(super) fn ask_further(&mut self, now: Instant, toi: Toi, symbol: (u32, u32)) {
        let Some(item) = self.items.get(toi) else { return };
        if let Some(message) = self.guard.extend(now, (toi, item), symbol) {
            self.outbox.say(message);
        }
    }
}
