//! The question of `umbel smo status` to a running server, by `status_socket.rs`.

use std::net::SocketAddr;

use anyhow::bail;
use umbel_engine::host::Mailbox;

use super::report::Report;
use super::serve::host::Input;
use crate::status_socket;

/// Beginning of the names of sockets. The server's address follows.
const NAME: &str = "umbel-smo-";

/// Answers questions about the server at an address, until the program ends.
///
/// # Errors
///
/// If the system refuses.
pub(crate) fn answer(server: SocketAddr, host: Mailbox<Input>) -> std::io::Result<()> {
    status_socket::answer(&format!("{NAME}{server}"), move || {
        let (give, take) = crossbeam_channel::bounded(1);
        host.put(Input::Status(give));
        take.recv_timeout(status_socket::ANSWER).ok()
    })
}

/// Returns the servers that run in this network namespace.
///
/// # Errors
///
/// If the system does not list its sockets.
pub fn servers() -> anyhow::Result<Vec<SocketAddr>> {
    let names = status_socket::names(NAME)?;
    let mut servers: Vec<SocketAddr> = names.iter().filter_map(|name| name.parse().ok()).collect();
    servers.sort_unstable();
    Ok(servers)
}

/// Asks a server for its report. Without an address, there must be one server only.
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
    let program = format!("`umbel smo serve` or `relay` at {server}");
    status_socket::ask(&format!("{NAME}{server}"), &program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_and_answers() {
        // A port of this process alone, since tests run side by side.
        let port = 1024 + (std::process::id() % 60_000) as u16;
        let server = SocketAddr::new("127.9.9.9".parse().unwrap(), port);
        assert!(status(Some(server)).unwrap_err().to_string().contains("does not run here"));
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
