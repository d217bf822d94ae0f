//! A feed of files from the disk of a source to that of a receiver.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, unbounded};
use tempfile::TempDir;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp::FEED;
use umbel_store::feed::seal::{FeedKey, OpenError, Opener, SEAL_LEN, SecretKey, seal_head};
use umbel_store::feed::{
    BlockShape, FeedPrepared, FileEvent, FileFeed, FileSink, Manifest, ManifestError,
};
use umbel_store::sink::{DiskSink, SinkEvent, SinkOptions};
use umbel_store::{BlockReader, Item, ReaderOptions, Repository, RepositoryOptions};
use umbel_wire::{Digest, Tsi};

/// Time longer than anything in these tests takes.
const LAST_RESORT: Duration = Duration::from_mins(2);
const SHAPE: BlockShape = BlockShape { symbol_len: 100, block_symbols: 8, sealed: false };

fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

const SEALED: BlockShape = BlockShape { symbol_len: 100 + SEAL_LEN as u16, sealed: true, ..SHAPE };
const TSI: Tsi = Tsi(7);

/// Returns the secret keys of a receiver that is admitted to sealed feeds, and of the feed.
fn keys() -> (SecretKey, SecretKey) {
    (SecretKey::new([1; 32]), SecretKey::new([2; 32]))
}

struct Source {
    feed: FileFeed,
    shape: BlockShape,
    /// The manifest, or the head.
    manifest: Vec<u8>,
    ready: Receiver<()>,
}

impl Source {
    fn cut(paths: &[PathBuf], shape: BlockShape) -> Source {
        let options = RepositoryOptions {
            symbol_len: shape.content_len(),
            max_block_symbols: SHAPE.block_symbols.into(),
            warc: false,
            ..RepositoryOptions::default()
        };
        let repository = Repository::open_all(paths, options).unwrap();
        let catalog = repository.catalog();
        let items = catalog.select(&[], 0, 1000).unwrap().items;
        let digests = |item: &Arc<Item>| {
            let all = catalog.digests(item.toi()).unwrap();
            let data = item.info().data_blocks().into_iter().flatten();
            data.map(|sbn| all[sbn as usize]).collect::<Vec<_>>()
        };
        let blocks = items.iter().flat_map(digests).collect();
        let infos: Vec<_> = items.iter().map(|item| item.info()).collect();
        let (wake, ready) = unbounded();
        let reader = BlockReader::new(repository.content(), &ReaderOptions::default(), move || {
            let _ = wake.send(());
        });
        let manifest = Manifest { items: infos.clone(), left_out: 0, blocks }.emit().unwrap();
        let (manifest, key) = if shape.sealed {
            let (receiver, ephemeral) = keys();
            let list = [receiver.public()];
            let head = seal_head(TSI, &[9; 32], &ephemeral, &list, &manifest).unwrap();
            (head, Some(FeedKey::new(TSI, &[9; 32])))
        } else {
            (manifest, None)
        };
        let feed = FileFeed::new(shape, &infos, manifest.clone(), reader.unwrap(), key).unwrap();
        Source { feed, shape, manifest, ready }
    }

    fn symbol(&mut self, block: u32, esi: u32) -> Bytes {
        loop {
            match self.feed.symbol(BlockId { toi: FEED, sbn: block }, esi) {
                Load::Ready(symbol) => return symbol,
                Load::Pending => self.ready.recv_timeout(LAST_RESORT).unwrap(),
                Load::Gone(reason) => panic!("{reason}"),
            }
        }
    }

    /// Returns the number of source symbols of each block.
    fn lengths(&self) -> Vec<u32> {
        let runs = self.feed.layout().runs();
        let lengths = |(count, k)| std::iter::repeat_n(u32::from(k), count as usize);
        runs.into_iter().flat_map(lengths).collect()
    }
}

struct Keeper {
    sink: FileSink,
    files: Receiver<FileEvent>,
    disk: Receiver<SinkEvent>,
}

impl Keeper {
    fn of(directory: &Path, source: &Source) -> Keeper {
        Keeper::cut(directory, &source.manifest, source.shape, &keys().0)
    }

    fn cut(directory: &Path, manifest: &[u8], shape: BlockShape, key: &SecretKey) -> Keeper {
        let (told, disk) = unbounded();
        let sink = DiskSink::open(directory, SinkOptions::default(), move |event| {
            let _ = told.send(event);
        });
        let (told, files) = unbounded();
        let digest = Digest(*blake3::hash(manifest).as_bytes());
        let about = (manifest.len() as u64, digest);
        let opener = shape.sealed.then(|| Opener::new(TSI, key.clone(), keys().1.public()));
        let sink = FileSink::new(shape, about, opener, sink.unwrap(), move |event| {
            let _ = told.send(event);
        });
        Keeper { sink: sink.unwrap(), files, disk }
    }

