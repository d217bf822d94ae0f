//! A source, its receivers, and a bottleneck before each of them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::{Channel, Tsi};

use crate::chance::generator;
use crate::rlm::*;
use crate::{Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, TransmitBuf};

pub(super) const TSI: Tsi = Tsi(7);
/// Length of a unit in bytes.
const UNIT: usize = 500;
/// Packets that wait at a bottleneck.
const QUEUE: usize = 20;
/// Step of time.
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
    pub(super) engine: Receiver,
    address: [u8; 4],
    joined: BTreeSet<Channel>,
    pub(super) events: Vec<(Instant, ReceiverEvent)>,
    /// Bits a second.
    pub(super) capacity: f64,
    /// Bits that the link has carried less than it could, and packets that wait.
    credit: f64,
    queue: VecDeque<(Channel, Vec<u8>)>,
    /// Packets dropped at the bottleneck.
    pub(super) dropped: u64,
}

/// All of them, in virtual time.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) source: Source,
    pub(super) nodes: Vec<Node>,
    /// Rates of the layers in bits a second; units of zeros keep to them.
    rates: Vec<f64>,
    owed: Vec<f64>,
    /// Which of the source's packets are lost on their way to everyone.
    pub(super) loses: Box<dyn FnMut(u8, u64) -> bool>,
    sent: Vec<u64>,
    /// Control messages sent by receivers.
    pub(super) messages: u64,
}

impl World {
    pub(super) fn new(config: SourceConfig, rates: &[f64]) -> World {
        World {
            now: Instant::EPOCH,
            source: Source::new(config).unwrap(),
            nodes: Vec::new(),
            rates: rates.to_vec(),
            owed: vec![0.0; rates.len()],
            loses: Box::new(|_, _| false),
            sent: vec![0; 16],
            messages: 0,
        }
    }

    /// Adds a receiver that joins now.
    pub(super) fn add(&mut self, config: ReceiverConfig, capacity: f64) {
        let random = generator(config.receiver);
        let mut engine = Receiver::new(config, random).unwrap();
        engine.handle_command(self.now, ReceiverCommand::Join).unwrap();
        self.nodes.push(Node {
            engine,
            address: [10, 0, 0, self.nodes.len() as u8 + 1],
            joined: BTreeSet::new(),
            events: Vec::new(),
            capacity,
            credit: 0.0,
            queue: VecDeque::new(),
            dropped: 0,
        });
        self.settle();
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            self.offer();
            self.send();
            self.links();
            for node in &mut self.nodes {
                if node.engine.poll_timeout().is_some_and(|due| due <= self.now) {
                    node.engine.handle_timeout(self.now);
                }
            }
            self.settle();
        }
    }

    /// Gives the source the units of the step.
    fn offer(&mut self) {
        for layer in 0..self.rates.len() {
            self.owed[layer] += self.rates[layer] * STEP.as_secs_f64() / 8.0;
            while self.owed[layer] >= UNIT as f64 {
                self.owed[layer] -= UNIT as f64;
                let unit = SourceCommand::Unit { layer: layer as u8, body: vec![0; UNIT].into() };
                self.source.handle_command(self.now, unit).unwrap();
            }
        }
        if self.source.poll_timeout().is_some_and(|due| due <= self.now) {
            self.source.handle_timeout(self.now);
        }
    }

    fn send(&mut self) {
        let mut allowance = Allowance::default();
        (0..RateClass::LAYERS).for_each(|layer| allowance.set(RateClass::Layer(layer), 4));
        let mut buf = TransmitBuf::new(allowance);
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut buf) {
            let (Address::Channel(channel), RateClass::Layer(layer)) =
                (transmit.to, transmit.class)
            else {
                panic!("{transmit:?}")
            };
            assert!(buf.len() <= 4);
            for message in buf.messages() {
                let count = &mut self.sent[usize::from(layer)];
                *count += 1;
                if (self.loses)(layer, *count - 1) {
                    continue;
                }
                for node in self.nodes.iter_mut().filter(|node| node.joined.contains(&channel)) {
                    if node.queue.len() < QUEUE {
                        node.queue.push_back((channel, message.to_vec()));
                    } else {
                        node.dropped += 1;
                    }
                }
            }
            allowance.set(transmit.class, 0);
            buf.reset(allowance);
        }
    }

    /// Carries what waits at the bottlenecks as far as they can.
    fn links(&mut self) {
        for node in &mut self.nodes {
            let most = node.capacity * STEP.as_secs_f64();
            node.credit = (node.credit + most).min(most.max(8.0 * 2000.0));
            while let Some((channel, packet)) = node.queue.pop_front() {
                let bits = (packet.len() * 8) as f64;
                if bits > node.credit {
                    node.queue.push_front((channel, packet));
                    break;
                }
                node.credit -= bits;
                let by = Address::Channel(channel);
                let datagram = Datagram { by, hop_limit: None, payload: &packet };
                node.engine.handle_datagram(self.now, datagram);
            }
        }
        self.settle();
    }

    /// Drains the receivers; their messages reach everyone at once.
    fn settle(&mut self) {
        let mut buf = TransmitBuf::default();
        let mut said = Vec::new();
        for node in &mut self.nodes {
            node.drain(self.now);
            buf.reset(Allowance::default());
            while node.engine.poll_transmit(self.now, &mut buf).is_some() {
                said.extend(buf.messages().map(|message| (node.address, message)));
                buf.reset(Allowance::default());
            }
        }
        self.messages += said.len() as u64;
        for (sender, message) in said {
            self.say(sender, &message);
        }
    }

    /// Says something to the control group.
    pub(super) fn say(&mut self, sender: [u8; 4], payload: &Bytes) {
        let by = Address::Channel(Channel { source: Some(sender.into()), ..control() });
        let datagram = Datagram { by, hop_limit: None, payload };
        self.source.handle_datagram(self.now, datagram);
        for node in self.nodes.iter_mut().filter(|node| node.joined.contains(&control())) {
            node.engine.handle_datagram(self.now, datagram);
            node.drain(self.now);
        }
    }

    pub(super) fn levels(&self) -> Vec<u8> {
        self.nodes.iter().map(|node| node.engine.stats().level).collect()
    }
}

impl Node {
    fn drain(&mut self, now: Instant) {
        while let Some(change) = self.engine.poll_membership() {
            match change {
                Membership::Join(channel) => assert!(self.joined.insert(channel)),
                Membership::Leave(channel) => assert!(self.joined.remove(&channel)),
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.events.push((now, event));
        }
    }

    /// Returns how many channels are joined, the control group included.
    pub(super) fn joined(&self) -> usize {
        self.joined.len()
    }

    /// Returns the units delivered of a layer.
    pub(super) fn units(&self, wanted: u8) -> Vec<Bytes> {
        let unit = |(_, event): &(Instant, ReceiverEvent)| match event {
            ReceiverEvent::Unit { layer, body, .. } if *layer == wanted => Some(body.clone()),
            _ => None,
        };
        self.events.iter().filter_map(unit).collect()
    }
}
