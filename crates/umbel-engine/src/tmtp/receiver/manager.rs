//! The domain manager in a receiver: what it keeps for its children and owes them.

use std::collections::BTreeMap;

use umbel_wire::tmtp::{Ack, Nack, NodeId, Timing, Totals};

use crate::recovery::buffer::Buffer;
use crate::recovery::{Debts, Filled, Unfounded};
use crate::tmtp::concast::NEW_CHILD;
use crate::tmtp::config::ReceiverConfig;
use crate::tmtp::domain::{Domain, Ledger};
use crate::{Instant, TransmitBuf};

/// A node with children.
#[derive(Debug)]
pub(super) struct Manager {
    domain: Domain,
    buffer: Buffer,
    /// First block that is kept for children.
    from: u32,
    /// Last totals of each child's subtree.
    totals: BTreeMap<NodeId, Totals>,
    /// Most source symbols of a block.
    block_symbols: u8,
}

impl Manager {
    fn new(config: &ReceiverConfig, ledger: Ledger, from: u32) -> Manager {
        let shape = config.shape;
        let most_bytes = usize::try_from(config.repair.buffer).unwrap_or(usize::MAX);
        Manager {
            domain: Domain::new(config.node.feed, shape.fec, config.repair, ledger, from),
            buffer: Buffer::new(usize::from(shape.symbol_len), most_bytes),
            from,
            totals: BTreeMap::new(),
            block_symbols: shape.block_symbols,
        }
    }

    fn adopt(&mut self, now: Instant, id: NodeId, (from, strikes): (u32, u8)) {
        self.domain.adopt(now, id, from, strikes);
        self.release();
        self.totals.insert(id, NEW_CHILD);
    }

    /// Removes a child. Returns whether the buffer has room again.
    pub(super) fn remove(&mut self, id: NodeId) -> bool {
        self.domain.remove(id);
        self.totals.remove(&id);
        self.free_room()
    }

    /// Handles a child's acknowledgement. No block from `limit` on can have been sent. Returns
    /// whether the round trip of the domain changed so much that children should hear of it.
    ///
    /// # Errors
    ///
    /// If the acknowledgement is ignored.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        ack: &Ack,
        limit: u32,
    ) -> Result<bool, Unfounded> {
        let news = self.domain.on_ack(now, id, ack, limit)?;
        self.totals.insert(id, ack.totals);
        Ok(news)
    }

    /// Handles a child's NACK.
    ///
    /// # Errors
    ///
    /// If a block of it is ignored.
    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        id: NodeId,
        nack: &Nack,
    ) -> Result<(), Unfounded> {
        self.domain.on_nack(now, id, nack, &self.buffer)
    }

    /// Learns that all blocks before `end` were sent.
    pub(super) fn extend(&mut self, now: Instant, end: u32) {
        self.domain.extend(now, end);
    }

    /// Releases blocks that every child holds. Returns whether a full buffer has room again.
    pub(super) fn free_room(&mut self) -> bool {
        let was_full = self.is_full();
        self.release();
        was_full && !self.is_full()
    }

    fn release(&mut self) {
        self.buffer.release_before(self.domain.acked_below());
    }

    /// Returns whether a new block would not fit the buffer.
    pub(super) fn is_full(&self) -> bool {
        !self.buffer.has_room(u32::MAX, self.block_symbols)
    }

    /// Returns whether a child may need symbols of the block.
    pub(super) fn keeps(&self, block: u32) -> bool {
        block >= self.lowest()
    }

    /// Returns whether the buffer is full and has no room for this block either.
    pub(super) fn refuses(&self, block: u32) -> bool {
        block >= self.from && self.is_full() && !self.buffer.has_room(block, self.block_symbols)
    }

    /// Returns the first block that a child may be missing.
    pub(super) fn lowest(&self) -> u32 {
        self.domain.acked_below().max(self.from)
    }

    /// Returns where symbols are kept for children.
    pub(super) fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }

    /// Makes a block whose symbols are kept ready for repairs.
    pub(super) fn on_complete(&mut self, block: u32, k: u8) {
        if self.buffer.complete(block) {
            self.domain.on_held(block, k);
        }
    }

    /// Does what is due. Returns the children that were evicted.
    pub(super) fn on_timeout(&mut self, now: Instant) -> Vec<NodeId> {
        let held_up = self.is_full();
        self.domain.on_timeout(now, &self.buffer, held_up)
    }

    /// Returns when [`on_timeout`](Manager::on_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.domain.next_timeout()
    }

    /// Returns whether repairs are due.
    pub(super) fn any_due(&self) -> bool {
        self.domain.any_due()
    }

    /// Fills `buf` with repairs. Returns whether there were any.
    pub(super) fn fill(&mut self, now: Instant, buf: &mut TransmitBuf) -> bool {
        self.domain.fill(now, &mut self.buffer, buf) == Filled::Packets
    }

    /// Returns whether every child has acknowledged everything, and no repair is due.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.domain.acked_below() >= self.domain.end() && !self.domain.any_due()
    }

    /// Returns whether all receivers below are done or have failed.
    pub(super) fn is_settled(&self) -> bool {
        self.totals.values().all(|below| below.is_settled())
    }
}

