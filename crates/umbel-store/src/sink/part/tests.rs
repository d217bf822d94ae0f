use std::fs::File;
use std::path::Path;

use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

use super::super::item::Shelf;
use super::super::names::Names;
use super::*;

const SYMBOL_LEN: usize = 10;

fn shelf(directory: &Path) -> Shelf {
    Shelf {
        tree: Arc::new(Tree::open(directory).unwrap()),
        names: std::sync::Mutex::new(Names::new(false)),
        check_space: false,
        preserve_times: false,
        overwrite: false,
        durable: false,
        purpose: super::super::changes::Purpose::default(),
        changes: super::super::changes::Changes::default(),
        links: super::super::links::Links::default(),
        other_names: super::super::links::OtherNames::default(),
        directories: super::super::directories::Directories::default(),
        brought: std::sync::Mutex::default(),
        last: std::sync::OnceLock::new(),
        own_claim: std::sync::OnceLock::new(),
        hidden: false,
        allowed: super::super::attributes::Allowed::of(0o644),
        unkept: super::super::attributes::Counts::default(),
        reserved: std::sync::atomic::AtomicU64::new(0),
        device: None,
    }
}

/// Returns an item of 100 blocks of 10 symbols.
fn item(shelf: &Shelf) -> Arc<Item> {
    let oti = Oti {
        scheme: Scheme::ReedSolomon,
        object_len: 10_000,
        symbol_len: SYMBOL_LEN as u16,
        max_block_symbols: 10,
        max_encoding_symbols: 30,
    };
    let info = ItemInfo {
        toi: Toi(1),
        name: "a".to_owned(),
        digest: Digest([1; 32]),
        modified_ns: None,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: String::new(),
        oti,
    };
    shelf.prepare(&info).unwrap().item.unwrap()
}

/// Returns a buffer with these symbols, each filled with its own byte.
fn buffer(item: &Item, sbn: u32, esis: &[u32]) -> BlockBuffer {
    let mut buffer = BlockBuffer::empty(&item.partition, sbn);
    for &esi in esis {
        let symbol = [(sbn * 31 + esi) as u8; SYMBOL_LEN];
        if esi < 10 {
            buffer.source.insert(esi);
            buffer.data[esi as usize * SYMBOL_LEN..][..SYMBOL_LEN].copy_from_slice(&symbol);
        } else {
            buffer.repair_esis.push(esi);
            buffer.repairs.extend_from_slice(&symbol);
        }
    }
    buffer
}

fn replayed(directory: &Path, item: &Item) -> Replay {
    let mut file = File::open(directory.join(".a.umbel-part.journal")).unwrap();
    let boot = journal::boot_id();
    journal::replay(&mut file, &item.key, &item.partition, boot).unwrap().unwrap()
}

/// Returns the symbols of a block that are on the disk.
fn on_disk(part: &mut Part, sbn: u32) -> Vec<u32> {
    let item = part.item.clone();
    let mut read = BlockBuffer::empty(&item.partition, sbn);
    assert!(part.load_symbols(sbn, &mut read).unwrap());
    let source = (0..10).filter(|&esi| read.source.contains(esi));
    let mut esis: Vec<u32> = source.chain(read.repair_esis.iter().copied()).collect();
    esis.sort_unstable();
    let expected = buffer(&item, sbn, &esis);
    for (first, count) in runs(&read.source) {
        let bytes = first as usize * SYMBOL_LEN..(first + count) as usize * SYMBOL_LEN;
        assert_eq!(read.data[bytes.clone()], expected.data[bytes]);
    }
    for (esi, repair) in read.repair_esis.iter().zip(read.repairs.chunks(SYMBOL_LEN)) {
        assert!(repair.iter().all(|&byte| byte == (sbn * 31 + esi) as u8));
    }
    esis
}

#[test]
fn a_journal_written_anew_says_the_same_in_fewer_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let shelf = shelf(directory.path());
    let item = item(&shelf);
    let mut part = Part::new(shelf.tree.clone(), item.clone(), None);
    for sbn in 0..50 {
        part.save_symbols(sbn, &buffer(&item, sbn, &[1, 2, 11])).unwrap();
        part.save_symbols(sbn, &buffer(&item, sbn, &[7, 29, 15])).unwrap();
    }
    for sbn in (0..50).filter(|sbn| sbn % 5 != 0) {
        part.write_restored(sbn, &buffer(&item, sbn, &[0]).data).unwrap();
    }
    part.drop_block(49).unwrap();
    part.sync(true).unwrap();
    let before = replayed(directory.path(), &item);

    part.compact().unwrap();
    let after = replayed(directory.path(), &item);
    assert_eq!((&after.restored, &after.partial), (&before.restored, &before.partial));
    assert_eq!(after.restored.count(), 39);
    assert!(after.trusted_len < before.trusted_len / 2);
    assert_eq!(on_disk(&mut part, 5), [1, 2, 7, 11, 15, 29]);

    // Writing continues after them.
    part.save_symbols(5, &buffer(&item, 5, &[3, 20])).unwrap();
    part.write_restored(49, &buffer(&item, 49, &[0]).data).unwrap();
    part.sync(true).unwrap();
    let replay = replayed(directory.path(), &item);
    assert_eq!(replay.restored.count(), 40);
    drop(part);
    let mut part = Part::new(shelf.tree.clone(), item.clone(), Some(&replay));
    assert_eq!(on_disk(&mut part, 5), [1, 2, 3, 7, 11, 15, 20, 29]);
    assert_eq!(on_disk(&mut part, 45), [1, 2, 7, 11, 15, 29]);
}

#[test]
fn repair_symbols_of_many_records_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let shelf = shelf(directory.path());
    let item = item(&shelf);
    let mut part = Part::new(shelf.tree.clone(), item.clone(), None);
    for esi in 10..30 {
        part.save_symbols(3, &buffer(&item, 3, &[esi])).unwrap();
    }
    assert_eq!(on_disk(&mut part, 3), (10..30).collect::<Vec<u32>>());
    part.flush().unwrap();
    assert_eq!(replayed(directory.path(), &item).partial[&3].count(), 20);
}

#[test]
fn runs_are_found_in_any_set() {
    let mut set = SymbolSet::new(70);
    assert_eq!(runs(&set).count(), 0);
    for member in [0, 1, 5, 63, 64, 69] {
        set.insert(member);
    }
    assert!(runs(&set).eq([(0, 2), (5, 1), (63, 2), (69, 1)]));
    assert!(runs(&SymbolSet::full(70)).eq([(0, 70)]));
}
