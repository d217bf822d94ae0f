//! Clients of an HTTP server: what they have sent so far.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use umbel_engine::Instant;
use umbel_engine::smo::ChildId;

use super::http::request::{HEAD_BYTES, Refusal, Request};

/// Time for a request's head, also for the next one of a connection.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(15);

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    /// Bytes that it has sent and that were not parsed yet.
    heard: BytesMut,
    /// Whether it is being answered.
    pub(super) busy: bool,
    /// Whether it will send no more.
    pub(super) done: bool,
    /// Whether the connection ends after the answer under way.
    pub(super) closes: bool,
    /// The request that is being answered, as in `GET /path`; empty if it was none.
    asked: String,
    /// Whether it was answered before.
    answered: bool,
    /// Time since which a request is awaited.
    since: Instant,
}

/// Next action or state of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing yet.
    Nothing,
    /// A request.
    Request(Request),
    /// Something that is not served.
    Refused(Refusal),
    /// It has ended, and all is answered.
    End,
}

impl Client {
    pub(super) fn new(peer: SocketAddr, now: Instant) -> Client {
        let heard = BytesMut::new();
        let (busy, done, closes, answered) = (false, false, false, false);
        Client { peer, heard, busy, done, closes, asked: String::new(), answered, since: now }
    }

    /// Takes bytes. Returns whether there was room for them.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> bool {
        let fits = self.heard.len() + bytes.len() <= 2 * HEAD_BYTES;
        if fits {
            self.heard.extend_from_slice(bytes);
        }
        fits
    }

    /// Returns the next action. A request makes the client busy from then on.
    pub(super) fn next(&mut self) -> Next {
        if self.busy {
            return Next::Nothing;
        }
        // Some clients end a request with one more line break than they should [RFC 9112 §2.2].
        while self.heard.starts_with(b"\r\n") {
            self.heard.advance(2);
        }
        match Request::parse(&self.heard) {
            Ok(Some((request, len))) => {
                self.heard.advance(len);
                (self.busy, self.closes) = (true, !request.keep_alive);
                let method = if request.head_only { "HEAD" } else { "GET" };
                self.asked = format!("{method} {}", request.path.escape_debug());
                Next::Request(request)
            }
            Err(refusal) => {
                self.heard.clear();
                (self.busy, self.closes) = (true, true);
                "(no request that is served)".clone_into(&mut self.asked);
                Next::Refused(refusal)
            }
            Ok(None) if self.done => Next::End,
            Ok(None) => Next::Nothing,
        }
    }

    /// Returns the request that is being answered, for people; empty without HTTP.
    pub(super) fn asked(&self) -> &str {
        &self.asked
    }

    /// Notes that it was answered.
    pub(super) fn answered(&mut self, now: Instant) {
        (self.busy, self.answered, self.since) = (false, true, now);
    }

    /// Returns whether it was answered before.
    pub(super) fn was_answered(&self) -> bool {
        self.answered
    }

    /// Returns whether a request has been waited for long enough.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        !self.busy && now - self.since >= HEAD_TIME
    }
}

/// All connections.
pub(super) type Clients = BTreeMap<ChildId, Client>;

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new("10.0.0.2:5000".parse().unwrap(), Instant::EPOCH)
    }

    #[test]
    fn requests_are_taken_one_after_the_other() {
        let mut client = client();
        assert!(
            client.hear(b"GET /a HTTP/1.1\r\nHost:\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost:\r\nConnection: close\r\n")
        );
        let Next::Request(first) = client.next() else { panic!() };
        assert_eq!((first.path.as_str(), client.closes), ("/a", false));
        assert_eq!(client.next(), Next::Nothing);
        client.answered(Instant::EPOCH);
        assert_eq!(client.next(), Next::Nothing);
        assert!(client.hear(b"\r\n"));
        let Next::Request(second) = client.next() else { panic!() };
        assert_eq!((second.path.as_str(), client.closes), ("/b", true));
        client.answered(Instant::EPOCH);
        client.done = true;
        assert_eq!(client.next(), Next::End);
    }

    #[test]
    fn what_a_client_may_send_ahead_is_bounded() {
        let mut client = client();
        assert!(client.hear(&vec![b'x'; 2 * HEAD_BYTES]));
        assert!(!client.hear(b"x"));
        assert_eq!(client.next(), Next::Refused(Refusal::TooLong));
        assert!(client.closes);
    }

    #[test]
    fn a_client_that_asks_for_nothing_is_late() {
        let mut client = client();
        assert!(!client.is_late(Instant::EPOCH + Duration::from_secs(14)));
        assert!(client.is_late(Instant::EPOCH + HEAD_TIME));
        client.busy = true;
        assert!(!client.is_late(Instant::EPOCH + HEAD_TIME));
    }
}
