//! Links that are items: symbolic ones, and other names of files.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use umbel_store::sink::{
    Held, Links, NameError, NameOutcome, NamedFile, SinkError, SinkOptions, Unkept,
};
use umbel_wire::Scheme;
use umbel_wire::repository::{ItemInfo, ItemKind, LinkText};

use crate::sink_support::{Client, Served, StoreBlock};

fn link(toi: u32, name: &str, text: &str) -> ItemInfo {
    let kind = ItemKind::Link(LinkText::new(text).unwrap());
    ItemInfo { kind, ..Served::new(toi, name, 0, Scheme::ReedSolomon).info }
}

fn file(toi: u32, name: &str) -> Served {
    Served::new(toi, name, 3_000, Scheme::ReedSolomon)
}

fn other_name(toi: u32, name: &str, of: &Served) -> ItemInfo {
    let kind = ItemKind::HardLink(of.info.name.clone());
    ItemInfo { kind, ..of.renamed(toi, name).info }
}

fn receive(client: &mut Client, served: &Served) {
    client.add(served);
    for sbn in 0..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(served);
}

fn made(client: &Client, info: &ItemInfo) {
    let held = client.sink.add(info).unwrap();
    let Held::Link(path) = held else { panic!("{}: {held:?}", info.name) };
    assert_eq!(path, client.path().join(&info.name));
}

#[track_caller]
fn refused(client: &Client, info: &ItemInfo) -> SinkError {
    client.sink.add(info).map(|held| panic!("{}: {held:?}", info.name)).unwrap_err()
}

fn text(client: &Client, name: &str) -> PathBuf {
    fs::read_link(client.path().join(name)).unwrap()
}

fn overwriting() -> Client {
    Client::with(SinkOptions { overwrite: true, ..SinkOptions::default() })
}

/// Gives files their other names. Returns how that ended for each, by name.
fn name_files(client: &Client) -> Vec<(String, Result<NameOutcome, SinkError>)> {
    let named = client.sink.name_files().into_iter();
    named.map(|NamedFile { name, result }| (name, result)).collect()
}

#[track_caller]
fn is_one_file(client: &Client, names: &[&str]) {
    let inode = |name: &&str| client.path().join(name).symlink_metadata().unwrap().ino();
    assert!(names.iter().all(|name| inode(name) == inode(&names[0])), "{names:?}");
}

#[test]
fn links_are_made_with_their_times_and_nothing_is_left_beside_them() {
    let client = Client::new();
    let links = [
        link(1, "a", "b"),
        link(2, "b", "a"),
        link(3, "d/up", "../nowhere/at all"),
        link(4, "d/e/here", "."),
    ];
    for info in &links {
        made(&client, info);
        let metadata = client.path().join(&info.name).symlink_metadata().unwrap();
        let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        assert_eq!(Some(modified_ns), info.modified_ns);
        let ItemKind::Link(wanted) = &info.kind else { unreachable!() };
        assert_eq!(text(&client, &info.name), Path::new(wanted.as_str()));
    }
    assert_eq!(client.path().join("d").read_dir().unwrap().count(), 2);
    assert_eq!(client.sink.unkept(), Unkept::default());
    let client = client.restart();
    // They are there, and get another time if theirs is another.
    let later = ItemInfo { modified_ns: Some(5_000_000_007), ..links[0].clone() };
    for info in [&links[1], &links[2], &later] {
        assert!(matches!(client.sink.add(info), Ok(Held::AlreadyThere)));
    }
    let metadata = client.path().join("a").symlink_metadata().unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (5, 7));
}

