//! Reports on their way to the source. Each node merges its children's reports and passes them
//! on, so that the source hears of every receiver from its own few children. The final GOT_IT of
//! each receiver is one of them [TMTP "Performance Measures"].
//!
//! # Who is believed
//!
//! Any child may say anything about anybody, so that what one says never takes the place of what
//! another said. Each child has a table of its own here, and of one receiver it may claim several
//! things there that differ in name or receipt. All of them go up, and the source's host chooses.
//!
//! A child speaks for itself. Reports of other children about it are held back while it is a child.
//! They are dropped if it has reported its own end. Otherwise it may have gone to a parent further
//! down, and what they said goes up once it is a child no more.
//!
//! If there is no room, the child with the most claims loses one. The children take turns in each
//! message, so that one with much to say holds up nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use umbel_wire::Digest;
use umbel_wire::tmtp::{NodeId, ReceiverReport, ReceiverState, Report, Totals, limits};

use crate::Instant;

/// Most bytes of names and reasons in a message, so that it fits a packet.
const TEXT_LEN: usize = 640;
/// Most receivers in a message.
const MOST: usize = if limits::REPORTS < 32 { limits::REPORTS } else { 32 };

/// A child's claim, apart from the receiver's state: a later state takes the place of an earlier
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    node: NodeId,
    name: String,
    receipt: Option<Digest>,
}

impl Claim {
    /// Returns the least claim about a node. It is the only one of the node itself.
    fn first_of(node: NodeId) -> Claim {
        Claim { node, name: String::new(), receipt: None }
    }

    fn of(via: NodeId, report: &ReceiverReport) -> Claim {
        let ReceiverReport { node, name, receipt, .. } = report;
        if via == *node {
            return Claim::first_of(*node);
        }
        Claim { node: *node, name: name.clone(), receipt: *receipt }
    }
}

/// The claims of one child, or of this node itself.
#[derive(Clone, Debug, Default)]
struct Table {
    known: BTreeMap<Claim, ReceiverReport>,
    /// Claims that the parent is missing.
    pending: BTreeSet<Claim>,
}

/// State of one receiver that is believed.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Number of claims that are not held back.
    claims: u32,
    /// Number of those that say how it ended.
    finals: u32,
    /// Whether it has ended by its own word, if it was heard itself.
    own: Option<bool>,
}

impl Standing {
    fn is_receiving(self) -> bool {
        self.claims > 0 && !self.own.unwrap_or(self.finals > 0)
    }
}

/// A message that the parent has not confirmed.
#[derive(Clone, Debug)]
struct Sent {
    receivers: Vec<(NodeId, Claim)>,
    again: Instant,
}

/// The last word of each receiver of a subtree, and which of them the parent is missing.
///
/// One message is under way at a time. A new parent is told everything, since the old one may not
/// have passed on all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    tables: BTreeMap<NodeId, Table>,
    /// Children with something to pass on.
    waiting: BTreeSet<NodeId>,
    /// Number of claims in all tables.
    claims: usize,
    /// Claims that are held back, and whose they are, by receiver.
    held: BTreeMap<NodeId, BTreeSet<(NodeId, Claim)>>,
    standings: BTreeMap<NodeId, Standing>,
    /// Receivers whose last word was that they still receive.
    receiving: usize,
    /// There is no parent to pass anything on to.
    root: bool,
    /// The child whose turn was last.
    turn: Option<NodeId>,
    sent: Option<Sent>,
    /// Number of the first report that this parent has not confirmed.
    confirmed: u32,
    max: usize,
}

impl Reports {
    /// Creates an empty list of at most `max` claims.
    pub(super) fn new(max: usize) -> Reports {
        Reports { max, ..Reports::default() }
    }

    /// Creates the list of the source, which passes nothing on.
    pub(super) fn of_root(max: usize) -> Reports {
        Reports { root: true, ..Reports::new(max) }
    }

    /// Takes what a child, or this node itself, says of a receiver. `is_child` tells whether that
    /// receiver is a child here. Returns whether it is news; `false` also if there is no room, or
    /// if it is held back.
    pub(super) fn note(&mut self, via: NodeId, report: ReceiverReport, is_child: bool) -> bool {
        let (node, claim) = (report.node, Claim::of(via, &report));
        let old = self.tables.get(&via).and_then(|table| table.known.get(&claim));
        let same = |old: &ReceiverReport| {
            (&old.state, old.receipt, &old.name) == (&report.state, report.receipt, &report.name)
        };
        if old.is_some_and(same) || old.is_none() && !self.make_room(via) {
            return false;
        }
        let by_itself = via == node;
        if is_child && !by_itself {
            self.hold(via, claim, report);
            return false;
        }
        self.believe(via, claim, report);
        true
    }

