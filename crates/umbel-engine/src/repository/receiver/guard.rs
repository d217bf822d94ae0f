//! Items of which wrong symbols came: each symbol is compared with its server's digest.
//!
//! ```text
//!              a wrong block, or two symbols of one number
//!  unsuspected ────────────────────────────────────────────▶ suspect
//!       ▲                                                       │
//!       └───────────── nothing wrong for `CALM` ────────────────┘
//! ```
//!
//! The client asks for the digests of the blocks that come next, so that they are there before the
//! symbols. A symbol that differs is dropped, and its number stays free for the genuine one. A
//! symbol whose digest is not there yet is dropped as if it were lost. If the server has not answered
//! for `PATIENCE`, it is busy. Then symbols are taken as they come, and wrong blocks are found by
//! their own digests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::Toi;
use umbel_wire::repository::{ClientMessage, SymbolDigest, SymbolKey, SymbolRun, limits};

use super::item::Item;
use crate::Instant;
use crate::repository::symbol_digest::symbol_digest;
use crate::symbols::BlockId;

/// Longest wait for an answer with digests.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time without anything wrong after which an item is no longer suspect.
const CALM: Duration = Duration::from_mins(1);
/// Greatest number of digests that are held or awaited: 1 MiB, for 180 MB of content.
const MOST_DIGESTS: usize = 1 << 17;
/// Smallest number of blocks beyond those announced whose digests are asked for.
const BLOCKS_AHEAD: u32 = 4;

/// Verdict on a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the server's, or nothing speaks against it.
    Taken,
    /// It is not the server's.
    Wrong,
    /// Its digest is not there yet.
    Unknown,
}

/// An item of which something wrong came.
#[derive(Debug)]
struct Suspect {
    blocks: BTreeMap<u32, Digests>,
    /// Whether the server did not answer in time.
    unanswered: bool,
    last_wrong: Instant,
}

/// Digests of the encoding symbols of a block, from the first on.
#[derive(Debug, Default)]
struct Digests {
    known: Vec<SymbolDigest>,
    /// Number of symbols of which some are asked for, and since when.
    awaited: Option<(u32, Instant)>,
}

/// Digests that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unasked;

/// The suspect items of a client.
#[derive(Debug)]
pub(super) struct Guard {
    key: SymbolKey,
    suspects: BTreeMap<Toi, Suspect>,
    /// Number of digests that are held or awaited.
    held: usize,
    /// Whether there was no room for the digests of some blocks. Their symbols are taken as they
    /// come.
    is_full: bool,
}

impl Guard {
    pub(super) fn new(key: SymbolKey) -> Guard {
        Guard { key, suspects: BTreeMap::new(), held: 0, is_full: false }
    }

    /// Suspects an item. Returns whether it was not suspect before.
    pub(super) fn suspect(&mut self, now: Instant, toi: Toi) -> bool {
        let mut new = false;
        let suspect = self.suspects.entry(toi).or_insert_with(|| {
            new = true;
            Suspect { blocks: BTreeMap::new(), unanswered: false, last_wrong: now }
        });
        suspect.last_wrong = now;
        new
    }

    /// Returns whether symbols of an item are compared with digests.
    #[inline]
    pub(super) fn watches(&self, toi: Toi) -> bool {
        self.suspects.get(&toi).is_some_and(|suspect| !suspect.unanswered)
    }

    /// Judges a symbol.
    #[inline]
    pub(super) fn judge(
        &mut self,
        now: Instant,
        block: BlockId,
        esi: u32,
        symbol: &[u8],
    ) -> Verdict {
        if self.suspects.is_empty() {
            return Verdict::Taken;
        }
        self.judge_suspect(now, block, esi, symbol)
    }

    fn judge_suspect(&mut self, now: Instant, block: BlockId, esi: u32, symbol: &[u8]) -> Verdict {
        let Some(suspect) = self.suspects.get_mut(&block.toi) else { return Verdict::Taken };
        if suspect.unanswered {
            return Verdict::Taken;
        }
        let Some(digests) = suspect.blocks.get(&block.sbn) else {
            return if self.is_full { Verdict::Taken } else { Verdict::Unknown };
        };
        let Some(digest) = digests.known.get(esi as usize) else { return Verdict::Unknown };
        if *digest == symbol_digest(&self.key, block, esi, symbol) {
            return Verdict::Taken;
        }
        suspect.last_wrong = now;
        Verdict::Wrong
    }

    /// Returns what to ask for, so that the symbols of blocks that come can be judged, and those of
    /// as many blocks beyond them.
    pub(super) fn watch_coming(
        &mut self,
        now: Instant,
        (toi, item): (Toi, &Item),
        blocks: Range<u32>,
    ) -> Vec<ClientMessage> {
        let ahead = (blocks.end - blocks.start).max(BLOCKS_AHEAD);
        let end = blocks.end.saturating_add(ahead);
        self.watch(now, (toi, item), blocks.start..end)
    }