#[test]
fn links_that_may_lead_out_are_not_made_unless_they_may() {
    let leading_out =
        [("a", "/etc"), ("b", ".."), ("d/c", "../../x"), ("d/e", "f/../../../x"), ("g", "h/..")];
    for (links, out, inside) in
        [(Links::Inside, false, true), (Links::All, true, true), (Links::None, false, false)]
    {
        let client = Client::with(SinkOptions { links, ..SinkOptions::default() });
        for (toi, (name, to)) in (1..).zip(leading_out) {
            let held = client.sink.add(&link(toi, name, to)).unwrap();
            let made = matches!(held, Held::Link(_));
            assert!(made == out && (out || matches!(held, Held::LeftOut)), "{name}: {held:?}");
            let there = client.path().join(name).symlink_metadata().is_ok();
            assert_eq!(there, out, "{name}");
        }
        let held = client.sink.add(&link(9, "d/in", "../a")).unwrap();
        assert_eq!(matches!(held, Held::Link(_)), inside, "{held:?}");
        let told = if links == Links::Inside { 5 } else { 0 };
        assert_eq!(client.sink.unkept(), Unkept { links_out: told, ..Unkept::default() });
    }
}

#[test]
fn nothing_is_written_through_a_link_that_an_item_made_before() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("passwd"), "untouched").unwrap();
    let to = outside.path().to_str().unwrap();
    let options =
        SinkOptions { links: Links::All, overwrite: true, hidden: true, ..SinkOptions::default() };
    let mut client = Client::with(options);
    made(&client, &link(1, "etc", to));
    made(&client, &link(2, "passwd", &format!("{to}/passwd")));
    // By the same source, whose names are known.
    for name in ["etc/passwd", "etc/new", "etc/d/new"] {
        let error = refused(&client, &file(3, name).info);
        assert!(
            matches!(error, SinkError::Name(NameError::FileAndDirectory { .. })),
            "{name}: {error}"
        );
    }
    // By a source that comes later, to which the links are what the user had there.
    let below = |client: &Client| {
        let directory =
            ItemInfo { kind: ItemKind::Directory, mode: Some(0o700), ..link(4, "etc/d", "x") };
        for info in [
            file(5, "etc/passwd").info,
            link(6, "etc/link", "x"),
            other_name(7, "etc/name", &file(5, "etc/passwd")),
            directory,
        ] {
            match client.sink.add(&info) {
                Err(SinkError::NotDirectory { .. }) | Ok(Held::OtherName) => {}
                other => panic!("{}: {other:?}", info.name),
            }
        }
        for (name, result) in name_files(client) {
            assert!(result.is_err(), "{name}");
        }
        client.sink.set_directories();
    };
    client = client.restart();
    below(&client);
    let path = client.path().to_owned();
    let _old = client;
    let mut client = Client::at_path(&path, options);
    below(&client);
    // A file takes the place of the link, not of what it leads to.
    let served = file(9, "passwd");
    receive(&mut client, &served);
    assert!(path.join("passwd").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(outside.path().join("passwd")).unwrap(), b"untouched");
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
    // A directory that was written to is no link later, and one that is a link now is not entered.
    receive(&mut client, &file(10, "dir/first"));
    fs::remove_dir_all(path.join("dir")).unwrap();
    symlink(outside.path(), path.join("dir")).unwrap();
    let client = Client::at_path(&path, options);
    let error = refused(&client, &link(11, "dir/second", "x"));
    assert!(matches!(error, SinkError::NotDirectory { .. }), "{error}");
    assert_eq!(outside.path().read_dir().unwrap().count(), 1);
}

#[test]
fn what_is_in_the_place_of_a_link_is_replaced_only_if_it_may_be() {
    for overwrite in [false, true] {
        let mut client = Client::with(SinkOptions { overwrite, ..SinkOptions::default() });
        let path = client.path().to_owned();
        fs::write(path.join("file"), "mine").unwrap();
        symlink("mine", path.join("link")).unwrap();
        symlink("file", path.join("target")).unwrap();
        fs::create_dir(path.join("dir")).unwrap();
        for name in ["file", "link"] {
            match client.sink.add(&link(1, name, "elsewhere")) {
                Ok(Held::Link(_)) if overwrite => {
                    assert_eq!(text(&client, name), Path::new("elsewhere"));
                }
                Err(SinkError::Exists { path: said }) if !overwrite => {
                    assert_eq!(said, path.join(name));
                }
                other => panic!("{other:?}"),
            }
        }
        let error = refused(&client, &link(2, "dir", "elsewhere"));
        assert!(matches!(error, SinkError::IsDirectory { .. }), "{error}");
        // A link in the place of a file, which is not written through.
        let served = file(3, "target");
        if overwrite {
            receive(&mut client, &served);
        } else {
            let error = refused(&client, &served.info);
            assert!(matches!(error, SinkError::Exists { .. }), "{error}");
        }
        let is_link = |name: &str| path.join(name).symlink_metadata().unwrap().is_symlink();
        assert_eq!([is_link("file"), is_link("target")], [overwrite, !overwrite]);
        if !overwrite {
            assert_eq!(fs::read(path.join("file")).unwrap(), b"mine");
        }
    }
}