    /// Holds a claim back.
    fn hold(&mut self, via: NodeId, claim: Claim, report: ReceiverReport) {
        self.remove(via, &claim);
        self.held.entry(claim.node).or_default().insert((via, claim.clone()));
        self.claims += 1;
        self.tables.entry(via).or_default().known.insert(claim, report);
    }

    /// Puts a claim in the place of an earlier one, and notes that the parent is missing it.
    fn believe(&mut self, via: NodeId, claim: Claim, report: ReceiverReport) {
        self.remove(via, &claim);
        let ended = report.state != ReceiverState::Receiving;
        self.judge(claim.node, |standing| {
            standing.claims += 1;
            standing.finals += u32::from(ended);
            if via == claim.node {
                standing.own = Some(ended);
            }
        });
        self.claims += 1;
        let table = self.tables.entry(via).or_default();
        if !self.root {
            table.pending.insert(claim.clone());
            self.waiting.insert(via);
        }
        table.known.insert(claim, report);
    }

    /// Removes a claim, if it is there.
    fn remove(&mut self, via: NodeId, claim: &Claim) -> Option<ReceiverReport> {
        let table = self.tables.get_mut(&via)?;
        let report = table.known.remove(claim)?;
        table.pending.remove(claim);
        if table.pending.is_empty() {
            self.waiting.remove(&via);
        }
        if table.known.is_empty() {
            self.tables.remove(&via);
        }
        self.claims -= 1;
        if let Some(held) = self.held.get_mut(&claim.node)
            && held.remove(&(via, claim.clone()))
        {
            if held.is_empty() {
                self.held.remove(&claim.node);
            }
            return Some(report);
        }
        let ended = report.state != ReceiverState::Receiving;
        self.judge(claim.node, |standing| {
            standing.claims -= 1;
            standing.finals -= u32::from(ended);
            if via == claim.node {
                standing.own = None;
            }
        });
        Some(report)
    }

    fn judge(&mut self, node: NodeId, change: impl FnOnce(&mut Standing)) {
        let standing = self.standings.entry(node).or_default();
        let before = standing.is_receiving();
        change(standing);
        self.receiving += usize::from(standing.is_receiving());
        self.receiving -= usize::from(before);
        if standing.claims == 0 {
            self.standings.remove(&node);
        }
    }

    /// Makes room for another claim of a child. Returns whether there is some. O(children) if
    /// there was none.
    fn make_room(&mut self, via: NodeId) -> bool {
        if self.claims < self.max {
            return true;
        }
        let own = self.tables.get(&via).map_or(0, |table| table.known.len());
        let most = self.tables.iter().max_by_key(|(_, table)| table.known.len());
        let Some((greediest, table)) = most.filter(|(_, table)| table.known.len() > own + 1) else {
            return false;
        };
        let (greediest, last) = (*greediest, table.known.last_key_value());
        let Some(last) = last.map(|(claim, _)| claim.clone()) else { return false };
        self.remove(greediest, &last);
        true
    }

    /// Notes that a receiver is a child no more. Returns what others said of it meanwhile, and is
    /// believed now.
    pub(super) fn release(&mut self, node: NodeId) -> Vec<ReceiverReport> {
        let held = self.held.remove(&node).unwrap_or_default();
        let ended = self.standings.get(&node).and_then(|standing| standing.own) == Some(true);
        let mut released = Vec::new();
        for (via, claim) in held {
            let Some(table) = self.tables.get_mut(&via) else { continue };
            let Some(report) = table.known.remove(&claim) else { continue };
            self.claims -= 1;
            if table.known.is_empty() {
                self.tables.remove(&via);
            }
            if !ended {
                released.push(report.clone());
                self.believe(via, claim, report);
            }
        }
        if self.standings.contains_key(&node) && !ended {
            // It may go on elsewhere, and others have the last word.
            self.judge(node, |standing| standing.own = None);
        }
        released
    }

    /// Returns the number of receivers of which anything is believed.
    pub(super) fn len(&self) -> usize {
        self.standings.len()
    }

    /// Returns whether a child has said itself how it ended.
    pub(super) fn has_ended(&self, child: NodeId) -> bool {
        self.standings.get(&child).is_some_and(|standing| standing.own == Some(true))
    }

