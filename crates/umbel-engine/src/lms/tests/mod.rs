//! Single engines driven by scripts, whose exact output is asserted; each is [`Tested`]. In
//! [`world`] the three kinds meet. [`hostile`] gives them arbitrary input, of which they may drop
//! anything.

mod hostile;
mod receiver;
mod router;
mod source;
mod world;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_wire::lms::{Message, Request, TurningPoint, UnitSet};
use umbel_wire::{Channel, Parsed, Tsi};

use crate::testing::{self, Tested, channel, events, host, ms, sent};
use crate::{Address, Engine, Instant};

const TSI: Tsi = Tsi(7);

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
    testing::give(engine, at, by, &bytes(message));
}
