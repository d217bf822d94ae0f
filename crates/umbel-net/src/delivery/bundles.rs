//! Plain acknowledgements of this host's connections, sent together.
//!
//! The program in the kernel takes them out of the way and puts them into a ring. A thread waits a
//! moment for more, and sends the latest of each connection to the source, in a [`Bundle`]. So the
//! source takes in one datagram, and not one packet for each connection.
//!
//! ```text
//!                  the answer comes, and tells this host's own address
//!   no lease ──────────────────────────────────────────────────────────▶ lease of a port
//!   (each goes alone, and makes  ◀────────────────────────────────────── (all go together)
//!   the helper ask)                no answer for as long as a lease lasts
//! ```
//!
//! Nothing depends on it. Without a lease of the source's port, or if the thread does not come in
//! time, acknowledgements go as ever. The source asks receivers of which it hears nothing.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, RingBuf};
use nix::poll::PollFlags;
use nix::time::{ClockId, clock_gettime};
use ring::rand::{SecureRandom as _, SystemRandom};
use umbel_wire::ip::be16;
use umbel_wire::tcp::{Bundle, Head};

use crate::interface::Interface;
use crate::sys;
use crate::wake::{self, Waker};

/// Time for which others are waited for. Late acknowledgements would cost more than many: the source
/// asks receivers that are silent for two round trips.
const GATHER: Duration = Duration::from_micros(200);
/// Time for which a port of the source is believed to take bundles.
const LEASE: Duration = Duration::from_secs(2);
/// Interval of questions. It doubles while none is answered.
const ASK_EVERY: Duration = Duration::from_millis(50);
const MAX_ASK_EVERY: Duration = Duration::from_secs(10);
/// Ports of the source, at most: places of the program's map.
const MAX_PORTS: usize = 64;

/// `struct record` of the program: its kind, and a TCP header.
const KIND: usize = 4;
/// Kinds: of a connection without a lease, or of an acknowledgement that is to be sent.
#[cfg(test)]
pub(super) const HEARD: u32 = 0;
pub(super) const TAKEN: u32 = 1;

type Ack = [u8; Head::MIN_LEN];

/// Returns the address of this host from which its packets to the source leave.
pub(super) fn own_address(source: IpAddr, interface: &Interface) -> io::Result<IpAddr> {
    let any: IpAddr = if source.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Any port: nothing is sent.
    socket.connect(interface.on_link(SocketAddr::new(source, 9)))?;
    Ok(socket.local_addr()?.ip())
}

/// A thread that sends acknowledgements together until it is dropped.
pub(super) struct Bundler {
    waker: Waker,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bundler {
    /// Starts to send from `own` what the program puts into `records`, to ports of `source` for
    /// which it tells the program by `leases`.
    pub(super) fn start(
        own: IpAddr,
        source: IpAddr,
        interface: &Interface,
        records: RingBuf<MapData>,
        leases: HashMap<MapData, u32, u64>,
    ) -> io::Result<Bundler> {
        let socket = UdpSocket::bind(interface.on_link(SocketAddr::new(own, 0)))?;
        socket.set_nonblocking(true)?;
        let waker = Waker::new()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let work = Work {
            source,
            interface: interface.clone(),
            seen: socket.local_addr()?,
            socket,
            records,
            leases,
            ports: BTreeMap::new(),
            datagram: Vec::new(),
            waker: waker.clone(),
            stopped: stopped.clone(),
        };
        let thread = thread::Builder::new().name("bundles".to_owned()).spawn(move || {
            if let Err(error) = work.run() {
                tracing::warn!("acknowledgements are sent one by one: {error}");
            }
        })?;
        Ok(Bundler { waker, stopped, thread: Some(thread) })
    }
}

impl Drop for Bundler {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A port of the source.
#[derive(Debug)]
struct Port {
    /// The latest acknowledgement of each connection, by its port here.
    acks: BTreeMap<u16, Ack>,
    /// Number of the last question, when it was asked, and after which time the next one is.
    asked: Option<(u32, Instant)>,
    ask_every: Duration,
    /// End of the lease.
    until: Option<Instant>,
}

impl Port {
    fn new() -> Port {
        Port { acks: BTreeMap::new(), asked: None, ask_every: ASK_EVERY, until: None }
    }

    /// Returns whether to ask: if half of the lease is over, and not all the time.
    fn may_ask(&self, now: Instant) -> bool {
        let is_late = self.until.is_none_or(|until| until < now + LEASE / 2);
        is_late && self.asked.is_none_or(|(_, at)| at + self.ask_every <= now)
    }

