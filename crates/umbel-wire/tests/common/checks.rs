//! Properties that hold for any bytes. The fuzz targets run these checks, and `corpus.rs` runs them
//! on the corpora of the fuzz targets.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "shared by test binaries")]

use std::net::{IpAddr, Ipv6Addr};

use umbel_wire::checksum::Sum;
use umbel_wire::control::{self, FrameHeader};
use umbel_wire::datagram::{self, IpDatagram};
use umbel_wire::feed::SealedHead;
use umbel_wire::repository::{ClientMessage, ServerMessage, UnicastBlock};
use umbel_wire::rlm::{SignedHeader, SignedPacket};
use umbel_wire::rtp::{self, RtpPacket, VideoCodec};
use umbel_wire::sap::SapPacket;
use umbel_wire::sdp::{DESCRIPTION_LEN, Description, Origin};
use umbel_wire::sealed::{SealedMessage, SealedPacket};
use umbel_wire::session::{FindSessions, SessionKind};
use umbel_wire::signed::Signed;
use umbel_wire::{DataPacket, Parsed};
use umbel_wire::{SmallBlockHeader, SmallBlockPacket, basep, igmp, ip, lms, membership, mld};
use umbel_wire::{pgm, pim, rlm, srm, tcp, tmtp};

/// Flags A and B of an LCT header, in its second byte [RFC 5651 §5.1].
const CLOSES: u8 = 0x03;

/// Checks that a parsed packet can be emitted, and that parsing it returns the same packet.
pub fn data_packet(bytes: &[u8]) {
    let Ok(packet) = DataPacket::parse(bytes) else { return };
    let again = [&packet.header.emit().unwrap(), packet.symbol].concat();
    assert_eq!(DataPacket::parse(&again), Ok(packet));
}

/// Checks that the header of a sealed packet, and of a sealed message, is emitted as it was parsed.
/// That of a packet may say that session or object are closed, which nobody looks at or emits.
pub fn sealed_packet(bytes: &[u8]) {
    if let Ok(packet) = SealedPacket::parse(bytes) {
        let mut associated = packet.associated.to_vec();
        associated[1] &= !CLOSES;
        assert_eq!(packet.header.emit().as_ref().map(|bytes| &bytes[..]), Ok(&associated[..]));
        assert_eq!([packet.associated, packet.sealed].concat(), bytes);
        assert_eq!(DataPacket::parse(bytes).unwrap().header, packet.header.header);
    }
    if let Ok(message) = SealedMessage::parse(bytes) {
        assert_eq!(message.header.emit(), *message.associated);
        assert_eq!([message.associated, message.sealed].concat(), bytes);
    }
}

