//! An item that cannot be kept is refused with one clear line. Nothing is written outside the
//! directory, and other items continue.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::sink_support::{Client, Random, Served, StoreBlock};
use proptest::prelude::*;
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::{Held, SinkError, SinkEvent, SinkOptions};
use umbel_wire::{Digest, Scheme};

fn item(toi: u32, name: &str) -> Served {
    Served::new(toi, name, 3_000, Scheme::ReedSolomon)
}

/// Receives an item completely.
fn receive(client: &mut Client, served: &Served) {
    let held = client.add_parts(served);
    client.complete(served, &held);
}

fn refused(client: &mut Client, served: &Served) -> SinkError {
    client.sink.add(&served.info).expect_err("refused")
}

#[test]
fn what_stands_in_the_way_is_named_and_other_items_go_on() {
    let mut client = Client::new();
    std::fs::write(client.path().join("file"), "mine").unwrap();
    std::fs::create_dir_all(client.path().join("directory/x")).unwrap();
    let error = refused(&mut client, &item(1, "file/below"));
    assert!(matches!(error, SinkError::NotDirectory { .. }), "{error}");
    let error = refused(&mut client, &item(2, "directory"));
    assert!(matches!(error, SinkError::IsDirectory { .. }), "{error}");
    assert!(error.to_string().ends_with("/directory is a directory"), "{error}");
    receive(&mut client, &item(3, "directory/ok"));
    assert_eq!(std::fs::read(client.path().join("file")).unwrap(), b"mine");
}

#[test]
fn a_directory_that_appears_later_fails_only_its_item() {
    let mut client = Client::new();
    let served = item(1, "a");
    client.add(&served);
    std::fs::create_dir(client.path().join("a")).unwrap();
    for sbn in 0..served.partition.blocks() {
        client.sink.store_block(served.block(sbn), served.block_bytes(sbn));
    }
    let event = client.events.iter().find(|event| matches!(event, SinkEvent::ItemFailed { .. }));
    let Some(SinkEvent::ItemFailed { toi, error }) = event else { panic!("no failure") };
    assert_eq!(toi, served.info.toi);
    assert!(matches!(error, SinkError::IsDirectory { .. }), "{error}");
    assert!(!client.sink.store(served.block(0), 0, &served.symbol(0, 0)), "no more is taken");
    receive(&mut client, &item(2, "b"));
}

#[test]
fn items_without_sense_are_refused() {
    let mut client = Client::new();
    let mut served = item(1, "a");
    served.info.digest = Digest([0; 32]);
    assert!(matches!(refused(&mut client, &served), SinkError::NoDigest { .. }));
    let mut served = item(1, "a");
    served.info.oti.symbol_len = 0;
    assert!(matches!(refused(&mut client, &served), SinkError::Oti { .. }));
    let mut served = item(1, "a");
    served.info.oti.object_len = u64::from(u16::MAX) * 50_000;
    served.info.oti.scheme = Scheme::RaptorQ;
    served.info.oti.symbol_len = u16::MAX;
    served.info.oti.max_block_symbols = 50_000;
    assert!(matches!(refused(&mut client, &served), SinkError::BlockTooLong { .. }));
    receive(&mut client, &item(1, "a"));
}

#[test]
fn symbols_that_do_not_fit_are_not_taken() {
    let mut client = Client::new();
    let served = item(1, "a");
    client.add(&served);
    let block = served.block(0);
    let symbol = served.symbol(0, 0);
    assert!(!client.sink.store(block, 0, &symbol[1..]));
    assert!(!client.sink.store(block, 20, &symbol[1..]));
    assert!(!client.sink.store(block, 60, &symbol), "only 60 symbols in a block");
    assert!(!client.sink.store(served.block(2), 0, &symbol), "only two blocks");
    assert!(!client.sink.store(item(2, "b").block(0), 0, &symbol), "never added");
    assert!(client.sink.store(block, 0, &symbol));
}

