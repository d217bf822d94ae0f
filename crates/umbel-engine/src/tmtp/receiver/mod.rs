//! A receiver: a group member, and the domain manager of its subnet when it is elected.
//!
//! ```text
//!          Join                    parent found                    ACK every T_ack, NACKs
//! Outside ──────▶ Inside, orphaned ────────────▶ Inside, attached ◀───────────────────────┐
//!                    ▲                               │      │   └─────────────────────────┘
//!                    └── parent failed, or gave it up┘      │ Leave
//!                                                           ▼
//!                           Left ◀── LEAVE_CONFIRM ── Leaving: what its children
//!                                                     still need of it first
//!
//! block:   lacking ──symbols──▶ complete ──all children's ACKs──▶ let go of
//!             │ ▲                   (kept in the buffer only while there are children)
//!  T_ack over,│ │ repair, or T_retrans of the parent
//!  or a later │ │
//!  one came   ▼ │
//!          asked for: NACK after a random delay, unless a sibling's is heard
//! ```
//!
//! A manager acknowledges what it holds itself, not what its children do [TMTP, "The Transmission
//! Protocol"]. While its buffer is full it drops, and does not acknowledge, new data, so that
//! pressure goes up the tree [TMTP, "Flow Control"].

mod acks;
mod commands;
mod data;
mod messages;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::tmtp::{
    Body, End, FeedInfo, Message, NodeId, Progress, ReceiverReport, ReceiverState, Role, Timing,
    Totals, limits,
};

use super::TreeView;
use super::api::{ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats};
use super::asks::Asks;
use super::buffer::Buffer;
use super::catch_up::Fetching;
use super::concast::{self, Reports};
use super::config::{Draws, ReceiverConfig, Start};
use super::domain::{Domain, Filled};
use super::drops::{DropReason, Drops};
use super::reception::Reception;
use super::survey::{self, Survey};
use super::text::cut;
use super::tree::{Outlook, Tree, TreeEvent, Way};
use crate::symbols::SymbolSink;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Blocks that are asked for by NACK at a time.
const MAX_ASKS: usize = 256;
/// Nodes below that are known of while someone looks at the tree.
const MAX_SURVEY: usize = 1 << 14;
/// A source that has not been heard for so long is gone. Whoever has everything waits less long.
const SOURCE_SILENCE: Duration = Duration::from_mins(1);
const SOURCE_SILENCE_DONE: Duration = Duration::from_secs(5);
/// Last words of so many receivers of the subtree are kept.
const MAX_REPORTS: usize = 1 << 16;

/// Whether the receiver takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Outside,
    Inside,
    /// It gives its children what they need until then, and leaves.
    Leaving(Instant),
    /// It has told the tree that it leaves.
    Parting,
    Left,
}

/// What is known of the parent's domain.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    /// The first block that the parent guarantees.
    from: u32,
    /// The lowest block that its buffer still holds.
    lowest: u32,
    timing: Timing,
    /// The stamp of its last beacon and when that came.
    echo: Option<(u64, Instant)>,
}

/// The numbers of packets that come: what is left out was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// One beyond the last.
    next: Option<u32>,
}

/// Packets of the data channel since the last acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    received: u32,
    lost: u32,
    overrun: u32,
}

/// A sink without room is tried with one block at a time, more and more seldom.
#[derive(Clone, Copy, Debug)]
struct Refusing {
    /// Nothing is asked for before this.
    until: Instant,
    /// How often it was tried.
    tries: u32,
}

/// What the receiver is doing with the feed.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// The application has said what it wants.
    said: bool,
    /// The first block after the manifest that is wanted, once it is known.
    first: Option<u32>,
    /// Every block to the end is restored.
    complete: bool,
    /// The application has it all.
    done: bool,
    /// The application has given up.
    failed: bool,
}