/// A receiver's duty to others.
#[derive(Debug)]
pub(super) enum Duty {
    /// It has no children.
    None(Ledger),
    /// It has children.
    Manager(Box<Manager>),
}

impl Duty {
    /// Returns the manager, if there are children.
    pub(super) fn manager(&self) -> Option<&Manager> {
        match self {
            Duty::None(_) => None,
            Duty::Manager(manager) => Some(manager),
        }
    }

    /// Returns the manager, if there are children.
    pub(super) fn manager_mut(&mut self) -> Option<&mut Manager> {
        match self {
            Duty::None(_) => None,
            Duty::Manager(manager) => Some(manager),
        }
    }

    /// Returns the timing of this node's domain and what it has cost.
    pub(super) fn ledger(&self) -> &Ledger {
        match self {
            Duty::None(ledger) => ledger,
            Duty::Manager(manager) => manager.domain.ledger(),
        }
    }

    /// Takes over the timing that the parent told.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        match self {
            Duty::None(ledger) => ledger.set_timing(timing),
            Duty::Manager(manager) => manager.domain.ledger_mut().set_timing(timing),
        }
    }

    /// Adds a child that is guaranteed all blocks from `from` on.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        id: NodeId,
        (from, strikes): (u32, u8),
        config: &ReceiverConfig,
    ) {
        if let Duty::None(ledger) = *self {
            *self = Duty::Manager(Box::new(Manager::new(config, ledger, from)));
        }
        if let Duty::Manager(manager) = self {
            manager.adopt(now, id, (from, strikes));
        }
    }

    /// Forgets everything kept for children if there are none any more.
    pub(super) fn rest(&mut self) {
        if let Duty::Manager(manager) = self
            && manager.domain.children().len() == 0
        {
            *self = Duty::None(*manager.domain.ledger());
        }
    }

    /// Returns the totals of the children's subtrees.
    pub(super) fn totals(&self) -> impl Iterator<Item = &Totals> {
        self.manager().into_iter().flat_map(|manager| manager.totals.values())
    }

    /// Returns the bytes that are kept for children.
    pub(super) fn buffered(&self) -> u64 {
        self.manager().map_or(0, |manager| manager.buffer.bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_wire::{Channel, Tsi};

    use super::*;
    use crate::tmtp::config::{Authentication, NodeConfig, Shape};

    fn config() -> ReceiverConfig {
        let channel = Channel { source: None, group: [239, 255, 0, 1].into(), port: 7703 };
        let address = ([127, 0, 0, 1], 7703).into();
        let (id, channels) = (NodeId(1), (channel, channel));
        let node = NodeConfig::new(id, Tsi(1), channels, address, Authentication::Paper);
        let (symbol_len, block_symbols) = (4, 2);
        let shape = Shape {
            id: NodeId(9),
            source: address,
            symbol_len,
            block_symbols,
            fec: false,
            manifest: None,
        };
        let mut config = ReceiverConfig::new(node, shape);
        config.timing.adaptive = false;
        config.repair.buffer = 8;
        config
    }

    #[test]
    fn a_manager_keeps_blocks_only_while_there_are_children() {
        let (now, config) = (Instant::EPOCH, config());
        let mut duty = Duty::None(Ledger::new(config.timing));
        duty.adopt(now, NodeId(2), (5, 0), &config);
        duty.adopt(now, NodeId(3), (9, 0), &config);
        let manager = duty.manager_mut().unwrap();
        assert!(!manager.keeps(4) && manager.keeps(5));
        manager.extend(now, 12);
        for esi in 0..2 {
            assert!(manager.buffer_mut().store(9, 2, esi, b"abcd"));
        }
        assert!(manager.is_full() && manager.refuses(10) && !manager.refuses(4));
        assert!(!manager.remove(NodeId(2)), "the other child lacks block 9");
        duty.rest();
        assert_eq!((duty.buffered(), duty.totals().count()), (8, 1));
        duty.manager_mut().unwrap().remove(NodeId(3));
        duty.rest();
        assert!(duty.manager().is_none());
        assert_eq!((duty.buffered(), duty.totals().count()), (0, 0));
    }

    #[test]
    fn the_timing_of_a_domain_outlives_its_children() {
        let (now, config) = (Instant::EPOCH, config());
        let mut duty = Duty::None(Ledger::new(config.timing));
        let rtt = duty.ledger().timing().rtt;
        for ms in [70, 90] {
            let timing = Timing { t_ack: Duration::from_millis(ms), intervals: 3, rtt };
            duty.set_timing(timing);
            duty.adopt(now, NodeId(2), (0, 0), &config);
            assert_eq!(duty.ledger().timing(), timing);
            duty.manager_mut().unwrap().remove(NodeId(2));
            duty.rest();
            assert_eq!(duty.ledger().timing(), timing);
        }
    }
}
