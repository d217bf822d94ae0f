//! The tasks on the server's thread: one that accepts clients, and one for each session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream};
use tokio::time::{Instant, timeout};
use umbel_engine::SessionId;
use umbel_wire::ParseError;

use super::error::{CloseCode, NotAdmitted, clean, is_other_protocol};
use super::frame::FrameError;
use super::guard::{Denied, Place};
use super::limits::{Backlog, RateLimit, Share};
use super::nudge::nudge;
use super::outbox::{Ending, Outbox};
use super::server::{BulkQueue, Session, SessionEvent, Shared};
use super::stream::{ReadEnd, Reader, Writer};
use super::transport::DOUBTFUL_RTT;

/// Priority of bulk data, which is sent when no message waits.
const BULK_PRIORITY: i32 = -1;

/// Time for the last packets of a stopping server, which tell the clients.
const FAREWELL: Duration = Duration::from_millis(50);

/// Time that sessions may take to end, beyond the drain time.
const WIND_UP: Duration = Duration::from_millis(500);

/// Serves until the server is to stop.
pub(super) async fn run(endpoint: Endpoint, shared: Arc<Shared>) {
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => admit(incoming, &shared),
                None => break,
            },
            () = shared.stopping.notified() => break,
        }
    }
    endpoint.set_server_config(None);
    let drain = shared.stop().unwrap_or_default();
    for session in shared.sessions().values() {
        let reason = "the server is being stopped".to_owned();
        session.outbox.end(Ending { code: CloseCode::Shutdown, reason, drain });
    }
    let _ = timeout(drain.saturating_add(WIND_UP), all_left(&shared)).await;
    endpoint.close(CloseCode::Shutdown.on_wire(), b"the server is being stopped");
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
}

async fn all_left(shared: &Shared) {
    while !shared.sessions().is_empty() {
        shared.left.notified().await;
    }
}

/// Decides whether a client gets a handshake. Anyone can provoke these steps with forged addresses,
/// so they must be cheap.
fn admit(incoming: Incoming, shared: &Arc<Shared>) {
    let options = &shared.options;
    let under_way = shared.handshakes.load(Ordering::Relaxed);
    let remote = incoming.remote_address();
    if shared.connections.load(Ordering::Relaxed) >= options.max_sessions {
        incoming.refuse();
        reject_full(shared, remote);
    } else if under_way >= options.max_handshakes {
        incoming.ignore();
    } else if (under_way >= options.max_handshakes / 2 || shared.guard.is_busy(remote.ip()))
        && !incoming.remote_address_validated()
        && incoming.may_retry()
    {
        // Cannot fail, since it was asked whether it may retry.
        let _ = incoming.retry();
    } else {
        match shared.guard.enter(remote.ip(), std::time::Instant::now()) {
            Ok(place) => {
                let counted = Counted::new(shared, |shared| &shared.handshakes);
                tokio::spawn(handshake(incoming, counted, place));
            }
            Err(denied) => {
                incoming.refuse();
                let reason = match denied {
                    Denied::Crowded => "its address has as many sessions as it may have",
                    Denied::Guessed => "its address has shown wrong tokens, and has to wait",
                };
                (shared.events)(SessionEvent::Rejected { remote, reason: reason.to_owned() });
            }
        }
    }
}

fn reject_full(shared: &Shared, remote: SocketAddr) {
    let reason = format!("there are {} sessions already", shared.options.max_sessions);
    (shared.events)(SessionEvent::Rejected { remote, reason });
}

/// Adds one to a counter while it lives.
struct Counted {
    shared: Arc<Shared>,
    counter: fn(&Shared) -> &AtomicUsize,
}

impl Counted {
    fn new(shared: &Arc<Shared>, counter: fn(&Shared) -> &AtomicUsize) -> Counted {
        counter(shared).fetch_add(1, Ordering::Relaxed);
        Counted { shared: shared.clone(), counter }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.shared).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Completes the handshake, then serves the session. The client's address keeps its place
/// meanwhile.
async fn handshake(incoming: Incoming, counted: Counted, _place: Place) {
    let shared = counted.shared.clone();
    let remote = incoming.remote_address();
    let shaken = async { incoming.accept()?.await };
    let connection = match timeout(shared.options.handshake_timeout, shaken).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(%remote, %error, "handshake failed");
            if is_other_protocol(&error) {
                let reason = "it speaks another protocol".to_owned();
                (shared.events)(SessionEvent::Rejected { remote, reason });
            } else if let Some(why) = NotAdmitted::found(&error) {
                let reason = format!("its certificate: {why}");
                (shared.events)(SessionEvent::Rejected { remote, reason });
            }
            return;
        }
        Err(_) => return,
    };
    drop(counted);
    let _counted = Counted::new(&shared, |shared| &shared.connections);
    if shared.connections.load(Ordering::Relaxed) > shared.options.max_sessions {
        connection.close(CloseCode::Full.on_wire(), b"it has as many sessions as it takes");
        reject_full(&shared, remote);
        return;
    }
    match timeout(shared.options.handshake_timeout, connection.accept_bi()).await {
        Ok(Ok((send, receive))) => serve(&shared, connection, send, receive).await,
        Ok(Err(error)) => tracing::debug!(%remote, %error, "left without a word"),
        Err(_) => connection.close(CloseCode::Silent.on_wire(), b"nothing was said"),
    }
}

