//! The real `umbel` binary on loopback: servers and clients that end with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The last resort against a command that hangs: many times the duration of any command, even on a
/// slow and busy machine.
const PATIENCE: Duration = Duration::from_mins(20);

/// A pin that no server has.
pub(crate) const FOREIGN_PIN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Returns the binary under test, without environment variables that would change its behaviour.
pub(crate) fn umbel() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_umbel")))
}

/// Returns a shell in its own namespace, in which `$UMBEL` is the binary under test. Prints a line
/// and returns `None` if that is not permitted.
pub(crate) fn in_namespace(flags: &[&str], script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = clean(Command::new("unshare"));
        // Processes that the script starts end with it.
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(flags);
        command
    };
    let permitted = unshare().arg("true").stderr(Stdio::null()).status();
    if !permitted.is_ok_and(|status| status.success()) {
        umbel_lab::testing::skip("namespaces are not permitted here");
        return None;
    }
    let mut command = unshare();
    command.args(["sh", "-ec", script]).env("UMBEL", env!("CARGO_BIN_EXE_umbel"));
    Some(command)
}

fn clean(mut command: Command) -> Command {
    command.env_remove("UMBEL_LOG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    /// Asserts that the command failed with one line that has these words. Returns the line.
    #[track_caller]
    pub(crate) fn failed_with(&self, words: &[&str]) -> &str {
        assert_eq!(self.code, Some(1), "{self:?}");
        let errors: Vec<&str> = self.stderr.lines().filter(|l| l.starts_with("umbel: ")).collect();
        let &[line] = errors.as_slice() else { panic!("not one line of error: {self:?}") };
        for word in words {
            assert!(line.contains(word), "`{word}` is not in: {line}");
        }
        assert!(!line.contains("panicked") && line.len() < 400, "{line}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        line
    }

    /// Asserts that it exits with 2, as for bad usage, and prints these words.
    #[track_caller]
    pub(crate) fn misused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "");
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Ran {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Returns standard output as one JSON object per line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let line = |line| match serde_json::from_str(line) {
            Ok(value @ Value::Object(_)) => value,
            other => panic!("`{line}` is no JSON object: {other:?}"),
        };
        self.stdout.lines().map(line).collect()
    }

    /// Returns the last JSON object of this event.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let found = self.json().into_iter().rfind(|value| value["event"] == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }
}

/// A command under way, which is killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    started: Instant,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let started = Instant::now();
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), &stdout),
            collect(child.stderr.take().expect("piped"), &stderr),
        ];
        Running { child, started, stdout, stderr, readers }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Interrupts the command, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    }

    /// Describes a command that does not end: its state, its processor time and its output.
    fn last_signs(&self) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let (stdout, stderr) = (self.stdout(), self.stderr());
        let last = |text: &str| text.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        format!("{stat:?}\nstandard output, last first: {}\n{stderr}", last(&stdout))
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Ran {
        let deadline = self.started + PATIENCE;
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.last_signs());
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        Ran { code: status.code(), stdout: self.stdout(), stderr: self.stderr(), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(pipe: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let into = into.clone();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

/// Runs `umbel` with arguments.
#[track_caller]
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Running::start(umbel().args(args)).finish()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a UDP port for a data channel that no other test takes, below the ephemeral ones.
pub(crate) fn channel_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() * 37 % 12_000) as u16;
    20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000
}

/// A directory for one test: `repo` is served, `out` receives, `state` has the key.
#[derive(Debug)]
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.repo()).unwrap();
        place
    }

    /// Creates a place that serves these files.
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Place {
        let place = Place::new();
        for (name, bytes) in files {
            let path = place.repo().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path().join("repo")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Returns the command `umbel serve` of a path on loopback, on its own ports.
    pub(crate) fn serve_command(&self, path: &Path, more: &[&str]) -> Command {
        let mut command = umbel();
        command.arg("serve").arg(path).arg("--state-dir").arg(self.path().join("state"));
        for (flag, value) in [
            ("--interface", "lo".to_owned()),
            ("--port", "0".to_owned()),
            ("--channel-port", channel_port().to_string()),
        ] {
            if !more.contains(&flag) {
                command.arg(flag).arg(value);
            }
        }
        command.args(more);
        command
    }

    /// Serves `repo`.
    #[track_caller]
    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        Server::start(&mut self.serve_command(&self.repo(), more))
    }

    /// Returns the command `umbel get` into `out`.
    pub(crate) fn get_command(&self, url: &str, more: &[&str]) -> Command {
        let mut command = umbel();
        command.arg("get").arg(url).arg("-o").arg(self.out()).args(more);
        command
    }

    #[track_caller]
    pub(crate) fn get(&self, url: &str, more: &[&str]) -> Ran {
        Running::start(&mut self.get_command(url, more)).finish()
    }

    /// Asserts that an item has arrived as it is served.
    #[track_caller]
    pub(crate) fn assert_received(&self, name: &str) {
        let served = std::fs::read(self.repo().join(name)).unwrap();
        let received =
            std::fs::read(self.out().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(served == received, "{name} differs");
    }

    /// Returns every path below `out`, sorted.
    pub(crate) fn received(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    let name = path.strip_prefix(root).unwrap();
                    found.push(name.to_str().unwrap().to_owned());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.out(), &self.out(), &mut found);
        found.sort();
        found
    }
}

/// A running `umbel serve --json`, which is killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) url: String,
    /// The data channel, such as `232.1.2.3:7702@127.0.0.1`.
    pub(crate) channel: String,
    pub(crate) serving: Value,
}

impl Server {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Server {
        let mut running = Running::start(command.arg("--json"));
        wait_until("a server that says where it serves", || {
            assert!(!running.is_over(), "{}", running.stderr());
            running.stdout().contains('\n')
        });
        let first = running.stdout();
        let serving: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        let text = |key: &str| serving[key].as_str().unwrap().to_owned();
        Server { url: text("url"), channel: text("channel"), serving, running }
    }

    /// Returns the session endpoint's address.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.url.trim_start_matches("umbel://").split('/').next().unwrap().parse().unwrap()
    }

    /// Returns the group and port of the data channel.
    pub(crate) fn group(&self) -> std::net::SocketAddr {
        self.channel.split('@').next().unwrap().parse().unwrap()
    }
}

/// Returns bytes that do not compress and that differ for every seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
