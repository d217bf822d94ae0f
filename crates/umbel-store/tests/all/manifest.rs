//! Replays the corpus of the fuzz target `manifest`.

use umbel_store::feed::Manifest;
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

use crate::{checks, corpus};

fn seeds() -> Vec<corpus::Seed> {
    let item = |toi: u32| ItemInfo {
        toi: Toi(toi),
        name: format!("a/{toi}"),
        digest: Digest([7; 32]),
        modified_ns: Some(1),
        mode: Some(0o644),
        kind: ItemKind::File,
        holes: None,
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
    corpus::replay("manifest", seeds().len(), checks::manifest);
}

#[test]
fn the_seeds_are_still_what_we_emit() {
    corpus::assert_holds("manifest", seeds());
}

#[test]
#[ignore = "writes the seeds into the corpus"]
fn write_the_seeds() {
    corpus::write("manifest", seeds());
}