#[test]
fn a_file_that_differs_is_replaced_only_if_the_user_says_so() {
    let outside = tempfile::tempdir().unwrap();
    let mut client = Client::new();
    let (here, path) = (item(1, "here"), client.path().to_owned());
    for (name, content) in [("here", here.content.clone()), ("d/a", b"mine".to_vec())] {
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), content).unwrap();
    }
    std::fs::write(path.join("long"), vec![0; 3_000]).unwrap();
    symlink(outside.path(), path.join("link")).unwrap();
    assert!(matches!(client.add(&here), Held::AlreadyThere));
    let others = [item(2, "d/a"), item(3, "long"), item(4, "link")];
    for served in &others {
        let error = refused(&mut client, served);
        assert!(matches!(error, SinkError::Exists { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(&served.info.name) && said.contains("--overwrite"), "{said}");
    }
    assert_eq!(std::fs::read(path.join("d/a")).unwrap(), b"mine");
    assert_eq!(client.files(), ["d/a", "here", "long"], "nothing else was left");
    assert!(path.join("link").is_symlink());

    // A file that appears while the item comes is kept as well, and the item can go on later.
    let late = item(5, "late");
    client.add(&late);
    std::fs::write(path.join("late"), "mine").unwrap();
    for sbn in 0..late.partition.blocks() {
        client.sink.store_block(late.block(sbn), late.block_bytes(sbn));
    }
    let event = client.events.iter().find(|event| matches!(event, SinkEvent::ItemFailed { .. }));
    let Some(SinkEvent::ItemFailed { error, .. }) = event else { panic!("no failure") };
    assert!(matches!(error, SinkError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(path.join("late")).unwrap(), b"mine");

    let overwrite = SinkOptions { overwrite: true, ..SinkOptions::default() };
    let mut client = Client::at_path(&path, overwrite);
    assert!(matches!(client.add(&here), Held::AlreadyThere));
    for served in &others {
        receive(&mut client, served);
    }
    let held = client.add_parts(&late);
    assert_eq!(held.restored_bytes(), 3_000, "what came before is not fetched again");
    client.wait_done(&late);
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
}

#[test]
fn hidden_files_of_the_directory_are_written_only_if_the_user_says_so() {
    let mut client = Client::new();
    for (toi, name) in [(1, ".bashrc"), (2, ".ssh/authorized_keys"), (3, "http://.x/y")] {
        let error = refused(&mut client, &item(toi, name));
        assert!(matches!(error, SinkError::Hidden { .. }), "{error}");
        assert!(error.to_string().contains("--hidden"), "{error}");
    }
    receive(&mut client, &item(4, "d/.e/.f"));
    assert_eq!(client.files(), ["d/.e/.f"]);
    let mut client = Client::with(SinkOptions { hidden: true, ..SinkOptions::default() });
    receive(&mut client, &item(1, ".bashrc"));
    receive(&mut client, &item(2, ".ssh/authorized_keys"));
    assert_eq!(client.files(), [".bashrc", ".ssh/authorized_keys"]);
}

#[test]
fn symbolic_links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), "untouched").unwrap();
    let mut client = Client::with(SinkOptions { overwrite: true, ..SinkOptions::default() });
    symlink(outside.path(), client.path().join("link")).unwrap();
    for (toi, name) in [(1, "link/x"), (2, "link/deeper/x")] {
        let error = refused(&mut client, &item(toi, name));
        assert!(matches!(error, SinkError::NotDirectory { .. }), "{error}");
    }
    // Links at the paths of the target, the part file and the journal.
    let victim = outside.path().join("victim");
    symlink(&victim, client.path().join("target")).unwrap();
    symlink(&victim, client.path().join(".part.umbel-part")).unwrap();
    symlink(&victim, client.path().join(".journal.umbel-part.journal")).unwrap();
    receive(&mut client, &item(3, "target"));
    receive(&mut client, &item(4, "part"));
    let served = item(5, "journal");
    client.add(&served);
    assert!(client.sink.store_block(served.block(0), served.block_bytes(0)));
    client.sink.cancel(served.info.toi);
    // A link that replaces the part file later.
    let served = item(6, "later");
    client.add(&served);
    symlink(&victim, client.path().join(".later.umbel-part")).unwrap();
    assert!(client.sink.store_block(served.block(0), served.block_bytes(0)));
    let event = client.events.iter().find(|event| matches!(event, SinkEvent::ItemFailed { .. }));
    assert!(event.is_some());
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
    assert!(outside.path().read_dir().unwrap().count() == 1, "nothing was made outside");
    assert!(client.path().join("target").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_part_file_or_journal_that_has_another_name_is_not_written_to() {
    let outside = tempfile::tempdir().unwrap();
    let mut client = Client::new();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, b"untouched").unwrap();
    for name in [".part.umbel-part", ".journal.umbel-part.journal"] {
        std::fs::hard_link(&victim, client.path().join(name)).unwrap();
    }
    let error = refused(&mut client, &item(1, "part"));
    assert!(matches!(error, SinkError::Linked { .. }), "{error}");
    let served = item(2, "journal");
    client.add(&served);
    assert!(client.sink.store_block(served.block(0), served.block_bytes(0)));
    client.sink.cancel(served.info.toi);
    drop(client);
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
}

