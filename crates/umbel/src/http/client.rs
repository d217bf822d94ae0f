//! The client.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, AsHeaderName, HeaderMap, HeaderName};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::net::TcpStream;

use super::SIGNATURE;
use super::range::content_range;

/// Characters of a path that are escaped.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Part of a file that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it, if it is no longer than this.
    All(u64),
    /// These bytes of the version with this name, which has this length.
    Parts {
        /// Name of the version.
        etag: String,
        /// Length of the whole file.
        len: u64,
        /// The bytes, at least one range.
        ranges: Vec<Range<u64>>,
    },
}

/// What the server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Bodies, in the order of the ranges.
    pub(crate) bodies: Vec<Bytes>,
    /// Name of the version.
    pub(crate) etag: Option<String>,
    /// Signature, if the server has one of the whole file.
    pub(crate) signature: Option<String>,
}

/// Reason why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The server was not reached, or broke off.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It does not speak HTTP as it should.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The time was over.
    #[error("it took too long")]
    Time,
    /// The answer is another one.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The body is not what was asked for.
    #[error("the body is not what was asked for")]
    Body,
}

/// Fetches a file or parts of it.
///
/// # Errors
///
/// If it is not all there within the time.
pub(crate) async fn fetch(
    server: SocketAddr,
    path: &str,
    wanted: &Wanted,
    time: Duration,
) -> Result<Fetched, FetchError> {
    let path = utf8_percent_encode(path, ESCAPED).to_string();
    let all = async {
        let stream = TcpStream::connect(server).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driven = tokio::spawn(connection);
        let result = ask(&mut sender, server, &path, wanted).await;
        driven.abort();
        result
    };
    tokio::time::timeout(time, all).await.map_err(|_| FetchError::Time)?
}

async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    server: SocketAddr,
    path: &str,
    wanted: &Wanted,
) -> Result<Fetched, FetchError> {
    match wanted {
        Wanted::All(max) => {
            let (status, head, body) = request(sender, server, path, &[], *max).await?;
            let etag = text(&head, &header::ETAG).map(|etag| etag.trim_matches('"').to_owned());
            if status == StatusCode::OK {
                let signature = text(&head, SIGNATURE).map(str::to_owned);
                Ok(Fetched { bodies: vec![body], etag, signature })
            } else {
                Err(FetchError::Status(status))
            }
        }
        Wanted::Parts { etag, len, ranges } => {
            let mut parts = Vec::with_capacity(ranges.len());
            for range in ranges {
                let bytes = format!("bytes={}-{}", range.start, range.end - 1);
                let headers = [(header::RANGE, bytes), (header::IF_MATCH, format!("\"{etag}\""))];
                let most = range.end - range.start;
                let (status, head, body) = request(sender, server, path, &headers, most).await?;
                if status != StatusCode::PARTIAL_CONTENT {
                    return Err(FetchError::Status(status));
                }
                let told = text(&head, &header::CONTENT_RANGE).and_then(content_range);
                if told != Some((range.clone(), *len)) || body.len() as u64 != most {
                    return Err(FetchError::Body);
                }
                parts.push(body);
            }
            Ok(Fetched { bodies: parts, etag: Some(etag.clone()), signature: None })
        }
    }
}

async fn request(
    sender: &mut SendRequest<Empty<Bytes>>,
    server: SocketAddr,
    path: &str,
    headers: &[(HeaderName, String)],
    max: u64,
) -> Result<(StatusCode, HeaderMap, Bytes), FetchError> {
    let mut request = Request::get(path).header(header::HOST, server.to_string());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::new()).map_err(|_| FetchError::Body)?;
    sender.ready().await?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, usize::try_from(max).unwrap_or(usize::MAX)).collect().await;
    Ok((head.status, head.headers, body.map_err(|_| FetchError::Body)?.to_bytes()))
}

fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
