//! The server.
//!
//! | what a hostile client does | what it costs |
//! |---|---|
//! | opens connections and says nothing | some of [`HTTP`], for [`HEAD_TIME`] |
//! | opens more, and asks again and again | those that others want; each ends after [`LIFE`] |
//! | has a page ask under a name of its own | nothing: [`Names`] |
//! | sends a long head, or a body | [`HEAD_BYTES`]; the body is not read |
//! | reads slowly or not at all | one connection, for [`STALLED`]; the body is shared |
//! | asks for what is not there yet | one connection, for [`WAIT`] |

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use umbel_engine::shares::{Origin, Shares};

use super::SIGNATURE;
use super::names::Names;
use super::range::Part;
use crate::bounds::HTTP;

/// Time after which a connection ends with its next answer, and the time for that.
const LIFE: Life = Life { longest: Duration::from_mins(10), farewell: Duration::from_secs(30) };
/// Time for a request's head, also for the next one of a connection.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Maximum length of a head in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// Time after which a client that takes nothing is cut off.
const STALLED: Duration = Duration::from_secs(20);
/// Time for which a request waits for what is not there yet, and the interval of looks.
const WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// How long a connection lasts.
#[derive(Clone, Copy, Debug)]
struct Life {
    longest: Duration,
    farewell: Duration,
}

/// Files that a server offers. It is asked on the server's thread, and must not block.
pub(crate) trait Site: Send + Sync + 'static {
    /// Returns the answer to a request for a path, without escapes and without its query.
    fn answer(&self, path: &str) -> Answer;

    /// Returns whether pages from anywhere may read what has this path, as players in pages do.
    fn is_for_any_page(&self, _path: &str) -> bool {
        false
    }
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A body.
    Found {
        /// Its media type.
        media_type: &'static str,
        /// The body.
        body: Bytes,
        /// Name of this version of it, if it has one: the digest of the content.
        etag: Option<String>,
        /// Signature of it, if whoever asks needs one.
        signature: Option<String>,
    },
    /// There is no such thing.
    NotFound,
    /// It is not there yet, but may come within seconds.
    NotYet,
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server at an address, which answers under these names.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened to.
    pub(crate) fn start(
        address: SocketAddr,
        names: Names,
        site: Arc<dyn Site>,
    ) -> anyhow::Result<Server> {
        Server::start_with(address, Served { names: Arc::new(names), site, life: LIFE })
    }

    fn start_with(address: SocketAddr, served: Served) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .with_context(|| format!("cannot listen to {address}"))?;
        let address = listener.local_addr().context("a listener has an address")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    result = accept(listener, served) => {
                        if let Err(error) = result {
                            tracing::error!("HTTP is served no more: {error}");
                        }
                    }
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("umbel-http".to_owned()).spawn(run)?;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address that it listens to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Connections that are open, and their tasks.
#[derive(Debug)]
struct Open {
    shares: Shares<u64>,
    tasks: HashMap<u64, AbortHandle>,
}

/// A connection's place. It is given up when it is dropped.
#[derive(Debug)]
struct Place {
    open: Arc<Mutex<Open>>,
    number: u64,
}

impl Place {
    /// Takes a place for a connection of this host, perhaps that of another connection, which ends.
    fn take(open: &Arc<Mutex<Open>>, number: u64, peer: SocketAddr) -> Option<Place> {
        let place = Place { open: open.clone(), number };
        let mut open = place.lock();
        let lost = open.shares.enter(Origin::of(peer.ip()), number);
        if let Ok(Some(lost)) = lost
            && let Some(task) = open.tasks.remove(&lost)
        {
            task.abort();
        }
        drop(open);
        lost.is_ok().then_some(place)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.lock();
        open.shares.leave(self.number);
        open.tasks.remove(&self.number);
    }
}

/// What all connections are served from.
#[derive(Clone)]
struct Served {
    names: Arc<Names>,
    site: Arc<dyn Site>,
    life: Life,
}

async fn accept(listener: TcpListener, served: Served) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let shares = HTTP.shares();
    let open = Arc::new(Mutex::new(Open { shares, tasks: HashMap::new() }));
    let mut number = 0;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // A client that went away, or no descriptor left for now.
                tracing::debug!("a connection is not taken: {error}");
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        number += 1;
        let Some(place) = Place::take(&open, number, peer) else {
            tracing::debug!("a connection of {peer} is not taken: its host has its share");
            continue;
        };
        // The task begins once this one waits.
        let task = tokio::spawn(serve(stream, place, served.clone()));
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        open.tasks.insert(number, task.abort_handle());
    }
}

/// Serves a connection to its end.
async fn serve(stream: TcpStream, place: Place, served: Served) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(STALLED));
    let life = served.life;
    let service = service_fn(|request| {
        place.lock().shares.renew(place.number);
        respond(served.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = tokio::time::sleep(life.longest) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(life.farewell, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ends: {error}");
    }
}

/// Returns why a request is not answered under the host that it names [RFC 9112 §3.2].
fn refuse_host(head: &Parts, names: &Names) -> Option<StatusCode> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        (None, _) if head.version < Version::HTTP_11 => return None,
        _ => None,
    };
    let Some(host) = host else { return Some(StatusCode::BAD_REQUEST) };
    let target = head.uri.authority().map(hyper::http::uri::Authority::as_str);
    let known = [Some(host), target].into_iter().flatten().all(|host| names.has(host));
    (!known).then_some(StatusCode::MISDIRECTED_REQUEST)
}

