//! A directory as a repository. Every regular file, symbolic link and directory below it is an
//! item.
//!
//! Nothing outside the directory is ever read. Files are opened beneath it by `openat2`. A symbolic
//! link is an item with its text, wherever it leads. Where links are to be followed, one counts
//! only if it is relative and leads to a regular file inside. Names that are not UTF-8, special
//! files, unreadable files and umbel's own keys are skipped. So are hidden entries of the directory
//! itself unless they are asked for. The scan counts and names them.
//!
//! A file is served in the version that the scan saw. It is opened once and the descriptor kept. A
//! file that is replaced (a new one renamed over it) or removed is therefore still served in the
//! old version. A modification in place is detected after the read, by size and times.
//!
//! # Scope and limitations
//!
//! This module does not detect a modification that leaves size, modification time and change time
//! unchanged. That can happen within one tick of the file system's clock, or through a mapping that
//! is not written back yet. The receivers' digest check detects it. If the kernel has no `openat2`
//! (before Linux 5.6), no symbolic link is followed.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};
use parking_lot::RwLock;
use umbel_wire::repository::{ItemInfo, ItemKind, LinkText};
use walkdir::{DirEntry, WalkDir};

use crate::holes;
use crate::origin::{Body, Found, Origin, Place, Scan, SkipReason, Skipped};
use crate::own::{self, Own};
use crate::rules::{self, Rules};
use crate::version::{FileVersion, nanoseconds};
use crate::{Fault, OpenError, RepositoryOptions};

/// A directory, or a single file in one.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    /// Name of the only file that is served, if the repository is a single file.
    only: Option<OsString>,
    /// Umbel's own files and directories.
    own: Vec<PathBuf>,
    /// Whether entries of the root whose names begin with `.` are served.
    hidden: bool,
    /// Whether symbolic links are served as the files that they lead to.
    follow_links: bool,
    /// Files that are not served.
    rules: Rules,
    /// Descriptor of the directory, as of the last scan.
    descriptor: RwLock<Arc<OwnedFd>>,
    has_openat2: bool,
}

impl Directory {
    /// Creates a repository of all files below `root` that the options do not exclude.
    pub(crate) fn new(root: &Path, options: &RepositoryOptions) -> Result<Directory, OpenError> {
        Directory::open(root, None, options)
    }

    /// Creates a repository of one file, under its own name.
    pub(crate) fn of_file(
        path: &Path,
        options: &RepositoryOptions,
    ) -> Result<Directory, OpenError> {
        let Some(name) = path.file_name() else { return Err(OpenError::Kind(path.to_owned())) };
        if !options.hidden && is_hidden(name) {
            return Err(OpenError::Hidden(name.to_string_lossy().into_owned()));
        }
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Directory::open(parent, Some(name.to_owned()), options)
    }

    fn open(
        root: &Path,
        only: Option<OsString>,
        options: &RepositoryOptions,
    ) -> Result<Directory, OpenError> {
        let descriptor = open_root(root)?;
        let probe = openat2(&descriptor, ".", how(OFlag::O_PATH | OFlag::O_CLOEXEC));
        Ok(Directory {
            root: root.to_owned(),
            only,
            own: options.own.clone(),
            hidden: options.hidden,
            follow_links: options.follow_links,
            rules: Rules::new(&options.patterns).map_err(OpenError::Options)?,
            has_openat2: probe.is_ok(),
            descriptor: RwLock::new(Arc::new(descriptor)),
        })
    }

