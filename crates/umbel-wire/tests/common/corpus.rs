//! The corpora of the fuzz targets, which the tests of all crates replay. Every input that once
//! broke something is kept in them.
#![allow(dead_code, reason = "not every test has seeds")]

use std::fs;
use std::path::{Path, PathBuf};

/// A seed's name, and what it holds.
pub(crate) type Seed = (&'static str, Vec<u8>);

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target].iter().collect()
}

/// Returns the files of a target's corpus with their paths, in the order of their names.
pub(crate) fn files(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<_> =
        fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs the check on each file of a target's corpus. There must be at least `at_least` of them.
#[track_caller]
pub(crate) fn replay(target: &str, at_least: usize, mut check: impl FnMut(&[u8])) {
    let files = files(target);
    assert!(files.len() >= at_least, "{target}: {} files", files.len());
    for (path, bytes) in files {
        println!("{}", path.display());
        check(&bytes);
    }
}

/// Checks that the seeds lie in the corpus as they are made today.
#[track_caller]
pub(crate) fn assert_holds(
    target: &str,
    seeds: impl IntoIterator<Item = (impl AsRef<Path>, Vec<u8>)>,
) {
    for (name, bytes) in seeds {
        let path = folder(target).join(name);
        assert_eq!(fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

/// Writes the seeds into the corpus.
pub(crate) fn write(target: &str, seeds: impl IntoIterator<Item = (impl AsRef<Path>, Vec<u8>)>) {
    fs::create_dir_all(folder(target)).unwrap();
    for (name, bytes) in seeds {
        fs::write(folder(target).join(name), bytes).unwrap();
    }
}
