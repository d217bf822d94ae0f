//! The server as a library: a listener, streams to many, and streams to one, on tokio.
//!
//! ```text
//!  SmoListener ──accept──▶ ChildStream ─┬─ read: what the client sends
//!       │                               ├─ write: to it alone, or
//!       └──master──▶ MasterStream ──attach
//!                         └─ write: once, to all who are attached
//! ```
//!
//! Engine and port have their own thread. A write waits while the stream's buffer is full, so that
//! the slowest receiver slows its writer down. `examples/multicast_response.rs` is a web server of
//! some lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use umbel_engine::RateClass;
use umbel_engine::host::{Host, Io, Mailbox, Trouble};
use umbel_engine::smo::{
    ChildId, CloseReason, Join, MasterId, Source, SourceCommand, SourceCommandError, SourceConfig,
    SourceEvent, Stream,
};
use umbel_engine::units::Rate;
use umbel_wire::Channel;

use super::report;
use super::serve::acks::Acks;
use super::serve::{HEADER, Place, ServeOptions};
use crate::endpoint::{Wiring, generator};

/// Bytes that one write takes at most.
const PIECE: usize = 64 << 10;

type Answer<T> = oneshot::Sender<io::Result<T>>;

/// Input of the host.
enum Request {
    Open { answer: Answer<MasterId> },
    Attach { child: ChildId, master: MasterId, answer: Answer<()> },
    Write { to: Stream, bytes: Bytes, answer: Answer<()> },
    Finish { to: Stream, answer: Answer<()> },
    Consumed { child: ChildId, bytes: usize },
    DropChild { child: ChildId },
    DropMaster { master: MasterId },
    Stop,
}

/// Accepts TCP connections that can share streams.
#[derive(Debug)]
pub struct SmoListener {
    local: SocketAddr,
    channel: SocketAddr,
    mailbox: Mailbox<Request>,
    accepted: mpsc::UnboundedReceiver<ChildStream>,
}

impl SmoListener {
    /// Begins to listen. Connections begin without a stream ([`Join::Asked`]).
    ///
    /// # Errors
    ///
    /// One line that says why it cannot, and what to do.
    pub fn bind(options: &ServeOptions) -> anyhow::Result<SmoListener> {
        let Place { listen, channel, port, acks, .. } = Place::open(options)?;
        let wiring = Wiring::new()?;
        let mailbox = wiring.mailbox().clone();
        let mss = options.mss(&port);
        let config = SourceConfig {
            port: listen.port(),
            channel,
            join: Join::Asked,
            mss,
            acks_per_window: acks.per_window(),
            ..options.config.clone()
        };
        let engine = Source::new(config, generator()?);
        let (accept, accepted) = mpsc::unbounded_channel();
        let host = ListenHost {
            channel,
            rate: options.rate,
            mailbox: mailbox.clone(),
            accept: Some(accept),
            children: BTreeMap::new(),
            members: BTreeMap::new(),
            waiting: BTreeMap::new(),
            acks,
        };
        let driver = wiring.driver(engine, host).port(port);
        let driver = driver.pace(RateClass::Data, options.rate, usize::from(mss) + HEADER);
        std::thread::Builder::new().name("umbel-smo".to_owned()).spawn(move || {
            if let Err(error) = driver.run() {
                tracing::error!("the server has ended: {error}");
            }
        })?;
        let channel = SocketAddr::new(channel.group, channel.port);
        Ok(SmoListener { local: listen, channel, mailbox, accepted })
    }

    /// Returns where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns group and port of the first stream. Further ones have the next ports.
    pub fn channel(&self) -> SocketAddr {
        self.channel
    }

    /// Waits for the next connection. `None` if the server has ended.
    pub async fn accept(&mut self) -> Option<ChildStream> {
        self.accepted.recv().await
    }

    /// Opens a stream to many.
    ///
    /// # Errors
    ///
    /// If there are too many, or the server has ended.
    pub async fn master(&self) -> io::Result<MasterStream> {
        let master = ask(&self.mailbox, |answer| Request::Open { answer }).await?;
        let writer = Writer::new(self.mailbox.clone(), Stream::Master(master));
        Ok(MasterStream { master, writer })
    }
}

impl Drop for SmoListener {
    /// Accepts no more. Connections that are open go on to their end.
    fn drop(&mut self) {
        self.mailbox.put(Request::Stop);
    }
}

/// A stream that is sent once, to all connections that are attached. Shut it down at its end: if it
/// is dropped before, its connections are reset.
#[derive(Debug)]
pub struct MasterStream {
    master: MasterId,
    writer: Writer,
}

