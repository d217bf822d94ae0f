//! Holes of sparse files: where a file has nothing but zeros, and takes no room.
//!
//! The source finds them by what its file system tells, without reading them, and counts the blocks
//! that are holes as a whole. These are not sent. The receiver writes neither them nor the zeros in
//! other blocks of such a file, so that it has holes again wherever the source's has some.
//!
//! A block device tells no holes. Its blocks of zeros are found by their digests, and treated so.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use umbel_fec::Partition;
use umbel_wire::Digest;
use umbel_wire::repository::limits;

/// Bytes that are written or left out together: file systems have no smaller holes.
const PAGE: u64 = 4_096;
/// Bytes of a file from which its holes are looked for.
pub(crate) const WORTH: u64 = 16 * PAGE;
/// Most holes of a file that are looked for. What comes after them is data.
const MOST: usize = 1 << 20;

/// Returns the holes of a file of `len` bytes in ascending runs.
pub(crate) fn of(file: &File, len: u64) -> io::Result<Vec<Range<u64>>> {
    let seek = |at: u64, whence| match lseek(file, at as i64, whence) {
        Ok(at) => Ok((at as u64).min(len)),
        // There is no data after this place.
        Err(Errno::ENXIO) => Ok(len),
        Err(error) => Err(io::Error::from(error)),
    };
    let (mut holes, mut at) = (Vec::new(), 0);
    while at < len && holes.len() < MOST {
        let start = seek(at, Whence::SeekHole)?;
        if start >= len {
            break;
        }
        let end = seek(start, Whence::SeekData)?;
        if end <= start {
            break;
        }
        holes.push(start..end);
        at = end;
    }
    Ok(holes)
}

