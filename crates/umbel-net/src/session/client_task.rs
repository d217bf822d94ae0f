//! The task on a client's thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream,
    TokioRuntime,
};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use umbel_engine::host::Piece;
use umbel_wire::ParseError;

use super::client::{BULK_WINDOW, ClientEvent, ConnectOptions};
use super::error::{ClientError, CloseCode};
use super::frame::FrameError;
use super::nudge::nudge;
use super::outbox::{Ending, Outbox};
use super::stream::{READ_CHUNK, ReadEnd, Reader, Writer};
use super::tls::{Objection, Trust};
use super::transport::DOUBTFUL_RTT;
use super::url::{Host, SessionUrl};
use super::{tls, transport};

/// Head start of each address of a name before the next is tried as well [RFC 8305 §5].
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Time without success after which one more attempt is made beside the others. When packets of a
/// handshake are lost, QUIC measures a round-trip time that is far too long, and retries ever more
/// slowly. A fresh handshake has a better chance.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// Maximum time between attempts, which doubles with each. A server that is slow for the number of
/// its clients would be kept from ever answering by attempts at a constant rate.
const LAST_RETRY: Duration = Duration::from_secs(8);

/// Time for the server to confirm the handshake, plus four round trips. A server that has not may
/// have missed the end of it. QUIC may take long to repeat it, and a new attempt is quicker.
const CONFIRM: Duration = Duration::from_secs(1);

/// Maximum number of a name's addresses that are tried.
const MAX_ADDRESSES: usize = 8;

/// Maximum time for the server to say why it closes the session, after its last message.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A server must have a name in TLS. One that is only pinned needs none. No name is ever sent.
const ANY_NAME: &str = "umbel";

pub(super) type Events = Arc<dyn Fn(ClientEvent) + Send + Sync>;

/// The state of the client's thread.
pub(super) struct Task {
    pub(super) url: SessionUrl,
    pub(super) trust: Trust,
    pub(super) options: ConnectOptions,
    pub(super) outbox: Arc<Outbox>,
    /// Set when the server is reached.
    pub(super) connection: Arc<OnceLock<Connection>>,
    /// Receives once whether there is a session.
    pub(super) outcome: SyncSender<Result<(), ClientError>>,
    pub(super) events: Events,
}

/// Opens the session, and serves it until it ends.
pub(super) async fn run(task: Task) {
    let reason = session(&task).await;
    task.outbox.end(Ending { code: CloseCode::Done, reason: String::new(), drain: Duration::ZERO });
    let _ = task.outcome.try_send(Err(reason.clone()));
    let retryable = reason.retryable();
    (task.events)(ClientEvent::Disconnected { reason, retryable });
}

async fn session(task: &Task) -> ClientError {
    let connected = match connect_in_time(task).await {
        Ok(connected) => connected,
        Err(error) => return error,
    };
    let connection = &connected.connection;
    let _ = task.connection.set(connection.clone());
    let mut bulk = JoinSet::new();
    let end = match connection.open_bi().await {
        Ok((send, receive)) => {
            let reader = Reader::new(receive, task.options.max_message);
            exchange(task, &connected, send, reader, &mut bulk).await
        }
        Err(error) => from_connection(task, error),
    };
    let code = match &end {
        ClientError::BadMessage(_) | ClientError::OtherVersion { .. } => CloseCode::Malformed,
        ClientError::Stalled => CloseCode::TooSlow,
        _ => CloseCode::Done,
    };
    connection.close(code.on_wire(), end.to_string().as_bytes());
    // Tasks that wait for the window would wait forever, and their pieces are no longer needed.
    bulk.shutdown().await;
    say_farewell().await;
    end
}

/// Lets the connection's task send its last packet, without waiting for a reply.
async fn say_farewell() {
    for _ in 0..4 {
        yield_now().await;
    }
}

/// Runs both directions until one ends permanently.
async fn exchange(
    task: &Task,
    connected: &Connected,
    send: SendStream,
    reader: Reader,
    bulk: &mut JoinSet<()>,
) -> ClientError {
    let connection = &connected.connection;
    let read = async {
        // The first message is sent before the callback is told.
        yield_now().await;
        announce(task, connected);
        read(task, connection, reader).await
    };
    tokio::pin!(read);
    tokio::select! {
        biased;
        ending = Writer::new(send).run(&task.outbox) => match ending {
            Some(ending) if ending.code == CloseCode::TooSlow => ClientError::Stalled,
            Some(_) => ClientError::Ended,
            // Messages that the server sent before it left are still read.
            None => read.await,
        },
        end = &mut read => end,
        error = accept_bulk(task, connection, bulk) => {
            // Likewise.
            let _ = error;
            read.await
        }
        after = unconfirmed(connection) => {
            ClientError::NoAnswer { server: task.url.authority(), after }
        }
        never = nudge(connection, &task.outbox, DOUBTFUL_RTT) => match never {},
    }
}

