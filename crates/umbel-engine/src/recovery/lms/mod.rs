//! LMS over blocks: routers choose who answers, receivers repair each other's subtrees.
//!
//! The messages are those of [`umbel_wire::lms`], so that every router with LMS serves feeds. What
//! LMS calls a data unit is a symbol here: its sequence number is [`unit`], made of block and
//! symbol. A unit of no symbol stands for a whole block whose length the requestor does not know.
//! A repair's payload is a data packet of the feed.
//!
//! ```text
//! receiver ── request, router alert ──▶ towards the source
//!                 │ a router with LMS          │ none on the way
//!                 ▼                            ▼
//!              replier: Dmcasts              source: its Domain, to everyone
//!                 │ DMCAST
//!                 ▼
//!           turning point ── repair, as from the source, by the data channel ──▶ its subtree
//! ```
//!
//! The data channel has the port at which the source hears unicast, since routers send requests
//! on to that port of the source [LMS §II-F].
//!
//! - [`Dmcasts`]: what a source or a replier owes to turning points.
//! - [`Points`]: the routers that have shown that they receive what is sent there.
//! - [`Helper`]: the rest of a receiver's part: requests, the offer to be a replier, requests of
//!   others.
//!
//! A block that was asked for [`HELPER_TRIES`] times is asked for at the source directly, without
//! the option that some routers drop.

mod dmcasts;
mod helper;
mod points;

use umbel_wire::lms::UnitSet;
use umbel_wire::tmtp::EsiSet;

use super::reception::{Lack, MAX_SYMBOLS};

pub(crate) use dmcasts::{Dmcasts, Requestor};
pub(crate) use helper::Helper;
pub(crate) use points::Points;

/// Requests for a block that go to helpers. Further ones go to the source alone.
pub(crate) const HELPER_TRIES: u8 = 4;

/// Symbol number that stands for all symbols of a block.
const WHOLE: u32 = MAX_SYMBOLS;

/// Returns the sequence number of a symbol.
pub(crate) fn unit(block: u32, esi: u32) -> u64 {
    u64::from(block) << 8 | u64::from(esi.min(WHOLE))
}

/// Returns sets of units that ask for these symbols of a block; `None` are all.
fn units_for(block: u32, symbols: Option<EsiSet>) -> Vec<UnitSet> {
    let Some(symbols) = symbols else { return vec![UnitSet::one(unit(block, WHOLE))] };
    let mut sets: Vec<UnitSet> = Vec::new();
    for sequence in symbols.iter().map(|esi| unit(block, esi)) {
        match sets.last_mut() {
            Some(last) if last.with(sequence).is_some() => {
                *last = last.with(sequence).unwrap_or(*last);
            }
            _ => sets.push(UnitSet::one(sequence)),
        }
    }
    sets
}

/// Returns what a set of units asks for of each block.
pub(crate) fn lacks_of(units: UnitSet) -> Vec<(u32, Lack)> {
    let mut lacks: Vec<(u32, Lack)> = Vec::new();
    for sequence in units.iter() {
        let Ok(block) = u32::try_from(sequence >> 8) else { break };
        let esi = (sequence & 0xFF) as u32;
        let lack =
            if esi == WHOLE { Lack::Whole } else { Lack::Exact([esi].into_iter().collect()) };
        match lacks.last_mut() {
            Some((last, known)) if *last == block => *known = known.or(lack),
            _ => lacks.push((block, lack)),
        }
    }
    lacks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_whole_block_is_one_unit() {
        let sets = units_for(7, None);
        assert_eq!(sets.len(), 1);
        assert_eq!(lacks_of(sets[0]), [(7, Lack::Whole)]);
    }

    proptest! {
        #[test]
        fn what_is_asked_for_in_units_is_what_is_lacking(
            block in any::<u32>(), symbols in prop::collection::btree_set(0_u32..255, 1..80)
        ) {
            let wanted: EsiSet = symbols.into_iter().collect();
            let mut asked = EsiSet::default();
            for set in units_for(block, Some(wanted)) {
                for (of, lack) in lacks_of(set) {
                    let Lack::Exact(symbols) = lack else { panic!("{lack:?}") };
                    prop_assert_eq!(of, block);
                    asked = asked.union(symbols);
                }
            }
            prop_assert_eq!(asked, wanted);
        }

        #[test]
        fn any_units_are_lacks_of_blocks_in_order(first in any::<u64>(), following in any::<u32>()) {
            let lacks = lacks_of(UnitSet { first: first >> 1, following });
            prop_assert!(lacks.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
