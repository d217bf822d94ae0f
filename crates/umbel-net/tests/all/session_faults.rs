//! Sessions with peers that are wrong, gone, slow or hostile.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::session_support::raw::raw_client;
use crate::session_support::{Client, PATIENCE, Relay, Server, identity, message, url};
use bytes::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use umbel_engine::SessionId;
use umbel_net::session::{
    BULK_WINDOW, BindError, ClientError, ClientEvent, ClientSession, CloseCode, ConnectOptions,
    PROTOCOL, Pin, ServerEndpoint, ServerOptions, SessionEvent, SessionUrl,
};

/// Time for which one of two peers is heard before the other one is.
const TURN: Duration = Duration::from_millis(5);

/// Runs one raw client with its own small runtime.
fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Returns a server's configuration for the given protocol.
fn raw_server(protocol: &[u8]) -> (quinn::ServerConfig, Pin) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["umbel".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let pin = Pin::of_certificate(&certificate).unwrap();
    (raw_server_with(protocol, certificate, &key), pin)
}

/// Returns a server's configuration with this certificate, and signatures by this key, which need
/// not be the certificate's.
fn raw_server_with(
    protocol: &[u8],
    certificate: CertificateDer<'static>,
    key: &rcgen::KeyPair,
) -> quinn::ServerConfig {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let shown = Shown(Arc::new(CertifiedKey::new(vec![certificate], key)));
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    tls.alpn_protocols = vec![protocol.to_vec()];
    quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()))
}

#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Returns the reason why our client does not get a session with a raw server.
fn refusal(config: quinn::ServerConfig, pin: Pin) -> ClientError {
    run(async {
        let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
        let url = url(endpoint.local_addr().unwrap(), pin);
        let server = tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let _ = incoming.await;
            }
        });
        let client =
            tokio::task::spawn_blocking(move || Client::connect(&url, &patient()).err().unwrap());
        let error = client.await.unwrap();
        server.abort();
        error
    })
}

/// Lets the client hear its server. Before that, the confirmation of its handshake may still be on
/// its way, and a link that is cut then ends in another error.
fn converse(server: &Server, id: SessionId, client: &Client) {
    server.handle.send(id, message(9, 1)).unwrap();
    assert_eq!(client.message(), message(9, 1));
}

/// Connects and converses as in [`converse`]. Returns `None` if the machine stalls for so long that
/// the session is lost meanwhile.
fn try_to_converse(server: &Server, at: &SessionUrl, options: &ConnectOptions) -> Option<Client> {
    let client = Client::connect(at, options).ok()?;
    client.session.send(message(1, 10)).ok()?;
    loop {
        if let Ok(SessionEvent::Message { id, .. }) = server.events.recv_timeout(TURN) {
            // If the session is lost, the client hears nothing but that.
            let _ = server.handle.send(id, message(9, 1));
        }
        match client.events.try_recv() {
            Ok(ClientEvent::Message(_)) => return Some(client),
            Ok(ClientEvent::Disconnected { .. }) => return None,
            _ => {}
        }
    }
}

/// Returns options of a client that waits for a handshake longer than any takes.
fn patient() -> ConnectOptions {
    ConnectOptions { timeout: PATIENCE, ..ConnectOptions::default() }
}

/// Returns options of a client that soon stops waiting for a server.
fn quick() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_secs(2), ..ConnectOptions::default() }
}

