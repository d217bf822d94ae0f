//! Messages of others to a receiver, and the receiver's own.
//!
//! Each goes to the part that has its state, or comes from it; this has none itself. It stands
//! apart from [`packets`](super::packets) since one message may concern the tree, the source and
//! what is wanted at once.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::feed::Recovery as Scheme;
use umbel_wire::lms::Message as Lms;
use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::{
    Ack, Beacon, BlockRun, Body, FeedInfo, Heartbeat, JoinConfirm, Message, Nack, NackRun, NodeId,
    Progress, ReceiverState, Report,
};

use super::{Receiver, Start, Trial, Upstream};
use crate::symbols::SymbolSink;
use crate::tmtp::api::ReceiverEvent;
use crate::tmtp::authentic::Opened;
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::tmtp::tree::{Arrival, Way};
use crate::{Address, Datagram, Instant};

/// Least time by which control messages may overtake data.
const OVERTAKING: Duration = Duration::from_millis(5);
/// Least time after which a REPORT is repeated. It is two T_ack if that is longer.
const REPORT_WAIT_MIN: Duration = Duration::from_millis(300);
/// Most confirmations that may wait.
const MAX_OUTBOX: usize = 4096;

/// Returns the hops of a message that was sent with a hop limit of which some is left.
fn hops_of(hop_limit: u8, left: u8) -> u8 {
    hop_limit.saturating_sub(left).saturating_add(1)
}

