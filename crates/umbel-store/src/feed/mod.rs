//! The contents of a feed: files after a manifest, or a pipe.
//!
//! A feed's protocol knows only blocks 0, 1, 2 …. They have these contents:
//!
//! ```text
//! files   block 0 … m−1   the manifest: every item's name, size, digest, times; every block's digest
//!         block m …       the items' blocks, item after item, each cut as RFC 5052 says
//! pipe    every block     bytes of the pipe, signed in runs of blocks
//! ```
//!
//! A feed that only admitted receivers can read is [sealed](seal). Its head, with the feed's key
//! for each admitted receiver, replaces the manifest, and also precedes a pipe. All symbols after
//! the head are sealed.
//!
//! | | produces the source's symbols | stores the receiver's symbols |
//! |---|---|---|
//! | files | [`FileFeed`]: reads blocks with [`BlockReader`](crate::BlockReader) | [`FileSink`]: stores them with [`DiskSink`](crate::sink::DiskSink) |
//! | pipe | [`PipeFeed`]: blocks in memory, cut by a [`PipeWriter`] | [`PipeSink`]: blocks in memory, read in order by a [`PipeReader`] |
//!
//! [`FeedSource`] and [`FeedSink`] are one of the two. Memory is bounded everywhere. A manifest has
//! at most 64 MiB, and symbols that arrive before it is known have 16 MiB to wait in. A pipe's
//! blocks have a budget on both sides. If the pipe's reader is too slow, the sink refuses symbols.

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
    PipeEvent, PipeFeed, PipeId, PipeKeeper, PipeOutcome, PipeReader, PipeSink, PipeWriter, pipe,
    pipe_sink,
};

/// The contents that a feed's source sends.
#[derive(Debug)]
pub enum FeedSource {
    /// Files after a manifest.
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

/// The store of a feed in a receiver. Clones are the same sink. An engine stores symbols through
/// one, and its host manages files and pipe through another.
#[derive(Clone, Debug)]
pub enum FeedSink {
    /// Files after a manifest.
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

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        match self {
            FeedSink::Files(files) => files.retain(block, is_right),
            FeedSink::Pipe(pipe) => pipe.retain(block, is_right),
        }
    }
}

/// Returns an encoding symbol of a block in memory that is padded with zeros to `k` symbols. `len`
/// is the length of the block without padding.
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
