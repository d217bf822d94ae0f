//! What the catalog needs of a place that items come from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::directory::FileVersion;
use crate::sink::NameError;
use crate::warc::{Archive, Record};
use crate::{Fault, OpenError};

/// Where items come from.
pub(crate) trait Origin: Send + Sync + fmt::Debug {
    /// Looks at everything that can be served now. No two items have the same name. `None` if
    /// nothing changed since the last scan.
    fn scan(&self) -> Result<Option<Scan>, OpenError>;

    /// Opens an item in exactly the version that a scan found.
    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault>;
}

/// The content of one version of an item. It stays readable when the item is removed or replaced.
pub(crate) trait Body: Send + Sync {
    /// Fills `buf` with the bytes from `offset` on, all of which must exist.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault>;
}

/// An item as a scan found it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) modified_ns: Option<i64>,
    /// Permissions, of a file.
    pub(crate) mode: Option<u16>,
    pub(crate) media_type: Cow<'static, str>,
    pub(crate) place: Place,
}

/// Where exactly an item's content is, and of which version.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A file in a directory.
    File(FileVersion),
    /// A record of a WARC file.
    Record(Arc<Archive>, Record),
}

impl Place {
    /// Whether `later`, found under the same name, is the same version.
    pub(crate) fn is_same_version(&self, later: &Place) -> bool {
        match (self, later) {
            (Place::File(a), Place::File(b)) => a.is_same_content(b),
            (Place::Record(file, record), Place::Record(later_file, later)) => {
                Arc::ptr_eq(file, later_file) && record == later
            }
            (Place::File(_), Place::Record(..)) | (Place::Record(..), Place::File(_)) => false,
        }
    }
}

/// What a scan found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) items: Vec<Found>,
    pub(crate) skipped: Skipped,
    /// Items that are answers of HTTP with another status than 200.
    pub(crate) other_status: u64,
}

/// Why something is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Its name is not UTF-8, so that clients could not be told it.
    NameNotUtf8,
    /// Its name is one that clients refuse.
    Name(NameError),
    /// A symbolic link that leads out of the repository, is absolute, or leads nowhere.
    LinkOutside,
    /// A symbolic link to something that is not a regular file.
    LinkToOther,
    /// A socket, a pipe or a device.
    SpecialFile,
    /// A directory with nothing in it.
    EmptyDirectory,
    /// A key or another file of umbel's own.
    Own,
    /// The system does not let it be read; what it said.
    Unreadable(String),
    /// Larger than the erasure code can carry.
    TooLarge,
    /// A record of an archive that cannot be understood; what is wrong with it.
    Corrupt(String),
    /// A record of an archive that has a later one of the same URL.
    OlderCapture,
    /// A record of an archive that only says that the content was captured before, where this
    /// archive has no record of its URL.
    Revisit,
}

impl SkipReason {
    /// Whether content is missing that a user expects to be there: nothing about what stands there
    /// says that it is not sent.
    pub fn is_failure(&self) -> bool {
        match self {
            SkipReason::NameNotUtf8
            | SkipReason::Name(_)
            | SkipReason::Unreadable(_)
            | SkipReason::TooLarge
            | SkipReason::Corrupt(_) => true,
            SkipReason::LinkOutside
            | SkipReason::LinkToOther
            | SkipReason::SpecialFile
            | SkipReason::EmptyDirectory
            | SkipReason::Own
            | SkipReason::OlderCapture
            | SkipReason::Revisit => false,
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SkipReason::NameNotUtf8 => f.write_str("its name is not UTF-8"),
            SkipReason::Name(error) => f.write_str(error.brief()),
            SkipReason::LinkOutside => f.write_str("a link that does not stay in the repository"),
            SkipReason::LinkToOther => f.write_str("a link to something that is not a file"),
            SkipReason::SpecialFile => f.write_str("not a regular file"),
            SkipReason::EmptyDirectory => f.write_str("an empty directory: only files are sent"),
            SkipReason::Own => f.write_str("umbel's own, and secret"),
            SkipReason::Unreadable(error) => f.write_str(error),
            SkipReason::TooLarge => f.write_str("too large for the erasure code"),
            SkipReason::Corrupt(what) => write!(f, "damaged: {what}"),
            SkipReason::OlderCapture => f.write_str("an older capture of its URL"),
            SkipReason::Revisit => f.write_str("a revisit of what another archive has"),
        }
    }
}

/// Something that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedItem {
    /// Its path, URI or position, as well as it can be written.
    pub name: String,
    /// Why it is not served.
    pub reason: SkipReason,
}

/// What a scan left out: all of it counted, the first of it named.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    total: u64,
    failures: u64,
    named: Vec<SkippedItem>,
}

impl Skipped {
    /// How many are named at most.
    const NAMED: usize = 1_000;

    /// How many were left out.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many of them are failures; see [`SkipReason::is_failure`].
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The first thousand of them, in the order of the scan, failures first.
    pub fn named(&self) -> &[SkippedItem] {
        &self.named
    }

    /// Adds what another scan left out, with `prefix` before its names.
    pub(crate) fn add_all(&mut self, prefix: &str, other: &Skipped) {
        for SkippedItem { name, reason } in other.named() {
            self.add(format!("{prefix}{name}"), reason.clone());
        }
        let named = other.named.iter().filter(|item| item.reason.is_failure()).count() as u64;
        self.failures += other.failures - named;
        self.total += other.total - other.named.len() as u64;
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, reason: SkipReason) {
        self.total += 1;
        let failure = reason.is_failure();
        if failure {
            let place = self.named.partition_point(|item| item.reason.is_failure());
            if place < Self::NAMED {
                self.named.insert(place, SkippedItem { name: name.into(), reason });
                self.named.truncate(Self::NAMED);
            }
            self.failures += 1;
        } else if self.named.len() < Self::NAMED {
            self.named.push(SkippedItem { name: name.into(), reason });
        }
    }
}