/// Serves a session from the client's first bytes to its end.
async fn serve(
    shared: &Arc<Shared>,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
) {
    let mut entry = Entry::new(shared, connection.clone());
    let reader = Reader::new(receive, shared.options.max_message);
    let outbox = &entry.session.outbox;
    let ending = tokio::select! {
        ending = read(shared, entry.id, reader) => ending,
        ending = Writer::new(send).run(outbox) => {
            ending.unwrap_or_else(|| hard(CloseCode::Done, "the client does not listen"))
        }
        never = nudge(&connection, outbox, DOUBTFUL_RTT) => match never {},
    };
    connection.close(ending.code.on_wire(), ending.reason.as_bytes());
    entry.reason = ending.reason;
}

fn hard(code: CloseCode, reason: impl Into<String>) -> Ending {
    Ending { code, reason: reason.into(), drain: Duration::ZERO }
}

/// Passes on the client's messages until the session ends or must be ended.
async fn read(shared: &Shared, id: SessionId, mut reader: Reader) -> Ending {
    let options = &shared.options;
    let mut limit = RateLimit::new(options.messages_per_s, options.message_burst, Instant::now());
    let mut share = Share::new(shared.budget.clone());
    let backlog = Backlog::new();
    let end = loop {
        match reader.buffered_message() {
            Ok(Some(bytes)) => {
                if !limit.admit(Instant::now(), bytes.len()) {
                    return hard(CloseCode::Flood, "sent more messages than it may");
                }
                let bytes = backlog.admit(bytes).await;
                (shared.events)(SessionEvent::Message { id, bytes });
                continue;
            }
            Ok(None) => {}
            Err(end) => break end,
        }
        if !share.hold(reader.held()) {
            return hard(CloseCode::TooSlow, "too many long messages are under way");
        }
        if let Err(end) = reader.fill().await {
            break end;
        }
    };
    match end {
        ReadEnd::Finished => hard(CloseCode::Done, "the client left"),
        ReadEnd::Abandoned => hard(CloseCode::Malformed, "the client broke off in a message"),
        ReadEnd::Bad(FrameError::Header(ParseError::Version { theirs, ours })) => {
            let reason = format!(
                "the client speaks version {theirs} of the protocol, the server version {ours}: use \
                 the same release of umbel on both sides"
            );
            // Once is enough for the operator, and no flood of clients fills a log.
            if !shared.told_version.swap(true, Ordering::Relaxed) {
                tracing::warn!("a client was refused: {reason}");
            }
            hard(CloseCode::Malformed, reason)
        }
        ReadEnd::Bad(error) => hard(CloseCode::Malformed, error.to_string()),
        ReadEnd::Lost(error) => hard(CloseCode::Done, lost(&error, options.idle_timeout)),
    }
}

/// Returns the reason why a client is gone, in one line.
fn lost(error: &quinn::ConnectionError, idle: Duration) -> String {
    match error {
        quinn::ConnectionError::TimedOut => format!("nothing heard from the client for {idle:?}"),
        quinn::ConnectionError::ApplicationClosed(close)
            if close.error_code == CloseCode::Done.on_wire() =>
        {
            "the client left".to_owned()
        }
        quinn::ConnectionError::ApplicationClosed(close) => {
            format!("the client closed the session: {}", clean(&close.reason))
        }
        other => clean(other.to_string().as_bytes()),
    }
}

/// A session's entry among the open ones. However its task ends, the entry is removed and the end
/// is reported.
struct Entry {
    shared: Arc<Shared>,
    session: Arc<Session>,
    id: SessionId,
    reason: String,
}

impl Entry {
    fn new(shared: &Arc<Shared>, connection: Connection) -> Entry {
        let id = SessionId(shared.next_id.fetch_add(1, Ordering::Relaxed));
        let (remote, rtt) = (connection.remote_address(), connection.rtt());
        let outbox = Outbox::new(shared.options.max_waiting);
        let session = Arc::new(Session { outbox, connection });
        shared.sessions().insert(id, session.clone());
        // A server that is being stopped has told only the sessions that it had.
        if let Some(drain) = shared.stop() {
            let reason = "the server is being stopped".to_owned();
            session.outbox.end(Ending { code: CloseCode::Shutdown, reason, drain });
        }
        (shared.events)(SessionEvent::Opened { id, remote, rtt });
        Entry { shared: shared.clone(), session, id, reason: "the server stopped".to_owned() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.id);
        self.session.outbox.end(hard(CloseCode::Done, ""));
        let reason = std::mem::take(&mut self.reason);
        (self.shared.events)(SessionEvent::Closed { id: self.id, reason });
        self.shared.left.notify_one();
    }
}

/// Writes one bulk stream.
pub(super) async fn bulk(connection: Connection, queue: BulkQueue) {
    let write = async {
        let stream = connection.open_uni().await.ok()?;
        stream.set_priority(BULK_PRIORITY).ok()?;
        Writer::new(stream).run(&queue.0).await
    };
    tokio::select! {
        _ = connection.closed() => {}
        _ = write => {}
    }
}
