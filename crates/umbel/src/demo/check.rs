//! Checks that a client has exactly the items that were served.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::plan::Wanted;

/// Compares the received items with the served ones, byte by byte.
///
/// # Errors
///
/// The first difference: an item that is missing or not the same, or a file that was not wanted.
pub(super) fn same(served: &Path, received: &Path, wanted: &[Wanted]) -> Result<(), String> {
    let mut there = BTreeSet::new();
    files_below(received, "", &mut there)
        .map_err(|error| format!("cannot look through {}: {error}", received.display()))?;
    for Wanted { name, .. } in wanted {
        if !there.remove(name) {
            return Err(format!("{name} is missing"));
        }
        match same_bytes(&served.join(name), &received.join(name)) {
            Ok(true) => {}
            Ok(false) => return Err(format!("{name} is not what was served")),
            Err(error) => return Err(format!("cannot compare {name}: {error}")),
        }
    }
    match there.first() {
        Some(name) => Err(format!("{name} was not asked for")),
        None => Ok(()),
    }
}

/// Collects the names of everything below a directory that is not a directory itself.
fn files_below(dir: &Path, prefix: &str, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.insert(name);
        }
    }
    Ok(())
}

fn same_bytes(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut of_a, mut of_b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = a.read(&mut of_a)?;
        if read == 0 {
            return Ok(true);
        }
        b.read_exact(&mut of_b[..read])?;
        if of_a[..read] != of_b[..read] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn two_directories() -> (tempfile::TempDir, tempfile::TempDir, Vec<Wanted>) {
        let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&dirs.0, &dirs.1] {
            fs::create_dir(dir.path().join("a")).unwrap();
            fs::write(dir.path().join("a/x"), vec![7; 100_000]).unwrap();
            fs::write(dir.path().join("y"), "").unwrap();
        }
        let wanted = |name: &str, bytes| Wanted { name: name.to_owned(), bytes };
        (dirs.0, dirs.1, vec![wanted("a/x", 100_000), wanted("y", 0)])
    }

    #[test]
    fn the_same_files_are_the_same() {
        let (served, received, wanted) = two_directories();
        assert_eq!(same(served.path(), received.path(), &wanted), Ok(()));
    }

    #[test]
    fn one_byte_makes_a_difference() {
        let (served, received, wanted) = two_directories();
        let mut bytes = vec![7; 100_000];
        bytes[99_999] = 8;
        fs::write(received.path().join("a/x"), bytes).unwrap();
        let problem = same(served.path(), received.path(), &wanted).unwrap_err();
        assert_eq!(problem, "a/x is not what was served");
    }

    #[test]
    fn a_shorter_file_makes_a_difference() {
        let (served, received, wanted) = two_directories();
        fs::write(received.path().join("a/x"), vec![7; 99_999]).unwrap();
        same(served.path(), received.path(), &wanted).unwrap_err();
    }

    #[test]
    fn a_file_too_few_or_too_many_is_noticed() {
        let (served, received, wanted) = two_directories();
        fs::write(received.path().join("a/z"), "z").unwrap();
        let problem = same(served.path(), received.path(), &wanted).unwrap_err();
        assert_eq!(problem, "a/z was not asked for");
        fs::remove_file(received.path().join("a/z")).unwrap();
        fs::remove_file(received.path().join("y")).unwrap();
        let problem = same(served.path(), received.path(), &wanted).unwrap_err();
        assert_eq!(problem, "y is missing");
    }
}
