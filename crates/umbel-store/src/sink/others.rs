//! What is in the output directory and no item: removed if the user asks for a mirror.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use walkdir::{DirEntry, WalkDir};

use super::claim::is_shared;
use super::errors::SinkError;
use super::item::Shelf;
use super::names::is_reserved;

/// Something in the output directory that is no item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its path below the output directory.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// What becomes of hidden files at the top of the output directory that are no items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// They are the user's, and stay.
    Stay,
    /// They go, too.
    Go,
}

impl Shelf {
    /// Finds everything in the output directory but the items of these names, the deepest first.
    /// What is mounted there is not entered, and stays, and no link is followed. So do the files of
    /// other runs. A block device has nothing else.
    pub(super) fn others(&self, wanted: &HashSet<String>, hidden: Hidden) -> Vec<Other> {
        if self.device.is_some() {
            return Vec::new();
        }
        let is_shared = is_shared(&self.tree, self.own_claim.get().map(String::as_str));
        let root = self.tree.path();
        let names = self.names();
        let is_kept_top =
            |name: &OsStr| hidden == Hidden::Stay && name.as_encoded_bytes().first() == Some(&b'.');
        // Where `root` itself is a link, the walk would lose one of its directories.
        let top = root.join(".");
        let device = top.metadata().ok().map(|metadata| metadata.dev());
        let is_mount = |entry: &DirEntry| {
            entry.metadata().is_ok_and(|metadata| Some(metadata.dev()) != device)
        };
        let walk = WalkDir::new(top).min_depth(1).contents_first(true).same_file_system(true);
        let (mut others, mut holders) = (Vec::new(), HashSet::new());
        for entry in walk.into_iter().filter_map(Result::ok) {
            let Ok(below) = entry.path().strip_prefix(root) else { continue };
            if below.iter().next().is_some_and(is_kept_top) {
                continue;
            }
            let is_directory = entry.file_type().is_dir();
            let stays = match below.to_str() {
                _ if is_directory && (holders.contains(below) || is_mount(&entry)) => true,
                None => false,
                Some(below) if is_directory => wanted.contains(below) && names.has_directory(below),
                Some(below) => {
                    let holder = names.holder(below);
                    holder.is_some_and(|name| wanted.contains(name)) || is_of_run(below, is_shared)
                }
            };
            if !stays {
                others.push(Other { path: below.to_owned(), is_directory });
            } else if let Some(holder) = below.parent() {
                // What is in it comes before a directory.
                holders.insert(holder.to_owned());
            }
        }
        others
    }

    /// Removes them, each from its directory, to which no link leads. A directory stays if
    /// something is in it. Returns those that were removed.
    pub(super) fn remove(&self, others: Vec<Other>) -> Result<Vec<Other>, SinkError> {
        let mut removed = Vec::new();
        for other in others {
            let whole = || self.tree.path().join(&other.path);
            let fail = |error: Errno| SinkError::io("remove", &whole())(error);
            let flag = if other.is_directory {
                UnlinkatFlags::RemoveDir
            } else {
                UnlinkatFlags::NoRemoveDir
            };
            let result = match self.parent_of(&other.path)? {
                Some((directory, name)) => unlinkat(&directory, name, flag),
                None => continue,
            };
            match result {
                Ok(()) => removed.push(other),
                Err(Errno::ENOENT) => {}
                Err(Errno::ENOTEMPTY | Errno::EBUSY | Errno::EEXIST) if other.is_directory => {}
                Err(error) => return Err(fail(error)),
            }
        }
        Ok(removed)
    }

    /// Opens the directory of a path below the output directory, one part at a time. Returns it and
    /// the name in it, or `None` if it is gone.
    fn parent_of<'a>(&self, path: &'a Path) -> Result<Option<(File, &'a OsStr)>, SinkError> {
        let Some((below, name)) = path.parent().zip(path.file_name()) else { return Ok(None) };
        Ok(self.tree.enter_all(below)?.map(|directory| (directory, name)))
    }
}

/// Returns whether a file is another run's: its claim, its list, or, where other runs go on, a file
/// that is not complete.
fn is_of_run(below: &str, is_shared: bool) -> bool {
    let (holder, name) = below.rsplit_once('/').unwrap_or(("", below));
    let is_of_whole_run =
        || holder.is_empty() && [".lock", ".list"].iter().any(|end| name.ends_with(end));
    is_reserved(name) && (is_shared || is_of_whole_run())
}
