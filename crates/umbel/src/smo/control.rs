//! How `umbel smo status` asks a running server: by a Unix socket with an abstract name.
//!
//! Such sockets belong to the network namespace, like the server's address, and vanish with their
//! process. The answer is one line of JSON. Only the same user and root are answered.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use umbel_engine::host::Mailbox;

use super::report::Report;
use super::serve::host::Input;

/// Beginning of the names of sockets. The server's address follows.
const NAME: &str = "umbel-smo-";
/// Time in which a server answers.
const ANSWER: Duration = Duration::from_secs(2);
/// Longest answer in bytes.
const LONGEST: u64 = 16 << 20;

fn name(server: SocketAddr) -> std::io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("{NAME}{server}"))
}

/// Answers questions about the server at an address, until the program ends.
///
/// # Errors
///
/// If the system refuses.
pub(crate) fn answer(server: SocketAddr, host: Mailbox<Input>) -> std::io::Result<()> {
    let listener = UnixListener::bind_addr(&name(server)?)?;
    std::thread::Builder::new().name("umbel-status".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            // One at a time: a question takes as long as a turn of the engine.
            if let Err(error) = stream.and_then(|stream| answer_one(stream, &host)) {
                tracing::debug!("a question is not answered: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    })?;
    Ok(())
}

fn answer_one(mut stream: UnixStream, host: &Mailbox<Input>) -> std::io::Result<()> {
    let asker = getsockopt(&stream, PeerCredentials)?;
    if asker.uid() != 0 && asker.uid() != nix::unistd::geteuid().as_raw() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    stream.set_write_timeout(Some(ANSWER))?;
    let (give, take) = crossbeam_channel::bounded(1);
    host.put(Input::Status(give));
    let report = take.recv_timeout(ANSWER).map_err(|_| std::io::ErrorKind::TimedOut)?;
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Returns the servers that run in this network namespace.
///
/// # Errors
///
/// If the system does not list its sockets.
pub fn servers() -> anyhow::Result<Vec<SocketAddr>> {
    let sockets = std::fs::read_to_string("/proc/net/unix").context("cannot list the servers")?;
    let prefix = format!("@{NAME}");
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    let mut servers: Vec<SocketAddr> =
        names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    servers.sort_unstable();
    servers.dedup();
    Ok(servers)
}

/// Asks a server how it goes. Without an address, there must be one server only.
///
/// # Errors
///
/// If there is none or it does not answer; if there are several, it names them.
pub fn status(server: Option<SocketAddr>) -> anyhow::Result<Report> {
    let server = match server {
        Some(server) => server,
        None => match servers()?.as_slice() {
            [] => bail!("no `umbel smo serve` or `relay` runs here"),
            [server] => *server,
            several => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                bail!("several servers run here, say which one: {}", names.join(", "))
            }
        },
    };
    let mut stream = UnixStream::connect_addr(&name(server)?)
        .with_context(|| format!("no `umbel smo serve` or `relay` runs here at {server}"))?;
    stream.set_read_timeout(Some(ANSWER * 2))?;
    let mut line = String::new();
    let read = BufReader::new((&mut stream).take(LONGEST)).read_line(&mut line);
    read.with_context(|| format!("the server at {server} does not answer"))?;
    if line.is_empty() {
        bail!("the server at {server} does not answer: it belongs to another user, or is stuck");
    }
    serde_json::from_str(&line)
        .with_context(|| format!("the server at {server} is of another version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_and_answers() {
        // A port of this process alone, since tests run side by side.
        let port = 1024 + (std::process::id() % 60_000) as u16;
        let server = SocketAddr::new("127.9.9.9".parse().unwrap(), port);
        assert!(status(Some(server)).unwrap_err().to_string().contains("no `umbel smo"));
        let host = Mailbox::new(|input| {
            if let Input::Status(answer) = input {
                let report = Report { receivers: 7, ..Report::default() };
                let _ = answer.send(report);
            }
        });
        answer(server, host).unwrap();
        assert!(servers().unwrap().contains(&server));
        assert_eq!(status(Some(server)).unwrap().receivers, 7);
    }
}
