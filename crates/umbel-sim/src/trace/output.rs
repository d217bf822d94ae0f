//! File that is written until an error occurs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::TraceError;

/// Number of bytes that are gathered before they are written.
const BUFFER_LEN: usize = 1 << 20;

/// Buffered file. After the first error nothing more is written, and the error is returned at the
/// end.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    error: Option<io::Error>,
}

impl Output {
    /// Creates the file, or empties it.
    pub(super) fn create(path: &Path) -> Result<Output, TraceError> {
        let file = create(path)?;
        Ok(Output {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER_LEN, file),
            error: None,
        })
    }

    /// Calls `write` on the file, unless an earlier write failed.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.file).err();
        }
    }

    /// Returns whether a write failed.
    pub(super) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Writes the rest of the buffer.
    pub(super) fn finish(&mut self) -> Result<(), TraceError> {
        self.write(BufWriter::flush);
        match self.error.take() {
            None => Ok(()),
            Some(source) => Err(TraceError::Write { path: self.path.clone(), source }),
        }
    }
}

/// Creates a file, or empties it.
#[allow(clippy::disallowed_methods, reason = "a trace tells of a run, and changes nothing in it")]
pub(crate) fn create(path: &Path) -> Result<File, TraceError> {
    File::create(path).map_err(|source| TraceError::Create { path: path.to_owned(), source })
}
