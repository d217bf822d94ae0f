use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Oti, Scheme, Toi};

use super::super::{DiskSink, Held, HeldParts, SinkEvent, SinkOptions};
use super::*;

/// Blocks of 10,000 bytes, which begin anywhere in a page.
const SYMBOL_LEN: u16 = 1_000;
const BLOCK_LEN: usize = 10_000;
const SIZE: u64 = 1 << 20;
const TOI: Toi = Toi(7);

/// A file that stands for a device.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    /// Creates a disk full of old data.
    fn new() -> Disk {
        let disk = Disk { directory: tempfile::tempdir().unwrap() };
        std::fs::write(disk.path(), vec![0xff; SIZE as usize]).unwrap();
        disk
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sdx")
    }

    fn open(&self) -> (DiskSink, Receiver<SinkEvent>) {
        let file = OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        let device = Device::new(self.path(), file, SIZE, false);
        let (told, events) = channel();
        let on_event = move |event| drop(told.send(event));
        let sink = DiskSink::on(Arc::new(device), SinkOptions::default(), on_event).unwrap();
        (sink, events)
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
}

/// An item of which every third block is a hole.
struct Image {
    content: Vec<u8>,
    info: ItemInfo,
    partition: Partition,
}

impl Image {
    fn new(seed: u8) -> Image {
        let len = 50 * BLOCK_LEN - 223;
        let mut content: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8 ^ seed | 1).collect();
        for block in content.chunks_mut(BLOCK_LEN).step_by(3) {
            block.fill(0);
        }
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: len as u64,
            symbol_len: SYMBOL_LEN,
            max_block_symbols: 10,
            max_encoding_symbols: 20,
        };
        let partition = Partition::new(&oti).unwrap();
        let mut image = Image {
            info: ItemInfo {
                toi: TOI,
                name: "disk.img".to_owned(),
                kind: ItemKind::File,
                digest: Digest(*blake3::hash(&content).as_bytes()),
                modified_ns: None,
                mode: None,
                holes: None,
                media_type: String::new(),
                oti,
            },
            content,
            partition,
        };
        image.info.holes = Some(crate::holes::of_zeros(&image.digests(), &partition));
        image
    }

    fn block(&self, sbn: u32) -> &[u8] {
        let range = self.partition.block_range(sbn);
        &self.content[range.start as usize..range.end as usize]
    }

    fn digests(&self) -> Vec<Digest> {
        let blocks = 0..self.partition.blocks();
        blocks.map(|sbn| Digest(*blake3::hash(self.block(sbn)).as_bytes())).collect()
    }

    /// Gives a sink the blocks that it lacks, up to so many. Returns their number.
    fn give(&self, sink: &mut DiskSink, parts: &HeldParts, most: usize) -> usize {
        let lacks = (0..self.partition.blocks()).filter(|sbn| !parts.is_restored(*sbn));
        let mut given = 0;
        for sbn in lacks.take(most) {
            for (esi, symbol) in (0..).zip(self.block(sbn).chunks(SYMBOL_LEN.into())) {
                while !sink.store(BlockId { toi: TOI, sbn }, esi, symbol) {}
            }
            sink.restore(BlockId { toi: TOI, sbn });
            given += 1;
        }
        given
    }

    fn is_on(&self, disk: &Disk) -> bool {
        let content = disk.content();
        let (item, rest) = content.split_at(self.content.len());
        item == self.content && rest.iter().all(|byte| *byte == 0xff)
    }
}

