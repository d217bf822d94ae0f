//! A receiver: a group member, and the domain manager of its subnet when it is elected.
//!
//! ```text
//!          Join                    parent found                    ACK every T_ack, NACKs
//! Outside ──────▶ Inside, orphaned ────────────▶ Inside, attached ◀───────────────────────┐
//!                    ▲                               │      │   └─────────────────────────┘
//!                    └── parent failed, or gave it up┘      │ Leave
//!                                                           ▼
//!                           Left ◀── LEAVE_CONFIRM ── Leaving: gives children
//!                                                     what they still need
//!
//! block:   missing ──symbols──▶ complete ──all children's ACKs──▶ released
//!             │ ▲                   (kept in the buffer only while there are children)
//!  T_ack over,│ │ repair, or T_retrans of the parent
//!  or a later │ │
//!  one came   ▼ │
//!          asked for: NACK after a random delay, unless a sibling's is heard
//! ```
//!
//! A manager acknowledges the blocks that it holds itself, not its children's [TMTP, "The
//! Transmission Protocol"]. While its buffer is full it drops new data and does not acknowledge
//! them, so that pressure goes up the tree [TMTP, "Flow Control"].
//!
//! The receiver is made of parts. A member has a [`Delivery`], a [`Recovery`], [`Acks`] and,
//! while it has a parent, an [`Upstream`]. A [`Manager`] exists only while there are children.

mod acks;
mod blame;
mod commands;
mod delivery;
mod help;
mod manager;
mod measure;
mod messages;
mod packets;
mod recovery;
mod room;
mod source_watch;
mod stage;
mod suspects;
mod tempo;
mod trial;
mod unicast;
mod upstream;
mod wariness;

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::tmtp::{
    Body, Dismissal, Message, NodeId, Progress, ReceiverReport, ReceiverState, Refusal, Role,
    Timing, Totals, limits,
};

use super::TreeView;
use super::api::{Purpose, ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats};
use super::authentic::Authentic;
use super::concast::{self, Reports};
use super::config::{Draws, NodeConfig, ReceiverConfig, Start};
use super::domain::Ledger;
use super::drops::{DropReason, Drops};
use super::receipt::receipt;
use super::survey::{self, Survey};
use super::text::cut;
use super::tree::{Outlook, Tree, TreeEvent, UNICAST_HOPS, Way};
use crate::symbols::SymbolSink;
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};
use acks::Acks;
use commands::{Outcome, Wanted};
use delivery::Delivery;
use help::Help;
use manager::{Duty, Manager};
use measure::Measure;
use recovery::{Reach, Recovery};
use source_watch::SourceWatch;
use stage::Stage;
use suspects::Suspects;
use tempo::Tempo;
use trial::Trial;
use unicast::Unicast;
use upstream::Upstream;
use wariness::Wariness;

/// Nodes below that are kept in the survey of the tree.
const MAX_SURVEY: usize = 1 << 14;
/// Most claims of children about receivers of the subtree that are kept.
const MAX_REPORTS: usize = 1 << 16;

timers! {
    /// Timers of a receiver.
    enum Timer, Timers {
        /// When to go on with the search for a parent, to send a beacon, or to give up a silent
        /// child.
        Tree,
        /// When to begin a round of the survey, or to pass entries on.
        Survey,
        /// When to notice that the source is silent.
        Silence,
        /// When to judge what multicast brings.
        Channel,
        /// When to notice that the token is wrong.
        Token,
        /// When to ask the source for the key of the tree, or to give that up.
        Key,
        /// When to believe what others say of the blocks that were sent.
        Hearsay,
        /// When to repair for children, or to evict one.
        Domain,
        /// When to leave, whatever children still need.
        Leave,
        /// When to send an ACK.
        Ack,
        /// When to send a NACK.
        Nack,
        /// When to report to the parent.
        Report,
        /// When to send a FETCH.
        Fetch,
        /// When to ask for digests of a wrong block, or to give that up.
        Digests,
        /// When to do what helpers do.
        Help,
        /// When to tell the source how its packets arrive.
        Reception,
    }
}

