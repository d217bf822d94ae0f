//! The client's end: one session with one server.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use quinn::Connection;
use umbel_engine::SessionId;
use umbel_engine::host::{Mailbox, Piece, SessionNews};

use super::authority::{Authorities, Credentials};
use super::client_task::{self, Task};
use super::error::{ClientError, CloseCode, SendError};
use super::frame::MAX_MESSAGE;
use super::outbox::{Ending, Outbox};
use super::tls::Trust;
use super::url::SessionUrl;

/// Bytes of bulk streams that may be in flight from the session to the disk.
pub const BULK_WINDOW: usize = 4 << 20;

/// The options of a client's session.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Name of the interface that the session's packets must use. Default: the route's.
    pub interface: Option<String>,
    /// Address from which they are sent. Default: the route's.
    pub local: Option<IpAddr>,
    /// Certificates: the client's own, and those of the authorities that it trusts. Default: none.
    pub credentials: Credentials,
    /// Maximum time to connect, including name resolution. Default 10 s.
    pub timeout: Duration,
    /// Silence after which the server counts as gone. Default 15 s.
    pub idle_timeout: Duration,
    /// Silence after which the server is pinged. Default 4 s. A dead server is noticed within this
    /// and the idle timeout together.
    pub keep_alive: Duration,
    /// Maximum length of one message from the server, header included, in bytes. Default: the
    /// protocol's maximum, 4 MiB.
    pub max_message: usize,
    /// Bytes of messages that may wait for the server before the session counts as dead. Default
    /// 8 MiB.
    pub max_waiting: usize,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            interface: None,
            local: None,
            credentials: Credentials::default(),
            timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(4),
            max_message: MAX_MESSAGE,
            max_waiting: 8 << 20,
        }
    }
}

/// An event on a client's session.
///
/// `Connected` comes first if it comes at all, `Disconnected` last, and exactly once. Messages come
/// in the order in which the server sent them, and so does the data of one bulk stream. Messages
/// and bulk streams have no order relative to each other, nor have bulk streams among themselves.
#[derive(Debug)]
pub enum ClientEvent {
    /// The server has proved its key.
    Connected {
        /// Round-trip time of the handshake.
        rtt: Duration,
        /// The server's address.
        remote: SocketAddr,
        /// This host's address on the way to it.
        local: SocketAddr,
    },
    /// A message arrived.
    Message(Bytes),
    /// Data of a bulk stream.
    Bulk {
        /// Number of the stream in the session. The server's first is 0.
        stream: u64,
        /// The next bytes of the stream, not empty. At most [`BULK_WINDOW`] bytes of pieces wait.
        /// Until they are dropped, the server is slowed down.
        piece: Piece,
    },
    /// A bulk stream has ended.
    BulkEnd {
        /// The stream.
        stream: u64,
        /// Whether all of it has arrived. Otherwise the server has abandoned it.
        complete: bool,
    },
    /// The session has ended, or could not be opened.
    Disconnected {
        /// The reason.
        reason: ClientError,
        /// Whether to try again later: [`ClientError::retryable`].
        retryable: bool,
    },
}

impl ClientEvent {
    /// Puts the event into a host's mailbox as news of the session of this number.
    pub fn post(self, session: SessionId, mailbox: &Mailbox<SessionNews>) {
        mailbox.put(match self {
            ClientEvent::Connected { remote, rtt, .. } => {
                SessionNews::Opened { session, remote: remote.ip().to_canonical(), rtt }
            }
            ClientEvent::Message(message) => SessionNews::Message { session, message },
            ClientEvent::Bulk { stream, piece } => {
                SessionNews::Bulk { session, stream, piece: Some(piece) }
            }
            ClientEvent::BulkEnd { stream, .. } => {
                SessionNews::Bulk { session, stream, piece: None }
            }
            ClientEvent::Disconnected { reason, retryable } => {
                SessionNews::Closed { session, reason: reason.to_string(), retryable }
            }
        });
    }
}

