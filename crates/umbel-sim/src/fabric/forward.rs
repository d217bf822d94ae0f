//! Packets from node to node.

use std::ops::Range;

use umbel_engine::Instant;

use super::{Event, Fabric, Parcel, ParcelId, PlaceId};
use crate::line::Refusal;
use crate::network::{LinkId, NodeId, NodeKind};
use crate::packet::{Destination, Packet};
use crate::routing::LineId;
use crate::trace::{ChannelParts, Hop, PacketRecord};

impl Fabric {
    /// Sends a packet that originates at a node.
    pub(crate) fn send(&mut self, node: NodeId, packet: Packet) {
        let left = packet.hop_limit;
        let (id, parcel) = self.open(node, packet);
        if left > 0 {
            self.forward(node, id, &parcel, left);
        }
        self.parcels.close(id, parcel);
    }

    /// Sends a packet that originates at a node on one link.
    pub(crate) fn send_on(&mut self, node: NodeId, link: LinkId, packet: Packet) {
        let left = packet.hop_limit;
        let line = LineId::of(link).into_iter().find(|line| self.begins_at(*line, node));
        let (id, parcel) = self.open(node, packet);
        match line {
            Some(line) if left > 0 => self.cross(line, id, &parcel, left),
            Some(_) => {}
            None => self.drop_in(node, &parcel, Hop::NoRoute),
        }
        self.parcels.close(id, parcel);
    }

    fn open(&mut self, node: NodeId, packet: Packet) -> (ParcelId, Parcel) {
        self.counters.sent += 1;
        let (id, parcel) = self.parcels.open(packet);
        if parcel.packet.hop_limit == 0 {
            self.drop_in(node, &parcel, Hop::HopLimit);
        }
        (id, parcel)
    }

    /// Takes out a packet of which a copy has arrived. [`Fabric::put_back`] must follow.
    pub(crate) fn take(&mut self, id: ParcelId) -> Parcel {
        self.parcels.take(id)
    }

    pub(crate) fn put_back(&mut self, id: ParcelId, parcel: Parcel) {
        self.parcels.close(id, parcel);
    }

    /// Passes on a packet that a router received with `left` hops. If it came by the tree, it
    /// leaves from the router's place in the tree.
    pub(crate) fn relay(
        &mut self,
        at: NodeId,
        place: Option<PlaceId>,
        id: ParcelId,
        parcel: &Parcel,
        left: u8,
    ) {
        let counts = self.nodes[at.0 as usize].kind != NodeKind::Switch;
        let left = left - u8::from(counts);
        let ends_here = match (parcel.packet.destination, place) {
            (Destination::Unicast(to), _) => to == at,
            (Destination::Group(_), Some(place)) => self.multicast.is_leaf(place),
            (Destination::Group(_), None) => false,
        };
        if ends_here {
        } else if left == 0 {
            self.drop_in(at, parcel, Hop::HopLimit);
        } else if let Some(place) = place {
            self.branch_out(place, id, parcel, left);
        } else {
            self.forward(at, id, parcel, left);
        }
    }

    /// Forwards a packet from a node.
    fn forward(&mut self, at: NodeId, id: ParcelId, parcel: &Parcel, left: u8) {
        match parcel.packet.destination {
            Destination::Unicast(to) => match self.next_line_of_route(at, to) {
                Some(line) => self.cross(line, id, parcel, left),
                None => self.drop_in(at, parcel, Hop::NoRoute),
            },
            Destination::Group(group) if self.multicast.is_flooded(group) => {
                self.flood_from(at, (group, parcel.packet.source), id, parcel, left);
            }
            Destination::Group(group) => match self.place(group, parcel.packet.source, at) {
                Some(place) => self.branch_out(place, id, parcel, left),
                None => self.drop_in(at, parcel, Hop::NoRoute),
            },
        }
    }

    /// Puts a copy on a line.
    pub(super) fn cross(&mut self, line: LineId, id: ParcelId, parcel: &Parcel, left: u8) {
        if let Some(at) = self.enter(line, parcel) {
            self.parcels.copy(id);
            self.schedule(at, Event::Arrival { parcel: id, line, left });
        }
    }

