//! Checks that must hold for any bytes. The fuzz targets run them, and the tests run them on the
//! corpora of the fuzz targets.

#![allow(unreachable_pub, dead_code, reason = "shared by test binaries")]

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_engine::tmtp::FEED;
use umbel_store::feed::{BlockShape, Manifest, PipeId, PipeOutcome, pipe_sink};
use umbel_store::hls::{FileName, Follower, Playlist};
use umbel_wire::Tsi;

/// The pipe of the corpus `pipe_block`, and the key of its sender [RFC 8032 §7.1, test 1].
pub const PIPE: PipeId = PipeId { feed: Tsi(7), version: 5 };
pub const PIPE_SHAPE: BlockShape = BlockShape { symbol_len: 200, block_symbols: 8, sealed: false };
pub const PIPE_KEY: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

/// Passes bytes to a pipe as its first block. Returns what its reader gets, and how the pipe ended.
pub fn read_pipe(bytes: &[u8]) -> (Vec<u8>, Option<PipeOutcome>) {
    let (mut sink, mut reader) =
        pipe_sink((PIPE, PIPE_KEY), PIPE_SHAPE, 1 << 20, None, |_| {}).expect("a sound shape");
    sink.begin(0);
    let block = BlockId { toi: FEED, sbn: 0 };
    let symbols = bytes.chunks(PIPE_SHAPE.symbol_len.into());
    for (esi, symbol) in (0..PIPE_SHAPE.block_symbols.into()).zip(symbols) {
        sink.store(block, esi, symbol);
    }
    sink.restore(block);
    let read = std::iter::from_fn(|| reader.take()).flatten().collect();
    (read, reader.outcome())
}

/// Checks that a block of a pipe is passed on only as it was signed, if at all.
pub fn pipe_block(bytes: &[u8]) {
    let (read, _) = read_pipe(bytes);
    assert!(read.is_empty() || bytes.windows(read.len()).any(|part| part == read));
}

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
        assert!(!name.as_str().starts_with('/'), "{name}");
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
