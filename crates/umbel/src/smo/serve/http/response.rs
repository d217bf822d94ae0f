//! Heads of responses.

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;

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
        let Document { len, media_type, etag } = document;
        if is_known(request.if_none_match.as_deref(), etag) {
            let fields = [("ETag", etag.clone())];
            return Response { head: head(Status::NotModified, &fields, closes), body: 0..0 };
        }
        // A range of another version would not fit what the client has.
        let same = request.if_range.as_ref().is_none_or(|version| version == etag);
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
        let body = if request.head_only { 0..0 } else { body };
        Response { head: head(status, &fields, closes), body }
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

/// Returns whether a client has this version [RFC 9110 §13.1.2].
fn is_known(if_none_match: Option<&str>, etag: &str) -> bool {
    if_none_match.is_some_and(|known| {
        !etag.is_empty() && known.split(',').any(|known| known.trim() == etag || known == "*")
    })
}

fn head(status: Status, fields: &[(&str, String)], closes: bool) -> Bytes {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in fields {
        // Media types and versions come from files and from servers further up.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text += "X-Content-Type-Options: nosniff\r\n";
    if closes {
        text += "Connection: close\r\n";
    }
    text += "\r\n";
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &str) -> Request {
        let text = format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        Request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn answer(fields: &str) -> (String, Range<u64>) {
        let media_type = "text/plain".to_owned();
        let document = Document { len: 10, media_type, etag: "\"v1\"".to_owned() };
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
        ] {
            let (head, range) = answer(fields);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {head}");
            assert_eq!(range, body, "{fields}");
            let length = format!("Content-Length: {}\r\n", body.end - body.start);
            assert!(status == "304" || head.contains(&length), "{fields}: {head}");
            assert!(head.ends_with("\r\n\r\n"));
        }
        assert!(answer("Range: bytes=2-4\r\n").0.contains("Content-Range: bytes 2-4/10\r\n"));
    }

    #[test]
    fn a_head_is_sent_without_the_document_but_with_its_length() {
        let text = b"HEAD /a HTTP/1.0\r\n\r\n";
        let request = Request::parse(text).unwrap().unwrap().0;
        let document =
            Document { len: 7, media_type: "a/b\r\nX: y".to_owned(), etag: String::new() };
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
