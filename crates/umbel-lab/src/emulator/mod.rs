//! Links in user space. Threads carry frames between raw sockets as the link model decides.
//!
//! Each emulated link is two veth pairs whose inner ends lie in the lab's fabric. A worker takes
//! the frames that arrive at one inner end, asks the [`LinkModel`], and sends them out of the other
//! when they are due. The model gets the kernel's time of arrival, not the time at which the worker
//! saw the frame. A late worker therefore disturbs neither rate nor queue.

pub mod frame;
mod packet_socket;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use umbel_engine::Instant;
use umbel_topology::Impairment;
use umbel_topology::link_model::{Arrival, LinkDrop, LinkModel, Verdict};

use self::packet_socket::{BATCH, PacketSocket, ReceivedBatch};

/// Maximum number of frames in flight in one direction. Further ones are dropped as overruns.
const MAX_IN_FLIGHT: usize = 1 << 17;
/// Bytes of an Ethernet header with one tag, on top of the MTU.
const HEADER_BYTES: usize = 18;
/// Number of batches taken from one direction before the others have their turn.
const BATCHES_PER_TURN: usize = 4;

/// Counters of the frames in one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DirectionStats {
    /// Frames that entered.
    pub frames: u64,
    /// Bytes of the frames that entered.
    pub bytes: u64,
    /// Frames that left at the far end, duplicates counted.
    pub delivered: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames dropped because the queue was full.
    pub queue_full: u64,
    /// Frames dropped because the link was cut.
    pub down: u64,
    /// Second copies delivered.
    pub duplicated: u64,
    /// Frames delayed so that others overtook them.
    pub reordered: u64,
    /// Frames damaged, with checksum repaired or not.
    pub corrupted: u64,
    /// Frames that the emulator was too slow for. A test with any has measured the machine.
    pub overruns: u64,
}

/// A link to emulate: its number, its raw sockets with their interfaces, and its impairments.
pub(crate) struct EmulatedLink {
    pub(crate) link: usize,
    pub(crate) ports: [(OwnedFd, u32); 2],
    pub(crate) impairments: [Impairment; 2],
    pub(crate) mtu: u32,
}