#[test]
fn links_of_a_run_that_was_interrupted_are_brought_up_to_date_and_the_users_are_kept() {
    let client = Client::new();
    client.sink.resume("source");
    made(&client, &link(1, "ours", "first"));
    made(&client, &link(2, "changed", "first"));
    let client = client.restart();
    client.sink.resume("source");
    let path = client.path().to_owned();
    fs::remove_file(path.join("changed")).unwrap();
    symlink("mine", path.join("changed")).unwrap();
    made(&client, &link(3, "ours", "second"));
    let error = refused(&client, &link(4, "changed", "second"));
    assert!(matches!(error, SinkError::Exists { .. }), "{error}");
    assert_eq!(text(&client, "changed"), Path::new("mine"));
    client.sink.complete();
    let client = client.restart();
    client.sink.resume("source");
    let error = refused(&client, &link(5, "ours", "third"));
    assert!(matches!(error, SinkError::Exists { .. }), "{error}");
}

#[test]
fn names_of_links_follow_the_rules_of_files() {
    let client = Client::with(SinkOptions { folds_case: Some(true), ..SinkOptions::default() });
    for name in ["..", "../a", "/etc/a", "a//b", "", ".x.umbel-part", "a\nb"] {
        let error = refused(&client, &link(1, name, "x"));
        assert!(matches!(error, SinkError::Name(_)), "{name:?}: {error}");
    }
    let error = refused(&client, &link(2, ".hidden", "x"));
    assert!(matches!(error, SinkError::Hidden { .. }), "{error}");
    made(&client, &link(3, "Name", "x"));
    for info in [link(4, "name", "y"), file(5, "NAME").info] {
        let error = refused(&client, &info);
        assert!(matches!(error, SinkError::Name(NameError::Case { .. })), "{error}");
    }
    let error = refused(&client, &link(6, "name/below", "y"));
    assert!(matches!(error, SinkError::Name(NameError::FileAndDirectory { .. })), "{error}");
}

#[test]
fn files_get_their_other_names_when_they_are_there() {
    let mut client = Client::new();
    let first = file(1, "d/first");
    let others = [other_name(2, "d/second", &first), other_name(3, "e/third", &first)];
    for info in &others {
        assert!(matches!(client.sink.add(info), Ok(Held::OtherName)));
    }
    receive(&mut client, &first);
    assert_eq!(client.files(), ["d/first"]);
    let made = name_files(&client);
    for (name, result) in &made {
        assert!(matches!(result, Ok(NameOutcome::Made(path)) if *path == client.path().join(name)));
    }
    assert_eq!(made.len(), 2);
    is_one_file(&client, &["d/first", "d/second", "e/third"]);
    assert_eq!(client.files(), ["d/first", "d/second", "e/third"]);

    // In the next run all are there.
    let client = client.restart();
    assert!(matches!(client.sink.add(&first.info), Ok(Held::AlreadyThere)));
    client.sink.add(&others[0]).unwrap();
    assert!(matches!(name_files(&client)[0].1, Ok(NameOutcome::WasThere)));
    // What is forgotten gets no name.
    client.sink.add(&others[1]).unwrap();
    client.sink.begin_list();
    assert!(name_files(&client).is_empty());
}

