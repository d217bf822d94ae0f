//! Symbols exchanged with the crate `flute`, an independent implementation of ALC and its codes.
//! Only its Reed–Solomon code is independent; its RaptorQ is the crate that Umbel uses, too.
//!
//! `docs/concepts/codes.md` explains the findings.

#![allow(clippy::unwrap_used, reason = "a failure of a helper is one of the test")]

use std::rc::Rc;
use std::time::SystemTime;

use flute::core::lct::Cenc;
use flute::core::{Oti as FluteOti, UDPEndpoint, alc};
use flute::receiver::MultiReceiver;
use flute::receiver::writer::ObjectWriterBufferBuilder;
use flute::sender::{Config, ObjectDesc, Sender, TransferConfig};
use umbel_fec::{Code, Partition, Points, SymbolSet};
use umbel_wire::{Oti, Scheme};

const SYMBOL_LEN: u16 = 64;
/// Number of source symbols of the longest block, and of repair symbols of every block.
const BLOCK: u8 = 20;
const REPAIR: u8 = 8;
/// Length of an object of four blocks with 17 or 16 symbols, the last of which is not full.
const OBJECT_LEN: usize = 4_219;

/// A packet made by flute.
struct Packet {
    /// Block, encoding symbol, and where the symbol starts; `None` for packets of the file table.
    symbol: Option<(u32, u32, usize)>,
    bytes: Vec<u8>,
}

fn object() -> Vec<u8> {
    (0..OBJECT_LEN).map(|i| (i * 167 + i / 251) as u8).collect()
}

fn endpoint() -> UDPEndpoint {
    UDPEndpoint::new(None, "224.0.0.1".to_owned(), 7702)
}

fn flute_oti(scheme: Scheme) -> FluteOti {
    match scheme {
        Scheme::NoCode => FluteOti::new_no_code(SYMBOL_LEN, u16::from(BLOCK)),
        Scheme::ReedSolomon => FluteOti::new_reed_solomon_rs28(SYMBOL_LEN, BLOCK, REPAIR).unwrap(),
        Scheme::RaptorQ => {
            FluteOti::new_raptorq(SYMBOL_LEN, u16::from(BLOCK), u16::from(REPAIR), 1, 1).unwrap()
        }
    }
}

/// Returns all packets with which flute sends the object.
fn flute_packets(scheme: Scheme) -> Vec<Packet> {
    let oti = flute_oti(scheme);
    let mut sender = Sender::new(endpoint(), 1, &FluteOti::default(), &Config::default());
    let config = TransferConfig { oti: Some(oti.clone()), cenc: Cenc::Null, ..Default::default() };
    let name = url::Url::parse("file:///object").unwrap();
    let object = ObjectDesc::create_from_buffer(object(), "text/plain", &name, true, config);
    sender.add_object(0, object.unwrap()).unwrap();
    let now = SystemTime::now();
    sender.publish(now).unwrap();
    std::iter::from_fn(|| sender.read(now))
        .map(|bytes| {
            let packet = alc::parse_alc_pkt(&bytes).unwrap();
            let symbol = (packet.lct.toi != 0).then(|| {
                let id = alc::parse_payload_id(&packet, &oti).unwrap();
                (id.sbn, id.esi, packet.data_payload_offset)
            });
            Packet { symbol, bytes }
        })
        .collect()
}

/// Our side of the same object.
struct Ours {
    code: Code,
    partition: Partition,
}

impl Ours {
    fn new(scheme: Scheme, points: Points) -> Ours {
        let partition = Partition::new(&Oti {
            scheme,
            object_len: OBJECT_LEN as u64,
            symbol_len: SYMBOL_LEN,
            max_block_symbols: u16::from(BLOCK),
            max_encoding_symbols: u16::from(BLOCK + REPAIR),
        })
        .unwrap();
        Ours { code: Code::with_points(scheme, points), partition }
    }

    fn block(&self, sbn: u32) -> Vec<u8> {
        let range = self.partition.block_range(sbn);
        let mut block = object()[range.start as usize..range.end as usize].to_vec();
        block.resize(self.partition.block_symbols(sbn) as usize * usize::from(SYMBOL_LEN), 0);
        block
    }

    fn symbol(&self, sbn: u32, esi: u32) -> Vec<u8> {
        let mut symbol = vec![0; usize::from(SYMBOL_LEN)];
        let (k, len) = (self.partition.block_symbols(sbn), symbol.len());
        self.code.encode(k, len, &self.block(sbn), esi..esi + 1, &mut symbol).unwrap();
        symbol
    }

