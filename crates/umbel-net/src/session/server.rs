//! The server's end: one UDP port, many sessions.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, EndpointConfig, ServerConfig, TokioRuntime};
use quinn_proto::HashedConnectionIdGenerator;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use umbel_engine::SessionId;
use umbel_engine::host::{Mailbox, SessionNews};

use super::authority::Authorities;
use super::error::{BindError, CloseCode, SendError};
use super::frame::MAX_MESSAGE;
use super::guard::Guard;
use super::identity::Identity;
use super::limits::Unfinished;
use super::outbox::{Ending, Outbox};
use super::{server_task, tls, transport};
use crate::bounds::{HANDSHAKES, SESSIONS, UNFINISHED};

/// Bytes of one bulk stream that wait between its [`BulkWriter`] and QUIC.
const BULK_QUEUE: usize = 256 * 1024;

/// Time that [`SessionHandle::close`] allows for waiting messages to reach the client.
const CLOSE_DRAIN: Duration = Duration::from_secs(2);

/// Bytes of datagrams kept for handshakes not yet examined: of one, and of all.
const INCOMING_BYTES: u64 = 16 * 1024;
const INCOMING_BYTES_TOTAL: u64 = 4 * 1024 * 1024;

/// Limits that a server sets for its clients.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Authorities of clients: a client without a certificate of one of them gets no session.
    /// Default: `None`, any client gets one.
    pub clients: Option<Arc<Authorities>>,
    /// Maximum number of sessions. When there are as many, the address that has most gives the
    /// oldest up for one that has fewer; others are told that the server is full. Default 4,096.
    pub max_sessions: usize,
    /// Maximum number of sessions and handshakes of one IPv4 address. A network of the first 64
    /// bits of IPv6 has four times as many. Further ones are told that the server is full. Default
    /// 256.
    pub max_per_address: usize,
    /// Maximum number of handshakes under way. Above half of it, a client must first show that its
    /// address is not forged, which costs one round trip [RFC 9000 §8.1.2]. When there are as many,
    /// the address with most gives way, or the client is not answered and retries by itself.
    /// Default 1,024.
    pub max_handshakes: usize,
    /// Maximum time for a handshake, and then for the first message. Default 10 s, which survives a
    /// path that loses every other packet.
    pub handshake_timeout: Duration,
    /// Silence after which a client counts as gone. Default 15 s.
    pub idle_timeout: Duration,
    /// Silence after which the server pings a client. Default `None`: the clients ping, which is
    /// enough for both ends to notice.
    pub keep_alive: Option<Duration>,
    /// Maximum length of one message from a client, header included, in bytes. Default: the
    /// protocol's maximum, 4 MiB.
    pub max_message: usize,
    /// Bytes that all sessions together may hold in incomplete messages, and those of one address
    /// no more than what is left for others. Default 64 MiB.
    pub max_unfinished: usize,
    /// Messages a second from one client, on average. Each 16 KiB of a message count as one more.
    /// The session of a client that exceeds this is closed. Default 2,000.
    pub messages_per_s: u32,
    /// Messages at once from one client, counted likewise. Default 4,000.
    pub message_burst: u32,
    /// Bytes of messages that may wait for one client before it is closed as too slow. Default
    /// 8 MiB.
    pub max_waiting: usize,
    /// Bytes sent to one client and not yet acknowledged. They are the memory cost of a session
    /// with a bulk transfer, and its maximum rate times the round-trip time. Default 512 KiB.
    pub send_window: u64,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            clients: None,
            max_sessions: SESSIONS.all,
            max_per_address: SESSIONS.most_of_host(),
            max_handshakes: HANDSHAKES.all,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15),
            keep_alive: None,
            max_message: MAX_MESSAGE,
            max_unfinished: UNFINISHED.all,
            messages_per_s: 2_000,
            message_burst: 4_000,
            max_waiting: 8 << 20,
            send_window: 512 << 10,
        }
    }
}

/// An event on the server's sessions.
///
/// The events of one session come in order: `Opened`, any number of `Message`, `Closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A client opened a session. Its first message follows.
    Opened {
        /// The session.
        id: SessionId,
        /// The client's address; it may change later.
        remote: SocketAddr,
        /// Round-trip time of the handshake.
        rtt: Duration,
    },
    /// A message arrived.
    Message {
        /// The session.
        id: SessionId,
        /// The whole message.
        bytes: Bytes,
    },
    /// The session has ended, for whatever reason. Sent exactly once for each `Opened`.
    Closed {
        /// The session.
        id: SessionId,
        /// One line for the operator.
        reason: String,
    },
    /// A client did not get a session, because it speaks another protocol or the server is full.
    ///
    /// Any program that can send packets can provoke this, with any address. Count these events,
    /// and do no more than that for each.
    Rejected {
        /// The apparent address of the client.
        remote: SocketAddr,
        /// One line for the operator.
        reason: String,
    },
}

