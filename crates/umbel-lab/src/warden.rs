//! Kills the processes in the lab's namespaces, even after a crash of their owner.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;
use crate::namespace::Namespace;

/// Waits until its input ends, which happens when the owner dies. Then kills every process in the
/// namespaces `$1`. It keeps the namespaces open itself, so that their numbers are not reused
/// before it is done.
const SCRIPT: &str = r#"
read -r _
quiet=0; rounds=0
while [ $quiet -lt 2 ] && [ $rounds -lt 50 ]; do
  hit=0
  for link in /proc/[0-9]*/ns/net; do
    tag=$(readlink "$link" 2>/dev/null) || continue
    case "$1" in *"$tag"*)
      pid=${link#/proc/}; kill -9 "${pid%%/*}" 2>/dev/null && hit=1;;
    esac
  done
  if [ $hit = 0 ]; then quiet=$((quiet+1)); else quiet=0; fi
  rounds=$((rounds+1)); sleep 0.05
done
"#;

/// A small process that outlives its owner just long enough to clean up after it.
#[derive(Debug)]
pub(crate) struct Warden {
    process: Child,
    tags: BTreeSet<String>,
}

impl Warden {
    /// Starts watching over `namespaces`.
    #[allow(unsafe_code)]
    pub(crate) fn start(namespaces: &[Namespace]) -> Result<Warden, LabError> {
        let failed = || LabError::system("start the process that cleans up after a crash");
        let tags = namespaces
            .iter()
            .map(Namespace::tag)
            .collect::<io::Result<BTreeSet<String>>>()
            .map_err(failed())?;
        let list = tags.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let kept = namespaces.to_vec();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "umbel-lab-warden", &list]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec the closure makes system calls only. A separate session
        // keeps the terminal's signals away.
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setsid()?;
                kept.iter().try_for_each(Namespace::keep_open)
            });
        }
        let process = command.spawn().map_err(failed())?;
        Ok(Warden { process, tags })
    }

    /// Kills the processes in the namespaces and waits up to two seconds until they have ended.
    pub(crate) fn clear(&self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let inhabitants = self.inhabitants();
            if inhabitants.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in inhabitants {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the processes in the namespaces. Zombies are in none.
    pub(crate) fn inhabitants(&self) -> Vec<i32> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        processes
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let tag = fs::read_link(entry.path().join("ns/net")).ok()?;
                self.tags.contains(tag.to_str()?).then_some(pid)
            })
            .collect()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.clear();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
