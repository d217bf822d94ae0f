//! A real directory as a repository.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use crate::support::{
    self, Sender, names, open, pattern, read, select, select_all, small_options, toi, write,
};
use tempfile::TempDir;
use umbel_engine::symbols::BlockId;
use umbel_store::{Fault, OpenError, ReadError, ReaderOptions, Repository, RepositoryOptions};
use umbel_store::{SkipReason, SkippedItem};
use umbel_wire::repository::{ItemKind, LinkText};
use umbel_wire::{Digest, Scheme, Toi};

fn digest_of(content: &[u8]) -> Digest {
    Digest(blake3::hash(content).into())
}

/// Returns the names of all items that match, with directories.
fn everything(repository: &Repository, patterns: &[&str]) -> Vec<String> {
    select_all(repository, patterns).into_iter().map(|(name, _)| name).collect()
}

/// Waits until times differ, since file systems keep them in ticks of a few milliseconds.
fn let_the_clock_tick() {
    std::thread::sleep(Duration::from_millis(20));
}

fn fault(error: ReadError) -> Fault {
    match error {
        ReadError::Gone { fault, .. } => fault,
        other => panic!("not gone: {other}"),
    }
}

#[test]
fn every_regular_file_below_the_directory_is_an_item_with_its_content() {
    let dir = TempDir::new().unwrap();
    let files = [
        ("empty", pattern(0, 1)),
        ("images/cat.png", pattern(1, 2)),
        ("images/große Übersicht/猫.jpeg", pattern(5_000, 3)),
        ("notes.txt", pattern(64 * 16, 4)),
        ("z/y/x/w/deep", pattern(64 * 16 * 3 + 1, 5)),
    ];
    for (name, content) in &files {
        write(dir.path(), name, content);
    }
    let repository = open(dir.path());
    assert_eq!(names(&repository), files.each_ref().map(|(name, _)| *name));
    assert_eq!(repository.catalog().skipped().total(), 0);
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    for (name, content) in &files {
        let item = repository.catalog().lookup(name).unwrap();
        assert_eq!(item.size(), content.len() as u64);
        assert_eq!(item.oti().object_len, item.size());
        assert_eq!(&read(&repository, &item), content, "{name}");
        assert_eq!(&sender.transmit(&item).unwrap(), content, "{name}");
        assert_eq!(repository.catalog().digest(item.toi()).unwrap(), digest_of(content));
    }
    let types = ["images/cat.png", "notes.txt", "z/y/x/w/deep"]
        .map(|name| repository.catalog().lookup(name).unwrap().media_type().to_owned());
    assert_eq!(types, ["image/png", "text/plain", ""]);
}

#[test]
fn the_digest_of_a_block_is_that_of_its_bytes() {
    let dir = TempDir::new().unwrap();
    let content = pattern(64 * 16 * 2 + 100, 1);
    write(dir.path(), "item", &content);
    let repository = open(dir.path());
    let toi = toi(&repository, "item");
    // 34 symbols in three blocks: 12, 11 and 11 [RFC 5052 §9.1].
    let blocks = [&content[..768], &content[768..1_472], &content[1_472..]];
    let digests = repository.catalog().block_digests(toi, 0..3).unwrap();
    assert_eq!(digests, blocks.map(digest_of));
    assert_eq!(repository.catalog().block_digests(toi, 1..2).unwrap(), [digest_of(blocks[1])]);
    let error = repository.catalog().block_digests(toi, 2..4).unwrap_err();
    assert!(matches!(error, ReadError::Range { .. }), "{error}");
}

#[test]
fn digests_of_symbols_are_those_of_what_is_sent() {
    let dir = TempDir::new().unwrap();
    let content = pattern(64 * 16 * 2 + 100, 1);
    write(dir.path(), "item", &content);
    let repository = open(dir.path());
    let toi = toi(&repository, "item");
    let catalog = repository.catalog();
    let (k, block) = (11, BlockId { toi, sbn: 2 });
    let symbols = |esis| catalog.symbol_digests(block, esis, |esi, symbol| (esi, symbol.to_vec()));
    let all = symbols(0..1_000).unwrap();
    assert!(all.iter().enumerate().all(|(n, (esi, _))| n == *esi as usize) && all.len() > k);
    // The last source symbol is as short as it is sent.
    let source: Vec<u8> = all[..k].iter().flat_map(|(_, symbol)| symbol.clone()).collect();
    assert_eq!(source, content[1_472..]);
    for esis in [3..5, 9..14, 12..13, 200..1_000, 5_000..6_000] {
        let expected: Vec<_> = all.iter().filter(|(esi, _)| esis.contains(esi)).cloned().collect();
        assert_eq!(symbols(esis).unwrap(), expected);
    }
    let beyond = BlockId { toi, sbn: 3 };
    assert!(catalog.symbol_digests(beyond, 0..1, |_, _| ()).is_err());
}