impl MasterStream {
    /// Attaches a connection, which receives the stream from its beginning, and nothing else.
    ///
    /// # Errors
    ///
    /// If something was written to it before, or the beginning is no longer held.
    pub async fn attach(&self, child: &ChildStream) -> io::Result<()> {
        let (child, master) = (child.child, self.master);
        ask(&self.writer.mailbox, |answer| Request::Attach { child, master, answer }).await
    }
}

impl Drop for MasterStream {
    fn drop(&mut self) {
        if !self.writer.finished {
            self.writer.mailbox.put(Request::DropMaster { master: self.master });
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct ChildStream {
    child: ChildId,
    peer: SocketAddr,
    writer: Writer,
    heard: mpsc::UnboundedReceiver<io::Result<Bytes>>,
    piece: Bytes,
    ended: bool,
}

impl ChildStream {
    /// Returns the address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Drop for ChildStream {
    fn drop(&mut self) {
        self.writer.mailbox.put(Request::DropChild { child: self.child });
    }
}

impl AsyncRead for ChildStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.piece.is_empty() && !self.ended {
            match ready!(self.heard.poll_recv(task)) {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => self.ended = true,
            }
        }
        let len = self.piece.len().min(buf.remaining());
        buf.put_slice(&self.piece[..len]);
        self.piece.advance(len);
        if len > 0 {
            let child = self.child;
            self.writer.mailbox.put(Request::Consumed { child, bytes: len });
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes to the host, one piece at a time.
#[derive(Debug)]
struct Writer {
    mailbox: Mailbox<Request>,
    to: Stream,
    /// The answer to the last piece, or to the end.
    pending: Option<oneshot::Receiver<io::Result<()>>>,
    finished: bool,
}

impl Writer {
    fn new(mailbox: Mailbox<Request>, to: Stream) -> Writer {
        Writer { mailbox, to, pending: None, finished: false }
    }

    fn poll_pending(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let answer = ready!(Pin::new(pending).poll(task));
        self.pending = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(gone())))
    }

    fn poll_write(&mut self, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(task))?;
        let bytes = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE)]);
        let len = bytes.len();
        if len > 0 {
            let (answer, pending) = oneshot::channel();
            self.mailbox.put(Request::Write { to: self.to, bytes, answer });
            self.pending = Some(pending);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_shutdown(&mut self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(task))?;
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        self.finished = true;
        let (answer, pending) = oneshot::channel();
        self.mailbox.put(Request::Finish { to: self.to, answer });
        self.pending = Some(pending);
        self.poll_pending(task)
    }
}

macro_rules! writes {
    ($stream:ty) => {
        impl AsyncWrite for $stream {
            /// Copies up to 64 KiB. Waits until the piece before has found room.
            fn poll_write(
                mut self: Pin<&mut Self>,
                task: &mut Task<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.writer.poll_write(task, bytes)
            }

            /// Waits until all has found room in the stream's buffer.
            fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
                self.writer.poll_pending(task)
            }

            /// Ends the stream in order, by FIN.
            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                task: &mut Task<'_>,
            ) -> Poll<io::Result<()>> {
                self.writer.poll_shutdown(task)
            }
        }
    };
}

writes!(MasterStream);
writes!(ChildStream);

async fn ask<T>(
    mailbox: &Mailbox<Request>,
    request: impl FnOnce(Answer<T>) -> Request,
) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    mailbox.put(request(answer));
    answered.await.unwrap_or_else(|_| Err(gone()))
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the server has ended")
}

fn refused(error: SourceCommandError) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

/// A write that found no room.
struct Waiting {
    bytes: Bytes,
    answer: Answer<()>,
}