impl<K: SymbolSink> Receiver<K> {
    /// Handles a datagram. Its effects are [settled](Receiver::settle) if it is not discarded.
    ///
    /// # Errors
    ///
    /// If it is discarded.
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: Datagram<'_>,
    ) -> Result<(), DropReason> {
        let source = self.config.shape.source;
        let data_channel = incoming::by_data_channel(&datagram, &self.config.node, source)?;
        if SmallBlockPacket::is_one(datagram.payload) {
            return self.on_packet(now, &datagram, data_channel);
        }
        if Lms::is_lms(datagram.payload) {
            self.on_lms(now, &datagram, data_channel)?;
        } else {
            self.on_message(now, &datagram, data_channel)?;
        }
        self.settle(now);
        Ok(())
    }

    /// Returns the message in a datagram, or what became of it. Each member hears the NACKs of
    /// all, and to check all their signatures would take as long as to receive the feed. So those
    /// that change nothing here are not checked.
    fn open(&mut self, now: Instant, datagram: &Datagram<'_>) -> Result<Opened, DropReason> {
        let Receiver { authentic, config, tree, help, suspects, recovery, delivery, .. } = self;
        let node = &config.node;
        authentic.open(now, datagram, node, |message| {
            let Body::Nack(nack) = &message.body else { return true };
            let is_siblings = tree.parent().is_some_and(|parent| parent.id == nack.parent);
            let is_heeded = || {
                help.is_some()
                    || suspects.watches_any(&nack.runs)
                    || recovery.may_heed(&nack.runs, delivery.reception())
            };
            nack.parent == node.id || is_siblings && is_heeded()
        })
    }

    fn on_message(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        data_channel: bool,
    ) -> Result<(), DropReason> {
        let opened = self.open(now, datagram);
        if self.authentic.take_deafness() {
            self.tree.note_deafness(now);
        }
        let message = match opened? {
            Opened::Message(message) => message,
            Opened::Unneeded | Opened::Answered => return Ok(()),
            Opened::Challenged(by, nonce) => {
                self.tree.on_challenged(now, by, nonce);
                return Ok(());
            }
            Opened::Admitted => {
                if self.unicast.is_on() {
                    self.tree.set_by_unicast(now, Some(self.config.shape.id));
                }
                self.tree.join(now);
                return Ok(());
            }
            Opened::Stranger { id, from, token } => {
                return self.tree.check_child(now, id, from, token);
            }
        };
        if data_channel {
            let heartbeat = match message.body {
                Body::Heartbeat(heartbeat) => heartbeat,
                Body::BlockDigests { key, block, symbols, first, digests } => {
                    if message.sender != self.config.shape.id {
                        return Err(DropReason::ForgedSource);
                    }
                    return self.on_block_digests(now, (block, key), (symbols, first), &digests);
                }
                _ => return Err(DropReason::Unexpected),
            };
            let sent_with = heartbeat.beacon.hop_limit;
            self.hops = datagram.hop_limit.map(|left| hops_of(sent_with, left));
            self.unicast.on_heartbeat(now);
            return self.on_heartbeat(now, message.sender, *heartbeat);
        }
        let arrival = incoming::arrival(datagram, &self.config.node)?;
        let (id, from) = (message.sender, arrival.from);
        match message.body {
            Body::Ack(ack) if !arrival.multicast => self.on_ack(now, id, from, &ack),
            Body::Nack(nack) if arrival.multicast => self.on_nack(now, id, arrival, &nack),
            Body::Report(report) if !arrival.multicast => self.on_report(now, id, from, report),
            Body::ReportAck { token, before } if !arrival.multicast => {
                self.on_report_ack(now, id, from, token, before)
            }
            Body::FetchCookie { nonce, cookie } if from == self.config.shape.source => {
                if self.suspects.asked_with(nonce).is_none() {
                    return self.recovery.on_cookie(now, nonce, cookie);
                }
                self.recovery.learn_cookie(cookie);
                self.suspects.on_cookie(now);
                Ok(())
            }
            Body::Heartbeat(heartbeat) if self.is_by_unicast(&arrival) => {
                self.unicast.on_heartbeat_alone(now);
                self.on_heartbeat(now, id, *heartbeat)
            }
            // It was under way when this node returned to multicast.
            Body::Heartbeat(_) if from == self.config.shape.source => Err(DropReason::NotAsked),
            Body::Reports { nonce, cookie, schedule } if from == self.config.shape.source => {
                let channel = self.measure.follow(nonce, schedule);
                channel.or_else(|_| self.unicast.measure.follow(nonce, schedule))?;
                self.recovery.learn_cookie(cookie);
                Ok(())
            }
            Body::SymbolDigests { nonce, symbols, first, digests }
                if from == self.config.shape.source =>
            {
                self.on_digests(now, nonce, (symbols, first), &digests)
            }
            Body::FetchGone { nonce, runs } if from == self.config.shape.source => {
                self.on_gone(now, nonce, &runs)
            }
            Body::JoinConfirm(ref confirm) => {
                self.learn_feed(confirm.feed)?;
                self.tree.handle(now, arrival, &message)
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
    }

    /// Handles a heartbeat of the source on the data channel.
    fn on_heartbeat(
        &mut self,
        now: Instant,
        sender: NodeId,
        heartbeat: Heartbeat,
    ) -> Result<(), DropReason> {
        self.check_last_word(&heartbeat)?;
        self.learn_feed(heartbeat.feed)?;
        self.tree.note_source(now, &heartbeat)?;
        self.stats.heartbeats += 1;
        self.source.on_heard(now);
        self.learn_progress(now, &heartbeat.beacon.progress);
        if heartbeat.beacon.closing {
            self.on_closing();
        }
        if self.config.node.recovery.has_tree() && !self.unicast.is_on() {
            return Ok(());
        }
        // It is the parent's beacon as well.
        let from = self.config.shape.source;
        let arrival = Arrival { from, multicast: true, hops_left: None };
        let beacon = Body::Beacon(heartbeat.beacon);
        let message = Message { feed: self.config.node.feed, sender, body: beacon };
        self.tree.handle(now, arrival, &message)?;
        if let Body::Beacon(beacon) = &message.body
            && self.tree.parent().is_some_and(|parent| parent.id == sender)
        {
            self.on_parents_beacon(now, beacon);
        }
        Ok(())
    }

    /// Returns whether a datagram came from the source to this node alone, which is served so.
    fn is_by_unicast(&self, arrival: &Arrival) -> bool {
        self.unicast.is_on() && !arrival.multicast && arrival.from == self.config.shape.source
    }

    /// Checks that who says that the feed is over, or has failed, knows what only the source knows.
    fn check_last_word(&self, heartbeat: &Heartbeat) -> Result<(), DropReason> {
        let Beacon { closing, progress, .. } = &heartbeat.beacon;
        let failed = progress.end.as_ref().is_some_and(|end| end.failed.is_some());
        let Some(digest) = self.config.last_word.filter(|_| *closing || failed) else {
            return Ok(());
        };
        let is_it = |word: [u8; 32]| blake3::hash(&word) == blake3::Hash::from_bytes(digest);
        if heartbeat.last_word.is_some_and(is_it) { Ok(()) } else { Err(DropReason::ForgedSource) }
    }

    pub(super) fn on_closing(&mut self) {
        if self.source.close() {
            self.events.push_back(ReceiverEvent::SourceGone);
        }
    }

    fn learn_feed(&mut self, feed: FeedInfo) -> Result<(), DropReason> {
        if self.source.learn_feed(feed, self.config.shape)? {
            self.events.push_back(ReceiverEvent::Feed(feed));
        }
        Ok(())
    }

    fn learn_progress(&mut self, now: Instant, progress: &Progress) {
        if self.config.repair.hearsay {
            // Control messages and data wait in different queues.
            let overtaking = self.timing().rtt.max(OVERTAKING);
            self.source.note_sent(now, progress.sent, self.delivery.known(), overtaking);
        }
        if self.source.learn_end(progress.end.as_ref(), self.wanted.complete) {
            self.events.extend(progress.end.clone().map(ReceiverEvent::End));
            self.check_complete(now);
        }
    }

    fn on_parents_beacon(&mut self, now: Instant, beacon: &Beacon) {
        if let Some(upstream) = &mut self.upstream {
            upstream.on_beacon(now, beacon);
        }
        if !beacon.path.is_empty() {
            self.source.on_epoch(now, beacon.standing.epoch);
        }
        if beacon.watched {
            if !self.survey.is_watched(now) {
                self.tree.beacon_soon(now);
            }
            self.survey.watch(now);
        }
        self.duty.set_timing(beacon.timing);
        let floor = self.floor();
        self.recovery.forget_before(floor);
        let progress = self.as_parents_say(now, &beacon.progress);
        self.learn_progress(now, &progress);
        self.source.on_told(beacon.closing);
        if beacon.closing && self.source.is_quiet(now) {
            self.on_closing();
        }
    }

    /// Returns what of a parent's progress is believed. The source says by itself that it has
    /// failed, unless it is silent. Where it failed is not believed either: it would pass for the
    /// end of a feed that is whole.
    fn as_parents_say(&self, now: Instant, progress: &Progress) -> Progress {
        let mut progress = progress.clone();
        let quiet = self.source.is_quiet(now);
        progress.end = progress.end.filter(|end| end.failed.is_none() || quiet);
        progress
    }

    /// Starts with a parent, the first one or another.
    pub(super) fn on_attached(&mut self, now: Instant, confirm: &JoinConfirm) {
        let progress = &confirm.beacon.progress;
        self.upstream = Some(Upstream::new(now, confirm));
        self.trial = Trial::default();
        if let Some(help) = &mut self.help {
            help.start(now);
        }
        self.duty.set_timing(confirm.beacon.timing);
        self.delivery.trust_sent(progress.sent);
        if let Some(manager) = self.duty.manager_mut() {
            manager.extend(now, self.delivery.known());
        }
        if self.joined_at.is_none() {
            self.start(confirm.from);
            // The application may have had everything before the receiver found its place.
            if self.wanted.outcome.is_none() {
                self.report(ReceiverState::Receiving);
            }
        }
        let progress = self.as_parents_say(now, progress);
        self.learn_progress(now, &progress);
        self.reports.restart();
        self.start_asking(now);
        if let Some(parent) = self.tree.parent() {
            let (parent, address, hops) = (parent.id, parent.address, parent.hops);
            self.events.push_back(ReceiverEvent::Joined { parent, address, hops });
        }
        if let Some((why, brought)) = self.unicast.on_confirmed() {
            self.recovery.on_served_alone();
            self.events.push_back(ReceiverEvent::ByUnicast { why, brought });
        }
    }

    /// Starts the feed, now that its present block is known.
    fn start(&mut self, now_block: u32) {
        self.joined_at = Some(now_block);
        let prefix = self.prefix();
        let from = match self.config.start {
            Start::Everything => prefix,
            Start::Now => now_block.max(prefix),
        };
        if from > prefix {
            self.delivery.skip(prefix..from);
        }
        self.events.push_back(ReceiverEvent::Started { from });
    }

    pub(super) fn on_detached(&mut self) {
        self.upstream = None;
        self.acks.on_detached();
        self.recovery.restart(0);
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
        let manager = self.duty.manager_mut().ok_or(DropReason::ForgedChild)?;
        // A child may have heard of more than its parent has.
        let limit = self.delivery.known().saturating_add(self.config.far_ahead);
        if manager.on_ack(now, id, ack, limit)? {
            self.tree.beacon_soon(now);
        }
        self.survey.note_losses(now, id, ack.received, ack.lost);
        if manager.free_room() {
            // Blocks that were dropped meanwhile are asked for.
            self.find_gaps(now);
        }
        Ok(())
    }

    fn on_nack(
        &mut self,
        now: Instant,
        id: NodeId,
        arrival: Arrival,
        nack: &Nack,
    ) -> Result<(), DropReason> {
        if nack.parent == self.config.node.id {
            self.tree.check_child_in_group(id, arrival.from)?;
            let manager = self.duty.manager_mut().ok_or(DropReason::ForgedChild)?;
            return Ok(manager.on_nack(now, id, nack)?);
        }
        if self.tree.parent().is_some_and(|parent| parent.id == nack.parent) {
            self.note_asked(now, &nack.runs);
            let timing = self.timing();
            let reception = self.delivery.reception();
            self.stats.nacks_suppressed +=
                self.recovery.hear_nack(now, &nack.runs, reception, timing);
            if let Some(help) = &mut self.help {
                let hops = arrival.hops_left.map(|left| hops_of(nack.hop_limit, left));
                return help.on_nack(now, &nack.runs, (hops, self.hops));
            }
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
        // A former child of this node may have become its parent since.
        let own = self.config.node.id;
        for receiver in report.receivers.into_iter().filter(|report| report.node != own) {
            let is_child = self.tree.child(receiver.node).is_some();
            self.reports.note(id, receiver, is_child);
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
        if self.tree.is_former(from) {
            return Ok(());
        }
        self.tree.check_parent(now, id, from)?;
        if self.tree.parent().is_none_or(|parent| parent.token != token) {
            return Err(DropReason::ForgedParent);
        }
        self.reports.on_confirmed(before);
        Ok(())
    }

    /// Stops waiting for blocks that are not available any more.
    fn on_gone(&mut self, now: Instant, nonce: u64, runs: &[BlockRun]) -> Result<(), DropReason> {
        let floor = self.floor();
        let reception = self.delivery.reception();
        for blocks in self.recovery.on_gone(now, nonce, runs, reception, floor)? {
            let (first, count) = (blocks.start, blocks.end - blocks.start);
            self.delivery.skip(blocks);
            self.events.push_back(ReceiverEvent::Gone(BlockRun { first, count }));
        }
        self.check_complete(now);
        Ok(())
    }

    /// Returns the next control message, where it goes and its hop limit.
    pub(super) fn next_message(&mut self, now: Instant) -> Option<(Address, Option<u8>, Body)> {
        let domain = self.config.node.domain;
        let to_source = Way::Host(self.config.shape.source);
        let next = self.outbox.pop_front();
        let next = next.or_else(|| Some((to_source, self.next_reception(now)?)));
        let next = next.or_else(|| self.next_to_parent(now));
        let next = next.or_else(|| Some((to_source, self.next_fetch(now)?)));
        let (way, body) = next.or_else(|| {
            let outlook = self.outlook(now);
            self.tree.poll_message(now, &outlook)
        })?;
        let (to, hop_limit) = way.address(domain);
        Some((to, hop_limit, body))
    }

    /// Returns the next message to the parent: an ACK, a NACK for the whole domain, or a REPORT.
    fn next_to_parent(&mut self, now: Instant) -> Option<(Way, Body)> {
        let parent = self.tree.parent()?;
        let (to, token, hop_limit) = (Way::Host(parent.address), parent.token, parent.radius);
        let parent = parent.id;
        if let Some(ack) = self.next_ack(now, token) {
            return Some((to, Body::Ack(ack)));
        }
        let runs = if self.config.node.recovery == Scheme::Lms {
            self.request_from_helpers(now);
            let runs = self.recovery.next_unhelped(self.delivery.reception());
            self.stats.nacks_sent += u64::from(runs.is_some());
            runs
        } else {
            self.next_nack(now)
        };
        if let Some(runs) = runs {
            let nack = Body::Nack(Nack { parent, hop_limit, runs });
            let group = self.config.node.recovery.has_group();
            return Some((if group { Way::Domain { hop_limit } } else { to }, nack));
        }
        let retry = (self.timing().t_ack * 2).max(REPORT_WAIT_MIN);
        let report = self.reports.poll(now, token, retry);
        let report = report.or_else(|| self.survey.poll(now, token))?;
        Some((to, Body::Report(report)))
    }

    fn next_ack(&mut self, now: Instant, token: u64) -> Option<Ack> {
        if self.upstream.is_none_or(|upstream| upstream.ack_at() > now) {
            return None;
        }
        let full = self.delivery.room.is_refusing() || self.is_buffer_full();
        let totals = self.sum();
        let upstream = self.upstream.as_mut()?;
        self.stats.acks_sent += 1;
        let held = (self.delivery.reception(), &mut self.wariness);
        Some(self.acks.build(now, upstream, token, held, full, totals))
    }

    fn next_nack(&mut self, now: Instant) -> Option<Vec<NackRun>> {
        let reach = self.reach();
        let (delivery, manager) = (&mut self.delivery, self.duty.manager());
        let refuses = |block| {
            manager.is_some_and(|manager| manager.refuses(block)) || self.suspects.holds_up(block)
        };
        let runs = self.recovery.next_nack(now, delivery, &reach, refuses)?;
        self.stats.nacks_sent += 1;
        self.note_asked(now, &runs);
        Some(runs)
    }

    /// Returns whether blocks may be fetched from the source.
    pub(super) fn may_fetch(&self) -> bool {
        self.stage.needs_blocks() && self.source.feed().is_some()
    }

    /// Returns whether the source wants to know how its packets arrive here.
    pub(super) fn may_report(&self) -> bool {
        self.wanted.outcome.is_none() && !self.stage.is_leaving()
    }

    fn next_reception(&mut self, now: Instant) -> Option<Body> {
        let cookie = self.recovery.cookie();
        if !self.may_report() {
            return None;
        }
        let by_unicast = self.unicast.is_on();
        let measure = if by_unicast { &mut self.unicast.measure } else { &mut self.measure };
        measure.poll(now, cookie)
    }

    fn next_fetch(&mut self, now: Instant) -> Option<Body> {
        if !self.may_fetch() {
            return None;
        }
        if let Some(question) = self.suspects.poll(now, self.recovery.cookie()) {
            return Some(question);
        }
        let reach = self.reach();
        let mut fetch = self.recovery.next_fetch(now, &mut self.delivery, &reach)?;
        if let Body::Fetch { cookie: 1.., portion, .. } = &mut fetch
            && self.unicast.is_on()
        {
            portion.payload = self.unicast.on_fetch(now);
        }
        self.stats.fetches_sent += u64::from(matches!(fetch, Body::Fetch { cookie: 1.., .. }));
        Some(fetch)
    }
}
