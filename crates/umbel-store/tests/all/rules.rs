//! Files that patterns leave out.

use std::fs;

use tempfile::TempDir;
use umbel_store::{OpenError, Patterns, Repository, RepositoryOptions, SkipReason};

use crate::support::{select_all, small_options, write};

/// Returns options with patterns to leave out, and to take in again.
fn options(exclude: &[&str], include: &[&str]) -> RepositoryOptions {
    let owned = |patterns: &[&str]| patterns.iter().map(|&it| it.to_owned()).collect();
    let patterns = Patterns { exclude: owned(exclude), include: owned(include) };
    RepositoryOptions { patterns, ..small_options() }
}

fn names(repository: &Repository) -> Vec<String> {
    select_all(repository, &[]).into_iter().map(|(name, _)| name).collect()
}

fn tree() -> TempDir {
    let dir = TempDir::new().unwrap();
    for name in
        ["a.o", "a.c", "build/x", "src/build/y", "src/b.o", "src/keep.o", "src/c.c", "docs/d.pdf"]
    {
        write(dir.path(), name, b"x");
    }
    dir
}

#[test]
fn patterns_are_those_of_gitignore() {
    let dir = tree();
    let taken = |exclude: &[&str], include: &[&str]| {
        names(&Repository::open(dir.path(), options(exclude, include)).unwrap())
    };
    let without_objects =
        ["a.c", "build", "build/x", "docs", "docs/d.pdf", "src", "src/build", "src/build/y"];
    assert_eq!(taken(&["*.o"], &[]), [&without_objects[..], &["src/c.c"]].concat());
    assert_eq!(
        taken(&["*.o"], &["keep.o"]),
        [&without_objects[..], &["src/c.c", "src/keep.o"]].concat()
    );
    let no_build = taken(&["/build/", "*.o", "docs/**"], &[]);
    assert_eq!(no_build, ["a.c", "docs", "src", "src/build", "src/build/y", "src/c.c"]);
    // Nothing is looked for below a directory that is left out.
    assert_eq!(taken(&["src", "docs", "build"], &["src/c.c"]), ["a.c", "a.o"]);
    assert_eq!(taken(&["*"], &["*.c"]), ["a.c"]);
    let error = Repository::open(dir.path(), options(&["[z-a]"], &[])).unwrap_err();
    assert!(matches!(error, OpenError::Options(ref why) if why.contains("[z-a]")), "{error}");
}

#[test]
fn files_with_patterns_hold_for_their_directories_the_innermost_first() {
    let dir = tree();
    write(dir.path(), ".umbelignore", b"# objects\n*.o\n\n/docs/\n");
    write(dir.path(), "src/.umbelignore", b"!keep.o\n/build/\n");
    let repository = Repository::open(dir.path(), small_options()).unwrap();
    assert_eq!(names(&repository), ["a.c", "build", "build/x", "src", "src/c.c", "src/keep.o"]);
    assert_eq!(repository.catalog().skipped().total(), 0);
    // The user's own say more.
    let options = options(&["keep.o"], &["a.o"]);
    let own = Repository::open(dir.path(), options).unwrap();
    assert_eq!(names(&own), ["a.c", "a.o", "build", "build/x", "src", "src/c.c"]);
    // They are read again with each scan.
    fs::remove_file(dir.path().join("src/.umbelignore")).unwrap();
    repository.refresh().unwrap();
    let now = names(&repository);
    assert!(!now.contains(&"src/keep.o".to_owned()) && now.contains(&"src/build/y".to_owned()));
}

#[test]
fn a_directory_whose_patterns_cannot_be_read_is_left_out_and_named() {
    let dir = tree();
    write(dir.path(), "src/.umbelignore", b"*.o\n[z-a]\n");
    write(dir.path(), "docs/.umbelignore", b"\xff\n");
    write(dir.path(), "build/.umbelignore", "x\n".repeat(1 << 20));
    let repository = Repository::open(dir.path(), small_options()).unwrap();
    let skipped = repository.catalog().skipped();
    assert_eq!((skipped.total(), skipped.failures()), (3, 3));
    for item in skipped.named() {
        assert!(["src", "docs", "build"].contains(&&*item.name), "{item:?}");
        let SkipReason::Unreadable(why) = &item.reason else { panic!("{item:?}") };
        assert!(why.contains("its .umbelignore"), "{why}");
        assert!(item.name != "src" || why.starts_with("line 2 of its"), "{why}");
    }
    assert_eq!(names(&repository), ["a.c", "a.o"]);
    // Those of the root hold for everything.
    write(dir.path(), ".umbelignore", b"[z-a]\n");
    assert!(repository.refresh().is_err());
    assert_eq!(names(&repository), ["a.c", "a.o"]);
    assert!(Repository::open(dir.path(), small_options()).is_err());
}

#[test]
fn patterns_are_relative_to_each_directory_that_is_named() {
    let dir = TempDir::new().unwrap();
    for name in ["one/build/x", "two/build/x", "two/a/build/x"] {
        write(dir.path(), name, b"x");
    }
    let paths = ["one", "two"].map(|name| dir.path().join(name));
    let repository = Repository::open_all(&paths, options(&["/build"], &[])).unwrap();
    assert_eq!(names(&repository), ["one", "two", "two/a", "two/a/build", "two/a/build/x"]);
}
