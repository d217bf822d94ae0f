//! Puts packets together that the source had to cut.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use umbel_wire::ParseError;
use umbel_wire::rtp::Part;

/// Most packets of which parts wait for others. Restored parts come late.
const HELD: usize = 256;
/// Most bytes that wait.
const BYTES: usize = 4 << 20;

/// The packets of a layer that are not complete.
#[derive(Debug, Default)]
pub(super) struct Parts {
    packets: BTreeMap<u16, Packet>,
    /// Their numbers, the oldest first.
    order: VecDeque<u16>,
    bytes: usize,
}

#[derive(Debug)]
struct Packet {
    /// Number of all its parts.
    parts: u8,
    came: BTreeMap<u8, Bytes>,
}

impl Parts {
    /// Takes a unit. Returns the packet that it is, or that is complete with it.
    ///
    /// # Errors
    ///
    /// If it is a part that is malformed.
    pub(super) fn take(&mut self, unit: Bytes) -> Result<Option<Bytes>, ParseError> {
        let Some(part) = Part::parse(&unit)? else { return Ok(Some(unit)) };
        let (number, body) = (part.packet, unit.slice_ref(part.body));
        // Numbers come again after many packets.
        if self.packets.get(&number).is_some_and(|packet| packet.parts != part.parts) {
            self.forget(number);
        }
        let packet = self.packets.entry(number).or_insert_with(|| {
            self.order.push_back(number);
            Packet { parts: part.parts, came: BTreeMap::new() }
        });
        if let std::collections::btree_map::Entry::Vacant(place) = packet.came.entry(part.part) {
            self.bytes += body.len();
            place.insert(body);
        }
        if packet.came.len() == usize::from(packet.parts) {
            let mut whole = BytesMut::new();
            packet.came.values().for_each(|body| whole.extend_from_slice(body));
            self.forget(number);
            return Ok(Some(whole.freeze()));
        }
        while (self.order.len() > HELD || self.bytes > BYTES)
            && let Some(&oldest) = self.order.front()
        {
            self.forget(oldest);
        }
        Ok(None)
    }

    fn forget(&mut self, number: u16) {
        self.order.retain(|other| *other != number);
        if let Some(packet) = self.packets.remove(&number) {
            self.bytes -= packet.came.values().map(Bytes::len).sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::rtp::parts;

    use super::*;

    fn cut(number: u16, fill: u8) -> Vec<Bytes> {
        parts(&[fill; 1328], number, 1302).into_iter().map(Bytes::from).collect()
    }

    #[test]
    fn a_packet_is_complete_with_its_last_part_in_any_order() {
        let (mut held, first, second) = (Parts::default(), cut(65_535, 1), cut(0, 2));
        let whole = Bytes::from_static(&[0x80, 96, 0, 1]);
        assert_eq!(held.take(whole.clone()), Ok(Some(whole)));
        assert_eq!(held.take(second[1].clone()), Ok(None));
        assert_eq!(held.take(first[0].clone()), Ok(None));
        assert_eq!(held.take(first[0].clone()), Ok(None), "it came before");
        assert_eq!(held.take(first[1].clone()), Ok(Some(Bytes::from(vec![1; 1328]))));
        assert_eq!(held.take(second[0].clone()), Ok(Some(Bytes::from(vec![2; 1328]))));
        assert_eq!((held.packets.len(), held.order.len(), held.bytes), (0, 0, 0));
        assert!(held.take(Bytes::from_static(&[0, 1, 0, 1, 9])).is_err());
    }

    #[test]
    fn parts_whose_others_are_lost_take_bounded_room() {
        let mut held = Parts::default();
        for number in 0..2_000 {
            assert_eq!(held.take(cut(number, 0).remove(0)), Ok(None));
            assert!(held.packets.len() <= HELD && held.order.len() == held.packets.len());
        }
        let long = parts(&vec![0; 60_000], 9_000, 30_010);
        for number in 3_000..4_000_u16 {
            let mut part = long[0].clone();
            part[2..4].copy_from_slice(&number.to_be_bytes());
            assert_eq!(held.take(part.into()), Ok(None));
            assert!(held.bytes <= BYTES);
        }
        // The number of another packet, a long time later.
        let mut three = parts(&[0; 3_000], 3_999, 1_302).into_iter().map(Bytes::from);
        assert_eq!(held.take(three.next().unwrap()), Ok(None));
        assert_eq!(held.take(three.next().unwrap()), Ok(None));
        assert_eq!(held.take(three.next().unwrap()).unwrap().unwrap().len(), 3_000);
    }
}
