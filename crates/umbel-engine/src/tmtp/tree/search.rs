//! A child's side of joining: algorithm (A) of [TMTP Fig. 2].

use std::net::SocketAddr;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::tmtp::{
    Beacon, Body, JoinConfirm, JoinRequest, NodeId, Refusal, Role, Search, Standing, Willing,
    limits,
};

use super::others::Others;
use super::parent::{Failure, Parent};
use super::pauses::Pauses;
use super::{Arrival, Due, Tree, TreeEvent, UNICAST_HOPS, Way};
use crate::Instant;
use crate::chance::uniform;
use crate::tmtp::DropReason;

/// Most answers to a search that are kept.
pub(super) const CANDIDATES: usize = 32;

/// A node's progress towards a parent and away from it.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Not in the tree.
    Outside,
    /// Searches its own subnet for a manager.
    Subnet {
        /// Nonce of the search.
        nonce: u64,
        /// Searches sent.
        tries: u8,
    },
    /// Searches a ring, as a manager.
    Ring {
        /// Nonce of the search.
        nonce: u64,
        /// Index of the ring.
        ring: usize,
        /// Nodes that answered.
        candidates: Vec<Candidate>,
    },
    /// Found no parent, and searches again later.
    Waiting,
    /// Has asked a node to be its parent.
    Joining {
        /// Node that was asked.
        candidate: Candidate,
        /// Time of the first request.
        since: Instant,
        /// Nodes to ask next.
        others: Others,
    },
    /// Has a parent.
    Attached(Parent),
    /// Leaves, and waits for its children to find other parents.
    Dissolving {
        /// Parent of this node.
        parent: Option<Parent>,
        /// Nonce of the FIND_NEW_PARENT.
        nonce: u64,
        /// Time after which the children are asked again.
        retry: Duration,
        /// Time at which the children are given up.
        until: Instant,
    },
    /// Has sent LEAVE_TREE.
    Leaving {
        /// Address of the parent.
        parent: SocketAddr,
        /// Token with which this node proves itself.
        token: u64,
        /// Nonce of the LEAVE_TREE.
        nonce: u64,
        /// Times that it was sent.
        tries: u8,
    },
    /// Was in the tree.
    Left,
}

/// A node that may become the parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Number of the node; `None` for a source that was not heard.
    pub(super) id: Option<NodeId>,
    pub(super) address: SocketAddr,
    pub(super) hops: u8,
    /// Edges of the tree from the source. Of nodes equally far the one nearest to the root is
    /// taken, so that the tree does not become a chain.
    pub(super) depth: u16,
    /// Managers among the node's children.
    pub(super) children: u16,
    /// Random number that decides between equals.
    pub(super) draw: u64,
    pub(super) asked: Asked,
}

/// What was asked of a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Nonce of the requests, once there is one.
    pub(super) nonce: Option<u64>,
    /// Requests sent since it was found, or since its challenge.
    pub(super) tries: u8,
    /// First wait for the confirmation, once it has answered with a challenge.
    pub(super) challenged: Option<Duration>,
}

impl Candidate {
    /// Returns whether a message from this address and sender can be its own.
    pub(super) fn is(&self, from: SocketAddr, sender: NodeId) -> bool {
        self.address == from && self.id.is_none_or(|id| id == sender)
    }

    /// Returns whether a message with this nonce, from this address and sender, is its answer to a
    /// request.
    fn has_answered(&self, from: SocketAddr, sender: NodeId, nonce: u64) -> bool {
        self.is(from, sender) && self.asked.nonce == Some(nonce)
    }
}

impl Tree {
    /// Begins to look for a parent, unless this node has one or looks already.
    pub(in crate::tmtp) fn join(&mut self, now: Instant) {
        if self.role != Role::Source && matches!(self.stage, Stage::Outside | Stage::Left) {
            self.departure.call_off();
            self.search(now);
        }
    }

    /// Searches from the beginning: a member the subnet, a manager the rings.
    pub(super) fn search(&mut self, now: Instant) {
        self.path.clear();
        self.improvement.stop();
        if !self.election.has_managed() {
            // No node has this one as its parent, so it may stand anywhere.
            self.standing = Standing::default();
        }
        if self.flat || self.by_unicast {
            let source = self.source_candidate();
            self.request(now, source, Others::default());
        } else if self.role == Role::Manager {
            let nonce = self.random.next_u64();
            self.search_ring(now, nonce, 0);
        } else {
            self.search_subnet(now, 1);
        }
    }

