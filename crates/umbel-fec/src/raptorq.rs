//! RaptorQ, FEC Encoding ID 6 [RFC 6330], implemented by the `raptorq` crate.
//!
//! The crate panics on symbols of the wrong length, on too many symbols and on IDs out of range, so
//! all arguments are checked first. A block is one sub-block (N = 1) of symbols aligned to one byte
//! (Al = 1).

use std::ops::Range;

use ::raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder,
};
use umbel_wire::Scheme;

use crate::checks::{check_esis, check_restore, copy_source};
use crate::partition::{RAPTORQ_MAX_ENCODING_SYMBOLS, RAPTORQ_MAX_SYMBOLS};
use crate::{FecError, SymbolSet};

/// Writes the encoding symbols `esis` to `out`, one after the other.
///
/// The crate keeps the encoding plans of the last 64 different k. Each call computes the
/// intermediate symbols of the block again, so a few long ranges are cheaper than many short ones.
pub(crate) fn encode(
    k: u32,
    symbol_len: usize,
    source: &[u8],
    esis: &Range<u32>,
    out: &mut [u8],
) -> Result<(), FecError> {
    check_parameters(k, symbol_len)?;
    check_esis(esis, RAPTORQ_MAX_ENCODING_SYMBOLS)?;
    let repair = copy_source(k, symbol_len, source, esis, out)?;
    if repair.is_empty() {
        return Ok(());
    }
    let encoder = SourceBlockEncoder::new(0, &information(k, symbol_len), source);
    let count = (repair.len() / symbol_len) as u32;
    let packets = encoder.repair_packets(esis.start.max(k) - k, count);
    for (symbol, packet) in repair.chunks_exact_mut(symbol_len).zip(packets) {
        symbol.copy_from_slice(packet.data());
    }
    Ok(())
}

/// Computes the source symbols that are not `present`, in their places in `block`. Returns the
/// number of symbols computed.
pub(crate) fn restore(
    k: u32,
    symbol_len: usize,
    block: &mut [u8],
    present: &SymbolSet,
    repairs: &[(u32, &[u8])],
) -> Result<u32, FecError> {
    check_parameters(k, symbol_len)?;
    check_restore(k, symbol_len, block, present, repairs, RAPTORQ_MAX_ENCODING_SYMBOLS)?;
    let lost = k - present.count();
    if lost == 0 {
        return Ok(0);
    }
    let mut esis: Vec<u32> = repairs.iter().map(|&(esi, _)| esi).collect();
    esis.sort_unstable();
    esis.dedup();
    let held = present.count() + esis.len() as u32;
    if held < k {
        return Err(FecError::NotEnough { held, wanted: k });
    }

    let packet = |esi, symbol: &[u8]| EncodingPacket::new(PayloadId::new(0, esi), symbol.to_vec());
    let source = (0..k).zip(block.chunks_exact(symbol_len));
    let packets: Vec<EncodingPacket> = source
        .filter(|&(esi, _)| present.contains(esi))
        .chain(repairs.iter().copied())
        .map(|(esi, symbol)| packet(esi, symbol))
        .collect();
    let mut decoder = SourceBlockDecoder::new(0, &information(k, symbol_len), block.len() as u64);
    let Some(restored) = decoder.decode(packets) else {
        return Err(FecError::NotEnough { held, wanted: held + 1 });
    };
    for esi in present.missing() {
        let bytes = esi as usize * symbol_len..(esi as usize + 1) * symbol_len;
        block[bytes.clone()].copy_from_slice(&restored[bytes]);
    }
    Ok(lost)
}

fn check_parameters(k: u32, symbol_len: usize) -> Result<(), FecError> {
    if !(1..=RAPTORQ_MAX_SYMBOLS).contains(&k) {
        let max = RAPTORQ_MAX_SYMBOLS;
        return Err(FecError::BlockSymbols { scheme: Scheme::RaptorQ, symbols: k, max });
    }
    match u16::try_from(symbol_len) {
        Ok(0) => Err(FecError::NoSymbolLen),
        Ok(_) => Ok(()),
        Err(_) => Err(FecError::SymbolTooLong { len: symbol_len, max: u16::MAX as usize }),
    }
}

/// Returns the parameters of an object that consists of this one block. `k` and `symbol_len` have
/// been checked.
fn information(k: u32, symbol_len: usize) -> ObjectTransmissionInformation {
    ObjectTransmissionInformation::new(k as u64 * symbol_len as u64, symbol_len as u16, 1, 1, 1)
}
