//! A member of the group: the engine.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::srm::{MemberId, Message, UnitRun, limits};

use super::adaptive::Interval;
use super::api::{Command, CommandError, Event, Footprint, Stats, Step, Unit};
use super::config::Config;
use super::drops::{DropReason, Drops};
use super::peers::Peers;
use super::repairs::{Asked, Heard, Repairs};
use super::requests::Requests;
use super::session::Session;
use super::timers::{Timer, Timers, UnitTimer, UnitTimers};
use crate::bucket::Bucket;
use crate::census::Census;
use crate::chance::{Generator, uniform};
use crate::reliable::{History, ReceiveWindow, Refused};
use crate::session_pacing::SessionPacer;
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

/// The member's relation to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Outside,
    Inside,
    /// It still has to announce its departure.
    Leaving,
}

/// This member's own stream.
#[derive(Debug)]
pub(super) struct Own {
    /// The next sequence number.
    pub(super) next: u64,
    /// Number of units that have left.
    pub(super) sent: u64,
    /// Bytes of the units that have not left yet.
    unsent_bytes: usize,
    stated_horizon: u64,
    pub(super) history: History<()>,
}

impl Own {
    /// Returns the first unit that others may ask for.
    pub(super) fn horizon(&self) -> u64 {
        let kept = self.history.lowest(()).unwrap_or(self.sent);
        self.stated_horizon.max(kept).min(self.sent)
    }
}

/// State of another source's stream.
#[derive(Debug)]
pub(super) struct Inflow {
    pub(super) window: ReceiveWindow,
    /// As the source stated it, or the unit at which this member began.
    pub(super) horizon: u64,
    /// Time at which the source itself was last heard.
    pub(super) heard: Instant,
    /// Whether it has left or has been silent for long.
    pub(super) gone: bool,
}

/// A member of a group: source, receiver and repairer alike.
pub struct Member {
    pub(super) config: Config,
    random: Generator,
    stage: Stage,
    pub(super) census: Census,
    pub(super) peers: Peers,
    pub(super) pacer: SessionPacer,
    bucket: Bucket,
    pub(super) own: Own,
    pub(super) sources: BTreeMap<MemberId, Inflow>,
    pub(super) history: History<MemberId>,
    pub(super) requests: Requests,
    pub(super) repairs: Repairs,
    pub(super) unit_timers: UnitTimers,
    timers: Timers,
    pub(super) session_due: bool,
    pub(super) heartbeat_due: bool,
    /// Time of the next heartbeat, and the interval to the one after it.
    heartbeat: Option<(Instant, Duration)>,
    /// Own timestamps, the newest last.
    pub(super) timestamps: VecDeque<u64>,
    /// Source from which the next session message continues its list.
    pub(super) told_until: MemberId,
    memberships: VecDeque<Membership>,
    pub(super) events: VecDeque<Event>,
    pub(super) drops: Drops,
    pub(super) stats: Stats,
}

impl Member {
    /// Creates a member that has not joined yet. Its delays are drawn from `random`.
    pub fn new(config: Config, random: Generator) -> Member {
        let (units, bytes) = config.history;
        let repair_timer = config.repair_timer.unwrap_or((1.0, 1.0));
        Member {
            random,
            stage: Stage::Outside,
            census: Census::default(),
            peers: Peers::new(config.max_peers),
            pacer: SessionPacer::new(config.session.pace()),
            bucket: Bucket::new(config.recovery_rate.time_for(config.recovery_burst)),
            own: Own {
                next: 0,
                sent: 0,
                unsent_bytes: 0,
                stated_horizon: 0,
                history: History::new(units, bytes),
            },
            sources: BTreeMap::new(),
            history: History::new(units, bytes),
            requests: Requests::new(Interval::new(config.request_timer, config.adaptive)),
            repairs: Repairs::new(Interval::new(repair_timer, config.adaptive)),
            unit_timers: UnitTimers::default(),
            timers: Timers::default(),
            session_due: false,
            heartbeat_due: false,
            heartbeat: None,
            timestamps: VecDeque::new(),
            told_until: MemberId(0),
            memberships: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// Returns the member's name.
    pub fn id(&self) -> MemberId {
        self.config.id
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the member's counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the approximate number of members of the group, including this one.
    pub fn members(&self) -> u64 {
        self.census.others() + 1
    }

    /// Returns the distance to a member, one way, if it was measured or given.
    pub fn distance(&self, member: MemberId) -> Option<Duration> {
        self.peers.distance(member)
    }

    /// Returns the current C1, C2 and D1, D2.
    pub fn timer_intervals(&self) -> ((f64, f64), (f64, f64)) {
        (self.requests.interval.get(), self.repairs.interval.get())
    }

    /// Returns the sizes of the member's tables.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            peers: self.peers.len(),
            sources: self.sources.len(),
            requests: self.requests.len(),
            repairs: self.repairs.len(),
            held_down: self.repairs.held_down(),
            history: self.history.len() + self.own.history.len(),
        }
    }

    /// Returns whether every unit known to have been sent by others was delivered or given up.
    pub fn is_complete(&self) -> bool {
        self.sources.values().all(|inflow| inflow.window.is_complete())
    }

    /// Draws a uniform number in [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        uniform(&mut self.random)
    }

