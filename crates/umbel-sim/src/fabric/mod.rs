//! Network of a run: everything but the programs of its nodes.
//!
//! A packet that crosses a link costs one event at most, when it arrives. Its time in the queue is
//! computed when it enters ([`Line`]). Copies that leave a node together, by neighbouring branches
//! of a multicast tree, and arrive at the same time share one event. This changes no order, because
//! nothing can come between events that were scheduled together for one time. A packet is stored
//! once, however many copies of it are in transit.

mod flood;
mod forward;
mod membership;
mod multicast;
mod parcels;
mod sessions;
mod timers;

use std::fmt;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::{Instant, TransmitBuf};

use self::flood::Neighbours;
use self::multicast::Multicast;
pub(crate) use self::multicast::{Branch, PlaceId};
use self::parcels::Parcels;
pub(crate) use self::parcels::{Parcel, ParcelId};
pub(crate) use self::sessions::MessageId;
use self::sessions::Sessions;
pub(crate) use self::timers::Due;
use self::timers::Timers;
use crate::counters::{Counters, LinkCounters};
use crate::line::Line;
use crate::network::{LinkId, Network, NodeId, NodeKind};
use crate::random::{self, Purpose};
use crate::routing::{LineId, Routing};
use crate::trace::{Note, NoteRecord, Tracer};
use crate::wheel::Wheel;

/// Event of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Arrival of a packet at the end of a line, with `left` hops remaining.
    Arrival { parcel: ParcelId, line: LineId, left: u8 },
    /// Arrival of copies of a packet at the ends of some branches of a place in a multicast tree.
    Branches { parcel: ParcelId, place: PlaceId, first: u32, end: u32, left: u8 },
    /// Arrival of a message of a session.
    Message(MessageId),
    /// Timer of a node, which may be due.
    Wake(NodeId),
    /// Start of a node's program.
    Start(NodeId),
    /// Arrival of a join at the next place up the tree.
    Graft { place: PlaceId, epoch: u32 },
    /// Arrival of a leave at the next place up the tree.
    Prune { place: PlaceId, epoch: u32 },
    /// Change of a line to up or down.
    LineChange { line: LineId, up: bool },
}

/// Properties of a node that forwarding needs; small, since there may be millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeState {
    pub(crate) kind: NodeKind,
    /// Whether a program or a hook runs on the node.
    pub(crate) running: bool,
}

/// Line and its counters.
#[derive(Debug)]
struct Direction {
    line: Line,
    to: NodeId,
    packets: u64,
    bytes: u64,
}

pub(crate) struct Fabric {
    pub(crate) network: Network,
    pub(crate) now: Instant,
    pub(crate) counters: Counters,
    pub(crate) tracer: Option<Box<dyn Tracer>>,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) timers: Timers,
    pub(crate) sessions: Sessions,
    /// Hosts that stopped during the current event.
    pub(crate) stopped: Vec<NodeId>,
    /// Host that was stopped because it made no progress.
    pub(crate) stuck: Option<NodeId>,
    /// Buffer that is lent to one engine at a time, so that not every host has its own.
    pub(crate) scratch: TransmitBuf,
    seed: u64,
    events: Wheel<Event>,
    directions: Vec<Direction>,
    parcels: Parcels,
    routing: Routing,
    multicast: Multicast,
    /// Built when a channel is flooded.
    neighbours: Neighbours,
    /// Streams of the nodes that draw.
    random: Vec<Option<Box<Xoshiro256PlusPlus>>>,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fabric { now, counters, .. } = self;
        f.debug_struct("Fabric")
            .field("now", now)
            .field("counters", counters)
            .finish_non_exhaustive()
    }
}

impl Fabric {
    pub(crate) fn new(network: Network, seed: u64) -> Fabric {
        let mut events = Wheel::new();
        let mut directions = Vec::with_capacity(network.link_count() * 2);
        for (link, a, b) in network.links() {
            let ends = LineId::of(link).into_iter().zip(network.treatments(link)).zip([b, a]);
            for ((id, treatment), to) in ends {
                for &(at, up) in &treatment.spec().schedule {
                    events.push(at.as_nanos(), Event::LineChange { line: id, up });
                }
                let stream = || random::stream(seed, Purpose::Link, u64::from(id.0));
                let line = Line::new(treatment.clone(), stream);
                directions.push(Direction { line, to, packets: 0, bytes: 0 });
            }
        }
        let count = network.node_count();
        Fabric {
            now: Instant::EPOCH,
            counters: Counters::default(),
            tracer: None,
            nodes: network.nodes().map(|(_, kind)| NodeState { kind, running: false }).collect(),
            timers: Timers::new(count),
            sessions: Sessions::new(seed),
            stopped: Vec::new(),
            stuck: None,
            scratch: TransmitBuf::default(),
            seed,
            events,
            directions,
            parcels: Parcels::default(),
            routing: Routing::new(&network),
            multicast: Multicast::default(),
            neighbours: Neighbours::default(),
            random: std::iter::repeat_with(|| None).take(count).collect(),
            network,
        }
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        self.events.push(at.as_nanos(), event);
    }

