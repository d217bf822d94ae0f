//! Feeds of a pipe whose ends do what pipes' ends do: a reader that quits, a writer that has
//! nothing or pauses.

use std::fs::File;
use std::io::Write as _;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::{MB, files, lab, star};

/// Waits for the end of a shell. Returns its exit code and what it has said.
fn end(shell: Child) -> (Option<i32>, String) {
    let output = shell.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Waits until a file has this number of bytes.
#[track_caller]
fn wait_for_length(feeds: &Feeds<'_>, name: &str, length: u64) {
    let path = feeds.directory.path().join(name);
    let until = Instant::now() + SOON;
    while std::fs::metadata(&path).map_or(0, |data| data.len()) < length {
        assert!(Instant::now() < until, "{name} never has {length} bytes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(feeds: &Feeds<'_>, name: &str) -> Vec<u8> {
    std::fs::read(feeds.directory.path().join(name)).unwrap()
}

#[test]
fn a_reader_that_quits_is_an_error_at_both_ends_and_others_get_everything() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[]);
    files::make(feeds.directory.path(), &[("sent", 6 * MB)]);
    let sender =
        feeds.shell("h1", "exec \"$UMBEL\" send - --name feed --rate 20M --wait-for 2 <sent");
    let recv = "\"$UMBEL\" recv feed --wait 20s -o - --as";
    let quits = feeds.shell("h2", &format!("{recv} h2 | head -c 1000 >quit"));
    let whole = feeds.shell("h3", &format!("{recv} h3 >whole"));
    let (code, said) = end(whole);
    assert_eq!(code, Some(0), "{said}");
    assert!(read(&feeds, "whole") == read(&feeds, "sent"), "what arrived is not what was sent");
    let (code, said) = end(quits);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("umbel: "), "{said}");
    assert_eq!(read(&feeds, "quit").len(), 1000);
    let (code, said) = end(sender);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.lines().any(|line| line.starts_with("umbel: ") && line.contains("h2")), "{said}");
}

#[test]
fn an_empty_pipe_arrives_empty() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[]);
    let sender = feeds.shell("h1", "exec \"$UMBEL\" send - --name feed --wait-for 2 </dev/null");
    let receivers = ["h2", "h3"].map(|host| {
        (host, feeds.shell(host, &format!("\"$UMBEL\" recv feed --wait 20s -o - >{host}")))
    });
    for (host, receiver) in receivers {
        let (code, said) = end(receiver);
        assert_eq!(code, Some(0), "{said}");
        assert!(read(&feeds, host).is_empty());
    }
    let (code, said) = end(sender);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_writer_that_pauses_loses_no_receiver_and_no_byte() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.01))) else { return };
    let feeds = Feeds::new(&lab, &[]);
    files::make(feeds.directory.path(), &[("sent", 3 * MB)]);
    let path = feeds.directory.path().join("pipe");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let sender =
        feeds.shell("h1", "exec \"$UMBEL\" send - --name feed --rate 40M --wait-for 2 <pipe");
    let receivers = ["h2", "h3"].map(|host| {
        (host, feeds.shell(host, &format!("\"$UMBEL\" recv feed --wait 20s -o - >{host}")))
    });
    let sent = read(&feeds, "sent");
    let (before, after) = sent.split_at(sent.len() / 3);
    let mut pipe = File::options().write(true).open(path).unwrap();
    pipe.write_all(before).unwrap();
    for host in ["h2", "h3"] {
        wait_for_length(&feeds, host, before.len() as u64);
    }
    // Longer than anybody waits for a sign of life.
    std::thread::sleep(Duration::from_secs(12));
    pipe.write_all(after).unwrap();
    drop(pipe);
    for (host, receiver) in receivers {
        let (code, said) = end(receiver);
        assert_eq!(code, Some(0), "{said}");
        assert!(read(&feeds, host) == sent, "what {host} got is not what was sent");
    }
    let (code, said) = end(sender);
    assert_eq!(code, Some(0), "{said}");
}