/// The receiver's engine.
#[derive(Debug)]
pub struct Receiver<K> {
    config: ReceiverConfig,
    stage: Stage,
    tree: Tree,
    authentic: Authentic,
    /// The parent's domain.
    upstream: Option<Upstream>,
    /// First block that the first parent guaranteed. Earlier blocks are not NACKed.
    joined_at: Option<u32>,
    source: SourceWatch,
    wanted: Wanted,
    delivery: Delivery<K>,
    recovery: Recovery,
    /// Blocks that were wrong.
    suspects: Suspects,
    wariness: Wariness,
    /// What the parent's repairs of such blocks are worth.
    trial: Trial,
    acks: Acks,
    measure: Measure,
    /// Rate at which the source sends.
    tempo: Tempo,
    unicast: Unicast,
    duty: Duty,
    /// Its help for other receivers, without a tree.
    help: Option<Box<Help>>,
    /// Hops from the source, if the host knows.
    hops: Option<u8>,
    reports: Reports,
    survey: Survey,
    memberships: VecDeque<Membership>,
    outbox: VecDeque<(Way, Body)>,
    events: VecDeque<ReceiverEvent>,
    drops: Drops,
    stats: ReceiverStats,
}

impl<K: SymbolSink> Receiver<K> {
    /// Creates a receiver that keeps symbols in `sink`. It does nothing before
    /// [`ReceiverCommand::Join`].
    pub fn new(config: ReceiverConfig, draws: Draws, sink: K) -> Receiver<K> {
        let shape = config.shape;
        let ledger = Ledger::new(config.timing);
        let help = Help::new(&config, &draws);
        let digest_key = draws.digest_key();
        let authentic = Authentic::new(&config.node, (shape.id, shape.source), &draws.cookies);
        let tree = Tree::new(
            &config.node,
            shape.source,
            config.tree.clone(),
            Role::Member,
            ledger.timing(),
            draws.tree,
        );
        Receiver {
            stage: Stage::Outside,
            help,
            hops: None,
            tree,
            authentic,
            upstream: None,
            joined_at: None,
            source: SourceWatch::default(),
            wanted: Wanted::default(),
            delivery: Delivery::new(sink, config.far_ahead),
            recovery: Recovery::new(&config.repair, shape.fec, shape.block_symbols, draws.recovery)
                .by(config.node.recovery),
            suspects: Suspects::new(digest_key, shape.fec),
            wariness: Wariness::default(),
            trial: Trial::default(),
            acks: Acks::new(),
            unicast: Unicast::new(draws.paths.clone()),
            measure: Measure::new(draws.paths),
            tempo: Tempo::default(),
            duty: Duty::None(ledger),
            reports: Reports::new(MAX_REPORTS),
            survey: Survey::new(MAX_SURVEY),
            memberships: VecDeque::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Returns the counts of discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReceiverStats {
        let load = self.duty.ledger().load();
        let help = self.help.as_ref().map_or((0, 0), |help| help.counts());
        ReceiverStats {
            load,
            repairs_sent: load.retransmissions + help.0,
            requests_sent: help.1,
            buffered: self.duty.buffered() + self.help.as_ref().map_or(0, |help| help.buffered()),
            totals: self.sum(),
            ..self.stats
        }
    }

    /// Returns where the receiver stands in the control tree.
    pub fn tree(&self) -> TreeView {
        self.tree.view()
    }

    /// Returns whether the parent has not confirmed all that this node has to tell of others.
    pub fn speaks_for_others(&self) -> bool {
        self.reports.any_of_others(self.config.node.id)
    }

    /// Returns where symbols are kept.
    pub fn sink_mut(&mut self) -> &mut K {
        self.delivery.sink_mut()
    }

    /// Returns the number of complete blocks, and of blocks known to have been sent.
    pub fn progress(&self) -> (u32, u32) {
        (self.delivery.complete(), self.delivery.known())
    }

    /// Returns whether the receiver takes part in the group.
    fn takes_part(&self) -> bool {
        self.stage.takes_part()
    }

    /// Returns the number of the manifest's blocks.
    fn prefix(&self) -> u32 {
        self.config.shape.manifest.map_or(0, |manifest| manifest.blocks)
    }

    /// Returns the blocks that may be asked for. Until more is wanted they end with the manifest.
    fn reach(&self) -> Reach {
        let all = self.wanted.said && self.joined_at.is_some();
        let mut timing = self.timing();
        if let Some(rtt) = self.help.as_ref().map(|help| help.rtt()) {
            timing.rtt = rtt;
        }
        Reach { floor: self.floor(), end: if all { u32::MAX } else { self.prefix() }, timing }
    }

    /// Returns the first block that is asked for by NACK; earlier ones are fetched.
    fn floor(&self) -> u32 {
        if self.unicast.is_on() {
            return u32::MAX;
        }
        let joined = self.joined_at.unwrap_or(u32::MAX);
        self.upstream.map_or(u32::MAX, |upstream| upstream.lowest().max(joined))
    }

    /// Returns for how long the source may be silent; `None` once this receiver is finished.
    fn patience(&self) -> Option<Duration> {
        self.wanted.outcome.is_none().then(|| self.source.patience(self.config.patience))
    }

    /// Returns when the source will have been silent for long.
    fn silent_at(&self) -> Option<Instant> {
        self.source.silent_at(self.patience())
    }

    /// Joins the groups again if there is still patience with a silent source; otherwise the source
    /// is gone.
    fn on_silence(&mut self, now: Instant) {
        let Some(silence) = self.source.on_silence(now, self.patience()) else {
            return self.on_closing();
        };
        for channel in [Some(self.config.node.data), self.config.node.group()].into_iter().flatten()
        {
            self.memberships.extend([Membership::Leave(channel), Membership::Join(channel)]);
        }
        self.events.push_back(ReceiverEvent::SourceSilent(silence));
    }

    /// Returns the timing of the parent's domain; without a parent that of this node's own.
    fn timing(&self) -> Timing {
        self.upstream.map_or(self.duty.ledger().timing(), |upstream| upstream.timing())
    }

    fn outlook(&self, now: Instant) -> Outlook {
        let sent = self.delivery.known();
        // Blocks that are not there yet will be.
        let lowest = self.duty.manager().map_or(sent, |manager| manager.lowest().min(sent));
        Outlook {
            feed: self.source.feed(),
            progress: Progress { sent, lowest, end: self.source.end().cloned() },
            timing: self.duty.ledger().timing(),
            from: self.delivery.guarantee(),
            closing: self.source.is_gone(),
            watched: self.survey.is_watched(now),
        }
    }

    /// Returns the totals of this node and all below it.
    fn sum(&self) -> Totals {
        let known = self.delivery.known();
        let outcome = self.wanted.outcome;
        let own = Totals {
            members: 1,
            done: u32::from(outcome == Some(Outcome::Done)),
            failed: u32::from(outcome == Some(Outcome::Failed)),
            below: self.delivery.reception().first_gap(0).min(known),
            height: 0,
        };
        concast::sum(own, self.duty.totals())
    }

    /// As a manager, reports to the source on this node while someone looks at the tree.
    fn survey_if_due(&mut self, now: Instant) {
        if self.survey.is_due(now) && self.tree.role() == Role::Manager {
            let loss = survey::ppm(self.stats.data_received, self.stats.data_lost);
            let load = self.duty.ledger().load().total();
            self.survey.begin_round(now, &self.config.node, &self.tree, load, loss);
        }
    }

    /// Reports on this receiver itself.
    fn report(&mut self, state: ReceiverState) {
        let name = cut(self.config.node.name.clone(), limits::NAME_LEN);
        let held = self.delivery.complete();
        let NodeConfig { feed, id: node, .. } = self.config.node;
        let done = state == ReceiverState::Done;
        let key = self.config.receipt.as_ref().filter(|_| done);
        let receipt = key.map(|key| receipt(key, feed, node, &name));
        self.reports.note(node, ReceiverReport { node, name, held, state, receipt }, false);
    }

    /// Starts the timers of blocks that are found missing.
    fn find_gaps(&mut self, now: Instant) {
        let reach = self.reach();
        self.recovery.find_gaps(now, self.delivery.reception(), &reach);
    }

    /// Learns that the source has sent all blocks before `end`. Returns whether that is news.
    fn learn_sent(&mut self, now: Instant, end: u32) -> bool {
        let news = self.delivery.learn_sent(end);
        if news {
            if let Some(manager) = self.duty.manager_mut() {
                manager.extend(now, end);
            }
            self.look_ahead(now);
            self.find_gaps(now);
        }
        news
    }

    /// Takes what others said of the blocks that were sent for true.
    fn believe_hearsay(&mut self, now: Instant) {
        if let Some(sent) = self.source.take_sent(now) {
            self.learn_sent(now, sent);
        }
    }

    /// Repairs for children, and evicts those that make no progress.
    fn tend_children(&mut self, now: Instant) {
        if let Some(manager) = self.duty.manager_mut() {
            for id in manager.on_timeout(now) {
                self.tree.evict(now, id);
            }
        }
    }

    /// Schedules an acknowledgement now.
    fn ack_now(&mut self, now: Instant) {
        if let Some(upstream) = &mut self.upstream {
            upstream.ack_now(now);
        }
    }

    /// Schedules an acknowledgement before T_ack is over, since much has happened.
    fn ack_early(&mut self, now: Instant) {
        if self.config.timing.adaptive
            && let Some(upstream) = &mut self.upstream
        {
            self.acks.hurry(now, upstream);
        }
    }

    /// Returns whether the manager's buffer has no room for new blocks.
    fn is_buffer_full(&self) -> bool {
        self.duty.manager().is_some_and(Manager::is_full)
    }

    /// Handles what happened in the tree.
    fn settle_tree(&mut self, now: Instant) {
        while let Some(event) = self.tree.poll_event() {
            match event {
                TreeEvent::Attached(confirm) => self.on_attached(now, &confirm),
                TreeEvent::Detached => self.on_detached(),
                TreeEvent::Dismissed(Dismissal::Slow) => {
                    self.recovery.on_dismissed_as_slow();
                    self.events.push_back(ReceiverEvent::Evicted);
                }
                TreeEvent::Dismissed(_) | TreeEvent::Rival(_) => {}
                TreeEvent::ChildJoined { id } => {
                    let from = self.delivery.guarantee();
                    let strikes = self.tree.strikes(id);
                    self.duty.adopt(now, id, (from, strikes), &self.config);
                }
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
    }

    /// Handles what happened in the tree, and what follows from any input.
    fn settle(&mut self, now: Instant) {
        self.settle_tree(now);
        // A new parent is not tried for what the former one did.
        if self.leave_liar(now) {
            self.settle_tree(now);
        }
        if self.authentic.is_shut_out(now) {
            self.events.push_back(ReceiverEvent::Refused(Refusal::NotAdmitted));
        }
        if self.authentic.is_unlisted(now) {
            self.events.push_back(ReceiverEvent::NotListed);
        }
        self.find_gaps(now);
        self.leave_former_if_ready(now);
        if self.recovery.take_caught_up(&self.delivery) {
            self.tree.join(now);
        }
        self.leave_if_ready(now);
    }

    /// Returns when there is something to do. Messages for the parent wait while there is none.
    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        if !self.takes_part() {
            return timers;
        }
        timers.put(Timer::Tree, self.tree.poll_timeout());
        timers.put(Timer::Silence, self.silent_at());
        timers.put(Timer::Channel, self.unicast.next());
        timers.put(Timer::Token, self.authentic.shut_out_at());
        timers.put(Timer::Key, self.authentic.asks_at());
        timers.put(Timer::Hearsay, self.source.hearsay_at());
        timers.put(Timer::Domain, self.duty.manager().and_then(Manager::next_timeout));
        timers.put(Timer::Leave, self.stage.leaves_at());
        if self.may_report() {
            let measure = if self.unicast.is_on() { &self.unicast.measure } else { &self.measure };
            timers.put(Timer::Reception, measure.next(self.recovery.cookie()));
        }
        let room = self.delivery.room.opens_at();
        if self.may_fetch() {
            timers.put(Timer::Fetch, self.recovery.next_fetch_at().map(|at| at.max(room)));
            timers.put(Timer::Digests, self.suspects.next_timeout());
        }
        if let Some(upstream) = self.upstream.filter(|_| self.tree.parent().is_some()) {
            timers.set(Timer::Ack, upstream.ack_at());
            timers.put(Timer::Nack, self.recovery.next_nack_at().map(|at| at.max(room)));
            timers.put(Timer::Report, self.reports.next());
            timers.put(Timer::Help, self.help.as_ref().and_then(|help| help.next_timeout()));
            let manages = self.tree.role() == Role::Manager;
            timers.put(Timer::Survey, self.survey.next().filter(|_| manages));
        }
        timers
    }

    fn on_child_left(&mut self, now: Instant, id: NodeId) {
        self.reports.release(id);
        let Some(manager) = self.duty.manager_mut() else { return };
        if manager.remove(id) {
            self.find_gaps(now);
        }
        self.duty.rest();
    }
}

impl<K: SymbolSink> Engine for Receiver<K> {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if !self.takes_part() {
            return self.drops.count(DropReason::Unexpected);
        }
        if let Err(reason) = self.on_datagram(now, datagram) {
            self.drops.count(reason);
            self.settle(now);
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
        if !self.takes_part() {
            return;
        }
        self.survey.rest(now);
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Tree => {
                    let joined_at = self.joined_at.unwrap_or(0);
                    let held = self.delivery.reception().first_gap(joined_at);
                    self.tree.note_progress(held, self.delivery.known());
                    self.tree.handle_timeout(now);
                }
                Timer::Survey => self.survey_if_due(now),
                Timer::Silence => self.on_silence(now),
                Timer::Channel => self.judge_channel(now),
                Timer::Hearsay => self.believe_hearsay(now),
                Timer::Domain => self.tend_children(now),
                Timer::Digests => self.give_up_digests(now),
                Timer::Help => {
                    if let Some(help) = &mut self.help {
                        help.handle_timeout(now, self.delivery.reception());
                    }
                }
                // Messages are built when they are polled, and the rest is settled.
                Timer::Token
                | Timer::Key
                | Timer::Leave
                | Timer::Ack
                | Timer::Nack
                | Timer::Report
                | Timer::Fetch
                | Timer::Reception => {}
            }
        }
        self.settle(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if !self.takes_part() {
            return None;
        }
        if let Some((to, bytes)) = self.authentic.poll(now) {
            self.stats.control_sent += 1;
            buf.push_message(bytes);
            return Some(Transmit::control(Address::Host(to)).within(Some(UNICAST_HOPS)));
        }
        if self.authentic.is_waiting() {
            return None;
        }
        if let Some((to, hop_limit, body)) = self.next_message(now) {
            self.stats.control_sent += 1;
            let node = &self.config.node;
            let message = Message { feed: node.feed, sender: node.id, body };
            buf.push_message(self.authentic.seal(now, to, &message));
            return Some(Transmit::control(to).within(hop_limit));
        }
        if let Some(transmit) = self.poll_help(now, buf) {
            return Some(transmit);
        }
        if buf.allows(RateClass::Data) > 0
            && let Some(transmit) = self.fill_help(now, buf)
        {
            return Some(transmit);
        }
        let manager = self.duty.manager_mut().filter(|manager| manager.any_due())?;
        if buf.allows(RateClass::Data) == 0 || !manager.fill(now, buf) {
            return None;
        }
        let to = Address::Channel(self.config.node.domain);
        Some(Transmit::data(to).within(Some(self.tree.radius())))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data
            && self.takes_part()
            && (self.duty.manager().is_some_and(Manager::any_due)
                || self.help.as_ref().is_some_and(|help| help.any_due()))
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }
}
