//! Ends clients in every way and starts them again. Recorded symbols are never received twice, and
//! the result is right.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sink_support::{Client, Random, Served, StoreBlock};
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::journal::{self, JournalKey};
use umbel_store::sink::{DiskSink, Held, HeldParts, SinkEvent, SinkOptions};
use umbel_wire::repository::{Need, NeedRun};
use umbel_wire::{Scheme, Toi};

/// Environment variable with the child's seed and directory.
const CHILD: &str = "UMBEL_TEST_SINK_CHILD";

/// Returns the items that the child receives.
fn items() -> Vec<Served> {
    vec![
        Served::new(1, "large", 300_007, Scheme::ReedSolomon),
        Served::new(2, "dir/queer", 30_001, Scheme::RaptorQ),
        Served::new(3, "small", 1_234, Scheme::ReedSolomon),
    ]
}

/// Returns the held symbols as (block, symbol). A restored block counts as its k source symbols.
fn held_symbols(served: &Served, held: &HeldParts) -> BTreeSet<(u32, u32)> {
    let mut symbols = BTreeSet::new();
    for sbn in 0..served.partition.blocks() {
        if held.is_restored(sbn) {
            symbols.extend((0..served.partition.block_symbols(sbn)).map(|esi| (sbn, esi)));
        } else if let Some(block) = held.block(sbn) {
            symbols.extend(block.esis().map(|esi| (sbn, esi)));
        }
    }
    symbols
}

/// Reads the blocks and symbols that the journal records as held. The child may be writing
/// meanwhile.
fn recorded(directory: &Path, served: &Served) -> Option<journal::Replay> {
    let (parent, name) = served.info.name.rsplit_once('/').unwrap_or(("", &served.info.name));
    let path = directory.join(parent).join(format!(".{name}.umbel-part.journal"));
    let key = JournalKey::new(&served.info.name, served.info.digest, served.info.oti);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap().to_be_bytes();
    journal::replay(&mut File::open(path).ok()?, &key, &served.partition, Some(boot)).ok()?
}

/// The child of the next test. It receives symbols in random order until it is killed.
#[test]
#[ignore = "run by the test below"]
fn child_receives_in_random_order() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (seed, directory) = arguments.split_once(' ').unwrap();
    let mut random = Random(seed.parse().unwrap());
    let options = SinkOptions {
        checkpoint_interval: Duration::from_millis(random.below(20)),
        ..SinkOptions::default()
    };
    let mut sink = DiskSink::open(Path::new(directory), options, |_| {}).unwrap();
    let mut wanted = Vec::new();
    for (number, mut served) in items().into_iter().enumerate() {
        served.info.toi = Toi(random.below(1 << 20) as u32 * 4 + number as u32);
        let Held::Parts(held) = sink.add(&served.info).unwrap() else { continue };
        let blocks = 0..served.partition.blocks();
        let blocks = blocks.filter(|&sbn| held.missing_symbols(sbn) > 0).map(|sbn| {
            let block = held.block(sbn);
            let esis = 0..served.partition.block_symbols(sbn) + 20;
            let esis = esis.filter(|&esi| block.is_none_or(|block| !block.contains(esi)));
            (sbn, held.missing_symbols(sbn), esis.collect::<Vec<_>>())
        });
        let blocks: Vec<_> = blocks.collect();
        wanted.extend(blocks.into_iter().map(|block| (served.clone(), block)));
    }
    while !wanted.is_empty() {
        let at = random.below(wanted.len().min(8) as u64) as usize;
        let (served, (sbn, missing, esis)) = &mut wanted[at];
        let block = served.block(*sbn);
        let esi = esis.swap_remove(random.below(esis.len() as u64) as usize);
        assert!(sink.store(block, esi, &served.symbol(*sbn, esi)));
        *missing -= 1;
        if *missing == 0 {
            sink.restore(block);
            wanted.swap_remove(at);
        } else if random.below(15) == 0 {
            sink.rest(block);
        }
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    std::thread::sleep(Duration::from_mins(10));
}

/// A child process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_killed_client_goes_on_where_its_journal_says() {
    let seed = u64::from(std::process::id()) | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut before: Vec<Option<BTreeSet<(u32, u32)>>> = vec![None; 3];
    let mut resumed = 0;
    let millis = Duration::from_millis;
    for round in 0..14 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sink_resume::child_receives_in_random_order", "--ignored"])
            .env(CHILD, format!("{} {}", random.below(1 << 40) | 1, directory.path().display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = Killed(child);
        // In most rounds, the time to kill starts once there is a journal. In the others, it starts
        // at once.
        let mut kill_at = (round % 4 == 0).then(|| Instant::now() + millis(random.below(80)));
        let give_up_at = Instant::now() + Duration::from_mins(2);
        let mut seen = vec![None; 3];
        while kill_at.unwrap_or(give_up_at) > Instant::now() {
            for (served, seen) in items().iter().zip(&mut seen) {
                *seen = recorded(directory.path(), served).or(seen.take());
            }
            if seen.iter().any(Option::is_some) || directory.path().join("large").exists() {
                kill_at.get_or_insert_with(|| Instant::now() + millis(random.below(40)));
            }
        }
        drop(child);

        let client = Client::at_path(directory.path(), SinkOptions::default());
        for (index, served) in items().iter().enumerate() {
            let Held::Parts(held) =
                client.sink.preparer().prepare(&served.info).unwrap().held().clone()
            else {
                before[index] = None;
                continue;
            };
            let now = held_symbols(served, &held);
            resumed += usize::from(!now.is_empty());
            if let Some(seen) = &seen[index] {
                for sbn in (0..served.partition.blocks()).filter(|&sbn| seen.restored.contains(sbn))
                {
                    assert!(held.is_restored(sbn), "round {round}: block {sbn} was recorded");
                }
                for (&sbn, block) in &seen.partial {
                    let kept =
                        held.is_restored(sbn) || block.esis().all(|esi| now.contains(&(sbn, esi)));
                    assert!(kept, "round {round}: symbols of block {sbn} were recorded");
                }
            }
            for &(sbn, esi) in before[index].iter().flatten() {
                let kept = held.is_restored(sbn) || now.contains(&(sbn, esi));
                assert!(kept, "round {round}: symbol {esi} of block {sbn} was held before");
            }
            before[index] = Some(now);
        }
    }
    assert!(resumed > 3, "the rounds were too short to see anything resumed");

    let mut client = Client::at_path(directory.path(), SinkOptions::default());
    for served in items() {
        if let Held::Parts(held) = client.add(&served) {
            client.complete(&served, &held);
        }
        assert!(std::fs::read(directory.path().join(&served.info.name)).unwrap() == served.content);
    }
    assert_eq!(client.files(), ["dir/queer", "large", "small"], "nothing is left over");
}

