//! A server without a network, and a client with its own directory.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_fec::{Code, Partition};
use umbel_store::sink::{DiskSink, Held, HeldParts, SinkEvent, SinkOptions};
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

/// Bytes of a symbol.
pub(crate) const SYMBOL_LEN: u16 = 100;
/// Maximum number of source symbols in a block.
pub(crate) const K: u16 = 20;

/// An item that is served.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) content: Vec<u8>,
    pub(crate) info: ItemInfo,
    pub(crate) partition: Partition,
}

/// Stores whole blocks, as received over the session.
pub(crate) trait StoreBlock {
    /// Stores the source symbols of a block, and restores it if there was room for all of them.
    fn store_block(&mut self, block: BlockId, bytes: &[u8]) -> bool;
}

impl StoreBlock for DiskSink {
    fn store_block(&mut self, block: BlockId, bytes: &[u8]) -> bool {
        let mut symbols = (0..).zip(bytes.chunks(SYMBOL_LEN.into()));
        let stored = symbols.all(|(esi, symbol)| self.store(block, esi, symbol));
        if stored {
            self.restore(block);
        }
        stored
    }
}

impl Served {
    /// Creates an item with its own content.
    pub(crate) fn new(toi: u32, name: &str, len: usize, scheme: Scheme) -> Served {
        let mut content = vec![0; len];
        let mut seed = blake3::Hasher::new();
        seed.update(name.as_bytes()).update(&toi.to_le_bytes());
        seed.finalize_xof().fill(&mut content);
        let oti = Oti {
            scheme,
            object_len: len as u64,
            symbol_len: SYMBOL_LEN,
            max_block_symbols: K,
            max_encoding_symbols: 3 * K,
        };
        let info = ItemInfo {
            toi: Toi(toi),
            name: name.to_owned(),
            digest: Digest(*blake3::hash(&content).as_bytes()),
            modified_ns: Some(1_234_567_890_123_456_789),
            mode: None,
            kind: ItemKind::File,
            holes: None,
            media_type: String::new(),
            oti,
        };
        Served { content, info, partition: Partition::new(&oti).unwrap() }
    }

    /// Returns the same content under another name.
    pub(crate) fn renamed(&self, toi: u32, name: &str) -> Served {
        let mut served = self.clone();
        served.info.toi = Toi(toi);
        name.clone_into(&mut served.info.name);
        served
    }

    pub(crate) fn block(&self, sbn: u32) -> BlockId {
        BlockId { toi: self.info.toi, sbn }
    }

    pub(crate) fn block_bytes(&self, sbn: u32) -> &[u8] {
        let range = self.partition.block_range(sbn);
        &self.content[range.start as usize..range.end as usize]
    }

    pub(crate) fn block_digests(&self) -> Vec<Digest> {
        (0..self.partition.blocks())
            .map(|sbn| Digest(*blake3::hash(self.block_bytes(sbn)).as_bytes()))
            .collect()
    }

    pub(crate) fn assert_is_at(&self, path: &Path) {
        assert!(std::fs::read(path).unwrap() == self.content, "{} differs", path.display());
    }

    /// Returns an encoding symbol.
    pub(crate) fn symbol(&self, sbn: u32, esi: u32) -> Vec<u8> {
        let k = self.partition.block_symbols(sbn);
        if esi < k {
            let range = self.partition.symbol_range(sbn, esi);
            return self.content[range.start as usize..range.end as usize].to_vec();
        }
        let len = usize::from(SYMBOL_LEN);
        let mut source = self.block_bytes(sbn).to_vec();
        source.resize(k as usize * len, 0);
        let mut out = vec![0; len];
        Code::new(self.info.oti.scheme).encode(k, len, &source, esi..esi + 1, &mut out).unwrap();
        out
    }
}

/// A generator of pseudo-random numbers.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }
}

/// A client with its sink and output directory.
pub(crate) struct Client {
    pub(crate) sink: DiskSink,
    pub(crate) events: Receiver<SinkEvent>,
    path: PathBuf,
    directory: Option<TempDir>,
}

impl Client {
    /// Creates a client with a new directory.
    pub(crate) fn new() -> Client {
        Client::with(SinkOptions::default())
    }

    pub(crate) fn with(options: SinkOptions) -> Client {
        let directory = tempfile::tempdir().unwrap();
        let mut client = Client::at_path(directory.path(), options);
        client.directory = Some(directory);
        client
    }

    /// Creates a client with a directory that is not removed.
    pub(crate) fn at_path(path: &Path, options: SinkOptions) -> Client {
        let (events, receiver) = channel();
        let sink = DiskSink::open(path, options, move |event| {
            let _ = events.send(event);
        });
        Client { sink: sink.unwrap(), events: receiver, path: path.to_owned(), directory: None }
    }

    /// Closes the sink and opens another one on the same directory.
    pub(crate) fn restart(self) -> Client {
        self.restart_after(|_| {})
    }

    /// Closes the sink, calls `between` with the directory, and opens another sink on it.
    pub(crate) fn restart_after(self, between: impl FnOnce(&Path)) -> Client {
        self.sink.close();
        between(&self.path);
        let mut client = Client::at_path(&self.path, SinkOptions::default());
        client.directory = self.directory;
        client
    }

