//! Content of a feed: files that are scanned beforehand, or a pipe that is read while it is sent.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::poll::PollFlags;
use umbel_engine::congestion::PaceTo;
use umbel_engine::host::Mailbox;
use umbel_engine::tmtp::{BlockCount, SourceCommand};
use umbel_net::session::Signer;
use umbel_net::wake;
use umbel_store::feed::seal::Seal;
use umbel_store::feed::{
    BlockShape, FeedSource, FileFeed, Manifest, PipeId, PipeKeeper, PipeWriter,
};
use umbel_store::{BlockReader, Patterns, ReaderOptions, Repository, RepositoryOptions, Skipped};
use umbel_wire::feed::FeedContent;
use umbel_wire::{Digest, Scheme};

use super::super::admission::Sealing;
use super::host::Content;
use super::{SendObserver, What};
use crate::endpoint::pace::PaceOptions;

/// Bytes of a pipe that are kept, half of them for receivers that lag or come late.
const PIPE_MEMORY: usize = 64 << 20;
/// Longest time for which input waits for more to be signed with.
const UNSIGNED: Duration = Duration::from_millis(20);
/// Idle time of the input after which a block that is not full is sent.
const IDLE: Duration = Duration::from_millis(5);

/// Which files are content, how it is divided into blocks, and the secrets that seal it.
pub(super) struct Cut {
    /// Whether hidden files at the top are sent.
    pub(super) hidden: bool,
    /// Whether symbolic links are sent as the files that they lead to.
    pub(super) follow_links: bool,
    /// Files that are left out.
    pub(super) patterns: Patterns,
    pub(super) shape: BlockShape,
    pub(super) sealing: Option<Sealing>,
}

/// Content to send, and the files that were left out.
pub(super) struct Opened {
    pub(super) symbols: FeedSource,
    pub(super) plan: Plan,
    pub(super) skipped: Skipped,
}

/// Description of the content.
pub(super) enum Plan {
    Files(Files),
    Pipe(Pipe),
}

/// Files, of which all is known beforehand.
pub(super) struct Files {
    items: u64,
    bytes: u64,
    manifest: (u64, Digest),
    /// Number of blocks of the manifest, which are the first.
    manifest_blocks: u32,
    runs: Vec<BlockCount>,
}

/// A pipe that is still to be read.
pub(super) struct Pipe {
    input: Option<(File, PipeWriter)>,
    mailbox: Mailbox<SourceCommand>,
    /// Length and digest of the head of a sealed pipe, and its blocks.
    head: Option<(u64, Digest)>,
    head_blocks: Vec<BlockCount>,
    keeper: PipeKeeper,
    /// Number of blocks that are kept after everyone has acknowledged them.
    history: u32,
    /// Bytes read so far.
    bytes: Arc<AtomicU64>,
    /// Reason why the input could not be read to its end.
    failure: Arc<OnceLock<String>>,
}

