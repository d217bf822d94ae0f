//! Members of SRM groups as programs of hosts: the engine of [`umbel_engine::srm`], unchanged. Its
//! application sends according to a plan and records the units that it receives.
//!
//! Members are named by their nodes ([`id_of`]), and the content of each unit follows from its name
//! ([`content`]). So each member can check the units that it receives.
//!
//! ```
//! use std::time::Duration;
//!
//! use umbel_sim::srm::{self, MemberHost, Participant};
//! use umbel_sim::{Instant, LinkSpec, Loss, Network, Simulation};
//!
//! let mut network = Network::new();
//! let (source, receiver) = (network.host("source"), network.host("receiver"));
//! let lossy = LinkSpec { loss: Loss::Bernoulli(0.3), ..LinkSpec::default() };
//! network.link(source, receiver, lossy.clone(), lossy)?;
//! let mut simulation = Simulation::new(network, 1);
//!
//! let mut sender = Participant::default();
//! sender.send_stream(Duration::from_secs(1), Duration::from_millis(50), 100, 1000);
//! simulation.set_app(source, sender.host(srm::config(source, 7), 1), Instant::EPOCH)?;
//! let host = Participant::default().host(srm::config(receiver, 7), 1);
//! simulation.set_app(receiver, host, Instant::EPOCH)?;
//! simulation.run_until(Instant::EPOCH + Duration::from_secs(60));
//!
//! let receiver = simulation.app::<MemberHost>(receiver).unwrap().host();
//! let got = receiver.received(srm::id_of(source)).unwrap();
//! assert_eq!((got.first, got.next, got.wrong, got.lost), (0, 100, 0, 0));
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io};
use umbel_engine::srm::{Command, Config, Event, Member, MemberId, Step, Unit};
use umbel_wire::srm::Message;

use crate::address::channel;
use crate::engine_host::{EngineHost, HostConfig, KindOf};
use crate::network::NodeId;
use crate::packet::Kind;
use crate::random::{Purpose, stream};

#[cfg(test)]
mod tests;

/// Host that is a member.
pub type MemberHost = EngineHost<Member, Participant>;

/// Returns the name of the member that runs on a node.
pub fn id_of(node: NodeId) -> MemberId {
    MemberId(u64::from(node.0))
}

/// Creates the default configuration of the member on a node in group number `group`.
pub fn config(node: NodeId, group: u32) -> Config {
    Config::new(id_of(node), channel(None, group))
}

/// Returns the content of a unit of `len` bytes.
pub fn content(unit: Unit, len: usize) -> Bytes {
    let name = [unit.source.0.to_be_bytes(), unit.sequence.to_be_bytes()].concat();
    name.into_iter().cycle().take(len).collect()
}

/// Units that a member received from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// First unit that was delivered.
    pub first: u64,
    /// Number after the last unit that was delivered.
    pub next: u64,
    /// Number of units delivered out of order, twice, after a gap that was not reported, or with
    /// wrong content.
    pub wrong: u64,
    /// Number of units that were reported as given up.
    pub lost: u64,
    /// Time when the last unit was delivered.
    pub last_at: Instant,
}

/// Recovery of one unit as seen by one member, if its
/// [`Config::observe`](umbel_engine::srm::Config::observe) is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Time when the unit was found missing; `None` if it was not.
    pub detected: Option<Instant>,
    /// Time from detection until the unit arrived.
    pub latency: Option<Duration>,
    /// Requests for the unit sent by this member.
    pub requests_sent: u32,
    /// Requests of others for the unit.
    pub requests_heard: u32,
    /// Repairs of the unit sent by this member.
    pub repairs_sent: u32,
    /// Repairs of the unit sent by others.
    pub repairs_heard: u32,
    /// Others' repairs that arrived when the unit was already held: duplicates.
    pub repairs_unneeded: u32,
}

/// Sends according to a plan, leaves at its time, and records the units that it receives.
#[derive(Clone, Debug, Default)]
pub struct Participant {
    /// Times after the start and lengths of the units to send.
    plan: VecDeque<(Duration, usize)>,
    leave_after: Option<Duration>,
    distances: Vec<(MemberId, Duration)>,
    started: Instant,
    sent: u64,
    left: bool,
    received: BTreeMap<MemberId, Received>,
    recoveries: BTreeMap<Unit, Recovery>,
}

impl Participant {
    /// Creates a host that runs this application on a node. It joins the group when it starts. Its
    /// delays follow from `seed`.
    pub fn host(self, config: Config, seed: u64) -> MemberHost {
        let random = stream(seed, Purpose::Node, config.id.0);
        let host = HostConfig { kind: KindOf::Bytes(kind), ..HostConfig::default() };
        EngineHost::new(Member::new(config, random), self, host)
    }

