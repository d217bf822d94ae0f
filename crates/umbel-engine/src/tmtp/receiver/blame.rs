//! What a receiver does about a wrong block: which of its symbols are to blame is found by the
//! source's digests, those are dropped, and the rest is kept.
//!
//! It stands apart from [`suspects`](super::suspects), which have the digests, since delivery and
//! recovery are concerned as well.

use umbel_wire::repository::{SymbolDigest, SymbolKey};
use umbel_wire::tmtp::NackRun;

use super::{Manager, Receiver};
use crate::Instant;
use crate::symbols::SymbolSink;
use crate::tmtp::api::ReceiverEvent;
use crate::tmtp::drops::DropReason;

/// Blocks that are asked for before they come, from the one on that is being sent.
const AHEAD: u32 = 8;

impl<K: SymbolSink> Receiver<K> {
    /// Asks for the digests of a block that was wrong for the first time, and for its symbols only
    /// once these are there. Returns `false` if it does not, so that the block comes as a whole.
    pub(super) fn blame(&mut self, now: Instant, block: u32) -> bool {
        let first_time = self.recovery.was_wrong_once(block);
        if !first_time || block < self.floor() || block >= self.delivery.guarantee() {
            self.suspects.forget(block);
            return false;
        }
        let nonce = self.recovery.draw_nonce();
        self.suspects.suspect(now, block, nonce)
    }

    /// Asks for the digests of the next blocks after one was wrong. The source has those of files.
    pub(super) fn look_ahead(&mut self, now: Instant) {
        if self.config.shape.manifest.is_none() || !self.wariness.is_wary(now) {
            return;
        }
        let next = self.delivery.known();
        self.suspects.forget_expected(self.delivery.reception().first_gap(self.floor()).min(next));
        for block in next..next.saturating_add(AHEAD) {
            if !self.delivery.reception().is_complete(block) && self.suspects.may_expect(now, block)
            {
                let nonce = self.recovery.draw_nonce();
                self.suspects.expect(now, block, nonce);
            }
        }
    }

    /// Takes digests from the source. Once all of a block are there, keeps what is held of it and
    /// right, and asks for the rest.
    ///
    /// # Errors
    ///
    /// If they are not those that were asked for.
    pub(super) fn on_digests(
        &mut self,
        now: Instant,
        nonce: u64,
        (symbols, first): (u8, u8),
        digests: &[SymbolDigest],
    ) -> Result<(), DropReason> {
        let block = self.suspects.asked_with(nonce).ok_or(DropReason::NotAsked)?;
        let key = self.suspects.own_key();
        self.learn_digests(now, (block, key), (symbols, first), digests)
    }

    /// Takes digests that the source tells everybody, of a block that is asked for, or that this
    /// receiver would ask for soon.
    ///
    /// # Errors
    ///
    /// If they contradict what is known.
    pub(super) fn on_block_digests(
        &mut self,
        now: Instant,
        (block, key): (u32, SymbolKey),
        shape: (u8, u8),
        digests: &[SymbolDigest],
    ) -> Result<(), DropReason> {
        let next = self.delivery.known();
        let soon = (next..next.saturating_add(AHEAD)).contains(&block);
        if soon && self.wariness.is_wary(now) && self.suspects.may_expect(now, block) {
            let nonce = self.recovery.draw_nonce();
            self.suspects.expect(now, block, nonce);
        }
        if !self.suspects.is_waiting_for(block) {
            return Ok(());
        }
        self.learn_digests(now, (block, key), shape, digests)
    }

    /// Takes digests with their key, of a block that waits for them.
    fn learn_digests(
        &mut self,
        now: Instant,
        (block, key): (u32, SymbolKey),
        (symbols, first): (u8, u8),
        digests: &[SymbolDigest],
    ) -> Result<(), DropReason> {
        let known = self.delivery.source_symbols(block);
        if symbols > self.config.shape.block_symbols || known.is_some_and(|k| k != symbols) {
            return Err(DropReason::AbsurdBlock);
        }
        if !self.suspects.take((block, key), symbols, first, digests)? {
            return Ok(());
        }
        if self.suspects.is_expected(block) && !self.delivery.reception().is_part(block) {
            return Ok(());
        }
        let manager = self.duty.manager_mut().filter(|manager| manager.keeps(block));
        let buffer = manager.map(Manager::buffer_mut);
        let buffer = buffer.or_else(|| self.help.as_mut()?.keeps(block, symbols));
        let suspects = &self.suspects;
        let is_right = |esi: u32, symbol: &[u8]| suspects.is_right(block, esi, symbol);
        self.delivery.keep_right((block, symbols), is_right, buffer);
        if block < self.delivery.known() {
            self.ask_for(now, block);
        }
        Ok(())
    }

    /// Notes that the parent was asked for these blocks.
    pub(super) fn note_asked(&mut self, now: Instant, runs: &[NackRun]) {
        if self.suspects.watches_any(runs) {
            let timing = self.timing();
            self.trial.on_asked(now, timing.t_ack * u32::from(timing.intervals));
        }
    }

    /// Notes what a repair that should be the parent's was worth. The source is not tried: whoever
    /// forges its address is no reason to leave it.
    pub(super) fn try_parent(&mut self, judged: Result<bool, DropReason>) {
        let has_tree = self.config.node.recovery.has_tree();
        if !has_tree || self.is_child_of_source() {
            return;
        }
        match judged {
            Ok(true) => self.trial.on_repair(true),
            Err(DropReason::ForgedSymbol) => self.trial.on_repair(false),
            Ok(false) | Err(_) => {}
        }
    }

    /// Leaves a parent that was asked again and again, and brought nothing but wrong symbols.
    /// Returns whether there was one.
    pub(super) fn leave_liar(&mut self, now: Instant) -> bool {
        let left = self.trial.is_guilty().then(|| self.tree.leave_liar(now)).flatten();
        self.events.extend(left.map(|by| ReceiverEvent::WrongRepairs { by }));
        left.is_some()
    }

    /// Takes blocks as they come whose digests did not.
    pub(super) fn give_up_digests(&mut self, now: Instant) {
        for block in self.suspects.on_timeout(now) {
            self.delivery.forget(block);
            self.ask_for(now, block);
        }
    }

    /// Asks for a block that was wrong.
    fn ask_for(&mut self, now: Instant, block: u32) {
        if block >= self.floor() {
            self.recovery.reopen(now, block);
        }
        self.find_gaps(now);
    }
}