    /// Restarts after one byte of an item's part file was changed.
    pub(crate) fn restart_damaged(self, name: &str, at: usize) -> Client {
        self.restart_after(|directory| {
            let path = directory.join(format!(".{name}.umbel-part"));
            let mut part = std::fs::read(&path).unwrap();
            part[at] ^= 1;
            std::fs::write(&path, part).unwrap();
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn add(&mut self, served: &Served) -> Held {
        self.sink.add(&served.info).unwrap()
    }

    /// Adds an item whose blocks are compared with their digests as they come.
    pub(crate) fn add_with_digests(&mut self, served: &Served) -> Held {
        let prepared = self.sink.preparer().prepare(&served.info).unwrap();
        self.sink.admit(prepared.verified_by(&served.block_digests()))
    }

    /// Stores all blocks of an item, the last with a wrong byte. Returns the number of that one.
    pub(crate) fn store_with_wrong_last(&mut self, served: &Served) -> u32 {
        let last = served.partition.blocks() - 1;
        for sbn in 0..=last {
            let mut bytes = served.block_bytes(sbn).to_vec();
            bytes[0] ^= u8::from(sbn == last);
            assert!(self.sink.store_block(served.block(sbn), &bytes));
        }
        last
    }

    /// Receives only the missing symbols of an item: missing source symbols first, then repair
    /// symbols.
    pub(crate) fn complete(&mut self, served: &Served, held: &HeldParts) {
        for sbn in 0..served.partition.blocks() {
            let mut missing = held.missing_symbols(sbn);
            if missing == 0 {
                continue;
            }
            for esi in 0.. {
                if missing == 0 {
                    break;
                }
                if held.block(sbn).is_none_or(|block| !block.contains(esi)) {
                    assert!(self.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
                    missing -= 1;
                }
            }
            self.sink.restore(served.block(sbn));
        }
        let end = |event: &SinkEvent| {
            matches!(event, SinkEvent::RestoreFailed { .. } | SinkEvent::ItemDone { .. })
        };
        while let SinkEvent::RestoreFailed { block, held } = self.wait(end) {
            assert_eq!(served.info.oti.scheme, Scheme::RaptorQ, "k symbols are enough otherwise");
            let esi = (0..1 << 24).find(|&esi| !held.contains(esi)).expect("there are many");
            assert!(self.sink.store(block, esi, &served.symbol(block.sbn, esi)));
            self.sink.restore(block);
        }
        served.assert_is_at(&self.path.join(&served.info.name));
    }

    /// Adds an item that is not complete yet. Returns the parts held.
    pub(crate) fn add_parts(&mut self, served: &Served) -> HeldParts {
        match self.add(served) {
            Held::Parts(parts) => parts,
            held => panic!("{}: {held:?}", served.info.name),
        }
    }

    /// Sends as many symbols of each block as it needs. `loss` per cent of the source symbols are
    /// replaced by repair symbols.
    pub(crate) fn send_lossy(&mut self, served: &Served, loss: u64, seed: u64) {
        let mut random = Random(seed);
        for sbn in 0..served.partition.blocks() {
            let k = served.partition.block_symbols(sbn);
            let mut repair = k;
            for esi in 0..k {
                let lost = random.below(100) < loss;
                let esi = if lost { repair } else { esi };
                repair += u32::from(lost);
                assert!(self.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
            }
            self.sink.restore(served.block(sbn));
            self.help(served, repair);
        }
    }

    /// Sends further symbols for blocks that could not be restored.
    pub(crate) fn help(&mut self, served: &Served, mut repair: u32) {
        if served.info.oti.scheme != Scheme::RaptorQ {
            return;
        }
        let end = |event: &SinkEvent| {
            matches!(event, SinkEvent::BlockRestored { .. } | SinkEvent::RestoreFailed { .. })
        };
        while let SinkEvent::RestoreFailed { block, .. } = self.wait(end) {
            assert!(self.sink.store(block, repair, &served.symbol(block.sbn, repair)));
            repair += 1;
            self.sink.restore(block);
        }
    }

    /// Waits for the next event.
    pub(crate) fn wait_any(&self) -> SinkEvent {
        self.events.recv_timeout(Duration::from_mins(2)).expect("an event")
    }

    /// Waits for the next event of this kind.
    pub(crate) fn wait(&self, kind: impl Fn(&SinkEvent) -> bool) -> SinkEvent {
        loop {
            let event = self.wait_any();
            if kind(&event) {
                return event;
            }
            if let SinkEvent::ItemFailed { error, .. } = event {
                panic!("failed: {error}");
            }
        }
    }

    /// Waits until the item is done, and checks its file.
    pub(crate) fn wait_done(&self, served: &Served) {
        let toi = served.info.toi;
        let event = self
            .wait(|event| matches!(event, SinkEvent::ItemDone { toi: done, .. } if *done == toi));
        let SinkEvent::ItemDone { name, path, size, .. } = event else { unreachable!() };
        assert_eq!((name, size), (served.info.name.clone(), served.info.oti.object_len));
        served.assert_is_at(&path);
    }

    /// Returns the names of all files below the directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(self.path(), self.path(), &mut files);
        files.sort();
        files
    }
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}
