//! A program under test: its events, its standard error and its end.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

/// Times are those of a machine that has nothing else to do. A busy one may take so many times as
/// long; only a test that fails waits for it.
pub(crate) const BUSY: u32 = 6;

/// Events of a program that a message of failure shows: the last ones.
const SHOWN: usize = 40;

/// Output of all programs of a test, for messages of failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<Log>>>);

/// Output of one program.
#[derive(Debug)]
struct Log {
    label: String,
    heard: Arc<Heard>,
}

impl Logs {
    /// Returns the last output of each program.
    pub(crate) fn dump(&self) -> String {
        let mut text = String::new();
        for Log { label, heard } in self.0.lock().unwrap().iter() {
            let said = heard.said.lock().unwrap();
            let skip = said.events.len().saturating_sub(SHOWN);
            let last: Vec<_> = said.events[skip..]
                .iter()
                .map(|(at, event)| format!("{:8.3} s {event}", at.elapsed().as_secs_f64()))
                .collect();
            let skipped = said.stderr.chars().count().saturating_sub(4000);
            let stderr: String = said.stderr.chars().skip(skipped).collect();
            let (count, last) = (said.events.len(), last.join("\n"));
            write!(text, "\n--- {label}: {count} events, how long ago:\n{last}\n").unwrap();
            write!(text, "--- {label}: standard error:\n{stderr}").unwrap();
        }
        text
    }

    /// Fails the test and shows the output of every program.
    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        panic!("{what}{}", self.dump())
    }
}

#[derive(Debug, Default)]
struct Heard {
    said: Mutex<Said>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Said {
    /// With the times at which they came.
    events: Vec<(Instant, Value)>,
    stderr: String,
}

impl Said {
    /// Keeps an event; of consecutive progress events, only the last.
    fn take(&mut self, event: Value) {
        let progress = |event: &Value| event["event"] == "progress";
        if self.events.last().is_some_and(|(_, last)| progress(last)) && progress(&event) {
            self.events.pop();
        }
        self.events.push((Instant::now(), event));
    }
}

/// A program with `--json`. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    label: String,
    child: Child,
    heard: Arc<Heard>,
    readers: Vec<JoinHandle<()>>,
    logs: Logs,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts it and reads its output.
    pub(crate) fn start(label: &str, mut command: Command, logs: &Logs) -> Process {
        command.stdin(Stdio::null());
        Process::spawn(label, command, logs)
    }

    /// Starts it as [`Process::start`] does. Returns its standard input, too.
    pub(crate) fn start_fed(
        label: &str,
        mut command: Command,
        logs: &Logs,
    ) -> (Process, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut process = Process::spawn(label, command, logs);
        let input = process.child.stdin.take().unwrap();
        (process, input)
    }

    fn spawn(label: &str, mut command: Command, logs: &Logs) -> Process {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let heard = Arc::new(Heard::default());
        logs.0.lock().unwrap().push(Log { label: label.to_owned(), heard: heard.clone() });
        let readers = vec![
            listen(child.stdout.take().unwrap(), &heard, |said, line| {
                let event = serde_json::from_str(line);
                said.take(event.unwrap_or_else(|_| panic!("not JSON: {line}")));
            }),
            listen(child.stderr.take().unwrap(), &heard, |said, line| {
                said.stderr += line;
                said.stderr.push('\n');
            }),
        ];
        let (label, logs) = (label.to_owned(), logs.clone());
        Process { label, child, heard, readers, logs, status: None }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the events of this name so far.
    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let said = self.heard.said.lock().unwrap();
        let all = said.events.iter().map(|(_, event)| event);
        all.filter(|event| event["event"] == name).cloned().collect()
    }

    pub(crate) fn stderr(&self) -> String {
        self.heard.said.lock().unwrap().stderr.clone()
    }

    /// Waits for the first event for which `is_it` holds, past ones included.
    #[track_caller]
    pub(crate) fn wait_for(
        &self,
        what: &str,
        timeout: Duration,
        is_it: impl Fn(&Value) -> bool,
    ) -> Value {
        let until = Instant::now() + BUSY * timeout;
        let mut said = self.heard.said.lock().unwrap();
        loop {
            if let Some((_, event)) = said.events.iter().find(|(_, event)| is_it(event)) {
                return event.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            said = self.heard.more.wait_timeout(said, left).unwrap().0;
        }
        drop(said);
        self.logs.fail(&format!("{} did not say `{what}` within {timeout:?}", self.label))
    }

    /// Waits until `find` finds something in all events so far.
    #[track_caller]
    pub(crate) fn wait_for_all<T>(
        &self,
        what: &str,
        timeout: Duration,
        find: impl Fn(&[Value]) -> Option<T>,
    ) -> T {
        let until = Instant::now() + BUSY * timeout;
        let mut said = self.heard.said.lock().unwrap();
        loop {
            let all: Vec<Value> = said.events.iter().map(|(_, event)| event.clone()).collect();
            if let Some(found) = find(&all) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            said = self.heard.more.wait_timeout(said, left).unwrap().0;
        }
        drop(said);
        self.logs.fail(&format!("{} did not say {what} within {timeout:?}", self.label))
    }

    /// Waits for an event of this name.
    #[track_caller]
    pub(crate) fn wait_for_event(&self, name: &str, timeout: Duration) -> Value {
        self.wait_for(name, timeout, |event| event["event"] == name)
    }

    /// Waits until it has ended and all its output is read.
    #[track_caller]
    pub(crate) fn wait_end(&mut self, timeout: Duration) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        let until = Instant::now() + BUSY * timeout;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.status = Some(status);
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status;
            }
            if Instant::now() > until {
                self.logs.fail(&format!("{} did not end within {timeout:?}", self.label));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it succeeds. Returns the summary of its last event.
    #[track_caller]
    pub(crate) fn wait_done(&mut self, timeout: Duration) -> Value {
        let status = self.wait_end(timeout);
        let done = self.events("done").pop();
        match done {
            Some(done) if status.success() && done["ok"] == true => done["summary"].clone(),
            _ => self.logs.fail(&format!("{} failed: {status}, {done:?}", self.label)),
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.id()).unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
    }

    /// Kills it with SIGKILL, which cannot be caught.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.wait_end(Duration::from_secs(20));
        assert_eq!(status.signal(), Some(9), "{} ended before it was killed", self.label);
    }

    /// Asks it to stop (SIGTERM). Returns its last event of the name `stopped`.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> Value {
        self.signal(Signal::SIGTERM);
        let status = self.wait_end(Duration::from_secs(20));
        let stopped = self.events("stopped").pop();
        match stopped {
            Some(stopped) if status.success() => stopped,
            _ => self.logs.fail(&format!("{} did not stop well: {status}", self.label)),
        }
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.status.is_some() || self.child.try_wait().unwrap().is_some()
    }

    /// Returns its peak memory in bytes; `None` once it has ended.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn listen(
    pipe: impl Read + Send + 'static,
    heard: &Arc<Heard>,
    take: impl Fn(&mut Said, &str) + Send + 'static,
) -> JoinHandle<()> {
    let heard = heard.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            take(&mut heard.said.lock().unwrap(), &line);
            heard.more.notify_all();
        }
    })
}
