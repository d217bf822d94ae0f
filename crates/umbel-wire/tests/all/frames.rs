//! Control messages as another program may send them: with unknown fields, cut off or altered.

use proptest::sample::Index;
use umbel_wire::control::FrameHeader;

/// Appends a TLV of a type that no message has.
pub(crate) fn with_unknown_field(mut frame: Vec<u8>, field: u16) -> Vec<u8> {
    frame.extend_from_slice(&field.to_be_bytes());
    frame.extend_from_slice(b"\0\0\0\x03new");
    fit_header(&mut frame);
    frame
}

/// Cuts the message off within the body and alters some of its bytes. The header is adjusted to the
/// cut, so that the cut reaches the fields.
pub(crate) fn cut_and_altered(mut frame: Vec<u8>, cut: Index, changes: &[(Index, u8)]) -> Vec<u8> {
    frame.truncate(FrameHeader::LEN + cut.index(frame.len() - FrameHeader::LEN + 1));
    for (at, byte) in changes {
        let at = at.index(frame.len());
        frame[at] = *byte;
    }
    fit_header(&mut frame);
    frame
}

/// Sets the length in the header to that of the body.
pub(crate) fn fit_header(frame: &mut [u8]) {
    let body_len = (frame.len() - FrameHeader::LEN) as u32;
    frame[4..8].copy_from_slice(&body_len.to_be_bytes());
}
