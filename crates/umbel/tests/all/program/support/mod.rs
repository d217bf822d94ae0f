//! The real `umbel` binary on loopback: servers and clients that end with the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;
use umbel_cli::testing::program::clean;
pub(crate) use umbel_cli::testing::program::{Ran, Running, wait_until};

/// A pin that no server has.
pub(crate) const FOREIGN_PIN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Returns the binary under test, without environment variables that would change its behaviour.
pub(crate) fn umbel() -> Command {
    clean(env!("CARGO_BIN_EXE_umbel"))
}

/// Returns a shell in its own namespace, in which `$UMBEL` is the binary under test. Prints a line
/// and returns `None` if that is not permitted.
pub(crate) fn in_namespace(flags: &[&str], script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = clean("unshare");
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

/// Runs `umbel` with arguments.
#[track_caller]
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Running::start(umbel().args(args)).finish()
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
