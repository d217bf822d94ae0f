//! The output directory, as open directories.
//!
//! Every path is walked part by part from the open output directory, and no part may be a
//! symbolic link: nothing that happens below it, while or before the sink runs, leads outside.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::errors::SinkError;
use super::names::RelativePath;

/// Directories kept open; when there are more, all are closed.
const MAX_OPEN_DIRECTORIES: usize = 64;

/// Made for a moment to see how the file system takes names.
const CASE_PROBE: &str = ".case.umbel-part";
/// How often to try if others interfere.
const CASE_PROBE_ATTEMPTS: usize = 10;
/// How long to wait for a part file that is locked.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// How often to look whether it still is.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A file that the sink keeps for an item, all in the target's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The finished item.
    Target,
    /// `.NAME.umbel-part`
    Part,
    /// `.NAME.umbel-part.journal`
    Journal,
    /// `.NAME.umbel-part.compact`: a journal being written anew.
    Compact,
}

/// Where an item is kept.
#[derive(Debug)]
pub(super) struct Place {
    /// The path below the output directory.
    pub(super) relative: RelativePath,
    /// The target, for the user: the output directory as given, and the path below it.
    pub(super) target: PathBuf,
    /// Permissions that the files are created with, before the umask.
    mode: Mode,
    part: String,
}

impl Place {
    /// The files of an item that goes to `relative` below `root`. What is not to be read by others in
    /// the end is not while it is received.
    pub(super) fn new(root: &Path, relative: RelativePath, mode: Option<u16>) -> Place {
        let mode = mode.map_or(0o666, |mode| mode & 0o666 | 0o600);
        let mode = Mode::from_bits_truncate(mode.into());
        Place { target: root.join(relative.joined()), part: relative.part_name(), mode, relative }
    }

    /// The path of a file, for the user.
    pub(super) fn path(&self, role: Role) -> PathBuf {
        self.target.with_file_name(self.name(role))
    }

    fn name(&self, role: Role) -> String {
        match role {
            Role::Target => self.relative.split().1.to_owned(),
            Role::Part => self.part.clone(),
            Role::Journal => format!("{}.journal", self.part),
            Role::Compact => format!("{}.compact", self.part),
        }
    }
}

/// Tells files apart, whatever their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: &File) -> Result<FileId, Errno> {
        let stat = fstat(file)?;
        Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// An open output directory.
#[derive(Debug)]
pub(super) struct Tree {
    root: Arc<OwnedFd>,
    path: PathBuf,
    open: Mutex<HashMap<String, Arc<OwnedFd>>>,
    /// Directories in which others were made, by path; their names are not durable yet.
    parents: Mutex<BTreeMap<PathBuf, Arc<OwnedFd>>>,
}

impl Tree {
    /// Opens the directory, and makes it first if it is not there.
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

    /// The directory as it was given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the whole file system durable.
    pub(super) fn sync_all(&self) -> Result<(), SinkError> {
        nix::unistd::syncfs(&self.root).map_err(SinkError::io("sync", &self.path))
    }

    /// Makes the names of new directories durable. If that fails, the items below them may be gone
    /// when the machine dies, as without [`durable`](super::SinkOptions::durable).
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