#[test]
fn a_copy_becomes_another_name_and_what_differs_only_if_it_may() {
    for overwrite in [false, true] {
        let mut client = Client::with(SinkOptions { overwrite, ..SinkOptions::default() });
        let path = client.path().to_owned();
        let first = file(1, "first");
        fs::write(path.join("copy"), &first.content).unwrap();
        fs::write(path.join("other"), "mine").unwrap();
        symlink("mine", path.join("link")).unwrap();
        fs::create_dir(path.join("dir")).unwrap();
        receive(&mut client, &first);
        for (toi, name) in (2..).zip(["copy", "other", "link", "dir"]) {
            assert!(matches!(client.sink.add(&other_name(toi, name, &first)), Ok(Held::OtherName)));
        }
        for (name, result) in name_files(&client) {
            match (name.as_str(), result) {
                ("copy", Ok(NameOutcome::Made(_))) => is_one_file(&client, &["first", "copy"]),
                ("dir", Err(SinkError::IsDirectory { .. })) => {}
                (name, Ok(NameOutcome::Made(_))) if overwrite => {
                    is_one_file(&client, &["first", name]);
                }
                (_, Err(SinkError::Exists { .. })) if !overwrite => {}
                (name, other) => panic!("{name}: {other:?}"),
            }
        }
        if !overwrite {
            assert_eq!(fs::read(path.join("other")).unwrap(), b"mine");
            assert_eq!(text(&client, "link"), Path::new("mine"));
        }
        let entries = path.read_dir().unwrap().count();
        assert_eq!(entries, 5, "nothing is left beside them");
    }
}

#[test]
fn only_what_this_run_has_verified_gets_another_name() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let mut client = overwriting();
    let path = client.path().to_owned();
    fs::write(path.join("mine"), "mine").unwrap();
    symlink(outside.path().join("secret"), path.join("swapped-later")).unwrap();
    let received = file(1, "received");
    receive(&mut client, &received);
    let swapped = file(2, "swapped");
    receive(&mut client, &swapped);
    fs::remove_file(path.join("swapped")).unwrap();
    symlink(outside.path().join("secret"), path.join("swapped")).unwrap();
    let mine = Served::new(3, "mine", 4, Scheme::ReedSolomon);
    // Of a file of the user's, of one that is not there, of another content, of a link.
    let bad = [
        other_name(4, "a", &mine),
        other_name(5, "b", &file(9, "absent")),
        ItemInfo { digest: mine.info.digest, ..other_name(6, "c", &received) },
        other_name(7, "d", &swapped),
        other_name(8, "e", &file(9, "e")),
    ];
    for info in &bad {
        assert!(matches!(client.sink.add(info), Ok(Held::OtherName)));
    }
    let ends = name_files(&client);
    assert_eq!(ends.len(), bad.len());
    for (name, result) in ends {
        let Err(error @ SinkError::NoFirstName { .. }) = result else { panic!("{name}") };
        assert!(error.to_string().contains("was not received"), "{error}");
        assert!(path.join(&name).symlink_metadata().is_err(), "{name}");
    }
    for first in ["../x", "/etc/passwd", "a//b"] {
        let kind = ItemKind::HardLink(first.to_owned());
        let error = refused(&client, &ItemInfo { kind, ..file(10, "x").info });
        assert!(matches!(error, SinkError::Name(_)), "{error}");
    }
    assert_eq!(fs::metadata(path.join("mine")).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(outside.path().join("secret")).unwrap().nlink(), 1);
}

#[test]
fn another_name_of_a_hidden_file_is_missed_with_what_to_do() {
    let client = Client::new();
    let first = file(1, ".a");
    assert!(matches!(refused(&client, &first.info), SinkError::Hidden { .. }));
    assert!(matches!(client.sink.add(&other_name(2, "b", &first)), Ok(Held::OtherName)));
    let [(_, result)] = &name_files(&client)[..] else { panic!() };
    let error = result.as_ref().unwrap_err();
    assert!(matches!(error, SinkError::HiddenFirstName { .. }), "{error}");
    assert!(error.to_string().contains("--hidden"), "{error}");
}
