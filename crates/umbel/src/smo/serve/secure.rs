//! TLS 1.3 between the desk and the connections of the engine.
//!
//! ```text
//!   Desk ──Write, Finish──▶ SecureIo ──records──▶ Source
//!    ▲                                              │
//!    └──────── what they mean ◀── Secure ◀──Received┘
//! ```
//!
//! The desk knows nothing of it: its commands pass a [`SecureIo`]. Records are made for one client
//! each, so that nothing can be multicast.
//!
//! A client that sends nothing costs nothing here. Handshakes under way are bounded in number and
//! in time, and so are the records for a client that does not take them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::host::{Io, PortError, PortSpec};
use umbel_engine::smo::{ChildId, Source, SourceCommand, SourceCommandError, Stream};
use umbel_engine::units::Rate;
use umbel_engine::{Address, Instant, RateClass, SessionId};
use umbel_net::session::{WebKeys, WebStream};

/// Handshakes under way at most. Further clients are reset.
const HANDSHAKES: usize = 1_000;
/// Time from a client's first bytes to the end of its handshake, after which it is reset. Longer
/// than the time for a request's head, after which it is told that the connection ends.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
/// Bytes that wait for room in the engine's buffer, beyond which a client is reset. One write of
/// the desk is a quarter of it at most.
const WAITING: usize = 1 << 20;

type Machine<'a> = dyn Io<Source> + 'a;

/// A connection whose client has sent something.
#[derive(Debug)]
struct Session {
    stream: Box<WebStream>,
    /// Records for which the engine had no room.
    waiting: Bytes,
    /// Whether nothing more is sent after them.
    finishing: bool,
}

/// The connections of a server that speaks TLS.
#[derive(Debug)]
pub(super) struct Secure {
    keys: WebKeys,
    sessions: BTreeMap<ChildId, Session>,
    /// Sessions whose handshake is under way.
    handshakes: usize,
    /// Times at which handshakes must be complete, in ascending order.
    due: VecDeque<(Instant, ChildId)>,
    /// Clients that were reset because of others, that failed, and that took too long.
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) late: u64,
}

/// Bytes and state that a client's records brought.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) bytes: Bytes,
    /// Whether it says no more.
    pub(super) has_ended: bool,
}

impl Secure {
    pub(super) fn new(keys: WebKeys) -> Secure {
        Secure {
            keys,
            sessions: BTreeMap::new(),
            handshakes: 0,
            due: VecDeque::new(),
            refused: 0,
            failed: 0,
            late: 0,
        }
    }

    /// Takes what came on a connection.
    pub(super) fn received(&mut self, io: &mut Machine<'_>, child: ChildId, bytes: &[u8]) -> Heard {
        let _ = io.command(SourceCommand::Consumed { child, bytes: bytes.len() });
        if !self.sessions.contains_key(&child) && !self.open(io, child) {
            return Heard::default();
        }
        let Some(session) = self.sessions.get_mut(&child).filter(|session| !session.finishing)
        else {
            return Heard::default();
        };
        let was_open = session.stream.is_open();
        let mut heard = Vec::new();
        let result = session.stream.receive(bytes, &mut heard);
        if !was_open && session.stream.is_open() {
            self.handshakes -= 1;
        }
        let more = session.stream.take();
        if !more.is_empty() {
            session.waiting = [&session.waiting[..], &more].concat().into();
        }
        let has_ended = match result {
            Ok(has_ended) => has_ended,
            Err(error) => {
                tracing::debug!("a client does not speak TLS 1.3: {error}");
                self.failed += 1;
                heard.clear();
                session.finishing = true;
                false
            }
        };
        if session.waiting.len() > WAITING {
            // It makes the server answer, and does not take the answers.
            let _ = io.command(SourceCommand::Abort { child });
            return Heard::default();
        }
        let _ = session.flush(io, child);
        Heard { bytes: heard.into(), has_ended }
    }