    fn search_subnet(&mut self, now: Instant, tries: u8) {
        let nonce = self.random.next_u64();
        self.send_search(nonce, 1, Role::Member, None);
        self.stage = Stage::Subnet { nonce, tries };
        let wait = self.config.subnet_wait.mul_f64(1.0 + uniform(&mut self.random));
        self.stage_timer = Some(now + wait);
    }

    /// Searches a ring. All rings of a search have one nonce, so that an answer that takes longer
    /// than a ring's time counts in the next.
    fn search_ring(&mut self, now: Instant, nonce: u64, ring: usize) {
        let Some(hop_limit) = self.ring(ring) else {
            // A bar prefers others. If there are none, packets may just have been lost.
            self.bars.clear();
            self.liars.clear();
            return self.on_nobody(now);
        };
        self.send_search(nonce, hop_limit, Role::Manager, None);
        self.stage = Stage::Ring { nonce, ring, candidates: Vec::new() };
        self.stage_timer = Some(now + self.config.ring_wait);
    }

    /// Returns the hop limit of a ring: those within the scope, and last the scope.
    pub(super) fn ring(&self, ring: usize) -> Option<u8> {
        let before = ring.checked_sub(1).map_or(Some(0), |before| self.ring(before))?;
        let next = self.config.rings.get(ring).copied().unwrap_or(self.scope).min(self.scope);
        (next > before).then_some(next)
    }

    fn on_nobody(&mut self, now: Instant) {
        self.stage = Stage::Waiting;
        // Nodes that were refused at once do not come back at once.
        let (pause, refusal) = self.pauses.end(&self.config);
        self.stage_timer = Some(now + pause.mul_f64(0.5 + uniform(&mut self.random)));
        if let Some(refusal) = refusal {
            self.events.push_back(TreeEvent::Refused(refusal));
        }
    }

    pub(super) fn send_search(
        &mut self,
        nonce: u64,
        hop_limit: u8,
        role: Role,
        less_deep_than: Option<u16>,
    ) {
        let search = Search { nonce, hop_limit, port: self.port, role, less_deep_than };
        self.due.push_back(Due::Ready(Way::Domain { hop_limit }, Body::Search(search)));
    }

    pub(super) fn on_willing(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        willing: Willing,
    ) -> Result<(), DropReason> {
        let (asked, reach) = match &self.stage {
            Stage::Subnet { nonce, .. } => (*nonce, 1),
            Stage::Ring { nonce, ring, .. } => (*nonce, self.ring(*ring).unwrap_or(self.scope)),
            Stage::Joining { others, .. } => (others.search().ok_or(DropReason::NotAsked)?, 1),
            Stage::Attached(_) => self.improvement.searching().ok_or(DropReason::NotAsked)?,
            _ => return Err(DropReason::NotAsked),
        };
        if asked != willing.nonce {
            return Err(DropReason::NotAsked);
        }
        // A node that heard the search is within its ring, whatever it says. The way back may be
        // longer.
        let farthest = reach.saturating_add(self.config.hop_slack);
        let hops = Tree::hops(arrival, willing.hop_limit)?.unwrap_or(reach);
        if hops > farthest {
            return Err(DropReason::AbsurdHops);
        }
        let improves = matches!(self.stage, Stage::Attached(_));
        if improves && !willing.standing.may_be_above(self.standing) {
            // This node has later news of the source. The other has them soon.
            return Ok(());
        }
        self.check_candidate(now, arrival.from, willing.standing)?;
        let candidate = Candidate {
            id: Some(sender),
            address: arrival.from,
            hops,
            depth: willing.standing.depth,
            children: willing.children,
            draw: self.random.next_u64(),
            asked: Asked::default(),
        };
        match &mut self.stage {
            Stage::Attached(_) => self.improvement.add(candidate)?,
            // The first that answered is asked. It may be nobody's parent.
            Stage::Joining { candidate: first, others, .. } => {
                if first.address != candidate.address {
                    others.add(candidate)?;
                    if others.have_their_turn_at_once(first.asked.tries) {
                        self.ask_others(now);
                    }
                }
            }
            Stage::Ring { candidates, .. } => {
                if candidates.len() >= CANDIDATES {
                    return Err(DropReason::OverLimit);
                }
                if candidates.iter().all(|other| other.address != candidate.address) {
                    candidates.push(candidate);
                }
            }
            // A node that answers within the subnet is its manager, or the source.
            _ => self.request(now, candidate, Others::of_subnet(asked)),
        }
        Ok(())
    }

