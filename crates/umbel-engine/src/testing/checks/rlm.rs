//! Source and receiver of a layered stream.

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::rlm;
use umbel_engine::{Engine, Instant};
use umbel_wire::Tsi;

use super::network::drive;
use super::{data_channel, group, strangers};

/// Checks a receiver of two layers that add to each other, and one of two of which it takes one. A
/// receiver of signed packets takes none of them.
pub fn rlm_receiver(bytes: &[u8]) {
    use umbel_wire::stream::StreamMode;
    for mode in [StreamMode::Cumulative, StreamMode::Independent] {
        rlm_receiver_in(mode, None, bytes);
        let key = rlm::StreamKey { public: KEY, version: 7 };
        rlm_receiver_in(mode, Some(key), bytes);
    }
}

/// The public key of the first test vector [RFC 8032 §7.1].
const KEY: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

fn rlm_receiver_in(
    mode: umbel_wire::stream::StreamMode,
    key: Option<rlm::StreamKey>,
    bytes: &[u8],
) {
    use rlm::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
    let channels = umbel_wire::rlm::channels(data_channel(), 2).unwrap();
    let mut config = ReceiverConfig::new(Tsi(7), 9, channels);
    config.mode = mode;
    config.control = Some(group());
    config.key = key;
    config.held.object_bytes = 100_000;
    let mut engine = Receiver::new(config, generator(1)).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    engine.handle_command(start, ReceiverCommand::Join).unwrap();
    drive(&mut engine, start, bytes, &strangers(), |_, _, event| {
        let is_content = matches!(event, ReceiverEvent::Unit { .. } | ReceiverEvent::Object { .. });
        assert!(key.is_none() || !is_content, "{event:?}");
    });
}

/// Checks the source of a layer with repairs, and of one with objects.
pub fn rlm_source(bytes: &[u8]) {
    use rlm::{Source, SourceCommand, SourceConfig};
    let mut config = SourceConfig::new(Tsi(7), data_channel(), 2);
    config.control = Some(group());
    config.layers[0].fec =
        Some(umbel_wire::stream::LayerFec { source_symbols: 4, repair_symbols: 2 });
    let mut engine = Source::new(config).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    let body = Bytes::from_static(b"unit");
    engine.handle_command(start, SourceCommand::Unit { layer: 0, body: body.clone() }).unwrap();
    let name = "object".to_owned();
    engine.handle_command(start, SourceCommand::Object { layer: 1, name, body }).unwrap();
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}