    /// Sends a unit of `len` bytes at this time after the start. Units leave in the order of these
    /// calls, none before its predecessor.
    pub fn send_after(&mut self, time: Duration, len: usize) {
        self.plan.push_back((time, len));
    }

    /// Sends `count` units of `len` bytes, the first after `first`, the others at intervals of
    /// `every`.
    pub fn send_stream(&mut self, first: Duration, every: Duration, count: u32, len: usize) {
        (0..count).for_each(|n| self.send_after(first + every * n, len));
    }

    /// Leaves the group at this time after the start. Then the host is off the network.
    pub fn leave_after(&mut self, time: Duration) {
        self.leave_after = Some(time);
    }

    /// Sets the one-way distance to a member in the engine when it starts, instead of relying on
    /// session messages.
    pub fn know_distance(&mut self, member: MemberId, distance: Duration) {
        self.distances.push((member, distance));
    }

    /// Returns the units received from a source; `None` if there were none.
    pub fn received(&self, source: MemberId) -> Option<&Received> {
        self.received.get(&source)
    }

    /// Returns the sources from which units were received.
    pub fn sources(&self) -> impl Iterator<Item = (MemberId, &Received)> {
        self.received.iter().map(|(&source, received)| (source, received))
    }

    /// Returns the recovery of each unit that was missing, requested or repaired, as seen by this
    /// member.
    pub fn recoveries(&self) -> &BTreeMap<Unit, Recovery> {
        &self.recoveries
    }

    /// Returns the number of units that this member sent as their source.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn set_timer(&self, io: &mut dyn Io<Member>) {
        let next = self.plan.front().map(|(time, _)| *time);
        let leave = self.leave_after.filter(|_| !self.left);
        let after = [next, leave].into_iter().flatten().min();
        io.wake_at(after.map(|time| self.started + time));
    }

    fn on_delivered(&mut self, now: Instant, unit: Unit, payload: &Bytes) {
        let sequence = unit.sequence;
        let (first, next) = (sequence, sequence);
        let fresh = Received { first, next, wrong: 0, lost: 0, last_at: now };
        let received = self.received.entry(unit.source).or_insert(fresh);
        let right = sequence == received.next && *payload == content(unit, payload.len());
        received.wrong += u64::from(!right);
        received.next = received.next.max(sequence + 1);
        received.last_at = now;
    }

    fn on_lost(&mut self, source: MemberId, before: u64, units: u64) {
        if let Some(received) = self.received.get_mut(&source) {
            received.lost += units;
            received.next = received.next.max(before);
        }
    }

    fn on_step(&mut self, now: Instant, unit: Unit, step: Step) {
        let recovery = self.recoveries.entry(unit).or_default();
        match step {
            Step::Missing => recovery.detected = Some(now),
            Step::RequestSent => recovery.requests_sent += 1,
            Step::RequestHeard => recovery.requests_heard += 1,
            Step::RepairSent => recovery.repairs_sent += 1,
            Step::RepairHeard { needed } => {
                recovery.repairs_heard += 1;
                recovery.repairs_unneeded += u32::from(!needed);
            }
            Step::Recovered { after } => recovery.latency = Some(after),
        }
    }
}

impl Host<Member> for Participant {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<Member>) {
        self.started = io.now();
        // The member is outside the group, where it refuses neither command.
        let _ = io.command(Command::Join);
        for (member, distance) in self.distances.drain(..) {
            let _ = io.command(Command::Distance(member, distance));
        }
        self.set_timer(io);
    }

    fn event(&mut self, io: &mut dyn Io<Member>, event: Event) {
        match event {
            Event::Delivered { unit, payload } => self.on_delivered(io.now(), unit, &payload),
            Event::Lost { source, before, units } => self.on_lost(source, before, units),
            Event::Step { unit, step } => self.on_step(io.now(), unit, step),
        }
    }

    fn wake(&mut self, io: &mut dyn Io<Member>) {
        if self.left {
            return io.stop();
        }
        let now = io.now();
        while let Some((_, len)) = self.plan.pop_front_if(|(time, _)| self.started + *time <= now) {
            let unit = Unit { source: io.engine().id(), sequence: self.sent };
            if io.command(Command::Send(content(unit, len))).is_ok() {
                self.sent += 1;
            }
        }
        if self.leave_after.is_some_and(|time| self.started + time <= now) {
            self.left = io.command(Command::Leave).is_ok();
            // The member leaves when the engine has told the group.
            return io.wake_at(Some(now));
        }
        self.set_timer(io);
    }
}

/// Returns the purpose of an SRM datagram.
pub fn kind(payload: &[u8]) -> Kind {
    match Message::parse(payload).ok().and_then(umbel_wire::Parsed::message) {
        Some(Message::Repair { .. }) => Kind::Repair,
        Some(Message::Request { .. }) => Kind::Nak,
        Some(Message::Session { .. }) => Kind::Control,
        _ => Kind::Data,
    }
}
