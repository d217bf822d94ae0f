//! The receiver.
//!
//! | part | does |
//! |---|---|
//! | `authenticity.rs` | which packets are the source's |
//! | `subscription.rs` | which channels are joined at the level |
//! | `loss.rs` | which packets of a layer were lost, and which only come late |
//! | `units.rs`, `objects.rs` | what is delivered |
//! | `group.rs` | the other receivers: their number, their messages |
//! | [`controller`](super::controller) | the level |

mod authenticity;
mod group;
mod loss;
mod objects;
mod subscription;
mod timers;
mod units;

use std::collections::VecDeque;
use std::net::IpAddr;

use umbel_wire::rlm::{Loss, Message};
use umbel_wire::stream::StreamMode;
use umbel_wire::{Parsed, SmallBlockPacket};

use self::authenticity::Authenticity;
use self::group::Group;
pub(super) use self::group::before;
use self::loss::{Arrival, LossMonitor};
pub(super) use self::objects::oti;
use self::objects::{Objects, Outcome};
use self::subscription::Subscription;
use self::timers::{Timer, Timers};
use self::units::Units;
use super::api::LevelReason;
use super::api::{
    ConfigError, ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats,
};
use super::config::{ControllerKind, ReceiverConfig};
use super::controller::{Action, Controller, Delay, Machine, Packet};
use super::drops::{DropReason, Drops};
use crate::chance::{Generator, uniform};
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// State of a layer at the receiver.
#[derive(Debug)]
struct Layer {
    loss: LossMonitor,
    units: Units,
    objects: Objects,
}

impl Layer {
    fn new(config: &ReceiverConfig) -> Layer {
        Layer {
            loss: LossMonitor::new(config.loss),
            units: Units::new(config.held),
            objects: Objects::new(config.held, config.loss),
        }
    }

    fn is_waiting(&self) -> bool {
        self.loss.is_open() || self.objects.is_receiving()
    }
}

/// A message to the control group that waits to be sent.
#[derive(Debug)]
enum Due {
    Experiment(u8),
    Session(u8),
}

/// Receives a stream at the level that its path carries.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    random: Generator,
    controller: Box<dyn Controller>,
    subscription: Subscription,
    layers: Vec<Layer>,
    /// Layers that wait for something, a bit each: for missing packets or the rest of an object.
    /// Most packets find none, and need not look into all layers.
    waiting: u16,
    /// `None`: the source does not sign.
    authenticity: Option<Authenticity>,
    group: Group,
    /// In the control group.
    inside: bool,
    /// Packets and lost ones at the last session message.
    told: (u64, u64),
    due: VecDeque<Due>,
    memberships: VecDeque<Membership>,
    events: VecDeque<ReceiverEvent>,
    stats: ReceiverStats,
    drops: Drops,
}

impl Receiver {
    /// Creates a receiver that joins nothing before [`ReceiverCommand::Join`]. Its timers are drawn
    /// from `random`.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of layers is out of range, or if a channel has no source.
    pub fn new(config: ReceiverConfig, mut random: Generator) -> Result<Receiver, ConfigError> {
        let layers = config.channels.len();
        if layers == 0 || layers > usize::from(RateClass::LAYERS) {
            return Err(ConfigError::Layers(layers));
        }
        if config.channels.iter().any(|channel| channel.source.is_none()) {
            return Err(ConfigError::Base(layers));
        }
        let config =
            ReceiverConfig { max_level: config.max_level.clamp(1, layers as u8), ..config };
        let controller: Box<dyn Controller> = match config.controller {
            ControllerKind::Rlm => Box::new(Machine::new(&config, random.clone())),
            ControllerKind::Delay => Box::new(Delay::new(&config, random.clone())),
        };
        // The controller has the stream that begins here.
        random.jump();
        Ok(Receiver {
            random,
            controller,
            subscription: Subscription::new(config.mode, config.channels.clone()),
            layers: (0..layers).map(|_| Layer::new(&config)).collect(),
            waiting: 0,
            authenticity: config.key.map(|key| Authenticity::new(key, layers, config.wrong_limit)),
            group: Group::new(&config),
            inside: false,
            told: (0, 0),
            due: VecDeque::new(),
            memberships: VecDeque::new(),
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
            drops: Drops::default(),
            config,
        })
    }

