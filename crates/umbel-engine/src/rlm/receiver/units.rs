//! The units of a layer, and those restored from repairs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use umbel_fec::{Code, SymbolSet};
use umbel_wire::{Scheme, SmallBlockHeader};

use crate::rlm::config::HeldConfig;
use crate::rlm::drops::DropReason;
use crate::rlm::symbols::UNIT_LEN;

/// A unit and its number.
pub(super) type Numbered = (u64, Bytes);

/// A block that repairs may still restore.
#[derive(Debug, Default)]
struct Block {
    /// Units that came, by symbol ID. Emptied once nothing is missing.
    units: BTreeMap<u8, Bytes>,
    repairs: BTreeMap<u8, Bytes>,
    /// Number of units, once a repair told it.
    symbols: Option<u8>,
    complete: bool,
    bytes: usize,
}

/// Delivers the units of a layer in the order of arrival, and restores lost ones.
#[derive(Debug)]
pub(super) struct Units {
    config: HeldConfig,
    blocks: BTreeMap<u32, Block>,
    /// Block numbers in the order in which they were first seen.
    order: VecDeque<u32>,
    bytes: usize,
    restored: u64,
}

impl Units {
    pub(super) fn new(config: HeldConfig) -> Units {
        Units { config, blocks: BTreeMap::new(), order: VecDeque::new(), bytes: 0, restored: 0 }
    }

    /// Returns the number of units that were restored so far.
    pub(super) fn restored(&self) -> u64 {
        self.restored
    }

    /// Takes a packet; returns the units that can be delivered now.
    ///
    /// # Errors
    ///
    /// Returns the reason for which it is of no use.
    pub(super) fn insert(
        &mut self,
        header: &SmallBlockHeader,
        symbol: &[u8],
    ) -> Result<Vec<Numbered>, DropReason> {
        self.make_room(header.sbn, symbol.len());
        let block = self.blocks.entry(header.sbn).or_default();
        let (esi, symbols) = (header.esi, header.block_symbols);
        if (symbols, esi) == (1, 0) {
            // A block of one unit is complete with it.
            if std::mem::replace(&mut block.complete, true) {
                return Err(DropReason::Duplicate);
            }
            self.bytes -= std::mem::take(&mut block.bytes);
            (block.units, block.repairs) = (BTreeMap::new(), BTreeMap::new());
            return Ok(vec![(number(header.sbn, esi), Bytes::copy_from_slice(symbol))]);
        }
        let before = block.bytes;
        let taken = if esi < symbols {
            block.insert_unit(esi, Bytes::copy_from_slice(symbol))
        } else {
            block.insert_repair(esi, symbols, symbol).map(|()| None)
        };
        self.bytes += block.bytes - before;
        let mut out: Vec<Numbered> = Vec::new();
        out.extend(taken?.map(|unit| (number(header.sbn, esi), unit)));
        let restored = block.restore();
        if block.complete {
            self.bytes -= std::mem::take(&mut block.bytes);
            block.repairs = BTreeMap::new();
            block.units.values_mut().for_each(|unit| *unit = Bytes::new());
        }
        match restored {
            Err(reason) if out.is_empty() => return Err(reason),
            Err(_) => {}
            Ok(restored) => {
                self.restored += restored.len() as u64;
                out.extend(restored.into_iter().map(|(esi, unit)| (number(header.sbn, esi), unit)));
            }
        }
        Ok(out)
    }

    /// Forgets the oldest blocks if another one, or a symbol of this length, has no room.
    fn make_room(&mut self, sbn: u32, len: usize) {
        if !self.blocks.contains_key(&sbn) {
            self.order.push_back(sbn);
        }
        while self.order.len() > self.config.blocks.max(1)
            || self.order.len() > 1 && self.bytes + len > self.config.block_bytes
        {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(block) = self.blocks.remove(&oldest) {
                self.bytes -= block.bytes;
            }
        }
    }
}

fn number(sbn: u32, esi: u8) -> u64 {
    u64::from(sbn) << 8 | u64::from(esi)
}

impl Block {
    fn insert_unit(&mut self, esi: u8, unit: Bytes) -> Result<Option<Bytes>, DropReason> {
        if self.symbols.is_some_and(|symbols| esi >= symbols) {
            return Err(DropReason::Contradiction);
        }
        if self.units.contains_key(&esi) {
            return Err(DropReason::Duplicate);
        }
        self.bytes += unit.len();
        self.units.insert(esi, unit.clone());
        Ok(Some(unit))
    }

    fn insert_repair(&mut self, esi: u8, symbols: u8, repair: &[u8]) -> Result<(), DropReason> {
        let fits = self.symbols.is_none_or(|known| known == symbols)
            && self.units.last_key_value().is_none_or(|(&last, _)| last < symbols)
            && self.repairs.values().all(|other| other.len() == repair.len())
            && repair.len() >= UNIT_LEN;
        if !fits {
            return Err(DropReason::Contradiction);
        }
        if self.complete || self.repairs.contains_key(&esi) {
            return Err(DropReason::Duplicate);
        }
        self.symbols = Some(symbols);
        self.bytes += repair.len();
        self.repairs.insert(esi, Bytes::copy_from_slice(repair));
        Ok(())
    }