/// Ends if the server does not confirm the handshake in time.
async fn unconfirmed(connection: &Connection) -> Duration {
    let within = CONFIRM + 4 * connection.rtt();
    sleep(within).await;
    let seen = connection.stats().frame_rx;
    if seen.handshake_done > 0 || seen.stream > 0 {
        std::future::pending::<()>().await;
    }
    within
}

fn announce(task: &Task, connected: &Connected) {
    let _ = task.outcome.try_send(Ok(()));
    (task.events)(ClientEvent::Connected {
        rtt: connected.connection.rtt(),
        remote: connected.connection.remote_address(),
        local: connected.local,
    });
}

/// Passes on the server's messages until the session ends.
async fn read(task: &Task, connection: &Connection, mut reader: Reader) -> ClientError {
    let end = loop {
        match reader.buffered_message() {
            Ok(Some(message)) => {
                (task.events)(ClientEvent::Message(message));
                continue;
            }
            Ok(None) => {}
            Err(end) => break end,
        }
        if let Err(end) = reader.fill().await {
            break end;
        }
    };
    match end {
        ReadEnd::Finished | ReadEnd::Abandoned => {
            match timeout(LAST_WORDS, connection.closed()).await {
                Ok(error) => from_connection(task, error),
                Err(_) => ClientError::Closed { code: None, reason: "no reason given".to_owned() },
            }
        }
        ReadEnd::Bad(FrameError::Header(ParseError::Version { theirs, ours })) => {
            ClientError::OtherVersion { server: task.url.authority(), theirs, ours }
        }
        ReadEnd::Bad(error) => ClientError::BadMessage(error),
        ReadEnd::Lost(error) => from_connection(task, error),
    }
}

fn from_connection(task: &Task, error: ConnectionError) -> ClientError {
    ClientError::from_connection(error, &task.url.authority(), task.options.idle_timeout)
}

/// Accepts bulk streams until the connection is gone.
async fn accept_bulk(
    task: &Task,
    connection: &Connection,
    bulk: &mut JoinSet<()>,
) -> ConnectionError {
    let window = Arc::new(Semaphore::new(BULK_WINDOW));
    loop {
        match connection.accept_uni().await {
            Ok(stream) => {
                bulk.spawn(read_bulk(stream, window.clone(), task.events.clone()));
            }
            Err(error) => return error,
        }
        while bulk.try_join_next().is_some() {}
    }
}

/// Passes a stream on, piece by piece, as far as the window has room.
async fn read_bulk(mut receive: RecvStream, window: Arc<Semaphore>, events: Events) {
    let stream = receive.id().index();
    let complete = loop {
        let chunk = match receive.read_chunk(READ_CHUNK, true).await {
            Ok(Some(chunk)) => chunk.bytes,
            Ok(None) => break true,
            Err(_) => break false,
        };
        let len = u32::try_from(chunk.len().min(BULK_WINDOW)).unwrap_or(u32::MAX);
        let Ok(credit) = window.clone().acquire_many_owned(len).await else { break false };
        events(ClientEvent::Bulk { stream, piece: Piece::new(chunk, credit) });
    };
    events(ClientEvent::BulkEnd { stream, complete });
}

/// Reaches the server before the timeout, unless the session is closed first.
async fn connect_in_time(task: &Task) -> Result<Connected, ClientError> {
    let given_up = async {
        let ending = task.outbox.ended(|_| true).await;
        sleep(ending.drain).await;
        ending.code
    };
    let dialer = Arc::new(Dialer {
        server: task.url.authority(),
        name: match task.trust.authorities {
            Some(_) => task.url.host.in_certificates(),
            None => ANY_NAME.to_owned(),
        },
        trust: task.trust.clone(),
        options: task.options.clone(),
    });
    tokio::select! {
        biased;
        code = given_up => {
            Err(if code == CloseCode::TooSlow { ClientError::Stalled } else { ClientError::Ended })
        }
        connected = timeout(task.options.timeout, connect(&dialer, &task.url)) => {
            connected.unwrap_or_else(|_| Err(dialer.no_answer(task.options.timeout)))
        }
    }
}

