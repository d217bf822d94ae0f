//! Makes links in the output directory, and reads them.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{UtimensatFlags, fstatat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{linkat, symlinkat};

use super::super::attributes::is_kept;
use super::super::errors::SinkError;
use super::{Place, Role, Tree};
use crate::version::nanoseconds;

impl Tree {
    /// Makes something of this role in the place's directory by `make`, which gets the directory
    /// and the name. Creates the directory if necessary, and removes what an earlier run has left.
    fn make(
        &self,
        place: &Place,
        role: Role,
        mut make: impl FnMut(&OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<Result<(), Errno>, SinkError> {
        let name = place.name(role);
        for attempt in 0.. {
            let directory = self.directory(place, true)?;
            let directory = directory
                .ok_or_else(|| SinkError::io("make a link at", &place.target)(Errno::ENOENT))?;
            match make(&directory, &name) {
                // The directory was removed while it was kept open.
                Err(Errno::ENOENT) if attempt < 2 => self.forget(place),
                Err(Errno::EEXIST) if attempt < 2 => self.remove(place, role)?,
                made => {
                    let parent = place.target.parent().unwrap_or(&self.path);
                    self.note_parent(parent, directory);
                    return Ok(made);
                }
            }
        }
        unreachable!("the third attempt returns")
    }

    /// Makes a symbolic link with this text, which has not its name yet. Returns false if the file
    /// system has no such links.
    pub(in crate::sink) fn make_link(&self, place: &Place, text: &str) -> Result<bool, SinkError> {
        let made = self.make(place, Role::Link, |directory, name| symlinkat(text, directory, name));
        match made? {
            Ok(()) => Ok(true),
            Err(Errno::EPERM | Errno::EOPNOTSUPP) => Ok(false),
            Err(error) => Err(SinkError::io("make a link at", &place.target)(error)),
        }
    }

    /// Gives a finished item another name, which is not the final one yet. Returns false if the
    /// file system gives this file no other name.
    pub(in crate::sink) fn link_beside(
        &self,
        first: &Place,
        place: &Place,
    ) -> Result<bool, SinkError> {
        let fail = |error: Errno| SinkError::io("make a link at", &place.target)(error);
        let from = self.directory(first, false)?.ok_or_else(|| fail(Errno::ENOENT))?;
        let old = first.name(Role::Target);
        let made = self.make(place, Role::Link, |directory, name| {
            linkat(&from, old.as_str(), directory, name, AtFlags::empty())
        });
        match made? {
            Ok(()) => Ok(true),
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::EMLINK | Errno::EXDEV) => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }

    /// Returns the text of the symbolic link at the target. Returns `None` if there is none, or one
    /// whose text is not UTF-8.
    pub(in crate::sink) fn read_link(&self, place: &Place) -> Result<Option<String>, SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(None) };
        match readlinkat(&directory, place.name(Role::Target).as_str()) {
            Ok(text) => Ok(text.into_string().ok()),
            Err(Errno::ENOENT | Errno::EINVAL) => Ok(None),
            Err(error) => Err(SinkError::io("read", &place.target)(error)),
        }
    }

    /// Sets the modification time of a symbolic link, in nanoseconds since 1970. Returns whether it
    /// had another.
    pub(in crate::sink) fn set_time(
        &self,
        place: &Place,
        role: Role,
        modified_ns: i64,
    ) -> Result<bool, SinkError> {
        let fail = |error: Errno| SinkError::io("set the time of", &place.path(role))(error);
        let directory = self.directory(place, false)?.ok_or_else(|| fail(Errno::ENOENT))?;
        let name = place.name(role);
        let second = 1_000_000_000;
        let wanted = TimeSpec::new(modified_ns.div_euclid(second), modified_ns.rem_euclid(second));
        let stat =
            fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(fail)?;
        if TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec) == wanted {
            return Ok(false);
        }
        let has = nanoseconds(stat.st_mtime, stat.st_mtime_nsec);
        let flags = UtimensatFlags::NoFollowSymlink;
        utimensat(&directory, name.as_str(), &TimeSpec::UTIME_OMIT, &wanted, flags)
            .map_err(fail)?;
        Ok(!is_kept(has, modified_ns))
    }
}
