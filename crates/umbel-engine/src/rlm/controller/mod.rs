//! Choice of a receiver's level.

mod delay;
mod detection;
mod experiments;
mod join_timers;
mod loss_rate;
mod machine;
#[cfg(test)]
mod machine_tests;
mod queueing;

use std::fmt;
use std::time::Duration;

pub(super) use delay::Delay;
pub(super) use machine::Machine;

use super::api::{LevelReason, State};
use crate::Instant;

/// Rule by which a receiver chooses its level. Levels count from 1, the base layer.
pub(super) trait Controller: fmt::Debug + Send {
    /// Begins, at level 1.
    fn on_join(&mut self, now: Instant);

    /// Ends, at level 0.
    fn on_leave(&mut self);

    /// Takes the arrival of a packet.
    fn on_packet(&mut self, now: Instant, packet: Packet);

    /// Takes the loss of packets, at least 1, of any layer that is received.
    fn on_lost(&mut self, now: Instant, packets: u64);

    /// Takes the announcement of another receiver's experiment.
    fn on_experiment(&mut self, now: Instant, level: u8);

    /// Takes whether a change of the layer would cut an object that is being received. An
    /// experiment waits for its end, within bounds.
    fn on_object(&mut self, now: Instant, in_object: bool);

    /// Takes the estimated number of receivers, this one included.
    fn on_receivers(&mut self, receivers: u64);

    /// Sets the greatest level to be tried.
    fn limit(&mut self, now: Instant, level: u8);

    /// Does what is due.
    fn on_timeout(&mut self, now: Instant);

    /// Returns the time at which something is next due.
    fn next_timeout(&self) -> Option<Instant>;

    /// Returns the next change of the level, or of an experiment.
    fn poll_action(&mut self) -> Option<Action>;

    /// Returns what is known now.
    fn status(&self) -> Status;
}

/// A packet, as far as controllers look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Its layer; 0 is the base.
    pub(super) layer: u8,
    /// Time at which the source sent it in µs, by the source's clock, wrapping.
    pub(super) sent_us: u32,
}

/// Action that a controller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Rise to this level; announce the experiment if it is one.
    Rise { level: u8, reason: LevelReason },
    /// Fall to this level. `after` is the time from the start of the failed experiment to its
    /// effect, if one failed.
    Fall { level: u8, reason: LevelReason, after: Option<Duration> },
    /// The experiment at this level has succeeded.
    Succeed { level: u8 },
}

/// A controller's state, estimates and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) level: u8,
    pub(super) state: Option<State>,
    pub(super) experiments: u64,
    pub(super) failed: u64,
    pub(super) suppressed: u64,
    pub(super) detection_time: Duration,
    pub(super) detection_deviation: Duration,
}
