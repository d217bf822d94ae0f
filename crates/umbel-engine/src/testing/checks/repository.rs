//! Server and client of a repository.

use std::net::Ipv4Addr;
use std::time::Duration;

use umbel_engine::chance::generator;
use umbel_engine::repository;
use umbel_engine::symbols::SymbolSource;
use umbel_engine::{Address, Engine, Instant, SessionId};
use umbel_wire::repository::{GroupSecret, ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi, Tsi};

use super::network::{Side, converse, drive};
use super::{Nowhere, SYMBOL, Zeros, data_channel, rate};

/// Checks a server of one item, and two clients that may send anything.
pub fn repository_server(bytes: &[u8]) {
    use repository::{Source, SourceCommand, SourceConfig};
    let config = SourceConfig::new(Tsi(77), data_channel(), rate());
    let mut engine = Source::new(config, generator(0), Zeros);
    let start = Instant::from_nanos(1_000_000_000);
    for session in [SessionId(0), SessionId(1)] {
        let opened = SourceCommand::SessionOpened {
            session,
            remote: Ipv4Addr::LOCALHOST.into(),
            rtt: Duration::from_millis(10),
        };
        engine.handle_command(start, opened).unwrap();
    }
    let senders = [0, 1, 2].map(|session| Address::Session(SessionId(session)));
    drive(&mut engine, start, bytes, &senders, answer_client);
}

/// Does what a machine around a server of one item does.
fn answer_client<S: SymbolSource>(
    engine: &mut repository::Source<S>,
    now: Instant,
    event: repository::SourceEvent,
) {
    use repository::{SourceCommand, SourceEvent};
    let page = |session, query, wanted| SourceCommand::Page {
        session,
        query,
        items: vec![item()],
        total: 1,
        next: None,
        wanted,
    };
    let answer = match event {
        SourceEvent::List { session, query, .. } => page(session, query, false),
        SourceEvent::Request { session, query, .. } => page(session, query, true),
        SourceEvent::Lookup { session, toi, need } => match item() {
            ItemInfo { toi: known, oti, .. } if known == toi => {
                SourceCommand::Want { session, toi, oti, need }
            }
            _ => SourceCommand::NoSuchItem { session, toi },
        },
        SourceEvent::DrawSecret => SourceCommand::Secret(GroupSecret([9; 32])),
        _ => return,
    };
    let _ = engine.handle_command(now, answer);
}

/// Checks a client that has asked for an item.
pub fn repository_client(bytes: &[u8]) {
    use repository::{Receiver, ReceiverConfig};
    let mut engine = Receiver::new(ReceiverConfig::default(), generator(0), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    for command in requests() {
        let _ = engine.handle_command(start, command);
    }
    let channel = Address::Channel(data_channel());
    let senders = [Address::Session(SessionId(0)), channel, Address::Session(SessionId(9))];
    drive(&mut engine, start, bytes, &senders, |_, _, _| {});
}

/// Returns the commands to a client: a session, a request, and an item to accept.
fn requests() -> [repository::ReceiverCommand; 3] {
    use repository::ReceiverCommand;
    [
        ReceiverCommand::Connected { session: SessionId(0) },
        ReceiverCommand::Request { query: 1, patterns: vec!["*".to_owned()], hold: false },
        ReceiverCommand::Accept {
            toi: Toi(2),
            oti: item().oti,
            held: repository::receiver::Held::default(),
            requested: true,
        },
    ]
}

/// Checks a server that seals, and a client, in a network that the input rules.
pub fn repository_sealed(bytes: &[u8]) {
    symbols_of_sealed_repository(bytes);
}

/// Returns the number of symbols that the client of [`repository_sealed`] took.
pub fn symbols_of_sealed_repository(bytes: &[u8]) -> usize {
    use repository::{Receiver, ReceiverConfig, Source, SourceCommand, SourceConfig};
    let seal = repository::SealConfig {
        change_every: Duration::from_millis(200),
        change_gap: Duration::from_millis(100),
        ..repository::SealConfig::new(GroupSecret([255; 32]))
    };
    let config = SourceConfig {
        seal: Some(seal),
        token: Some("token".to_owned().into()),
        ..SourceConfig::new(Tsi(77), data_channel(), rate())
    };
    let client =
        ReceiverConfig { token: Some("token".to_owned().into()), ..ReceiverConfig::default() };
    let mut server = Source::new(config, generator(0), Zeros);
    let mut client = Receiver::new(client, generator(0), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    let session = SessionId(0);
    let opened = SourceCommand::SessionOpened {
        session,
        remote: Ipv4Addr::LOCALHOST.into(),
        rtt: Duration::from_millis(10),
    };
    server.handle_command(start, opened).unwrap();
    for command in requests() {
        let _ = client.handle_command(start, command);
    }
    let by = |_: Side, to| match to {
        Address::Session(_) => Some(Address::Session(session)),
        Address::Channel(channel) if channel == data_channel() => Some(to),
        _ => None,
    };
    converse(&mut server, &mut client, start, bytes, by, answer_client);
    client.sink_mut().0.len()
}

/// Returns the item that is served.
fn item() -> ItemInfo {
    ItemInfo {
        toi: Toi(2),
        name: "a".to_owned(),
        digest: Digest([1; 32]),
        modified_ns: None,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: String::new(),
        oti: Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 20 * u64::from(SYMBOL),
            symbol_len: SYMBOL,
            max_block_symbols: 4,
            max_encoding_symbols: 255,
        },
    }
}