impl Opened {
    /// Opens the content to send. Computing the digests of large files takes a while.
    pub(super) fn open(
        what: What,
        (pipe, signer): (PipeId, &Signer),
        cut: &Cut,
        mailbox: &Mailbox<SourceCommand>,
        observer: &dyn SendObserver,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Opened> {
        match what {
            What::Paths(paths) => Opened::files(&paths, cut, mailbox, observer, interrupted),
            What::Pipe(input) => {
                let shape = cut.shape;
                let seal = cut.sealing.as_ref().map(|sealing| sealing.seal(&[])).transpose()?;
                let head = seal.as_ref().map(|seal| described(&seal.head));
                let signer = signer.clone();
                let sign = Box::new(move |run: &[u8]| signer.sign(run));
                let (writer, feed) = umbel_store::feed::pipe(pipe, shape, PIPE_MEMORY, seal, sign)?;
                let block = usize::from(shape.symbol_len) * usize::from(shape.block_symbols);
                let pipe = Pipe {
                    keeper: feed.keeper(),
                    input: Some((input, writer)),
                    mailbox: mailbox.clone(),
                    head,
                    head_blocks: feed.head_runs().into_iter().map(blocks).collect(),
                    history: (PIPE_MEMORY / 2 / block) as u32,
                    bytes: Arc::default(),
                    failure: Arc::default(),
                };
                let symbols = FeedSource::Pipe(feed);
                Ok(Opened { symbols, plan: Plan::Pipe(pipe), skipped: Skipped::default() })
            }
        }
    }

    fn files(
        paths: &[PathBuf],
        cut: &Cut,
        mailbox: &Mailbox<SourceCommand>,
        observer: &dyn SendObserver,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Opened> {
        let shape = cut.shape;
        let options = RepositoryOptions {
            scheme: Scheme::ReedSolomon,
            symbol_len: shape.content_len(),
            max_block_symbols: shape.block_symbols.into(),
            warc: false,
            own: crate::state::own(None),
            hidden: cut.hidden,
            follow_links: cut.follow_links,
            patterns: cut.patterns.clone(),
            ..RepositoryOptions::default()
        };
        let repository = Repository::open_all(paths, options).context("cannot send")?;
        let catalog = repository.catalog();
        let mut items = Vec::new();
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let page = catalog.select(&[], from, 4096)?;
            items.extend(page.items);
            cursor = page.next;
        }
        let skipped = catalog.skipped();
        if items.is_empty() {
            let why = skipped.named().first().map_or("there is no file".to_owned(), |item| {
                format!("{} is left out: {}", item.name, item.reason)
            });
            bail!("there is nothing to send: {why}");
        }
        let bytes = items.iter().map(|item| item.sent_bytes()).sum();
        let (mut hashed, mut infos) = (0, Vec::with_capacity(items.len()));
        let mut digests = Vec::new();
        for item in &items {
            if interrupted.load(Ordering::Acquire) {
                bail!("interrupted");
            }
            observer.hashing(hashed, bytes);
            let all = catalog.digests(item.toi()).context("cannot send")?;
            let info = item.info();
            digests.extend(info.data_blocks().into_iter().flatten().map(|sbn| all[sbn as usize]));
            hashed += item.sent_bytes();
            infos.push(info);
        }
        let reader = BlockReader::new(repository.content(), &ReaderOptions::default(), {
            let mailbox = mailbox.clone();
            move || mailbox.put(SourceCommand::SymbolsReady)
        })?;
        let left_out = skipped.failures();
        let manifest = Manifest { items: infos.clone(), left_out, blocks: digests }.emit()?;
        let (manifest, key) = match &cut.sealing {
            None => (manifest, None),
            Some(sealing) => {
                let Seal { key, head } = sealing.seal(&manifest)?;
                (head, Some(key))
            }
        };
        let head = described(&manifest);
        let feed = FileFeed::new(shape, &infos, manifest, reader, key)?;
        let layout = feed.layout();
        let files = Files {
            items: catalog.len() as u64,
            bytes,
            manifest: head,
            manifest_blocks: layout.manifest().blocks(),
            runs: layout.runs().into_iter().map(blocks).collect(),
        };
        let symbols = FeedSource::Files(Box::new(feed));
        Ok(Opened { symbols, plan: Plan::Files(files), skipped })
    }
}

/// Converts a run of blocks.
fn blocks((count, symbols): (u32, u8)) -> BlockCount {
    BlockCount { count, symbols }
}

/// Returns the length and digest.
fn described(bytes: &[u8]) -> (u64, Digest) {
    (bytes.len() as u64, Digest(*blake3::hash(bytes).as_bytes()))
}

impl Plan {
    /// Returns the description that is announced.
    pub(super) fn describe(&self) -> FeedContent {
        match self {
            Plan::Files(Files { items, bytes, manifest: (manifest_len, digest), .. }) => {
                let (items, bytes, manifest_len) = (*items, *bytes, *manifest_len);
                FeedContent::Files { items, bytes, manifest_len, digest: *digest }
            }
            Plan::Pipe(_) => FeedContent::Pipe,
        }
    }

    /// Returns what is said of the rate, with this content's defaults. Who is left behind fetches
    /// files, but not what a pipe keeps no longer.
    pub(super) fn pace(&self, mut said: PaceOptions) -> PaceOptions {
        if matches!(self, Plan::Pipe(_)) {
            said.pace_to.get_or_insert(PaceTo::All);
        }
        said
    }

