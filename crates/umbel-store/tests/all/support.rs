//! Helpers shared by the tests of the server side.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_fec::Partition;
use umbel_store::{BlockReader, Item, ReaderOptions, Repository, RepositoryOptions};
use umbel_wire::repository::ItemKind;
use umbel_wire::{Scheme, Toi};

/// Maximum time to wait; longer than any operation here takes.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// Returns options with small symbols and blocks, so that small files have many of them.
pub(crate) fn small_options() -> RepositoryOptions {
    RepositoryOptions {
        scheme: Scheme::ReedSolomon,
        symbol_len: 64,
        max_block_symbols: 16,
        ..RepositoryOptions::default()
    }
}

pub(crate) fn open(path: &Path) -> Repository {
    Repository::open(path, small_options()).unwrap()
}

/// Returns the names of all files.
pub(crate) fn names(repository: &Repository) -> Vec<String> {
    select(repository, &[])
}

/// Returns the names of the files that match.
pub(crate) fn select(repository: &Repository, patterns: &[&str]) -> Vec<String> {
    let all = select_all(repository, patterns).into_iter();
    all.filter(|(_, kind)| *kind == ItemKind::File).map(|(name, _)| name).collect()
}

/// Returns the names of all items that match, and what they are.
pub(crate) fn select_all(repository: &Repository, patterns: &[&str]) -> Vec<(String, ItemKind)> {
    let patterns: Vec<String> = patterns.iter().map(|&p| p.to_owned()).collect();
    let selection = repository.catalog().select(&patterns, 0, usize::MAX).unwrap();
    assert_eq!(selection.total, selection.items.len() as u64);
    selection.items.iter().map(|item| (item.name().to_owned(), item.kind().clone())).collect()
}

pub(crate) fn toi(repository: &Repository, name: &str) -> Toi {
    repository.catalog().lookup(name).unwrap_or_else(|| panic!("no item {name}")).toi()
}

pub(crate) fn read(repository: &Repository, item: &Item) -> Vec<u8> {
    let mut content = vec![0; item.size() as usize];
    repository.content().read_at(item.toi(), 0, &mut content).unwrap();
    content
}

/// Returns bytes without repetition.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (i >> 8) as u8 ^ seed)
        .collect()
}

pub(crate) fn write(root: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A reader with a way to wait for symbols.
pub(crate) struct Sender {
    pub(crate) reader: BlockReader,
    woken: mpsc::Receiver<()>,
}

impl Sender {
    pub(crate) fn new(repository: &Repository, options: &ReaderOptions) -> Sender {
        let (wake, woken) = mpsc::channel();
        let wake = move || {
            let _ = wake.send(());
        };
        let reader = BlockReader::new(repository.content(), options, wake).unwrap();
        Sender { reader, woken }
    }

    /// Returns the symbol, or the reason why it is unavailable. Fails if the reader does not wake
    /// the sender in time.
    pub(crate) fn symbol(&mut self, toi: Toi, sbn: u32, esi: u32) -> Result<Bytes, String> {
        loop {
            match self.reader.symbol(BlockId { toi, sbn }, esi) {
                Load::Ready(symbol) => return Ok(symbol),
                Load::Gone(reason) => return Err(reason),
                Load::Pending => self.woken.recv_timeout(LONG).expect("the reader wakes its host"),
            }
        }
    }

    /// Reads the whole content as a transmission sends it, block after block, with some of the next
    /// blocks prefetched.
    pub(crate) fn transmit(&mut self, item: &Item) -> Result<Vec<u8>, String> {
        const AHEAD: u32 = 4;
        let partition = Partition::new(&item.oti()).unwrap();
        let toi = item.toi();
        let mut content = Vec::new();
        let mut prefetched = 0;
        for sbn in 0..partition.blocks() {
            while prefetched < partition.blocks().min(sbn + AHEAD) {
                let esis = 0..partition.block_symbols(prefetched);
                self.reader.prefetch(BlockId { toi, sbn: prefetched }, esis);
                prefetched += 1;
            }
            for esi in 0..partition.block_symbols(sbn) {
                content.extend_from_slice(&self.symbol(toi, sbn, esi)?);
            }
            self.reader.release(BlockId { toi, sbn });
        }
        Ok(content)
    }
}
