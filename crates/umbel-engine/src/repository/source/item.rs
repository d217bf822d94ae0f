//! An item that clients want.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::SymbolRun;
use umbel_wire::{Oti, Scheme};

use crate::SessionId;
use crate::repository::missing::{BlockNeed, Missing};
use crate::repository::policy::HandSet;
use crate::repository::scheduler::Target;
use crate::runs::Runs;

/// One client's demand for an item.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// Symbols that the scheduler still has to send to the client.
    pub(super) missing: Missing,
    /// The client came while the item was being sent and was not told. It learns of the item again
    /// with the next pass.
    pub(super) unaware: bool,
    /// Runs of this demand that count against the client's limit.
    pub(super) charged: usize,
}

/// An item that at least one client wants.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) oti: Oti,
    pub(super) partition: Partition,
    pub(super) demands: BTreeMap<SessionId, Demand>,
    sent: Sent,
}

/// The symbols sent: for each block, the encoding symbol ID after the last one.
#[derive(Debug, Default)]
struct Sent {
    next_esi: Vec<u32>,
}

/// Symbols to be sent of one block.
#[derive(Clone, Copy, Debug)]
struct BlockDemand {
    /// Greatest number of symbols missing at one client.
    symbols: u32,
    /// Whether some client holds a part of the block. Only symbols not sent before then help it.
    fresh: bool,
}

impl Item {
    pub(super) fn new(oti: Oti, partition: Partition) -> Item {
        Item { oti, partition, demands: BTreeMap::new(), sent: Sent::default() }
    }

    /// Returns the first block from `from` on that some client is missing.
    pub(super) fn next_wanted_block(&self, from: u32) -> Option<u32> {
        self.demands.values().filter_map(|demand| demand.missing.next_block(from)).min()
    }

    /// Returns the clients that are missing some of these blocks.
    pub(super) fn who_lack(&self, blocks: Range<u32>) -> BTreeSet<SessionId> {
        let lacks = |demand: &Demand| {
            demand.missing.next_block(blocks.start).is_some_and(|block| block < blocks.end)
        };
        let lacking = self.demands.iter().filter(|(_, demand)| lacks(demand));
        lacking.map(|(&session, _)| session).collect()
    }

    /// Returns the number of outstanding symbols that the scheduler is told for a client missing
    /// `missing`. It is the whole item's number if the item is always sent `whole`.
    pub(super) fn outstanding(&self, missing: &Missing, whole: bool) -> u64 {
        match missing.symbols(&self.partition) {
            0 => 0,
            _ if whole => self.partition.total_source_symbols(),
            symbols => symbols,
        }
    }

    /// Adds the symbols that a pass sends of this block to `plan`, and returns their number.
    pub(super) fn plan_pass_block(
        &mut self,
        block: u32,
        whole: bool,
        expand: &Expand<'_>,
        plan: &mut Vec<SymbolRun>,
    ) -> u32 {
        if self.oti.scheme == Scheme::NoCode {
            return self.plan_exact_block(block, whole, plan);
        }
        let k = self.partition.block_symbols(block);
        let mut wanted = BlockDemand { symbols: 0, fresh: false };
        for demand in self.demands.values() {
            if demand.missing.is_whole(block) {
                wanted.symbols = k;
            } else if let Some(need) = demand.missing.partial(block) {
                wanted.symbols = wanted.symbols.max(need.symbols() as u32);
                wanted.fresh = true;
            }
        }
        if whole && wanted.symbols > 0 {
            wanted = BlockDemand { symbols: k, fresh: self.sent.any(block) };
        }
        let count = expand.symbols(wanted.symbols);
        self.sent.plan_block(&self.partition, block, (wanted, count), plan)
    }

    /// Adds the symbols that repair `missing` of this block to `plan`.
    pub(super) fn plan_repair_block(
        &mut self,
        block: u32,
        missing: &Missing,
        expand: &Expand<'_>,
        plan: &mut Vec<SymbolRun>,
    ) -> u32 {
        if let Some(BlockNeed::Exact(esis)) = missing.partial(block) {
            return push_exact(block, esis, plan);
        }
        let wanted = match missing.partial(block) {
            Some(need) => BlockDemand { symbols: need.symbols() as u32, fresh: true },
            None => BlockDemand { symbols: self.partition.block_symbols(block), fresh: false },
        };
        let count = expand.symbols(wanted.symbols);
        self.sent.plan_block(&self.partition, block, (wanted, count), plan)
    }

    fn plan_exact_block(&mut self, block: u32, whole: bool, plan: &mut Vec<SymbolRun>) -> u32 {
        let lacking: Vec<&Missing> = self.demands.values().map(|demand| &demand.missing).collect();
        plan_exact_block(&self.partition, block, whole, &lacking, plan)
    }

