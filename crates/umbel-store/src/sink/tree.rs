//! The output directory, as open directories.
//!
//! Every path is walked part by part from the open output directory, and no part may be a symbolic
//! link. No change below that directory, before or while the sink runs, can therefore lead outside.

mod links;

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::attributes::Allowed;
use super::errors::SinkError;
use super::names::{NameError, RelativePath};

/// Maximum number of directories kept open. If there are more, all are closed.
const MAX_OPEN_DIRECTORIES: usize = 64;

/// Name of a temporary file that shows how the file system treats case.
const CASE_PROBE: &str = ".case.umbel-part";
/// Maximum number of attempts if other processes interfere.
const CASE_PROBE_ATTEMPTS: usize = 10;
/// Maximum time to wait for a part file that is locked.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts to lock it.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Role of a file that the sink keeps for an item. All are in the target's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The finished item.
    Target,
    /// `.NAME.umbel-part`, the incomplete item.
    Part,
    /// `.NAME.umbel-part.journal`, its journal.
    Journal,
    /// `.NAME.umbel-part.compact`, a journal that is being compacted.
    Compact,
    /// `.NAME.umbel-part.link`, a link that has not its name yet.
    Link,
}

/// Location of an item's files.
#[derive(Debug)]
pub(super) struct Place {
    /// Path below the output directory.
    pub(super) relative: RelativePath,
    /// Path of the target for the user: the output directory as given, and the path below it.
    pub(super) target: PathBuf,
    /// Permissions with which the files are created, before the umask.
    mode: Mode,
    part: String,
    /// Whether the target is a block device, which has no other files.
    is_device: bool,
}

impl Place {
    /// Creates the place of an item at `relative` below `root`. A file that others must not read in
    /// the end is unreadable for them while it is received, too.
    pub(super) fn new(root: &Path, relative: RelativePath, mode: Option<u16>) -> Place {
        let mode = mode.map_or(0o666, |mode| mode & 0o666 | 0o600);
        let mode = Mode::from_bits_truncate(mode.into());
        let target = root.join(relative.joined());
        Place { target, part: relative.part_name(), mode, relative, is_device: false }
    }

    /// Creates the place of an item that is written to a block device.
    pub(super) fn of_device(path: &Path) -> Result<Place, NameError> {
        let place = Place::new(path, RelativePath::of_item("device")?, None);
        Ok(Place { target: path.to_owned(), is_device: true, ..place })
    }

    /// Returns the path of a file, for the user.
    pub(super) fn path(&self, role: Role) -> PathBuf {
        if self.is_device {
            return self.target.clone();
        }
        self.target.with_file_name(self.name(role))
    }

    fn name(&self, role: Role) -> String {
        match role {
            Role::Target => self.relative.split().1.to_owned(),
            Role::Part => self.part.clone(),
            Role::Journal => format!("{}.journal", self.part),
            Role::Compact => format!("{}.compact", self.part),
            Role::Link => format!("{}.link", self.part),
        }
    }
}

