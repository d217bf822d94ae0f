//! The common part of the engines' tests: time, addresses, engines driven by hand, and a
//! [world](world::World) in which they meet.

// The fuzz targets compile it, too, with what users of this crate see.
mod checks;
mod corpora;
#[path = "../../../umbel-wire/tests/common/corpus.rs"]
mod corpus;
pub(crate) mod world;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) use umbel_seeds::seeds;
use umbel_wire::Channel;

use crate::router::{PassingDatagram, RouterTransmit, Routes, Verdict};
use crate::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, RouterEngine, Transmit,
    TransmitBuf,
};

/// Returns the time `n` ms after the beginning.
pub(crate) fn ms(n: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(n)
}

/// Returns the address of a host by its number.
pub(crate) fn host(n: u8) -> SocketAddr {
    ([10, 0, 0, n], 7702).into()
}

/// Returns the channel of host 1.
pub(crate) fn channel() -> Channel {
    Channel { source: Some(host(1).ip()), group: [232, 0, 0, 7].into(), port: 7702 }
}

/// Returns another channel of host 1.
pub(crate) fn other_channel() -> Channel {
    Channel { group: [232, 0, 0, 8].into(), ..channel() }
}

/// Hands an engine a datagram.
pub(crate) fn give(engine: &mut impl Engine, now: Instant, by: Address, payload: &[u8]) {
    engine.handle_datagram(now, Datagram { by, hop_limit: None, payload });
}

/// Returns everything that an engine sends now, units of data included.
pub(crate) fn sent(engine: &mut impl Engine, now: Instant) -> Vec<(Address, Vec<u8>)> {
    let mut all = Vec::new();
    let mut buf = TransmitBuf::new(Allowance::data(1));
    while let Some(Transmit { to, .. }) = engine.poll_transmit(now, &mut buf) {
        all.extend(buf.iter().map(|(head, body)| (to, [head, body].concat())));
        buf.reset(Allowance::data(1));
    }
    all
}

/// Returns the same after the engine has done what is due.
pub(crate) fn sent_by(engine: &mut impl Engine, now: Instant) -> Vec<(Address, Vec<u8>)> {
    if engine.poll_timeout().is_some_and(|at| at <= now) {
        engine.handle_timeout(now);
    }
    sent(engine, now)
}

/// Returns the events that an engine reports now.
pub(crate) fn events<E: Engine>(engine: &mut E) -> Vec<E::Event> {
    std::iter::from_fn(|| engine.poll_event()).collect()
}

/// An engine under test, of a host or of a router. Nothing may be dropped but what the test
/// [expects](Tested::assert_dropped), or its [world](world::World::may_drop) allows.
#[derive(Debug)]
pub(crate) struct Tested<E> {
    engine: E,
    drops: fn(&E) -> String,
    expected: String,
    allowed: BTreeSet<String>,
}

impl<E> Tested<E> {
    /// Watches an engine, whose drops are those of `drops`.
    pub(crate) fn new(engine: E, drops: fn(&E) -> String) -> Tested<E> {
        Tested { engine, drops, expected: String::new(), allowed: BTreeSet::new() }
    }

    /// Asserts what was dropped since the beginning, beside what is allowed: `Duplicate 2,
    /// Malformed 1`.
    #[track_caller]
    pub(crate) fn assert_dropped(&mut self, drops: &str) {
        drops.clone_into(&mut self.expected);
        assert_eq!(self.dropped(), self.expected);
    }

    /// Allows drops for this reason from now on.
    pub(crate) fn allow(&mut self, reason: &str) {
        self.allowed.insert(reason.to_owned());
    }

    /// Returns what was dropped beside what is allowed.
    fn dropped(&self) -> String {
        let drops = (self.drops)(&self.engine);
        let is_allowed = |drop: &&str| {
            drop.split_once(' ').is_some_and(|(reason, _)| self.allowed.contains(reason))
        };
        drops.split(", ").filter(|drop| !is_allowed(drop)).collect::<Vec<_>>().join(", ")
    }
}

impl<E> Drop for Tested<E> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let engine = std::any::type_name::<E>();
            assert_eq!(self.dropped(), self.expected, "{engine} dropped that unexpectedly");
        }
    }
}

impl<E> Deref for Tested<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.engine
    }
}

impl<E> DerefMut for Tested<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.engine
    }
}

impl<E: Engine> Engine for Tested<E> {
    type Command = E::Command;
    type CommandError = E::CommandError;
    type Event = E::Event;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.engine.handle_datagram(now, datagram);
    }

    fn handle_command(&mut self, now: Instant, command: E::Command) -> Result<(), E::CommandError> {
        self.engine.handle_command(now, command)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        let has_output = self.engine.has_output();
        let change = self.engine.poll_membership();
        assert!(has_output || change.is_none(), "it said that it had no output: {change:?}");
        change
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let has_output = self.engine.has_output();
        let transmit = self.engine.poll_transmit(now, buf);
        assert!(has_output || transmit.is_none(), "it said that it had no output: {transmit:?}");
        transmit
    }

    fn has_output(&self) -> bool {
        self.engine.has_output()
    }

    fn wants(&self, class: RateClass) -> bool {
        self.engine.wants(class)
    }

    fn poll_event(&mut self) -> Option<E::Event> {
        let has_output = self.engine.has_output();
        let event = self.engine.poll_event();
        assert!(has_output || event.is_none(), "it said that it had no output");
        event
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }
}

impl<E: RouterEngine> RouterEngine for Tested<E> {
    fn handle_datagram(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict {
        self.engine.handle_datagram(now, routes, datagram)
    }

    fn handle_timeout(&mut self, now: Instant, routes: &mut dyn Routes) {
        self.engine.handle_timeout(now, routes);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<RouterTransmit> {
        self.engine.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }
}
