//! Digests of contents, on demand and in the background.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Weak;
use std::thread::Builder;

use crossbeam_channel::{Receiver, bounded, unbounded};
use umbel_fec::Partition;
use umbel_wire::Digest;

use super::Catalog;
use crate::Fault;
use crate::origin::Body;

/// Maximum number of bytes per read.
const CHUNK: u64 = 256 * 1024;
/// Most bytes of source blocks that were read, and wait for the digest of the whole; two blocks
/// may do so in any case.
const AHEAD: u64 = 4 << 20;

/// Computes the digest of a whole content.
pub(super) fn of_item(body: &dyn Body, size: u64) -> Result<Digest, Fault> {
    of_range(body, 0..size)
}

/// Computes the digest of a part of a content.
pub(super) fn of_range(body: &dyn Body, range: Range<u64>) -> Result<Digest, Fault> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; (range.end - range.start).min(CHUNK) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let len = (range.end - offset).min(CHUNK) as usize;
        body.read_at(offset, &mut chunk[..len])?;
        hasher.update(&chunk[..len]);
        offset += len as u64;
    }
    Ok(Digest(hasher.finalize().into()))
}

/// Computes the digest of a whole content and those of its source blocks, reading it once.
///
/// Another thread computes that of the whole, which takes as long as those of the blocks: receivers
/// of a feed wait for both.
pub(super) fn of_item_and_blocks(
    body: &dyn Body,
    size: u64,
    partition: &Partition,
) -> Result<(Digest, Vec<Digest>), Fault> {
    if partition.blocks() <= 1 {
        let whole = of_item(body, size)?;
        return Ok((whole, vec![whole; partition.blocks() as usize]));
    }
    let ahead = (AHEAD / partition.block_range(0).end.max(1)).max(2);
    let (read, to_hash) = bounded::<Vec<u8>>(ahead as usize);
    let (hashed, to_fill) = unbounded();
    std::thread::scope(|scope| {
        let whole =
            Builder::new().name("umbel-digest".to_owned()).spawn_scoped(scope, move || {
                let mut whole = blake3::Hasher::new();
                for block in to_hash {
                    whole.update(&block);
                    // Nobody fills it any more after the last one.
                    let _ = hashed.send(block);
                }
                Digest(whole.finalize().into())
            })?;
        let mut digests = Vec::with_capacity(partition.blocks() as usize);
        for range in (0..partition.blocks()).map(|sbn| partition.block_range(sbn)) {
            let mut block = to_fill.try_recv().unwrap_or_default();
            block.resize((range.end - range.start) as usize, 0);
            body.read_at(range.start, &mut block)?;
            digests.push(Digest(blake3::hash(&block).into()));
            if read.send(block).is_err() {
                break;
            }
        }
        drop(read);
        let whole = whole.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((whole, digests))
    })
}

/// Computes the digests of all items on offer, again after each refresh, until the catalog is
/// dropped.
pub(super) fn run(catalog: &Weak<Catalog>, refreshed: &Receiver<()>) {
    loop {
        let Some(snapshot) = catalog.upgrade().map(|catalog| catalog.snapshot()) else { return };
        for item in &snapshot.items {
            let Some(catalog) = catalog.upgrade() else { return };
            if item.known_digest().is_none()
                && let Err(error) = catalog.digest(item.toi())
            {
                tracing::debug!("no digest: {error}");
            }
            if !refreshed.is_empty() {
                break;
            }
        }
        drop(snapshot);
        if refreshed.recv().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::{Oti, Scheme};

    use super::*;

    /// A content of which nothing from `end` on can be read.
    struct Bytes {
        content: Vec<u8>,
        end: u64,
    }

    impl Body for Bytes {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
            if offset + buf.len() as u64 > self.end {
                return Err(Fault::Changed);
            }
            buf.copy_from_slice(&self.content[offset as usize..][..buf.len()]);
            Ok(())
        }
    }

    fn partition(len: u64) -> Partition {
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: len,
            symbol_len: 100,
            max_block_symbols: 20,
            max_encoding_symbols: 40,
        };
        Partition::new(&oti).unwrap()
    }

    #[test]
    fn one_reading_gives_the_digests_of_the_whole_and_of_each_block() {
        for len in [0, 1, 2_000, 2_001, 50_007] {
            let content: Vec<u8> = (0..len).map(|n| ((n * n) >> 3) as u8).collect();
            let partition = partition(len);
            let body = Bytes { content, end: len };
            let (whole, blocks) = of_item_and_blocks(&body, len, &partition).unwrap();
            assert_eq!(whole.0, *blake3::hash(&body.content).as_bytes());
            let ranges = (0..partition.blocks()).map(|sbn| partition.block_range(sbn));
            let expected = ranges.map(|range| of_range(&body, range).unwrap());
            assert_eq!(blocks, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_content_that_cannot_be_read_to_its_end_is_an_error() {
        for end in [0, 1_000, 30_000, 49_999] {
            let body = Bytes { content: vec![7; 50_000], end };
            let digests = of_item_and_blocks(&body, 50_000, &partition(50_000));
            assert!(matches!(digests, Err(Fault::Changed)), "{end}");
        }
    }
}
