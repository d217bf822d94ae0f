//! The run.

use std::time::Duration;

use umbel_engine::Instant;

use crate::app::App;
use crate::network::{LinkId, Network, NetworkError, NodeId};
use crate::packet::GroupId;
use crate::router::RouterHook;
use crate::trace::Tracer;

/// How long messages of sessions take: `min`, and on top of it an exponential time with the mean
/// `mean_extra`. The messages of one host to another keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionDelay {
    /// Least time.
    pub min: Duration,
    /// Mean of what comes on top.
    pub mean_extra: Duration,
}

/// Why [`Simulation::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to happen.
    Idle,
    /// The time is reached.
    Reached,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events handled.
    pub events: u64,
    /// Packets that hosts and hooks sent.
    pub sent: u64,
    /// Packets that entered a link: packet-hops.
    pub hops: u64,
    /// Packets given to applications.
    pub delivered: u64,
    /// Packets lost on links.
    pub lost: u64,
    /// Packets dropped by full queues.
    pub queue_drops: u64,
    /// Packets lost to links that were down.
    pub down: u64,
    /// Packets without a way to their destination.
    pub no_route: u64,
    /// Packets whose hop limit ran out.
    pub hop_limit: u64,
    /// Messages of sessions.
    pub messages: u64,
    /// Bytes of those messages.
    pub message_bytes: u64,
}

/// What has crossed one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that entered it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were lost on it.
    pub lost: u64,
    /// Packets that its queue dropped.
    pub queue_drops: u64,
}

/// A network with its applications at a moment of simulated time.
#[derive(Debug)]
pub struct Simulation {
    network: Network,
}

#[expect(clippy::unused_self, clippy::needless_pass_by_value, reason = "not written yet")]
impl Simulation {
    /// A simulation at time 0.
    pub fn new(network: Network, _seed: u64) -> Simulation {
        Simulation { network }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Puts a program on a host; it starts at `start`.
    ///
    /// # Errors
    ///
    /// When there is no such host, or it has a program already.
    pub fn set_app(
        &mut self,
        _node: NodeId,
        _app: impl App,
        _start: Instant,
    ) -> Result<(), NetworkError> {
        todo!()
    }

    /// Puts protocol logic into a router or a switch.
    ///
    /// # Errors
    ///
    /// When there is no such router, or it has a hook already.
    pub fn set_router_hook(
        &mut self,
        _node: NodeId,
        _hook: impl RouterHook,
    ) -> Result<(), NetworkError> {
        todo!()
    }

    /// Sets how long messages of sessions take; by default they arrive at once.
    pub fn set_sessions(&mut self, _delay: SessionDelay) {
        todo!()
    }

    /// Tells `tracer` everything that happens from now on. Without one, tracing costs nothing.
    pub fn set_tracer(&mut self, _tracer: Box<dyn Tracer>) {
        todo!()
    }

    /// Takes the tracer back.
    pub fn take_tracer(&mut self) -> Option<Box<dyn Tracer>> {
        todo!()
    }

    /// The channel of a group and its only source, or of any source.
    pub fn group(&mut self, _source: Option<NodeId>, _group: u32) -> GroupId {
        todo!()
    }

    /// The source and the number of a channel.
    pub fn group_parts(&self, _group: GroupId) -> (Option<NodeId>, u32) {
        todo!()
    }

    /// Runs everything up to and including `end`.
    pub fn run_until(&mut self, _end: Instant) -> Outcome {
        todo!()
    }

    /// The simulated time.
    pub fn now(&self) -> Instant {
        todo!()
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        todo!()
    }

    /// What has crossed a link so far, from its first end to its second and back.
    pub fn link_counters(&self, _link: LinkId) -> (LinkCounters, LinkCounters) {
        todo!()
    }

    /// The program of a host, if it is an `A`.
    pub fn app<A: App>(&self, _node: NodeId) -> Option<&A> {
        todo!()
    }

    /// The program of a host, if it is an `A`.
    pub fn app_mut<A: App>(&mut self, _node: NodeId) -> Option<&mut A> {
        todo!()
    }

    /// The hook of a router, if it is an `H`.
    pub fn router_hook<H: RouterHook>(&self, _node: NodeId) -> Option<&H> {
        todo!()
    }
}