    /// Returns the distance that timers use.
    pub(super) fn distance_to(&self, member: MemberId) -> Duration {
        self.plausible(self.peers.distance(member).unwrap_or(self.config.default_distance))
    }

    pub(super) fn plausible(&self, distance: Duration) -> Duration {
        distance.clamp(self.config.min_distance, self.config.max_distance)
    }

    pub(super) fn step(&mut self, unit: Unit, step: Step) {
        if self.config.observe {
            self.events.push_back(Event::Step { unit, step });
        }
    }

    fn on_data(&mut self, now: Instant, unit: Unit, horizon: u64, payload: &[u8]) {
        let Unit { source, sequence } = unit;
        if source == self.config.id {
            return self.drops.count(DropReason::Own);
        }
        self.stats.data_heard += 1;
        let from = if self.config.recover_from_horizon { horizon } else { sequence };
        let Some(inflow) = self.inflow(now, source, from) else { return };
        // A unit far ahead says nothing about the horizon either.
        let is_plausible = inflow.window.note_sent(sequence).is_ok();
        self.note_heard(now, source);
        if is_plausible {
            // Units that are given up make room for the new one.
            self.on_horizon(source, horizon);
        }
        self.take_unit(now, unit, payload);
        self.find_gaps(now, source);
    }

    fn on_repair(&mut self, now: Instant, unit: Unit, payload: &[u8], repair: Heard) {
        self.stats.repairs_heard += 1;
        if unit.source != self.config.id && !self.sources.contains_key(&unit.source) {
            return self.drops.count(DropReason::UnknownSource);
        }
        let needed = unit.source != self.config.id && self.take_unit(now, unit, payload);
        self.stats.repairs_unneeded += u64::from(!needed);
        self.step(unit, Step::RepairHeard { needed });
        self.on_repair_heard(now, unit, repair);
        if let (true, true, Some(scope)) =
            (needed, repair.requester == self.config.id, repair.scope)
        {
            self.pass_on(now, unit, scope);
        }
        self.find_gaps(now, unit.source);
    }

    /// Stores a unit. Returns whether it was new.
    fn take_unit(&mut self, now: Instant, unit: Unit, payload: &[u8]) -> bool {
        let Some(inflow) = self.sources.get_mut(&unit.source) else { return false };
        let payload = Bytes::copy_from_slice(payload);
        if let Err(refused) = inflow.window.insert(unit.sequence, payload.clone()) {
            self.drops.count(match refused {
                Refused::Duplicate(_) => DropReason::Duplicate,
                Refused::BeforeHorizon { .. } => DropReason::BeforeHorizon,
                Refused::NoRoom(_) => DropReason::NoRoom,
                Refused::FarAhead { .. } => DropReason::FarAhead,
            });
            return false;
        }
        self.history.insert(unit.source, unit.sequence, payload.clone());
        if !self.config.in_order {
            self.stats.delivered += 1;
            self.events.push_back(Event::Delivered { unit, payload });
        }
        if let Some(after) = self.stop_asking(now, unit) {
            self.step(unit, Step::Recovered { after });
        }
        self.deliver(unit.source);
        true
    }