/// Identifies a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: &File) -> Result<FileId, Errno> {
        Ok(FileId::from(&fstat(file)?))
    }

    /// Identifies the file of this name in a directory.
    pub(super) fn at(directory: impl AsFd, name: &str) -> Result<FileId, Errno> {
        Ok(FileId::from(&fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }
}

impl From<&FileStat> for FileId {
    fn from(stat: &FileStat) -> FileId {
        FileId { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// An open output directory.
#[derive(Debug)]
pub(super) struct Tree {
    root: Arc<OwnedFd>,
    path: PathBuf,
    open: Mutex<HashMap<String, Arc<OwnedFd>>>,
    /// Directories in which others were created, by path. The new names are not durable yet.
    parents: Mutex<BTreeMap<PathBuf, Arc<OwnedFd>>>,
}

impl Tree {
    /// Opens the directory and creates it first if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Tree, SinkError> {
        let made: Vec<&Path> = path.ancestors().take_while(|path| !is_there(path)).collect();
        if let Err(error) = std::fs::create_dir_all(path) {
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => SinkError::NotDirectory { path: path.to_owned() },
                _ => SinkError::io("create directory", path)(error),
            });
        }
        let root = File::open(path).map_err(SinkError::io("open directory", path))?;
        let tree = Tree {
            root: Arc::new(root.into()),
            path: path.to_owned(),
            open: Mutex::default(),
            parents: Mutex::default(),
        };
        for parent in made.into_iter().filter_map(Path::parent) {
            let parent = if parent == Path::new("") { Path::new(".") } else { parent };
            if let Ok(directory) = File::open(parent) {
                tree.note_parent(parent, Arc::new(directory.into()));
            }
        }
        let stat = fstat(&tree.root).map_err(SinkError::io("open directory", path))?;
        if !is_directory(&stat) {
            return Err(SinkError::NotDirectory { path: path.to_owned() });
        }
        Ok(tree)
    }

    /// Opens a directory to look at what is in it. One that does not exist is empty.
    pub(super) fn open_to_look(path: &Path) -> Result<Tree, SinkError> {
        let root = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => empty_directory(),
            other => other,
        };
        let root = root.map_err(SinkError::io("open directory", path))?;
        if !root.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(SinkError::NotDirectory { path: path.to_owned() });
        }
        Ok(Tree {
            root: Arc::new(root.into()),
            path: path.to_owned(),
            open: Mutex::default(),
            parents: Mutex::default(),
        })
    }

    /// Returns the open output directory.
    pub(super) fn root(&self) -> Arc<OwnedFd> {
        self.root.clone()
    }

    /// Returns the directory as given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the whole file system durable.
    pub(super) fn sync_all(&self) -> Result<(), SinkError> {
        nix::unistd::syncfs(&self.root).map_err(SinkError::io("sync", &self.path))
    }

    /// Makes the names of new directories durable. If that fails, a crash of the machine may lose
    /// the items below them, as without [`durable`](super::SinkOptions::durable).
    pub(super) fn sync_new_directories(&self) {
        for directory in self.take_parents().into_values() {
            let _ = sync_directory(&directory);
        }
    }

    fn take_parents(&self) -> BTreeMap<PathBuf, Arc<OwnedFd>> {
        std::mem::take(&mut *self.parents.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_parent(&self, path: &Path, directory: Arc<OwnedFd>) {
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if parents.len() >= MAX_OPEN_DIRECTORIES {
            for (_, directory) in std::mem::take(&mut *parents) {
                let _ = sync_directory(&directory);
            }
        }
        parents.entry(path.to_owned()).or_insert(directory);
    }

    /// Returns whether the file system takes `A` and `a` for the same name, and the permissions of
    /// new files, determined by a test file. If the process is killed meanwhile, the next one finds
    /// the same file and removes it.
    pub(super) fn try_names(&self) -> Result<(bool, Allowed), SinkError> {
        let flags = OFlag::O_CREAT | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let upper = CASE_PROBE.to_uppercase();
        let is_there = |name: &str| fstatat(&self.root, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
        let (mut folds, mut allowed) = (false, Allowed::of(0o644));
        for _ in 0..CASE_PROBE_ATTEMPTS {
            let probe = openat(&self.root, CASE_PROBE, flags, mode)
                .map_err(SinkError::io("create a file in", &self.path))?;
            if let Ok(stat) = fstat(&probe) {
                allowed = Allowed::of(stat.st_mode);
            }
            folds = is_there(&upper);
            // Another process may run the same test and have removed the file too early.
            if folds || is_there(CASE_PROBE) {
                break;
            }
        }
        match unlinkat(&self.root, CASE_PROBE, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok((folds, allowed)),
            Err(error) => Err(SinkError::io("remove a file from", &self.path)(error)),
        }
    }

    /// Returns the permissions of new files without making one that has a name.
    pub(super) fn look_at_allowed(&self) -> Allowed {
        // Where the file system has no files without names, or none may be made, the umask decides,
        // unless the directory has an access control list for new files.
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        openat(&self.root, ".", flags, Mode::from_bits_truncate(0o666))
            .and_then(fstat)
            .map_or_else(|_| Allowed::by_umask(), |stat| Allowed::of(stat.st_mode))
    }

    /// Returns the number of bytes available for files. Returns `None` if the file system does not
    /// report it.
    pub(super) fn available(&self) -> Option<u64> {
        let stat = nix::sys::statvfs::fstatvfs(&self.root).ok()?;
        let fragment = stat.fragment_size();
        (stat.blocks() > 0).then(|| stat.blocks_available().saturating_mul(fragment))
    }

    /// Returns the directory of the place. Returns `None` if it does not exist and `create` is
    /// false.
    pub(super) fn directory(
        &self,
        place: &Place,
        create: bool,
    ) -> Result<Option<Arc<OwnedFd>>, SinkError> {
        self.directory_at(place.relative.split().0, create)
    }

    /// Returns the directory at a path of these parts. Returns `None` if it does not exist and
    /// `create` is false.
    pub(super) fn directory_at(
        &self,
        parts: &[String],
        create: bool,
    ) -> Result<Option<Arc<OwnedFd>>, SinkError> {
        if parts.is_empty() {
            return Ok(Some(self.root.clone()));
        }
        let key = parts.join("/");
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = open.get(&key) {
            return Ok(Some(directory.clone()));
        }
        let mut directory = self.root.clone();
        let mut path = self.path.clone();
        for part in parts {
            let parent = path.clone();
            path.push(part);
            directory = match enter(&directory, part, create) {
                Ok(Some((next, made))) => {
                    if made {
                        self.note_parent(&parent, directory);
                    }
                    Arc::new(next)
                }
                Ok(None) => return Ok(None),
                Err(Errno::ENOTDIR | Errno::ELOOP) => return Err(SinkError::NotDirectory { path }),
                Err(error) => {
                    let other = || SinkError::io("open directory", &path)(error);
                    return Err(unnameable(&path, part, error).unwrap_or_else(other));
                }
            };
        }
        if open.len() >= MAX_OPEN_DIRECTORIES {
            open.clear();
        }
        open.insert(key, directory.clone());
        Ok(Some(directory))
    }

    /// Opens the directory at a path below the output directory, whatever its names are, one part
    /// at a time. Returns `None` if it does not exist, or if a link is in the way.
    pub(super) fn enter_all(&self, below: &Path) -> Result<Option<File>, SinkError> {
        let fail = |error: Errno| SinkError::io("open", &self.path.join(below))(error);
        let mut directory =
            File::from(self.root.try_clone().map_err(SinkError::io("open", &self.path))?);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for part in below {
            match openat(&directory, part, flags, Mode::empty()) {
                Ok(next) => directory = next.into(),
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
                Err(error) => return Err(fail(error)),
            }
        }
        Ok(Some(directory))
    }

    /// Drops the open directory of the place, because it may have been removed since.
    fn forget(&self, place: &Place) {
        let key = place.relative.split().0.join("/");
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Returns the metadata of the file at the name. Symbolic links are not followed.
    pub(super) fn stat(&self, place: &Place, role: Role) -> Result<Option<FileStat>, SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(None) };
        match fstatat(&directory, place.name(role).as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(SinkError::io("look at", &place.path(role))(error)),
        }
    }

    /// Opens a regular file for reading. Returns `None` if there is none of this name.
    pub(super) fn open_to_read(
        &self,
        place: &Place,
        role: Role,
    ) -> Result<Option<File>, SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(None) };
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&directory, place.name(role).as_str(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => return Ok(None),
            Err(error) => return Err(SinkError::io("open", &place.path(role))(error)),
        };
        let metadata = file.metadata().map_err(SinkError::io("look at", &place.path(role)))?;
        Ok(metadata.is_file().then_some(file))
    }

    /// Opens a file for reading and writing. Creates it and its directories if necessary.
    pub(super) fn open_to_write(&self, place: &Place, role: Role) -> Result<File, SinkError> {
        let fail = |error: Errno| SinkError::io("open", &place.path(role))(error);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for attempt in 0.. {
            let directory = self.directory(place, true)?.ok_or_else(|| fail(Errno::ENOENT))?;
            match openat(&directory, place.name(role).as_str(), flags, place.mode) {
                Ok(file) => return only_name(file.into(), &place.path(role)),
                // The directory was removed while it was kept open.
                Err(Errno::ENOENT) if attempt == 0 => self.forget(place),
                // It has its final permissions already.
                Err(Errno::EACCES) if attempt == 0 => {
                    let file =
                        self.open_to_read(place, role)?.ok_or_else(|| fail(Errno::EACCES))?;
                    let own = Permissions::from_mode(0o600);
                    file.set_permissions(own).map_err(|_| fail(Errno::EACCES))?;
                }
                Err(error) => {
                    let said = unnameable(&place.target, place.relative.split().1, error);
                    return Err(said.unwrap_or_else(|| fail(error)));
                }
            }
        }
        unreachable!("the second attempt returns")
    }

    /// Opens the part file and locks it, so that no other process writes to it. Waits up to one
    /// second for a lock. This sink may be about to release it, or another thread of the process
    /// may be about to start a program.
    pub(super) fn open_part(&self, place: &Place) -> Result<File, SinkError> {
        let give_up_at = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = self.open_to_write(place, Role::Part)?;
            match file.try_lock() {
                Ok(()) => {
                    // Before the lock was acquired, its previous holder may have renamed the file.
                    let id = FileId::of(&file);
                    let id = id.map_err(SinkError::io("look at", &place.path(Role::Part)))?;
                    if self.id(place, Role::Part)? == Some(id) {
                        return Ok(file);
                    }
                }
                Err(TryLockError::WouldBlock) => {}
                // The file system has no locks, so the file is used without one.
                Err(TryLockError::Error(_)) => return Ok(file),
            }
            if Instant::now() >= give_up_at {
                return Err(SinkError::InUse { path: place.target.clone() });
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
    }

    /// Returns the identity of the file at the name.
    pub(super) fn id(&self, place: &Place, role: Role) -> Result<Option<FileId>, SinkError> {
        let stat = self.stat(place, role)?;
        Ok(stat.as_ref().map(FileId::from))
    }

    /// Renames the file to another role. A file that had this role is replaced if `replace`.
    pub(super) fn rename(
        &self,
        place: &Place,
        from: Role,
        to: Role,
        replace: bool,
    ) -> Result<(), SinkError> {
        let path = place.path(to);
        let directory = self
            .directory(place, false)?
            .ok_or_else(|| SinkError::io("rename to", &path)(Errno::ENOENT))?;
        let (old, new) = (place.name(from), place.name(to));
        let (old, new) = (old.as_str(), new.as_str());
        let only_new = || {
            let flags = RenameFlags::RENAME_NOREPLACE;
            match renameat2(&directory, old, &directory, new, flags) {
                // A kernel or file system that cannot rename so. The look shortly before has to do.
                Err(Errno::EINVAL | Errno::ENOSYS) => {
                    match fstatat(&directory, new, AtFlags::AT_SYMLINK_NOFOLLOW) {
                        Ok(_) => Err(Errno::EEXIST),
                        Err(_) => renameat(&directory, old, &directory, new),
                    }
                }
                result => result,
            }
        };
        let renamed = if replace { renameat(&directory, old, &directory, new) } else { only_new() };
        let is_directory =
            || self.stat(place, to).is_ok_and(|stat| stat.as_ref().is_some_and(is_directory));
        renamed.map_err(|error| match error {
            Errno::EEXIST if is_directory() => SinkError::IsDirectory { path: path.clone() },
            Errno::EISDIR => SinkError::IsDirectory { path: path.clone() },
            Errno::EEXIST => SinkError::Exists { path: path.clone() },
            error => SinkError::io("rename to", &path)(error),
        })
    }

    /// Gives the finished item a name in another tree, too. Returns whether that was possible.
    pub(super) fn link(&self, place: &Place, to: &Tree) -> bool {
        let (from, to) = (self.directory(place, false), to.directory(place, true));
        let (Ok(Some(from)), Ok(Some(to))) = (from, to) else { return false };
        let name = place.name(Role::Target);
        linkat(&from, name.as_str(), &to, name.as_str(), AtFlags::empty()).is_ok()
    }

    /// Removes what is left of an incomplete item that is not needed any more, unless another
    /// process writes to it.
    pub(super) fn discard(&self, place: &Place) -> Result<(), SinkError> {
        if let Some(part) = self.open_to_read(place, Role::Part)?
            && matches!(part.try_lock(), Err(TryLockError::WouldBlock))
        {
            return Ok(());
        }
        for role in [Role::Journal, Role::Compact, Role::Part] {
            self.remove(place, role)?;
        }
        Ok(())
    }

    /// Removes the file if it exists.
    pub(super) fn remove(&self, place: &Place, role: Role) -> Result<(), SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(()) };
        match unlinkat(&directory, place.name(role).as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(SinkError::io("remove", &place.path(role))(error)),
        }
    }
}

