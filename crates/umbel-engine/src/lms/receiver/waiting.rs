//! Subtrees that wait for units which the receiver itself is missing [LMS §II-I].
//!
//! A replier that is missing a unit ignores requests for it. The repair that it requested itself
//! comes by its turning point, above all requestors. Where the repair comes by unicast instead, it
//! does not reach them, and the receiver sends it on to each of them.

use std::collections::BTreeMap;

use umbel_wire::lms::TurningPoint;

/// Greatest number of units that may be waited for at once.
const UNITS: usize = 256;

/// Subtrees that wait, by unit.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    places_per_unit: usize,
    places: BTreeMap<u64, Vec<(TurningPoint, u8)>>,
}

impl Waiting {
    pub(super) fn new(places_per_unit: usize) -> Waiting {
        Waiting { places_per_unit, places: BTreeMap::new() }
    }

    /// Remembers a subtree that requested a unit, and the number of its latest request. Returns
    /// whether there was room.
    pub(super) fn remember(&mut self, sequence: u64, place: TurningPoint, number: u8) -> bool {
        if !self.places.contains_key(&sequence) && self.places.len() >= UNITS {
            return false;
        }
        let places = self.places.entry(sequence).or_default();
        let is_same = |known: &TurningPoint| {
            (known.router, known.interface) == (place.router, place.interface)
        };
        if let Some(known) = places.iter_mut().find(|(known, _)| is_same(known)) {
            *known = (place, number);
            return true;
        }
        if places.len() >= self.places_per_unit {
            return false;
        }
        places.push((place, number));
        true
    }

    /// Takes out the subtrees that waited for a unit.
    pub(super) fn take(&mut self, sequence: u64) -> Vec<(TurningPoint, u8)> {
        self.places.remove(&sequence).unwrap_or_default()
    }

    /// Forgets the units before this one, which are given up.
    pub(super) fn give_up_before(&mut self, horizon: u64) {
        self.places = self.places.split_off(&horizon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(interface: u32) -> TurningPoint {
        TurningPoint { router: "10.0.0.1:7702".parse().unwrap(), interface, tag: 0 }
    }

    #[test]
    fn each_place_waits_once_and_memory_is_bounded() {
        let mut waiting = Waiting::new(2);
        assert!(waiting.remember(7, place(1), 1));
        assert!(waiting.remember(7, place(1), 2));
        assert!(waiting.remember(7, place(2), 1));
        assert!(!waiting.remember(7, place(3), 1));
        assert_eq!(waiting.take(7), [(place(1), 2), (place(2), 1)]);
        assert_eq!(waiting.take(7), []);
        for sequence in 0..1_000 {
            waiting.remember(sequence, place(1), 1);
        }
        assert!(waiting.places.len() <= UNITS);
        waiting.give_up_before(1_000);
        assert!(waiting.places.is_empty());
    }
}
