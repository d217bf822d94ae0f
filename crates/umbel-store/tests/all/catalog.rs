//! Patterns and pages.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::support::{open, select, select_all, write};
use tempfile::TempDir;
use umbel_store::{PatternError, Repository};

const NAMES: [&str; 12] = [
    "a1.txt",
    "a[1].txt",
    "images.txt",
    "images/2024/may/cat.jpg",
    "images/2024/may/dog.png",
    "images/2025/cat.jpg",
    "images/cat.jpg",
    "images/logo.svg",
    "images2/cat.jpg",
    "notes.txt",
    "notes/notes.txt",
    "ä/ö.txt",
];

fn repository(dir: &Path) -> Repository {
    for name in NAMES {
        write(dir, name, b"x");
    }
    open(dir)
}

#[test]
fn patterns_mean_what_users_expect() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let below_images = &NAMES[3..8];
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &NAMES),
        (&["."], &NAMES),
        (&["**"], &NAMES),
        (&["notes.txt"], &["notes.txt"]),
        (&["./notes.txt"], &["notes.txt"]),
        (&["/notes.txt"], &["notes.txt"]),
        (&["images"], below_images),
        (&["images/"], below_images),
        (&["images/**"], below_images),
        (&["images/202**"], &[]),
        (&["images/*"], &["images/cat.jpg", "images/logo.svg"]),
        (&["images/2024"], &NAMES[3..5]),
        (&["*.txt"], &["a1.txt", "a[1].txt", "images.txt", "notes.txt"]),
        (
            &["**/*.txt"],
            &["a1.txt", "a[1].txt", "images.txt", "notes.txt", "notes/notes.txt", "ä/ö.txt"],
        ),
        (
            &["images/**/cat.jpg"],
            &["images/2024/may/cat.jpg", "images/2025/cat.jpg", "images/cat.jpg"],
        ),
        (&["images/202?/*.jpg"], &["images/2025/cat.jpg"]),
        (&["images/202[0-4]/**"], &NAMES[3..5]),
        (&["{notes,images}.txt"], &["images.txt", "notes.txt"]),
        (&["**/*.{png,svg}"], &["images/2024/may/dog.png", "images/logo.svg"]),
        (&["a[1].txt"], &["a[1].txt"]),
        (&["a\\[1\\].txt"], &["a[1].txt"]),
        (&["a[12].txt"], &["a1.txt"]),
        (&["ä/*.txt"], &["ä/ö.txt"]),
        (&["IMAGES/**"], &[]),
        (&["images*/**/../*"], &[]),
        (&["notes.txt", "images/*.svg", "notes.*"], &["images/logo.svg", "notes.txt"]),
    ];
    for (patterns, expected) in cases {
        assert_eq!(select(&repository, patterns), *expected, "{patterns:?}");
    }
}

#[test]
fn patterns_without_a_match_are_named() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let patterns = ["a1.txt", "notse.txt", "a?.txt", "*.iso"].map(str::to_owned);
    let selection = repository.catalog().select(&patterns, 0, 10).unwrap();
    assert_eq!(selection.unmatched, ["notse.txt", "*.iso"]);
    assert_eq!(selection.total, 1);
}

#[test]
fn a_bad_pattern_is_one_line_that_says_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let error = |pattern: &str| {
        repository.catalog().select(&[pattern.to_owned()], 0, 10).unwrap_err().to_string()
    };
    assert!(error("images/[a-").starts_with("`images/[a-` is not a pattern: "));
    assert!(error("{a,b").starts_with("`{a,b` is not a pattern: "));
    for pattern in ["[", "{", "[z-a]", "a**[", "{{{", "\\"] {
        assert_eq!(error(pattern).lines().count(), 1);
    }
    assert_eq!(error(&"x".repeat(5_000)), "a pattern of 5000 bytes: at most 4096 are allowed");
    let many: Vec<String> = (0..257).map(|i| format!("*{i}")).collect();
    let error = repository.catalog().select(&many, 0, 10).unwrap_err();
    assert_eq!(error, PatternError::Count { count: 257, max: 256 });
}

