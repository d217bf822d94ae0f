//! Two runs, or a run and somebody else, who bring the same to one directory.

use std::os::unix::fs::symlink;
use std::path::Path;

use umbel_store::sink::{Attempt, DiskSink, Held, SinkError, SinkEvent, SinkOptions};
use umbel_wire::Scheme;

use super::sink_support::{Client, Served, StoreBlock};

/// Receives an item but for its last block.
fn begin(client: &mut Client, served: &Served) -> u32 {
    client.add(served);
    let last = served.partition.blocks() - 1;
    for sbn in 0..last {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
        client.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    }
    last
}

fn lock_name(directory: &Path) -> Option<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(|name| name.ends_with(".umbel-part.lock"))
}

#[test]
fn an_item_that_somebody_else_brings_meanwhile_was_there_and_nothing_is_left() {
    for (len, options) in [
        (50_000, SinkOptions::default()),
        (50_000, SinkOptions { durable: false, ..SinkOptions::default() }),
        // One block, which is written at once.
        (1_500, SinkOptions::default()),
    ] {
        let served = Served::new(1, "item", len, Scheme::ReedSolomon);
        let mut client = Client::with(options);
        let last = begin(&mut client, &served);
        std::fs::write(client.path().join("item"), &served.content).unwrap();
        assert!(client.sink.store_block(served.block(last), served.block_bytes(last)));
        let end = client.wait(|event| {
            matches!(event, SinkEvent::ItemAppeared { .. } | SinkEvent::ItemDone { .. })
        });
        assert!(matches!(end, SinkEvent::ItemAppeared { toi } if toi == served.info.toi));
        assert_eq!(client.files(), ["item"]);
    }
}

