//! Engines driven by scripts.

mod hostile;
mod receiver;
mod router;
mod source;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_wire::lms::{Message, Request, TurningPoint, UnitSet};
use umbel_wire::{Channel, Parsed, Tsi};

use crate::{Address, Allowance, Datagram, Engine, Instant, Transmit, TransmitBuf};

const TSI: Tsi = Tsi(7);

fn ms(n: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(n)
}

/// Returns a host by its number; the source is number 1.
fn host(n: u8) -> SocketAddr {
    ([10, 0, 0, n], 7702).into()
}

fn channel() -> Channel {
    let group = IpAddr::from([232, 0, 0, 1]);
    Channel { source: Some(host(1).ip()), group, port: 7702 }
}

/// Returns the first request for a unit.
fn request(sequence: u64) -> Request {
    Request {
        channel: channel(),
        tsi: TSI,
        units: UnitSet::one(sequence),
        number: 1,
        requestor: None,
        turning_point: None,
        replier_failed: false,
        unicast_reply: false,
        hops: 0,
    }
}

fn turning_point(interface: u32) -> TurningPoint {
    TurningPoint { router: host(200), interface, tag: 5 }
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn parse(bytes: &[u8]) -> Message<'_> {
    match Message::parse(bytes).unwrap() {
        Parsed::Message { message, skipped: 0 } => message,
        other => panic!("{other:?}"),
    }
}

fn give<E: Engine>(engine: &mut E, at: Instant, by: Address, message: &Message<'_>) {
    engine.handle_datagram(at, Datagram { by, hop_limit: None, payload: &bytes(message) });
}

/// Returns everything that an engine sends, units of data included.
fn sent<E: Engine>(engine: &mut E, at: Instant) -> Vec<(Address, Vec<u8>)> {
    let mut all = Vec::new();
    let mut buf = TransmitBuf::new(Allowance::data(1));
    while let Some(Transmit { to, .. }) = engine.poll_transmit(at, &mut buf) {
        all.extend(buf.iter().map(|(head, body)| (to, [head, body].concat())));
        buf.reset(Allowance::data(1));
    }
    all
}
