//! Messages queued for the server.

use std::collections::VecDeque;

use umbel_wire::Toi;
use umbel_wire::repository::ClientMessage;

use super::items::Items;
use super::listener::{Listener, Reception};

/// Greatest number of items that one message reports as done.
const DONE_AT_ONCE: usize = 4096;

/// Messages in their sending order. Finished items are reported all at once, when no other message
/// is queued.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    messages: VecDeque<ClientMessage>,
    done: Vec<Toi>,
}

impl Outbox {
    pub(super) fn say(&mut self, message: ClientMessage) {
        self.messages.push_back(message);
    }

    /// Reports an item as done.
    pub(super) fn done(&mut self, toi: Toi) {
        self.done.push(toi);
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.done.clear();
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.done.is_empty()
    }

    /// Returns the next message.
    pub(super) fn next(&mut self, listener: &mut Listener, items: &Items) -> Option<ClientMessage> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        if self.done.is_empty() {
            return None;
        }
        let most = self.done.len().min(DONE_AT_ONCE);
        let Reception { received, lost } = listener.take_reception(items);
        Some(ClientMessage::Done { tois: self.done.drain(..most).collect(), received, lost })
    }
}
