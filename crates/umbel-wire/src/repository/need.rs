//! Compact encoding of a client's need.
//!
//! The value is a kind byte and then runs up to its end. Each run is relative to the previous one.
//!
//! - Symbols: `(symbols − 1) × 4 + gap × 2 + many`; if `gap`, the number of blocks between the
//!   previous run and this one, less 1; if `many`, the number of blocks less 2. A block next to its
//!   neighbour that needs at most 32 symbols takes one byte. So the 6,000 blocks of a 1 GB item
//!   take at most 6 KB.
//! - Exact: `(count − 1) × 2 + other`; if `other`, the distance in blocks from the previous run's
//!   block, less 1, and the first symbol; otherwise the number of symbols in between.

use super::{Need, NeedRun, SymbolRun, limits};
use crate::ParseError;
use crate::codec::{Reader, put_varint};

const WHOLE: u8 = 0;
const SYMBOLS: u8 = 1;
const EXACT: u8 = 2;

impl Need {
    /// Returns the number of symbols needed, or `None` for the whole item.
    pub fn symbols(&self) -> Option<u64> {
        match self {
            Need::Whole => None,
            Need::Symbols(runs) => Some(sum(runs.iter().map(NeedRun::total))),
            Need::Exact(runs) => Some(sum(runs.iter().map(|run| u64::from(run.count)))),
        }
    }

    /// Returns whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        match self {
            Need::Whole => false,
            Need::Symbols(runs) => runs.is_empty(),
            Need::Exact(runs) => runs.is_empty(),
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Need::Whole => out.push(WHOLE),
            Need::Symbols(runs) => put_need_runs(out, runs),
            Need::Exact(runs) => put_symbol_runs(out, runs),
        }
    }

    pub(super) fn read(value: &[u8]) -> Result<Need, ParseError> {
        let mut reader = Reader::new("need", value);
        match reader.byte()? {
            WHOLE => reader.finish().map(|()| Need::Whole),
            SYMBOLS => read_need_runs(reader).map(Need::Symbols),
            EXACT => read_symbol_runs(reader).map(Need::Exact),
            _ => Err(reader.bad("an unknown kind")),
        }
    }
}

impl NeedRun {
    /// Returns the number of symbols that all blocks of the run need together.
    pub fn total(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.symbols)
    }
}

/// Sums up, saturating: the runs may be unchecked.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn put_need_runs(out: &mut Vec<u8>, runs: &[NeedRun]) {
    out.push(SYMBOLS);
    let mut end = 0_u32;
    for run in runs {
        let gap = run.first_block.wrapping_sub(end);
        // A run of no blocks wraps to a value that every reader refuses.
        let many = u64::from(run.blocks).wrapping_sub(1);
        let symbols = u64::from(run.symbols).wrapping_sub(1);
        put_varint(out, symbols << 2 | u64::from(gap > 0) << 1 | u64::from(many > 0));
        if gap > 0 {
            put_varint(out, u64::from(gap - 1));
        }
        if many > 0 {
            put_varint(out, many - 1);
        }
        end = run.first_block.wrapping_add(run.blocks);
    }
}

fn read_need_runs(mut reader: Reader<'_>) -> Result<Vec<NeedRun>, ParseError> {
    let mut runs = Vec::new();
    let mut end = 0_u32;
    while !reader.is_empty() {
        check_count(&reader, runs.len())?;
        let head = reader.varint()?;
        let gap = if head & 2 == 0 { 0 } else { one_more(&mut reader)? };
        let blocks = if head & 1 == 0 { Some(1) } else { one_more(&mut reader)?.checked_add(1) };
        let symbols = u16::try_from((head >> 2) + 1);
        let symbols = symbols.map_err(|_| reader.bad("too many symbols of a block"))?;
        let first_block = end.checked_add(gap);
        let run_end = first_block.zip(blocks).and_then(|(first, blocks)| first.checked_add(blocks));
        let (Some(first_block), Some(blocks), Some(run_end)) = (first_block, blocks, run_end)
        else {
            return Err(reader.bad("a source block number above 32 bits"));
        };
        runs.push(NeedRun { first_block, blocks, symbols });
        end = run_end;
    }
    Ok(runs)
}

fn put_symbol_runs(out: &mut Vec<u8>, runs: &[SymbolRun]) {
    out.push(EXACT);
    let mut before: Option<&SymbolRun> = None;
    for run in runs {
        let next_block = before.map_or(0, |before| before.block.wrapping_add(1));
        let other = before.is_none_or(|before| before.block != run.block);
        put_varint(out, u64::from(run.count).wrapping_sub(1) << 1 | u64::from(other));
        if other {
            put_varint(out, u64::from(run.block.wrapping_sub(next_block)));
        }
        let start = match before {
            Some(before) if !other => before.first_esi.wrapping_add(before.count),
            _ => 0,
        };
        put_varint(out, u64::from(run.first_esi.wrapping_sub(start)));
        before = Some(run);
    }
}

