//! Checks that must hold for any bytes. The fuzz targets run them, and the tests run them on the
//! corpora of the fuzz targets.

#![allow(unreachable_pub, dead_code, reason = "shared by test binaries")]

use umbel_store::feed::Manifest;
use umbel_store::hls::{FileName, Follower, Playlist};

/// Checks that a parsed manifest can be emitted and parsed again.
pub fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let again = manifest.emit().expect("it was short enough");
    assert_eq!(Manifest::parse(&again), Ok(manifest));
}

/// Checks that no name of a parsed playlist leaves its directory, and that what is written of it is
/// parsed again.
pub fn hls_playlist(bytes: &[u8]) {
    let file = FileName::parse("v0/index.m3u8").expect("a sound name");
    let inside = |name: &FileName| {
        assert!(name.as_str().starts_with("v0/"), "{name}");
        assert!(name.as_str().split('/').all(|part| !matches!(part, "" | "." | "..")), "{name}");
    };
    match Playlist::parse(&file, bytes) {
        Err(_) => {}
        Ok(Playlist::Master(master)) => {
            master.renditions.iter().for_each(|rendition| inside(&rendition.playlist));
            let again = Playlist::parse_master(&file, master.text(&file).as_bytes());
            assert_eq!(again.expect("it was sound").renditions, master.renditions);
        }
        Ok(Playlist::Media(mut media)) => {
            for segment in &media.segments {
                inside(&segment.name);
                segment.init.iter().for_each(inside);
            }
            let again = Playlist::parse_media(&file, media.text(&file).as_bytes());
            assert_eq!(again.expect("it was sound").segments, media.segments);
            let mut follower = Follower::default();
            let fresh = follower.take(&media).expect("the first one is taken");
            assert!(fresh.segments.len() <= 1);
            if let Some((number, segment)) = fresh.segments.first() {
                media.push(*number, segment.clone(), 3);
                assert!(media.segments.len() <= 3);
            }
        }
    }
}
