//! The source: listener, masters and children.

mod accounts;
mod alarms;
mod alone;
mod arrival;
mod commands;
mod half_open;
mod handshake;
mod output;
mod time_wait;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;

use rand_core::Rng;
use umbel_wire::tcp::{Flags, Head, Segment, Seq};

use self::alone::Alone;
use super::ack_filter::AckFilterChange;
use super::api::{
    ChildId, ChildReport, CloseReason, MasterId, SourceCommand, SourceCommandError, SourceEvent,
    SourceStats, Stream,
};
use super::child::{Child, Served};
use super::children::Children;
use super::config::{Join, SourceConfig};
use super::drops::{DropReason, Drops};
use super::master::Master;
use super::peers::Peers;
use super::question::Turns;
use super::resent::Way;
use super::tournament::Tournament;
use super::view::View;
use crate::bounds::SMO_STRAYS;
use crate::bucket::Limiter;
use crate::chance::Generator;
use crate::shares::Shares;
use crate::units::Rate;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};
use half_open::HalfOpen;
use time_wait::TimeWait;

/// Part of the buffer that must be free before [`SourceEvent::Writable`] is told, so that the
/// application is not woken for each segment.
const ROOM_SHARE: usize = 4;
/// Shortest segments that are configured or asked for, so that nobody makes the source send one for
/// each byte.
const MIN_MSS: u16 = 48;
/// Segments without a connection that wait to be sent, at most.
const MAX_CONTROL: usize = 8192;
/// Part of the half-open connections for which answers may wait when a SYN is taken. A connection
/// whose answer waits behind them is still open for three times as many SYNs when it has left.
const BACKLOG_SHARE: usize = 4;
/// Answers that may wait in any case, if there is room for as many half-open connections.
const LEAST_BACKLOG: usize = 8;
/// Answers that may wait in no case, as a kernel has a backlog of so many.
const MOST_BACKLOG: usize = 1024;

/// A TCP server whose connections share multicast streams. The state machine is drawn in the
/// [module](super).
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    /// Sequence number of position 0.
    base: Seq,
    listens: bool,
    masters: Vec<Option<Master>>,
    children: Children,
    /// Slot of each child, by its address.
    peers: Peers,
    /// Slot of each child, by its number.
    ids: BTreeMap<ChildId, u32>,
    /// The connections of each host.
    places: Shares<ChildId>,
    /// Bytes held for children that are served alone.
    alone: Alone,
    next_id: u64,
    half_open: HalfOpen,
    time_wait: TimeWait,
    /// When something is due for each child, or earlier.
    alarms: Tournament,
    /// Children with something to send by unicast.
    ready: VecDeque<u32>,
    /// Retransmissions to single children.
    repairs: VecDeque<(u32, ChildId, Range<u64>)>,
    /// Retransmissions to channels, by the master's place.
    multicast_repairs: VecDeque<(u32, Range<u64>)>,
    /// Segments without a connection.
    control: VecDeque<(SocketAddr, Head)>,
    /// Segments without a connection since connections had a turn.
    answers_in_row: u32,
    strays: Limiter,
    questions: Turns,
    /// The master whose turn it is to multicast.
    turn: usize,
    pace: Option<Rate>,
    /// Chooses what is left out.
    random: Generator,
    /// Segments that were left out.
    left_out: u64,
    events: VecDeque<SourceEvent>,
    stats: SourceStats,
    drops: Drops,
    head: Vec<u8>,
}

impl Source {
    /// Creates a source that listens. `random` chooses the initial sequence number, unless the
    /// configuration does.
    pub fn new(mut config: SourceConfig, mut random: Generator) -> Source {
        config.mss = config.mss.max(MIN_MSS);
        let base = Seq(config.base.unwrap_or_else(|| random.next_u32()));
        let first = Master::new(MasterId::FIRST, config.channel, &config);
        let masters = if config.join == Join::AtOnce { vec![Some(first)] } else { Vec::new() };
        let mut source = Source {
            half_open: HalfOpen::new(config.half_open, config.initial_rto),
            time_wait: TimeWait::new(config.children, config.time_wait),
            places: Shares::new(config.children, config.children),
            alone: Alone::default(),
            config,
            base,
            listens: true,
            masters,
            children: Children::default(),
            peers: Peers::new(random.next_u64()),
            ids: BTreeMap::new(),
            next_id: 0,
            alarms: Tournament::default(),
            ready: VecDeque::new(),
            repairs: VecDeque::new(),
            multicast_repairs: VecDeque::new(),
            control: VecDeque::new(),
            answers_in_row: 0,
            strays: Limiter::new(SMO_STRAYS.all),
            questions: Turns::default(),
            turn: 0,
            pace: None,
            random,
            left_out: 0,
            events: VecDeque::new(),
            stats: SourceStats::default(),
            drops: Drops::default(),
            head: Vec::new(),
        };
        if !source.masters.is_empty() {
            source.tell_wanted(0);
        }
        source
    }

