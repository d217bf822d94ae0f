//! Improvement of the tree while it stands: a manager looks for a parent nearer to the source.
//!
//! A tree keeps the shape in which it grew. Late nodes found only deep nodes with room, and those
//! that joined them stand deeper still. So a manager with a parent searches from time to time for
//! one that stands at least two levels above itself.
//!
//! ```text
//!  rests ──pause──▶ searches a ring, for nodes less deep than its parent
//!    ▲                 │ nobody: next the whole scope, and longer pauses each time
//!    │                 ▼
//!    ├── no answer, ── asks the least deep of them, then the closest
//!    │   or refused    │
//!    │                 ▼ JOIN_CONFIRM
//!    └── the new one is its parent; the former one is left when its blocks have come
//! ```
//!
//! The former parent keeps its promises until it is left: no block is without a guarantor. The
//! rules that keep loops out of the tree hold for the new parent as for a first one.
//!
//! Only nodes answer that would be better parents, so a tree that is good as it is answers nothing.
//! The pauses then grow to [`TreeConfig::improve_max`](crate::tmtp::TreeConfig::improve_max).

use std::net::SocketAddr;

use rand_core::Rng;
use umbel_wire::tmtp::{Body, JoinConfirm, NodeId, Role};

use super::search::{CANDIDATES, Candidate, Stage};
use super::{Arrival, Due, Tree, Way};
use crate::Instant;
use crate::chance::uniform;
use crate::tmtp::DropReason;

/// Levels by which a new parent stands above the node at least: one more than any parent.
const LEVELS: usize = 2;

/// A manager's search for a better parent.
#[derive(Clone, Debug, Default)]
pub(super) struct Improvement {
    quest: Quest,
    /// Time at which it goes on; `None` while there is nothing to improve.
    at: Option<Instant>,
    /// Number of searches in a row that found nobody.
    in_vain: u32,
    /// Block before which all are held, and the block after the last one known to be sent.
    held: u32,
    known: u32,
    /// Value of `known` when the pause began.
    known_before: u32,
    former: Option<Former>,
}

#[derive(Clone, Debug, Default)]
enum Quest {
    #[default]
    Resting,
    /// Searches a ring.
    Searching { nonce: u64, hop_limit: u8, candidates: Vec<Candidate> },
    /// Has asked a node to be its parent.
    Asking { candidate: Candidate, nonce: u64, tries: u8, others: Vec<Candidate> },
}

/// The parent before the present one, as long as it is not left.
#[derive(Clone, Copy, Debug)]
struct Former {
    address: SocketAddr,
    token: u64,
    /// First block that the new parent guarantees.
    before: u32,
    /// Nonce of the LEAVE_TREE.
    nonce: u64,
    /// Times that it was sent.
    tries: u8,
    /// Time at which it is sent, for the first time at the latest or again.
    at: Instant,
}

impl Improvement {
    /// Returns when there is something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        let leaves = self.former.map(|former| former.at);
        [self.at, leaves].into_iter().flatten().min()
    }

    /// Ends the search.
    pub(super) fn stop(&mut self) {
        (self.quest, self.at, self.in_vain) = (Quest::Resting, None, 0);
    }

    /// Returns the nonce and the hop limit of the search under way.
    pub(super) fn searching(&self) -> Option<(u64, u8)> {
        match &self.quest {
            Quest::Searching { nonce, hop_limit, .. } => Some((*nonce, *hop_limit)),
            _ => None,
        }
    }

    /// Adds a node that answered the search.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub(super) fn add(&mut self, candidate: Candidate) -> Result<(), DropReason> {
        let Quest::Searching { candidates, .. } = &mut self.quest else { return Ok(()) };
        if candidates.len() >= CANDIDATES {
            return Err(DropReason::OverLimit);
        }
        if candidates.iter().all(|other| other.address != candidate.address) {
            candidates.push(candidate);
        }
        Ok(())
    }

    /// Returns the node that was asked, if this message is its answer.
    pub(super) fn asked(&self, from: SocketAddr, sender: NodeId, nonce: u64) -> Option<Candidate> {
        match &self.quest {
            Quest::Asking { candidate, nonce: asked, .. }
                if candidate.is(from, sender) && *asked == nonce =>
            {
                Some(*candidate)
            }
            _ => None,
        }
    }

    /// Returns whether the former parent has this address.
    pub(super) fn is_former(&self, address: SocketAddr) -> bool {
        self.former.is_some_and(|former| former.address == address)
    }
}