#[test]
fn an_item_whose_part_another_process_finished_was_there() {
    let served = Served::new(1, "item", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    let last = begin(&mut client, &served);
    std::fs::remove_file(client.path().join(".item.umbel-part")).unwrap();
    std::fs::write(client.path().join("item"), &served.content).unwrap();
    client.sink.store_block(served.block(last), served.block_bytes(last));
    client.wait(|event| matches!(event, SinkEvent::ItemAppeared { .. }));
}

#[test]
fn another_file_that_appears_meanwhile_is_kept_and_so_is_what_was_received() {
    let served = Served::new(1, "item", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    let last = begin(&mut client, &served);
    std::fs::write(client.path().join("item"), vec![0; served.content.len()]).unwrap();
    client.sink.store_block(served.block(last), served.block_bytes(last));
    let end = client.events.iter().find(|event| matches!(event, SinkEvent::ItemFailed { .. }));
    let Some(SinkEvent::ItemFailed { error, .. }) = end else { panic!("no failure") };
    assert!(error.to_string().contains("exists and differs"), "{error}");
    assert!(client.files().contains(&".item.umbel-part".to_owned()), "{:?}", client.files());
}

#[test]
fn what_is_left_of_an_item_that_is_there_is_removed() {
    let served = Served::new(1, "item", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    std::fs::write(client.path().join("item"), &served.content).unwrap();
    for name in [".item.umbel-part", ".item.umbel-part.journal", ".item.umbel-part.compact"] {
        std::fs::write(client.path().join(name), b"left").unwrap();
    }
    assert!(matches!(client.add(&served), Held::AlreadyThere));
    assert_eq!(client.files(), ["item"]);
}

#[test]
fn a_part_that_another_process_writes_is_not_removed() {
    let served = Served::new(1, "item", 50_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    let part = client.path().join(".item.umbel-part");
    let file = std::fs::File::create(part).unwrap();
    file.try_lock().unwrap();
    std::fs::write(client.path().join("item"), &served.content).unwrap();
    assert!(matches!(client.add(&served), Held::AlreadyThere));
    assert_eq!(client.files(), [".item.umbel-part", "item"]);
}

#[test]
fn of_two_runs_the_second_waits_and_reads_what_the_first_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let sink = || DiskSink::open(directory.path(), SinkOptions::default(), |_| ()).unwrap();
    let (one, two) = (sink(), sink());
    let Attempt::Ours(claim) = one.claimant("a").attempt() else { panic!("nobody is there") };
    let mut waiting = two.claimant("a");
    let us = std::process::id();
    assert!(matches!(waiting.attempt(), Attempt::Held { process: Some(id) } if id == us));
    // Another source is no matter.
    let Attempt::Ours(other) = two.claimant("b").attempt() else { panic!("it is another source") };
    drop(other);
    claim.end("all of it");
    assert!(matches!(waiting.attempt(), Attempt::Left(word) if word == "all of it"));
    assert_eq!(lock_name(directory.path()), None);
    // One that ends without a word.
    let Attempt::Ours(claim) = one.claimant("a").attempt() else { panic!("nobody is there") };
    assert!(matches!(waiting.attempt(), Attempt::Held { .. }));
    drop(claim);
    let Attempt::Ours(claim) = waiting.attempt() else { panic!("nobody is there") };
    assert!(lock_name(directory.path()).is_some());
    drop(claim);
    assert_eq!(lock_name(directory.path()), None);
}

#[test]
fn the_lock_of_a_killed_run_serves_the_next_and_none_leads_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let sink = DiskSink::open(directory.path(), SinkOptions::default(), |_| ()).unwrap();
    let Attempt::Ours(claim) = sink.claimant("a").attempt() else { panic!("nobody is there") };
    let lock = directory.path().join(lock_name(directory.path()).unwrap());
    drop(claim);
    std::fs::write(&lock, "4194305\nan old word\n").unwrap();
    assert!(matches!(sink.claimant("a").attempt(), Attempt::Ours(_)));
    assert!(!lock.exists());
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let hard = |lock: &Path| std::fs::hard_link(&victim, lock).unwrap();
    let soft = |lock: &Path| symlink(&victim, lock).unwrap();
    let plants: [&dyn Fn(&Path); 2] = [&hard, &soft];
    for plant in plants {
        plant(&lock);
        // There is no claim then, but the run goes on.
        assert!(matches!(sink.claimant("a").attempt(), Attempt::Ours(_)));
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        std::fs::remove_file(&lock).unwrap();
    }
}

#[test]
fn what_a_run_brought_may_be_replaced_until_a_run_has_everything() {
    let version = |toi| Served::new(toi, "d/item", 3_000 + toi as usize, Scheme::ReedSolomon);
    let receive = |client: &mut Client, served: &Served| {
        let held = client.add_parts(served);
        client.complete(served, &held);
    };
    let mut client = Client::new();
    client.sink.resume("source");
    receive(&mut client, &version(1));
    receive(&mut client, &version(2));
    // The run is killed, and the next one finds another version at the source.
    let mut client = client.restart();
    let refused = client.sink.add(&version(3).info).unwrap_err();
    assert!(matches!(refused, SinkError::Exists { .. }), "without the source: {refused}");
    client.sink.resume("another source");
    assert!(client.sink.add(&version(3).info).is_err());
    client.sink.resume("source");
    receive(&mut client, &version(3));
    // What has another content than the run left is the user's.
    let mut client = client.restart_after(|out| std::fs::write(out.join("d/item"), "my").unwrap());
    client.sink.resume("source");
    assert!(client.sink.add(&version(4).info).is_err());
    std::fs::write(client.path().join("d/item"), version(3).content).unwrap();
    receive(&mut client, &version(4));
    client.sink.complete();
    assert_eq!(client.files(), ["d/item"], "the list is removed");
    let client = client.restart();
    client.sink.resume("source");
    assert!(client.sink.add(&version(5).info).is_err());
    assert!(matches!(client.sink.add(&version(4).info), Ok(Held::AlreadyThere)));
    assert!(client.sink.add(&version(5).info).is_ok(), "it was that of the source in this run");
}

#[test]
fn a_list_that_is_damaged_or_no_file_costs_no_more_than_what_it_says() {
    let served = Served::new(1, "item", 3_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.sink.resume("source");
    let held = client.add_parts(&served);
    client.complete(&served, &held);
    let list = |out: &Path| {
        let mut names = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
        names.find(|path| path.to_string_lossy().ends_with(".umbel-part.list")).unwrap()
    };
    let path = list(client.path());
    let line = std::fs::read(&path).unwrap();
    let mut client = client;
    for text in [&b""[..], b"\xff\xfe\n", b"12 3\n\n \n", &line[..line.len() - 2], &line[9..]] {
        std::fs::write(&path, text).unwrap();
        client = client.restart();
        client.sink.resume("source");
        let other = Served::new(2, "item", 2_000, Scheme::ReedSolomon);
        assert!(client.sink.add(&other.info).is_err());
    }
    // A link to something of the user's is not written to, and what comes is not listed.
    let mine = client.path().join("mine");
    std::fs::write(&mine, "mine").unwrap();
    std::fs::remove_file(&path).unwrap();
    symlink(&mine, &path).unwrap();
    let mut client = client.restart();
    client.sink.resume("source");
    let next = Served::new(3, "next", 2_000, Scheme::ReedSolomon);
    let held = client.add_parts(&next);
    client.complete(&next, &held);
    assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
}