/// Checks that the header of a signed packet of a stream is emitted as it came, and both ends sign
/// the same.
pub fn stream_packet(bytes: &[u8]) {
    let Some(signed) = SignedPacket::split(bytes) else { return };
    assert!(signed.number <= rlm::signed::MAX_NUMBER);
    let mut message = Vec::new();
    signed.message(7, 3, &mut message);
    let rest = bytes.len() - rlm::signed::SIGNATURE_LEN;
    assert_eq!(message.len(), rlm::signed::CONTEXT.len() + 9 + rest);
    let Ok(packet) = SmallBlockPacket::parse(bytes) else { return };
    let turn = (signed.number >> 32) as u16;
    let mut head = SignedHeader { header: packet.header, turn }.emit().unwrap();
    let mut again = Vec::new();
    rlm::signed::message_of(&head, packet.symbol, (7, 3), &mut again);
    assert_eq!(again, message);
    SignedHeader::sign(&mut head, signed.signature);
    assert_eq!([&head[..], packet.symbol].concat(), bytes);
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message.
pub fn client_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = ClientMessage::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(ClientMessage::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message.
pub fn server_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = ServerMessage::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(ServerMessage::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a parsed head can be emitted, and that parsing it returns the same head. No block is
/// longer than allowed.
pub fn unicast_block(bytes: &[u8]) {
    let max_len = 1 << 20;
    let Ok(head) = UnicastBlock::parse(bytes, max_len) else { return };
    assert!(head.len <= max_len);
    assert_eq!(head.emit(), bytes[..UnicastBlock::LEN]);
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message.
pub fn find_sessions(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = FindSessions::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(FindSessions::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message.
pub fn srm_message(bytes: &[u8]) {
    let Ok(Parsed::Message { message, .. }) = srm::Message::parse(bytes) else { return };
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(srm::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. Its
/// first bytes alone tell that it is one of LMS, and whether it is a repair. A message that is read
/// the short way is the same.
pub fn lms_message(bytes: &[u8]) {
    let plain = lms::Plain::parse(bytes);
    let Ok(Parsed::Message { message, .. }) = lms::Message::parse(bytes) else {
        return assert_eq!(plain, None);
    };
    match plain {
        None => {}
        Some(lms::Plain::Request(request)) => {
            let mut again = Vec::new();
            request.emit(&mut again);
            assert_eq!((again.as_slice(), request.message_len()), (bytes, bytes.len()));
        }
        Some(lms::Plain::Dmcast { channel, turning_point, repair }) => {
            assert_eq!(message, lms::Message::Dmcast { channel, turning_point, repair });
        }
    }
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(lms::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
    assert!(lms::Message::is_lms(bytes));
    assert_eq!(lms::Message::is_repair(bytes), matches!(message, lms::Message::Repair { .. }));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. Its
/// first bytes tell its type.
pub fn pgm_message(bytes: &[u8]) {
    let known = pgm::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = pgm::Message::parse(bytes) else { return };
    assert!(known.is_some());
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(pgm::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a packet keeps all but the identity that a relay writes into it. No payload breaks
/// the search for key frames.
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

/// Checks that a parsed packet can be emitted, and that parsing it returns the same packet,
/// description and session.
pub fn sap_packet(bytes: &[u8]) {
    let Ok(packet) = SapPacket::parse(bytes) else { return };
    let mut again = Vec::new();
    packet.emit(&mut again);
    assert_eq!(SapPacket::parse(&again), Ok(packet));
    if let Ok(Some(signed)) = Signed::split(packet.payload) {
        let mut again = Vec::new();
        signed.emit(&mut again);
        assert_eq!(Signed::split(&again), Ok(Some(signed)));
    }
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

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. None
/// takes more memory than its bytes justify. The checksum is made right first, since hardly any
/// input has it right.
pub fn igmp_message(bytes: &[u8]) {
    let _ = igmp::parse(bytes);
    let bytes = with_checksum(bytes, Sum::default());
    let Ok(Some(message)) = igmp::parse(&bytes) else { return };
    bounded_membership(&message, bytes.len(), 4);
    let mut again = Vec::new();
    igmp::emit(&message, &mut again);
    assert_eq!(igmp::parse(&again), Ok(Some(message)));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. None
/// takes more memory than its bytes justify. The checksum is made right first.
pub fn mld_message(bytes: &[u8]) {
    let (from, to) = (Ipv6Addr::LOCALHOST, mld::REPORT_GROUP);
    let _ = mld::parse(bytes, from, to);
    let sum = Sum::pseudo_header(ip::ICMPV6, from.into(), to.into(), bytes.len());
    let bytes = with_checksum(bytes, sum);
    let Ok(Some(message)) = mld::parse(&bytes, from, to) else { return };
    bounded_membership(&message, bytes.len(), 16);
    let mut again = Vec::new();
    mld::emit(&message, from, to, &mut again);
    assert_eq!(mld::parse(&again, from, to), Ok(Some(message)));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message, over
/// either family. The checksum is made right first.
pub fn pim_message(bytes: &[u8]) {
    let v4 = (IpAddr::from([10, 0, 0, 1]), IpAddr::from(pim::ALL_ROUTERS_V4));
    let v6 = (IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(pim::ALL_ROUTERS_V6));
    let v6_sum = Sum::pseudo_header(ip::PIM, v6.0, v6.1, bytes.len());
    for ((from, to), sum) in [(v4, Sum::default()), (v6, v6_sum)] {
        let _ = pim::parse(bytes, from, to);
        let bytes = with_checksum(bytes, sum);
        let Ok(Some(message)) = pim::parse(&bytes, from, to) else { continue };
        if let pim::Message::JoinPrune(join_prune) = &message {
            let groups = &join_prune.groups;
            let sources = groups.iter().map(|group| group.joins.len() + group.prunes.len());
            assert!(groups.len() * 12 + sources.sum::<usize>() * 8 <= bytes.len());
        }
        let mut again = Vec::new();
        pim::emit(&message, from, to, &mut again);
        assert_eq!(pim::parse(&again, from, to), Ok(Some(message)));
    }
}

/// Returns a message whose second word is its checksum, over a sum of what else is covered.
fn with_checksum(bytes: &[u8], sum: Sum) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(place) = bytes.get_mut(2..4) {
        place.fill(0);
        let checksum = sum.bytes(&bytes).checksum();
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

fn bounded_membership(message: &membership::Message, len: usize, address_len: usize) {
    let addresses = match message {
        membership::Message::Query(query) => query.sources.len(),
        membership::Message::Report(report) => {
            report.records.iter().map(|record| 1 + record.sources.len()).sum()
        }
        _ => 0,
    };
    assert!(addresses * address_len <= len);
}

/// Checks that a parsed datagram can be emitted, and that parsing it returns the same. No packet
/// lengthens by being forwarded.
pub fn ip_datagram(bytes: &[u8]) {
    let mut packet = bytes.to_vec();
    let _ = datagram::forward(&mut packet);
    assert_eq!(packet.len(), bytes.len());
    let Ok(parsed) = IpDatagram::parse(bytes) else { return };
    let mut again = Vec::new();
    // An alert of IPv4 has one value.
    let alert = parsed.alert.map(|value| if parsed.source.is_ipv4() { 0 } else { value });
    let emitted = IpDatagram { alert, ..parsed };
    if emitted.emit(&mut again).is_ok() {
        assert_eq!(IpDatagram::parse(&again).unwrap(), emitted);
    }
}

/// Checks that a parsed segment can be emitted, and that parsing it returns the same segment, as
/// far as its blocks fit beside the options.
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

/// Checks that a parsed head can be emitted, and has the same bytes again.
pub fn sealed_head(bytes: &[u8]) {
    let Ok(head) = SealedHead::parse(bytes) else { return };
    let keys: Vec<_> = head.keys().collect();
    let mut again = Vec::new();
    SealedHead::emit(&keys, head.manifest, &mut again).unwrap();
    assert_eq!(again, bytes);
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. Its
/// first bytes tell its type.
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

/// Checks that a parsed message can be emitted, and that parsing it returns the same message.
pub fn basep_message(bytes: &[u8]) {
    let known = basep::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = basep::Message::parse(bytes) else { return };
    assert!(known.is_some());
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(basep::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a parsed message can be emitted, and that parsing it returns the same message. Its
/// first bytes tell its type. The same holds for the data packets of feeds.
pub fn tmtp_message(bytes: &[u8]) {
    if let Ok(packet) = SmallBlockPacket::parse(bytes) {
        let mut again = vec![0; SmallBlockHeader::LEN];
        packet.header.emit(&mut again).unwrap();
        again.extend_from_slice(packet.symbol);
        assert_eq!(SmallBlockPacket::parse(&again), Ok(packet));
        assert!(SmallBlockPacket::is_one(bytes));
    }
    if let Some((message, stamp)) = tmtp::Stamp::split(bytes) {
        let mut again = message.to_vec();
        stamp.emit(&mut again);
        assert_eq!(again, bytes);
    }
    if let Some((message, stamp)) = tmtp::SignedStamp::split(bytes) {
        assert_eq!(message, tmtp::without_stamp(bytes));
        let mut again = message.to_vec();
        stamp.emit(&mut again);
        assert_eq!(again, bytes);
    }
    let known = tmtp::MessageType::of(bytes);
    let Ok(Parsed::Message { message, .. }) = tmtp::Message::parse(bytes) else { return };
    assert_eq!(known, Some(message.body.message_type()));
    let mut again = Vec::new();
    message.emit(&mut again);
    assert_eq!(tmtp::Message::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
}

/// Checks that a longer part of a stream never changes the result: first nothing, then always the
/// same header or an error.
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