/// The receiver's engine.
#[derive(Debug)]
pub struct Receiver<K> {
    config: ReceiverConfig,
    sink: K,
    random: Xoshiro256PlusPlus,
    stage: Stage,
    tree: Tree,
    reception: Reception,
    asks: Asks,
    fetching: Fetching,
    upstream: Option<Upstream>,
    domain: Domain,
    buffer: Buffer,
    /// Blocks from here on are kept for children; `None` without any.
    keeps_from: Option<u32>,
    /// One beyond the highest block of which a symbol came.
    seen: u32,
    /// A beacon or heartbeat said that all blocks before this were sent; it may have overtaken the
    /// data, and is believed then.
    hearsay: Option<(u32, Instant)>,
    /// Blocks before this were sent when this receiver first found a parent: they are not NACKed.
    joined_at: Option<u32>,
    reports: Reports,
    survey: Survey,
    totals: BTreeMap<NodeId, Totals>,
    feed: Option<FeedInfo>,
    end: Option<End>,
    wanted: Wanted,
    /// Of first sendings by the data channel.
    numbers: Numbers,
    /// Of repairs by the data channel, while the source is the parent.
    repair_numbers: Numbers,
    heard: Heard,
    /// The sink had no room, and has not taken a symbol since.
    refused: Option<Refusing>,
    /// When the sink last took a symbol.
    stored_at: Instant,
    /// Its parent has dismissed it as too slow: it fetches what it lacks, and joins again when that
    /// is little.
    slow: bool,
    /// Its parent failed while it was leaving: it looks for another one, once.
    retold: bool,
    ack_at: Option<Instant>,
    /// When the last acknowledgement was sent.
    acked_at: Instant,
    round: u32,
    /// When the source was heard last on the data channel.
    source_heard: Option<Instant>,
    source_gone: bool,
    memberships: VecDeque<Membership>,
    outbox: VecDeque<(Way, Body)>,
    events: VecDeque<ReceiverEvent>,
    drops: Drops,
    stats: ReceiverStats,
}

impl<K: SymbolSink> Receiver<K> {
    /// A receiver that keeps symbols in `sink`. It does nothing before
    /// [`ReceiverCommand::Join`].
    pub fn new(config: ReceiverConfig, sink: K) -> Receiver<K> {
        let shape = config.shape;
        let domain = Domain::new(config.node.feed, shape.fec, config.timing, config.repair, 0);
        let tree = Tree::new(
            &config.node,
            shape.source,
            config.tree.clone(),
            Role::Member,
            domain.timing(),
            config.node.random(Draws::Tree),
        );
        let buffer = usize::try_from(config.repair.buffer).unwrap_or(usize::MAX);
        Receiver {
            random: config.node.random(Draws::Recovery),
            sink,
            stage: Stage::Outside,
            tree,
            reception: Reception::new(config.far_ahead.max(1), config.far_ahead as usize),
            asks: Asks::new(MAX_ASKS),
            fetching: Fetching::new(shape.block_symbols),
            upstream: None,
            domain,
            buffer: Buffer::new(usize::from(shape.symbol_len), buffer),
            keeps_from: None,
            seen: 0,
            hearsay: None,
            joined_at: None,
            reports: Reports::new(MAX_REPORTS),
            survey: Survey::new(MAX_SURVEY),
            totals: BTreeMap::new(),
            feed: None,
            end: None,
            wanted: Wanted::default(),
            numbers: Numbers::default(),
            repair_numbers: Numbers::default(),
            heard: Heard::default(),
            refused: None,
            stored_at: Instant::EPOCH,
            slow: false,
            retold: false,
            ack_at: None,
            acked_at: Instant::EPOCH,
            round: 0,
            source_heard: None,
            source_gone: false,
            memberships: VecDeque::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Input that was discarded, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// What it has done and seen.
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            load: self.domain.load(),
            repairs_sent: self.domain.load().retransmissions,
            buffered: self.buffer.bytes() as u64,
            totals: self.sum(),
            ..self.stats
        }
    }

    /// Where it stands in the control tree.
    pub fn tree(&self) -> TreeView {
        self.tree.view()
    }

    /// Where symbols are kept.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// Complete blocks, and blocks known to have been sent.
    pub fn progress(&self) -> (u32, u32) {
        let known = self.reception.known();
        (self.reception.count(0..known), known)
    }

    /// Manifest blocks.
    fn prefix(&self) -> u32 {
        self.config.shape.manifest.map_or(0, |manifest| manifest.blocks)
    }

    /// Where what is asked for ends: at the manifest's end, until more is wanted.
    fn wanted_end(&self) -> u32 {
        if self.wanted.said && self.wanted.first.is_some() { u32::MAX } else { self.prefix() }
    }

    /// The first block that is asked for by NACK; earlier ones are fetched.
    fn floor(&self) -> u32 {
        let joined = self.joined_at.unwrap_or(u32::MAX);
        self.upstream.map_or(u32::MAX, |upstream| upstream.lowest.max(joined))
    }

    /// The first block that a new child can be guaranteed: nothing of it has come yet, so that all
    /// of it will be kept.
    fn guarantee(&self) -> u32 {
        self.reception.known().max(self.seen)
    }

    /// When the source will have been silent for too long.
    fn silence(&self) -> Option<Instant> {
        let Wanted { done, failed, .. } = self.wanted;
        let patience = if done || failed { SOURCE_SILENCE_DONE } else { SOURCE_SILENCE };
        self.source_heard.filter(|_| !self.source_gone).map(|heard| heard + patience)
    }

    fn timing(&self) -> Timing {
        self.upstream.map_or(self.domain.timing(), |upstream| upstream.timing)
    }

