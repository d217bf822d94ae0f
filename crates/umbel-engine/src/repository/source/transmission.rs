//! A transmission: planned, announced, sent, and then the subject of NAKs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::repository::{Announcement, SymbolRun};
use umbel_wire::{Oti, Toi};

use crate::symbols::BlockId;
use crate::{Instant, SessionId};

/// Reason for a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The scheduler chose the item.
    Pass,
    /// NAKs were accepted.
    Repair,
}

/// A planned or running transmission.
#[derive(Debug)]
pub(super) struct Transmission {
    /// Number by which clients know the transmission. The line assigns it.
    pub(super) id: u32,
    pub(super) toi: Toi,
    pub(super) oti: Oti,
    pub(super) purpose: Purpose,
    pub(super) blocks: Range<u32>,
    /// Earliest start, so that clients can join.
    pub(super) not_before: Instant,
    /// Latest start, even if more clients keep coming in.
    pub(super) starts_by: Instant,
    pub(super) nak_spread: Duration,
    pub(super) participants: BTreeSet<SessionId>,
    /// Clients that wrongly believed it to be over.
    pub(super) nudged: BTreeSet<SessionId>,
    pub(super) packets: u32,
    plan: Vec<SymbolRun>,
    run: usize,
    in_run: u32,
    sent: u32,
}

impl Transmission {
    /// Creates a transmission for these clients, without a number yet.
    pub(super) fn new(
        (toi, oti): (Toi, Oti),
        purpose: Purpose,
        (blocks, plan): (Range<u32>, Vec<SymbolRun>),
        participants: BTreeSet<SessionId>,
    ) -> Transmission {
        let packets = plan.iter().map(|run| run.count).sum();
        Transmission {
            id: 0,
            toi,
            oti,
            purpose,
            blocks,
            not_before: Instant::EPOCH,
            starts_by: Instant::EPOCH,
            nak_spread: Duration::ZERO,
            participants,
            nudged: BTreeSet::new(),
            packets,
            plan,
            run: 0,
            in_run: 0,
            sent: 0,
        }
    }

    /// Delays a transmission that has not started until this time, for clients that may follow a
    /// new one.
    pub(super) fn await_more(&mut self, until: Instant) {
        if !self.started() {
            self.not_before = self.not_before.max(until.min(self.starts_by));
        }
    }

    pub(super) fn announcement(&self) -> Announcement {
        Announcement {
            transmission: self.id,
            toi: self.toi,
            channel: 0,
            first_block: self.blocks.start,
            blocks: self.blocks.end - self.blocks.start,
            packets: self.packets,
        }
    }

    /// Returns the runs of symbols in sending order.
    pub(super) fn plan(&self) -> &[SymbolRun] {
        &self.plan
    }

    /// Returns the next symbol, and the number of its packet.
    pub(super) fn next_symbol(&self) -> Option<(BlockId, u32, u32)> {
        let run = self.plan.get(self.run)?;
        let block = BlockId { toi: self.toi, sbn: run.block };
        Some((block, run.first_esi + self.in_run, self.sent))
    }

    /// Advances to the next symbol. Returns the finished block, if the step leaves one.
    pub(super) fn advance(&mut self) -> Option<BlockId> {
        let run = self.plan.get(self.run)?;
        self.sent += 1;
        self.in_run += 1;
        if self.in_run < run.count {
            return None;
        }
        let block = run.block;
        self.in_run = 0;
        self.run += 1;
        let same_block = self.plan.get(self.run).is_some_and(|next| next.block == block);
        (!same_block).then_some(BlockId { toi: self.toi, sbn: block })
    }

    pub(super) fn started(&self) -> bool {
        self.sent > 0
    }

    pub(super) fn finished(&self) -> bool {
        self.run >= self.plan.len()
    }

    pub(super) fn packets_left(&self) -> u32 {
        self.packets - self.sent
    }
}
