//! What a run changes, and what it would change.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use umbel_store::sink::{Change, Hidden, Purpose, SinkError, SinkOptions};
use umbel_wire::Scheme;
use umbel_wire::repository::{ItemInfo, ItemKind, LinkText};

use crate::sink_support::{Client, Served, StoreBlock};

fn options(purpose: Purpose) -> SinkOptions {
    SinkOptions { purpose, overwrite: true, folds_case: Some(false), ..SinkOptions::default() }
}

fn empty(toi: u32, name: &str, kind: ItemKind) -> ItemInfo {
    let mode = kind.is_directory().then_some(0o755);
    ItemInfo { kind, mode, ..Served::new(toi, name, 0, Scheme::ReedSolomon).info }
}

fn file(toi: u32, name: &str) -> Served {
    let mut served = Served::new(toi, name, 3_000, Scheme::ReedSolomon);
    served.info.mode = Some(0o644);
    served
}

/// The items of a tree: files, and what has no content of its own.
fn tree() -> (Vec<Served>, Vec<ItemInfo>) {
    let files = vec![file(1, "a"), file(2, "d/b")];
    let link = ItemKind::Link(LinkText::new("../a").unwrap());
    let other = ItemKind::HardLink("a".to_owned());
    let others = vec![
        empty(3, "d", ItemKind::Directory),
        empty(4, "d/link", link),
        ItemInfo { kind: other, ..files[0].renamed(5, "z").info },
    ];
    (files, others)
}

/// Brings the tree to a directory. Returns what changed.
fn bring(path: &Path) -> Vec<(String, Change)> {
    let mut client = Client::at_path(path, options(Purpose::BringAndTell));
    let (files, others) = tree();
    for info in &others {
        client.sink.add(info).unwrap();
    }
    for served in &files {
        if let umbel_store::sink::Held::Parts(_) = client.sink.add(&served.info).unwrap() {
            for sbn in 0..served.partition.blocks() {
                assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
            }
            client.wait_done(served);
        }
    }
    for named in client.sink.name_files() {
        named.result.unwrap();
    }
    client.sink.set_directories();
    client.sink.changes()
}

