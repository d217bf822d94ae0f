//! What is in the output directory and no item.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;

use umbel_store::sink::{Hidden, SinkOptions};
use umbel_wire::Scheme;
use umbel_wire::repository::{ItemInfo, ItemKind, LinkText};

use crate::sink_support::{Client, Served, StoreBlock};

fn receive(client: &mut Client, served: &Served) {
    client.add(served);
    for sbn in 0..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(served);
}

/// Returns the names of all files and links, without following any.
fn files(client: &Client) -> Vec<String> {
    let walk = walkdir::WalkDir::new(client.path()).sort_by_file_name();
    let entries = walk.into_iter().map(Result::unwrap).filter(|it| !it.file_type().is_dir());
    let below = |path: &std::path::Path| path.strip_prefix(client.path()).unwrap().to_owned();
    entries.map(|entry| below(entry.path()).to_str().unwrap().to_owned()).collect()
}

/// Returns a client that has received some items, among what is the user's, and their names.
fn client() -> (Client, HashSet<String>) {
    let mut client = Client::with(SinkOptions { overwrite: true, ..SinkOptions::default() });
    let path = client.path().to_owned();
    for name in ["mine/deep/er", "d/mine", ".hidden/mine", ".mine", "d/.hidden"] {
        let path = path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    fs::create_dir(path.join("empty")).unwrap();
    let empty = Served::new(3, "kept", 0, Scheme::ReedSolomon).info;
    let link = ItemKind::Link(LinkText::new("d").unwrap());
    let infos = [
        ItemInfo { kind: ItemKind::Directory, ..empty.clone() },
        ItemInfo { kind: link, name: "link".to_owned(), ..empty.clone() },
        ItemInfo { kind: ItemKind::Directory, name: "d".to_owned(), ..empty },
    ];
    for info in &infos {
        client.sink.add(info).unwrap();
    }
    for (toi, name) in [(1, "d/item"), (2, "implied/item")] {
        receive(&mut client, &Served::new(toi, name, 1_000, Scheme::ReedSolomon));
    }
    let names = ["kept", "link", "d", "d/item", "implied/item"];
    (client, names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn what_is_no_item_is_removed_and_links_lead_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let (client, names) = client();
    let path = client.path().to_owned();
    symlink(outside.path(), path.join("to-outside")).unwrap();
    symlink(outside.path(), path.join("mine/to-outside")).unwrap();
    let others = client.sink.others(&names, Hidden::Stay);
    assert_eq!(files(&client).len(), 10, "nothing is removed yet: {:?}", files(&client));
    let removed = client.sink.remove_others(&names, Hidden::Stay).unwrap();
    assert!(others.iter().all(|other| removed.contains(other) || other.is_directory));
    let mut told: Vec<_> = removed.into_iter().map(|other| other.path).collect();
    told.sort();
    let expected = [
        "d/.hidden",
        "d/mine",
        "empty",
        "mine",
        "mine/deep",
        "mine/deep/er",
        "mine/to-outside",
        "to-outside",
    ];
    assert_eq!(told, expected.map(std::path::PathBuf::from));
    assert!(path.join("kept").is_dir() && path.join("link").is_symlink());
    assert_eq!(files(&client), [".hidden/mine", ".mine", "d/item", "implied/item", "link"]);
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"untouched");
    // Once more with hidden ones, which leaves the items.
    client.sink.remove_others(&names, Hidden::Go).unwrap();
    assert_eq!(files(&client), ["d/item", "implied/item", "link"]);
}

#[test]
fn what_takes_the_place_of_a_directory_meanwhile_is_not_entered() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("er"), "untouched").unwrap();
    let (client, names) = client();
    let path = client.path().to_owned();
    let others = client.sink.others(&names, Hidden::Stay);
    fs::remove_dir_all(path.join("mine/deep")).unwrap();
    symlink(outside.path(), path.join("mine/deep")).unwrap();
    // The list is that of before.
    assert!(others.iter().any(|other| other.path.ends_with("mine/deep/er")));
    client.sink.remove_others(&names, Hidden::Stay).unwrap();
    assert_eq!(fs::read(outside.path().join("er")).unwrap(), b"untouched");
    assert!(!path.join("mine").exists());
}

#[test]
fn what_other_runs_have_there_stays_while_they_go_on() {
    let (client, mut names) = client();
    let path = client.path().to_owned();
    names.insert("other/half".to_owned());
    let other = Client::at_path(&path, SinkOptions::default());
    let mut claimant = other.sink.claimant("other");
    let umbel_store::sink::Attempt::Ours(claim) = claimant.attempt() else { panic!() };
    let own = client.sink.claimant("own").attempt();
    let parts =
        ["d/.x.umbel-part", "d/.x.umbel-part.journal", ".y.umbel-part", ".0.umbel-part.list"];
    for name in parts {
        fs::write(path.join(name), "x").unwrap();
    }
    client.sink.remove_others(&names, Hidden::Go).unwrap();
    let there = |name: &&str| path.join(name).exists();
    assert!(parts.iter().all(there), "{:?}", files(&client));
    drop(claim);
    client.sink.remove_others(&names, Hidden::Go).unwrap();
    let left: Vec<_> = parts.iter().filter(|name| there(name)).collect();
    assert_eq!(left, [&".0.umbel-part.list"], "a list serves a later run");
    drop(own);
}

#[test]
fn a_directory_that_a_link_leads_to_is_mirrored_as_any_other() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("real/first/deep")).unwrap();
    symlink("real", place.path().join("link")).unwrap();
    let client = Client::at_path(&place.path().join("link"), SinkOptions::default());
    let removed = client.sink.remove_others(&HashSet::new(), Hidden::Stay).unwrap();
    let removed: Vec<_> = removed.into_iter().map(|other| other.path).collect();
    assert_eq!(removed, ["first/deep", "first"].map(std::path::PathBuf::from));
}

#[test]
fn a_directory_that_holds_items_is_not_told_as_one_that_goes() {
    let (client, names) = client();
    let others = client.sink.others(&names, Hidden::Stay);
    assert!(!others.iter().any(|other| other.path.ends_with("implied")), "{others:?}");
}
