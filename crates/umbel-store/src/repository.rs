//! What a server opens: a path, with the catalog of what is there and the way to its bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use umbel_fec::Cut;
use umbel_wire::{Oti, Scheme, Toi};

use crate::catalog::{Catalog, Changes, Item};
use crate::directory::Directory;
use crate::origin::Origin;
use crate::several::Several;
use crate::warc::WarcFile;
use crate::{OpenError, ReadError};

/// How items are cut into symbols, and what serving them may use.
#[derive(Clone, Debug)]
pub struct RepositoryOptions {
    /// The erasure code. Default: Reed–Solomon.
    pub scheme: Scheme,
    /// Bytes of an encoding symbol; at least 1. Default: 1,364, which makes datagrams of 1,400
    /// bytes with the header of [RFC 5775] and an authentication tag.
    pub symbol_len: u16,
    /// Most source symbols of a source block. Default: 128. An object for which the scheme's
    /// block numbers would not suffice gets larger blocks, where the scheme allows them.
    pub max_block_symbols: u16,
    /// Most descriptors kept open for items. Default: 256.
    pub open_files: usize,
    /// Whether a path named `*.warc` or `*.warc.gz` is served by what is in it, instead of as a
    /// file. Default: yes. WARC files within a directory are files.
    pub warc: bool,
    /// Files and directories of umbel's own, such as keys, which are never served, by whatever name.
    /// Default: none.
    pub own: Vec<PathBuf>,
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
        }
    }
}

impl RepositoryOptions {
    fn check(&self) -> Result<(), OpenError> {
        self.cut().oti(0).map_err(|error| OpenError::Options(error.to_string()))?;
        Ok(())
    }

    /// How an object of `object_len` bytes is cut, or `None` if the scheme cannot carry it.
    pub fn oti(&self, object_len: u64) -> Option<Oti> {
        self.cut().oti(object_len).ok()
    }

    fn cut(&self) -> Cut {
        let (symbol_len, max_block_symbols) = (self.symbol_len, self.max_block_symbols);
        Cut { scheme: self.scheme, symbol_len, max_block_symbols }
    }
}

/// What a server offers.
#[derive(Clone, Debug)]
pub struct Repository {
    catalog: Arc<Catalog>,
}

impl Repository {
    /// Opens a directory, a WARC file or any other single file, and scans it.
    ///
    /// # Errors
    ///
    /// If the path cannot be read, or the options do not go together. What cannot be served
    /// below the path is no error: see [`Catalog::skipped`].
    pub fn open(
        path: impl AsRef<Path>,
        options: RepositoryOptions,
    ) -> Result<Repository, OpenError> {
        options.check()?;
        let origin = open_origin(path.as_ref(), &options)?;
        Ok(Repository { catalog: Arc::new(Catalog::new(origin, options)?) })
    }

    /// Opens several paths, of which each file is an item of its own name, and the files of each
    /// directory are items below the directory's name. A single path is opened as
    /// [`open`](Repository::open) does.
    ///
    /// # Errors
    ///
    /// As [`open`](Repository::open); or two of the paths have the same name.
    pub fn open_all(
        paths: &[PathBuf],
        options: RepositoryOptions,
    ) -> Result<Repository, OpenError> {
        if let [path] = paths {
            return Repository::open(path, options);
        }
        options.check()?;
        let origin = Box::new(Several::new(paths, &options.own)?);
        Ok(Repository { catalog: Arc::new(Catalog::new(origin, options)?) })
    }

    /// What is on offer.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The bytes of what is on offer.
    pub fn content(&self) -> Content {
        Content { catalog: Arc::clone(&self.catalog) }
    }

    /// Scans again: see [`Catalog::refresh`].
    ///
    /// # Errors
    ///
    /// If the path cannot be read any more. The catalog stays as it was.
    pub fn refresh(&self) -> Result<Changes, OpenError> {
        self.catalog.refresh()
    }

    /// Starts a thread that computes the digests of all items, and of those that later
    /// refreshes bring, until the repository is dropped.
    pub fn start_hashing(&self) {
        Catalog::start_hashing(&self.catalog);
    }
}

fn open_origin(path: &Path, options: &RepositoryOptions) -> Result<Box<dyn Origin>, OpenError> {
    let metadata =
        fs::metadata(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
    if metadata.is_dir() {
        return Ok(Box::new(Directory::new(path, &options.own)?));
    }
    if !metadata.is_file() {
        return Err(OpenError::Kind(path.to_owned()));
    }
    if options.warc && WarcFile::is_named(path) {
        return Ok(Box::new(WarcFile::new(path)));
    }
    Ok(Box::new(Directory::of_file(path, &options.own)?))
}

/// Random access to the bytes of items; cheap to clone.
#[derive(Clone)]
pub struct Content {
    catalog: Arc<Catalog>,
}

impl Content {
    /// The catalog whose items these are.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Fills `buf` with the item's bytes from `offset` on. Blocks while they are read.
    ///
    /// # Errors
    ///
    /// If the item is unknown, is shorter than `offset + buf.len()`, or is gone.
    pub fn read_at(&self, toi: Toi, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        self.catalog.read_at(toi, offset, buf)
    }

    /// Like [`read_at`](Self::read_at), of a part that is known to exist.
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
