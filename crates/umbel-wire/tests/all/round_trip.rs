//! Emitting and parsing any packet or message returns the same one, and no input makes a parser
//! panic.

use proptest::prelude::*;
use umbel_wire::control::{self, FrameHeader};
use umbel_wire::lms::Message as Lms;
use umbel_wire::repository::{ClientMessage, ItemInfo, ItemKind, Need, ServerMessage};
use umbel_wire::{DataHeader, DataPacket, Parsed};

use crate::frames::{fit_header, with_unknown_field};
use crate::strategies;

fn client_bytes(message: &ClientMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn server_bytes(message: &ServerMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

/// Parses with every parser and ignores the results.
fn parse_as_everything(bytes: &[u8]) {
    let _ = DataPacket::parse(bytes);
    let _ = control::peek(bytes);
    let _ = ClientMessage::parse(bytes);
    let _ = ServerMessage::parse(bytes);
    let _ = Lms::parse(bytes);
}

/// Payload of the generated messages: itself the frame of a repair, without fields.
const UNIT: &[u8] = b"Um\x01\x63\0\0\0\x00";

fn lms_bytes(message: &Lms<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn data_packets_come_back(header in strategies::data_headers(), symbol: Vec<u8>) {
        let packet = [&header.emit().unwrap(), &symbol[..]].concat();
        prop_assert_eq!(DataPacket::parse(&packet), Ok(DataPacket { header, symbol: &symbol }));
        for cut in 0..DataHeader::LEN {
            prop_assert!(DataPacket::parse(&packet[..cut]).is_err());
        }
    }

    #[test]
    fn client_messages_come_back(message in strategies::client_messages(), field in 64_u16..) {
        let bytes = client_bytes(&message);
        let parsed = ClientMessage::parse(&bytes);
        prop_assert_eq!(parsed, Ok(Parsed::Message { message: message.clone(), skipped: 0 }));
        let newer = with_unknown_field(bytes.clone(), field);
        prop_assert_eq!(ClientMessage::parse(&newer), Ok(Parsed::Message { message, skipped: 1 }));
        prop_assert_eq!(ServerMessage::parse(&bytes), Ok(Parsed::UnknownType(bytes[3])));
    }

    #[test]
    fn server_messages_come_back(message in strategies::server_messages(), field in 64_u16..) {
        let bytes = server_bytes(&message);
        let parsed = ServerMessage::parse(&bytes);
        prop_assert_eq!(parsed, Ok(Parsed::Message { message: message.clone(), skipped: 0 }));
        let newer = with_unknown_field(bytes.clone(), field);
        prop_assert_eq!(ServerMessage::parse(&newer), Ok(Parsed::Message { message, skipped: 1 }));
        prop_assert_eq!(ClientMessage::parse(&bytes), Ok(Parsed::UnknownType(bytes[3])));
    }

    #[test]
    fn lms_messages_come_back(message in strategies::lms_messages(UNIT), field in 64_u16..) {
        let bytes = lms_bytes(&message);
        prop_assert_eq!(Lms::parse(&bytes), Ok(Parsed::Message { message, skipped: 0 }));
        let newer = with_unknown_field(bytes.clone(), field);
        prop_assert_eq!(Lms::parse(&newer), Ok(Parsed::Message { message, skipped: 1 }));
        for cut in 0..bytes.len() {
            prop_assert!(Lms::parse(&bytes[..cut]).is_err());
        }
        for other in [ClientMessage::parse(&bytes).map(|_| ()), ServerMessage::parse(&bytes).map(|_| ())] {
            prop_assert_eq!(other, Ok(()), "of a type that others do not know");
        }
    }

    #[test]
    fn altered_lms_messages_never_panic_and_what_they_mean_comes_back(
        message in strategies::lms_messages(UNIT),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = lms_bytes(&message);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(Parsed::Message { message, .. }) = Lms::parse(&bytes) {
            let again = lms_bytes(&message);
            prop_assert_eq!(Lms::parse(&again), Ok(Parsed::Message { message, skipped: 0 }));
        }
        let mut bytes = lms_bytes(&message);
        bytes.truncate(cut.index(bytes.len()).max(FrameHeader::LEN));
        fit_header(&mut bytes);
        parse_as_everything(&bytes);
    }

    #[test]
    fn a_cut_message_is_an_error_at_every_byte(
        client in strategies::client_messages(),
        server in strategies::server_messages(),
    ) {
        let (client, server) = (client_bytes(&client), server_bytes(&server));
        for cut in (0..client.len()).take(300) {
            prop_assert!(ClientMessage::parse(&client[..cut]).is_err());
        }
        for cut in (0..server.len()).take(300) {
            prop_assert!(ServerMessage::parse(&server[..cut]).is_err());
        }
    }

    /// The header is adjusted to the cut, so that the cut reaches the fields.
    #[test]
    fn a_cut_body_never_panics(
        client in strategies::client_messages(),
        server in strategies::server_messages(),
    ) {
        for frame in [client_bytes(&client), server_bytes(&server)] {
            for cut in (FrameHeader::LEN..frame.len()).take(300) {
                let mut frame = frame[..cut].to_vec();
                fit_header(&mut frame);
                parse_as_everything(&frame);
            }
        }
    }

    #[test]
    fn altered_messages_never_panic_and_what_they_mean_comes_back(
        server in strategies::server_messages(),
        client in strategies::client_messages(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (mut server, mut client) = (server_bytes(&server), client_bytes(&client));
        for (at, byte) in changes {
            let (server_at, client_at) = (at.index(server.len()), at.index(client.len()));
            server[server_at] = byte;
            client[client_at] = byte;
        }
        if let Ok(Parsed::Message { message, .. }) = ServerMessage::parse(&server) {
            let again = ServerMessage::parse(&server_bytes(&message)).unwrap();
            prop_assert_eq!(again, Parsed::Message { message, skipped: 0 });
        }
        if let Ok(Parsed::Message { message, .. }) = ClientMessage::parse(&client) {
            let again = ClientMessage::parse(&client_bytes(&message)).unwrap();
            prop_assert_eq!(again, Parsed::Message { message, skipped: 0 });
        }
        parse_as_everything(&server);
        parse_as_everything(&client);
    }

    #[test]
    fn noise_never_panics(mut noise: Vec<u8>) {
        parse_as_everything(&noise);
        for start in [&b"\x14\xA0"[..], b"\x1C\xF0", b"\x10\x90", b"Um\x01", b"Um\x01\x64"] {
            let len = start.len().min(noise.len());
            noise[..len].copy_from_slice(&start[..len]);
            parse_as_everything(&noise);
        }
    }

    #[test]
    fn peek_tells_the_length_of_the_frame(
        message in strategies::client_messages(),
        behind: Vec<u8>,
    ) {
        let frame = client_bytes(&message);
        let stream = [&frame[..], &behind].concat();
        let header = control::peek(&stream).unwrap().unwrap();
        prop_assert_eq!(header.frame_len(), frame.len());
    }

    #[test]
    fn an_item_takes_no_more_than_it_says(item in strategies::items()) {
        let len = |items| {
            let page = ServerMessage::Page { query: 0, items, total: 0, next: None };
            server_bytes(&page).len()
        };
        let most = item.max_wire_len();
        prop_assert!(len(vec![item]) - len(vec![]) <= most);
    }
}

proptest! {
    #[test]
    fn only_files_are_sent(item in strategies::items()) {
        let nothing = Need::Symbols(Vec::new());
        if item.kind.is_file() {
            let has_data = item.oti.object_len > 0 && item.holes.is_none();
            prop_assert!(!has_data || item.need() == Need::Whole && !item.data_blocks().is_empty());
        } else {
            prop_assert!(item.need() == nothing && item.data_blocks().is_empty());
        }
    }
}

#[test]
fn twenty_thousand_items_take_less_than_two_megabytes() {
    let items: Vec<ItemInfo> = (0..20_000_u32)
        .map(|n| ItemInfo {
            toi: umbel_wire::Toi(n),
            name: format!("images/2024/holiday-{n:05}.jpg"),
            digest: umbel_wire::Digest([n as u8 | 1; 32]),
            modified_ns: Some(1_700_000_000_000_000_000 + i64::from(n) * 1_234_567_891),
            mode: None,
            kind: ItemKind::File,
            holes: None,
            media_type: "image/jpeg".to_owned(),
            oti: umbel_wire::Oti {
                scheme: umbel_wire::Scheme::ReedSolomon,
                object_len: u64::from(n) * 97,
                symbol_len: 1376,
                max_block_symbols: 128,
                max_encoding_symbols: 255,
            },
        })
        .collect();
    let mut bytes = Vec::new();
    for page in items.chunks(4096) {
        let items = page.to_vec();
        ServerMessage::Page { query: 1, items, total: 20_000, next: None }.emit(&mut bytes);
    }
    assert!(bytes.len() < 1_700_000, "{}", bytes.len());
}