/// Looks at a directory. Returns what would change.
fn look(path: &Path) -> Vec<(String, Change)> {
    let client = Client::at_path(path, options(Purpose::Look));
    let (files, others) = tree();
    let files = files.iter().map(|served| &served.info);
    for info in files.chain(&others) {
        match client.sink.add(info) {
            Ok(held) => assert!(!matches!(held, umbel_store::sink::Held::Parts(_))),
            Err(SinkError::Differs { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(client.sink.name_files().is_empty());
    client.sink.changes()
}

/// Describes everything below a directory, with times of changes.
fn state(path: &Path) -> Vec<String> {
    let walk = walkdir::WalkDir::new(path).sort_by_file_name().into_iter();
    let entries = walk.map(|entry| {
        let entry = entry.unwrap();
        let of = entry.path().symlink_metadata().unwrap();
        format!("{} {} {:o} {}", entry.path().display(), of.ino(), of.mode(), of.ctime_nsec())
    });
    entries.collect()
}

fn named(changes: &[(&str, Change)]) -> Vec<(String, Change)> {
    changes.iter().map(|(path, change)| ((*path).to_owned(), *change)).collect()
}

/// What spoils the copy: name, deed, and the change that mends it.
type Case<'a> = (&'a str, &'a dyn Fn(), Change);

#[test]
fn what_would_change_is_what_changes_and_looking_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    let all = ["a", "d", "d/b", "d/link", "z"].map(|name| (name, Change::New));
    assert_eq!(look(&path), named(&all));
    assert!(!path.exists());
    assert_eq!(bring(&path), named(&all));
    assert_eq!((look(&path), bring(&path)), (vec![], vec![]));

    // Another content, permissions, text, time; a copy; what is gone.
    let new = |name: &str| (name.to_owned(), Change::New);
    let at = |name: &str| path.join(name);
    let cases: [Case<'_>; 8] = [
        ("a", &|| fs::write(at("a"), "mine").unwrap(), Change::Replaced),
        ("d/b", &|| fs::remove_file(at("d/b")).unwrap(), Change::New),
        ("d/b", &|| set_mode(&at("d/b"), 0o600), Change::Attributes),
        ("d", &|| set_mode(&at("d"), 0o700), Change::Attributes),
        ("d/link", &|| relink(&at("d/link"), "elsewhere"), Change::Replaced),
        ("d/link", &|| relink(&at("d/link"), "../a"), Change::Attributes),
        ("z", &|| fs::remove_file(at("z")).unwrap(), Change::New),
        ("z", &|| copy(&at("a"), &at("z")), Change::Attributes),
    ];
    for (name, spoil, change) in cases {
        spoil();
        let before = state(&path);
        let found = look(&path);
        assert!(found.contains(&(name.to_owned(), change)), "{name}: {found:?}");
        assert_eq!(state(&path), before, "{name}");
        let brought = bring(&path);
        assert!(brought.iter().any(|(path, _)| path == name), "{name}: {brought:?}");
        assert_eq!(look(&path), vec![], "{name}");
    }
    fs::remove_dir_all(at("d")).unwrap();
    assert_eq!(look(&path), ["d", "d/b", "d/link"].map(new));
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn relink(path: &Path, text: &str) {
    fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink(text, path).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::remove_file(to).unwrap();
    fs::copy(from, to).unwrap();
    let modified = from.metadata().unwrap().modified().unwrap();
    fs::File::open(to).unwrap().set_modified(modified).unwrap();
}

#[test]
fn what_may_not_be_there_is_refused_when_looking_too() {
    let place = tempfile::tempdir().unwrap();
    let client = Client::at_path(place.path(), options(Purpose::Look));
    for name in ["../a", "/a", ".x.umbel-part"] {
        let error = client.sink.add(&file(1, name).info).unwrap_err();
        assert!(matches!(error, SinkError::Name(_)), "{error}");
    }
    let error = client.sink.add(&file(1, ".hidden").info).unwrap_err();
    assert!(matches!(error, SinkError::Hidden { .. }), "{error}");
    let out = ItemKind::Link(LinkText::new("/etc").unwrap());
    let held = client.sink.add(&empty(2, "out", out)).unwrap();
    assert!(matches!(held, umbel_store::sink::Held::LeftOut), "{held:?}");
    assert!(client.sink.changes().is_empty());
    // Nothing is followed, either.
    std::os::unix::fs::symlink("/etc", place.path().join("etc")).unwrap();
    let error = client.sink.add(&file(3, "etc/passwd").info).unwrap_err();
    assert!(matches!(error, SinkError::NotDirectory { .. }), "{error}");
    let others = client.sink.others(&std::collections::HashSet::new(), Hidden::Stay);
    assert_eq!(others.len(), 1);
}

#[test]
fn what_is_in_the_place_of_a_link_that_is_not_made_differs() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let client = Client::at_path(path, options(Purpose::Look));
    let out = empty(1, "out", ItemKind::Link(LinkText::new("/etc").unwrap()));
    let is_left_out = || matches!(client.sink.add(&out), Ok(umbel_store::sink::Held::LeftOut));
    assert!(is_left_out());
    std::os::unix::fs::symlink("/etc", path.join("out")).unwrap();
    assert!(is_left_out());
    fs::remove_file(path.join("out")).unwrap();
    fs::write(path.join("out"), "mine").unwrap();
    assert!(matches!(client.sink.add(&out), Err(SinkError::Differs { .. })));
    assert_eq!(client.sink.changes(), named(&[("out", Change::Replaced)]));
    assert_eq!(client.sink.unkept().links_out, 3);
}
