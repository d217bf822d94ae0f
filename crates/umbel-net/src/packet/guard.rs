//! A rule that keeps the kernel from answering segments for a port that it knows nothing of.
//!
//! It would answer them with RST. The rule is in a table of its own, which belongs to a running
//! `nft`: when that ends, the kernel removes the table. That `nft` reads from a pipe whose other
//! end this process holds, so that it ends with this process, however that ends.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::OpenPacketError;

/// Beginning of the names of all such tables.
pub const TABLE_PREFIX: &str = "umbel_smo_";

/// Places of the program: by the search path, and where administrators' programs are.
const PROGRAMS: [&str; 2] = ["nft", "/usr/sbin/nft"];

/// Interval and number of looks for the rule, which appears within milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: usize = 1000;

/// A rule that is in force until it is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    nft: Child,
    table: String,
}

impl Guard {
    /// Makes the kernel ignore segments for `server`. Packet sockets see them all the same.
    pub(super) fn set(server: SocketAddr) -> Result<Guard, OpenPacketError> {
        let table = table_name(server);
        let family = if server.is_ipv4() { "ip" } else { "ip6" };
        let commands = format!(
            "add table inet {table} {{ flags owner ; }}\n\
             add chain inet {table} arrivals {{ type filter hook prerouting priority raw ; }}\n\
             add rule inet {table} arrivals {family} daddr {} tcp dport {} drop\n",
            server.ip(),
            server.port()
        );
        // A mistake would go unnoticed below, so that the commands are tried first.
        let program = try_out(&commands)?;
        let mut nft = Command::new(program)
            .arg("-i")
            // It would keep a history there.
            .env("HOME", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt at the terminal is for this process, which may have to finish.
            .process_group(0)
            .spawn()
            .map_err(|error| OpenPacketError::guard(&error))?;
        let pipe = nft.stdin.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe));
        let written = pipe.and_then(|pipe| {
            pipe.write_all(commands.as_bytes())?;
            pipe.flush()
        });
        let mut guard = Guard { nft, table };
        written.map_err(|error| OpenPacketError::guard(&error))?;
        for _ in 0..LOOKS {
            if guard.is_in_force(program) {
                return Ok(guard);
            }
            if !guard.is_alive() {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(OpenPacketError::Guard {
            reason: "`nft -i` does not keep its table: it is too old, or was built without it"
                .to_owned(),
        })
    }

    /// Returns whether the rule is still there.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.nft.try_wait(), Ok(None))
    }

    fn is_in_force(&self, program: &str) -> bool {
        Command::new(program)
            .args(["list", "table", "inet", &self.table])
            .stderr(Stdio::null())
            .output()
            .is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("drop"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

/// Returns the name of the table of this process for a server.
fn table_name(server: SocketAddr) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let address: String = server.ip().to_string().chars().map(plain).collect();
    format!("{TABLE_PREFIX}{address}_{}_{}", server.port(), std::process::id())
}

/// Has `nft` check the commands without carrying them out. Returns the program.
fn try_out(commands: &str) -> Result<&'static str, OpenPacketError> {
    for program in PROGRAMS {
        let spawned = Command::new(program)
            .args(["-c", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut nft = match spawned {
            Ok(nft) => nft,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(OpenPacketError::guard(&error)),
        };
        if let Some(mut pipe) = nft.stdin.take() {
            // If it ends before it has read all, its own words say why.
            let _ = pipe.write_all(commands.as_bytes());
        }
        let out = nft.wait_with_output().map_err(|error| OpenPacketError::guard(&error))?;
        if out.status.success() {
            return Ok(program);
        }
        let words = String::from_utf8_lossy(&out.stderr);
        if words.contains("not permitted") {
            return Err(OpenPacketError::NotPermitted);
        }
        let reason = words.lines().next().unwrap_or("no reason given").to_owned();
        return Err(OpenPacketError::Guard { reason });
    }
    Err(OpenPacketError::NoNft)
}
