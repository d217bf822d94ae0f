//! Reports on their way to the source. Each node merges its children's reports and passes them
//! on, so that the source hears of every receiver from its own few children. The final GOT_IT of
//! each receiver is one of them [TMTP "Performance Measures"].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_wire::tmtp::{NodeId, ReceiverReport, ReceiverState, Report, Totals, limits};

use crate::Instant;

/// Most bytes of names and reasons in a message, so that it fits a packet.
const TEXT_LEN: usize = 640;
/// Most receivers in a message.
const MOST: usize = if limits::REPORTS < 32 { limits::REPORTS } else { 32 };

/// A message that the parent has not confirmed.
#[derive(Clone, Debug)]
struct Sent {
    receivers: Vec<NodeId>,
    again: Instant,
}

/// The last word of each receiver of a subtree, and which of them the parent is missing.
///
/// One message is under way at a time. A new parent is told everything, since the old one may not
/// have passed on all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    known: BTreeMap<NodeId, ReceiverReport>,
    pending: BTreeSet<NodeId>,
    sent: Option<Sent>,
    /// Number of reports that this parent has confirmed.
    confirmed: u32,
    /// Receivers whose last word was that they still receive.
    receiving: usize,
    max: usize,
}

impl Reports {
    /// Creates an empty list of the last words of at most `max` receivers.
    pub(super) fn new(max: usize) -> Reports {
        Reports { max, ..Reports::default() }
    }

    /// Takes the word of a receiver. Returns whether it is news; `false` also if there is no
    /// room.
    pub(super) fn note(&mut self, report: ReceiverReport) -> bool {
        let full = self.known.len() >= self.max;
        match self.known.get_mut(&report.node) {
            Some(known) if (&known.state, known.receipt) == (&report.state, report.receipt) => {
                false
            }
            None if full => false,
            _ => {
                self.pending.insert(report.node);
                let receives = |report: &ReceiverReport| report.state == ReceiverState::Receiving;
                self.receiving += usize::from(receives(&report));
                let old = self.known.insert(report.node, report);
                self.receiving -= usize::from(old.as_ref().is_some_and(receives));
                true
            }
        }
    }

    /// Returns the number of receivers that have said anything.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the number of receivers that said last that they still receive.
    pub(super) fn receiving(&self) -> usize {
        self.receiving
    }

    /// Starts again with another parent, which has heard nothing yet.
    pub(super) fn restart(&mut self) {
        self.sent = None;
        self.confirmed = 0;
        self.pending = self.known.keys().copied().collect();
    }

    /// Returns the next message to the parent, if one is due. It is repeated after `retry`.
    pub(super) fn poll(&mut self, now: Instant, token: u64, retry: Duration) -> Option<Report> {
        match &mut self.sent {
            Some(sent) if sent.again > now => return None,
            Some(sent) => sent.again = now + retry,
            None => {
                let receivers = self.choose();
                if receivers.is_empty() {
                    return None;
                }
                self.sent = Some(Sent { receivers, again: now + retry });
            }
        }
        let receivers = self.sent.iter().flat_map(|sent| &sent.receivers);
        let receivers = receivers.filter_map(|node| self.known.get(node).cloned()).collect();
        Some(Report { token, first: self.confirmed, receivers, tree: Vec::new() })
    }

    /// Takes as many waiting reports as fit a message.
    fn choose(&mut self) -> Vec<NodeId> {
        let mut chosen = Vec::new();
        let mut text = 0;
        while let Some(&node) = self.pending.first()
            && chosen.len() < MOST
        {
            let len = self.known.get(&node).map_or(0, text_len);
            if text + len > TEXT_LEN && !chosen.is_empty() {
                break;
            }
            text += len;
            self.pending.remove(&node);
            chosen.push(node);
        }
        chosen
    }

    /// Notes that the parent has all reports before this number.
    pub(super) fn on_confirmed(&mut self, before: u32) {
        if let Some(sent) = &self.sent
            && before == self.confirmed.wrapping_add(sent.receivers.len() as u32)
        {
            self.confirmed = before;
            self.sent = None;
        }
    }

    /// Returns when [`poll`](Reports::poll) has something.
    pub(super) fn next(&self) -> Option<Instant> {
        match &self.sent {
            Some(sent) => Some(sent.again),
            None => (!self.pending.is_empty()).then_some(Instant::EPOCH),
        }
    }

    /// Returns whether the parent has everything.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_none() && self.pending.is_empty()
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

    fn nodes(report: Option<Report>) -> Vec<u64> {
        report.unwrap().receivers.iter().map(|r| r.node.0).collect()
    }

    #[test]
    fn reports_are_sent_until_they_are_confirmed() {
        let mut reports = Reports::new(100);
        for node in [3, 1] {
            assert!(reports.note(report(node, ReceiverState::Receiving)));
        }
        assert!(!reports.note(report(1, ReceiverState::Receiving)), "no news");
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [1, 3]);
        assert!(reports.note(report(1, ReceiverState::Done)));
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
    fn a_new_parent_is_told_everything() {
        let mut reports = Reports::new(100);
        reports.note(report(1, ReceiverState::Done));
        reports.poll(at(0), 9, RETRY);
        reports.on_confirmed(1);
        reports.note(report(2, ReceiverState::Done));
        reports.restart();
        assert_eq!(nodes(reports.poll(at(1), 4, RETRY)), [1, 2]);
    }

    #[test]
    fn a_message_fits_a_packet_and_memory_is_bounded() {
        let mut reports = Reports::new(200);
        for node in 0..300 {
            let noted = reports.note(report(node, ReceiverState::Failed("x".repeat(250))));
            assert_eq!(noted, node < 200);
        }
        assert_eq!(nodes(reports.poll(at(0), 9, RETRY)), [0, 1]);
    }

    #[test]
    fn a_subtree_amounts_to_its_parts() {
        let member = Totals { members: 1, done: 1, failed: 0, below: 9, height: 0 };
        let lagging = Totals { done: 0, below: 4, height: 2, ..member };
        let all = sum(member, [member, lagging].iter());
        assert_eq!(all, Totals { members: 3, done: 2, failed: 0, below: 4, height: 3 });
    }
}