    /// Returns the counters and estimates.
    pub fn stats(&self) -> ReceiverStats {
        let status = self.controller.status();
        ReceiverStats {
            level: status.level,
            state: status.state,
            experiments: status.experiments,
            failed: status.failed,
            suppressed: status.suppressed,
            detection_time: status.detection_time,
            detection_deviation: status.detection_deviation,
            receivers: self.group.receivers(),
            forged: self.drops.of(DropReason::Forged) + self.drops.of(DropReason::Unsigned),
            unchecked: self.drops.of(DropReason::Unchecked),
            ..self.stats
        }
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn on_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> Result<(), DropReason> {
        let Address::Channel(channel) = datagram.by else { return Err(DropReason::Unexpected) };
        if let Some(layer) = self.subscription.layer_of(channel) {
            if !self.subscription.has(layer) {
                return Err(DropReason::LeftLayer);
            }
            return self.on_packet(now, layer, datagram.payload);
        }
        let control = self.config.control.filter(|control| {
            (control.group, control.port) == (channel.group, channel.port) && self.inside
        });
        match (control, channel.source) {
            (Some(_), Some(sender)) => self.on_message(now, sender, datagram.payload),
            _ => Err(DropReason::Unexpected),
        }
    }

    fn on_packet(&mut self, now: Instant, number: u8, bytes: &[u8]) -> Result<(), DropReason> {
        let packet = SmallBlockPacket::parse(bytes).map_err(|_| DropReason::Malformed)?;
        if packet.header.tsi != self.config.tsi {
            return Err(DropReason::OtherSession);
        }
        if let Some(authenticity) = &mut self.authenticity {
            authenticity.check(now, number, bytes)?;
        }
        let taken = self.on_packet_of_layer(now, number, bytes.len(), &packet);
        self.note_waiting(number);
        taken
    }

    /// Notes whether a layer waits for something, after it changed.
    fn note_waiting(&mut self, number: u8) {
        let waits = self.layers.get(usize::from(number)).is_some_and(Layer::is_waiting);
        self.waiting = self.waiting & !(1 << number) | u16::from(waits) << number;
    }

    /// Returns the layers that wait for something.
    fn waiting_layers(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.waiting;
        std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros() as u8);
            left &= left.wrapping_sub(1);
            number
        })
    }

    fn on_packet_of_layer(
        &mut self,
        now: Instant,
        number: u8,
        len: usize,
        packet: &SmallBlockPacket<'_>,
    ) -> Result<(), DropReason> {
        let layer = &mut self.layers[usize::from(number)];
        match layer.loss.insert(now, packet.header.index) {
            Arrival::Fresh => {}
            Arrival::Late => self.stats.late += 1,
            Arrival::Duplicate => return Err(DropReason::Duplicate),
        }
        self.stats.packets += 1;
        self.stats.bytes += len as u64;
        self.subscription.on_packet(number);
        let sent_us = packet.header.transmission;
        self.controller.on_packet(now, Packet { layer: number, sent_us });
        self.deliver(now, number, packet)
    }

    fn deliver(
        &mut self,
        now: Instant,
        number: u8,
        packet: &SmallBlockPacket<'_>,
    ) -> Result<(), DropReason> {
        let layer = &mut self.layers[usize::from(number)];
        if packet.header.toi.0 == 0 {
            let before = layer.units.restored();
            let units = layer.units.insert(&packet.header, packet.symbol)?;
            self.stats.restored += layer.units.restored() - before;
            let event = |(unit, body)| ReceiverEvent::Unit { layer: number, number: unit, body };
            self.events.extend(units.into_iter().map(event));
            return Ok(());
        }
        if let Some(outcome) = layer.objects.insert(now, &packet.header, packet.symbol)? {
            self.on_outcome(number, outcome);
        }
        Ok(())
    }

    fn on_outcome(&mut self, layer: u8, outcome: Outcome) {
        self.events.push_back(match outcome {
            Outcome::Whole { toi, name, body } => ReceiverEvent::Object { layer, toi, name, body },
            Outcome::Missing { toi, head, held, missing } => {
                ReceiverEvent::ObjectMissing { layer, toi, head, held, missing }
            }
        });
    }

    fn on_message(&mut self, now: Instant, sender: IpAddr, bytes: &[u8]) -> Result<(), DropReason> {
        if !self.group.admits(now, sender) {
            return Err(DropReason::Flood);
        }
        let parsed = Message::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let Parsed::Message { message, .. } = parsed else { return Err(DropReason::Unexpected) };
        let (Message::JoinExperiment { tsi, receiver, level }
        | Message::Session { tsi, receiver, level, .. }) = message;
        if tsi != self.config.tsi {
            return Err(DropReason::OtherSession);
        }
        if receiver == self.config.receiver {
            return Err(DropReason::Own);
        }
        if matches!(message, Message::Session { .. }) {
            self.group.hear(now, receiver, level, bytes.len());
            self.controller.on_receivers(self.group.receivers());
            return Ok(());
        }
        if !self.group.admits_experiment(now, sender) {
            return Err(DropReason::Flood);
        }
        self.stats.heard += 1;
        self.controller.on_experiment(now, level);
        Ok(())
    }

    /// Does what follows from any input.
    fn settle(&mut self, now: Instant) {
        if self.config.mode == StreamMode::Independent {
            let layer = self.controller.status().level.checked_sub(1);
            let layer = layer.and_then(|layer| self.layers.get(usize::from(layer)));
            let in_object = layer.is_some_and(|layer| layer.objects.is_receiving());
            self.controller.on_object(now, in_object);
        }
        let mut lost = 0;
        for number in self.waiting_layers() {
            lost += self.layers[usize::from(number)].loss.take_lost(now);
        }
        if lost > 0 {
            self.stats.lost += lost;
            self.controller.on_lost(now, lost);
        }
        while let Some(action) = self.controller.poll_action() {
            self.act(now, action);
        }
        while let Some(layer) = self.subscription.poll_left() {
            self.on_left(layer);
        }
        for number in self.waiting_layers() {
            while let Some(outcome) = self.layers[usize::from(number)].objects.poll_given_up(now) {
                self.on_outcome(number, outcome);
            }
            self.note_waiting(number);
        }
        if self.inside && self.group.next() <= now {
            let draw = uniform(&mut self.random);
            if self.group.is_due(now, draw) {
                self.due.push_back(Due::Session(self.controller.status().level));
            }
            self.controller.on_receivers(self.group.receivers());
        }
    }

    fn act(&mut self, now: Instant, action: Action) {
        let (level, reason) = match action {
            Action::Succeed { level } => {
                return self.events.push_back(ReceiverEvent::ExperimentSucceeded { level });
            }
            Action::Rise { level, reason } => {
                if reason == LevelReason::Experiment {
                    self.due.push_back(Due::Experiment(level));
                    self.events.push_back(ReceiverEvent::ExperimentStarted { level });
                }
                (level, reason)
            }
            Action::Fall { level, reason, after } => {
                if let Some(after) = after {
                    let failed = ReceiverEvent::ExperimentFailed { level: level + 1, after };
                    self.events.push_back(failed);
                }
                (level, reason)
            }
        };
        self.subscription.set_level(now, level);
        self.events.push_back(ReceiverEvent::Level { level, reason });
    }

    fn on_left(&mut self, number: u8) {
        let mut layer = Layer::new(&self.config);
        std::mem::swap(&mut layer, &mut self.layers[usize::from(number)]);
        self.note_waiting(number);
        while let Some(outcome) = layer.objects.poll_left() {
            self.on_outcome(number, outcome);
        }
    }

    fn join(&mut self, now: Instant) {
        self.controller.on_join(now);
        if let Some(control) = self.config.control.filter(|_| !self.inside) {
            self.inside = true;
            self.memberships.push_back(Membership::Join(control));
            let draw = uniform(&mut self.random);
            self.group.start(now, draw);
        }
    }

    fn leave(&mut self) {
        self.controller.on_leave();
        if let Some(control) = self.config.control.filter(|_| self.inside) {
            self.inside = false;
            self.memberships.push_back(Membership::Leave(control));
            self.due.clear();
            self.due.push_back(Due::Session(0));
        }
    }

    /// Returns when there is something to do.
    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        let waiting = || self.waiting_layers().map(|number| &self.layers[usize::from(number)]);
        timers.put(Timer::Switch, self.subscription.next_timeout());
        timers.put(Timer::Level, self.controller.next_timeout());
        timers.put(Timer::Loss, waiting().filter_map(|layer| layer.loss.next_timeout()).min());
        timers.put(Timer::Object, waiting().filter_map(|layer| layer.objects.next_timeout()).min());
        timers.put(Timer::Session, self.inside.then(|| self.group.next()));
        timers
    }

    fn build(&mut self, now: Instant, due: &Due) -> Vec<u8> {
        let (tsi, receiver) = (self.config.tsi, self.config.receiver);
        match *due {
            Due::Experiment(level) => {
                let mut message = Vec::new();
                Message::JoinExperiment { tsi, receiver, level }.emit(&mut message);
                message
            }
            Due::Session(level) => {
                let (packets, lost) = (self.stats.packets, self.stats.lost);
                let (packets_then, lost_then) = std::mem::replace(&mut self.told, (packets, lost));
                let lost = lost - lost_then;
                let loss = Loss::of(lost, packets - packets_then + lost);
                let draw = uniform(&mut self.random);
                self.group.message(now, level, loss, draw)
            }
        }
    }
}

impl Engine for Receiver {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if let Err(reason) = self.on_datagram(now, datagram) {
            self.drops.count(reason);
        }
        self.settle(now);
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        match command {
            ReceiverCommand::Join => self.join(now),
            ReceiverCommand::Leave => self.leave(),
            ReceiverCommand::LimitLevel(level) => {
                let layers = self.layers.len() as u8;
                if level == 0 || level > layers {
                    return Err(ReceiverCommandError::NoSuchLevel { level, layers });
                }
                self.controller.limit(now, level);
            }
        }
        self.settle(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Switch => self.subscription.on_timeout(now),
                Timer::Level => self.controller.on_timeout(now),
                // These are settled after any input.
                Timer::Loss | Timer::Object | Timer::Session => {}
            }
        }
        self.settle(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front().or_else(|| self.subscription.poll_membership())
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let control = self.config.control?;
        let due = self.due.pop_front()?;
        let message = self.build(now, &due);
        buf.push_message(message);
        Some(Transmit::control(Address::Channel(control)))
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }
}
