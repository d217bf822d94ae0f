//! A world in virtual time: a source and its receivers, in a network that loses, duplicates, delays
//! and reorders.
//!
//! Engines are hosted as [`Engine`] demands. After each `handle_*` the memberships, datagrams and
//! events are taken until there are none, and then the next wake-up. Simultaneous happenings come
//! in the order in which they were scheduled, and all draws follow from one seed. Protocols with
//! engines in routers have a tree of them in the network ([`World::add_router`]).
//!
//! A world fails its test if time stands still, or if a batch or a membership breaks the contract.
//! It also fails if anything is dropped that the test neither [expects](Tested::assert_dropped) nor
//! [allows](World::may_drop).
//!
//! Faults are scripted between runs ([`World::crash`], [`Network`]), at a later time
//! ([`World::later`]), or datagram by datagram ([`Protocol::passes`]).

mod hosted;
mod network;
mod routers;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng;

pub(crate) use self::hosted::Hosted;
use self::network::Arrival;
pub(crate) use self::network::{Bottleneck, Host, Link, Network, Standstill};
pub(crate) use self::routers::NoRouter;
use self::routers::{Node, Parcel, Router};
use super::Tested;
use crate::chance::generator;
use crate::{Address, Datagram, Engine, Instant, RouterEngine, Transmit, TransmitBuf};

/// A protocol's additions to the world: the engines, their applications, and notes.
pub(crate) trait Protocol: Sized {
    type Source: Seat;
    type Receiver: Seat;
    /// The engine in routers; [`NoRouter`] if there is none.
    type Router: RouterEngine;

    /// Takes an event of the source, as its application does.
    fn on_source_event(world: &mut World<Self>, event: EventOf<Self::Source>);

    /// Takes an event of a receiver.
    fn on_receiver_event(world: &mut World<Self>, receiver: usize, event: EventOf<Self::Receiver>);

    /// Acts for the application of a host whose engine has said everything. Returns whether it did
    /// anything.
    fn act(_world: &mut World<Self>, _host: usize) -> bool {
        false
    }

    /// Sees what a host sends, and may change it. Returns whether the network carries it.
    fn passes(
        _world: &mut World<Self>,
        _from: usize,
        _transmit: Transmit,
        _payload: &mut Bytes,
    ) -> bool {
        true
    }

    /// Hands a host's engine what arrives.
    fn arrive(world: &mut World<Self>, to: usize, datagram: Datagram<'_>) {
        let now = world.now;
        world.engine(to).handle_datagram(now, datagram);
    }

    /// Checks what must hold whenever a host has acted.
    fn check(_world: &World<Self>, _host: usize) {}

    /// Returns the state of all, for the message of a failure.
    fn state(_world: &World<Self>) -> String {
        String::new()
    }
}

/// Place of an engine: itself, or its surroundings in a test.
pub(crate) trait Seat {
    type Engine: Engine;

    fn engine(&mut self) -> &mut Tested<Self::Engine>;
}

/// An engine, and what its application has got.
pub(crate) struct Counted<E: Engine, G> {
    pub(crate) engine: Tested<E>,
    pub(crate) got: G,
}

impl<E: Engine, G> Seat for Counted<E, G> {
    type Engine = E;

    fn engine(&mut self) -> &mut Tested<E> {
        &mut self.engine
    }
}

pub(crate) type EventOf<S> = <<S as Seat>::Engine as Engine>::Event;

impl<E: Engine> Seat for Tested<E> {
    type Engine = E;

    fn engine(&mut self) -> &mut Tested<E> {
        self
    }
}

type Deed<P> = Box<dyn FnOnce(&mut World<P>)>;

enum Happening<P: Protocol> {
    Wake(usize),
    Arrival {
        to: usize,
        by: Address,
        hop_limit: u8,
        payload: Bytes,
    },
    /// A datagram comes to a router from the other end of a link.
    Passing {
        router: usize,
        from: Node,
        parcel: Parcel,
    },
    RouterWake(usize),
    Deed(Deed<P>),
}

impl<P: Protocol> Happening<P> {
    fn arrival(Arrival { to, by, hop_limit, .. }: Arrival, payload: Bytes) -> Happening<P> {
        Happening::Arrival { to, by, hop_limit, payload }
    }
}

/// The source, the receivers and the network. It dereferences to what the protocol's tests note.
///
/// Hosts are numbered: the source is 0, and receiver `n` is `n + 1`.
pub(crate) struct World<P: Protocol> {
    pub(crate) now: Instant,
    pub(crate) source: P::Source,
    pub(crate) receivers: Vec<P::Receiver>,
    pub(crate) routers: Vec<Router<P::Router>>,
    pub(crate) network: Network,
    protocol: P,
    calendar: BTreeMap<(Instant, u64), Happening<P>>,
    serial: u64,
    /// Number of happenings since time moved on.
    at_once: u32,
    allowed: Vec<String>,
    buf: TransmitBuf,
    _seed: Seed,
}

/// Prints the seed if the test fails. It is the last to go.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("it fails with UMBEL_SEED={}", self.0);
        }
    }
}