    /// Begins a handshake. Returns whether there is one now.
    fn open(&mut self, io: &mut Machine<'_>, child: ChildId) -> bool {
        let stream = WebStream::new(&self.keys).ok().filter(|_| self.handshakes < HANDSHAKES);
        let Some(stream) = stream else {
            self.refused += 1;
            let _ = io.command(SourceCommand::Abort { child });
            return false;
        };
        self.handshakes += 1;
        self.due.push_back((io.now() + HANDSHAKE_TIME, child));
        let (stream, waiting) = (Box::new(stream), Bytes::new());
        self.sessions.insert(child, Session { stream, waiting, finishing: false });
        true
    }

    /// Goes on with a connection that has room again. Returns whether the desk may write, too.
    pub(super) fn writable(&mut self, io: &mut Machine<'_>, child: ChildId) -> bool {
        let Some(session) = self.sessions.get_mut(&child) else { return true };
        let _ = session.flush(io, child);
        session.waiting.is_empty() && !session.finishing
    }

    /// Forgets a connection that has ended.
    pub(super) fn gone(&mut self, child: ChildId) {
        if let Some(session) = self.sessions.remove(&child) {
            self.handshakes -= usize::from(!session.stream.is_open());
        }
    }

    /// Resets those whose handshake takes too long.
    pub(super) fn wake(&mut self, io: &mut Machine<'_>) {
        while let Some((_, child)) = self.due.pop_front_if(|(at, _)| *at <= io.now()) {
            if self.sessions.get(&child).is_some_and(|session| !session.stream.is_open()) {
                self.late += 1;
                let _ = io.command(SourceCommand::Abort { child });
            }
        }
    }

    fn write(
        &mut self,
        io: &mut Machine<'_>,
        child: ChildId,
        bytes: &[u8],
    ) -> Result<(), SourceCommandError> {
        let session = self.sessions.get_mut(&child).ok_or(SourceCommandError::NoChild(child))?;
        if session.finishing {
            return Err(SourceCommandError::Ended);
        }
        if !session.waiting.is_empty() {
            return Err(SourceCommandError::Full { room: 0 });
        }
        session.stream.send(bytes);
        session.waiting = session.stream.take().into();
        session.flush(io, child)
    }

    fn finish(&mut self, io: &mut Machine<'_>, child: ChildId) -> Result<(), SourceCommandError> {
        let Some(session) = self.sessions.get_mut(&child) else {
            return io.command(SourceCommand::Finish { to: Stream::Child(child) });
        };
        if session.finishing {
            return Err(SourceCommandError::Ended);
        }
        session.stream.finish();
        session.waiting = [&session.waiting[..], &session.stream.take()].concat().into();
        session.finishing = true;
        session.flush(io, child)
    }
}

impl Session {
    /// Passes records to the engine, if it has room, and the end after them.
    fn flush(&mut self, io: &mut Machine<'_>, child: ChildId) -> Result<(), SourceCommandError> {
        let to = Stream::Child(child);
        if !self.waiting.is_empty() {
            match io.command(SourceCommand::Write { to, bytes: self.waiting.clone() }) {
                Ok(()) => self.waiting = Bytes::new(),
                // The engine says when it has room.
                Err(SourceCommandError::Full { .. }) => return Ok(()),
                Err(error) => {
                    self.waiting = Bytes::new();
                    return Err(error);
                }
            }
        }
        if self.finishing {
            return io.command(SourceCommand::Finish { to });
        }
        Ok(())
    }
}

/// The machine as the desk sees it: what it writes to a client is encrypted.
pub(super) struct SecureIo<'a, 'b> {
    pub(super) io: &'a mut Machine<'b>,
    pub(super) secure: &'a mut Secure,
}

impl Io<Source> for SecureIo<'_, '_> {
    fn now(&self) -> Instant {
        self.io.now()
    }

    fn engine(&mut self) -> &mut Source {
        self.io.engine()
    }

    fn command(&mut self, command: SourceCommand) -> Result<(), SourceCommandError> {
        match command {
            SourceCommand::Write { to: Stream::Child(child), bytes } => {
                self.secure.write(self.io, child, &bytes)
            }
            SourceCommand::Finish { to: Stream::Child(child) } => {
                self.secure.finish(self.io, child)
            }
            // The bytes that came were consumed as they came.
            SourceCommand::Consumed { .. } => Ok(()),
            command => self.io.command(command),
        }
    }