    /// Delivers the units that are in order, or only moves the window on if order does not matter.
    pub(super) fn deliver(&mut self, source: MemberId) {
        let Some(inflow) = self.sources.get_mut(&source) else { return };
        while let Some((sequence, payload)) = inflow.window.poll_delivery() {
            if self.config.in_order {
                self.stats.delivered += 1;
                let unit = Unit { source, sequence };
                self.events.push_back(Event::Delivered { unit, payload });
            }
        }
    }

    fn on_request(&mut self, now: Instant, source: MemberId, runs: &[UnitRun], asked: Asked) {
        let last = runs.last().map_or(0, |run| run.first + (run.count - 1));
        if source == self.config.id {
            if last >= self.own.sent {
                return self.drops.count(DropReason::FarAhead);
            }
        } else {
            let Some(inflow) = self.sources.get_mut(&source) else {
                return self.drops.count(DropReason::UnknownSource);
            };
            if inflow.window.note_sent(last).is_err() {
                return self.drops.count(DropReason::FarAhead);
            }
            self.find_gaps(now, source);
        }
        for run in runs {
            for sequence in run.first..run.first + run.count {
                let unit = Unit { source, sequence };
                self.stats.requests_heard += 1;
                self.step(unit, Step::RequestHeard);
                if self.requests.is_pending(unit) {
                    self.on_request_heard(now, unit, asked.distance);
                } else if self.held_unit(unit).is_some() {
                    self.offer_repair(now, unit, asked);
                }
            }
        }
    }

    /// Builds the next of this member's own units.
    fn next_data(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.own.sent == self.own.next {
            return None;
        }
        let sequence = self.own.sent;
        let payload = self.own.history.get((), sequence).cloned();
        let payload = payload.expect("units that were not sent never exceed the history");
        self.own.sent += 1;
        self.own.unsent_bytes -= payload.len();
        let horizon = self.own.horizon().min(sequence);
        let (source, mut message) = (self.config.id, Vec::with_capacity(payload.len() + 64));
        Message::Data { source, sequence, horizon, payload: &payload }.emit(&mut message);
        self.stats.data_sent += 1;
        self.heartbeat = self.config.session.heartbeat.map(|first| (now + first, first * 2));
        Some(message)
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Unit => {
                while let Some(timer) = self.unit_timers.pop_due(now) {
                    self.on_unit_timer(now, timer);
                }
            }
            // The due requests and repairs leave when they are polled.
            Timer::Recovery => {}
            Timer::Heartbeat => {
                self.heartbeat_due = true;
                self.heartbeat = self.heartbeat.and_then(|(_, step)| {
                    let follows = step < self.pacer.interval(self.group());
                    follows.then_some((now + step, step * 2))
                });
            }
            Timer::Session => {
                let (group, uniform) = (self.group(), self.uniform());
                self.session_due |= self.pacer.is_due(now, group, uniform);
            }
        }
    }

    fn on_unit_timer(&mut self, now: Instant, timer: UnitTimer) {
        match timer {
            UnitTimer::Request(unit) => self.on_request_timer(now, unit),
            UnitTimer::Repair(unit) => self.on_repair_timer(unit),
            UnitTimer::HoldDown(unit) => self.on_hold_down_over(unit),
        }
    }

    fn set_timers(&mut self) {
        self.timers.clear();
        if self.stage != Stage::Inside {
            return;
        }
        self.timers.put(Timer::Unit, self.unit_timers.next());
        if self.requests.any_due() || self.repairs.any_due() {
            self.timers.set(Timer::Recovery, self.bucket.ready_at());
        }
        self.timers.put(Timer::Heartbeat, self.heartbeat.map(|(at, _)| at));
        self.timers.set(Timer::Session, self.pacer.next());
    }

    fn on_message(&mut self, now: Instant, len: usize, message: Message<'_>) {
        let sender = match message {
            Message::Data { source, .. } => source,
            Message::Repair { sender, .. }
            | Message::Request { sender, .. }
            | Message::Session { sender, .. } => sender,
        };
        if sender == self.config.id {
            return self.drops.count(DropReason::Own);
        }
        match message {
            Message::Data { source, sequence, horizon, payload } => {
                self.on_data(now, Unit { source, sequence }, horizon, payload);
            }
            Message::Repair { source, sequence, requester, distance, scope, payload, .. } => {
                let repair = Heard { requester, distance, scope };
                self.on_repair(now, Unit { source, sequence }, payload, repair);
            }
            Message::Request { sender, source, runs, distance, scope } => {
                let asked = Asked { requester: sender, distance, scope };
                self.on_request(now, source, &runs, asked);
            }
            Message::Session { sender, timestamp_ns, sources, echoes, leaving } => {
                let session = Session { sender, timestamp_ns, sources, echoes, leaving };
                self.on_session(now, len, session);
            }
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.config.id)
            .field("stage", &self.stage)
            .field("footprint", &self.footprint())
            .finish_non_exhaustive()
    }
}