fn begin(sink: &DiskSink, image: &Image) -> HeldParts {
    let prepared = sink.preparer().prepare_on_device(&image.info, &image.digests()).unwrap();
    match sink.admit(prepared) {
        Held::Parts(parts) => parts,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn end(events: &Receiver<SinkEvent>) -> SinkEvent {
    loop {
        match events.recv_timeout(Duration::from_mins(1)).unwrap() {
            SinkEvent::BlockRestored { .. }
            | SinkEvent::Progress { .. }
            | SinkEvent::ReadingBack { .. } => {}
            event => return event,
        }
    }
}

#[test]
fn holes_become_zeros_over_old_data_and_nothing_behind_the_item_changes() {
    let (disk, image) = (Disk::new(), Image::new(0));
    let (mut sink, events) = disk.open();
    let parts = begin(&sink, &image);
    assert_eq!(parts.restored_bytes(), 0);
    let given = image.give(&mut sink, &parts, usize::MAX);
    assert_eq!(given, 33, "the others are holes");
    let event = end(&events);
    let is_done = |path: &Path| *path == disk.path();
    assert!(matches!(&event, SinkEvent::ItemDone { path, .. } if is_done(path)), "{event:?}");
    assert!(image.is_on(&disk));
    let report = sink.device().unwrap();
    assert_eq!((report.kept_bytes, report.read_back_bytes), (0, image.content.len() as u64));
    assert_eq!(report.zeroed_bytes, 17 * BLOCK_LEN as u64);
    // No other file was made.
    assert_eq!(std::fs::read_dir(disk.directory.path()).unwrap().count(), 1);
}

#[test]
fn a_run_goes_on_with_what_an_earlier_one_has_written_and_the_last_one_writes_nothing() {
    let (disk, image) = (Disk::new(), Image::new(0));
    let (mut sink, _events) = disk.open();
    let parts = begin(&sink, &image);
    image.give(&mut sink, &parts, 20);
    sink.close();
    assert!(!image.is_on(&disk));
    let (mut sink, events) = disk.open();
    let parts = begin(&sink, &image);
    assert!(parts.restored_bytes() >= 20 * BLOCK_LEN as u64, "{}", parts.restored_bytes());
    assert_eq!(image.give(&mut sink, &parts, usize::MAX), 13);
    assert!(matches!(end(&events), SinkEvent::ItemDone { .. }));
    assert!(image.is_on(&disk));
    drop(sink);
    let (sink, events) = disk.open();
    begin(&sink, &image);
    assert!(matches!(end(&events), SinkEvent::ItemAppeared { .. }));
    let report = sink.device().unwrap();
    assert_eq!((report.kept_bytes, report.zeroed_bytes), (image.content.len() as u64, 0));
}

#[test]
fn an_update_brings_what_differs() {
    let (disk, old, mut new) = (Disk::new(), Image::new(0), Image::new(0));
    std::fs::OpenOptions::new()
        .write(true)
        .open(disk.path())
        .unwrap()
        .write_all_at(&old.content, 0)
        .unwrap();
    // A hole has data now, and data becomes a hole.
    new.content[3 * BLOCK_LEN + 5] = 1;
    new.content[4 * BLOCK_LEN..5 * BLOCK_LEN].fill(0);
    new.info.digest = Digest(*blake3::hash(&new.content).as_bytes());
    new.info.holes = Some(crate::holes::of_zeros(&new.digests(), &new.partition));
    let (mut sink, events) = disk.open();
    let parts = begin(&sink, &new);
    assert_eq!(new.give(&mut sink, &parts, usize::MAX), 1);
    assert!(matches!(end(&events), SinkEvent::ItemDone { .. }));
    assert!(new.is_on(&disk));
}

#[test]
fn what_does_not_fit_a_device_is_refused_before_anything_is_written() {
    let (disk, image) = (Disk::new(), Image::new(0));
    let (sink, _events) = disk.open();
    let said = |info: &ItemInfo| sink.add(info).unwrap_err().to_string();
    let mut info = image.info.clone();
    info.oti.object_len = SIZE + 1;
    let line = said(&info);
    assert!(line.contains("1048576") && line.contains("1048577"), "{line}");
    assert!(said(&ItemInfo { kind: ItemKind::Directory, ..image.info.clone() }).contains("file"));
    info.oti.object_len = 0;
    assert!(said(&info).contains("no bytes"), "{}", said(&info));
    begin(&sink, &image);
    let other = ItemInfo { name: "other.img".to_owned(), toi: Toi(8), ..image.info.clone() };
    assert!(said(&other).contains("has taken \"disk.img\""), "{}", said(&other));
    assert!(disk.content().iter().all(|byte| *byte == 0xff));
}

#[test]
fn a_block_that_is_wrong_is_dropped_as_it_comes() {
    let (disk, image) = (Disk::new(), Image::new(0));
    let (mut sink, events) = disk.open();
    let parts = begin(&sink, &image);
    let lie = Image::new(2);
    for (esi, symbol) in (0..).zip(lie.block(1).chunks(SYMBOL_LEN.into())) {
        assert!(sink.store(BlockId { toi: TOI, sbn: 1 }, esi, symbol));
    }
    sink.restore(BlockId { toi: TOI, sbn: 1 });
    let event = end(&events);
    assert!(
        matches!(&event, SinkEvent::BlocksDropped { blocks, .. } if *blocks == [1]),
        "{event:?}"
    );
    image.give(&mut sink, &parts, usize::MAX);
    assert!(matches!(end(&events), SinkEvent::ItemDone { .. }));
    assert!(image.is_on(&disk));
}

#[test]
fn symbols_that_wait_for_others_are_found_again() {
    let (disk, image) = (Disk::new(), Image::new(0));
    let (mut sink, events) = disk.open();
    let parts = begin(&sink, &image);
    let id = BlockId { toi: TOI, sbn: 1 };
    let symbols: Vec<&[u8]> = image.block(1).chunks(SYMBOL_LEN.into()).collect();
    for esi in 0..4 {
        assert!(sink.store(id, esi, symbols[esi as usize]));
    }
    sink.rest(id);
    for esi in 4..10 {
        assert!(sink.store(id, esi, symbols[esi as usize]));
    }
    sink.restore(id);
    image.give(&mut sink, &parts, usize::MAX);
    assert!(matches!(end(&events), SinkEvent::ItemDone { .. }));
    assert!(image.is_on(&disk));
}
