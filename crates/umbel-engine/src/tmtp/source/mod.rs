//! The source: the root of the control tree.
//!
//! ```text
//!        Start            Extend                  window shut: T_retrans is over and the first
//! Idle ────────▶ Running ────────▶ sends ────────────────────────────┐ interval not acknowledged
//!                   │                ▲                                ▼
//!                   │                └──── acknowledged, evicted ── stalls
//!                   │ Close
//!                   ▼
//!                Closing ── told so a few times ──▶ Closed
//! ```
//!
//! Repairs go before new data, and new data share the rate with fetched blocks. The window is the
//! blocks that were sent and not acknowledged. It is bounded by T_retrans [TMTP, flow control], by
//! [`SourceConfig::window`], and by half the bytes of a buffer ([`RepairConfig::buffer`]), since
//! receivers hold incomplete blocks in memory.
//!
//! [`RepairConfig::buffer`]: super::RepairConfig::buffer

mod commands;
mod completion;
mod data;
mod digests;
mod heartbeats;
mod help;
mod messages;
mod pace;
mod row;
mod shares;
mod unicast;

use std::collections::{BTreeMap, VecDeque};

use umbel_wire::repository::SymbolKey;
use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::tmtp::{Body, End, FeedInfo, Heartbeat, Message, NodeId, Progress, Role, Totals};

use super::TreeView;
use super::api::{SourceCommand, SourceCommandError, SourceEvent, SourceStats};
use super::authentic::Authentic;
use super::catch_up::Fetched;
use super::concast::{self, Reports};
use super::config::{Draws, SourceConfig, TimingConfig};
use super::domain::{Domain, Ledger};
use super::drops::{DropReason, Drops};
use super::shelf::Shelf;
use super::survey::Survey;
use super::tree::{Outlook, Tree, UNICAST_HOPS, Way};
use crate::chance::Generator;
use crate::congestion::Limit;
use crate::recovery::Debts;
use crate::symbols::SymbolSource;
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};
use completion::Completion;
use digests::Questions;
use heartbeats::Heartbeats;
use help::Help;
use pace::Pace;
use shares::Shares;
use unicast::Unicast;

/// Bytes of a signed heartbeat with its stamp, with some room.
const SIGNED_LEN: u64 = 350;
/// Part of a slow feed's rate, as a divisor, that a heartbeat in each T_ack takes at most.
const CONTROL_SHARE: u32 = 4;
/// Part of the rate at which the feed is slow.
const SLOWEST: f64 = 0.02;
/// Most claims of children about receivers that are kept.
const MAX_REPORTS: usize = 1 << 17;
/// Most nodes of the tree that are kept while someone looks at it.
const MAX_SURVEY: usize = 1 << 16;
/// Most blocks that may be fetched at a time.
const MAX_FETCHED: usize = 1 << 16;
/// Number of heartbeats that say that the feed is over.
const CLOSING_BEATS: u32 = 6;

timers! {
    /// Timers of a source.
    enum Timer, Timers {
        /// When to send a beacon, or to give up a silent child.
        Tree,
        /// When to begin a round of the survey.
        Survey,
        /// When to repair for children, or to evict one.
        Domain,
        /// When to answer the group, if nobody nearer has.
        Help,
        /// When to send the blocks that were gathered from FETCHes.
        Fetched,
        /// When to send to a receiver that is served by unicast.
        Unicast,
        /// When to answer a question about the symbols of a block.
        Digests,
        /// When to send a heartbeat.
        Heartbeat,
        /// When to review the rate, or to tell receivers when to report.
        Pace,
    }
}

/// The source's progress from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Running,
    /// This number of heartbeats are still to say that the feed is over.
    Closing(u32),
    Closed,
}

/// Sendings that wait until the host says that symbols are ready.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    data: bool,
    repairs: bool,
    help: bool,
    fetched: bool,
    unicast: bool,
    digests: bool,
}

/// The source's engine.
#[derive(Debug)]
pub struct Source<S> {
    config: SourceConfig,
    stage: Stage,
    shelf: Shelf<S>,
    domain: Domain,
    tree: Tree,
    authentic: Authentic,
    help: Help,
    fetched: Fetched,
    unicast: Unicast,
    questions: Questions,
    /// Key of the digests that everybody is told.
    digest_key: SymbolKey,
    reports: Reports,
    survey: Survey,
    /// Last totals of each child's subtree.
    totals: BTreeMap<NodeId, Totals>,
    pace: Pace,
    /// Block and symbol that are sent next for the first time.
    next: (u32, u32),
    /// Number of first sendings so far, which is the index in the header of the next.
    index: u32,
    end: Option<End>,
    waits: Waits,
    /// The application wants no more blocks to begin.
    paused: bool,
    /// New data may be sent, as far as was known at the last review of the window.
    open: bool,
    shares: Shares,
    heartbeats: Heartbeats,
    acknowledged: u32,
    told: Totals,
    completion: Completion,
    memberships: VecDeque<Membership>,
    outbox: VecDeque<(Way, Body)>,
    events: VecDeque<SourceEvent>,
    drops: Drops,
    stats: SourceStats,
}

