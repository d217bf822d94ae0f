//! Fuzzes the replay of a client's journal. The input is a list of records, each as a kind, a
//! length and a body. The checksums are computed here, since a fuzzer would hardly ever guess one.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use umbel_fec::Partition;
use umbel_store::sink::journal::{JournalKey, replay};
use umbel_wire::{Digest, Oti, Scheme};

fuzz_target!(|bytes: &[u8]| {
    let oti = Oti {
        scheme: Scheme::ReedSolomon,
        object_len: 995,
        symbol_len: 10,
        max_block_symbols: 10,
        max_encoding_symbols: 30,
    };
    let partition = Partition::new(&oti).expect("the numbers above fit the scheme");
    let key = JournalKey::new("a", Digest([1; 32]), oti);
    let mut journal = key.header().to_vec();
    let mut rest = bytes;
    while let [kind, len, body @ ..] = rest {
        let (body, after) = body.split_at(body.len().min(usize::from(*len)));
        let mut record = vec![*kind];
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(body);
        journal.extend_from_slice(&crc32(&record).to_le_bytes());
        journal.extend_from_slice(&record);
        rest = after;
    }
    journal.extend_from_slice(rest);
    let replay = replay(&mut Cursor::new(&journal), &key, &partition, Some([7; 16]))
        .expect("reading from memory does not fail")
        .expect("the header is the item's");
    assert!(replay.trusted_len <= journal.len() as u64);
    for (&sbn, block) in &replay.partial {
        assert!(!replay.restored.contains(sbn) && replay.last_records[&sbn] < replay.trusted_len);
        assert!(block.esis().all(|esi| esi < partition.max_encoding_symbols(sbn)));
    }
});

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