    /// Returns what to ask for, so that the symbols of these blocks can be judged.
    pub(super) fn watch(
        &mut self,
        now: Instant,
        (toi, item): (Toi, &Item),
        blocks: Range<u32>,
    ) -> Vec<ClientMessage> {
        if self.suspects.get(&toi).is_some_and(|suspect| now.since(suspect.last_wrong) > CALM) {
            self.forget(toi);
        }
        if !self.watches(toi) {
            return Vec::new();
        }
        let mut asked = Vec::new();
        for sbn in blocks.start..blocks.end.min(item.partition.blocks()) {
            let first = first_symbols(item, sbn);
            self.is_full = self.held + first as usize > MOST_DIGESTS;
            if self.is_full {
                break;
            }
            if item.lacks_block(sbn) && !self.knows(toi, sbn) {
                asked.extend(self.ask(now, (toi, item), sbn, first));
            }
        }
        asked
    }

    fn knows(&self, toi: Toi, sbn: u32) -> bool {
        self.suspects.get(&toi).is_some_and(|suspect| suspect.blocks.contains_key(&sbn))
    }

    /// Returns what to ask for when a symbol of a watched block has a number beyond the digests.
    pub(super) fn extend(
        &mut self,
        now: Instant,
        (toi, item): (Toi, &Item),
        (sbn, esi): (u32, u32),
    ) -> Option<ClientMessage> {
        let digests = self.suspects.get(&toi)?.blocks.get(&sbn)?;
        let known = digests.known.len() as u32;
        if digests.awaited.is_some() || esi < known {
            return None;
        }
        let more = item.partition.block_symbols(sbn) / 2 + 8;
        self.ask(now, (toi, item), sbn, known.saturating_add(more))
    }

    /// Asks for the digests of a block's symbols below `end` that are not known.
    fn ask(
        &mut self,
        now: Instant,
        (toi, item): (Toi, &Item),
        sbn: u32,
        end: u32,
    ) -> Option<ClientMessage> {
        let suspect = self.suspects.get_mut(&toi)?;
        let digests = suspect.blocks.entry(sbn).or_default();
        let first_esi = digests.known.len() as u32;
        let end = end.min(first_esi.saturating_add(limits::SYMBOL_DIGESTS as u32));
        let end = end.min(item.partition.max_encoding_symbols(sbn));
        let count = end.checked_sub(first_esi).filter(|&count| count > 0)?;
        if self.held + count as usize > MOST_DIGESTS {
            return None;
        }
        self.held += count as usize;
        digests.awaited = Some((count, now));
        let symbols = SymbolRun { block: sbn, first_esi, count };
        Some(ClientMessage::SymbolDigests { toi, key: self.key, symbols })
    }

    /// Takes digests from the server. Returns what to ask for next of the same block.
    ///
    /// # Errors
    ///
    /// If they are not those that were asked for.
    pub(super) fn take(
        &mut self,
        now: Instant,
        (toi, item): (Toi, &Item),
        (sbn, first_esi): (u32, u32),
        new: &[SymbolDigest],
    ) -> Result<Option<ClientMessage>, Unasked> {
        let suspect = self.suspects.get_mut(&toi).ok_or(Unasked)?;
        let digests = suspect.blocks.get_mut(&sbn).ok_or(Unasked)?;
        if digests.known.len() != first_esi as usize {
            return Err(Unasked);
        }
        let (count, _) = digests.awaited.take().ok_or(Unasked)?;
        let new = &new[..new.len().min(count as usize)];
        digests.known.extend_from_slice(new);
        self.held -= count as usize - new.len();
        let known = digests.known.len() as u32;
        let first = first_symbols(item, sbn);
        let more = !new.is_empty() && known < first;
        Ok(if more { self.ask(now, (toi, item), sbn, first) } else { None })
    }

    /// Returns whether a symbol that is held is the server's.
    pub(super) fn holds(&self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let digests = self.suspects.get(&block.toi).and_then(|it| it.blocks.get(&block.sbn));
        let digest = digests.and_then(|digests| digests.known.get(esi as usize));
        digest == Some(&symbol_digest(&self.key, block, esi, symbol))
    }

    /// Forgets a block that is complete.
    pub(super) fn forget_block(&mut self, block: BlockId) {
        let suspect = self.suspects.get_mut(&block.toi);
        let digests = suspect.and_then(|suspect| suspect.blocks.remove(&block.sbn));
        self.held -= digests.map_or(0, |digests| digests.cost());
    }

