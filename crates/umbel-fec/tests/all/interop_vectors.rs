//! Repair symbols of other implementations, recorded as FNV-1a digests.
//!
//! - NORM: `NormEncoderRS8` of Debian's libnorm 1.5.9, the codec that NORM uses with FEC Encoding
//!   ID 5. `pgm_rs_encode` of OpenPGM (revision cf6cebe) returned the same for the vectors that
//!   were tested.
//! - The crate `flute` 1.11.7: all symbols of a small object.
//!   `bench/peers/flute-copy/tests/codes.rs` runs the crate itself against our code.
//! - nanorq, a RaptorQ codec in C (revision b622dfa), with T = 16, Z = N = Al = 1.
//!
//! `docs/concepts/codes.md` says how they were made.

use umbel_fec::{Code, Partition, Points};
use umbel_wire::{Oti, Scheme};

/// Returns the source block of all vectors.
fn source(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Returns the 64-bit FNV-1a digest.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn repair(code: Code, k: u32, count: u32, symbol_len: usize) -> Vec<u8> {
    let mut out = vec![0; count as usize * symbol_len];
    code.encode(k, symbol_len, &source(k as usize * symbol_len), k..k + count, &mut out).unwrap();
    out
}

/// k, repair symbols, bytes of each, digest of all of them.
const NORM: [(u32, u32, usize, u64); 7] = [
    (1, 3, 8, 0x3a42_5da2_bc98_76ac),
    (2, 4, 8, 0xbae5_73bc_3a16_21cf),
    (5, 4, 16, 0xe1c8_fcb7_3d2c_8f43),
    (20, 20, 16, 0x29ab_ed4a_3925_0f9d),
    (128, 127, 16, 0xf9a5_f76a_b01f_6f71),
    (254, 1, 16, 0x319f_6d81_8938_f52d),
    (200, 55, 16, 0x14c1_0698_ba30_9ee5),
];

/// k, repair symbols of 16 bytes, digest of all of them.
const NANORQ: [(u32, u32, u64); 8] = [
    (1, 4, 0x6439_a4f3_17c7_7037),
    (7, 6, 0x03b1_20d8_37d4_c007),
    (10, 5, 0xe50c_240e_a274_2143),
    (11, 5, 0x5a79_188d_68a6_bc9a),
    (100, 10, 0x8ee2_03fc_3dac_fac0),
    (128, 13, 0x7f92_de91_1d1a_eb3b),
    (257, 10, 0x239c_df1a_2527_317e),
    (1000, 20, 0xafd2_9baf_305f_fefa),
];

#[test]
fn norm_makes_the_symbols_of_rizzos_points() {
    let code = Code::with_points(Scheme::ReedSolomon, Points::Rizzo);
    for (k, count, len, expected) in NORM {
        assert_eq!(digest(&repair(code, k, count, len)), expected, "k = {k}");
    }
}

#[test]
fn norm_makes_the_symbols_of_the_formula_only_where_all_codes_agree() {
    let code = Code::with_points(Scheme::ReedSolomon, Points::Formula);
    for (k, count, len, theirs) in NORM {
        // A block of one symbol is only repeated, whatever the points.
        assert_eq!(digest(&repair(code, k, count, len)) == theirs, k == 1, "k = {k}");
    }
}

#[test]
fn nanorq_makes_the_same_raptorq_symbols() {
    let code = Code::new(Scheme::RaptorQ);
    for (k, count, expected) in NANORQ {
        assert_eq!(digest(&repair(code, k, count, 16)), expected, "k = {k}");
    }
}

/// Returns a digest of all symbols of an object of 4,219 bytes, in symbols of 64. It has four
/// blocks of at most 20 symbols, each with `repairs` repair symbols.
fn symbols_of_an_object(scheme: Scheme, points: Points, repairs: u32) -> u64 {
    const LEN: usize = 4_219;
    let object: Vec<u8> = (0..LEN).map(|i| (i * 167 + i / 251) as u8).collect();
    let partition = Partition::new(&Oti {
        scheme,
        object_len: LEN as u64,
        symbol_len: 64,
        max_block_symbols: 20,
        max_encoding_symbols: 28,
    })
    .unwrap();
    let code = Code::with_points(scheme, points);
    let mut all = Vec::new();
    for sbn in 0..partition.blocks() {
        let (k, range) = (partition.block_symbols(sbn), partition.block_range(sbn));
        let mut block = object[range.start as usize..range.end as usize].to_vec();
        block.resize(k as usize * 64, 0);
        let mut symbols = vec![0; (k + repairs) as usize * 64];
        code.encode(k, 64, &block, 0..k + repairs, &mut symbols).unwrap();
        all.extend(symbols);
    }
    digest(&all)
}

#[test]
fn flute_splits_objects_and_makes_symbols_as_we_do() {
    let rizzo = |scheme, repairs| symbols_of_an_object(scheme, Points::Rizzo, repairs);
    assert_eq!(rizzo(Scheme::NoCode, 0), 0x0edc_c653_4f14_9c6e);
    assert_eq!(rizzo(Scheme::ReedSolomon, 8), 0x10db_fd0d_7ed4_97ce);
    assert_eq!(rizzo(Scheme::RaptorQ, 8), 0xddb1_8645_c1c5_7278);
}
