//! Makes one stream of RTP out of encodings of which one at a time is received.
//!
//! Players take another synchronization source, or sequence numbers and timestamps that jump, for
//! another stream. So the stream keeps the source and payload type of the encoding with which it
//! began. At a change, sequence numbers go on without a gap, and timestamps by the time that has
//! passed. It happens where a decoder can start: at a key frame if the format shows them, else at
//! the next timestamp. Gaps by loss remain.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use umbel_engine::Instant;
use umbel_wire::rtp::{Identity, RtpPacket, VideoCodec, identify};
use umbel_wire::stream::RtpFormat;

/// Longest time for which a key frame is waited for. Chosen: some encoders send none at all.
const KEY_FRAME: Duration = Duration::from_secs(5);

/// An encoding, by its layer and its synchronization source.
type Encoding = (u8, u32);

/// Fate of the last packet of the stream.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    identity: Identity,
}

/// An encoding that is to take the place of another.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    encoding: Encoding,
    since: Instant,
    /// Timestamp of its first packet, which may be in the middle of a picture.
    timestamp: u32,
}

/// The stream for the player.
#[derive(Debug)]
pub(super) struct HandOver {
    codec: Option<VideoCodec>,
    clock_rate: u32,
    payload_type: u8,
    current: Option<Encoding>,
    awaited: Option<Awaited>,
    /// Offsets of the sequence numbers and timestamps of the current encoding.
    offset: (u16, u32),
    last: Option<Last>,
    /// Changes of the encoding.
    pub(super) changes: u64,
}

impl HandOver {
    /// Creates the stream of encodings that share this format.
    pub(super) fn new(format: &RtpFormat) -> HandOver {
        HandOver {
            codec: format.encoding().and_then(VideoCodec::named),
            clock_rate: format.clock_rate(),
            payload_type: format.payload_type,
            current: None,
            awaited: None,
            offset: (0, 0),
            last: None,
            changes: 0,
        }
    }

    /// Takes a packet, in the order of its encoding. Returns it as the player gets it, or `None` if
    /// a decoder could not start with it.
    pub(super) fn pass(&mut self, now: Instant, layer: u8, bytes: &Bytes) -> Option<Bytes> {
        let packet = RtpPacket::parse(bytes).ok()?;
        let encoding = (layer, packet.ssrc);
        if self.current != Some(encoding) || self.awaited.is_some() {
            if !self.can_begin(now, encoding, &packet) {
                return None;
            }
            self.begin(now, encoding, &packet);
        }
        let identity = Identity {
            payload_type: self.payload_type,
            sequence: packet.sequence.wrapping_add(self.offset.0),
            timestamp: packet.timestamp.wrapping_add(self.offset.1),
            ssrc: self.last.map_or(packet.ssrc, |last| last.identity.ssrc),
        };
        // A packet that came late tells nothing of where the stream is.
        let is_latest = self.last.is_none_or(|last| {
            identity.sequence.wrapping_sub(last.identity.sequence) < u16::MAX / 2
        });
        if is_latest {
            self.last = Some(Last { at: now, identity });
        }
        let mut out = BytesMut::from(&bytes[..]);
        identify(&mut out, identity);
        Some(out.freeze())
    }

    /// Returns whether an encoding that is not, or no longer, passed on can be from this packet on.
    fn can_begin(&mut self, now: Instant, encoding: Encoding, packet: &RtpPacket<'_>) -> bool {
        let fresh = Awaited { encoding, since: now, timestamp: packet.timestamp };
        let awaited = match self.awaited {
            Some(awaited) if awaited.encoding == encoding => awaited,
            _ => *self.awaited.insert(fresh),
        };
        match self.codec {
            Some(codec) => {
                codec.begins_key_frame(packet.payload) || now - awaited.since >= KEY_FRAME
            }
            None => packet.timestamp != awaited.timestamp || self.last.is_none(),
        }
    }

