//! Replays the corpora of the fuzz targets `session_frames` and `session_url`.

use crate::{checks, corpus};

#[test]
fn the_corpus_of_session_frames_replays() {
    corpus::replay("session_frames", 3, checks::session_frames);
}

#[test]
fn the_corpus_of_session_url_replays() {
    corpus::replay("session_url", 6, checks::session_url);
}
