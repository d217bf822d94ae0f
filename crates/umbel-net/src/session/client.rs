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

use super::client_task::{self, Task};
use super::error::{ClientError, CloseCode, SendError};
use super::frame::MAX_MESSAGE;
use super::outbox::{Ending, Outbox};
use super::url::SessionUrl;

/// Bytes of bulk streams that may be on their way from the session to the disk.
pub const BULK_WINDOW: usize = 4 << 20;

/// How a client opens its session.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Name of the interface that the session's packets must use. Default: the route's.
    pub interface: Option<String>,
    /// Address that they come from. Default: the route's.
    pub local: Option<IpAddr>,
    /// How long connecting may take, resolving the name included. Default 10 s.
    pub timeout: Duration,
    /// A server that is not heard of for so long is gone. Default 15 s.
    pub idle_timeout: Duration,
    /// Silence after which the server is pinged. Default 4 s. A dead server is noticed within
    /// this and the idle timeout together.
    pub keep_alive: Duration,
    /// Greatest length of one message from the server, header included, in bytes. Default:
    /// what the protocol allows, 4 MiB.
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
            timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(4),
            max_message: MAX_MESSAGE,
            max_waiting: 8 << 20,
        }
    }
}

/// What happens on a client's session.
///
/// `Connected` comes first if it comes at all, `Disconnected` last, and exactly once. Messages
/// come in the order in which the server sent them, and so does the data of one bulk stream; there
/// is no order between the two, nor between bulk streams.
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
    /// A message came.
    Message(Bytes),
    /// Data of a bulk stream.
    Bulk {
        /// Tells the session's streams apart; the server's first is 0.
        stream: u64,
        /// The next bytes of the stream; not empty. At most [`BULK_WINDOW`] bytes of pieces wait:
        /// as long as they are not dropped, the server is slowed down.
        piece: Piece,
    },
    /// A bulk stream is over.
    BulkEnd {
        /// The stream.
        stream: u64,
        /// Whether all of it has come; otherwise the server has abandoned it.
        complete: bool,
    },
    /// There is no session, or no longer.
    Disconnected {
        /// Why.
        reason: ClientError,
        /// Whether to try again later: [`ClientError::retryable`].
        retryable: bool,
    },
}

impl ClientEvent {
    /// Puts the event into a host's mailbox as news of the session of this number.
    pub fn post(self, session: SessionId, mailbox: &Mailbox<SessionNews>) {
        mailbox.put(match self {
            ClientEvent::Connected { rtt, .. } => SessionNews::Opened { session, rtt },
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
    /// Begins to open a session, on a thread of its own, and returns at once. Whatever becomes
    /// of it is told to `events`, on that thread.
    ///
    /// Messages sent before the server is reached wait, and leave with the last flight of the
    /// handshake. While `events` runs, nothing is read: it must not wait.
    ///
    /// # Errors
    ///
    /// When the URL has no pin, or the system gives no thread.
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
    /// Costs half a round trip more than [`start`](ClientSession::start) before the first message
    /// can leave. May be called again and again.
    ///
    /// # Errors
    ///
    /// When there is no session; the same is told to `events`, unless it never began.
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
        let pin = url.pin.ok_or(ClientError::NoPin)?;
        let system = |e: std::io::Error| ClientError::System(e.to_string());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;

        let outbox = Arc::new(Outbox::new(options.max_waiting));
        let connection = Arc::new(OnceLock::new());
        let (outcome, outcome_here) = mpsc::sync_channel(1);
        let task = Task {
            url: url.clone(),
            pin,
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
                // A resolver that hangs must not hold up anybody.
                runtime.shutdown_background();
            })
            .map_err(system)?;
        Ok((ClientSession { outbox, connection, thread: Some(thread) }, outcome_here))
    }

    /// Sends a whole message to the server, at once or as soon as it is reached. Never waits.
    ///
    /// # Errors
    ///
    /// When the session has ended, or more waits than [`ConnectOptions::max_waiting`]: the session
    /// then ends.
    pub fn send(&self, message: Bytes) -> Result<(), SendError> {
        self.outbox.push(message)
    }

    /// The present estimate of the round-trip time; `None` before the server is reached.
    pub fn rtt(&self) -> Option<Duration> {
        self.connection.get().map(Connection::rtt)
    }

    /// Closes the session after what waits has reached the server, or after `drain` at the
    /// latest. Returns when that is done.
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