/// A session with a server, perhaps still being opened. Dropping it closes it at once.
#[derive(Debug)]
pub struct ClientSession {
    outbox: Arc<Outbox>,
    connection: Arc<OnceLock<Connection>>,
    thread: Option<JoinHandle<()>>,
}

impl ClientSession {
    /// Starts to open a session on its own thread, and returns at once. The outcome and all later
    /// events are passed to `events`, on that thread.
    ///
    /// Messages sent before the server is reached wait, and leave with the last flight of the
    /// handshake. While `events` runs, nothing is read, so it must not block.
    ///
    /// # Errors
    ///
    /// If the URL has no pin and there are no authorities, or the system cannot start a thread.
    pub fn start(
        url: &SessionUrl,
        options: &ConnectOptions,
        events: impl Fn(ClientEvent) + Send + Sync + 'static,
    ) -> Result<ClientSession, ClientError> {
        let (session, _) = ClientSession::spawn(url, options, events)?;
        Ok(session)
    }

    /// Opens a session and waits until the server has proved its key.
    ///
    /// Takes half a round trip longer than [`start`](ClientSession::start) until the first message
    /// can leave. May be called repeatedly.
    ///
    /// # Errors
    ///
    /// If there is no session. The same error is passed to `events`, unless the session was never
    /// started.
    pub fn connect(
        url: &SessionUrl,
        options: &ConnectOptions,
        events: impl Fn(ClientEvent) + Send + Sync + 'static,
    ) -> Result<ClientSession, ClientError> {
        let (session, outcome) = ClientSession::spawn(url, options, events)?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ClientError::Ended),
        }
    }

    fn spawn(
        url: &SessionUrl,
        options: &ConnectOptions,
        events: impl Fn(ClientEvent) + Send + Sync + 'static,
    ) -> Result<(ClientSession, mpsc::Receiver<Result<(), ClientError>>), ClientError> {
        let authorities = options.credentials.authorities.as_deref();
        let authorities =
            authorities.map(Authorities::servers).transpose().map_err(ClientError::Protocol)?;
        if url.pin.is_none() && authorities.is_none() {
            return Err(ClientError::NoPin);
        }
        let system = |e: std::io::Error| ClientError::System(e.to_string());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;

        let outbox = Arc::new(Outbox::new(options.max_waiting));
        let connection = Arc::new(OnceLock::new());
        let (outcome, outcome_here) = mpsc::sync_channel(1);
        let task = Task {
            url: url.clone(),
            trust: Trust { pin: url.pin, authorities },
            options: options.clone(),
            outbox: outbox.clone(),
            connection: connection.clone(),
            outcome,
            events: Arc::new(events),
        };
        let thread = std::thread::Builder::new()
            .name("umbel-session".to_owned())
            .spawn(move || {
                runtime.block_on(client_task::run(task));
                // A resolver that hangs must not delay the end.
                runtime.shutdown_background();
            })
            .map_err(system)?;
        Ok((ClientSession { outbox, connection, thread: Some(thread) }, outcome_here))
    }

    /// Sends a whole message to the server, at once or as soon as it is reached. Never blocks.
    ///
    /// # Errors
    ///
    /// If the session has ended, or more bytes wait than [`ConnectOptions::max_waiting`]. In the
    /// latter case the session ends.
    pub fn send(&self, message: Bytes) -> Result<(), SendError> {
        self.outbox.push(message)
    }

    /// Returns the present estimate of the round-trip time, or `None` before the server is reached.
    pub fn rtt(&self) -> Option<Duration> {
        self.connection.get().map(Connection::rtt)
    }

    /// Closes the session once the waiting messages have reached the server, or after `drain` at
    /// the latest. Returns when that is done.
    pub fn close(mut self, drain: Duration) {
        self.end(drain);
    }

    fn end(&mut self, drain: Duration) {
        self.outbox.end(Ending { code: CloseCode::Done, reason: "done".to_owned(), drain });
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the session panicked");
        }
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
