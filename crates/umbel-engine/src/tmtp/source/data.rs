//! Data packets: repairs, first sendings, and answers to FETCH.
//!
//! This is the order in which they go. The domain, the help, the shelf and the fetched blocks know
//! what is due, and the [`shares`](super::shares) know whose turn it is.

use umbel_wire::tmtp::{BlockRun, Body};

use super::{Source, Stage};
use crate::recovery::{Debts, Filled, Stock, head_len, push_packet};
use crate::symbols::{Load, SymbolSource};
use crate::tmtp::api::{Purpose, SourceEvent};
use crate::tmtp::catch_up::{Asker, Wanted, index_of};
use crate::tmtp::tree::Way;
use crate::{Address, Instant, RateClass, Transmit, TransmitBuf};

/// Most symbols that are read ahead of the next one.
pub(super) const READ_AHEAD: u32 = 4096;

impl<S: SymbolSource> Source<S> {
    /// Returns whether the next symbol may be sent for the first time. A block that has begun
    /// always may, a new one while the window is open.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        let (block, esi) = self.next;
        if esi > 0 {
            return true;
        }
        if self.paused {
            return false;
        }
        let shape = self.config.shape;
        let outstanding = self.shelf.outstanding() * u64::from(shape.symbol_len);
        let waited_for = self.domain.children().acked_below().is_some();
        let in_flight = block - self.domain.acked_below().min(block);
        let number = self.config.window.is_none_or(|window| in_flight < window);
        let bytes =
            outstanding < (self.config.repair.buffer / 2).max(1) || self.config.history.is_some();
        !waited_for || number && bytes && self.domain.may_send(now)
    }

    /// Fills `buf` with what is due. Repairs go first; then new data and fetched blocks share the
    /// rate.
    pub(super) fn poll_data(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let may = self.pace.may_send();
        buf.limit(RateClass::Data, self.pace.most_together());
        if may && self.domain.any_due() && !self.waits.repairs {
            // Who does not hear repairs would take their numbers for losses.
            let all_hear = self.tree.is_all();
            let numbers = self.pace.numbers().filter(|_| all_hear);
            match self.domain.fill_numbered(now, numbers, &mut self.shelf, buf) {
                Filled::Packets => {
                    if !all_hear {
                        self.pace.on_unnumbered(now, buf.len());
                    }
                    // All of the source's children hear the data channel, and hear it best.
                    let to = Address::Channel(self.config.node.data);
                    return Some(Transmit::data(to).within(Some(self.tree.radius())));
                }
                Filled::Pending => self.waits.repairs = true,
                Filled::PacketsTo(_) | Filled::Nothing => {}
            }
        }
        if let Some(transmit) = self.poll_help(now, buf) {
            return Some(transmit);
        }
        self.look(now);
        let fetched_first = self.shares.fetched_first(self.fetched.any_first());
        let scope = Some(self.config.node.scope);
        if fetched_first && let Some(transmit) = self.poll_fetched(now, buf) {
            return Some(transmit);
        }
        if may && self.fill_data(now, buf) {
            self.shares.on_new(buf.len());
            let to = Address::Channel(self.config.node.data);
            return Some(Transmit::data(to).within(scope));
        }
        if fetched_first { None } else { self.poll_fetched(now, buf) }
    }

    /// Fills `buf` with packets of blocks that are sent for the first time.
    fn fill_data(&mut self, now: Instant, buf: &mut TransmitBuf) -> bool {
        if self.waits.data {
            return false;
        }
        while buf.has_room(RateClass::Data) && self.open {
            let (block, esi) = self.next;
            let Some(k) = self.shelf.len_of(block) else { break };
            let symbol = match self.shelf.symbol(block, esi) {
                Load::Ready(symbol) => symbol,
                Load::Pending => {
                    self.waits.data = true;
                    break;
                }
                Load::Gone(reason) => {
                    self.lose_rest(now, block, reason);
                    break;
                }
            };
            if !buf.admits(head_len(self.pace.has_numbers()) + symbol.len()) {
                break;
            }
            if esi == 0 {
                self.shelf.begin(block);
            }
            let name = (block, k, esi);
            let (feed, why) = (self.config.node.feed, (Purpose::First, self.index));
            push_packet((now, buf), self.pace.numbers(), feed, why, name, symbol);
            self.index = self.index.wrapping_add(1);
            self.stats.data_sent += 1;
            self.next = (block, esi + 1);
            if esi + 1 == u32::from(k) {
                self.end_block(now, block);
            }
        }
        if buf.is_empty() {
            return false;
        }
        self.schedule_heartbeat_after_data(now);
        true
    }

    /// Ends a block whose last symbol has left.
    fn end_block(&mut self, now: Instant, block: u32) {
        self.next = (block + 1, 0);
        self.domain.extend(now, block + 1);
        self.shelf.read_ahead(block + 1, READ_AHEAD);
        if self.domain.children().acked_below().is_none() {
            self.advance(now);
        }
        self.look(now);
    }

    /// Schedules the next heartbeat. While data flow only the regular one is needed; the first of
    /// the others follows the last data. Those that say that the feed is over come as they are due.
    fn schedule_heartbeat_after_data(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Closing(_)) {
            return;
        }
        if self.shelf.len_of(self.next.0).is_none() || !self.open {
            self.heartbeats.hurry(now);
        } else {
            self.heartbeats.rest_while_data_flow(now);
        }
    }

    /// Ends the feed before a block that is not available.
    fn lose_rest(&mut self, now: Instant, block: u32, reason: String) {
        self.shelf.cut(block);
        self.next = (block, 0);
        self.finish(now, Some(reason.clone()));
        self.events.push_back(SourceEvent::Gone(reason));
    }

    /// Fills `buf` with packets of fetched blocks for one receiver, or for several.
    fn poll_fetched(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if self.waits.fetched {
            return None;
        }
        let fec = self.config.shape.fec;
        let mut to = None;
        let mut last = None;
        let with_credit = self.fetched.any_first();
        while buf.has_room(RateClass::Data) {
            let shelf = &self.shelf;
            let Some((block, wanted, esi, left)) = self.fetched.peek(|b| shelf.len_of(b), fec)
            else {
                break;
            };
            if to.is_some_and(|to| to != wanted) {
                break;
            }
            // What the last receiver fetches is measured, as what all hear.
            let to_one = match wanted {
                Wanted::By(asker) => !self.pace.is_last(asker.address),
                Wanted::BySeveral => false,
            };
            if !to_one && !self.pace.may_send() {
                break;
            }
            if last != Some(block) {
                self.shelf.prefetch(block, esi..esi + left);
                last = Some(block);
            }
            let symbol = match self.shelf.symbol(block, esi) {
                Load::Ready(symbol) => symbol,
                Load::Pending => {
                    self.waits.fetched = true;
                    break;
                }
                Load::Gone(_) => {
                    self.tell_gone(block);
                    continue;
                }
            };
            let numbers = self.pace.numbers().filter(|_| !to_one);
            if !buf.admits(head_len(numbers.is_some()) + symbol.len()) {
                break;
            }
            let k = self.shelf.len_of(block).unwrap_or(1);
            let feed = self.config.node.feed;
            let index = match wanted {
                Wanted::By(asker) if to_one => index_of(asker.nonce),
                Wanted::By(_) | Wanted::BySeveral => 0,
            };
            let why = (Purpose::Fetched, index);
            push_packet((now, buf), numbers, feed, why, (block, k, esi), symbol);
            to = Some(wanted);
            if let Some(block) = self.fetched.sent(esi) {
                self.shelf.release_fetched(block);
                last = None;
            }
        }
        let sent = buf.len();
        self.shares.on_fetched(sent, with_credit);
        self.stats.fetched_sent += sent as u64;
        let scope = self.config.node.scope;
        Some(match to? {
            Wanted::By(asker) if !self.pace.is_last(asker.address) => {
                Transmit::data(Address::Host(asker.address))
            }
            Wanted::By(_) | Wanted::BySeveral => {
                Transmit::data(Address::Channel(self.config.node.data)).within(Some(scope))
            }
        })
    }

    /// Reports to a receiver that a block it asked for is not available any more.
    fn tell_gone(&mut self, block: u32) {
        self.shelf.release_fetched(block);
        if let Some(Wanted::By(Asker { address, nonce })) = self.fetched.forget() {
            let runs = vec![BlockRun { first: block, count: 1 }];
            self.outbox.push_back((Way::Host(address), Body::FetchGone { nonce, runs }));
        }
    }
}
