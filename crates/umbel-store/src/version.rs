//! Versions of files, as their metadata tells them apart.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The version of a file, which distinguishes it from earlier files or contents of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    links: u64,
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
    changed_ns: i64,
}

/// Identifies a file among those of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileNumber {
    device: u64,
    inode: u64,
}

impl FileVersion {
    pub(crate) fn of(metadata: &fs::Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            size: metadata.size(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns what identifies the file if it has several names.
    pub(crate) fn of_several_names(&self) -> Option<FileNumber> {
        let FileVersion { device, inode, .. } = *self;
        (self.links > 1).then_some(FileNumber { device, inode })
    }

    /// Returns whether `later` describes the same file, changed or not.
    pub(crate) fn is_same_file(&self, later: &FileVersion) -> bool {
        (self.device, self.inode) == (later.device, later.inode)
    }

    /// Returns whether the content is the same in `later`.
    ///
    /// Creating or removing a link moves the change time, as a replacement by renaming does, and
    /// does not change the content.
    pub(crate) fn is_same_content(&self, later: &FileVersion) -> bool {
        (self.device, self.inode, self.size, self.modified_ns)
            == (later.device, later.inode, later.size, later.modified_ns)
            && (self.changed_ns == later.changed_ns || self.links != later.links)
    }
}

/// Returns a time in nanoseconds since 1970.
pub(crate) fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_same_until_its_content_can_have_changed() {
        let version =
            FileVersion { device: 1, inode: 2, links: 1, size: 3, modified_ns: 4, changed_ns: 5 };
        assert!(version.is_same_content(&version));
        let unlinked = FileVersion { links: 0, changed_ns: 6, ..version };
        assert!(version.is_same_content(&unlinked));
        for other in [
            FileVersion { inode: 9, ..version },
            FileVersion { size: 9, ..version },
            FileVersion { modified_ns: 9, ..version },
            FileVersion { changed_ns: 9, ..version },
            FileVersion { size: 9, ..unlinked },
        ] {
            assert!(!version.is_same_content(&other), "{other:?}");
        }
    }
}
