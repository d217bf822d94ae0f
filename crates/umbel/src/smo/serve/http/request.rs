//! Heads of requests [RFC 9112 §3, §5].

use std::fmt;

use hyper::http::uri::Authority;
use percent_encoding::percent_decode_str;

/// Maximum length of a head in bytes.
pub(crate) const HEAD_BYTES: usize = 16 << 10;
/// Maximum number of header fields.
const FIELDS: usize = 64;

/// Request of a client. Clients with equal requests can share a response.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    /// Path without its escapes and its query. Begins with `/`.
    pub(crate) path: String,
    /// Whether only the head of the response is wanted.
    pub(crate) head_only: bool,
    /// The `Range` field.
    pub(crate) range: Option<String>,
    /// The `If-Range` field.
    pub(crate) if_range: Option<String>,
    /// The `If-None-Match` field.
    pub(crate) if_none_match: Option<String>,
    /// The `If-Modified-Since` field.
    pub(crate) if_modified_since: Option<String>,
    /// Whether the connection stays open after the response.
    pub(crate) keep_alive: bool,
}

/// Reason why a request is not served. The connection ends after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not HTTP/1, its path is invalid, or others could read it otherwise.
    Malformed,
    /// Its method is neither GET nor HEAD.
    Method,
    /// Its head is too long.
    TooLong,
    /// It has a body, which nobody reads.
    Body,
}

impl Refusal {
    /// Returns the status of the response.
    pub(crate) const fn status(self) -> Status {
        match self {
            Refusal::Malformed => Status::BadRequest,
            Refusal::Method => Status::MethodNotAllowed,
            Refusal::TooLong => Status::HeadTooLong,
            Refusal::Body => Status::ContentTooLarge,
        }
    }
}

/// Status of a response [RFC 9110 §15].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 200
    Ok,
    /// 206
    PartialContent,
    /// 301
    MovedPermanently,
    /// 304
    NotModified,
    /// 400
    BadRequest,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 413
    ContentTooLarge,
    /// 416
    RangeNotSatisfiable,
    /// 431
    HeadTooLong,
    /// 502
    BadGateway,
    /// 503
    Unavailable,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Ok => "200 OK",
            Status::PartialContent => "206 Partial Content",
            Status::MovedPermanently => "301 Moved Permanently",
            Status::NotModified => "304 Not Modified",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Status::HeadTooLong => "431 Request Header Fields Too Large",
            Status::BadGateway => "502 Bad Gateway",
            Status::Unavailable => "503 Service Unavailable",
        })
    }
}

impl Request {
    /// Parses the request at the beginning of `bytes`. Returns it with its length, or `None` if
    /// more bytes are needed.
    ///
    /// # Errors
    ///
    /// If it is not served, whatever follows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut head = httparse::Request::new(&mut fields);
        let len = match head.parse(&bytes[..bytes.len().min(HEAD_BYTES)]) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Refusal::TooLong);
            }
            Err(_) => return Err(Refusal::Malformed),
        };
        let head_only = match head.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Refusal::Method),
        };
        let fields = Fields(head.headers);
        fields.check(head.version == Some(1))?;
        let request = Request {
            path: head.path.and_then(path_of).ok_or(Refusal::Malformed)?,
            head_only,
            range: fields.text("range"),
            if_range: fields.text("if-range"),
            if_none_match: fields.text("if-none-match"),
            if_modified_since: fields.text("if-modified-since"),
            keep_alive: head.version == Some(1) && !fields.closes(),
        };
        Ok(Some((request, len)))
    }
}

/// Returns the path of a request target in origin or absolute form [RFC 9112 §3.2].
fn path_of(target: &str) -> Option<String> {
    let path = match target.strip_prefix("http://") {
        Some(absolute) => absolute.find('/').map_or("/", |slash| &absolute[slash..]),
        None => target,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return None;
    }
    Some(percent_decode_str(path).decode_utf8().ok()?.into_owned())
}