/// Returns the timing of a source. Its messages share the pace of its data, so that signed ones,
/// which are long, come no more often than a slow feed has room for.
fn timing_of(config: &SourceConfig) -> TimingConfig {
    let timing = config.timing;
    if !config.node.has_keys() {
        return timing;
    }
    let slowest = config.rate.scaled(SLOWEST);
    let least = slowest.time_for(SIGNED_LEN) * CONTROL_SHARE;
    TimingConfig { t_ack_min: timing.t_ack_min.max(least).min(timing.t_ack_max), ..timing }
}

/// Creates the service by unicast. It has the share of the rate that all FETCHes have.
fn unicast_of(config: &SourceConfig, mut random: Generator) -> Unicast {
    // The pace has the first stream.
    random.long_jump();
    let most = config.congestion.map_or(config.rate, |congestion| congestion.most);
    let most = most.scaled(config.fetch_share.clamp(0.01, 1.0));
    let packet_len = SmallBlockHeader::STAMPED_LEN as u32 + u32::from(config.shape.symbol_len);
    let share = config.fetch_credit.map_or(1.0, |credit| credit.share);
    let rates = (most, most.scaled(share));
    Unicast::new(rates, packet_len, config.congestion, random)
}

impl<S: SymbolSource> Source<S> {
    /// Creates a source that takes symbols from `symbols`. It sends nothing before
    /// [`SourceCommand::Start`].
    pub fn new(config: SourceConfig, draws: Draws, symbols: S) -> Source<S> {
        let ledger = Ledger::new(timing_of(&config));
        let help = Help::new(&config, &draws);
        let domain = Domain::new(config.node.feed, config.shape.fec, config.repair, ledger, 0);
        let digest_key = draws.digest_key();
        let authentic =
            Authentic::new(&config.node, (config.node.id, config.shape.source), &draws.cookies);
        let tree = Tree::new(
            &config.node,
            config.shape.source,
            config.tree.clone(),
            Role::Source,
            domain.timing(),
            draws.tree,
        );
        Source {
            stage: Stage::Idle,
            shelf: Shelf::new(symbols),
            domain,
            tree,
            authentic,
            help,
            fetched: Fetched::new(draws.cookies, MAX_FETCHED, config.fetch_credit),
            unicast: unicast_of(&config, draws.paths.clone()),
            questions: Questions::default(),
            digest_key,
            reports: Reports::of_root(MAX_REPORTS),
            survey: Survey::new(MAX_SURVEY),
            totals: BTreeMap::new(),
            pace: Pace::new(config.rate, config.congestion, draws.paths),
            next: (0, 0),
            index: 0,
            end: None,
            waits: Waits::default(),
            paused: false,
            open: false,
            shares: Shares::new(
                config.fetch_share,
                config.fetch_credit.map_or(0.0, |credit| credit.share),
            ),
            heartbeats: Heartbeats::new(config.heartbeat_min, config.heartbeat_max),
            acknowledged: 0,
            told: Totals::default(),
            completion: Completion::default(),
            memberships: VecDeque::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: SourceStats::default(),
            config,
        }
    }

    /// Returns the counts of discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the counters.
    pub fn stats(&self) -> SourceStats {
        let view = self.tree.view();
        let (dmcasts, to_group) = self.help.sent();
        SourceStats {
            load: self.domain.load(),
            repairs_sent: self.domain.load().retransmissions + to_group + dmcasts,
            dmcasts_sent: dmcasts,
            blocks_sent: self.sent(),
            acknowledged: self.domain.acked_below(),
            members: view.members,
            children: view.children,
            totals: self.sum(),
            ..self.stats
        }
    }

    /// Returns what limits the rate of the data channel, and since when; `None` for a fixed rate.
    pub fn limit(&self) -> Option<(Limit<NodeId>, Instant)> {
        self.pace.limit()
    }

    /// Returns the source's place in the control tree, which is the root.
    pub fn tree(&self) -> TreeView {
        self.tree.view()
    }

    /// Returns where symbols are taken from.
    pub fn symbols_mut(&mut self) -> &mut S {
        &mut self.shelf.symbols
    }

    /// Returns the number of blocks that were sent completely for the first time.
    fn sent(&self) -> u32 {
        self.next.0
    }

    /// Returns whether there is a control tree. Otherwise all receivers are this node's children.
    fn has_tree(&self) -> bool {
        self.config.node.recovery.has_tree()
    }

