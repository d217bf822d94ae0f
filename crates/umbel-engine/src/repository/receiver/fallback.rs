//! When multicast brings nothing: unicast, and the way back.

use umbel_wire::repository::ClientMessage;

use super::{Receiver, ReceiverEvent, Way};
use crate::Instant;
use crate::symbols::SymbolSink;

/// Packets and payload of the burst that looks whether multicast works again.
const PROBE_PACKETS: u32 = 8;
const PROBE_PACKET_LEN: u16 = 1_400;
/// Slow enough for any path.
const PROBE_RATE_BITS_PER_S: u64 = 1_000_000;
/// Items asked for again in one go: a client with many that wait for their turn is no flood.
pub(super) const ASK_AGAIN_AT_ONCE: usize = 256;

impl<K: SymbolSink> Receiver<K> {
    /// When the client gives multicast up, unless a packet comes.
    pub(super) fn fallback_time(&self) -> Option<Instant> {
        if self.way != Way::Multicast || self.items.is_empty() {
            return None;
        }
        Some(self.silent_since? + self.config.fallback_after?)
    }

    /// Goes on by unicast when announced transmissions bring nothing.
    pub(super) fn check_silence(&mut self, now: Instant) {
        let Some(since) = self.silent_since else { return };
        if self.fallback_time().is_none_or(|time| time > now) {
            return;
        }
        self.way = Way::Unicast { next_probe: now + self.config.probe_every };
        self.silent_since = None;
        self.listening.clear();
        self.naks.clear();
        for (&toi, item) in &self.items {
            self.outbox.push_back(ClientMessage::Unicast { toi, need: item.whole_need() });
        }
        self.events.push_back(ReceiverEvent::Fallback { silent: now - since });
    }

    /// While on unicast, asks now and then for a burst that would show that multicast works.
    pub(super) fn probe_if_due(&mut self, now: Instant) {
        let Way::Unicast { next_probe } = self.way else { return };
        if next_probe > now {
            return;
        }
        self.way = Way::Unicast { next_probe: now + self.config.probe_every };
        if self.items.is_empty() {
            return;
        }
        self.join();
        self.outbox.push_back(ClientMessage::Probe {
            probe: 0,
            channel: 0,
            packets: PROBE_PACKETS,
            packet_len: PROBE_PACKET_LEN,
            rate_bits_per_s: PROBE_RATE_BITS_PER_S,
        });
    }

    /// A packet came by multicast while the client was on unicast.
    pub(super) fn on_multicast_back(&mut self, now: Instant) {
        self.way = Way::Multicast;
        self.interest_until = now + self.config.linger;
        for (&toi, item) in &self.items {
            self.outbox.push_back(ClientMessage::Want { toi, need: item.whole_need() });
        }
        self.events.push_back(ReceiverEvent::MulticastBack);
    }

    /// Asks again for items of which nothing has been heard for long.
    pub(super) fn ask_again_if_due(&mut self, now: Instant) {
        if self.next_ask_again.is_none_or(|at| at > now) {
            return;
        }
        if self.items.is_empty() {
            self.next_ask_again = None;
            return;
        }
        let long = self.config.ask_again_after;
        if self.way == Way::Multicast {
            // A client that waits for its turn is not forgotten: asking again changes nothing
            // on the server then. It matters where the two disagree about what was sent.
            let forgotten = self.items.iter_mut().filter(|(_, item)| item.last_heard + long <= now);
            for (&toi, item) in forgotten.take(ASK_AGAIN_AT_ONCE) {
                item.last_heard = now;
                let need = item.whole_need();
                self.outbox.push_back(ClientMessage::Want { toi, need });
            }
        }
        self.next_ask_again = Some(now + long);
    }
}
