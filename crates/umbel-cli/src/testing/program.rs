//! Programs under test: what they print, and how they end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The last resort against a command that hangs: many times the duration of any command, even on a
/// slow and busy machine.
const PATIENCE: Duration = Duration::from_mins(20);

/// Returns the command that runs a program without environment variables that would change its
/// behaviour, and without input.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("UMBEL_LOG").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// Text on standard output.
    pub stdout: String,
    /// Text on standard error.
    pub stderr: String,
    /// Time that it ran.
    pub took: Duration,
}

impl Ran {
    /// Asserts that the command failed with one line that has these words. Returns the line.
    #[track_caller]
    pub fn failed_with(&self, words: &[&str]) -> &str {
        self.ended_with(1, words)
    }

    /// Asserts that Ctrl-C has ended it, and that it says so in one line with these words.
    #[track_caller]
    pub fn interrupted_with(&self, words: &[&str]) -> &str {
        self.ended_with(130, words)
    }

    #[track_caller]
    fn ended_with(&self, code: i32, words: &[&str]) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
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
    pub fn misused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "");
    }

    /// Asserts that it exits with 0.
    #[track_caller]
    pub fn succeeded(&self) -> &Ran {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Returns standard output as one JSON object per line.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        let line = |line| match serde_json::from_str(line) {
            Ok(value @ Value::Object(_)) => value,
            other => panic!("`{line}` is no JSON object: {other:?}"),
        };
        self.stdout.lines().map(line).collect()
    }

    /// Returns the last JSON object of this event.
    #[track_caller]
    pub fn event(&self, name: &str) -> Value {
        let found = self.json().into_iter().rfind(|value| value["event"] == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }
}

/// A command under way, which is killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Running {
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

    /// Returns the number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it has printed on standard error.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Returns what it has printed on standard output.
    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    /// Returns whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Interrupts the command, as Ctrl-C does.
    pub fn interrupt(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
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
    pub fn finish(mut self) -> Ran {
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

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