    /// Opens a file below the root for reading. Never waits for a pipe's writer.
    fn open_beneath(&self, path: &Path) -> Result<File, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        self.open_so(path, flags)
    }

    fn open_so(&self, path: &Path, flags: OFlag) -> Result<File, Errno> {
        let root = Arc::clone(&self.descriptor.read());
        if !self.has_openat2 {
            return open_by_steps(&root, path, flags);
        }
        // EAGAIN: something was renamed while the kernel checked that the path stays inside.
        for _ in 0..16 {
            match openat2(&*root, path, how(flags)) {
                Err(Errno::EAGAIN) => {}
                other => return other.map(File::from),
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Returns the metadata of the file at `path` (relative), or the reason to skip it. Returns
    /// `None` if the file has vanished meanwhile.
    fn look_at(
        &self,
        path: &Path,
        kind: fs::FileType,
        metadata: impl FnOnce() -> io::Result<fs::Metadata>,
    ) -> Result<Option<fs::Metadata>, SkipReason> {
        if kind.is_symlink() {
            return self.look_behind_link(path);
        }
        if !kind.is_file() {
            return Err(special(kind));
        }
        let metadata = match metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| unreadable(&error))?,
        };
        let root = Arc::clone(&self.descriptor.read());
        match faccessat(&*root, path, AccessFlags::R_OK, AtFlags::AT_EACCESS) {
            Ok(()) => Ok(Some(metadata)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(unreadable(&error.into())),
        }
    }

    fn look_behind_link(&self, path: &Path) -> Result<Option<fs::Metadata>, SkipReason> {
        let file = self.open_beneath(path).map_err(|error| match error {
            Errno::ENXIO | Errno::ENODEV => SkipReason::LinkToOther,
            Errno::EXDEV | Errno::ELOOP | Errno::ENOENT | Errno::ENOTDIR => SkipReason::LinkOutside,
            // Whatever else it is, such as too many open files, says nothing about the link.
            _ => unreadable(&error.into()),
        })?;
        let metadata = file.metadata().map_err(|error| unreadable(&error))?;
        if metadata.is_file() { Ok(Some(metadata)) } else { Err(SkipReason::LinkToOther) }
    }

    /// Returns a symbolic link as an item, or the reason to skip it. Returns `None` if it has
    /// vanished meanwhile.
    fn link(&self, name: &str, path: &Path) -> Result<Option<Found>, SkipReason> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let link = match self.open_so(path, flags) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other.map_err(|error| unreadable(&error.into()))?,
        };
        let metadata = link.metadata().map_err(|error| unreadable(&error))?;
        let text = match readlinkat(&link, "") {
            // It is a link no more.
            Err(Errno::ENOENT | Errno::EINVAL) => return Ok(None),
            other => other.map_err(|error| unreadable(&error.into()))?,
        };
        let text = text.into_string().ok().and_then(LinkText::new);
        Ok(Some(Found {
            name: name.to_owned(),
            kind: ItemKind::Link(text.ok_or(SkipReason::LinkNotUtf8)?),
            size: 0,
            holes: None,
            modified_ns: Some(nanoseconds(metadata.mtime(), metadata.mtime_nsec())),
            mode: None,
            media_type: Cow::Borrowed(""),
            place: Place::Link,
        }))
    }

    /// Opens an item's file, either the one that the user named or one below the root.
    fn open_item(&self, path: &Path) -> io::Result<File> {
        match self.only {
            Some(_) => open_named(&self.root.join(path)),
            None => self.open_beneath(path).map_err(io::Error::from),
        }
    }

    fn add(
        &self,
        scan: &mut Scan,
        own: &Own,
        path: &Path,
        kind: fs::FileType,
        metadata: impl FnOnce() -> io::Result<fs::Metadata>,
    ) {
        let Some(name) = path.to_str() else {
            scan.skipped.add(path.to_string_lossy(), SkipReason::NameNotUtf8);
            return;
        };
        if kind.is_symlink() && !self.follow_links {
            match self.link(name, path) {
                Ok(link) => scan.items.extend(link),
                Err(reason) => scan.skipped.add(name, reason),
            }
            return;
        }
        match self.look_at(path, kind, metadata) {
            Ok(Some(metadata))
                if own.holds(&metadata)
                    || own::is_key(path, &metadata, || self.open_item(path)) =>
            {
                scan.skipped.add(name, SkipReason::Own);
            }
            Ok(Some(metadata)) => {
                let version = FileVersion::of(&metadata);
                scan.items.push(Found {
                    name: name.to_owned(),
                    kind: ItemKind::File,
                    size: version.size,
                    holes: self.holes(path, &metadata),
                    modified_ns: Some(version.modified_ns),
                    mode: Some(mode_of(&metadata)),
                    media_type: media_type(name),
                    place: Place::File(version),
                });
            }
            Ok(None) => {}
            Err(reason) => scan.skipped.add(name, reason),
        }
    }

    /// Returns the holes of a file, if it has any and the file system tells them.
    fn holes(&self, path: &Path, metadata: &fs::Metadata) -> Option<Vec<Range<u64>>> {
        // Others need not be opened in each scan.
        let takes = metadata.blocks().saturating_mul(512);
        if metadata.size() < holes::WORTH || takes >= metadata.size() {
            return None;
        }
        let file = self.open_item(path).ok()?;
        holes::of(&file, metadata.size()).ok().filter(|holes| !holes.is_empty())
    }

    fn scan_only(&self, name: &Path) -> Result<Scan, OpenError> {
        let mut scan = Scan::default();
        let path = self.root.join(name);
        // The user named this file, so a link is followed wherever it leads.
        let metadata = fs::metadata(&path).map_err(|error| OpenError::Io { path, error })?;
        self.add(&mut scan, &Own::find(&self.own), name, metadata.file_type(), || Ok(metadata));
        Ok(scan)
    }
}

