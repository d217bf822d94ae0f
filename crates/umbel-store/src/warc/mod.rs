//! A WARC file as a repository. Every response in it is an item, named by its URL.
//!
//! `response` and `resource` records are items [WARC 1.1 §6.3, §6.4]. The content of an HTTP
//! response is its stored body without the header. Chunks are joined, and a content encoding is
//! kept. The status is not passed on. A page with the status `404 Not Found` is an item like any
//! other, but such items are counted. Of several records of one URL, the one with the latest date
//! is served. The older ones are skipped, counted and named. So are invalid records and records
//! whose bytes do not match their digest. A `revisit` is skipped, too, if its URL has no separate
//! record here. All other kinds of records are ignored.
//!
//! Both forms are supported: plain, and compressed with `gzip`. Their first bytes distinguish them.
//! In the usual compressed form each record is its own member, and reading an item inflates only
//! its member; see [`Archive`].
//!
//! The parser is our own. The crate `warc` does not return the offsets of records, without which
//! reading an item would mean reading everything before it. It also cannot continue after a damaged
//! record.
//!
//! # Scope and limitations
//!
//! Opening a file reads all of it, and so does a refresh after it changed. Reading a block far back
//! in a large compressed record inflates the record from its start. Consecutive blocks cost nothing
//! extra. Records split over several files (`continuation`) are ignored. Bytes modified in place
//! after the scan are detected only in a record's header and by the receivers' digest check.

mod archive;
mod chunked;
mod content;
mod fields;
mod record;
mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::directory::{FileVersion, open_named};
use crate::origin::{Body, Found, Origin, Place, Scan, Skipped};
use crate::{Fault, OpenError};
pub(crate) use archive::Archive;
pub(crate) use record::Record;

/// A WARC file.
#[derive(Debug)]
pub(crate) struct WarcFile {
    path: PathBuf,
    /// Version and archive of the last scan.
    last: Mutex<Option<(FileVersion, Arc<Archive>)>>,
}

impl WarcFile {
    pub(crate) fn new(path: &Path) -> WarcFile {
        WarcFile { path: path.to_owned(), last: Mutex::new(None) }
    }

    /// Returns whether the path is named like a WARC file.
    pub(crate) fn is_named(path: &Path) -> bool {
        let has = |path: &Path, extension: &str| {
            path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
        };
        has(path, "warc") || has(path, "gz") && has(&path.with_extension(""), "warc")
    }
}

impl Origin for WarcFile {
    fn scan(&self) -> Result<Option<Scan>, OpenError> {
        let io = |error| OpenError::Io { path: self.path.clone(), error };
        let file = open_named(&self.path).map_err(io)?;
        let version = FileVersion::of(&file.metadata().map_err(io)?);
        let mut last = self.last.lock();
        let archive = match &*last {
            Some((before, _)) if *before == version => return Ok(None),
            // The file grew or was written to. Records that have not moved are still the same
            // version.
            Some((before, archive)) if before.is_same_file(&version) => Arc::clone(archive),
            _ => Arc::new(Archive::new(Box::new(file))),
        };
        let scan = scan::run(&archive).map_err(io)?;
        *last = Some((version, archive));
        Ok(Some(scan))
    }

    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault> {
        match &item.place {
            Place::Record(archive, record) => Archive::open(archive, record),
            Place::File(_) => Err(Fault::Vanished),
        }
    }
}

/// Items that a WARC file serves.
#[derive(Debug, Default)]
pub struct WarcContents {
    /// Names and contents, in the order of the names.
    pub items: Vec<(String, Result<Vec<u8>, Fault>)>,
    /// Records that are skipped.
    pub skipped: Skipped,
    /// Number of items that are HTTP responses with a status other than 200.
    pub other_status: u64,
}

/// Returns all items that a WARC file would serve. For programs that have the file in memory, and
/// for tests with arbitrary bytes.
pub fn read_warc(file: Vec<u8>) -> WarcContents {
    let archive = Arc::new(Archive::new(Box::new(file)));
    let Ok(mut scan) = scan::run(&archive) else { return WarcContents::default() };
    scan.items.sort_by(|a, b| a.name.cmp(&b.name));
    let read = |item: &Found| {
        let Place::Record(archive, record) = &item.place else { return Err(Fault::Vanished) };
        let body = Archive::open(archive, record)?;
        let mut content = vec![0; item.size as usize];
        body.read_at(0, &mut content)?;
        Ok(content)
    };
    let items = scan.items.iter().map(|item| (item.name.clone(), read(item))).collect();
    WarcContents { items, skipped: scan.skipped, other_status: scan.other_status }
}
