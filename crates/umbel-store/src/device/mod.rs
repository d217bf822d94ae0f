//! Block devices: disks and partitions that are served, or to which an item is written.
//!
//! - [`BlockDevice`] finds one, with its size; [`usage`] finds who uses it.
//! - `source.rs` serves one as an item of its name.
//! - `partitions.rs` has the kernel read the partition table again.
//!
//! How an item is written to a device is in [`sink`](crate::sink).

mod partitions;
pub(crate) mod source;
pub(crate) mod usage;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc::{EACCES, EBUSY, EIO, ENODEV, ENXIO, EPERM, EROFS};

pub(crate) use partitions::read_again;
use usage::{Member, Mount, Number};

/// Where the kernel lists block devices by their numbers.
const SYSFS: &str = "/sys/dev/block";

/// Reason why a device cannot be read, or an item not be written to it. Each message says what to
/// do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The path is something else.
    #[error(
        "{} is not a block device: --device is for disks and partitions, -o for directories",
        path.display()
    )]
    NotADevice {
        /// The path.
        path: PathBuf,
    },
    /// The system refuses it to this user.
    #[error(
        "no permission to open {}: run it as root, or as a member of the group `disk`",
        path.display()
    )]
    Permission {
        /// Path of the device.
        path: PathBuf,
    },
    /// The device cannot be written to.
    #[error(
        "{} is write-protected: look for a switch on it, or try `blockdev --setrw`",
        path.display()
    )]
    ReadOnly {
        /// Path of the device.
        path: PathBuf,
    },
    /// It, or a partition of it, is mounted.
    #[error(
        "{part} is mounted at {}: unmount it first (--force writes nevertheless)",
        at.display()
    )]
    Mounted {
        /// Path of what is mounted.
        part: String,
        /// Place where it is mounted.
        at: PathBuf,
    },
    /// It, or a partition of it, is swap space in use.
    #[error("{part} is in use as swap space: `swapoff {part}` first (--force writes nevertheless)")]
    Swap {
        /// Path of the swap space.
        part: String,
    },
    /// Another device, such as a RAID or a volume, is made of it or of a partition of it.
    #[error(
        "{part} is part of {holder}: take that down first, as by `mdadm --stop` or `dmsetup remove` \
         (--force writes nevertheless)"
    )]
    Held {
        /// Path of the part.
        part: String,
        /// Name of the device that is made of it.
        holder: String,
    },
    /// Another process has it for itself alone.
    #[error(
        "{} is in use by another process: end that first (--force writes nevertheless)",
        path.display()
    )]
    Busy {
        /// Path of the device.
        path: PathBuf,
    },
    /// The item has more bytes than the device.
    #[error(
        "{} is too small: it has {size} bytes, and {name:?} has {needed}: take a larger device",
        path.display()
    )]
    TooSmall {
        /// Path of the device.
        path: PathBuf,
        /// Bytes of the device.
        size: u64,
        /// Name of the item.
        name: String,
        /// Bytes of the item.
        needed: u64,
    },
    /// What is to be written is no file, or an empty one.
    #[error("{name:?} has no bytes that could be written to a device: name a file that has")]
    NoContent {
        /// Name of the item.
        name: String,
    },
    /// Another item was written to the device.
    #[error("a device takes one item, and {path} has taken {taken:?}: name one", path = path.display())]
    Taken {
        /// Path of the device.
        path: PathBuf,
        /// Name of the item that it has taken.
        taken: String,
    },
    /// The device is not there any more.
    #[error(
        "{} is gone: when it is back, the same command goes on with what it has ({error})",
        path.display()
    )]
    Gone {
        /// Path of the device.
        path: PathBuf,
        /// Error of the system.
        error: Arc<io::Error>,
    },
    /// The device does not read or write.
    #[error("{} fails: see `dmesg`, and replace it ({error})", path.display())]
    Fails {
        /// Path of the device.
        path: PathBuf,
        /// Error of the system.
        error: Arc<io::Error>,
    },
    /// What is read back is not what was written.
    #[error("{} does not keep what is written to it: replace it", path.display())]
    Forgets {
        /// Path of the device.
        path: PathBuf,
    },
    /// The work was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// Another error of the system.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The operation: "open", "read".
        doing: &'static str,
        /// Path of the device.
        path: PathBuf,
        /// Error of the system.
        error: Arc<io::Error>,
    },
}

impl DeviceError {
    /// Returns a closure for `map_err` that says what an error of the system means for a device.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DeviceError {
        move |error| DeviceError::of(doing, path, Arc::new(error))
    }

    /// Returns what an error of the system while `doing` something means for a device.
    pub(crate) fn of(doing: &'static str, path: &Path, error: Arc<io::Error>) -> DeviceError {
        let path = path.to_owned();
        match error.raw_os_error() {
            Some(EACCES | EPERM) => DeviceError::Permission { path },
            Some(EROFS) => DeviceError::ReadOnly { path },
            Some(EBUSY) => DeviceError::Busy { path },
            Some(ENXIO | ENODEV) => DeviceError::Gone { path, error },
            Some(EIO) => DeviceError::Fails { path, error },
            _ => DeviceError::Io { doing, path, error },
        }
    }
}