fn read_symbol_runs(mut reader: Reader<'_>) -> Result<Vec<SymbolRun>, ParseError> {
    let mut runs: Vec<SymbolRun> = Vec::new();
    while !reader.is_empty() {
        check_count(&reader, runs.len())?;
        let head = reader.varint()?;
        let (block, start) = match (head & 1 != 0, runs.last()) {
            (false, Some(before)) => (before.block, before.first_esi + before.count),
            (false, None) => return Err(reader.bad("a first run without a block")),
            (true, before) => {
                let step: u32 = reader.number()?;
                let next = before.map_or(Some(0), |before| before.block.checked_add(1));
                let block = next.and_then(|next| next.checked_add(step));
                (block.ok_or_else(|| reader.bad("a source block number above 32 bits"))?, 0)
            }
        };
        let gap: u32 = reader.number()?;
        let count = u32::try_from((head >> 1) + 1).ok();
        let first_esi = start.checked_add(gap);
        let (Some(first_esi), Some(count)) = (first_esi, count) else {
            return Err(reader.bad("a symbol number above 32 bits"));
        };
        if first_esi.checked_add(count).is_none() {
            return Err(reader.bad("a symbol number above 32 bits"));
        }
        runs.push(SymbolRun { block, first_esi, count });
    }
    Ok(runs)
}

/// Reads a number that is stored less 1.
fn one_more(reader: &mut Reader<'_>) -> Result<u32, ParseError> {
    let less: u32 = reader.number()?;
    less.checked_add(1).ok_or_else(|| reader.bad("a source block number above 32 bits"))
}

/// Returns an error unless one more run may follow.
fn check_count(reader: &Reader<'_>, runs: usize) -> Result<(), ParseError> {
    if runs < limits::RUNS { Ok(()) } else { Err(reader.bad("too many runs")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(need: &Need) -> Vec<u8> {
        let mut out = Vec::new();
        need.put(&mut out);
        assert_eq!(Need::read(&out).as_ref(), Ok(need));
        out
    }

    fn run(first_block: u32, blocks: u32, symbols: u16) -> NeedRun {
        NeedRun { first_block, blocks, symbols }
    }

    fn exact(block: u32, first_esi: u32, count: u32) -> SymbolRun {
        SymbolRun { block, first_esi, count }
    }

    #[test]
    fn six_thousand_blocks_with_losses_take_a_byte_each() {
        let runs = (0..6000).map(|block| run(block, 1, 1 + (block % 32) as u16)).collect();
        assert_eq!(bytes(&Need::Symbols(runs)).len(), 1 + 6000);
    }

    #[test]
    fn runs_with_gaps_and_many_blocks_come_back() {
        let need = Need::Symbols(vec![run(0, 1, 1), run(1, 300, 2), run(500, 1, u16::MAX)]);
        assert_eq!(bytes(&need), [1, 0, 5, 0xAA, 2, 0xFA, 0xFF, 0x0F, 0xC6, 1]);
        bytes(&Need::Symbols(vec![run(u32::MAX - 1, 1, 1)]));
        bytes(&Need::Symbols(vec![run(0, u32::MAX, 1)]));
        bytes(&Need::Symbols(vec![]));
        assert_eq!(bytes(&Need::Whole), [0]);
    }

    #[test]
    fn exact_runs_come_back() {
        let need =
            Need::Exact(vec![exact(0, 3, 1), exact(0, 9, 2), exact(1, 0, 1), exact(7, 1, 1)]);
        assert_eq!(bytes(&need), [2, 1, 0, 3, 2, 5, 1, 0, 0, 1, 5, 1]);
        bytes(&Need::Exact(vec![exact(u32::MAX, u32::MAX - 1, 1)]));
        bytes(&Need::Exact(vec![]));
    }

    #[test]
    fn runs_that_are_out_of_order_are_not_read_back() {
        for runs in [
            vec![run(5, 1, 1), run(4, 1, 1)],
            vec![run(5, 3, 1), run(7, 1, 1)],
            vec![run(u32::MAX, 1, 1)],
            vec![run(0, 0, 1)],
            vec![run(0, 1, 0)],
        ] {
            let mut out = Vec::new();
            let need = Need::Symbols(runs);
            need.put(&mut out);
            assert!(Need::read(&out).is_err(), "{need:?}");
        }
        for runs in [
            vec![exact(5, 0, 1), exact(4, 0, 1)],
            vec![exact(5, 1, 3), exact(5, 3, 1)],
            vec![exact(0, u32::MAX, 1)],
            vec![exact(0, 0, 0)],
        ] {
            let mut out = Vec::new();
            let need = Need::Exact(runs);
            need.put(&mut out);
            assert!(Need::read(&out).is_err(), "{need:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_need_are_refused() {
        for bytes in [&[][..], &[3], &[0, 0], &[1, 2], &[1, 1], &[2, 0, 0], &[2, 1, 0]] {
            assert!(Need::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn more_runs_than_allowed_are_refused() {
        let mut bytes = vec![0; 1 + limits::RUNS];
        bytes[0] = SYMBOLS;
        assert!(Need::read(&bytes).is_ok());
        bytes.push(0);
        assert!(Need::read(&bytes).is_err());
    }

    #[test]
    fn needed_symbols_are_counted() {
        assert_eq!(Need::Whole.symbols(), None);
        assert_eq!(Need::Symbols(vec![run(0, 10, 3), run(20, 1, 4)]).symbols(), Some(34));
        assert_eq!(Need::Exact(vec![exact(0, 3, 5), exact(1, 3, 1)]).symbols(), Some(6));
        assert!(Need::Symbols(vec![]).is_empty() && !Need::Whole.is_empty());
    }
}
