//! A source and receivers in a small network with loss, reordering and duplication.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::tcp::{Flags, Segment, Seq};

use crate::chance::generator;
use crate::smo::receiver::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
use crate::smo::*;
use crate::testing::world::{Host, Link, NoRouter, Protocol, Seat, World};
use crate::testing::{Tested, channel};
use crate::{Address, Datagram, Engine, Instant, RateClass, Transmit};

pub(super) const PORT: u16 = 8080;

pub(super) fn source_address() -> SocketAddr {
    ([10, 0, 0, 1], PORT).into()
}

/// Returns bytes that do not repeat soon.
pub(super) fn content(len: usize) -> Bytes {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>().into()
}

/// The way between the source and a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) delay: Duration,
    /// Greatest additional delay, by which segments overtake each other.
    pub(super) jitter: Duration,
    /// Share of segments lost towards the receiver and towards the source.
    pub(super) loss: (f64, f64),
    pub(super) duplicates: f64,
}

impl Way {
    pub(super) fn clean(delay_ms: u64) -> Way {
        let (delay, jitter) = (Duration::from_millis(delay_ms), Duration::ZERO);
        Way { delay, jitter, loss: (0.0, 0.0), duplicates: 0.0 }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) receiver: Tested<Receiver>,
    pub(super) address: SocketAddr,
    pub(super) got: Vec<u8>,
    pub(super) skipped: u64,
    pub(super) events: Vec<ReceiverEvent>,
    reads: bool,
    unread: usize,
    /// Binary digits by which its windows are shifted, and the greatest right edge of them that
    /// has reached the source.
    shift: u8,
    edge: Option<Seq>,
}

impl Node {
    pub(super) fn has(&self, event: &ReceiverEvent) -> bool {
        self.events.contains(event)
    }
}

impl Seat for Node {
    type Engine = Receiver;

    fn engine(&mut self) -> &mut Tested<Receiver> {
        &mut self.receiver
    }
}

/// Data of the source's application, and the observations.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    pub(super) events: Vec<SourceEvent>,
    /// Back channel, by child.
    pub(super) received: BTreeMap<ChildId, Vec<u8>>,
    /// Segments outside of their receivers' windows.
    pub(super) beyond_window: u64,
    /// Segments sent by unicast that end beyond what their receivers had permitted.
    pub(super) beyond_permission: u64,
    /// Unicast segments with nothing new, but for questions.
    pub(super) needless: u64,
    /// When questions left.
    pub(super) questions: Vec<Instant>,
    /// Bytes that left the source, headers of IP and Ethernet not counted.
    pub(super) left: u64,
    /// Times at which new data left by multicast, each counted once.
    pub(super) bursts: u64,
    /// The last of them.
    burst: Option<Instant>,
    /// Whether the source's host holds its pace.
    pub(super) is_paced: bool,
    /// Data to be written to the first master, and whether it ends then.
    pub(super) writes: Option<(Bytes, bool)>,
    /// Stands before the source.
    pub(super) filter: AckFilter,
}

pub(super) type Network = World<Transfer>;

/// Returns whether a segment of the source is a question.
fn is_question(segment: &Segment<'_>) -> bool {
    segment.head.options.membership.is_some() && segment.payload.len() == 1
}

impl Protocol for Transfer {
    type Source = Tested<Source>;
    type Receiver = Node;
    type Router = NoRouter;

    fn on_source_event(network: &mut Network, event: SourceEvent) {
        if let SourceEvent::Received { child, bytes } = &event {
            network.received.entry(*child).or_default().extend_from_slice(bytes);
            let consumed = SourceCommand::Consumed { child: *child, bytes: bytes.len() };
            // The connection may be over.
            let _ = network.source.handle_command(network.now, consumed);
        }
        if let SourceEvent::AckFilter(change) = event {
            return network.filter.apply(change);
        }
        if let SourceEvent::Pace { rate, .. } = &event
            && network.is_paced
        {
            network.host(0).pace = Some(*rate);
        }
        network.events.push(event);
    }

    fn on_receiver_event(network: &mut Network, node: usize, event: ReceiverEvent) {
        let node = &mut network.receivers[node];
        match event {
            ReceiverEvent::Received(bytes) => {
                node.got.extend_from_slice(&bytes);
                node.unread += bytes.len();
            }
            ReceiverEvent::Skipped(bytes) => node.skipped += bytes,
            event => node.events.push(event),
        }
    }

