//! Symbols that are read and computed ahead of the sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, Sender, open, pattern, small_options, toi, write};
use tempfile::TempDir;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_fec::{Code, SymbolSet};
use umbel_store::{BlockReader, ReaderOptions, Repository, RepositoryOptions};
use umbel_wire::{Scheme, Toi};

/// Returns an item of 34 symbols of 64 bytes, the last one with 60. Its blocks have 12, 11 and 11
/// symbols.
fn item() -> (TempDir, Repository, Toi, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let content = pattern(34 * 64 - 4, 1);
    write(dir.path(), "item", &content);
    let repository = open(dir.path());
    let toi = toi(&repository, "item");
    (dir, repository, toi, content)
}

#[test]
fn symbols_never_prefetched_come_all_the_same() {
    let (_dir, repository, toi, content) = item();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    assert_eq!(sender.symbol(toi, 1, 3).unwrap(), content[15 * 64..16 * 64]);
    let last = sender.symbol(toi, 2, 10).unwrap();
    assert_eq!(last, content[33 * 64..], "the last symbol is as short as the object ends");
    assert_eq!(last.len(), 60);
}

#[test]
fn repair_symbols_asked_for_in_pieces_restore_the_block() {
    for scheme in [Scheme::ReedSolomon, Scheme::RaptorQ] {
        let dir = TempDir::new().unwrap();
        let content = pattern(34 * 64 - 4, 1);
        write(dir.path(), "item", &content);
        let options = RepositoryOptions { scheme, ..small_options() };
        let repository = Repository::open(dir.path(), options).unwrap();
        let toi = toi(&repository, "item");
        let mut sender = Sender::new(&repository, &ReaderOptions::default());
        let block = BlockId { toi, sbn: 2 };
        sender.reader.prefetch(block, 11..16);
        sender.reader.prefetch(block, 14..20);
        let mut repairs: Vec<(u32, Vec<u8>)> = Vec::new();
        for esi in 11..22 {
            // 20 and 21 were never prefetched.
            repairs.push((esi, sender.symbol(toi, 2, esi).unwrap().to_vec()));
            if esi == 17 {
                sender.reader.release(block);
            }
        }
        let repairs: Vec<_> = repairs.iter().map(|(esi, bytes)| (*esi, &bytes[..])).collect();
        let mut restored = vec![0; 11 * 64];
        Code::new(scheme).restore(11, 64, &mut restored, &SymbolSet::new(11), &repairs).unwrap();
        restored.truncate(11 * 64 - 4);
        assert_eq!(restored, content[23 * 64..], "{scheme:?}");
    }
}

#[test]
fn what_an_item_does_not_have_is_gone_and_nothing_waits() {
    let (_dir, repository, toi, _) = item();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    assert_eq!(sender.symbol(toi, 3, 0).unwrap_err(), "item has no block 3");
    assert_eq!(sender.symbol(toi, 0, 255).unwrap_err(), "block 0 has no encoding symbol 255");
    assert_eq!(sender.symbol(Toi(77), 0, 0).unwrap_err(), "there is no item 77");
    sender.reader.prefetch(BlockId { toi, sbn: 9 }, 0..u32::MAX);
    sender.reader.prefetch(BlockId { toi, sbn: 0 }, u32::MAX..u32::MAX);
    sender.symbol(toi, 0, 254).unwrap();
}

#[test]
fn prefetches_beyond_the_bound_wait_and_a_symbol_that_is_asked_for_does_not() {
    let dir = TempDir::new().unwrap();
    let content = pattern(64 * 16 * 100, 1);
    write(dir.path(), "item", &content);
    let repository = open(dir.path());
    let toi = toi(&repository, "item");
    let block = |sbn| BlockId { toi, sbn };
    let memory = 64 * 16 * 10;
    let mut sender = Sender::new(&repository, &ReaderOptions { memory, threads: 2 });
    for sbn in 0..100 {
        sender.reader.prefetch(block(sbn), 0..16);
    }
    let start = Instant::now();
    while sender.reader.memory_in_use() < memory && start.elapsed() < support::LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(sender.reader.memory_in_use(), memory);
    assert_eq!(sender.symbol(toi, 99, 0).unwrap(), content[99 * 1_024..99 * 1_024 + 64]);
    for sbn in 0..100 {
        for esi in 0..16 {
            let at = (sbn * 16 + esi) as usize * 64;
            assert_eq!(sender.symbol(toi, sbn, esi).unwrap(), content[at..at + 64]);
        }
        sender.reader.release(block(sbn));
        assert!(sender.reader.memory_in_use() <= memory + 1_024);
    }
    assert_eq!(sender.reader.memory_in_use(), 0);
}

#[test]
fn memory_is_given_back_whenever_a_block_is_released() {
    let (_dir, repository, toi, _) = item();
    let options = ReaderOptions { memory: 1, threads: 2 };
    let mut sender = Sender::new(&repository, &options);
    for round in 0..200_u32 {
        let block = BlockId { toi, sbn: round % 3 };
        sender.reader.prefetch(block, 0..20);
        if round % 2 == 0 {
            sender.symbol(toi, block.sbn, round % 20).unwrap();
        }
        if round % 5 == 0 {
            sender.reader.prefetch(block, 15..30);
        }
        sender.reader.release(block);
    }
    let start = Instant::now();
    while sender.reader.memory_in_use() > 0 {
        assert!(start.elapsed() < support::LONG, "{} bytes leaked", sender.reader.memory_in_use());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_prefetched_block_is_there_without_waking_anybody() {
    let (_dir, repository, toi, content) = item();
    let wakes = Arc::new(AtomicU32::new(0));
    let block = BlockId { toi, sbn: 0 };
    let attempt = |time_ms| {
        let counter = Arc::clone(&wakes);
        let wake = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let options = ReaderOptions::default();
        let mut reader = BlockReader::new(repository.content(), &options, wake).unwrap();
        reader.prefetch(block, 0..14);
        std::thread::sleep(Duration::from_millis(time_ms));
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        (0..14).map(|esi| reader.symbol(block, esi)).collect::<Vec<_>>()
    };
    // A busy machine may need longer.
    let symbols = [100, 1_000, 10_000]
        .into_iter()
        .map(|time_ms| {
            wakes.store(0, Ordering::Relaxed);
            attempt(time_ms)
        })
        .find(|symbols| !symbols.contains(&Load::Pending))
        .expect("the block is read in ten seconds");
    for (esi, symbol) in symbols.iter().enumerate().take(12) {
        assert_eq!(*symbol, Load::Ready(content[esi * 64..][..64].to_vec().into()));
    }
    assert!(symbols[12..].iter().all(|symbol| matches!(symbol, Load::Ready(_))));
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
}
