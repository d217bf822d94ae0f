//! The offset in the journal of the last record about each block.

/// Number of offsets in one piece of [`Offsets`].
const OFFSETS_PER_PIECE: usize = 1024;

/// An offset in the journal for each block, or 0 if there is none. Takes 8 bytes for each block, in
/// pieces that are allocated on first use.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    pieces: Vec<Option<Box<[u64]>>>,
}

impl Offsets {
    /// Returns the block's offset.
    pub(super) fn get(&self, sbn: u32) -> u64 {
        let (piece, at) = Self::position(sbn);
        self.pieces.get(piece).and_then(Option::as_ref).map_or(0, |offsets| offsets[at])
    }

    /// Sets the block's offset; 0 removes it.
    pub(super) fn set(&mut self, sbn: u32, offset: u64) {
        let (piece, at) = Self::position(sbn);
        if offset == 0 && self.pieces.get(piece).is_none_or(Option::is_none) {
            return;
        }
        if self.pieces.len() <= piece {
            self.pieces.resize_with(piece + 1, || None);
        }
        let offsets =
            self.pieces[piece].get_or_insert_with(|| vec![0; OFFSETS_PER_PIECE].into_boxed_slice());
        offsets[at] = offset;
    }

    /// Returns the blocks with an offset, ascending.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let pieces = self.pieces.iter().enumerate();
        let offsets = pieces.flat_map(|(piece, offsets)| {
            let first = piece * OFFSETS_PER_PIECE;
            let offsets = offsets.iter().flat_map(|offsets| offsets.iter().enumerate());
            offsets.map(move |(at, &offset)| (first + at, offset))
        });
        offsets.filter(|&(_, offset)| offset != 0).map(|(sbn, _)| sbn as u32).collect()
    }

    fn position(sbn: u32) -> (usize, usize) {
        (sbn as usize / OFFSETS_PER_PIECE, sbn as usize % OFFSETS_PER_PIECE)
    }
}
