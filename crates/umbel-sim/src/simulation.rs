//! Run of a network.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use umbel_engine::Instant;

use crate::app::{App, Context};
use crate::counters::{Counters, LinkCounters};
use crate::fabric::{Branch, Due, Event, Fabric, Parcel, ParcelId, PlaceId};
use crate::network::{LinkId, Network, NetworkError, NodeId, NodeKind};
use crate::packet::{Destination, GroupId};
use crate::router::{Forwarding, RouterHook};
use crate::routing::LineId;
use crate::trace::{ChannelParts, Hop, Tracer};

/// Delay of messages of sessions: `min` plus an exponential time with the mean `mean_extra`. The
/// messages of one host to another keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionDelay {
    /// Least time.
    pub min: Duration,
    /// Mean of the time that is added.
    pub mean_extra: Duration,
}

/// Reason why [`Simulation::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to happen.
    Idle,
    /// The end time is reached.
    Reached,
    /// The trace can no longer be written; [`Tracer::finish`] tells why. The run stands still until
    /// the tracer is removed.
    TraceFailed,
    /// A host asked again and again to be woken at the same moment. Its engine asks for a timeout
    /// and does nothing when it comes. The host was stopped; the others can continue.
    Stuck(NodeId),
}

/// Number of events between two checks of the tracer.
const EVENTS_PER_LOOK: u64 = 256;

/// Network with its programs at a moment of simulated time.
pub struct Simulation {
    fabric: Fabric,
    /// One for each node.
    programs: Vec<Program>,
    drop_stopped: bool,
}

/// Program of a node.
enum Program {
    None,
    App(Box<dyn App>),
    Hook(Box<dyn RouterHook>),
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("fabric", &self.fabric).finish_non_exhaustive()
    }
}

impl Simulation {
    /// Creates a simulation at time 0.
    pub fn new(network: Network, seed: u64) -> Simulation {
        let programs =
            std::iter::repeat_with(|| Program::None).take(network.node_count()).collect();
        Simulation { fabric: Fabric::new(network, seed), programs, drop_stopped: false }
    }

    /// Returns the network.
    pub fn network(&self) -> &Network {
        &self.fabric.network
    }

    /// Puts a program on a host. The program starts at `start`, or now if that has passed.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such host, or if it has a program already.
    pub fn set_app(
        &mut self,
        node: NodeId,
        app: impl App,
        start: Instant,
    ) -> Result<(), NetworkError> {
        self.fabric.network.check_node(node)?;
        if self.fabric.network.kind(node) != NodeKind::Host {
            return Err(NetworkError::NotAHost(self.fabric.network.name(node).to_owned()));
        }
        self.install(node, Program::App(Box::new(app)), start)
    }

    /// Puts protocol logic into a router or a switch. The logic starts with the run.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such router, or if it has a hook already.
    pub fn set_router_hook(
        &mut self,
        node: NodeId,
        hook: impl RouterHook,
    ) -> Result<(), NetworkError> {
        self.fabric.network.check_node(node)?;
        if self.fabric.network.kind(node) == NodeKind::Host {
            return Err(NetworkError::NotARouter(self.fabric.network.name(node).to_owned()));
        }
        self.install(node, Program::Hook(Box::new(hook)), self.fabric.now)
    }

    fn install(
        &mut self,
        node: NodeId,
        program: Program,
        start: Instant,
    ) -> Result<(), NetworkError> {
        let place = &mut self.programs[node.0 as usize];
        if !matches!(place, Program::None) {
            return Err(NetworkError::Occupied(self.fabric.network.name(node).to_owned()));
        }
        *place = program;
        self.fabric.schedule(start.max(self.fabric.now), Event::Start(node));
        Ok(())
    }

    /// Sets the delay of messages of sessions. By default they arrive at once.
    pub fn set_sessions(&mut self, delay: SessionDelay) {
        self.fabric.sessions.delay = delay;
    }

    /// Sets the delay of the messages of one sender. It replaces that of
    /// [`set_sessions`](Simulation::set_sessions).
    pub fn set_sessions_from(&mut self, sender: NodeId, delay: SessionDelay) {
        self.fabric.sessions.delay_from.insert(sender, delay);
    }

    /// Sets the delay of the messages of one sender to one receiver. It overrides all other
    /// settings.
    pub fn set_sessions_between(&mut self, from: NodeId, to: NodeId, delay: SessionDelay) {
        self.fabric.sessions.delay_between.insert((from, to), delay);
    }

