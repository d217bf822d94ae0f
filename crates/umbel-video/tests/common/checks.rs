//! A decoder and a reader behind any bytes. The fuzz targets run these, and `corpus.rs` runs them
//! on the corpora of the fuzz targets.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used, reason = "shared by test binaries")]

use umbel_video::y4m::{Reader, Y4mError};
use umbel_video::{Decoder, DecoderConfig, Frame, MAX_SAMPLES, Size};

/// Bytes before each packet: a layer, and the packet's length.
const HEAD: usize = 3;

/// Longest Y4M frame that is read here: fuzzers have no patience.
const MAX_FRAME: usize = 1 << 16;

/// Returns the size of the pictures in the corpus.
pub fn size() -> Size {
    Size::new(80, 48).unwrap()
}

/// Returns the layers and packets of an input, each behind its layer and its length in two bytes.
pub fn packets(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut out = Vec::new();
    while let Some((&[layer, low, high], rest)) = bytes.split_first_chunk::<HEAD>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (packet, rest) = rest.split_at(length);
        out.push((layer, packet));
        bytes = rest;
    }
    out
}

/// Checks that a decoder decodes or counts every packet, and always has a picture.
pub fn video_packets(bytes: &[u8]) {
    let packets = packets(bytes);
    for reorder_frames in [0, 2] {
        let mut decoder = Decoder::new(size(), DecoderConfig { stream: 0, reorder_frames });
        for &(layer, packet) in &packets {
            let _ = decoder.push(layer, packet);
        }
        decoder.flush();
        let counts = decoder.counts();
        assert_eq!(counts.packets + counts.refused, packets.len() as u64);
        assert_eq!(decoder.picture().size(), size());
        assert!((0.0..=1.0).contains(&decoder.known_share()));
        assert!(decoder.fresh_share(100) <= decoder.known_share());
    }
}

/// Checks that a reader returns frames of the size that was declared, or says what is wrong.
pub fn y4m(bytes: &[u8]) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let size = reader.header().size;
    assert!(size.width() * size.height() <= MAX_SAMPLES);
    if size.frame_len() > MAX_FRAME {
        return;
    }
    let mut frame = Frame::grey(size);
    loop {
        match reader.read(&mut frame) {
            Ok(true) => assert_eq!(frame.size(), size),
            Ok(false) => return,
            Err(error) => {
                assert!(!matches!(error, Y4mError::NotY4m) || bytes.len() > HEAD);
                return;
            }
        }
    }
}
