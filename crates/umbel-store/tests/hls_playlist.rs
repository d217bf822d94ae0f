//! Replays the corpus of the fuzz target `hls_playlist`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;
#[path = "../../umbel-wire/tests/common/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_of_hls_playlist_replays() {
    corpus::replay("hls_playlist", 5, checks::hls_playlist);
}