    /// Forgets an item.
    pub(super) fn forget(&mut self, toi: Toi) {
        let suspect = self.suspects.remove(&toi);
        self.held -= suspect.map_or(0, |suspect| suspect.cost());
    }

    /// Forgets all items.
    pub(super) fn clear(&mut self) {
        self.suspects.clear();
        (self.held, self.is_full) = (0, false);
    }

    /// Gives up items for which the server has not answered in time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for suspect in self.suspects.values_mut() {
            if suspect.waits_since().is_some_and(|since| now.since(since) >= PATIENCE) {
                self.held -= suspect.cost();
                suspect.blocks.clear();
                suspect.unanswered = true;
            }
        }
    }

    /// Returns the time at which an answer is no longer waited for.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.suspects.is_empty() {
            return None;
        }
        let since = self.suspects.values().filter_map(Suspect::waits_since).min();
        since.map(|since| since + PATIENCE)
    }
}

impl Suspect {
    fn waits_since(&self) -> Option<Instant> {
        self.blocks.values().filter_map(|digests| Some(digests.awaited?.1)).min()
    }

    fn cost(&self) -> usize {
        self.blocks.values().map(Digests::cost).sum()
    }
}

impl Digests {
    fn cost(&self) -> usize {
        self.known.len() + self.awaited.map_or(0, |(count, _)| count as usize)
    }
}

/// Returns the number of a block's symbols that are commonly sent: its source symbols and the first
/// repair symbols.
fn first_symbols(item: &Item, sbn: u32) -> u32 {
    let k = item.partition.block_symbols(sbn);
    (k + k / 4 + 8).min(item.partition.max_encoding_symbols(sbn))
}

#[cfg(test)]
mod tests {
    use umbel_fec::Partition;
    use umbel_wire::{Oti, Scheme};

    use super::super::item::Held;
    use super::*;

    const TOI: Toi = Toi(3);
    const NOW: Instant = Instant::EPOCH;

    /// Returns an item with ten times as many symbols as there is room for digests.
    fn huge() -> Item {
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 10 * 10 * MOST_DIGESTS as u64,
            symbol_len: 10,
            max_block_symbols: 100,
            max_encoding_symbols: 255,
        };
        Item::new(oti, Partition::new(&oti).unwrap(), &Held::default(), NOW)
    }

    fn asked_for(messages: &[ClientMessage]) -> usize {
        let counts = messages.iter().map(|message| match message {
            ClientMessage::SymbolDigests { symbols, .. } => symbols.count as usize,
            other => panic!("{other:?}"),
        });
        counts.sum()
    }

    #[test]
    fn ten_times_as_many_digests_as_there_is_room_for_are_not_asked_for() {
        let (item, mut guard) = (huge(), Guard::new(SymbolKey([1; 32])));
        let blocks = item.partition.blocks();
        assert!(guard.watch_coming(NOW, (TOI, &item), 0..blocks).is_empty(), "it is not suspect");
        guard.suspect(NOW, TOI);
        let messages = guard.watch_coming(NOW, (TOI, &item), 0..blocks);
        let asked = asked_for(&messages);
        assert!(asked > MOST_DIGESTS - 255 && asked <= MOST_DIGESTS, "{asked}");
        // A symbol without room is taken as it comes, and an awaited one is not.
        let judge =
            |guard: &mut Guard, sbn| guard.judge(NOW, BlockId { toi: TOI, sbn }, 0, &[0; 10]);
        assert_eq!(judge(&mut guard, blocks - 1), Verdict::Taken);
        assert_eq!(judge(&mut guard, 0), Verdict::Unknown);
        // A block that is complete makes room for another.
        guard.forget_block(BlockId { toi: TOI, sbn: 0 });
        let next = messages.len() as u32;
        assert_eq!(guard.watch(NOW, (TOI, &item), next..next + 1).len(), 1);
        // Answers that were not asked for, or are longer, take no room.
        let digests = vec![SymbolDigest([0; 8]); limits::SYMBOL_DIGESTS];
        assert_eq!(guard.take(NOW, (TOI, &item), (1, 5), &digests), Err(Unasked));
        assert_eq!(guard.take(NOW, (TOI, &item), (blocks - 1, 0), &digests), Err(Unasked));
        assert_eq!(guard.take(NOW, (TOI, &item), (1, 0), &digests), Ok(None));
        assert!(guard.held <= MOST_DIGESTS);
        assert_eq!(judge(&mut guard, 1), Verdict::Wrong);
        guard.handle_timeout(NOW + PATIENCE);
        assert_eq!((guard.held, guard.watches(TOI)), (0, false));
        guard.forget(TOI);
        assert!(guard.suspects.is_empty() && guard.poll_timeout().is_none());
    }
}