impl SessionEvent {
    /// Puts the event into a host's mailbox. Rejected clients are only logged.
    pub fn post(self, mailbox: &Mailbox<SessionNews>) {
        mailbox.put(match self {
            SessionEvent::Opened { id: session, remote, rtt } => {
                tracing::info!("session {} of {remote} opened, round trip {rtt:?}", session.0);
                SessionNews::Opened { session, remote: remote.ip().to_canonical(), rtt }
            }
            SessionEvent::Message { id: session, bytes: message } => {
                SessionNews::Message { session, message }
            }
            SessionEvent::Closed { id: session, reason } => {
                tracing::info!("session {} closed: {reason}", session.0);
                SessionNews::Closed { session, reason, retryable: false }
            }
            SessionEvent::Rejected { remote, reason } => {
                return tracing::debug!("no session for {remote}: {reason}");
            }
        });
    }
}

pub(super) type Events = Box<dyn Fn(SessionEvent) + Send + Sync>;

/// A server that has its port but does not answer yet.
#[derive(Debug)]
pub struct ServerEndpoint {
    runtime: Runtime,
    endpoint: quinn::Endpoint,
    options: ServerOptions,
    address: SocketAddr,
}

impl ServerEndpoint {
    /// Binds the port. `[::]` serves IPv4 as well; port 0 takes any free port.
    ///
    /// # Errors
    ///
    /// If the port is taken, or the address or the identity cannot be used.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        options: ServerOptions,
    ) -> Result<ServerEndpoint, BindError> {
        let failed = |source| BindError::new(address, source);
        let crypto = tls::server(identity, options.clients.as_deref()).map_err(BindError::Key)?;
        let socket = transport::socket(address, None).map_err(failed)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;

        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(Arc::new(transport::server(
                options.idle_timeout,
                options.keep_alive,
                options.send_window,
            )))
            .max_incoming(options.max_handshakes)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_TOTAL);
        let keys = tls::ResetKeys::derive(identity);
        let mut endpoint_config = EndpointConfig::new(Arc::new(keys.token));
        endpoint_config
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(keys.cid)));

        let _context = runtime.enter();
        let quic = Arc::new(TokioRuntime);
        let endpoint =
            quinn::Endpoint::new(endpoint_config, Some(config), socket, quic).map_err(failed)?;
        let address = endpoint.local_addr().map_err(failed)?;
        Ok(ServerEndpoint { runtime, endpoint, options, address })
    }

    /// Returns the address and port that are bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts serving on its own thread, and calls `events` from there.
    ///
    /// All sessions stand still while `events` runs, so it should pass the event on and return. It
    /// may use the [`SessionHandle`], but must not block in [`BulkWriter::write`].
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn start(
        self,
        events: impl Fn(SessionEvent) + Send + Sync + 'static,
    ) -> std::io::Result<SessionServer> {
        let shared = Arc::new(Shared {
            unfinished: Unfinished::new(self.options.max_unfinished),
            guard: Guard::new(
                self.options.max_handshakes,
                self.options.max_sessions,
                self.options.max_per_address,
            ),
            options: self.options,
            events: Box::new(events),
            runtime: self.runtime.handle().clone(),
            sessions: Mutex::default(),
            next_id: AtomicU64::new(1),
            told_version: AtomicBool::new(false),
            stop: Mutex::new(None),
            stopping: Notify::new(),
            left: Notify::new(),
        });
        let handle = SessionHandle { shared: shared.clone() };
        let (runtime, endpoint) = (self.runtime, self.endpoint);
        let thread = std::thread::Builder::new()
            .name("umbel-sessions".to_owned())
            .spawn(move || runtime.block_on(server_task::run(endpoint, shared)))?;
        Ok(SessionServer { handle, address: self.address, thread: Some(thread) })
    }
}

/// The state shared by the server's tasks and its handles.
pub(super) struct Shared {
    pub(super) options: ServerOptions,
    pub(super) events: Events,
    pub(super) unfinished: Arc<Unfinished>,
    pub(super) guard: Arc<Guard>,
    pub(super) next_id: AtomicU64,
    /// Whether a client of another version was told of.
    pub(super) told_version: AtomicBool,
    runtime: Handle,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Time for which sessions may drain. Set once.
    stop: Mutex<Option<Duration>>,
    pub(super) stopping: Notify,
    /// Wakes the draining server when a session has left.
    pub(super) left: Notify,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) outbox: Outbox,
    pub(super) connection: Connection,
}

