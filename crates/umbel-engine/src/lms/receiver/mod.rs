//! The receiver: finds its missing units, requests them, and answers others as a replier.
//!
//! ```text
//!             gap in the numbers, or heartbeat                  repair, or late original
//!  complete ────────────────────────────────▶ missing ─────────────────────────────────▶ complete
//!                                             │    ▲
//!                    at once, then by timeout ▼    │ no answer
//!                                       request 1, 2, 3, …
//!                                             │ more than `failed_after`
//!                                             ▼
//!                                  requests say: replier failed
//! ```
//!
//! Handling of another host's request, steered here by a router that made this receiver its
//! replier:
//!
//! | the unit is | then |
//! |---|---|
//! | kept | DMCAST to the turning point, or unicast; ignored if late [LMS §III-A] |
//! | missing here too | ignored [LMS §II-F], but remembered for two-step recovery [LMS §II-I] |
//! | no longer kept, or not heard of yet | passed on upstream, turning point and all [LMS §III-F] |
//! | far ahead | dropped |

mod collect;
mod losses;
mod requests;
mod waiting;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng;
use umbel_wire::lms::{Message, Request, Summary};
use umbel_wire::{Parsed, Tsi};

use self::collect::Collecting;
use self::losses::Losses;
use self::waiting::Waiting;
use super::api::{ReceiverCommand, ReceiverEvent, ReceiverStats};
use super::config::{Cost, Horizon, ReceiverConfig};
use super::drops::{DropReason, Drops};
use super::lan::Lan;
use super::replier::{Repair, RepairTo, Replier};
use super::rtt::Rtt;
use crate::bucket::Limiter;
use crate::chance::{Generator, uniform};
use crate::reliable::{ReceiveWindow, Refused};
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

timers! {
    /// Timers of the receiver.
    enum Timer, Timers {
        /// When to measure the round trip to the source.
        Ping,
        /// When to do the work that the election on the LAN needs.
        Lan,
        /// When to offer this receiver to the routers.
        Advertise,
        /// When to request missing units.
        Request,
        /// When to report the collected answers.
        Report,
    }
}

/// A message to be sent.
#[derive(Clone, Debug)]
enum Due {
    /// A request, sent to this address as it stands.
    Request(SocketAddr, Request),
    Repair(Repair),
    Ping(u64),
    Advertise(Option<u32>),
    Announce(Option<u32>),
    Report(u32, Summary),
}

/// Weight of one unit in the estimate of loss.
const LOSS_WEIGHT: f64 = 1.0 / 256.0;

/// A member of a channel.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    source: SocketAddr,
    random: Generator,
    is_member: bool,
    tsi: Option<Tsi>,
    window: Option<ReceiveWindow>,
    losses: Losses,
    replier: Replier,
    waiting: Waiting,
    collecting: Collecting,
    lan: Option<Lan>,
    rtt: Rtt,
    /// Share of units whose original did not arrive.
    loss: f64,
    timers: Timers,
    /// The latest ping.
    pinged: Option<(u64, Instant)>,
    /// Whether the routers were offered a replier.
    is_advertised: bool,
    memberships: VecDeque<Membership>,
    due: VecDeque<Due>,
    events: VecDeque<ReceiverEvent>,
    drops: Drops,
    stats: ReceiverStats,
}

impl Receiver {
    /// Creates a receiver that has not joined yet. Its delays are drawn from `random`.
    pub fn new(config: ReceiverConfig, random: Generator) -> Receiver {
        let source = config.channel.source.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Receiver {
            source: SocketAddr::new(source, config.channel.port),
            random,
            is_member: false,
            tsi: config.tsi,
            window: None,
            losses: Losses::new(Limiter::new(config.requests)),
            replier: Replier::new(config.replier),
            waiting: Waiting::new(config.remembered_requests),
            collecting: Collecting::default(),
            lan: None,
            rtt: Rtt::new(config.initial_rtt),
            loss: 0.0,
            timers: Timers::default(),
            pinged: None,
            is_advertised: false,
            memberships: VecDeque::new(),
            due: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: ReceiverStats::default(),
            config,
        }
    }