    /// Returns the length and digest of the head or manifest that comes first, if there is one.
    pub(super) fn head(&self) -> Option<(u64, Digest)> {
        match self {
            Plan::Files(files) => Some(files.manifest),
            Plan::Pipe(pipe) => pipe.head,
        }
    }

    /// Returns the number of blocks that are kept for late receivers; `None` for all.
    pub(super) fn history(&self) -> Option<u32> {
        match self {
            Plan::Files(_) => None,
            Plan::Pipe(pipe) => Some(pipe.history),
        }
    }
}

impl Content for Plan {
    type Symbols = FeedSource;

    fn files(&self) -> u64 {
        match self {
            Plan::Files(files) => files.items,
            Plan::Pipe(_) => 0,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Plan::Files(files) => files.bytes,
            Plan::Pipe(pipe) => pipe.bytes.load(Ordering::Relaxed),
        }
    }

    fn bytes_below(&self, block: u32, sent: u32) -> u64 {
        match self {
            Plan::Files(files) => files.bytes_below(block),
            Plan::Pipe(pipe) => {
                let head: u32 = pipe.head_blocks.iter().map(|run| run.count).sum();
                let [part, whole] = [block, sent].map(|block| block.saturating_sub(head).into());
                share(self.bytes(), part, whole)
            }
        }
    }

    fn head_blocks(&self) -> Vec<BlockCount> {
        match self {
            Plan::Files(files) => files.split().0,
            Plan::Pipe(pipe) => pipe.head_blocks.clone(),
        }
    }

    fn begin(&mut self) -> Result<Option<Vec<BlockCount>>, String> {
        match self {
            Plan::Files(files) => Ok(Some(files.split().1)),
            Plan::Pipe(pipe) => {
                let started = pipe.start();
                started.map_err(|error| format!("no thread to read the input: {error}"))?;
                Ok(None)
            }
        }
    }

    fn acknowledged(&mut self, below: u32) {
        if let Plan::Pipe(pipe) = self {
            pipe.keeper.forget(below.saturating_sub(pipe.history));
        }
    }

    fn failure(&self) -> Option<String> {
        match self {
            Plan::Files(_) => None,
            Plan::Pipe(pipe) => pipe.failure.get().cloned(),
        }
    }
}

/// Returns a part of the bytes.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part.min(whole)) / u128::from(whole.max(1))) as u64
}

impl Files {
    /// Returns the bytes of the files in the blocks below this one, by the number of symbols.
    fn bytes_below(&self, block: u32) -> u64 {
        let (mut below, mut all, mut first) = (0, 0, 0);
        for run in &self.runs {
            let end = first + run.count;
            let from = first.max(self.manifest_blocks);
            let symbols = |blocks: u32| u64::from(blocks) * u64::from(run.symbols);
            all += symbols(end.saturating_sub(from));
            below += symbols(end.min(block).saturating_sub(from));
            first = end;
        }
        share(self.bytes, below, all)
    }

    /// Splits the blocks into those of the manifest and those after it.
    fn split(&self) -> (Vec<BlockCount>, Vec<BlockCount>) {
        let mut left = self.manifest_blocks;
        let (mut manifest, mut rest) = (Vec::new(), Vec::new());
        for run in &self.runs {
            let first = run.count.min(left);
            left -= first;
            if first > 0 {
                manifest.push(BlockCount { count: first, ..*run });
            }
            if run.count > first {
                rest.push(BlockCount { count: run.count - first, ..*run });
            }
        }
        (manifest, rest)
    }
}

impl Pipe {
    /// Starts reading the input on its own thread, as far as there is room. Does nothing the second
    /// time.
    fn start(&mut self) -> std::io::Result<()> {
        let Some((mut input, mut writer)) = self.input.take() else { return Ok(()) };
        let (bytes, failure) = (self.bytes.clone(), self.failure.clone());
        let mailbox = self.mailbox.clone();
        let run = move || {
            let failed = copy(&mut input, &mut writer, &bytes, &mailbox).err();
            let failed = failed.map(|error| format!("the sender's input failed: {error}"));
            writer.end(failed.as_deref(), |symbols| pass_on(symbols, &mailbox));
            if let Some(failed) = &failed {
                failure.get_or_init(|| failed.clone());
            }
            mailbox.put(SourceCommand::Finish { failed });
        };
        std::thread::Builder::new().name("umbel-pipe".to_owned()).spawn(run)?;
        Ok(())
    }
}

