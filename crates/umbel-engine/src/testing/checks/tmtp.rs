//! Source and receiver of a feed.

use std::time::Duration;

use umbel_engine::chance::generator;
use umbel_engine::tmtp;
use umbel_engine::{Address, Engine, Instant};
use umbel_wire::feed::Recovery;
use umbel_wire::{Channel, Tsi};

use super::network::{Side, converse, drive};
use super::{Nowhere, SYMBOL, Zeros, data_channel, group, rate, strangers};

/// Checks the source of a feed behind the stamps of its messages, with each recovery.
pub fn tmtp_source(bytes: &[u8]) {
    for recovery in Recovery::ALL {
        tmtp_source_with(recovery, bytes);
    }
}

fn tmtp_source_with(recovery: Recovery, bytes: &[u8]) {
    use tmtp::{BlockCount, Draws, NodeConfig, Source, SourceCommand, SourceConfig};
    let node = NodeConfig { recovery, ..node(1) };
    let mut engine =
        Source::new(SourceConfig::new(node, shape(), rate()), Draws::from_seed(1), Zeros);
    let start = Instant::from_nanos(1_000_000_000);
    let blocks = BlockCount { count: 5, symbols: 4 };
    for command in [SourceCommand::Start, SourceCommand::Extend(vec![blocks])] {
        let _ = engine.handle_command(start, command);
    }
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// Checks a receiver behind the stamps of messages, which wants a feed and may become a manager or a
/// helper.
pub fn tmtp_receiver(bytes: &[u8]) {
    for recovery in Recovery::ALL {
        tmtp_receiver_with(recovery, bytes);
    }
}

fn tmtp_receiver_with(recovery: Recovery, bytes: &[u8]) {
    use tmtp::{Draws, NodeConfig, Receiver, ReceiverCommand, ReceiverConfig};
    let node = NodeConfig { recovery, ..node(2) };
    let config = ReceiverConfig::new(node, shape());
    let mut engine = Receiver::new(config, Draws::from_seed(1), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    for command in [ReceiverCommand::Join, ReceiverCommand::Want { from: 0, skip: Vec::new() }] {
        let _ = engine.handle_command(start, command);
    }
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// Checks the source of a feed with a token and a list, and a receiver, in a network that the input
/// rules.
pub fn tmtp_closed(bytes: &[u8]) {
    symbols_of_closed_feed(bytes);
}

/// Returns the number of symbols that the receiver of [`tmtp_closed`] took.
pub fn symbols_of_closed_feed(bytes: &[u8]) -> usize {
    use tmtp::{Authentication, List, NodeConfig};
    let secret = [5; 32];
    let has = List::Has { tree: [6; 32], receivers: vec![secret, [7; 32]] };
    let [source, receiver] = [(1, has), (2, List::On(secret))].map(|(number, list)| {
        let authentication = Authentication::List { list, token: Some([4; 32]) };
        NodeConfig { authentication, ..node(number) }
    });
    symbols(bytes, (source, receiver), shape())
}

/// Checks the source of an open feed, and a receiver, in a network that the
/// input rules.
pub fn tmtp_keyed(bytes: &[u8]) {
    symbols_of_keyed_feed(bytes);
}

/// Returns the number of symbols that the receiver of [`tmtp_keyed`] took.
pub fn symbols_of_keyed_feed(bytes: &[u8]) -> usize {
    use tmtp::{Authentication, NodeConfig, Shape};
    let [source, receiver] = [1, 2].map(|number| {
        let seed = [number; 32];
        let (id, authentication) = (tmtp::node_id(Tsi(1), &seed), Authentication::Keys(seed));
        NodeConfig { id, authentication, ..node(number) }
    });
    let shape = Shape { id: source.id, ..shape() };
    symbols(bytes, (source, receiver), shape)
}

/// Returns the number of symbols that a receiver took in a network that the input rules.
fn symbols(
    bytes: &[u8],
    (source, receiver): (tmtp::NodeConfig, tmtp::NodeConfig),
    shape: tmtp::Shape,
) -> usize {
    use tmtp::{BlockCount, Draws, Receiver, ReceiverCommand, ReceiverConfig};
    use tmtp::{Source, SourceCommand, SourceConfig};
    let addresses = [source.address, receiver.address];
    let mut source =
        Source::new(SourceConfig::new(source, shape, rate()), Draws::from_seed(1), Zeros);
    let config = ReceiverConfig::new(receiver, shape);
    let mut receiver = Receiver::new(config, Draws::from_seed(2), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    let blocks = BlockCount { count: 5, symbols: 4 };
    for command in [SourceCommand::Start, SourceCommand::Extend(vec![blocks])] {
        let _ = source.handle_command(start, command);
    }
    for command in [ReceiverCommand::Join, ReceiverCommand::Want { from: 0, skip: Vec::new() }] {
        let _ = receiver.handle_command(start, command);
    }
    let by = |from: Side, to| {
        let from = addresses[from as usize];
        match to {
            Address::Channel(channel) if channel == group() => {
                Some(Address::Channel(Channel { source: Some(from.ip()), ..channel }))
            }
            Address::Channel(_) => Some(to),
            Address::Host(host) if host != from && addresses.contains(&host) => {
                Some(Address::Host(from))
            }
            _ => None,
        }
    };
    converse(&mut source, &mut receiver, start, bytes, by, |_, _, _| {});
    receiver.sink_mut().0.len()
}

/// Returns a node of the feed that the seeds of the corpora belong to. They have no stamps, so that
/// an input gets behind these.
fn node(number: u8) -> tmtp::NodeConfig {
    let address = ([192, 0, 2, number], 7703).into();
    let domain = group();
    let id = tmtp::NodeId(u64::from(number));
    let channels = (data_channel(), domain);
    tmtp::NodeConfig::new(id, Tsi(1), channels, address, tmtp::Authentication::Paper)
}

fn shape() -> tmtp::Shape {
    tmtp::Shape {
        id: tmtp::NodeId(1),
        source: ([192, 0, 2, 1], 7703).into(),
        symbol_len: SYMBOL,
        block_symbols: 4,
        fec: true,
        manifest: None,
    }
}
