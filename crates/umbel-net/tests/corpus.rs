//! Replays the corpus of the fuzz target `session_frames`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;
#[path = "../../umbel-wire/tests/common/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_of_session_frames_replays() {
    corpus::replay("session_frames", 3, checks::session_frames);
}
