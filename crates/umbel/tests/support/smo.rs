//! A server of TCP-SMO and its clients in a lab: `umbel smo` and plain `curl`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
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

/// Creates a topology with the server `h1` and clients `h2`, `h3` … on a switch. The link from the
/// switch to each has the loss of its place.
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
    server.signal(Signal::SIGTERM);
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

    /// Returns the channel of the server.
    pub(crate) fn channel(&self) -> &'static str {
        if self.v6 { CHANNEL_V6 } else { CHANNEL }
    }

    /// Returns the address of a host as URLs have it.
    pub(crate) fn address(&self, host: &str) -> String {
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
        command.arg(&out).args(options).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Download { child: command.spawn().unwrap(), out }
    }

    /// Starts a download from `h1` that is compared with what is served, and kept nowhere.
    pub(crate) fn compare(&self, host: &str, path: &str) -> Comparison {
        let url = format!("http://{}:8080/{path}", self.address("h1"));
        let mut command = self.host(host).command("curl");
        command.args(["--globoff", "--silent", "--fail"]).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut file = std::fs::File::open(self.www().join(path)).unwrap();
        let state: Arc<(AtomicU64, AtomicBool)> = Arc::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            let (mut got, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
            loop {
                let len = output.read(&mut got).unwrap_or(0);
                if len == 0 {
                    return;
                }
                let is_same = file.read_exact(&mut expected[..len]).is_ok();
                if !is_same || got[..len] != expected[..len] {
                    // Nobody reads on, so that curl ends with an error.
                    return shared.1.store(true, Ordering::Relaxed);
                }
                shared.0.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
        Comparison { child: Mutex::new(child), host: host.to_owned(), state }
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

/// A download by `curl` that is compared on its way. Dropping it kills it.
pub(crate) struct Comparison {
    child: Mutex<Child>,
    host: String,
    /// Bytes that were the same, and whether others came.
    state: Arc<(AtomicU64, AtomicBool)>,
}

impl Comparison {
    /// Returns the number of bytes that have come and were the same.
    pub(crate) fn len(&self) -> u64 {
        self.state.0.load(Ordering::Relaxed)
    }

    /// Returns whether no wrong byte has come.
    pub(crate) fn is_same(&self) -> bool {
        !self.state.1.load(Ordering::Relaxed)
    }

    /// Waits until it succeeds with this number of bytes, all of them right.
    #[track_caller]
    pub(crate) fn expect(&self, site: &Site<'_>, len: u64, timeout: Duration) {
        let until = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > until {
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        // Bytes in the pipe are read soon.
        let soon = Instant::now() + SOON;
        let is_well = status.is_some_and(|status| status.success());
        while is_well && self.is_same() && self.len() < len && Instant::now() < soon {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !is_well || !self.is_same() || self.len() != len {
            let (host, same) = (&self.host, if self.is_same() { "right" } else { "then wrong" });
            site.logs.fail(&format!("{host}: curl {status:?}, {} bytes {same}", self.len()));
        }
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A download by `curl`.
pub(crate) struct Download {
    child: Child,
    pub(crate) out: PathBuf,
}

impl Download {
    /// Returns what `curl` says on its standard output, up to its end.
    pub(crate) fn said(&mut self) -> String {
        let mut said = String::new();
        let output = self.child.stdout.as_mut().expect("it is a pipe");
        output.read_to_string(&mut said).unwrap();
        said
    }

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

/// Starts a relay of `h1` on a host.
#[track_caller]
pub(crate) fn relay(site: &Site<'_>, host: &str, channel: &str, options: &[&str]) -> Process {
    relay_of(site, "h1", site.channel(), host, channel, options)
}

/// Starts a relay of a server on a host.
#[track_caller]
pub(crate) fn relay_of(
    site: &Site<'_>,
    server: &str,
    from: &str,
    host: &str,
    channel: &str,
    options: &[&str],
) -> Process {
    let target = site.target(from, server);
    let arguments = ["relay", &target, "--listen", ":8080", "--channel", channel];
    let mut command = site.smo(host, &arguments);
    command.args(options);
    let process = Process::start(&format!("relay on {host}"), command, &site.logs);
    process.wait_for_event("serving", SOON);
    process
}
