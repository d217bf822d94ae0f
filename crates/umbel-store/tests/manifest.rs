//! Replays the corpus of the fuzz target `manifest`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;

use std::fs;
use std::path::PathBuf;

use umbel_store::feed::Manifest;
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Oti, Scheme, Toi};

fn corpus() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus/manifest"].iter().collect()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let item = |toi: u32| ItemInfo {
        toi: Toi(toi),
        name: format!("a/{toi}"),
        digest: Digest([7; 32]),
        modified_ns: Some(1),
        mode: Some(0o644),
        media_type: "text/plain".to_owned(),
        oti: Oti {
            scheme: Scheme::ReedSolomon,
            object_len: u64::from(toi) * 1_000,
            symbol_len: 1_368,
            max_block_symbols: 64,
            max_encoding_symbols: 255,
        },
    };
    let of = |tois: &[u32]| {
        let items = tois.iter().copied().map(item).collect();
        // None has more than one block.
        let blocks = vec![Digest([8; 32]); tois.len()];
        Manifest { items, left_out: 0, blocks }.emit().unwrap()
    };
    let twice = [of(&[1]), of(&[1])].concat();
    vec![("none", of(&[])), ("three", of(&[1, 2, 3])), ("twice", twice)]
}

#[test]
fn the_corpus_of_manifest_replays() {
    let mut count = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        checks::manifest(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= seeds().len());
}

#[test]
fn the_seeds_are_still_what_we_emit() {
    for (name, bytes) in seeds() {
        assert_eq!(fs::read(corpus().join(name)).unwrap(), bytes, "{name}");
    }
}

#[test]
#[ignore = "writes the seeds into the corpus"]
fn write_the_seeds() {
    fs::create_dir_all(corpus()).unwrap();
    for (name, bytes) in seeds() {
        fs::write(corpus().join(name), bytes).unwrap();
    }
}
