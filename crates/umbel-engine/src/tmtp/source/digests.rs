//! The source's answers to FETCH_DIGESTS.
//!
//! They take reading and encoding a block, and few packets. So they are paced by what sending the
//! block would take, at a part of the rate, but by no more than [`LONGEST`]: a slow feed is no
//! reason to leave receivers without an answer. Who asks for the same block is answered at once.
//!
//! In an open feed everybody is told what several hosts ask for (BLOCK_DIGESTS), signed as
//! heartbeats are. So an attack costs the same for a thousand receivers as for two. Who has lost
//! that asks again, and is answered alone, unless others ask again, too.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::repository::{SymbolDigest, SymbolKey};
use umbel_wire::tmtp::{BlockRun, Body, limits};

use super::Source;
use crate::Instant;
use crate::bounds::DIGESTS;
use crate::shares::Origin;
use crate::symbols::{BlockId, Load, SymbolSource};
use crate::tmtp::api::FEED;
use crate::tmtp::drops::DropReason;
use crate::tmtp::symbol_digests::{digest_of, watched};
use crate::tmtp::tree::Way;
use crate::units::Rate;

/// Share of the rate at which blocks are read for digests: one over this.
const SHARE: u32 = 2;
/// Longest time between two blocks that are read for digests. To encode what is watched of a block
/// takes a millisecond or two.
const LONGEST: Duration = Duration::from_millis(20);
/// Blocks from the next one on about which questions are answered before they are sent.
const AHEAD: u32 = 16;
/// Most answers to everybody that are remembered, and time after one in which no other answer about
/// the block follows: it is under way.
const MOST_TOLD: usize = 64;
const UNDER_WAY: Duration = Duration::from_millis(60);
/// Most questions about a block that are answered at once: each takes a digest of each symbol.
const MOST_AT_ONCE: usize = 16;

/// A receiver's question about a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) address: SocketAddr,
    pub(super) nonce: u64,
    pub(super) key: SymbolKey,
    pub(super) block: u32,
}

/// The questions that wait.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: VecDeque<Question>,
    /// Time before which none is answered.
    paced: Instant,
    /// Answers to everybody that are to be sent.
    for_all: VecDeque<Body>,
    /// Blocks about which everybody was told, and when.
    told: VecDeque<(u32, Instant)>,
}

impl Questions {
    /// Returns when the next one may be answered.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.paced)
    }

    /// Takes the questions about a block, at most so many as are answered at once.
    fn take(&mut self, block: u32) -> Vec<Question> {
        let mut taken = Vec::new();
        self.waiting.retain(|question| {
            let takes = question.block == block && taken.len() < MOST_AT_ONCE;
            if takes {
                taken.push(*question);
            }
            !takes
        });
        taken
    }

    /// Returns the next answer to everybody.
    pub(super) fn poll_for_all(&mut self) -> Option<Body> {
        self.for_all.pop_front()
    }

    fn note_told(&mut self, now: Instant, block: u32) {
        if self.told.len() >= MOST_TOLD {
            self.told.pop_front();
        }
        self.told.push_back((block, now));
    }

    /// Returns whether everybody was told about a block a moment ago.
    fn is_under_way(&self, now: Instant, block: u32) -> bool {
        self.told.iter().any(|&(told, at)| told == block && now.since(at) < UNDER_WAY)
    }

    fn ask(&mut self, question: Question) -> Result<(), DropReason> {
        let host = Origin::of(question.address.ip());
        if self.waiting.iter().any(|known| known.nonce == question.nonce) {
            return Err(DropReason::Duplicate);
        }
        let is_hosts = |known: &&Question| Origin::of(known.address.ip()) == host;
        let of_host = self.waiting.iter().filter(is_hosts).count();
        let share = host.places(DIGESTS.most_of_host());
        if self.waiting.len() >= DIGESTS.all || of_host >= share {
            return Err(DropReason::OverLimit);
        }
        self.waiting.push_back(question);
        Ok(())
    }
}

/// Returns the pause after so many bytes were read for digests.
fn pause(rate: Rate, bytes: u64) -> Duration {
    (rate.time_for(bytes) * SHARE).min(LONGEST)
}

impl<S: SymbolSource> Source<S> {
    /// Notes a question about a block that was sent, or will be soon.
    ///
    /// # Errors
    ///
    /// If it is not answered.
    pub(super) fn on_fetch_digests(
        &mut self,
        now: Instant,
        question: Question,
        cookie: u64,
    ) -> Result<(), DropReason> {
        let Question { address, nonce, block, .. } = question;
        if self.outbox.len() >= super::messages::MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let good = self.fetched.cookie(address);
        if cookie != good {
            self.outbox.push_back((Way::Host(address), Body::FetchCookie { nonce, cookie: good }));
            return Err(DropReason::NoCookie);
        }
        if block >= self.sent().saturating_add(AHEAD) {
            return Err(DropReason::AbsurdBlock);
        }
        if self.questions.is_under_way(now, block) {
            return Err(DropReason::Duplicate);
        }
        self.questions.ask(question)
    }

