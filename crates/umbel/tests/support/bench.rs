//! A server and its clients in a lab.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use umbel_lab::{Lab, Node};

use super::files::{self, Plan};
use super::process::{Logs, Process};

/// The patterns of a client that wants all.
pub(crate) const EVERYTHING: &[&str] = &[];

/// Timeout for short operations on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// A lab with directories: one to serve, one for the server's key, one for each client.
pub(crate) struct Bench<'lab> {
    pub(crate) lab: &'lab Lab,
    pub(crate) logs: Logs,
    directory: TempDir,
}

impl<'lab> Bench<'lab> {
    /// Creates a bench with the files of a plan to serve.
    pub(crate) fn new(lab: &'lab Lab, plan: &Plan<'_>) -> Bench<'lab> {
        let bench = Bench { lab, logs: Logs::default(), directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bench.repo()).unwrap();
        files::make(&bench.repo(), plan);
        bench
    }

    /// Returns the directory that is served.
    pub(crate) fn repo(&self) -> PathBuf {
        self.directory.path().join("repo")
    }

    /// Returns the directory for items of the client of this label.
    pub(crate) fn out(&self, label: &str) -> PathBuf {
        self.directory.path().join("out").join(label)
    }

    pub(crate) fn host(&self, name: &str) -> Node<'lab> {
        self.lab.host(name).unwrap()
    }

    /// Serves from `h1`, on port 7700, with a key that outlives it.
    #[track_caller]
    pub(crate) fn serve(&self, options: &[&str]) -> Server {
        self.serve_as(("h1", "server"), options)
    }

    /// Serves as [`Bench::serve`] does, from another host and with a key of its own.
    #[track_caller]
    pub(crate) fn serve_as(&self, (host, label): (&str, &str), options: &[&str]) -> Server {
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.args(["serve", "--json"]).arg(self.repo());
        command.arg("--state-dir").arg(self.directory.path().join(label)).args(options);
        let process = Process::start(label, command, &self.logs);
        let serving = process.wait_for_event("serving", SOON);
        let url = serving["url"].as_str().unwrap().to_owned();
        Server { process, url }
    }

    /// Gets the items that match on a host, or everything without patterns.
    pub(crate) fn get(&self, host: &str, url: &str, arguments: &[&str]) -> Client {
        self.get_as(host, host, url, arguments)
    }

    /// Gets as [`Bench::get`] does, to the directory of another label than the host's.
    pub(crate) fn get_as(&self, host: &str, label: &str, url: &str, arguments: &[&str]) -> Client {
        let out = self.out(label);
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.args(["get", "--json", url]).args(arguments).arg("-o").arg(&out);
        Client { process: Process::start(label, command, &self.logs), out }
    }

    /// Waits for a client that wanted everything, and checks it.
    #[track_caller]
    pub(crate) fn check_all(&self, client: &mut Client, timeout: Duration) -> Value {
        self.check(client, timeout, |_| true)
    }

    /// Waits for a client and checks that it has exactly the `wanted` items.
    #[track_caller]
    pub(crate) fn check(
        &self,
        client: &mut Client,
        timeout: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Value {
        let summary = client.process.wait_done(timeout);
        files::assert_same(&self.repo(), &client.out, wanted);
        summary
    }

    /// Waits until a client has this number of bytes on its disk.
    #[track_caller]
    pub(crate) fn wait_until_stored(&self, client: &Client, bytes: u64) {
        let until = Instant::now() + SOON;
        while files::stored(&client.out) < bytes {
            if Instant::now() > until {
                let stored = files::stored(&client.out);
                self.logs.fail(&format!("{} holds {stored} bytes", client.out.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) url: String,
}

impl Server {
    /// Stops it. Returns its last report.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> Value {
        self.process.stop()["report"].clone()
    }
}

/// A running client.
pub(crate) struct Client {
    pub(crate) process: Process,
    pub(crate) out: PathBuf,
}
