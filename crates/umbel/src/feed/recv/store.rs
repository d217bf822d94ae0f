//! The interface between a receiver's host and the store that keeps its feed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_store::feed::{FileEvent, PipeEvent};
use umbel_store::sink::{NamedFile, SinkEvent};
use umbel_wire::Toi;
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;

/// Input of the receiver's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// An event of the sink for files.
    File(FileEvent),
    /// An event of the disk.
    Disk(SinkEvent),
    /// The files that were looked up, with what is already present.
    LookedUp(Vec<Looked>),
    /// An event of the sink for a pipe.
    Pipe(PipeEvent),
    /// A pipe is written to its end, which its sender signed; or why not.
    Written(Result<(), String>),
    /// Another feed takes the place of this one.
    Replaced,
    /// This host has no longer the address at which it receives.
    Moved,
    /// The user interrupts the reception.
    Interrupt,
}

/// A file that was looked up.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) info: ItemInfo,
    pub(crate) found: Found,
}

/// State of a file before the reception.
#[derive(Debug)]
pub(crate) enum Found {
    /// The file is not wanted.
    Unwanted,
    /// All of the file is present.
    Whole,
    /// It is a directory, which is there now.
    Directory,
    /// It is a symbolic link, which was made at this path.
    Link(PathBuf),
    /// It is another name of a file, which gets it at the end.
    OtherName,
    /// It is a symbolic link that is not made.
    LeftOut,
    /// It is not as the source has it, and only looked at.
    Differs,
    /// Blocks of this number of bytes are present.
    Parts(u64),
    /// The file cannot be kept, for this reason.
    Refused(String),
}

/// A store that keeps a feed. The engine stores symbols by its own handle.
pub(crate) trait FeedStore {
    /// The engine's handle.
    type Sink: SymbolSink;

    /// Looks files up, each with whether it is wanted. [`Input::LookedUp`] answers.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot.
    fn look_up(&mut self, items: Vec<(ItemInfo, bool)>) -> Result<(), String>;

    /// Uses the result of the lookup. Returns the blocks after the manifest that need not be
    /// received.
    ///
    /// # Errors
    ///
    /// One line that says why these files make no feed.
    fn begin(&mut self) -> Result<Vec<BlockRun>, String>;

    /// Returns the blocks of a file, once they are known.
    fn blocks_of(&self, toi: Toi) -> Option<BlockRun>;

    /// Returns the block of the feed that corresponds to a file's block.
    fn block_of(&self, id: BlockId) -> Option<u32>;

    /// Returns the files that a run of blocks touches. Returns `None` if it touches the manifest,
    /// or if the files are not known.
    fn files_in(&self, run: BlockRun) -> Option<BTreeSet<Toi>>;

    /// Compares the blocks of a file with their digests, and drops those that differ.
    fn check_blocks(&mut self, toi: Toi);

    /// Stops storing a file. Its partial content is kept.
    fn cancel(&mut self, toi: Toi);

    /// Gives files their other names, when all files are there that will be.
    fn name_files(&mut self) -> Vec<NamedFile> {
        Vec::new()
    }

    /// Sets the first block of a pipe.
    fn begin_pipe(&mut self, first: u32);

    /// Returns whether a pipe has its sender's word where it ends.
    fn pipe_has_end(&self) -> bool;

    /// Ends a pipe early for its reader.
    fn abort_pipe(&mut self);

    /// Returns the number of bytes of a pipe that were written so far.
    fn written(&self) -> u64;
}
