//! The journal of an incomplete item, which records the blocks and symbols held.
//!
//! A header names the version of the item. Records follow it. Numbers are little-endian.
//!
//! | bytes | header | | bytes | record |
//! |---|---|---|---|---|
//! | 8 | `UMBELJ1\n` | | 4 | CRC-32 of the rest of the record |
//! | 32 | BLAKE3 digest of the item's name | | 1 | kind |
//! | 32 | BLAKE3 digest of the item | | 4 | length of the body |
//! | 15 | scheme, lengths and limits of its [`Oti`] | | … | body |
//! | 4 | CRC-32 of the header | | | |
//!
//! Data is written first, then the record about it. When a record reaches the file, its data in the
//! part file may still be in the kernel's memory. A crash of the process loses nothing by that, but
//! a crash of the machine may. A [`Record::Durable`] therefore states the offset before which
//! everything is known to be on the disk. Each process that writes begins with the
//! [`Record::Session`] of the kernel on which it runs. Records are valid up to the last `Durable`,
//! or all of them if the kernel is still the same. Records after the first torn or invalid one are
//! ignored.
//!
//! The journal does not contain the TOI, since a server assigns other ones after a restart.

mod record;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use umbel_fec::{Partition, SymbolSet};
use umbel_wire::{Digest, Oti};

use super::held::HeldBlock;
pub(super) use record::{MAX_REPAIRS_LEN, read_record};
pub use record::{Record, Symbols};

const MAGIC: &[u8; 8] = b"UMBELJ1\n";
/// Number of bytes of the header.
pub(super) const HEADER_LEN: usize = 8 + 32 + 32 + 15 + 4;

/// Identifies a version of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalKey {
    /// BLAKE3 digest of the item's name.
    pub name: Digest,
    /// BLAKE3 digest of the item.
    pub item: Digest,
    /// Object transmission information of the item.
    pub oti: Oti,
}

impl JournalKey {
    /// Creates the key of this version of the item called `name`.
    pub fn new(name: &str, item: Digest, oti: Oti) -> JournalKey {
        JournalKey { name: Digest(*blake3::hash(name.as_bytes()).as_bytes()), item, oti }
    }

    /// Returns the header of the item's journal.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.name.0);
        bytes.extend_from_slice(&self.item.0);
        bytes.push(self.oti.scheme.encoding_id());
        bytes.extend_from_slice(&self.oti.object_len.to_le_bytes());
        bytes.extend_from_slice(&self.oti.symbol_len.to_le_bytes());
        bytes.extend_from_slice(&self.oti.max_block_symbols.to_le_bytes());
        bytes.extend_from_slice(&self.oti.max_encoding_symbols.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.try_into().expect("the fields above are HEADER_LEN bytes")
    }
}

/// Content of a journal.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The restored blocks.
    pub restored: SymbolSet,
    /// The symbols held of other blocks.
    pub partial: BTreeMap<u32, HeldBlock>,
    /// For each block with symbols, the offset of the last record about it.
    pub last_records: BTreeMap<u32, u64>,
    /// Bytes of the journal that are valid. Writing continues here.
    pub trusted_len: u64,
    /// Bytes of records that no longer matter.
    pub dead_len: u64,
}

impl Replay {
    /// Returns the content of a journal without records, of an item with this number of blocks.
    pub fn nothing(blocks: u32) -> Replay {
        Replay {
            restored: SymbolSet::new(blocks),
            partial: BTreeMap::new(),
            last_records: BTreeMap::new(),
            trusted_len: 0,
            dead_len: 0,
        }
    }
}

/// Reads a journal. Returns `None` if it is not a journal or is one of another version of the item.
/// `boot` is the ID of the running kernel. Reads the whole journal in pieces of at most a few MiB.
///
/// # Errors
///
/// Returns the error of the reader. Damage is not an error; records after it are ignored.
pub fn replay(
    reader: &mut (impl Read + Seek),
    key: &JournalKey,
    partition: &Partition,
    boot: Option<[u8; 16]>,
) -> io::Result<Option<Replay>> {
    let len = reader.seek(SeekFrom::End(0))?;
    reader.rewind()?;
    let mut header = [0; HEADER_LEN];
    if len < HEADER_LEN as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut header)?;
    if header != key.header() {
        return Ok(None);
    }
    let trusted_len = trusted_len(reader, len, partition, boot)?;
    reader.seek(SeekFrom::Start(HEADER_LEN as u64))?;
    let mut state = Replay {
        restored: SymbolSet::new(partition.blocks()),
        partial: BTreeMap::new(),
        last_records: BTreeMap::new(),
        trusted_len: HEADER_LEN as u64,
        dead_len: 0,
    };
    let mut sizes = BTreeMap::new();
    let mut body = Vec::new();
    while state.trusted_len < trusted_len {
        let room = trusted_len - state.trusted_len;
        let Some((record, len)) = read_record(reader, room, partition, &mut body)? else { break };
        if !state.apply(&record, len, &mut sizes) {
            break;
        }
        state.trusted_len += len;
    }
    Ok(Some(state))
}