    fn on_asked(&mut self, now: Instant, nonce: u32) {
        if self.asked.is_some() {
            self.ask_every = (self.ask_every * 2).min(MAX_ASK_EVERY);
        }
        self.asked = Some((nonce, now));
    }

    /// Takes an answer. Returns whether it gives a lease.
    fn on_answer(&mut self, now: Instant, nonce: u32, is_seen: bool) -> bool {
        let is_asked = self.asked.is_some_and(|(asked, _)| asked == nonce);
        if !is_asked || !is_seen {
            return false;
        }
        self.asked = None;
        self.ask_every = ASK_EVERY;
        self.until = Some(now + LEASE);
        true
    }
}

/// Tools of the thread.
struct Work {
    source: IpAddr,
    interface: Interface,
    socket: UdpSocket,
    /// Address of the socket, as the source should see it.
    seen: SocketAddr,
    records: RingBuf<MapData>,
    leases: HashMap<MapData, u32, u64>,
    ports: BTreeMap<u16, Port>,
    datagram: Vec<u8>,
    waker: Waker,
    stopped: Arc<AtomicBool>,
}

impl Work {
    fn run(mut self) -> io::Result<()> {
        // It has little to do, and a busy host's applications should not hold it up.
        sys::hurry();
        while !self.stopped.load(Ordering::Acquire) {
            let fds = [self.records.as_fd(), self.socket.as_fd(), self.waker.as_fd()];
            let [has_records, ..] = wake::wait_for(fds, PollFlags::POLLIN, None)?;
            self.waker.take();
            self.take_answers();
            if has_records {
                thread::sleep(GATHER);
                self.take_records();
                self.send();
            }
        }
        for port in self.ports.keys() {
            let _ = self.leases.remove(&(*port).into());
        }
        self.take_records();
        self.send();
        Ok(())
    }

    /// Takes what the program has noted.
    fn take_records(&mut self) {
        while let Some(record) = self.records.next() {
            let Some((kind, tcp)) = record.split_first_chunk::<KIND>() else { continue };
            let Some(tcp) = tcp.first_chunk::<{ Head::MIN_LEN }>() else { continue };
            let number = |at| be16(tcp, at).unwrap_or(0);
            let (local, port) = (number(0), number(2));
            if self.ports.len() >= MAX_PORTS && !self.ports.contains_key(&port) {
                continue;
            }
            let port = self.ports.entry(port).or_insert_with(Port::new);
            if u32::from_ne_bytes(*kind) == TAKEN {
                port.acks.insert(local, *tcp);
            }
        }
    }

    /// Sends what there is, and asks where it is time to.
    fn send(&mut self) {
        let now = Instant::now();
        for (number, port) in &mut self.ports {
            let to = self.interface.on_link(SocketAddr::new(self.source, *number));
            let mut question = port.may_ask(now).then(nonce).flatten();
            if let Some(nonce) = question {
                port.on_asked(now, nonce);
            }
            let acks: Vec<Ack> = std::mem::take(&mut port.acks).into_values().collect();
            for some in acks.chunks(Bundle::MAX_ACKS) {
                Bundle::emit_acks(&mut self.datagram, question.take(), some);
                send(&self.socket, &self.datagram, to);
            }
            if question.is_some() {
                Bundle::emit_acks(&mut self.datagram, question, &[]);
                send(&self.socket, &self.datagram, to);
            }
        }
    }

    /// Takes answers to questions.
    fn take_answers(&mut self) {
        let mut buffer = [0; 64];
        loop {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(_) => return,
            };
            let Ok(Bundle::Answer { nonce, seen }) = Bundle::parse(&buffer[..len]) else {
                continue;
            };
            let is_seen = seen.ip() == self.seen.ip() && seen.port() == self.seen.port();
            let Some(port) = self.ports.get_mut(&from.port()) else { continue };
            if from.ip() == self.source && port.on_answer(Instant::now(), nonce, is_seen) {
                let until = monotonic() + LEASE.as_nanos() as u64;
                if let Err(error) = self.leases.insert(u32::from(from.port()), until, 0) {
                    tracing::debug!("no lease: {error}");
                }
            }
        }
    }
}

/// Sends a datagram. One that cannot leave counts as lost on its way.
fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(datagram, to) {
        tracing::debug!("not sent to {to}: {error}");
    }
}

/// Returns a number that nobody can guess.
fn nonce() -> Option<u32> {
    let mut octets = [0; 4];
    SystemRandom::new().fill(&mut octets).ok()?;
    Some(u32::from_be_bytes(octets))
}

/// Returns the time of the clock that programs in the kernel see, in nanoseconds.
fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}