    /// Returns whether the parent is missing something that others than this node said.
    pub(super) fn any_of_others(&self, own: NodeId) -> bool {
        let sent = self.sent.iter().flat_map(|sent| &sent.receivers).map(|(via, _)| via);
        sent.chain(&self.waiting).any(|via| *via != own)
    }

    /// Returns the number of receivers that said last that they still receive.
    pub(super) fn receiving(&self) -> usize {
        self.receiving
    }

    /// Starts again with another parent, which has heard nothing yet.
    pub(super) fn restart(&mut self) {
        self.sent = None;
        self.confirmed = 0;
        let held = &self.held;
        for (via, table) in &mut self.tables {
            let known = table.known.keys().filter(|claim| {
                let held = held.get(&claim.node);
                !held.is_some_and(|held| held.contains(&(*via, (*claim).clone())))
            });
            table.pending = known.cloned().collect();
        }
        let waits = |(via, table): (&NodeId, &Table)| (!table.pending.is_empty()).then_some(*via);
        self.waiting = self.tables.iter().filter_map(waits).collect();
    }

    /// Returns the next message to the parent, if one is due. It is repeated after `retry`, and
    /// more may follow what it says. So nothing waits for a confirmation that is lost.
    pub(super) fn poll(&mut self, now: Instant, token: u64, retry: Duration) -> Option<Report> {
        let mut receivers = match self.sent.take() {
            Some(sent) if sent.again > now => {
                self.sent = Some(sent);
                return None;
            }
            Some(sent) => sent.receivers,
            None => Vec::new(),
        };
        let before = receivers.len();
        // Some may have made room since.
        receivers.retain(|(via, claim)| self.get(*via, claim).is_some());
        if receivers.len() < before {
            // A confirmation of what was sent does not count for what has moved up.
            self.confirmed = self.confirmed.wrapping_add(before as u32);
        }
        let receivers = self.fill(receivers);
        if receivers.is_empty() {
            return None;
        }
        let reports = receivers.iter().filter_map(|(via, claim)| self.get(*via, claim).cloned());
        let report =
            Report { token, first: self.confirmed, receivers: reports.collect(), tree: Vec::new() };
        self.sent = Some(Sent { receivers, again: now + retry });
        Some(report)
    }

    fn get(&self, via: NodeId, claim: &Claim) -> Option<&ReceiverReport> {
        self.tables.get(&via)?.known.get(claim)
    }

    /// Adds as many waiting reports to a message as fit it, of each child in turn.
    fn fill(&mut self, mut chosen: Vec<(NodeId, Claim)>) -> Vec<(NodeId, Claim)> {
        let texts = chosen.iter().filter_map(|(via, claim)| self.get(*via, claim).map(text_len));
        let mut text: usize = texts.sum();
        let mut later = Vec::new();
        while chosen.len() < MOST
            && let Some(via) = self.next_turn()
            && let Some(claim) = self.tables.get(&via).and_then(|table| table.pending.first())
        {
            let next = (via, claim.clone());
            // A confirmation may be of what the message said of it before.
            let again = chosen.contains(&next);
            let len = self.get(via, &next.1).map_or(0, text_len);
            if !again && text + len > TEXT_LEN && !chosen.is_empty() {
                break;
            }
            self.turn = Some(via);
            if let Some(table) = self.tables.get_mut(&via) {
                table.pending.remove(&next.1);
                if table.pending.is_empty() {
                    self.waiting.remove(&via);
                }
            }
            if again {
                later.push(next);
            } else {
                text += len;
                chosen.push(next);
            }
        }
        for (via, claim) in later {
            self.tables.entry(via).or_default().pending.insert(claim);
            self.waiting.insert(via);
        }
        chosen
    }

    /// Returns the child whose turn is next, of those with something to pass on.
    fn next_turn(&self) -> Option<NodeId> {
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((after, Bound::Unbounded)).next();
        next.or_else(|| self.waiting.first()).copied()
    }

    /// Notes that the parent has all reports before this number. They are the first of those sent,
    /// if others have followed them since.
    pub(super) fn on_confirmed(&mut self, before: u32) {
        let Some(sent) = &mut self.sent else { return };
        let count = before.wrapping_sub(self.confirmed) as usize;
        if (1..=sent.receivers.len()).contains(&count) {
            self.confirmed = before;
            sent.receivers.drain(..count);
            if sent.receivers.is_empty() {
                self.sent = None;
            }
        }
    }

    /// Returns when [`poll`](Reports::poll) has something.
    pub(super) fn next(&self) -> Option<Instant> {
        match &self.sent {
            Some(sent) => Some(sent.again),
            None => (!self.waiting.is_empty()).then_some(Instant::EPOCH),
        }
    }

