//! Directories that are items.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use umbel_store::sink::{Held, NameError, SinkError, SinkOptions};
use umbel_wire::Scheme;
use umbel_wire::repository::{ItemInfo, ItemKind};

use crate::sink_support::{Client, Served, StoreBlock};

const LONG_AGO_NS: i64 = 981_173_106_123_456_789;

fn directory(toi: u32, name: &str, mode: u16) -> ItemInfo {
    let modified_ns = Some(LONG_AGO_NS + i64::from(toi));
    let info = Served::new(toi, name, 0, Scheme::ReedSolomon).info;
    ItemInfo { kind: ItemKind::Directory, modified_ns, mode: Some(mode), ..info }
}

fn add(client: &Client, info: &ItemInfo) {
    assert!(matches!(client.sink.add(info), Ok(Held::Directory)), "{}", info.name);
}

fn receive(client: &mut Client, served: &Served) {
    client.add(served);
    for sbn in 0..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(served);
}

fn refused(client: &Client, info: &ItemInfo) -> SinkError {
    client.sink.add(info).map(|held| panic!("{}: {held:?}", info.name)).unwrap_err()
}

#[track_caller]
fn has(path: &Path, wanted: &ItemInfo) {
    let metadata = path.metadata().unwrap();
    let mode = metadata.permissions().mode() & 0o777;
    assert_eq!(Some(mode as u16), wanted.mode, "{}", path.display());
    let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    assert_eq!(Some(modified), wanted.modified_ns, "{}", path.display());
}

#[test]
fn directories_get_their_permissions_and_times_after_what_is_below_them() {
    let mut client = Client::new();
    let path = client.path().to_owned();
    // In an order in which no directory comes before what is below it.
    let infos = [
        directory(1, "a/b/empty", 0o700),
        directory(2, "a/b", 0o555),
        directory(3, "a", 0o750),
        directory(4, "alone", 0o511),
    ];
    for info in &infos[..2] {
        add(&client, info);
    }
    for (toi, name) in [(7, "a/b/file"), (8, "a/b/implied/file"), (9, "a/x")] {
        receive(&mut client, &Served::new(toi, name, 3_000, Scheme::ReedSolomon));
    }
    for info in &infos[2..] {
        add(&client, info);
    }
    client.sink.set_directories();
    for info in &infos {
        has(&path.join(&info.name), info);
    }
    assert_eq!(client.sink.unkept(), umbel_store::sink::Unkept::default());

    // Another run brings them up to date, and writes where nobody may write in the end.
    let mut client = client.restart();
    let now = [directory(2, "a/b", 0o500), directory(5, "a/b/new", 0o755)];
    fs::File::open(path.join("a/b")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    for info in &now {
        add(&client, info);
    }
    let mode = path.join("a/b").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "its owner can write below it");
    receive(&mut client, &Served::new(10, "a/b/later", 1_000, Scheme::ReedSolomon));
    client.sink.set_directories();
    for info in &now {
        has(&path.join(&info.name), info);
    }
    // So that the test can remove it.
    fs::set_permissions(path.join("a/b"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn times_of_directories_are_not_kept_if_times_are_not() {
    let client = Client::with(SinkOptions { preserve_times: false, ..SinkOptions::default() });
    let info = directory(1, "a", 0o700);
    add(&client, &info);
    client.sink.set_directories();
    let metadata = client.path().join("a").metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
    let age = metadata.modified().unwrap().elapsed().unwrap_or_default();
    assert!(age < Duration::from_mins(10), "{age:?}");
}

#[test]
fn a_directory_that_its_names_do_not_allow_is_refused_and_nothing_is_changed() {
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), Permissions::from_mode(0o700)).unwrap();
    let mut client = Client::new();
    let path = client.path().to_owned();
    receive(&mut client, &Served::new(1, "file", 100, Scheme::ReedSolomon));
    fs::write(path.join("mine"), "mine").unwrap();
    symlink(outside.path(), path.join("link")).unwrap();
    for name in ["..", "a/../b", "/etc", "a//b", ".", "", ".x.umbel-part", "a\0b"] {
        let error = refused(&client, &directory(2, name, 0o777));
        assert!(matches!(error, SinkError::Name(_)), "{name}: {error}");
    }
    for (name, both) in [("file", "file"), ("file/below", "file")] {
        let error = refused(&client, &directory(3, name, 0o777));
        let SinkError::Name(NameError::FileAndDirectory { path, .. }) = &error else {
            panic!("{name}: {error}");
        };
        assert_eq!(path, both);
    }
    for name in ["mine", "mine/below", "link", "link/below"] {
        let error = refused(&client, &directory(4, name, 0o777));
        assert!(matches!(error, SinkError::NotDirectory { .. }), "{name}: {error}");
    }
    let error = refused(&client, &directory(5, ".hidden/d", 0o777));
    assert!(matches!(error, SinkError::Hidden { .. }), "{error}");
    // A file with the name of a directory, and one below what was a directory before.
    add(&client, &directory(6, "d", 0o755));
    let file = Served::new(7, "d", 100, Scheme::ReedSolomon);
    let error = refused(&client, &file.info);
    assert!(matches!(error, SinkError::Name(NameError::FileAndDirectory { .. })), "{error}");
    client.sink.set_directories();
    assert_eq!(fs::read(path.join("mine")).unwrap(), b"mine");
    assert_eq!(outside.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);

    // A link that takes the place of a directory meanwhile is not followed.
    add(&client, &directory(8, "swapped", 0o755));
    fs::remove_dir(path.join("swapped")).unwrap();
    symlink(outside.path(), path.join("swapped")).unwrap();
    client.sink.set_directories();
    assert_eq!(outside.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_file_or_link_makes_way_for_a_directory_only_if_it_may_be_replaced() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    for overwrite in [false, true] {
        let mut client = Client::with(SinkOptions { overwrite, ..SinkOptions::default() });
        let path = client.path().to_owned();
        fs::write(path.join("file"), "mine").unwrap();
        symlink(outside.path(), path.join("link")).unwrap();
        for (toi, name) in [(1, "file"), (2, "link")] {
            if overwrite {
                add(&client, &directory(toi, name, 0o755));
                receive(
                    &mut client,
                    &Served::new(9, &format!("{name}/new"), 100, Scheme::ReedSolomon),
                );
                assert!(path.join(name).symlink_metadata().unwrap().is_dir());
            } else {
                let error = refused(&client, &directory(toi, name, 0o755));
                assert!(matches!(error, SinkError::NotDirectory { .. }), "{error}");
            }
        }
    }
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"untouched");
}

#[test]
fn directories_whose_names_differ_in_case_collide_only_where_they_must() {
    for (folds_case, refuses) in [(false, false), (true, true)] {
        let options = SinkOptions { folds_case: Some(folds_case), ..SinkOptions::default() };
        let client = Client::with(options);
        add(&client, &directory(1, "Name", 0o755));
        add(&client, &directory(1, "Name", 0o700));
        let other = client.sink.add(&directory(2, "name/below", 0o755));
        match other {
            Err(SinkError::Name(NameError::Case { other, .. })) if refuses => {
                assert_eq!(other, "Name");
            }
            other => assert!(matches!(other, Ok(Held::Directory)) && !refuses, "{other:?}"),
        }
    }
}
