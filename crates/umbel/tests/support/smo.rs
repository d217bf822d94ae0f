//! A server of TCP-SMO and its clients in a lab: `umbel smo` and plain `curl`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use umbel_lab::{Impairment, Lab, Node, Topology};

use super::bench::SOON;
use super::process::{BUSY, Logs, Process};
use super::skip;

/// The channel of the server.
pub(crate) const CHANNEL: &str = "232.7.7.7:8080";
/// Its channel where all go by IPv6.
const CHANNEL_V6: &str = "[ff3e::7:7]:8080";

/// Creates a topology with the server `h1` and clients `h2`, `h3` … on a switch, each with the loss
/// of its place on its way from the switch.
pub(crate) fn clients(losses: &[f64]) -> Topology {
    let mut place = 0;
    Topology::star(losses.len() + 1).with_every_link(|link| {
        if link.a == "h1" {
            return;
        }
        let impairment = Impairment::none().loss(losses[place]);
        if losses[place] > 0.0 {
            link.emulated = Some(true);
            link.b_to_a = impairment;
            link.a_to_b = Impairment::none();
        }
        place += 1;
    })
}

/// Returns whether the programs are there; skips the test otherwise.
pub(crate) fn have(programs: &[&str]) -> bool {
    for program in programs {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!("{program} is not installed"));
            return false;
        }
    }
    true
}

/// Ends a server. Returns its summary.
#[track_caller]
pub(crate) fn end(mut server: Process) -> Value {
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    server.wait_done(SOON)
}

/// A lab with a directory to serve.
pub(crate) struct Site<'lab> {
    pub(crate) lab: &'lab Lab,
    pub(crate) logs: Logs,
    directory: TempDir,
    v6: bool,
}

impl<'lab> Site<'lab> {
    pub(crate) fn new(lab: &'lab Lab) -> Site<'lab> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("www")).unwrap();
        Site { lab, logs: Logs::default(), directory, v6: false }
    }

    /// Creates one where all go by IPv6.
    pub(crate) fn over_ipv6(lab: &'lab Lab) -> Site<'lab> {
        Site { v6: true, ..Site::new(lab) }
    }

    fn channel(&self) -> &'static str {
        if self.v6 { CHANNEL_V6 } else { CHANNEL }
    }

    /// Returns the address of a host as URLs have it.
    fn address(&self, host: &str) -> String {
        let host = self.host(host);
        if self.v6 { format!("[{}]", host.addr6()) } else { host.addr4().to_string() }
    }

    pub(crate) fn host(&self, name: &str) -> Node<'lab> {
        self.lab.host(name).unwrap()
    }

    /// Returns the path of a file beside the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the directory that is served.
    pub(crate) fn www(&self) -> PathBuf {
        self.path("www")
    }

    /// Returns the command `umbel smo` on a host.
    pub(crate) fn smo(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.current_dir(self.directory.path()).args(["smo", "--json"]).args(arguments);
        command
    }

    /// Serves the directory from `h1`.
    #[track_caller]
    pub(crate) fn serve_http(&self, options: &[&str]) -> Process {
        let process = Process::start("server", self.serve(&["--http", "www"], options), &self.logs);
        process.wait_for_event("serving", SOON);
        process
    }

    /// Returns the command that serves from `h1`.
    pub(crate) fn serve(&self, what: &[&str], options: &[&str]) -> Command {
        let mut command = self.smo("h1", &["serve", "--listen", ":8080"]);
        command.args(["--channel", self.channel()]);
        command.args(what).args(options);
        command
    }

    /// Starts the helper of a host.
    #[track_caller]
    pub(crate) fn join(&self, host: &str, options: &[&str]) -> Process {
        self.join_to(host, &self.target(self.channel(), "h1"), options)
    }

    /// Returns a channel of a server as users write it.
    pub(crate) fn target(&self, channel: &str, server: &str) -> String {
        format!("{channel}@{}", self.address(server))
    }

    /// Starts the helper of a host for a certain server.
    #[track_caller]
    pub(crate) fn join_to(&self, host: &str, target: &str, options: &[&str]) -> Process {
        let mut command = self.smo(host, &["join", target]);
        command.args(options);
        let process = Process::start(&format!("join on {host}"), command, &self.logs);
        process.wait_for_event("joined", SOON);
        process
    }

    /// Starts a download from `h1` to a file of this name.
    pub(crate) fn curl(&self, host: &str, path: &str, out: &str, options: &[&str]) -> Download {
        self.curl_from(host, "h1", path, out, options)
    }

    /// Starts a download from a server to a file of this name.
    pub(crate) fn curl_from(
        &self,
        host: &str,
        server: &str,
        path: &str,
        out: &str,
        options: &[&str],
    ) -> Download {
        let url = format!("http://{}:8080/{path}", self.address(server));
        let out = self.path(out);
        let mut command = self.host(host).command("curl");
        command.args([
            "--globoff",
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "120",
            "--output",
        ]);
        command.arg(&out).args(options).arg(url).stdin(Stdio::null()).stderr(Stdio::inherit());
        Download { child: command.spawn().unwrap(), out }
    }

    /// Returns the bytes that a host has sent by its only interface.
    pub(crate) fn sent(&self, host: &str) -> u64 {
        let host = self.host(host);
        let output = host.command("cat").arg("/proc/net/dev").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let prefix = format!("{}:", host.interface());
        let line = text.lines().find_map(|line| line.trim().strip_prefix(prefix.as_str()));
        line.unwrap().split_whitespace().nth(8).unwrap().parse().unwrap()
    }
}

/// A download by `curl`.
pub(crate) struct Download {
    child: Child,
    pub(crate) out: PathBuf,
}

impl Download {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the bytes on the disk.
    pub(crate) fn len(&self) -> u64 {
        std::fs::metadata(&self.out).map_or(0, |data| data.len())
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn wait(&mut self, site: &Site<'_>, timeout: Duration) -> ExitStatus {
        let until = Instant::now() + BUSY * timeout;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > until {
                let out = self.out.display();
                site.logs.fail(&format!("{out} has {} bytes after {timeout:?}", self.len()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it succeeds with the bytes of a file.
    #[track_caller]
    pub(crate) fn expect(&mut self, site: &Site<'_>, file: &Path, timeout: Duration) {
        let status = self.wait(site, timeout);
        if !status.success() || std::fs::read(&self.out).unwrap() != std::fs::read(file).unwrap() {
            let out = self.out.display();
            site.logs.fail(&format!("{out}: curl {status}, {} bytes, not the same", self.len()));
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
