//! Source and receiver of a layered stream.

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::rlm;
use umbel_engine::{Engine, Instant};
use umbel_wire::Tsi;

use super::network::drive;
use super::{data_channel, group, strangers};

/// Checks a receiver of two layers that add to each other, and one of two of which it takes one.
pub fn rlm_receiver(bytes: &[u8]) {
    use umbel_wire::stream::StreamMode;
    for mode in [StreamMode::Cumulative, StreamMode::Independent] {
        rlm_receiver_in(mode, bytes);
    }
}

fn rlm_receiver_in(mode: umbel_wire::stream::StreamMode, bytes: &[u8]) {
    use rlm::{Receiver, ReceiverCommand, ReceiverConfig};
    let channels = umbel_wire::rlm::channels(data_channel(), 2).unwrap();
    let mut config = ReceiverConfig::new(Tsi(7), 9, channels);
    config.mode = mode;
    config.control = Some(group());
    config.held.object_bytes = 100_000;
    let mut engine = Receiver::new(config, generator(1)).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    engine.handle_command(start, ReceiverCommand::Join).unwrap();
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
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
