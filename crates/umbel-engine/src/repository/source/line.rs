//! Planned transmissions that have not left.

use std::collections::VecDeque;

use umbel_wire::{Oti, Toi};

use super::transmission::{Purpose, Transmission};
use crate::symbols::{BlockId, SymbolSource};
use crate::{Instant, SessionId};

/// The next packet to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) transmission: u32,
    /// Number within the transmission.
    pub(super) index: u32,
    pub(super) oti: Oti,
    pub(super) block: BlockId,
    pub(super) esi: u32,
}

/// Planned transmissions, in the order in which they are sent.
#[derive(Debug)]
pub(super) struct Line {
    transmissions: VecDeque<Transmission>,
    /// Number of their packets that have not left.
    packets: u64,
    next_id: u32,
    /// Whether the next symbol has to be made first.
    waiting_for_symbols: bool,
    /// Whether the first transmission may not start yet.
    waiting_for_start: bool,
}

impl Line {
    pub(super) fn new() -> Line {
        Line {
            transmissions: VecDeque::new(),
            packets: 0,
            next_id: 1,
            waiting_for_symbols: false,
            waiting_for_start: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transmissions.is_empty()
    }

    /// Returns the number of packets that have not left.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the first transmission in line.
    pub(super) fn front(&self) -> Option<&Transmission> {
        self.transmissions.front()
    }

    /// Returns the transmission under way, if it is one of this item.
    pub(super) fn running(&self, toi: Toi) -> Option<&Transmission> {
        self.front().filter(|front| front.toi == toi && front.started())
    }

    /// Returns the transmissions of an item.
    pub(super) fn of_item(&mut self, toi: Toi) -> impl Iterator<Item = &mut Transmission> {
        self.transmissions.iter_mut().filter(move |transmission| transmission.toi == toi)
    }

    /// Numbers a transmission and adds it to the end of the line.
    pub(super) fn push(&mut self, mut transmission: Transmission) -> &Transmission {
        transmission.id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.packets += u64::from(transmission.packets);
        self.transmissions.push_back_mut(transmission)
    }

    /// Takes out the first transmission once its last packet has left.
    pub(super) fn pop_finished(&mut self) -> Option<Transmission> {
        let finished = self.transmissions.pop_front_if(|front| front.finished())?;
        self.waiting_for_start = false;
        Some(finished)
    }

    /// Returns the next packet, if one may leave now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
        let front = self.transmissions.front()?;
        self.waiting_for_start = front.not_before > now;
        if self.waiting_for_start {
            return None;
        }
        let (block, esi, index) = front.next_symbol()?;
        Some(Next { transmission: front.id, index, oti: front.oti, block, esi })
    }

    /// Notes that the next packet has left. Returns its block if the transmission sends no more of
    /// that block.
    pub(super) fn sent(&mut self) -> Option<BlockId> {
        self.packets = self.packets.saturating_sub(1);
        self.transmissions.front_mut().and_then(Transmission::advance)
    }

    /// Notes that a client wrongly believes a transmission to be over. Returns false if the
    /// transmission is not in line.
    pub(super) fn nudge(&mut self, transmission: u32, session: SessionId) -> bool {
        let running = self.transmissions.iter_mut().find(|running| running.id == transmission);
        running.is_some_and(|running| {
            running.nudged.insert(session);
            true
        })
    }

    /// Drops transmissions and the symbols made for them. Returns their purposes.
    pub(super) fn drop_where(
        &mut self,
        symbols: &mut impl SymbolSource,
        mut drop: impl FnMut(&mut Transmission) -> bool,
    ) -> Vec<Purpose> {
        let mut dropped = Vec::new();
        let packets = &mut self.packets;
        self.transmissions.retain_mut(|transmission| {
            if !drop(transmission) {
                return true;
            }
            *packets = packets.saturating_sub(u64::from(transmission.packets_left()));
            for run in transmission.plan() {
                symbols.release(BlockId { toi: transmission.toi, sbn: run.block });
            }
            dropped.push(transmission.purpose);
            false
        });
        if !dropped.is_empty() {
            self.waiting_for_start = false;
            self.waiting_for_symbols = false;
        }
        dropped
    }

    /// Makes the next packet wait until its symbol is made.
    pub(super) fn wait_for_symbols(&mut self) {
        self.waiting_for_symbols = true;
    }

    /// Notes that symbols were made.
    pub(super) fn symbols_ready(&mut self) {
        self.waiting_for_symbols = false;
    }

    /// Rechecks whether the first transmission may start.
    pub(super) fn look_again(&mut self) {
        self.waiting_for_start = false;
    }

    /// Returns whether a packet waits for the pace of the channel.
    pub(super) fn wants(&self) -> bool {
        !self.waiting_for_symbols && !self.waiting_for_start && !self.is_empty()
    }

    /// Returns the start of the first transmission, if the line waits for it.
    pub(super) fn starts(&self) -> Option<Instant> {
        self.front().filter(|_| self.waiting_for_start).map(|front| front.not_before)
    }
}