    /// Returns the source's counters.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    /// Returns the number of segments that were left out on purpose, to be sent a round trip later
    /// ([`SourceConfig::skip_every`]).
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the configuration.
    pub fn config(&self) -> &SourceConfig {
        &self.config
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the number of half-open connections.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Returns the number of bytes that may be written to a stream, 0 if it has ended. What is written
    /// to a child is refused all the same while its host holds its share of the memory.
    pub fn room(&self, to: Stream) -> usize {
        match to {
            Stream::Master(id) => {
                match self.master_place(id).and_then(|place| self.master(place)) {
                    Some(master) if master.buffer.is_finished() => 0,
                    Some(master) => self.master_room(master),
                    None => 0,
                }
            }
            Stream::Child(id) => match self.child(id).map(|child| &child.served) {
                Some(Served::Alone(None)) => self.config.buffer,
                Some(Served::Alone(Some(buffer))) if !buffer.is_finished() => buffer.room(),
                _ => 0,
            },
        }
    }

    fn master_room(&self, master: &Master) -> usize {
        match self.config.release {
            // Sent data makes room for new data.
            super::Release::Buffer => {
                let unsent = master.buffer.end().saturating_sub(master.nxt) as usize;
                (self.config.buffer / 2).saturating_sub(unsent)
            }
            _ => master.buffer.room(),
        }
    }

    fn master_place(&self, id: MasterId) -> Option<u32> {
        let place = self.masters.iter().position(|m| m.as_ref().is_some_and(|m| m.id == id))?;
        Some(place as u32)
    }

    fn master(&self, place: u32) -> Option<&Master> {
        self.masters.get(place as usize)?.as_ref()
    }

    fn master_mut(&mut self, place: u32) -> Option<&mut Master> {
        self.masters.get_mut(place as usize)?.as_mut()
    }

    fn child(&self, id: ChildId) -> Option<&Child> {
        self.children.get(*self.ids.get(&id)?)
    }

    /// Returns the child in a slot that is known to be taken.
    fn at(&mut self, slot: u32) -> &mut Child {
        self.children.at(slot)
    }

    /// Returns what a child must know of its stream.
    fn view(&self, child: &Child) -> View {
        View::of(child, &self.masters)
    }

    /// Returns a child with its view.
    fn seen(&mut self, slot: u32) -> (&mut Child, View) {
        let Source { children, masters, .. } = self;
        let child = children.at(slot);
        let view = View::of(child, masters);
        (child, view)
    }

    /// Queues a child that has something to send by unicast.
    fn make_ready(&mut self, slot: u32) {
        let child = self.at(slot);
        if !child.is_queued {
            child.is_queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Queues a segment without a connection.
    fn push_control(&mut self, to: SocketAddr, head: Head) {
        if self.control.len() < MAX_CONTROL {
            self.control.push_back((to, head));
        } else {
            self.drops.count(DropReason::HeldDown);
        }
    }

    /// Returns whether so many answers wait that no SYN is taken, as a kernel drops those beyond its
    /// backlog. Answers would leave too late, and connections give way before they have.
    fn has_backlog(&self) -> bool {
        let half_open = self.config.half_open;
        let backlog = (half_open / BACKLOG_SHARE).max(half_open.min(LEAST_BACKLOG));
        self.control.len() >= backlog.clamp(1, MOST_BACKLOG)
    }

    /// Does what follows from a change of a child: timers, retransmissions, its standing in its
    /// master, and its end.
    fn settle(&mut self, now: Instant, slot: u32) {
        let (child, view) = self.seen(slot);
        let is_done = matches!(child.served, Served::Done);
        let is_over = is_done || view.end.is_some_and(|end| child.una >= end);
        if is_over && self.on_fin_acked(now, slot) {
            return;
        }
        let Source { children, masters, config, .. } = self;
        let child = children.at(slot);
        let view = View::of(child, masters);
        let waits = child.set_timers(now, config, &view);
        let sends_alone = !child.hearing.hears && child.sendable(&view) > 0;
        if let Served::Master(place, seat) = child.served
            && let Some(master) = masters[place as usize].as_mut()
        {
            if waits && !sends_alone && child.idle_at.is_none() {
                child.idle_at = Some(master.idle.len() as u32);
                master.idle.push(slot);
            }
            master.note(seat, child.standing(&view));
        }
        self.bring_forward(slot);
        if sends_alone {
            self.make_ready(slot);
        }
        self.release_alone(slot);
        if !self.at(slot).board.is_clean() {
            self.plan_repairs(now, slot);
        }
        self.tell_ack_rule(slot);
    }

    /// Brings the alarm of a child forward to the first of its timers.
    fn bring_forward(&mut self, slot: u32) {
        let at = self.children.of(slot).alarm(&self.config).as_nanos();
        if self.alarms.at(slot as usize).is_none_or(|known| at < known) {
            self.alarms.put(slot as usize, Some(at));
        }
    }

    /// Tells which acknowledgements of a child are wanted, if that has changed.
    fn tell_ack_rule(&mut self, slot: u32) {
        let Source { children, masters, config, base, events, .. } = self;
        // It may have been removed.
        let Some(child) = children.get_mut(slot).filter(|_| config.acks_per_window.is_some())
        else {
            return;
        };
        let view = View::of(child, masters);
        events.extend(child.ack_rule(*base, &view, config).map(SourceEvent::AckFilter));
    }

    /// Hands the next retransmissions of a child to its master, or queues the child.
    fn plan_repairs(&mut self, now: Instant, slot: u32) {
        loop {
            let (child, view) = self.seen(slot);
            let Some(run) = child.next_repair(&view) else { return };
            if run.start < view.start {
                // It is no longer held.
                if self.config.real_time.is_none() {
                    self.remove(slot, CloseReason::TooLate);
                    return;
                }
                self.at(slot).board.give_up(view.start);
                continue;
            }
            match child.served {
                Served::Master(..) if child.hearing.hears && child.una < view.start => {
                    // Data that it lacks reaches its age soon, too: there is no time to count
                    // others.
                    child.on_repair_wanted(&run);
                    let id = child.id;
                    self.repairs.push_back((slot, id, run));
                }
                Served::Master(place, _) if child.hearing.hears => {
                    child.on_repair_wanted(&run);
                    let rtt = child.rtt.late().unwrap_or_default();
                    let threshold = self.config.threshold;
                    let Some(master) = self.master_mut(place) else { return };
                    let threshold = threshold * master.len() as f64;
                    let sent = master.repairs.want(now, slot, &run, rtt, threshold);
                    match sent {
                        Some(at) => {
                            self.on_repaired(at, Way::Multicast, slot, &run);
                            self.bring_forward(slot);
                        }
                        None => self.at(slot).wanted += 1,
                    }
                }
                _ => {
                    // It is sent when it is polled.
                    self.make_ready(slot);
                    return;
                }
            }
        }
    }

    /// Notes that a child has acknowledged FIN. Returns whether it is gone.
    fn on_fin_acked(&mut self, now: Instant, slot: u32) -> bool {
        self.leave_master(slot);
        let child = self.at(slot);
        child.served = Served::Done;
        child.fin_acked.get_or_insert(now);
        child.hearing.on_end();
        child.board.clear();
        (child.rto_at, child.probe_at) = (None, None);
        child.question.end();
        if child.inbox.has_ended() {
            self.close(now, slot);
            return true;
        }
        false
    }

    /// Takes a child out of its master.
    fn leave_master(&mut self, slot: u32) {
        let child = self.at(slot);
        let Served::Master(place, seat) = child.served else { return };
        child.served = Served::Done;
        let idle_at = child.idle_at.take();
        let Some(master) = self.master_mut(place) else { return };
        master.leave(seat);
        if let Some(at) = idle_at {
            // The last of the idle ones takes its place.
            master.idle.swap_remove(at as usize);
            if let Some(&moved) = master.idle.get(at as usize) {
                self.at(moved).idle_at = Some(at);
            }
        }
        self.check_drained(place);
    }

    /// Ends a master that was finished and that nobody waits for.
    fn check_drained(&mut self, place: u32) {
        let Some(master) = self.master(place) else { return };
        let is_sent = master.nxt >= master.buffer.end_with_fin() || master.len() == 0;
        if master.buffer.is_finished() && master.len() == 0 && is_sent {
            self.events.push_back(SourceEvent::Drained { master: master.id });
            self.masters[place as usize] = None;
        }
    }

    /// Ends a connection that both sides have finished.
    fn close(&mut self, now: Instant, slot: u32) {
        let base = self.base;
        let report = self.account(slot);
        let child = self.at(slot);
        let (id, peer, ack_due) = (child.id, child.peer, child.ack_due);
        let (seq, ack) = (base.plus(child.una as u32), child.inbox.next());
        if !child.finished_first {
            self.time_wait.insert(now, peer, seq, ack);
        }
        if ack_due {
            self.push_control(peer, self.bare(peer, seq, Some(ack), Flags::ACK));
        }
        self.forget(slot);
        self.events.push_back(SourceEvent::Closed { child: id, report });
    }

    /// Ends a connection before its time, with RST.
    fn remove(&mut self, slot: u32, reason: CloseReason) {
        let (base, report) = (self.base, self.account(slot));
        let (child, view) = self.seen(slot);
        let (id, peer) = (child.id, child.peer);
        // RST is valid only at the next sequence number that the receiver expects, or it is
        // challenged [RFC 5961 §3]. Where data was lost, that is SND.UNA.
        let seqs = [child.una, view.sent.max(child.una)];
        let ack = child.inbox.next();
        if !matches!(reason, CloseReason::Reset | CloseReason::Lingered) {
            for (n, position) in seqs.into_iter().enumerate() {
                if n == 0 || position != seqs[0] {
                    let seq = base.plus(position as u32);
                    self.push_control(peer, self.reset(peer, seq, Some(ack)));
                }
            }
        }
        self.leave_master(slot);
        self.forget(slot);
        self.events.push_back(SourceEvent::Removed { child: id, reason, report });
    }

    /// Returns the account of a child that is about to end.
    fn account(&self, slot: u32) -> Box<ChildReport> {
        let child = self.children.of(slot);
        Box::new(self.report_on(child))
    }

    fn forget(&mut self, slot: u32) {
        self.leave_master(slot);
        // An entry in the queue of those that are ready stays, and is passed over.
        let Some(mut child) = self.children.remove(slot) else { return };
        if child.told.clear() {
            let change = AckFilterChange::Clear { peer: child.peer };
            self.events.push_back(SourceEvent::AckFilter(change));
        }
        self.peers.remove(&child.peer);
        self.ids.remove(&child.id);
        self.places.leave(child.id);
        self.alarms.put(slot as usize, None);
    }

    /// Releases what a master may release, and tells what follows.
    fn advance(&mut self, now: Instant, place: u32) {
        let Source { masters, config, .. } = self;
        let Some(master) = masters.get_mut(place as usize).and_then(Option::as_mut) else { return };
        master.refresh(now, config);
        if master.release(now, config) {
            let id = master.id;
            let start = master.buffer.start();
            if config.real_time.is_none() {
                self.remove_behind(place, start);
            }
            self.tell_room(place, id);
        }
        self.tell_pace(place);
        self.tell_wanted(place);
    }

    /// Removes the children that need bytes before `start`.
    fn remove_behind(&mut self, place: u32, start: u64) {
        while let Some(slot) = self.master(place).and_then(|master| master.behind(start)) {
            self.remove(slot, CloseReason::TooLate);
        }
    }

    fn tell_room(&mut self, place: u32, id: MasterId) {
        let Some(master) = self.master(place) else { return };
        let room = self.master_room(master);
        if room < self.config.buffer / ROOM_SHARE {
            return;
        }
        if self.master_mut(place).is_some_and(|master| std::mem::take(&mut master.was_full)) {
            self.events.push_back(SourceEvent::Writable { to: Stream::Master(id), room });
        }
    }

    fn tell_pace(&mut self, place: u32) {
        let Source { masters, config, .. } = self;
        let Some(master) = masters.get_mut(place as usize).and_then(Option::as_mut) else { return };
        if master.new_pace(config).is_none() {
            return;
        }
        let all: f64 = self.masters.iter().flatten().map(Master::pace).sum();
        let pace = Rate::from_bits_per_s(all as u64);
        if let Some(pace) = pace.filter(|pace| self.pace != Some(*pace)) {
            self.pace = Some(pace);
            let burst =
                self.masters.iter().flatten().map(Master::rtt).min().unwrap_or_default() / 2;
            self.events.push_back(SourceEvent::Pace { rate: pace, burst });
        }
    }
}

impl Engine for Source {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Address::Host(peer) = datagram.by else {
            return self.drops.count(DropReason::Unexpected);
        };
        let Ok(segment) = Segment::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        if segment.head.destination_port != self.config.port
            || segment.head.source_port != peer.port()
        {
            return self.drops.count(DropReason::OtherSession);
        }
        self.stats.segments += 1;
        match self.peers.get(&peer) {
            Some(slot) => self.on_segment(now, slot, &segment),
            None => self.on_stray(now, peer, &segment),
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        self.on_command(now, command)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.on_timers(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        self.transmit(now, buf)
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && (0..self.masters.len()).any(|place| self.may_send(place))
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_timer()
    }
}