/// Returns the offset up to which the records are valid.
fn trusted_len(
    reader: &mut impl Read,
    len: u64,
    partition: &Partition,
    boot: Option<[u8; 16]>,
) -> io::Result<u64> {
    let mut offset = HEADER_LEN as u64;
    let mut durable = offset;
    let mut same_kernel = false;
    let mut body = Vec::new();
    while let Some((record, record_len)) = read_record(reader, len - offset, partition, &mut body)?
    {
        match record {
            Record::Session { boot: written } => same_kernel = boot == Some(written),
            Record::Durable { up_to } if up_to <= offset => durable = durable.max(up_to),
            _ => {}
        }
        offset += record_len;
    }
    Ok(if same_kernel { offset } else { durable })
}

impl Replay {
    /// Applies the next record. Returns `false` if it contradicts earlier ones.
    fn apply(&mut self, record: &Record<'_>, len: u64, sizes: &mut BTreeMap<u32, u64>) -> bool {
        match record {
            Record::Session { .. } | Record::Durable { .. } => self.dead_len += len,
            Record::Restored { first, count } => {
                for sbn in *first..first + count {
                    self.forget(sbn, sizes);
                    self.restored.insert(sbn);
                }
            }
            Record::Symbols(symbols) => {
                let sbn = symbols.sbn;
                let last = self.last_records.get(&sbn).copied().unwrap_or(0);
                if symbols.previous != last || self.restored.contains(sbn) {
                    return false;
                }
                self.last_records.insert(sbn, self.trusted_len);
                *sizes.entry(sbn).or_default() += len;
                let mut repairs = symbols.repair_esis.clone();
                if let Some(before) = self.partial.get(&sbn) {
                    repairs.extend_from_slice(before.repairs());
                }
                self.partial.insert(sbn, HeldBlock::new(symbols.source.clone(), repairs));
            }
            Record::Dropped { sbn } => {
                self.forget(*sbn, sizes);
                self.restored.remove(*sbn);
                self.dead_len += len;
            }
        }
        true
    }

    fn forget(&mut self, sbn: u32, sizes: &mut BTreeMap<u32, u64>) {
        self.partial.remove(&sbn);
        self.last_records.remove(&sbn);
        self.dead_len += sizes.remove(&sbn).unwrap_or(0);
    }
}

