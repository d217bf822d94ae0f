//! The files that hold archives: an archive itself, or a WACZ, which is a ZIP file with some.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use zip::ZipArchive;

use super::archive::{Archive, Window};
use crate::origin::{SkipReason, Skipped};

/// What a path is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    /// A WARC or ARC file, as it is or compressed.
    Archive,
    Wacz,
}

impl Container {
    pub(super) fn of(path: &Path) -> Option<Container> {
        let has = |path: &Path, extensions: &[&str]| {
            let found = path.extension().and_then(|found| found.to_str()).unwrap_or_default();
            extensions.iter().any(|extension| found.eq_ignore_ascii_case(extension))
        };
        if has(path, &["wacz"]) {
            return Some(Container::Wacz);
        }
        let name = if has(path, &["gz", "zst"]) { path.with_extension("") } else { path.into() };
        has(&name, &["warc", "arc"]).then_some(Container::Archive)
    }
}

/// An archive in a file.
#[derive(Debug)]
pub(super) struct Part {
    /// Path within the file, and `/`, or empty.
    pub(super) label: String,
    pub(super) archive: Arc<Archive>,
}

/// Returns the archives that a file holds, and those of them that cannot be read.
pub(super) fn open(container: Container, file: File) -> io::Result<(Vec<Part>, Skipped)> {
    let mut skipped = Skipped::default();
    if container == Container::Archive {
        let archive = Arc::new(Archive::new(Box::new(file)));
        return Ok((vec![Part { label: String::new(), archive }], skipped));
    }
    let file = Arc::new(file);
    let mut zip =
        ZipArchive::new(io::BufReader::new(file.try_clone()?)).map_err(io::Error::other)?;
    let mut parts = Vec::new();
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).map_err(io::Error::other)?;
        let Ok(name) = entry.name().map(std::borrow::Cow::into_owned) else { continue };
        if Container::of(Path::new(&name)).is_none() || !entry.is_file() {
            continue;
        }
        let stored = entry.compression() == zip::CompressionMethod::Stored && !entry.encrypted();
        match entry.data_start() {
            Some(start)
                if stored && Container::of(Path::new(&name)) == Some(Container::Archive) =>
            {
                let window =
                    Window { file: Arc::clone(&file), start, len: entry.compressed_size() };
                let archive = Arc::new(Archive::new(Box::new(window)));
                parts.push(Part { label: format!("{name}/"), archive });
            }
            // [WACZ 1.1.1 §5.2.1] wants archives stored, so that they can be read in place.
            _ => {
                let reason = "it is compressed within the WACZ, and has to be stored";
                skipped.add(name, SkipReason::Unreadable(reason.to_owned()));
            }
        }
    }
    Ok((parts, skipped))
}