impl Origin for Directory {
    fn scan(&self) -> Result<Option<Scan>, OpenError> {
        *self.descriptor.write() = Arc::new(open_root(&self.root)?);
        if let Some(name) = &self.only {
            return self.scan_only(Path::new(name)).map(Some);
        }
        let mut scan = Scan::default();
        let own = Own::find(&self.own);
        let is_own = |entry: &DirEntry| {
            let metadata = || entry.metadata().is_ok_and(|metadata| own.holds(&metadata));
            !own.is_empty() && entry.file_type().is_dir() && metadata()
        };
        let mut rules = self.rules.walk();
        // A link to the root is followed, since the user named it.
        let mut walk = WalkDir::new(&self.root).into_iter();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry)
                    if entry.depth() > 0 && is_partial(entry.file_name().as_encoded_bytes()) =>
                {
                    if entry.file_type().is_dir() {
                        walk.skip_current_dir();
                    }
                }
                Ok(entry) if entry.depth() == 0 && (entry.path_is_symlink() || !is_own(&entry)) => {
                    let path = || self.root.join(rules::FILE);
                    self.enter(&mut rules, &entry).map_err(|why| OpenError::Io {
                        path: path(),
                        error: io::Error::other(why),
                    })?;
                }
                Ok(entry) if is_own(&entry) => {
                    let name = self.relative(entry.path()).to_string_lossy();
                    scan.skipped
                        .add(if name.is_empty() { ".".into() } else { name }, SkipReason::Own);
                    walk.skip_current_dir();
                }
                Ok(entry) if self.is_left_out(&mut rules, &entry) => {
                    if entry.file_type().is_dir() {
                        walk.skip_current_dir();
                    }
                }
                Ok(entry) if !self.hidden && entry.depth() == 1 && is_hidden(entry.file_name()) => {
                    scan.skipped.add(entry.file_name().to_string_lossy(), SkipReason::Hidden);
                    if entry.file_type().is_dir() {
                        walk.skip_current_dir();
                    }
                }
                Ok(entry) if entry.file_type().is_dir() => {
                    if let Err(why) = self.enter(&mut rules, &entry) {
                        let name = self.relative(entry.path()).to_string_lossy();
                        scan.skipped.add(name, SkipReason::Unreadable(why));
                        walk.skip_current_dir();
                        continue;
                    }
                    self.add_directory(&mut scan, &entry);
                }
                Ok(entry) => {
                    self.add(
                        &mut scan,
                        &own,
                        self.relative(entry.path()),
                        entry.file_type(),
                        || entry.metadata().map_err(io::Error::from),
                    );
                }
                Err(error) => self.add_failure(&mut scan.skipped, error)?,
            }
        }
        Ok(Some(scan))
    }

    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault> {
        let Place::File(version) = item.place else { return Err(Fault::Vanished) };
        let file = if self.only.is_some() {
            self.open_item(Path::new(&item.name)).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Fault::Vanished,
                _ => Fault::Io(error),
            })?
        } else {
            self.open_beneath(Path::new(&item.name)).map_err(|error| match error {
                Errno::ENOENT | Errno::ENOTDIR => Fault::Vanished,
                Errno::EXDEV | Errno::ELOOP | Errno::ENXIO => Fault::Changed,
                other => Fault::Io(other.into()),
            })?
        };
        let file = OpenFile { file, version };
        file.check()?;
        Ok(Arc::new(file))
    }
}

impl Directory {
    /// Returns a path relative to the root.
    fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    /// Reads what is left out of a directory.
    ///
    /// # Errors
    ///
    /// Returns a line that says why that is not known.
    fn enter(&self, rules: &mut rules::Walk<'_>, entry: &DirEntry) -> Result<(), String> {
        let path = self.relative(entry.path());
        let open = |path: &Path| match self.open_beneath(path) {
            // A directory that cannot be entered is named itself.
            Err(Errno::EACCES) if self.root.join(path).symlink_metadata().is_err() => {
                Err(io::ErrorKind::NotFound.into())
            }
            other => other.map_err(io::Error::from),
        };
        rules.enter(path, entry.depth(), open)
    }

    /// Returns whether the user's patterns leave an entry out.
    fn is_left_out(&self, rules: &mut rules::Walk<'_>, entry: &DirEntry) -> bool {
        let is_directory = entry.file_type().is_dir();
        rules.leaves_out(self.relative(entry.path()), entry.depth(), is_directory)
    }

    /// Adds a directory below the root, whose entries are items of their own.
    fn add_directory(&self, scan: &mut Scan, entry: &DirEntry) {
        let path = self.relative(entry.path());
        match (path.to_str(), entry.metadata()) {
            (Some(name), Ok(metadata)) => scan.items.push(directory(name, &metadata)),
            (None, _) => scan.skipped.add(path.to_string_lossy(), SkipReason::NameNotUtf8),
            // It has vanished meanwhile, or its entries cannot be read either.
            (Some(_), Err(_)) => {}
        }
    }

