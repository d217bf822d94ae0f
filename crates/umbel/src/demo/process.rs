//! A command of this program that runs beside it and reports in JSON lines.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A running command. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts the command. Calls `hear` with each JSON object that it prints, and with `None` at
    /// its end.
    pub(crate) fn start(
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
    pub(crate) fn interrupt(mut self) -> std::io::Result<()> {
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