/// All emulated links of a lab. Dropping it stops the workers.
#[derive(Debug)]
pub(crate) struct Emulator {
    links: BTreeMap<usize, [Arc<Direction>; 2]>,
    /// The workers stop when this end of the pipe closes.
    stop: Option<OwnedFd>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Direction {
    input: Arc<PacketSocket>,
    output: Arc<PacketSocket>,
    frame_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    model: LinkModel,
    stats: DirectionStats,
}

impl Direction {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Emulator {
    /// Starts carrying frames over `links`.
    pub(crate) fn start(links: Vec<EmulatedLink>, seed: u64) -> io::Result<Emulator> {
        let parallel = thread::available_parallelism().map_or(1, usize::from);
        let worker_count = parallel.clamp(1, 8).min(links.len());
        let mut shares: Vec<Vec<Arc<Direction>>> = vec![Vec::new(); worker_count];
        let mut table = BTreeMap::new();
        for (n, link) in links.into_iter().enumerate() {
            let number = link.link;
            let directions = open_link(link, seed)?;
            shares[n % worker_count].extend(directions.iter().cloned());
            table.insert(number, directions);
        }
        let (stopped, stop) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let stopped = Arc::new(stopped);
        let mut emulator = Emulator { links: table, stop: Some(stop), workers: Vec::new() };
        for (n, share) in shares.into_iter().enumerate() {
            let stopped = Arc::clone(&stopped);
            let worker = Worker::new(share);
            let name = format!("umbel-link-{n}");
            let run = move || worker.run(&stopped);
            emulator.workers.push(thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(emulator)
    }

    /// Changes one direction of a link. Unknown links are ignored.
    pub(crate) fn set_impairment(&self, link: usize, direction: usize, impairment: Impairment) {
        if let Some(directions) = self.links.get(&link) {
            directions[direction].lock().model.set_impairment(impairment);
        }
    }

    /// Returns the impairment of one direction of a link, or `None` if the link is not emulated.
    pub(crate) fn impairment(&self, link: usize, direction: usize) -> Option<Impairment> {
        Some(*self.links.get(&link)?[direction].lock().model.impairment())
    }

    /// Cuts or restores both directions of a link.
    pub(crate) fn set_up(&self, link: usize, up: bool) {
        for direction in self.links.get(&link).into_iter().flatten() {
            direction.lock().model.set_up(up);
        }
    }

    /// Returns the counters of a link's frames, or `None` if the link is not emulated.
    pub(crate) fn stats(&self, link: usize) -> Option<[DirectionStats; 2]> {
        let directions = self.links.get(&link)?;
        Some([0, 1].map(|n| {
            let mut state = directions[n].lock();
            state.stats.overruns += directions[n].input.take_overruns();
            state.stats
        }))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn open_link(link: EmulatedLink, seed: u64) -> io::Result<[Arc<Direction>; 2]> {
    let [a, b] = link.ports;
    let a = Arc::new(PacketSocket::bind(a.0, a.1)?);
    let b = Arc::new(PacketSocket::bind(b.0, b.1)?);
    let direction = |n: usize, input: &Arc<PacketSocket>, output: &Arc<PacketSocket>| {
        let stream = (link.link * 2 + n + 1) as u64;
        let seed = seed.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Arc::new(Direction {
            input: Arc::clone(input),
            output: Arc::clone(output),
            frame_bytes: link.mtu as usize + HEADER_BYTES,
            state: Mutex::new(State {
                model: LinkModel::new(link.impairments[n], seed),
                stats: DirectionStats::default(),
            }),
        })
    };
    Ok([direction(0, &a, &b), direction(1, &b, &a)])
}

/// A thread's share of the directions, with the frames in flight in them.
struct Worker {
    epoch: std::time::Instant,
    lanes: Vec<Lane>,
}

struct Lane {
    direction: Arc<Direction>,
    received: ReceivedBatch,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    /// Arrival time of the last frame. Arrival times never go back.
    latest: Instant,
    admitted: u64,
}

/// A frame in flight, ordered by arrival and, at one instant, by admission.
struct InFlight {
    at: Instant,
    number: u64,
    frame: Vec<u8>,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &InFlight) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &InFlight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &InFlight) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Worker {
    fn new(directions: Vec<Arc<Direction>>) -> Worker {
        let lanes = directions.into_iter().map(Lane::new).collect();
        Worker { epoch: std::time::Instant::now(), lanes }
    }

    fn now(&self) -> Instant {
        Instant::EPOCH + self.epoch.elapsed()
    }

    fn run(mut self, stopped: &OwnedFd) {
        // Frames are due to the microsecond; the default slack is 50 of them.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let sockets: Vec<Arc<Direction>> =
            self.lanes.iter().map(|lane| Arc::clone(&lane.direction)).collect();
        let mut polled = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        polled.extend(sockets.iter().map(|d| PollFd::new(d.input.as_fd(), PollFlags::POLLIN)));
        loop {
            let next = self.lanes.iter().filter_map(Lane::next_due).min();
            let wait = next.map(|due| TimeSpec::from_duration(due.since(self.now())));
            if ppoll(&mut polled, wait, None).is_err() {
                continue;
            }
            if polled[0].any().unwrap_or(true) {
                return;
            }
            let now = self.now();
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            for (lane, polled) in self.lanes.iter_mut().zip(&polled[1..]) {
                let has_input = polled.any().unwrap_or(true);
                if has_input && lane.receive_turn(now, wall) {
                    // Frames still to be fetched come before those that are due after them.
                    lane.deliver_due(now.min(lane.latest));
                } else {
                    lane.deliver_due(now);
                }
            }
        }
    }
}

impl Lane {
    fn new(direction: Arc<Direction>) -> Lane {
        let received = ReceivedBatch::new(direction.frame_bytes);
        Lane {
            direction,
            received,
            in_flight: BinaryHeap::new(),
            latest: Instant::EPOCH,
            admitted: 0,
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(frame)| frame.at)
    }

    /// Receives some batches. Returns whether there is more to fetch.
    fn receive_turn(&mut self, now: Instant, wall: Duration) -> bool {
        (0..BATCHES_PER_TURN).all(|_| self.receive(now, wall) == BATCH)
    }

    /// Receives a batch and sends on the frames that have no delay. Returns the number of frames
    /// received.
    fn receive(&mut self, now: Instant, wall: Duration) -> usize {
        let direction = Arc::clone(&self.direction);
        // A dead socket looks idle. It cannot be repaired here.
        if direction.input.receive(&mut self.received).is_err() {
            return 0;
        }
        let mut at_once = Vec::with_capacity(self.received.len());
        let mut state = direction.lock();
        for n in 0..self.received.len() {
            let (length, stamped) = self.received.meta(n);
            // Frames taken in this turn may be a little newer than `now`.
            let age = wall.saturating_sub(stamped).min(Duration::from_secs(1));
            let arrived = Instant::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64));
            self.latest = self.latest.max(arrived);
            state.stats.frames += 1;
            state.stats.bytes += length as u64;
            match state.model.offer(self.latest, length) {
                Verdict::Drop(LinkDrop::Loss) => state.stats.lost += 1,
                Verdict::Drop(LinkDrop::QueueFull) => state.stats.queue_full += 1,
                Verdict::Drop(LinkDrop::Down) => state.stats.down += 1,
                Verdict::Deliver(arrival) => {
                    // Frames that are due later than they came are sorted by that time, even if
                    // both are past.
                    let plain = arrival.corruption.is_none() && arrival.at <= self.latest;
                    if plain && self.in_flight.is_empty() {
                        at_once.push(n);
                    } else {
                        self.put_in_flight(n, arrival, &mut state.stats);
                    }
                }
                Verdict::DeliverTwice(arrivals) => {
                    state.stats.duplicated += 1;
                    for arrival in arrivals {
                        self.put_in_flight(n, arrival, &mut state.stats);
                    }
                }
            }
        }
        drop(state);
        let frames: Vec<&[u8]> = at_once.iter().map(|&n| self.received.frame(n)).collect();
        self.send(&frames);
        self.received.len()
    }

    fn put_in_flight(&mut self, n: usize, arrival: Arrival, stats: &mut DirectionStats) {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            stats.overruns += 1;
            return;
        }
        stats.reordered += u64::from(arrival.reordered);
        let mut bytes = self.received.frame(n).to_vec();
        if let Some(corruption) = arrival.corruption {
            stats.corrupted += 1;
            frame::corrupt(&mut bytes, corruption.draw, corruption.repair_checksum);
        }
        self.admitted += 1;
        let frame = InFlight { at: arrival.at, number: self.admitted, frame: bytes };
        self.in_flight.push(Reverse(frame));
    }

    fn deliver_due(&mut self, now: Instant) {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            due.extend(self.in_flight.pop().map(|Reverse(frame)| frame.frame));
            if due.len() == BATCH {
                self.send_owned(&mut due);
            }
        }
        self.send_owned(&mut due);
    }

    fn send_owned(&self, frames: &mut Vec<Vec<u8>>) {
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        self.send(&slices);
        frames.clear();
    }

    fn send(&self, frames: &[&[u8]]) {
        if frames.is_empty() {
            return;
        }
        let refused = self.direction.output.send(frames) as u64;
        let mut state = self.direction.lock();
        state.stats.delivered += frames.len() as u64 - refused;
        state.stats.overruns += refused;
    }
}