    fn begin(&mut self, now: Instant, encoding: Encoding, packet: &RtpPacket<'_>) {
        if let Some(Last { at, identity }) = self.last {
            let passed = (now - at).as_secs_f64() * f64::from(self.clock_rate);
            let timestamp = identity.timestamp.wrapping_add((passed as u32).max(1));
            let sequence = identity.sequence.wrapping_add(1);
            self.offset =
                (sequence.wrapping_sub(packet.sequence), timestamp.wrapping_sub(packet.timestamp));
            self.changes += u64::from(self.current != Some(encoding));
        }
        self.current = Some(encoding);
        self.awaited = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u8 = 0x65;
    const OTHER: u8 = 0x41;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn format(encoding: &str) -> RtpFormat {
        RtpFormat {
            kind: "video".to_owned(),
            payload_type: 96,
            map: Some(format!("{encoding}/90000")),
            parameters: None,
        }
    }

    fn packet(ssrc: u32, sequence: u16, timestamp: u32, payload: u8) -> Bytes {
        let mut bytes = vec![0; 13];
        (bytes[0], bytes[12]) = (0x80, payload);
        identify(&mut bytes, Identity { payload_type: 98, sequence, timestamp, ssrc });
        bytes.into()
    }

    /// Passes a packet on, and returns the sequence number, timestamp and source that the player
    /// gets.
    fn pass(
        hand_over: &mut HandOver,
        ms: u64,
        layer: u8,
        packet: &Bytes,
    ) -> Option<(u16, u32, u32)> {
        let out = hand_over.pass(at(ms), layer, packet)?;
        let RtpPacket { payload_type, sequence, timestamp, ssrc, .. } =
            RtpPacket::parse(&out).unwrap();
        assert_eq!(payload_type, 96);
        Some((sequence, timestamp, ssrc))
    }

    #[test]
    fn an_encoding_takes_the_place_of_another_at_its_key_frame() {
        let mut to = HandOver::new(&format("H264"));
        assert_eq!(pass(&mut to, 0, 0, &packet(1, 5, 100, OTHER)), None, "no decoder starts here");
        assert_eq!(pass(&mut to, 10, 0, &packet(1, 6, 3_100, KEY)), Some((6, 3_100, 1)));
        assert_eq!(pass(&mut to, 20, 0, &packet(1, 8, 4_000, OTHER)), Some((8, 4_000, 1)));
        // Encoding 2 begins in the middle of a group of pictures.
        assert_eq!(pass(&mut to, 30, 1, &packet(2, 900, 77, OTHER)), None);
        assert_eq!(pass(&mut to, 120, 1, &packet(2, 901, 7_777, KEY)), Some((9, 13_000, 1)));
        assert_eq!(pass(&mut to, 130, 1, &packet(2, 902, 8_777, OTHER)), Some((10, 14_000, 1)));
        assert_eq!(pass(&mut to, 131, 1, &packet(2, 904, 8_777, OTHER)), Some((12, 14_000, 1)));
        assert_eq!(to.changes, 1);
    }

    #[test]
    fn an_encoding_that_was_tried_in_vain_is_never_shown() {
        let mut to = HandOver::new(&format("H264"));
        assert!(pass(&mut to, 0, 0, &packet(1, 1, 0, KEY)).is_some());
        assert_eq!(pass(&mut to, 30, 1, &packet(2, 900, 77, OTHER)), None);
        // Pictures are missing now, so that the old one waits for a key frame as well.
        assert_eq!(pass(&mut to, 500, 0, &packet(1, 20, 45_000, OTHER)), None);
        assert_eq!(pass(&mut to, 1_000, 0, &packet(1, 30, 90_000, KEY)), Some((2, 90_000, 1)));
        assert_eq!(to.changes, 0);
    }

    #[test]
    fn without_key_frames_the_next_picture_begins_or_patience_ends() {
        let mut to = HandOver::new(&format("AV1"));
        assert_eq!(pass(&mut to, 0, 0, &packet(1, 1, 10, OTHER)), Some((1, 10, 1)));
        assert_eq!(pass(&mut to, 5, 1, &packet(2, 50, 500, OTHER)), None);
        assert_eq!(pass(&mut to, 6, 1, &packet(2, 51, 500, OTHER)), None);
        assert_eq!(pass(&mut to, 10, 1, &packet(2, 52, 600, OTHER)), Some((2, 910, 1)));
        let mut to = HandOver::new(&format("H264"));
        assert_eq!(pass(&mut to, 0, 0, &packet(1, 1, 10, OTHER)), None);
        assert_eq!(pass(&mut to, 4_999, 0, &packet(1, 2, 10, OTHER)), None);
        assert_eq!(pass(&mut to, 5_000, 0, &packet(1, 3, 10, OTHER)), Some((3, 10, 1)));
    }
}
