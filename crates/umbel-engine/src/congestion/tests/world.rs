//! One source, the links of a network, and the receivers behind them, packet by packet.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use umbel_wire::reception::{ChannelStamp, ReceptionReport};

use super::link::Link;
pub(super) use super::spec::{HostSpec, PACKET, ReceiverSpec, Spec, origin};
use super::tcp::Flow;
use crate::Instant;
use crate::chance::{Generator, generator, uniform};
use crate::congestion::meter::Meter;
use crate::congestion::reporter::Reporter;
use crate::congestion::{Controller, Event};

/// Most packets that the source sends with one call.
const BATCH: u32 = 64;

/// A packet in a socket.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: Instant,
    stamp: ChannelStamp,
    marked: bool,
    /// Those that were dropped before it.
    dropped: u32,
}

/// The state of a receiver's machine.
#[derive(Clone, Debug, Default)]
struct Host {
    socket: VecDeque<Held>,
    dropped: u32,
    reads: bool,
    busy_until: f64,
    looked: f64,
}

/// What happens next. Names say to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrival(usize),
    Read(usize),
    Report(usize),
    Wake(usize),
    Send(u64),
    Timeout(u64),
    Join(usize),
    Flow(usize),
    FlowTimeout(usize),
    Sample,
}

/// A receiver's state.
pub(super) struct Receiver {
    pub(super) spec: ReceiverSpec,
    in_burst: bool,
    joined: bool,
    pub(super) left: Option<Instant>,
    /// Packets under way: when they are seen, stamp, mark.
    arriving: VecDeque<(f64, ChannelStamp, bool)>,
    reports: VecDeque<(f64, ReceptionReport)>,
    pub(super) meter: Meter,
    reporter: Reporter,
    wakes: Option<Instant>,
    stalled_until: f64,
    seen: f64,
    host: Host,
    pub(super) received: u64,
    pub(super) sent_reports: u64,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) controller: Controller<usize>,
    pub(super) links: Vec<Link>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) flows: Vec<Flow>,
    spec: Spec,
    random: Generator,
    heap: BinaryHeap<Reverse<(Instant, u64, Next)>>,
    order: u64,
    number: u32,
    pub(super) sent: u64,
    /// Bits that are not due yet, as of a time, at a rate.
    owed: (f64, f64, f64),
    /// Time until which the source holds packets back, and does not send.
    held_until: f64,
    stopped_until: f64,
    looked: f64,
    send_version: u64,
    timeout_at: Option<Instant>,
    timeout_version: u64,
    pub(super) samples: Vec<Sample>,
    sample_every: Duration,
    /// Whether the state is printed now and then.
    pub(super) trace: bool,
    printed: String,
}

/// The state now and then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: f64,
    pub(super) rate: f64,
    /// Seconds that the first link's queue lasts.
    pub(super) queue: f64,
    /// Packets that the first link dropped so far.
    pub(super) dropped: u64,
    pub(super) received: u64,
}

