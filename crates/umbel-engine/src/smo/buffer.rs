//! A send buffer: the bytes of a stream that may still be needed.
//!
//! ```text
//!       start          trail (SND.UNA)            SND.NXT          end
//!         │ released, kept │ sent, not released     │ to be sent    │
//!         ▼  as there is   ▼                        ▼               ▼
//! ────────▓▓▓▓▓▓▓ room ▓▓▓▓█████████████████████████░░░░░░░░░░░░░░░░┊ (room)
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::Instant;

/// A piece that was written at once.
#[derive(Clone, Debug)]
struct Piece {
    at: u64,
    written: Instant,
    bytes: Bytes,
}

/// Bytes of a stream, by position. They are shared, never copied, except for a segment that spans
/// two writes.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pieces: VecDeque<Piece>,
    /// First position that is held.
    start: u64,
    /// First position that is not released.
    trail: u64,
    end: u64,
    finished: bool,
    capacity: u64,
    /// Bytes that are kept free for released ones.
    reserve: u64,
}

impl Buffer {
    /// Creates an empty buffer for this number of bytes, at least two, of which up to `reserve` are
    /// released ones.
    pub(super) fn new(capacity: usize, reserve: usize) -> Buffer {
        let capacity = capacity.max(2) as u64;
        let reserve = (reserve as u64).min(capacity - 1);
        let (start, trail, end) = (0, 0, 0);
        Buffer { pieces: VecDeque::new(), start, trail, end, finished: false, capacity, reserve }
    }

    /// Returns the number of bytes that may be written.
    pub(super) fn room(&self) -> usize {
        (self.capacity - self.reserve).saturating_sub(self.end - self.trail) as usize
    }

    /// Returns the number of bytes that are held.
    pub(super) fn held(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Appends bytes, for which there must be room.
    pub(super) fn write(&mut self, now: Instant, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let at = self.end;
        self.end += bytes.len() as u64;
        self.pieces.push_back(Piece { at, written: now, bytes });
        self.evict();
    }

    /// Marks the end of the stream.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns whether the end of the stream is known.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the position after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the position after the last byte, or after FIN once it is known.
    pub(super) fn end_with_fin(&self) -> u64 {
        self.end + u64::from(self.finished)
    }

    /// Returns the first position that is held.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the first position that is not released.
    pub(super) fn trail(&self) -> u64 {
        self.trail
    }

    /// Releases the bytes before a position.
    pub(super) fn release(&mut self, to: u64) {
        self.trail = self.trail.max(to.min(self.end));
        self.evict();
    }

    /// Releases bytes and forgets them.
    pub(super) fn forget(&mut self, to: u64) {
        self.trail = self.trail.max(to.min(self.end));
        self.forget_pieces(|piece, trail| piece <= trail);
    }

    /// Returns the position before which everything was written until this moment.
    pub(super) fn written_until(&self, moment: Instant) -> u64 {
        let pieces = self.pieces.partition_point(|piece| piece.written <= moment);
        self.pieces.get(pieces).map_or(self.end, |piece| piece.at)
    }

    /// Returns the beginning of what was written together with the byte at a position.
    pub(super) fn beginning(&self, position: u64) -> Option<u64> {
        let piece = self.pieces.partition_point(|piece| end_of(piece) <= position);
        self.pieces.get(piece).map(|piece| piece.at)
    }

    /// Returns when the oldest bytes that are not released were written.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.written_at(self.trail)
    }

    /// Returns when the byte at a position was written.
    pub(super) fn written_at(&self, position: u64) -> Option<Instant> {
        let piece = self.pieces.partition_point(|piece| end_of(piece) <= position);
        self.pieces.get(piece).map(|piece| piece.written)
    }

    /// Returns the bytes from a position on, at most `len`. Returns nothing if they are not held.
    pub(super) fn slice(&self, from: u64, len: usize) -> Bytes {
        let len = (len as u64).min(self.end.saturating_sub(from)) as usize;
        let first = self.pieces.partition_point(|piece| end_of(piece) <= from);
        let Some(piece) = self.pieces.get(first).filter(|piece| piece.at <= from && len > 0) else {
            return Bytes::new();
        };
        let offset = (from - piece.at) as usize;
        if piece.bytes.len() - offset >= len {
            return piece.bytes.slice(offset..offset + len);
        }
        let mut joined = BytesMut::with_capacity(len);
        joined.extend_from_slice(&piece.bytes[offset..]);
        for piece in self.pieces.iter().skip(first + 1) {
            let take = piece.bytes.len().min(len - joined.len());
            joined.extend_from_slice(&piece.bytes[..take]);
        }
        joined.freeze()
    }

    /// Forgets released pieces while the buffer is too full.
    fn evict(&mut self) {
        let capacity = self.capacity;
        let end = self.end;
        self.forget_pieces(|piece, trail| piece <= trail && end - piece > capacity);
    }

    /// Forgets the first pieces while this holds for the position after them and the trail.
    fn forget_pieces(&mut self, mut may: impl FnMut(u64, u64) -> bool) {
        // A piece goes as a whole, so that what is held may exceed the capacity by one piece.
        while self.pieces.front().is_some_and(|piece| may(end_of(piece), self.trail)) {
            self.pieces.pop_front();
        }
        self.start = self.pieces.front().map_or(self.end, |piece| piece.at);
    }
}

fn end_of(piece: &Piece) -> u64 {
    piece.at + piece.bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::ms;

    #[test]
    fn released_bytes_are_kept_while_there_is_room() {
        let mut buffer = Buffer::new(10, 0);
        buffer.write(ms(0), Bytes::from_static(b"abcd"));
        buffer.write(ms(5), Bytes::from_static(b"efgh"));
        assert_eq!((buffer.room(), buffer.written_until(ms(4))), (2, 4));
        assert_eq!((buffer.written_until(ms(5)), buffer.oldest()), (8, Some(ms(0))));
        buffer.release(5);
        assert_eq!((buffer.start(), buffer.trail(), buffer.room()), (0, 5, 7));
        assert_eq!(buffer.oldest(), Some(ms(5)));
        assert_eq!(buffer.slice(2, 4), "cdef");
        // The first piece goes when more than ten bytes would stay after it.
        buffer.write(ms(6), Bytes::from_static(b"ijklmno"));
        assert_eq!((buffer.start(), buffer.room()), (4, 0));
        assert_eq!((buffer.slice(0, 4), buffer.slice(13, 9)), (Bytes::new(), "no".into()));
        buffer.finish();
        assert_eq!((buffer.end(), buffer.end_with_fin()), (15, 16));
        buffer.forget(99);
        assert_eq!((buffer.start(), buffer.trail()), (15, 15));
    }

    proptest! {
        #[test]
        fn slices_are_those_of_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            from in 0_usize..200, len in 0_usize..60,
        ) {
            let mut buffer = Buffer::new(1000, 0);
            let whole = pieces.concat();
            for piece in pieces {
                buffer.write(ms(0), piece.into());
            }
            let expected = whole.get(from..).unwrap_or_default();
            prop_assert_eq!(&buffer.slice(from as u64, len)[..], &expected[..len.min(expected.len())]);
        }
    }
}