#[test]
fn a_directory_swapped_for_a_link_while_receiving_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let mut client = Client::new();
    let served = item(1, "d/a");
    client.add(&served);
    let root = client.path().to_owned();
    symlink(outside.path(), root.join("d")).unwrap();
    for sbn in 0..served.partition.blocks() {
        client.sink.store_block(served.block(sbn), served.block_bytes(sbn));
    }
    let event = client.events.iter().find(|event| matches!(event, SinkEvent::ItemFailed { .. }));
    assert!(event.is_some());
    assert_eq!(outside.path().read_dir().unwrap().count(), 0);
}

#[test]
fn names_that_differ_in_case_collide_only_where_they_must() {
    let mut client = Client::new();
    receive(&mut client, &item(1, "Name"));
    receive(&mut client, &item(2, "name"));
    assert_eq!(client.files(), ["Name", "name"]);
    let options = SinkOptions { folds_case: Some(true), ..SinkOptions::default() };
    let mut client = Client::with(options);
    receive(&mut client, &item(1, "Name"));
    let error = refused(&mut client, &item(2, "name"));
    assert!(error.to_string().contains("\"Name\""), "{error}");
    receive(&mut client, &item(3, "other"));
    assert_eq!(client.files(), ["Name", "other"]);
}

#[test]
fn two_clients_do_not_write_to_the_same_item() {
    let mut one = Client::new();
    let served = item(1, "a");
    let held = one.add_parts(&served);
    assert!(one.sink.store_block(served.block(0), served.block_bytes(0)));
    one.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    let mut other = Client::at_path(one.path(), SinkOptions::default());
    let error = refused(&mut other, &served);
    assert!(matches!(error, SinkError::InUse { .. }), "{error}");
    receive(&mut other, &item(2, "b"));
    one.complete(&served, &held);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_ever_written_outside_of_the_directory(
        names in prop::collection::vec(
            r"(/|http://|umbel://)?((\.\.|\.|a|A|C:|con|x{250}|\x00|é|[ -~]{1,3})?[/\\]){0,4}[.a-c]{0,3}",
            1..8,
        )
    ) {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("1/2/3/4/5/out");
        std::fs::create_dir_all(&inner).unwrap();
        let mut client = Client::at_path(&inner, SinkOptions::default());
        for (toi, name) in names.iter().enumerate() {
            let served = Served::new(toi as u32, name, 150, Scheme::ReedSolomon);
            if client.sink.add(&served.info).is_ok() {
                assert!(client.sink.store_block(served.block(0), served.block_bytes(0)));
            }
        }
        client.sink.close();
        let mut directory = inner.as_path();
        while directory != outer.path() {
            let parent = directory.parent().unwrap();
            prop_assert_eq!(parent.read_dir().unwrap().count(), 1, "{:?}", names);
            directory = parent;
        }
    }
}

