//! One run at a time brings what one source has to one directory.
//!
//! Two runs of the same command, such as of a timer that fires before the last run has ended,
//! would each receive everything and meet at the end. So a run locks a file of its source in the
//! output directory. The next one waits, and reads there what the first has left. The file is
//! removed at the end; one of a run that was killed is not locked, and serves the next.
//!
//! Where files cannot be locked, there are no claims, and the runs meet at the end, where contents
//! decide.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::names::PART_SUFFIX;
use super::tree::{FileId, Tree, only_name};

/// Suffix of the file, which names of items cannot have: `.DIGEST.umbel-part.lock`.
const SUFFIX: &str = ".lock";
/// Maximum bytes that are read of it.
const MOST: u64 = 4096;

/// Returns whether a file of this name is that of a claim.
pub fn is_claim(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|rest| rest.ends_with(PART_SUFFIX))
}

/// A run that wants to be the only one with its source and directory.
#[derive(Debug)]
pub struct Claimant {
    root: Arc<OwnedFd>,
    name: String,
    /// The file of the run that is waited for.
    file: Option<File>,
}

/// The right of a run to be the only one with its source and directory.
#[derive(Debug)]
pub struct Claim {
    root: Arc<OwnedFd>,
    name: String,
    /// The locked file; `None` where files cannot be locked.
    file: Option<File>,
}

/// Result of an attempt.
#[derive(Debug)]
pub enum Attempt {
    /// No other run is there.
    Ours(Claim),
    /// Another run is there, of the process with this number.
    Held {
        /// Number of the process, if it is known.
        process: Option<u32>,
    },
    /// The run that was waited for has ended, and left this word.
    Left(String),
}

impl Claimant {
    pub(super) fn new(tree: &Tree, source: &str) -> Claimant {
        Claimant { root: tree.root(), name: own_name(source, SUFFIX), file: None }
    }

    /// Tries to become the only run.
    pub fn attempt(&mut self) -> Attempt {
        loop {
            let file =
                match self.file.take().map_or_else(|| open_own(&self.root, &self.name, true), Ok) {
                    Ok(file) => file,
                    Err(error) => {
                        tracing::debug!("no lock on the output directory: {error}");
                        return self.ours(None);
                    }
                };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let process = first_line(&file).and_then(|line| line.parse().ok());
                    self.file = Some(file);
                    return Attempt::Held { process };
                }
                Err(TryLockError::Error(_)) => return self.ours(None),
            }
            if self.is_in_place(&file) {
                // It is new, or that of a run that was killed.
                let process = format!("{}\n", std::process::id());
                let _ = file.set_len(0).and_then(|()| file.write_all_at(process.as_bytes(), 0));
                return self.ours(Some(file));
            }
            // Its holder has removed it, and a third run may have made another.
            if let Some(word) = second_line(&file) {
                return Attempt::Left(word);
            }
        }
    }

    /// Returns the name of the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn ours(&self, file: Option<File>) -> Attempt {
        Attempt::Ours(Claim { root: self.root.clone(), name: self.name.clone(), file })
    }

    /// Returns whether the file still has its name.
    fn is_in_place(&self, file: &File) -> bool {
        let id = FileId::of(file).ok();
        id.is_some() && FileId::at(&self.root, &self.name).ok() == id
    }
}

impl Claim {
    /// Ends the run, and leaves a word for those that wait: one line.
    pub fn end(self, word: &str) {
        if let Some(file) = &self.file {
            let offset = file.metadata().map_or(0, |metadata| metadata.len());
            // Those who find no word look for themselves.
            let _ = file.write_all_at(format!("{word}\n").as_bytes(), offset);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = unlinkat(&self.root, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Returns the name of a file of the sink's own that belongs to a source.
pub(super) fn own_name(source: &str, suffix: &str) -> String {
    let digest = blake3::hash(source.as_bytes()).to_hex();
    format!(".{}{PART_SUFFIX}{suffix}", &digest[..16])
}

/// Opens a file of the sink's own, to read it and to append to it. It is written to, so it must not
/// be another file in disguise.
pub(super) fn open_own(root: &OwnedFd, name: &str, create: bool) -> io::Result<File> {
    let mut flags =
        OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_CREAT, create);
    let file = openat(root, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let file = only_name(file.into(), name.as_ref()).map_err(io::Error::other)?;
    let is_file = file.metadata()?.is_file();
    if is_file { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Returns whether another run than the one with this claim goes on in an output directory, or may.
pub(super) fn is_shared(tree: &Tree, own: Option<&str>) -> bool {
    let root = tree.root();
    let Ok(entries) = std::fs::read_dir(tree.path()) else { return true };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut others = names.filter(|name| is_claim(name) && Some(name.as_str()) != own);
    others.any(|name| match open_own(&root, &name, false) {
        Ok(file) => file.try_lock().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

fn read(file: &File) -> Option<String> {
    let mut file = file.try_clone().ok()?;
    io::Seek::rewind(&mut file).ok()?;
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn first_line(file: &File) -> Option<String> {
    read(file)?.lines().next().map(str::to_owned)
}

fn second_line(file: &File) -> Option<String> {
    read(file)?.lines().nth(1).map(str::to_owned)
}
