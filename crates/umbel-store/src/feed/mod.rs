//! What a feed contains: files behind a manifest, or a pipe.
//!
//! A feed's protocol knows blocks 0, 1, 2 … only. Here is what they mean:
//!
//! ```text
//! files   block 0 … m−1   the manifest: every item's name, size, digest, times
//!         block m …       the items' blocks, item after item, each cut as RFC 5052 says
//! pipe    every block     digest (32 bytes), length (4 bytes), that many bytes of the pipe
//! ```
//!
//! A feed that only admitted receivers can read is [sealed](seal): the head, with the feed's key for each
//! of them, stands in the place of the manifest, before a pipe too; all symbols after it are sealed.
//!
//! | | gives symbols to the source | takes symbols from the receiver |
//! |---|---|---|
//! | files | [`FileFeed`]: reads blocks by [`BlockReader`](crate::BlockReader) | [`FileSink`]: keeps them by [`DiskSink`](crate::sink::DiskSink) |
//! | pipe | [`PipeFeed`]: blocks in memory, cut by a [`PipeWriter`] | [`PipeSink`]: blocks in memory, read in order by a [`PipeReader`] |
//!
//! [`FeedSource`] and [`FeedSink`] are one of the two. Nothing here is unbounded: a manifest has at
//! most 64 MiB, and what comes before it is known waits in 16 MiB; a pipe's blocks have a budget on
//! both sides, and a reader that does not read makes the sink refuse symbols.

mod block;
mod file_sink;
mod files;
mod head;
mod layout;
mod manifest;
mod pipe;
pub mod seal;

use std::ops::Range;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};

pub use file_sink::FileSink;
pub use files::{FeedPrepared, FileEvent, FileFeed};
pub use layout::{BlockShape, Layout, LayoutError};
pub use manifest::{Manifest, ManifestError};
pub use pipe::{
    PipeEvent, PipeFeed, PipeKeeper, PipeReader, PipeSink, PipeWriter, pipe, pipe_sink,
};

/// What a feed's source sends.
#[derive(Debug)]
pub enum FeedSource {
    /// Files.
    Files(Box<FileFeed>),
    /// A pipe.
    Pipe(PipeFeed),
}

impl SymbolSource for FeedSource {
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>) {
        match self {
            FeedSource::Files(files) => files.prefetch(block, esis),
            FeedSource::Pipe(pipe) => pipe.prefetch(block, esis),
        }
    }

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        match self {
            FeedSource::Files(files) => files.symbol(block, esi),
            FeedSource::Pipe(pipe) => pipe.symbol(block, esi),
        }
    }

    fn release(&mut self, block: BlockId) {
        match self {
            FeedSource::Files(files) => files.release(block),
            FeedSource::Pipe(pipe) => pipe.release(block),
        }
    }
}

/// Where a feed's receiver keeps it. Clones are the same sink: an engine stores symbols by one, its
/// host manages files and pipe by another.
#[derive(Clone, Debug)]
pub enum FeedSink {
    /// Files.
    Files(FileSink),
    /// A pipe.
    Pipe(PipeSink),
}

impl SymbolSink for FeedSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        match self {
            FeedSink::Files(files) => files.store(block, esi, symbol),
            FeedSink::Pipe(pipe) => pipe.store(block, esi, symbol),
        }
    }

    fn restore(&mut self, block: BlockId) {
        match self {
            FeedSink::Files(files) => files.restore(block),
            FeedSink::Pipe(pipe) => pipe.restore(block),
        }
    }

    fn rest(&mut self, block: BlockId) {
        match self {
            FeedSink::Files(files) => files.rest(block),
            FeedSink::Pipe(pipe) => pipe.rest(block),
        }
    }

    fn source_symbols(&self, block: BlockId) -> Option<u8> {
        match self {
            FeedSink::Files(files) => files.source_symbols(block),
            FeedSink::Pipe(pipe) => pipe.source_symbols(block),
        }
    }

    fn is_genuine(&self, block: BlockId, k: u8, esi: u32, symbol: &[u8]) -> bool {
        match self {
            FeedSink::Files(files) => files.is_genuine(block, k, esi, symbol),
            FeedSink::Pipe(pipe) => pipe.is_genuine(block, k, esi, symbol),
        }
    }

    fn forget(&mut self, block: BlockId) {
        match self {
            FeedSink::Files(files) => files.forget(block),
            FeedSink::Pipe(pipe) => pipe.forget(block),
        }
    }
}

/// An encoding symbol of a block in memory that is filled up with zeros to `k` symbols; `len` bytes
/// of it count.
fn encoding_symbol(block: &Bytes, len: usize, symbol_len: usize, k: u32, esi: u32) -> Load {
    use umbel_fec::Code;
    use umbel_wire::Scheme;
    if esi < k {
        let start = esi as usize * symbol_len;
        return Load::Ready(block.slice(start.min(len)..(start + symbol_len).min(len)));
    }
    let mut symbol = vec![0; symbol_len];
    match Code::new(Scheme::ReedSolomon).encode(k, symbol_len, block, esi..esi + 1, &mut symbol) {
        Ok(()) => Load::Ready(symbol.into()),
        Err(error) => Load::Gone(error.to_string()),
    }
}
