//! Replays the corpus of the fuzz target `hls_playlist`.

use crate::{checks, corpus};

#[test]
fn the_corpus_of_hls_playlist_replays() {
    corpus::replay("hls_playlist", 5, checks::hls_playlist);
}
