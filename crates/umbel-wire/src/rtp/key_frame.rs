//! Key frames, from which a decoder can start.

/// A video format whose key frames can be told by the first bytes of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoCodec {
    /// H.264 [RFC 6184].
    H264,
    /// H.265 [RFC 7798].
    H265,
    /// VP8 [RFC 7741].
    Vp8,
    /// VP9 [RFC 9628].
    Vp9,
}

impl VideoCodec {
    /// Returns the format of this encoding name, as `a=rtpmap` has it.
    pub fn named(name: &str) -> Option<VideoCodec> {
        let codecs = [
            ("H264", VideoCodec::H264),
            ("H265", VideoCodec::H265),
            ("VP8", VideoCodec::Vp8),
            ("VP9", VideoCodec::Vp9),
        ];
        let codec = codecs.into_iter().find(|(other, _)| name.eq_ignore_ascii_case(other));
        codec.map(|(_, codec)| codec)
    }

    /// Returns whether a payload begins a key frame, or the parameter sets before it.
    pub fn begins_key_frame(self, payload: &[u8]) -> bool {
        match self {
            VideoCodec::H264 => h264(payload),
            VideoCodec::H265 => h265(payload),
            VideoCodec::Vp8 => vp8(payload).unwrap_or(false),
            // Not predicted from another picture, and the beginning of a frame.
            VideoCodec::Vp9 => payload.first().is_some_and(|first| first & 0x48 == 0x08),
        }
    }
}

fn h264(payload: &[u8]) -> bool {
    // A slice of an IDR picture, or a sequence parameter set.
    let is_key = |unit: u8| matches!(unit & 0x1F, 5 | 7);
    match payload {
        // STAP-A: length and unit, again and again.
        [first, units @ ..] if first & 0x1F == 24 => any_unit(units, is_key),
        // FU-A: a start bit, and the type of what is split.
        [first, head, ..] if first & 0x1F == 28 => head & 0x80 != 0 && is_key(*head),
        [first, ..] => is_key(*first),
        [] => false,
    }
}

fn h265(payload: &[u8]) -> bool {
    // A picture at which one can start, or a video or sequence parameter set.
    let is_key = |unit_type: u8| matches!(unit_type, 16..=23 | 32 | 33);
    let unit_type = |first: u8| first >> 1 & 0x3F;
    match payload {
        [first, _, units @ ..] if unit_type(*first) == 48 => {
            any_unit(units, |first| is_key(unit_type(first)))
        }
        [first, _, head, ..] if unit_type(*first) == 49 => head & 0x80 != 0 && is_key(head & 0x3F),
        [first, ..] => is_key(unit_type(*first)),
        [] => false,
    }
}

/// Returns whether the first byte of any unit fulfils the condition.
fn any_unit(mut units: &[u8], is: impl Fn(u8) -> bool) -> bool {
    while let [high, low, rest @ ..] = units {
        if rest.first().is_some_and(|first| is(*first)) {
            return true;
        }
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        units = rest.get(len..).unwrap_or_default();
    }
    false
}

/// Returns `None` if the payload descriptor is cut off.
fn vp8(payload: &[u8]) -> Option<bool> {
    let (descriptor, mut rest) = payload.split_first()?;
    if descriptor & 0x80 != 0 {
        let (extension, after) = rest.split_first()?;
        let long_id = extension & 0x80 != 0 && after.first()? & 0x80 != 0;
        let bytes = usize::from(extension & 0x80 != 0)
            + usize::from(long_id)
            + usize::from(extension & 0x40 != 0)
            + usize::from(extension & 0x30 != 0);
        rest = after.get(bytes..)?;
    }
    // The start of the first partition, whose first bit is 0 in a key frame.
    Some(descriptor & 0x17 == 0x10 && rest.first()? & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::VideoCodec::{H264, H265, Vp8, Vp9};
    use super::*;

    #[test]
    fn the_start_of_a_key_frame_is_told_from_all_else() {
        for (codec, payload, expected) in [
            (H264, &[0x65, 0x88][..], true),
            (H264, &[0x67, 0x42], true),
            (H264, &[0x41, 0x9A], false),
            (H264, &[0x78, 0, 1, 0x09, 0, 2, 0x67, 0x42], true),
            (H264, &[0x78, 0, 1, 0x09, 0, 2, 0x41, 0x42], false),
            (H264, &[0x78, 0xFF, 0xFF, 0x09], false),
            (H264, &[0x7C, 0x85], true),
            (H264, &[0x7C, 0x05], false),
            (H264, &[0x7C, 0x81], false),
            (H264, &[], false),
            (H265, &[0x40, 1], true),
            (H265, &[0x26, 1], true),
            (H265, &[0x02, 1], false),
            (H265, &[0x62, 1, 0x93], true),
            (H265, &[0x62, 1, 0x13], false),
            (H265, &[0x60, 1, 0, 2, 0x42, 1], true),
            (Vp8, &[0x10, 0x10], true),
            (Vp8, &[0x10, 0x11], false),
            (Vp8, &[0x00, 0x10], false),
            (Vp8, &[0x11, 0x10], false),
            (Vp8, &[0x90, 0xF0, 0x81, 2, 3, 4, 0x10], true),
            (Vp8, &[0x90, 0x80, 0x01, 0x10], true),
            (Vp8, &[0x90, 0x80, 0x01], false),
            (Vp9, &[0x88, 1], true),
            (Vp9, &[0xC8, 1], false),
            (Vp9, &[0x80, 1], false),
        ] {
            assert_eq!(codec.begins_key_frame(payload), expected, "{codec:?} {payload:x?}");
        }
        assert_eq!((VideoCodec::named("h264"), VideoCodec::named("AV1")), (Some(H264), None));
    }
}
