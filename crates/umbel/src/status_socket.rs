//! The question of `status` commands to a running program, by a Unix socket with an abstract name.
//!
//! Such sockets belong to the network namespace, like the program's addresses, and vanish with
//! their process. The answer is one line of JSON. Only the same user and root are answered, and
//! believed: any user may take any name.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time in which a program answers.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);
/// Longest answer in bytes.
const LONGEST: u64 = 16 << 20;

fn address(name: &str) -> std::io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(name)
}

/// Answers questions on the socket of this name, until the program ends. `report` returns the
/// answer, or `None` if there is none within [`ANSWER`].
///
/// # Errors
///
/// If the name is taken, or the system refuses.
pub(crate) fn answer<T: Serialize>(
    name: &str,
    mut report: impl FnMut() -> Option<T> + Send + 'static,
) -> std::io::Result<()> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    std::thread::Builder::new().name("umbel-status".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            // One at a time: a question takes as long as a turn of the engine.
            if let Err(error) = stream.and_then(|stream| answer_one(stream, &mut report)) {
                tracing::debug!("a question is not answered: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    })?;
    Ok(())
}

fn answer_one<T: Serialize>(
    mut stream: UnixStream,
    report: &mut impl FnMut() -> Option<T>,
) -> std::io::Result<()> {
    if !is_trusted(getsockopt(&stream, PeerCredentials)?.uid()) {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    stream.set_write_timeout(Some(ANSWER))?;
    let report = report().ok_or(std::io::ErrorKind::TimedOut)?;
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Returns whether a user is root, or the one of this process.
fn is_trusted(user: nix::libc::uid_t) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}

/// Returns what follows `prefix` in the names of the sockets of this network namespace.
///
/// # Errors
///
/// If the system does not list its sockets.
pub(crate) fn names(prefix: &str) -> anyhow::Result<Vec<String>> {
    let sockets = std::fs::read_to_string("/proc/net/unix").context("cannot list the sockets")?;
    let prefix = format!("@{prefix}");
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned)).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Asks the program with the socket of this name. `program` describes it in errors.
///
/// # Errors
///
/// If it does not run or does not answer.
pub(crate) fn ask<T: DeserializeOwned>(name: &str, program: &str) -> anyhow::Result<T> {
    let mut stream = UnixStream::connect_addr(&address(name)?)
        .with_context(|| format!("{program} does not run here"))?;
    let who = getsockopt(&stream, PeerCredentials)?.uid();
    if !is_trusted(who) {
        bail!("{program} does not answer: user {who} has taken its name");
    }
    stream.set_read_timeout(Some(ANSWER * 2))?;
    let mut line = String::new();
    let read = BufReader::new((&mut stream).take(LONGEST)).read_line(&mut line);
    read.with_context(|| format!("{program} does not answer"))?;
    if line.is_empty() {
        bail!("{program} does not answer: it belongs to another user, or is stuck");
    }
    serde_json::from_str(&line).with_context(|| {
        format!(
            "the {program} that runs here is of another release than this program: start it anew"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_neither_answered_nor_believed() {
        let own = nix::unistd::geteuid().as_raw();
        assert!(is_trusted(0) && is_trusted(own));
        assert!(!is_trusted(own + 1) && !is_trusted(65_534));
    }

    #[test]
    fn a_program_is_found_and_answers() {
        // Tests run side by side.
        let name = format!("umbel-test-{}", std::process::id());
        let error = ask::<u32>(&name, "`umbel test`").unwrap_err();
        assert_eq!(error.to_string(), "`umbel test` does not run here");
        answer(&name, || Some(7_u32)).unwrap();
        assert!(answer(&name, || Some(8_u32)).is_err(), "a second one");
        let id = std::process::id().to_string();
        assert!(names("umbel-test-").unwrap().contains(&id));
        assert_eq!(ask::<u32>(&name, "`umbel test`").unwrap(), 7);
        let error = ask::<String>(&name, "`umbel test`").unwrap_err();
        assert!(error.to_string().contains("another release"), "{error}");
    }
}
