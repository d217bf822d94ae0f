//! The directory that holds a ladder.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::name::FileName;

/// Reads the files of a ladder. Nothing outside its directory is read: links are not followed.
#[derive(Debug)]
pub struct LadderFiles {
    root: OwnedFd,
    path: PathBuf,
}

/// Reason why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is gone, or not there yet.
    #[error("is not there")]
    Gone,
    /// It, or a directory on the way, is a link.
    #[error("is a link, which is not followed")]
    Link,
    /// It is a directory, a pipe or a device.
    #[error("is no regular file")]
    Kind,
    /// It is too long.
    #[error("has {len} bytes, and at most {max} are taken")]
    TooLong {
        /// Its length in bytes, as far as it was looked at.
        len: u64,
        /// Maximum length.
        max: u64,
    },
    /// The system refuses.
    #[error("cannot be read: {0}")]
    System(Errno),
}

impl LadderFiles {
    /// Opens the directory, which may be given by a link.
    ///
    /// # Errors
    ///
    /// If it is no directory, or cannot be read.
    pub fn open(path: &Path) -> Result<LadderFiles, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(LadderFiles { root: open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the playlists directly in the directory, in order. Names that are no
    /// [`FileName`] are left out.
    pub fn playlists(&self) -> Vec<FileName> {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.filter_map(|name| FileName::parse(&name).ok());
        let mut names: Vec<_> = names.filter(FileName::is_playlist).collect();
        names.sort();
        names
    }

    /// Reads a whole file of at most `max` bytes.
    ///
    /// # Errors
    ///
    /// If it is no regular file below the directory, or too long.
    pub fn read(&self, name: &FileName, max: u64) -> Result<Bytes, FileError> {
        let (mut file, len) = self.open_regular(name)?;
        if len > max {
            return Err(FileError::TooLong { len, max });
        }
        let mut bytes = Vec::with_capacity(len as usize);
        let failed = |error: std::io::Error| {
            FileError::System(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
        };
        // It may grow while it is read.
        file.by_ref().take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
        let len = bytes.len() as u64;
        if len > max { Err(FileError::TooLong { len, max }) } else { Ok(bytes.into()) }
    }

    /// Returns the length of a file in bytes.
    ///
    /// # Errors
    ///
    /// If it is no regular file below the directory.
    pub fn len_of(&self, name: &FileName) -> Result<u64, FileError> {
        self.open_regular(name).map(|(_, len)| len)
    }

    /// Opens a regular file. Returns its length, too.
    fn open_regular(&self, name: &FileName) -> Result<(File, u64), FileError> {
        let file = self.open_file(name)?;
        let stat = fstat(&file).map_err(FileError::System)?;
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(FileError::Kind);
        }
        Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Opens a file by one part of its name at a time, so that no link on the way is followed.
    fn open_file(&self, name: &FileName) -> Result<File, FileError> {
        let base = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut directory: Option<OwnedFd> = None;
        let mut parts = name.parts().peekable();
        while let Some(part) = parts.next() {
            let at = directory.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            // A pipe must not make the thread wait.
            let kind = if parts.peek().is_some() { OFlag::O_DIRECTORY } else { OFlag::O_NONBLOCK };
            let opened = openat(at, part, base | kind, Mode::empty()).map_err(file_error)?;
            directory = Some(opened);
        }
        directory.map(File::from).ok_or(FileError::Gone)
    }
}

fn file_error(errno: Errno) -> FileError {
    match errno {
        Errno::ENOENT => FileError::Gone,
        // A directory that is a link is reported as no directory.
        Errno::ELOOP | Errno::ENOTDIR => FileError::Link,
        Errno::ENXIO => FileError::Kind,
        errno => FileError::System(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_below_the_directory_are_read() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let inside = tempfile::tempdir().unwrap();
        let at = |name: &str| inside.path().join(name);
        fs::create_dir(at("v0")).unwrap();
        fs::write(at("v0/a.m4s"), "content").unwrap();
        symlink(outside.path().join("secret"), at("v0/link.m4s")).unwrap();
        symlink(outside.path(), at("v1")).unwrap();
        mkfifo(&at("v0/pipe.m4s"), Mode::S_IRWXU).unwrap();
        let files = LadderFiles::open(inside.path()).unwrap();
        let read = |name: &str, max| files.read(&FileName::parse(name).unwrap(), max);
        assert_eq!(read("v0/a.m4s", 7).unwrap(), "content");
        assert_eq!(files.len_of(&FileName::parse("v0/a.m4s").unwrap()), Ok(7));
        assert_eq!(read("v0/a.m4s", 6), Err(FileError::TooLong { len: 7, max: 6 }));
        assert_eq!(read("v0/link.m4s", 9), Err(FileError::Link));
        assert_eq!(read("v1/secret", 9), Err(FileError::Link));
        assert_eq!(read("v0/pipe.m4s", 9), Err(FileError::Kind));
        assert_eq!(read("v0", 9), Err(FileError::Kind));
        assert_eq!(read("v0/b.m4s", 9), Err(FileError::Gone));
        assert_eq!(read("v0/a.m4s/b", 9), Err(FileError::Link));
    }

    #[test]
    fn playlists_in_the_directory_are_found() {
        let inside = tempfile::tempdir().unwrap();
        for name in ["b.m3u8", "a.m3u8", "c.ts", "a.m3u8.tmp", "d.m3u"] {
            fs::write(inside.path().join(name), "").unwrap();
        }
        let files = LadderFiles::open(inside.path()).unwrap();
        let found = files.playlists();
        assert_eq!(found, ["a.m3u8", "b.m3u8", "d.m3u"].map(|name| FileName::parse(name).unwrap()));
    }
}