    /// Puts a copy on the line of each branch of a place.
    fn branch_out(&mut self, place: PlaceId, id: ParcelId, parcel: &Parcel, left: u8) {
        // Neighbouring branches whose copies arrive at the same time share an event.
        let (mut first, mut shared_at) = (0, None);
        let count = self.multicast.branches(place).len();
        for number in 0..count {
            let branch = &self.multicast.branches(place)[number];
            let (line, active) = (branch.line, branch.active);
            let at = if active { self.enter(line, parcel) } else { None };
            if at != shared_at {
                self.share(place, first..number, shared_at, id, left);
                (first, shared_at) = (number, at);
            }
        }
        self.share(place, first..count, shared_at, id, left);
    }

    fn share(
        &mut self,
        place: PlaceId,
        branches: Range<usize>,
        at: Option<Instant>,
        id: ParcelId,
        left: u8,
    ) {
        let Some(at) = at else { return };
        self.parcels.copy(id);
        self.multicast.hold(place);
        let (first, end) = (branches.start as u32, branches.end as u32);
        self.schedule(at, Event::Branches { parcel: id, place, first, end, left });
    }

    /// Offers a packet to a line. Returns its time of arrival.
    #[inline]
    fn enter(&mut self, line: LineId, parcel: &Parcel) -> Option<Instant> {
        let direction = &mut self.directions[line.0 as usize];
        let length = parcel.packet.wire_len;
        let (what, arrives) = match direction.line.offer_of(parcel.packet.kind, self.now, length) {
            Ok(arrives) => {
                direction.packets += 1;
                direction.bytes += u64::from(length);
                self.counters.hops += 1;
                (Hop::Sent, Some(arrives))
            }
            Err(Refusal::Queue) => {
                self.counters.queue_drops += 1;
                (Hop::QueueDrop, None)
            }
            Err(Refusal::Down) => {
                self.counters.down += 1;
                (Hop::Down, None)
            }
        };
        if self.tracer.is_some() {
            self.trace(Some(line), self.end_of(line.back()), what, arrives, parcel);
        }
        arrives
    }

    /// Takes a packet out of a line. Returns the node that it reached, unless it was lost.
    #[inline]
    pub(crate) fn exit(&mut self, line: LineId, parcel: &Parcel) -> Option<NodeId> {
        let direction = &mut self.directions[line.0 as usize];
        let to = direction.to;
        let what = if !direction.line.is_up() {
            self.counters.down += 1;
            Hop::Down
        } else if direction.line.passes(parcel.packet.kind, parcel.packet.flow) {
            Hop::Delivered
        } else {
            self.counters.lost += 1;
            Hop::Lost
        };
        if self.tracer.is_some() {
            self.trace(Some(line), self.end_of(line.back()), what, None, parcel);
        }
        (what == Hop::Delivered).then_some(to)
    }

    /// Counts a packet that ends in a node.
    pub(crate) fn drop_in(&mut self, node: NodeId, parcel: &Parcel, what: Hop) {
        match what {
            Hop::HopLimit => self.counters.hop_limit += 1,
            _ => self.counters.no_route += 1,
        }
        self.trace(None, node, what, None, parcel);
    }

    fn trace(
        &mut self,
        line: Option<LineId>,
        from: NodeId,
        what: Hop,
        arrives: Option<Instant>,
        parcel: &Parcel,
    ) {
        let to = line.map_or(from, |line| self.end_of(line));
        let Some(tracer) = &mut self.tracer else { return };
        let Parcel { packet, number } = parcel;
        let channel: Option<ChannelParts> = match packet.destination {
            Destination::Unicast(_) => None,
            Destination::Group(group) => self.multicast.parts(group),
        };
        tracer.packet(&PacketRecord {
            at: self.now,
            link: line.map(LineId::link),
            from,
            to,
            what,
            arrives,
            packet,
            channel,
            id: *number,
        });
    }
}
