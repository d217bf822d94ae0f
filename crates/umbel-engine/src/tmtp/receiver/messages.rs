//! What others say to a receiver.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::{
    Ack, Beacon, BlockRun, Body, FeedInfo, Heartbeat, JoinConfirm, Nack, NodeId, Progress,
    ReceiverState, Report,
};

use super::{Numbers, Receiver, Start, Upstream};
use crate::symbols::SymbolSink;
use crate::tmtp::api::ReceiverEvent;
use crate::tmtp::config::Shape;
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::tmtp::tree::Way;
use crate::{Datagram, Instant};

/// What control messages may overtake data by, at least.
const OVERTAKING: Duration = Duration::from_millis(5);
/// Confirmations that may wait.
const MAX_OUTBOX: usize = 4096;

impl<K: SymbolSink> Receiver<K> {
    /// Takes a datagram. Gives whether anything but a symbol has to be seen to.
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: Datagram<'_>,
    ) -> Result<bool, DropReason> {
        let source = self.config.shape.source;
        let by_data = incoming::by_data_channel(&datagram, &self.config.node, source)?;
        if SmallBlockPacket::is_one(datagram.payload) {
            return self.on_packet(now, &datagram, by_data);
        }
        let message = incoming::message(&datagram, &self.config.node)?;
        if by_data {
            let Body::Heartbeat(heartbeat) = message.body else {
                return Err(DropReason::Unexpected);
            };
            return self.on_heartbeat(now, &heartbeat).map(|()| true);
        }
        let arrival = incoming::arrival(&datagram, &self.config.node)?;
        let (id, from) = (message.sender, arrival.from);
        match message.body {
            Body::Ack(ack) if !arrival.multicast => self.on_ack(now, id, from, &ack),
            Body::Nack(nack) if arrival.multicast => self.on_nack(now, id, from, &nack),
            Body::Report(report) if !arrival.multicast => self.on_report(now, id, from, report),
            Body::ReportAck { token, before } if !arrival.multicast => {
                self.on_report_ack(now, id, from, token, before)
            }
            Body::FetchCookie { nonce, cookie } if from == source => {
                let asked_at = self.fetching.asked_at(nonce).ok_or(DropReason::Unasked)?;
                self.fetching.on_cookie(now, asked_at, cookie);
                Ok(())
            }
            Body::FetchGone { nonce, runs } if from == source => {
                self.fetching.asked_at(nonce).ok_or(DropReason::Unasked)?;
                self.on_gone(now, &runs);
                Ok(())
            }
            Body::Beacon(ref beacon) => {
                self.tree.handle(now, arrival, &message)?;
                if self.tree.parent().is_some_and(|parent| parent.id == id) {
                    self.on_parents_beacon(now, beacon);
                }
                Ok(())
            }
            _ => self.tree.handle(now, arrival, &message),
        }
        .map(|()| true)
    }

    /// What the source says on the data channel.
    fn on_heartbeat(&mut self, now: Instant, heartbeat: &Heartbeat) -> Result<(), DropReason> {
        self.tree.note_source(now, heartbeat)?;
        self.source_heard = Some(now);
        if self.feed.is_some_and(|known| known.source != heartbeat.feed.source) {
            // The parent knew it otherwise.
            self.feed = None;
        }
        self.learn_feed(heartbeat.feed)?;
        self.learn_progress(now, &heartbeat.beacon.progress);
        if heartbeat.beacon.closing {
            self.on_closing();
        }
        Ok(())
    }

    pub(super) fn on_closing(&mut self) {
        if !self.source_gone {
            self.source_gone = true;
            self.events.push_back(ReceiverEvent::SourceGone);
        }
    }

    fn learn_feed(&mut self, feed: FeedInfo) -> Result<(), DropReason> {
        match self.feed {
            Some(known) if known != feed => Err(DropReason::ForgedSource),
            Some(_) => Ok(()),
            None => {
                let told = Shape {
                    source: feed.address,
                    symbol_len: feed.symbol_len,
                    block_symbols: feed.block_symbols,
                    fec: feed.fec,
                    manifest: feed.manifest,
                };
                if told != self.config.shape {
                    return Err(DropReason::ForgedSource);
                }
                self.feed = Some(feed);
                self.events.push_back(ReceiverEvent::Feed(feed));
                Ok(())
            }
        }
    }

    fn learn_progress(&mut self, now: Instant, progress: &Progress) {
        if progress.sent > self.hearsay.map_or(self.reception.known(), |(sent, _)| sent) {
            let at = self.hearsay.map_or(now + self.overtaking(), |(_, at)| at);
            self.hearsay = Some((progress.sent, at));
        }
        // A source may yet fail after it has said where the feed ends.
        let news = progress.end.as_ref().filter(|end| match &self.end {
            None => true,
            Some(known) => known.failed.is_none() && end.failed.is_some() && !self.wanted.complete,
        });
        if let Some(end) = news {
            self.end = Some(end.clone());
            self.events.push_back(ReceiverEvent::End(end.clone()));
            self.check_complete(now);
        }
    }

    /// Control messages may overtake data by so much: they wait in other queues.
    fn overtaking(&self) -> Duration {
        self.timing().rtt.max(OVERTAKING)
    }

    fn on_parents_beacon(&mut self, now: Instant, beacon: &Beacon) {
        if let Some(upstream) = &mut self.upstream {
            upstream.timing = beacon.timing;
            upstream.lowest = upstream.lowest.max(beacon.progress.lowest);
            upstream.echo = Some((beacon.stamp_ns, now));
            let due = now + beacon.timing.t_ack;
            self.ack_at = self.ack_at.map(|at| at.min(due));
        }
        if beacon.watched {
            if !self.survey.is_watched(now) {
                self.tree.beacon_soon(now);
            }
            self.survey.watch(now);
        }
        self.domain.set_timing(beacon.timing);
        let floor = self.floor();
        self.asks.forget_before(floor);
        self.learn_progress(now, &beacon.progress);
        if beacon.closing {
            self.on_closing();
        }
    }

    /// There is a parent, for the first time or again.
    pub(super) fn on_attached(&mut self, now: Instant, confirm: &JoinConfirm) {
        let progress = &confirm.beacon.progress;
        let timing = confirm.beacon.timing;
        let echo = Some((confirm.beacon.stamp_ns, now));
        self.upstream =
            Some(Upstream { from: confirm.from, lowest: progress.lowest, timing, echo });
        self.domain.set_timing(timing);
        let _ = self.learn_feed(confirm.feed);
        self.reception.trust_sent(progress.sent);
        if self.keeps_from.is_some() {
            self.domain.extend(now, self.reception.known());
        }
        if self.joined_at.is_none() {
            self.joined_at = Some(confirm.from);
            self.start(confirm.from);
            // It may have had everything before it found its place.
            if !self.wanted.done && !self.wanted.failed {
                self.report(ReceiverState::Receiving);
            }
        }
        self.learn_progress(now, progress);
        self.reports.restart();
        self.ack_at = Some(now);
        self.start_asking(now);
        if let Some(parent) = self.tree.parent() {
            let (parent, address, hops) = (parent.id, parent.address, parent.hops);
            self.events.push_back(ReceiverEvent::Joined { parent, address, hops });
        }
    }

    /// It is known where "now" is.
    fn start(&mut self, now_block: u32) {
        let prefix = self.prefix();
        let from = match self.config.start {
            Start::Everything => prefix,
            Start::Now => now_block.max(prefix),
        };
        if from > prefix {
            self.reception.skip(prefix..from);
        }
        self.wanted.first = Some(from);
        self.events.push_back(ReceiverEvent::Started { from });
    }

    pub(super) fn on_detached(&mut self) {
        self.upstream = None;
        self.repair_numbers = Numbers::default();
        self.ack_at = None;
        self.asks.restart(0);
        self.events.push_back(ReceiverEvent::Orphaned);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        ack: &Ack,
    ) -> Result<(), DropReason> {
        self.tree.check_child(now, id, from, ack.token)?;
        // A child may have heard of more than its parent has.
        let limit = self.reception.known().saturating_add(self.config.far_ahead);
        if self.domain.on_ack(now, id, ack, limit)? {
            self.tree.beacon_soon(now);
        }
        self.totals.insert(id, ack.totals);
        self.survey.note_losses(now, id, ack.received, ack.lost);
        self.release(now);
        Ok(())
    }

    fn on_nack(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        nack: &Nack,
    ) -> Result<(), DropReason> {
        if nack.parent == self.config.node.id {
            self.tree.check_child_in_group(id, from)?;
            return Ok(self.domain.on_nack(now, id, nack, &self.buffer)?);
        }
        if self.tree.parent().is_some_and(|parent| parent.id == nack.parent) {
            self.hear_nack(now, &nack.runs);
        }
        Ok(())
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
        self.survey.note_all(now, id, from, report.tree);
        if report.receivers.is_empty() {
            return Ok(());
        }
        for receiver in report.receivers {
            self.reports.note(receiver);
        }
        self.outbox.push_back((Way::Host(from), confirmation));
        Ok(())
    }

    fn on_report_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        from: SocketAddr,
        token: u64,
        before: u32,
    ) -> Result<(), DropReason> {
        self.tree.check_parent(now, id, from)?;
        if self.tree.parent().is_none_or(|parent| parent.token != token) {
            return Err(DropReason::ForgedParent);
        }
        self.reports.on_confirmed(before);
        Ok(())
    }

    /// Blocks that are not to be had any more are waited for no longer.
    fn on_gone(&mut self, now: Instant, runs: &[BlockRun]) {
        for run in runs {
            let floor = self.floor().min(self.reception.known());
            let mut gone: Vec<_> =
                self.reception.lacking(run.first..run.end().min(floor)).collect();
            // Those that the parent should have given.
            let others = self.fetching.others(run.blocks());
            gone.extend(
                others.filter(|&block| !self.reception.is_complete(block)).map(|b| b..b + 1),
            );
            for blocks in gone {
                let (first, count) = (blocks.start, blocks.end - blocks.start);
                self.reception.skip(blocks);
                self.events.push_back(ReceiverEvent::Gone(BlockRun { first, count }));
            }
        }
        self.fetching.wake(now);
        self.check_complete(now);
    }
}