async fn respond(
    served: Served,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, _) = request.into_parts();
    let Served { names, site, .. } = served;
    let path = percent_decode_str(head.uri.path()).decode_utf8().ok();
    let mut response = if let Some(status) = refuse_host(&head, &names) {
        empty(status)
    } else if !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        let mut refused = empty(StatusCode::METHOD_NOT_ALLOWED);
        let methods = HeaderValue::from_static("GET, HEAD, OPTIONS");
        refused.headers_mut().insert(header::ALLOW, methods);
        refused
    } else if head.method == Method::OPTIONS {
        empty(StatusCode::NO_CONTENT)
    } else {
        match &path {
            Some(path) => full(answer(&*site, path).await, &head.headers),
            None => empty(StatusCode::BAD_REQUEST),
        }
    };
    let headers = response.headers_mut();
    // A live file is never the same again.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let open: &[_] = &[
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Range"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Content-Length, Content-Range, ETag"),
    ];
    let closed: &[_] = &[(HeaderName::from_static("cross-origin-resource-policy"), "same-origin")];
    let is_open = path.is_some_and(|path| site.is_for_any_page(&path));
    for (name, value) in if is_open { open } else { closed } {
        headers.insert(name.clone(), HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Waits for what is not there yet.
async fn answer(site: &dyn Site, path: &str) -> Answer {
    let until = tokio::time::Instant::now() + WAIT;
    loop {
        let answer = site.answer(path);
        if answer != Answer::NotYet || tokio::time::Instant::now() >= until {
            return answer;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn full(answer: Answer, asked: &HeaderMap) -> Response<Full<Bytes>> {
    let (media_type, body, etag, signature) = match answer {
        Answer::Found { media_type, body, etag, signature } => (media_type, body, etag, signature),
        Answer::NotFound => return empty(StatusCode::NOT_FOUND),
        Answer::NotYet => {
            let mut later = empty(StatusCode::SERVICE_UNAVAILABLE);
            later.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return later;
        }
    };
    let etag = etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok());
    let text = |name| asked.get(name).and_then(|value| value.to_str().ok());
    if asked.get(header::IF_MATCH).is_some_and(|wanted| Some(wanted) != etag.as_ref()) {
        return empty(StatusCode::PRECONDITION_FAILED);
    }
    let len = body.len() as u64;
    let (status, body, range) = match Part::parse(text(header::RANGE), len) {
        Part::All => (StatusCode::OK, body, None),
        Part::Bytes(range) => {
            let part = body.slice(range.start as usize..range.end as usize);
            let range = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            (StatusCode::PARTIAL_CONTENT, part, Some(range))
        }
        Part::Nothing => {
            let range = format!("bytes */{len}");
            (StatusCode::RANGE_NOT_SATISFIABLE, Bytes::new(), Some(range))
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(range) = range.and_then(|range| HeaderValue::from_str(&range).ok()) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    if let Some(etag) = etag {
        headers.insert(header::ETAG, etag);
    }
    if let Some(signature) = signature.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(SIGNATURE, signature);
    }
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;

    struct Fixed;

    impl Site for Fixed {
        fn answer(&self, path: &str) -> Answer {
            let found = |body: &'static str| Answer::Found {
                media_type: "text/plain",
                body: Bytes::from_static(body.as_bytes()),
                etag: Some("v1".to_owned()),
                signature: Some("s1".to_owned()),
            };
            match path {
                "/a b" => found("0123456789"),
                "/status" => found("status"),
                _ => Answer::NotFound,
            }
        }

        fn is_for_any_page(&self, path: &str) -> bool {
            path == "/a b"
        }
    }

    fn server() -> Server {
        let address = "127.0.0.1:0".parse().unwrap();
        Server::start(address, Names::default(), Arc::new(Fixed)).unwrap()
    }

    /// Connects from another address of this machine.
    fn connect_from(server: &Server, from: &str) -> std::io::Result<TcpStream> {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into())?;
        socket.connect(&server.address().into())?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(stream)
    }

    /// Asks for the status, and returns whether it comes. The connection stays open.
    fn status(stream: &mut TcpStream) -> bool {
        let mut answer = [0; 512];
        let asked = stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let read = asked.and_then(|()| stream.read(&mut answer));
        read.is_ok_and(|len| answer[..len].starts_with(b"HTTP/1.1 200"))
    }

    /// Sends a request as it is; returns the response, in lower case.
    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        response.to_lowercase()
    }

    fn get(server: &Server, head: &str) -> String {
        ask(server, &format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    #[test]
    fn a_file_is_served_whole_and_in_parts_to_any_page() {
        let server = server();
        let whole = get(&server, "GET /a%20b?query HTTP/1.1");
        assert!(whole.starts_with("http/1.1 200") && whole.ends_with("\r\n\r\n0123456789"));
        for header in [
            "cache-control: no-store",
            "access-control-allow-origin: *",
            "etag: \"v1\"",
            "umbel-signature: s1",
        ] {
            assert!(whole.contains(header), "{header} in {whole}");
        }
        let part = get(&server, "GET /a%20b HTTP/1.1\r\nRange: bytes=2-4");
        assert!(part.starts_with("http/1.1 206") && part.ends_with("\r\n\r\n234"), "{part}");
        assert!(part.contains("content-range: bytes 2-4/10"), "{part}");
        let head = get(&server, "HEAD /a%20b HTTP/1.1");
        assert!(head.contains("content-length: 10") && head.ends_with("\r\n\r\n"), "{head}");
        let other = get(&server, "GET /a%20b HTTP/1.1\r\nIf-Match: \"v2\"");
        assert!(other.starts_with("http/1.1 412"), "{other}");
        let beyond = get(&server, "GET /a%20b HTTP/1.1\r\nRange: bytes=10-");
        assert!(beyond.starts_with("http/1.1 416"), "{beyond}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let server = server();
        for (head, status) in [
            ("GET /b HTTP/1.1", "404"),
            ("GET /a%FFb HTTP/1.1", "400"),
            ("GET /../a HTTP/1.1", "404"),
            ("POST /a%20b HTTP/1.1\r\nContent-Length: 0", "405"),
            ("OPTIONS /a%20b HTTP/1.1", "204"),
            ("nonsense", "400"),
        ] {
            let response = get(&server, head);
            assert!(response.starts_with(&format!("http/1.1 {status}")), "{head}: {response}");
        }
        for (request, status) in [
            ("GET /status HTTP/1.1\r\n\r\n", "400"),
            ("GET /status HTTP/1.1\r\nHost: localhost\r\nHost: 127.0.0.1\r\n\r\n", "400"),
            ("GET /status HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
            ("GET http://attacker.example/status HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"),
            ("GET /status HTTP/1.0\r\n\r\n", "200"),
        ] {
            let ending = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
            let response = ask(&server, &ending);
            let expected = format!("http/1.{} {status}", u8::from(status != "200"));
            assert!(response.starts_with(&expected), "{request}: {response}");
            assert!(!response.contains("access-control"), "{request}: {response}");
        }
        let long = format!("GET /{} HTTP/1.1", "a".repeat(HEAD_BYTES + 1));
        let response = get(&server, &long);
        assert!(!response.starts_with("http/1.1 2"), "{response}");
        assert!(get(&server, "GET /a%20b HTTP/1.1").starts_with("http/1.1 200"));
    }

    #[test]
    fn a_page_of_another_origin_reads_what_is_played_and_nothing_else() {
        let server = server();
        for (path, open) in [("/a%20b", true), ("/status", false), ("/none", false)] {
            for method in ["GET", "OPTIONS"] {
                let head = format!("{method} {path} HTTP/1.1\r\nOrigin: https://page.example");
                let response = get(&server, &head);
                let told = response.contains("access-control-allow-origin: *");
                assert_eq!(told, open, "{head}: {response}");
                let kept = response.contains("cross-origin-resource-policy: same-origin");
                assert_eq!(kept, !open, "{head}: {response}");
            }
        }
    }

    #[test]
    fn a_host_that_holds_all_connections_gives_them_up_for_others_and_for_nobody_else() {
        let server = server();
        let mut held: Vec<TcpStream> =
            (0..HTTP.all).map(|_| connect_from(&server, "127.0.0.2").unwrap()).collect();
        assert!(held.iter_mut().all(status), "it may have them all");
        // It gets no more for itself, and keeps what it has.
        let more = (0..10).filter(|_| {
            connect_from(&server, "127.0.0.2").is_ok_and(|mut stream| status(&mut stream))
        });
        assert_eq!(more.count(), 0);
        let mut others: Vec<TcpStream> =
            (0..20).map(|_| connect_from(&server, "127.0.0.3").unwrap()).collect();
        assert!(others.iter_mut().all(status), "others are answered");
        // Those that it used longest ago are closed.
        assert_eq!(
            held.iter_mut().skip(20).filter_map(|stream| status(stream).then_some(())).count(),
            236
        );
        assert!(!held.iter_mut().take(20).any(status));
    }

    #[test]
    fn no_connection_lasts_for_ever() {
        let second = Duration::from_secs(1);
        let life = Life { longest: 2 * second, farewell: second };
        let served = Served { names: Arc::new(Names::default()), site: Arc::new(Fixed), life };
        let server = Server::start_with("127.0.0.1:0".parse().unwrap(), served).unwrap();
        let mut stream = connect_from(&server, "127.0.0.2").unwrap();
        let started = Instant::now();
        while status(&mut stream) {
            assert!(started.elapsed() < Duration::from_mins(1), "it still asks");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(started.elapsed() >= life.longest);
    }
}