    /// Writes as there is room, and reads.
    fn act(network: &mut Network, host: usize) -> bool {
        let Some(node) = host.checked_sub(1) else { return network.write_more() };
        let node = &mut network.receivers[node];
        if !node.reads || node.unread == 0 {
            return false;
        }
        let consumed = ReceiverCommand::Consumed(std::mem::take(&mut node.unread));
        // The connection may be over.
        node.receiver.handle_command(network.now, consumed).is_ok()
    }

    fn passes(network: &mut Network, from: usize, transmit: Transmit, bytes: &mut Bytes) -> bool {
        let segment = Segment::parse(bytes).unwrap();
        assert!(!segment.head.flags.has(Flags::URG));
        if from == 0 {
            network.left += bytes.len() as u64;
            let is_burst = transmit.class == RateClass::Data && network.burst != Some(network.now);
            if is_burst {
                network.burst = Some(network.now);
                network.bursts += 1;
            }
            if is_question(&segment) {
                let now = network.now;
                network.questions.push(now);
            }
            if let Address::Host(peer) = transmit.to {
                assert_eq!(segment.head.destination_port, peer.port());
                let end = segment.head.seq.plus(segment.payload.len() as u32);
                let node = network.receivers.iter().find(|node| node.address == peer);
                let edge = node.and_then(|node| node.edge);
                let is_beyond = edge.is_some_and(|edge| end.since(edge) > 0);
                network.beyond_permission += u64::from(is_beyond && !segment.is_empty());
            }
        }
        true
    }

    fn arrive(network: &mut Network, to: usize, datagram: Datagram<'_>) {
        let now = network.now;
        let Some(node) = to.checked_sub(1) else {
            network.note_edge(&datagram);
            let Address::Host(peer) = datagram.by else { unreachable!("hosts alone send to it") };
            if !network.filter.passes(now, peer, datagram.payload) {
                return;
            }
            return network.source.handle_datagram(now, datagram);
        };
        let receiver = &mut network.receivers[node].receiver;
        let beyond = receiver.drops().of(receiver::DropReason::OutOfWindow);
        let (is_unicast, segment) = (matches!(datagram.by, Address::Host(_)), datagram.payload);
        let repeated = |receiver: &Receiver| {
            let of = |reason| receiver.drops().of(reason);
            of(receiver::DropReason::Stale) + of(receiver::DropReason::Duplicate)
        };
        let known = repeated(receiver);
        receiver.handle_datagram(now, datagram);
        let is_known = u64::from(repeated(receiver) > known);
        // An ACK at the right edge is not acceptable either, and no harm is done.
        let segment = Segment::parse(segment).unwrap();
        if !segment.is_empty() && !is_question(&segment) {
            let now_beyond = receiver.drops().of(receiver::DropReason::OutOfWindow);
            network.beyond_window += now_beyond - beyond;
            network.needless += if is_unicast { is_known } else { 0 };
        }
    }

    fn state(network: &Network) -> String {
        let node = |node: &Node| (node.got.len(), node.events.clone());
        let nodes: Vec<_> = network.receivers.iter().map(node).collect();
        let children: Vec<_> = network.source.children().collect();
        format!("{:#?}\n{children:#?}\n{nodes:?}", network.source.stats())
    }
}

impl Network {
    /// Notes what a segment to the source permits.
    fn note_edge(&mut self, datagram: &Datagram<'_>) {
        let Address::Host(from) = datagram.by else { return };
        let node = self.receivers.iter_mut().find(|node| node.address == from);
        let (Some(node), Ok(segment)) = (node, Segment::parse(datagram.payload)) else { return };
        let head = &segment.head;
        if head.flags.has(Flags::SYN) {
            (node.shift, node.edge) = (head.options.window_scale.unwrap_or(0), None);
        } else if !head.flags.has(Flags::RST) {
            let edge = head.ack.plus(u32::from(head.window) << node.shift);
            node.edge = Some(node.edge.filter(|known| known.since(edge) > 0).unwrap_or(edge));
        }
    }

    pub(super) fn new(seed: u64, change: impl FnOnce(&mut SourceConfig)) -> Network {
        let mut channel = channel();
        channel.port = PORT;
        let mut config = SourceConfig::new(PORT, channel);
        config.mss = 1000;
        change(&mut config);
        let source = Source::new(config, generator(seed));
        let source = Tested::new(source, |source| source.drops().to_string());
        Network::with_source(seed, Transfer::default(), source, Host::new(source_address(), 0))
    }

