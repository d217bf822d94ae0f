//! Writes zeros to a device: by a request to it where it takes one, and as data where it does not.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use umbel_fec::Partition;

/// Bytes of which devices take multiples in a request.
const ALIGNMENT: u64 = 4_096;
/// Most bytes of a request, so that one that is slow can be interrupted.
const PIECE: u64 = 64 << 20;
/// Bytes of zeros that are written at once.
const CHUNK: usize = 1 << 20;

/// Returns the bytes of blocks in ascending order, as runs that do not touch.
pub(super) fn ranges(partition: &Partition, blocks: impl Iterator<Item = u32>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in blocks.map(|sbn| partition.block_range(sbn)) {
        match runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range),
        }
    }
    runs
}

/// Splits a range into pieces, all of which end where requests may, but the last.
pub(super) fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((start / PIECE + 1) * PIECE);
        (start < at).then_some(start..at)
    })
}

/// Writes zeros to a part of a device.
pub(super) fn write(file: &File, range: Range<u64>) -> io::Result<()> {
    let start = range.start.next_multiple_of(ALIGNMENT).min(range.end);
    let end = (range.end / ALIGNMENT * ALIGNMENT).max(start);
    write_data(file, range.start..start)?;
    // The first lets an SSD or a thin volume forget the blocks, which read as zeros then.
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let ways = [FallocateFlags::FALLOC_FL_PUNCH_HOLE, FallocateFlags::FALLOC_FL_ZERO_RANGE];
    let mut done = start == end;
    for way in ways {
        if done {
            break;
        }
        done = match fallocate(file, way | keep, start as i64, (end - start) as i64) {
            Ok(()) => true,
            // What fails for another reason fails again when data is written.
            Err(Errno::EIO | Errno::ENXIO | Errno::ENODEV) => break,
            Err(_) => false,
        };
    }
    if !done {
        write_data(file, start..end)?;
    }
    write_data(file, end..range.end)
}

fn write_data(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ((range.end - range.start) as usize).min(CHUNK)];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CHUNK as u64) as usize;
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_range_becomes_zeros_and_nothing_else_does(
            start in 0_u64..20_000,
            len in 0_u64..20_000,
        ) {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![0xff; 50_000], 0).unwrap();
            write(&file, start..start + len).unwrap();
            let mut content = vec![1; 50_000];
            file.read_exact_at(&mut content, 0).unwrap();
            for (at, byte) in (0..).zip(content) {
                let expected = if (start..start + len).contains(&at) { 0 } else { 0xff };
                proptest::prop_assert_eq!(byte, expected);
            }
        }

        #[test]
        fn pieces_make_the_range(start in 0..5 * PIECE, len in 0..5 * PIECE) {
            let range = start..start + len;
            let mut at = range.start;
            for piece in pieces(range.clone()) {
                proptest::prop_assert!(piece.start == at && piece.end - piece.start <= PIECE);
                at = piece.end;
                proptest::prop_assert!(at == range.end || at % PIECE == 0);
            }
            proptest::prop_assert_eq!(at, range.end);
        }
    }
}
