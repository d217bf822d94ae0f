//! The files that a run brings, which are not the user's own, so that another version of the same
//! source may replace them.
//!
//! A source can change while a run goes on, and between one that was interrupted and the next.
//! Otherwise both would refuse what the run itself had brought, and the directory would stay a
//! mixture of versions. So a run lists what it puts in place, with the digests, in a file of its
//! source in the output directory. A run that is not interrupted removes it at its end. A listed file
//! that has another content now is the user's.
//!
//! Where the list cannot be written, only the run itself knows what it brought.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use nix::unistd::{UnlinkatFlags, unlinkat};
use umbel_wire::Digest;

use super::claim::{open_own, own_name};

/// Suffix of the list, which names of items cannot have: `.DIGEST.umbel-part.list`.
const SUFFIX: &str = ".list";
/// Maximum bytes that are read of a list.
const MOST: u64 = 1 << 30;

/// Content of a file, or text of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) digest: Digest,
    pub(super) len: u64,
}

/// Who brought a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bringer {
    /// This run, in this version; `None` if that is to come.
    ThisRun(Option<Version>),
    /// An earlier run, in this version.
    Earlier(Version),
}

/// The files that runs of one source have brought, by their paths below the output directory.
#[derive(Debug, Default)]
pub(super) struct Brought {
    files: HashMap<String, Bringer>,
    list: Option<List>,
}

#[derive(Debug)]
struct List {
    root: Arc<OwnedFd>,
    name: String,
    /// Opened for the first line.
    file: Option<File>,
}

impl Brought {
    /// Reads what earlier runs of `source` have listed in this directory, and goes on with it.
    pub(super) fn resume(&mut self, root: Arc<OwnedFd>, source: &str) {
        let name = own_name(source, SUFFIX);
        if let Ok(file) = open_own(&root, &name, false) {
            let lines = BufReader::new(file.take(MOST)).lines().map_while(Result::ok);
            let earlier = lines.filter_map(|line| parse(&line));
            self.files.extend(earlier.map(|(path, version)| (path, Bringer::Earlier(version))));
        }
        self.list = Some(List { root, name, file: None });
    }

    /// Returns who brought the file of this path, if a run did.
    pub(super) fn bringer(&self, path: &str) -> Option<Bringer> {
        self.files.get(path).copied()
    }

    /// Notes that the file of this path, in whatever version it is, was brought by this run.
    pub(super) fn note(&mut self, path: String) {
        self.files.insert(path, Bringer::ThisRun(None));
    }

    /// Notes that the file of this path is there in this version, as this run has verified.
    pub(super) fn note_whole(&mut self, path: String, version: Version) {
        self.files.insert(path, Bringer::ThisRun(Some(version)));
    }

    /// Notes that this run has put a file in place.
    pub(super) fn put(&mut self, path: String, version: Version) {
        if let Some(list) = &mut self.list
            && let Err(error) = list.append(&path, version)
        {
            tracing::debug!("no list of what this run brings: {error}");
            self.list = None;
        }
        self.note_whole(path, version);
    }

    /// Removes the list: what a run that ended has brought is the user's.
    pub(super) fn complete(&mut self) {
        if let Some(list) = self.list.take() {
            let _ = unlinkat(&list.root, list.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

impl List {
    fn append(&mut self, path: &str, version: Version) -> std::io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open_own(&self.root, &self.name, true)?,
        };
        let line = format!("{} {} {path}\n", HEXLOWER.encode(&version.digest.0), version.len);
        self.file.insert(file).write_all(line.as_bytes())
    }
}

/// Parses `DIGEST LENGTH PATH`. No path has line breaks.
fn parse(line: &str) -> Option<(String, Version)> {
    let mut words = line.splitn(3, ' ');
    let digest = HEXLOWER.decode(words.next()?.as_bytes()).ok()?.try_into().ok()?;
    let len = words.next()?.parse().ok()?;
    Some((words.next()?.to_owned(), Version { digest: Digest(digest), len }))
}