#[test]
fn a_server_with_another_key_is_refused() {
    let server = Server::start(ServerOptions::default());
    let other = identity().fingerprint();
    let url = url(server.address, other);
    let error = Client::connect(&url, &ConnectOptions::default()).err().unwrap();
    assert_eq!(error, ClientError::WrongPin { expected: other, got: server.pin });
    assert!(!error.retryable());

    // None of the client's messages has reached it.
    let client = Client::start(&url, &ConnectOptions::default());
    let _ = client.session.send(message(1, 100));
    assert!(matches!(client.disconnected(), ClientError::WrongPin { .. }));
    assert!(server.events.recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn a_url_without_a_pin_is_refused_before_anything_is_sent() {
    let mut url = url("127.0.0.1:9".parse().unwrap(), identity().fingerprint());
    url.pin = None;
    let error = ClientSession::start(&url, &ConnectOptions::default(), |_| {}).err().unwrap();
    assert_eq!(error, ClientError::NoPin);
}

#[test]
fn a_client_of_another_protocol_is_told_and_reported() {
    let server = Server::start(ServerOptions::default());
    let error = run(async {
        let endpoint = raw_client(b"h3");
        endpoint.connect(server.address, "umbel").unwrap().await.err().unwrap()
    });
    assert!(error.to_string().contains("peer doesn't support any known protocol"), "{error}");
    match server.next() {
        SessionEvent::Rejected { reason, .. } => assert!(reason.contains("another protocol")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_of_another_protocol_is_named_as_such() {
    let (config, pin) = raw_server(b"h3");
    let error = refusal(config, pin);
    assert!(matches!(error, ClientError::OtherProtocol { .. }), "{error}");
    assert!(!error.retryable());
}

/// Returns a message whose header has another version.
fn of_another_version() -> bytes::Bytes {
    let mut bytes = message(1, 10).to_vec();
    bytes[2] += 1;
    bytes.into()
}

#[test]
fn each_end_says_which_version_the_other_speaks_and_what_to_do() {
    let server = Server::start(ServerOptions::default());
    let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    client.session.send(of_another_version()).unwrap();
    let told = client.disconnected();
    assert!(!told.retryable());
    server.opened();
    let noted = server.closed();
    for line in [told.to_string(), noted] {
        let parts = ["client speaks version 2", "server version 1", "the same release"];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    // The other way round.
    let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    client.session.send(message(1, 10)).unwrap();
    let id = server.opened();
    server.message();
    server.handle.send(id, of_another_version()).unwrap();
    let told = client.disconnected();
    assert!(matches!(told, ClientError::OtherVersion { theirs: 2, ours: 1, .. }), "{told}");
    assert!(!told.retryable() && told.to_string().contains("the same release"), "{told}");
}

#[test]
fn garbage_on_the_port_disturbs_nobody() {
    let server = Server::start(ServerOptions::default());
    let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    client.session.send(message(1, 10)).unwrap();
    let id = server.opened();
    server.message();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut draw = 1u32;
    for round in 0..2_000usize {
        let mut datagram: Vec<u8> = (0..round % 1_400)
            .map(|_| {
                draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (draw >> 24) as u8
            })
            .collect();
        if round % 3 == 0 && datagram.len() > 5 {
            // A long header of QUIC version 1, which looks like an Initial packet.
            datagram[0] = 0xc0 | (datagram[0] & 0x0f);
            datagram[1..5].copy_from_slice(&1u32.to_be_bytes());
        }
        let _ = socket.send_to(&datagram, server.address);
    }
    client.session.send(message(2, 10)).unwrap();
    assert_eq!(server.message(), message(2, 10));
    server.handle.send(id, message(3, 10)).unwrap();
    assert_eq!(client.message(), message(3, 10));
    let newcomer = Client::start(&server.url(), &ConnectOptions::default());
    newcomer.session.send(message(4, 10)).unwrap();
    server.opened();
    assert_eq!(server.message(), message(4, 10));
}

/// Returns the error that a raw client gets after it has sent `bytes` on its stream.
fn send_raw(server: &Server, bytes: &[u8]) -> quinn::ConnectionError {
    run(async {
        let endpoint = raw_client(PROTOCOL);
        let connection = endpoint.connect(server.address, "umbel").unwrap().await.unwrap();
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        let _ = send.write_all(bytes).await;
        connection.closed().await
    })
}

#[test]
fn a_client_that_sends_no_messages_is_closed() {
    let server = Server::start(ServerOptions { max_message: 1_000, ..ServerOptions::default() });
    for bytes in [b"GET / HTTP/1.1\r\n".to_vec(), message(1, 993).to_vec(), vec![0xff; 100]] {
        let error = send_raw(&server, &bytes);
        assert!(matches!(error, quinn::ConnectionError::ApplicationClosed(_)), "{error}");
        server.closed();
    }
}

#[test]
fn a_client_may_open_no_other_streams() {
    let server = Server::start(ServerOptions::default());
    run(async {
        let endpoint = raw_client(PROTOCOL);
        let connection = endpoint.connect(server.address, "umbel").unwrap().await.unwrap();
        let _stream = connection.open_bi().await.unwrap();
        let wait = Duration::from_millis(200);
        assert!(tokio::time::timeout(wait, connection.open_bi()).await.is_err());
        assert!(tokio::time::timeout(wait, connection.open_uni()).await.is_err());
    });
}

#[test]
fn a_client_that_floods_is_closed_and_the_others_are_not() {
    let options = ServerOptions { messages_per_s: 10, message_burst: 50, ..Default::default() };
    let started = Instant::now();
    let server = Server::start(options);
    let quiet = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    quiet.session.send(message(9, 1)).unwrap();
    server.opened();
    server.message();
    let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    for _ in 0..1_000 {
        let _ = client.session.send(message(1, 1));
    }
    let error = client.disconnected();
    assert!(matches!(error, ClientError::Closed { code: Some(CloseCode::Flood), .. }), "{error}");
    assert!(!error.retryable());
    let mut messages = 0;
    loop {
        match server.next() {
            SessionEvent::Message { .. } => messages += 1,
            SessionEvent::Closed { .. } => break,
            _ => {}
        }
    }
    // The burst, and what may come while it lasts, however slowly.
    let most = 51 + 10 * started.elapsed().as_secs();
    assert!((50..=most + 10).contains(&messages), "{messages} messages passed");
    quiet.session.send(message(8, 1)).unwrap();
    assert_eq!(server.message(), message(8, 1));
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    // A machine that is too slow for a handshake in this time gets more of it.
    let closed = [0.3, 3.0, 30.0].into_iter().map(Duration::from_secs_f64).any(|patience| {
        let options = ServerOptions { handshake_timeout: patience, ..ServerOptions::default() };
        let server = Server::start(options);
        let error = Client::connect(&server.url(), &patient())
            .map_or_else(|error| error, |client| client.disconnected());
        eprintln!("after {patience:?}: {error}");
        matches!(error, ClientError::Closed { code: Some(CloseCode::Silent), .. })
            && error.retryable()
    });
    assert!(closed);
}

#[test]
fn a_full_server_says_so_and_takes_the_next_when_one_leaves() {
    let server = Server::start(ServerOptions { max_sessions: 1, ..ServerOptions::default() });
    let first = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    first.session.send(message(1, 1)).unwrap();
    server.opened();
    server.message();
    let error = Client::connect(&server.url(), &ConnectOptions::default()).err().unwrap();
    assert!(matches!(error, ClientError::Full { .. }), "{error}");
    assert!(error.retryable());
    assert!(matches!(server.next(), SessionEvent::Rejected { .. }));
    drop(first);
    server.closed();
    let second = Client::start(&server.url(), &ConnectOptions::default());
    second.session.send(message(2, 1)).unwrap();
    server.opened();
}

#[test]
fn one_address_gets_its_sessions_and_no_more() {
    let server = Server::start(ServerOptions { max_per_address: 2, ..ServerOptions::default() });
    let connect = || Client::connect(&server.url(), &ConnectOptions::default());
    let mut clients = Vec::new();
    for number in 0..20 {
        match connect() {
            Ok(client) => {
                client.session.send(message(number, 1)).unwrap();
                clients.push(client);
            }
            Err(error) => assert!(matches!(error, ClientError::Full { .. }), "{error}"),
        }
    }
    assert_eq!(clients.len(), 2);
}

#[test]
fn an_address_with_wrong_tokens_has_to_wait() {
    let server = Server::start(ServerOptions::default());
    let connect = || Client::connect(&server.url(), &ConnectOptions::default());
    let client = connect().unwrap();
    client.session.send(message(1, 1)).unwrap();
    let id = server.opened();
    for _ in 0..40 {
        server.handle.bar(id);
    }
    let error = connect().err().unwrap();
    assert!(matches!(error, ClientError::Full { .. }), "{error}");
    assert!(error.retryable());
    // The caller that found the token wrong closes the present session.
    client.session.send(message(2, 1)).unwrap();
}

#[test]
fn a_client_learns_that_its_server_was_killed() {
    // A machine that stalls for longer than the timeout gets a longer one.
    let learned = [1.5, 15.0, 100.0].into_iter().map(Duration::from_secs_f64).any(|idle_timeout| {
        let server = Server::start(ServerOptions { idle_timeout: PATIENCE, ..Default::default() });
        let relay = Relay::new(server.address, Duration::ZERO);
        let options = ConnectOptions { idle_timeout, keep_alive: idle_timeout / 5, ..patient() };
        let url = url(relay.address, server.pin);
        let Some(client) = try_to_converse(&server, &url, &options) else { return false };
        relay.cut();
        let error = client.disconnected();
        assert_eq!(error, ClientError::Lost { after: idle_timeout });
        assert!(error.retryable());
        // The shorter idle timeout holds for both.
        let reason = server.closed();
        assert!(reason.contains("nothing heard"), "{reason}");
        true
    });
    assert!(learned);
}

#[test]
fn a_client_learns_at_once_that_its_server_was_restarted() {
    let identity = identity();
    let address = "127.0.0.1:0".parse().unwrap();
    let old = Server::start_as(&identity, address, ServerOptions::default());
    let relay = Relay::new(old.address, Duration::ZERO);
    let address = old.address;
    let client = Client::connect(&url(relay.address, old.pin), &ConnectOptions::default()).unwrap();
    client.session.send(message(1, 10)).unwrap();
    converse(&old, old.opened(), &client);
    // The messages of a stopping server must not get through, since it is killed here.
    relay.cut();
    drop(old);
    let _new = Server::start_as(&identity, address, ServerOptions::default());
    relay.mend();
    client.session.send(message(2, 100)).unwrap();
    // Not that it was lost, which takes an idle timeout.
    assert_eq!(client.disconnected(), ClientError::Restarted);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    let pin = identity().fingerprint();
    let error = Client::connect(&url(address, pin), &quick()).err().unwrap();
    assert_eq!(
        error,
        ClientError::NoAnswer { server: address.to_string(), after: quick().timeout }
    );
    let text = format!("umbel://no-such-host.invalid/?pin={pin}");
    let error = Client::connect(&text.parse().unwrap(), &quick()).err().unwrap();
    let plain = matches!(&error, ClientError::Resolve { host, .. } if host == "no-such-host.invalid")
        || matches!(error, ClientError::NoAnswer { .. });
    assert!(plain, "{error}");
    let text = format!("umbel://[fe80::1%nosuchif0]/?pin={pin}");
    let error = Client::connect(&text.parse().unwrap(), &quick()).err().unwrap();
    assert!(error.to_string().contains("nosuchif0"), "{error}");
}

/// Attempts come from a port each.
#[test]
fn a_server_that_does_not_answer_is_tried_ever_more_slowly() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pin = identity().fingerprint();
    let options = ConnectOptions { timeout: Duration::from_secs(4), ..ConnectOptions::default() };
    let client = Client::start(&url(silent.local_addr().unwrap(), pin), &options);
    assert!(matches!(client.next(), ClientEvent::Disconnected { retryable: true, .. }));
    silent.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2_048];
    let ports: HashSet<SocketAddr> =
        std::iter::from_fn(|| silent.recv_from(&mut buffer).ok()).map(|(_, from)| from).collect();
    // After 0, 0.5, 1.5 and 3.5 s. A busy machine may miss some.
    assert!((1..=4).contains(&ports.len()), "{} attempts", ports.len());
}

#[test]
fn a_session_given_up_while_connecting_ends_at_once() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = url(nobody.local_addr().unwrap(), identity().fingerprint());
    let client = Client::start(&url, &ConnectOptions::default());
    client.session.send(message(1, 1)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(client.session);
    // Not that nobody answered, which takes a timeout.
    let event = client.events.recv_timeout(PATIENCE).unwrap();
    let given_up = |event: &ClientEvent| {
        matches!(event, ClientEvent::Disconnected { reason: ClientError::Ended, retryable: false })
    };
    assert!(given_up(&event), "{event:?}");
}

#[test]
fn a_client_that_takes_no_more_of_a_stream_still_hears_messages_and_closes() {
    let server = Server::start(ServerOptions::default());
    let client = Client::connect(&server.url(), &ConnectOptions::default()).unwrap();
    client.session.send(message(1, 1)).unwrap();
    let id = server.opened();
    let mut bulk = server.handle.bulk(id).unwrap();
    let writer = std::thread::spawn(move || {
        // More than the window. The loop ends when the client is gone.
        while bulk.write(message(2, 60_000)).is_ok() {}
    });
    let (mut pieces, mut held) = (Vec::new(), 0);
    while held + 64 * 1024 < BULK_WINDOW {
        if let ClientEvent::Bulk { piece, .. } = client.events.recv_timeout(PATIENCE).unwrap() {
            held += piece.bytes.len();
            pieces.push(piece);
        }
    }
    server.handle.send(id, message(3, 10)).unwrap();
    while !matches!(client.events.recv_timeout(PATIENCE).unwrap(), ClientEvent::Message(_)) {}
    // This once blocked forever, while the session's thread waited for the next piece to be taken.
    client.session.close(Duration::from_millis(100));
    writer.join().unwrap();
    drop(pieces);
}

#[test]
fn a_slow_reader_is_closed_and_holds_up_nobody() {
    let options = ServerOptions { max_waiting: 2 << 20, ..ServerOptions::default() };
    let server = Server::start(options);
    let address = server.address;
    let slow = std::thread::spawn(move || {
        run(async {
            let endpoint = raw_client(PROTOCOL);
            let connection = endpoint.connect(address, "umbel").unwrap().await.unwrap();
            let (mut send, _unread) = connection.open_bi().await.unwrap();
            send.write_all(&message(1, 10)).await.unwrap();
            connection.closed().await
        })
    });
    let slow_id = server.opened();
    server.message();
    let mut sent = 0;
    while server.handle.send(slow_id, message(2, 100_000)).is_ok() {
        sent += 1;
        assert!(sent < 1_000, "100 MB wait for a client that does not read");
        // Slower than the path, so that only data that the client does not read is left waiting.
        std::thread::sleep(Duration::from_millis(1));
    }
    let reason = server.closed();
    assert!(reason.contains("too slowly"), "{reason}");
    match slow.join().unwrap() {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert!(String::from_utf8_lossy(&close.reason).contains("too slowly"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_taken_port_and_a_foreign_address_are_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = ServerEndpoint::bind(address, &identity(), ServerOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::Taken(at) if at == address), "{error}");
    assert!(error.to_string().contains(&address.port().to_string()), "{error}");
    let foreign = "192.0.2.77:0".parse().unwrap();
    let error = ServerEndpoint::bind(foreign, &identity(), ServerOptions::default()).unwrap_err();
    assert!(matches!(error, BindError::NotLocal(_)), "{error}");
}

#[test]
fn a_stolen_certificate_without_its_key_is_worth_nothing() {
    let owner = rcgen::KeyPair::generate().unwrap();
    let thief = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["umbel".to_owned()]).unwrap();
    let certificate = params.self_signed(&owner).unwrap().der().clone();
    let pin = Pin::of_certificate(&certificate).unwrap();
    let error = refusal(raw_server_with(PROTOCOL, certificate.clone(), &thief), pin);
    assert!(error.to_string().contains("BadSignature"), "{error}");
}

#[test]
fn unfinished_messages_of_many_clients_are_bounded_together() {
    // Those of one address have half.
    let options = ServerOptions { max_unfinished: 600_000, ..ServerOptions::default() };
    let server = Server::start(options);
    run(async {
        let endpoint = raw_client(PROTOCOL);
        let beginning: Bytes = message(1, 1 << 20).slice(..90_000);
        let mut sessions = Vec::new();
        for _ in 0..6 {
            let connection = endpoint.connect(server.address, "umbel").unwrap().await.unwrap();
            let (mut send, receive) = connection.open_bi().await.unwrap();
            let _ = send.write_all(&beginning).await;
            sessions.push((connection, send, receive));
        }
        let closed = || sessions.iter().filter(|s| s.0.close_reason().is_some()).count();
        let started = Instant::now();
        while closed() < 2 && started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // One too many would be closed by now.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let closed = closed();
        assert!((2..=4).contains(&closed), "{closed} of 6 were closed");
    });
}