/// Time since which the first byte waits that was read and is not signed.
#[derive(Clone, Copy, Debug, Default)]
struct Unsigned(Option<Instant>);

impl Unsigned {
    fn on_read(&mut self, now: Instant) {
        self.0.get_or_insert(now);
    }

    fn on_signed(&mut self) {
        self.0 = None;
    }

    /// Returns how long more input is waited for; `None` for as long as it takes.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.0?);
        Some(UNSIGNED.saturating_sub(waited).min(IDLE))
    }
}

/// Reads to the end. Sends what was read when there are enough blocks to sign at a time, or when
/// the input is idle for a moment. Waits no longer than [`UNSIGNED`].
fn copy(
    input: &mut File,
    writer: &mut PipeWriter,
    bytes: &AtomicU64,
    mailbox: &Mailbox<SourceCommand>,
) -> std::io::Result<()> {
    let mut unsigned = Unsigned::default();
    loop {
        if let Some(wait) = unsigned.patience(Instant::now()) {
            let [ready] = wake::wait_for([input.as_fd()], PollFlags::POLLIN, Some(wait))?;
            if !ready {
                writer.cut();
                writer.sign(|symbols| pass_on(symbols, mailbox));
                unsigned.on_signed();
                continue;
            }
        }
        let read = match writer.read_from(input) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(());
        }
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        let now = Instant::now();
        unsigned.on_read(now);
        let full = writer.is_full() && writer.cut();
        if full || unsigned.patience(now) == Some(Duration::ZERO) {
            writer.cut();
            writer.sign(|symbols| pass_on(symbols, mailbox));
            unsigned.on_signed();
        }
    }
}

/// Extends the feed by a block of this number of symbols.
fn pass_on(symbols: u8, mailbox: &Mailbox<SourceCommand>) {
    mailbox.put(SourceCommand::Extend(vec![BlockCount { count: 1, symbols }]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_files_is_no_part_of_the_bytes_that_are_done() {
        let run = |count, symbols| BlockCount { count, symbols };
        // A list of three blocks, one file of four large blocks, and four files of a small one.
        let files = Files {
            items: 5,
            bytes: 2_640_000,
            manifest: (0, Digest([0; 32])),
            manifest_blocks: 3,
            runs: vec![run(7, 64), run(4, 2)],
        };
        let below = [0, 1, 3, 4, 7, 8, 11, 12].map(|block| files.bytes_below(block));
        let file = 2_560_000;
        assert_eq!(below, [0, 0, 0, file / 4, file, file + 20_000, 2_640_000, 2_640_000]);
        assert_eq!(share(0, 0, 0), 0);
    }

    #[test]
    fn input_that_is_never_idle_and_never_much_waits_no_longer_than_other_input() {
        for gap in [1, 3, 4] {
            let gap = Duration::from_millis(gap);
            let (mut now, mut unsigned) = (Instant::now(), Unsigned::default());
            let (mut first, mut longest) = (None, Duration::ZERO);
            for _ in 0..1_000 {
                unsigned.on_read(now);
                let waited = now - *first.get_or_insert(now);
                let wait = unsigned.patience(now).expect("something waits");
                assert!(wait <= IDLE);
                // The next input comes after the gap, or this one is sent before.
                if wait.is_zero() || wait < gap {
                    longest = longest.max(waited + wait);
                    unsigned.on_signed();
                    first = None;
                }
                now += gap;
            }
            assert_eq!(longest, UNSIGNED, "{gap:?}");
        }
    }

    #[test]
    fn nothing_that_waits_is_no_reason_to_wake() {
        let mut unsigned = Unsigned::default();
        let now = Instant::now();
        assert_eq!(unsigned.patience(now), None);
        unsigned.on_read(now);
        assert_eq!(unsigned.patience(now), Some(IDLE));
        unsigned.on_signed();
        assert_eq!(unsigned.patience(now + UNSIGNED), None);
    }
}
