//! What the source's host tells of the feed and its receivers.

use std::collections::BTreeSet;

use umbel_engine::tmtp::{NodeId, SourceStats};
use umbel_wire::tmtp::{ReceiverReport, ReceiverState};

use super::{Content, Expected, Heard, Machine, NOT_ADMITTED, SendHost, Stage};
use crate::endpoint::pace::LimitReport;
use crate::feed::admission::Receipts;
use crate::feed::send::{ReceiverLine, SendSnapshot, SendSummary};

/// Most names of a list that are told while they are waited for.
const MOST_MISSING: usize = 10;

impl<C: Content> SendHost<C> {
    /// Returns the summary, if the loop has ended.
    #[cfg(test)]
    pub(crate) fn outcome(&self) -> Option<SendSummary> {
        (self.stage == Stage::Closed).then(|| self.summary())
    }

    /// Returns the summary.
    pub(crate) fn summary(&self) -> SendSummary {
        let seconds =
            self.sent.map_or(0.0, |(start, end)| (end.unwrap_or(self.last) - start).as_secs_f64());
        let mut receivers: Vec<ReceiverLine> =
            self.heard().map(|heard| self.line_of(&heard.report)).collect();
        let came: BTreeSet<String> =
            receivers.iter().map(|receiver| receiver.name.clone()).collect();
        for receiver in &mut receivers {
            if !self.terms.expected.admits(&receiver.name) {
                (receiver.state, receiver.reason) = (NOT_ADMITTED, None);
            }
        }
        for name in &self.terms.expected.names {
            if !came.contains(name) {
                let (name, node) = (name.clone(), String::new());
                let (state, reason, by_unicast) = ("missing", None, false);
                receivers.push(ReceiverLine { name, node, state, reason, by_unicast });
            }
        }
        for node in self.aside.iter().filter(|node| !self.receivers.contains_key(node)) {
            let (name, node) = (String::new(), format!("{:016x}", node.0));
            let (state, reason, by_unicast) = ("receiving", None, false);
            receivers.push(ReceiverLine { name, node, state, reason, by_unicast });
        }
        for receiver in receivers.iter_mut().filter(|receiver| receiver.state == "receiving") {
            receiver.state = "vanished";
        }
        let named = receivers.iter().filter(|receiver| receiver.state == "done").count() as u32;
        // A report that was lost on the way counts in the totals all the same, unless proof is
        // demanded.
        let believed = matches!(self.terms.expected.receipts, Receipts::None);
        let done = if believed { named.max(self.stats.totals.done) } else { named };
        let without = |receiver: &&ReceiverLine| !["done", NOT_ADMITTED].contains(&receiver.state);
        let without = receivers.iter().filter(without).count() as u32;
        SendSummary {
            items: self.content.files(),
            bytes: self.content.bytes(),
            acknowledged_bytes: self.acknowledged_bytes(),
            seconds,
            done,
            without,
            receivers,
            packets: self.stats.data_sent,
            repairs: self.stats.repairs_sent,
            dmcasts: self.stats.dmcasts_sent,
            fetched: self.stats.fetched_sent,
            evicted: self.stats.evicted,
            load: self.stats.load.total(),
            drops: self.drops.clone(),
            failure: self.failure.clone().or_else(|| self.content.failure()),
            interrupted: self.interrupted,
            ..SendSummary::default()
        }
    }

    /// Returns the last report of each receiver, without receivers that died and were started
    /// again. If a name has its key, nobody else's words in that name count once its owner is done.
    pub(super) fn heard(&self) -> impl Iterator<Item = &Heard> {
        let owned = self.terms.expected.receipts.has_owners();
        let done = |heard: &&Heard| heard.report.state == ReceiverState::Done;
        let owners = self.receivers.values().filter(|_| owned).filter(done);
        let owners: BTreeSet<&str> = owners.map(|heard| heard.report.name.as_str()).collect();
        self.receivers.values().filter(move |heard| {
            if owners.contains(heard.report.name.as_str()) {
                return done(heard);
            }
            let again =
                |other: &Heard| other.report.name == heard.report.name && other.since > heard.since;
            heard.report.state != ReceiverState::Receiving || !self.receivers.values().any(again)
        })
    }

    /// Returns a receiver's line for the user.
    pub(super) fn line_of(&self, report: &ReceiverReport) -> ReceiverLine {
        let (state, reason) = match &report.state {
            ReceiverState::Receiving => ("receiving", None),
            ReceiverState::Done => ("done", None),
            ReceiverState::Failed(reason) => ("failed", Some(reason.clone())),
            ReceiverState::Left => ("left", None),
        };
        let node = format!("{:016x}", report.node.0);
        let by_unicast = self.by_unicast.contains(&report.node);
        ReceiverLine { name: report.name.clone(), node, state, reason, by_unicast }
    }

    /// Returns the first names on the list that have not come.
    fn missing(&self) -> Vec<String> {
        let Expected { names, alone, .. } = &self.terms.expected;
        let mut there: BTreeSet<&str> = self.came.iter().map(String::as_str).collect();
        // Without keys anybody may come by any name.
        if !alone {
            there.extend(self.heard().map(|heard| heard.report.name.as_str()));
        }
        let missing = names.iter().filter(|name| !there.contains(name.as_str()));
        missing.take(MOST_MISSING).cloned().collect()
    }

    /// Returns the name by which a receiver reports, or its number.
    pub(super) fn name_of(&self, node: NodeId) -> String {
        let known = self.receivers.get(&node).map(|heard| heard.report.name.clone());
        known.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("node {:016x}", node.0))
    }

    /// Returns the bytes of the content that all receivers acknowledged that the source waits for.
    /// Where none ever was, none did.
    fn acknowledged_bytes(&self) -> u64 {
        if self.most == 0 && self.receivers.is_empty() {
            return 0;
        }
        let SourceStats { acknowledged, blocks_sent, .. } = self.stats;
        self.content.bytes_below(acknowledged.min(blocks_sent), blocks_sent)
    }

    pub(super) fn snapshot(&mut self, io: &mut Machine<'_, C>) -> SendSnapshot {
        let (bytes, totals) = (self.content.bytes(), self.stats.totals);
        let now = io.now();
        let limit = io.engine().limit().map(|(limit, since)| {
            LimitReport::new(&limit, now.since(since), |node| Some(self.name_of(*node)))
        });
        let waits = self.stage == Stage::Waiting;
        SendSnapshot {
            stage: match self.stage {
                Stage::Waiting => "waiting",
                Stage::Sending => "sending",
                Stage::Complete(_) => "complete",
                Stage::Closing(_) | Stage::Closed => "closing",
            },
            bytes_done: self.acknowledged_bytes(),
            bytes,
            receivers: totals.members,
            waits_for: self.terms.wait_for.receivers().filter(|_| waits),
            missing: if waits { self.missing() } else { Vec::new() },
            begins_in_s: self
                .terms
                .wait_for
                .longest()
                .filter(|_| waits)
                .map(|longest| longest.saturating_sub(now.since(self.created)).as_secs_f64()),
            by_unicast: self.by_unicast.len() as u32,
            done: totals.done,
            failed: totals.failed,
            rate_bits_per_s: self.rate.bits_per_s(),
            limit,
            stalls: self.stats.stalls,
            trouble: self.trouble.take(),
        }
    }
}