#[test]
fn a_single_file_is_a_repository_of_one_item() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "one.bin", b"content");
    write(dir.path(), "other.bin", b"not this one");
    let repository = open(&dir.path().join("one.bin"));
    assert_eq!(names(&repository), ["one.bin"]);
    let item = repository.catalog().lookup("one.bin").unwrap();
    assert_eq!(read(&repository, &item), b"content");
}

#[test]
fn what_is_not_there_or_not_a_repository_is_one_clear_error() {
    let dir = TempDir::new().unwrap();
    let error = Repository::open(dir.path().join("nothing"), RepositoryOptions::default());
    let message = error.unwrap_err().to_string();
    assert!(message.ends_with("nothing: No such file or directory (os error 2)"), "{message}");
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = Repository::open(&pipe, RepositoryOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Kind(_)), "{error}");
    let options = RepositoryOptions { max_block_symbols: 300, ..RepositoryOptions::default() };
    let error = Repository::open(dir.path(), options).unwrap_err();
    assert!(matches!(error, OpenError::Options(_)), "{error}");
}

#[test]
fn what_cannot_be_served_is_left_out_and_named() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "good", b"good");
    fs::write(dir.path().join(OsStr::from_bytes(b"not \xff utf8")), b"x").unwrap();
    nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    write(dir.path(), ".movie.iso.umbel-part", b"half");
    write(dir.path(), ".movie.iso.umbel-part.journal", b"half");
    let repository = open(dir.path());
    assert_eq!(names(&repository), ["good"]);
    let skipped = repository.catalog().skipped();
    let mut named = skipped.named().to_vec();
    named.sort_by(|a, b| a.name.cmp(&b.name));
    let expected = [
        ("not \u{fffd} utf8", SkipReason::NameNotUtf8),
        ("pipe", SkipReason::Fifo),
        ("socket", SkipReason::Socket),
    ];
    let expected = expected.map(|(name, reason)| SkippedItem { name: name.to_owned(), reason });
    assert_eq!(named, expected);
    assert_eq!(skipped.total(), 3);
}

#[test]
fn names_that_clients_refuse_are_left_out_and_those_of_other_systems_are_not() {
    let dir = TempDir::new().unwrap();
    let good = ["COM1/LPT9.log", "aux.c", "c:/x", "con.txt", "nul"];
    for name in good {
        write(dir.path(), name, b"x");
    }
    let long = vec!["d".repeat(200); 20].join("/");
    for name in ["a\nb", "tab\t/x", "\u{7f}", "x/.UPPER.UMBEL-PART", &long] {
        write(dir.path(), name, b"x");
    }
    let repository = open(dir.path());
    assert_eq!(names(&repository), good);
    let skipped = repository.catalog().skipped();
    assert_eq!(skipped.failures(), skipped.total());
    let of = |name: &str| {
        let named = skipped.named().iter().find(|item| item.name == name);
        named.unwrap_or_else(|| panic!("{name:?} is not named")).reason.to_string()
    };
    for name in ["a\nb", "tab\t/x", "\u{7f}"] {
        assert_eq!(of(name), "its name holds a control character");
    }
    assert_eq!(of(&long), "its name is too long");
    assert_eq!(of("x/.UPPER.UMBEL-PART"), "its name is that of an incomplete item");
}