/// Opens a directory that has no name any more, and nothing in it.
fn empty_directory() -> io::Result<File> {
    let path = nix::unistd::mkdtemp(&std::env::temp_dir().join("umbel-XXXXXX"))?;
    let directory = File::open(&path);
    std::fs::remove_dir(&path)?;
    directory
}

/// Returns an error for a file that cannot be created, if its name, the last part of its path, has a
/// character that file systems of other systems do not take.
fn unnameable(path: &Path, name: &str, error: Errno) -> Option<SinkError> {
    if !matches!(error, Errno::ENOENT | Errno::EINVAL) {
        return None;
    }
    let character = name.chars().find(|c| ":?*\"<>|\\".contains(*c))?;
    Some(SinkError::Unnameable { path: path.to_owned(), character })
}

/// Returns whether the path exists, even as a dangling link.
fn is_there(path: &Path) -> bool {
    path == Path::new("") || path.symlink_metadata().is_ok()
}

/// Opens the directory `part` of `directory`. Returns it and whether it was created now.
fn enter(directory: impl AsFd, part: &str, create: bool) -> Result<Option<(OwnedFd, bool)>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(directory.as_fd(), part, flags, Mode::empty()) {
        Err(Errno::ENOENT) if create => {
            match mkdirat(directory.as_fd(), part, Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
            let made = openat(directory.as_fd(), part, flags, Mode::empty())?;
            Ok(Some((made, true)))
        }
        Err(Errno::ENOENT) => Ok(None),
        other => Ok(Some((other?, false))),
    }
}

/// Returns whether the file is a directory.
pub(super) fn is_directory(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFDIR
}

/// Returns whether the file is a symbolic link.
pub(super) fn is_link(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFLNK
}

/// Returns whether the file is a regular one.
pub(super) fn is_regular(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFREG
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Makes the names in the directory durable.
pub(super) fn sync_directory(directory: &OwnedFd) -> io::Result<()> {
    #[cfg(test)]
    tests::note_sync(directory);
    nix::unistd::fsync(directory.as_fd()).map_err(io::Error::from)
}

/// Refuses a file that has more names than this.
pub(super) fn only_name(file: File, path: &Path) -> Result<File, SinkError> {
    let links = file.metadata().map_err(SinkError::io("look at", path))?.nlink();
    if links > 1 {
        return Err(SinkError::Linked { path: path.to_owned() });
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