    /// Returns the description of the feed.
    fn feed_info(&self) -> FeedInfo {
        let shape = self.config.shape;
        FeedInfo {
            source: self.config.node.id,
            address: shape.source,
            symbol_len: shape.symbol_len,
            block_symbols: shape.block_symbols,
            fec: shape.fec,
            manifest: shape.manifest,
        }
    }

    fn outlook(&self, now: Instant) -> Outlook {
        let sent = self.sent();
        let lowest = self.shelf.lowest().min(sent);
        Outlook {
            feed: Some(self.feed_info()),
            progress: Progress { sent, lowest, end: self.end.clone() },
            timing: self.domain.timing(),
            from: self.domain.end(),
            closing: matches!(self.stage, Stage::Closing(_) | Stage::Closed),
            watched: self.survey.is_watched(now),
        }
    }

    /// Returns when something of a receiver came last: `None` before the first.
    pub fn heard_at(&self) -> Option<Instant> {
        self.completion.heard()
    }

    /// Begins a round of the survey, if one is due.
    fn survey_if_due(&mut self, now: Instant) {
        if self.survey.is_due(now) {
            let load = self.domain.load().total();
            self.survey.begin_round(now, &self.config.node, &self.tree, load, 0);
            self.survey.keep();
        }
    }

    /// Returns the totals of all receivers.
    fn sum(&self) -> Totals {
        let own = Totals { members: 0, done: 0, failed: 0, below: self.sent(), height: 0 };
        concast::sum(own, self.totals.values())
    }

    /// Releases blocks that every child has acknowledged, and tells the application.
    fn advance(&mut self, now: Instant) {
        let acknowledged = self.domain.acked_below();
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.events.push_back(SourceEvent::Acknowledged { below: acknowledged });
            let kept = self.config.history.unwrap_or(0);
            self.shelf.release_before(acknowledged.saturating_sub(kept));
        }
        let totals = self.sum();
        self.completion.count(totals.members as usize);
        if totals != self.told {
            self.told = totals;
            self.events.push_back(SourceEvent::Totals(totals));
        }
        self.check_complete(now);
        self.look(now);
    }

    /// Completes the feed when it has ended and all receivers in the tree have it or gave up.
    fn check_complete(&mut self, now: Instant) {
        // Who gets it by unicast need not wait until all of it has gone to nobody by multicast.
        let nobody_else = self.unicast.was_ever()
            && !self.totals.is_empty()
            && self.domain.children().acked_below().is_none();
        let is_sent = |end: &End| self.sent() >= end.blocks || nobody_else;
        let ended = self.end.as_ref().is_some_and(is_sent);
        let settled = self.totals.values().all(|below| below.is_settled());
        if !ended || !settled || self.domain.acked_below() < self.sent() {
            return self.completion.unsettle();
        }
        if self.completion.on_settled(now, self.reports.receiving(), self.reports.len()) {
            self.events.push_back(SourceEvent::Complete);
        }
    }

    /// Returns whether there are data that are not sent because of children.
    fn is_held_up(&self, now: Instant) -> bool {
        !self.paused && self.shelf.len_of(self.next.0).is_some() && !self.may_send(now)
    }

    /// Updates whether new data may be sent now.
    fn look(&mut self, now: Instant) {
        let open = self.may_send(now);
        if self.open && self.is_held_up(now) {
            self.stats.stalls += 1;
        }
        self.open = open;
    }

    /// Returns when there is something to do.
    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        if matches!(self.stage, Stage::Idle | Stage::Closed) {
            return timers;
        }
        timers.put(Timer::Tree, self.tree.poll_timeout());
        timers.put(Timer::Survey, self.survey.next());
        timers.put(Timer::Domain, self.domain.next_timeout());
        timers.put(Timer::Help, self.help.next_timeout());
        timers.put(Timer::Fetched, self.fetched.next_timeout());
        timers.put(Timer::Unicast, self.unicast.next_timeout(self.waits.unicast));
        timers.put(Timer::Digests, self.questions.next().filter(|_| !self.waits.digests));
        timers.set(Timer::Heartbeat, self.heartbeats.next());
        timers.put(Timer::Pace, self.pace.next_timeout());
        timers
    }

    /// Repairs for children, and evicts those that make no progress.
    fn tend_children(&mut self, now: Instant) {
        let held_up = self.is_held_up(now);
        for id in self.domain.on_timeout(now, &self.shelf, held_up) {
            self.stats.evicted += 1;
            self.events.push_back(SourceEvent::Evicted(id));
            self.tree.evict(now, id);
        }
    }
}