impl<P: Protocol> World<P> {
    /// Creates a world that holds the source alone.
    pub(crate) fn with_source(seed: u64, protocol: P, source: P::Source, host: Host) -> World<P> {
        let mut world = World {
            now: Instant::from_nanos(1_000_000_000),
            source,
            receivers: Vec::new(),
            routers: Vec::new(),
            network: Network::new(host, generator(seed)),
            protocol,
            calendar: BTreeMap::new(),
            serial: 0,
            at_once: 0,
            allowed: Vec::new(),
            buf: TransmitBuf::default(),
            _seed: Seed(seed),
        };
        world.drain(0);
        world
    }

    /// Adds a receiver. Returns the number of its host.
    pub(crate) fn add_host(&mut self, receiver: P::Receiver, host: Host) -> usize {
        self.receivers.push(receiver);
        self.network.hosts.push(host);
        let host = self.receivers.len();
        for reason in self.allowed.clone() {
            self.engine(host).allow(&reason);
        }
        self.drain(host);
        host
    }

    /// Allows all engines to drop for this reason from now on.
    pub(crate) fn may_drop(&mut self, reason: impl Debug) {
        let reason = format!("{reason:?}");
        (0..=self.receivers.len()).for_each(|host| self.engine(host).allow(&reason));
        self.routers.iter_mut().for_each(|router| router.engine.allow(&reason));
        self.allowed.push(reason);
    }

    /// Returns the state of all, for the message of a failure.
    pub(crate) fn state(&self) -> String {
        P::state(self)
    }

    pub(crate) fn engine(&mut self, host: usize) -> &mut dyn Hosted {
        match host.checked_sub(1) {
            None => self.source.engine(),
            Some(receiver) => self.receivers[receiver].engine(),
        }
    }

    pub(crate) fn host(&mut self, host: usize) -> &mut Host {
        &mut self.network.hosts[host]
    }

    pub(crate) fn is_up(&self, host: usize) -> bool {
        self.network.hosts[host].is_up
    }

    /// Draws a number below `bound` for the test.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.network.random.next_u64() % bound
    }

    /// Crashes a host without a word. It may come back with another engine
    /// ([`restart`](World::restart)).
    pub(crate) fn crash(&mut self, host: usize) {
        let place = self.host(host);
        (place.is_up, place.joined) = (false, BTreeSet::new());
        if let Some(wake) = place.wake.take() {
            self.calendar.remove(&wake);
        }
    }

    /// Lets a host run again, with the engine that was put into its place.
    pub(crate) fn restart(&mut self, host: usize) {
        self.host(host).is_up = true;
        self.drain(host);
    }

    /// Does something after this time.
    pub(crate) fn later(&mut self, time: Duration, deed: impl FnOnce(&mut World<P>) + 'static) {
        self.schedule(self.now + time, Happening::Deed(Box::new(deed)));
    }

    /// Sends a datagram of a host through the network.
    pub(crate) fn send(&mut self, from: usize, transmit: Transmit, mut payload: Bytes) {
        if !P::passes(self, from, transmit, &mut payload) {
            return;
        }
        if !self.network.tree.is_empty() {
            return self.send_by_routers(from, transmit, payload);
        }
        for arrival in self.network.carry(self.now, from, transmit, payload.len()) {
            self.schedule(arrival.at, Happening::arrival(arrival, payload.clone()));
        }
    }

    /// Makes a datagram arrive at a host now, whoever sent it.
    pub(crate) fn give(&mut self, to: usize, by: Address, payload: &[u8]) {
        if self.is_up(to) {
            P::arrive(self, to, Datagram { by, hop_limit: Some(60), payload });
            self.drain(to);
        }
    }

    /// Returns the datagrams that are under way.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Bytes> {
        self.calendar.values().filter_map(|happening| match happening {
            Happening::Arrival { payload, .. } => Some(payload),
            Happening::Passing { parcel, .. } => Some(&parcel.payload),
            Happening::Wake(_) | Happening::RouterWake(_) | Happening::Deed(_) => None,
        })
    }

    /// Loses the datagrams that are under way.
    pub(crate) fn lose_all_in_flight(&mut self) {
        self.calendar.retain(|_, happening| {
            !matches!(happening, Happening::Arrival { .. } | Happening::Passing { .. })
        });
    }

    /// Lets time pass.
    pub(crate) fn run_for(&mut self, time: Duration) {
        self.reaches(time, |_| false);
    }

    /// Runs until the condition holds, but no longer than `most`. Returns whether it holds.
    pub(crate) fn reaches(
        &mut self,
        most: Duration,
        mut done: impl FnMut(&mut World<P>) -> bool,
    ) -> bool {
        let end = self.now + most;
        // Tests may have told engines something.
        (0..=self.receivers.len()).for_each(|host| self.drain(host));
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                self.now = end;
                return done(self);
            }
        }
    }

    /// Runs until the condition holds.
    #[track_caller]
    pub(crate) fn run_until(&mut self, most: Duration, done: impl FnMut(&mut World<P>) -> bool) {
        let reached = self.reaches(most, done);
        assert!(reached, "not done after {most:?}, at {:?}\n{}", self.now, self.state());
    }
}

impl<P: Protocol> Deref for World<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.protocol
    }
}

impl<P: Protocol> DerefMut for World<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.protocol
    }
}