/// Returns the source blocks that are within holes, in ascending runs that do not touch. Of too many
/// to be told the longest are taken.
pub(crate) fn blocks(holes: &[Range<u64>], partition: &Partition) -> Vec<Range<u32>> {
    let first_from = |byte: u64| {
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
    };
    let mut runs: Vec<Range<u32>> = Vec::new();
    for hole in holes {
        let start = first_from(hole.start);
        // The last block ends where the file ends, and not where another one begins.
        let end = if hole.end >= partition.object_len() {
            partition.blocks()
        } else {
            first_from(hole.end + 1).saturating_sub(1)
        };
        match runs.last_mut() {
            _ if start >= end => {}
            Some(last) if last.end >= start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    longest(runs)
}

/// Returns as many runs as can be told, the longest, in their order.
fn longest(mut runs: Vec<Range<u32>>) -> Vec<Range<u32>> {
    if runs.len() > limits::HOLES {
        runs.sort_by_key(|run| std::cmp::Reverse(run.end - run.start));
        runs.truncate(limits::HOLES);
        runs.sort_by_key(|run| run.start);
    }
    runs
}

/// Returns the source blocks that have nothing but zeros, by the digests of all blocks, in ascending
/// runs that do not touch. Of too many to be told the longest are taken.
pub(crate) fn of_zeros(digests: &[Digest], partition: &Partition) -> Vec<Range<u32>> {
    let mut zeros = Zeros::default();
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (sbn, digest) in (0..partition.blocks()).zip(digests) {
        if *digest != zeros.of_block(partition, sbn) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == sbn => last.end += 1,
            _ => runs.push(sbn..sbn + 1),
        }
    }
    longest(runs)
}

/// Digests of zeros by their number. Blocks of an item have few different lengths.
#[derive(Debug, Default)]
pub(crate) struct Zeros(Vec<(u64, Digest)>);

impl Zeros {
    /// Returns the digest that a block has if it is all zeros.
    pub(crate) fn of_block(&mut self, partition: &Partition, sbn: u32) -> Digest {
        let range = partition.block_range(sbn);
        let len = range.end - range.start;
        if let Some((_, digest)) = self.0.iter().find(|(known, _)| *known == len) {
            return *digest;
        }
        let digest = Digest(*blake3::hash(&vec![0; len as usize]).as_bytes());
        self.0.push((len, digest));
        digest
    }
}

/// Writes bytes to a place of a file that has nothing but zeros there, without the pages that are
/// zeros. Returns the number of bytes written.
pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<u64> {
    let (mut written, mut from, mut at) = (0, 0, 0);
    while at < bytes.len() {
        let page = (PAGE - (offset + at as u64) % PAGE) as usize;
        let end = (at + page).min(bytes.len());
        if bytes[at..end].iter().all(|byte| *byte == 0) {
            file.write_all_at(&bytes[from..at], offset + from as u64)?;
            written += (at - from) as u64;
            from = end;
        }
        at = end;
    }
    file.write_all_at(&bytes[from..], offset + from as u64)?;
    Ok(written + (bytes.len() - from) as u64)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of holes with one hole")]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use umbel_wire::{Oti, Scheme};

    use super::*;

    /// Blocks of 1,000 bytes, the last of 500.
    fn partition() -> Partition {
        Partition::new(&Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 9_500,
            symbol_len: 500,
            max_block_symbols: 2,
            max_encoding_symbols: 4,
        })
        .unwrap()
    }

    #[test]
    fn blocks_that_are_holes_as_a_whole_are_told() {
        let blocks = |holes: &[Range<u64>]| blocks(holes, &partition());
        assert_eq!(partition().blocks(), 10);
        assert_eq!(blocks(&[]), []);
        assert_eq!(blocks(&[0..999, 1_001..2_999, 3_001..4_000]), []);
        assert_eq!(blocks(&[0..1_000]), [0..1]);
        assert_eq!(blocks(&[1..3_000, 3_000..4_001]), [1..4]);
        assert_eq!(blocks(&[2_000..3_000, 5_500..8_000]), [2..3, 6..8]);
        assert_eq!(blocks(&[8_500..9_500]), [9..10]);
        assert_eq!(blocks(&[8_500..9_499]), []);
        assert_eq!(blocks(&[0..9_500]), [0..10]);
        let many: Vec<Range<u32>> = super::blocks(
            &(0..50_000)
                .map(|n| 3_000 * n..3_000 * n + 1_000 + 1_000 * (n % 2))
                .collect::<Vec<_>>(),
            &Partition::new(&Oti { object_len: 1 << 30, ..oti() }).unwrap(),
        );
        assert_eq!(many.len(), limits::HOLES);
        assert!(many.iter().all(|run| run.len() == 2), "the longest");
        assert!(many.windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    proptest::proptest! {
        #[test]
        fn blocks_of_zeros_are_found_by_their_digests(
            filled in proptest::collection::vec(proptest::bool::weighted(0.4), 10),
            at in proptest::collection::vec(0..1_000_usize, 10),
        ) {
            let partition = partition();
            let mut content = vec![0_u8; 9_500];
            for sbn in 0..10 {
                let range = partition.block_range(sbn);
                let (start, len) = (range.start as usize, (range.end - range.start) as usize);
                if filled[sbn as usize] {
                    content[start + at[sbn as usize] % len] = 1;
                }
            }
            let digests: Vec<Digest> = (0..10)
                .map(|sbn| partition.block_range(sbn))
                .map(|range| &content[range.start as usize..range.end as usize])
                .map(|block| Digest(*blake3::hash(block).as_bytes()))
                .collect();
            let found = of_zeros(&digests, &partition);
            let is_found = |sbn: u32| found.iter().any(|run| run.contains(&sbn));
            for sbn in 0..10 {
                proptest::prop_assert_eq!(is_found(sbn), !filled[sbn as usize]);
            }
            proptest::prop_assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    fn oti() -> Oti {
        Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 0,
            symbol_len: 500,
            max_block_symbols: 2,
            max_encoding_symbols: 4,
        }
    }

    #[test]
    fn what_is_written_around_zeros_reads_the_same_and_has_the_holes_that_are_left() {
        let mut content = vec![0; 1 << 20];
        for at in [5, 4_095, 4_096, 300_000, 700_000, 700_001, (1 << 20) - 1] {
            content[at] = 7;
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(content.len() as u64).unwrap();
        let mut written = 0;
        // Pieces that begin and end anywhere.
        let mut at = 0;
        for len in (1..).map(|n| n * 997) {
            let end = (at + len).min(content.len());
            written += write(&file, &content[at..end], at as u64).unwrap();
            at = end;
            if at == content.len() {
                break;
            }
        }
        let mut read = vec![1; content.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == content);
        assert!(written < 10 * 4_096, "{written}");
        let found = of(&file, content.len() as u64).unwrap();
        if file.metadata().unwrap().blocks() * 512 < content.len() as u64 {
            assert!(found.iter().any(|hole| hole.contains(&500_000)), "{found:?}");
        }
        for hole in found {
            assert!(content[hole.start as usize..hole.end as usize].iter().all(|byte| *byte == 0));
        }
        file.set_len(0).unwrap();
        assert_eq!(of(&file, 0).unwrap(), []);
        file.set_len(1 << 20).unwrap();
        assert_eq!(of(&file, 1 << 20).unwrap(), [0..1 << 20]);
    }
}
