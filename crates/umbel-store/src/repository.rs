//! The repository that a server opens: a path, with its catalog and access to its bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use umbel_fec::Cut;
use umbel_wire::{Oti, Scheme, Toi};

use crate::catalog::{Catalog, Changes, Item};
use crate::device::source::{self, DeviceOrigin};
use crate::directory::Directory;
use crate::origin::Origin;
use crate::rules::Patterns;
use crate::several::Several;
use crate::warc::Crawl;
use crate::{OpenError, ReadError};

/// Parameters by which items are split into symbols, and limits of serving them.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    /// Erasure code. Default: Reed–Solomon.
    pub scheme: Scheme,
    /// Bytes of an encoding symbol; at least 1. Default: 1,364, which makes datagrams of 1,400
    /// bytes with the header of [RFC 5775] and an authentication tag.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a source block. Default: 128. An object that would
    /// exceed the scheme's block numbers gets larger blocks, if the scheme allows them.
    pub max_block_symbols: u16,
    /// Maximum number of descriptors kept open for items. Default: 256.
    pub open_files: usize,
    /// Whether the records of paths named `*.warc`, `*.arc` (also with `.gz` or `.zst`) or `*.wacz`
    /// are served, instead of the files themselves. Default: yes. Such files within a directory, or
    /// beside other paths, are served as files.
    pub warc: bool,
    /// Umbel's own files and directories, such as keys, which are never served under any name.
    /// Default: none.
    pub own: Vec<PathBuf>,
    /// Whether files and directories at the top level whose names begin with `.` are served.
    /// Receivers refuse them unless they ask for them. Default: no.
    pub hidden: bool,
    /// Whether symbolic links are served as what they lead to: those that are relative and lead to
    /// files in the directory. Default: no, they are items, and clients get links.
    pub follow_links: bool,
    /// Files of directories that are not served, beside those that `.umbelignore` says. Default:
    /// none.
    pub patterns: Patterns,
}

impl Default for RepositoryOptions {
    fn default() -> RepositoryOptions {
        RepositoryOptions {
            scheme: Scheme::ReedSolomon,
            symbol_len: 1_364,
            max_block_symbols: 128,
            open_files: 256,
            warc: true,
            own: Vec::new(),
            hidden: false,
            follow_links: false,
            patterns: Patterns::default(),
        }
    }
}

impl RepositoryOptions {
    fn check(&self) -> Result<(), OpenError> {
        self.cut().oti(0).map_err(|error| OpenError::Options(error.to_string()))?;
        Ok(())
    }

    /// Returns the object transmission information of an object of `object_len` bytes. Returns
    /// `None` if the object is too long for the scheme.
    pub fn oti(&self, object_len: u64) -> Option<Oti> {
        self.cut().oti(object_len).ok()
    }

    fn cut(&self) -> Cut {
        let (symbol_len, max_block_symbols) = (self.symbol_len, self.max_block_symbols);
        Cut { scheme: self.scheme, symbol_len, max_block_symbols }
    }
}

/// The items that a server offers.
#[derive(Clone, Debug)]
pub struct Repository {
    catalog: Arc<Catalog>,
}

impl Repository {
    /// Opens a directory, a WARC file, any other single file or a block device, and scans it.
    ///
    /// # Errors
    ///
    /// Returns an error if the path cannot be read or is none of these, or if the options
    /// contradict each other. Entries below the path that cannot be served are not errors; see
    /// [`Catalog::skipped`].
    pub fn open(
        path: impl AsRef<Path>,
        options: RepositoryOptions,
    ) -> Result<Repository, OpenError> {
        options.check()?;
        let origin = open_origin(path.as_ref(), &options)?;
        Ok(Repository { catalog: Arc::new(Catalog::new(origin, options)?) })
    }

    /// Opens several paths. Each file is an item with its own name, and the files of each directory
    /// are items below the directory's name. Files that are all archives of a crawl are one crawl. A
    /// single path is opened as by [`open`](Repository::open).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open`](Repository::open). Also returns an error if two of the paths
    /// have the same name, or if one is hidden without [`RepositoryOptions::hidden`].
    pub fn open_all(
        paths: &[PathBuf],
        options: RepositoryOptions,
    ) -> Result<Repository, OpenError> {
        if let [path] = paths {
            return Repository::open(path, options);
        }
        options.check()?;
        let crawl = if options.warc { Crawl::of(paths) } else { None };
        let origin: Box<dyn Origin> = match crawl {
            Some(crawl) => Box::new(crawl),
            None => Box::new(Several::new(paths, &options)?),
        };
        Ok(Repository { catalog: Arc::new(Catalog::new(origin, options)?) })
    }

    /// Returns the catalog of the items on offer.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns access to the bytes of the items on offer.
    pub fn content(&self) -> Content {
        Content { catalog: Arc::clone(&self.catalog) }
    }

    /// Scans again; see [`Catalog::refresh`].
    ///
    /// # Errors
    ///
    /// Returns an error if the path cannot be read any more or no object identifier is left. The
    /// catalog is then unchanged.
    pub fn refresh(&self) -> Result<Changes, OpenError> {
        self.catalog.refresh()
    }

    /// Starts a thread that computes the digests of all items, including those of later refreshes,
    /// until the catalog is dropped.
    pub fn start_hashing(&self) {
        Catalog::start_hashing(&self.catalog);
    }
}

fn open_origin(path: &Path, options: &RepositoryOptions) -> Result<Box<dyn Origin>, OpenError> {
    let metadata =
        fs::metadata(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
    if metadata.is_dir() {
        return Ok(Box::new(Directory::new(path, options)?));
    }
    if source::is_one(&metadata) {
        return Ok(Box::new(DeviceOrigin::new(path)?));
    }
    if !metadata.is_file() {
        return Err(OpenError::Kind(path.to_owned()));
    }
    if options.warc
        && let Some(crawl) = Crawl::of(&[path.to_owned()])
    {
        return Ok(Box::new(crawl));
    }
    Ok(Box::new(Directory::of_file(path, options)?))
}

/// Random access to the bytes of items; cheap to clone.
#[derive(Clone)]
pub struct Content {
    catalog: Arc<Catalog>,
}

impl Content {
    /// Returns the catalog of these items.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Fills `buf` with the item's bytes from `offset` on. Blocks until they are read.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is unknown, is shorter than `offset + buf.len()`, or can no
    /// longer be read.
    pub fn read_at(&self, toi: Toi, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        self.catalog.read_at(toi, offset, buf)
    }

    /// Reads an item as [`read_at`](Self::read_at) does, for a part that is known to exist.
    pub(crate) fn read_item(
        &self,
        item: &Item,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        self.catalog.read_item(item, offset, buf)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}