    /// Sets whether the programs of hosts that stop are dropped rather than kept for
    /// [`Simulation::app`].
    pub fn drop_stopped(&mut self, drop: bool) {
        self.drop_stopped = drop;
    }

    /// Reports all events to `tracer` from now on. Without a tracer, tracing costs nothing.
    pub fn set_tracer(&mut self, tracer: Box<dyn Tracer>) {
        self.fabric.tracer = Some(tracer);
    }

    /// Removes the tracer and returns it.
    pub fn take_tracer(&mut self) -> Option<Box<dyn Tracer>> {
        self.fabric.tracer.take()
    }

    /// Returns the channel of a group and its only source, or of any source. Groups are numbered
    /// below 2²⁴.
    ///
    /// # Panics
    ///
    /// If the source does not exist.
    pub fn group(&mut self, source: Option<NodeId>, group: u32) -> GroupId {
        self.fabric.group(source, group)
    }

    /// Forwards the packets of a channel of any source without a tree. Each router passes them on
    /// to every neighbour whose own route to the source leads back to that router. It does so
    /// whether or not there are members behind that neighbour, as far as the hop limit allows.
    /// Hosts receive them if they are members. Joins and leaves take effect at once.
    ///
    /// This is multicast before any pruning. A tree takes memory for every member and every source,
    /// a flood takes time for every packet. Flooding suits channels on which thousands of hosts
    /// send over short distances. Packets that were sent on trees before stay in transit.
    pub fn flood(&mut self, group: GroupId) {
        self.fabric.flood(group);
    }

    /// Returns the source and the number of a channel.
    pub fn channel_parts(&self, group: GroupId) -> Option<ChannelParts> {
        self.fabric.channel_parts(group)
    }

