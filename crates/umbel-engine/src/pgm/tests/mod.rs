//! Single engines driven by scripts, whose exact output is asserted; each is [`Tested`]. In
//! [`world`] the three kinds meet.

mod receiver;
mod router;
mod source;
mod world;

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Parsed;
use umbel_wire::pgm::Message;

use crate::testing::{self, Tested, channel, ms, other_channel, sent_by};
use crate::{Address, Engine, Instant};

const SOURCE: &str = "10.0.0.1:7702";
const ROUTER: &str = "10.0.0.2:7702";

fn host(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit(&mut out);
    out
}

fn odata(sequence: u64) -> Message<'static> {
    Message::Odata { sequence, trail: 0, payload: b"unit" }
}

fn rdata(sequence: u64) -> Message<'static> {
    Message::Rdata { channel: None, sequence, trail: 0, payload: b"unit" }
}

fn nak(sequence: u64) -> Message<'static> {
    Message::Nak { channel: channel(), sequence }
}

fn ncf(sequence: u64) -> Message<'static> {
    Message::Ncf { channel: None, sequence }
}

fn spm(number: u64, next: u64) -> Message<'static> {
    Message::Spm { number, trail: 0, next, path: host(ROUTER) }
}

/// Passes a message that came on the channel to an engine.
fn hear(engine: &mut impl Engine, now: Instant, message: &Message<'_>) {
    testing::give(engine, now, Address::Channel(channel()), &bytes(message));
}

/// Passes a message from a host to an engine.
fn told(engine: &mut impl Engine, now: Instant, from: &str, message: &Message<'_>) {
    testing::give(engine, now, Address::Host(host(from)), &bytes(message));
}

/// Returns the datagrams that an engine sends, in short: `nak 3 to 10.0.0.2:7702`.
fn sent(engine: &mut impl Engine, now: Instant) -> Vec<String> {
    let line = |(to, bytes): (Address, Vec<u8>)| match to {
        Address::Channel(to) if to == channel() => short(&bytes),
        Address::Host(to) => format!("{} to {to}", short(&bytes)),
        other => panic!("nothing is sent to {other:?}"),
    };
    sent_by(engine, now).into_iter().map(line).collect()
}

fn short(datagram: &[u8]) -> String {
    let Ok(Parsed::Message { message, skipped: 0 }) = Message::parse(datagram) else {
        panic!("{datagram:?} is no message")
    };
    match message {
        Message::Spm { trail, next, path, .. } => format!("spm {trail}..{next} by {path}"),
        Message::Odata { sequence, .. } => format!("odata {sequence}"),
        Message::Rdata { sequence, .. } => format!("rdata {sequence}"),
        Message::Nak { sequence, .. } => format!("nak {sequence}"),
        Message::Ncf { sequence, .. } => format!("ncf {sequence}"),
    }
}
