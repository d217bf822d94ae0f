//! Block devices as sources and targets: loop devices, which are taken away in the end.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use umbel_lab::testing::say_skipped;
use umbel_lab::{Impairment, Lab};

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::process::Process;
use crate::support::{MINUTE, lab, number, skip, star};

const MIB: u64 = 1 << 20;
/// Bytes of the image, and where it has a MiB of data each. All else is zeros.
const SIZE: u64 = 64 * MIB;
const DATA: [u64; 8] = [0, 7, 8, 20, 33, 34, 50, 63];
/// Bytes of the blocks that have some data, about.
const SENT: u64 = 11 * MIB;
/// A URL of a server that is never asked.
const NOBODY: &str = "umbel://127.0.0.1:1/?pin=Ax6leuJ4aCIpsKefqa82TVFCe-xoiqpmS3exl9HcWMk";

/// A file as a block device.
struct Loop {
    path: String,
    file: PathBuf,
}

impl Loop {
    /// Attaches a file of this content.
    fn new(feeds: &Feeds<'_>, name: &str, content: &[u8]) -> Option<Loop> {
        let file = feeds.directory.path().join(name);
        fs::write(&file, content).unwrap();
        Loop::attach(file)
    }

    fn attach(file: PathBuf) -> Option<Loop> {
        // A container may have namespaces for a lab, and no devices.
        if !Path::new("/dev/loop-control").exists() {
            say_skipped("this machine has no loop devices");
            return None;
        }
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let path = match output {
            Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
            other => {
                skip(&format!("there are no loop devices: {other:?}"));
                return None;
            }
        };
        Some(Loop { path: path.trim().to_owned(), file })
    }

    /// Returns what was written to the device and synced.
    fn content(&self) -> Vec<u8> {
        fs::read(&self.file).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// A file system that is mounted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Loop, at: &Path) -> Option<Mounted> {
        fs::create_dir(at).unwrap();
        if !succeeds("mke2fs", &["-q", "-F", &device.path]) {
            skip("no file system can be made");
            return None;
        }
        Mounted::mount(&[&device.path], at)
    }

    /// Mounts a file system in memory that has room for so many MiB.
    fn small(at: &Path, mib: u64) -> Option<Mounted> {
        fs::create_dir(at).unwrap();
        Mounted::mount(&["-t", "tmpfs", "-o", &format!("size={mib}M"), "none"], at)
    }

    fn mount(arguments: &[&str], at: &Path) -> Option<Mounted> {
        if !succeeds("mount", &[arguments, &[at.to_str().unwrap()]].concat()) {
            skip("no file system can be mounted");
            return None;
        }
        Some(Mounted(at.to_owned()))
    }