    /// Returns whether the node at this address is avoided at present. The source is no liar,
    /// whatever another program on its host does.
    pub(super) fn is_barred(&self, now: Instant, address: SocketAddr) -> bool {
        let is_source = address == self.source.address();
        if is_source && (self.by_unicast || self.flat) {
            // It was not heard by multicast, which is no fault of its own; or there is no other.
            return false;
        }
        let is_liar = !is_source && self.liars.is_barred(now, address.ip());
        is_liar || self.bars.is_barred(now, address)
    }

    pub(super) fn check_candidate(
        &self,
        now: Instant,
        address: SocketAddr,
        standing: Standing,
    ) -> Result<(), DropReason> {
        if self.is_barred(now, address) {
            return Err(DropReason::Barred);
        }
        if standing.depth == 0 && address != self.source.address() {
            return Err(DropReason::ForgedSource);
        }
        self.source.check_epoch(now, standing.epoch)?;
        if !standing.may_be_above(self.standing) || usize::from(standing.depth) + 1 >= limits::PATH
        {
            return Err(DropReason::Loop);
        }
        Ok(())
    }

    pub(super) fn request(&mut self, now: Instant, candidate: Candidate, others: Others) {
        self.stage = Stage::Joining { candidate, since: now, others };
        self.send_request(now);
    }

    /// Notes that the node that is asked has answered with a challenge. The second exchange has as
    /// many tries as the first, and begins with the wait that the first one has shown to suffice.
    /// That happens once for each node that is asked, so that none holds this one up by challenges.
    pub(in crate::tmtp) fn on_challenged(&mut self, now: Instant, by: SocketAddr, nonce: u64) {
        let Stage::Joining { candidate, since, .. } = &mut self.stage else { return };
        let is_its = (candidate.address, candidate.asked.nonce) == (by, Some(nonce));
        if !is_its || candidate.asked.challenged.is_some() {
            return;
        }
        let wait = (now.since(*since) * 2).max(self.config.subnet_wait).min(self.config.retry);
        (candidate.asked.tries, candidate.asked.challenged) = (0, Some(wait));
        self.stage_timer = Some(now + wait);
    }

    /// Sends the JOIN_REQUEST, for the first time or again.
    fn send_request(&mut self, now: Instant) {
        let Stage::Joining { candidate, others, .. } = &mut self.stage else { return };
        let nonce = *candidate.asked.nonce.get_or_insert_with(|| self.random.next_u64());
        // Within the subnet an answer takes no longer than one to a search.
        let usual = if candidate.hops <= 1 { self.config.subnet_wait } else { self.config.retry };
        let first = candidate.asked.challenged.unwrap_or(usual);
        let wait = first * (1 << candidate.asked.tries.min(8));
        candidate.asked.tries += 1;
        let candidate = *candidate;
        // The answers of others may have been lost.
        let again = others.search().filter(|_| others.are_searched_again(candidate.asked.tries));
        self.send_join_request(candidate, nonce);
        if let Some(search) = again {
            self.send_search(search, 1, Role::Member, None);
        }
        self.stage_timer = Some(now + wait);
    }

    pub(super) fn send_join_request(&mut self, candidate: Candidate, nonce: u64) {
        let request = JoinRequest {
            nonce,
            hop_limit: UNICAST_HOPS,
            hops: candidate.hops,
            role: self.role,
            standing: self.standing,
            name: self.name.clone(),
            parent: candidate.id.filter(|_| self.names_parent),
            by_unicast: self.by_unicast,
        };
        self.due.push_back(Due::Ready(Way::Host(candidate.address), Body::JoinRequest(request)));
    }

    /// Asks others, and later again the one that has not answered yet.
    fn ask_others(&mut self, now: Instant) {
        let Stage::Joining { candidate, others, .. } = &mut self.stage else { return };
        match others.add(*candidate) {
            Ok(()) => self.request_next(now),
            Err(_) => self.send_request(now),
        }
    }

