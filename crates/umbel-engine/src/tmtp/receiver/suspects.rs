//! Blocks that were wrong: the digests of their symbols tell which symbols are to blame.
//!
//! ```text
//!   wrong for the first time          digests came
//! ──────────────────────────▶ asked ───────────────▶ watched ──▶ complete, or wrong again
//!                               │ no answer for `PATIENCE`, or it has none
//!                               ▼
//!                          taken as it comes, until it is wrong again
//! ```
//!
//! While a block is asked for or watched, a symbol is taken only if it is the source's. Answers to
//! FETCH by unicast are taken anyway: they carry a number that the source alone was told, as the
//! digests do.
//!
//! Once a block was wrong, the next ones are asked for before they come, so that a wrong symbol of
//! them is known at once. Until the answer is there they are taken as they come, and without one
//! nothing follows. The source tells everybody what several ask for (BLOCK_DIGESTS).

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::repository::{SymbolDigest, SymbolKey};
use umbel_wire::tmtp::{Body, NackRun};

use crate::Instant;
use crate::tmtp::drops::DropReason;
use crate::tmtp::symbol_digests::{digest_of, watched};

/// Longest wait for the digests of a block.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which digests are asked for again, doubled each time.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for which nothing is asked after a question was not answered, as blocks wait for answers.
const SILENCE: Duration = Duration::from_mins(1);
/// Greatest number of blocks that are asked for and watched: digests of 2 KB each.
const MOST_BLOCKS: usize = 256;
/// Greatest number of blocks after which none is asked for ahead.
const MOST_AHEAD: usize = MOST_BLOCKS / 2;
/// Number of wrong symbols of a watched block after which it is left to other ways.
const MOST_BLAMED: u32 = 1024;

/// A block that was wrong.
#[derive(Debug)]
struct Suspect {
    nonce: u64,
    /// Key of the digests: the receiver's own, or the source's if it tells everybody.
    key: SymbolKey,
    /// Source symbols, once the source has told.
    symbols: Option<u8>,
    /// Digests of the first symbols, as far as they came.
    digests: Vec<Option<SymbolDigest>>,
    asked: Option<Asked>,
    /// It was asked for before it came.
    ahead: bool,
    blamed: u32,
}

/// A question that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    since: Instant,
    again: Instant,
    tries: u32,
}

/// The blocks of a receiver that were wrong.
#[derive(Debug)]
pub(super) struct Suspects {
    key: SymbolKey,
    fec: bool,
    blocks: BTreeMap<u32, Suspect>,
    /// Time before which nothing is asked, since nobody answers.
    silent_until: Option<Instant>,
}

impl Suspects {
    pub(super) fn new(key: SymbolKey, fec: bool) -> Suspects {
        Suspects { key, fec, blocks: BTreeMap::new(), silent_until: None }
    }

    /// Asks for the digests of a block. `nonce` is a fresh number. Returns `false` if the block was
    /// asked for before, if there are too many, or if nobody answers.
    pub(super) fn suspect(&mut self, now: Instant, block: u32, nonce: u64) -> bool {
        let may = self.may_ask(now, block, MOST_BLOCKS);
        if may {
            self.blocks.insert(block, Suspect::new(now, (nonce, self.key), false));
        }
        may
    }

    /// Returns whether a block may be asked for, as one of `most` at most.
    fn may_ask(&self, now: Instant, block: u32, most: usize) -> bool {
        self.silent_until.is_none_or(|until| now >= until)
            && self.blocks.len() < most
            && !self.blocks.contains_key(&block)
    }

    /// Returns whether the digests of a block may be asked for before it comes.
    pub(super) fn may_expect(&self, now: Instant, block: u32) -> bool {
        self.may_ask(now, block, MOST_AHEAD)
    }

    /// Asks for the digests of a block that is yet to come, or is coming. `nonce` is a fresh number.
    pub(super) fn expect(&mut self, now: Instant, block: u32, nonce: u64) {
        self.blocks.insert(block, Suspect::new(now, (nonce, self.key), true));
    }

    /// Returns whether a block was asked for before it came.
    pub(super) fn is_expected(&self, block: u32) -> bool {
        self.blocks.get(&block).is_some_and(|suspect| suspect.ahead)
    }

    /// Forgets blocks before this one that were asked for before they came.
    pub(super) fn forget_expected(&mut self, before: u32) {
        self.blocks.retain(|&block, suspect| block >= before || !suspect.ahead);
    }

    /// Forgets a block.
    pub(super) fn forget(&mut self, block: u32) {
        self.blocks.remove(&block);
    }

