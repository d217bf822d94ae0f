//! Requests of a client to its server: by multicast as long as that works, else on the session.
//!
//! This has no state of its own: what to ask for follows from the items and the fallback.

use umbel_wire::Toi;
use umbel_wire::repository::{ClientMessage, Need};

use super::item::Item;
use super::{ASK_AGAIN_AT_ONCE, Receiver, ReceiverCommandError, Timer};
use crate::Instant;
use crate::symbols::SymbolSink;

impl<K: SymbolSink> Receiver<K> {
    /// Resumes receiving an item after `change` has made something of it missing again.
    pub(super) fn receive_again(
        &mut self,
        now: Instant,
        toi: Toi,
        change: impl FnOnce(&mut Item),
    ) -> Result<(), ReceiverCommandError> {
        let item = self.items.remove(toi);
        let mut item = item.ok_or(ReceiverCommandError::UnknownItem(toi))?;
        change(&mut item);
        item.last_heard = now;
        let need = item.whole_need();
        self.items.insert(toi, item);
        self.say(self.demand(toi, need))
    }

    /// Returns the message that asks for what is missing of an item. Blocks that come on the
    /// session come first.
    pub(super) fn demand(&self, toi: Toi, need: Need) -> ClientMessage {
        if !self.fallback.is_multicast() {
            return ClientMessage::Unicast { toi, need };
        }
        match self.items.get(toi).and_then(Item::session_need) {
            Some(need) => ClientMessage::Unicast { toi, need },
            None => ClientMessage::Want { toi, need },
        }
    }

    /// Asks for the rest of an item, after some blocks of it have come on the session.
    pub(super) fn demand_rest(&mut self, toi: Toi) {
        if let Some(need) = self.items.get(toi).map(Item::whole_need)
            && self.fallback.is_multicast()
        {
            self.outbox.say(self.demand(toi, need));
        }
    }

    /// Asks again for what is missing of all items, of at most this number.
    pub(super) fn demand_all(&mut self, most: usize) {
        let needs: Vec<(Toi, Need)> = self.items.needs().take(most).collect();
        for (toi, need) in needs {
            self.outbox.say(self.demand(toi, need));
        }
    }

    /// Asks again for items of which nothing has been heard for a long time.
    pub(super) fn ask_again(&mut self, now: Instant) {
        if self.items.is_idle() {
            return;
        }
        let long = self.config.ask_again_after;
        if self.fallback.is_multicast() {
            // A client that waits for its turn is not forgotten, and asking again then changes
            // nothing on the server. It matters if the two disagree about the symbols that were
            // sent.
            let forgotten = self.items.forgotten(now, |heard| heard + long <= now);
            let forgotten: Vec<(Toi, Need)> = forgotten.take(ASK_AGAIN_AT_ONCE).collect();
            for (toi, need) in forgotten {
                self.outbox.say(self.demand(toi, need));
            }
        }
        self.timers.set(Timer::AskAgain, now + long);
    }
}