#[test]
fn links_and_directories_are_items() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "d/file", b"x");
    write(dir.path(), "e/.x.umbel-part", b"half");
    for name in ["empty", "d/empty/inner", "z"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    for (text, name) in [("d", "link"), ("/nowhere", "broken"), ("loop", "d/loop")] {
        symlink(text, dir.path().join(name)).unwrap();
    }
    let repository = open(dir.path());
    let all = ["broken", "d", "d/empty", "d/empty/inner", "d/file", "d/loop", "e", "empty"];
    assert_eq!(everything(&repository, &[]), [&all[..], &["link", "z"]].concat());
    assert_eq!(names(&repository), ["d/file"]);
    assert_eq!(repository.catalog().len(), 4, "links count, directories do not");
    for (text, name) in [("d", "link"), ("/nowhere", "broken"), ("loop", "d/loop")] {
        let item = repository.catalog().lookup(name).unwrap();
        assert_eq!(*item.kind(), ItemKind::Link(LinkText::new(text).unwrap()));
        assert_eq!((item.size(), item.info().mode), (0, None));
        assert_eq!(item.known_digest(), Some(digest_of(text.as_bytes())));
        let link = dir.path().join(name).symlink_metadata().unwrap();
        let modified_ns = link.mtime() * 1_000_000_000 + link.mtime_nsec();
        assert_eq!(item.modified_ns(), Some(modified_ns));
    }
    assert_eq!(repository.catalog().skipped().total(), 0);
    // A glob matches them, and what is below one is nothing.
    assert_eq!(everything(&repository, &["l*"]), ["link"]);
    assert!(everything(&repository, &["link/file"]).is_empty());
}

#[test]
fn a_link_that_leads_elsewhere_is_a_new_version_and_one_with_another_time_is_not() {
    let dir = TempDir::new().unwrap();
    let link = dir.path().join("link");
    symlink("a", &link).unwrap();
    let repository = open(dir.path());
    let before = toi(&repository, "link");
    assert!(repository.refresh().unwrap().is_empty());
    fs::remove_file(&link).unwrap();
    symlink("a", &link).unwrap();
    assert!(repository.refresh().unwrap().is_empty());
    fs::remove_file(&link).unwrap();
    symlink("b", &link).unwrap();
    let after = repository.refresh().unwrap().replaced;
    assert_eq!(after, [(before, toi(&repository, "link"))]);
    fs::remove_file(&link).unwrap();
    write(dir.path(), "link", b"a file");
    assert_eq!(repository.refresh().unwrap().replaced.len(), 1);
    assert!(repository.catalog().lookup("link").unwrap().kind().is_file());
}

#[test]
fn a_link_whose_text_is_not_utf8_is_named_as_what_is_missed() {
    let dir = TempDir::new().unwrap();
    symlink(OsStr::from_bytes(b"\xff"), dir.path().join("link")).unwrap();
    let repository = open(dir.path());
    let skipped = repository.catalog().skipped();
    assert_eq!(skipped.named()[0].reason, SkipReason::LinkNotUtf8);
    assert_eq!(skipped.failures(), 1);
}

#[test]
fn other_names_of_a_file_are_told_and_hashed_once() {
    let dir = TempDir::new().unwrap();
    let content = pattern(10_000, 1);
    write(dir.path(), "d/first", &content);
    write(dir.path(), "apart", &content);
    let path = |name: &str| dir.path().join(name);
    for name in ["d/second", "e"] {
        fs::hard_link(path("d/first"), path(name)).unwrap();
    }
    let repository = open(dir.path());
    let kind = |name: &str| repository.catalog().lookup(name).unwrap().kind().clone();
    let other = ItemKind::HardLink("d/first".to_owned());
    assert!(kind("apart").is_file() && kind("d/first").is_file());
    assert_eq!([kind("d/second"), kind("e")], [other.clone(), other.clone()]);

    // As other names where the first one is asked for, and as files where it is not.
    let kinds = |patterns: &[&str]| -> Vec<ItemKind> {
        let patterns: Vec<String> = patterns.iter().map(|&it| it.to_owned()).collect();
        let page = repository.catalog().select(&patterns, 0, 100).unwrap();
        page.items.iter().map(|item| page.info(item).kind).collect()
    };
    let file = || ItemKind::File;
    assert_eq!(kinds(&["e"]), [file()]);
    assert_eq!(kinds(&["d/second", "e"]), [file(), file()]);
    assert_eq!(kinds(&["d/*", "e"]), [file(), other.clone(), other.clone()]);
    assert_eq!(kinds(&["e", "d"]), [ItemKind::Directory, file(), other.clone(), other.clone()]);

    let item = repository.catalog().lookup("e").unwrap();
    assert!(repository.catalog().digests(item.toi()).unwrap().is_empty());
    assert_eq!(item.known_digest(), Some(digest_of(&content)));
    let first = repository.catalog().lookup("d/first").unwrap();
    assert_eq!(first.known_digest(), item.known_digest());
    assert_eq!((item.size(), item.sent_bytes()), (10_000, 0));
    assert_eq!(item.info().oti.object_len, 10_000);
    assert_eq!(read(&repository, &item), content, "its content can be had by itself");

    // Without the first, the next is the first.
    fs::remove_file(path("d/first")).unwrap();
    repository.refresh().unwrap();
    assert_eq!(item.toi(), toi(&repository, "e"));
    let item = repository.catalog().lookup("e").unwrap();
    assert_eq!(*item.kind(), ItemKind::HardLink("d/second".to_owned()));
    fs::remove_file(path("d/second")).unwrap();
    repository.refresh().unwrap();
    assert!(repository.catalog().lookup("e").unwrap().kind().is_file());
}

