//! Digests of a content and of its source blocks, read once by several threads.
//!
//! A BLAKE3 digest is the root of a tree. A thread takes one stretch of the content after the
//! other: a subtree of it, and the blocks that begin there. So no thread hashes what another has
//! read, which would come from the cache of another core.

use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, available_parallelism};

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use umbel_fec::Partition;
use umbel_wire::Digest;

use super::digest::of_item;
use crate::Fault;
use crate::origin::Body;

/// Bytes of a stretch. The last one may be shorter.
const STRETCH: u64 = 1 << 20;
/// Most threads: hashing with more is faster than most disks.
const THREADS: u64 = 8;

/// What is known of a stretch once it was read.
struct Hashed {
    /// Number of the stretch.
    number: u64,
    /// Chaining value of its subtree.
    subtree: ChainingValue,
    /// Digests of the blocks that begin in it.
    blocks: Vec<Digest>,
}

/// Computes the digest of a whole content and those of its source blocks.
pub(super) fn of_item_and_blocks(
    body: &dyn Body,
    partition: &Partition,
) -> Result<(Digest, Vec<Digest>), Fault> {
    let size = partition.object_len();
    if partition.blocks() <= 1 {
        let whole = of_item(body, size)?;
        return Ok((whole, vec![whole; partition.blocks() as usize]));
    }
    if size <= STRETCH {
        return of_small(body, partition);
    }
    let hashed = hash(body, partition)?;
    let subtrees: Vec<ChainingValue> = hashed.iter().map(|stretch| stretch.subtree).collect();
    let blocks = hashed.into_iter().flat_map(|stretch| stretch.blocks).collect();
    Ok((root(&subtrees), blocks))
}

/// Computes the same for a content of one stretch, which is a whole tree and no subtree.
fn of_small(body: &dyn Body, partition: &Partition) -> Result<(Digest, Vec<Digest>), Fault> {
    let mut content = vec![0; partition.object_len() as usize];
    body.read_at(0, &mut content)?;
    let digest = |range: Range<u64>| {
        Digest(blake3::hash(&content[range.start as usize..range.end as usize]).into())
    };
    let blocks = (0..partition.blocks()).map(|sbn| digest(partition.block_range(sbn)));
    Ok((digest(0..partition.object_len()), blocks.collect()))
}

