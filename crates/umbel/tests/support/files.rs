//! Directories to serve and to compare.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Names and sizes in bytes.
pub(crate) type Plan<'a> = [(&'a str, u64)];

/// Creates the files of a plan below `root`, each with different bytes that do not compress.
pub(crate) fn make(root: &Path, plan: &Plan<'_>) {
    for (name, size) in plan {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut left = *size;
        let mut bytes = blake3::Hasher::new().update(name.as_bytes()).finalize_xof();
        let mut file = File::create(path).unwrap();
        let mut piece = vec![0; 1 << 20];
        while left > 0 {
            let length = left.min(piece.len() as u64);
            let piece = &mut piece[..length as usize];
            bytes.fill(piece);
            file.write_all(piece).unwrap();
            left -= length;
        }
    }
}

/// Returns the size and digest of each file below `root`, hidden ones included, by name.
pub(crate) fn digests(root: &Path) -> BTreeMap<String, (u64, blake3::Hash)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, digest(&path));
        }
    }
    found
}

fn digest(path: &Path) -> (u64, blake3::Hash) {
    let mut file = File::open(path).unwrap();
    let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut piece).unwrap();
        if length == 0 {
            return (size, hasher.finalize());
        }
        hasher.update(&piece[..length]);
        size += length as u64;
    }
}

/// Checks that `out` has exactly those files of `repo` that `wanted` names, with the same bytes,
/// and nothing else: no partial files, no journals.
#[track_caller]
pub(crate) fn assert_same(repo: &Path, out: &Path, wanted: impl Fn(&str) -> bool) {
    let mut expected = digests(repo);
    expected.retain(|name, _| wanted(name));
    assert!(!expected.is_empty(), "the test wants nothing");
    let got = digests(out);
    for (name, content) in &expected {
        assert_eq!(got.get(name), Some(content), "{name} in {}", out.display());
    }
    let more: Vec<_> = got.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(more.is_empty(), "beside what was wanted, {} has {more:?}", out.display());
}

/// Returns the bytes on the disk below a directory, partial files included. Holes do not count.
pub(crate) fn stored(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .map(|entry| match entry.unwrap().path() {
            path if path.is_dir() => stored(&path),
            path => fs::symlink_metadata(path).map_or(0, |data| data.blocks() * 512),
        })
        .sum()
}
