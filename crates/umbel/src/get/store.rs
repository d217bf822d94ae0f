//! The interface between a client's host and the store that keeps its items.

use std::path::PathBuf;

use umbel_engine::repository::receiver::Held;
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::NamedFile;
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

/// State of an item when it is added to a store.
#[derive(Debug)]
pub(crate) enum Added {
    /// All of the item is present.
    AlreadyThere,
    /// It is a directory, which is there now.
    Directory,
    /// It is a symbolic link, which was made at this path.
    Link(PathBuf),
    /// It is another name of a file, which gets it at the end.
    OtherName,
    /// It is a symbolic link that is not made.
    LeftOut,
    /// It is not as the server has it, and only looked at.
    Differs,
    /// Its parts may be present: the store compares them once it has the digests of all blocks, by
    /// [`ItemStore::check_blocks`], and then [`ItemStore::compared`] answers.
    AsksDigests,
    /// These parts are present, with this number of bytes.
    Parts(Held, u64),
}

/// A store that keeps items. The engine stores symbols by its own handle.
pub(crate) trait ItemStore {
    /// The engine's handle.
    type Sink: SymbolSink;

    /// Adds an item that is to be received.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot be kept.
    fn add(&mut self, info: &ItemInfo) -> Result<Added, String>;

    /// Drops an item that is no longer wanted.
    fn cancel(&mut self, toi: Toi);

    /// Compares the blocks of an item with these digests, and drops those that differ.
    fn check_blocks(&mut self, toi: Toi, digests: Vec<Digest>);

    /// Returns what is present of an item that the store has compared.
    fn compared(&mut self, _toi: Toi) -> Option<Result<Added, String>> {
        None
    }

    /// Returns whether the store takes one item and no more.
    fn takes_one(&self) -> bool {
        false
    }

    /// Notes that a list of the server's items begins.
    fn begin_list(&mut self) {}

    /// Notes that an item of this name is in the list.
    fn list(&mut self, _name: &str) {}

    /// Gives files their other names, when all files are there that will be.
    fn name_files(&mut self) -> Vec<NamedFile> {
        Vec::new()
    }

    /// Returns whether data of an earlier run or session may be present.
    fn may_hold_something(&self) -> bool;
}
