//! A source, its receivers, and a bottleneck before each of them.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::{Channel, Tsi};

use crate::chance::generator;
use crate::rlm::*;
use crate::testing::Tested;
use crate::testing::world::{self, Bottleneck, Host, NoRouter, Protocol, Seat};
use crate::units::Rate;
use crate::{Address, Engine, Instant, RateClass, Transmit};

pub(super) const TSI: Tsi = Tsi(7);
/// Length of a unit in bytes.
const UNIT: usize = 500;
/// Bits a second at which the source sends.
const PACE: f64 = 10e6;
/// Packets that wait at a bottleneck.
const QUEUE: usize = 20;
/// Time between the units that the source is given.
const STEP: Duration = Duration::from_millis(5);

pub(super) fn base() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 0, 0, 1].into(), port: 7704 }
}

pub(super) fn control() -> Channel {
    Channel { source: None, group: [239, 1, 1, 1].into(), port: 7705 }
}

pub(super) fn receiver_config(number: u8, layers: u8) -> ReceiverConfig {
    let channels = umbel_wire::rlm::channels(base(), layers).unwrap();
    let config = ReceiverConfig::new(TSI, number.into(), channels);
    ReceiverConfig { control: Some(control()), ..config }
}

/// A receiver behind its bottleneck.
pub(super) struct Node {
    pub(super) engine: Tested<Receiver>,
    pub(super) events: Vec<(Instant, ReceiverEvent)>,
}

impl Seat for Node {
    type Engine = Receiver;

    fn engine(&mut self) -> &mut Tested<Receiver> {
        &mut self.engine
    }
}

/// Load of the source, and its losses.
pub(super) struct Stream {
    /// Rates of the layers in bits a second; units of zeros keep to them.
    rates: Vec<f64>,
    owed: Vec<f64>,
    /// Which of the source's packets are lost on their way to everyone.
    pub(super) loses: Box<dyn FnMut(u8, u64) -> bool>,
    /// Packets of layers that the source has sent, for those who ask for them.
    pub(super) heard: Option<Vec<(u8, Bytes)>>,
    sent: [u64; RateClass::LAYERS as usize],
}

pub(super) type World = world::World<Stream>;

impl Protocol for Stream {
    type Source = Tested<Source>;
    type Receiver = Node;
    type Router = NoRouter;

    fn on_source_event(_: &mut World, event: Infallible) {
        match event {}
    }

    fn on_receiver_event(world: &mut World, node: usize, event: ReceiverEvent) {
        world.receivers[node].events.push((world.now, event));
    }

    fn passes(world: &mut World, _: usize, transmit: Transmit, packet: &mut Bytes) -> bool {
        let RateClass::Layer(layer) = transmit.class else { return true };
        if let Some(heard) = &mut world.heard {
            heard.push((layer, packet.clone()));
        }
        let count = &mut world.sent[usize::from(layer)];
        *count += 1;
        let number = *count - 1;
        !(world.loses)(layer, number)
    }
}

fn source(config: SourceConfig) -> Tested<Source> {
    tested(Source::new(config).unwrap())
}

fn tested(source: Source) -> Tested<Source> {
    Tested::new(source, |source| source.drops().to_string())
}

fn rate(bits_per_s: f64) -> Rate {
    Rate::from_bits_per_s(bits_per_s as u64).unwrap()
}

impl World {
    pub(super) fn new(config: SourceConfig, rates: &[f64]) -> World {
        World::of(Source::new(config).unwrap(), rates)
    }

    /// Creates a world with this source.
    pub(super) fn of(source: Source, rates: &[f64]) -> World {
        let stream = Stream {
            rates: rates.to_vec(),
            owed: vec![0.0; rates.len()],
            loses: Box::new(|_, _| false),
            heard: None,
            sent: [0; RateClass::LAYERS as usize],
        };
        let host = Host::new((base().source.unwrap(), base().port).into(), 0);
        World::with_source(1, stream, tested(source), Host { pace: Some(rate(PACE)), ..host })
    }

    /// Adds a receiver that joins now.
    pub(super) fn add(&mut self, config: ReceiverConfig, capacity: f64) {
        let random = generator(config.receiver);
        let engine = Receiver::new(config, random).unwrap();
        let mut engine = Tested::new(engine, |receiver| receiver.drops().to_string());
        engine.handle_command(self.now, ReceiverCommand::Join).unwrap();
        let address = ([10, 0, 0, self.receivers.len() as u8 + 1], 7704).into();
        let bottleneck = Some(Bottleneck::new(rate(capacity), QUEUE));
        let host = Host { bottleneck, ..Host::new(address, 0) };
        self.add_host(Node { engine, events: Vec::new() }, host);
    }

    /// Lets another source take the place of this one.
    pub(super) fn begin_anew(&mut self, config: SourceConfig) {
        self.crash(0);
        self.source = source(config);
        self.restart(0);
    }

    /// Lets time pass, in which the source is given units.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.offer();
            self.run_for(STEP);
        }
    }

    /// Passes the units of a step to the source.
    fn offer(&mut self) {
        for layer in 0..self.rates.len() {
            self.owed[layer] += self.rates[layer] * STEP.as_secs_f64() / 8.0;
            while self.owed[layer] >= UNIT as f64 {
                self.owed[layer] -= UNIT as f64;
                let unit = SourceCommand::Unit { layer: layer as u8, body: vec![0; UNIT].into() };
                self.source.handle_command(self.now, unit).unwrap();
            }
        }
    }

    /// Sends a datagram to the control group.
    pub(super) fn say(&mut self, sender: [u8; 4], payload: &Bytes) {
        let by = Address::Channel(Channel { source: Some(sender.into()), ..control() });
        for host in 0..=self.receivers.len() {
            if self.host(host).receives(control(), sender.into()) {
                self.give(host, by, payload);
            }
        }
    }

    /// Sends a packet of a layer with the address of the source, to those that are in the layer.
    pub(super) fn forge(&mut self, layer: u8, payload: &[u8]) {
        let channel = umbel_wire::rlm::channels(base(), layer + 1).unwrap()[usize::from(layer)];
        for host in 1..=self.receivers.len() {
            if self.host(host).receives(channel, base().source.unwrap()) {
                self.give(host, Address::Channel(channel), payload);
            }
        }
    }

    fn bottleneck(&mut self, node: usize) -> &mut Bottleneck {
        self.host(node + 1).bottleneck.as_mut().unwrap()
    }

    /// Sets what the path to a receiver carries, in bits a second.
    pub(super) fn set_capacity(&mut self, node: usize, bits_per_s: f64) {
        self.bottleneck(node).rate = rate(bits_per_s);
    }

    /// Returns the number of packets dropped before a receiver.
    pub(super) fn dropped(&mut self, node: usize) -> u64 {
        self.bottleneck(node).dropped
    }

    /// Returns how many channels a receiver has joined, the control group included.
    pub(super) fn joined(&mut self, node: usize) -> usize {
        self.host(node + 1).joined.len()
    }

    pub(super) fn levels(&self) -> Vec<u8> {
        self.receivers.iter().map(|node| node.engine.stats().level).collect()
    }
}

impl Node {
    /// Returns the units delivered of a layer.
    pub(super) fn units(&self, wanted: u8) -> Vec<Bytes> {
        let unit = |(_, event): &(Instant, ReceiverEvent)| match event {
            ReceiverEvent::Unit { layer, body, .. } if *layer == wanted => Some(body.clone()),
            _ => None,
        };
        self.events.iter().filter_map(unit).collect()
    }
}
