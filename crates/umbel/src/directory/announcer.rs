//! Announces a session as long as it lasts.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use nix::poll::PollFlags;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use umbel_engine::TransmitBuf;
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{Receiver, ReceiverOptions, Sender, SenderOptions};
use umbel_net::wake::{self, Waker};
use umbel_wire::sap::{self, SapPacket};
use umbel_wire::session::{FindSessions, QUERY_PORT, SessionKind};
use umbel_wire::{Channel, Parsed, sdp::Description};

use super::Directory;

/// Shortest time between answers to queries, at most 22 kbit/s.
const ANSWER: Duration = Duration::from_millis(200);
/// Pauses between the first announcements. With them, a receiver that waits for the session does not
/// miss its start because one packet was lost.
const FIRST: [Duration; 4] = [
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
];
/// Name of this program in announcements.
const TOOL: &str = concat!("umbel ", env!("CARGO_PKG_VERSION"));

/// Announces a session until it is dropped. Then it announces that the session is over.
#[derive(Debug)]
pub struct Announcer {
    stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Announces a session in the directory of its scope, and answers queries for it.
    ///
    /// # Errors
    ///
    /// If a socket cannot be opened, or the group cannot be joined.
    pub fn start(session: &SessionKind, interface: &Interface) -> anyhow::Result<Announcer> {
        let group = sap::directory_for(session.announced_with());
        let family = Family::of(group);
        let listen = |port: u16| -> anyhow::Result<Receiver> {
            let options =
                ReceiverOptions { batch: 4, offload: false, ..ReceiverOptions::default() };
            let mut receiver = Receiver::open(port, family, interface, &options)?;
            receiver.join(&Channel { source: None, group, port })?;
            Ok(receiver)
        };
        let why = "cannot announce the session";
        let options = SenderOptions {
            source: Some(session.source().ip()),
            hop_limit: session.scope(),
            ..SenderOptions::new(family)
        };
        let waker = Waker::new()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let voice = Voice {
            sender: Sender::open(interface, &options).context(why)?,
            to: SocketAddr::new(group, sap::PORT),
            session: session.clone(),
            description: session.describe(TOOL),
            others: listen(sap::PORT).context(why)?,
            queries: listen(QUERY_PORT).context(why)?,
            directory: Directory::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(u64::from(session.tsi().0)),
            announced: None,
            times: 0,
        };
        let (called, stop) = (waker.clone(), stopped.clone());
        let thread = std::thread::Builder::new()
            .name("umbel-announcer".to_owned())
            .spawn(move || voice.run(&called, &stop))?;
        Ok(Announcer { stopped, waker, thread: Some(thread) })
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic.
            let _ = thread.join();
        }
    }
}

struct Voice {
    sender: Sender,
    to: SocketAddr,
    session: SessionKind,
    description: Description,
    /// Announcements of others, which share the bandwidth.
    others: Receiver,
    queries: Receiver,
    directory: Directory,
    random: Xoshiro256PlusPlus,
    announced: Option<Instant>,
    /// Number of announcements sent.
    times: usize,
}

impl Voice {
    fn run(mut self, waker: &Waker, stopped: &AtomicBool) {
        let mut next = Instant::now();
        let mut asked = false;
        while !stopped.load(Ordering::Acquire) {
            let now = Instant::now();
            let rested = self.announced.is_none_or(|at| now.duration_since(at) >= ANSWER);
            if now >= next || asked && rested {
                asked = false;
                let regular = self.announce(now);
                next = now + FIRST.get(self.times).copied().unwrap_or(regular);
                self.times += 1;
            }
            let until = match self.announced {
                Some(at) if asked => next.min(at + ANSWER),
                _ => next,
            };
            match self.listen(waker, until.saturating_duration_since(Instant::now())) {
                Ok(query) => asked |= query,
                Err(error) => {
                    tracing::warn!("the session is announced no more: {error}");
                    return;
                }
            }
        }
        let origin = self.description.origin.emit();
        self.send(true, origin.as_bytes());
    }

    /// Announces the session. Returns the time until the next announcement, by the standard.
    fn announce(&mut self, now: Instant) -> Duration {
        let text = self.description.emit();
        self.send(false, text.as_bytes());
        self.announced = Some(now);
        self.directory.expire(now);
        // This session's own announcements come back.
        let announcements = self.directory.sessions().len().max(1) as u64;
        let draw = self.random.next_u64() as f64 / u64::MAX as f64;
        sap::interval(announcements, text.len() as u64, draw)
    }

    fn send(&mut self, deletion: bool, payload: &[u8]) {
        let mut packet = Vec::new();
        SapPacket::new(deletion, self.session.source().ip(), payload).emit(&mut packet);
        let mut buf = TransmitBuf::default();
        buf.push(&packet, Bytes::new());
        if let Err(error) = self.sender.send(self.to, &buf) {
            tracing::warn!("the session cannot be announced: {error}");
        }
    }

    /// Waits this long, for a query or for the waker. Returns whether the session was asked for.
    fn listen(&mut self, waker: &Waker, wait: Duration) -> std::io::Result<bool> {
        let fds = [self.others.as_fd(), self.queries.as_fd(), waker.as_fd()];
        wake::wait_for(fds, PollFlags::POLLIN, Some(wait))?;
        waker.take();
        let Voice { others, queries, directory, session, .. } = self;
        let now = Instant::now();
        others.receive(Some(Duration::ZERO), None, |received| {
            directory.hear(now, received.payload);
        })?;
        let mut asked = false;
        queries.receive(Some(Duration::ZERO), None, |received| {
            let query = FindSessions::parse(received.payload).ok().and_then(Parsed::message);
            asked |=
                query.is_some_and(|query| query.name.is_none_or(|name| name == *session.name()));
        })?;
        Ok(asked)
    }
}
