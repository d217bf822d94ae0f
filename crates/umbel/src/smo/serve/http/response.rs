//! Heads of responses.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::request::{Request, Status};
use crate::http::Part;

/// Facts that a library knows about a document before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// Length in bytes.
    pub(crate) len: u64,
    /// Media type.
    pub(crate) media_type: String,
    /// Name of this version, in quotes; empty if it has none.
    pub(crate) etag: String,
    /// Time at which it was modified, if that is known.
    pub(crate) modified: Option<SystemTime>,
}

/// A response: its head, and the part of the document that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) head: Bytes,
    /// Bytes of the document, none if the head is all.
    pub(crate) body: Range<u64>,
}

impl Response {
    /// Creates the response to a request for a document. `closes` states whether the connection
    /// ends after it.
    pub(crate) fn to(request: &Request, document: &Document, closes: bool) -> Response {
        let Document { len, media_type, etag, .. } = document;
        let modified = document.modified.map(httpdate::fmt_http_date);
        if is_known(request, document) {
            let mut fields = vec![("ETag", etag.clone())];
            fields.extend(modified.map(|date| ("Last-Modified", date)));
            return Response { head: head(Status::NotModified, &fields, closes), body: 0..0 };
        }
        // A range of another version would not fit what the client has.
        let is_this = |version: &String| version == etag || Some(version) == modified.as_ref();
        let same = request.if_range.as_ref().is_none_or(is_this);
        let wanted = request.range.as_deref().filter(|_| same);
        let (status, body, range) = match Part::parse(wanted, *len) {
            Part::All => (Status::Ok, 0..*len, None),
            Part::Bytes(range) => {
                let told = format!("bytes {}-{}/{len}", range.start, range.end - 1);
                (Status::PartialContent, range, Some(told))
            }
            Part::Nothing => (Status::RangeNotSatisfiable, 0..0, Some(format!("bytes */{len}"))),
        };
        let mut fields = vec![
            ("Content-Length", (body.end - body.start).to_string()),
            ("Content-Type", media_type.clone()),
            ("Accept-Ranges", "bytes".to_owned()),
        ];
        fields.extend(range.map(|range| ("Content-Range", range)));
        fields.extend((!etag.is_empty()).then(|| ("ETag", etag.clone())));
        fields.extend(modified.map(|date| ("Last-Modified", date)));
        let body = if request.head_only { 0..0 } else { body };
        Response { head: head(status, &fields, closes), body }
    }

    /// Creates the response to a request for a directory without the slash at its end, below which
    /// its relative links lead.
    pub(crate) fn to_directory(request: &Request, closes: bool) -> Response {
        let path = utf8_percent_encode(&request.path, &PATH);
        // Two slashes at its beginning would name another host.
        let path = path.to_string();
        let location = format!("/{}/", path.trim_start_matches('/'));
        let fields = [("Location", location), ("Content-Length", "0".to_owned())];
        Response { head: head(Status::MovedPermanently, &fields, closes), body: 0..0 }
    }

    /// Returns the number of the status, or `-` where only bytes are sent.
    pub(crate) fn code(&self) -> &str {
        let line = self.head.get("HTTP/1.1 ".len()..).unwrap_or_default();
        line.first_chunk::<3>().and_then(|code| str::from_utf8(code).ok()).unwrap_or("-")
    }

    /// Creates a response without a document.
    pub(crate) fn status(status: Status, head_only: bool, closes: bool) -> Response {
        let text = format!("{status}\n");
        let mut fields = vec![
            ("Content-Length", text.len().to_string()),
            ("Content-Type", "text/plain".to_owned()),
        ];
        if status == Status::MethodNotAllowed {
            fields.push(("Allow", "GET, HEAD".to_owned()));
        }
        let mut bytes = head(status, &fields, closes).to_vec();
        if !head_only {
            bytes.extend_from_slice(text.as_bytes());
        }
        Response { head: bytes.into(), body: 0..0 }
    }
}

/// Characters of a path that are escaped.
const PATH: AsciiSet =
    NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns whether a client has this version [RFC 9110 §13.1.2, §13.1.3]. Proxies that compress mark
/// the version as weak, and its content is the same.
fn is_known(request: &Request, document: &Document) -> bool {
    let etag = document.etag.as_str();
    if let Some(known) = &request.if_none_match {
        let is_this = |known: &str| {
            let known = known.trim();
            known.strip_prefix("W/").unwrap_or(known) == etag || known == "*"
        };
        return !etag.is_empty() && known.split(',').any(is_this);
    }
    let since = request.if_modified_since.as_deref();
    let since = since.and_then(|date| httpdate::parse_http_date(date).ok());
    // Dates of HTTP have whole seconds.
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|t| t.as_secs());
    match since.zip(document.modified) {
        Some((since, modified)) => seconds(modified).is_some_and(|at| Some(at) <= seconds(since)),
        None => false,
    }
}

