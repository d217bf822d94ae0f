//! Replays the corpus of the fuzz target `hls_playlist`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;

use std::fs;
use std::path::PathBuf;

#[test]
fn the_corpus_of_hls_playlist_replays() {
    let corpus: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus/hls_playlist"].iter().collect();
    let mut count = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        checks::hls_playlist(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5);
}