/// The host of a listener.
struct ListenHost {
    /// Channel of the first stream.
    channel: Channel,
    rate: Option<Rate>,
    mailbox: Mailbox<Request>,
    /// `None` once the listener is gone.
    accept: Option<mpsc::UnboundedSender<ChildStream>>,
    /// Readers of the bytes of connections.
    children: BTreeMap<ChildId, mpsc::UnboundedSender<io::Result<Bytes>>>,
    members: BTreeMap<MasterId, BTreeSet<ChildId>>,
    waiting: BTreeMap<Stream, Waiting>,
    acks: Acks,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl ListenHost {
    fn connected(&mut self, io: &mut Machine<'_>, child: ChildId, peer: SocketAddr) {
        let (hear, heard) = mpsc::unbounded_channel();
        let writer = Writer::new(self.mailbox.clone(), Stream::Child(child));
        let stream = ChildStream { child, peer, writer, heard, piece: Bytes::new(), ended: false };
        let taken = self.accept.as_ref().is_some_and(|accept| accept.send(stream).is_ok());
        if taken {
            self.children.insert(child, hear);
        } else {
            let _ = io.command(SourceCommand::Abort { child });
        }
    }

    fn write(&mut self, io: &mut Machine<'_>, to: Stream, waiting: Waiting) {
        let Waiting { bytes, answer } = waiting;
        let result = match io.command(SourceCommand::Write { to, bytes: bytes.clone() }) {
            Ok(()) => Ok(()),
            Err(SourceCommandError::Full { .. }) => {
                self.waiting.insert(to, Waiting { bytes, answer });
                return;
            }
            Err(error) => Err(refused(error)),
        };
        // A writer that has gone does not hear it.
        let _ = answer.send(result);
    }

    fn open(&mut self, io: &mut Machine<'_>) -> io::Result<MasterId> {
        let free = (0..u16::MAX).find(|n| !self.members.contains_key(&MasterId((*n).into())));
        let port = free.and_then(|n| Some((MasterId(n.into()), self.channel.port.checked_add(n)?)));
        let Some((master, port)) = port else {
            return Err(io::Error::other("there are too many streams"));
        };
        let channel = Channel { port, ..self.channel };
        io.command(SourceCommand::Open { master, channel }).map_err(refused)?;
        self.members.insert(master, BTreeSet::new());
        Ok(master)
    }

    fn gone(&mut self, io: &mut Machine<'_>, child: ChildId, why: Option<CloseReason>) {
        if let (Some(hear), Some(why)) = (self.children.remove(&child), why) {
            let error = io::Error::new(io::ErrorKind::ConnectionReset, report::reason(why));
            let _ = hear.send(Err(error));
        }
        // Its writer hears that it is gone.
        self.waiting.remove(&Stream::Child(child));
        for members in self.members.values_mut() {
            members.remove(&child);
        }
        self.stop_if_done(io);
    }

    fn stop_if_done(&mut self, io: &mut Machine<'_>) {
        if self.accept.is_none() && io.engine().is_empty() {
            io.stop();
        }
    }
}

impl Host<Source> for ListenHost {
    type Input = Request;

    fn start(&mut self, io: &mut Machine<'_>) {
        io.set_pace(RateClass::Data, self.rate);
    }

    fn event(&mut self, io: &mut Machine<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Connected { child, peer, .. } => self.connected(io, child, peer),
            SourceEvent::Received { child, bytes } => {
                let len = bytes.len();
                let hear = self.children.get(&child);
                if hear.is_none_or(|hear| hear.send(Ok(bytes)).is_err()) {
                    let _ = io.command(SourceCommand::Consumed { child, bytes: len });
                }
            }
            SourceEvent::ReceivedEnd { child } => {
                self.children.remove(&child);
            }
            SourceEvent::Writable { to, .. } => {
                if let Some(waiting) = self.waiting.remove(&to) {
                    self.write(io, to, waiting);
                }
            }
            SourceEvent::Drained { master } => {
                self.members.remove(&master);
                self.waiting.remove(&Stream::Master(master));
            }
            SourceEvent::Closed { child, .. } => self.gone(io, child, None),
            SourceEvent::Removed { child, reason, .. } => self.gone(io, child, Some(reason)),
            SourceEvent::Pace { rate, burst } => {
                let rate = self.rate.map_or(rate, |most| most.min(rate));
                io.set_burst(RateClass::Data, burst);
                io.set_pace(RateClass::Data, Some(rate));
            }
            SourceEvent::AckFilter(change) => self.acks.apply(change),
        }
    }

    fn input(&mut self, io: &mut Machine<'_>, request: Request) {
        match request {
            Request::Open { answer } => {
                let _ = answer.send(self.open(io));
            }
            Request::Attach { child, master, answer } => {
                let result = io.command(SourceCommand::Attach { child, master });
                if result.is_ok() {
                    self.members.entry(master).or_default().insert(child);
                }
                let _ = answer.send(result.map_err(refused));
            }
            Request::Write { to, bytes, answer } => self.write(io, to, Waiting { bytes, answer }),
            Request::Finish { to, answer } => {
                let result = io.command(SourceCommand::Finish { to });
                let _ = answer.send(result.map_err(refused));
            }
            Request::Consumed { child, bytes } => {
                let _ = io.command(SourceCommand::Consumed { child, bytes });
            }
            Request::DropChild { child } => {
                self.children.remove(&child);
                // One that was attached goes on to the end of its stream.
                if !self.members.values().any(|members| members.contains(&child)) {
                    let _ = io.command(SourceCommand::Finish { to: Stream::Child(child) });
                }
            }
            Request::DropMaster { master } => {
                for child in self.members.remove(&master).unwrap_or_default() {
                    let _ = io.command(SourceCommand::Abort { child });
                }
                let _ = io.command(SourceCommand::Finish { to: Stream::Master(master) });
            }
            Request::Stop => {
                self.accept = None;
                let _ = io.command(SourceCommand::Listen(false));
                self.stop_if_done(io);
            }
        }
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                tracing::debug!("segments do not leave: {reason}");
            }
            Trouble::Overrun { .. } => {}
        }
    }
}