impl Tree {
    /// Notes before which block this node holds all, and before which all were sent.
    pub(in crate::tmtp) fn note_progress(&mut self, held: u32, known: u32) {
        (self.improvement.held, self.improvement.known) = (held, known);
    }

    /// Returns whether a better parent could be found. A node that is behind stays, since its
    /// parent waits for it, or gives it up.
    fn is_improvable(&self) -> bool {
        self.role == Role::Manager
            && self.improvement.held >= self.improvement.known_before
            && matches!(self.stage, Stage::Attached(_))
            && !self.departure.is_retiring()
            && !self.flat
            && self.is_attached()
            && self.improvement.former.is_none()
    }

    /// Looks for a better parent after a pause, which is longer each time if none was found.
    pub(super) fn improve_later(&mut self, now: Instant) {
        self.improvement.quest = Quest::Resting;
        let Some(pause) = self.config.improve_every.filter(|_| self.role == Role::Manager) else {
            return;
        };
        self.improvement.known_before = self.improvement.known;
        // The second search, which is in the whole scope, is soon.
        let times = 1_u32 << self.improvement.in_vain.saturating_sub(1).min(16);
        let pause = pause.saturating_mul(times).min(self.config.improve_max.max(pause));
        self.improvement.at = Some(now + pause.mul_f64(1.0 + uniform(&mut self.random)));
    }

    /// Looks for a better parent soon, since the node stands deeper than before.
    pub(super) fn improve_soon(&mut self, now: Instant) {
        if matches!(self.improvement.quest, Quest::Resting) && self.improvement.at.is_some() {
            self.improvement.in_vain = 0;
            self.improve_later(now);
        }
    }

    pub(super) fn on_improve_timer(&mut self, now: Instant) {
        if self.improvement.former.is_some_and(|former| former.at <= now) {
            self.leave_former(now);
        }
        if self.improvement.at.is_none_or(|at| at > now) {
            return;
        }
        self.improvement.at = None;
        if !self.is_improvable() {
            return self.improve_later(now);
        }
        match std::mem::take(&mut self.improvement.quest) {
            Quest::Resting => self.search_better(now),
            Quest::Searching { mut candidates, .. } => {
                // The best is last.
                candidates
                    .sort_by_key(|c| std::cmp::Reverse((c.depth, c.hops, c.children, c.draw)));
                self.ask_better(now, candidates);
            }
            Quest::Asking { candidate, nonce, tries, others } if tries < self.config.tries => {
                self.ask(now, candidate, nonce, tries, others);
            }
            Quest::Asking { candidate, others, .. } => {
                if candidate.address != self.source.address() {
                    self.bars.bar(now, candidate.address);
                }
                self.ask_better(now, others);
            }
        }
    }

    /// Searches: first twice as far as the parent is, then in the whole scope.
    fn search_better(&mut self, now: Instant) {
        let depth = self.path.len() - 1;
        if depth < LEVELS {
            return self.improve_later(now);
        }
        let near = self.parent().map_or(self.scope, |parent| parent.hops.saturating_mul(2));
        let reach = if self.improvement.in_vain == 0 { near.min(self.scope) } else { self.scope };
        let rings = (0..).map_while(|ring| self.ring(ring));
        let hop_limit = rings.into_iter().find(|ring| *ring >= reach).unwrap_or(self.scope);
        let nonce = self.random.next_u64();
        let less_deep_than = u16::try_from(depth + 1 - LEVELS).ok();
        self.send_search(nonce, hop_limit, Role::Manager, less_deep_than);
        let candidates = Vec::new();
        self.improvement.quest = Quest::Searching { nonce, hop_limit, candidates };
        self.improvement.at = Some(now + self.config.ring_wait);
    }

