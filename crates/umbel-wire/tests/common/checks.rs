//! Properties that hold for any bytes. The fuzz targets run these checks, and `corpus.rs` runs them
//! on the corpora of the fuzz targets.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by test binaries")]

use umbel_wire::control::{self, FrameHeader};
use umbel_wire::feed::SealedHead;
use umbel_wire::repository::{ClientMessage, ServerMessage, UnicastBlock};
use umbel_wire::rtp::{self, RtpPacket, VideoCodec};
use umbel_wire::sap::SapPacket;
use umbel_wire::sdp::{DESCRIPTION_LEN, Description, Origin};
use umbel_wire::session::{FindSessions, SessionKind};
use umbel_wire::{DataPacket, Parsed};
use umbel_wire::{SmallBlockHeader, SmallBlockPacket, basep, igmp, lms, pgm, rlm, srm, tcp, tmtp};

/// A parsed packet can be emitted, and parsing it returns the same packet.
pub fn data_packet(bytes: &[u8]) {
    let Ok(packet) = DataPacket::parse(bytes) else { return };
    let again = [&packet.header.emit().unwrap(), packet.symbol].concat();
    assert_eq!(DataPacket::parse(&again), Ok(packet));
}

/// A parsed message can be emitted, and parsing it returns the same message.
pub fn client_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = ClientMessage::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(ClientMessage::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed message can be emitted, and parsing it returns the same message.
pub fn server_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = ServerMessage::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(ServerMessage::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed head can be emitted, and parsing it returns the same head. No block is longer than
/// allowed.
pub fn unicast_block(bytes: &[u8]) {
    let max_len = 1 << 20;
    let Ok(head) = UnicastBlock::parse(bytes, max_len) else { return };
    assert!(head.len <= max_len);
    assert_eq!(head.emit(), bytes[..UnicastBlock::LEN]);
}

/// A parsed message can be emitted, and parsing it returns the same message.
pub fn find_sessions(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = FindSessions::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(FindSessions::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed message can be emitted, and parsing it returns the same message.
pub fn srm_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = srm::Message::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(srm::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed message can be emitted, and parsing it returns the same message. Its first bytes alone
/// tell that it is one of LMS, and whether it is a repair.
pub fn lms_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = lms::Message::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(lms::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
    assert!(lms::Message::is_lms(bytes));
    assert_eq!(lms::Message::is_repair(bytes), matches!(message, lms::Message::Repair { .. }));
}

/// A parsed message can be emitted, and parsing it returns the same message. Its first bytes tell
/// its type.
pub fn pgm_message(bytes: &[u8]) {
    let known = pgm::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = pgm::Message::parse(bytes) else { return };
    assert!(known.is_some());
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(pgm::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A packet keeps all but the identity that a relay writes into it. No payload breaks the search for
/// key frames.
pub fn rtp_packet(bytes: &[u8]) {
    let Ok(packet) = RtpPacket::parse(bytes) else { return };
    assert!(!rtp::is_rtcp(bytes) && packet.payload.len() + rtp::HEADER_LEN <= bytes.len());
    for codec in [VideoCodec::H264, VideoCodec::H265, VideoCodec::Vp8, VideoCodec::Vp9] {
        codec.begins_key_frame(packet.payload);
    }
    let identity = rtp::Identity {
        payload_type: 96,
        sequence: !packet.sequence,
        timestamp: !packet.timestamp,
        ssrc: !packet.ssrc,
    };
    let mut again = bytes.to_vec();
    rtp::identify(&mut again, identity);
    let rtp::Identity { payload_type, sequence, timestamp, ssrc } = identity;
    let expected = RtpPacket { payload_type, sequence, timestamp, ssrc, ..packet };
    assert_eq!(RtpPacket::parse(&again), Ok(expected));
}

/// A parsed packet can be emitted, and parsing it returns the same packet, description and
/// session.
pub fn sap_packet(bytes: &[u8]) {
    let Ok(packet) = SapPacket::parse(bytes) else { return };
    let mut again = Vec::new();
    packet.emit(&mut again);
    assert_eq!(SapPacket::parse(&again), Ok(packet));
    let Ok(description) = Description::parse(packet.payload) else { return };
    assert_eq!(Origin::find(packet.payload).as_ref(), Ok(&description.origin));
    let text = description.emit();
    // The text grows where a line break of one character becomes one of two.
    if text.len() > DESCRIPTION_LEN {
        return;
    }
    assert_eq!(Description::parse(text.as_bytes()).as_ref(), Ok(&description));
    let Ok(Some(session)) = SessionKind::from_description(&description) else { return };
    assert_eq!(SessionKind::from_description(&session.describe("umbel")), Ok(Some(session)));
}

/// No report has more records or sources than its bytes.
pub fn igmp_report(bytes: &[u8]) {
    let Ok(Some((_, records))) = igmp::parse_report(bytes) else { return };
    let sources: usize = records.iter().map(|record| record.sources.len()).sum();
    assert!(records.len() * 8 + sources * 4 <= bytes.len());
}

/// A parsed segment can be emitted, and parsing it returns the same segment, as far as its blocks
/// fit beside the other options.
pub fn tcp_segment(bytes: &[u8]) {
    let Ok(segment) = tcp::Segment::parse(bytes) else { return };
    let mut again = Vec::new();
    segment.head.emit(&mut again);
    assert!(again.len() <= tcp::Head::MAX_LEN);
    again.extend_from_slice(segment.payload);
    let mut back = tcp::Segment::parse(&again).unwrap();
    let (fit, all) = (back.head.options.sack, segment.head.options.sack);
    assert!(all.as_slice().starts_with(fit.as_slice()));
    back.head.options.sack = all;
    assert_eq!(back, segment);
}

/// A parsed head can be emitted, and has the same bytes again.
pub fn sealed_head(bytes: &[u8]) {
    let Ok(head) = SealedHead::parse(bytes) else { return };
    let keys: Vec<_> = head.keys().collect();
    let mut again = Vec::new();
    SealedHead::emit(&keys, head.manifest, &mut again).unwrap();
    assert_eq!(again, bytes);
}

/// A parsed message can be emitted, and parsing it returns the same message. Its first bytes tell
/// its type.
pub fn rlm_message(bytes: &[u8]) {
    if let Ok(head) = rlm::ObjectHead::parse(bytes) {
        let mut again = Vec::new();
        head.emit(&mut again);
        assert_eq!(rlm::ObjectHead::parse(&again), Ok(head));
    }
    let known = rlm::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = rlm::Message::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(rlm::MessageType::of(&again), known);
    assert_eq!(rlm::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed message can be emitted, and parsing it returns the same message.
pub fn basep_message(bytes: &[u8]) {
    let known = basep::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = basep::Message::parse(bytes) else { return };
    assert!(known.is_some());
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(basep::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A parsed message can be emitted, and parsing it returns the same message. Its first bytes tell
/// its type. The same holds for the data packets of feeds.
pub fn tmtp_message(bytes: &[u8]) {
    if let Ok(packet) = SmallBlockPacket::parse(bytes) {
        let mut again = vec![0; SmallBlockHeader::LEN];
        packet.header.emit(&mut again).unwrap();
        again.extend_from_slice(packet.symbol);
        assert_eq!(SmallBlockPacket::parse(&again), Ok(packet));
        assert!(SmallBlockPacket::is_one(bytes));
    }
    let known = tmtp::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = tmtp::Message::parse(bytes) else { return };
    assert_eq!(known, Some(message.body.message_type()));
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(tmtp::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// A longer part of a stream never changes the result: first nothing, then always the same header
/// or an error.
pub fn control_peek(bytes: &[u8]) {
    let whole = control::peek(bytes);
    for len in 0..bytes.len().min(FrameHeader::LEN) {
        match control::peek(&bytes[..len]) {
            Ok(None) => {}
            Ok(Some(header)) => assert_eq!(whole, Ok(Some(header))),
            Err(_) => assert!(whole.is_err()),
        }
    }
    if let Ok(Some(header)) = whole {
        assert!(header.body_len <= control::MAX_BODY && bytes.len() >= FrameHeader::LEN);
    }
}
