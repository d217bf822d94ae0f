//! Messages of others to the source.
//!
//! Each goes to the parts that have its state: the tree, the domain, the pace, the reports, the
//! survey and the fetched blocks. One message concerns several, so this stands apart from them.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::feed::Recovery;
use umbel_wire::lms::Message as Lms;
use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::{
    Ack, BlockRun, Body, JoinRequest, Message, Nack, NodeId, Portion, ReceiverState, Refusal,
    Report, TreePage,
};

use super::Source;
use super::digests::Question;
use super::pace::Reporter;
use crate::recovery::Unfounded;
use crate::symbols::SymbolSource;
use crate::tmtp::api::SourceEvent;
use crate::tmtp::authentic::Opened;
use crate::tmtp::catch_up::Asker;
use crate::tmtp::concast::NEW_CHILD;
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::tmtp::tree::{Arrival, TreeEvent, Way};
use crate::{Datagram, Instant};

/// Most answers to FETCH that may wait.
pub(super) const MAX_OUTBOX: usize = 4096;
/// Time for which requests for the same blocks are gathered, as a multiple of the time that
/// sending them takes. It is at least [`GATHER_MIN`] and at most a T_ack.
const GATHER: u32 = 4;
const GATHER_MIN: Duration = Duration::from_millis(5);