/// Hashes all stretches of a content of several, and returns them in their order.
fn hash(body: &dyn Body, partition: &Partition) -> Result<Vec<Hashed>, Fault> {
    let stretches = partition.object_len().div_ceil(STRETCH);
    let cores = available_parallelism().map_or(1, NonZero::get) as u64;
    let next = AtomicU64::new(0);
    let work = || {
        let (mut buf, mut hashed) = (Vec::new(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= stretches {
                return Ok(hashed);
            }
            match read(body, partition, number, &mut buf) {
                Ok(stretch) => hashed.push(stretch),
                Err(fault) => {
                    // Nobody begins another one.
                    next.store(stretches, Ordering::Relaxed);
                    return Err(fault);
                }
            }
        }
    };
    let results = std::thread::scope(|scope| {
        let name = "umbel-digest".to_owned();
        let spawn = |_| Builder::new().name(name.clone()).spawn_scoped(scope, work).ok();
        // With fewer threads than wanted it takes longer.
        let others: Vec<_> = (1..cores.min(THREADS).min(stretches)).map_while(spawn).collect();
        let mut results = vec![work()];
        for other in others {
            results.push(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    });
    let mut hashed = Vec::with_capacity(stretches as usize);
    for result in results {
        hashed.extend(result?);
    }
    hashed.sort_unstable_by_key(|stretch: &Hashed| stretch.number);
    Ok(hashed)
}

/// Reads and hashes a stretch, and the rest of the last block that begins in it.
fn read(
    body: &dyn Body,
    partition: &Partition,
    number: u64,
    buf: &mut Vec<u8>,
) -> Result<Hashed, Fault> {
    let start = number * STRETCH;
    let end = (start + STRETCH).min(partition.object_len());
    let blocks = first_block_from(partition, start)..first_block_from(partition, end);
    let ranges = blocks.map(|sbn| partition.block_range(sbn));
    let end_of_blocks = ranges.clone().next_back().map_or(end, |last| last.end.max(end));
    buf.resize((end_of_blocks - start) as usize, 0);
    body.read_at(start, buf)?;
    let bytes =
        |range: Range<u64>| &buf[(range.start - start) as usize..(range.end - start) as usize];
    let mut subtree = blake3::Hasher::new();
    subtree.set_input_offset(start).update(bytes(start..end));
    Ok(Hashed {
        number,
        subtree: subtree.finalize_non_root(),
        blocks: ranges.map(|range| Digest(blake3::hash(bytes(range)).into())).collect(),
    })
}

/// Returns the first block that begins at this byte of the content, or later.
fn first_block_from(partition: &Partition, byte: u64) -> u32 {
    let (mut low, mut high) = (0, partition.blocks());
    while low < high {
        let middle = low + (high - low) / 2;
        if partition.block_range(middle).start < byte {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the digest of a content that consists of two or more stretches.
fn root(stretches: &[ChainingValue]) -> Digest {
    let (left, right) = children(stretches);
    Digest(merge_subtrees_root(&left, &right, Mode::Hash).into())
}

/// Returns the chaining values of the two subtrees of two or more stretches. The left one is the
/// largest that is full and leaves something to the right [BLAKE3 §2.1].
fn children(stretches: &[ChainingValue]) -> (ChainingValue, ChainingValue) {
    let (left, right) = stretches.split_at(stretches.len().next_power_of_two() / 2);
    (subtree(left), subtree(right))
}

fn subtree(stretches: &[ChainingValue]) -> ChainingValue {
    if let [one] = stretches {
        return *one;
    }
    let (left, right) = children(stretches);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use umbel_wire::{Oti, Scheme};

    use super::super::digest::of_range;
    use super::*;

    /// A content of which nothing from `end` on can be read.
    struct Bytes<'a> {
        content: &'a [u8],
        end: u64,
    }

    impl Body for Bytes<'_> {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
            if offset + buf.len() as u64 > self.end {
                return Err(Fault::Changed);
            }
            buf.copy_from_slice(&self.content[offset as usize..][..buf.len()]);
            Ok(())
        }
    }

    fn partition(len: u64, symbol_len: u16) -> Partition {
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: len,
            symbol_len,
            max_block_symbols: 64,
            max_encoding_symbols: 255,
        };
        Partition::new(&oti).unwrap()
    }

    #[test]
    fn one_reading_gives_the_digests_of_the_whole_and_of_each_block() {
        let content: Vec<u8> = (0..=8 * STRETCH).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
        let edges = [1, 2, 3, 8].map(|n| n * STRETCH).into_iter();
        let edges = edges.flat_map(|edge| [edge - 1, edge, edge + 1]);
        // Blocks of the last length are larger than stretches.
        for symbol_len in [100, 1_368, 40_000] {
            for len in [0, 1, 2_000, 50_007, 5 * STRETCH + 12_345].into_iter().chain(edges.clone())
            {
                let partition = partition(len, symbol_len);
                let body = Bytes { content: &content[..len as usize], end: len };
                let (whole, blocks) = of_item_and_blocks(&body, &partition).unwrap();
                assert_eq!(whole.0, *blake3::hash(body.content).as_bytes(), "{len}");
                let ranges = (0..partition.blocks()).map(|sbn| partition.block_range(sbn));
                let expected = ranges.map(|range| of_range(&body, range).unwrap());
                assert_eq!(blocks, expected.collect::<Vec<_>>(), "{len}, {symbol_len}");
            }
        }
    }

    #[test]
    fn a_content_that_cannot_be_read_to_its_end_is_an_error() {
        let content = vec![7; 5 * STRETCH as usize];
        let ends = [0, 1_000, STRETCH, 3 * STRETCH + 7, 5 * STRETCH - 1];
        let large = ends.map(|end| (5 * STRETCH, end));
        for (len, end) in large.into_iter().chain([(STRETCH, 0), (STRETCH, STRETCH - 1)]) {
            let body = Bytes { content: &content, end };
            let digests = of_item_and_blocks(&body, &partition(len, 1_368));
            assert!(matches!(digests, Err(Fault::Changed)), "{len}, {end}");
        }
    }
}
