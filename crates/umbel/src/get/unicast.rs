//! Source blocks that come on the session, assembled from the pieces of its streams.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes, BytesMut};
use umbel_engine::symbols::BlockId;
use umbel_wire::repository::UnicastBlock;

/// Longest source block that is accepted. One of 65,535 symbols of 65,535 bytes would exceed any
/// memory.
const MAX_BLOCK: u32 = 64 << 20;

/// Streams of blocks under way.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Bytes of each stream that are not yet a whole block; `None` for a broken stream.
    open: BTreeMap<u64, Option<BytesMut>>,
    whole: VecDeque<(BlockId, Bytes)>,
}

impl Streams {
    /// Takes the next bytes of a stream.
    pub(super) fn push(&mut self, stream: u64, bytes: &[u8]) {
        let Some(buffer) = self.open.entry(stream).or_insert_with(|| Some(BytesMut::new())) else {
            return;
        };
        buffer.extend_from_slice(bytes);
        while buffer.len() >= UnicastBlock::LEN {
            let Ok(head) = UnicastBlock::parse(buffer, MAX_BLOCK) else {
                tracing::warn!("the server sends something other than a block");
                self.open.insert(stream, None);
                return;
            };
            let len = head.len as usize;
            if buffer.len() < UnicastBlock::LEN + len {
                return;
            }
            buffer.advance(UnicastBlock::LEN);
            let block = BlockId { toi: head.toi, sbn: head.block };
            self.whole.push_back((block, buffer.split_to(len).freeze()));
        }
    }

    /// Ends a stream.
    pub(super) fn end(&mut self, stream: u64) {
        self.open.remove(&stream);
    }

    /// Returns the next whole block.
    pub(super) fn next(&mut self) -> Option<(BlockId, Bytes)> {
        self.whole.pop_front()
    }

    /// Returns a block to the front of the queue because the engine could not take it yet.
    pub(super) fn put_back(&mut self, block: BlockId, bytes: Bytes) {
        self.whole.push_front((block, bytes));
    }

    /// Drops all streams and blocks, as the session is over.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.whole.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_wire::Toi;

    #[test]
    fn blocks_come_whole_however_the_stream_is_cut() {
        let mut sent = Vec::new();
        for (block, len) in [(0, 5), (1, 0), (2, 300)] {
            let head = UnicastBlock { toi: Toi(4), block, len };
            sent.extend_from_slice(&head.emit());
            sent.extend(std::iter::repeat_n(block as u8, len as usize));
        }
        for piece in [1, 7, 13, 1000] {
            let mut streams = Streams::default();
            sent.chunks(piece).for_each(|bytes| streams.push(3, bytes));
            for (sbn, len) in [(0, 5), (1, 0), (2, 300)] {
                let (block, bytes) = streams.next().unwrap();
                assert_eq!((block, bytes.len()), (BlockId { toi: Toi(4), sbn }, len));
                assert!(bytes.iter().all(|&byte| byte == sbn as u8));
            }
            assert!(streams.next().is_none());
        }
    }

    #[test]
    fn a_stream_that_announces_too_much_is_given_up() {
        let mut streams = Streams::default();
        streams.push(0, &UnicastBlock { toi: Toi(1), block: 0, len: u32::MAX }.emit());
        streams.push(0, &[0; 100]);
        assert!(streams.next().is_none());
    }
}