/// Runs one of the tests below in its own namespaces, after the commands of `script`. Returns
/// `false` if this system does not permit namespaces.
fn run_in_namespaces(test: &str, script: &str) -> bool {
    let permitted = Command::new("unshare").args(["-Urm", "true"]).output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED {test}: no user namespaces here");
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-e", "-c"])
        .arg(format!("{script}\nexec \"$EXE\" --exact {test} --ignored --nocapture"))
        .env("EXE", std::env::current_exe().unwrap())
        .env("DIRECTORY", directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    true
}

#[test]
fn a_full_disk_fails_what_does_not_fit() {
    run_in_namespaces(
        "sink_refusals::in_namespaces::full_disk",
        "mount -t tmpfs -o size=1m none \"$DIRECTORY\"",
    );
}

#[test]
fn a_read_only_directory_fails_what_goes_there() {
    run_in_namespaces(
        "sink_refusals::in_namespaces::read_only_directory",
        "mkdir \"$DIRECTORY/ro\"; mount -t tmpfs -o ro none \"$DIRECTORY/ro\"",
    );
}

mod in_namespaces {
    use super::*;

    fn client(options: SinkOptions) -> Client {
        let directory = std::env::var("DIRECTORY").unwrap();
        Client::at_path(Path::new(&directory), options)
    }

    #[test]
    #[ignore = "run by the test above"]
    fn full_disk() {
        // An item that cannot fit is refused at once.
        let checkpoint_interval = Duration::from_millis(5);
        let mut one = client(SinkOptions { checkpoint_interval, ..SinkOptions::default() });
        let large = Served::new(1, "large", 2 << 20, Scheme::ReedSolomon);
        let error = refused(&mut one, &large);
        assert!(matches!(error, SinkError::NoSpace { needed, .. } if needed == 2 << 20), "{error}");
        let halves = [2, 3]
            .map(|toi| Served::new(toi, &format!("half {toi}"), 600 << 10, Scheme::ReedSolomon));
        one.add(&halves[0]);
        let error = refused(&mut one, &halves[1]);
        assert!(matches!(error, SinkError::NoSpace { .. }), "room is set aside: {error}");
        receive(&mut one, &item(4, "small"));

        // Another program fills the disk while an item is being received.
        let fill = one.path().join("fill");
        let mut kept = 0;
        let error = loop {
            if kept == 100 {
                std::thread::sleep(10 * checkpoint_interval);
                let full = std::fs::write(&fill, vec![1; 1 << 20]).expect_err("full");
                assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
            }
            assert!(one.sink.store_block(halves[0].block(kept), halves[0].block_bytes(kept)));
            match one.wait_any() {
                SinkEvent::BlockRestored { .. } => kept += 1,
                SinkEvent::ItemFailed { error, .. } => break error,
                _ => {}
            }
        };
        let line = error.to_string();
        assert!(line.starts_with("cannot write ") && line.contains("No space left"), "{line}");
        assert!(!line.contains('\n'));
        // With room again, the item continues.
        std::fs::remove_file(fill).unwrap();
        let held = one.add_parts(&halves[0]);
        assert!(held.restored_blocks() >= kept && kept >= 100, "{kept}");
        one.complete(&halves[0], &held);
        // Nothing is left over, and "half 3" was never received.
        assert_eq!(one.files(), ["half 2", "small"]);
    }

    #[test]
    #[ignore = "run by the test above"]
    fn read_only_directory() {
        let mut one = client(SinkOptions::default());
        let mut random = Random(5);
        let served = [item(1, "ro/a"), item(2, "ok/a"), item(3, "ro/b/c"), item(4, "ok/b")];
        for served in &served {
            one.add(served);
            for sbn in 0..served.partition.blocks() {
                one.sink.store_block(served.block(sbn), served.block_bytes(sbn));
            }
            std::thread::sleep(Duration::from_millis(random.below(3)));
        }
        let mut ends = std::collections::BTreeMap::new();
        while ends.len() < 4 {
            match one.wait_any() {
                SinkEvent::ItemDone { toi, .. } => drop(ends.insert(toi.0, String::new())),
                SinkEvent::ItemFailed { toi, error } => drop(ends.insert(toi.0, error.to_string())),
                _ => {}
            }
        }
        assert!(ends[&1].starts_with("cannot open ") && ends[&1].contains("Read-only"), "{ends:?}");
        assert!(ends[&3].contains("Read-only"), "{ends:?}");
        assert_eq!((ends[&2].as_str(), ends[&4].as_str()), ("", ""));
        assert_eq!(one.files(), ["ok/a", "ok/b"]);
    }
}