#[test]
fn hidden_files_at_the_top_are_served_only_if_they_are_asked_for() {
    let dir = TempDir::new().unwrap();
    for name in [".bashrc", ".ssh/id_ed25519", ".ssh/deep/x", "a", "sub/.hidden", "sub/.d/x"] {
        write(dir.path(), name, b"content");
    }
    let repository = open(dir.path());
    assert_eq!(names(&repository), ["a", "sub/.d/x", "sub/.hidden"]);
    let skipped = repository.catalog().skipped();
    let mut named: Vec<_> = skipped.named().iter().map(|item| item.name.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, [".bashrc", ".ssh"]);
    assert!(skipped.named().iter().all(|item| item.reason == SkipReason::Hidden));
    assert_eq!(skipped.failures(), 0);
    assert!(SkipReason::Hidden.to_string().contains("--hidden"));

    // A directory that is named itself is published, whatever it is called.
    assert_eq!(names(&open(&dir.path().join(".ssh"))), ["deep/x", "id_ed25519"]);
    let file = dir.path().join(".bashrc");
    let several = [dir.path().join(".ssh"), dir.path().join("a")];
    let refused = [
        Repository::open(&file, support::small_options()).unwrap_err(),
        Repository::open_all(&several, support::small_options()).unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains("--hidden"), "{error}");
    }

    let all = || RepositoryOptions { hidden: true, ..support::small_options() };
    let repository = Repository::open(dir.path(), all()).unwrap();
    assert_eq!(
        names(&repository),
        [".bashrc", ".ssh/deep/x", ".ssh/id_ed25519", "a", "sub/.d/x", "sub/.hidden"]
    );
    assert_eq!(repository.catalog().skipped().total(), 0);
    assert_eq!(names(&Repository::open(&file, all()).unwrap()), [".bashrc"]);
    let several = Repository::open_all(&several, all()).unwrap();
    assert_eq!(names(&several), [".ssh/deep/x", ".ssh/id_ed25519", "a"]);
}

#[test]
fn keys_and_state_of_umbel_are_never_served() {
    let home = TempDir::new().unwrap();
    let state = home.path().join(".local/state/umbel");
    let secret = format!("{}\n", "0123456789abcdef".repeat(4));
    let pem = "-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n";
    let private = |name: &str, content: &str| {
        write(home.path(), name, content);
        fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    private(".local/state/umbel/identity.pem", pem);
    private(".local/state/umbel/deep/other", "state");
    private("keys/mine", &secret);
    private("server/identity.pem", pem);
    // These files are not a key or not private.
    private("notes/plan", &"x".repeat(65));
    private("notes/identity.pem", "another program's");
    write(home.path(), "notes/sum", &secret);
    symlink("../.local/state/umbel/deep/other", home.path().join("notes/link")).unwrap();
    fs::hard_link(state.join("deep/other"), home.path().join("notes/hard")).unwrap();
    let own = vec![state.clone()];
    let options = || RepositoryOptions {
        own: own.clone(),
        hidden: true,
        follow_links: true,
        ..support::small_options()
    };
    let repository = Repository::open(home.path(), options()).unwrap();
    assert_eq!(names(&repository), ["notes/identity.pem", "notes/plan", "notes/sum"]);
    let skipped = repository.catalog().skipped();
    assert!(skipped.named().iter().all(|item| item.reason == SkipReason::Own), "{skipped:?}");
    let mut named: Vec<_> = skipped.named().iter().map(|item| item.name.as_str()).collect();
    named.sort_unstable();
    let expected =
        [".local/state/umbel", "keys/mine", "notes/hard", "notes/link", "server/identity.pem"];
    assert_eq!(named, expected);
    // Nor are they served when such a path is given itself, alone or with others.
    for path in [state.clone(), state.join("identity.pem"), home.path().join("keys/mine")] {
        let alone = Repository::open(&path, options()).unwrap();
        assert!(alone.catalog().is_empty(), "{}", path.display());
        assert_eq!(alone.catalog().skipped().total(), 1);
        let notes = home.path().join("notes/sum");
        let several = Repository::open_all(&[path, notes], options()).unwrap();
        assert_eq!(names(&several), ["sum"]);
    }
}

#[test]
fn permissions_are_told_and_a_change_of_them_is_a_new_version() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "run", b"#!/bin/sh\n");
    let chmod = |mode| {
        fs::set_permissions(dir.path().join("run"), fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod(0o4751);
    let repository = open(dir.path());
    let mode = || repository.catalog().lookup("run").unwrap().info().mode;
    assert_eq!(mode(), Some(0o751));
    let_the_clock_tick();
    chmod(0o600);
    assert_eq!(repository.refresh().unwrap().replaced.len(), 1);
    assert_eq!(mode(), Some(0o600));
}

#[test]
fn unreadable_files_and_directories_are_left_out_with_the_reason() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: nothing is unreadable to root");
        return;
    }
    let dir = TempDir::new().unwrap();
    write(dir.path(), "good", b"good");
    write(dir.path(), "secret", b"x");
    write(dir.path(), "closed/file", b"x");
    let forbid = |name: &str, mode| {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    forbid("secret", 0);
    forbid("closed", 0);
    let repository = open(dir.path());
    forbid("closed", 0o700);
    assert_eq!(names(&repository), ["good"]);
    let skipped = repository.catalog().skipped();
    assert_eq!(skipped.total(), 2);
    for item in skipped.named() {
        assert!(["secret", "closed"].contains(&item.name.as_str()), "{item:?}");
        assert!(item.reason.to_string().contains("Permission denied"), "{item:?}");
    }
}

