//! Encoding of a journal's records; the [module](super) has the table.

use std::io::{self, Read};

use umbel_fec::{Partition, SymbolSet};

/// Number of bytes of a record before its body.
const RECORD_HEAD_LEN: usize = 4 + 1 + 4;
/// Maximum bytes of repair symbols in one record. There is always room for one symbol.
pub(in crate::sink) const MAX_REPAIRS_LEN: usize = 1 << 20;
/// Maximum bytes of a body. It has the repair symbols, their IDs (a symbol has at least one byte),
/// a bit for each of 65,535 source symbols, and fixed fields.
const MAX_BODY_LEN: usize = 5 * MAX_REPAIRS_LEN + (1 << 16) + (1 << 13) + 64;

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A process begins to write on this kernel.
    Session {
        /// Boot ID of the kernel.
        boot: [u8; 16],
    },
    /// These blocks are restored and in the part file.
    Restored {
        /// First source block number.
        first: u32,
        /// Number of blocks; at least 1.
        count: u32,
    },
    /// Symbols of a block are held.
    Symbols(Symbols<'a>),
    /// Nothing of the block is held any longer.
    Dropped {
        /// Source block number.
        sbn: u32,
    },
    /// All records before this offset, and the data that they describe, are on the disk.
    Durable {
        /// Offset in the journal.
        up_to: u64,
    },
}

/// Symbols of a block that is not restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols<'a> {
    /// Source block number.
    pub sbn: u32,
    /// Offset of the previous record about the same block, or 0.
    pub previous: u64,
    /// All source symbols of the block that are in the part file, including those of earlier
    /// records.
    pub source: SymbolSet,
    /// IDs of the repair symbols in this record.
    pub repair_esis: Vec<u32>,
    /// The repair symbols, in the order of their IDs.
    pub repairs: &'a [u8],
}

impl Record<'_> {
    fn kind(&self) -> u8 {
        match self {
            Record::Session { .. } => 1,
            Record::Restored { .. } => 2,
            Record::Symbols(_) => 3,
            Record::Dropped { .. } => 4,
            Record::Durable { .. } => 5,
        }
    }

    /// Appends the record to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.kind());
        out.extend_from_slice(&[0; 4]);
        self.emit_body(out);
        let body_len = (out.len() - start - RECORD_HEAD_LEN) as u32;
        out[start + 5..start + 9].copy_from_slice(&body_len.to_le_bytes());
        let crc = crc32fast::hash(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            Record::Session { boot } => out.extend_from_slice(boot),
            Record::Restored { first, count } => {
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
            Record::Symbols(symbols) => symbols.emit(out),
            Record::Dropped { sbn } => out.extend_from_slice(&sbn.to_le_bytes()),
            Record::Durable { up_to } => out.extend_from_slice(&up_to.to_le_bytes()),
        }
    }

    /// Parses a record from its kind and body. Returns `None` if it does not fit the item.
    fn parse<'a>(kind: u8, body: &'a [u8], partition: &Partition) -> Option<Record<'a>> {
        let mut body = Body(body);
        let record = match kind {
            1 => Record::Session { boot: body.array()? },
            2 => {
                let (first, count) = (body.u32()?, body.u32()?);
                let end = first.checked_add(count)?;
                (count > 0 && end <= partition.blocks()).then_some(())?;
                Record::Restored { first, count }
            }
            3 => Record::Symbols(Symbols::parse(&mut body, partition)?),
            4 => {
                let sbn = body.u32()?;
                (sbn < partition.blocks()).then_some(())?;
                Record::Dropped { sbn }
            }
            5 => Record::Durable { up_to: u64::from_le_bytes(body.array()?) },
            _ => return None,
        };
        body.0.is_empty().then_some(record)
    }
}

impl Symbols<'_> {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sbn.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(&(self.repair_esis.len() as u32).to_le_bytes());
        for first in (0..self.source.len()).step_by(8) {
            let bits = (0..8).filter(|bit| self.source.contains(first + bit));
            out.push(bits.fold(0, |byte, bit| byte | 1 << bit));
        }
        self.repair_esis.iter().for_each(|esi| out.extend_from_slice(&esi.to_le_bytes()));
        out.extend_from_slice(self.repairs);
    }

    fn parse<'a>(body: &mut Body<'a>, partition: &Partition) -> Option<Symbols<'a>> {
        let sbn = body.u32()?;
        let previous = u64::from_le_bytes(body.array()?);
        let repairs = body.u32()? as usize;
        let k = partition.block_symbols(sbn);
        (k > 0).then_some(())?;
        let mut source = SymbolSet::new(k);
        let bits = body.take(k.div_ceil(8) as usize)?;
        for esi in (0..k).filter(|&esi| bits[(esi / 8) as usize] >> (esi % 8) & 1 == 1) {
            source.insert(esi);
        }
        let esis = body.take(repairs.checked_mul(4)?)?;
        let repair_esis: Vec<u32> = esis
            .chunks_exact(4)
            .map(|esi| u32::from_le_bytes(esi.try_into().expect("chunks of 4 bytes")))
            .collect();
        let allowed = k..partition.max_encoding_symbols(sbn);
        repair_esis.iter().all(|esi| allowed.contains(esi)).then_some(())?;
        let repairs = body.take(repairs.checked_mul(usize::from(partition.symbol_len()))?)?;
        Some(Symbols { sbn, previous, source, repair_esis, repairs })
    }
}

/// The unread rest of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}

/// Reads the record at the reader's position, at most `room` bytes long, and its body into `body`.
/// Returns `None` if there is no complete and undamaged record.
pub(in crate::sink) fn read_record<'a>(
    reader: &mut impl Read,
    room: u64,
    partition: &Partition,
    body: &'a mut Vec<u8>,
) -> io::Result<Option<(Record<'a>, u64)>> {
    let mut head = [0; RECORD_HEAD_LEN];
    if room < head.len() as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut head)?;
    let crc = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let body_len = u32::from_le_bytes([head[5], head[6], head[7], head[8]]) as usize;
    let len = head.len() as u64 + body_len as u64;
    if body_len > MAX_BODY_LEN || len > room {
        return Ok(None);
    }
    body.resize(body_len, 0);
    reader.read_exact(body)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[4..]);
    hasher.update(body);
    if hasher.finalize() != crc {
        return Ok(None);
    }
    Ok(Record::parse(head[4], body, partition).map(|record| (record, len)))
}
