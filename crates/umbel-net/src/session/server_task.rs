//! The tasks on the server's thread: one that accepts clients, and one for each session.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream};
use tokio::time::{Instant, timeout};
use umbel_engine::SessionId;
use umbel_engine::shares::Origin;
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

/// Reason that a client is told whose session ends for that of another host.
const GAVE_WAY: &str = "there are many sessions, and other addresses have fewer";

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
    let half = shared.options.max_handshakes / 2;
    let remote = incoming.remote_address();
    if (shared.guard.handshakes() >= half || shared.guard.is_busy(remote.ip()))
        && !incoming.remote_address_validated()
        && incoming.may_retry()
    {
        // Cannot fail, since it was asked whether it may retry.
        let _ = incoming.retry();
        return;
    }
    let reason = match shared.guard.enter(remote.ip(), std::time::Instant::now()) {
        Ok(place) => {
            tokio::spawn(handshake(incoming, shared.clone(), place));
            return;
        }
        Err(Denied::Busy) => return incoming.ignore(),
        Err(Denied::Full) => {
            incoming.refuse();
            return reject_full(shared, remote);
        }
        Err(Denied::Crowded) => "its address has as many sessions as it may have",
        Err(Denied::Guessed) => "its address has shown wrong tokens, and has to wait",
    };
    incoming.refuse();
    (shared.events)(SessionEvent::Rejected { remote, reason: reason.to_owned() });
}

fn reject_full(shared: &Shared, remote: SocketAddr) {
    let reason = format!("there are {} sessions already", shared.options.max_sessions);
    (shared.events)(SessionEvent::Rejected { remote, reason });
}

/// Completes the handshake, then serves the session. The client's address keeps its place
/// meanwhile.
async fn handshake(incoming: Incoming, shared: Arc<Shared>, place: Place) {
    let remote = incoming.remote_address();
    let shaken = async { incoming.accept()?.await };
    let shaken = tokio::select! {
        shaken = timeout(shared.options.handshake_timeout, shaken) => shaken,
        () = place.lost() => return,
    };
    let connection = match shaken {
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
    if place.settle().is_err() {
        connection.close(CloseCode::Full.on_wire(), b"it has as many sessions as it takes");
        reject_full(&shared, remote);
        return;
    }
    let opened = tokio::select! {
        opened = timeout(shared.options.handshake_timeout, connection.accept_bi()) => opened,
        () = place.lost() => {
            connection.close(CloseCode::Full.on_wire(), GAVE_WAY.as_bytes());
            return;
        }
    };
    match opened {
        Ok(Ok(streams)) => serve(&shared, connection, streams, &place).await,
        Ok(Err(error)) => tracing::debug!(%remote, %error, "left without a word"),
        Err(_) => connection.close(CloseCode::Silent.on_wire(), b"nothing was said"),
    }
}

/// Serves a session from the client's first bytes to its end.
async fn serve(
    shared: &Arc<Shared>,
    connection: Connection,
    (send, receive): (SendStream, RecvStream),
    place: &Place,
) {
    let mut entry = Entry::new(shared, connection.clone());
    let reader = Reader::new(receive, shared.options.max_message);
    let outbox = &entry.session.outbox;
    let ending = tokio::select! {
        ending = read(shared, entry.id, reader, connection.remote_address().ip()) => ending,
        () = place.lost() => hard(CloseCode::Full, GAVE_WAY),
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
async fn read(shared: &Shared, id: SessionId, mut reader: Reader, remote: IpAddr) -> Ending {
    let options = &shared.options;
    let mut limit = RateLimit::new(options.messages_per_s, options.message_burst, Instant::now());
    let mut share = Share::new(shared.unfinished.clone(), Origin::of(remote));
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