/// A block device that was found.
#[derive(Clone, Debug)]
pub(crate) struct BlockDevice {
    pub(crate) path: PathBuf,
    pub(crate) number: Number,
    pub(crate) size: u64,
}

impl BlockDevice {
    /// Finds the device of this path, and opens it to read its size.
    pub(crate) fn find(path: &Path) -> Result<BlockDevice, DeviceError> {
        let metadata = fs::metadata(path).map_err(DeviceError::io("find", path))?;
        if !metadata.file_type().is_block_device() {
            return Err(DeviceError::NotADevice { path: path.to_owned() });
        }
        let file = File::open(path).map_err(DeviceError::io("open", path))?;
        let size = size_of(&file).map_err(DeviceError::io("read the size of", path))?;
        Ok(BlockDevice { path: path.to_owned(), number: Number::of(metadata.rdev()), size })
    }

    /// Returns what was opened by its path, which is to be the device that was found.
    pub(crate) fn confirm(&self, file: &File) -> Result<BlockDevice, DeviceError> {
        let metadata = file.metadata().map_err(DeviceError::io("look at", &self.path))?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device || Number::of(metadata.rdev()) != self.number {
            let error = io::Error::other("its path leads to something else now");
            return Err(DeviceError::Gone { path: self.path.clone(), error: Arc::new(error) });
        }
        let size = size_of(file).map_err(DeviceError::io("read the size of", &self.path))?;
        Ok(BlockDevice { size, ..self.clone() })
    }

    /// Returns the device and its partitions, as the kernel lists them.
    pub(crate) fn members(&self) -> Vec<Member> {
        usage::members(&Path::new(SYSFS).join(self.number.to_string())).unwrap_or_else(|error| {
            tracing::debug!("no list of the partitions of {}: {error}", self.path.display());
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            vec![Member { name: name.into_owned(), number: self.number, holders: Vec::new() }]
        })
    }

    /// Returns whether it is a whole disk, not a partition of one.
    pub(crate) fn is_disk(&self) -> bool {
        !Path::new(SYSFS).join(self.number.to_string()).join("partition").exists()
    }

    /// Refuses a device that is in use, or of which a partition is.
    pub(crate) fn check_unused(&self) -> Result<(), DeviceError> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (mounts, swaps) = (text("/proc/self/mountinfo"), text("/proc/swaps"));
        usage::check(&self.members(), &mounts, &swaps, number_of)
    }
}

/// Returns the bytes of an open device.
pub(crate) fn size_of(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Returns the number of the block device of this path.
fn number_of(path: &str) -> Option<Number> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| Number::of(metadata.rdev()))
}

/// Returns whether there is a block device at a path.
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Returns where the block device of this path, or a partition of it, is mounted so that it can
/// change while it is read.
pub fn mounted_for_writing(path: &Path) -> Option<PathBuf> {
    if !is_block_device(path) {
        return None;
    }
    let device = BlockDevice::find(path).ok()?;
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let members = device.members();
    let is_of = |mount: &Mount<'_>| usage::member_of(&members, mount, number_of).is_some();
    usage::mounts(&text).find(|mount| mount.is_writable && is_of(mount)).map(|mount| mount.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_and_what_is_not_there_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk.img");
        fs::write(&file, "content").unwrap();
        let error = BlockDevice::find(&file).unwrap_err().to_string();
        assert!(error.contains("disk.img is not a block device"), "{error}");
        assert!(error.contains("-o"), "{error}");
        let error = BlockDevice::find(&directory.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
        assert_eq!(mounted_for_writing(&file), None);
        let found = BlockDevice { path: "/dev/sdx".into(), number: Number::of(0x801), size: 1 };
        let error = found.confirm(&File::open(&file).unwrap()).unwrap_err().to_string();
        assert!(error.contains("/dev/sdx is gone"), "{error}");
    }

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let said = |code| {
            let error = io::Error::from_raw_os_error(code);
            DeviceError::io("write", Path::new("/dev/sdx"))(error).to_string()
        };
        for (code, words) in [
            (EACCES, "run it as root"),
            (EROFS, "write-protected"),
            (EBUSY, "in use by another process"),
            (ENXIO, "the same command goes on"),
            (EIO, "see `dmesg`"),
            (nix::libc::EINVAL, "cannot write /dev/sdx"),
        ] {
            assert!(
                said(code).contains(words) && said(code).contains("/dev/sdx"),
                "{}",
                said(code)
            );
        }
    }
}
