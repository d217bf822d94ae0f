//! Tests with many items, and with little memory.

use std::path::Path;

use crate::sink_support::{Client, Random, Served, StoreBlock};
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::{SinkEvent, SinkOptions};
use umbel_wire::Scheme;

/// Returns the number of files below the directory that this process has open.
fn open_files(directory: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(directory)).count()
}

#[test]
fn twenty_thousand_small_items_are_all_there() {
    const ITEMS: u32 = 20_000;
    let mut client = Client::new();
    for toi in 0..ITEMS {
        let name = format!("{}/{}.txt", toi % 100, toi);
        let served = Served::new(toi, &name, (toi % 400) as usize, Scheme::ReedSolomon);
        client.add(&served);
        while served.partition.blocks() > 0
            && !client.sink.store_block(served.block(0), served.block_bytes(0))
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    let mut done = 0;
    while done < ITEMS {
        match client.wait_any() {
            SinkEvent::ItemDone { .. } => done += 1,
            SinkEvent::ItemFailed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    let served = Served::new(12_345, "45/12345.txt", 12_345 % 400, Scheme::ReedSolomon);
    assert!(std::fs::read(client.path().join("45/12345.txt")).unwrap() == served.content);
    assert_eq!(client.files().len(), ITEMS as usize);
}

#[test]
fn many_incomplete_items_keep_few_files_open() {
    let mut client = Client::new();
    let items: Vec<Served> = (0..400)
        .map(|toi| Served::new(toi, &format!("{toi}"), 5_000, Scheme::ReedSolomon))
        .collect();
    for served in &items {
        client.add(served);
        for sbn in 0..served.partition.blocks() {
            for esi in [1, 21, 22] {
                assert!(client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
            }
            client.sink.rest(served.block(sbn));
        }
    }
    // Events come in order. Once this item is done, all the others are on the disk.
    let last = Served::new(1_000, "last", 10, Scheme::ReedSolomon);
    let held = client.add_parts(&last);
    client.complete(&last, &held);
    let open = open_files(client.path());
    assert!((50..200).contains(&open), "{open} files are open");
    let mut client = client.restart();
    for served in &items {
        let held = client.add_parts(served);
        assert_eq!(held.missing_symbols(0), served.partition.block_symbols(0) - 3);
        client.complete(served, &held);
    }
    assert_eq!(client.files().len(), items.len() + 1, "nothing is left over");
}

#[test]
fn memory_is_bounded_and_what_is_refused_comes_later() {
    let options = SinkOptions { memory: 10_000, ..SinkOptions::default() };
    let mut client = Client::with(options);
    let served = Served::new(1, "a", 100_000, Scheme::ReedSolomon);
    client.add(&served);
    // The test never calls `rest`, so the sink must make room on its own.
    let mut wanted: Vec<(u32, u32)> = (0..served.partition.blocks())
        .flat_map(|sbn| (0..served.partition.block_symbols(sbn)).map(move |esi| (sbn, esi)))
        .collect();
    let mut random = Random(3);
    let mut refused = 0;
    let mut left: Vec<u32> =
        (0..served.partition.blocks()).map(|sbn| served.partition.block_symbols(sbn)).collect();
    while !wanted.is_empty() {
        let at = random.below(wanted.len() as u64) as usize;
        let (sbn, esi) = wanted[at];
        if client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)) {
            wanted.swap_remove(at);
            left[sbn as usize] -= 1;
            if left[sbn as usize] == 0 {
                client.sink.restore(served.block(sbn));
            }
        } else {
            refused += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert!(refused > 0, "the memory was never used up");
    client.wait_done(&served);
}