#[test]
fn links_that_are_to_be_followed_are_to_files_inside_and_nowhere_else() {
    let outside = TempDir::new().unwrap();
    write(outside.path(), "secret", b"secret");
    let dir = TempDir::new().unwrap();
    write(dir.path(), "sub/real.txt", b"content");
    let root = dir.path();
    let link = |to: &str, name: &str| symlink(to, root.join(name)).unwrap();
    link("sub/real.txt", "inside");
    link("../inside", "sub/chain");
    link(outside.path().join("secret").to_str().unwrap(), "absolute");
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    link(&format!("../{name}/secret"), "relative");
    link("sub", "directory");
    link("..", "parent");
    link("loop", "loop");
    link("missing", "dangling");
    let options = RepositoryOptions { follow_links: true, ..support::small_options() };
    let repository = Repository::open(root, options).unwrap();
    assert_eq!(names(&repository), ["inside", "sub/chain", "sub/real.txt"]);
    for name in ["inside", "sub/chain"] {
        let item = repository.catalog().lookup(name).unwrap();
        assert_eq!(read(&repository, &item), b"content");
    }
    let mut skipped: Vec<_> = repository
        .catalog()
        .skipped()
        .named()
        .iter()
        .map(|item| (item.name.clone(), item.reason.clone()))
        .collect();
    skipped.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("absolute", SkipReason::LinkOutside),
        ("dangling", SkipReason::LinkOutside),
        ("directory", SkipReason::LinkToOther),
        ("loop", SkipReason::LinkOutside),
        ("parent", SkipReason::LinkOutside),
        ("relative", SkipReason::LinkOutside),
    ];
    assert_eq!(skipped, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_link_to_the_directory_that_is_served_is_no_entry_of_it() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("release")).unwrap();
    write(&dir.path().join("release"), "a", b"a");
    let current = dir.path().join("current");
    symlink("release", &current).unwrap();
    let repository = open(&current);
    assert_eq!(names(&repository), ["a"]);
    assert_eq!(repository.catalog().skipped().total(), 0);
}

#[test]
fn a_directory_swapped_for_a_link_after_the_scan_leads_nowhere() {
    let outside = TempDir::new().unwrap();
    write(outside.path(), "file", b"secret!");
    let dir = TempDir::new().unwrap();
    write(dir.path(), "sub/file", b"content");
    let repository = open(dir.path());
    let toi = toi(&repository, "sub/file");
    fs::rename(dir.path().join("sub"), dir.path().join("moved")).unwrap();
    symlink(outside.path(), dir.path().join("sub")).unwrap();
    let error = repository.content().read_at(toi, 0, &mut [0; 7]).unwrap_err();
    assert!(matches!(fault(error), Fault::Changed));
}

