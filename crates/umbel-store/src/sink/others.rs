//! What is in the output directory and no item: removed if the user asks for a mirror.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use walkdir::WalkDir;

use super::errors::SinkError;
use super::item::Shelf;

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
    /// What is mounted there is not entered, and no link is followed.
    pub(super) fn others(&self, wanted: &HashSet<String>, hidden: Hidden) -> Vec<Other> {
        let root = self.tree.path();
        let names = self.names();
        let is_kept_top = |name: &std::ffi::OsStr| {
            hidden == Hidden::Stay && name.as_encoded_bytes().first() == Some(&b'.')
        };
        let walk = WalkDir::new(root).min_depth(1).contents_first(true).same_file_system(true);
        let mut others = Vec::new();
        for entry in walk.into_iter().filter_map(Result::ok) {
            let Ok(below) = entry.path().strip_prefix(root) else { continue };
            if below.iter().next().is_some_and(is_kept_top) {
                continue;
            }
            let is_directory = entry.file_type().is_dir();
            let is_item = below.to_str().is_some_and(|below| {
                if is_directory {
                    return wanted.contains(below) && names.has_directory(below);
                }
                let holder = names.holder(below);
                holder.is_some_and(|name| wanted.contains(name)) || super::is_claim(below)
            });
            if !is_item {
                others.push(Other { path: below.to_owned(), is_directory });
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
}

impl Shelf {
    /// Opens the directory of a path below the output directory, one part at a time. Returns it and
    /// the name in it, or `None` if it is gone.
    fn parent_of<'a>(
        &self,
        path: &'a Path,
    ) -> Result<Option<(std::fs::File, &'a std::ffi::OsStr)>, SinkError> {
        let Some((below, name)) = path.parent().zip(path.file_name()) else { return Ok(None) };
        Ok(self.tree.enter_all(below)?.map(|directory| (directory, name)))
    }
}
