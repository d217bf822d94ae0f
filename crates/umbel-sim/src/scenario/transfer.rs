//! The receivers of a file that all get at once: what `[tmtp]` and `[basep]` share.

use std::time::Duration;

use umbel_engine::Instant;

use super::report::Column;
use crate::Simulation;
use crate::app::App;
use crate::network::NodeId;

/// Receivers, all of which have the same program.
#[derive(Debug)]
pub(super) struct Receivers<H> {
    nodes: Vec<NodeId>,
    /// Time at which the file begins.
    start: Instant,
    /// Returns when a receiver had all of it.
    completed: fn(&H) -> Option<Instant>,
}

impl<H: App> Receivers<H> {
    pub(super) fn new(
        nodes: Vec<NodeId>,
        start: Instant,
        completed: fn(&H) -> Option<Instant>,
    ) -> Receivers<H> {
        Receivers { nodes, start, completed }
    }

    /// Returns the time from the start of the file.
    pub(super) fn since_start(&self, at: Instant) -> Duration {
        at.since(self.start)
    }

    /// Returns their programs, in the order of the topology.
    pub(super) fn hosts<'s>(&self, simulation: &'s Simulation) -> impl Iterator<Item = &'s H> {
        self.nodes.iter().filter_map(|node| simulation.app::<H>(*node))
    }

    /// Returns the number of those that have the file, and that of all.
    pub(super) fn progress(&self, simulation: &Simulation) -> (usize, usize) {
        let done = self.hosts(simulation).filter(|host| (self.completed)(host).is_some());
        (done.count(), self.nodes.len())
    }

    /// Returns the time that each took to get the file.
    pub(super) fn delays(&self, simulation: &Simulation) -> Vec<Option<Duration>> {
        let delay = |host: &H| (self.completed)(host).map(|at| self.since_start(at));
        self.hosts(simulation).map(delay).collect()
    }

    /// Returns the sum of what each counts.
    pub(super) fn sum(&self, simulation: &Simulation, value: fn(&H) -> u64) -> f64 {
        self.hosts(simulation).map(value).sum::<u64>() as f64
    }

    /// Returns what each counts.
    pub(super) fn counts(&self, simulation: &Simulation, value: fn(&H) -> u64) -> Column {
        Column::Integers(self.hosts(simulation).map(value).collect())
    }

    /// Returns what each says in a word.
    pub(super) fn texts(&self, simulation: &Simulation, value: impl Fn(&H) -> String) -> Column {
        Column::Texts(self.hosts(simulation).map(value).collect())
    }

    /// Returns the first columns of their table: name and delay.
    pub(super) fn names_and_delays(&self, simulation: &Simulation) -> Vec<(&'static str, Column)> {
        let network = simulation.network();
        let names = self.nodes.iter().map(|node| network.name(*node).to_owned());
        let delays = self.delays(simulation).into_iter();
        let delays = delays.map(|delay| delay.map(|delay| delay.as_secs_f64()));
        vec![
            ("receiver", Column::Texts(names.collect())),
            ("delay_s", Column::Numbers(delays.collect())),
        ]
    }
}