impl Shared {
    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        self.sessions().get(&id).cloned()
    }

    /// Returns the time for which sessions may drain, once the server is to stop.
    pub(super) fn stop(&self) -> Option<Duration> {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server. Dropping it closes all sessions at once.
#[derive(Debug)]
pub struct SessionServer {
    handle: SessionHandle,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl SessionServer {
    /// Returns a handle for other threads.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Returns the address and port on which the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server. It accepts no further clients, and gives waiting messages up to `drain` to
    /// reach the present ones. It then closes all sessions, and returns when the port is free.
    pub fn shutdown(mut self, drain: Duration) {
        self.stop(drain);
    }

    fn stop(&mut self, drain: Duration) {
        self.handle.shutdown(drain);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the sessions panicked");
        }
    }
}

impl Drop for SessionServer {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// A handle that reaches the sessions of a server from any thread. Cheap to clone.
#[derive(Clone)]
pub struct SessionHandle {
    shared: Arc<Shared>,
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHandle").field("sessions", &self.len()).finish_non_exhaustive()
    }
}

impl SessionHandle {
    /// Sends a whole message to a client. Never blocks. If more bytes wait than
    /// [`ServerOptions::max_waiting`], the session is closed and reported as such.
    ///
    /// # Errors
    ///
    /// If the session has ended, through this very message or before.
    pub fn send(&self, id: SessionId, message: Bytes) -> Result<(), SendError> {
        self.shared.session(id).ok_or(SendError::Ended)?.outbox.push(message)
    }

    /// Returns the present estimate of the round-trip time to a client, or `None` if it has left.
    pub fn rtt(&self, id: SessionId) -> Option<Duration> {
        self.shared.session(id).map(|session| session.connection.rtt())
    }

    /// Returns the present address of a client, or `None` if it has left.
    pub fn remote(&self, id: SessionId) -> Option<SocketAddr> {
        self.shared.session(id).map(|session| session.connection.remote_address())
    }

    /// Closes a session permanently, and tells the client why. Messages sent before get up to 2 s
    /// to reach it. Does nothing if the session has ended. Does not block.
    pub fn close(&self, id: SessionId, reason: &str) {
        if let Some(session) = self.shared.session(id) {
            session.outbox.end(Ending {
                code: CloseCode::Refused,
                reason: reason.to_owned(),
                drain: CLOSE_DRAIN,
            });
        }
    }

    /// Notes that the client of a session has shown a wrong token. After a few of them, its address
    /// gets no session for a while, which grows with each. The first is logged.
    pub fn bar(&self, id: SessionId) {
        if let Some(remote) = self.remote(id)
            && self.shared.guard.note_guess(remote.ip(), Instant::now())
        {
            tracing::warn!("{} showed a wrong token", remote.ip());
        }
    }

    /// Opens a stream for bulk data to a client, behind the messages in priority. Does not block.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn bulk(&self, id: SessionId) -> Result<BulkWriter, SendError> {
        let session = self.shared.session(id).ok_or(SendError::Ended)?;
        let queue = Arc::new(Outbox::new(BULK_QUEUE));
        let task = server_task::bulk(session.connection.clone(), BulkQueue(queue.clone()));
        self.shared.runtime.spawn(task);
        Ok(BulkWriter { queue, finished: false })
    }

    /// Returns the number of open sessions.
    pub fn len(&self) -> usize {
        self.shared.sessions().len()
    }

    /// Returns whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks the server to stop as [`SessionServer::shutdown`] does, and does not wait for it. Of
    /// several calls, the first counts.
    pub fn shutdown(&self, drain: Duration) {
        let mut stop = self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner);
        stop.get_or_insert(drain);
        drop(stop);
        self.shared.stopping.notify_one();
    }
}

/// The task's half of a bulk stream. When it is dropped, for whatever reason, the writer learns of
/// it.
pub(super) struct BulkQueue(pub(super) Arc<Outbox>);

impl Drop for BulkQueue {
    fn drop(&mut self) {
        self.0.end(Ending { code: CloseCode::Done, reason: String::new(), drain: Duration::ZERO });
    }
}

/// Writes bulk data to one client at the pace at which it reads.
///
/// Dropping it without [`finish`](BulkWriter::finish) abandons the stream, which the client sees.
#[derive(Debug)]
pub struct BulkWriter {
    queue: Arc<Outbox>,
    finished: bool,
}

impl BulkWriter {
    /// Writes, and blocks while 256 KiB are waiting. Neither the thread that calls the server's
    /// events nor an engine's driver may call it.
    ///
    /// # Errors
    ///
    /// If the session has ended or the client does not want the stream.
    pub fn write(&mut self, bytes: Bytes) -> Result<(), SendError> {
        self.queue.push_when_room(bytes)
    }

    /// Writes if less than 256 KiB wait. Otherwise returns the bytes.
    ///
    /// # Errors
    ///
    /// If the session has ended or the client does not want the stream.
    pub fn try_write(&mut self, bytes: Bytes) -> Result<Option<Bytes>, SendError> {
        self.queue.try_push(bytes)
    }

    /// Ends the stream, so that the client knows that it has all. Waiting data is still sent. Does
    /// not block.
    pub fn finish(mut self) {
        self.end(Duration::MAX);
    }

    fn end(&mut self, drain: Duration) {
        if !std::mem::replace(&mut self.finished, true) {
            self.queue.end(Ending { code: CloseCode::Done, reason: String::new(), drain });
        }
    }
}

impl Drop for BulkWriter {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
