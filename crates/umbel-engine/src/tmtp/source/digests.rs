//! The source's answers to FETCH_DIGESTS.
//!
//! They take reading and encoding a block, and few packets. So they are paced by what sending the
//! block would take, at a part of the rate.

use std::collections::VecDeque;
use std::net::SocketAddr;

use umbel_wire::repository::SymbolKey;
use umbel_wire::tmtp::{BlockRun, Body, limits};

use super::Source;
use crate::Instant;
use crate::symbols::{BlockId, Load, SymbolSource};
use crate::tmtp::api::FEED;
use crate::tmtp::drops::DropReason;
use crate::tmtp::symbol_digests::{digest_of, watched};
use crate::tmtp::tree::Way;

/// Most questions that may wait, and of one host.
const MOST_ASKED: usize = 1024;
const MOST_OF_HOST: usize = 64;
/// Share of the rate at which blocks are read for digests: one over this.
const SHARE: u32 = 2;

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
}

impl Questions {
    /// Returns when the next one may be answered.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.paced)
    }

    fn ask(&mut self, question: Question) -> Result<(), DropReason> {
        let host = question.address.ip();
        if self.waiting.iter().any(|known| known.nonce == question.nonce) {
            return Err(DropReason::Duplicate);
        }
        let of_host = self.waiting.iter().filter(|known| known.address.ip() == host).count();
        if self.waiting.len() >= MOST_ASKED || of_host >= MOST_OF_HOST {
            return Err(DropReason::OverLimit);
        }
        self.waiting.push_back(question);
        Ok(())
    }
}

impl<S: SymbolSource> Source<S> {
    /// Notes a question about a block that was sent, or is being sent.
    ///
    /// # Errors
    ///
    /// If it is not answered.
    pub(super) fn on_fetch_digests(
        &mut self,
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
        let under_way = u32::from(self.next.1 > 0);
        if block >= self.sent() + under_way {
            return Err(DropReason::AbsurdBlock);
        }
        self.questions.ask(question)
    }

    /// Answers the question in line if its symbols are there.
    pub(super) fn answer_question(&mut self, now: Instant) {
        if self.waits.digests || self.questions.next().is_none_or(|at| at > now) {
            return;
        }
        let Some(&Question { address, nonce, key, block }) = self.questions.waiting.front() else {
            return;
        };
        let Some(k) = self.shelf.len_of(block) else { return self.end_question(block) };
        let count = watched(k, self.config.shape.fec);
        let id = BlockId { toi: FEED, sbn: block };
        self.shelf.symbols.prefetch(id, 0..count);
        let mut digests = Vec::new();
        for esi in 0..count {
            match self.shelf.symbols.symbol(id, esi) {
                Load::Ready(symbol) => digests.push(digest_of(&key, block, esi, &symbol)),
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
        let mut first = 0;
        for part in digests.chunks(limits::SYMBOL_DIGESTS) {
            let digests = part.to_vec();
            let body = Body::SymbolDigests { nonce, symbols: k, first, digests };
            self.outbox.push_back((Way::Host(address), body));
            first += part.len() as u8;
        }
        let bytes = u64::from(count) * u64::from(self.config.shape.symbol_len);
        self.questions.paced = now + self.throttle.rate().time_for(bytes) * SHARE;
        self.end_question(block);
    }

    /// Goes on to the next question.
    fn end_question(&mut self, block: u32) {
        self.questions.waiting.pop_front();
        self.shelf.release_fetched(block);
    }
}