    /// Runs everything up to and including `end`. The time is then `end`, unless nothing is left to
    /// happen or the run was cut short. In these cases it is the time of the last event.
    pub fn run_until(&mut self, end: Instant) -> Outcome {
        if self.fabric.trace_failed() {
            return Outcome::TraceFailed;
        }
        while let Some(event) = self.fabric.next_event(end) {
            self.handle(event);
            if !self.fabric.stopped.is_empty() {
                self.after_stop();
                if let Some(node) = self.fabric.stuck.take() {
                    return Outcome::Stuck(node);
                }
            }
            let looks = self.fabric.counters.events.is_multiple_of(EVENTS_PER_LOOK);
            if looks && self.fabric.trace_failed() {
                return Outcome::TraceFailed;
            }
        }
        if self.fabric.trace_failed() {
            return Outcome::TraceFailed;
        }
        if self.fabric.is_idle() {
            return Outcome::Idle;
        }
        self.fabric.now = self.fabric.now.max(end);
        Outcome::Reached
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> &Counters {
        &self.fabric.counters
    }

    /// Returns the counters of a link so far, from its first end to its second and back.
    ///
    /// # Panics
    ///
    /// If the link does not exist.
    pub fn link_counters(&self, link: LinkId) -> (LinkCounters, LinkCounters) {
        let [forth, back] = LineId::of(link).map(|line| self.fabric.link_counters(line));
        (forth, back)
    }

    /// Returns the program of a host, if it is an `A`.
    pub fn app<A: App>(&self, node: NodeId) -> Option<&A> {
        match self.programs.get(node.0 as usize)? {
            Program::App(app) => (&**app as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// Returns a mutable reference to the program of a host, if it is an `A`.
    pub fn app_mut<A: App>(&mut self, node: NodeId) -> Option<&mut A> {
        match self.programs.get_mut(node.0 as usize)? {
            Program::App(app) => (&mut **app as &mut dyn Any).downcast_mut(),
            _ => None,
        }
    }

    /// Returns the hook of a router, if it is an `H`.
    pub fn router_hook<H: RouterHook>(&self, node: NodeId) -> Option<&H> {
        match self.programs.get(node.0 as usize)? {
            Program::Hook(hook) => (&**hook as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// Returns a mutable reference to the hook of a router, if it is an `H`.
    pub fn router_hook_mut<H: RouterHook>(&mut self, node: NodeId) -> Option<&mut H> {
        match self.programs.get_mut(node.0 as usize)? {
            Program::Hook(hook) => (&mut **hook as &mut dyn Any).downcast_mut(),
            _ => None,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { parcel, line, left } => self.on_arrival(parcel, line, left),
            Event::Branches { parcel, place, first, end, left } => {
                self.on_branches(parcel, place, first..end, left);
            }
            Event::Message(id) => {
                let message = self.fabric.sessions.take(id);
                if self.fabric.nodes[message.to.0 as usize].running {
                    self.with_app(message.to, |app, context| {
                        app.message(context, message.from, message.bytes);
                    });
                }
            }
            Event::Wake(node) => self.on_wake(node),
            Event::Start(node) => {
                self.fabric.nodes[node.0 as usize].running = true;
                let Simulation { fabric, programs, .. } = self;
                let context = &mut Context { fabric, node };
                match &mut programs[node.0 as usize] {
                    Program::App(app) => app.start(context),
                    Program::Hook(hook) => hook.start(context),
                    Program::None => {}
                }
            }
            Event::Graft { place, epoch } => self.fabric.on_graft(place, epoch),
            Event::Prune { place, epoch } => self.fabric.on_prune(place, epoch),
            Event::LineChange { line, up } => self.fabric.change_line(line, up),
        }
    }

    fn with_app(&mut self, node: NodeId, call: impl FnOnce(&mut dyn App, &mut Context<'_>)) {
        let Simulation { fabric, programs, .. } = self;
        if let Program::App(app) = &mut programs[node.0 as usize] {
            call(&mut **app, &mut Context { fabric, node });
        }
    }

    fn on_wake(&mut self, node: NodeId) {
        match self.fabric.timers.on_event(node, self.fabric.now) {
            Due::Never => {}
            Due::Later(at) => self.fabric.schedule(at, Event::Wake(node)),
            Due::Now => {
                let Simulation { fabric, programs, .. } = self;
                let context = &mut Context { fabric, node };
                match &mut programs[node.0 as usize] {
                    Program::App(app) => app.wake(context),
                    Program::Hook(hook) => hook.wake(context),
                    Program::None => {}
                }
            }
        }
    }

    fn on_arrival(&mut self, id: ParcelId, line: LineId, left: u8) {
        let mut parcel = self.fabric.take(id);
        if let Some(node) = self.fabric.exit(line, &parcel) {
            self.arrive(node, line, None, id, &mut parcel, left);
        }
        self.fabric.put_back(id, parcel);
    }

    fn on_branches(
        &mut self,
        id: ParcelId,
        place: PlaceId,
        branches: std::ops::Range<u32>,
        left: u8,
    ) {
        let mut parcel = self.fabric.take(id);
        for number in branches {
            let branch = self.fabric.branch(place, number);
            if let Some(node) = self.fabric.exit(branch.line, &parcel) {
                self.arrive(node, branch.line, Some(branch), id, &mut parcel, left);
            }
        }
        self.fabric.release(place);
        self.fabric.put_back(id, parcel);
    }

    /// Handles a packet that arrives at a node, by a branch of a tree or by a line.
    fn arrive(
        &mut self,
        node: NodeId,
        line: LineId,
        branch: Option<Branch>,
        id: ParcelId,
        parcel: &mut Parcel,
        left: u8,
    ) {
        let state = self.fabric.nodes[node.0 as usize];
        if state.kind == NodeKind::Host {
            let is_for_it = match (parcel.packet.destination, branch) {
                (Destination::Group(_), Some(branch)) => branch.member,
                (Destination::Group(group), None) => self.fabric.is_member(group, node),
                (Destination::Unicast(to), _) => {
                    if to != node {
                        self.fabric.drop_in(node, parcel, Hop::NoRoute);
                    }
                    to == node
                }
            };
            if is_for_it && state.running {
                self.fabric.counters.delivered += 1;
                parcel.packet.hop_limit = left;
                self.with_app(node, |app, context| app.packet(context, &parcel.packet));
            }
            return;
        }
        if state.running {
            let Simulation { fabric, programs, .. } = self;
            if let Program::Hook(hook) = &mut programs[node.0 as usize] {
                parcel.packet.hop_limit = left;
                let context = &mut Context { fabric, node };
                if hook.forward(context, &parcel.packet, line.link()) == Forwarding::Taken {
                    return;
                }
            }
        }
        self.fabric.relay(node, branch.map(|branch| branch.place), id, parcel, left);
    }

    #[cold]
    fn after_stop(&mut self) {
        while let Some(node) = self.fabric.stopped.pop() {
            if self.drop_stopped {
                self.programs[node.0 as usize] = Program::None;
            }
        }
    }
}
