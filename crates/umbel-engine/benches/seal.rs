//! Measures the ciphers that could seal packets, below the erasure code and above it.
//!
//! *Below*: each packet is sealed when it leaves, its header as associated data, its number as
//! nonce. *Above*: each source symbol is sealed before the code, as feeds do, with a keyed hash of
//! its content as nonce. A symbol may be made again from a file that has changed. Run with
//! `cargo bench -p umbel-engine --bench seal`. The result is GB/s of symbols on one core.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use umbel_engine::seal::{Cipher, NONCE_LEN};

const SYMBOL: usize = 1352;
const HEADER: usize = 32;
/// Number of packets that leave at once.
const BATCH: usize = 64;
const TIME: Duration = Duration::from_millis(300);
const REPETITIONS: usize = 5;

/// Prints the best of some repetitions of a batch.
fn measure(name: &str, mut batch: impl FnMut()) {
    let mut best = 0.0_f64;
    for _ in 0..REPETITIONS {
        let (begun, mut batches) = (Clock::now(), 0_u64);
        while begun.elapsed() < TIME {
            batch();
            batches += 1;
        }
        let bytes = batches as f64 * (BATCH * SYMBOL) as f64;
        best = best.max(bytes / begun.elapsed().as_secs_f64());
    }
    println!("{name:<58} {:5.2} GB/s", best / 1e9);
}

fn nonce(number: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

fn main() {
    let symbols: Vec<Vec<u8>> = (0..BATCH).map(|n| vec![n as u8; SYMBOL]).collect();
    let head = [5; HEADER];
    let mut out = Vec::with_capacity(BATCH * (HEADER + SYMBOL + 16));
    let mut number = 0;
    measure("a packet is copied", || {
        out.clear();
        for symbol in &symbols {
            out.extend_from_slice(&head);
            out.extend_from_slice(symbol);
        }
        black_box(&mut out);
    });
    let ciphers: [(&str, &'static Algorithm); 3] = [
        ("AES-128-GCM", &AES_128_GCM),
        ("AES-256-GCM", &AES_256_GCM),
        ("ChaCha20-Poly1305", &CHACHA20_POLY1305),
    ];
    for (name, algorithm) in ciphers {
        let key = &[7; 32][..algorithm.key_len()];
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).expect("a key of its length"));
        measure(&format!("below: {name}, in place"), || {
            out.clear();
            for symbol in &symbols {
                number += 1;
                out.extend_from_slice(&head);
                let start = out.len();
                out.extend_from_slice(symbol);
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(&head), &mut out[start..])
                    .expect("a short message");
                out.extend_from_slice(tag.as_ref());
            }
            black_box(&mut out);
        });
    }
    let cipher = Cipher::aes_256(&[7; 32]);
    measure("above: AES-256-GCM, nonces of keyed BLAKE3", || {
        for symbol in &symbols {
            out.clear();
            let hash = blake3::keyed_hash(&[9; 32], symbol);
            let mut nonce = [0; NONCE_LEN];
            nonce.copy_from_slice(&hash.as_bytes()[..NONCE_LEN]);
            cipher.append_sealed(nonce, &head, symbol, &mut out);
            black_box(&mut out);
        }
    });
    let cipher = Cipher::aes_128(&[7; 16]);
    let sealed: Vec<Vec<u8>> = symbols
        .iter()
        .map(|symbol| {
            let mut sealed = Vec::new();
            cipher.append_sealed(nonce(1), &head, symbol, &mut sealed);
            sealed
        })
        .collect();
    measure("opening: AES-128-GCM, copied and in place", || {
        for sealed in &sealed {
            out.clear();
            out.extend_from_slice(sealed);
            black_box(cipher.open_in_place(nonce(1), &head, &mut out));
        }
    });
}