    /// Returns the number of source and of repair symbols on which flute agrees with Umbel, each
    /// with the number of all that flute made.
    fn agreement(&self, packets: &[Packet]) -> [(usize, usize); 2] {
        let mut counts = [(0, 0); 2];
        for packet in packets {
            let Some((sbn, esi, start)) = packet.symbol else { continue };
            let theirs = &packet.bytes[start..];
            let same = self.symbol(sbn, esi)[..theirs.len()] == *theirs;
            let (agreed, all) = &mut counts[usize::from(esi >= self.partition.block_symbols(sbn))];
            *agreed += usize::from(same);
            *all += 1;
        }
        counts
    }

    /// Returns the object that flute's receiver restores from packets with Umbel's symbols. In each
    /// block the first symbols are lost, as many as there are repair symbols.
    fn received_by_flute(&self, packets: &[Packet]) -> Option<Vec<u8>> {
        let writer = Rc::new(ObjectWriterBufferBuilder::new(true));
        let mut receiver = MultiReceiver::new(writer.clone(), None, false);
        let now = SystemTime::now();
        for packet in packets {
            let mut bytes = packet.bytes.clone();
            if let Some((sbn, esi, start)) = packet.symbol {
                if esi < u32::from(REPAIR) {
                    continue;
                }
                let len = bytes.len() - start;
                bytes[start..].copy_from_slice(&self.symbol(sbn, esi)[..len]);
            }
            receiver.push(&endpoint(), &bytes, now).ok()?;
        }
        let objects = writer.objects.borrow();
        let object = objects.first()?.borrow();
        object.complete.then(|| object.data.clone())
    }

    /// Returns whether Umbel restores every block from flute's symbols with the same ones lost.
    fn restores_from(&self, packets: &[Packet]) -> bool {
        (0..self.partition.blocks()).all(|sbn| {
            let (k, len) = (self.partition.block_symbols(sbn), usize::from(SYMBOL_LEN));
            let mut block = vec![0; k as usize * len];
            let mut present = SymbolSet::new(k);
            let mut repairs = Vec::new();
            for packet in packets {
                let Some((its, esi, start)) = packet.symbol else { continue };
                let symbol = &packet.bytes[start..];
                if its == sbn && esi >= k {
                    repairs.push((esi, symbol));
                } else if its == sbn && esi >= u32::from(REPAIR) {
                    block[esi as usize * len..][..symbol.len()].copy_from_slice(symbol);
                    present.insert(esi);
                }
            }
            self.code.restore(k, len, &mut block, &present, &repairs).is_ok()
                && block == self.block(sbn)
        })
    }
}

/// Number of source symbols of the object; flute makes `REPAIR` repair symbols for each of four
/// blocks.
const SOURCE: usize = OBJECT_LEN.div_ceil(SYMBOL_LEN as usize);
const ALL_REPAIR: usize = 4 * REPAIR as usize;

#[test]
fn flutes_reed_solomon_is_that_of_rizzos_points() {
    let packets = flute_packets(Scheme::ReedSolomon);
    let ours = Ours::new(Scheme::ReedSolomon, Points::Rizzo);
    assert_eq!(ours.agreement(&packets), [(SOURCE, SOURCE), (ALL_REPAIR, ALL_REPAIR)]);
    assert!(ours.restores_from(&packets));
    assert_eq!(ours.received_by_flute(&packets), Some(object()));
}

#[test]
fn flutes_reed_solomon_is_not_that_of_the_formula() {
    let packets = flute_packets(Scheme::ReedSolomon);
    let ours = Ours::new(Scheme::ReedSolomon, Points::Formula);
    assert_eq!(ours.agreement(&packets), [(SOURCE, SOURCE), (0, ALL_REPAIR)]);
    assert!(!ours.restores_from(&packets));
    assert_eq!(ours.received_by_flute(&packets), None, "its digest of the object does not match");
}

#[test]
fn flute_restores_blocks_from_our_raptorq_symbols_and_we_from_its() {
    let packets = flute_packets(Scheme::RaptorQ);
    let ours = Ours::new(Scheme::RaptorQ, Points::default());
    assert_eq!(ours.agreement(&packets), [(SOURCE, SOURCE), (ALL_REPAIR, ALL_REPAIR)]);
    assert!(ours.restores_from(&packets));
    assert_eq!(ours.received_by_flute(&packets), Some(object()));
}

#[test]
fn flute_splits_objects_as_we_do() {
    let packets = flute_packets(Scheme::NoCode);
    let ours = Ours::new(Scheme::NoCode, Points::default());
    assert_eq!(ours.agreement(&packets), [(SOURCE, SOURCE), (0, 0)]);
}