fn head(status: Status, fields: &[(&str, String)], closes: bool) -> Bytes {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in fields {
        // Media types and versions come from files and from servers further up.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let _ = write!(text, "{name}: {value}\r\n");
    }
    // [RFC 9110 §6.6.1]
    let _ = write!(text, "Date: {}\r\n", httpdate::fmt_http_date(SystemTime::now()));
    text += "X-Content-Type-Options: nosniff\r\n";
    if closes {
        text += "Connection: close\r\n";
    }
    text += "\r\n";
    text.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(fields: &str) -> Request {
        let text = format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        Request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn answer(fields: &str) -> (String, Range<u64>) {
        let media_type = "text/plain".to_owned();
        let modified = Some(UNIX_EPOCH + Duration::new(784_111_777, 5));
        let document = Document { len: 10, media_type, etag: "\"v1\"".to_owned(), modified };
        let response = Response::to(&request(fields), &document, false);
        (String::from_utf8(response.head.to_vec()).unwrap(), response.body)
    }

    #[test]
    fn a_document_is_served_whole_or_in_part() {
        for (fields, status, body) in [
            ("", "200", 0..10),
            ("Range: bytes=2-4\r\n", "206", 2..5),
            ("Range: bytes=10-\r\n", "416", 0..0),
            ("Range: bytes=2-4\r\nIf-Range: \"v1\"\r\n", "206", 2..5),
            ("Range: bytes=2-4\r\nIf-Range: \"v2\"\r\n", "200", 0..10),
            ("If-None-Match: \"v0\", \"v1\"\r\n", "304", 0..0),
            ("If-None-Match: \"v0\"\r\n", "200", 0..10),
            ("If-None-Match: W/\"v1\"\r\n", "304", 0..0),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "304", 0..0),
            ("If-Modified-Since: Sunday, 06-Nov-94 08:49:38 GMT\r\n", "304", 0..0),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n", "200", 0..10),
            ("If-Modified-Since: soon\r\n", "200", 0..10),
            (
                "If-None-Match: \"v0\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                "200",
                0..10,
            ),
            ("Range: bytes=2-4\r\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "206", 2..5),
            ("Range: bytes=2-4\r\nIf-Range: Sun, 06 Nov 1994 08:49:38 GMT\r\n", "200", 0..10),
        ] {
            let (head, range) = answer(fields);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {head}");
            assert_eq!(range, body, "{fields}");
            let length = format!("Content-Length: {}\r\n", body.end - body.start);
            assert!(status == "304" || head.contains(&length), "{fields}: {head}");
            assert!(head.ends_with("\r\n\r\n"));
            let dates = ["\r\nDate: ", "\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"];
            assert!(status == "416" || dates.iter().all(|date| head.contains(date)), "{head}");
        }
        let moved = Response::to_directory(&request(""), false);
        let elsewhere = Request { path: "//h".to_owned(), ..request("") };
        let elsewhere = Response::to_directory(&elsewhere, false);
        assert!(str::from_utf8(&elsewhere.head).unwrap().contains("\r\nLocation: /h/\r\n"));
        assert_eq!(moved.code(), "301");
        assert!(str::from_utf8(&moved.head).unwrap().contains("\r\nLocation: /a/\r\n"));
        assert!(answer("Range: bytes=2-4\r\n").0.contains("Content-Range: bytes 2-4/10\r\n"));
    }

    #[test]
    fn a_head_is_sent_without_the_document_but_with_its_length() {
        let text = b"HEAD /a HTTP/1.0\r\n\r\n";
        let request = Request::parse(text).unwrap().unwrap().0;
        let document = Document {
            len: 7,
            media_type: "a/b\r\nX: y".to_owned(),
            etag: String::new(),
            modified: None,
        };
        let response = Response::to(&request, &document, true);
        let head = String::from_utf8(response.head.to_vec()).unwrap();
        assert!(head.contains("Content-Length: 7\r\n") && head.contains("Connection: close\r\n"));
        assert!(head.contains("Content-Type: a/bX: y\r\n"), "{head}");
        assert_eq!(response.body, 0..0);
        let refused = Response::status(Status::MethodNotAllowed, false, true).head;
        let refused = String::from_utf8(refused.to_vec()).unwrap();
        assert!(refused.contains("Allow: GET, HEAD\r\n"), "{refused}");
        assert!(refused.ends_with("\r\n\r\n405 Method Not Allowed\n"), "{refused}");
    }
}