    fn resize(&self, mib: u64) {
        let options = format!("remount,size={mib}M");
        assert!(succeeds("mount", &["-o", &options, self.0.to_str().unwrap()]));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// Returns the image.
fn image() -> Vec<u8> {
    let mut image = vec![0; SIZE as usize];
    for (number, place) in DATA.into_iter().enumerate() {
        let place = &mut image[(place * MIB) as usize..][..MIB as usize];
        blake3::Hasher::new().update(&number.to_be_bytes()).finalize_xof().fill(place);
    }
    image
}

/// Returns a device with the image, and one with old data that is a little larger.
fn devices(feeds: &Feeds<'_>) -> Option<(Loop, Loop)> {
    let source = Loop::new(feeds, "source.img", &image())?;
    let target = Loop::new(feeds, "target.img", &vec![0xff; (SIZE + MIB) as usize])?;
    Some((source, target))
}

#[track_caller]
fn assert_written(target: &Loop) {
    let content = target.content();
    let (item, rest) = content.split_at(SIZE as usize);
    let differs = item.iter().zip(image()).position(|(is, should)| *is != should);
    assert_eq!(differs, None, "the first byte that differs");
    assert!(rest.iter().all(|byte| *byte == 0xff), "something was written behind the item");
}

/// Returns a network of a sender and a receiver, whose link loses some.
fn network() -> Option<Lab> {
    lab(&star(1, Impairment::none().loss(0.01)))
}

fn serve(feeds: &Feeds<'_>, device: &Loop, options: &[&str]) -> (Process, String) {
    let mut command = feeds.umbel("h1");
    command.args(["serve", "--json", &device.path]).args(options);
    let process = Process::start("server", command, &feeds.logs);
    let serving = process.wait_for_event("serving", SOON);
    assert_eq!(serving["items"], 1, "{serving}");
    (process, serving["url"].as_str().unwrap().to_owned())
}

fn get(feeds: &Feeds<'_>, url: &str, target: &Loop) -> Process {
    let mut command = feeds.umbel("h2");
    command.args(["get", "--json", url, "--device", &target.path]);
    Process::start("client", command, &feeds.logs)
}

/// Returns whether a process has said this in a note.
fn says(process: &Process, words: &str) -> bool {
    let notes = process.events("note");
    notes.iter().any(|note| note["message"].as_str().is_some_and(|line| line.contains(words)))
}

/// Waits until half of the data is there, and kills the process.
#[track_caller]
fn kill_half_way(process: &mut Process) {
    let half = SIZE - DATA.len() as u64 * MIB / 2;
    let is_half =
        |event: &Value| event["progress"]["bytes_done"].as_u64().is_some_and(|done| done >= half);
    process.wait_for("half of it", SOON, is_half);
    process.kill();
}

#[test]
fn a_device_is_written_to_another_and_zeros_are_not_sent() {
    let Some(lab) = network() else { return };
    let feeds = Feeds::new(&lab, &[]);
    let Some((source, target)) = devices(&feeds) else { return };
    let (mut server, url) = serve(&feeds, &source, &[]);
    let mut client = get(&feeds, &url, &target);
    let summary = client.wait_done(MINUTE);
    assert_eq!((number(&summary, "items"), number(&summary, "resumed_bytes")), (1, 0));
    assert_written(&target);
    assert!(says(&client, "were read back from the device"));
    let sent = number(&server.stop()["report"], "bytes");
    assert!(sent < SENT * 3 / 2, "{sent} bytes were sent");
}

#[test]
fn a_client_that_was_killed_goes_on_and_one_that_has_all_writes_nothing() {
    let Some(lab) = network() else { return };
    let feeds = Feeds::new(&lab, &[]);
    let Some((source, target)) = devices(&feeds) else { return };
    let (mut server, url) = serve(&feeds, &source, &["--rate", "20M"]);
    kill_half_way(&mut get(&feeds, &url, &target));
    let summary = get(&feeds, &url, &target).wait_done(MINUTE);
    assert_written(&target);
    let resumed = number(&summary, "resumed_bytes");
    assert!(resumed >= 2 * MIB, "{summary}");
    let again = get(&feeds, &url, &target).wait_done(MINUTE);
    assert_eq!((number(&again, "items"), number(&again, "already_there")), (0, 1), "{again}");
    // A later version: what differs comes, and nothing else.
    server.stop();
    let file = fs::File::options().write(true).open(&source.path).unwrap();
    file.write_all_at(&[7; 4096], 10 * MIB).unwrap();
    file.sync_all().unwrap();
    let (mut server, url) = serve(&feeds, &source, &[]);
    let update = get(&feeds, &url, &target).wait_done(MINUTE);
    assert_eq!(number(&update, "items"), 1, "{update}");
    assert!(target.content()[..SIZE as usize] == source.content()[..]);
    let sent = number(&server.stop()["report"], "bytes");
    assert!(sent < 2 * MIB, "{sent} bytes were sent for a page that changed");
}

#[test]
fn a_feed_of_a_device_is_written_to_another() {
    let Some(lab) = network() else { return };
    let feeds = Feeds::new(&lab, &[]);
    let Some((source, target)) = devices(&feeds) else { return };
    let mut command = feeds.umbel("h1");
    command.args(["send", "--json", "--name", "feed", &source.path, "--rate", "20M"]);
    let sender = Process::start("sender", command, &feeds.logs);
    feeds.route(&sender.wait_for_event("sending", SOON));
    let recv = || {
        let mut command = feeds.umbel("h2");
        command.args(["recv", "--json", "feed", "--wait", "20s", "--device", &target.path]);
        Process::start("receiver", command, &feeds.logs)
    };
    kill_half_way(&mut recv());
    let mut receiver = recv();
    let summary = receiver.wait_done(MINUTE);
    assert!(number(&summary, "resumed_bytes") >= 2 * MIB, "{summary}");
    assert_written(&target);
    assert!(says(&receiver, "were read back from the device"));
}

#[test]
fn a_device_that_is_mounted_or_too_small_is_refused() {
    let Some(lab) = network() else { return };
    let feeds = Feeds::new(&lab, &[]);
    let Some((source, target)) = devices(&feeds) else { return };
    let Some(small) = Loop::new(&feeds, "small.img", &vec![0xff; MIB as usize]) else { return };
    let (mut server, url) = serve(&feeds, &source, &[]);
    let mut client = get(&feeds, &url, &small);
    assert_eq!(client.wait_end(MINUTE).code(), Some(1));
    let said = client.stderr();
    assert!(said.contains("too small") && said.contains("1048576"), "{said}");
    assert!(said.contains("67108864"), "{said}");
    assert!(small.content().iter().all(|byte| *byte == 0xff));
    server.stop();

    let at = feeds.directory.path().join("mounted");
    let Some(_mounted) = Mounted::new(&target, &at) else { return };
    for command in [vec!["get", NOBODY], vec!["recv", "feed"]] {
        let mut umbel = feeds.umbel("h2");
        let output = umbel.args(&command).args(["--device", &target.path]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("is mounted at") && said.contains("--force"), "{said}");
        assert!(said.contains(at.to_str().unwrap()), "{said}");
    }
    let (server, _) = serve(&feeds, &target, &[]);
    assert!(says(&server, "may change while it is read"));
}

#[test]
fn a_device_that_fails_is_told_and_gone_on_with_when_it_works() {
    let Some(lab) = network() else { return };
    let feeds = Feeds::new(&lab, &[]);
    let Some(source) = Loop::new(&feeds, "source.img", &image()) else { return };
    // A device larger than what is below it: writing fails in the middle.
    let Some(below) = Mounted::small(&feeds.directory.path().join("below"), 4) else { return };
    let file = below.0.join("target.img");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let Some(target) = Loop::attach(file) else { return };
    let (_server, url) = serve(&feeds, &source, &[]);
    let mut client = get(&feeds, &url, &target);
    assert_eq!(client.wait_end(MINUTE).code(), Some(1));
    let said = client.stderr();
    assert!(said.contains(&format!("{} fails", target.path)), "{said}");
    below.resize(2 * SIZE / MIB);
    let summary = get(&feeds, &url, &target).wait_done(MINUTE);
    assert!(target.content() == image());
    // What the system had in memory is not what the device has.
    assert!(number(&summary, "resumed_bytes") < 5 * MIB, "{summary}");
}
