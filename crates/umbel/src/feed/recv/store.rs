//! What a receiver's host asks of the place where it keeps a feed, and what it is told.

use std::collections::BTreeSet;

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_store::feed::{FileEvent, PipeEvent};
use umbel_store::sink::SinkEvent;
use umbel_wire::Toi;
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;

/// What reaches the receiver from outside.
#[derive(Debug)]
pub(crate) enum Input {
    /// What the sink of files tells.
    File(FileEvent),
    /// What the disk tells.
    Disk(SinkEvent),
    /// What is there of the files that were to be looked up.
    LookedUp(Vec<Looked>),
    /// What the sink of a pipe tells.
    Pipe(PipeEvent),
    /// The output of a pipe is complete, or refused something.
    Written(Result<(), String>),
    /// Another feed takes the place of this one.
    Replaced,
    /// The user ends it.
    Interrupt,
}

/// A file that was looked up.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) info: ItemInfo,
    pub(crate) found: Found,
}

/// What is there of a file.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is not wanted.
    Unwanted,
    /// All of it.
    Whole,
    /// Blocks of so many bytes.
    Parts(u64),
    /// It cannot be kept, for this reason.
    Refused(String),
}

/// Where a receiver keeps a feed. The engine stores symbols there by a handle of its own.
pub(crate) trait FeedStore {
    /// The engine's handle.
    type Sink: SymbolSink;

    /// Looks files up, wanted or not; [`Input::LookedUp`] answers.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot.
    fn look_up(&mut self, items: Vec<(ItemInfo, bool)>) -> Result<(), String>;

    /// Takes in what was looked up. Returns the blocks after the manifest that need not be
    /// received.
    ///
    /// # Errors
    ///
    /// One line that says why these files make no feed.
    fn begin(&mut self) -> Result<Vec<BlockRun>, String>;

    /// The blocks of a file, once they are known.
    fn blocks_of(&self, toi: Toi) -> Option<BlockRun>;

    /// The block of the feed that a file's block is.
    fn block_of(&self, id: BlockId) -> Option<u32>;

    /// The files that a run of blocks touches; `None` if it touches the manifest, or they are not
    /// known.
    fn files_in(&self, run: BlockRun) -> Option<BTreeSet<Toi>>;

    /// Drops all blocks of a file.
    fn drop_blocks(&mut self, toi: Toi);

    /// Lets go of a file. What is held of it stays.
    fn cancel(&mut self, toi: Toi);

    /// Says which block of a pipe is the first.
    fn begin_pipe(&mut self, first: u32);

    /// Says that a pipe has so many blocks.
    fn end_pipe(&mut self, blocks: u32);

    /// Ends a pipe for its reader.
    fn abort_pipe(&mut self);

    /// Bytes of a pipe that were written so far.
    fn written(&self) -> u64;
}