pub(super) fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn instant(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

impl World {
    pub(super) fn new(spec: Spec) -> World {
        let controller = Controller::new(spec.config, spec.told_rtt, generator(spec.seed + 1));
        let receivers = spec.receivers.iter().enumerate().map(|(n, receiver)| Receiver {
            spec: receiver.clone(),
            in_burst: false,
            joined: false,
            left: None,
            arriving: VecDeque::new(),
            reports: VecDeque::new(),
            meter: Meter::default(),
            reporter: Reporter::new(generator(spec.seed * 1000 + n as u64)),
            wakes: None,
            stalled_until: 0.0,
            seen: 0.0,
            host: Host::default(),
            received: 0,
            sent_reports: 0,
        });
        let flows = spec.flows.iter().map(|&(kind, rtt)| Flow::new(kind, rtt.as_secs_f64()));
        let mut world = World {
            now: Instant::EPOCH,
            controller,
            links: spec.links.iter().cloned().map(Link::new).collect(),
            receivers: receivers.collect(),
            flows: flows.collect(),
            random: generator(spec.seed),
            heap: BinaryHeap::new(),
            order: 0,
            number: 0,
            sent: 0,
            owed: (0.0, 0.0, 0.0),
            held_until: 0.0,
            stopped_until: 0.0,
            looked: 0.0,
            send_version: 0,
            timeout_at: None,
            timeout_version: 0,
            samples: Vec::new(),
            sample_every: Duration::from_millis(10),
            trace: false,
            printed: String::new(),
            spec,
        };
        for n in 0..world.receivers.len() {
            let at = Instant::EPOCH + world.receivers[n].spec.joins;
            world.push(at, Next::Join(n));
        }
        for n in 0..world.flows.len() {
            let at = Instant::EPOCH + world.spec.flows_begin + Duration::from_millis(n as u64 * 17);
            world.push(at, Next::FlowTimeout(n));
        }
        world.push(Instant::EPOCH, Next::Sample);
        world
    }

    fn push(&mut self, at: Instant, next: Next) {
        self.order += 1;
        self.heap.push(Reverse((at.max(self.now), self.order, next)));
    }

    /// Runs until `time` after the beginning.
    pub(super) fn run(&mut self, time: Duration) {
        let end = Instant::EPOCH + time;
        self.controller_changed();
        while let Some(&Reverse((at, _, next))) = self.heap.peek()
            && at < end
        {
            self.heap.pop();
            self.now = at;
            self.happen(next);
        }
        self.now = end;
    }

    /// Takes out a receiver that wants nothing more.
    pub(super) fn leave(&mut self, n: usize) {
        self.receivers[n].joined = false;
        self.controller.forget(&n);
        self.controller_changed();
    }

    fn happen(&mut self, next: Next) {
        let now = self.now;
        match next {
            Next::Join(n) => {
                self.receivers[n].joined = true;
                let origin = self.receivers[n].spec.origin;
                self.controller.join(now, n, origin);
                let schedule = self.controller.schedule(&n);
                self.receivers[n].reporter.set_schedule(schedule);
                self.controller_changed();
            }
            Next::Arrival(n) => self.arrive(n),
            Next::Read(n) => self.read(n),
            Next::Wake(n) => {
                self.receivers[n].wakes = None;
                let busy_until = instant(self.receivers[n].host.busy_until);
                if busy_until > now {
                    self.receivers[n].wakes = Some(busy_until);
                    self.push(busy_until, Next::Wake(n));
                } else {
                    self.poll_reporter(n);
                }
            }
            Next::Report(n) => {
                let receiver = &mut self.receivers[n];
                let Some((_, report)) = receiver.reports.pop_front() else { return };
                let origin = receiver.spec.origin;
                if let Some(&(at, _)) = receiver.reports.front() {
                    self.push(instant(at), Next::Report(n));
                }
                if self.receivers[n].joined {
                    self.controller.hear(now, &n, origin, &report);
                }
                if self.trace && std::env::var("TRACE").unwrap() == "2" {
                    let state = format!(
                        "{:?}",
                        (
                            self.controller.phase,
                            self.controller.paths.get(&n).map(|path| path.bound)
                        )
                    );
                    if state != self.printed {
                        self.printed = state;
                        self.print();
                    }
                }
                self.controller_changed();
            }
            Next::Timeout(version) if version == self.timeout_version => {
                self.timeout_at = None;
                self.controller.on_timeout(now);
                if let Some(at) = self.controller.next() {
                    assert!(at > now, "a timer that is past: {at:?} at {now:?}");
                }
                self.controller_changed();
            }
            Next::Send(version) if version == self.send_version => self.send_batch(),
            Next::Timeout(_) | Next::Send(_) => {}
            Next::Flow(n) => {
                self.flows[n].on_acks(seconds(now));
                self.drive_flow(n);
            }
            Next::FlowTimeout(n) => {
                self.flows[n].on_timeout(seconds(now));
                self.drive_flow(n);
                let again = self.flows[n].patience();
                self.push(now + Duration::from_secs_f64(again), Next::FlowTimeout(n));
            }
            Next::Sample => {
                let link = &self.links[0];
                self.samples.push(Sample {
                    at: seconds(now),
                    rate: self.controller.rate().bits_per_s() as f64,
                    queue: link.wait(seconds(now)),
                    dropped: link.dropped,
                    received: self.receivers[0].received,
                });
                if self.trace && std::env::var("TRACE").unwrap() == "1" {
                    self.print();
                }
                self.push(now + self.sample_every, Next::Sample);
            }
        }
    }

    fn print(&self) {
        let Some(sample) = self.samples.last() else { return };
        let controller = &self.controller;
        println!(
            "{:8.3} {:?} rate {:8.3} ramp {:?} queue {:6.2} ms dropped {} batch {:?}",
            seconds(self.now),
            controller.phase,
            controller.rate / 1e6,
            controller.ramp.map(|ramp| ramp / 1e6),
            sample.queue * 1e3,
            sample.dropped,
            controller.batches.most
        );
        for path in controller.paths.values().take(4) {
            println!(
                "         carries {:8.3} sent {:8.3} {:?} q {:.2} {:.2} j {:.2} train {:.2} {}",
                path.carries / 1e6,
                path.sent / 1e6,
                path.bound,
                path.queue.least * 1e3,
                path.queue.last * 1e3,
                path.queue.jitter * 1e3,
                path.train.rate.unwrap_or(0.0) / 1e6,
                path.loss
            );
        }
    }

    fn drive_flow(&mut self, n: usize) {
        let now = seconds(self.now);
        while self.flows[n].may_send() {
            let passed = self.links[0].pass(now, super::tcp::SEGMENT);
            self.flows[n].sent(now, passed.map(|passed| passed.leaves));
        }
        if let Some(at) = self.flows[n].next_ack(now) {
            self.push(instant(at) + Duration::from_nanos(1), Next::Flow(n));
        }
    }

    /// Does what the controller asks for, and looks when it has to be asked again.
    fn controller_changed(&mut self) {
        let now = self.now;
        while let Some(event) = self.controller.poll_event() {
            match event {
                Event::Rate(_) => {}
                Event::Left { who, .. } => {
                    self.receivers[who].left = Some(now);
                    self.receivers[who].joined = false;
                }
                // Schedules come along with data, half a round trip later; here at once.
                Event::Schedule { who, schedule } => {
                    self.receivers[who].reporter.set_schedule(schedule);
                }
                Event::ScheduleOthers(_) => {
                    for n in 0..self.receivers.len() {
                        let schedule = self.controller.schedule(&n);
                        self.receivers[n].reporter.set_schedule(schedule);
                    }
                }
            }
        }
        let next = self.controller.next();
        if next != self.timeout_at {
            self.timeout_at = next;
            self.timeout_version += 1;
            if let Some(at) = next {
                self.push(at, Next::Timeout(self.timeout_version));
            }
        }
        self.plan_send();
    }

    fn send_rate(&self) -> f64 {
        let rate = self.controller.rate().bits_per_s() as f64;
        self.spec.source_rate.map_or(rate, |most| most.min(rate))
    }

    /// Counts the bits that became due since the last time. No more than a millisecond's worth is
    /// made up.
    fn pay(&mut self) {
        let now = seconds(self.now);
        let (owed, as_of, rate) = self.owed;
        let owed = (owed - (now - as_of) * rate).max(-rate * 1e-3);
        self.owed = (owed, now, self.send_rate());
    }

    /// Plans the next batch at the present rate.
    fn plan_send(&mut self) {
        self.pay();
        let (owed, now, rate) = self.owed;
        self.send_version += 1;
        if !self.controller.may_send() {
            return;
        }
        let mut at = instant((now + owed.max(0.0) / rate).max(self.stopped_until));
        if let Some((from, to)) = self.spec.pause
            && at >= Instant::EPOCH + from
            && at < Instant::EPOCH + to
        {
            at = Instant::EPOCH + to;
        }
        self.push(at, Next::Send(self.send_version));
    }

    /// Packets of a millisecond.
    fn batch(&self) -> u32 {
        let batch = (self.send_rate() * 1e-3 / 8.0 / f64::from(PACKET)) as u32;
        let batch = batch.clamp(1, BATCH);
        self.controller.most_together().map_or(batch, |most| batch.max(most.min(5)).min(most))
    }

    fn send_batch(&mut self) {
        self.pay();
        self.disturb();
        let batch = self.batch();
        for place in 0..batch {
            if !self.controller.may_send() {
                break;
            }
            let stamp = ChannelStamp::new(self.number, self.now.as_nanos() / 1000, place as u8);
            self.number = self.number.wrapping_add(1);
            self.sent += 1;
            self.send(stamp);
            self.owed.0 += f64::from(PACKET) * 8.0;
        }
        self.controller.on_sent(self.now, self.number);
        self.controller_changed();
    }

    /// Lets the source's machine do something else now and then.
    fn disturb(&mut self) {
        let now = seconds(self.now);
        let chance = (now - self.looked) * self.spec.clumps;
        self.looked = now;
        if chance == 0.0 {
            return;
        }
        if uniform(&mut self.random) < chance {
            self.held_until = now + 0.02 * uniform(&mut self.random);
        }
        if uniform(&mut self.random) < chance {
            self.stopped_until = now + 0.02 * uniform(&mut self.random);
        }
    }

    /// Sends a packet down all links to all receivers.
    fn send(&mut self, stamp: ChannelStamp) {
        let now = seconds(self.now);
        let passed: Vec<_> =
            self.links.iter_mut().map(|link| link.pass(now, f64::from(PACKET))).collect();
        for n in 0..self.receivers.len() {
            let receiver = &mut self.receivers[n];
            let spec = &receiver.spec;
            if !receiver.joined {
                continue;
            }
            let Some(passed) = &passed[spec.link] else { continue };
            if spec.loss > 0.0 {
                let burst = spec.burst.max(1.0);
                let draw = uniform(&mut self.random);
                receiver.in_burst = if burst <= 1.0 {
                    draw < spec.loss
                } else if receiver.in_burst {
                    draw >= 1.0 / burst
                } else {
                    draw < spec.loss / (1.0 - spec.loss).max(0.01) / burst
                };
                if receiver.in_burst {
                    continue;
                }
            }
            let mut at = passed.leaves + spec.rtt.as_secs_f64() / 2.0;
            if !spec.jitter.is_zero() {
                at += spec.jitter.as_secs_f64() * uniform(&mut self.random);
            }
            if spec.stalls > 0.0 {
                let since = (at - receiver.seen.max(receiver.stalled_until)).max(0.0);
                if uniform(&mut self.random) < since * spec.stalls {
                    receiver.stalled_until = at + 5e-4 + 3.5e-3 * uniform(&mut self.random);
                }
            }
            let at = at.max(receiver.stalled_until).max(receiver.seen).max(self.held_until);
            receiver.seen = at;
            receiver.arriving.push_back((at, stamp, passed.marked));
            if receiver.arriving.len() == 1 {
                self.push(instant(at), Next::Arrival(n));
            }
        }
    }

    fn arrive(&mut self, n: usize) {
        let now = self.now;
        let receiver = &mut self.receivers[n];
        while let Some(&(at, stamp, marked)) = receiver.arriving.front()
            && instant(at) <= now
        {
            receiver.arriving.pop_front();
            if let Some(spec) = receiver.spec.host {
                if receiver.host.socket.len() < spec.socket {
                    let dropped = std::mem::take(&mut receiver.host.dropped);
                    receiver.host.socket.push_back(Held { at: now, stamp, marked, dropped });
                } else {
                    receiver.host.dropped += u32::from(spec.counts);
                }
                continue;
            }
            receiver.meter.on_packet(now, stamp, PACKET as usize, marked);
            receiver.received += 1;
        }
        if let Some(&(at, ..)) = receiver.arriving.front() {
            self.push(instant(at), Next::Arrival(n));
        }
        if self.receivers[n].spec.host.is_some() {
            self.plan_read(n);
        } else {
            self.poll_reporter(n);
        }
    }

    fn plan_read(&mut self, n: usize) {
        let host = &mut self.receivers[n].host;
        if !host.reads && !host.socket.is_empty() {
            host.reads = true;
            let at = instant(host.busy_until);
            self.push(at, Next::Read(n));
        }
    }

    /// Reads what a socket holds.
    fn read(&mut self, n: usize) {
        let now = seconds(self.now);
        let receiver = &mut self.receivers[n];
        let (Some(spec), host) = (receiver.spec.host, &mut receiver.host) else { return };
        host.reads = false;
        let chance = (now - host.looked) * spec.stalls;
        host.looked = now;
        if chance > 0.0 && uniform(&mut self.random) < chance {
            host.busy_until = now + 0.005 + 0.045 * uniform(&mut self.random);
        } else {
            let count = host.socket.len().min(spec.together);
            for held in host.socket.drain(..count) {
                receiver.meter.on_overrun(held.dropped);
                let at = if spec.stamps { held.at } else { self.now };
                receiver.meter.on_packet(at, held.stamp, PACKET as usize, held.marked);
            }
            receiver.received += count as u64;
            host.busy_until = now + count as f64 / spec.per_s;
            self.poll_reporter(n);
        }
        self.plan_read(n);
    }

    fn poll_reporter(&mut self, n: usize) {
        let now = self.now;
        let receiver = &mut self.receivers[n];
        if let Some(report) = receiver.reporter.poll(now, &mut receiver.meter) {
            receiver.sent_reports += 1;
            let lost = receiver.spec.report_loss;
            if lost == 0.0 || uniform(&mut self.random) >= lost {
                let late = receiver.spec.report_late.as_secs_f64();
                let late = if late > 0.0 { late * uniform(&mut self.random) } else { 0.0 };
                let at = seconds(now) + receiver.spec.rtt.as_secs_f64() / 2.0 + late;
                let at = receiver.reports.back().map_or(at, |last| at.max(last.0));
                receiver.reports.push_back((at, report));
                if receiver.reports.len() == 1 {
                    self.push(instant(at), Next::Report(n));
                }
            }
        }
        let receiver = &mut self.receivers[n];
        let next = receiver.reporter.next(&receiver.meter);
        if let Some(at) = next
            && receiver.wakes.is_none_or(|wakes| at < wakes)
        {
            receiver.wakes = Some(at);
            self.push(at, Next::Wake(n));
        }
    }
}
