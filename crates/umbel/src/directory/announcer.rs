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
use umbel_net::session::Signer;
use umbel_net::udp::{Receiver, ReceiverOptions, Sender, SenderOptions};
use umbel_net::wake::{self, Waker};
use umbel_wire::sap::{self, SapPacket};
use umbel_wire::session::{FindSessions, QUERY_PORT, SessionKind};
use umbel_wire::signed::Signed;
use umbel_wire::{Channel, Parsed};

use super::Directory;

/// Shortest time between answers to queries, at most 22 kbit/s.
const ANSWER: Duration = Duration::from_millis(200);
/// Most answers to single hosts in this time.
const ANSWERS: u32 = 50;
/// Pauses between the first announcements. With them, a receiver that waits for the session does
/// not miss its start because one packet was lost.
const FIRST: [Duration; 4] = [
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
];
/// Pauses between the deletions of a stream. Nothing else tells its end to its receivers, and the
/// first can be lost where the stream's own last packets fill a queue.
const LAST: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(600)];
/// Name of this program in announcements.
const TOOL: &str = concat!("umbel ", env!("CARGO_PKG_VERSION"));

/// Announces a session until it is dropped. Then it announces that the session is over, which
/// takes a second for a stream.
#[derive(Debug)]
pub struct Announcer {
    stopped: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Announces a session in the directory of its scope, signed by its sender, and answers queries
    /// for it.
    ///
    /// # Errors
    ///
    /// If a socket cannot be opened, or the group cannot be joined.
    pub fn start(
        session: &SessionKind,
        signer: &Signer,
        interface: &Interface,
    ) -> anyhow::Result<Announcer> {
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
            shared: true,
            ..SenderOptions::new(family)
        };
        // The first session of a host also hears receivers that its multicast does not reach.
        let usual = SenderOptions { port: QUERY_PORT, ..options.clone() };
        let sender = Sender::open(interface, &usual).or_else(|_| Sender::open(interface, &options));
        let sender = sender.context(why)?;
        let waker = Waker::new()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let voice = Voice {
            direct: Receiver::of_sender(&sender, &ReceiverOptions::default()).context(why)?,
            sender,
            to: SocketAddr::new(group, sap::PORT),
            session: session.clone(),
            announcement: payload(session, signer, false),
            deletion: payload(session, signer, true),
            others: listen(sap::PORT).context(why)?,
            queries: listen(QUERY_PORT).context(why)?,
            directory: Directory::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(u64::from(session.tsi().0)),
            announced: None,
            answered: None,
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

/// Returns what announces the session, or says that it is over: the next version of its origin.
pub(super) fn payload(session: &SessionKind, signer: &Signer, deletion: bool) -> Vec<u8> {
    let mut description = session.describe(TOOL);
    let text = if deletion {
        description.origin.version = description.origin.version.saturating_add(1);
        description.origin.emit()
    } else {
        description.emit()
    };
    let (text, mut out) = (text.as_bytes(), Vec::new());
    let signature = signer.sign(&Signed::message(text));
    Signed { text, key: signer.public(), signature }.emit(&mut out);
    out
}

struct Voice {
    sender: Sender,
    to: SocketAddr,
    session: SessionKind,
    /// Datagrams of the session: while it lasts, and at its end.
    announcement: Vec<u8>,
    deletion: Vec<u8>,
    /// Announcements of others, which share the bandwidth.
    others: Receiver,
    queries: Receiver,
    /// Queries to this host alone.
    direct: Receiver,
    directory: Directory,
    random: Xoshiro256PlusPlus,
    announced: Option<Instant>,
    /// Start of the present interval of [`ANSWER`], and answers to single hosts in it.
    answered: Option<(Instant, u32)>,
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
        self.send(self.to, true);
        if matches!(self.session, SessionKind::Stream(_)) {
            for pause in LAST {
                std::thread::sleep(pause);
                self.send(self.to, true);
            }
        }
    }

    /// Announces the session. Returns the time until the next announcement, by the standard.
    fn announce(&mut self, now: Instant) -> Duration {
        self.send(self.to, false);
        self.announced = Some(now);
        self.directory.expire(now);
        // This session's own announcements come back.
        let announcements = self.directory.sessions().len().max(1) as u64;
        let draw = self.random.next_u64() as f64 / u64::MAX as f64;
        sap::interval(announcements, self.announcement.len() as u64, draw)
    }

    fn send(&mut self, to: SocketAddr, deletion: bool) {
        let payload = if deletion { &self.deletion } else { &self.announcement };
        let mut packet = Vec::new();
        SapPacket::new(deletion, self.session.source().ip(), payload).emit(&mut packet);
        let mut buf = TransmitBuf::default();
        buf.push(&packet, Bytes::new());
        if let Err(error) = self.sender.send(to, &buf) {
            tracing::warn!("the session cannot be announced: {error}");
        }
    }

    /// Waits this long, for a query or for the waker. Returns whether the session was asked for.
    fn listen(&mut self, waker: &Waker, wait: Duration) -> std::io::Result<bool> {
        let sockets = [&self.others, &self.queries, &self.direct].map(AsFd::as_fd);
        let [others, queries, direct] = sockets;
        wake::wait_for([others, queries, direct, waker.as_fd()], PollFlags::POLLIN, Some(wait))?;
        waker.take();
        let Voice { others, queries, direct, directory, session, .. } = self;
        let now = Instant::now();
        others.receive(Some(Duration::ZERO), None, |received| {
            directory.hear(now, received.from.ip(), received.payload);
        })?;
        let wants = |payload: &[u8]| {
            let query = FindSessions::parse(payload).ok().and_then(Parsed::message);
            query.is_some_and(|query| query.name.is_none_or(|name| name == *session.name()))
        };
        let (mut asked, mut askers) = (false, Vec::new());
        queries.receive(Some(Duration::ZERO), None, |received| asked |= wants(received.payload))?;
        direct.receive(Some(Duration::ZERO), None, |received| {
            askers.extend(wants(received.payload).then_some(received.from));
        })?;
        if !askers.is_empty() {
            self.answer(now, &askers);
        }
        Ok(asked)
    }

    /// Answers these hosts alone, as far as the limit allows. They ask again.
    fn answer(&mut self, now: Instant, askers: &[SocketAddr]) {
        for &asker in askers {
            let (since, answers) = self.answered.unwrap_or((now, 0));
            let (since, answers) =
                if now.duration_since(since) >= ANSWER { (now, 0) } else { (since, answers) };
            if answers >= ANSWERS {
                return;
            }
            self.answered = Some((since, answers + 1));
            self.send(asker, false);
        }
    }
}
