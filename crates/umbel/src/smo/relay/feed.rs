//! The one stream of the server further up, over an ordinary TCP connection that multicast reaches.
//!
//! ```text
//!               first read                 reset by the server
//!  (not open) ────────────▶ connected ──────────────────────────▶ cut off
//!                               ▲                                    │ News::Gap
//!                               └──── connected again: where the ────┘
//!                                     stream is now                  └─▶ News::Failed, after 20 s
//! ```

use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use umbel_engine::host::Mailbox;

use super::super::serve::library::{Library, News, Reading, beginning};

/// Time in which the server must accept a connection, also after it cut the relay off.
const CONNECT: Duration = Duration::from_secs(20);
/// Time before the relay connects again.
const PAUSE: Duration = Duration::from_millis(250);

/// A library of one stream, which is opened when it is first read, so that a relay without clients
/// does not hold up the server.
#[derive(Debug)]
pub(super) struct Feed {
    jobs: Sender<(Reading, usize)>,
}

impl Feed {
    /// Starts the thread that reads.
    ///
    /// # Errors
    ///
    /// If the system starts no thread.
    pub(super) fn start(server: SocketAddr, news: Mailbox<News>) -> io::Result<Feed> {
        let (jobs, todo) = crossbeam_channel::unbounded();
        std::thread::Builder::new()
            .name("umbel-upstream".to_owned())
            .spawn(move || read_all(server, &todo, &news))?;
        Ok(Feed { jobs })
    }
}

impl Library for Feed {
    /// Does nothing: all receivers of a live stream read at once.
    fn find(&mut self, _reading: Reading, _path: &str) {}

    fn read(&mut self, reading: Reading, _from: u64, len: usize) {
        // The thread ends only with the library, or when the server is gone.
        let _ = self.jobs.send((reading, len));
    }

    fn close(&mut self, _reading: Reading) {}
}

fn read_all(server: SocketAddr, todo: &Receiver<(Reading, usize)>, news: &Mailbox<News>) {
    let mut stream = None;
    for (reading, len) in todo {
        let read = match &mut stream {
            Some(stream) => read_some(stream, len),
            none => TcpStream::connect_timeout(&server, CONNECT)
                .and_then(|connected| read_some(none.insert(connected), len)),
        };
        let answer = match read {
            Ok(bytes) => News::Bytes { reading, bytes },
            Err(error) if stream.is_some() && is_cut(&error) => match connect_again(server) {
                Ok(connected) => {
                    stream = Some(connected);
                    News::Gap { reading }
                }
                Err(error) => failed(server, reading, &error),
            },
            Err(error) => failed(server, reading, &error),
        };
        news.put(answer);
    }
}

fn failed(server: SocketAddr, reading: Reading, error: &io::Error) -> News {
    News::Failed { reading, reason: format!("{server}: {error}") }
}

fn read_some(stream: &mut TcpStream, len: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    loop {
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(read) => return Ok(beginning(bytes, read)),
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether an error says that the server ended the connection before its time.
fn is_cut(error: &io::Error) -> bool {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::TimedOut];
    kinds.contains(&error.kind())
}

fn connect_again(server: SocketAddr) -> io::Result<TcpStream> {
    let until = Instant::now() + CONNECT;
    loop {
        std::thread::sleep(PAUSE);
        let left = until.saturating_duration_since(Instant::now()).max(PAUSE);
        match TcpStream::connect_timeout(&server, left) {
            Err(_) if Instant::now() < until => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn after_a_reset_it_goes_on_where_the_server_is_and_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (put, news) = crossbeam_channel::unbounded();
        let mailbox = Mailbox::new(move |answer| drop(put.send(answer)));
        let mut feed = Feed::start(address, mailbox).unwrap();
        let (heard, cut) = crossbeam_channel::unbounded();
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            first.write_all(b"abc").unwrap();
            cut.recv().unwrap();
            // Without time to linger the end is a reset.
            socket2::SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
            drop(first);
            let (mut second, _) = listener.accept().unwrap();
            second.write_all(b"xyz").unwrap();
        });
        let mut said = String::new();
        let mut next = |feed: &mut Feed| {
            feed.read(1, 0, 100);
            match news.recv().unwrap() {
                News::Bytes { bytes, .. } if bytes.is_empty() => return false,
                News::Bytes { bytes, .. } => {
                    said += std::str::from_utf8(&bytes).unwrap();
                    // After `abc` the server ends the connection.
                    let _ = heard.send(());
                }
                News::Gap { reading: 1 } => said += "|",
                other => panic!("{other:?}"),
            }
            true
        };
        while next(&mut feed) {}
        server.join().unwrap();
        assert_eq!(said, "abc|xyz");
    }
}
