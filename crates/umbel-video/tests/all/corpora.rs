//! Replays the corpora of the fuzz targets. Every input that once broke something is kept in them.

use umbel_video::{Decoder, DecoderConfig};

use crate::{checks, corpus};

#[test]
fn the_corpora_replay() {
    corpus::replay("video_packets", 4, checks::video_packets);
    corpus::replay("y4m", 4, checks::y4m);
}

/// Another format needs another version.
#[test]
fn packets_of_this_version_still_decode() {
    let files = corpus::files("video_packets");
    let (_, whole) = files.iter().find(|(path, _)| path.ends_with("whole")).unwrap();
    let mut decoder = Decoder::new(checks::size(), DecoderConfig { stream: 0, reorder_frames: 0 });
    for (layer, packet) in checks::packets(whole) {
        decoder.push(layer, packet).unwrap();
    }
    let counts = decoder.counts();
    assert_eq!((counts.refused, counts.useless, counts.malformed), (0, 0, 0));
    assert!(decoder.known_share() > 0.99);
}