    fn message(&mut self, session: SessionId, message: &[u8]) {
        self.io.message(session, message);
    }

    fn wake_at(&mut self, at: Option<Instant>) {
        self.io.wake_at(at);
    }

    fn set_pace(&mut self, class: RateClass, pace: Option<Rate>) {
        self.io.set_pace(class, pace);
    }

    fn set_burst(&mut self, class: RateClass, burst: Duration) {
        self.io.set_burst(class, burst);
    }

    fn open(&mut self, port: PortSpec) -> Result<(), PortError> {
        self.io.open(port)
    }

    fn close(&mut self, address: &Address) {
        self.io.close(address);
    }

    fn stop(&mut self) {
        self.io.stop();
    }

    fn note(&mut self, name: &'static str, values: [f64; 3]) {
        self.io.note(name, values);
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::chance;
    use umbel_engine::smo::SourceConfig;
    use umbel_net::session::Identity;
    use umbel_wire::Channel;

    use super::*;

    /// A machine whose engine has no connections, and refuses all that is said to them.
    struct Lonely {
        now: Instant,
        engine: Source,
    }

    impl Io<Source> for Lonely {
        fn now(&self) -> Instant {
            self.now
        }

        fn engine(&mut self) -> &mut Source {
            &mut self.engine
        }

        fn wake_at(&mut self, _at: Option<Instant>) {}

        fn set_pace(&mut self, _class: RateClass, _pace: Option<Rate>) {}

        fn open(&mut self, _port: PortSpec) -> Result<(), PortError> {
            Ok(())
        }

        fn close(&mut self, _address: &Address) {}

        fn stop(&mut self) {}
    }

    fn secure() -> (Secure, Lonely) {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_create(directory.path()).unwrap();
        let channel = Channel { source: None, group: [232, 7, 7, 7].into(), port: 1 };
        let engine = Source::new(SourceConfig::new(1, channel), chance::generator(1));
        (Secure::new(WebKeys::new(&identity).unwrap()), Lonely { now: Instant::EPOCH, engine })
    }

    #[test]
    fn handshakes_under_way_are_bounded_in_number_and_time() {
        let (mut secure, mut io) = secure();
        // The beginning of a record.
        for n in 0..=HANDSHAKES as u64 {
            secure.received(&mut io, ChildId(n), &[22, 3, 1]);
        }
        assert_eq!((secure.handshakes, secure.refused), (HANDSHAKES, 1));
        secure.gone(ChildId(0));
        secure.received(&mut io, ChildId(5_000), &[22]);
        assert_eq!((secure.handshakes, secure.refused), (HANDSHAKES, 1));
        io.now = Instant::EPOCH + HANDSHAKE_TIME;
        secure.wake(&mut io);
        assert_eq!((secure.late, secure.due.len()), (HANDSHAKES as u64, 0));
        for n in [5_000].into_iter().chain(1..=HANDSHAKES as u64) {
            secure.gone(ChildId(n));
        }
        assert_eq!((secure.handshakes, secure.sessions.len()), (0, 0));
    }

    #[test]
    fn what_makes_no_sense_ends_a_connection_once() {
        let (mut secure, mut io) = secure();
        let child = ChildId(3);
        for _ in 0..3 {
            let heard = secure.received(&mut io, child, b"GET / HTTP/1.1\r\n\r\n");
            assert!(heard.bytes.is_empty() && !heard.has_ended);
        }
        assert_eq!((secure.failed, secure.handshakes), (1, 1));
        let write = SourceCommand::Write { to: Stream::Child(child), bytes: Bytes::from("x") };
        let mut desk = SecureIo { io: &mut io, secure: &mut secure };
        assert_eq!(desk.command(write), Err(SourceCommandError::Ended));
        secure.gone(child);
        assert_eq!(secure.handshakes, 0);
    }
}