    /// Advances to the next event, if it is not later than `end`.
    pub(crate) fn next_event(&mut self, end: Instant) -> Option<Event> {
        let (at, event) = self.events.pop_until(end.as_nanos())?;
        self.now = Instant::from_nanos(at);
        self.counters.events += 1;
        Some(event)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether a tracer has stopped writing.
    pub(crate) fn trace_failed(&self) -> bool {
        self.tracer.as_ref().is_some_and(|tracer| tracer.failed())
    }

    /// Returns a node's own stream.
    pub(crate) fn random(&mut self, node: NodeId) -> &mut Xoshiro256PlusPlus {
        let seed = self.seed;
        let stream = || Box::new(random::stream(seed, Purpose::Node, u64::from(node.0)));
        self.random[node.0 as usize].get_or_insert_with(stream)
    }

    pub(crate) fn note(&mut self, node: NodeId, note: &Note) {
        if let Some(tracer) = &mut self.tracer {
            tracer.note(&NoteRecord { at: self.now, node, note });
        }
    }

    /// Sets, moves or clears a node's timer.
    pub(crate) fn wake_at(&mut self, node: NodeId, at: Option<Instant>) {
        let at = at.map(|at| at.max(self.now));
        if let Some(at) = self.timers.set(node, at) {
            self.schedule(at, Event::Wake(node));
        }
    }

    /// Takes a host off the network permanently.
    pub(crate) fn stop(&mut self, node: NodeId) {
        let state = &mut self.nodes[node.0 as usize];
        if state.running {
            state.running = false;
            self.timers.set(node, None);
            self.leave_all(node);
            self.stopped.push(node);
        }
    }

    /// Takes a host off the network because it makes no progress.
    pub(crate) fn give_up(&mut self, node: NodeId) {
        if self.nodes[node.0 as usize].running {
            self.counters.stuck += 1;
            self.stuck = Some(node);
            self.stop(node);
        }
    }

    /// Returns the counters of a line.
    pub(crate) fn link_counters(&self, line: LineId) -> LinkCounters {
        let Direction { line, packets, bytes, .. } = &self.directions[line.0 as usize];
        LinkCounters {
            packets: *packets,
            bytes: *bytes,
            lost: line.lost(),
            queue_drops: line.queue_drops(),
        }
    }

    /// Returns the far end of a line.
    pub(crate) fn end_of(&self, line: LineId) -> NodeId {
        self.directions[line.0 as usize].to
    }

    /// Returns whether a line leaves a node, which is where its other direction ends.
    pub(crate) fn begins_at(&self, line: LineId, node: NodeId) -> bool {
        self.directions.get(line.back().0 as usize).is_some_and(|back| back.to == node)
    }

    /// Returns the node at the other end of a node's own link.
    pub(crate) fn neighbour(&self, node: NodeId, link: LinkId) -> Option<NodeId> {
        let lines = LineId::of(link).into_iter();
        lines.filter(|line| self.begins_at(*line, node)).map(|line| self.end_of(line)).next()
    }

    /// Returns whether only switches lie on the route from one node to another.
    pub(crate) fn is_attached(&mut self, from: NodeId, to: NodeId) -> bool {
        let mut at = from;
        while let Some(line) = self.next_line(at, to) {
            at = self.end_of(line);
            if self.nodes[at.0 as usize].kind != NodeKind::Switch {
                break;
            }
        }
        at == to
    }

    /// Returns whether routes may use a link, which requires both of its directions to be up.
    fn is_usable(&self, line: LineId) -> bool {
        [line, line.back()].iter().all(|line| self.directions[line.0 as usize].line.is_up())
    }

    /// Returns the line that leads from `at` to `to`.
    fn next_line(&mut self, at: NodeId, to: NodeId) -> Option<LineId> {
        let Fabric { routing, directions, .. } = self;
        routing.next(at, to, |line| directions[line.0 as usize].line.is_up())
    }

    /// Returns the same line for a packet, which does not set out if there is no route.
    fn next_line_of_route(&mut self, at: NodeId, to: NodeId) -> Option<LineId> {
        let Fabric { routing, directions, .. } = self;
        let is_up = |line: LineId| directions[line.0 as usize].line.is_up();
        routing.reaches(at, to, is_up).then(|| routing.next(at, to, is_up)).flatten()
    }

    /// Cuts or restores a line. Routes and trees follow at once.
    pub(crate) fn change_line(&mut self, line: LineId, up: bool) {
        let before = self.is_usable(line);
        self.directions[line.0 as usize].line.set_up(up);
        if self.is_usable(line) != before {
            let routes_changed = self.routing.link_changed(line.link());
            self.mend_trees(line, routes_changed);
        }
    }
}