struct Fields<'a>(&'a [httparse::Header<'a>]);

impl Fields<'_> {
    /// Returns the last field of this name, if it is text.
    fn text(&self, name: &str) -> Option<String> {
        let field = self.0.iter().rev().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(std::str::from_utf8(field.value).ok()?.trim().to_owned())
    }

    /// Returns the only field of this name. With several, readers take different ones.
    fn only(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut fields = self.0.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        match (fields.next(), fields.next()) {
            (None, _) => Ok(None),
            (Some(field), None) => match std::str::from_utf8(field.value) {
                Ok(text) => Ok(Some(text.trim())),
                Err(_) => Err(Refusal::Malformed),
            },
            (Some(_), Some(_)) => Err(Refusal::Malformed),
        }
    }

    /// Refuses what a proxy in front could frame in another way, and bodies.
    fn check(&self, is_1_1: bool) -> Result<(), Refusal> {
        // [RFC 9112 §3.2]
        match self.only("host")? {
            Some(host) if host.is_empty() || host.parse::<Authority>().is_ok() => {}
            None if !is_1_1 => {}
            _ => return Err(Refusal::Malformed),
        }
        // [RFC 9112 §6.1, §6.3]
        let coding = self.only("transfer-encoding")?;
        let length = self.only("content-length")?;
        if length.is_some_and(|len| len.is_empty() || !len.bytes().all(|c| c.is_ascii_digit())) {
            return Err(Refusal::Malformed);
        }
        let is_empty = length.is_none_or(|len| len.bytes().all(|digit| digit == b'0'));
        if coding.is_some() || !is_empty { Err(Refusal::Body) } else { Ok(()) }
    }

    fn closes(&self) -> bool {
        let fields = self.0.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
        fields.filter_map(|field| std::str::from_utf8(field.value).ok()).any(|options| {
            options.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Option<(Request, usize)>, Refusal> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn a_request_is_parsed_once_it_is_whole() {
        let text =
            "GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nRange: bytes=2-\r\nIf-Range: \"v\"\r\n\r\n";
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len]), Ok(None), "{len}");
        }
        let (request, len) = parse(&format!("{text}GET")).unwrap().unwrap();
        assert_eq!(len, text.len());
        assert_eq!(request.path, "/a b");
        assert_eq!(request.range.as_deref(), Some("bytes=2-"));
        assert_eq!(request.if_range.as_deref(), Some("\"v\""));
        assert!(request.keep_alive && !request.head_only);
    }

    #[test]
    fn connections_stay_open_unless_the_client_says_or_is_old() {
        for (text, keep_alive) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: te, Close\r\n\r\n", false),
            ("GET http://h:80/ HTTP/1.1\r\nHost:\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nConnection: te\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", true),
            ("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", true),
        ] {
            let (request, _) = parse(text).unwrap().unwrap();
            assert_eq!((request.keep_alive, request.path.as_str()), (keep_alive, "/"), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(HEAD_BYTES));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1));
        for (text, refusal) in [
            ("nonsense\r\n\r\n", Refusal::Malformed),
            ("\u{16}\u{3}\u{1}", Refusal::Malformed),
            ("GET a HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("GET /%FF HTTP/1.1\r\n\r\n", Refusal::Malformed),
            ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", Refusal::Method),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", Refusal::Body),
            ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Body),
            (&long, Refusal::TooLong),
            (&many, Refusal::TooLong),
        ] {
            assert_eq!(parse(text), Err(refusal), "{text:.40}");
        }
    }

    #[test]
    fn what_readers_frame_differently_is_refused() {
        for (fields, refusal) in [
            ("", Refusal::Malformed),
            ("Host: h\r\nHost: h\r\n", Refusal::Malformed),
            ("Host: h\r\nhost: other\r\n", Refusal::Malformed),
            ("Host: a b\r\n", Refusal::Malformed),
            ("Host: h/x\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length: 25\r\nContent-Length: 0\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length: 0, 0\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length: +0\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length: -0\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length:\r\n", Refusal::Malformed),
            ("Host: h\r\nContent-Length : 0\r\n", Refusal::Malformed),
            ("Host: h\r\nTransfer-Encoding:\r\n", Refusal::Body),
            ("Host: h\r\nTransfer-Encoding: identity\r\n", Refusal::Body),
            ("Host: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n", Refusal::Body),
        ] {
            assert_eq!(parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n")), Err(refusal), "{fields}");
        }
        for field in ["Content-Length: 25", "Transfer-Encoding: chunked", "Host: h"] {
            let head = format!("GET / HTTP/1.1\r\n{field}");
            let bytes = [head.as_bytes(), b"\xff\r\n\r\n"].concat();
            assert_eq!(Request::parse(&bytes), Err(Refusal::Malformed), "{field}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = Request::parse(&bytes);
            let _ = Request::parse(&[b"GET / HTTP/1.1\r\n", &bytes[..]].concat());
        }
    }
}
