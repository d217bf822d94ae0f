//! The nodes that a child asks next, if the one that it asks does not answer.

use super::search::{CANDIDATES, Candidate};
use crate::tmtp::DropReason;

/// Requests to a node without an answer after which another has its turn, if one is known.
const PATIENCE: u8 = 2;

/// Nodes to ask next.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// The best last.
    candidates: Vec<Candidate>,
    /// Nonce of the search of the subnet that they answer. More answers may come.
    search: Option<u64>,
}

impl Others {
    /// Creates the others of a search that has ended, the best last.
    pub(super) fn ranked(candidates: Vec<Candidate>) -> Others {
        Others { candidates, search: None }
    }

    /// Creates those of a search of the subnet, whose first answer was taken.
    pub(super) fn of_subnet(nonce: u64) -> Others {
        Others { candidates: Vec::new(), search: Some(nonce) }
    }

    /// Returns the nonce of the search to which more answers may come.
    pub(super) fn search(&self) -> Option<u64> {
        self.search
    }

    /// Adds a node that has answered the search, to be asked last.
    pub(super) fn add(&mut self, candidate: Candidate) -> Result<(), DropReason> {
        if self.candidates.len() >= CANDIDATES {
            return Err(DropReason::OverLimit);
        }
        if self.candidates.iter().all(|other| other.address != candidate.address) {
            self.candidates.insert(0, candidate);
        }
        Ok(())
    }

    /// Returns the nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter()
    }

    /// Takes the node that is asked next.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        self.candidates.pop()
    }

    /// Returns whether another of the subnet has its turn, after so many requests to one without an
    /// answer. Nodes farther away have all their tries: packets are lost on longer ways more often.
    pub(super) fn have_their_turn(&self, tries: u8) -> bool {
        tries >= PATIENCE && self.search.is_some() && !self.candidates.is_empty()
    }

    /// Returns whether the subnet is searched once more with the last of so many requests.
    pub(super) fn are_searched_again(&self, tries: u8) -> bool {
        tries == PATIENCE + 1 && self.search.is_some()
    }

    /// Returns whether who answers now has its turn at once.
    pub(super) fn have_their_turn_at_once(&self, tries: u8) -> bool {
        tries > PATIENCE && self.search.is_some()
    }
}
