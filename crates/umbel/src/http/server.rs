//! The server.
//!
//! | what a hostile client does | what it costs |
//! |---|---|
//! | opens connections and says nothing | one of [`CONNECTIONS`], for [`HEAD_TIME`] |
//! | sends a long head, or a body | [`HEAD_BYTES`]; the body is not read |
//! | reads slowly or not at all | one connection, for [`STALLED`]; the body is shared |
//! | asks for what is not there yet | one connection, for [`WAIT`] |

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use socket2::SockRef;
use tokio::sync::{Semaphore, oneshot};

use super::SIGNATURE;
use super::range::Part;

/// Connections at a time. Further ones wait in the kernel.
const CONNECTIONS: usize = 256;
/// Time for a request's head, also for the next one of a connection.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Maximum length of a head in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// Time after which a client that takes nothing is cut off.
const STALLED: Duration = Duration::from_secs(20);
/// Time for which a request waits for what is not there yet, and the interval of looks.
const WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// Files that a server offers. It is asked on the server's thread, and must not block.
pub(crate) trait Site: Send + Sync + 'static {
    /// Returns the answer to a request for a path, without escapes and without its query.
    fn answer(&self, path: &str) -> Answer;
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
    /// Starts a server at an address.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened to.
    pub(crate) fn start(address: SocketAddr, site: Arc<dyn Site>) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .with_context(|| format!("cannot listen to {address}"))?;
        let address = listener.local_addr().context("a listener has an address")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    result = accept(listener, site) => {
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

async fn accept(listener: TcpListener, site: Arc<dyn Site>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // A client that went away, or no descriptor left for now.
                tracing::debug!("a connection is not taken: {error}");
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(STALLED));
        let site = site.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| respond(site.clone(), request));
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!("a connection ends: {error}");
            }
            drop(place);
        });
    }
}

async fn respond(
    site: Arc<dyn Site>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, _) = request.into_parts();
    let mut response = if !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        let mut refused = empty(StatusCode::METHOD_NOT_ALLOWED);
        let methods = HeaderValue::from_static("GET, HEAD, OPTIONS");
        refused.headers_mut().insert(header::ALLOW, methods);
        refused
    } else if head.method == Method::OPTIONS {
        empty(StatusCode::NO_CONTENT)
    } else {
        match percent_decode_str(head.uri.path()).decode_utf8() {
            Ok(path) => full(answer(&*site, &path).await, &head.headers),
            Err(_) => empty(StatusCode::BAD_REQUEST),
        }
    };
    let headers = response.headers_mut();
    // A live file is never the same again, and any page may play it.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Range"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Content-Length, Content-Range, ETag"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
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
                _ => Answer::NotFound,
            }
        }
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
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(Fixed)).unwrap();
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
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(Fixed)).unwrap();
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
        let long = format!("GET /{} HTTP/1.1", "a".repeat(HEAD_BYTES + 1));
        let response = get(&server, &long);
        assert!(!response.starts_with("http/1.1 2"), "{response}");
        assert!(get(&server, "GET /a%20b HTTP/1.1").starts_with("http/1.1 200"));
    }
}