    /// Stores as many symbols as the block needs, about half of them repair symbols.
    fn block(&mut self, source: &mut Source, block: u32, k: u32) {
        let id = BlockId { toi: FEED, sbn: block };
        let lost = k / 2;
        for esi in (0..k - lost).chain(k..k + lost) {
            assert!(self.sink.store(id, esi, &source.symbol(block, esi)), "{block} {esi}");
        }
        self.sink.restore(id);
    }

    /// Begins with the items of the manifest. Returns the blocks that need not be received.
    fn begin(&mut self) -> Vec<std::ops::Range<u32>> {
        let FileEvent::Manifest(Manifest { items, .. }) = self.files.try_recv().unwrap() else {
            panic!()
        };
        let preparer = self.sink.disk().preparer();
        let prepare = |info: umbel_wire::repository::ItemInfo| FeedPrepared {
            prepared: Some(preparer.prepare(&info).unwrap()),
            info,
        };
        let skip = self.sink.begin(items.into_iter().map(prepare).collect()).unwrap();
        skip.into_iter().map(umbel_wire::tmtp::BlockRun::blocks).collect()
    }

    /// Receives the blocks of the manifest, and begins. Returns how many they are, and the runs of
    /// blocks that are already there.
    fn take_manifest(
        &mut self,
        source: &mut Source,
        lengths: &[u32],
    ) -> (u32, Vec<std::ops::Range<u32>>) {
        let first = self.sink.manifest_blocks();
        for block in 0..first {
            self.block(source, block, lengths[block as usize]);
        }
        (first, self.begin())
    }

    /// Waits for an event of the disk.
    fn wait(&self, wanted: impl Fn(&SinkEvent) -> bool) -> SinkEvent {
        loop {
            let event = self.disk.recv_timeout(LAST_RESORT).unwrap();
            if wanted(&event) {
                return event;
            }
        }
    }

