//! Commands of Umbel that run beside a program and report to it in JSON lines.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use crossbeam_channel::Receiver;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A running command. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts the command. Calls `hear` with each JSON object that it prints, and with `None` at
    /// its end.
    ///
    /// # Errors
    ///
    /// If the system cannot start it.
    pub fn start(
        mut command: Command,
        mut hear: impl FnMut(Option<Value>) + Send + 'static,
    ) -> std::io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Its reports come in JSON; its log would disturb the display.
        if std::env::var_os("UMBEL_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        let mut process = Process { child, reader: None };
        let read = move || {
            let lines = output.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            for line in lines.map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str(&line) {
                    hear(Some(value));
                }
            }
            hear(None);
        };
        process.reader = Some(std::thread::Builder::new().spawn(read)?);
        Ok(process)
    }

    /// Interrupts the command, as Ctrl-C does, and waits until it has ended.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn interrupt(&mut self) -> std::io::Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Has no effect on a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A running command that is waited for, event by event. Dropping it kills it.
#[derive(Debug)]
pub struct Reporter {
    name: String,
    said: Receiver<Value>,
    process: Process,
}

impl Reporter {
    /// Starts the command. Errors call it by this name.
    ///
    /// # Errors
    ///
    /// If the system cannot start it.
    pub fn start(name: &str, command: Command) -> anyhow::Result<Reporter> {
        let (say, said) = crossbeam_channel::unbounded();
        let hear = move |event: Option<Value>| {
            // The other end is gone when nothing waits for the command any more.
            let _ = event.map(|event| say.send(event));
        };
        let process = Process::start(command, hear);
        let process = process.with_context(|| format!("cannot start {name}"))?;
        Ok(Reporter { name: name.to_owned(), said, process })
    }

    /// Waits until it reports an event of this name.
    ///
    /// # Errors
    ///
    /// If it reports an error before, or does not report the event in time.
    pub fn wait_for(&self, name: &str, patience: Duration) -> anyhow::Result<Value> {
        let until = Instant::now() + patience;
        loop {
            let event = self.said.recv_deadline(until);
            let event =
                event.map_err(|_| anyhow!("{} did not say that it is {name}", self.name))?;
            match event["event"].as_str() {
                Some("error") => {
                    let message = event["message"].as_str().unwrap_or_default();
                    return Err(anyhow!("{}: {message}", self.name));
                }
                Some(event_name) if event_name == name => return Ok(event),
                _ => {}
            }
        }
    }

    /// Interrupts the command, as Ctrl-C does, and waits until it has ended. What it said can still
    /// be waited for.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn interrupt(&mut self) -> std::io::Result<()> {
        self.process.interrupt()
    }
}
