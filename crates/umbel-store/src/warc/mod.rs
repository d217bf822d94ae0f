//! Crawls as a repository: WARC and ARC files, of which every response is an item named by its URL.
//!
//! `response` and `resource` records are items [WARC 1.1 §6.3, §6.4]. The content of an HTTP
//! response is its stored body without the header. Transfer codings are undone, and a content
//! encoding is kept. The status is not passed on. A page with the status `404 Not Found` is an item
//! like any other, but such items are counted. Of several records of one URL, the one with the latest
//! date is served. The older ones are skipped, counted and named. So are invalid records and records
//! whose bytes do not match their digest. A `revisit` stands for the record with the same payload
//! digest, in any of the archives. All other kinds of records are ignored.
//!
//! Records are taken in the forms that crawlers write, even where they break rules of the format:
//! one blank line or none after a block, other status lines, headers that end with the record. After
//! a damaged record the search goes on at the next one.
//!
//! Archives are plain, or compressed with `gzip` or `zstd`. Their first bytes distinguish them. In
//! the usual compressed form each record is its own member, and reading an item inflates only its
//! member; see [`Archive`]. A WACZ file holds several archives.
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

mod arc;
mod archive;
mod block;
mod chunked;
mod container;
mod content;
mod fields;
mod header;
mod http;
mod inflate;
mod merge;
mod record;
mod scan;
mod transfer;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::directory::open_named;
use crate::origin::{Body, Found, Origin, Place, Scan, Skipped};
use crate::version::FileVersion;
use crate::{Fault, OpenError};
pub(crate) use archive::Archive;
use container::{Container, Part};
use merge::Merge;
pub(crate) use record::Record;
use scan::Reading;

/// Files of a crawl.
#[derive(Debug)]
pub(crate) struct Crawl {
    files: Mutex<Vec<CrawlFile>>,
}

/// One of the files.
#[derive(Debug)]
struct CrawlFile {
    path: PathBuf,
    container: Container,
    /// Put before the names of what is left out: `NAME: ` if there are several files.
    label: String,
    last: Option<Last>,
}

/// What the last scan found in a file.
#[derive(Debug)]
struct Last {
    version: FileVersion,
    parts: Vec<(Part, Reading)>,
    /// Archives that cannot be read.
    skipped: Skipped,
}

impl Crawl {
    /// Returns the crawl, if all of the paths are named like files of one.
    pub(crate) fn of(paths: &[PathBuf]) -> Option<Crawl> {
        let file = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Some(CrawlFile {
                path: path.clone(),
                container: Container::of(path)?,
                label: if paths.len() > 1 { format!("{name}: ") } else { String::new() },
                last: None,
            })
        };
        let files: Vec<CrawlFile> = paths.iter().map(file).collect::<Option<_>>()?;
        Some(Crawl { files: Mutex::new(files) })
    }
}

impl CrawlFile {
    /// Reads the file if it changed. Returns whether it did.
    fn refresh(&mut self) -> Result<bool, OpenError> {
        let io = |error| OpenError::Io { path: self.path.clone(), error };
        let file = open_named(&self.path).map_err(io)?;
        let version = FileVersion::of(&file.metadata().map_err(io)?);
        let (parts, skipped) = match self.last.take() {
            Some(last) if last.version == version => {
                self.last = Some(last);
                return Ok(false);
            }
            // The file grew or was written to. Records that have not moved are still the same
            // version.
            Some(last)
                if last.version.is_same_file(&version) && self.container == Container::Archive =>
            {
                let parts = last.parts.into_iter().map(|(part, _)| part).collect();
                (parts, last.skipped)
            }
            _ => container::open(self.container, file).map_err(io)?,
        };
        let parts = parts.into_iter().map(|part| {
            let reading = scan::run(&part.archive)?;
            Ok((part, reading))
        });
        let parts = parts.collect::<std::io::Result<_>>().map_err(io)?;
        self.last = Some(Last { version, parts, skipped });
        Ok(true)
    }
}

impl Origin for Crawl {
    fn scan(&self) -> Result<Option<Scan>, OpenError> {
        let mut files = self.files.lock();
        let mut changed = false;
        for file in &mut *files {
            changed |= file.refresh()?;
        }
        if !changed {
            return Ok(None);
        }
        let mut labelled = Vec::new();
        let mut skipped = Skipped::default();
        for file in &*files {
            let Some(last) = &file.last else { continue };
            skipped.add_all(&file.label, &last.skipped);
            for (part, reading) in &last.parts {
                labelled.push((format!("{}{}", file.label, part.label), &part.archive, reading));
            }
        }
        let mut scan = Merge::run(
            labelled.iter().map(|(label, archive, reading)| (label.as_str(), *archive, *reading)),
        );
        scan.skipped.add_all("", &skipped);
        Ok(Some(scan))
    }

    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault> {
        match &item.place {
            Place::Record(archive, record) => Archive::open(archive, record),
            Place::File(_) | Place::Directory | Place::Link | Place::Device(_) => {
                Err(Fault::Vanished)
            }
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
    let Ok(reading) = scan::run(&archive) else { return WarcContents::default() };
    let mut scan = Merge::run(std::iter::once(("", &archive, &reading)));
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
