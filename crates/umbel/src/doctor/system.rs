//! This host's information about itself: kernel parameters, `/proc`, `/sys`, and tools.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a tool may take.
const TOOL_TIME: Duration = Duration::from_secs(1);

/// Reason why a tool has no output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolError {
    /// It is not installed.
    Missing,
    /// It failed or took too long. Holds its first line on standard error.
    Failed(String),
}

/// Returns the text that a tool prints. A tool delays a check by at most a second.
pub(super) fn run(tool: &str, args: &[&str]) -> Result<String, ToolError> {
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .or_else(|_| spawn_from_sbin(tool, args))
        .map_err(|_| ToolError::Missing)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdout = std::thread::spawn(move || read_all(stdout));
    let stderr = std::thread::spawn(move || read_all(stderr));
    let deadline = Instant::now() + TOOL_TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(ToolError::Failed(format!("`{tool}` did not end")));
            }
        }
    };
    let complaint = stderr.join().unwrap_or_default();
    if !status.success() {
        let first = complaint.lines().next().unwrap_or("no message");
        return Err(ToolError::Failed(first.to_owned()));
    }
    Ok(stdout.join().unwrap_or_default())
}

/// Starts a tool in the directories of system tools, which are often missing in the PATH of
/// ordinary users.
fn spawn_from_sbin(tool: &str, args: &[&str]) -> std::io::Result<std::process::Child> {
    Command::new(format!("/usr/sbin/{tool}"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn read_all(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a kernel parameter of this network namespace, by a path such as
/// `net/ipv4/conf/eth0/rp_filter`. Returns `None` if there is no such number.
pub(super) fn parameter(path: &str) -> Option<i64> {
    read_number(&format!("/proc/sys/{path}"))
}

/// Returns the first and last of the ports from which the system chooses if a program names none.
pub(super) fn local_ports() -> (u16, u16) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let text = text.unwrap_or_default();
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).unwrap_or((32_768, 60_999))
}

/// Returns the number that a file holds.
pub(super) fn read_number(path: &str) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the command that sets a kernel parameter given by its path.
pub(super) fn set_parameter(path: &str, value: i64) -> String {
    // Dots in the name of an interface are not separators.
    let name = if path.contains('.') { path.to_owned() } else { path.replace('/', ".") };
    format!("sysctl -w {name}={value}")
}

/// Returns whether a name of an interface can stand in a path and in a command.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@');
    !name.is_empty() && !matches!(name, "." | "..") && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_no_crash() {
        assert_eq!(run("umbel-no-such-tool", &[]), Err(ToolError::Missing));
    }

    #[test]
    fn a_tool_that_hangs_is_ended() {
        // Left alone, it would end without a failure.
        assert!(matches!(run("sleep", &["1000"]), Err(ToolError::Failed(_))));
    }

    #[test]
    fn a_tool_that_fails_says_why() {
        let failed = run("sh", &["-c", "echo no luck >&2; false"]);
        assert_eq!(failed, Err(ToolError::Failed("no luck".to_owned())));
        assert_eq!(run("sh", &["-c", "echo luck"]), Ok("luck\n".to_owned()));
    }

    #[test]
    fn a_dotted_interface_keeps_its_dot_in_the_command() {
        assert_eq!(
            set_parameter("net/ipv4/conf/eth0/rp_filter", 2),
            "sysctl -w net.ipv4.conf.eth0.rp_filter=2"
        );
        assert_eq!(
            set_parameter("net/ipv4/conf/eth0.7/rp_filter", 2),
            "sysctl -w net/ipv4/conf/eth0.7/rp_filter=2"
        );
        assert!(is_plain("eth0.7") && !is_plain("../x") && !is_plain("a b"));
    }
}