    fn outlook(&self, now: Instant) -> Outlook {
        let sent = self.reception.known();
        let lowest = match self.keeps_from {
            None => sent,
            // What is not there yet will be.
            Some(from) => self.domain.acked_below().max(from).min(sent),
        };
        Outlook {
            feed: self.feed,
            progress: Progress { sent, lowest, end: self.end.clone() },
            timing: self.domain.timing(),
            from: self.guarantee(),
            closing: self.source_gone,
            watched: self.survey.is_watched(now),
        }
    }

    /// What this node and all below it amount to.
    fn sum(&self) -> Totals {
        let below = self.reception.first_gap(0).min(self.reception.known());
        let Wanted { done, failed, .. } = self.wanted;
        let own = Totals {
            members: 1,
            done: u32::from(done),
            failed: u32::from(failed),
            below,
            height: 0,
        };
        concast::sum(own, self.totals.values())
    }

    /// As a manager, tells the source of itself while someone looks at the tree.
    fn survey_if_due(&mut self, now: Instant) {
        self.survey.rest(now);
        if self.survey.is_due(now) && self.tree.role() == Role::Manager {
            let loss = survey::ppm(self.stats.data_received, self.stats.data_lost);
            let load = self.domain.load().total();
            self.survey.begin_round(now, &self.config.node, &self.tree, load, loss);
        }
    }

    /// Reports on this receiver itself.
    fn report(&mut self, state: ReceiverState) {
        let name = cut(self.config.node.name.clone(), limits::NAME_LEN);
        let held = self.reception.count(0..self.reception.known());
        self.reports.note(ReceiverReport { node: self.config.node.id, name, held, state });
    }

    /// Follows what happened in the tree.
    fn settle(&mut self, now: Instant) {
        while let Some(event) = self.tree.poll_event() {
            match event {
                TreeEvent::Attached(confirm) => self.on_attached(now, &confirm),
                TreeEvent::Detached => self.on_detached(),
                TreeEvent::Dismissed(umbel_wire::tmtp::Dismissal::Slow) => {
                    self.slow = true;
                    self.events.push_back(ReceiverEvent::Evicted);
                }
                TreeEvent::Dismissed(_) | TreeEvent::Rival(_) => {}
                TreeEvent::ChildJoined { id } => self.on_child_joined(now, id),
                TreeEvent::ChildLeft { id, .. } => self.on_child_left(now, id),
                TreeEvent::BecameManager => self.events.push_back(ReceiverEvent::BecameManager),
                TreeEvent::StoppedManaging => {
                    self.events.push_back(ReceiverEvent::StoppedManaging);
                }
                TreeEvent::Refused(refusal) => {
                    self.events.push_back(ReceiverEvent::Refused(refusal));
                }
                TreeEvent::Left { confirmed } => self.on_left(now, confirmed),
            }
        }
        self.find_gaps(now);
        self.return_if_caught_up(now);
        self.leave_if_ready(now);
    }

    /// Whoever was too slow joins again when it lacks little.
    fn return_if_caught_up(&mut self, now: Instant) {
        let known = self.reception.known();
        let lacking = known - self.reception.count(0..known);
        if self.slow && self.refused.is_none() && lacking <= self.fetching.blocks() {
            self.slow = false;
            self.tree.join(now);
        }
    }

    fn on_left(&mut self, now: Instant, confirmed: bool) {
        if !confirmed && !self.retold && !self.source_gone {
            // What the failed parent was told may have gone no farther: another one is told.
            self.retold = true;
            self.reports.restart();
            self.stage = Stage::Leaving(now + self.config.tree.leave_wait);
            self.tree.join(now);
            self.tree.retire();
            return;
        }
        self.stage = Stage::Left;
        self.memberships.push_back(Membership::Leave(self.config.node.data));
        self.memberships.push_back(Membership::Leave(self.config.node.domain));
        self.events.push_back(ReceiverEvent::Left);
    }

    /// Leaves the tree once every child holds what this node can give it, and the parent knows what
    /// this node has to say, or time is up.
    fn leave_if_ready(&mut self, now: Instant) {
        if self.stage == Stage::Parting {
            // Children may have their last words while they look for another parent.
            self.tree.hold(now, !self.reports.is_idle());
        }
        let Stage::Leaving(until) = self.stage else { return };
        let acknowledged = self.domain.acked_below() >= self.domain.end() && !self.domain.any_due();
        let given =
            self.domain.children().len() == 0 || acknowledged && !self.is_about_to_hear_all();
        // An orphan first finds another parent to tell, unless it never had one.
        let mute = self.tree.parent().is_none() && (self.joined_at.is_none() || self.source_gone);
        if now >= until || given && (self.reports.is_idle() || mute) {
            self.stage = Stage::Parting;
            self.tree.hold(now, !self.reports.is_idle());
            self.tree.leave(now);
            self.settle(now);
        }
    }