#[test]
fn a_closed_client_keeps_every_symbol() {
    let served = Served::new(1, "a", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    for sbn in 0..10 {
        for esi in [sbn, 19, 20 + sbn] {
            assert!(client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
        }
    }
    assert!(client.sink.store_block(served.block(20), served.block_bytes(20)));
    let mut client = client.restart();
    // The server was restarted as well and assigns another TOI.
    let served = served.renamed(77, "a");
    let held = client.add_parts(&served);
    for sbn in 0..10 {
        let esis: Vec<u32> = held.block(sbn).unwrap().esis().collect();
        assert_eq!(esis, if sbn == 19 { vec![19, 39] } else { vec![sbn, 19, 20 + sbn] });
    }
    assert!(held.is_restored(20));
    let run = |first_block, blocks, symbols| NeedRun { first_block, blocks, symbols };
    assert_eq!(held.need(), Need::Symbols(vec![run(0, 10, 17), run(10, 10, 20), run(21, 4, 20)]));
    let told = umbel_engine::repository::receiver::Held::from(&held);
    assert!(told.complete.iter().cloned().flatten().eq([20]));
    assert_eq!(told.partial.len(), 10);
    assert_eq!(told.partial[&3], [3, 19, 23]);
    client.complete(&served, &held);
    assert_eq!(client.files(), ["a"]);
}

#[test]
fn a_changed_item_starts_anew() {
    let old = Served::new(1, "a", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&old);
    assert!(client.sink.store_block(old.block(3), old.block_bytes(3)));
    client.sink.rest(old.block(3));
    // The item changes within one sink.
    client.sink.cancel(old.info.toi);
    let new = Served::new(2, "a", 50_000, Scheme::ReedSolomon);
    let held = client.add_parts(&new);
    assert_eq!(held.need(), Need::Whole);
    client.complete(&new, &held);
}

#[test]
fn a_torn_or_damaged_journal_costs_only_what_it_no_longer_says() {
    let served = Served::new(1, "a", 20_000, Scheme::ReedSolomon);
    let mut random = Random(99);
    for round in 0..60 {
        let mut client = Client::new();
        client.add(&served);
        for sbn in 0..5 {
            for esi in 0..19 {
                let esi = if esi % 3 == 0 { esi + 20 } else { esi };
                assert!(client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
            }
            client.sink.rest(served.block(sbn));
            let whole = sbn + 5;
            assert!(client.sink.store_block(served.block(whole), served.block_bytes(whole)));
        }
        let mut client = client.restart_after(|directory| {
            let path = directory.join(".a.umbel-part.journal");
            let mut journal = std::fs::read(&path).unwrap();
            let at = random.below(journal.len() as u64) as usize;
            if round % 2 == 0 {
                journal.truncate(at);
            } else {
                journal[at] ^= 1 << random.below(8);
            }
            std::fs::write(&path, journal).unwrap();
        });
        let held = client.add_parts(&served);
        client.complete(&served, &held);
        assert_eq!(client.files(), ["a"]);
    }
}

#[test]
fn damage_that_the_journal_does_not_show_is_found_by_the_digest() {
    let served = Served::new(1, "a", 20_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    for sbn in 0..9 {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    let mut client = client.restart_damaged("a", 2_500);
    let held = client.add_parts(&served);
    assert_eq!(held.restored_blocks(), 9);
    assert!(client.sink.store_block(served.block(9), served.block_bytes(9)));
    client.wait(|event| matches!(event, SinkEvent::DigestMismatch { .. }));
    client.sink.check_blocks(served.info.toi, served.block_digests());
    let event = client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
    assert!(matches!(event, SinkEvent::BlocksDropped { blocks, .. } if blocks == [1]));
    assert!(client.sink.store_block(served.block(1), served.block_bytes(1)));
    client.wait_done(&served);
}

#[test]
fn a_part_that_was_complete_needs_nothing_more() {
    let served = Served::new(1, "a", 1_500, Scheme::ReedSolomon);
    let large = Served::new(2, "b", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    std::fs::write(client.path().join(".a.umbel-part"), &served.content).unwrap();
    let held = client.add_parts(&served);
    assert_eq!(held.need(), Need::Symbols(Vec::new()));
    client.wait_done(&served);
    // As if killed after the last block, before the rename.
    let held = client.add_parts(&large);
    client.complete(&large, &held);
    std::fs::rename(client.path().join("b"), client.path().join(".b.umbel-part")).unwrap();
    let mut client = client.restart();
    assert_eq!(client.add_parts(&large).need(), Need::Symbols(Vec::new()));
    client.wait_done(&large);
    assert_eq!(client.files(), ["a", "b"]);
}
