//! Documents of the server further up, over ordinary TCP connections that multicast reaches.
//!
//! ```text
//!  find ──▶ HEAD, on a connection of its own: length, type, version
//!  read ──▶ GET at the first read, on a connection that has asked for nothing yet, so that the
//!           server can serve it together with other relays
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use umbel_engine::host::Mailbox;

use super::super::serve::http::request::Status;
use super::super::serve::http::response::Document;
use super::super::serve::library::{Library, News, Reading, beginning};
use crate::bounds::SMO_UPSTREAM;

/// Time for connecting, and between two bytes. The server waits for others before it answers.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum length of the head of a response.
const HEAD_BYTES: usize = 16 << 10;
/// Maximum number of header fields.
const FIELDS: usize = 64;

/// Characters of a path that are escaped.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?');

/// A library of the documents of a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    server: SocketAddr,
    news: Mailbox<News>,
    /// Threads that read, by their readings.
    open: BTreeMap<Reading, Sender<usize>>,
    /// Paths that were asked for, until their readings are closed.
    paths: BTreeMap<Reading, String>,
}

impl Upstream {
    /// Creates the library of a server.
    pub(crate) fn new(server: SocketAddr, news: Mailbox<News>) -> Upstream {
        Upstream { server, news, open: BTreeMap::new(), paths: BTreeMap::new() }
    }
}

/// Starts a thread. Returns whether the system permits it.
fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
    let named = std::thread::Builder::new().name("umbel-upstream".to_owned());
    named.spawn(work).is_ok()
}

impl Library for Upstream {
    fn find(&mut self, reading: Reading, path: &str) {
        let path = utf8_percent_encode(path, ESCAPED).to_string();
        self.paths.insert(reading, path.clone());
        let (server, news) = (self.server, self.news.clone());
        let full = self.paths.len() > SMO_UPSTREAM.all;
        let look = move || {
            let document = find(server, &path).unwrap_or_else(|error| {
                tracing::warn!("{server} does not say whether it has {path}: {error}");
                Err(Status::BadGateway)
            });
            news.put(News::Found { reading, document });
        };
        if full || !spawn(look) {
            self.news.put(News::Found { reading, document: Err(Status::Unavailable) });
        }
    }

    fn read(&mut self, reading: Reading, from: u64, len: usize) {
        if !self.open.contains_key(&reading)
            && let Some(path) = self.paths.get(&reading).cloned()
        {
            let (jobs, todo) = crossbeam_channel::unbounded();
            let (server, news) = (self.server, self.news.clone());
            if spawn(move || fetch(server, &path, reading, from, &todo, &news)) {
                self.open.insert(reading, jobs);
            }
        }
        let asked = self.open.get(&reading).is_some_and(|jobs| jobs.send(len).is_ok());
        if !asked {
            let reason = "the server further up broke off".to_owned();
            self.news.put(News::Failed { reading, reason });
        }
    }