    /// Whether all below are done, as their acknowledgements say, and some have not had their last
    /// words, which follow.
    fn is_about_to_hear_all(&self) -> bool {
        let all_done = self.totals.values().all(|below| below.is_settled());
        all_done && self.reports.receiving() > 0
    }

    fn on_child_joined(&mut self, now: Instant, id: NodeId) {
        let from = self.guarantee();
        if self.keeps_from.is_none() {
            self.keeps_from = Some(from);
            self.domain.restart(from);
        }
        self.domain.adopt(now, id, from);
        self.buffer.release_before(self.domain.acked_below());
        self.totals.insert(id, concast::NEW_CHILD);
    }

    fn on_child_left(&mut self, now: Instant, id: NodeId) {
        self.domain.let_go(id);
        self.totals.remove(&id);
        self.release(now);
        if self.domain.children().len() == 0 {
            self.keeps_from = None;
            self.buffer.clear();
            self.domain.restart(self.reception.known());
        }
    }

    /// Lets go of what every child holds.
    fn release(&mut self, now: Instant) {
        let was_full = self.is_full();
        self.buffer.release_before(self.domain.acked_below());
        if was_full && !self.is_full() {
            // What was dropped meanwhile is asked for, and the parent told of the room.
            self.find_gaps(now);
        }
    }

    /// Whether a new block would not fit the buffer.
    fn is_full(&self) -> bool {
        self.keeps_from.is_some()
            && !self.buffer.has_room(u32::MAX, self.config.shape.block_symbols)
    }
}

impl<K: SymbolSink> Engine for Receiver<K> {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if matches!(self.stage, Stage::Outside | Stage::Left) {
            return self.drops.count(DropReason::Unexpected);
        }
        match self.on_datagram(now, datagram) {
            Ok(true) => self.settle(now),
            Ok(false) => {}
            Err(reason) => {
                self.drops.count(reason);
                self.settle(now);
            }
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        self.on_command(now, command)?;
        self.settle(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Outside | Stage::Left) {
            return;
        }
        self.tree.handle_timeout(now);
        self.survey_if_due(now);
        if self.silence().is_some_and(|at| at <= now) {
            self.on_closing();
        }
        if let Some((sent, _)) = self.hearsay.take_if(|(_, at)| *at <= now) {
            self.learn_sent(now, sent);
        }
        for id in self.domain.on_timeout(now, &self.buffer) {
            self.tree.evict(now, id);
        }
        self.settle(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if matches!(self.stage, Stage::Outside | Stage::Left) {
            return None;
        }
        if let Some((to, hop_limit, body)) = self.next_message(now) {
            self.stats.control_sent += 1;
            let node = &self.config.node;
            let message = Message { feed: node.feed, sender: node.id, body };
            let mut bytes = Vec::new();
            message.emit(&mut bytes);
            buf.push_message(bytes);
            return Some(Transmit::control(to).within(hop_limit));
        }
        if buf.allows(RateClass::Data) == 0 || !self.domain.any_due() {
            return None;
        }
        match self.domain.fill(now, &mut self.buffer, buf) {
            Filled::Packets => {
                let to = Address::Channel(self.config.node.domain);
                Some(Transmit::data(to).within(Some(self.tree.radius())))
            }
            Filled::Pending | Filled::Nothing => None,
        }
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data
            && self.domain.any_due()
            && !matches!(self.stage, Stage::Outside | Stage::Left)
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if matches!(self.stage, Stage::Outside | Stage::Left) {
            return None;
        }
        let leaves = if let Stage::Leaving(until) = self.stage { Some(until) } else { None };
        let attached = self.upstream.is_some() && self.tree.parent().is_some();
        let acks = self.ack_at.filter(|_| attached);
        let room = self.refused.map_or(Instant::EPOCH, |refusing| refusing.until);
        let asks = self.asks.next().filter(|_| attached).map(|at| at.max(room));
        let reports = self.reports.next().filter(|_| attached);
        let manages = attached && self.tree.role() == Role::Manager;
        let survey = self.survey.next().filter(|_| manages);
        let fetching = matches!(self.stage, Stage::Inside | Stage::Leaving(_));
        let fetches = self.fetching.next().filter(|_| fetching && self.feed.is_some());
        let fetches = fetches.map(|at| at.max(room));
        let hearsay = self.hearsay.map(|(_, at)| at);
        let timers = [self.tree.poll_timeout(), self.domain.next_timeout(), hearsay, acks, asks];
        let others = [reports, survey, fetches, leaves, self.silence()];
        timers.into_iter().chain(others).flatten().min()
    }
}