    /// Restores the missing units once there are enough symbols. Returns them by symbol ID.
    fn restore(&mut self) -> Result<Vec<(u8, Bytes)>, DropReason> {
        let Some(symbols) = self.symbols.filter(|_| !self.complete) else { return Ok(Vec::new()) };
        if self.units.len() + self.repairs.len() < usize::from(symbols) {
            return Ok(Vec::new());
        }
        self.complete = true;
        let len = self.repairs.first_key_value().map_or(0, |(_, repair)| repair.len());
        let mut block = vec![0; len * usize::from(symbols)];
        let mut present = SymbolSet::new(symbols.into());
        for (&esi, unit) in &self.units {
            let place = &mut block[usize::from(esi) * len..][..len];
            let unit_len = u16::try_from(unit.len()).map_err(|_| DropReason::Contradiction)?;
            let body =
                place.get_mut(UNIT_LEN..UNIT_LEN + unit.len()).ok_or(DropReason::Contradiction)?;
            body.copy_from_slice(unit);
            place[..UNIT_LEN].copy_from_slice(&unit_len.to_be_bytes());
            present.insert(esi.into());
        }
        let missing: Vec<u32> = present.missing().collect();
        let repairs: Vec<(u32, &[u8])> =
            self.repairs.iter().map(|(&esi, repair)| (esi.into(), &repair[..])).collect();
        Code::new(Scheme::ReedSolomon)
            .restore(symbols.into(), len, &mut block, &present, &repairs)
            .map_err(|_| DropReason::Contradiction)?;
        let block = Bytes::from(block);
        let mut out = Vec::new();
        for esi in missing {
            let at = esi as usize * len;
            let unit_len = usize::from(u16::from_be_bytes([block[at], block[at + 1]]));
            if unit_len > len - UNIT_LEN {
                return Err(DropReason::Contradiction);
            }
            let unit = block.slice(at + UNIT_LEN..at + UNIT_LEN + unit_len);
            self.units.insert(esi as u8, Bytes::new());
            out.push((esi as u8, unit));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::{Toi, Tsi};

    use super::*;
    use crate::rlm::symbols;

    fn header(sbn: u32, block_symbols: u8, esi: u8) -> SmallBlockHeader {
        let (tsi, toi) = (Tsi(1), Toi(0));
        SmallBlockHeader {
            tsi,
            toi,
            transmission: 0,
            index: 0,
            stamp: None,
            sbn,
            block_symbols,
            esi,
        }
    }

    fn units() -> Units {
        Units::new(HeldConfig::default())
    }

    fn repairs(units: &[&[u8]], count: u8) -> Vec<Bytes> {
        let units: Vec<Bytes> = units.iter().map(|unit| Bytes::copy_from_slice(unit)).collect();
        symbols::repairs_of_units(&units, count)
    }

    #[test]
    fn a_unit_is_delivered_when_it_comes() {
        let mut units = units();
        for sbn in 0..100 {
            let delivered = units.insert(&header(sbn, 1, 0), b"unit").unwrap();
            assert_eq!(delivered, [(u64::from(sbn) << 8, Bytes::from_static(b"unit"))]);
        }
        assert_eq!((units.bytes, units.blocks.len()), (0, 8));
    }

    #[test]
    fn lost_units_of_any_length_are_restored() {
        let sent: [&[u8]; 4] = [b"first", b"", b"the third, which is long", b"4"];
        let repairs = repairs(&sent, 2);
        let mut units = units();
        for esi in [0, 3] {
            units.insert(&header(9, 10, esi), sent[usize::from(esi)]).unwrap();
        }
        assert_eq!(units.insert(&header(9, 4, 4), &repairs[0]), Ok(vec![]));
        let restored = units.insert(&header(9, 4, 5), &repairs[1]).unwrap();
        let expected = [(9 << 8 | 1, sent[1]), (9 << 8 | 2, sent[2])];
        let expected = expected.map(|(number, unit)| (number, Bytes::copy_from_slice(unit)));
        assert_eq!((restored, units.restored(), units.bytes), (expected.to_vec(), 2, 0));
        assert_eq!(units.insert(&header(9, 10, 2), sent[2]), Err(DropReason::Duplicate));
    }

    #[test]
    fn a_repeated_single_unit_is_delivered_once() {
        let repair = &repairs(&[b"unit"], 1)[0];
        let mut units = units();
        let restored = units.insert(&header(1, 1, 1), repair).unwrap();
        assert_eq!(restored, [(1 << 8, Bytes::from_static(b"unit"))]);
        assert_eq!(units.insert(&header(1, 1, 0), b"unit"), Err(DropReason::Duplicate));
        units.insert(&header(2, 1, 0), b"next").unwrap();
        let repair = &self::repairs(&[b"next"], 1)[0];
        assert_eq!(units.insert(&header(2, 1, 1), repair), Err(DropReason::Duplicate));
    }

    #[test]
    fn repairs_that_contradict_the_units_are_refused() {
        let mut units = units();
        units.insert(&header(1, 10, 4), b"longer than the repair").unwrap();
        let contradiction = Err(DropReason::Contradiction);
        assert_eq!(units.insert(&header(1, 4, 5), b"\0\x01x"), contradiction);
        assert_eq!(units.insert(&header(1, 5, 5), b"x"), contradiction);
        for esi in [5, 6, 7] {
            assert_eq!(units.insert(&header(1, 5, esi), b"\0\x01x"), Ok(vec![]));
        }
        assert_eq!(units.insert(&header(1, 5, 8), b"\0\x01x"), contradiction);
        assert_eq!(units.insert(&header(1, 10, 9), b"unit"), contradiction);
        // A restored length beyond the symbol.
        assert_eq!(units.insert(&header(2, 1, 1), b"\0\x09x"), contradiction);
    }

    #[test]
    fn old_blocks_make_room() {
        let config = HeldConfig { block_bytes: 1000, ..HeldConfig::default() };
        let mut units = Units::new(config);
        for sbn in 0..1000 {
            units.insert(&header(sbn, 9, 0), &[0; 400]).unwrap();
            assert!(units.bytes <= 1000 && units.blocks.len() <= 2);
        }
    }
}