/// Returns the ID of the running kernel, if the system has one.
pub(super) fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digits = std::str::from_utf8(&digits).ok()?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;
    use umbel_wire::Scheme;

    use super::*;

    const BOOT: [u8; 16] = [7; 16];
    const SYMBOL_LEN: usize = 10;

    fn key() -> JournalKey {
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 995,
            symbol_len: SYMBOL_LEN as u16,
            max_block_symbols: 10,
            max_encoding_symbols: 30,
        };
        JournalKey::new("a", Digest([1; 32]), oti)
    }

    fn partition() -> Partition {
        Partition::new(&key().oti).unwrap()
    }

    fn read(bytes: &[u8], boot: [u8; 16]) -> Option<Replay> {
        replay(&mut Cursor::new(bytes), &key(), &partition(), Some(boot)).unwrap()
    }

    /// Writes a journal and records the offset after each record.
    struct Writer {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    }

    impl Writer {
        fn new() -> Writer {
            Writer { bytes: key().header().to_vec(), ends: vec![HEADER_LEN] }
        }

        fn write(&mut self, record: &Record<'_>) -> u64 {
            let at = self.bytes.len() as u64;
            record.emit(&mut self.bytes);
            self.ends.push(self.bytes.len());
            at
        }

        fn symbols(&mut self, sbn: u32, previous: u64, source: &[u32], repairs: &[u32]) -> u64 {
            let mut set = SymbolSet::new(10);
            for &esi in source {
                set.insert(esi);
            }
            self.write(&Record::Symbols(Symbols {
                sbn,
                previous,
                source: set,
                repair_esis: repairs.to_vec(),
                repairs: &vec![9; repairs.len() * SYMBOL_LEN],
            }))
        }
    }

    /// Returns a journal with a record of every kind, the last two of which are not durable.
    fn sample() -> Writer {
        let mut writer = Writer::new();
        writer.write(&Record::Session { boot: BOOT });
        writer.write(&Record::Restored { first: 2, count: 3 });
        let first = writer.symbols(0, 0, &[0, 1, 9], &[10, 29]);
        writer.symbols(0, first, &[0, 1, 2, 9], &[11]);
        writer.symbols(1, 0, &[], &[10]);
        writer.write(&Record::Dropped { sbn: 3 });
        let up_to = writer.bytes.len() as u64;
        writer.write(&Record::Durable { up_to });
        writer.write(&Record::Restored { first: 1, count: 1 });
        writer.symbols(5, 0, &[4], &[]);
        writer
    }

    #[test]
    fn a_journal_says_what_was_written() {
        let replay = read(&sample().bytes, BOOT).unwrap();
        let restored: Vec<u32> = (0..10).filter(|&sbn| replay.restored.contains(sbn)).collect();
        assert_eq!(restored, [1, 2, 4]);
        assert_eq!(replay.partial.keys().copied().collect::<Vec<_>>(), [0, 5]);
        assert!(replay.partial[&0].esis().eq([0, 1, 2, 9, 10, 11, 29]));
        assert!(replay.partial[&5].esis().eq([4]));
        assert_eq!(replay.trusted_len, sample().bytes.len() as u64);
    }

    #[test]
    fn after_a_crash_of_the_machine_only_what_is_durable_counts() {
        let replay = read(&sample().bytes, [8; 16]).unwrap();
        assert!(!replay.restored.contains(1) && replay.restored.contains(2));
        assert_eq!(replay.partial.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(replay.trusted_len as usize, sample().ends[7 - 1]);
    }

    #[test]
    fn a_journal_of_another_version_does_not_count() {
        let bytes = sample().bytes;
        for change in 0..4 {
            let mut key = key();
            match change {
                0 => key.item.0[31] ^= 1,
                1 => key.name.0[0] ^= 1,
                2 => key.oti.max_encoding_symbols += 1,
                _ => key.oti.scheme = Scheme::RaptorQ,
            }
            let replay = replay(&mut Cursor::new(&bytes), &key, &partition(), Some(BOOT));
            assert!(replay.unwrap().is_none(), "change {change}");
        }
    }

    #[test]
    fn a_journal_torn_at_any_byte_counts_up_to_its_last_whole_record() {
        let Writer { bytes, ends } = sample();
        for len in 0..=bytes.len() {
            let replay = read(&bytes[..len], BOOT);
            let Some(&end) = ends.iter().rev().find(|&&end| end <= len) else {
                assert!(replay.is_none());
                continue;
            };
            let replay = replay.unwrap();
            assert_eq!(replay.trusted_len as usize, end.max(HEADER_LEN), "torn at {len}");
            let whole = read(&bytes[..end], BOOT).unwrap();
            assert_eq!((replay.restored, replay.partial), (whole.restored, whole.partial));
        }
    }

    #[test]
    fn a_damaged_byte_takes_away_only_what_follows_it() {
        let Writer { bytes, ends } = sample();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let replay = read(&damaged, BOOT);
                if at < HEADER_LEN {
                    assert!(replay.is_none());
                    continue;
                }
                let end = ends.iter().rev().find(|&&end| end <= at).unwrap();
                let whole = read(&bytes[..*end], BOOT).unwrap();
                let replay = replay.unwrap();
                assert_eq!((replay.restored, replay.partial), (whole.restored, whole.partial));
            }
        }
    }

    #[test]
    fn records_that_make_no_sense_end_the_journal() {
        let nonsense: [fn(&mut Writer) -> u64; 7] = [
            |writer| writer.write(&Record::Restored { first: 9, count: 2 }),
            |writer| writer.write(&Record::Restored { first: u32::MAX, count: 1 }),
            |writer| writer.write(&Record::Restored { first: 0, count: 0 }),
            |writer| writer.write(&Record::Dropped { sbn: 10 }),
            |writer| writer.symbols(10, 0, &[1], &[]),
            |writer| writer.symbols(6, 1234, &[1], &[]),
            |writer| writer.symbols(6, 0, &[1], &[30]),
        ];
        for (number, write) in nonsense.iter().enumerate() {
            let mut writer = sample();
            let good = writer.bytes.len() as u64;
            write(&mut writer);
            writer.write(&Record::Restored { first: 9, count: 1 });
            let replay = read(&writer.bytes, BOOT).unwrap();
            assert_eq!(replay.trusted_len, good, "record {number}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            header in any::<bool>(),
        ) {
            let mut journal = if header { key().header().to_vec() } else { Vec::new() };
            journal.extend(bytes);
            let replay = read(&journal, BOOT);
            prop_assert_eq!(replay.is_some(), header);
        }

        #[test]
        fn symbols_come_back_as_they_were_written(
            sbn in 0..10u32,
            source in prop::collection::btree_set(0..9u32, 0..9),
            repairs in prop::collection::btree_set(10..30u32, 0..20),
        ) {
            let mut writer = Writer::new();
            let source: Vec<u32> = source.into_iter().collect();
            let repairs: Vec<u32> = repairs.into_iter().collect();
            writer.symbols(sbn, 0, &source, &repairs);
            let mut body = Vec::new();
            let mut rest = &writer.bytes[HEADER_LEN..];
            let room = rest.len() as u64;
            let read = read_record(&mut rest, room, &partition(), &mut body).unwrap();
            let Some((Record::Symbols(symbols), _)) = read else { panic!("no symbols") };
            prop_assert_eq!(symbols.sbn, sbn);
            prop_assert!((0..10).filter(|&esi| symbols.source.contains(esi)).eq(source));
            prop_assert_eq!(symbols.repairs.len(), repairs.len() * SYMBOL_LEN);
            prop_assert_eq!(symbols.repair_esis, repairs);
        }
    }
}