    /// Returns the root itself as an item of this name.
    pub(crate) fn as_item(&self, name: &str) -> Option<Found> {
        let metadata = fs::metadata(&self.root).ok().filter(|_| self.only.is_none())?;
        Some(directory(name, &metadata))
    }

    /// Records an entry that the walk could not read. If this is the root itself, the scan fails.
    fn add_failure(&self, skipped: &mut Skipped, error: walkdir::Error) -> Result<(), OpenError> {
        let depth = error.depth();
        let path = error.path().unwrap_or(&self.root).to_owned();
        let error = io::Error::from(error);
        if depth == 0 {
            return Err(OpenError::Io { path, error });
        }
        if error.kind() != io::ErrorKind::NotFound {
            let name = self.relative(&path).to_string_lossy();
            skipped.add(name, unreadable(&error));
        }
        Ok(())
    }
}

/// An open file, valid only in one version.
struct OpenFile {
    file: File,
    version: FileVersion,
}

impl OpenFile {
    fn check(&self) -> Result<(), Fault> {
        let metadata = self.file.metadata()?;
        let same = metadata.is_file() && self.version.is_same_content(&FileVersion::of(&metadata));
        if same { Ok(()) } else { Err(Fault::Changed) }
    }
}

impl Body for OpenFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        match self.file.read_exact_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Fault::Changed),
            Err(error) => Err(error.into()),
            // The kernel updates the times before it writes. If they still match the catalog, no
            // write began before the read ended.
            Ok(()) => self.check(),
        }
    }
}

/// Opens a file that the user named and follows links anywhere. Never waits for a pipe's writer.
pub(crate) fn open_named(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

fn how(flags: OFlag) -> OpenHow {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    OpenHow::new().flags(flags).resolve(resolve)
}

fn open_root(root: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    nix::fcntl::open(root, flags, Mode::empty())
        .map_err(|error| OpenError::Io { path: root.to_owned(), error: error.into() })
}

/// Opens a path one part at a time. Follows no link.
fn open_by_steps(root: &OwnedFd, path: &Path, flags: OFlag) -> Result<File, Errno> {
    let mut parts = path.components().peekable();
    let mut directory: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(Errno::EXDEV) };
        let at = directory.as_ref().unwrap_or(root).as_fd();
        if parts.peek().is_none() {
            return openat(at, name, flags | OFlag::O_NOFOLLOW, Mode::empty()).map(File::from);
        }
        let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        directory = Some(openat(at, name, step, Mode::empty())?);
    }
    Err(Errno::ENOENT)
}

/// Returns a directory as an item.
fn directory(name: &str, metadata: &fs::Metadata) -> Found {
    Found {
        name: name.to_owned(),
        kind: ItemKind::Directory,
        size: 0,
        holes: None,
        modified_ns: Some(nanoseconds(metadata.mtime(), metadata.mtime_nsec())),
        mode: Some(mode_of(metadata)),
        media_type: Cow::Borrowed(""),
        place: Place::Directory,
    }
}

/// Returns why a file that is neither a regular one, nor a directory or link, is not served.
fn special(kind: fs::FileType) -> SkipReason {
    if kind.is_fifo() {
        SkipReason::Fifo
    } else if kind.is_socket() {
        SkipReason::Socket
    } else {
        SkipReason::Device
    }
}

/// Returns the permissions that are told to clients.
fn mode_of(metadata: &fs::Metadata) -> u16 {
    metadata.mode() as u16 & ItemInfo::MODE_MAX
}

/// Returns whether the name is that of a client's incomplete item.
fn is_partial(name: &[u8]) -> bool {
    const MARK: &[u8] = b".umbel-part";
    name.first() == Some(&b'.') && name.windows(MARK.len()).any(|part| part == MARK)
}

/// Returns whether a file or directory of this name is hidden.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().first() == Some(&b'.')
}

/// Returns the media type for the extension of a name; empty if none is known.
pub(crate) fn media_type(name: &str) -> Cow<'static, str> {
    Cow::Borrowed(mime_guess2::from_path(name).first_raw().unwrap_or_default())
}

fn unreadable(error: &io::Error) -> SkipReason {
    SkipReason::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_files_are_opened_step_by_step_and_links_are_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), b"content").unwrap();
        symlink("b", dir.path().join("a/link")).unwrap();
        symlink("a/b/file", dir.path().join("file")).unwrap();
        let directory = Directory {
            has_openat2: false,
            ..Directory::new(dir.path(), &RepositoryOptions::default()).unwrap()
        };
        let mut content = String::new();
        let mut file = directory.open_beneath(Path::new("a/b/file")).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        for path in ["a/link/file", "file", "../x", "/etc/passwd", "a/b/../b/file", ""] {
            assert!(directory.open_beneath(Path::new(path)).is_err(), "{path}");
        }
    }
}