#[test]
fn pages_give_every_match_once_and_in_order() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    for patterns in [vec![], vec!["**/cat.jpg", "notes.txt", "images", "a1.txt"]] {
        let expected = select_all(&repository, &patterns).into_iter();
        let expected: Vec<String> = expected.map(|(name, _)| name).collect();
        let patterns: Vec<String> = patterns.iter().map(|&p| p.to_owned()).collect();
        for limit in 0..6 {
            let (mut cursor, mut listed) = (Some(0), Vec::new());
            while let Some(at) = cursor {
                let page = repository.catalog().select(&patterns, at, limit).unwrap();
                assert_eq!(page.total, expected.len() as u64);
                assert!((1..=limit.max(1)).contains(&page.items.len()));
                listed.extend(page.items.iter().map(|item| item.name().to_owned()));
                cursor = page.next;
            }
            assert_eq!(listed, expected);
        }
    }
}

#[test]
fn pages_stay_of_one_state_when_the_catalog_changes_between_them() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let first = repository.catalog().select(&[], 0, 6).unwrap();
    write(dir.path(), "a new first", b"x");
    std::fs::remove_file(dir.path().join("notes.txt")).unwrap();
    repository.refresh().unwrap();
    let second = repository.catalog().select(&[], first.next.unwrap(), 100).unwrap();
    let listed = first.items.iter().chain(&second.items);
    let files = listed.filter(|item| item.kind().is_file());
    let listed: Vec<_> = files.map(|item| item.name()).collect();
    assert_eq!(listed, NAMES);
    assert_eq!(second.next, None);
}

#[test]
fn any_cursor_is_answered() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    for cursor in [1, 12, 13, 1 << 40, u64::MAX, u64::MAX - 5] {
        match repository.catalog().select(&[], cursor, 5) {
            Ok(page) => {
                assert_eq!(page.total, 12 + 7, "files and directories");
                assert!(page.items.len() <= 5);
            }
            Err(error) => assert_eq!(error, PatternError::Changed),
        }
    }
}

#[test]
fn an_empty_repository_has_one_empty_page() {
    let dir = TempDir::new().unwrap();
    let repository = open(dir.path());
    let page = repository.catalog().select(&[], 0, 5).unwrap();
    assert_eq!((page.items.len(), page.total, page.next), (0, 0, None));
    File::create(dir.path().join("now")).unwrap();
    assert_eq!(repository.refresh().unwrap().added.len(), 1);
    assert_eq!(repository.catalog().select(&[], 0, 5).unwrap().total, 1);
}

#[test]
fn a_forgotten_list_does_not_go_on_in_another_state() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let catalog = repository.catalog();
    let forget = || {
        for i in 0..20 {
            catalog.select(&[format!("none-{i}")], 0, 1).unwrap();
        }
    };
    let first = catalog.select(&[], 0, 6).unwrap();
    // A scan that finds no change leaves the list as it is, even if it is forgotten.
    repository.refresh().unwrap();
    forget();
    let second = catalog.select(&[], first.next.unwrap(), 3).unwrap();
    assert_eq!(second.items.len(), 3);
    write(dir.path(), "a new first", b"x");
    repository.refresh().unwrap();
    // Nor do the lists of others end one, though they are of another state.
    forget();
    assert_eq!(catalog.select(&[], second.next.unwrap(), 3).unwrap().items.len(), 3);
    for i in 0..20 {
        write(dir.path(), &format!("new {i}"), b"x");
        repository.refresh().unwrap();
        forget();
    }
    let error = catalog.select(&[], second.next.unwrap(), 3).unwrap_err();
    assert_eq!(error, PatternError::Changed);
}

#[test]
fn pages_of_one_list_agree_on_what_could_not_be_read() {
    let dir = TempDir::new().unwrap();
    let repository = repository(dir.path());
    let bad = dir.path().join(std::ffi::OsStr::from_bytes(b"bad-\xff"));
    std::fs::write(&bad, b"x").unwrap();
    repository.refresh().unwrap();
    let first = repository.catalog().select(&[], 0, 6).unwrap();
    std::fs::remove_file(&bad).unwrap();
    repository.refresh().unwrap();
    let second = repository.catalog().select(&[], first.next.unwrap(), 100).unwrap();
    assert_eq!((first.failures, second.failures), (1, 1));
    assert_eq!(repository.catalog().select(&[], 0, 6).unwrap().failures, 0);
}