#[test]
fn a_replaced_file_goes_on_from_the_old_version_and_gets_a_new_object() {
    let dir = TempDir::new().unwrap();
    let (old, new) = (pattern(10_000, 1), pattern(9_000, 2));
    write(dir.path(), "item", &old);
    let repository = open(dir.path());
    let old_item = repository.catalog().lookup("item").unwrap();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    sender.symbol(old_item.toi(), 0, 0).unwrap();

    write(dir.path(), "new", &new);
    fs::rename(dir.path().join("new"), dir.path().join("item")).unwrap();
    assert_eq!(sender.transmit(&old_item).unwrap(), old, "before the catalog knows");

    let changes = repository.refresh().unwrap();
    let new_item = repository.catalog().lookup("item").unwrap();
    assert_eq!(changes.replaced, [(old_item.toi(), new_item.toi())]);
    assert!(changes.added.is_empty() && changes.removed.is_empty());
    assert_eq!(sender.transmit(&old_item).unwrap(), old);
    assert_eq!(sender.transmit(&new_item).unwrap(), new);
    assert_eq!(repository.catalog().digest(old_item.toi()).unwrap(), digest_of(&old));
    assert_eq!(repository.catalog().digest(new_item.toi()).unwrap(), digest_of(&new));
    assert_eq!(names(&repository), ["item"], "only the new version is on offer");
}

#[test]
fn a_file_replaced_before_it_was_opened_is_gone_in_the_old_version() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "item", pattern(1_000, 1));
    let repository = open(dir.path());
    let item = repository.catalog().lookup("item").unwrap();
    write(dir.path(), "new", pattern(1_000, 2));
    fs::rename(dir.path().join("new"), dir.path().join("item")).unwrap();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    let reason = sender.transmit(&item).unwrap_err();
    assert_eq!(reason, "item: it changed while it was on offer");
}

#[test]
fn a_file_modified_in_place_is_noticed() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "item", pattern(10_000, 1));
    let repository = open(dir.path());
    let item = repository.catalog().lookup("item").unwrap();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    sender.transmit(&item).unwrap();
    let_the_clock_tick();
    let mut file = OpenOptions::new().write(true).open(dir.path().join("item")).unwrap();
    file.seek(SeekFrom::Start(5_000)).unwrap();
    file.write_all(b"!").unwrap();
    drop(file);
    sender.transmit(&item).unwrap_err();
    let mut buf = [0; 10];
    let error = repository.content().read_at(item.toi(), 0, &mut buf).unwrap_err();
    assert!(matches!(fault(error), Fault::Changed));
    let error = repository.catalog().digest(item.toi()).unwrap_err();
    assert!(matches!(fault(error), Fault::Changed));
    let changes = repository.refresh().unwrap();
    assert_eq!(changes.replaced.len(), 1);
    sender.transmit(&repository.catalog().lookup("item").unwrap()).unwrap();
}

#[test]
fn a_file_cut_short_is_noticed() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "item", pattern(10_000, 1));
    let repository = open(dir.path());
    let item = repository.catalog().lookup("item").unwrap();
    File::options().write(true).open(dir.path().join("item")).unwrap().set_len(9_999).unwrap();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    let reason = sender.transmit(&item).unwrap_err();
    assert_eq!(reason, "item: it changed while it was on offer");
}

#[test]
fn a_removed_file_is_readable_while_it_is_open_and_gone_otherwise() {
    let dir = TempDir::new().unwrap();
    let content = pattern(10_000, 1);
    write(dir.path(), "open", &content);
    write(dir.path(), "closed", &content);
    let repository = open(dir.path());
    let (first, second) = (toi(&repository, "open"), toi(&repository, "closed"));
    repository.content().read_at(first, 0, &mut [0; 1]).unwrap();
    fs::remove_file(dir.path().join("open")).unwrap();
    fs::remove_file(dir.path().join("closed")).unwrap();
    let changes = repository.refresh().unwrap();
    assert_eq!(changes.removed, [second, first]);
    assert!(repository.catalog().is_empty());
    let item = repository.catalog().get(first).expect("it can still be asked for");
    assert_eq!(read(&repository, &item), content);
    let error = repository.content().read_at(second, 0, &mut [0; 1]).unwrap_err();
    assert!(matches!(fault(error), Fault::Vanished));
}