    /// Asks the next candidate, or searches again.
    fn request_next(&mut self, now: Instant) {
        let Stage::Joining { others, .. } = &mut self.stage else { return };
        let mut others = std::mem::take(others);
        match others.next() {
            Some(next) => self.request(now, next, others),
            None if self.flat || self.by_unicast || self.role == Role::Manager => {
                self.on_nobody(now);
            }
            None => self.search_subnet(now, 1),
        }
    }

    pub(super) fn on_refused(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        nonce: u64,
        reason: Refusal,
    ) -> Result<(), DropReason> {
        if self.improvement.asked(arrival.from, sender, nonce).is_some() {
            self.on_better_refused(now);
            return Ok(());
        }
        let candidate = self.asked(arrival, sender, nonce)?;
        let by_source = candidate.address == self.source.address();
        match reason {
            Refusal::NotAdmitted | Refusal::Leaving if by_source => {
                self.pauses.note(reason);
                self.on_nobody(now);
            }
            // Only the source is believed about this.
            Refusal::NotAdmitted => {
                self.pauses.note_doubtful(reason);
                self.bars.bar(now, candidate.address);
                self.ask_source(now);
            }
            Refusal::Leaving => self.ask_source(now),
            _ => {
                self.pauses.note(reason);
                self.request_next(now);
            }
        }
        Ok(())
    }

    /// Returns the node that was asked to be the parent, if this message is its answer.
    fn asked(&self, arrival: Arrival, sender: NodeId, nonce: u64) -> Result<Candidate, DropReason> {
        match &self.stage {
            Stage::Joining { candidate, .. }
                if candidate.has_answered(arrival.from, sender, nonce) =>
            {
                Ok(*candidate)
            }
            _ => Err(DropReason::NotAsked),
        }
    }

    /// Returns the node that was asked before others had their turn, if this is its answer.
    fn asked_before(
        &self,
        arrival: Arrival,
        sender: NodeId,
        nonce: u64,
    ) -> Result<Candidate, DropReason> {
        let Stage::Joining { others, .. } = &self.stage else { return Err(DropReason::NotAsked) };
        let mut others = others.iter();
        let found = others.find(|other| other.has_answered(arrival.from, sender, nonce));
        found.copied().ok_or(DropReason::NotAsked)
    }

    /// Asks the source itself at its announced address, before the others.
    fn ask_source(&mut self, now: Instant) {
        let Stage::Joining { others, .. } = &mut self.stage else { return };
        let others = std::mem::take(others);
        let source = self.source_candidate();
        self.request(now, source, others);
    }

    /// Returns the source at its announced address.
    fn source_candidate(&self) -> Candidate {
        Candidate {
            id: self.source.id().or(self.announced),
            address: self.source.address(),
            hops: self.scope,
            depth: 0,
            children: 0,
            draw: 0,
            asked: Asked::default(),
        }
    }

    pub(super) fn on_confirm(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        confirm: &JoinConfirm,
    ) -> Result<(), DropReason> {
        if let Some(candidate) = self.improvement.asked(arrival.from, sender, confirm.nonce) {
            return self.on_better(now, arrival, candidate, (sender, confirm));
        }
        let asked = self.asked(arrival, sender, confirm.nonce);
        let is_late = asked.is_err();
        let candidate = asked.or_else(|_| self.asked_before(arrival, sender, confirm.nonce))?;
        let beacon = &confirm.beacon;
        let hops = Tree::hops(arrival, beacon.hop_limit)?.unwrap_or(candidate.hops);
        let checked = self
            .check_candidate(now, candidate.address, beacon.standing)
            .and_then(|()| self.check_path(&beacon.path));
        if let Err(reason) = checked {
            self.bars.bar(now, candidate.address);
            if !is_late {
                self.request_next(now);
            }
            return Err(reason);
        }
        self.attach(now, candidate, hops, (sender, confirm));
        Ok(())
    }