impl Engine for Member {
    type Command = Command;
    type CommandError = CommandError;
    type Event = Event;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let ours = self.config.channel;
        let here = matches!(datagram.by,
            Address::Channel(by) if by.group == ours.group && by.port == ours.port);
        if !here || self.stage != Stage::Inside {
            return self.drops.count(DropReason::Unexpected);
        }
        match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message, .. }) => {
                self.on_message(now, datagram.payload.len(), message);
            }
            Ok(Parsed::UnknownType(_)) | Err(_) => self.drops.count(DropReason::Malformed),
        }
        self.set_timers();
    }

    fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Join => {
                if self.stage == Stage::Outside {
                    self.memberships.push_back(Membership::Join(self.config.channel));
                    let (group, uniform) = (self.group(), self.uniform());
                    self.pacer.start(now, group, uniform);
                }
                self.stage = Stage::Inside;
            }
            Command::Distance(member, distance) => {
                let distance = distance.min(self.config.max_distance);
                self.peers.measured(now, member, distance);
            }
            _ if self.stage != Stage::Inside => return Err(CommandError::Outside),
            Command::Leave => self.stage = Stage::Leaving,
            Command::Horizon(horizon) => {
                self.own.stated_horizon = self.own.stated_horizon.max(horizon.min(self.own.next));
            }
            Command::Send(payload) => {
                if payload.len() > limits::PAYLOAD_LEN.min(self.config.history.1) {
                    return Err(CommandError::TooLong { len: payload.len() });
                }
                let (units, bytes) = self.config.history;
                let waiting = self.own.next - self.own.sent;
                if waiting >= units as u64 || self.own.unsent_bytes + payload.len() > bytes {
                    return Err(CommandError::Full { waiting });
                }
                self.own.unsent_bytes += payload.len();
                self.own.history.insert((), self.own.next, payload);
                self.own.next += 1;
            }
        }
        self.set_timers();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            self.on_timer(now, timer);
        }
        self.set_timers();
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let (message, hop_limit) = match self.stage {
            Stage::Outside => return None,
            Stage::Leaving => {
                self.stage = Stage::Outside;
                self.memberships.push_back(Membership::Leave(self.config.channel));
                (self.session_message(now, Vec::new(), true), None)
            }
            Stage::Inside => self.next_message(now)?,
        };
        self.set_timers();
        buf.push_message(message);
        Some(Transmit::control(Address::Channel(self.config.channel)).within(hop_limit))
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}

impl Member {
    /// Returns the first message that is due: new data, else a repair, a request or a session
    /// message.
    fn next_message(&mut self, now: Instant) -> Option<(Vec<u8>, Option<u8>)> {
        if let Some(data) = self.next_data(now) {
            return Some((data, None));
        }
        if self.bucket.ready_at() <= now {
            let recovery = self.next_repair(now);
            let recovery = if recovery.is_some() { recovery } else { self.next_request(now) };
            if let Some((message, scope)) = recovery {
                let cost = self.config.recovery_rate.time_for(message.len() as u64);
                self.bucket.spend(now, cost);
                return Some((message, scope));
            }
        }
        self.next_session(now).map(|message| (message, None))
    }
}