    /// Returns the receiver's counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the round trip to the source, once it is measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.measured()
    }

    /// Returns the number of units that are missing now.
    pub fn missing(&self) -> usize {
        self.losses.len()
    }

    /// Returns the next unit to be delivered; 0 before anything is known of the source.
    pub fn next_sequence(&self) -> u64 {
        self.window.as_ref().map_or(0, ReceiveWindow::next)
    }

    /// Returns whether this receiver is the replier of its LAN; `false` if it is not on one.
    pub fn is_lan_replier(&self) -> bool {
        self.lan.as_ref().is_some_and(Lan::is_replier)
    }

    /// Returns the cost that it advertises now.
    pub fn cost(&self) -> Option<u32> {
        let us = |factor: f64| (self.rtt.smoothed().as_secs_f64() * 1e6 * factor) as u32;
        match self.config.cost {
            Cost::Fixed(cost) => cost,
            _ if self.window.is_none() => None,
            Cost::Latency => Some(us(1.0)),
            Cost::LatencyAndLoss { weight } => Some(us(1.0 + weight.max(0.0) * self.loss)),
        }
    }

    /// Draws a uniform number in [0, 1).
    fn share(&mut self) -> f64 {
        uniform(&mut self.random)
    }

    fn join(&mut self, now: Instant) {
        if self.is_member {
            return;
        }
        self.is_member = true;
        self.memberships.push_back(Membership::Join(self.config.channel));
        if let Some(lan) = self.config.lan {
            self.memberships.push_back(Membership::Join(lan.channel));
            let share = self.share();
            self.lan = Some(Lan::new(now, lan, share));
        }
        if self.tsi.is_some() {
            self.ping(now);
        }
    }

    fn leave(&mut self) {
        if !self.is_member {
            return;
        }
        self.is_member = false;
        self.memberships.push_back(Membership::Leave(self.config.channel));
        self.due.clear();
        if self.is_advertised {
            self.due.push_back(Due::Advertise(None));
        }
        if let Some(lan) = self.config.lan {
            self.memberships.push_back(Membership::Leave(lan.channel));
            self.due.push_back(Due::Announce(None));
        }
        // The next session that it hears after joining again may be another one.
        let fresh = Receiver::new(self.config.clone(), self.random.clone());
        (self.tsi, self.window, self.losses) = (fresh.tsi, fresh.window, fresh.losses);
        (self.replier, self.waiting) = (fresh.replier, fresh.waiting);
        (self.collecting, self.lan, self.pinged) = (fresh.collecting, fresh.lan, None);
        self.timers.clear();
        self.is_advertised = false;
    }

    fn on_message(&mut self, now: Instant, by: Address, message: &Message<'_>) {
        let ours = self.config.channel;
        match by {
            Address::Channel(channel) if channel == ours => {
                self.on_multicast(now, message, false);
            }
            Address::Channel(channel) => {
                let lan = self.config.lan.map(|lan| lan.channel);
                let is_lan = lan.is_some_and(|lan| channel.destination() == lan.destination());
                match (channel.source, message) {
                    (Some(from), &Message::Election { channel, cost })
                        if is_lan && channel == ours =>
                    {
                        let from = SocketAddr::new(from, ours.port);
                        self.on_election(now, from, cost);
                    }
                    _ if is_lan => self.on_multicast(now, message, true),
                    _ => self.drops.count(DropReason::OtherSession),
                }
            }
            Address::Host(from) => self.on_unicast(now, message, from),
            Address::Session(_) => self.drops.count(DropReason::Unexpected),
        }
    }

    /// Returns whether a message belongs to the session that this receiver follows. The first
    /// session that it hears becomes that session.
    fn is_session(&mut self, tsi: Tsi) -> bool {
        *self.tsi.get_or_insert(tsi) == tsi
    }

    /// Handles a message that came on the channel or the LAN.
    fn on_multicast(&mut self, now: Instant, message: &Message<'_>, is_lan: bool) {
        match *message {
            Message::Data { tsi, sequence, payload } if !is_lan && self.is_session(tsi) => {
                self.on_unit(now, sequence, payload, None);
            }
            Message::Repair { tsi, sequence, unicast: false, payload, .. }
                if self.is_session(tsi) =>
            {
                // Only the source says what it has sent. A repair of a later unit is a replier's
                // invention, and would have all before it requested.
                if self.window.as_ref().is_none_or(|window| sequence > window.known()) {
                    return self.drops.count(DropReason::FarAhead);
                }
                self.replier.on_repair_heard(now, sequence);
                self.waiting.take(sequence);
                self.on_unit(now, sequence, payload, Some(false));
            }
            Message::Heartbeat { tsi, lead, trail } if !is_lan && self.is_session(tsi) => {
                self.on_heartbeat(now, lead, trail);
            }
            Message::Collect { tsi, round, question, spread }
                if !is_lan && self.is_session(tsi) =>
            {
                if self.collecting.on_question(round, spread) {
                    self.events.push_back(ReceiverEvent::Question { round, question });
                }
            }
            Message::Data { .. }
            | Message::Repair { .. }
            | Message::Heartbeat { .. }
            | Message::Collect { .. } => self.drops.count(DropReason::OtherSession),
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    fn on_unicast(&mut self, now: Instant, message: &Message<'_>, from: SocketAddr) {
        match *message {
            Message::Request(ref request) => self.on_request(now, request, from),
            Message::Repair { tsi, sequence, unicast: true, payload, .. } => {
                // A unicast repair is only sent in answer to a request.
                let is_asked = self.tsi == Some(tsi) && self.losses.contains(sequence);
                if !is_asked {
                    return self.drops.count(DropReason::Unexpected);
                }
                self.on_unit(now, sequence, payload, Some(true));
                for (place, number) in self.waiting.take(sequence) {
                    self.answer(now, sequence, number, RepairTo::Subtree(place));
                }
            }
            Message::Pong { tsi, nonce } if self.tsi.is_none_or(|known| known == tsi) => {
                if let Some((_, at)) = self.pinged.take_if(|(sent, _)| *sent == nonce) {
                    let is_first = self.rtt.measured().is_none();
                    self.rtt.on_sample(now - at);
                    self.timers.set(Timer::Ping, now + self.config.ping_every);
                    if is_first {
                        self.advertise(now);
                    }
                } else {
                    self.drops.count(DropReason::Unexpected);
                }
            }
            Message::Solicit { channel } if channel == self.config.channel => {
                if self.is_advertised {
                    self.advertise(now);
                }
            }
            Message::Report { channel, tsi, round, summary, .. }
                if channel == self.config.channel && self.tsi == Some(tsi) =>
            {
                let share = self.share();
                if !self.collecting.add(now, round, summary, share) {
                    self.drops.count(DropReason::Unexpected);
                }
            }
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    /// Handles a unit. `repair` is `None` for an original, otherwise whether the repair came by
    /// unicast.
    fn on_unit(&mut self, now: Instant, sequence: u64, payload: &[u8], repair: Option<bool>) {
        let is_first = self.window.is_none();
        let (horizon, limits) = (self.config.horizon, self.config.window);
        let window = self.window.get_or_insert_with(|| {
            let start = match horizon {
                Horizon::Everything if sequence < limits.far_ahead => 0,
                Horizon::Everything => sequence,
                Horizon::Back(units) => sequence.saturating_sub(units),
            };
            ReceiveWindow::new(start, limits)
        });
        let payload = Bytes::copy_from_slice(payload);
        match window.insert(sequence, payload.clone()) {
            Ok(()) => {
                self.replier.keep(sequence, payload);
                if let Some(loss) = self.losses.recover(sequence) {
                    self.stats.recovered += 1;
                    let (detected, requests) = (loss.detected, loss.requests);
                    let event = ReceiverEvent::Recovered { sequence, detected, requests };
                    self.events.push_back(event);
                } else if repair.is_none() {
                    self.stats.originals += 1;
                    self.loss -= self.loss * LOSS_WEIGHT;
                }
            }
            Err(Refused::Duplicate(_)) => self.stats.duplicates += 1,
            Err(Refused::BeforeHorizon { .. }) => self.drops.count(DropReason::BeforeHorizon),
            Err(Refused::NoRoom(_)) => self.drops.count(DropReason::NoRoom),
            Err(Refused::FarAhead { .. }) => self.drops.count(DropReason::FarAhead),
        }
        self.after_change(now);
        if is_first {
            self.on_first(now);
        }
    }

    fn on_heartbeat(&mut self, now: Instant, lead: u64, trail: u64) {
        let is_first = self.window.is_none();
        let (horizon, limits) = (self.config.horizon, self.config.window);
        let window = self.window.get_or_insert_with(|| {
            let start = match horizon {
                Horizon::Everything => trail,
                Horizon::Back(units) => lead.saturating_sub(units).max(trail),
            };
            ReceiveWindow::new(start, limits)
        });
        // An implausible trail would end the stream.
        if trail >= window.known().saturating_add(limits.far_ahead) {
            return self.drops.count(DropReason::FarAhead);
        }
        if lead.checked_sub(1).is_some_and(|last| window.note_sent(last).is_err()) {
            self.drops.count(DropReason::FarAhead);
        }
        let units = window.give_up_before(trail);
        if units > 0 {
            self.events.push_back(ReceiverEvent::GivenUp { before: trail, units });
            self.losses.give_up_before(trail);
            self.waiting.give_up_before(trail);
        }
        self.after_change(now);
        if is_first {
            self.on_first(now);
        }
    }

    /// Delivers the units that are ready, and notes those newly missing.
    fn after_change(&mut self, now: Instant) {
        let Some(window) = &mut self.window else { return };
        while let Some((sequence, payload)) = window.poll_delivery() {
            self.events.push_back(ReceiverEvent::Unit { sequence, payload });
        }
        while let Some(gap) = window.poll_gap() {
            for sequence in gap {
                self.stats.losses += 1;
                self.loss += (1.0 - self.loss) * LOSS_WEIGHT;
                self.losses.detect(now, sequence, self.config.request_delay);
            }
        }
        self.send_due_requests(now);
    }

    /// Starts advertising and measuring once the session is known and the tree reaches this
    /// receiver.
    fn on_first(&mut self, now: Instant) {
        self.advertise(now);
        if self.rtt.measured().is_none() && self.pinged.is_none() {
            self.ping(now);
        }
    }

    /// Offers this receiver to the routers, if it has a cost to offer. On a LAN only the LAN's
    /// replier does so.
    fn advertise(&mut self, now: Instant) {
        let stands = self.lan.as_ref().is_none_or(Lan::is_replier);
        if let Some(cost) = self.cost().filter(|_| stands && self.is_member) {
            self.due.push_back(Due::Advertise(Some(cost)));
            self.is_advertised = true;
        }
        self.timers.set(Timer::Advertise, now + self.config.advertise_every);
    }

    fn on_election(&mut self, now: Instant, from: SocketAddr, cost: Option<u32>) {
        let own = self.cost();
        let Some(lan) = &mut self.lan else {
            return self.drops.count(DropReason::Unexpected);
        };
        if lan.on_announced(now, from, cost, own) && std::mem::take(&mut self.is_advertised) {
            self.due.push_back(Due::Advertise(None));
        }
        self.tend_lan(now);
    }

    fn tend_lan(&mut self, now: Instant) {
        let own = self.cost();
        let Some(lan) = &mut self.lan else { return };
        if lan.on_timeout(now, own) {
            self.due.push_back(Due::Announce(own));
            if !self.is_advertised {
                self.advertise(now);
            }
        }
    }

    fn ping(&mut self, now: Instant) {
        let nonce = self.random.next_u64();
        self.pinged = Some((nonce, now));
        self.due.push_back(Due::Ping(nonce));
        // Ping again unless an answer comes before.
        self.timers.set(Timer::Ping, now + self.config.initial_rtt * 2);
    }

    fn set_timers(&mut self) {
        self.timers.put(Timer::Lan, self.lan.as_ref().and_then(Lan::next_timeout));
        self.timers.put(Timer::Request, self.losses.next_timeout());
        self.timers.put(Timer::Report, self.collecting.next_timeout());
    }

    fn build(&mut self, due: Due) -> (Address, Vec<u8>) {
        let channel = self.config.channel;
        let tsi = self.tsi.unwrap_or(Tsi(0));
        let built = |to, message: Message<'_>| {
            let mut bytes = Vec::new();
            message.emit(&mut bytes);
            (to, bytes)
        };
        let source = Address::Host(self.source);
        match due {
            Due::Request(to, request) => built(Address::Host(to), Message::Request(request)),
            Due::Repair(repair) => {
                match repair.to {
                    RepairTo::Subtree(_) => self.stats.dmcasts += 1,
                    RepairTo::Host(_) => self.stats.unicasts += 1,
                    RepairTo::Channel(_) => self.stats.lan_repairs += 1,
                }
                repair.build(channel, tsi)
            }
            Due::Ping(nonce) => built(source, Message::Ping { tsi, nonce }),
            Due::Advertise(cost) => built(source, Message::Advertisement { channel, cost }),
            Due::Announce(cost) => {
                let lan = self.config.lan.map_or(channel, |lan| lan.channel);
                built(Address::Channel(lan), Message::Election { channel, cost })
            }
            Due::Report(round, summary) => {
                let report = Message::Report { channel, tsi, round, summary, hops: 0 };
                built(self.ask_whom(false).map_or(source, Address::Host), report)
            }
        }
    }
}

impl Engine for Receiver {
    type Command = ReceiverCommand;
    type CommandError = std::convert::Infallible;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        if !self.is_member {
            return self.drops.count(DropReason::Unexpected);
        }
        self.on_message(now, datagram.by, &message);
        self.set_timers();
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), std::convert::Infallible> {
        match command {
            ReceiverCommand::Join => self.join(now),
            ReceiverCommand::Leave => self.leave(),
            ReceiverCommand::Answer { round, value } => {
                let share = self.share();
                if !self.collecting.add(now, round, Summary::of(value), share) {
                    self.drops.count(DropReason::Unexpected);
                }
            }
        }
        self.set_timers();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Ping => self.ping(now),
                Timer::Lan => self.tend_lan(now),
                Timer::Advertise => self.advertise(now),
                Timer::Request => self.send_due_requests(now),
                Timer::Report => {
                    let report = self.collecting.due(now);
                    self.due.extend(report.map(|(round, summary)| Due::Report(round, summary)));
                }
            }
        }
        self.set_timers();
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let due = self.due.pop_front()?;
        let (to, bytes) = self.build(due);
        let alert = Message::is_for_routers(&bytes);
        buf.push_message(bytes);
        // Only messages to the LAN are multicast.
        let hop_limit = matches!(to, Address::Channel(_)).then_some(1);
        Some(Transmit { hop_limit, alert, ..Transmit::control(to) })
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}