    /// Asks the last of these nodes, or rests if there is none.
    fn ask_better(&mut self, now: Instant, mut others: Vec<Candidate>) {
        if let Some(candidate) = others.pop() {
            let nonce = self.random.next_u64();
            self.ask(now, candidate, nonce, 0, others);
        } else {
            self.improvement.in_vain = self.improvement.in_vain.saturating_add(1);
            self.improve_later(now);
        }
    }

    fn ask(
        &mut self,
        now: Instant,
        candidate: Candidate,
        nonce: u64,
        tries: u8,
        others: Vec<Candidate>,
    ) {
        self.send_join_request(candidate, nonce);
        let wait = self.config.retry * (1 << tries.min(8));
        let tries = tries + 1;
        self.improvement.quest = Quest::Asking { candidate, nonce, tries, others };
        self.improvement.at = Some(now + wait);
    }

    /// Handles that the node that was asked refuses.
    pub(super) fn on_better_refused(&mut self, now: Instant) {
        if let Quest::Asking { others, .. } = std::mem::take(&mut self.improvement.quest) {
            self.ask_better(now, others);
        }
    }

    /// Changes the parent, if the new one is still better.
    pub(super) fn on_better(
        &mut self,
        now: Instant,
        arrival: Arrival,
        candidate: Candidate,
        (sender, confirm): (NodeId, &JoinConfirm),
    ) -> Result<(), DropReason> {
        let beacon = &confirm.beacon;
        let hops = Tree::hops(arrival, beacon.hop_limit)?.unwrap_or(candidate.hops);
        let is_better = self.is_improvable() && beacon.path.len() + LEVELS <= self.path.len();
        let may_be = self.check_candidate(now, candidate.address, beacon.standing).is_ok()
            && self.check_path(&beacon.path).is_ok();
        let Some(former) = self.parent().cloned().filter(|_| is_better && may_be) else {
            let nonce = self.random.next_u64();
            let leave = Body::LeaveTree { token: confirm.token, nonce };
            self.due.push_back(Due::Ready(Way::Host(candidate.address), leave));
            self.on_better_refused(now);
            return Ok(());
        };
        self.improvement.former = Some(Former {
            address: former.address,
            token: former.token,
            before: confirm.from,
            nonce: self.random.next_u64(),
            tries: 0,
            at: now + self.config.leave_wait,
        });
        self.improvement.in_vain = 0;
        self.attach(now, candidate, hops, (sender, confirm));
        Ok(())
    }

    /// Returns the block before which all must have come before the former parent is left.
    pub(in crate::tmtp) fn needs_former_before(&self) -> Option<u32> {
        self.improvement.former.filter(|former| former.tries == 0).map(|former| former.before)
    }

    /// Returns whether this was the parent until lately.
    pub(in crate::tmtp) fn is_former(&self, address: SocketAddr) -> bool {
        self.improvement.is_former(address)
    }

    /// Sends LEAVE_TREE to the former parent, for the first time or again.
    pub(in crate::tmtp) fn leave_former(&mut self, now: Instant) {
        let Some(former) = &mut self.improvement.former else { return };
        if former.tries >= self.config.tries {
            self.improvement.former = None;
            return;
        }
        former.at = now + self.config.retry * (1 << former.tries.min(8));
        former.tries += 1;
        let (address, leave) =
            (former.address, Body::LeaveTree { token: former.token, nonce: former.nonce });
        self.due.push_back(Due::Ready(Way::Host(address), leave));
    }

    /// Handles that the former parent has let this node go. Returns whether it was the former one.
    pub(super) fn on_former_left(&mut self, from: SocketAddr, nonce: u64) -> bool {
        let is_it = |former: &mut Former| (former.address, former.nonce) == (from, nonce);
        self.improvement.former.take_if(is_it).is_some()
    }

    /// Handles that the former parent leaves or dismisses this node. Returns whether it is the
    /// former one.
    pub(super) fn on_former_goes(&mut self, now: Instant, from: SocketAddr, token: u64) -> bool {
        let is_it = |former: &Former| (former.address, former.token) == (from, token);
        let is_former = self.improvement.former.as_ref().is_some_and(is_it);
        if is_former {
            self.leave_former(now);
        }
        is_former
    }
}
