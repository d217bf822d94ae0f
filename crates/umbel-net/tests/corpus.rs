//! Replays the corpus of the fuzz target `session_frames`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;

#[test]
fn the_corpus_of_session_frames_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/session_frames");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        checks::session_frames(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 3);
}
