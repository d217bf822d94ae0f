//! Reasons why a session could not be opened, or ended.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quinn::{ConnectionError, TransportErrorCode, VarInt};

use super::frame::FrameError;
use super::pin::Pin;

/// The first of the errors of QUIC that are alerts of TLS [RFC 9001 §4.8].
const FIRST_ALERT: u64 = 0x100;

/// The TLS alert `no_application_protocol` [RFC 7301 §3.2].
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// QUIC's CONNECTION_REFUSED [RFC 9000 §20.1].
const CONNECTION_REFUSED: u64 = 2;

/// Maximum length of the part of a peer's own words that is shown.
const MAX_REASON: usize = 200;

/// The reason for which one end closed a session. It is the application error code on the wire
/// [RFC 9000 §20.2], counted from 0 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// Nothing is left to do. Also the code of an abandoned connection.
    Done,
    /// The server stops, perhaps to start again.
    Shutdown,
    /// The peer did not read the data sent to it, or its unfinished messages exceed the server's
    /// memory for them.
    TooSlow,
    /// The peer exceeded its message rate.
    Flood,
    /// The peer sent something that is not a message.
    Malformed,
    /// The application refuses the peer.
    Refused,
    /// The server has reached its maximum number of sessions.
    Full,
    /// The peer connected and then sent nothing.
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

    /// Returns whether the same client may retry.
    const fn retryable(self) -> bool {
        !matches!(self, CloseCode::Flood | CloseCode::Malformed | CloseCode::Refused)
    }
}

/// The reason why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another program uses the port.
    #[error("UDP port {} is taken: stop the program that uses it (`ss -ulpn`), or choose another by --port", .0.port())]
    Taken(SocketAddr),
    /// The address is not one of this host.
    #[error("{} is not an address of this host: see `ip address`", .0.ip())]
    NotLocal(SocketAddr),
    /// Ports below 1024 need privileges.
    #[error("UDP port {} needs privileges: choose one above 1023", .0.port())]
    Denied(SocketAddr),
    /// Another error of the system.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address that was requested.
        address: SocketAddr,
        /// The system's error.
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

/// The reason why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The session does not exist, or has ended.
    #[error("the session has ended")]
    Ended,
    /// Too much already waits for the peer. The session is being closed.
    #[error("the peer reads too slowly; its session is closed")]
    TooSlow,
}