    /// Answers the question in line, and others about the same block, if its symbols are there.
    pub(super) fn answer_question(&mut self, now: Instant) {
        if self.waits.digests || self.questions.next().is_none_or(|at| at > now) {
            return;
        }
        let Some(&Question { address, nonce, block, .. }) = self.questions.waiting.front() else {
            return;
        };
        let Some(k) = self.shelf.len_of(block) else { return self.end_question(block) };
        let count = watched(k, self.config.shape.fec);
        let id = BlockId { toi: FEED, sbn: block };
        self.shelf.symbols.prefetch(id, 0..count);
        let mut symbols = Vec::new();
        for esi in 0..count {
            match self.shelf.symbols.symbol(id, esi) {
                Load::Ready(symbol) => symbols.push(symbol),
                Load::Pending => {
                    self.waits.digests = true;
                    return;
                }
                Load::Gone(_) => {
                    let runs = vec![BlockRun { first: block, count: 1 }];
                    self.outbox.push_back((Way::Host(address), Body::FetchGone { nonce, runs }));
                    return self.end_question(block);
                }
            }
        }
        let questions = self.questions.take(block);
        let several = questions.iter().any(|question| question.address.ip() != address.ip());
        if several && self.authentic.is_open() {
            self.answer_all(block, k, &symbols);
            self.questions.note_told(now, block);
        } else {
            for question in questions {
                self.answer(question, k, &symbols);
            }
        }
        let bytes = u64::from(count) * u64::from(self.config.shape.symbol_len);
        self.questions.paced = now + pause(self.pace.rate(), bytes);
        self.shelf.release_fetched(block);
    }

    /// Sends the digests of a block's symbols to who asked.
    fn answer(&mut self, question: Question, k: u8, symbols: &[Bytes]) {
        let Question { address, nonce, key, block } = question;
        for (first, digests) in parts(&key, block, symbols) {
            let body = Body::SymbolDigests { nonce, symbols: k, first, digests };
            self.outbox.push_back((Way::Host(address), body));
        }
    }

    /// Sends the digests of a block's symbols to everybody.
    fn answer_all(&mut self, block: u32, symbols: u8, contents: &[Bytes]) {
        let key = self.digest_key;
        for (first, digests) in parts(&key, block, contents) {
            let body = Body::BlockDigests { key, block, symbols, first, digests };
            self.questions.for_all.push_back(body);
        }
    }

    /// Goes on to the next question.
    fn end_question(&mut self, block: u32) {
        self.questions.waiting.pop_front();
        self.shelf.release_fetched(block);
    }
}

/// Returns the digests of a block's symbols in parts that fit into a message, each with the ID of
/// its first symbol.
fn parts(key: &SymbolKey, block: u32, symbols: &[Bytes]) -> Vec<(u8, Vec<SymbolDigest>)> {
    let numbered = (0..).zip(symbols);
    let digests: Vec<_> =
        numbered.map(|(esi, symbol)| digest_of(key, block, esi, symbol)).collect();
    let firsts = (0..).step_by(limits::SYMBOL_DIGESTS).map(|first: usize| first as u8);
    firsts.zip(digests.chunks(limits::SYMBOL_DIGESTS).map(<[_]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(host: u8, nonce: u64, block: u32) -> Question {
        let address = SocketAddr::from(([10, 0, 0, host], 7));
        Question { address, nonce, key: SymbolKey([1; 32]), block }
    }

    #[test]
    fn so_many_questions_about_a_block_are_answered_at_once_and_others_keep_their_turn() {
        let mut questions = Questions::default();
        let hosts = 2 * MOST_AT_ONCE as u8;
        for host in 0..hosts {
            questions.ask(question(host, host.into(), u32::from(host % 2))).unwrap();
        }
        for host in 0..4 {
            questions.ask(question(host, 100 + u64::from(host), 0)).unwrap();
        }
        let nonces = |taken: &[Question]| taken.iter().map(|one| one.nonce).collect::<Vec<_>>();
        let even: Vec<u64> = (0..hosts.into()).step_by(2).collect();
        assert_eq!(nonces(&questions.take(0)), even, "in their order, and no more");
        assert_eq!(nonces(&questions.take(0)), [100, 101, 102, 103]);
        assert_eq!(questions.take(1).len(), MOST_AT_ONCE);
        assert!(questions.waiting.is_empty());
    }

    #[test]
    fn a_host_that_asks_without_end_leaves_others_their_turn() {
        let mut questions = Questions::default();
        let asked = (0..10 * DIGESTS.all as u64)
            .filter(|&nonce| questions.ask(question(1, nonce, 0)).is_ok());
        assert_eq!(asked.count(), DIGESTS.most_of_host());
        assert_eq!(questions.ask(question(2, u64::MAX, 1)), Ok(()));
        assert_eq!(questions.take(1).len(), 1);
    }

    #[test]
    fn a_slow_feed_is_no_reason_to_wait_long_for_digests() {
        let rate = |bits_per_s| Rate::from_bits_per_s(bits_per_s).unwrap();
        let block = 112 * 1_368;
        assert_eq!(pause(rate(10_000_000), block), LONGEST);
        let millisecond = Duration::from_millis(1);
        let at_gigabit = pause(rate(1_000_000_000), block);
        assert!(at_gigabit > 2 * millisecond && at_gigabit < 3 * millisecond, "{at_gigabit:?}");
    }
}