#[test]
fn a_hard_link_or_nothing_at_all_is_no_change() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "sub/a", b"a");
    write(dir.path(), "sub/b", b"b");
    let repository = open(&dir.path().join("sub"));
    let before = toi(&repository, "a");
    assert!(repository.refresh().unwrap().is_empty());
    let_the_clock_tick();
    fs::hard_link(dir.path().join("sub/a"), dir.path().join("backup")).unwrap();
    assert!(repository.refresh().unwrap().is_empty());
    assert_eq!(toi(&repository, "a"), before);
    repository.content().read_at(before, 0, &mut [0; 1]).unwrap();
}

#[test]
fn objects_are_never_used_again() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "a", b"a");
    let repository = open(dir.path());
    let mut seen = vec![toi(&repository, "a")];
    for round in 0..3 {
        fs::remove_file(dir.path().join("a")).unwrap();
        assert_eq!(repository.refresh().unwrap().removed, [seen[round]]);
        write(dir.path(), "a", b"a");
        let added = repository.refresh().unwrap().added;
        assert!(!seen.contains(&added[0]));
        seen.extend(added);
    }
}

#[test]
fn descriptors_in_use_stay_below_the_limit() {
    let dir = TempDir::new().unwrap();
    for i in 0..100 {
        write(dir.path(), &format!("{i}"), [i]);
    }
    let options = RepositoryOptions { open_files: 8, ..support::small_options() };
    let repository = Repository::open(dir.path(), options).unwrap();
    for item in repository.catalog().select(&[], 0, 100).unwrap().items {
        let expected: u8 = item.name().parse().unwrap();
        assert_eq!(read(&repository, &item), [expected]);
    }
    let root = dir.path().canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.starts_with(&root) && *target != root)
        .count();
    assert_eq!(open, 8);
}

#[test]
fn reading_beyond_the_end_or_an_unknown_item_is_an_error() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "a", b"12345");
    let repository = open(dir.path());
    let content = repository.content();
    let a = toi(&repository, "a");
    content.read_at(a, 5, &mut []).unwrap();
    for (offset, len) in [(5, 1), (0, 6), (u64::MAX, 1)] {
        let error = content.read_at(a, offset, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, ReadError::Range { .. }), "{error}");
    }
    let error = content.read_at(Toi(999), 0, &mut [0]).unwrap_err();
    assert!(matches!(error, ReadError::Unknown(Toi(999))), "{error}");
}

#[test]
fn twenty_thousand_small_files_are_scanned() {
    let dir = TempDir::new().unwrap();
    for i in 0..200 {
        let sub = dir.path().join(format!("{i:03}"));
        fs::create_dir(&sub).unwrap();
        for j in 0..100 {
            File::create(sub.join(format!("file {j:02}.txt"))).unwrap();
        }
    }
    let repository = open(dir.path());
    assert_eq!(repository.catalog().len(), 20_000);
    let start = Instant::now();
    assert!(repository.refresh().unwrap().is_empty());
    println!("scanned again in {:?}", start.elapsed());
    assert_eq!(select(&repository, &["007/**"]).len(), 100);
}

#[test]
fn an_object_too_large_for_the_code_is_left_out_and_a_large_one_gets_larger_blocks() {
    let dir = TempDir::new().unwrap();
    let file = File::create(dir.path().join("large")).unwrap();
    file.set_len(65_536 * 2 + 1).unwrap();
    let file = File::create(dir.path().join("too large")).unwrap();
    file.set_len(65_536 * 65_535 + 1).unwrap();
    let options = RepositoryOptions {
        scheme: Scheme::NoCode,
        symbol_len: 1,
        max_block_symbols: 2,
        ..RepositoryOptions::default()
    };
    let repository = Repository::open(dir.path(), options).unwrap();
    assert_eq!(names(&repository), ["large"]);
    assert_eq!(repository.catalog().lookup("large").unwrap().oti().max_block_symbols, 3);
    let expected = SkippedItem { name: "too large".to_owned(), reason: SkipReason::TooLarge };
    assert_eq!(repository.catalog().skipped().named(), [expected]);
}

