//! Why a session did not come about, or ended.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quinn::{ConnectionError, TransportErrorCode, VarInt};

use super::frame::FrameError;
use super::pin::Pin;

/// The TLS alert `no_application_protocol` [RFC 7301 §3.2] as a QUIC error [RFC 9001 §4.8].
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// QUIC's CONNECTION_REFUSED [RFC 9000 §20.1].
const CONNECTION_REFUSED: u64 = 2;

/// Longest part of a peer's own words that is shown.
const MAX_REASON: usize = 200;

/// Why one end closed a session: the application error code on the wire [RFC 9000 §20.2], counted
/// from 0 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// Nothing is left to do. Also what an abandoned connection says.
    Done,
    /// The server stops, perhaps to start again.
    Shutdown,
    /// The peer did not read what was sent to it.
    TooSlow,
    /// The peer sent more messages than it may.
    Flood,
    /// The peer sent what is not a message.
    Malformed,
    /// The application does not want the peer.
    Refused,
    /// The server has as many sessions as it takes.
    Full,
    /// The peer connected and then said nothing.
    Silent,
}

impl CloseCode {
    const ALL: [CloseCode; 8] = [
        CloseCode::Done,
        CloseCode::Shutdown,
        CloseCode::TooSlow,
        CloseCode::Flood,
        CloseCode::Malformed,
        CloseCode::Refused,
        CloseCode::Full,
        CloseCode::Silent,
    ];

    pub(super) const fn on_wire(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }

    fn from_wire(code: VarInt) -> Option<CloseCode> {
        usize::try_from(code.into_inner()).ok().and_then(|code| Self::ALL.get(code)).copied()
    }

    /// Whether the same client may as well come again.
    const fn retryable(self) -> bool {
        !matches!(self, CloseCode::Flood | CloseCode::Malformed | CloseCode::Refused)
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another program has the port.
    #[error("UDP port {} is taken: stop the program that uses it (`ss -ulpn`), or choose another port", .0.port())]
    Taken(SocketAddr),
    /// The address is not one of this host.
    #[error("{} is not an address of this host: see `ip address`", .0.ip())]
    NotLocal(SocketAddr),
    /// Ports below 1024 need privileges.
    #[error("UDP port {} needs privileges: choose one above 1023", .0.port())]
    Denied(SocketAddr),
    /// Something else.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The identity cannot be used for TLS.
    #[error("the server's key cannot be used: {0}")]
    Key(String),
}

impl BindError {
    pub(super) fn new(address: SocketAddr, source: io::Error) -> BindError {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::Taken(address),
            io::ErrorKind::AddrNotAvailable => BindError::NotLocal(address),
            io::ErrorKind::PermissionDenied => BindError::Denied(address),
            _ => BindError::Io { address, source },
        }
    }
}

/// A message that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no such session, or no longer.
    #[error("the session has ended")]
    Ended,
    /// Too much waits for the peer already. The session is being closed.
    #[error("the peer reads too slowly; its session is closed")]
    TooSlow,
}

