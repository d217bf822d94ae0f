//! Checks that must hold for any bytes. Fuzz targets and ordinary tests share them.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries")]

use umbel_fec::{Code, FecError, Partition, SymbolSet};
use umbel_wire::{Oti, Scheme};

fn scheme(byte: u8) -> Scheme {
    [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ][usize::from(byte % 3)]
}

/// Splits an object with any parameters. Either the ends of its parts fit together, or the
/// parameters are refused.
pub fn partition(bytes: &[u8]) {
    let Some((fields, rest)) = bytes.split_first_chunk::<15>() else { return };
    let field = |at: usize| u16::from_be_bytes([fields[at], fields[at + 1]]);
    let oti = Oti {
        scheme: scheme(fields[0]),
        object_len: fields[1..9].iter().fold(0, |len, &byte| len << 8 | u64::from(byte)),
        symbol_len: field(9),
        max_block_symbols: field(11),
        max_encoding_symbols: field(13),
    };
    let Ok(partition) = Partition::new(&oti) else { return };
    let blocks = partition.blocks();
    let any = rest.iter().take(4).fold(0, |sbn, &byte| sbn << 8 | u32::from(byte));
    for sbn in [0, blocks / 2, blocks.wrapping_sub(1), blocks, any] {
        let (range, k) = (partition.block_range(sbn), partition.block_symbols(sbn));
        assert!(range.end <= oti.object_len);
        assert_eq!(range.is_empty(), sbn >= blocks);
        assert_eq!(range.end, partition.block_range(sbn.saturating_add(1)).start);
        assert_eq!((range.end - range.start).div_ceil(u64::from(oti.symbol_len)), u64::from(k));
        assert!(partition.max_encoding_symbols(sbn) >= k);
        if k > 0 {
            assert_eq!(partition.symbol_range(sbn, 0).start, range.start);
            assert_eq!(partition.symbol_range(sbn, k - 1).end, range.end);
        }
        assert!(partition.symbol_range(sbn, any.max(k)).is_empty());
    }
}

/// Restores a block from any choice of its symbols, with any parameters. Either the block is right,
/// or there is an error and the block is unchanged.
pub fn restore(bytes: &[u8]) {
    let Some((&[which, k, symbol_len, lost], choices)) = bytes.split_first_chunk() else { return };
    let code = Code::new(scheme(which));
    let (k, symbol_len) = (u32::from(k), usize::from(symbol_len % 80));
    let source: Vec<u8> = (0..k as usize * symbol_len).map(|i| (i * 31) as u8 ^ lost).collect();

    let mut present = SymbolSet::new(k);
    for esi in (0..k).filter(|esi| esi * 37 % 256 >= u32::from(lost)) {
        present.insert(esi);
    }
    // Each pair of bytes is the distance of a repair symbol from the source symbols. Codes without
    // such symbols, or without such a block, are tested too.
    let mut made = vec![0; 506 * symbol_len];
    let most = if code.scheme() == Scheme::RaptorQ { 506 } else { 255_u32.saturating_sub(k) };
    let esis = k..k + most;
    let _ = code.encode(k, symbol_len, &source, esis, &mut made[..most as usize * symbol_len]);
    let symbols: Vec<(u32, &[u8])> = choices
        .chunks_exact(2)
        .take(300)
        .map(|pair| u32::from(pair[0] % 2) * 250 + u32::from(pair[1]))
        .map(|at| (k + at, &made[at as usize * symbol_len..][..symbol_len]))
        .collect();

    let mut block = source.clone();
    for esi in present.missing() {
        block[esi as usize * symbol_len..][..symbol_len].fill(!lost);
    }
    let before = block.clone();
    match code.restore(k, symbol_len, &mut block, &present, &symbols) {
        Ok(restored) => {
            assert_eq!(restored.symbols, k - present.count());
            assert!(block == source, "restored wrongly");
        }
        Err(error) => {
            assert!(block == before, "the block was changed");
            if let FecError::NotEnough { held, wanted } = error {
                assert!(held < wanted);
            }
        }
    }
}
