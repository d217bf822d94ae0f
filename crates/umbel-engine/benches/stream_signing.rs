//! Measures what it costs to sign the packets of a stream, and to verify them: all that the engines
//! of its two ends do for a packet, with and without signatures.
//!
//! Packets have 1,400 bytes of UDP payload, as on Ethernet. Times are of the processor that the
//! thread has had, so that a busy machine changes them little. Run with `cargo bench -p
//! umbel-engine --bench stream_signing`. The result is the share of one core at a rate of UDP
//! payload.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair};
use umbel_engine::chance::generator;
use umbel_engine::rlm::{
    Receiver, ReceiverCommand, ReceiverConfig, Signing, Source, SourceCommand, SourceConfig,
    StreamKey,
};
use umbel_engine::{Address, Allowance, Datagram, Engine, Instant, TransmitBuf};
use umbel_seeds::timed;
use umbel_wire::rlm::{SignedHeader, channels};
use umbel_wire::{Channel, SmallBlockHeader, Tsi};

/// Bytes of UDP payload of a packet.
const PACKET: usize = 1_400;
const PACKETS: u32 = 2_000;
const REPETITIONS: usize = 5;
const VERSION: u64 = 1;
const TSI: Tsi = Tsi(7);

fn keys() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn base() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 0, 0, 1].into(), port: 7704 }
}

fn at(number: u32) -> Instant {
    Instant::EPOCH + Duration::from_millis(1) * number
}

/// Sends everything. Returns the processor time, and the datagrams.
fn send(signed: bool) -> (f64, Vec<Vec<u8>>) {
    let mut source = Source::new(SourceConfig::new(TSI, base(), 1)).unwrap();
    let mut header = SmallBlockHeader::LEN;
    if signed {
        let keys = keys();
        let sign = move |message: &[u8]| keys.sign(message).as_ref().try_into().unwrap();
        source = source.signed(Signing::new(Box::new(sign), VERSION));
        header = SignedHeader::LEN;
    }
    let body = Bytes::from(vec![3; PACKET - header]);
    timed(|| {
        let mut sent = Vec::new();
        for number in 0..PACKETS {
            let unit = SourceCommand::Unit { layer: 0, body: body.clone() };
            source.handle_command(at(number), unit).unwrap();
            let mut buf = TransmitBuf::new(Allowance::of_each(1));
            source.poll_transmit(at(number), &mut buf).unwrap();
            sent.extend(buf.messages().map(|datagram| datagram.to_vec()));
        }
        sent
    })
}

/// Receives everything. Returns the processor time.
fn receive(sent: &[Vec<u8>], key: Option<StreamKey>) -> f64 {
    let mut config = ReceiverConfig::new(TSI, 1, channels(base(), 1).unwrap());
    config.key = key;
    let mut receiver = Receiver::new(config, generator(1)).unwrap();
    receiver.handle_command(at(0), ReceiverCommand::Join).unwrap();
    let (time, units) = timed(|| {
        let mut units = 0;
        for (number, payload) in (0..).zip(sent) {
            let by = Address::Channel(base());
            receiver.handle_datagram(at(number), Datagram { by, hop_limit: None, payload });
            while let Some(event) = receiver.poll_event() {
                units += u32::from(matches!(event, umbel_engine::rlm::ReceiverEvent::Unit { .. }));
            }
        }
        units
    });
    assert_eq!(units, PACKETS);
    time
}

fn main() {
    let key =
        StreamKey { public: keys().public_key().as_ref().try_into().unwrap(), version: VERSION };
    let mut best = [f64::INFINITY; 4];
    for _ in 0..REPETITIONS {
        let (plain_time, plain) = send(false);
        let (signed_time, signed) = send(true);
        let times = [plain_time, signed_time, receive(&plain, None), receive(&signed, Some(key))];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time / f64::from(PACKETS));
        }
    }
    for (what, time) in
        ["source", "source that signs", "receiver", "receiver that verifies"].iter().zip(best)
    {
        let share = |bits_per_s: f64| bits_per_s / (PACKET as f64 * 8.0) * time * 100.0;
        println!(
            "{what:<24} {:6.2} µs a packet: {:5.2} % of a core at 8 Mbit/s, {:5.1} % at 100 Mbit/s",
            time * 1e6,
            share(8e6),
            share(100e6),
        );
    }
    let added = SignedHeader::LEN - SmallBlockHeader::LEN;
    println!("{added} bytes a packet: {:.2} % of a full one", added as f64 / PACKET as f64 * 100.0);
}
