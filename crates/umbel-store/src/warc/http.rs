//! The head of an HTTP response as crawlers find it: a status line and fields up to a blank line.
//!
//! Servers and archivers write other forms than [RFC 9112 §4], and whoever reads a crawl wants the
//! page all the same. Taken as well are a status line in any case and without a version
//! (`HTTP 200 Document follows`), that of a radio stream (`ICY 200 OK`), blank lines before it, and
//! a head that ends with its record. Interim responses (`100 Continue`) before the head are passed.

use std::io::BufRead;

use super::fields::{field, is_blank};
use super::record::{Counted, Problem};

/// Maximum bytes of an HTTP head with what is before it. Sites set cookies far beyond the limits of
/// servers.
const MAX_HEAD: u64 = 1 << 20;

/// A head, and what is known of the content after it.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// All bytes before the content, including interim responses.
    pub(super) bytes: Vec<u8>,
    /// Offset of the last status line, if there is one.
    status: Option<usize>,
    /// First line of the content, which was read to see that the head had ended.
    pub(super) spill: Vec<u8>,
}

impl Head {
    /// Reads a head. It may end with the input.
    pub(super) fn read(input: &mut Counted<impl BufRead>) -> Result<Head, Problem> {
        let mut head = Head::default();
        while head.read_one(input)? && head.is_interim() {}
        Ok(head)
    }

    /// Reads the head of one response. Returns whether there was one.
    fn read_one(&mut self, input: &mut Counted<impl BufRead>) -> Result<bool, Problem> {
        let mut begun = false;
        loop {
            let line = self.bytes.len();
            let room = MAX_HEAD.saturating_sub(line as u64);
            if input.line(room, &mut self.bytes)? == 0 {
                let ended = self.bytes.last() == Some(&b'\n') || room > 0;
                if begun && !ended {
                    self.status = None;
                }
                return Ok(begun);
            }
            match (begun, is_blank(&self.bytes[line..])) {
                // Blank lines before the first head are the server's, later ones are content.
                (false, true) if self.status.is_none() => {}
                (false, _) if is_status_line(&self.bytes[line..]) => {
                    self.status = Some(line);
                    begun = true;
                }
                (false, _) => {
                    self.spill = self.bytes.split_off(line);
                    return Ok(false);
                }
                (true, true) => return Ok(true),
                (true, false) => {}
            }
        }
    }

    /// Returns the status line and the fields, if there is a status line.
    pub(super) fn fields(&self) -> Option<&[u8]> {
        self.status.map(|at| &self.bytes[at..])
    }

    /// Returns the status: 404 of `HTTP/1.1 404 Not Found`.
    pub(super) fn status(&self) -> Option<u16> {
        let mut words = self.fields()?.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        std::str::from_utf8(words.nth(1)?.trim_ascii()).ok()?.parse().ok()
    }

    /// Returns whether a further response belongs to the same request [RFC 9110 §15.2].
    fn is_interim(&self) -> bool {
        matches!(self.status(), Some(100 | 102..=199))
    }

    /// Returns the value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        field(self.fields()?, name)
    }
}

/// Returns whether a line begins a response.
fn is_status_line(line: &[u8]) -> bool {
    let starts = |word: &[u8]| {
        line.split_at_checked(word.len()).is_some_and(|(start, _)| start.eq_ignore_ascii_case(word))
    };
    starts(b"HTTP/") || starts(b"HTTP ") || starts(b"ICY ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Head {
        Head::read(&mut Counted::new(input, 0)).unwrap()
    }

    #[test]
    fn a_head_is_found_in_the_forms_that_servers_write() {
        for (input, status, len) in [
            (&b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"[..], Some(200), 25),
            (b"http/1.0 404 Not Found\n\nbody", Some(404), 24),
            (b"HTTP 200 Document follows\r\n\r\nbody", Some(200), 29),
            (b"HTTP/2 200 \r\n\r\n", Some(200), 15),
            (b"ICY 200 OK\r\nicy-name: radio\r\n\r\n", Some(200), 31),
            (b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Some(200), 23),
            (b"HTTP/1.1 204 No Content", Some(204), 23),
            (b"HTTP/1.1 200 OK\r\nA: b", Some(200), 21),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nA: b\r\n\r\nx", Some(201), 55),
            (b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Some(101), 36),
        ] {
            let head = read(input);
            assert_eq!((head.status(), head.bytes.len()), (status, len), "{head:?}");
            assert!(head.spill.is_empty());
        }
        let alone = read(b"HTTP/1.1 100 Continue\r\n\r\nnot a head\nmore");
        assert_eq!(alone.status(), Some(100));
        assert_eq!((alone.bytes.len(), &alone.spill[..]), (25, &b"not a head\n"[..]));
    }

    #[test]
    fn what_is_no_head_has_no_status() {
        for input in [&b""[..], b"<html>", b"\r\n\r\n", b"HTTPS 200\r\n\r\n", b"HT"] {
            assert_eq!(read(input).status(), None);
        }
        assert_eq!(read(&[b'a'; 3]).spill, b"aaa");
    }
}