    /// Takes a node as the parent that has confirmed it.
    pub(super) fn attach(
        &mut self,
        now: Instant,
        candidate: Candidate,
        hops: u8,
        (sender, confirm): (NodeId, &JoinConfirm),
    ) {
        let beacon = &confirm.beacon;
        self.standing = beacon.standing.below();
        self.path.clone_from(&beacon.path);
        self.path.push(self.id);
        let parent = Parent::new(now, (&candidate, hops), (sender, confirm), self.scope);
        self.stage = Stage::Attached(parent);
        self.pauses = Pauses::new(&self.config);
        self.election.take_hears_manager();
        self.watch_parent();
        self.beacon_soon(now);
        self.answer_departed();
        self.improve_later(now);
        self.events.push_back(TreeEvent::Attached(Box::new(confirm.clone())));
    }

    /// Checks that this node may stand below the path.
    pub(super) fn check_path(&self, path: &[NodeId]) -> Result<(), DropReason> {
        if path.contains(&self.id) {
            return Err(DropReason::Loop);
        }
        match self.source.id() {
            Some(source) if path.first() != Some(&source) => Err(DropReason::AbsurdHops),
            _ => Ok(()),
        }
    }

    pub(super) fn on_beacon(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sender: NodeId,
        beacon: &Beacon,
    ) -> Result<(), DropReason> {
        let hops = Tree::hops(arrival, beacon.hop_limit)?.unwrap_or(beacon.hop_limit);
        let mut address = arrival.from;
        address.set_port(beacon.port);
        if self.is_barred(now, address) {
            return Err(DropReason::Barred);
        }
        if beacon.role == Role::Source && address != self.source.address() {
            if self.role == Role::Source {
                self.on_rival_source(address);
            }
            return Err(DropReason::ForgedSource);
        }
        if let Stage::Attached(parent) = &self.stage
            && parent.id == sender
        {
            // The group shows no more of an address than this.
            if (parent.address.ip(), parent.address.port()) != (address.ip(), address.port()) {
                return Err(DropReason::ForgedParent);
            }
            self.on_parents_beacon(now, beacon)?;
        }
        if hops > 1 || self.departure.is_retiring() || self.flat || self.by_unicast {
            return Ok(());
        }
        match self.role {
            Role::Source => {
                // A manager in the source's own subnet learns of it.
                self.beacon_soon(now);
            }
            Role::Manager => self.on_rival(now, sender, address, beacon),
            Role::Member => self.on_managers_beacon(now, sender, address, beacon),
        }
        Ok(())
    }

    pub(super) fn on_stage_timer(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Outside | Stage::Left => {}
            Stage::Subnet { tries, .. } => {
                let tries = *tries;
                if tries < self.config.subnet_tries {
                    self.search_subnet(now, tries + 1);
                } else if self.election.take_hears_manager() {
                    // There is a manager, or a node about to become attached as one.
                    self.search_subnet(now, 1);
                } else {
                    self.become_manager(now);
                }
            }
            Stage::Ring { nonce, ring, candidates } => {
                let (nonce, ring, mut candidates) = (*nonce, *ring, std::mem::take(candidates));
                if self.config.improve_every.is_some() {
                    // All of a ring are about as close.
                    candidates
                        .sort_by_key(|c| std::cmp::Reverse((c.depth, c.hops, c.children, c.draw)));
                } else {
                    // "Select closest respondent as parent" [TMTP Fig. 2].
                    candidates
                        .sort_by_key(|c| std::cmp::Reverse((c.hops, c.depth, c.children, c.draw)));
                }
                match candidates.pop() {
                    Some(closest) => self.request(now, closest, Others::ranked(candidates)),
                    None => self.search_ring(now, nonce, ring + 1),
                }
            }
            Stage::Waiting => self.search(now),
            Stage::Joining { candidate, others, .. } => {
                if candidate.asked.tries < self.config.tries {
                    if others.have_their_turn(candidate.asked.tries) {
                        self.ask_others(now);
                    } else {
                        self.send_request(now);
                    }
                } else {
                    let address = candidate.address;
                    if address != self.source.address() {
                        self.bars.bar(now, address);
                    }
                    self.request_next(now);
                }
            }
            Stage::Attached(parent) => {
                match parent.failure(now, &self.config) {
                    // A failed parent answers no search. One that was never heard may go on
                    // answering.
                    Some(Failure::Silent { unheard }) => self.lose_parent(now, unheard),
                    Some(Failure::CutOff) => self.lose_parent(now, false),
                    None => self.watch_parent(),
                }
            }
            Stage::Dissolving { .. } => self.on_dissolving(now),
            Stage::Leaving { .. } => self.on_leaving(now),
        }
    }
}