#[test]
fn the_hashing_thread_learns_all_digests_and_those_of_later_versions() {
    let dir = TempDir::new().unwrap();
    for i in 0..50 {
        write(dir.path(), &format!("{i}"), pattern(3_000, i));
    }
    let repository = open(dir.path());
    repository.start_hashing();
    let wait = |name: &str| {
        let start = Instant::now();
        loop {
            let item = repository.catalog().lookup(name).unwrap();
            if let Some(digest) = item.known_digest() {
                assert_eq!(item.info().digest, digest);
                return digest;
            }
            assert!(start.elapsed() < support::LONG, "no digest of {name}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    for i in 0..50 {
        assert_eq!(wait(&format!("{i}")), digest_of(&pattern(3_000, i)));
    }
    write(dir.path(), "later", b"later");
    repository.refresh().unwrap();
    assert_eq!(wait("later"), digest_of(b"later"));
}

#[test]
fn a_directory_is_asked_for_with_what_is_below_it_and_keeps_its_object() {
    let dir = TempDir::new().unwrap();
    for name in ["a-b", "a/x", "a/sub/y", "b.txt", "c/z"] {
        write(dir.path(), name, b"content");
    }
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    let repository = open(dir.path());
    let below = ["a", "a/sub", "a/sub/y", "a/x"];
    for pattern in ["a", "a/", "./a"] {
        assert_eq!(everything(&repository, &[pattern]), below, "{pattern}");
    }
    assert_eq!(everything(&repository, &["a/**"]), below[1..]);
    assert_eq!(everything(&repository, &["*"]), ["a-b", "b.txt"]);
    let before = repository.catalog().lookup("a").unwrap();
    assert_eq!((before.kind(), before.size()), (&ItemKind::Directory, 0));
    assert_eq!(before.info().mode, Some(0o750));
    assert_eq!(before.info().digest, digest_of(b""));
    assert_eq!(repository.catalog().digests(before.toi()).unwrap(), []);

    // A file that is made in it is another time for the same object.
    let_the_clock_tick();
    write(dir.path(), "a/new", b"content");
    let changes = repository.refresh().unwrap();
    assert_eq!(
        (changes.added.len(), &changes.replaced[..], &changes.removed[..]),
        (1, &[][..], &[][..])
    );
    let after = repository.catalog().lookup("a").unwrap();
    assert_eq!(after.toi(), before.toi());
    assert_ne!(after.modified_ns(), before.modified_ns());
    let known = repository.catalog().get(before.toi()).unwrap();
    assert_eq!(known.modified_ns(), after.modified_ns());
    // A file in its place is another item.
    fs::remove_dir_all(dir.path().join("a")).unwrap();
    write(dir.path(), "a", b"a file now");
    let changes = repository.refresh().unwrap();
    assert_eq!(changes.replaced.len(), 1);
    assert_eq!(names(&repository), ["a", "a-b", "b.txt", "c/z"]);
}

#[test]
fn each_of_several_directories_is_an_item() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("one/empty")).unwrap();
    write(dir.path(), "two/x", b"content");
    write(dir.path(), "file", b"content");
    let paths = ["one", "two", "file"].map(|name| dir.path().join(name));
    let repository = Repository::open_all(&paths, RepositoryOptions::default()).unwrap();
    assert_eq!(everything(&repository, &[]), ["file", "one", "one/empty", "two", "two/x"]);
    assert_eq!(names(&repository), ["file", "two/x"]);
}

#[test]
fn a_followed_link_that_cannot_be_looked_at_is_missed() {
    let dir = TempDir::new().unwrap();
    symlink("x".repeat(300), dir.path().join("long")).unwrap();
    symlink("nowhere", dir.path().join("nowhere-link")).unwrap();
    let options = RepositoryOptions { follow_links: true, ..small_options() };
    let skipped = Repository::open(dir.path(), options).unwrap().catalog().skipped();
    assert_eq!((skipped.total(), skipped.failures()), (2, 1), "{skipped:?}");
}

#[test]
fn the_first_name_of_a_file_is_one_that_clients_do_not_refuse() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), ".a", b"x");
    for name in ["b", "c"] {
        fs::hard_link(dir.path().join(".a"), dir.path().join(name)).unwrap();
    }
    let options = RepositoryOptions { hidden: true, ..small_options() };
    let repository = Repository::open(dir.path(), options).unwrap();
    let kind = |name: &str| repository.catalog().lookup(name).unwrap().kind().clone();
    let other = ItemKind::HardLink("b".to_owned());
    assert_eq!([kind(".a"), kind("b"), kind("c")], [other.clone(), ItemKind::File, other]);
    let digest = |name: &str| {
        let toi = repository.catalog().lookup(name).unwrap().toi();
        repository.catalog().digest(toi).unwrap()
    };
    assert_eq!(digest(".a"), digest_of(b"x"));
}