    /// Returns these clients with their missing symbols, to plan a burst for them.
    pub(super) fn audience(&mut self, targets: &[Target]) -> Audience<'_> {
        let lacking =
            |target: &Target| Some((*target, &self.demands.get(&target.session)?.missing));
        Audience {
            targets: targets.iter().filter_map(lacking).collect(),
            partition: &self.partition,
            scheme: self.oti.scheme,
            sent: &mut self.sent,
        }
    }
}

impl Sent {
    fn any(&self, block: u32) -> bool {
        self.next_esi.get(block as usize).is_some_and(|&next| next > 0)
    }

    /// Adds `count` symbols to `plan`, as far as the code can make them.
    fn plan_block(
        &mut self,
        partition: &Partition,
        block: u32,
        (wanted, count): (BlockDemand, u32),
        plan: &mut Vec<SymbolRun>,
    ) -> u32 {
        if wanted.symbols == 0 {
            return 0;
        }
        let pool = partition.max_encoding_symbols(block);
        let count = count.min(pool);
        if self.next_esi.is_empty() {
            self.next_esi = vec![0; partition.blocks() as usize];
        }
        let next = &mut self.next_esi[block as usize];
        let mut first = if wanted.fresh { *next % pool } else { 0 };
        let mut left = count;
        while left > 0 {
            let run = left.min(pool - first);
            plan.push(SymbolRun { block, first_esi: first, count: run });
            first = (first + run) % pool;
            left -= run;
        }
        *next = match (wanted.fresh, first) {
            (true, 0) => pool,
            (true, first) => first,
            (false, _) => (*next).max(count),
        };
        count
    }
}

/// Adds the lost symbols of a block to `plan`, or all if one client is missing the whole block.
fn plan_exact_block(
    partition: &Partition,
    block: u32,
    whole: bool,
    lacking: &[&Missing],
    plan: &mut Vec<SymbolRun>,
) -> u32 {
    let mut union = Runs::default();
    for missing in lacking {
        let wanted = missing.partial(block).is_some();
        if missing.is_whole(block) || (whole && wanted) {
            let k = partition.block_symbols(block);
            plan.push(SymbolRun { block, first_esi: 0, count: k });
            return k;
        }
        if let Some(BlockNeed::Exact(esis)) = missing.partial(block) {
            esis.iter().for_each(|run| union.insert(run));
        }
    }
    push_exact(block, &union, plan)
}

/// Clients for whom a burst of an item is planned.
#[derive(Debug)]
pub(super) struct Audience<'a> {
    targets: Vec<(Target, &'a Missing)>,
    partition: &'a Partition,
    scheme: Scheme,
    sent: &'a mut Sent,
}

impl Audience<'_> {
    /// Returns the first block from `from` on that one of the clients is missing.
    pub(super) fn next_block(&self, from: u32) -> Option<u32> {
        self.targets.iter().filter_map(|(_, missing)| missing.next_block(from)).min()
    }

    /// Returns whether one of the clients holds a part of the block.
    pub(super) fn is_repair(&self, block: u32) -> bool {
        self.targets.iter().any(|(_, missing)| missing.partial(block).is_some())
    }

    /// Adds enough symbols of a block to `plan` for the clients to be expected to complete it.
    pub(super) fn plan_block(&mut self, block: u32, plan: &mut Vec<SymbolRun>) -> u32 {
        if self.scheme == Scheme::NoCode {
            let lacking: Vec<&Missing> = self.targets.iter().map(|&(_, missing)| missing).collect();
            return plan_exact_block(self.partition, block, false, &lacking, plan);
        }
        let k = self.partition.block_symbols(block);
        let mut wanted = BlockDemand { symbols: 0, fresh: false };
        let mut count = 0;
        for (target, missing) in &self.targets {
            let symbols = match missing.partial(block) {
                Some(need) => need.symbols() as u32,
                None if missing.is_whole(block) => k,
                None => continue,
            };
            wanted.fresh |= symbols < k;
            wanted.symbols = wanted.symbols.max(symbols);
            count = count.max(target.reach_of(symbols));
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.sent.plan_block(self.partition, block, (wanted, count), plan)
    }
}

fn push_exact(block: u32, esis: &Runs, plan: &mut Vec<SymbolRun>) -> u32 {
    let runs = esis.iter().map(|run| SymbolRun {
        block,
        first_esi: run.start,
        count: run.end - run.start,
    });
    plan.extend(runs);
    esis.count(0..u32::MAX)
}

/// Number of symbols sent for a number of wanted ones [Repository §3.1].
#[derive(Clone, Copy, Debug)]
pub(super) struct Expand<'a> {
    pub(super) policy: &'a HandSet,
    /// Number of clients that want the item.
    pub(super) requests: u32,
    /// Greatest estimated loss of those clients.
    pub(super) max_loss: f64,
}

impl Expand<'_> {
    fn symbols(&self, wanted: u32) -> u32 {
        self.policy.packets(wanted, self.requests, self.max_loss)
    }
}