    /// Whether the file system takes `A` and `a` for the same name, found out by trying. If the
    /// process is killed meanwhile, the next one finds the same file and removes it.
    pub(super) fn folds_case(&self) -> Result<bool, SinkError> {
        let flags = OFlag::O_CREAT | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let upper = CASE_PROBE.to_uppercase();
        let is_there = |name: &str| fstatat(&self.root, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
        let mut folds = false;
        for _ in 0..CASE_PROBE_ATTEMPTS {
            openat(&self.root, CASE_PROBE, flags, mode)
                .map_err(SinkError::io("create a file in", &self.path))?;
            folds = is_there(&upper);
            // Another process may try at the same time, and have removed the file too early.
            if folds || is_there(CASE_PROBE) {
                break;
            }
        }
        match unlinkat(&self.root, CASE_PROBE, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(folds),
            Err(error) => Err(SinkError::io("remove a file from", &self.path)(error)),
        }
    }

    /// Bytes that files can still grow by, or `None` where the file system does not say.
    pub(super) fn available(&self) -> Option<u64> {
        let stat = nix::sys::statvfs::fstatvfs(&self.root).ok()?;
        let fragment = stat.fragment_size();
        (stat.blocks() > 0).then(|| stat.blocks_available().saturating_mul(fragment))
    }

    /// The directory of the place; `None` if it is not there and `create` does not ask for it.
    pub(super) fn directory(
        &self,
        place: &Place,
        create: bool,
    ) -> Result<Option<Arc<OwnedFd>>, SinkError> {
        let (parts, _) = place.relative.split();
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
                Err(error) => return Err(SinkError::io("open directory", &path)(error)),
            };
        }
        if open.len() >= MAX_OPEN_DIRECTORIES {
            open.clear();
        }
        open.insert(key, directory.clone());
        Ok(Some(directory))
    }

    /// Forgets the open directory of the place: it may have been removed since.
    fn forget(&self, place: &Place) {
        let key = place.relative.split().0.join("/");
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// What stands at the name, itself even if it is a symbolic link.
    pub(super) fn stat(&self, place: &Place, role: Role) -> Result<Option<FileStat>, SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(None) };
        match fstatat(&directory, place.name(role).as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(SinkError::io("look at", &place.path(role))(error)),
        }
    }

    /// Opens a regular file for reading; `None` if there is none of this name.
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

    /// Opens a file for reading and writing, and makes it and its directories first if needed.
    pub(super) fn open_to_write(&self, place: &Place, role: Role) -> Result<File, SinkError> {
        let fail = |error: Errno| SinkError::io("open", &place.path(role))(error);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for attempt in 0.. {
            let directory = self.directory(place, true)?.ok_or_else(|| fail(Errno::ENOENT))?;
            match openat(&directory, place.name(role).as_str(), flags, place.mode) {
                Ok(file) => return Ok(file.into()),
                // The directory was removed while it was kept open.
                Err(Errno::ENOENT) if attempt == 0 => self.forget(place),
                Err(error) => return Err(fail(error)),
            }
        }
        unreachable!("the second attempt returns")
    }

    /// Opens the part file and locks it, so that no other process writes to it. Waits a moment for
    /// a lock: this very sink may just be letting go of it, or another thread of the process may
    /// be about to start a program.
    pub(super) fn open_part(&self, place: &Place) -> Result<File, SinkError> {
        let give_up_at = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = self.open_to_write(place, Role::Part)?;
            match file.try_lock() {
                Ok(()) => {
                    // Between opening and locking, the holder of the lock may have renamed it.
                    let id = FileId::of(&file);
                    let id = id.map_err(SinkError::io("look at", &place.path(Role::Part)))?;
                    if self.id(place, Role::Part)? == Some(id) {
                        return Ok(file);
                    }
                }
                Err(TryLockError::WouldBlock) => {}
                // The file system has no locks: then it has to do without.
                Err(TryLockError::Error(_)) => return Ok(file),
            }
            if Instant::now() >= give_up_at {
                return Err(SinkError::InUse { path: place.target.clone() });
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
    }

    /// Which file the name stands for.
    pub(super) fn id(&self, place: &Place, role: Role) -> Result<Option<FileId>, SinkError> {
        let stat = self.stat(place, role)?;
        Ok(stat.map(|stat| FileId { device: stat.st_dev, inode: stat.st_ino }))
    }

    /// Gives the file another role; whatever had that is replaced.
    pub(super) fn rename(&self, place: &Place, from: Role, to: Role) -> Result<(), SinkError> {
        let path = place.path(to);
        let directory = self
            .directory(place, false)?
            .ok_or_else(|| SinkError::io("rename to", &path)(Errno::ENOENT))?;
        let (old, new) = (place.name(from), place.name(to));
        renameat(&directory, old.as_str(), &directory, new.as_str()).map_err(|error| match error {
            Errno::EISDIR => SinkError::IsDirectory { path: path.clone() },
            error => SinkError::io("rename to", &path)(error),
        })
    }

    /// Removes the file, if it is there.
    pub(super) fn remove(&self, place: &Place, role: Role) -> Result<(), SinkError> {
        let Some(directory) = self.directory(place, false)? else { return Ok(()) };
        match unlinkat(&directory, place.name(role).as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(SinkError::io("remove", &place.path(role))(error)),
        }
    }
}

/// Whether anything stands at the path.
fn is_there(path: &Path) -> bool {
    path == Path::new("") || path.symlink_metadata().is_ok()
}

/// The directory `part` of `directory`, and whether it was made now.
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

/// Whether the file is a directory.
pub(super) fn is_directory(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFDIR
}

/// Whether the file is a regular one.
pub(super) fn is_regular(stat: &FileStat) -> bool {
    file_type(stat) == SFlag::S_IFREG
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Makes the names in the directory durable.
pub(super) fn sync_directory(directory: &OwnedFd) -> io::Result<()> {
    nix::unistd::fsync(directory.as_fd()).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_new_directories_are_to_be_synced_and_of_old_ones_not() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(outer.path().join("old/out/there")).unwrap();
        let unsynced = |out: &Path, item: &str| {
            let tree = Tree::open(out).unwrap();
            let place = Place::new(out, RelativePath::of_item(item).unwrap(), None);
            tree.directory(&place, true).unwrap().unwrap();
            let parents = tree.take_parents().into_keys();
            let below = |path: PathBuf| path.strip_prefix(outer.path()).unwrap().to_owned();
            let parents: Vec<String> =
                parents.map(|path| below(path).to_str().unwrap().to_owned()).collect();
            tree.sync_new_directories();
            parents
        };
        let old = outer.path().join("old/out");
        assert_eq!(unsynced(&old, "item"), [""; 0]);
        assert_eq!(unsynced(&old, "there/item"), [""; 0]);
        assert_eq!(unsynced(&old, "there/a/b/item"), ["old/out/there", "old/out/there/a"]);
        let new = outer.path().join("new/out");
        assert_eq!(unsynced(&new, "a/item"), ["", "new", "new/out"]);
    }
}
