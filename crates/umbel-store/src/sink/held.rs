//! The blocks and symbols held of an item.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use umbel_engine::repository::receiver;
use umbel_fec::{Partition, SymbolSet};
use umbel_wire::repository::{Need, NeedRun};

/// State of an item in a sink when it is added.
#[derive(Clone, Debug)]
pub enum Held {
    /// The target exists with the right length and digest. There is nothing to receive, and no
    /// event follows.
    AlreadyThere,
    /// The item is a directory, which is there now. It gets its permissions and times by
    /// [`DiskSink::set_directories`](super::DiskSink::set_directories). No event follows.
    Directory,
    /// The item is a symbolic link, which was made now at this path. No event follows.
    Link(PathBuf),
    /// The item is another name of a file. The file gets it by
    /// [`DiskSink::name_files`](super::DiskSink::name_files). No event follows.
    OtherName,
    /// The item is a symbolic link that is not made: see [`Links`](super::Links), and
    /// [`Unkept`](super::Unkept). No event follows.
    LeftOut,
    /// These parts are held. If they suffice, the sink finishes the item without further symbols
    /// and reports the end by an event.
    Parts(HeldParts),
}

/// The parts held of an incomplete item.
#[derive(Clone, Debug)]
pub struct HeldParts {
    partition: Partition,
    restored: SymbolSet,
    partial: BTreeMap<u32, HeldBlock>,
    /// Runs of restored blocks that are holes, which nobody has received.
    holes: Vec<Range<u32>>,
}

impl HeldParts {
    /// Creates the state of an item with this partition of which nothing is held.
    pub fn nothing(partition: Partition) -> HeldParts {
        let restored = SymbolSet::new(partition.blocks());
        HeldParts { partition, restored, partial: BTreeMap::new(), holes: Vec::new() }
    }

    /// Creates the state from restored blocks and symbols of others.
    pub(super) fn new(
        partition: Partition,
        restored: SymbolSet,
        partial: BTreeMap<u32, HeldBlock>,
    ) -> HeldParts {
        HeldParts { partition, restored, partial, holes: Vec::new() }
    }

    /// Notes that these of the restored blocks are holes.
    pub(super) fn with_holes(self, holes: Vec<Range<u32>>) -> HeldParts {
        HeldParts { holes, ..self }
    }

    /// Returns the partition of the item into blocks and symbols.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Returns whether the block is restored.
    pub fn is_restored(&self, sbn: u32) -> bool {
        self.restored.contains(sbn)
    }

    /// Returns the number of restored blocks.
    pub fn restored_blocks(&self) -> u32 {
        self.restored.count()
    }

    /// Returns the bytes of the restored blocks, without holes.
    pub fn restored_bytes(&self) -> u64 {
        let blocks = (0..self.partition.blocks()).filter(|&sbn| self.is_restored(sbn));
        let bytes: u64 = blocks
            .map(|sbn| self.partition.block_range(sbn))
            .map(|range| range.end - range.start)
            .sum();
        let holes = self.holes.iter().filter(|hole| !hole.is_empty()).map(|hole| {
            let [first, last] =
                [hole.start, hole.end - 1].map(|sbn| self.partition.block_range(sbn));
            last.end - first.start
        });
        bytes.saturating_sub(holes.sum())
    }

    /// Returns the symbols held of a block that is not restored; `None` if there are none.
    pub fn block(&self, sbn: u32) -> Option<&HeldBlock> {
        self.partial.get(&sbn)
    }

    /// Returns the blocks of which some symbols are held but which are not restored, ascending.
    pub fn partial_blocks(&self) -> impl Iterator<Item = (u32, &HeldBlock)> {
        self.partial.iter().map(|(&sbn, block)| (sbn, block))
    }

    /// Returns the number of symbols that the block still needs. It is 0 when the block is restored
    /// or about to be.
    pub fn missing_symbols(&self, sbn: u32) -> u32 {
        if self.is_restored(sbn) {
            return 0;
        }
        let held = self.block(sbn).map_or(0, HeldBlock::count);
        self.partition.block_symbols(sbn).saturating_sub(held)
    }

    /// Returns the need to send to the server.
    pub fn need(&self) -> Need {
        if self.restored.count() == 0 && self.partial.is_empty() {
            return Need::Whole;
        }
        let mut runs: Vec<NeedRun> = Vec::new();
        for sbn in 0..self.partition.blocks() {
            // A block has at most 65,535 source symbols, in any scheme.
            let symbols = self.missing_symbols(sbn) as u16;
            match runs.last_mut() {
                Some(run) if run.symbols == symbols && run.first_block + run.blocks == sbn => {
                    run.blocks += 1;
                }
                _ if symbols == 0 => {}
                _ => runs.push(NeedRun { first_block: sbn, blocks: 1, symbols }),
            }
        }
        Need::Symbols(runs)
    }
}

/// Converts the parts for the receiving engine. A block of which enough symbols are held counts as
/// complete, since the sink restores it by itself.
impl From<&HeldParts> for receiver::Held {
    fn from(parts: &HeldParts) -> receiver::Held {
        let holes = parts.holes.clone();
        let mut held = receiver::Held { holes, ..receiver::Held::default() };
        for sbn in (0..parts.partition.blocks()).filter(|&sbn| parts.missing_symbols(sbn) == 0) {
            match held.complete.last_mut() {
                Some(run) if run.end == sbn => run.end += 1,
                _ => held.complete.push(sbn..sbn + 1),
            }
        }
        held.partial =
            parts.partial_blocks().map(|(sbn, block)| (sbn, block.esis().collect())).collect();
        held
    }
}

/// The symbols held of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBlock {
    source: SymbolSet,
    /// Encoding symbol IDs of repair symbols, ascending.
    repairs: Vec<u32>,
}

impl HeldBlock {
    /// Creates the state of a block of `k` source symbols of which none is held.
    pub fn none(k: u32) -> HeldBlock {
        HeldBlock { source: SymbolSet::new(k), repairs: Vec::new() }
    }

    /// Creates the state from these symbols.
    pub(super) fn new(source: SymbolSet, mut repairs: Vec<u32>) -> HeldBlock {
        repairs.sort_unstable();
        repairs.dedup();
        HeldBlock { source, repairs }
    }

    /// Returns the number of different symbols held.
    pub fn count(&self) -> u32 {
        self.source.count() + self.repairs.len() as u32
    }

    /// Returns whether the symbol is held.
    pub fn contains(&self, esi: u32) -> bool {
        self.source.contains(esi) || self.repairs.binary_search(&esi).is_ok()
    }

    /// Returns the source symbols held.
    pub fn source(&self) -> &SymbolSet {
        &self.source
    }

    /// Returns the IDs of the repair symbols held, ascending.
    pub fn repairs(&self) -> &[u32] {
        &self.repairs
    }

    /// Returns the IDs of all symbols held, ascending.
    pub fn esis(&self) -> impl Iterator<Item = u32> + '_ {
        let source = (0..self.source.len()).filter(|&esi| self.source.contains(esi));
        source.chain(self.repairs.iter().copied())
    }
}
