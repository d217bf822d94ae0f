//! A command that is run after each completion.
//!
//! It is run by `sh -c` in a process group of its own, with what came in its environment: text from
//! elsewhere never becomes a part of the command. One that takes too long is ended with its group,
//! and so is what it leaves behind.

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Interval of looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A command and the time that it may take.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Text for the shell.
    pub command: String,
    /// Time after which it is ended.
    pub timeout: Duration,
}

/// What came, for the environment of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Name of the feed, or address of the server.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Key of the sender, or its address if there is no key.
    pub sender: String,
    /// Digest of the list of what came.
    pub digest: String,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its exit code, unless it was ended.
    pub exit_code: Option<i32>,
    /// Seconds that it took.
    pub seconds: f64,
    /// One line that says what went wrong, if something did.
    pub failure: Option<String>,
}

impl Hook {
    /// Runs the command and waits for its end, or ends it as soon as `is_stopped`. Its output goes to
    /// standard error.
    pub(crate) fn run(&self, came: &Came, is_stopped: &dyn Fn() -> bool) -> Ended {
        let begun = Instant::now();
        let (exit_code, failure) = match self.start(came) {
            Ok(child) => self.wait(child, begun, is_stopped),
            Err(error) => (None, Some(format!("cannot start the command of --exec: {error}"))),
        };
        Ended { exit_code, seconds: begun.elapsed().as_secs_f64(), failure }
    }

    fn start(&self, came: &Came) -> std::io::Result<Child> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command);
        for (name, value) in [
            ("UMBEL_NAME", OsStr::new(&came.name)),
            ("UMBEL_PATH", came.path.as_os_str()),
            ("UMBEL_SENDER", OsStr::new(&came.sender)),
            ("UMBEL_DIGEST", OsStr::new(&came.digest)),
        ] {
            command.env(name, value);
        }
        // What admits this receiver is no business of the command's.
        command.env_remove("UMBEL_TOKEN");
        command.stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
        command.process_group(0).spawn()
    }

    /// Waits for the end. Returns the exit code, and what went wrong.
    fn wait(
        &self,
        mut child: Child,
        begun: Instant,
        is_stopped: &dyn Fn() -> bool,
    ) -> (Option<i32>, Option<String>) {
        let group = Pid::from_raw(child.id().cast_signed());
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let left = end_group(group, || true);
                    return (status.code(), failure_of(status, left));
                }
                Ok(None) if is_stopped() => {
                    end_group(group, || reaped(&mut child));
                    return (None, Some("the command of --exec was interrupted".to_owned()));
                }
                Ok(None) if begun.elapsed() >= self.timeout => {
                    end_group(group, || reaped(&mut child));
                    let seconds = self.timeout.as_secs_f64();
                    let line = format!("the command of --exec took more than {seconds} s: ended");
                    return (None, Some(line));
                }
                Ok(None) => std::thread::sleep(LOOK),
                Err(error) => {
                    end_group(group, || true);
                    let line = format!("cannot wait for the command of --exec: {error}");
                    return (None, Some(line));
                }
            }
        }
    }
}

/// Returns whether the first process of a group has ended. It would stay as a zombie otherwise.
fn reaped(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// Ends all processes of a group. Returns whether there were any.
fn end_group(group: Pid, mut is_reaped: impl FnMut() -> bool) -> bool {
    if killpg(group, Signal::SIGTERM).is_err() {
        return false;
    }
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if is_reaped() && killpg(group, None).is_err() {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    let _ = killpg(group, Signal::SIGKILL);
    // Nothing survives it but what waits for a device, which is not waited for.
    let until = Instant::now() + GRACE / 2;
    while !(is_reaped() && killpg(group, None).is_err()) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    true
}

fn failure_of(status: ExitStatus, left: bool) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) if left => Some(
            "the command of --exec left processes behind, which were ended: `setsid` lets one go on"
                .to_owned(),
        ),
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the command of --exec failed with exit code {code}")),
        (None, signal) => {
            Some(format!("signal {} ended the command of --exec", signal.unwrap_or(0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(5);

    fn run(command: &str, timeout: Duration, name: &str) -> Ended {
        let hook = Hook { command: command.to_owned(), timeout };
        let came = Came { name: name.to_owned(), ..Came::default() };
        hook.run(&came, &|| false)
    }

    #[test]
    fn names_reach_the_environment_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("came");
        let name = "'; exit 9; \"$(exit 8)`exit 7`\u{1b}[2J";
        let command = format!("printf %s \"$UMBEL_NAME\" > '{}'", file.display());
        let ended = run(&command, TIMEOUT, name);
        assert_eq!((ended.exit_code, ended.failure), (Some(0), None));
        assert_eq!(std::fs::read_to_string(file).unwrap(), name);
    }

    #[test]
    fn one_that_fails_is_told() {
        let ended = run("exit 3", TIMEOUT, "a");
        assert_eq!(ended.exit_code, Some(3));
        assert!(ended.failure.unwrap().contains("exit code 3"));
        assert!(run("kill -9 $$", TIMEOUT, "a").failure.unwrap().contains("signal 9"));
    }

    /// Returns whether a process is there that is no zombie.
    fn is_alive(id: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", id.trim()));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }

    #[test]
    fn one_that_hangs_is_ended() {
        let ended = run("trap '' TERM; sleep 1000", Duration::from_millis(100), "a");
        assert_eq!(ended.exit_code, None);
        assert!(ended.failure.unwrap().contains("took more than 0.1 s"));
    }

    #[test]
    fn all_that_it_started_ends_with_it_when_it_is_interrupted() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ids");
        let ids = || std::fs::read_to_string(&file).unwrap_or_default();
        let command = format!("trap '' TERM; sleep 1000 & echo $! > '{}'; wait", file.display());
        let hook = Hook { command, timeout: TIMEOUT };
        let ended = hook.run(&Came::default(), &|| ids().ends_with('\n'));
        assert!(ended.failure.unwrap().contains("was interrupted"));
        assert!(!is_alive(&ids()));
    }

    #[test]
    fn what_is_left_behind_is_ended() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ids");
        let ended = run(&format!("sleep 1000 & echo $! > '{}'", file.display()), TIMEOUT, "a");
        assert_eq!(ended.exit_code, Some(0));
        assert!(ended.failure.unwrap().contains("left processes behind"));
        assert!(!is_alive(&std::fs::read_to_string(file).unwrap()));
        assert_eq!(run("true", TIMEOUT, "a").failure, None);
    }
}