impl<S: SymbolSource> Engine for Source<S> {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if matches!(self.stage, Stage::Idle | Stage::Closed) {
            return self.drops.count(DropReason::Unexpected);
        }
        if let Err(reason) = self.on_datagram(now, datagram) {
            self.drops.count(reason);
        }
        self.settle(now);
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        self.on_command(now, command)?;
        self.settle(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Idle | Stage::Closed) {
            return;
        }
        self.survey.rest(now);
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Tree => self.tree.handle_timeout(now),
                Timer::Survey => self.survey_if_due(now),
                Timer::Domain => self.tend_children(now),
                Timer::Help => self.tend_help(now),
                Timer::Fetched => self.fetched.on_timeout(now),
                Timer::Unicast => self.unicast.on_timeout(now),
                Timer::Heartbeat => {
                    self.heartbeats.on_timeout(now);
                    self.check_complete(now);
                }
                // It is answered when messages are polled.
                Timer::Digests => {}
                Timer::Pace => self.pace.on_timeout(now),
            }
        }
        self.settle(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if matches!(self.stage, Stage::Idle | Stage::Closed) {
            return None;
        }
        if let Some(transmit) = self.poll_control(now, buf) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_pong(buf) {
            return Some(transmit);
        }
        if let Some(transmit) = self.poll_unicast(now, buf) {
            return Some(transmit);
        }
        if buf.allows(RateClass::Data) == 0 {
            return None;
        }
        let transmit = self.poll_data(now, buf)?;
        self.pace.on_sent(now);
        Some(transmit)
    }

    fn wants(&self, class: RateClass) -> bool {
        let data = self.open && !self.waits.data && self.shelf.len_of(self.next.0).is_some();
        let to_all = self.domain.any_due() && !self.waits.repairs;
        let help = self.help.any_due() && !self.waits.help;
        let fetched = self.fetched.any_due() && !self.waits.fetched;
        class == RateClass::Data
            && matches!(self.stage, Stage::Running)
            && ((data || to_all) && self.pace.may_send() || help || fetched)
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }
}

impl<S: SymbolSource> Source<S> {
    /// Builds the next control message.
    fn poll_control(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some((to, bytes)) = self.authentic.poll(now) {
            self.stats.control_sent += 1;
            buf.push_message(bytes);
            return Some(Transmit::control(Address::Host(to)).within(Some(UNICAST_HOPS)));
        }
        self.answer_question(now);
        let outlook = self.outlook(now);
        let message = self.outbox.pop_front();
        let fetched = &self.fetched;
        let message = message.or_else(|| self.pace.poll_message(now, |to| fetched.cookie(to)));
        let message = message.or_else(|| self.unicast.poll_message(|to| fetched.cookie(to)));
        let message = message.or_else(|| self.tree.poll_message(now, &outlook));
        // Without a tree, beacons reach receivers where only the data channel does.
        let message = message.filter(|(_, body)| {
            let is_beacon = matches!(body, Body::Beacon(_));
            if is_beacon {
                self.unicast.beat();
            }
            let on_channel = is_beacon && !self.has_tree();
            if on_channel {
                self.heartbeats.add();
            }
            !on_channel
        });
        let (to, hop_limit, body) = if let Some((way, body)) = message {
            let (to, hop_limit) = way.address(self.config.node.domain);
            (to, hop_limit, body)
        } else if let Some(to) = self.unicast.poll_beat(now) {
            // To fetch a block, it need not have been sent.
            let progress = Progress { sent: self.shelf.total(), ..outlook.progress.clone() };
            let body = self.heartbeat(now, &Outlook { progress, ..outlook });
            (Address::Host(to), Some(UNICAST_HOPS), body)
        } else if self.heartbeats.take_due() {
            let body = self.heartbeat(now, &outlook);
            self.unicast.beat();
            self.on_heartbeat_sent();
            (Address::Channel(self.config.node.data), Some(self.config.node.scope), body)
        } else {
            let body = self.questions.poll_for_all()?;
            let to = Address::Channel(self.config.node.data);
            (to, Some(self.config.node.scope), body)
        };
        self.stats.control_sent += 1;
        let message = Message { feed: self.config.node.feed, sender: self.config.node.id, body };
        buf.push_message(self.authentic.seal(now, to, &message));
        Some(Transmit::control(to).within(hop_limit))
    }

    fn heartbeat(&self, now: Instant, outlook: &Outlook) -> Body {
        let beacon = self.tree.beacon(now, outlook, self.config.node.scope);
        let failed = self.end.as_ref().is_some_and(|end| end.failed.is_some());
        let last_word = self.config.last_word.filter(|_| beacon.closing || failed);
        Body::Heartbeat(Box::new(Heartbeat { feed: self.feed_info(), beacon, last_word }))
    }

    fn on_heartbeat_sent(&mut self) {
        if let Stage::Closing(left) = self.stage {
            self.stage = if left > 1 { Stage::Closing(left - 1) } else { Stage::Closed };
            if self.stage == Stage::Closed {
                self.memberships.extend(self.config.node.group().map(Membership::Leave));
                self.events.push_back(SourceEvent::Closed);
            }
        }
    }
}
