//! Measures what it costs to sign and to verify a pipe: all that its two ends do for a byte, with
//! and without signatures.
//!
//! Blocks have 64 symbols of 1,444 bytes, of which 16 are a run. Times are of the processor that
//! the thread has had, so that a busy machine changes them little. Run with `cargo bench -p
//! umbel-store --bench pipe`. The result is the share of one core at 1 Gbit/s.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::io::Read;

use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair};
use umbel_engine::Sign;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp::FEED;
use umbel_seeds::timed;
use umbel_store::feed::{BlockShape, PipeId, pipe, pipe_sink};
use umbel_wire::Tsi;

const SHAPE: BlockShape = BlockShape { symbol_len: 1_444, block_symbols: 64, sealed: false };
const PIPE: PipeId = PipeId { feed: Tsi(7), version: 1 };
/// Bytes that are sent in a repetition.
const CONTENT: usize = 64 << 20;
const REPETITIONS: usize = 5;
/// Bytes a second at 1 Gbit/s.
const RATE: f64 = 125e6;
/// Memory of either end, for all of it.
const MEMORY: usize = 2 * CONTENT;

/// Symbols of all blocks.
type Sent = Vec<Vec<Bytes>>;

/// Cuts, signs and passes on everything. Returns the processor time, and the blocks.
fn send(content: &[u8], sign: Sign) -> (f64, Sent) {
    let (mut writer, mut feed) = pipe(PIPE, SHAPE, MEMORY, None, sign).unwrap();
    let (time, blocks) = timed(|| {
        let (mut input, mut blocks) = (content, Vec::new());
        while writer.read_from(&mut input.by_ref().take(64 << 10)).unwrap() > 0 {
            if writer.is_full() && writer.cut() {
                writer.sign(|symbols| blocks.push(symbols));
            }
        }
        writer.end(None, |symbols| blocks.push(symbols));
        blocks
    });
    let mut symbol = |sbn: u32, esi: u8| match feed.symbol(BlockId { toi: FEED, sbn }, esi.into()) {
        Load::Ready(symbol) => symbol,
        other => panic!("{other:?}"),
    };
    let sent = (0..).zip(blocks).map(|(sbn, k)| (0..k).map(|esi| symbol(sbn, esi)).collect());
    (time, sent.collect())
}

/// Takes, verifies and reads everything. Returns the processor time.
fn receive(sent: &Sent, public: [u8; 32]) -> f64 {
    let (mut sink, mut reader) = pipe_sink((PIPE, public), SHAPE, MEMORY, None, |_| {}).unwrap();
    sink.begin(0);
    let (time, len) = timed(|| {
        for (sbn, symbols) in (0..).zip(sent) {
            let block = BlockId { toi: FEED, sbn };
            for (esi, symbol) in (0..).zip(symbols) {
                assert!(sink.store(block, esi, symbol));
            }
            sink.restore(block);
        }
        let mut len = 0;
        while let Some(bytes) = reader.read() {
            len += bytes.len();
        }
        len
    });
    assert_eq!(len, CONTENT);
    time
}

fn main() {
    let content: Vec<u8> = (0..CONTENT).map(|n| (n ^ (n >> 8)) as u8).collect();
    let keys = || Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let public: [u8; 32] = keys().public_key().as_ref().try_into().unwrap();
    let signing = || -> Sign {
        let keys = keys();
        Box::new(move |run| keys.sign(run).as_ref().try_into().unwrap())
    };
    let best =
        |step: &dyn Fn() -> f64| (0..REPETITIONS).map(|_| step()).fold(f64::INFINITY, f64::min);
    let show = |name: &str, time: f64| {
        println!("{name:<52} {:5.2} % of a core", 100.0 * time / CONTENT as f64 * RATE);
    };
    show(
        "cut into blocks, with digests, not signed",
        best(&|| send(&content, Box::new(|_| [0; 64])).0),
    );
    show("cut into blocks, with digests, signed", best(&|| send(&content, signing()).0));
    let (_, sent) = send(&content, signing());
    show("received and verified", best(&|| receive(&sent, public)));
    let run = vec![5; 600];
    let (time, ()) = timed(|| {
        let sign = signing();
        (0..1_000).for_each(|_| _ = black_box(sign(black_box(&run))));
    });
    println!("{:<52} {:5.0} µs", "one signature", time * 1e3);
    let signature = keys().sign(&run);
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public);
    let (time, ()) = timed(|| {
        (0..1_000).for_each(|_| key.verify(black_box(&run), signature.as_ref()).unwrap());
    });
    println!("{:<52} {:5.0} µs", "one verification", time * 1e3);
    let bytes = 16 * usize::from(SHAPE.symbol_len) * usize::from(SHAPE.block_symbols);
    println!("{:<52} {:5.1} ms", "a run at 1 Gbit/s", bytes as f64 / RATE * 1e3);
}