    /// Returns whether the parent has everything.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_none() && self.waiting.is_empty()
    }
}

fn text_len(report: &ReceiverReport) -> usize {
    report.name.len()
        + if let ReceiverState::Failed(reason) = &report.state { reason.len() } else { 0 }
        + report.receipt.map_or(0, |receipt| receipt.0.len())
}

/// Totals of a child that has not acknowledged anything yet.
pub(super) const NEW_CHILD: Totals = Totals { members: 1, done: 0, failed: 0, below: 0, height: 0 };

/// Returns the totals of a subtree, from a node's own and its children's.
pub(super) fn sum<'a>(own: Totals, children: impl Iterator<Item = &'a Totals>) -> Totals {
    children.fold(own, |sum, child| Totals {
        members: sum.members.saturating_add(child.members),
        done: sum.done.saturating_add(child.done),
        failed: sum.failed.saturating_add(child.failed),
        below: sum.below.min(child.below),
        height: sum.height.max(child.height.saturating_add(1)).min(limits::PATH as u8),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn report(node: u64, state: ReceiverState) -> ReceiverReport {
        let name = format!("node-{node}");
        ReceiverReport { node: NodeId(node), name, held: 7, state, receipt: None }
    }

    /// Takes a child's word about itself.
    fn own(reports: &mut Reports, node: u64, state: ReceiverState) -> bool {
        reports.note(NodeId(node), report(node, state), true)
    }

    fn nodes(report: Option<Report>) -> Vec<u64> {
        report.unwrap().receivers.iter().map(|r| r.node.0).collect()
    }

    #[test]
    fn reports_are_sent_until_they_are_confirmed() {
        let mut reports = Reports::new(100);
        for node in [3, 1] {
            assert!(own(&mut reports, node, ReceiverState::Receiving));
        }
        assert!(!own(&mut reports, 1, ReceiverState::Receiving), "no news");
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [1, 3]);
        assert!(own(&mut reports, 1, ReceiverState::Done));
        assert_eq!((reports.poll(at(99), 9, RETRY), reports.next()), (None, Some(at(100))));
        let again = reports.poll(at(100), 9, RETRY).unwrap();
        assert_eq!((again.first, again.receivers.len()), (0, 2));
        reports.on_confirmed(1);
        reports.on_confirmed(2);
        let next = reports.poll(at(101), 9, RETRY).unwrap();
        assert_eq!((next.first, &next.receivers[0].state), (2, &ReceiverState::Done));
        reports.on_confirmed(3);
        assert!(reports.is_idle() && reports.next().is_none());
        assert_eq!(reports.receiving(), 1);
    }

    #[test]
    fn what_is_said_again_is_followed_by_what_came_since() {
        let mut reports = Reports::new(100);
        own(&mut reports, 1, ReceiverState::Receiving);
        reports.poll(at(0), 9, RETRY);
        own(&mut reports, 1, ReceiverState::Done);
        own(&mut reports, 2, ReceiverState::Done);
        let again = reports.poll(at(100), 9, RETRY).unwrap();
        assert_eq!((again.first, again.receivers.len()), (0, 2));
        assert!(reports.any_of_others(NodeId(1)) && reports.any_of_others(NodeId(2)));
        // The parent has heard the first message, and then the second.
        reports.on_confirmed(1);
        assert!(!reports.is_idle() && reports.poll(at(101), 9, RETRY).is_none());
        reports.on_confirmed(2);
        let last = reports.poll(at(102), 9, RETRY).unwrap();
        let what = "it may have heard of 1 in the first message only";
        assert_eq!((last.first, last.receivers.len()), (2, 1), "{what}");
        assert_eq!(last.receivers[0], report(1, ReceiverState::Done));
        assert!(!reports.any_of_others(NodeId(1)));
        reports.on_confirmed(3);
        assert!(reports.is_idle());
    }

    #[test]
    fn a_confirmation_of_what_made_room_counts_for_nothing_else() {
        let mut reports = Reports::new(3);
        for node in [1, 2] {
            reports.note(NodeId(9), report(node, ReceiverState::Done), false);
        }
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [1, 2]);
        own(&mut reports, 3, ReceiverState::Done);
        own(&mut reports, 4, ReceiverState::Done);
        let again = reports.poll(at(100), 9, RETRY).unwrap();
        let first = again.first;
        assert_eq!(nodes(Some(again)), [1, 3, 4], "2 has made room");
        reports.on_confirmed(2);
        assert_eq!(nodes(reports.poll(at(200), 9, RETRY)), [1, 3, 4]);
        reports.on_confirmed(first + 3);
        assert!(reports.is_idle());
    }

    #[test]
    fn a_new_parent_is_told_everything() {
        let mut reports = Reports::new(100);
        own(&mut reports, 1, ReceiverState::Done);
        reports.poll(at(0), 9, RETRY);
        reports.on_confirmed(1);
        own(&mut reports, 2, ReceiverState::Done);
        reports.restart();
        assert_eq!(nodes(reports.poll(at(1), 4, RETRY)), [2, 1]);
    }

    #[test]
    fn a_message_fits_a_packet_and_memory_is_bounded() {
        let mut reports = Reports::new(200);
        for node in 0..300 {
            let noted = own(&mut reports, node, ReceiverState::Failed("x".repeat(250)));
            assert_eq!(noted, node < 200);
        }
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [0, 1]);
    }

    #[test]
    fn what_one_child_says_takes_nothing_of_another_away() {
        let mut reports = Reports::new(100);
        let forged =
            |name: &str, state| ReceiverReport { name: name.to_owned(), ..report(5, state) };
        // Before the receiver comes to this node, and by another child than its own parent.
        assert!(reports.note(NodeId(9), forged("eve", ReceiverState::Receiving), false));
        assert!(reports.note(NodeId(9), forged("node-5", ReceiverState::Done), false));
        assert!(reports.note(NodeId(2), report(5, ReceiverState::Receiving), false));
        let receipt = Some(Digest([1; 32]));
        let done = ReceiverReport { receipt, ..report(5, ReceiverState::Done) };
        assert!(reports.note(NodeId(2), done.clone(), false));
        let wrong = ReceiverReport { receipt: Some(Digest([2; 32])), ..done.clone() };
        assert!(reports.note(NodeId(2), wrong, false));
        let told = reports.poll(at(0), 9, RETRY).unwrap().receivers;
        assert_eq!((told.len(), told.contains(&done)), (5, true));
    }

    #[test]
    fn a_child_speaks_for_itself_until_it_has_gone() {
        let mut reports = Reports::new(100);
        assert!(own(&mut reports, 5, ReceiverState::Receiving));
        assert!(!reports.note(NodeId(9), report(5, ReceiverState::Done), true));
        assert_eq!((reports.receiving(), reports.len()), (1, 1));
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [5], "the other word is held back");
        reports.on_confirmed(1);
        reports.restart();
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [5]);
        reports.on_confirmed(1);
        // It left without a word, and its new parent says how it ended.
        assert_eq!(reports.release(NodeId(5)), [report(5, ReceiverState::Done)]);
        assert_eq!((reports.receiving(), nodes(reports.poll(at(1), 9, RETRY))), (0, vec![5]));
        // Another said itself how it ended.
        assert!(own(&mut reports, 6, ReceiverState::Done));
        assert!(!reports.note(NodeId(9), report(6, ReceiverState::Receiving), true));
        assert_eq!(reports.release(NodeId(6)), []);
        assert_eq!(reports.receiving(), 0);
        assert!(reports.held.is_empty());
    }

    #[test]
    fn a_child_with_much_to_say_leaves_room_and_turns_to_others() {
        let mut reports = Reports::new(100);
        for node in 1000..2000 {
            let noted = reports.note(NodeId(9), report(node, ReceiverState::Receiving), false);
            assert_eq!(noted, node < 1100);
        }
        for node in 0..40 {
            assert!(own(&mut reports, 100 + node, ReceiverState::Done), "{node}");
        }
        assert_eq!((reports.claims, reports.len()), (100, 100));
        let first = nodes(reports.poll(at(0), 9, RETRY));
        assert_eq!(first.iter().filter(|node| **node >= 1000).count(), 1, "{first:?}");
        // Reports that were to be sent make room, and the rest is confirmed all the same.
        for node in 40..99 {
            own(&mut reports, 100 + node, ReceiverState::Done);
        }
        for _ in 0..100 {
            let Some(report) = reports.poll(at(1_000), 9, RETRY) else { break };
            reports.on_confirmed(report.first + report.receivers.len() as u32);
        }
        assert!(reports.is_idle());
    }

    #[test]
    fn a_subtree_amounts_to_its_parts() {
        let member = Totals { members: 1, done: 1, failed: 0, below: 9, height: 0 };
        let lagging = Totals { done: 0, below: 4, height: 2, ..member };
        let all = sum(member, [member, lagging].iter());
        assert_eq!(all, Totals { members: 3, done: 2, failed: 0, below: 4, height: 3 });
    }
}
