//! Replays the corpora of the fuzz targets. Every input that once broke something is kept in them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;

use std::fs;
use std::path::PathBuf;

use umbel_video::{Decoder, DecoderConfig};

/// The files of a corpus, in the order of their names.
fn files(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let corpus: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target].iter().collect();
    let mut paths: Vec<_> =
        fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_corpora_replay() {
    replay("video_packets", checks::video_packets);
    replay("y4m", checks::y4m);
}

/// Runs the check on each file of the corpus.
fn replay(target: &str, check: fn(&[u8])) {
    let files = files(target);
    assert!(files.len() >= 4, "{target}");
    for (path, bytes) in files {
        println!("{}", path.display());
        check(&bytes);
    }
}

/// Another format needs another version.
#[test]
fn packets_of_this_version_still_decode() {
    let files = files("video_packets");
    let (_, whole) = files.iter().find(|(path, _)| path.ends_with("whole")).unwrap();
    let mut decoder = Decoder::new(checks::size(), DecoderConfig { stream: 0, reorder_frames: 0 });
    for (layer, packet) in checks::packets(whole) {
        decoder.push(layer, packet).unwrap();
    }
    let counts = decoder.counts();
    assert_eq!((counts.refused, counts.useless, counts.malformed), (0, 0, 0));
    assert!(decoder.known_share() > 0.99);
}