    fn wait_for_items(&self, count: usize) {
        let mut done = 0;
        while done < count {
            match self.disk.recv_timeout(LAST_RESORT).unwrap() {
                SinkEvent::ItemDone { .. } => done += 1,
                SinkEvent::ItemFailed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
}

fn files(directory: &Path, files: &[(&str, usize)]) {
    for (seed, (name, len)) in (0..).zip(files) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, noise(seed, *len)).unwrap();
    }
}

#[test]
fn files_arrive_whatever_comes_first() {
    let place = TempDir::new().unwrap();
    let names = [("dir/a", 5_000), ("dir/b/c", 1), ("dir/empty", 0), ("single", 1_234)];
    files(place.path(), &names);
    let paths = [place.path().join("dir"), place.path().join("single")];
    for (shape, backwards) in [(SHAPE, false), (SHAPE, true), (SEALED, false), (SEALED, true)] {
        let mut source = Source::cut(&paths, shape);
        let lengths = source.lengths();
        let out = TempDir::new().unwrap();
        let mut sink = Keeper::of(out.path(), &source);
        let manifest = sink.sink.manifest_blocks() as usize;
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        if backwards {
            order.reverse();
        }
        let mut begun = false;
        for block in order {
            sink.block(&mut source, block as u32, lengths[block]);
            if !begun && sink.files.len() == 1 {
                assert_eq!(sink.begin(), []);
                begun = true;
            }
        }
        assert!(begun && manifest > 0);
        sink.wait_for_items(names.len());
        for (seed, (name, len)) in (0..).zip(names) {
            assert_eq!(fs::read(out.path().join(name)).unwrap(), noise(seed, len), "{name}");
        }
    }
}

#[test]
fn what_was_held_is_skipped_when_a_receiver_starts_again() {
    resume(SHAPE);
    resume(SEALED);
}

fn resume(shape: BlockShape) {
    let (place, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    files(place.path(), &[("a", 800), ("b", 80_000)]);
    let mut source = Source::cut(&[place.path().to_owned()], shape);
    let lengths = source.lengths();
    let first = {
        let mut sink = Keeper::of(out.path(), &source);
        let (first, held) = sink.take_manifest(&mut source, &lengths);
        assert_eq!(held, []);
        for block in first..first + 51 {
            sink.block(&mut source, block, lengths[block as usize]);
        }
        sink.wait_for_items(1);
        first
    };
    let mut sink = Keeper::of(out.path(), &source);
    for block in 0..first {
        sink.block(&mut source, block, lengths[block as usize]);
    }
    // The blocks of `a`, which is complete, and half of `b`.
    assert_eq!(
        sink.begin().into_iter().flatten().collect::<Vec<_>>(),
        (first..first + 51).collect::<Vec<_>>()
    );
    for block in first + 51..lengths.len() as u32 {
        sink.block(&mut source, block, lengths[block as usize]);
    }
    sink.wait_for_items(1);
    assert_eq!(fs::read(out.path().join("b")).unwrap(), noise(1, 80_000));
}

#[test]
fn a_receiver_that_is_not_admitted_learns_nothing_but_that() {
    let (place, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    files(place.path(), &[("a", 800)]);
    let mut source = Source::cut(&[place.path().to_owned()], SEALED);
    let lengths = source.lengths();
    let mut sink = Keeper::cut(out.path(), &source.manifest, SEALED, &SecretKey::new([8; 32]));
    for (block, k) in (0..).zip(lengths) {
        let secret = noise(0, 800);
        for esi in 0..k {
            let symbol = source.symbol(block, esi);
            let shown = symbol.windows(16).any(|part| secret.windows(16).any(|own| own == part));
            assert!(!shown, "block {block} shows the file");
        }
        sink.block(&mut source, block, k);
    }
    let sealed = ManifestError::Sealed(OpenError::NotAdmitted);
    assert!(matches!(sink.files.try_recv(), Ok(FileEvent::Unreadable(error)) if error == sealed));
    assert!(sink.files.try_recv().is_err());
}

#[test]
fn a_sealed_block_with_a_forged_symbol_is_lost_and_received_again() {
    let (place, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    files(place.path(), &[("a", 800)]);
    let mut source = Source::cut(&[place.path().to_owned()], SEALED);
    let lengths = source.lengths();
    let mut sink = Keeper::of(out.path(), &source);
    let (first, _) = sink.take_manifest(&mut source, &lengths);
    let id = BlockId { toi: FEED, sbn: first };
    for esi in 0..lengths[first as usize] {
        let mut symbol = source.symbol(first, esi).to_vec();
        symbol[30] ^= u8::from(esi == 2);
        assert!(sink.sink.store(id, esi, &symbol));
    }
    sink.sink.restore(id);
    assert!(matches!(sink.files.try_recv(), Ok(FileEvent::Lost { block, .. }) if block == first));
    for block in first..lengths.len() as u32 {
        sink.block(&mut source, block, lengths[block as usize]);
    }
    sink.wait_for_items(1);
    assert_eq!(fs::read(out.path().join("a")).unwrap(), noise(0, 800));
}

#[test]
fn a_manifest_that_was_damaged_is_not_believed_and_can_come_again() {
    let place = TempDir::new().unwrap();
    files(place.path(), &[("a", 800)]);
    let mut source = Source::cut(&[place.path().to_owned()], SHAPE);
    let lengths = source.lengths();
    let mut sink = Keeper::of(place.path(), &source);
    let first = sink.sink.manifest_blocks();
    for block in 0..first {
        let id = BlockId { toi: FEED, sbn: block };
        for esi in 0..lengths[block as usize] {
            let mut symbol = source.symbol(block, esi).to_vec();
            symbol[0] ^= 1;
            assert!(sink.sink.store(id, esi, &symbol));
        }
        sink.sink.restore(id);
    }
    // However many of its blocks are forged, each time all of them come they are dropped.
    let told = sink.files.try_recv();
    assert!(matches!(told, Ok(FileEvent::HeadForged { blocks }) if blocks == first), "{told:?}");
    for block in 0..first {
        sink.block(&mut source, block, lengths[block as usize]);
    }
    assert!(matches!(sink.files.try_recv(), Ok(FileEvent::Manifest(_))));
}

#[test]
fn a_wrong_block_is_dropped_as_soon_as_it_is_whole_and_costs_itself_alone() {
    let (place, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    files(place.path(), &[("a", 8_000), ("b", 90)]);
    let mut source = Source::cut(&[place.path().to_owned()], SHAPE);
    let lengths = source.lengths();
    let mut sink = Keeper::of(out.path(), &source);
    let (first, _) = sink.take_manifest(&mut source, &lengths);
    let all = first..lengths.len() as u32;
    let (wrong, last) = (first + 3, all.end - 1);
    for block in all.clone().filter(|block| ![wrong, last].contains(block)) {
        sink.block(&mut source, block, lengths[block as usize]);
    }
    // A forged symbol in a block of many, and a file of one block.
    for block in [wrong, last] {
        let id = BlockId { toi: FEED, sbn: block };
        for esi in 0..lengths[block as usize] {
            let mut symbol = source.symbol(block, esi).to_vec();
            symbol[0] ^= u8::from(esi == 0);
            assert!(sink.sink.store(id, esi, &symbol));
        }
        sink.sink.restore(id);
        let event = sink.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
        let SinkEvent::BlocksDropped { toi, blocks } = event else { panic!() };
        let dropped: Vec<_> =
            blocks.iter().map(|&sbn| sink.sink.block_of(BlockId { toi, sbn })).collect();
        assert_eq!(dropped, [Some(block)]);
        sink.block(&mut source, block, lengths[block as usize]);
        // Before the next wait, which would skip that the item is done.
        sink.wait_for_items(1);
    }
    assert_eq!(fs::read(out.path().join("a")).unwrap(), noise(0, 8_000));
}

#[test]
fn a_sink_of_files_knows_how_long_blocks_are_and_which_symbols_are_forged() {
    for shape in [SHAPE, SEALED] {
        let (place, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        files(place.path(), &[("a", 1_500), ("b", 90)]);
        let mut source = Source::cut(&[place.path().to_owned()], shape);
        let lengths = source.lengths();
        let mut sink = Keeper::of(out.path(), &source);
        let first = sink.sink.manifest_blocks();
        let known = |sink: &Keeper, block: u32| {
            sink.sink.source_symbols(BlockId { toi: FEED, sbn: block }).map(u32::from)
        };
        for (block, &k) in (0..).zip(&lengths) {
            assert_eq!(known(&sink, block), (block < first).then_some(k), "block {block}");
        }
        for block in 0..first {
            sink.block(&mut source, block, lengths[block as usize]);
        }
        sink.begin();
        for (block, &k) in (0..).zip(&lengths) {
            assert_eq!(known(&sink, block), Some(k), "block {block}");
            let id = BlockId { toi: FEED, sbn: block };
            for esi in 0..=k {
                let symbol = source.symbol(block, esi);
                assert!(sink.sink.is_genuine(id, k as u8, esi, &symbol), "{block} {esi}");
                let mut forged = symbol.to_vec();
                forged[10] ^= 4;
                // A forged symbol is undetected in other blocks, and among repair symbols.
                let unknown = !shape.sealed || block < first || esi == k;
                assert_eq!(sink.sink.is_genuine(id, k as u8, esi, &forged), unknown);
            }
        }
        assert_eq!(known(&sink, lengths.len() as u32), None);
    }
}

#[test]
fn two_paths_of_one_name_are_refused() {
    let place = TempDir::new().unwrap();
    files(place.path(), &[("x/a", 1), ("y/a", 1)]);
    let paths = [place.path().join("x/a"), place.path().join("y/a")];
    let error = Repository::open_all(&paths, RepositoryOptions::default()).unwrap_err();
    assert!(error.to_string().contains("named a"), "{error}");
}

#[test]
fn holes_are_no_blocks_of_the_feed_and_holes_again_at_the_receiver() {
    let place = TempDir::new().unwrap();
    files(place.path(), &[("a", 5_000), ("z", 5_000)]);
    let mut content = vec![0; 1 << 20];
    content[100_000..110_000].copy_from_slice(&noise(5, 10_000));
    content[900_003] = 1;
    let path = place.path().join("image");
    let image = fs::File::create(&path).unwrap();
    image.set_len(content.len() as u64).unwrap();
    image.write_all_at(&content[100_000..110_000], 100_000).unwrap();
    image.write_all_at(&[1], 900_003).unwrap();
    drop(image);
    let allocated = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    if allocated(&path) > 100_000 {
        eprintln!("SKIPPED: {} has no holes", place.path().display());
        return;
    }
    for shape in [SHAPE, SEALED] {
        let mut source = Source::cut(&[place.path().to_owned()], shape);
        let lengths = source.lengths();
        let bytes = lengths.iter().map(|k| k * 100).sum::<u32>();
        assert!(bytes < 60_000, "{bytes} bytes of blocks, of which 31,000 are data");
        let out = TempDir::new().unwrap();
        let mut sink = Keeper::of(out.path(), &source);
        let (first, held) = sink.take_manifest(&mut source, &lengths);
        assert_eq!(held, []);
        for block in first..lengths.len() as u32 {
            sink.block(&mut source, block, lengths[block as usize]);
        }
        sink.wait_for_items(3);
        assert!(fs::read(out.path().join("image")).unwrap() == content);
        assert!(allocated(&out.path().join("image")) < 100_000);
        assert_eq!(fs::read(out.path().join("z")).unwrap(), noise(1, 5_000));
    }
}