/// The reason why a client has no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The URL has no pin.
    #[error(
        "the URL has no `pin`, so the server cannot be told from another: copy the whole line that `umbel serve` printed, or name the authority of its certificate with --ca"
    )]
    NoPin,
    /// The server's name has no address.
    #[error("cannot resolve `{host}`: {problem}")]
    Resolve {
        /// The name, or the zone of an address.
        host: String,
        /// The resolver's error.
        problem: String,
    },
    /// No socket for the session.
    #[error("cannot open a socket to {server}: {problem}")]
    Socket {
        /// Host and port of the server.
        server: String,
        /// The system's error.
        problem: String,
    },
    /// The system cannot start a thread for the session.
    #[error("cannot start a session: {0}")]
    System(String),
    /// A server answers at the address, but has another key.
    #[error(
        "the server's key is {got}, not {expected} as the URL says: ask its operator for the new URL; if the key was not changed, somebody else is answering"
    )]
    WrongPin {
        /// The key in the URL.
        expected: Pin,
        /// The key that the server showed.
        got: Pin,
    },
    /// The server has a certificate that the authorities do not vouch for.
    #[error("the certificate of {server} is not accepted: {problem}")]
    Certificate {
        /// Host and port of the server.
        server: String,
        /// Reason of the refusal.
        problem: String,
    },
    /// The server admits by certificates, and not this client.
    #[error("the server {server} does not admit this client: {why}")]
    NotAdmitted {
        /// Host and port of the server.
        server: String,
        /// Its reason.
        why: NotAdmitted,
    },
    /// The server speaks another version of QUIC, or another protocol inside.
    #[error("the server {server} speaks another protocol: it is no `umbel serve`")]
    OtherProtocol {
        /// Host and port of the server.
        server: String,
    },
    /// The server speaks another version of the protocol.
    #[error(
        "the server {server} speaks version {theirs} of the protocol, this program version {ours}: use the same release of umbel on both sides"
    )]
    OtherVersion {
        /// Host and port of the server.
        server: String,
        /// The server's version.
        theirs: u8,
        /// This program's.
        ours: u8,
    },
    /// No answer came.
    #[error(
        "no answer from {server} within {after:.1?}: check that the server runs, and that no firewall on the way blocks its UDP port"
    )]
    NoAnswer {
        /// Host and port of the server.
        server: String,
        /// Time that the client waited.
        after: Duration,
    },
    /// The server has reached its maximum number of sessions.
    #[error("the server {server} has as many sessions as it takes: try again later")]
    Full {
        /// Host and port of the server.
        server: String,
    },
    /// The server closed the session.
    #[error("the server closed the session: {reason}")]
    Closed {
        /// The server's close code; `None` for a code that this version does not know.
        code: Option<CloseCode>,
        /// The server's words.
        reason: String,
    },
    /// The server fell silent.
    #[error("nothing heard from the server for {after:?}: it, or the way to it, is down")]
    Lost {
        /// The idle timeout.
        after: Duration,
    },
    /// The server does not know the session, since it was restarted.
    #[error("the server was restarted")]
    Restarted,
    /// The server did not read the data sent to it.
    #[error("the server does not read what it is sent")]
    Stalled,
    /// The server sent something that is not a message.
    #[error(
        "the server sent something other than a message ({0}): use the same release of umbel on both sides"
    )]
    BadMessage(#[from] FrameError),
    /// This client closed the session.
    #[error("closed")]
    Ended,
    /// Any other error of QUIC or TLS.
    #[error("the session with the server failed: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Returns whether a later attempt may succeed.
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
            | ClientError::Certificate { .. }
            | ClientError::NotAdmitted { .. }
            | ClientError::OtherProtocol { .. }
            | ClientError::OtherVersion { .. }
            | ClientError::BadMessage(_)
            | ClientError::Ended => false,
        }
    }

    /// Converts the end of a connection into a client's error.
    pub(super) fn from_connection(
        error: ConnectionError,
        server: &str,
        idle: Duration,
    ) -> ClientError {
        let server = || server.to_owned();
        if let Some(why) = NotAdmitted::told(&error) {
            return ClientError::NotAdmitted { server: server(), why };
        }
        match error {
            error if is_other_protocol(&error) => ClientError::OtherProtocol { server: server() },
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

/// The reason why a server does not admit a client by its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The client has shown none.
    #[error("it asks for a certificate: give one with --cert and --key")]
    NoCertificate,
    /// It has ended, or not begun, by the server's clock.
    #[error("the certificate has ended, or is not valid yet")]
    Expired,
    /// It is on a list of revoked ones.
    #[error("the certificate is revoked")]
    Revoked,
    /// No authority that the server trusts has signed it.
    #[error("the certificate is of an authority that the server does not trust")]
    UnknownAuthority,
    /// Another reason.
    #[error("the certificate is not accepted")]
    Bad,
}

impl NotAdmitted {
    /// Returns the server's reason, if it has ended this client's connection for it.
    pub(super) fn told(error: &ConnectionError) -> Option<NotAdmitted> {
        matches!(error, ConnectionError::ConnectionClosed(_)).then(|| NotAdmitted::of(error))?
    }

    /// Returns this server's reason, if it has ended a client's connection for it.
    pub(super) fn found(error: &ConnectionError) -> Option<NotAdmitted> {
        matches!(error, ConnectionError::TransportError(_)).then(|| NotAdmitted::of(error))?
    }

    /// Returns the reason that an alert about a certificate gives [RFC 8446 §6.2].
    fn of(error: &ConnectionError) -> Option<NotAdmitted> {
        Some(match alert(error)? {
            116 => NotAdmitted::NoCertificate,
            45 => NotAdmitted::Expired,
            44 => NotAdmitted::Revoked,
            48 => NotAdmitted::UnknownAuthority,
            42 | 43 | 46 | 51 => NotAdmitted::Bad,
            _ => return None,
        })
    }
}

/// Returns whether the two ends have no version of QUIC in common, or no protocol inside.
pub(super) fn is_other_protocol(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::VersionMismatch)
        || alert(error) == Some(NO_APPLICATION_PROTOCOL)
}

/// Returns the alert of TLS that has ended a connection, on whichever side.
fn alert(error: &ConnectionError) -> Option<u8> {
    let code: TransportErrorCode = match error {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    u64::from(code).checked_sub(FIRST_ALERT).and_then(|alert| u8::try_from(alert).ok())
}

/// Returns a peer's words as one harmless line of bounded length.
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