/// Tries the server's addresses until one answers. Tries each again, ever more slowly, while none
/// does.
async fn connect(dialer: &Arc<Dialer>, url: &SessionUrl) -> Result<Connected, ClientError> {
    let addresses = resolve(url).await?;
    let mut attempts = JoinSet::new();
    let mut worst = None;
    let mut retry = FIRST_RETRY;
    for (place, address) in addresses.iter().cycle().enumerate() {
        let dialer = dialer.clone();
        let address = *address;
        attempts.spawn(async move { dialer.dial(address).await });
        let first_round = place + 1 < addresses.len();
        let pause = sleep(if first_round { NEXT_ADDRESS } else { retry });
        tokio::pin!(pause);
        if !first_round {
            retry = LAST_RETRY.min(2 * retry);
        }
        loop {
            tokio::select! {
                biased;
                attempt = attempts.join_next() => match attempt {
                    Some(Ok(Ok(connected))) => return Ok(connected),
                    // An error from an answering server counts more than the silence of another.
                    Some(Ok(Err(error))) if worst.as_ref().is_none_or(ClientError::retryable) => {
                        worst = Some(error);
                    }
                    Some(_) => {}
                    None if first_round => break,
                    None => return Err(worst.unwrap_or_else(|| unreachable(url))),
                },
                () = &mut pause => break,
            }
        }
    }
    Err(unreachable(url))
}

/// Returns the error for the case that an attempt panicked. The other case, no address, is excluded
/// by `resolve`.
fn unreachable(url: &SessionUrl) -> ClientError {
    ClientError::Protocol(format!("no attempt to reach {} came to an end", url.authority()))
}

/// Returns the server's addresses, in the resolver's order.
async fn resolve(url: &SessionUrl) -> Result<Vec<SocketAddr>, ClientError> {
    let failed =
        |host: &str, problem: String| ClientError::Resolve { host: host.to_owned(), problem };
    match &url.host {
        Host::Ip(address) => Ok(vec![SocketAddr::new(*address, url.port)]),
        Host::Zoned(address, zone) => {
            let scope = zone
                .parse()
                .or_else(|_| nix::net::if_::if_nametoindex(zone.as_str()))
                .map_err(|e| failed(zone, format!("no such interface ({})", e.desc())))?;
            Ok(vec![SocketAddrV6::new(*address, url.port, 0, scope).into()])
        }
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), url.port))
                .await
                .map_err(|e| failed(name, e.to_string()))?;
            let addresses: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
            if addresses.is_empty() {
                return Err(failed(name, "the name has no address".to_owned()));
            }
            Ok(addresses)
        }
    }
}

/// A connection whose server has proved its key.
struct Connected {
    connection: Connection,
    /// This host's address on the way to the server.
    local: SocketAddr,
}

/// Opens connections to one server.
struct Dialer {
    server: String,
    /// The name that its certificate must have.
    name: String,
    trust: Trust,
    options: ConnectOptions,
}

impl Dialer {
    async fn dial(&self, address: SocketAddr) -> Result<Connected, ClientError> {
        let objection = Arc::new(OnceLock::new());
        let identity = self.options.credentials.identity.as_deref();
        let crypto = tls::client(self.trust.clone(), identity, objection.clone())
            .map_err(ClientError::Protocol)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        let (idle, keep_alive) = (self.options.idle_timeout, self.options.keep_alive);
        config.transport_config(Arc::new(transport::client(idle, Some(keep_alive))));
        let (endpoint, local) = self.endpoint(address).map_err(|e| ClientError::Socket {
            server: self.server.clone(),
            problem: e.to_string(),
        })?;
        let connecting = endpoint
            .connect_with(config, address, &self.name)
            .map_err(|e| ClientError::Protocol(e.to_string()))?;
        match connecting.await {
            Ok(connection) => Ok(Connected { connection, local }),
            Err(error) => {
                say_farewell().await;
                Err(match (objection.get(), self.trust.pin, error) {
                    (Some(&Objection::Key(got)), Some(expected), _) => {
                        ClientError::WrongPin { expected, got }
                    }
                    (Some(Objection::Certificate(problem)), ..) => ClientError::Certificate {
                        server: self.server.clone(),
                        problem: problem.clone(),
                    },
                    (_, _, ConnectionError::TimedOut) => self.no_answer(idle),
                    (_, _, error) => ClientError::from_connection(error, &self.server, idle),
                })
            }
        }
    }

    fn no_answer(&self, after: Duration) -> ClientError {
        ClientError::NoAnswer { server: self.server.clone(), after }
    }

    /// Opens a socket of the server's address family. Returns it with the address from which its
    /// packets are sent.
    fn endpoint(&self, server: SocketAddr) -> io::Result<(Endpoint, SocketAddr)> {
        let unspecified = match server {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = SocketAddr::new(self.options.local.unwrap_or(unspecified), 0);
        let interface = self.options.interface.as_deref();
        // Connecting it sends nothing, but reveals the route's address. It also fails at once if
        // there is no route, where QUIC would keep trying.
        let route = transport::socket(local, interface)?;
        route.connect(server)?;
        let mut local_there = route.local_addr()?;
        let socket = transport::socket(local, interface)?;
        local_there.set_port(socket.local_addr()?.port());
        let quic = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, quic)?;
        Ok((endpoint, local_there))
    }
}