    /// Judges a symbol. Returns whether its digest shows that it is the source's; `false` if the
    /// block is not watched.
    ///
    /// # Errors
    ///
    /// If it is not the source's, or if its digest is not there.
    pub(super) fn judge(
        &mut self,
        block: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<bool, DropReason> {
        let Some(suspect) = self.blocks.get_mut(&block) else { return Ok(false) };
        if suspect.ahead && suspect.asked.is_some() {
            return Ok(false);
        }
        let digest = suspect.digest(esi).ok_or(DropReason::Suspect)?;
        if digest == digest_of(&suspect.key, block, esi, symbol) {
            return Ok(true);
        }
        suspect.blamed += 1;
        if suspect.blamed >= MOST_BLAMED {
            self.blocks.remove(&block);
        }
        Err(DropReason::ForgedSymbol)
    }

    /// Returns whether a symbol of a watched block is the source's.
    pub(super) fn is_right(&self, block: u32, esi: u32, symbol: &[u8]) -> bool {
        let Some(suspect) = self.blocks.get(&block) else { return false };
        suspect.digest(esi) == Some(digest_of(&suspect.key, block, esi, symbol))
    }

    /// Asks again at once, with a cookie.
    pub(super) fn on_cookie(&mut self, now: Instant) {
        for asked in self.blocks.values_mut().filter_map(|suspect| suspect.asked.as_mut()) {
            asked.again = now;
        }
    }

    /// Returns the block of which digests were asked for with this number, and are waited for.
    pub(super) fn asked_with(&self, nonce: u64) -> Option<u32> {
        let asked = |suspect: &Suspect| suspect.nonce == nonce && suspect.asked.is_some();
        self.blocks.iter().find(|(_, suspect)| asked(suspect)).map(|(&block, _)| block)
    }

    /// Returns the key of digests that were asked for.
    pub(super) fn own_key(&self) -> SymbolKey {
        self.key
    }

    /// Returns whether a block waits for digests.
    pub(super) fn is_waiting_for(&self, block: u32) -> bool {
        self.blocks.get(&block).is_some_and(|suspect| suspect.asked.is_some())
    }

    /// Returns whether one of these blocks is watched: its digests are there.
    pub(super) fn watches_any(&self, runs: &[NackRun]) -> bool {
        let is_watched = |(_, suspect): (&u32, &Suspect)| suspect.asked.is_none();
        runs.iter().any(|run| self.blocks.range(run.run.blocks()).any(is_watched))
    }

    /// Returns whether nothing is to be asked for of a block, as it was wrong and its digests are
    /// to come.
    pub(super) fn holds_up(&self, block: u32) -> bool {
        let waits = |suspect: &Suspect| suspect.asked.is_some() && !suspect.ahead;
        self.blocks.get(&block).is_some_and(waits)
    }

    /// Takes digests of a block's symbols from `first` on, with their key. The block has `symbols`
    /// source symbols. Returns whether all its digests are there.
    ///
    /// # Errors
    ///
    /// If nobody asked, or if they contradict what came before.
    pub(super) fn take(
        &mut self,
        (block, key): (u32, SymbolKey),
        symbols: u8,
        first: u8,
        new: &[SymbolDigest],
    ) -> Result<bool, DropReason> {
        let suspect = self.blocks.get_mut(&block).ok_or(DropReason::NotAsked)?;
        if *suspect.symbols.get_or_insert(symbols) != symbols {
            return Err(DropReason::AbsurdBlock);
        }
        if suspect.key != key {
            (suspect.key, suspect.digests) = (key, Vec::new());
        }
        suspect.digests.resize(watched(symbols, self.fec) as usize, None);
        let places = suspect.digests.iter_mut().skip(first.into());
        for (place, digest) in places.zip(new) {
            *place = Some(*digest);
        }
        if suspect.digests.contains(&None) {
            return Ok(false);
        }
        suspect.asked = None;
        Ok(true)
    }

    /// Returns the next question that is due.
    pub(super) fn poll(&mut self, now: Instant, cookie: u64) -> Option<Body> {
        let due = |asked: &Asked| asked.again <= now;
        let (&block, suspect) =
            self.blocks.iter_mut().find(|(_, suspect)| suspect.asked.as_ref().is_some_and(due))?;
        let asked = suspect.asked.as_mut()?;
        asked.again = now + AGAIN.saturating_mul(1 << asked.tries.min(5));
        asked.tries += 1;
        Some(Body::FetchDigests { nonce: suspect.nonce, cookie, key: self.key, block })
    }

    /// Returns when a question is due, or is given up.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let asked = self.blocks.values().filter_map(|suspect| suspect.asked);
        asked.map(|asked| asked.again.min(asked.since + PATIENCE)).min()
    }

    /// Gives up questions that were not answered in time. Returns the blocks that wait for answers.
    pub(super) fn on_timeout(&mut self, now: Instant) -> Vec<u32> {
        let late = |asked: Asked| now.since(asked.since) >= PATIENCE;
        self.blocks.retain(|_, suspect| !suspect.ahead || !suspect.asked.is_some_and(late));
        let late = |suspect: &Suspect| suspect.asked.is_some_and(late);
        let given_up: Vec<u32> = self
            .blocks
            .iter()
            .filter(|(_, suspect)| late(suspect))
            .map(|(&block, _)| block)
            .collect();
        if !given_up.is_empty() {
            self.silent_until = Some(now + SILENCE);
        }
        for &block in &given_up {
            self.forget(block);
        }
        given_up
    }
}

impl Suspect {
    fn new(now: Instant, (nonce, key): (u64, SymbolKey), ahead: bool) -> Suspect {
        let asked = Some(Asked { since: now, again: now, tries: 0 });
        Suspect { nonce, key, symbols: None, digests: Vec::new(), asked, ahead, blamed: 0 }
    }

    /// Returns the digest of a symbol, once all digests are there.
    fn digest(&self, esi: u32) -> Option<SymbolDigest> {
        self.digests.get(esi as usize).copied().flatten().filter(|_| self.asked.is_none())
    }
}