/// Why a client has no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The URL names no key.
    #[error(
        "the URL has no `pin`, so the server cannot be told from another: copy the whole line that `umbel serve` printed"
    )]
    NoPin,
    /// The server's name has no address.
    #[error("cannot resolve `{host}`: {problem}")]
    Resolve {
        /// The name, or the zone of an address.
        host: String,
        /// What the resolver said.
        problem: String,
    },
    /// No socket for the session.
    #[error("cannot open a socket to {server}: {problem}")]
    Socket {
        /// Host and port of the server.
        server: String,
        /// What the system said.
        problem: String,
    },
    /// The system gives no thread for the session.
    #[error("cannot start a session: {0}")]
    System(String),
    /// Something has the address, but not the key.
    #[error(
        "the server's key is {got}, not {expected} as the URL says: ask its operator for the new URL; if the key was not changed, somebody else is answering"
    )]
    WrongPin {
        /// As in the URL.
        expected: Pin,
        /// The key that the server showed.
        got: Pin,
    },
    /// The server speaks another version of the protocol.
    #[error(
        "the server {server} speaks another version of the protocol: use the same release of umbel on both sides"
    )]
    OtherVersion {
        /// Host and port of the server.
        server: String,
    },
    /// Nothing came back.
    #[error(
        "no answer from {server} within {after:.1?}: check that the server runs, and that no firewall on the way blocks its UDP port"
    )]
    NoAnswer {
        /// Host and port of the server.
        server: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The server has as many sessions as it takes.
    #[error("the server {server} has as many sessions as it takes: try again later")]
    Full {
        /// Host and port of the server.
        server: String,
    },
    /// The server closed the session.
    #[error("the server closed the session: {reason}")]
    Closed {
        /// What it means; `None` for a code that this version does not know.
        code: Option<CloseCode>,
        /// The server's words.
        reason: String,
    },
    /// The server fell silent.
    #[error("nothing heard from the server for {after:?}: it, or the way to it, is down")]
    Lost {
        /// How long.
        after: Duration,
    },
    /// The server does not know the session: it was started anew.
    #[error("the server was restarted")]
    Restarted,
    /// The server did not read what was sent to it.
    #[error("the server does not read what it is sent")]
    Stalled,
    /// The server sent what is not a message.
    #[error(
        "the server sent what is not a message ({0}): use the same release of umbel on both sides"
    )]
    BadMessage(#[from] FrameError),
    /// This client closed the session.
    #[error("closed")]
    Ended,
    /// Anything else that QUIC or TLS complained of.
    #[error("the session with the server failed: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Whether it may be better a little later.
    pub fn retryable(&self) -> bool {
        match self {
            ClientError::Resolve { .. }
            | ClientError::Socket { .. }
            | ClientError::System(_)
            | ClientError::NoAnswer { .. }
            | ClientError::Full { .. }
            | ClientError::Lost { .. }
            | ClientError::Restarted
            | ClientError::Stalled
            | ClientError::Protocol(_) => true,
            ClientError::Closed { code, .. } => code.is_none_or(CloseCode::retryable),
            ClientError::NoPin
            | ClientError::WrongPin { .. }
            | ClientError::OtherVersion { .. }
            | ClientError::BadMessage(_)
            | ClientError::Ended => false,
        }
    }

    /// What the end of a connection means to a client.
    pub(super) fn from_connection(
        error: ConnectionError,
        server: &str,
        idle: Duration,
    ) -> ClientError {
        let server = || server.to_owned();
        match error {
            error if is_other_version(&error) => ClientError::OtherVersion { server: server() },
            ConnectionError::ConnectionClosed(close)
                if u64::from(close.error_code) == CONNECTION_REFUSED =>
            {
                ClientError::Full { server: server() }
            }
            ConnectionError::ApplicationClosed(close)
                if close.error_code == CloseCode::Full.on_wire() =>
            {
                ClientError::Full { server: server() }
            }
            ConnectionError::ApplicationClosed(close) => ClientError::Closed {
                code: CloseCode::from_wire(close.error_code),
                reason: clean(&close.reason),
            },
            ConnectionError::Reset => ClientError::Restarted,
            ConnectionError::TimedOut => ClientError::Lost { after: idle },
            ConnectionError::LocallyClosed => ClientError::Ended,
            other => ClientError::Protocol(clean(other.to_string().as_bytes())),
        }
    }
}

/// Whether the two ends have no version in common, of QUIC or of the protocol inside.
pub(super) fn is_other_version(error: &ConnectionError) -> bool {
    let code: TransportErrorCode = match error {
        ConnectionError::VersionMismatch => return true,
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return false,
    };
    u64::from(code) == NO_APPLICATION_PROTOCOL
}

/// A peer's words as one harmless line of bounded length.
pub(super) fn clean(words: &[u8]) -> String {
    let words = &words[..words.len().min(MAX_REASON)];
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    String::from_utf8_lossy(words).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_code_means_the_same_on_both_sides() {
        for code in CloseCode::ALL {
            assert_eq!(CloseCode::from_wire(code.on_wire()), Some(code));
        }
        assert_eq!(CloseCode::from_wire(VarInt::MAX), None);
    }

    #[test]
    fn a_peers_words_become_one_short_line() {
        let words = clean(&[b"a\x1b[31m\n\xff".as_slice(), &[b'x'; 500]].concat());
        assert!(words.len() < 300 && !words.chars().any(char::is_control), "{words:?}");
    }
}
