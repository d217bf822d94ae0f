//! Engines driven by hand: datagrams in, datagrams out.

mod receiver;
mod router;
mod source;

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::pgm::Message;
use umbel_wire::{Channel, Parsed};

use crate::{Address, Allowance, Datagram, Engine, Instant, TransmitBuf};

const SOURCE: &str = "10.0.0.1:7702";
const ROUTER: &str = "10.0.0.2:7702";

fn channel() -> Channel {
    Channel { source: Some([10, 0, 0, 1].into()), group: [232, 0, 0, 7].into(), port: 7702 }
}

fn other_channel() -> Channel {
    Channel { group: [232, 0, 0, 8].into(), ..channel() }
}

fn host(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ms(n: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(n)
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

/// Gives an engine a message that came on the channel.
fn hear(engine: &mut impl Engine, now: Instant, message: &Message<'_>) {
    let by = Address::Channel(channel());
    engine.handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes(message) });
}

/// Gives an engine a message from a host.
fn told(engine: &mut impl Engine, now: Instant, from: &str, message: &Message<'_>) {
    let by = Address::Host(host(from));
    engine.handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes(message) });
}

/// Returns the datagrams that an engine sends, in short: `nak 3 to 10.0.0.2:7702`.
fn sent(engine: &mut impl Engine, now: Instant) -> Vec<String> {
    if engine.poll_timeout().is_some_and(|at| at <= now) {
        engine.handle_timeout(now);
    }
    let mut buf = TransmitBuf::new(Allowance::data(1));
    let mut all = Vec::new();
    while let Some(transmit) = engine.poll_transmit(now, &mut buf) {
        for (head, body) in buf.iter() {
            let message = short(&[head, body].concat());
            all.push(match transmit.to {
                Address::Channel(to) if to == channel() => message,
                Address::Host(to) => format!("{message} to {to}"),
                other => panic!("nothing is sent to {other:?}"),
            });
        }
        buf.reset(Allowance::data(1));
    }
    all
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
