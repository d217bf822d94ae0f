//! Properties that must hold for any bytes at all. The fuzz targets check them, and `corpus.rs`
//! checks them on the corpora of the fuzz targets.

#![allow(unreachable_pub, dead_code, reason = "shared by test binaries")]

use umbel_net::session::SessionUrl;
use umbel_net::session::frame::Framer;

/// Maximum message length accepted here, so that a fuzzer reaches the limit.
const MAX: usize = 1_000;

/// Checks that the same messages come out of a stream, then the same error, however it is cut into
/// pieces. No more is held than was pushed. The first byte is the length of the pieces.
pub fn session_frames(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let whole = messages(stream, stream.len().max(1));
    assert_eq!(messages(stream, usize::from(piece).max(1)), whole);
}

/// Checks that a parsed URL can be written, and parsing it returns the same URL.
pub fn session_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(url) = text.parse::<SessionUrl>() else { return };
    assert_eq!(url.to_string().parse().as_ref(), Ok(&url));
}

/// Returns the messages of a stream, and whether it could be cut up to its end.
fn messages(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut framer = Framer::new(MAX);
    let mut messages = Vec::new();
    for piece in stream.chunks(piece) {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => {
                    assert!(message.len() <= MAX);
                    messages.push(message.to_vec());
                }
                Ok(None) => break,
                Err(_) => return (messages, false),
            }
        }
        assert!(framer.buffered() <= stream.len());
    }
    (messages, true)
}
