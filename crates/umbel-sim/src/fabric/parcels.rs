//! Packets in transit, each stored once however many copies of it there are.

use crate::packet::Packet;

/// Position at which a packet is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParcelId(u32);

/// Packet with its number in the run.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) packet: Packet,
    pub(crate) number: u64,
}

/// Store of packets. A packet is taken out while it is handled, so that the programs that receive
/// it can send others meanwhile. Its position stays reserved.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_number: u64,
}

#[derive(Debug)]
struct Slot {
    parcel: Option<Parcel>,
    /// Number of copies in transit; those that share an event count as one.
    copies: u32,
}

impl Parcels {
    /// Reserves a position for a new packet. [`Parcels::close`] must follow.
    pub(super) fn open(&mut self, packet: Packet) -> (ParcelId, Parcel) {
        let number = self.next_number;
        self.next_number += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { parcel: None, copies: 0 });
            self.slots.len() as u32 - 1
        });
        (ParcelId(index), Parcel { packet, number })
    }

    /// Counts one more copy.
    #[inline]
    pub(super) fn copy(&mut self, id: ParcelId) {
        self.slots[id.0 as usize].copies += 1;
    }

    /// Takes out a packet of which a copy is no longer in transit. [`Parcels::close`] must follow.
    #[inline]
    pub(super) fn take(&mut self, id: ParcelId) -> Parcel {
        let slot = &mut self.slots[id.0 as usize];
        slot.copies -= 1;
        slot.parcel.take().expect("a copy was on its way, and nobody else works on the packet")
    }

    /// Puts a packet back, or drops it if no copy is in transit any more.
    #[inline]
    pub(super) fn close(&mut self, id: ParcelId, parcel: Parcel) {
        let slot = &mut self.slots[id.0 as usize];
        if slot.copies > 0 {
            slot.parcel = Some(parcel);
        } else {
            self.free.push(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::network::NodeId;
    use crate::packet::{Destination, Kind};

    #[test]
    fn a_place_is_used_again_once_all_copies_are_gone() {
        let to = Destination::Unicast(NodeId(1));
        let packet = Packet::new(NodeId(0), to, Kind::Data, Bytes::from_static(b"abc"));
        let mut parcels = Parcels::default();
        let (first, parcel) = parcels.open(packet.clone());
        parcels.copy(first);
        parcels.copy(first);
        parcels.close(first, parcel);
        let parcel = parcels.take(first);
        // The first packet is still being handled, so another one gets another position.
        let (second, other) = parcels.open(packet.clone());
        assert_ne!(second, first);
        parcels.close(second, other);
        parcels.close(first, parcel);
        let last = parcels.take(first);
        assert_eq!((last.number, &last.packet), (0, &packet));
        parcels.close(first, last);
        let (again, parcel) = parcels.open(packet);
        assert_eq!((again, parcel.number, parcels.slots.len()), (first, 2, 2));
    }
}
