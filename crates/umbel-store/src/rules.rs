//! Which files of a directory are left out, by patterns in the syntax of `.gitignore`.
//!
//! The user's own come first, then those of `.umbelignore` in the directory that holds the entry,
//! in that above it, and so on up to the root; the first that says anything decides. What is below
//! a directory that is left out is never looked at, so nothing in it can be brought back. A directory
//! whose patterns cannot be read is left out as a whole, and named.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Name of the files with patterns, which are never sent themselves.
pub(crate) const FILE: &str = ".umbelignore";
/// Maximum bytes that are read of one.
const MOST: u64 = 1 << 20;

/// Patterns that the user gives.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    /// What is left out.
    pub exclude: Vec<String>,
    /// What is not left out, whatever `exclude` and `.umbelignore` say.
    pub include: Vec<String>,
}

impl Patterns {
    /// Checks the patterns, which a walk would refuse later.
    ///
    /// # Errors
    ///
    /// Returns a line that says which one is none.
    pub fn check(&self) -> Result<(), String> {
        Rules::new(self).map(drop)
    }
}

/// The patterns that hold for a directory.
#[derive(Clone, Debug)]
pub(crate) struct Rules(Gitignore);

impl Rules {
    /// Compiles the user's patterns.
    ///
    /// # Errors
    ///
    /// Returns a line that says which one is none.
    pub(crate) fn new(patterns: &Patterns) -> Result<Rules, String> {
        let include = patterns.include.iter().map(|pattern| format!("!{pattern}"));
        let patterns = patterns.exclude.iter().cloned().chain(include);
        compile(Path::new(""), patterns).map(Rules).map_err(|bad| bad.why)
    }

    /// Begins a walk from the root.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { own: &self.0, files: Vec::new() }
    }
}

/// A pattern that is none.
struct BadPattern {
    /// Number of its line; the first is 1.
    line: usize,
    why: String,
}

fn compile(root: &Path, lines: impl Iterator<Item = String>) -> Result<Gitignore, BadPattern> {
    let mut builder = GitignoreBuilder::new(root);
    let mut last = 0;
    for (line, text) in (1..).zip(lines) {
        builder.add_line(None, &text).map_err(|error| BadPattern {
            line,
            why: format!("`{text}` is no pattern: {error}"),
        })?;
        last = line;
    }
    builder.build().map_err(|error| BadPattern { line: last, why: error.to_string() })
}

/// The patterns at a place of a walk, which visits a directory before what is in it.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    own: &'a Gitignore,
    /// Those of the directories that hold the place, by their depth below the root, outermost
    /// first.
    files: Vec<(usize, Gitignore)>,
}

impl Walk<'_> {
    /// Reads the patterns of a directory that is entered: the root, at depth 0, or one that holds
    /// the next entries. `open` opens a file below the root.
    ///
    /// # Errors
    ///
    /// Returns a line that says why there are none, though there is a file of them. Nothing of the
    /// directory may be served then, since nobody knows what is to be left out.
    pub(crate) fn enter(
        &mut self,
        directory: &Path,
        depth: usize,
        open: impl FnOnce(&Path) -> io::Result<File>,
    ) -> Result<(), String> {
        self.leave(depth);
        let path: PathBuf = directory.join(FILE);
        let text = match open(&path).and_then(read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| format!("its {FILE} cannot be read: {error}"))?,
        };
        let patterns = compile(directory, text.lines().map(str::to_owned));
        let patterns =
            patterns.map_err(|bad| format!("line {} of its {FILE}: {}", bad.line, bad.why))?;
        self.files.push((depth, patterns));
        Ok(())
    }

    /// Forgets the patterns of directories that do not hold an entry at this depth.
    fn leave(&mut self, depth: usize) {
        self.files.retain(|(of, _)| *of < depth);
    }

    /// Returns whether an entry is left out, or is a file with patterns itself.
    pub(crate) fn leaves_out(&mut self, path: &Path, depth: usize, is_directory: bool) -> bool {
        self.leave(depth);
        let is_rules = !is_directory && path.file_name().is_some_and(|name| name == FILE);
        let inner_first = self.files.iter().rev().map(|(_, patterns)| patterns);
        let mut said = std::iter::once(self.own)
            .chain(inner_first)
            .map(|patterns| patterns.matched(path, is_directory))
            .filter(|said| !said.is_none());
        is_rules || matches!(said.next(), Some(Match::Ignore(_)))
    }
}

fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other(format!("it is longer than {MOST} bytes")));
    }
    Ok(text)
}