impl<S: SymbolSource> Source<S> {
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: Datagram<'_>,
    ) -> Result<(), DropReason> {
        let arrival = incoming::arrival(&datagram, &self.config.node)?;
        if SmallBlockPacket::is_one(datagram.payload) {
            // A manager's repair to its own domain, or a helper's to the group.
            return self.on_repair_in_group(now, datagram.payload);
        }
        if Lms::is_lms(datagram.payload) {
            return self.on_lms(now, &datagram);
        }
        let node = &self.config.node;
        // A manager's children ask in the group, too.
        let is_of_use = |message: &Message| match &message.body {
            Body::Nack(nack) => nack.parent == node.id,
            _ => true,
        };
        let opened = self.authentic.open(now, &datagram, node, is_of_use)?;
        let message = match opened {
            Opened::Message(message) => message,
            Opened::Unneeded | Opened::Answered | Opened::Challenged(..) | Opened::Admitted => {
                return Ok(());
            }
            Opened::Stranger { id, from, token } => {
                return self.tree.check_child(now, id, from, token);
            }
        };
        let from = arrival.from;
        // Others ask for the tree, or for a place in it, and are no receivers yet.
        let of_receiver = matches!(
            message.body,
            Body::Ack(_)
                | Body::Nack(_)
                | Body::Report(_)
                | Body::Fetch { .. }
                | Body::Reception { .. }
                | Body::FetchDigests { .. }
        );
        let taken = match message.body {
            Body::Ack(ack) if !arrival.multicast => self.on_ack(now, message.sender, from, &ack),
            Body::Nack(nack) if arrival.multicast == self.config.node.recovery.has_group() => {
                self.on_nack(now, message.sender, arrival, &nack)
            }
            Body::Report(report) if !arrival.multicast => {
                self.on_report(now, message.sender, from, report)
            }
            Body::Fetch { nonce, cookie, runs, alone, portion } if !arrival.multicast => {
                let asker = Asker { address: from, nonce };
                self.on_fetch(now, asker, cookie, (&runs, &alone, portion))
            }
            Body::Reception { nonce, cookie, report } if !arrival.multicast => {
                let who = Reporter { address: from, node: message.sender, nonce };
                self.on_reception(now, who, cookie, &report)
            }
            Body::FetchDigests { nonce, cookie, key, block } if !arrival.multicast => {
                self.on_fetch_digests(now, Question { address: from, nonce, key, block }, cookie)
            }
            Body::JoinRequest(JoinRequest { by_unicast: true, nonce, .. })
                if !self.unicast.has_place(from) =>
            {
                if self.outbox.len() >= MAX_OUTBOX {
                    return Err(DropReason::OverLimit);
                }
                let body = Body::JoinRefused { nonce, reason: Refusal::Full };
                self.outbox.push_back((Way::Host(from), body));
                Ok(())
            }
            Body::TreeQuery { nonce, cookie, after } if !arrival.multicast => {
                self.on_query(now, from, (nonce, cookie), after)
            }
            _ => self.tree.handle(now, arrival, &message),
        };
        if of_receiver && taken.is_ok() {
            self.completion.hear(now);
        }
        taken
    }

    fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        ack: &Ack,
    ) -> Result<(), DropReason> {
        self.tree.check_child(now, id, from, ack.token)?;
        let under_way = u32::from(self.next.1 > 0);
        // Who was served by unicast may hold what was not sent to the others yet.
        let all = self.unicast.was_ever();
        let limit = if all { self.shelf.total() } else { self.next.0 + under_way };
        if self.domain.on_ack(now, id, ack, limit)? {
            self.tree.beacon_soon(now);
        }
        let before = self.totals.insert(id, ack.totals);
        if before.is_none_or(|before| before.below < ack.totals.below) && self.unicast.has(from) {
            self.domain.note_progress(now, id);
        }
        self.survey.note_losses(now, id, ack.received, ack.lost);
        self.advance(now);
        Ok(())
    }

    fn on_nack(
        &mut self,
        now: Instant,
        id: NodeId,
        arrival: Arrival,
        nack: &Nack,
    ) -> Result<(), DropReason> {
        if nack.parent != self.config.node.id {
            return Ok(());
        }
        self.tree.check_child_in_group(id, arrival.from)?;
        if self.config.node.recovery == Recovery::Srm {
            if self.domain.is_behind(id) {
                return Err(Unfounded::Behind.into());
            }
            return self.on_nack_in_group(now, nack, arrival.hops_left);
        }
        Ok(self.domain.on_nack(now, id, nack, &self.shelf)?)
    }

    fn on_report(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        report: Report,
    ) -> Result<(), DropReason> {
        self.tree.check_child(now, id, from, report.token)?;
        if self.outbox.len() >= MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let confirmation = incoming::confirmation(&report);
        for entry in self.survey.note_all(now, id, from, report.tree) {
            self.events.push_back(SourceEvent::Tree(entry));
        }
        self.survey.keep();
        if report.receivers.is_empty() {
            return Ok(());
        }
        let own = self.config.node.id;
        for receiver in report.receivers.into_iter().filter(|report| report.node != own) {
            let is_child = self.tree.child(receiver.node).is_some();
            if receiver.state != ReceiverState::Receiving {
                self.pace.forget(receiver.node);
            }
            if self.reports.note(id, receiver.clone(), is_child) {
                self.events.push_back(SourceEvent::Report(receiver));
            }
        }
        self.advance(now);
        self.outbox.push_back((Way::Host(from), confirmation));
        Ok(())
    }

    fn on_fetch(
        &mut self,
        now: Instant,
        asker: Asker,
        cookie: u64,
        (runs, alone, portion): (&[BlockRun], &[BlockRun], Portion),
    ) -> Result<(), DropReason> {
        if self.outbox.len() >= MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let Asker { address, nonce } = asker;
        let good = self.fetched.cookie(address);
        if cookie != good {
            self.outbox.push_back((Way::Host(address), Body::FetchCookie { nonce, cookie: good }));
            return Err(DropReason::NoCookie);
        }
        let by_unicast = self.unicast.has(address);
        let sent = if by_unicast { self.shelf.total() } else { self.sent() };
        // Blocks that every receiver needs stay, even before a pipe.
        let head = self.config.shape.manifest.map_or(0, |manifest| manifest.blocks);
        let lowest = self.config.history.map_or(0, |_| self.shelf.lowest()).max(head);
        let mut gone = Vec::new();
        let mut result = Ok(());
        // More would be lost while others have a rate that its path does not carry.
        let most = if self.pace.is_behind(address) { 1 } else { u32::MAX };
        let first = runs.first().map(|run| BlockRun { count: run.count.min(most), ..*run });
        let runs = if most == 1 { first.as_slice() } else { runs };
        for run in runs {
            let lost = run.first.max(head)..run.end().min(lowest);
            if !lost.is_empty() {
                gone.push(BlockRun { first: lost.start, count: lost.end - lost.start });
            }
            if run.first >= sent {
                result = Err(DropReason::AbsurdBlock);
            }
            let first = run.first..run.end().min(head).min(sent);
            let rest = run.first.max(lowest)..run.end().min(sent);
            for blocks in [first, rest].into_iter().filter(|blocks| !blocks.is_empty()) {
                if by_unicast {
                    result = result.and(self.want_by_unicast(now, asker, blocks, portion));
                    continue;
                }
                let gather = self.gather(&blocks);
                let blocks = (blocks, self.bytes_of(1));
                if !self.fetched.ask(now, asker, blocks, |block| is_in(alone, block), gather) {
                    result = Err(DropReason::OverLimit);
                }
            }
        }
        if !gone.is_empty() {
            self.outbox.push_back((Way::Host(address), Body::FetchGone { nonce, runs: gone }));
        }
        result
    }

    /// Returns how long requests for the same blocks are gathered. The more would be sent again
    /// and again, the longer.
    fn gather(&self, blocks: &Range<u32>) -> Duration {
        let bytes = self.bytes_of(blocks.end - blocks.start);
        let sending = self.pace.rate().time_for(bytes);
        (sending * GATHER).clamp(GATHER_MIN, self.domain.timing().t_ack.max(GATHER_MIN))
    }

    /// Returns the bytes of this number of full blocks.
    fn bytes_of(&self, blocks: u32) -> u64 {
        let shape = self.config.shape;
        u64::from(blocks) * u64::from(shape.block_symbols) * u64::from(shape.symbol_len)
    }

    /// Answers a query of the tree. A host that has not shown that it is where its address says
    /// gets a cookie and no nodes.
    fn on_query(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (nonce, cookie): (u64, u64),
        after: Option<NodeId>,
    ) -> Result<(), DropReason> {
        if self.outbox.len() >= MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let good = self.fetched.cookie(from);
        let (entries, more) = if cookie == good {
            if !self.survey.is_watched(now) {
                self.tree.beacon_soon(now);
            }
            self.survey.watch(now);
            self.survey_if_due(now);
            self.survey.page(after)
        } else {
            (Vec::new(), true)
        };
        let page = TreePage { nonce, cookie: good, totals: self.sum(), entries, more };
        self.outbox.push_back((Way::Host(from), Body::TreePage(page)));
        if cookie == good { Ok(()) } else { Err(DropReason::NoCookie) }
    }

    /// Handles what happened in the tree.
    pub(super) fn settle(&mut self, now: Instant) {
        self.tell_pace(now);
        while let Some(event) = self.tree.poll_event() {
            match event {
                TreeEvent::ChildJoined { id } => {
                    self.domain.adopt(now, id, self.domain.end(), self.tree.strikes(id));
                    self.totals.insert(id, NEW_CHILD);
                    self.completion.unsettle();
                    self.completion.hear(now);
                    let was_by_unicast = self.unicast.close(id);
                    let child = self.tree.child(id).filter(|child| child.by_unicast);
                    if let Some(address) = child.map(|child| child.address) {
                        self.serve_by_unicast(now, id, address);
                    } else {
                        self.pace.on_child(id);
                        if was_by_unicast {
                            self.events.push_back(SourceEvent::ByMulticast { node: id });
                        }
                    }
                }
                TreeEvent::ChildLeft { id, .. } => {
                    self.domain.remove(id);
                    self.unicast.close(id);
                    self.pace.forget_child(id);
                    self.totals.remove(&id);
                    let released = self.reports.release(id);
                    self.events.extend(released.into_iter().map(SourceEvent::Report));
                    self.advance(now);
                }
                TreeEvent::Rival(address) => {
                    self.events.push_back(SourceEvent::Rival(address));
                }
                _ => {}
            }
        }
        self.look(now);
    }
}

/// Returns whether a block is in one of these runs, which ascend.
fn is_in(runs: &[BlockRun], block: u32) -> bool {
    let after = runs.partition_point(|run| run.end() <= block);
    runs.get(after).is_some_and(|run| run.first <= block)
}