    fn close(&mut self, reading: Reading) {
        self.open.remove(&reading);
        self.paths.remove(&reading);
    }
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(server: SocketAddr, method: &str, path: &str, from: u64) -> io::Result<(TcpStream, Head)> {
    let mut stream = connect(server)?;
    let range = if from > 0 { format!("Range: bytes={from}-\r\n") } else { String::new() };
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {server}\r\n{range}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let head = Head::read(&mut stream)?;
    Ok((stream, head))
}

fn find(server: SocketAddr, path: &str) -> io::Result<Result<Document, Status>> {
    let (_, head) = ask(server, "HEAD", path, 0)?;
    Ok(match (head.status, head.len) {
        (200, Some(len)) => Ok(Document {
            len,
            media_type: head.media_type,
            etag: head.etag,
            modified: head.modified,
        }),
        // Other redirections would lead clients past the relay.
        (301, _) if leads_into(&head.location, path) => Err(Status::MovedPermanently),
        (404, _) => Err(Status::NotFound),
        (503, _) => Err(Status::Unavailable),
        _ => Err(Status::BadGateway),
    })
}

/// Returns whether a redirection adds the slash at the end of a directory's path.
fn leads_into(location: &str, path: &str) -> bool {
    let target = location.strip_suffix('/');
    !path.ends_with('/') && target.is_some_and(|target| target.ends_with(path))
}

/// Fetches a document from `from` on, as fast as it is asked for.
fn fetch(
    server: SocketAddr,
    path: &str,
    reading: Reading,
    from: u64,
    todo: &Receiver<usize>,
    news: &Mailbox<News>,
) {
    let failed = |reason: String| news.put(News::Failed { reading, reason });
    let (mut stream, mut head) = match ask(server, "GET", path, from) {
        Ok((stream, head)) if head.status == if from > 0 { 206 } else { 200 } => (stream, head),
        Ok((_, head)) => return failed(format!("{server} answered {}", head.status)),
        Err(error) => return failed(format!("{server}: {error}")),
    };
    let mut early = std::mem::take(&mut head.rest);
    for len in todo {
        let bytes = if early.is_empty() {
            let mut bytes = vec![0; len];
            match read_some(&mut stream, &mut bytes) {
                Ok(read) => beginning(bytes, read),
                Err(error) => return failed(format!("{server}: {error}")),
            }
        } else {
            early.split_to(len.min(early.len()))
        };
        news.put(News::Bytes { reading, bytes });
    }
}

fn read_some(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Head of a response, and the bytes of the body that came with it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    status: u16,
    len: Option<u64>,
    media_type: String,
    etag: String,
    modified: Option<SystemTime>,
    location: String,
    rest: Bytes,
}

impl Head {
    fn read(stream: &mut impl Read) -> io::Result<Head> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let read = read_some(stream, &mut piece)?;
            bytes.extend_from_slice(&piece[..read]);
            if let Some(head) = Head::parse(&bytes)? {
                return Ok(head);
            }
            if read == 0 || bytes.len() > HEAD_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
        let httparse::Status::Complete(len) = response.parse(bytes).map_err(wrong)? else {
            return Ok(None);
        };
        let mut head = Head {
            status: response.code.unwrap_or_default(),
            rest: Bytes::copy_from_slice(&bytes[len..]),
            ..Head::default()
        };
        for field in response.headers.iter() {
            let Ok(value) = std::str::from_utf8(field.value) else { continue };
            match field.name.to_ascii_lowercase().as_str() {
                "content-length" => head.len = value.trim().parse().ok(),
                "content-type" => value.trim().clone_into(&mut head.media_type),
                "etag" => value.trim().clone_into(&mut head.etag),
                "location" => value.trim().clone_into(&mut head.location),
                "last-modified" => head.modified = httpdate::parse_http_date(value.trim()).ok(),
                // Its length is not known beforehand.
                "transfer-encoding" => {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                _ => {}
            }
        }
        Ok(Some(head))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers each connection with the next of these texts. Returns its address and the requests.
    fn server(answers: &'static [&'static str]) -> (SocketAddr, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, requests) = crossbeam_channel::unbounded();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let len = stream.read(&mut request).unwrap();
                let _ = heard.send(String::from_utf8_lossy(&request[..len]).into_owned());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (address, requests)
    }

    fn library(address: SocketAddr) -> (Upstream, Receiver<News>) {
        let (put, news) = crossbeam_channel::unbounded();
        let mailbox = Mailbox::new(move |answer| drop(put.send(answer)));
        (Upstream::new(address, mailbox), news)
    }

    #[test]
    fn a_document_is_found_by_head_and_read_by_get() {
        let (address, requests) = server(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nETag: \"v\"\r\nContent-Type: a/b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef",
        ]);
        let (mut upstream, news) = library(address);
        upstream.find(3, "/a b");
        let News::Found { reading: 3, document: Ok(document) } = news.recv().unwrap() else {
            panic!()
        };
        assert_eq!((document.len, document.media_type.as_str()), (6, "a/b"));
        assert!(requests.recv().unwrap().starts_with("HEAD /a%20b HTTP/1.1\r\n"));
        let mut body = Vec::new();
        while body.len() < 6 {
            upstream.read(3, body.len() as u64, 4);
            match news.recv().unwrap() {
                News::Bytes { bytes, .. } => body.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(body, b"abcdef");
        assert!(requests.recv().unwrap().starts_with("GET /a%20b HTTP/1.1\r\n"));
    }

    #[test]
    fn a_server_without_the_document_is_understood_and_nonsense_is_a_bad_gateway() {
        for (answer, status) in [
            ("nonsense\r\n\r\n", Status::BadGateway),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Status::BadGateway),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Status::NotFound),
            ("HTTP/1.1 301 Moved\r\nLocation: http://h/a/\r\n\r\n", Status::MovedPermanently),
            ("HTTP/1.1 301 Moved\r\nLocation: https://h/a\r\n\r\n", Status::BadGateway),
            ("", Status::BadGateway),
        ] {
            let (address, _) = server(vec![answer].leak());
            let (mut upstream, news) = library(address);
            upstream.find(1, "/a");
            match news.recv().unwrap() {
                News::Found { document, .. } => assert_eq!(document, Err(status), "{answer}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
