//! The interface between the catalog and the places that items come from.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use umbel_wire::repository::ItemKind;

use crate::device::source::DeviceVersion;
use crate::sink::NameError;
use crate::version::FileVersion;
use crate::warc::{Archive, Record};
use crate::{Fault, OpenError};

/// A place that items come from.
pub(crate) trait Origin: Send + Sync + fmt::Debug {
    /// Returns all items that can be served now. No two items have the same name. Returns `None` if
    /// nothing changed since the last scan.
    fn scan(&self) -> Result<Option<Scan>, OpenError>;

    /// Opens an item in exactly the version that a scan found.
    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault>;
}

/// The content of one version of an item. It stays readable after the item is removed or replaced.
pub(crate) trait Body: Send + Sync {
    /// Fills `buf` with the bytes from `offset` on, all of which must exist.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault>;
}

/// An item found by a scan.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) kind: ItemKind,
    pub(crate) size: u64,
    pub(crate) modified_ns: Option<i64>,
    /// Bytes that are holes, in ascending runs; `None` if it has none.
    pub(crate) holes: Option<Vec<Range<u64>>>,
    /// Permissions of a file or directory.
    pub(crate) mode: Option<u16>,
    pub(crate) media_type: Cow<'static, str>,
    pub(crate) place: Place,
}

impl Found {
    /// Returns whether `later`, found under the same name, is the same version.
    pub(crate) fn is_same_version(&self, later: &Found) -> bool {
        let is_link = |found: &Found| matches!(found.kind, ItemKind::Link(_));
        let leads_elsewhere = (is_link(self) || is_link(later)) && self.kind != later.kind;
        !leads_elsewhere && self.place.is_same_version(&later.place)
    }

    /// Returns whether `later`, which is the same version, is described in the same way.
    pub(crate) fn has_attributes_of(&self, later: &Found) -> bool {
        (self.modified_ns, self.mode, &self.kind) == (later.modified_ns, later.mode, &later.kind)
    }
}

/// The exact place of an item's content, with its version.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A file in a directory.
    File(FileVersion),
    /// A directory, which has no content.
    Directory,
    /// A symbolic link, which has none either.
    Link,
    /// A block device.
    Device(DeviceVersion),
    /// A record of a WARC file.
    Record(Arc<Archive>, Record),
}

impl Place {
    /// Returns whether `later`, found under the same name, is the same version.
    pub(crate) fn is_same_version(&self, later: &Place) -> bool {
        match (self, later) {
            (Place::File(a), Place::File(b)) => a.is_same_content(b),
            (Place::Directory, Place::Directory) | (Place::Link, Place::Link) => true,
            (Place::Device(a), Place::Device(b)) => a == b,
            (Place::Record(file, record), Place::Record(later_file, later)) => {
                Arc::ptr_eq(file, later_file) && record == later
            }
            (
                Place::File(_)
                | Place::Directory
                | Place::Link
                | Place::Device(_)
                | Place::Record(..),
                _,
            ) => false,
        }
    }
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) items: Vec<Found>,
    pub(crate) skipped: Skipped,
    /// Number of items that are HTTP responses with a status other than 200.
    pub(crate) other_status: u64,
}

/// Reason why an item is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Its name is not UTF-8, so clients could not be told the name.
    NameNotUtf8,
    /// Clients refuse its name.
    Name(NameError),
    /// It is a symbolic link that leads out of the repository, is absolute, or leads nowhere, where
    /// links are followed.
    LinkOutside,
    /// It is a symbolic link to something other than a regular file, where links are followed.
    LinkToOther,
    /// It is a symbolic link whose text is not UTF-8.
    LinkNotUtf8,
    /// It is a socket.
    Socket,
    /// It is a FIFO, which is also called a named pipe.
    Fifo,
    /// It is a device.
    Device,
    /// It is a key or another file of umbel's own.
    Own,
    /// It is hidden, and not below a directory that is published.
    Hidden,
    /// The system refuses to read it, with this error.
    Unreadable(String),
    /// It is larger than the erasure code can carry.
    TooLarge,
    /// It is an invalid record of an archive, with this defect.
    Corrupt(String),
    /// It is a record of an archive that has a later one of the same URL.
    OlderCapture,
    /// It is a record of an archive that only refers to an earlier capture, and this archive has no
    /// record of its URL.
    Revisit,
}

impl SkipReason {
    /// Returns whether a user would miss the content, because nothing about the entry itself
    /// indicates that it is not sent.
    pub fn is_failure(&self) -> bool {
        match self {
            SkipReason::NameNotUtf8
            | SkipReason::LinkNotUtf8
            | SkipReason::Name(_)
            | SkipReason::Unreadable(_)
            | SkipReason::TooLarge
            | SkipReason::Corrupt(_) => true,
            SkipReason::LinkOutside
            | SkipReason::LinkToOther
            | SkipReason::Socket
            | SkipReason::Fifo
            | SkipReason::Device
            | SkipReason::Own
            | SkipReason::Hidden
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
            SkipReason::LinkNotUtf8 => f.write_str("a link whose text is not UTF-8"),
            SkipReason::Socket => f.write_str("a socket"),
            SkipReason::Fifo => f.write_str("a FIFO"),
            SkipReason::Device => f.write_str("a device; one that is named itself is sent"),
            SkipReason::Own => f.write_str("umbel's own, and secret"),
            SkipReason::Hidden => f.write_str("hidden; --hidden publishes such files"),
            SkipReason::Unreadable(error) => f.write_str(error),
            SkipReason::TooLarge => f.write_str("too large for the erasure code"),
            SkipReason::Corrupt(what) => write!(f, "damaged: {what}"),
            SkipReason::OlderCapture => f.write_str("an older capture of its URL"),
            SkipReason::Revisit => f.write_str("a revisit of what another archive has"),
        }
    }
}

/// An entry that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedItem {
    /// Its path, URI or position, as far as it can be written.
    pub name: String,
    /// Reason why it is not served.
    pub reason: SkipReason,
}

/// Entries that a scan skipped. All of them are counted, and the first of them named.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    total: u64,
    failures: u64,
    named: Vec<SkippedItem>,
}

impl Skipped {
    /// Maximum number of named entries.
    const NAMED: usize = 1_000;

    /// Returns the number of skipped entries.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of failures among them; see [`SkipReason::is_failure`].
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the first thousand of them, failures first, otherwise in the order of the scan.
    pub fn named(&self) -> &[SkippedItem] {
        &self.named
    }

    /// Adds the skipped entries of another scan, with `prefix` before their names.
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