    /// Adds a receiver. Returns its number.
    pub(super) fn add(&mut self, way: Way, change: impl FnOnce(&mut ReceiverConfig)) -> usize {
        let number = self.receivers.len();
        let port = 50_000 + (number % 10_000) as u16;
        let address: SocketAddr =
            ([10, 1, (number / 200) as u8, (number % 200) as u8], port).into();
        let mut config = ReceiverConfig::new(source_address());
        (config.channel, config.mss) = (Some(self.source.config().channel), 1000);
        change(&mut config);
        let receiver = Receiver::new(Arc::new(config), port, &mut self.network.random);
        let receiver = Tested::new(receiver, |receiver| receiver.drops().to_string());
        let (got, events) = (Vec::new(), Vec::new());
        let node = Node {
            receiver,
            address,
            got,
            skipped: 0,
            events,
            reads: true,
            unread: 0,
            shift: 0,
            edge: None,
        };
        let Way { delay, jitter, loss, duplicates } = way;
        let link = |loss| Link { loss, duplicates, delay, jitter };
        let (down, up) = (link(loss.0), link(loss.1));
        self.add_host(node, Host { up, down, ..Host::new(address, 1) });
        number
    }

    /// Allows what engines drop when segments are lost, late or repeated, when receivers do not
    /// read, and when connections begin and end meanwhile.
    pub(super) fn expect_faults(&mut self) {
        use receiver::DropReason;
        for reason in [
            DropReason::NoConnection,
            DropReason::NotReady,
            DropReason::NotMember,
            DropReason::Stale,
            DropReason::Duplicate,
            DropReason::OutOfWindow,
            DropReason::Challenged,
            DropReason::NoRoom,
        ] {
            self.may_drop(reason);
        }
        self.may_drop(crate::smo::DropReason::OldAck);
        self.may_drop(crate::smo::DropReason::HeldDown);
    }

    /// Sets the loss towards a receiver and towards the source.
    pub(super) fn set_loss(&mut self, node: usize, loss: (f64, f64)) {
        let host = self.host(node + 1);
        (host.down.loss, host.up.loss) = loss;
    }

    /// Sets the time that it takes from a receiver to the source.
    pub(super) fn set_delay_up(&mut self, node: usize, delay: Duration) {
        self.host(node + 1).up.delay = delay;
    }

    pub(super) fn tell(&mut self, node: usize, command: ReceiverCommand) {
        self.receivers[node].receiver.handle_command(self.now, command).unwrap();
        self.drain(node + 1);
    }

    pub(super) fn connect_all(&mut self) {
        for node in 0..self.receivers.len() {
            self.tell(node, ReceiverCommand::Connect);
        }
    }

    pub(super) fn command(&mut self, command: SourceCommand) {
        self.source.handle_command(self.now, command).unwrap();
        self.drain(0);
    }

    /// Writes to the first master as there is room, and then ends it.
    pub(super) fn send_all(&mut self, bytes: Bytes) {
        self.writes = Some((bytes, true));
        self.drain(0);
    }

    /// Returns whether it wrote anything.
    fn write_more(&mut self) -> bool {
        let to = Stream::Master(MasterId::FIRST);
        let now = self.now;
        let Some((mut bytes, ends)) = self.writes.take() else { return false };
        let before = bytes.len();
        while !bytes.is_empty() {
            let len = bytes.len().min(16 << 10).min(self.source.room(to));
            if len == 0 {
                let any = bytes.len() < before;
                self.writes = Some((bytes, ends));
                return any;
            }
            let bytes = bytes.split_to(len);
            self.source.handle_command(now, SourceCommand::Write { to, bytes }).unwrap();
        }
        if ends {
            self.source.handle_command(now, SourceCommand::Finish { to }).unwrap();
        }
        true
    }

    /// Lets a receiver's application read, or not.
    pub(super) fn read(&mut self, number: usize, reads: bool) {
        self.receivers[number].reads = reads;
        self.drain(number + 1);
    }

    pub(super) fn count(&self, is: impl Fn(&SourceEvent) -> bool) -> usize {
        self.events.iter().filter(|event| is(event)).count()
    }

    pub(super) fn removed(&self) -> Vec<CloseReason> {
        let reason = |event: &SourceEvent| match event {
            SourceEvent::Removed { reason, .. } => Some(*reason),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}
