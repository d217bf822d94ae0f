//! A feed and its receivers in a lab.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use umbel_lab::{Lab, Node};

use super::bench::SOON;
use super::files::{self, Plan};
use super::group;
use super::process::{Logs, Process};

/// Groups where feeds of local scope are announced and asked for, of either family.
const DIRECTORIES: [&str; 2] = ["239.255.255.255", "ff05::2:7ffe"];

/// A lab with files to send, and a directory for each receiver.
pub(crate) struct Feeds<'lab> {
    pub(crate) lab: &'lab Lab,
    pub(crate) logs: Logs,
    pub(crate) directory: TempDir,
}

impl<'lab> Feeds<'lab> {
    /// Creates feeds with the files of a plan to send. Announcements and queries reach all hosts.
    pub(crate) fn new(lab: &'lab Lab, plan: &Plan<'_>) -> Feeds<'lab> {
        let directories = DIRECTORIES.map(|group| group.parse().unwrap());
        lab.route_multicast_from_all(directories).unwrap();
        Feeds::unannounced(lab, plan)
    }

    /// Creates feeds whose announcements pass no router.
    pub(crate) fn unannounced(lab: &'lab Lab, plan: &Plan<'_>) -> Feeds<'lab> {
        let feeds = Feeds { lab, logs: Logs::default(), directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(feeds.input()).unwrap();
        files::make(&feeds.input(), plan);
        feeds
    }

    /// Returns the directory that is sent.
    pub(crate) fn input(&self) -> PathBuf {
        self.directory.path().join("in")
    }

    /// Returns the directory for files of the receiver of this label.
    pub(crate) fn out(&self, label: &str) -> PathBuf {
        self.directory.path().join("out").join(label)
    }

    pub(crate) fn host(&self, name: &str) -> Node<'lab> {
        self.lab.host(name).unwrap()
    }

    /// Returns the command `umbel` on a host.
    pub(crate) fn umbel(&self, host: &str) -> Command {
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.env("XDG_STATE_HOME", self.state());
        command
    }

    /// Returns the directory below which keys are kept, of all hosts.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Sends the files from `h1` as `feed`, and makes the routers carry its groups.
    #[track_caller]
    pub(crate) fn send(&self, options: &[&str]) -> Process {
        let (process, sending) = self.send_unrouted(options);
        self.route(&sending);
        process
    }

    /// Sends as [`Feeds::send`] does, and leaves routing to others. Returns the event `sending`,
    /// too.
    #[track_caller]
    pub(crate) fn send_unrouted(&self, options: &[&str]) -> (Process, Value) {
        let mut command = self.umbel("h1");
        command.args(["send", "--json", "--name", "feed"]).arg(self.input()).args(options);
        let process = Process::start("sender", command, &self.logs);
        let sending = process.wait_for_event("sending", SOON);
        (process, sending)
    }

    /// Makes the routers carry the groups of a feed that `h1` sends.
    pub(crate) fn route(&self, sending: &Value) {
        self.lab.route_multicast("h1", group(&sending["data"])).unwrap();
        self.lab.route_multicast_from_all([group(&sending["domain"])]).unwrap();
    }

    /// Receives `feed` on a host.
    pub(crate) fn recv(&self, host: &str, options: &[&str]) -> Receiver {
        self.recv_as(host, host, options)
    }

    /// Receives as [`Feeds::recv`] does, to the directory and under the name of a label.
    pub(crate) fn recv_as(&self, host: &str, label: &str, options: &[&str]) -> Receiver {
        self.start_receiver((host, label), "feed", options)
    }

    /// Receives `feed` on a host where no announcement comes. The event `sending` has its source.
    pub(crate) fn recv_from(&self, host: &str, sending: &Value, options: &[&str]) -> Receiver {
        let (address, _) = sending["source"].as_str().unwrap().rsplit_once(':').unwrap();
        self.start_receiver((host, host), &format!("feed@{address}"), options)
    }

    fn start_receiver(
        &self,
        (host, label): (&str, &str),
        feed: &str,
        options: &[&str],
    ) -> Receiver {
        let out = self.out(label);
        let mut command = self.umbel(host);
        command.args(["recv", "--json", feed, "--as", label, "--wait", "20s"]).args(options);
        command.arg("-o").arg(&out);
        Receiver { process: Process::start(label, command, &self.logs), out }
    }

    /// Waits for a receiver and checks that it has exactly what is sent.
    #[track_caller]
    pub(crate) fn check(&self, receiver: &mut Receiver, timeout: Duration) -> Value {
        let summary = receiver.process.wait_done(timeout);
        files::assert_same(&self.input(), &receiver.out, |_| true);
        summary
    }

    /// Runs a line of shell commands on a host, with `$UMBEL` and this directory, and keeps its
    /// output.
    pub(crate) fn shell(&self, host: &str, line: &str) -> Child {
        let mut command = self.host(host).command("bash");
        command.args(["-o", "pipefail", "-c", line]).current_dir(self.directory.path());
        command.env("UMBEL", env!("CARGO_BIN_EXE_umbel")).env("XDG_STATE_HOME", self.state());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// A running receiver.
pub(crate) struct Receiver {
    pub(crate) process: Process,
    pub(crate) out: PathBuf,
}

/// Returns the file of a host's key.
pub(crate) fn key(feeds: &Feeds<'_>, host: &str) -> String {
    feeds.directory.path().join(format!("{host}.key")).to_str().unwrap().to_owned()
}

/// Writes the list of these hosts. Returns its file.
pub(crate) fn list(feeds: &Feeds<'_>, hosts: &[&str]) -> String {
    let path = feeds.directory.path().join("list");
    let mut text = String::new();
    for host in hosts {
        let mut command = feeds.umbel(host);
        command.args(["key", "--as", host, "--key", &key(feeds, host)]);
        text += &String::from_utf8(command.output().unwrap().stdout).unwrap();
    }
    assert_eq!(text.lines().count(), hosts.len(), "{text}");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
